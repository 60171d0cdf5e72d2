"""The state machine of a Prometheus alert, as a pure function.

It follows AlertingRule.Eval (rules/alerting.go) exactly: an element of the result is pending from the
evaluation that first has it; it fires at the first evaluation at least ``for`` after that; one evaluation
without it ends a pending alert, and ends a firing one unless ``keep_firing_for`` has not passed since it
went. An element that comes back while kept keeps its beginning. How long Prometheus remembers a resolved
alert, to tell Alertmanager, is of no consequence here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
    evaluations: Iterable[tuple[int, Iterable[Labels]]], *, end_ms: int, hold_ms: int = 0, keep_ms: int = 0
) -> dict[Labels, tuple[Span, ...]]:
    """Each alert's states over successive evaluations (time, elements), labels sorted.

    A pending and a firing span that follow each other touch. A state that lasts is closed at ``end_ms``.
    """
    done: dict[Labels, list[Span]] = {}
    open_: dict[Labels, tuple[int, Active]] = {}
    active: dict[Labels, Active] = {}
    for at_ms, present in evaluations:
        active = advance(active, present, at_ms, hold_ms=hold_ms, keep_ms=keep_ms)
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
