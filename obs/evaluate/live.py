"""What every alert says now, on a live Prometheus or at a time of a recording, and why.

PromQL is evaluated by the server alone. What is ours: the state machine (obs.evaluate.state) over the last
minutes, taking an expression apart to tell what decides (explain), and the reason when there is no data
(liveness). Instant queries are sent in bundles, each element marked with the query that it belongs to, a bounded
number at a time: a whole pack is judged in a few rounds of requests.

Recorded series that the server has not are replaced by the expressions of their rules (explain.expand); a result
that then depends on more than the present moment is marked ``sampled``.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from obs.errors import InputError, ObsError, ServerError
from obs.evaluate import explain, liveness, state
from obs.evaluate.explain import Part, take_apart
from obs.evaluate.history import server_notes
from obs.evaluate.liveness import Verdict, World, clock, nearest_query
from obs.evaluate.questions import Answers, Ranges
from obs.evaluate.rules import Rule, Turns, needed
from obs.evaluate.simplify import can_give, simplified
from obs.prom.client import Client, LoadedRule, QueryError, Sample, Series
from obs.prom.remote_write import Labels, make_labels
from obs.promql import duration

if TYPE_CHECKING:
    from obs.evaluate.standin import StandIn

AlertState = Literal["firing", "pending", "ok", "no data", "dead", "error"]
STATES: tuple[AlertState, ...] = ("firing", "pending", "error", "no data", "dead", "ok")

Decision = tuple[Part, str, "dict[Labels, float] | float | None"]
"""A comparison that gives an alert its value: itself, its operator, its threshold (or thresholds by labels)."""

_History = tuple["dict[Labels, tuple[state.Span, ...]]", float]
"""An alert's states by its series' labels, and since when (unix seconds) they were looked at."""

LOOKBACK = 30 * 86_400.0
_FURTHER = (3600.0, 6 * 3600.0)  # how far back the beginning of an alert is looked for, beyond what its state needs
_ROUNDS = 40
_WORTH = 12  # rules: a Prometheus starts in the time in which a server evaluates about as many again and again
_HISTORIES = 5  # range queries that are asked as one
SKEW = 30.0


@dataclass(frozen=True)
class Instance:
    """An active series of an alert: since when (unix seconds) it has its state, and since when its expression holds.

    ``exact``: False when it was so already at the beginning of what was looked at. ``value`` is None when the
    alert is only kept firing. ``threshold`` is what the deciding comparison compares it with, None without one.
    """

    labels: Labels
    state: Literal["pending", "firing"]
    since: float
    active_since: float
    exact: bool
    value: float | None
    op: str = ""
    threshold: float | None = None


@dataclass(frozen=True)
class Result:
    """What one alert says. ``part`` is the piece of the author's expression that decides and ``why`` a sentence on it.

    ``reason`` is set for "no data" and "dead". ``value``, ``op``, ``threshold`` and ``labels`` are those of the series
    that is nearest to the threshold. ``since`` (unix seconds) is when the worst state began, None when none is active.
    ``side``: which side of the expression decides or is empty. ``path``: the recorded series that lead from the alert
    to what is missing. ``in_place``: recorded series that the server lacks, computed from their rules; ``sampled``:
    those of them read over a range or at an offset, where deployed rules may give a slightly different value.
    """

    rule: Rule
    state: AlertState
    instances: tuple[Instance, ...] = ()
    since: float | None = None
    why: str = ""
    part: str = ""
    reason: liveness.Reason | None = None
    side: str = ""
    value: float | None = None
    op: str = ""
    threshold: float | None = None
    labels: Labels = ()
    path: tuple[str, ...] = ()
    in_place: tuple[str, ...] = ()
    sampled: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def alert(self) -> str:
        return self.rule.name


@dataclass(frozen=True)
class Difference:
    """Where the server's own rule says something else: the alert, what differs, and both words."""

    alert: str
    what: str
    ours: str
    theirs: str


@dataclass(frozen=True)
class Evaluation:
    """All results, in the order of the rules; ``at`` in unix seconds. ``compared``: how many alerts the server itself
    has loaded, None when it does not tell. ``notes`` are lines for people about the whole."""

    source: str
    at: float
    results: tuple[Result, ...]
    compared: int | None = None
    differences: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def of(self, state: AlertState) -> tuple[Result, ...]:
        return tuple(result for result in self.results if result.state == state)


