"""Draws a timeline as text: a strip chart with phases, and a table of states."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from obs.errors import InputError
from obs.evaluate.replay import Instance, Timeline
from obs.evaluate.state import Span

MARKS = {"inactive": "·", "pending": "░", "firing": "█"}
_PLAIN = {"inactive": ".", "pending": "-", "firing": "#"}
_COLOURS = {"pending": "\x1b[33m", "firing": "\x1b[31m"}
_OFF = "\x1b[0m"


@dataclass(frozen=True)
class Phase:
    """What happens from a time (unix milliseconds) on, until the next phase."""

    from_ms: int
    name: str


MOST_BARS = 12
"""Incidents drawn each with its name."""


@dataclass(frozen=True)
class Band:
    """Something with a name from one time to another (unix milliseconds): an incident, a phase."""

    start_ms: int
    end_ms: int
    name: str


def bands(phases: Sequence[Phase], end_ms: int) -> tuple[Band, ...]:
    """Phases as bands: each lasts until the next, the last until ``end_ms``."""
    starts = [*(phase.from_ms for phase in phases), end_ms]
    return tuple(
        Band(phase.from_ms, end, phase.name) for phase, end in zip(phases, starts[1:], strict=True) if end > phase.from_ms
    )


def read_phases(path: Path) -> tuple[Phase, ...]:
    """A phases file: a YAML list of ``{from: unix seconds, name: text}``, in order of time; InputError otherwise."""
    import yaml

    try:
        document: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}; check it") from error
    except yaml.YAMLError as error:
        raise InputError(f"{path}: is no YAML: {' '.join(str(error).split())}; mend its syntax") from error
    if not isinstance(document, list):
        raise InputError(f"{path}: is no list of phases; write `- {{from: 1796022962, name: steady}}`")
    phases = []
    for number, item in enumerate(document, 1):
        start, name = (item.get("from"), item.get("name")) if isinstance(item, dict) else (None, None)
        if isinstance(start, bool) or not isinstance(start, (int, float)) or not isinstance(name, str):
            raise InputError(f"{path}: phase {number} is not {{from: unix seconds, name: text}}; correct it")
        phases.append(Phase(round(start * 1000), name))
    if any(one.from_ms > two.from_ms for one, two in itertools.pairwise(phases)):
        raise InputError(f"{path}: the phases are not in order of time; sort them")
    return tuple(phases)


def phase_at(phases: Sequence[Phase], at_ms: int) -> str:
    """The phase's name at a time; "" before the first."""
    return next((phase.name for phase in reversed(phases) if phase.from_ms <= at_ms), "")


def label_text(instance: Instance) -> str:
    """The labels that tell an instance apart, as in PromQL, without ``alertname``."""
    pairs = [f'{name}="{value}"' for name, value in instance.labels if name != "alertname"]
    return "{" + ", ".join(pairs) + "}"


def offset(ms: int) -> str:
    """A distance from the start of the recording: "+95s", "+2m05s", "+1h00m05s"."""
    seconds, rest = divmod(ms, 1000)
    tail = (f"{seconds % 60:02d}" if seconds >= 60 else f"{seconds}") + (f".{rest:03d}".rstrip("0") if rest else "")
    minutes, hours = seconds // 60 % 60, seconds // 3600
    if hours:
        return f"+{hours}h{minutes:02d}m{tail}s"
    return f"+{minutes}m{tail}s" if minutes else f"+{tail}s"


def strip(timeline: Timeline, phases: Sequence[Phase], *, width: int, colour: bool, unicode: bool) -> list[str]:
    """One line per phase boundary, then one per instance: a mark per slice of time, the worst state in it."""
    heads = [f"{one.alert} {_short(one, timeline)}".strip() for one in timeline.instances]
    rows = [(head, (one,)) for head, one in zip(heads, timeline.instances, strict=True)]
    left, columns = _columns([head for head, _ in rows], width)
    lines = [" " * (left + 2) + line for line in _phase_lines(timeline, phases, columns, unicode=unicode)]
    return lines + _rows(timeline, rows, left, columns, colour=colour, unicode=unicode)


