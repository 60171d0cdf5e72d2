"""State timeline: a bar per series, its colour the state; nothing where there is no state."""

from __future__ import annotations

import math
from html import escape

from obs.preview import field as fields
from obs.preview.draw.common import (
    CHARACTER,
    LEGEND_LINE,
    Drawn,
    Entry,
    Space,
    cut,
    label,
    legend,
    nothing,
    svg,
    time_ticks,
)  # fmt: skip
from obs.preview.query import Filled, Series, Shown

_LEAST = 14
"""The least height of a bar, pixels; more bars than fit make the picture longer."""


def draw(filled: Filled, shown: Shown, space: Space) -> Drawn:
    """The bars in the order of the answer, with the states below."""
    panel = filled.panel
    notes = fields.notes(panel)
    if not filled.series:
        return nothing(fields.plain(panel), notes)
    states: dict[str, Entry] = {}
    rows = []
    names = []
    for index, series in enumerate(filled.series):
        own = fields.field(panel, series.name, ref=series.ref)
        names.append(own.name)
        bars = []
        for start, end, value in _runs(series, max((one.step for one in filled.results), default=0.0), shown.range.end):
            text, tint = own.text(value, shown.range.end)
            color = tint or own.colored(index, value)
            states.setdefault(text, Entry(text, color, own, ()))
            bars.append((max(start, shown.range.start), min(end, shown.range.end), text, color))
        rows.append(bars)
    given = {"legend": {"displayMode": "list", **(panel.options.get("legend") or {}), "calcs": []}}
    below = 0 if (given["legend"]).get("showLegend") is False else LEGEND_LINE + 4
    text, more = legend(given, list(states.values()), below, shown.range.end)
    picture = _picture(filled, names, rows, shown, Space(space.width, space.height - below))
    box = f'<div class="tall" style="height:{space.height - below}px">{picture}</div>'
    return Drawn(box + text, "data", (*notes, *more), len(rows))


def _runs(series: Series, step: float, end: float) -> list[tuple[float, float, float]]:
    """(from, to, value): equal values that follow each other without a gap; the last lasts to the end of the range."""
    runs: list[tuple[float, float, float]] = []
    for at, value in series.points:
        if math.isnan(value):
            continue
        if runs and at - runs[-1][1] <= 0.001 and runs[-1][2] == value:
            runs[-1] = (runs[-1][0], at + step, value)
        else:
            runs.append((at, at + step, value))
    return [(low, min(high, end), value) for low, high, value in runs]


def _picture(
    filled: Filled, names: list[str], rows: list[list[tuple[float, float, str, str]]], shown: Shown, space: Space
) -> str:
    options = filled.panel.options
    most = min(max(len(name) for name in names), max(8, int(space.width * 0.4 / CHARACTER)))
    left = 10 + CHARACTER * most
    bottom = 18.0
    band = max(_LEAST + 2.0, (space.height - bottom - 4) / len(rows))
    height = max(space.height, math.ceil(band * len(rows) + bottom + 4))
    thick = band * float(options.get("rowHeight") or 0.9)
    right = space.width - 6.0
    length = max(1e-9, shown.range.length)

    def x(at: float) -> float:
        return left + (at - shown.range.start) / length * (right - left)

    out = []
    for at, text in time_ticks(shown.range, right - left):
        out.append(f'<path class="grid" d="M{x(at):.1f} 2V{height - bottom:.1f}"/>')
        if x(at) + CHARACTER * len(text) / 2 <= space.width:
            out.append(label(x(at), height - 4, text, "middle"))
    opacity = float((filled.panel.defaults.get("custom") or {}).get("fillOpacity", 70)) / 100
    for place, (name, bars) in enumerate(zip(names, rows, strict=True)):
        middle = 2 + band * (place + 0.5)
        out.append(f"<g><title>{escape(name)}</title>{label(left - 6, middle + 4, cut(name, most), 'end', 'name')}</g>")
        for start, end, text, color in bars:
            wide = x(end) - x(start)
            out.append(
                f'<rect x="{x(start):.1f}" y="{middle - thick / 2:.1f}" width="{max(1.0, wide):.1f}" height="{thick:.1f}" '
                f'fill="{color}" opacity="{opacity:g}"><title>{escape(text)}</title></rect>'
            )
            if options.get("showValue", "auto") != "never" and wide > CHARACTER * len(text) + 6:
                out.append(label(x(start) + 4, middle + 4, text, "start", "name"))
    return svg(Space(space.width, height), out, filled.panel.title)