def evaluate(
    client: Client,
    rules: Sequence[Rule],
    *,
    at: float | None = None,
    interval: float = 30.0,
    lookback: float = LOOKBACK,
    parallel: int = 8,
    deployed: bool | None = None,
    since: float | None = None,
    only: Iterable[str] | None = None,
    source: str = "",
) -> Evaluation:
    """Judge the alerts among ``rules`` at ``at`` (unix seconds; None = the server's now, compared with its own rules).

    The recording rules among them are used where the server lacks their series: ``deployed`` True or False says that it
    has them, or not; None looks. ``interval``: of evaluation, where the server does not have the rule. ``since``: judge
    states from then on, not only as long as they need. ``only``: names of alerts.

    ServerError when the server cannot be used at all, or holds no series; a single alert that cannot be evaluated
    has the state "error".
    """
    alerts = [rule for rule in rules if rule.kind == "alert" and (only is None or rule.name in set(only))]
    if not alerts:
        raise InputError("there is no alerting rule to evaluate; name rule files that have one")
    with ThreadPoolExecutor(max_workers=max(1, parallel)) as pool:
        return _Run(client, pool, rules, alerts, at, interval, lookback, max(1, parallel), deployed, since).run(source)


def evaluate_recording(
    path: Path,
    rules: Sequence[Rule],
    *,
    at: Callable[[int], int | None] | None = None,
    job: str = "",
    instance: str = "",
    interval: float | None = None,
    parallel: int = 8,
    only: Iterable[str] | None = None,
) -> Evaluation:
    """Judge the alerts among ``rules`` at the end of a recording, or at the time (unix ms) that ``at`` makes of its end.

    Any form that obs.evaluate.recording reads. Scrapes and text are played into a private Prometheus and recording rules
    evaluated over all of it; a data directory is opened as it is (its own recorded series count). InputError when the
    recording cannot be used, or ``at`` is not in it.
    """
    from obs.evaluate import recording, replay
    from obs.evaluate.ranges import Asker
    from obs.prom import tools
    from obs.prom.server import PrivatePrometheus

    if path.is_dir() and recording.is_tsdb(path):
        with recording.Tsdb(path) as server:
            when = _within(path, (at and at(server.end_ms)) or server.end_ms, server.start_ms)
            lookback = max(3600.0, (when - server.start_ms) / 1000 + 1)
            return evaluate(
                server.client, rules, at=when / 1000, interval=interval or 30.0, lookback=lookback, parallel=parallel,
                only=only, source=str(path),
            )
    one = recording.read(path, job=job, instance=instance)
    step = round(interval * 1000) if interval else one.interval_ms
    end = _within(path, (at and at(one.end_ms)) or one.end_ms, one.start_ms)
    times = range(one.start_ms, end + 1, step)
    binary = tools.find("prometheus")
    with PrivatePrometheus(binary=binary) as server:
        server.writer.write(one.points(end_ms=end, normalise_le=tools.version(binary) >= (3, 0, 0)))
        replay.record_in_order(
            Asker(server.client), server, rules, Turns(rules), one.metric_names,
            lambda rule: range(one.start_ms, end + 1, rule.interval_ms or step),
        )
        return evaluate(
            server.client, rules, at=times[-1] / 1000, interval=step / 1000, deployed=True, since=one.start_ms / 1000,
            lookback=(end - one.start_ms) / 1000 + 600, parallel=parallel, only=only, source=str(path),
        )


def _within(path: Path, at_ms: int, start_ms: int) -> int:
    if at_ms < start_ms:
        first = clock(start_ms / 1000)
        raise InputError(f"{path}: {clock(at_ms / 1000)} is before its first sample ({first}); give a later time")
    return at_ms


# --- one evaluation --------------------------------------------------------------------------------------


