"""What a backtest came to: every state of every alert over a past, and what the reports draw of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from obs.prom.client import Client
from obs.prom.remote_write import Labels

if TYPE_CHECKING:
    from obs.evaluate.replay import Timeline


@dataclass(frozen=True)
class Curve:
    """An alert instance's value over time beside its threshold, to be drawn.

    ``points``: (unix ms, value) where there is one, in order of time; a gap is no data. ``threshold``: the same
    for the other side of the deciding comparison ``op``; empty where the expression compares nothing.
    """

    alert: str
    labels: Labels
    op: str
    points: tuple[tuple[int, float], ...]
    threshold: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Choice:
    """How a rule that reads recorded series was evaluated, and why.

    ``exact``: the result is that of a server that has the rules loaded and evaluates them at these times; when not,
    ``why`` says where it can differ.
    """

    rule: str
    how: Literal["stored", "expanded", "evaluated first"]
    why: str
    exact: bool = True


@dataclass(frozen=True)
class History:
    """A timeline, how it was made, and what the server warned of (a partial answer is not a result).

    ``notes``: what to know when reading it, such as a server that is no Prometheus.
    """

    timeline: Timeline
    choices: tuple[Choice, ...] = ()
    warnings: tuple[str, ...] = ()
    curves: tuple[Curve, ...] = ()
    notes: tuple[str, ...] = ()


def server_notes(client: Client) -> tuple[str, ...]:
    """What to know of a server that is no Prometheus."""
    if not client.is_victoria_metrics:
        return ()
    return (
        "the server is VictoriaMetrics: its rate() and increase() look at the sample before the window and do not "
        "extrapolate, and a series ends after its usual interval; states near a threshold can differ from Prometheus's",
    )
