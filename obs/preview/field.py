"""How a value of a field looks: its name, unit, colour and text after Grafana's defaults, overrides and mappings."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from obs.preview import units
from obs.preview.load import Json, Panel

#: Properties of fields that the drawing heeds.
DRAWN = frozenset({
    "unit", "decimals", "min", "max", "displayName", "color", "noValue", "thresholds", "mappings", "links",
    "custom.lineStyle", "custom.lineWidth", "custom.fillOpacity", "custom.drawStyle", "custom.lineInterpolation",
    "custom.stacking", "custom.thresholdsStyle", "custom.hideFrom", "custom.cellOptions", "custom.hidden", "custom.align",
    "custom.spanNulls", "custom.showPoints", "custom.width", "custom.axisSoftMin", "custom.axisSoftMax",
})
#: Properties that change nothing on a page that stands still.
INERT = frozenset({
    "description", "filterable", "writeable", "displayNameFromDS", "custom.filterable", "custom.inspect", "custom.minWidth",
    "custom.axisLabel", "custom.axisColorMode", "custom.axisPlacement", "custom.axisGridShow", "custom.axisBorderShow",
    "custom.axisCenteredZero", "custom.barAlignment", "custom.gradientMode", "custom.pointSize", "custom.insertNulls",
    "custom.scaleDistribution", "custom.displayMode", "custom.barWidthFactor",
})

_NAMED = ("red", "orange", "yellow", "green", "blue", "purple")
_SAFE = re.compile(r"#[0-9a-fA-F]{3,8}|rgba?\([\d.,% ]+\)")
PALETTE = 10
"""Colours of series, by turns: CSS variables --c0 to --c9."""


def color(name: str) -> str:
    """A colour of Grafana's as CSS: a hue with or without its shade, a hex value; the ink for any other word."""
    if _SAFE.fullmatch(name):
        return name
    hue = name.rsplit("-", 1)[-1]
    if hue in _NAMED:
        return f"var(--{hue})"
    return "transparent" if name == "transparent" else "var(--ink)"


def palette(index: int) -> str:
    return f"var(--c{index % PALETTE})"


@dataclass(frozen=True)
class Field:
    """The configuration of one field (a series or a column) with its overrides applied."""

    name: str
    config: Json

    @property
    def unit(self) -> str:
        return str(self.config.get("unit") or "none")

    @property
    def custom(self) -> Json:
        found = self.config.get("custom")
        return found if isinstance(found, Mapping) else {}

    def number(self, key: str) -> float | None:
        value = self.config.get(key)
        return float(value) if isinstance(value, (int, float)) else None

    def no_value(self, default: str = "No data") -> str:
        return str(self.config.get("noValue") or default)

    def hidden(self, where: str) -> bool:
        """Hidden from the legend or from the drawing ("viz")."""
        return bool((self.custom.get("hideFrom") or {}).get(where))

    def text(self, value: float | str | None, now: float = 0.0) -> tuple[str, str]:
        """The text of a value, and the CSS colour that a mapping gives it ("" for none)."""
        mapped = _mapped(self.config.get("mappings") or (), value)
        if mapped is not None and mapped.get("text") not in (None, ""):
            return str(mapped["text"]), color(str(mapped["color"])) if mapped.get("color") else ""
        tint = color(str(mapped["color"])) if mapped is not None and mapped.get("color") else ""
        if value is None:
            return self.no_value(), tint
        if isinstance(value, str):
            return value, tint
        decimals = self.config.get("decimals")
        return units.text(value, self.unit, decimals if isinstance(decimals, int) else None, now=now), tint

    def steps(self) -> list[tuple[float, str]]:
        """The thresholds: (from, colour), the base from minus infinity; of a percentage mode in the field's own unit."""
        given = self.config.get("thresholds") or {}
        low, high = self.number("min") or 0.0, self.number("max")
        found = []
        for step in given.get("steps") or ():
            value = step.get("value")
            at = -math.inf if value is None else float(value)
            if given.get("mode") == "percentage" and value is not None:
                at = low + (100.0 if high is None else high - low) * at / 100
            found.append((at, str(step.get("color") or "text")))
        return sorted(found, key=lambda one: one[0])

    def threshold(self, value: float | None) -> str:
        """The CSS colour of the threshold that a value has reached."""
        name = "text"
        for at, tint in self.steps():
            if at == -math.inf or (value is not None and not math.isnan(value) and value >= at):
                name = tint
        return color(name)

    def colored(self, index: int, value: float | None) -> str:
        """The CSS colour of a series by its colour mode."""
        given = self.config.get("color") or {}
        mode = str(given.get("mode") or "palette-classic")
        if mode in {"fixed", "shades"}:
            return color(str(given.get("fixedColor") or "text"))
        return self.threshold(value) if mode == "thresholds" else palette(index)