@dataclass
class _Run:
    client: Client
    pool: ThreadPoolExecutor
    rules: Sequence[Rule]
    alerts: Sequence[Rule]
    wanted_at: float | None
    interval: float
    lookback: float
    parallel: int
    deployed: bool | None
    since: float | None
    notes: list[str] = field(default_factory=list)

    def run(self, source: str) -> Evaluation:
        with contextlib.ExitStack() as stack:
            return self._run(source, stack)

    def _run(self, source: str, stack: contextlib.ExitStack) -> Evaluation:
        at, loaded, names, ups = self._survey()
        recorded = explain.by_name(self.rules)
        if loaded is not None:
            for rule in loaded:
                if rule.kind == "recording":
                    recorded.setdefault(rule.name, []).append(Rule("record", rule.name, rule.expr, dict(rule.labels)))
        absent = self._absent(explain.by_name(self.rules), loaded, names, at)
        stand_in = self._stand_in(absent, names, at, stack)
        step = duration(self.interval)
        memo: dict[str, explain.Expansion] = {}
        unions: explain.Unions = {}

        def expanded(text: str) -> explain.Expansion:
            if text not in memo:
                memo[text] = explain.expand(text, absent, step, unions)
            return memo[text]

        answers = Answers(
            self.client, self.pool, at, self.lookback, self.parallel, lambda text: expanded(text).text
        )
        making = None if loaded is None else frozenset(one.name for one in loaded if one.kind == "recording")
        world = World(answers, names, recorded, ups, at, self.lookback, making, frozenset(absent))
        world.eager = not absent  # a recorded series is cheap to ask for, its rule in its place is not
        everything = [*self.alerts, *itertools.chain.from_iterable(recorded.values())]
        self._find_empty([rule.expr for rule in (everything if absent else self.alerts)], world)
        absent.update(_without_dead(absent, world))
        if stand_in is not None:
            answers.stand_in = stand_in = self._stood_in(stand_in, absent)
            world.eager = stand_in is not None
        now = self._now(answers, world)
        spans = self._histories(now, loaded, lambda text: expanded(text).text, at, stand_in)
        results = self._results(now, spans, answers, world, expanded, at)
        compared, differences = (None, ()) if self.wanted_at is not None else _compare(results, loaded, at)
        if absent:
            count = len({name for one in results for name in one.in_place})
            how = f"; over a range they have the samples of an evaluation now and every {step} before" if stand_in else ""
            self.notes.append(f"{count} recorded series are not on the server and were computed from their rules{how}")
        warnings = tuple(dict.fromkeys(itertools.chain.from_iterable(answers.warned.values())))
        return Evaluation(source or self.client.url, at, tuple(results), compared, differences, tuple(self.notes), warnings)

    def _stand_in(
        self, absent: Mapping[str, list[Rule]], names: frozenset[str], at: float, stack: contextlib.ExitStack
    ) -> StandIn | None:
        """A private Prometheus for the rules that the server lacks, starting; None where it is not worth it or cannot be."""
        few = 2 * len(absent) < len(explain.by_name(self.rules))  # a server that has the others: these can have no data there
        if few or not absent or self.client.is_victoria_metrics:
            return None
        there = {*names, *absent}
        reached = needed(self.alerts, [*itertools.chain.from_iterable(absent.values())])
        if sum(can_give(take_apart(rule.expr), there) for rule in reached) < _WORTH:
            return None
        reached_names = {rule.name for rule in reached}
        rules = {name: rules for name, rules in absent.items() if name in reached_names}
        from obs.evaluate.standin import StandIn
        from obs.prom import tools

        try:
            binary = tools.find("prometheus")
        except ObsError:
            return None
        return stack.enter_context(StandIn(self.client, rules, names, at, self.interval, self.parallel, binary))

    def _stood_in(self, stand_in: StandIn, absent: Mapping[str, list[Rule]]) -> StandIn | None:
        """The stand-in, with all that the alerts and the rules that they stand on read now; None where that cannot be."""
        from obs.evaluate.standin import DiffersError

        rules = {name: absent[name] for name in stand_in.names}
        exprs = [rule.expr for rule in (*self.alerts, *itertools.chain.from_iterable(rules.values()))]
        try:
            stand_in.settle(rules)
            texts = [text for text in map(stand_in.text, exprs) if text is not None]
            stand_in.record([(text, 0, 1) for text in (*rules, *texts)])
        except (DiffersError, ObsError):
            return None
        return stand_in

    def _survey(self) -> tuple[float, list[LoadedRule] | None, frozenset[str], tuple[Sample, ...]]:
        """The server's time, rules, metric names and targets."""
        (clock_,) = self.client.query("time()", self.wanted_at)
        at = math.floor(clock_.value) if self.wanted_at is None else self.wanted_at
        skew = clock_.value - time.time()
        self.notes += server_notes(self.client)
        if self.wanted_at is None and self.client.is_victoria_metrics and -2 * SKEW < skew < -SKEW / 2:
            self.notes.append(
                f"it answers for {liveness.ago(-skew)} ago: its -search.latencyOffset leaves time for samples on their way"
            )
        elif self.wanted_at is None and abs(skew) > SKEW:
            self.notes.append(
                f"the server's clock is {liveness.ago(abs(skew))} {'ahead of' if skew > 0 else 'behind'} this machine's; "
                "its own time is used"
            )
        rules = self.pool.submit(self._loaded)
        found, ups = self._held(at)
        if self.wanted_at is None and not ups and self._began_after(at):  # it is in its first second
            at = clock_.value
            found, ups = self._held(at)
        if not found:
            raise ServerError(
                f"{self.client.url}: holds no series in the last {liveness.ago(self.lookback)}; check the address, and the "
                "tenant (--header X-Scope-OrgID:TENANT)"
            )
        return at, rules.result(), found, ups

    def _held(self, at: float) -> tuple[frozenset[str], tuple[Sample, ...]]:
        """The names of the metrics that the server has, and its targets."""
        names = self.pool.submit(lambda: self.client.label_values("__name__", start=at - self.lookback, end=at))
        ups = self.pool.submit(lambda: self.client.query("up", at))
        return frozenset(names.result()), tuple(ups.result())

    def _began_after(self, at: float) -> bool:
        """Whether the server has no sample in memory that is as old as that."""
        with contextlib.suppress(ServerError):
            limits = self.client.status_tsdb()
            return limits is not None and limits[0] > at * 1000
        return False

    def _loaded(self) -> list[LoadedRule] | None:
        """The server's rules; None when it has no such list."""
        if self.wanted_at is not None:
            return None
        try:
            return self.client.rules()
        except ServerError:
            self.notes.append("the server lists no rules (/api/v1/rules), so nothing could be compared with them")
            return None

    def _absent(
        self, recorded: Mapping[str, list[Rule]], loaded: list[LoadedRule] | None, names: frozenset[str], at: float
    ) -> dict[str, list[Rule]]:
        """The recording rules whose series the server does not have."""
        if self.deployed is True:
            return {}
        if self.deployed is False:
            return dict(recorded)
        making = {rule.name for rule in loaded or () if rule.kind == "recording"}
        missing = {name for name in recorded if name not in making}
        if missing & names:  # it may be made elsewhere, or by a rule that is gone
            recent = set(self.client.label_values("__name__", start=at - 600, end=at))
            missing -= {name for name in missing & recent if self.client.query(f"count({name})", at)}
        return {name: rules for name, rules in recorded.items() if name in missing}

    def _find_empty(self, texts: Iterable[str], world: World) -> None:
        """Learn which selectors in some expressions have no series now: asked together, for it costs little."""
        asked = dict.fromkeys(
            part.bare
            for text in texts
            for part in explain.walk(take_apart(text))
            if part.kind == "selector" and not part.shifted and part.bare and part.name in world.names
            and part.name not in world.in_place and part.bare not in world.empty
        )
        counted = {f"count({bare})": bare for bare in asked}
        presence = Answers(self.client, self.pool, world.at, self.lookback, self.parallel, lambda text: text)
        for query in counted:
            presence.samples(query)
        presence.fetch()
        world.learn(
            bare for query, bare in counted.items()
            if not presence.known[query] and query not in presence.failed and query not in presence.warned
        )

    def _now(self, answers: Answers, world: World) -> dict[int, tuple[Sample, ...] | str]:
        """Per alert (by its place) its elements now, or why it cannot be evaluated."""
        queries = [_query(rule.expr) for rule in self.alerts]
        assumed = []
        for rule, query in zip(self.alerts, queries, strict=True):
            part = take_apart(rule.expr)
            if part.kind != "opaque" and world.surely_empty(part):
                answers.known[query] = ()
            else:
                answers.samples(query)
                # most are quiet: take it to be, and ask for the reason in the same go
                for direction in ("top", "bottom"):
                    nearest = nearest_query(part.text, direction)
                    if nearest not in answers.known:
                        answers.known[nearest] = ()
                        assumed.append((nearest, query))
            liveness.judge(part, world)
        answers.fetch()
        for nearest, query in assumed:
            if query in answers.failed:
                answers.failed[nearest] = answers.failed[query]
            elif answers.known[query]:
                del answers.known[nearest]
        world.verdicts.clear()  # some stood on what was only taken to be
        return {
            place: answers.failed[query] if query in answers.failed else answers.known[query]
            for place, query in enumerate(queries)
        }

    def _histories(
        self,
        now: Mapping[int, tuple[Sample, ...] | str],
        loaded: list[LoadedRule] | None,
        expand: Callable[[str], str],
        at: float,
        stand_in: StandIn | None,
    ) -> dict[int, Callable[[], _History | str]]:
        """Per alert that can be active: its states over the last while, and the beginning of that while; being asked."""
        jobs: dict[int, Callable[[], _History | str]] = {}
        private: dict[int, Rule] = {}
        groups: dict[tuple[int, float], list[tuple[int, Rule, str]]] = {}
        for place, rule in enumerate(self.alerts):
            elements = now[place]
            if isinstance(elements, str) or (not elements and not rule.keep_ms):
                continue
            theirs = _same_rule(rule, loaded or ())
            interval = theirs.interval if theirs is not None and theirs.interval else self.interval
            if stand_in is not None and interval == self.interval and stand_in.text(rule.expr):
                private[place] = rule
                continue
            counts = self._counts(rule, interval, at)
            groups.setdefault((counts[0], interval), []).append((place, rule, expand(rule.expr)))
        for (_, interval), ones in groups.items():
            for at_once in range(0, len(ones), _HISTORIES):
                some = ones[at_once : at_once + _HISTORIES]
                first = Ranges(self.client, [text for _, _, text in some])
                for number, (place, rule, _) in enumerate(some):
                    counts = self._counts(rule, interval, at)
                    jobs[place] = self.pool.submit(self._history, rule, partial(first.ask, number), at, counts, interval).result
        if stand_in is not None and private:
            jobs.update(self._private_histories(private, expand, at, stand_in))
        return jobs

    def _private_histories(
        self, rules: Mapping[int, Rule], expand: Callable[[str], str], at: float, stand_in: StandIn
    ) -> Iterator[tuple[int, Callable[[], _History | str]]]:
        """``_histories`` of alerts that read recorded series that are not on the server."""
        from obs.evaluate.standin import DiffersError

        found: dict[int, _History] = {}
        texts = {place: stand_in.text(rule.expr) or "" for place, rule in rules.items()}
        counts = {place: self._counts(rule, self.interval, at) for place, rule in rules.items()}
        series: dict[int, list[Series]] = {place: [] for place in rules}
        waiting = list(rules)
        with contextlib.suppress(DiffersError, ObsError):  # then the server is asked
            for stage in range(len(_FURTHER) + 1):
                steps = {place: (counts[place][stage - 1] + 1 if stage else 0, counts[place][stage] + 1) for place in waiting}
                named = stand_in.record([(texts[place], *steps[place]) for place in waiting], again=True)
                jobs = {
                    place: self.pool.submit(
                        stand_in.client.query_range, named(texts[place]),
                        at - (steps[place][1] - 1) * self.interval, at - steps[place][0] * self.interval, self.interval,
                    )
                    for place in waiting
                }
                for place, job in jobs.items():
                    series[place] = _joined(job.result(), series[place])
                    start = at - counts[place][stage] * self.interval
                    found[place] = _spans(rules[place], series[place], start, at, self.interval), start
                waiting = [place for place in waiting if counts[place][stage + 1 :] and _is_cut(found[place])]
                if not waiting:
                    break
        for place, rule in rules.items():
            if place in found and place not in waiting:
                yield place, partial(found.__getitem__, place)
            else:
                ask = partial(self.client.query_range, expand(rule.expr))
                yield place, self.pool.submit(self._history, rule, ask, at, counts[place]).result

    def _counts(self, rule: Rule, interval: float, at: float) -> list[int]:
        """How many evaluations before ``at`` are looked at for an alert's state; and how many where that was not enough."""
        need = max(2 * rule.hold_ms / 1000, 900.0) + rule.keep_ms / 1000
        spans = (need, *(max(need, further) for further in _FURTHER)) if self.since is None else (at - self.since,)
        return list(dict.fromkeys(max(1, math.floor(round(span / interval, 6))) for span in spans))

    def _history(
        self,
        rule: Rule,
        ask: Callable[[float, float, float], list[Series]],
        at: float,
        counts: Sequence[int],
        interval: float | None = None,
    ) -> _History | str:
        """``counts``: at how many evaluations before ``at`` to look; the next, more, where that was not enough."""
        found: dict[Labels, tuple[state.Span, ...]] = {}
        series: list[Series] = []
        end = start = at
        step = interval or self.interval
        for steps in counts:
            begin = at - steps * step
            try:
                series = _joined(ask(begin, end, step), series)
            except QueryError as error:
                return (found, start) if found else str(error)
            start, end = begin, begin - step
            found = _spans(rule, series, start, at, step)
            if not _is_cut((found, start)):
                break
        return found, start

    def _results(
        self,
        now: Mapping[int, tuple[Sample, ...] | str],
        histories: Mapping[int, Callable[[], _History | str]],
        answers: Answers,
        world: World,
        expanded: Callable[[str], explain.Expansion],
        at: float,
    ) -> list[Result]:
        verdicts: dict[int, Verdict] = {}
        decisions: dict[int, list[Decision]] = {}
        looked = False
        for _ in range(_ROUNDS):
            for place, rule in enumerate(self.alerts):
                elements = now[place]
                if isinstance(elements, str):
                    continue
                part = take_apart(rule.expr)
                if elements:
                    decisions[place] = list(_deciding(part, world))
                elif place not in verdicts or verdicts[place].found == "pending":
                    verdicts[place] = liveness.judge(part, world)
            if not answers.lacking:
                break
            answers.fetch()
            world.again()
            if not looked:  # what is undecided now is likely to have no data: look at all that it stands on
                looked = world.eager = True
                undecided = [self.alerts[place].expr for place, one in verdicts.items() if one.found == "pending"]
                self._find_empty(_below(undecided, world), world)
        results = []
        for place, rule in enumerate(self.alerts):
            elements = now[place]
            expansion = expanded(rule.expr)
            base: dict[str, Any] = {"in_place": expansion.replaced, "sampled": expansion.sampled}
            warnings = answers.warned.get(_query(rule.expr), ())
            history = histories[place]() if place in histories else ({}, at)
            if isinstance(elements, str) or isinstance(history, str):
                why = elements if isinstance(elements, str) else str(history)
                results.append(Result(rule, "error", why=why, part=rule.expr, **base))
                continue
            instances = _instances(rule, elements, history, decisions.get(place, ()), at)
            if instances:
                results.append(_active(rule, instances, decisions.get(place, ()), warnings, base))
            else:
                results.append(_quiet(rule, verdicts.get(place) or Verdict("unknown"), warnings, base))
        return results


