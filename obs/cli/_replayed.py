"""Histories of recordings by way of obs.evaluate.replay, until obs.evaluate.backtest is there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from obs.errors import InputError
from obs.evaluate import replay
from obs.evaluate import rules as rules_
from obs.evaluate.curves import curves as curves_
from obs.evaluate.history import History
from obs.evaluate.recording import Recording
from obs.evaluate.rules import Rule
from obs.prom.client import Client, Series
from obs.prom.server import PrivatePrometheus

_Progress = Callable[[str, float], None]


def over_recordings(
    recordings: Sequence[Recording],
    rules: Sequence[Rule],
    *,
    interval_ms: int | None = None,
    end_ms: int | None = None,
    curves: bool = False,
    progress: _Progress | None = None,
) -> History:
    timeline = replay.replay(list(recordings), list(rules), interval_ms=interval_ms, end_ms=end_ms)
    if not curves:
        return History(timeline)
    times = range(timeline.start_ms, timeline.end_ms + 1, timeline.interval_ms)
    with PrivatePrometheus() as server:
        for one in recordings:
            server.writer.write(one.points(end_ms=timeline.end_ms))
        for rule in rules_.in_order(list(rules)):
            if rule.kind == "record":
                server.writer.write(replay.written_back(replay.evaluate_rule(server, rule, times), times))

        def ask(expr: str, start_ms: int, end_ms: int, step_ms: int) -> list[Series]:
            return server.client.query_range(expr, start_ms / 1000, end_ms / 1000, step_ms / 1000)

        return History(timeline, curves=curves_(ask, rules, timeline, times))


def over_server(client: Client, rules: Sequence[Rule], **unused: Any) -> History:
    raise InputError("a live server cannot be backtested yet; give --recording")


__all__ = ["over_recordings", "over_server"]
