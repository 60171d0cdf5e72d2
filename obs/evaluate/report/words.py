"""The cells of the reports' tables as words, the same in every form; unknown is "–", never 0."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from obs.evaluate.chart import offset
from obs.evaluate.compare import AlertChange, Comparison, IncidentChange, noise
from obs.evaluate.incidents import clock
from obs.evaluate.liveness import label_text
from obs.evaluate.report import Report, ordered
from obs.evaluate.score import AlertScore, Episode, IncidentScore, Score
from obs.evaluate.sweep import Sweep

NONE = "–"
Align = Literal["left", "right"]


@dataclass(frozen=True)
class Table:
    """A heading per column with its side, and the rows; the last ``totals`` rows are sums."""

    heads: tuple[tuple[str, Align], ...]
    rows: tuple[tuple[str, ...], ...]
    totals: int = 0


def span(ms: int | None) -> str:
    """A length of time: "45s", "12m30s", "2m", "3h20m05s"; "–" for None."""
    if ms is None:
        return NONE
    fine = 1000 if ms >= 10_000 else 100
    if ms == 0:
        return "0s"
    return re.sub(r"(?<=h)00m$", "", re.sub(r"(?<=m)00s$", "", offset(max(1, round(ms / fine)) * fine)[1:]))


def hours(ms: int) -> str:
    """How long, in the unit that reads best: hours from one hour on."""
    return f"{ms / 3_600_000:.1f}h" if ms >= 3_600_000 else span(ms)


def share(value: float | None) -> str:
    """A ratio in percent."""
    return NONE if value is None else f"{value:.0%}" if value in {0.0, 1.0} else f"{value:.1%}"


def count(value: float | None) -> str:
    """A number that may be unknown."""
    return NONE if value is None else f"{value:.1f}" if isinstance(value, float) else str(value)


def when(ms: int, report: Report) -> str:
    """A time of the report: an offset in a history of less than six hours, else the clock."""
    start, end = report.history.timeline.start_ms, report.history.timeline.end_ms
    return f"+{span(ms - start)}" if end - start < 21_600_000 and ms >= start else _second(ms)


def _second(ms: int) -> str:
    return clock(ms // 1000 * 1000)


def subject(report: Report) -> str:
    """What was judged, in one line."""
    line = report.history.timeline
    version = f", Prometheus {line.prometheus}" if line.prometheus else ""
    return (
        f"{report.title}: {_second(line.start_ms)} to {_second(line.end_ms)} ({span(line.end_ms - line.start_ms)}), "
        f"every {span(line.interval_ms)}, {len(line.alerts)} alert{'s' if len(line.alerts) != 1 else ''}{version}"
    )


def verdict(report: Report) -> str:
    """The whole in one line: what changed, when rules are compared, else the score."""
    if report.comparison is None:
        return score_line(report)
    changed = report.comparison.changed
    many = [f"{sum(len(getattr(one, kind)) for one in changed)} {kind}" for kind in ("gained", "lost", "earlier", "later")]
    loud = f"noise {noise(report.comparison.old)} → {noise(report.comparison.new)}"
    return f"{len(changed)} of {len(report.comparison.alerts)} alerts changed: episodes {', '.join(many)}; {loud}"


def score_line(report: Report) -> str:
    """The score (of the old rules) in one line."""
    total = report.score.total
    noun = "episode" if total.episodes == 1 else "episodes"
    if report.score.incidents is None:
        flaps = f", {total.flaps} flap{'s' if total.flaps != 1 else ''}" if total.flaps else ""
        pages = f", {total.pages_per_week:.1f} pages a week" if total.pages_per_week is not None else ""
        return f"{total.episodes} {noun}{flaps}{pages}; {hours(total.firing_ms)} firing (no incidents given: not judged)"
    detected = f"{(total.expected or 0) - (total.missed or 0)} of {total.expected} incidents detected"
    late = f", the slowest after {span(total.detect_max_ms)}" if total.detect_max_ms is not None else ""
    return f"{detected}{late}; {total.episodes} {noun}: {total.true} true, {total.false} false"


def scores(score: Score) -> Table:
    """The alerts that fired or should have, and the total. "detect" and "resolve" are medians; pages a week are left out
    of a history too short for them."""
    rows = [_score(score.of(name), score) for name in ordered(score)]
    heads: list[tuple[str, Align]] = [("alert", "left"), ("episodes", "right")]
    if score.incidents is not None:
        heads += [("true", "right"), ("false", "right"), ("missed", "right"), ("precision", "right"), ("recall", "right")]
        heads += [("detect", "right"), ("slowest", "right"), ("resolve", "right")]
    heads += [("flaps", "right"), ("firing", "right")]
    if score.total.pages_per_week is not None:
        heads.append(("pages/week", "right"))
    return Table(tuple(heads), (*rows, _score(score.total, score)), 1)


def _score(one: AlertScore, score: Score) -> tuple[str, ...]:
    cells = [one.alert, str(one.episodes)]
    if score.incidents is not None:
        cells += [count(one.true), count(one.false), count(one.missed), share(one.precision), share(one.recall)]
        cells += [span(one.detect_median_ms), span(one.detect_max_ms), span(one.resolve_median_ms)]
    pages = [] if score.total.pages_per_week is None else [count(one.pages_per_week)]
    return (*cells, str(one.flaps), hours(one.firing_ms), *pages)


def incidents(report: Report) -> Table:
    """Each incident with what its expected alerts made of it."""
    rows = [_incident(one, report) for one in report.score.incidents or ()]
    heads: tuple[tuple[str, Align], ...] = (
        ("incident", "left"), ("from", "right"), ("to", "right"), ("detected", "right"), ("expected alerts", "left"),
    )
    return Table(heads, tuple(rows))


def _incident(one: IncidentScore, report: Report) -> tuple[str, ...]:
    expected = ", ".join(
        f"{it.alert} {span(it.after_ms) if it.after_ms is not None else 'yes' if it.found else 'missed'}"
        for it in one.detections
    )
    found = any(it.found for it in one.detections) if one.detections else one.detected
    first = span(one.first_ms) if found and one.first_ms is not None else "yes" if found else "missed"
    if not one.detections and not found:
        first = NONE  # nothing was expected of it
    return (one.incident.name, when(one.incident.start_ms, report), when(one.incident.end_ms, report), first, expected or NONE)


def false_episodes(report: Report, limit: int) -> tuple[Table, int]:
    """The first episodes that no incident explains (without incidents: of all), by time; and how many there are more."""
    every = [one for one in report.score.episodes if one.kind != "true"]
    shown = every[:limit]
    heads: tuple[tuple[str, Align], ...] = (("from", "right"), ("firing", "right"), ("alert", "left"))
    rows = tuple((when(one.start_ms, report), span(one.firing_ms), episode(one)) for one in shown)
    return Table(heads, rows), len(every) - len(shown)


def episode(one: Episode) -> str:
    """An episode by its alert and labels."""
    return one.alert + label_text(one.labels)


# --- the comparison ----------------------------------------------------------------------------------------


def change_line(one: AlertChange) -> str:
    """What changed for an alert, in words: "2 gained, 1 lost, 3 earlier by up to 30s"."""
    words = [{"added": "new alert", "removed": "alert removed"}.get(one.presence, "")]
    words += [f"{len(many)} {kind}" for kind, many in (("gained", one.gained), ("lost", one.lost)) if many]
    for kind, many in (("earlier", one.earlier), ("later", one.later)):
        if many:
            words.append(f"{len(many)} {kind} by up to {span(max(abs(it.by_ms) for it in many))}")
    if one.blind:
        words.append(f"now blind: {', '.join(one.blind)} was never there")
    if not any(words) and one.firing_ms[0] != one.firing_ms[1]:
        words.append("same beginnings, other lengths")
    return ", ".join(word for word in words if word) or "unchanged"


def changes(found: Comparison) -> Table:
    """The alerts that changed: numbers of the old and new rules side by side."""
    heads: tuple[tuple[str, Align], ...] = (
        ("alert", "left"), ("gained", "right"), ("lost", "right"), ("earlier", "right"), ("later", "right"),
        ("firing old", "right"), ("firing new", "right"), ("what", "left"),
    )
    rows = [
        (
            one.alert, str(len(one.gained)), str(len(one.lost)), str(len(one.earlier)), str(len(one.later)),
            hours(one.firing_ms[0]), hours(one.firing_ms[1]), change_line(one),
        )
        for one in found.changed
    ]
    return Table(heads, tuple(rows))


def incident_changes(found: Comparison) -> Table:
    """Each incident's detection under the old and new rules."""
    heads: tuple[tuple[str, Align], ...] = (
        ("incident", "left"), ("old", "right"), ("new", "right"), ("change", "left"),
    )
    return Table(heads, tuple((one.name, *_detections(one)) for one in found.incidents or ()))