def _joined(earlier: Sequence[Series], later: Sequence[Series]) -> list[Series]:
    """The series of two times, one behind the other."""
    points = {one.labels: one.points for one in earlier}
    for one in later:
        points[one.labels] = (*points.get(one.labels, ()), *one.points)
    return [Series(labels, theirs) for labels, theirs in points.items()]


def _is_cut(history: _History | str) -> bool:
    """Whether a state of some series may have begun before what was looked at."""
    if isinstance(history, str):
        return False
    spans, start = history
    first = round(start * 1000)
    return any(theirs[-1].start_ms == first or theirs[0].start_ms == first for theirs in spans.values())


def _below(texts: Sequence[str], world: World) -> list[str]:
    """The expressions of the recording rules that some expressions read where they are empty, at any depth."""
    found: dict[str, None] = {}
    waiting = list(texts)
    while waiting:
        for part in explain.walk(take_apart(waiting.pop())):
            missing = part.bare in world.empty or part.name not in world.names
            if missing and part.kind in {"selector", "range"} and part.name in world.recorded:
                for rule in world.makers(part):
                    if rule.expr not in found:
                        found[rule.expr] = None
                        waiting.append(rule.expr)
    return list(found)


def _without_dead(absent: Mapping[str, list[Rule]], world: World) -> dict[str, list[Rule]]:
    """The rules to put in place of series, without those that have nothing to read here: they only make texts long."""
    alive = {name: [rule for rule in rules if not world.surely_empty(take_apart(rule.expr))] for name, rules in absent.items()}
    there = world.names | {name for name, rules in alive.items() if rules}
    return {
        name: [replace(rule, expr=simplified(rule.expr, there)) for rule in alive[name] or rules[:1]]
        for name, rules in absent.items()
    }


