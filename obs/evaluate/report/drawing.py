"""Draws for the HTML report with matplotlib: inline SVG whose colours are the page's (light, dark, print).

matplotlib (extra ``report``) is loaded when something is drawn. What it knows of fonts, themes and files of the user is
left out, so the same input gives the same text: colours are placeholders that become CSS variables, ids are hashed with
the drawing's name, and dates and versions are not written.
"""

from __future__ import annotations

import io
import itertools
import logging
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from html import escape
from typing import TYPE_CHECKING, Any

from obs.errors import ToolError
from obs.evaluate.chart import MOST_BARS, Band, states
from obs.evaluate.history import Curve
from obs.evaluate.liveness import number
from obs.evaluate.replay import Instance, Timeline
from obs.evaluate.report import words
from obs.evaluate.sweep import Sweep

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SLICES = 700
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800)

#: placeholder → CSS variable of the page
COLOURS = {
    "#000001": "--ink", "#000002": "--muted", "#000003": "--grid", "#000004": "--pending", "#000005": "--firing",
    "#000006": "--band", "#000007": "--limit", "#000008": "--good", "#000009": "--page",
    "#000010": "--line0", "#000011": "--line1", "#000012": "--line2", "#000013": "--line3", "#000014": "--line4",
    "#000015": "--line5",
}
_INK, _MUTED, _GRID, _PENDING, _FIRING, _BAND, _LIMIT, _GOOD, _PAGE, *_LINES = COLOURS
_STATE = {"pending": _PENDING, "firing": _FIRING}


@contextmanager
def _style(salt: str) -> Iterator[None]:
    try:
        logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it speaks of its font cache
        import matplotlib
    except ImportError as error:
        raise ToolError(
            f"--html needs the Python package {error.name or 'matplotlib'}; install it with: "
            "pip install 'obs-inference[report]'"
        ) from error
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({
            "svg.fonttype": "none", "svg.hashsalt": salt, "font.family": ["DejaVu Sans"], "font.size": 9.0,
            "text.color": _INK, "axes.labelcolor": _MUTED, "axes.edgecolor": _GRID, "xtick.color": _MUTED,
            "ytick.color": _MUTED, "axes.facecolor": "none", "figure.facecolor": "none", "savefig.facecolor": "none",
            "axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.8, "text.parse_math": False,
            "path.simplify": True,
        })
        yield


def ready() -> None:
    """ToolError, with the mend, when nothing can be drawn."""
    with _style("ready"):
        pass


def lanes(timeline: Timeline, background: Sequence[Band], label: str) -> str:
    """A lane per alert that was ever active: pending and firing over time; what happened, named above."""
    rows: dict[str, list[Instance]] = {}
    for one in timeline.instances:
        rows.setdefault(one.alert, []).append(one)
    names = list(rows)
    with _style(f"lanes {label}"):
        shown = _visible(background, timeline)
        named = shown if len(shown) <= MOST_BARS else []
        levels = _levels(named, timeline)
        top = max(levels, default=-1) + 1
        height = 0.5 + 0.24 * len(names) + 0.2 * top
        figure = _figure(height)
        left = 0.30
        axes = figure.add_axes((left, 0.3 / height, 0.985 - left, (0.24 * len(names) + 0.1) / height))
        _time_axis(axes, timeline)
        _shade(axes, shown, timeline)
        for place, name in enumerate(names):
            _lane(axes, rows[name], timeline, place)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_yticks(range(len(names)), [_cut(name, 36) for name in names])
        axes.tick_params(axis="y", length=0, labelcolor=_INK, labelsize=8.5)
        axes.spines["left"].set_visible(False)
        for band, level in zip(named, levels, strict=True):
            _name_band(axes, band, timeline, level, len(names))
        return _svg(figure, label)