def _detections(one: IncidentChange) -> tuple[str, str, str]:
    old, new = (
        (span(after) if after is not None else "yes") if there else "missed"
        for there, after in ((one.old, one.old_ms), (one.new, one.new_ms))
    )
    if one.old != one.new:
        return old, new, "LOST" if one.old else "gained"
    if one.old_ms is None or one.new_ms is None or one.old_ms == one.new_ms:
        return old, new, "same"
    by = one.new_ms - one.old_ms
    return old, new, f"{span(abs(by))} {'later' if by > 0 else 'earlier'}"


def totals(found: Comparison) -> Table:
    """Noise and detection of both rule sets."""
    heads: tuple[tuple[str, Align], ...] = (("", "left"), ("old", "right"), ("new", "right"))
    a, b = found.old.total, found.new.total
    rows = [("episodes", str(a.episodes), str(b.episodes))]
    if found.incidents is not None:
        rows += [
            ("false episodes", count(a.false), count(b.false)),
            ("incidents missed", f"{count(a.missed)} of {count(a.expected)}", f"{count(b.missed)} of {count(b.expected)}"),
            ("alerts that missed one", missed_alerts(found.old), missed_alerts(found.new)),
            ("precision", share(a.precision), share(b.precision)),
            ("time to detect (median)", span(a.detect_median_ms), span(b.detect_median_ms)),
        ]
    rows += [
        ("flaps", str(a.flaps), str(b.flaps)),
        *([("pages a week", count(a.pages_per_week), count(b.pages_per_week))] if a.pages_per_week is not None else []),
        ("firing", hours(a.firing_ms), hours(b.firing_ms)),
    ]
    return Table(heads, tuple(rows))