def _query(expr: str) -> str:
    """An alert's expression as a query that gives a vector."""
    return f"vector(\n{expr}\n)" if take_apart(expr).scalar else expr


def _spans(
    rule: Rule, series: Sequence[Series], start: float, at: float, interval: float
) -> dict[Labels, tuple[state.Span, ...]]:
    present: dict[int, list[Labels]] = {}
    for one in series:
        labels = rule.result_labels(one.labels)
        for when, _ in one.points:
            present.setdefault(round(when * 1000), []).append(labels)
    step = round(interval * 1000)
    times = range(round(start * 1000), round(at * 1000) + 1, step)
    evaluations = ((time_ms, present.get(time_ms, ())) for time_ms in times)
    return state.spans(evaluations, end_ms=round(at * 1000) + 1, hold_ms=rule.hold_ms, keep_ms=rule.keep_ms)


def _instances(
    rule: Rule,
    elements: Sequence[Sample],
    history: tuple[dict[Labels, tuple[state.Span, ...]], float],
    decisions: Sequence[Decision],
    at: float,
) -> list[Instance]:
    spans, start = history
    values = {rule.result_labels(one.labels, one.value): one for one in elements}
    end = round(at * 1000) + 1
    found = []
    for labels in sorted(values.keys() | spans.keys()):
        theirs = spans.get(labels, ())
        sample = values.get(labels)
        last = theirs[-1] if theirs and theirs[-1].end_ms == end else None
        if last is None:
            if sample is None:
                continue
            # the range query did not see what the instant query sees: it begins now
            last = state.Span(round(at * 1000), end, "firing" if rule.hold_ms == 0 else "pending")
        began = last
        for one, two in itertools.pairwise(reversed(theirs)):
            if one.start_ms == two.end_ms and (one.state, two.state) == ("firing", "pending"):
                began = two
            break
        exact = began.start_ms > round(start * 1000)
        op, threshold = _threshold(sample, decisions) if sample is not None else ("", None)
        found.append(
            Instance(
                labels, last.state, last.start_ms / 1000, began.start_ms / 1000, exact,
                None if sample is None else sample.value, op, threshold,
            )
        )
    return found


