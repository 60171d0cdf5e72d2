"""When there was no data to judge: targets that were down, and times at which Prometheus itself has nothing.

An alert that stops while its targets are down was not resolved, and one that fires again afterwards is not a new
page: obs.evaluate.score does not split an episode there.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from obs.evaluate.recording import GAP, Recording
from obs.prom.client import Series
from obs.prom.remote_write import Labels, make_labels

Interval = tuple[int, int]
"""From (inclusive) to (exclusive), unix milliseconds."""


@dataclass(frozen=True)
class Target:
    """A scraped target, or a job as a whole, by its labels; and when it gave no data, in order of time."""

    labels: Labels
    down: tuple[Interval, ...]


def of_recordings(recordings: Iterable[Recording], end_ms: int) -> tuple[Target, ...]:
    """The targets of recordings up to ``end_ms``: down from the first scrape that failed to the next that did not."""
    found = []
    for one in recordings:
        for target in one.targets:
            step = target.interval_ms
            times = [scrape.time_ms for scrape in target.scrapes if scrape.time_ms <= end_ms]
            down = [(a + step, b) for a, b in itertools.pairwise(times) if b - a > GAP * step]
            if times and end_ms - times[-1] >= step:
                down.append((times[-1] + step, end_ms + 1))
            found.append(Target(make_labels(target.labels.items()), tuple(down)))
    return tuple(found)


def of_server(
    ask: Callable[[str, int, int, int], Sequence[Series]], *, start_ms: int, end_ms: int, step_ms: int
) -> tuple[Target, ...]:
    """The jobs of a server, by its own ``up``: down where none of a job's targets is up, or nothing is known of it.

    ``ask(expression, start_ms, end_ms, step_ms)`` gives the series of a range query. Without any ``up`` series (a
    remote store that is not given them) nothing is known: no targets.
    """
    found = []
    for series in ask("sum by (job) (up)", start_ms, end_ms, step_ms):
        there = {round(at * 1000) for at, value in series.points if value > 0}
        missing = [at for at in range(start_ms, end_ms + 1, step_ms) if at not in there]
        found.append(Target(series.labels, _joined((at, at + step_ms) for at in missing)))
    return tuple(found)


def blind(labels: Labels, targets: Sequence[Target]) -> tuple[Interval, ...]:
    """When an alert with these labels had no data: every target that its labels may speak of was down at once."""
    own = dict(labels)
    meant = [one for one in targets if all(own.get(name, value) == value for name, value in one.labels)]
    if not meant:
        return ()
    common = meant[0].down
    for one in meant[1:]:
        common = tuple(
            (max(a, c), min(b, d)) for a, b in common for c, d in one.down if max(a, c) < min(b, d)
        )
    return common


def without(start_ms: int, end_ms: int, intervals: Sequence[Interval]) -> int:
    """How many milliseconds of [start, end) lie in none of the intervals (in order of time, not overlapping)."""
    left = end_ms - start_ms
    for place in range(max(0, bisect.bisect_right(intervals, (start_ms,)) - 1), len(intervals)):
        low, high = intervals[place]
        if low >= end_ms:
            break
        left -= max(0, min(high, end_ms) - max(low, start_ms))
    return left


def _joined(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    found: list[Interval] = []
    for start, end in intervals:
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return tuple(found)