def alert(
    curves: Sequence[Curve], instances: Sequence[Instance], timeline: Timeline, background: Sequence[Band], label: str
) -> str:
    """An alert's values against their thresholds, over bands of pending and firing (the worst of its instances)."""
    with _style(f"alert {label}"):
        own = _distinct(curves)
        legend = 0.05 + 0.17 * math.ceil((len(curves) + 1) / 4) if curves else 0.1
        height = 2.2 + legend
        figure = _figure(height)
        axes = figure.add_axes((0.075, 0.3 / height, 0.91, 1.9 / height))
        _time_axis(axes, timeline)
        _shade(axes, _visible(background, timeline), timeline)
        _state_bands(axes, instances, timeline)
        values = [value for curve in curves for _, value in curve.points if math.isfinite(value)]
        limits = [value for curve in curves for _, value in curve.threshold if math.isfinite(value)]
        for place, curve in enumerate(curves):
            _line(axes, curve.points, timeline, _LINES[place % len(_LINES)], own[place], 1.4, "-")
        drawn: set[tuple[tuple[int, float], ...]] = set()
        for curve in curves:
            if curve.threshold and curve.threshold not in drawn:
                name = f"threshold ({curve.op})" if not drawn else ""
                _line(axes, curve.threshold, timeline, _LIMIT, name, 1.1, (0, (5, 3)))
                drawn.add(curve.threshold)
        _value_axis(axes, values, limits)
        handles, texts = axes.get_legend_handles_labels()
        if handles:
            axes.legend(  # above the axes: within, it would hide what is drawn
                handles, texts, loc="lower right", bbox_to_anchor=(1.0, 0.985), ncols=min(4, len(handles)), fontsize=7.5,
                frameon=False, labelcolor=_INK, borderpad=0.2, handlelength=1.8, columnspacing=1.4,
            )
        return _svg(figure, label)


def sweep(found: Sweep, label: str) -> str:
    """Noise (bars) over detection (line) for each value, at even distances; the value in use is marked."""
    judged = any(point.score.false is not None for point in found.points)
    detected = any(point.score.recall is not None for point in found.points)
    places = list(range(len(found.points)))
    with _style(f"sweep {label}"):
        from matplotlib.ticker import MaxNLocator

        figure = _figure(3.3 if detected else 2.0)
        loud = figure.add_axes((0.09, 0.62 if detected else 0.2, 0.89, 0.33 if detected else 0.72))
        noise = [
            point.score.false or 0 if judged else point.score.episodes + point.score.flaps for point in found.points
        ]
        loud.bar(places, noise, width=0.62, color=_FIRING, alpha=0.75)
        for place, count in zip(places, noise, strict=True):
            loud.text(place, count, f" {count}", ha="center", va="bottom", fontsize=8, color=_INK)
        loud.set_ylim(0, max([*noise, 1]) * 1.3)
        loud.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        loud.set_ylabel("false episodes" if judged else "episodes", fontsize=8)
        every = [loud]
        if detected:
            hits = figure.add_axes((0.09, 0.15, 0.89, 0.34))
            recall = [math.nan if point.score.recall is None else 100 * point.score.recall for point in found.points]
            hits.plot(places, recall, color=_GOOD, marker="o", markersize=4, linewidth=1.5)
            for place, point in zip(places, found.points, strict=True):
                if point.score.detect_median_ms is not None and point.score.recall is not None:
                    after = words.span(point.score.detect_median_ms)
                    hits.text(place, 100 * point.score.recall + 7, after, ha="center", fontsize=7.5, color=_MUTED)
            hits.set_ylim(-5, 128)
            hits.set_yticks([0, 50, 100])
            hits.set_ylabel("recall, %", fontsize=8)
            every.append(hits)
        for axes in every:
            axes.set_xlim(-0.6, len(places) - 0.4)
            axes.set_xticks(places, [point.text + (" *" if point.current else "") for point in found.points])
            axes.tick_params(length=2, labelsize=8)
            axes.grid(axis="y", color=_GRID, linewidth=0.6)
            axes.set_axisbelow(True)
        return _svg(figure, label)


# --- pieces ------------------------------------------------------------------------------------------------


def _figure(height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(9.0, height))