def strip_by_alert(
    timeline: Timeline, incidents: Sequence[Band], phases: Sequence[Phase], *, width: int, colour: bool, unicode: bool
) -> list[str]:
    """As ``strip``, with one line per alert (the worst of its instances); above, a bar per incident (of many, one line
    that says when there was any), else the phases."""
    found: dict[str, tuple[Instance, ...]] = {}
    for one in timeline.instances:
        found[one.alert] = (*found.get(one.alert, ()), one)
    times = "×" if unicode else "x"
    rows = [(f"{name} {times}{len(many)}" if len(many) > 1 else name, many) for name, many in found.items()]
    left, columns = _columns([head for head, _ in rows], width)
    if len(incidents) > MOST_BARS:
        above = [_any(timeline, incidents, columns, unicode=unicode), f"{len(incidents)} incidents"]
    elif incidents:
        above = [_bar(timeline, one, columns, unicode=unicode) for one in incidents]
    else:
        above = _phase_lines(timeline, phases, columns, unicode=unicode)
    return [" " * (left + 2) + line for line in above if line] + _rows(
        timeline, rows, left, columns, colour=colour, unicode=unicode
    )


def states(instances: Sequence[Instance], start_ms: int, end_ms: int, columns: int) -> list[str]:
    """The worst state of any instance in each of ``columns`` equal slices of [start, end); a short one is never lost."""
    total = end_ms - start_ms
    found = [0] * columns
    edges = [start_ms + column * total // columns for column in range(columns + 1)]
    for instance in instances:
        for span in instance.spans:
            if span.end_ms <= start_ms or span.start_ms >= end_ms or span.end_ms <= span.start_ms:
                continue
            first = max(0, bisect.bisect_right(edges, span.start_ms) - 1)
            last = min(columns, bisect.bisect_left(edges, span.end_ms))
            worth = 2 if span.state == "firing" else 1
            for column in range(first, last):
                found[column] = max(found[column], worth)
    return [("inactive", "pending", "firing")[worth] for worth in found]


def _columns(heads: Sequence[str], width: int) -> tuple[int, int]:
    """How wide the names and the marks are."""
    left = min(max([len(head) for head in heads] + [8]), max(20, width // 2))
    return left, max(20, width - left - 2)


def _phase_lines(timeline: Timeline, phases: Sequence[Phase], columns: int, *, unicode: bool) -> list[str]:
    total = timeline.end_ms - timeline.start_ms + 1
    lines = []
    for phase in phases:
        if phase.from_ms <= timeline.end_ms:
            at = max(0, (phase.from_ms - timeline.start_ms) * columns // total)
            arrow = "▼" if unicode else "v"
            text = f"{arrow} {phase.name}"
            start = at if at + len(text) <= columns else max(0, at + 1 - len(text))
            if start < at:
                text = f"{phase.name} {arrow}"
            lines.append(" " * start + text[:columns])
    return lines


def _bar(timeline: Timeline, band: Band, columns: int, *, unicode: bool) -> str:
    """``├─ name ──┤`` over the time of a band; the name beside it where it does not fit. "" when it is out of sight."""
    total = timeline.end_ms - timeline.start_ms + 1
    if band.start_ms > timeline.end_ms or band.end_ms <= timeline.start_ms:
        return ""
    first = max(0, (band.start_ms - timeline.start_ms) * columns // total)
    last = max(first + 1, min(columns, -((timeline.start_ms - band.end_ms) * columns // total)))
    size = last - first
    left, line, right = ("├", "─", "┤") if unicode else ("|", "-", "|")
    if size < 2:
        bar = left
    elif len(band.name) + 6 <= size:
        return " " * first + left + f"{line} {band.name} ".ljust(size - 2, line) + right
    else:
        bar = left + line * (size - 2) + right
    name = band.name if len(band.name) <= columns - size - 1 else band.name[: max(0, columns - size - 1)]
    if first + size + 1 + len(name) <= columns:
        return f"{' ' * first}{bar} {name}"
    if first >= len(name) + 1:
        return f"{name} {bar}".rjust(first + size)
    return f"{' ' * first}{bar} {name}"[:columns]


def _any(timeline: Timeline, many: Sequence[Band], columns: int, *, unicode: bool) -> str:
    """A mark in each slice of time that any of the bands touches."""
    spans = tuple(Span(one.start_ms, one.end_ms, "firing") for one in many)
    slices = states([Instance("", (), spans)], timeline.start_ms, timeline.end_ms + 1, columns)
    return "".join(("─" if unicode else "-") if state == "firing" else " " for state in slices).rstrip()


def _rows(
    timeline: Timeline,
    rows: Sequence[tuple[str, Sequence[Instance]]],
    left: int,
    columns: int,
    *,
    colour: bool,
    unicode: bool,
) -> list[str]:
    lines = []
    for head, instances in rows:
        shown = head if len(head) <= left else head[: left - 1] + ("…" if unicode else "~")
        slices = states(instances, timeline.start_ms, timeline.end_ms + 1, columns)
        lines.append(f"{shown:<{left}}  " + _marks(slices, colour=colour, unicode=unicode))
    marks = MARKS if unicode else _PLAIN
    lines.append(" " * (left + 2) + "  ".join(f"{mark} {state}" for state, mark in marks.items()))
    return lines


def table(timeline: Timeline, phases: Sequence[Phase]) -> list[str]:
    """A line per state of each instance: from, to, state, phase it began in, alert and labels."""
    rows = [("from", "to", "state", "began in", "alert")]
    for instance in timeline.instances:
        for span in instance.spans:
            rows.append(
                (
                    offset(span.start_ms - timeline.start_ms),
                    offset(span.end_ms - timeline.start_ms),
                    span.state,
                    phase_at(phases, span.start_ms) or "-",
                    instance.alert + label_text(instance),
                )
            )
    if not phases:
        rows = [(*row[:3], "", row[4]) for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = []
    for row in rows:
        cells = [
            f"{cell:>{size}}" if index < 2 else f"{cell:<{size}}"
            for index, (cell, size) in enumerate(zip(row, widths, strict=False))
            if size
        ]
        lines.append("  ".join([*cells, row[4]]))
    return lines


def as_json(timeline: Timeline, phases: Sequence[Phase]) -> dict[str, Any]:
    """The timeline for machines; times in unix seconds."""
    return {
        "recording": timeline.recording,
        "prometheus": timeline.prometheus,
        "start": timeline.start_ms / 1000,
        "end": timeline.end_ms / 1000,
        "interval": timeline.interval_ms / 1000,
        "phases": [{"from": phase.from_ms / 1000, "name": phase.name} for phase in phases],
        "alerts": list(timeline.alerts),
        "instances": [
            {
                "alert": one.alert,
                "labels": dict(one.labels),
                "spans": [
                    {"from": span.start_ms / 1000, "to": span.end_ms / 1000, "state": span.state} for span in one.spans
                ],
            }
            for one in timeline.instances
        ],
        "dead": {alert: list(metrics) for alert, metrics in timeline.dead},
    }


def _short(instance: Instance, timeline: Timeline) -> str:
    """The values of the labels in which the instances of the timeline differ."""
    every = [dict(one.labels) for one in timeline.instances]
    common = {name for name, value in every[0].items() if all(one.get(name) == value for one in every)}
    skip = common | {"alertname", "severity"}
    return " ".join(value for name, value in instance.labels if name not in skip)


def _marks(states: Sequence[str], *, colour: bool, unicode: bool) -> str:
    marks = MARKS if unicode else _PLAIN
    out, last = [], "inactive"
    for state in states:
        if colour and state != last:
            out.append(_COLOURS.get(state, _OFF) if state != "inactive" else _OFF)
        out.append(marks[state])
        last = state
    return "".join(out) + (_OFF if colour and last != "inactive" else "")
