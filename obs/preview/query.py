"""Asks what a panel shows, as Grafana does: variables resolved and put in, the step chosen, times aligned to it.

Sources: Grafana's packages/grafana-data (rangeutil: roundInterval), its Prometheus data source (interpolation of variables,
``$__rate_interval``, alignment of ranges, legends).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import quote

from obs.checks.dashboards import VARIABLE
from obs.errors import InputError, ServerError
from obs.preview.load import Annotation, Dashboard, Panel, Target, Variable
from obs.prom.client import Answer, QueryError, RangeAnswer
from obs.prom.remote_write import Labels, one_line

ALL = "$__all"
SCRAPE = 15.0
"""Grafana's default of a data source's scrape interval, seconds: of queries without a step of their own."""

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800, "y": 31_536_000}
#: (an interval below so many ms, becomes so many ms)
_NICE = (
    (15, 10), (35, 20), (75, 50), (150, 100), (350, 200), (750, 500), (1500, 1000), (3500, 2000), (7500, 5000),
    (12_500, 10_000), (17_500, 15_000), (25_000, 20_000), (45_000, 30_000), (90_000, 60_000), (210_000, 120_000),
    (450_000, 300_000), (750_000, 600_000), (1_050_000, 900_000), (1_500_000, 1_200_000), (2_700_000, 1_800_000),
    (5_400_000, 3_600_000), (9_000_000, 7_200_000), (16_200_000, 10_800_000), (32_400_000, 21_600_000),
    (86_400_000, 43_200_000), (604_800_000, 86_400_000), (1_814_400_000, 604_800_000), (3_628_800_000, 2_592_000_000),
)


class Asked(Protocol):
    """The part of obs.prom.client.Client that is needed."""

    def ask(self, expr: str, at: float | None = None) -> Answer: ...
    def ask_range(self, expr: str, start: float, end: float, step: float) -> RangeAnswer: ...
    def label_values(
        self, name: str, *, start: float | None = None, end: float | None = None, match: str = ""
    ) -> list[str]: ...


@dataclass(frozen=True)
class Range:
    """The time shown, unix seconds."""

    start: float
    end: float

    @property
    def length(self) -> float:
        return self.end - self.start


@dataclass(frozen=True)
class Value:
    """A variable resolved: its options, and those that are chosen; ``all``: it stands at All."""

    variable: Variable
    options: tuple[str, ...]
    chosen: tuple[str, ...]
    all: bool = False
    note: str = ""

    @property
    def text(self) -> str:
        return "All" if self.all else " + ".join(self.chosen) or "None"

    @property
    def single(self) -> bool:
        return not (self.variable.multi or self.variable.include_all)


Values = Mapping[str, Value]


@dataclass(frozen=True)
class Series:
    """One series of an answer: its legend, labels and points (unix seconds, value)."""

    ref: str
    name: str
    labels: Labels
    points: tuple[tuple[float, float], ...]

    @property
    def numbers(self) -> list[float]:
        return [value for _, value in self.points]


@dataclass(frozen=True)
class Result:
    """What one target came to. ``expr``: as sent. ``step``: seconds between points, 0 of an instant query."""

    target: Target
    expr: str
    step: float
    series: tuple[Series, ...] = ()
    error: str = ""


@dataclass(frozen=True)
class Mark:
    """An annotation: from one time to another (unix seconds), what it says and its colour."""

    start: float
    end: float
    text: str
    color: str


@dataclass(frozen=True)
class Filled:
    """A panel and what its queries came to."""

    panel: Panel
    results: tuple[Result, ...] = ()

    @property
    def series(self) -> tuple[Series, ...]:
        return tuple(one for result in self.results for one in result.series)

    @property
    def errors(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(result.error for result in self.results if result.error))


@dataclass(frozen=True)
class Shown:
    """A dashboard with everything that is drawn of it."""

    dashboard: Dashboard
    range: Range
    values: Values
    panels: Mapping[int, Filled] = field(default_factory=dict)
    """By the panel's ``id()`` in memory: two may have the same number."""
    marks: tuple[Mark, ...] = ()
    warnings: tuple[str, ...] = ()

    def of(self, panel: Panel) -> Filled:
        return self.panels.get(id(panel), Filled(panel))


# --- time -------------------------------------------------------------------------------------------------


def seconds(text: str, default: float = 0.0) -> float:
    """The seconds of an interval such as ``30s`` or ``>30s``; ``default`` where it says none."""
    match = re.fullmatch(r">?\s*(\d+(?:\.\d+)?)\s*(ms|[smhdwy])", text.strip())
    return float(match[1]) * _UNITS[match[2]] if match else default


