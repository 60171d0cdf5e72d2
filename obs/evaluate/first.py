"""Recording rules evaluated first, into a private Prometheus, and the alerts asked there.

The server evaluates what reads its own series; what reads recorded series is asked of the private Prometheus, which
has them exactly where a deployed rule would have put them. Where one expression reads both, its parts that read only
the server's series are evaluated there at the same times and written beside, under a name of their own: nothing raw
is copied, so ranges over raw series see the server's samples and staleness.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from obs.errors import InputError
from obs.evaluate import explain, replay
from obs.evaluate import rules as rules_
from obs.evaluate.ranges import Asker, in_parallel
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
    ordered = [rule for rule in rules_.in_order([*needed(alerts, recorded), *alerts]) if rule.kind == "record"]
    starts = _starts(ordered, alerts, times)
    turns = rules_.Turns(rules)
    found: list[list[Instance]] = [[] for _ in alerts]
    with PrivatePrometheus() as server:
        private = Asker(server.client, stop=asker.stop, warnings=asker.warnings)
        parts = _Parts(frozenset(recorded))
        asked: list[tuple[Rule, str, range]] = []
        for rule in [*ordered, *alerts]:
            every = times(rule)
            if rule.kind == "record":
                every = range(starts[id(rule)] // every.step * every.step, every.stop, every.step)
            asked.append((rule, parts.taken(rule, every), every))
        done = 0

        def record(part: Rule, every: range) -> None:
            nonlocal done
            replay.record(asker, server, part, part.expr, every)
            done += 1
            name = "part of an alert" if part.name in parts.made else part.name
            progress(f"evaluated first: {name}", 0.9 * done / len(parts.jobs))

        in_parallel([partial(record, part, every) for part, every in parts.jobs], asker.stop)
        for rule, text, every in asked:
            if rule.kind == "record" and text:
                replay.record(private, server, rule, replay.at_its_turn(private, rule, text, turns), every)
        progress("the alerts over what was evaluated first", 0.9)

        def alert(number: int, rule: Rule, text: str, every: range) -> None:
            text = replay.at_its_turn(private, rule, text, turns)
            found[number] = replay.instances_of(private, rule, text, every, end_ms)

        in_parallel([partial(alert, number, *one) for number, one in enumerate(asked[len(ordered) :])], asker.stop)
    return [one for some in found for one in some]


def needed(alerts: Sequence[Rule], recorded: Mapping[str, Sequence[Rule]]) -> list[Rule]:
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
            if rule is not reader and rules_.reads(reader, rule):
                starts[id(rule)] = min(starts[id(rule)], from_ms)
    return starts


class _Parts:
    """The parts of expressions that read only the server's series: ``jobs`` are to be evaluated there, at those times."""

    def __init__(self, recorded: frozenset[str]) -> None:
        self.recorded = recorded
        self.jobs: list[tuple[Rule, range]] = []
        self.made: set[str] = set()
        self._names: dict[tuple[str, int, int, int], str] = {}

    def _reads(self, expr: str) -> bool:
        return any(metric_names.may_read(expr, name) for name in self.recorded)

    def taken(self, rule: Rule, times: range) -> str:
        """The rule's expression with its parts replaced by the series made of them; "" for a recording rule that is
        the server's as a whole. InputError when the parts cannot be told apart."""
        if rule.kind == "record" and not self._reads(rule.expr):
            self.jobs.append((rule, times))
            return ""
        step = times.step
        start = times.start
        for subquery in explain.subqueries(rule.expr):
            step = math.gcd(step, explain.resolution_ms(subquery) or 60_000)
            start = times.start - explain.reach_ms(rule.expr)
        every = range(start // step * step - rule.offset_ms, times.stop - rule.offset_ms, step)

        def put(text: str) -> str:
            key = (text, every.start, every.stop, step)
            name = self._names.get(key)
            if name is None:
                name = self._names[key] = _NAME.format(len(self._names) + 1)
                self.made.add(name)
                self.jobs.append((Rule("record", name, text, where=rule.where), every))
            return name

        try:
            return explain.divided(rule.expr, self._reads, put)
        except ValueError as error:
            raise InputError(
                f"{rule.where or rule.name}: {rule.name} cannot be evaluated first: {error}; expand it instead"
            ) from error
