"""Recording rules evaluated first, into a private Prometheus, and the alerts asked there.

The server evaluates what reads its own series; what reads recorded series is asked of the private Prometheus, which
has them exactly where a deployed rule would have put them. Where one expression reads both, its parts that read only
the server's series are evaluated there at the same times and written beside, under a name of their own: nothing raw
is copied, so ranges over raw series see the server's samples and staleness.
"""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from obs.errors import InputError
from obs.evaluate import explain, narrow, replay
from obs.evaluate import rules as rules_
from obs.evaluate.elements import Made
from obs.evaluate.explain import take_apart
from obs.evaluate.ranges import EVERYWHERE, Asker, in_parallel
from obs.evaluate.replay import Instance
from obs.evaluate.rules import Rule
from obs.evaluate.simplify import Apart, Asked, Copies, asked, can_give, simplified
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
    known: Collection[str],
    copies: Copies,
    apart: Apart,
) -> list[Instance]:
    """The alerts' instances. ``recorded``: the rules by the names that are to be evaluated first; ``times``: a rule's
    evaluation times in the backtest (recording rules begin earlier, by what their readers look back); ``known``: all
    names of metrics on the server in that time; ``copies``, ``apart``: as obs.evaluate.simplify.asked wants them.

    InputError when an expression cannot be divided; else as obs.evaluate.backtest.over_server.
    """
    makers = [rule for rules_of_name in recorded.values() for rule in rules_of_name]
    ordered = [rule for rule in rules_.in_order([*rules_.needed(alerts, makers), *alerts]) if rule.kind == "record"]
    able = set(known)
    for rule in ordered:
        if can_give(take_apart(rule.expr), able):
            able.add(rule.name)
    ordered = [rule for rule in ordered if can_give(take_apart(rule.expr), able)]
    alerts = [rule for rule in alerts if can_give(take_apart(rule.expr), able)]
    starts = _starts(ordered, alerts, times)
    turns = rules_.Turns(rules)
    found: list[list[Instance]] = [[] for _ in alerts]
    some: dict[str, narrow.There] = {}  # names of which the private Prometheus has samples
    with PrivatePrometheus() as server:
        private = Asker(server.client, stop=asker.stop, warnings=asker.warnings, failed=asker.failed)
        parts = _Parts(frozenset(recorded), lambda text: asked(text, able, copies, apart))
        reading: list[tuple[Rule, str, range]] = []  # what is asked of the private Prometheus
        for rule in [*ordered, *alerts]:
            every = times(rule)
            if rule.kind == "record":
                every = range(starts[id(rule)] // every.step * every.step, every.stop, every.step)
            text = parts.taken(rule, every)
            if text:
                reading.append((rule, text, every))
        jobs = parts.jobs()
        done = 0
        lock = threading.Lock()

        def work(what: str, run: Callable[[], object]) -> None:
            nonlocal done
            run()
            with lock:
                done += 1
            progress(f"evaluated first: {what}", done / len(works))

        def add(made: Mapping[str, Made], every: range) -> None:
            with lock:
                for name, one in made.items():
                    some[name] = narrow.There(one, every).beside(some.get(name))

        def record(job: _Job) -> None:
            add(replay.record_all(asker, server, job.rules, job.asked, job.times), job.times)

        def read(rule: Rule, text: str, every: range) -> None:
            there = dict(some)  # others add to it meanwhile
            if not can_give(take_apart(text), there):
                return
            text = replay.at_its_turn(private, rule, simplified(text, there), turns)
            where = narrow.where(text, every, there, values=rule.kind == "record") if not rule.offset_ms else EVERYWHERE
            if rule.kind == "record":
                add(replay.record_all(private, server, [rule], [Asked(text)], every, where), every)
            else:
                found[places[id(rule)]] = replay.instances_of(private, rule, text, every, end_ms, where)

        places = {id(rule): number for number, rule in enumerate(alerts)}
        works = [partial(work, _called(job.rules[0], parts), partial(record, job)) for job in jobs]
        works += [partial(work, rule.name, partial(read, rule, text, every)) for rule, text, every in reading]
        in_parallel(works, asker.stop, _needs(jobs, reading))
    return [one for some_ in found for one in some_]


def _called(rule: Rule, parts: _Parts) -> str:
    return "part of an alert" if rule.name in parts.made else rule.name


def _needs(jobs: Sequence[_Job], reading: Sequence[tuple[Rule, str, range]]) -> dict[int, set[int]]:
    """Which works must be done before which: jobs have the first places, then what is read of the private Prometheus."""
    made = [(rule, place) for place, job in enumerate(jobs) for rule in job.rules]
    needs: dict[int, set[int]] = {}
    for place, (rule, text, _) in enumerate(reading, len(jobs)):
        reader = dataclasses.replace(rule, expr=text)
        needs[place] = {before for maker, before in made if rules_.reads(reader, maker)}
        if rule.kind == "record":
            made.append((rule, place))
    return needs


def _starts(ordered: Sequence[Rule], alerts: Sequence[Rule], times: Callable[[Rule], range]) -> dict[int, int]:
    """From when (unix milliseconds) each recording rule is evaluated, so that its readers find what they look back at."""
    starts = {id(rule): times(rule).start for rule in [*ordered, *alerts]}
    for reader in [*alerts, *reversed(ordered)]:
        for rule in ordered:
            if rule is not reader and rules_.reads(reader, rule):
                back = explain.reach_ms(reader.expr, partial(metric_names.may_read, metric=rule.name, labels=rule.labels))
                from_ms = starts[id(reader)] - back - reader.offset_ms - _LOOKBACK_MS
                starts[id(rule)] = min(starts[id(rule)], from_ms)
    return starts


@dataclass(frozen=True)
class _Job:
    """What is asked of the server at some times (``asked[0].text``, and their labels each), for which rules."""

    rules: tuple[Rule, ...]
    asked: tuple[Asked, ...]
    times: range


class _Parts:
    """The parts of expressions that read only the server's series, to be evaluated there: see ``jobs``."""

    def __init__(self, recorded: frozenset[str], way: Callable[[str], Asked]) -> None:
        self.recorded = recorded
        self.made: set[str] = set()
        self._way = way
        self._names: dict[tuple[str, int, int, int], str] = {}
        self._wanted: list[tuple[str, Rule, range]] = []

    def _reads(self, expr: str) -> bool:
        return any(metric_names.may_read(expr, name) for name in self.recorded)

    def jobs(self) -> list[_Job]:
        """What to ask, for which rules, and when: the same question at the same times once, from the earliest start on."""
        found: dict[tuple[str, int, int, int, int, str], _Job] = {}
        for text, rule, every in self._wanted:
            way = self._way(text)
            own = (rule.where or rule.name) if rule.limit else ""  # what it does not record is its own affair
            key = (way.text, every.step, every.start % every.step, every.stop, rule.offset_ms, own)
            job = found.get(key, _Job((), (), every))
            times = range(min(every.start, job.times.start), every.stop, every.step)
            found[key] = _Job((*job.rules, rule), (*job.asked, way), times)
        return list(found.values())

    def taken(self, rule: Rule, times: range) -> str:
        """The rule's expression with its parts replaced by the series made of them; "" for a recording rule that is
        the server's as a whole. InputError when the parts cannot be told apart."""
        if rule.kind == "record" and not self._reads(rule.expr):
            self._wanted.append((rule.expr, rule, times))
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
                self._wanted.append((text, Rule("record", name, text, where=rule.where), every))
            return name

        try:
            return explain.divided(rule.expr, self._reads, put)
        except ValueError as error:
            raise InputError(
                f"{rule.where or rule.name}: {rule.name} cannot be evaluated first: {error}; expand it instead"
            ) from error