def _svg(figure: Figure, label: str) -> str:
    """The figure as an SVG element to stand in a page."""
    out = io.StringIO()
    nothing: dict[str, Any] = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(out, format="svg", metadata=nothing)
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*|<!--.*?-->\s*", "", text, flags=re.DOTALL)
    text = re.sub(r'<style type="text/css">\*.*?</style>', "", text, flags=re.DOTALL)
    text = re.sub(r'(<g) id="[^"]*"', r"\1", text)  # no two elements of a page may have one id; groups need none
    text = text.replace("'DejaVu Sans'", "system-ui, sans-serif").replace("#000000", _INK)
    for colour, variable in COLOURS.items():
        text = text.replace(colour, f"var({variable})")
    head, _, rest = text.partition(">")
    box = re.search(r'viewBox="[^"]*"', head)
    assert box is not None
    return f'<svg {box[0]} role="img" aria-label="{escape(label)}">{rest}'.strip()


def _seconds(at_ms: int, timeline: Timeline) -> float:
    return (at_ms - timeline.start_ms) / 1000


def _time_axis(axes: Axes, timeline: Timeline) -> None:
    length = _seconds(timeline.end_ms, timeline)
    axes.set_xlim(0, length)
    step = next((one for one in _STEPS if length / one <= 8), _STEPS[-1] * math.ceil(length / _STEPS[-1] / 8))
    first = math.ceil(timeline.start_ms / 1000 / step) * step
    ticks = list(range(first, math.floor(timeline.end_ms / 1000) + 1, step))
    form = "%d %b" if step >= 86_400 else "%d %b %H:%M" if length > 86_400 else "%H:%M:%S" if step < 60 else "%H:%M"
    texts = [datetime.fromtimestamp(at, timezone.utc).strftime(form) for at in ticks]
    axes.set_xticks([at - timeline.start_ms / 1000 for at in ticks], texts)
    axes.tick_params(axis="x", length=3, labelsize=8, color=_GRID)


def _value_axis(axes: Axes, values: Sequence[float], limits: Sequence[float]) -> None:
    every = [*values, *limits] or [0.0, 1.0]
    low, high = min(0.0, min(every)), max(every)
    if high <= low:
        high = low + 1
    axes.set_ylim(low - (high - low) * 0.05, high + (high - low) * 0.14)
    axes.grid(axis="y", color=_GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0, labelsize=8)
    axes.yaxis.set_major_formatter(lambda value, _: number(round(value, 12)))


def _visible(background: Sequence[Band], timeline: Timeline) -> list[Band]:
    return [one for one in background if one.start_ms < timeline.end_ms and one.end_ms > timeline.start_ms]


def _clip(band: Band, timeline: Timeline) -> tuple[float, float]:
    return (
        max(0.0, _seconds(band.start_ms, timeline)),
        min(_seconds(timeline.end_ms, timeline), _seconds(band.end_ms, timeline)),
    )


def _shade(axes: Axes, background: Sequence[Band], timeline: Timeline) -> None:
    for band in background:
        start, end = _clip(band, timeline)
        axes.axvspan(start, end, color=_BAND, alpha=0.16, linewidth=0, zorder=0)
        for edge in (start, end):
            axes.axvline(edge, color=_BAND, alpha=0.55, linewidth=0.7, zorder=0)


def _runs(instances: Sequence[Instance], timeline: Timeline) -> Iterator[tuple[str, float, float]]:
    """The worst state over time as (state, from, length) in seconds; short ones widened to what can be seen."""
    length = timeline.end_ms - timeline.start_ms
    size = min(_SLICES, max(1, length))
    place = 0
    for state, many in itertools.groupby(states(instances, timeline.start_ms, timeline.end_ms, size)):
        count = len(list(many))
        if state != "inactive":
            yield state, place * length / size / 1000, count * length / size / 1000
        place += count


def _lane(axes: Axes, instances: Sequence[Instance], timeline: Timeline, place: int) -> None:
    axes.axhline(place, color=_GRID, linewidth=0.6, zorder=1)
    for state, start, length in _runs(instances, timeline):
        half = 0.34 if state == "firing" else 0.2
        axes.broken_barh([(start, length)], (place - half, 2 * half), color=_STATE[state], linewidth=0, zorder=2)


