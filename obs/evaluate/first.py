"""Recording rules evaluated first, into a private Prometheus, and the alerts asked there.

The server evaluates what reads its own series; what reads recorded series is asked of the private Prometheus, which
has them exactly where a deployed rule would have put them. Where one expression reads both, its parts that read only
the server's series are evaluated there at the same times and written beside, under a name of their own: nothing raw
is copied, so ranges over raw series see the server's samples and staleness.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence

from obs.errors import InputError
from obs.evaluate import explain, replay
from obs.evaluate import rules as rules_
from obs.evaluate.ranges import Asker
from obs.evaluate.replay import Instance
from obs.evaluate.rules import Rule
from obs.prom import metric_names
from obs.prom.server import PrivatePrometheus

_LOOKBACK_MS = 300_000  # how far back an instant selector finds a sample (--query.lookback-delta)
_NAME = "obs_part_{}"


def evaluate(
    asker: Asker,
    rules: Sequence[Rule],
    alerts: Sequence[Rule],
    recorded: Mapping[str, Sequence[Rule]],
    times: Callable[[Rule], range],
    end_ms: int,
    progress: Callable[[str, float], None],
) -> list[Instance]:
    """The alerts' instances. ``recorded``: the rules by the names that are to be evaluated first; ``times``: a rule's
    evaluation times in the backtest (recording rules begin earlier, by what their readers look back).

    InputError when an expression cannot be divided; else as obs.evaluate.backtest.over_server.
    """
    needed = _needed(alerts, recorded)
    ordered = [rule for rule in rules_.in_order([*needed, *alerts]) if rule.kind == "record"]
    starts = _starts(ordered, alerts, times)
    turns = rules_.Turns(rules)
    instances: list[Instance] = []
    with PrivatePrometheus() as server:
        private = Asker(server.client, stop=asker.stop, warnings=asker.warnings)
        parts = _Parts(asker, server, frozenset(recorded))
        for number, rule in enumerate([*ordered, *alerts]):
            progress(f"evaluated first: {rule.name}", number / (len(ordered) + len(alerts)))
            every = times(rule)
            if rule.kind == "record":
                every = range(starts[id(rule)] // every.step * every.step, every.stop, every.step)
            if rule.kind == "record" and not parts.reads(rule.expr):
                replay.record(asker, server, rule, rule.expr, every)
                continue
            text = replay.at_its_turn(private, rule, parts.divided(rule, every), turns)
            if rule.kind == "record":
                replay.record(private, server, rule, text, every)
            else:
                instances += replay.instances_of(private, rule, text, every, end_ms)
    return instances


def _needed(alerts: Sequence[Rule], recorded: Mapping[str, Sequence[Rule]]) -> list[Rule]:
    """The recording rules that alerts read, and those that these read."""
    found: dict[int, Rule] = {}
    waiting = list(alerts)
    while waiting:
        expr = waiting.pop().expr
        for name, makers in recorded.items():
            if metric_names.may_read(expr, name):
                waiting += [one for one in makers if id(one) not in found]
                found.update((id(one), one) for one in makers)
    return [one for makers in recorded.values() for one in makers if id(one) in found]


def _starts(ordered: Sequence[Rule], alerts: Sequence[Rule], times: Callable[[Rule], range]) -> dict[int, int]:
    """From when (unix milliseconds) each recording rule is evaluated, so that its readers find what they look back at."""
    starts = {id(rule): times(rule).start for rule in [*ordered, *alerts]}
    for reader in [*alerts, *reversed(ordered)]:
        from_ms = starts[id(reader)] - explain.reach_ms(reader.expr) - reader.offset_ms - _LOOKBACK_MS
        for rule in ordered:
            if rule is not reader and metric_names.may_read(reader.expr, rule.name):
                starts[id(rule)] = min(starts[id(rule)], from_ms)
    return starts


class _Parts:
    """The parts of expressions that read only the server's series, evaluated there and written beside."""

    def __init__(self, asker: Asker, server: PrivatePrometheus, recorded: frozenset[str]) -> None:
        self.asker, self.server, self.recorded = asker, server, recorded
        self.names: dict[tuple[str, int], str] = {}
        self._lock = threading.Lock()

    def reads(self, expr: str) -> bool:
        """Whether an expression reads a recorded series."""
        return any(metric_names.may_read(expr, name) for name in self.recorded)

    def divided(self, rule: Rule, times: range) -> str:
        """The rule's expression with those parts replaced by the series written for them."""
        step = times.step
        start = times.start
        for subquery in explain.subqueries(rule.expr):
            by = explain.resolution_ms(subquery)
            step = math.gcd(step, by) if by else math.gcd(step, 60_000)
            start = min(start, times.start - explain.reach_ms(rule.expr))
        every = range(start // step * step - rule.offset_ms, times.stop - rule.offset_ms, step)

        def put(text: str) -> str:
            key = (text, step)
            name = self.names.get(key)
            if name is None:
                name = self.names[key] = _NAME.format(len(self.names) + 1)
                part = Rule("record", name, text, where=rule.where)
                replay.record(self.asker, self.server, part, text, every)
            return name

        try:
            return explain.divided(rule.expr, self.reads, put)
        except ValueError as error:
            raise InputError(
                f"{rule.where or rule.name}: {rule.name} cannot be evaluated first: {error}; expand it instead"
            ) from error