def missed_alerts(score: Score) -> str:
    """Of all alerts that an incident expects, summed over the incidents, how many missed it."""
    return f"{sum(one.missed or 0 for one in score.alerts)} of {sum(one.expected or 0 for one in score.alerts)}"


# --- the sweep ---------------------------------------------------------------------------------------------


def sweep(found: Sweep) -> Table:
    """A row per value: noise beside detection; the value in use is marked."""
    judged = any(point.score.false is not None for point in found.points)
    heads: list[tuple[str, Align]] = [("value", "right"), ("", "left"), ("episodes", "right")]
    if judged:
        heads += [("false", "right"), ("recall", "right"), ("detect", "right")]
    heads += [("flaps", "right"), ("firing", "right")]
    rows = []
    for point in found.points:
        one = point.score
        cells = [point.text, "in use" if point.current else "", str(one.episodes)]
        if judged:
            cells += [count(one.false), share(one.recall), span(one.detect_median_ms)]
        rows.append((*cells, str(one.flaps), hours(one.firing_ms)))
    return Table(tuple(heads), tuple(rows))


def lines(table: Table, *, width: int = 0) -> Sequence[str]:
    """A table as aligned text; numbers to the right, nothing after the last word; with a ``width`` the words of the last
    column are wrapped where they would go beyond it."""
    grid = [tuple(head for head, _ in table.heads), *table.rows]
    widths = [max(len(row[column]) for row in grid) for column in range(len(table.heads))]
    before = sum(widths[:-1]) + 2 * (len(widths) - 1)
    wraps = width - before >= 24 and table.heads[-1][1] == "left"
    out = []
    for row in grid:
        cells = [
            cell.rjust(size) if side == "right" else cell.ljust(size)
            for cell, size, (_, side) in zip(row, widths, table.heads, strict=True)
        ]
        if wraps and len(row[-1]) > width - before:
            first, *more = textwrap.wrap(row[-1], width - before, break_long_words=False, break_on_hyphens=False)
            out.append("  ".join([*cells[:-1], first]))
            out += [" " * before + line for line in more]
            continue
        out.append("  ".join(cells).rstrip())
    return out