def _active(
    rule: Rule,
    instances: Sequence[Instance],
    decisions: Sequence[Decision],
    warnings: tuple[str, ...],
    base: Mapping[str, Any],
) -> Result:
    worst: Literal["firing", "pending"] = "firing" if any(one.state == "firing" for one in instances) else "pending"
    ones = [one for one in instances if one.state == worst]
    part = decisions[0][0].text if decisions else rule.expr
    first = min(ones, key=lambda one: one.since)
    kept = all(one.value is None for one in ones)
    why = "its expression holds no more; keep_firing_for keeps it" if kept else ""
    return Result(
        rule, worst, tuple(instances), first.since, why, part, None, "", first.value, first.op, first.threshold,
        first.labels, warnings=warnings, **base,
    )


def _quiet(rule: Rule, verdict: Verdict, warnings: tuple[str, ...], base: Mapping[str, Any]) -> Result:
    if warnings:
        return Result(rule, "error", why=f"the answer is partial: {warnings[0]}", part=rule.expr, warnings=warnings, **base)
    if verdict.found in {"there", "not there"}:
        quiet: AlertState = "ok"
    else:
        quiet = "dead" if verdict.found == "dead" else "no data"
    reason = None if quiet == "ok" else verdict.reason or "cannot be told"
    return Result(
        rule, quiet, (), None, verdict.why or "it cannot be told why it has no result", verdict.part or rule.expr, reason,
        verdict.side, _finite(verdict.value), verdict.op, _finite(verdict.threshold), verdict.labels, verdict.path, **base,
    )