def field(panel: Panel, name: str, *, ref: str = "", kind: str = "number") -> Field:
    """The field called ``name`` of the query ``ref``; ``kind``: "number", "string" or "time"."""
    config: dict[str, Any] = copy.deepcopy(dict(panel.defaults))
    for override in panel.overrides:
        if _matches(override.get("matcher") or {}, name, ref, kind):
            for one in override.get("properties") or ():
                _put(config, str(one.get("id")), one.get("value"))
    return Field(str(config.get("displayName") or name), config)


def plain(panel: Panel) -> Field:
    """What holds for the panel as a whole (its axis, its words for no data), whatever single fields override."""
    return Field("", panel.defaults)


def _put(config: dict[str, Any], key: str, value: Any) -> None:
    head, _, rest = key.partition(".")
    if rest:
        below = config.get(head)
        config[head] = dict(below) if isinstance(below, Mapping) else {}
        _put(config[head], rest, value)
    else:
        config[head] = value


def _matches(matcher: Json, name: str, ref: str, kind: str) -> bool:
    how, options = matcher.get("id"), matcher.get("options")
    if how == "byName":
        return bool(options == name)
    if how == "byRegexp":
        text = str(options)
        found = re.fullmatch(r"/(.*)/([a-z]*)", text, re.DOTALL)
        pattern, flags = (found[1], found[2]) if found else (text, "")
        try:
            return re.search(pattern, name, re.IGNORECASE if "i" in flags else 0) is not None
        except re.error:
            return False
    if how == "byFrameRefID":
        return bool(options == ref)
    if how == "byType":
        return bool(options == kind)
    if how == "byNames" and isinstance(options, Mapping):
        return (name in (options.get("names") or ())) == (options.get("mode") != "exclude")
    return False


_MATCHERS = frozenset({"byName", "byRegexp", "byFrameRefID", "byType", "byNames"})


def _mapped(mappings: Iterable[Json], value: float | str | None) -> Json | None:
    """The result of the first mapping that fits."""
    for one in mappings:
        options = one.get("options") or {}
        kind = one.get("type")
        if kind == "value":
            key = value if isinstance(value, str) else "" if value is None else units.number(value, None if value % 1 else 0)
            if key in options:
                found: Json = options[key]
                return found
        elif kind == "range" and isinstance(value, (int, float)):
            low, high = options.get("from"), options.get("to")
            if (low is None or value >= low) and (high is None or value <= high):
                return options.get("result") or {}
        elif kind == "regex" and isinstance(value, str):
            text = str(options.get("pattern") or "")
            found_ = re.fullmatch(r"/(.*)/[a-z]*", text)
            if re.search(found_[1] if found_ else text, value):
                return options.get("result") or {}
        elif kind == "special":
            nan = isinstance(value, float) and math.isnan(value)
            match = options.get("match")
            if (match in {"null", "null+nan"} and value is None) or (match in {"nan", "null+nan"} and nan) or (
                match == "empty" and value == ""
            ):
                return options.get("result") or {}
    return None


def notes(panel: Panel, drawn: Sequence[str] = ()) -> list[str]:
    """Features of the fields that are not drawn. ``drawn``: more properties that this kind of panel heeds."""
    known = DRAWN | INERT | set(drawn)
    found: dict[str, None] = {}
    for override in panel.overrides:
        how = (override.get("matcher") or {}).get("id")
        if how not in _MATCHERS:
            found[f"overrides {how}"] = None
        for one in override.get("properties") or ():
            if one.get("id") not in known:
                found[f"override of {one.get('id')}"] = None
    for key in panel.defaults:
        if key != "custom" and key not in known:
            found[key] = None
    custom = panel.defaults.get("custom") or {}
    for key in custom:
        if f"custom.{key}" not in known:
            found[f"custom.{key}"] = None
    if (custom.get("scaleDistribution") or {}).get("type", "linear") != "linear":
        found["a logarithmic axis"] = None
    if custom.get("axisPlacement") in {"right", "hidden"}:
        found[f"an axis placed {custom['axisPlacement']}"] = None
    mode = str((panel.defaults.get("color") or {}).get("mode") or "")
    if mode.startswith("continuous"):
        found[f"colour mode {mode}"] = None
    return list(found)