def _state_bands(axes: Axes, instances: Sequence[Instance], timeline: Timeline) -> None:
    for state, start, length in _runs(instances, timeline):
        axes.axvspan(start, start + length, color=_STATE[state], alpha=0.20, linewidth=0, zorder=1)
        axes.axvspan(start, start + length, ymax=0.035, color=_STATE[state], linewidth=0, zorder=3)


def _levels(shown: Sequence[Band], timeline: Timeline) -> list[int]:
    """On which line above the lanes each name stands, so that none covers another."""
    reach: list[float] = []
    found = []
    for band in shown:
        start, _ = _name_span(band, timeline)
        level = next((place for place, end in enumerate(reach) if end <= start), len(reach))
        if level == len(reach):
            reach.append(0.0)
        reach[level] = _name_span(band, timeline)[1]
        found.append(level)
    return found


_CHARACTER = 0.0088
"""How wide a character of a name is, of the width of the axes; wider than it is drawn."""


def _name_span(band: Band, timeline: Timeline) -> tuple[float, float]:
    """From where to where the name of a band is written, in shares of the width: kept within it."""
    width = len(_cut(band.name, 48)) * _CHARACTER + 0.012
    start, _ = _clip(band, timeline)
    at = min(start / max(0.001, _seconds(timeline.end_ms, timeline)), max(0.0, 1 - width))
    return at, at + width


def _name_band(axes: Axes, band: Band, timeline: Timeline, level: int, rows: int) -> None:
    at, _ = _name_span(band, timeline)
    axes.annotate(
        _cut(band.name, 48), (at, 1.0), xycoords="axes fraction", xytext=(2, 4 + level * 14.4),
        textcoords="offset points", fontsize=8, color=_INK, annotation_clip=False,
    )
    start = _clip(band, timeline)[0] / max(0.001, _seconds(timeline.end_ms, timeline))
    axes.annotate(
        "", (start, 1.0), xycoords="axes fraction", xytext=(0, 13 + level * 14.4), textcoords="offset points",
        arrowprops={"arrowstyle": "-", "color": _BAND, "linewidth": 0.9, "shrinkA": 0, "shrinkB": 0},
        annotation_clip=False,
    )


def _line(
    axes: Axes, points: Sequence[tuple[int, float]], timeline: Timeline, colour: str, name: str, width: float, style: Any
) -> None:
    """A line with a gap where there is no data: where two points are further apart than usual."""
    if not points:
        return
    distances = sorted(b[0] - a[0] for a, b in itertools.pairwise(points))
    usual = max(timeline.interval_ms, distances[len(distances) // 2]) if len(distances) > 1 else math.inf
    x: list[float] = []
    y: list[float] = []
    for place, (at, value) in enumerate(points):
        if place and at - points[place - 1][0] > 2.5 * usual:
            x.append(_seconds(at - 1, timeline))
            y.append(math.nan)
        x.append(_seconds(at, timeline))
        y.append(value if math.isfinite(value) else math.nan)
    axes.plot(x, y, color=colour, linewidth=width, linestyle=style, label=name or "_nolegend_", zorder=4)
    alone = [
        place for place in range(len(y))
        if not math.isnan(y[place])
        and (place == 0 or math.isnan(y[place - 1]))
        and (place + 1 == len(y) or math.isnan(y[place + 1]))
    ]
    if alone:
        axes.plot([x[it] for it in alone], [y[it] for it in alone], color=colour, marker=".", linestyle="", zorder=4)


def _distinct(curves: Sequence[Curve]) -> list[str]:
    """For each curve the values of the labels in which the curves differ; "value" for a single one."""
    every = [dict(curve.labels) for curve in curves]
    if len(every) < 2:
        return ["value"] * len(every)
    differ = sorted({name for one in every for name in one if any(other.get(name) != one[name] for other in every)})
    return [_cut(" ".join(one[name] for name in differ if name in one), 40) or "value" for one in every]


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