def _finite(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value


def _deciding(part: Part, world: World) -> Iterable[Decision]:
    """The comparisons that give an active alert its value: (comparison, operator, threshold or thresholds by labels)."""
    if part.kind in {"and", "unless"}:
        yield from _deciding(part.parts[0], world)
    elif part.kind == "or":
        for one in part.parts:
            if world.answers.samples(nearest_query(one.text, "top")):
                yield from _deciding(one, world)
    elif part.kind == "compare":
        left, right = part.parts
        if left.scalar or right.scalar:
            op = liveness.FLIPPED[part.op] if left.scalar else part.op
            yield part, op, liveness.scalar(left if left.scalar else right, world)
            return
        asked = world.answers.samples(f"topk(200, (\n{right.text}\n))")
        yield part, part.op, {_plain(one.labels): one.value for one in asked or ()}
    else:
        yield part, "", None


def _plain(labels: Labels) -> Labels:
    return make_labels((name, value) for name, value in labels if name != "__name__")


def _threshold(
    sample: Sample, decisions: Sequence[Decision]
) -> tuple[str, float | None]:
    """What a firing element is compared with: of several comparisons, one that its value satisfies."""
    for _, op, threshold in decisions:
        if isinstance(threshold, dict):
            own = dict(sample.labels)
            hits = [value for labels, value in threshold.items() if all(own.get(key, text) == text for key, text in labels)]
            hits = [value for value in hits if liveness.TESTS[op](sample.value, value)]
            if hits:
                return op, hits[0]
        elif threshold is not None and op and liveness.TESTS[op](sample.value, threshold):
            return op, threshold
    return "", None


# --- beside the server's own rules ---------------------------------------------------------------------


def _same_rule(rule: Rule, loaded: Iterable[LoadedRule]) -> LoadedRule | None:
    """The server's rule of that name; of several, the one with the same expression, then the same labels."""
    named = [one for one in loaded if one.kind == "alerting" and one.name == rule.name]
    if not named:
        return None
    exact = [one for one in named if explain.same(one.expr, rule.expr)]
    own = make_labels(rule.labels.items())
    labelled = [one for one in exact or named if one.labels == own]
    return (labelled or exact or named)[0]


def _compare(
    results: Sequence[Result], loaded: Sequence[LoadedRule] | None, at: float
) -> tuple[int | None, tuple[Difference, ...]]:
    if loaded is None:
        return None, ()
    count = 0
    found: list[Difference] = []
    for result in results:
        rule = result.rule
        theirs = _same_rule(rule, loaded)
        if theirs is None:
            continue
        count += 1
        found += _rule_differences(result, theirs, at)
    return count, tuple(found)


def _rule_differences(result: Result, theirs: LoadedRule, at: float) -> Iterable[Difference]:
    rule = result.rule
    if theirs.health == "err":
        yield Difference(rule.name, "the server cannot evaluate it", result.state, theirs.last_error or "error")
        return
    if not explain.same(rule.expr, theirs.expr):
        yield Difference(rule.name, "expression", liveness.short(rule.expr), liveness.short(theirs.expr))
    for what, ours, other in (("for", rule.hold_ms / 1000, theirs.hold), ("keep_firing_for", rule.keep_ms / 1000, theirs.keep)):
        if abs(ours - other) > 0.001:
            yield Difference(rule.name, what, duration(ours), duration(other))
    mine = {one.labels: one.state for one in result.instances}
    other_states: dict[Labels, str] = {one.labels: one.state for one in theirs.alerts}
    if mine == other_states or result.state == "error":
        return
    when = f" (its last evaluation: {theirs.evaluated[:19]}Z)" if theirs.evaluated and theirs.evaluated[:4] != "0001" else ""
    if not when:
        yield Difference(rule.name, "not evaluated yet by the server", result.state, "unknown")
        return
    for labels in sorted(mine.keys() | other_states.keys()):
        ours_, others = mine.get(labels, "inactive"), other_states.get(labels, "inactive")
        if ours_ != others:
            yield Difference(rule.name, f"state of {liveness.label_text(labels) or 'it'}", ours_, f"{others}{when}")


# --- for machines ------------------------------------------------------------------------------------------


def as_json(found: Evaluation) -> dict[str, Any]:
    """The evaluation for machines: times in UTC text and values as numbers; NaN and infinities as null."""
    return {
        "source": found.source,
        "at": clock(found.at),
        "counts": {name: len(found.of(name)) for name in STATES},
        "alerts": [_result_json(one) for one in found.results],
        "compared": found.compared,
        "differences": [vars(one) for one in found.differences],
        "notes": list(found.notes),
        "warnings": list(found.warnings),
    }


def _result_json(one: Result) -> dict[str, Any]:
    return {
        "alert": one.alert,
        "labels": dict(one.rule.labels),
        "state": one.state,
        "since": None if one.since is None else clock(one.since),
        "reason": one.reason,
        "why": one.why,
        "decides": one.part,
        "side": one.side or None,
        "by_way_of": list(one.path),
        "value": _number(one.value),
        "op": one.op or None,
        "threshold": _number(one.threshold),
        "series": dict(one.labels),
        "instances": [
            {
                "labels": dict(its.labels),
                "state": its.state,
                "since": clock(its.since),
                "active_since": clock(its.active_since),
                "exact": its.exact,
                "value": _number(its.value),
                "op": its.op or None,
                "threshold": _number(its.threshold),
            }
            for its in one.instances
        ],
        "expression": one.rule.expr,
        "for": one.rule.hold_ms / 1000,
        "computed_in_place": list(one.in_place),
        "sampled": list(one.sampled),
        "warnings": list(one.warnings),
    }


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value


__all__ = [
    "LOOKBACK", "STATES", "AlertState", "Difference", "Evaluation", "Instance", "Result", "as_json", "evaluate",
    "evaluate_recording",
]
