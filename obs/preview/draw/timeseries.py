"""Time series: lines, areas, bars and points over time; a missing point is a gap, never a line across it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from obs.preview import field as fields
from obs.preview import units
from obs.preview.draw.common import (
    CHARACTER,
    Drawn,
    Entry,
    Space,
    label,
    legend,
    legend_height,
    nothing,
    svg,
    ticks,
    time_ticks,
)  # fmt: skip
from obs.preview.field import Field
from obs.preview.query import Filled, Mark, Series, Shown

Points = Sequence[tuple[float, float]]
_MARKS = 60
"""At most so many annotations are drawn on one graph."""
_DEFAULT_DASH = (10.0, 10.0)


@dataclass(frozen=True)
class Line:
    """One series as drawn: its look, and its points with those of the series below it added when stacked."""

    series: Series
    field: Field
    color: str
    points: Points
    base: Points

    @property
    def dash(self) -> str:
        style = self.field.custom.get("lineStyle") or {}
        if style.get("fill") not in {"dash", "dot"}:
            return ""
        return " ".join(f"{float(one):g}" for one in style.get("dash") or _DEFAULT_DASH)


@dataclass(frozen=True)
class Frame:
    """Where values and times lie, pixels."""

    left: float
    top: float
    right: float
    bottom: float
    start: float
    end: float
    low: float
    high: float

    def x(self, at: float) -> float:
        return self.left + (at - self.start) / max(1e-9, self.end - self.start) * (self.right - self.left)

    def y(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return self.bottom - min(1.05, max(-0.05, share)) * (self.bottom - self.top)


def draw(filled: Filled, shown: Shown, space: Space) -> Drawn:
    """The graph with its legend below."""
    panel = filled.panel
    notes = fields.notes(panel)
    whole = fields.plain(panel)
    step = max((result.step for result in filled.results), default=0.0)
    lines, more = _lines(filled, shown)
    notes += more
    if not lines:
        return nothing(whole, notes)
    entries = [
        Entry(one.field.name, one.color, one.field, one.series.numbers, bool(one.dash))
        for one in lines if not one.field.hidden("legend")
    ]
    below = legend_height(panel.options, len(entries), space)
    text, more = legend(panel.options, entries, below, shown.range.end)
    room = Space(space.width, space.height - below)
    drawn = [one for one in lines if not one.field.hidden("viz")]
    picture = _picture(drawn, whole, shown, room, step, panel.title)
    return Drawn(picture + text, "data", (*notes, *more), len(lines))


def _lines(filled: Filled, shown: Shown) -> tuple[list[Line], list[str]]:
    """The series with their looks; stacked ones upon each other."""
    found: list[Line] = []
    notes: list[str] = []
    tops: dict[str, dict[float, float]] = {}
    for index, series in enumerate(filled.series):
        own = fields.field(filled.panel, series.name, ref=series.ref)
        last = next((value for value in reversed(series.numbers) if not math.isnan(value)), None)
        color = own.colored(index, last)
        stacking = own.custom.get("stacking") or {}
        points: Points = series.points
        base: Points = ()
        if stacking.get("mode") == "normal":
            top = tops.setdefault(str(stacking.get("group")), {})
            base = tuple((at, top.get(at, 0.0)) for at, _ in points)
            points = tuple((at, under + value) for (at, value), (_, under) in zip(points, base, strict=True))
            top.update({at: value for at, value in points if not math.isnan(value)})
        elif stacking.get("mode") not in {None, "none"}:
            notes.append(f"stacking {stacking['mode']}")
        if own.custom.get("lineInterpolation") == "smooth":
            notes.append("smooth lines (drawn straight)")
        found.append(Line(series, own, color, points, base))
    return found, list(dict.fromkeys(notes))


def _scale(lines: Sequence[Line], whole: Field, room: float) -> tuple[float, float, list[float]]:
    """The lowest and highest value of the axis, and its marks. Hard limits of the panel hold."""
    values = [value for one in lines for _, value in (*one.points, *one.base) if math.isfinite(value)]
    least, most = whole.number("min"), whole.number("max")
    soft = [float(one) for key in ("axisSoftMin", "axisSoftMax") if (one := whole.custom.get(key)) is not None]
    low, high = min([*values, *soft], default=0.0), max([*values, *soft], default=1.0)
    pad = (high - low) * 0.08 or abs(high) * 0.1 or (1.0 if whole.unit != "percentunit" else 0.1)
    low = least if least is not None else 0.0 if 0 <= low < (high - low or high) else low - pad
    high = most if most is not None else high + pad
    if high <= low:
        high = low + 1
    marks = ticks(low, high, max(2, round(room / 34)), whole.unit)
    if whole.unit in {"short", "none"} and all(value == int(value) for value in values):
        marks = [one for one in marks if one == int(one)]
    return low, high, marks


def _picture(lines: Sequence[Line], whole: Field, shown: Shown, space: Space, step: float, title: str) -> str:
    top, bottom = 6.0, space.height - 18.0
    low, high, marks = _scale(lines, whole, bottom - top)
    texts = [units.trimmed(value, whole.unit, now=shown.range.end) for value in marks]
    left = 8 + CHARACTER * max((len(text) for text in texts), default=1)
    frame = Frame(left, top, space.width - 6.0, bottom, shown.range.start, shown.range.end, low, high)
    out = []
    for value, text in zip(marks, texts, strict=True):
        y = frame.y(value)
        out.append(f'<path class="grid" d="M{left:.1f} {y:.1f}H{frame.right:.1f}"/>')
        out.append(label(left - 6, y + 3.5, text, "end"))
    for at, text in time_ticks(shown.range, frame.right - left):
        x = frame.x(at)
        out.append(f'<path class="grid" d="M{x:.1f} {top:.1f}V{bottom:.1f}"/>')
        half = CHARACTER * len(text) / 2
        if left - 10 <= x - half and x + half <= space.width:
            out.append(label(x, space.height - 4, text, "middle"))
    out += _thresholds(whole, frame)
    out += [_line(one, frame, step) for one in lines]
    out += _marks(shown.marks, frame)
    return svg(space, out, title)


def _thresholds(whole: Field, frame: Frame) -> list[str]:
    """Lines at the thresholds, and areas above them, within the axis."""
    mode = str((whole.custom.get("thresholdsStyle") or {}).get("mode") or "off")
    if mode == "off":
        return []
    steps = whole.steps()
    out = []
    for place, (at, name) in enumerate(steps):
        until = steps[place + 1][0] if place + 1 < len(steps) else math.inf
        tint = fields.color(name)
        if "area" in mode and max(at, frame.low) < min(until, frame.high):
            y, end = frame.y(min(until, frame.high)), frame.y(max(at, frame.low))
            out.append(
                f'<rect x="{frame.left:.1f}" y="{y:.1f}" width="{frame.right - frame.left:.1f}" height="{end - y:.1f}" '
                f'fill="{tint}" opacity=".12"/>'
            )
        if ("line" in mode or mode == "dashed") and frame.low <= at <= frame.high:
            dash = ' stroke-dasharray="8 6"' if "dashed" in mode else ""
            out.append(
                f'<path class="limit" d="M{frame.left:.1f} {frame.y(at):.1f}H{frame.right:.1f}" stroke="{tint}"{dash}/>'
            )
    return out


def _runs(points: Points, step: float) -> list[list[tuple[float, float]]]:
    """Points without a gap between: a step that is missing, or a NaN, ends a run."""
    runs: list[list[tuple[float, float]]] = []
    last = -math.inf
    for at, value in points:
        if not math.isfinite(value):
            last = -math.inf
            continue
        if not runs or last == -math.inf or at - last > 1.001 * max(step, 1e-3):
            runs.append([])
        runs[-1].append((at, value))
        last = at
    return runs


def _line(one: Line, frame: Frame, step: float) -> str:
    custom = one.field.custom
    spans = custom.get("spanNulls")
    style = str(custom.get("drawStyle") or "line")
    if style == "bars":
        return _bars(one, frame, step)
    runs = _runs(one.points, math.inf if spans is True else step)
    base = dict(one.base)
    way = str(custom.get("lineInterpolation") or "linear")
    lines, areas, dots = [], [], []
    for run in runs:
        places = [(frame.x(at), frame.y(value)) for at, value in run]
        if len(run) == 1 or style == "points" or custom.get("showPoints") == "always":
            dots += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="{one.color}"/>' for x, y in places]
        if style == "points" or len(run) == 1:
            continue
        path = _path(places, way)
        lines.append(path)
        floor = [(frame.x(at), frame.y(base.get(at, max(0.0, frame.low)))) for at, _ in reversed(run)]
        areas.append(path + "L" + "L".join(f"{x:.1f} {y:.1f}" for x, y in floor) + "Z")
    width = float(custom.get("lineWidth", 1))
    opacity = float(custom.get("fillOpacity", 0)) / 100
    dash = f' stroke-dasharray="{one.dash}"' if one.dash else ""
    out = "".join(dots)
    if lines and opacity:
        out = f'<path d="{"".join(areas)}" fill="{one.color}" opacity="{opacity:g}"/>' + out
    if lines and width:
        out += f'<path class="line" d="{"".join(lines)}" stroke="{one.color}" stroke-width="{max(1.3, width):g}"{dash}/>'
    return f"<g><title>{escape(one.field.name)}</title>{out}</g>"


def _path(places: Sequence[tuple[float, float]], way: str) -> str:
    (x, y), *rest = places
    out = [f"M{x:.1f} {y:.1f}"]
    for x, y in rest:
        out.append({"stepAfter": f"H{x:.1f}V{y:.1f}", "stepBefore": f"V{y:.1f}H{x:.1f}"}.get(way, f"L{x:.1f} {y:.1f}"))
    return "".join(out)


def _bars(one: Line, frame: Frame, step: float) -> str:
    base = dict(one.base)
    width = max(1.0, 0.8 * (frame.x(frame.start + (step or 1)) - frame.left))
    rects = []
    for at, value in one.points:
        if math.isfinite(value):
            y, floor = frame.y(value), frame.y(base.get(at, max(0.0, frame.low)))
            rects.append(
                f'<rect x="{frame.x(at) - width / 2:.1f}" y="{min(y, floor):.1f}" width="{width:.1f}" '
                f'height="{abs(floor - y):.1f}"/>'
            )
    return f'<g fill="{one.color}" opacity=".8"><title>{escape(one.field.name)}</title>{"".join(rects)}</g>'


def _marks(marks: Sequence[Mark], frame: Frame) -> list[str]:
    """Annotations: a dashed line where each begins, and bands for as long as any of a colour lasts.

    Grafana lays the bands upon each other: twenty alerts hide the graph. Here they are one.
    """
    out = []
    for name in dict.fromkeys(one.color for one in marks):
        bands: list[list[float]] = []
        for one in sorted((one for one in marks if one.color == name), key=lambda one: one.start):
            x, end = frame.x(max(one.start, frame.start)), frame.x(min(one.end, frame.end))
            if bands and x <= bands[-1][1]:
                bands[-1][1] = max(bands[-1][1], end)
            elif end - x > 1:
                bands.append([x, end])
        path = "".join(f"M{x:.1f} {frame.top:.1f}H{end:.1f}V{frame.bottom:.1f}H{x:.1f}Z" for x, end in bands)
        if path:
            out.append(f'<path d="{path}" fill="{fields.color(name)}" opacity=".08"/>')
    for one in marks[:_MARKS]:
        x = frame.x(max(one.start, frame.start))
        out.append(
            f'<path class="mark" d="M{x:.1f} {frame.top:.1f}V{frame.bottom:.1f}" stroke="{fields.color(one.color)}">'
            f"<title>{escape(one.text)}</title></path>"
        )
    return out
