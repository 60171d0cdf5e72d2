"""The state machine of a Prometheus alert, as a pure function.

It follows AlertingRule.Eval (rules/alerting.go) exactly: an element of the result is pending from the
evaluation that first has it; it fires at the first evaluation at least ``for`` after that; one evaluation
without it ends a pending alert, and ends a firing one unless ``keep_firing_for`` has not passed since it
went. An element that comes back while kept keeps its beginning. How long Prometheus remembers a resolved
alert, to tell Alertmanager, is of no consequence here.

A group's ``limit`` counts active alerts, kept ones too: an evaluation that has more fails and forgets all of
them, so that what is still there begins anew at the next. An evaluation that fails for another reason (the
query, or two elements with the same labels) changes nothing: leave it out of the evaluations.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from obs.prom.remote_write import Labels

State = Literal["pending", "firing"]


@dataclass(frozen=True)
class Active:
    """An active alert: its state, since when its element is there, and since when it is only kept firing.

    Times are unix milliseconds, as are all in this module.
    """

    state: State
    active_at_ms: int
    kept_since_ms: int | None = None


@dataclass(frozen=True)
class Span:
    """A state from one evaluation (inclusive) to the evaluation that ended it (or the end of the timeline)."""

    start_ms: int
    end_ms: int
    state: State


def advance(
    active: Mapping[Labels, Active], present: Iterable[Labels], at_ms: int, *, hold_ms: int = 0, keep_ms: int = 0
) -> dict[Labels, Active]:
    """The active alerts after the evaluation at ``at_ms`` whose result has the elements ``present``.

    ``present`` are alert labels (rule labels applied, no ``__name__``); ``hold_ms`` is the rule's ``for``,
    ``keep_ms`` its ``keep_firing_for``.
    """
    elements = set(present)
    result: dict[Labels, Active] = {}
    for labels in sorted(elements | active.keys()):
        alert = active.get(labels)
        if labels in elements:
            alert = Active("pending", at_ms) if alert is None else replace(alert, kept_since_ms=None)
        elif alert is None or alert.state == "pending" or keep_ms == 0:
            continue
        else:
            since = at_ms if alert.kept_since_ms is None else alert.kept_since_ms
            if at_ms - since >= keep_ms:
                continue
            alert = replace(alert, kept_since_ms=since)
        if alert.state == "pending" and at_ms - alert.active_at_ms >= hold_ms:
            alert = replace(alert, state="firing")
        result[labels] = alert
    return result


def spans(
    evaluations: Iterable[tuple[int, Iterable[Labels]]],
    *,
    end_ms: int,
    hold_ms: int = 0,
    keep_ms: int = 0,
    limit: int = 0,
    exceeded: list[int] | None = None,
) -> dict[Labels, tuple[Span, ...]]:
    """Each alert's states over successive evaluations (time, elements), labels sorted.

    A pending and a firing span that follow each other touch. A state that lasts is closed at ``end_ms``.
    ``limit``: the group's (0 = none); the times of evaluations that had more are added to ``exceeded``.
    """
    done: dict[Labels, list[Span]] = {}
    open_: dict[Labels, tuple[int, Active]] = {}
    active: dict[Labels, Active] = {}
    for at_ms, present in evaluations:
        active = advance(active, present, at_ms, hold_ms=hold_ms, keep_ms=keep_ms)
        if limit and len(active) > limit:
            active = {}
            if exceeded is not None:
                exceeded.append(at_ms)
        for labels, (start, alert) in list(open_.items()):
            now = active.get(labels)
            if now is None or now.state != alert.state or now.active_at_ms != alert.active_at_ms:
                done.setdefault(labels, []).append(Span(start, at_ms, alert.state))
                del open_[labels]
        for labels, alert in active.items():
            open_.setdefault(labels, (at_ms, alert))
    for labels, (start, alert) in open_.items():
        done.setdefault(labels, []).append(Span(start, end_ms, alert.state))
    return {labels: tuple(done[labels]) for labels in sorted(done)}


Runs = Sequence[tuple[int, int]]
"""When an element is there: (first, behind the last) indexes of evaluations, in order, apart from each other."""


def spans_of_runs(
    runs: Mapping[Labels, Runs],
    times: Sequence[int],
    *,
    end_ms: int,
    hold_ms: int = 0,
    keep_ms: int = 0,
    limit: int = 0,
    exceeded: list[int] | None = None,
) -> dict[Labels, tuple[Span, ...]]:
    """What ``spans`` gives for evaluations at ``times``, in time that grows with the runs, not with the evaluations."""
    found = {
        labels: tuple(_of_one(theirs, times, end_ms, hold_ms, keep_ms)) for labels, theirs in sorted(runs.items()) if theirs
    }
    if not limit or _most(found.values(), end_ms) <= limit:
        return found
    return spans(
        _evaluations(runs, times), end_ms=end_ms, hold_ms=hold_ms, keep_ms=keep_ms, limit=limit, exceeded=exceeded
    )


def _of_one(runs: Runs, times: Sequence[int], end_ms: int, hold_ms: int, keep_ms: int) -> Iterator[Span]:
    count = len(times)
    index = 0
    while index < len(runs):
        begin, end = runs[index]
        index += 1
        fires = bisect_left(times, times[begin] + hold_ms, begin)
        while True:
            gone = end
            if fires < end and keep_ms and end < count:
                gone = bisect_left(times, times[end] + keep_ms, end)
            # kept until it comes back: it comes back as the same alert, fires already, and is kept anew when it goes
            if fires < end and index < len(runs) and runs[index][0] <= gone and keep_ms:
                end = runs[index][1]
                index += 1
                continue
            break
        stop = times[gone] if gone < count else end_ms
        if fires > begin:
            yield Span(times[begin], times[fires] if fires < end else stop, "pending")
        if fires < end:
            yield Span(times[fires], stop, "firing")


def _most(found: Iterable[tuple[Span, ...]], end_ms: int) -> int:
    """How many alerts are active at once at most, or one more: what is still active at the end counts there too."""
    changes: list[tuple[int, int]] = []
    for spans_ in found:
        for span in spans_:
            changes += [(span.start_ms, 1), (span.end_ms + (span.end_ms == end_ms), -1)]
    changes.sort()  # at one time, ends come before beginnings
    now = most = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


def _evaluations(runs: Mapping[Labels, Runs], times: Sequence[int]) -> Iterator[tuple[int, set[Labels]]]:
    come: dict[int, list[Labels]] = {}
    go: dict[int, list[Labels]] = {}
    for labels, theirs in runs.items():
        for begin, end in theirs:
            come.setdefault(begin, []).append(labels)
            go.setdefault(end, []).append(labels)
    present: set[Labels] = set()
    for index, at in enumerate(times):
        present.difference_update(go.get(index, ()))
        present.update(come.get(index, ()))
        yield at, present
