"""Draws a timeline as text: a strip chart with phases, and a table of states."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from obs.errors import InputError
from obs.evaluate.replay import Instance, Timeline

MARKS = {"inactive": "·", "pending": "░", "firing": "█"}
_PLAIN = {"inactive": ".", "pending": "-", "firing": "#"}
_COLOURS = {"pending": "\x1b[33m", "firing": "\x1b[31m"}
_OFF = "\x1b[0m"


@dataclass(frozen=True)
class Phase:
    """What happens from a time (unix milliseconds) on, until the next phase."""

    from_ms: int
    name: str


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
    left = min(max([len(head) for head in heads] + [8]), max(20, width // 2))
    columns = max(20, width - left - 2)
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
            lines.append(" " * (left + 2 + start) + text[:columns])
    for head, instance in zip(heads, timeline.instances, strict=True):
        states = [
            _worst(
                instance,
                timeline.start_ms + column * total // columns,
                timeline.start_ms + (column + 1) * total // columns,
            )
            for column in range(columns)
        ]
        shown = head if len(head) <= left else head[: left - 1] + ("…" if unicode else "~")
        lines.append(f"{shown:<{left}}  " + _marks(states, colour=colour, unicode=unicode))
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


def _worst(instance: Instance, start_ms: int, end_ms: int) -> str:
    here = {span.state for span in instance.spans if span.start_ms < end_ms and span.end_ms > start_ms}
    return "firing" if "firing" in here else "pending" if "pending" in here else "inactive"


def _marks(states: Sequence[str], *, colour: bool, unicode: bool) -> str:
    marks = MARKS if unicode else _PLAIN
    out, last = [], "inactive"
    for state in states:
        if colour and state != last:
            out.append(_COLOURS.get(state, _OFF) if state != "inactive" else _OFF)
        out.append(marks[state])
        last = state
    return "".join(out) + (_OFF if colour and last != "inactive" else "")