def moment(text: str, now: float) -> float | None:
    """Unix seconds of Grafana's relative times (``now``, ``now-3h``, ``now-1d/d``: rounded down); None for others."""
    match = re.fullmatch(r"now((?:[+-]\d+(?:ms|[smhdwy]))*)(?:/([smhdw]))?", text.strip())
    if match is None:
        return None
    at = now + sum(int(n) * _UNITS[unit] for n, unit in re.findall(r"([+-]\d+)(ms|[smhdwy])", match[1]))
    return at - at % _UNITS[match[2]] if match[2] else at


def step_of(shown: Range, points: int, least: float) -> float:
    """Seconds between the points of a graph of so many points: rounded as Grafana rounds, at least ``least``."""
    raw = 1000 * shown.length / max(1, points)
    nice = next((nice for below, nice in _NICE if raw < below), 31_536_000_000)
    return max(nice / 1000, least)


# --- variables --------------------------------------------------------------------------------------------


def resolve(
    asked: Asked, dashboard: Dashboard, shown: Range, wanted: Mapping[str, Sequence[str]]
) -> dict[str, Value]:
    """The dashboard's variables in order, each with those before it put in.

    ``wanted``: values chosen by the user ("All" or "$__all" for all); without one the dashboard's own choice stands, if
    it is there, else the first. InputError for a value that is not among the options.
    """
    found: dict[str, Value] = {}
    for variable in dashboard.variables:
        options, note = _options(asked, variable, found, shown)
        mine = tuple(wanted.get(variable.name, ()))
        for one in mine:
            if options and one not in {*options, ALL, "All"} and variable.kind not in {"textbox", "datasource"}:
                some = ", ".join(options[:12]) + (" …" if len(options) > 12 else "")
                raise InputError(f"--var {variable.name}={one}: {dashboard.stem} has no such value; it has {some}")
        everything = any(one in {ALL, "All"} for one in mine or variable.current) and variable.include_all
        chosen = tuple(one for one in mine or variable.current if mine or one in options) or options[:1]
        if len(chosen) > 1 and not variable.multi:
            if mine:
                raise InputError(f"--var {variable.name}: {dashboard.stem} takes one value of it; give one")
            chosen = chosen[:1]
        if everything:
            chosen = options
        found[variable.name] = Value(variable, options, chosen, everything, note)
    return found


def _options(asked: Asked, variable: Variable, before: Values, shown: Range) -> tuple[tuple[str, ...], str]:
    kind = variable.kind
    if kind == "custom":
        parts = [one.strip() for one in re.split(r"(?<!\\),", variable.query)]
        return tuple(one.split(" : ", 1)[-1].strip().replace("\\,", ",") for one in parts if one), ""
    if kind == "interval":
        return tuple(one for one in variable.query.split(",") if one and one != "auto"), ""
    if kind in {"constant", "textbox"}:
        return (variable.query,), ""
    if kind == "datasource":
        return ("Prometheus",), ""
    if kind != "query":
        return variable.options, f"variable {variable.name}: kind {kind} is not resolved"
    text = interpolate(variable.query, before, shown).strip()
    try:
        found = _asked_for(asked, text, shown)
    except (QueryError, re.error) as error:  # one variable that cannot be asked for must not cost the page
        return variable.options, f"variable {variable.name}: {one_line(str(error), 200)}"
    if found is None:
        return variable.options, f"variable {variable.name}: {one_line(variable.query, 60)} is not resolved"
    return _sorted(_by_regex(found, variable.regex), variable.sort), ""


def _asked_for(asked: Asked, text: str, shown: Range) -> list[str] | None:
    """What a variable's query gives; None for one that we do not know."""
    match = re.fullmatch(r"label_values\((?:(.+),)?\s*([A-Za-z_]\w*)\s*\)", text, re.DOTALL)
    if match:
        return asked.label_values(match[2], match=(match[1] or "").strip(), start=shown.start, end=shown.end)
    match = re.fullmatch(r"metrics\((.*)\)", text, re.DOTALL)
    if match:
        names = asked.label_values("__name__", start=shown.start, end=shown.end)
        return [name for name in names if re.search(match[1], name)]
    match = re.fullmatch(r"query_result\((.+)\)", text, re.DOTALL)
    if match:
        found = []
        for sample in asked.ask(match[1], shown.end).samples:
            labels = dict(sample.labels)
            name = labels.pop("__name__", "")
            inner = ",".join(f'{key}="{value}"' for key, value in labels.items())
            found.append(f"{name}{{{inner}}} {sample.value:g} {sample.time * 1000:.0f}")
        return found
    return None


