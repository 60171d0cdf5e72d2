"""What several kinds of panels share: space, axes, legends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from html import escape
from typing import Literal, NamedTuple

from obs.preview import calcs, units
from obs.preview import field as fields
from obs.preview.field import Field
from obs.preview.load import Json
from obs.preview.query import Filled, Range

State = Literal["data", "empty", "error", "unsupported"]
_TIMES = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800)
CHARACTER = 7.2
"""How wide a character of a label is, pixels: that of the widest usual font (DejaVu Sans), so that none is cut off."""
LEGEND_SHARE = 0.35
"""The part of a panel's height that Grafana leaves to a legend below; a longer one is scrolled."""
LEGEND_LINE = 18


@dataclass(frozen=True)
class Space:
    """Room for the inside of a panel, pixels."""

    width: int
    height: int


@dataclass(frozen=True)
class Drawn:
    """The inside of a panel. ``count``: how many series, values or rows are in it; ``notes``: what is not drawn."""

    html: str
    state: State
    notes: tuple[str, ...] = ()
    count: int = 0


def nothing(field: Field, notes: Sequence[str] = ()) -> Drawn:
    """No series at all: the panel's own words for it, never a 0."""
    return Drawn(f'<div class="middle none">{escape(field.no_value())}</div>', "empty", tuple(notes))


class Reading(NamedTuple):
    """A series as one value: ``text`` and ``color`` as the panel's field shows it."""

    field: Field
    value: float | None
    text: str
    color: str


def readings(filled: Filled, shown: Range) -> tuple[list[Reading], list[str]]:
    """Every series of a panel reduced to its value, and notes on what of that is not as Grafana does it."""
    found, notes = list[Reading](), list[str]()
    for index, series in enumerate(filled.series):
        own = fields.field(filled.panel, series.name, ref=series.ref)
        value, more = reduced(filled.panel.options, series.numbers)
        notes += more
        text, tint = own.text(value, shown.end)
        found.append(Reading(own, value, text, tint or own.colored(index, value)))
    return found, notes


def share(value: float | None, low: float, high: float) -> float:
    """How far from ``low`` to ``high`` a value is, 0 to 1; an unknown one fills nothing."""
    return 0.0 if value is None or math.isnan(value) else min(1.0, max(0.0, (value - low) / (high - low or 1.0)))


def svg(space: Space, inner: Sequence[str], label: str) -> str:
    """A picture of so many pixels that shrinks with its panel."""
    return (
        f'<svg viewBox="0 0 {space.width} {space.height}" width="{space.width}" height="{space.height}" role="img" '
        f'aria-label="{escape(label)}">{"".join(inner)}</svg>'
    )


def label(x: float, y: float, text: str, anchor: str = "start", kind: str = "") -> str:
    shape = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{shape}>{escape(text)}</text>'


def cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: max(1, limit - 1)] + "…"


def ticks(low: float, high: float, count: int, unit: str) -> list[float]:
    """Round values from ``low`` to ``high``, about so many."""
    raw = (high - low) / max(1, count)
    if raw <= 0 or not math.isfinite(raw):
        return [low]
    long = units.seconds_of(unit)
    if long and raw * long >= 30:
        size = next((one for one in _TIMES if one >= raw * long * 0.999), 604_800 * math.ceil(raw * long / 604_800)) / long
    elif unit in units.BINARY_UNITS:
        size = 2.0 ** math.ceil(math.log2(raw))
    else:
        power = 10.0 ** math.floor(math.log10(raw))
        size = next(power * step for step in (1, 2, 2.5, 5, 10) if power * step >= raw * 0.999)
    first = math.ceil(low / size - 1e-9)
    return [place * size for place in range(first, math.floor(high / size + 1e-9) + 1)]


def time_ticks(shown: Range, width: float) -> list[tuple[float, str]]:
    """Round times (UTC) with their texts, none nearer to the next than can be read."""
    most = max(1, width / 62)
    step = next((one for one in _TIMES if shown.length / one <= most), 604_800 * math.ceil(shown.length / 604_800 / most))
    form = "%m-%d" if step >= 86_400 else "%m-%d %H:%M" if shown.length > 2 * 86_400 else "%H:%M:%S" if step < 60 else "%H:%M"
    first = math.ceil(shown.start / step) * step
    times = range(first, math.floor(shown.end) + 1, step)
    return [(at, datetime.fromtimestamp(at, timezone.utc).strftime(form)) for at in times]


@dataclass(frozen=True)
class Entry:
    """One line of a legend."""

    name: str
    color: str
    field: Field
    values: Sequence[float]
    dashed: bool = False


def legend_height(options: Json, count: int, space: Space) -> int:
    """The height that a legend below takes, at most its share of the panel; 0 where there is none."""
    given = options.get("legend") or {}
    if given.get("showLegend") is False or given.get("displayMode") == "hidden" or not count:
        return 0
    lines = count + 1 if given.get("displayMode") == "table" else math.ceil(count / max(1, space.width // 180))
    return int(min(lines * LEGEND_LINE + 4, space.height * LEGEND_SHARE))


def legend(options: Json, entries: Sequence[Entry], height: int, now: float) -> tuple[str, list[str]]:
    """A legend as HTML, and what is not drawn of it."""
    given = options.get("legend") or {}
    if not height or not entries:
        return "", []
    notes = [f"legend at the {given['placement']} (drawn below)"] if given.get("placement") == "right" else []
    wanted = [str(one) for one in given.get("calcs") or ()]
    notes += [f"legend value {one}" for one in wanted if one not in calcs.TITLES]
    wanted = [one for one in wanted if one in calcs.TITLES]

    def swatch(entry: Entry) -> str:
        kind = ' class="dash"' if entry.dashed else ""
        return f'<i{kind} style="--c:{entry.color}"></i>'

    def value(entry: Entry, calc: str) -> str:
        found = calcs.reduce(calc, entry.values)
        return "–" if found is None else entry.field.text(found, now)[0]

    style = f' style="max-height:{height}px"'
    if given.get("displayMode") == "table":
        heads = "".join(f'<th class="r">{calcs.TITLES[one]}</th>' for one in wanted)
        rows = "".join(
            f'<tr><td title="{escape(entry.name)}">{swatch(entry)}{escape(entry.name)}</td>'
            + "".join(f'<td class="r">{escape(value(entry, one))}</td>' for one in wanted) + "</tr>"
            for entry in entries
        )
        table = f"<table><thead><tr><th>Name</th>{heads}</tr></thead><tbody>{rows}</tbody></table>"
        return f'<div class="legend"{style}>{table}</div>', notes
    items = "".join(
        f"<li>{swatch(entry)}{escape(entry.name)}"
        + "".join(f" <small>{calcs.TITLES[one]}: {escape(value(entry, one))}</small>" for one in wanted) + "</li>"
        for entry in entries
    )
    return f'<ul class="legend"{style}>{items}</ul>', notes


def reduced(options: Json, values: Sequence[float]) -> tuple[float | None, list[str]]:
    """The one number that a stat or gauge shows of a series, and what is not drawn."""
    wanted = (options.get("reduceOptions") or {}).get("calcs") or ["lastNotNull"]
    notes = ["every value (reduceOptions.values)"] if (options.get("reduceOptions") or {}).get("values") else []
    if wanted[0] not in calcs.TITLES:
        return calcs.reduce("lastNotNull", values), [*notes, f"calculation {wanted[0]} (the last value is shown)"]
    return calcs.reduce(str(wanted[0]), values), notes