def _by_regex(found: Iterable[str], regex: str) -> list[str]:
    """The values that a variable's regex keeps: its first group, or that named ``value``, else all of the match."""
    match = re.fullmatch(r"/(.*)/[a-z]*", regex, re.DOTALL)
    pattern = match[1] if match else regex
    if not pattern:
        return list(dict.fromkeys(found))
    try:
        compiled = re.compile(re.sub(r"\(\?<([A-Za-z_])", r"(?P<\1", pattern))
    except re.error as error:
        raise InputError(f"a variable's regex {regex!r} cannot be read ({error}); correct it") from None
    kept = []
    for one in found:
        hit = compiled.search(one)
        if hit:
            named = hit.groupdict().get("value")
            kept.append(named if named is not None else next((g for g in hit.groups() if g is not None), hit[0]))
    return list(dict.fromkeys(kept))


def _sorted(found: list[str], order: int) -> tuple[str, ...]:
    if order in {3, 4}:
        numbers = {one: re.search(r"\d+(?:\.\d+)?", one) for one in found}
        found = sorted(found, key=lambda one: (float(hit[0]) if (hit := numbers[one]) else -1.0))
    elif order in {1, 2}:
        found = sorted(found)
    elif order in {5, 6}:
        found = sorted(found, key=str.lower)
    return tuple(reversed(found) if order in {2, 4, 6} else found)


def words(text: str, values: Values, scoped: Mapping[str, str]) -> str:
    """A title with the variables put in, as their texts."""

    def one(match: re.Match[str]) -> str:
        name = match["plain"] or match["old"] or match["braced"]
        return scoped.get(name) or (values[name].text if name in values else match[0])

    return VARIABLE.sub(one, text)


# --- text -------------------------------------------------------------------------------------------------

_SPECIAL = re.compile(r"[$^*{}\[\]\\'+?.()|]")


def _regex(text: str) -> str:
    """A value for a regex in PromQL's quotes."""
    return _SPECIAL.sub(lambda match: "\\\\" + match[0], text).replace('"', '\\"')


def _plain(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def interpolate(text: str, values: Values, shown: Range, *, step: float = 0.0, least: float = SCRAPE,
                scoped: Mapping[str, str] | None = None) -> str:
    """PromQL with the variables put in as Grafana's Prometheus data source does. Unknown names stay as they are."""
    builtin = globals_of(shown, step, least)

    def one(match: re.Match[str]) -> str:
        name = match["plain"] or match["old"] or match["braced"]
        form = match["format"] or match["old_format"] or ""
        if scoped and name in scoped:
            return _formatted((scoped[name],), form) if form else _regex(scoped[name])
        if name in builtin:
            return builtin[name]
        value = values.get(name)
        if value is None:
            return match[0]
        if value.all and value.variable.all_value:
            return value.variable.all_value
        if form == "text":
            return value.text
        if form:
            return _formatted(value.chosen, form)
        if value.single:
            return _plain(value.chosen[0]) if value.chosen else ""
        parts = [_regex(item) for item in value.chosen]
        return parts[0] if len(parts) == 1 else f"({'|'.join(parts)})" if parts else ""

    return VARIABLE.sub(one, text)


def _formatted(chosen: Sequence[str], form: str) -> str:
    """The formats that Grafana documents for variables; one that it does not know is as ``glob``."""
    if form == "regex":
        parts = [re.sub(r"[\\^$*+?.()|\[\]{}/]", lambda match: "\\" + match[0], one) for one in chosen]
        return parts[0] if len(parts) == 1 else f"({'|'.join(parts)})"
    joined = {"csv": ",", "raw": ",", "pipe": "|"}.get(form)
    if joined:
        return joined.join(chosen)
    if form == "doublequote":
        return ",".join('"' + one.replace('"', '\\"') + '"' for one in chosen)
    if form in {"singlequote", "sqlstring"}:
        return ",".join(f"'{one}'" for one in chosen)
    if form == "json":
        return json.dumps(list(chosen))
    if form == "percentencode":
        return quote(chosen[0] if len(chosen) == 1 else "{" + ",".join(chosen) + "}", safe="")
    return chosen[0] if len(chosen) == 1 else "{" + ",".join(chosen) + "}"


def globals_of(shown: Range, step: float, least: float) -> dict[str, str]:
    """Grafana's own variables. The rate interval is at least four scrapes, so that ``rate`` always has two samples."""
    rate = max(step + least, 4 * least)
    return {
        "__interval": _duration(step), "__interval_ms": f"{step * 1000:.0f}", "__rate_interval": _duration(rate),
        "__rate_interval_ms": f"{rate * 1000:.0f}", "__range": f"{round(shown.length)}s",
        "__range_s": f"{round(shown.length)}", "__range_ms": f"{round(shown.length * 1000)}",
        "__from": f"{shown.start * 1000:.0f}", "__to": f"{shown.end * 1000:.0f}",
    }


def _duration(length: float) -> str:
    return f"{length:.0f}s" if length == int(length) else f"{length * 1000:.0f}ms"


def legend(form: str, labels: Labels, expr: str, alone: bool) -> str:
    """A series' name: ``{{label}}`` put in (nothing for one that it lacks), or as Grafana names it by itself."""
    own = dict(labels)
    if form and form != "__auto":
        return re.sub(r"\{\{\s*(.+?)\s*\}\}", lambda match: own.get(match[1], ""), form).strip() or expr
    name = own.pop("__name__", "")
    if form == "__auto" and alone and not own:
        return name or one_line(expr, 80)
    inner = ", ".join(f'{key}="{value}"' for key, value in own.items())
    return f"{'' if form == '__auto' else name}{{{inner}}}" if inner else name or one_line(expr, 80)


# --- asking -----------------------------------------------------------------------------------------------


def ask_target(asked: Asked, panel: Panel, target: Target, values: Values, shown: Range, points: int) -> Result:
    """One query of a panel that is so many pixels wide."""
    least = seconds(interpolate(target.interval or panel.interval, values, shown), SCRAPE)
    step = step_of(shown, panel.max_points or points, seconds(target.interval or panel.interval, 0.0))
    expr = interpolate(target.expr, values, shown, step=step, least=least, scoped=panel.scoped)
    if target.foreign:
        return Result(target, expr, step, error=f"asks {target.foreign}, not Prometheus: not drawn")
    if not expr.strip():
        return Result(target, expr, step)
    try:
        if target.instant:
            samples = asked.ask(expr, shown.end).samples
            found: list[tuple[Labels, tuple[tuple[float, float], ...]]] = [
                (one.labels, ((one.time, one.value),)) for one in samples
            ]
            step = 0.0
        else:
            low, high = (math.floor(at / step) * step for at in (shown.start, shown.end))
            found = [(one.labels, one.points) for one in asked.ask_range(expr, low, high, step).series]
    except QueryError as error:
        return Result(target, expr, step, error=one_line(str(error), 300))
    alone = len(found) == 1
    return Result(target, expr, step, tuple(
        Series(target.ref, legend(target.legend, labels, expr, alone), labels, points) for labels, points in found
    ))


def _marks(asked: Asked, one: Annotation, values: Values, shown: Range) -> list[Mark]:
    """Where an annotation's query has a value: neighbouring points are one mark."""
    least = seconds(one.step, SCRAPE)
    step = step_of(shown, 1200, least)
    expr = interpolate(one.expr, values, shown, step=step, least=least)
    found = []
    for series in asked.ask_range(expr, shown.start, shown.end, step).series:
        title = " ".join(legend(one.title, series.labels, "", False).split())
        start = last = -math.inf
        for at in (*(at for at, value in series.points if value), math.inf):
            if at - last > 1.5 * step:
                if last > -math.inf:
                    found.append(Mark(start, last, f"{one.name}: {title}", one.color))
                start = at
            last = at
    return found


def fill(
    asked: Asked, dashboard: Dashboard, shown: Range, values: Values, widths: Mapping[int, int], *, parallel: int = 4,
) -> Shown:
    """Every query of the dashboard asked. ``widths``: the width of each panel's graph in pixels, by ``id()``.

    ServerError when the server cannot be reached; a query that it refuses is an error of its panel only.
    """
    with ThreadPoolExecutor(max_workers=parallel) as pool:
        waiting = {
            id(panel): (panel, [
                pool.submit(ask_target, asked, panel, target, values, shown, widths.get(id(panel), 480))
                for target in panel.targets
            ])
            for panel in dashboard.panels
        }
        drawn = [(one, pool.submit(_marks, asked, one, values, shown)) for one in dashboard.annotations if one.expr]
        try:
            filled = {key: Filled(panel, tuple(one.result() for one in many)) for key, (panel, many) in waiting.items()}
            marks: list[Mark] = []
            warnings = [value.note for value in values.values() if value.note]
            for annotation, answer in drawn:
                try:
                    marks += answer.result()
                except QueryError as error:
                    warnings.append(f"annotation {annotation.name}: {one_line(str(error), 200)}")
        except ServerError:
            for _, many in waiting.values():
                for one in many:
                    one.cancel()
            raise
    return Shown(dashboard, shown, values, filled, tuple(sorted(marks, key=lambda one: (one.start, one.text))), tuple(warnings))

