"""What would have fired over a past: every alert's state at every evaluation, on a live server or on recordings.

PromQL is the server's own; ours is the choice of what to ask, and the state machine (obs.evaluate.state). Recording
rules need not be deployed. Per alert that reads recorded series, one of three ways (History.choices says which, and
why where the result can differ):

- *stored*: the server has the rules loaded as they are here, and their series wherever their expressions give any;
- *expanded*: the rules' expressions are put into the alert's own (explain.expand). Evaluations are at multiples of the
  interval, as are a subquery's, so a range over a recorded series has the very samples that the rule would have made;
- *evaluated first*: recording rules are evaluated once and written, stale markers too, to a private Prometheus, and
  the alert is asked there. Needed where the alert would read a sample of another time: groups with different intervals,
  a rule behind its reader in one group, a limit, ``@``; and the quicker way where many alerts read the same series.

As in a replay, rules see what other groups recorded at the same time, and every evaluation is on time; a server spreads
its groups over the interval. All alerts begin inactive at the start.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from obs.errors import InputError, ServerError, ToolError
from obs.evaluate import explain, first, replay
from obs.evaluate import rules as rules_
from obs.evaluate.explain import take_apart
from obs.evaluate.history import Choice, Curve, History, server_notes
from obs.evaluate.ranges import Asker, in_order_of_time, in_parallel
from obs.evaluate.recording import Recording, Tsdb
from obs.evaluate.replay import Instance, Timeline
from obs.evaluate.rules import Rule
from obs.evaluate.simplify import Apart, Copies, always_has, can_give, simplified, without
from obs.model.rule import Group
from obs.prom import metric_names, tools
from obs.prom.client import Client, LoadedRule, PassingError, QueryError, Series
from obs.promql import indent

How = Literal["auto", "expand", "first"]
Progress = Callable[[str, float], None]
_T = TypeVar("_T")
_SHARED = 2  # expand while the server evaluates each recording rule less often than so many times
_LOOKBACK_MS = 300_000  # how far back an instant selector finds a sample
_COVERAGE = 120  # times at which stored series are held against their rules' expressions


@dataclass(frozen=True)
class _Plan:
    """How one alert is evaluated: ``expr`` is what the server is asked; unused when it is evaluated first."""

    rule: Rule
    expr: str
    choice: Choice | None = None

    @property
    def first(self) -> bool:
        return self.choice is not None and self.choice.how == "evaluated first"


def over_server(
    client: Client,
    rules: Sequence[Rule] | Sequence[Group],
    *,
    start_ms: int,
    end_ms: int,
    step_ms: int,
    how: How = "auto",
    resume: Path | None = None,
    progress: Progress | None = None,
    curves: bool = False,
) -> History:
    """Evaluate rules over what a server has from ``start_ms`` to ``end_ms`` (unix milliseconds).

    Evaluations are at the multiples of ``step_ms`` in that time (of a group's own interval, where it has one): the
    timeline begins at the first of them. ``how``: "expand" or "first" forces that way for all recorded series that are
    not stored; "auto" expands where that is exact. ``resume``: a folder for finished pieces; a run that finds it goes
    on from there. ``progress`` is told what is being done and how much of all is done (0 to 1), from several threads,
    one at a time.
    ``curves``: also the values beside their thresholds, to be drawn.

    InputError when a rule cannot be evaluated or the server has no sample in that time; ServerError when it cannot
    answer (after tries); ToolError when a private Prometheus is needed and cannot work.
    """
    plain = replay.plain_rules(rules)
    _check(plain, start_ms, end_ms, step_ms)
    ordered = rules_.in_order(plain)
    told = _Told(progress)
    told(f"asking {client.url} what it has", 0.0)
    asker = Asker(client, resume)
    begin = -(-start_ms // step_ms) * step_ms
    reach = max((explain.reach_ms(rule.expr) for rule in plain), default=0)
    known = set(_patient(lambda: client.label_values("__name__", start=(begin - reach) / 1000, end=end_ms / 1000)))
    if not known or not _any_sample(client, begin, end_ms, step_ms):
        raise InputError(
            f"{client.url} has no sample from {_clock(begin)} to {_clock(end_ms)}; name a time it has data of, "
            "or another server or tenant"
        )
    times = _grids(start_ms, end_ms, step_ms)
    # what a chain of rules can look back at, and more
    first_ms = begin - sum(explain.reach_ms(rule.expr) + rule.offset_ms + _LOOKBACK_MS for rule in plain)
    names = _patient(lambda: client.label_values("__name__", start=first_ms / 1000, end=end_ms / 1000))
    able = _makeable(ordered, set(names))
    copies, apart = _copies(client, first_ms, end_ms), _apart(client, first_ms, end_ms)
    chooser = _Chooser(asker, plain, how, step_ms, times)
    plans = [chooser.plan(rule) for rule in ordered if rule.kind == "alert"]
    made = [plan for plan in plans if not plan.first and can_give(take_apart(plan.rule.expr), able)]
    counter = _Counter(told, sum(len(times(plan.rule)) for plan in made), len(made) / len(plans))
    asker.say = counter.add
    found: list[list[Instance]] = [[] for _ in made]

    def work(number: int) -> None:
        plan = made[number]
        text = simplified(plan.expr, able, copies)
        found[number] = replay.instances_of(asker, plan.rule, text, times(plan.rule), end_ms)

    with _resumable(resume, told):
        in_parallel([lambda number=number: work(number) for number in range(len(made))], asker.stop)  # type: ignore[misc]
        instances = [one for part in found for one in part]
        later = [plan.rule for plan in plans if plan.first]
        if later:
            asker.say = lambda rule, steps: None
            share = len(made) / len(plans)
            instances += first.evaluate(
                asker, plain, later, chooser.unstored, times, end_ms,
                lambda text, part: told(text, share + part * (1 - share)), names, copies, apart,
            )  # fmt: skip
        timeline = Timeline(
            recording=client.url,
            prometheus=_patient(client.version),
            start_ms=begin,
            end_ms=end_ms,
            interval_ms=step_ms,
            alerts=tuple(dict.fromkeys(plan.rule.name for plan in plans)),
            instances=tuple(sorted(instances, key=lambda one: (one.alert, one.labels))),
            dead=tuple(replay.dead(ordered, _makeable(ordered, known))),
            failed=in_order_of_time(asker.failed),
        )

        def ask(expr: str, low_ms: int, high_ms: int, by_ms: int) -> list[Series]:
            text = explain.expand(expr, chooser.unstored, f"{by_ms}ms", aligned=low_ms % by_ms == 0).text
            return _patient(lambda: client.query_range(text, low_ms / 1000, high_ms / 1000, by_ms / 1000))

        drawn = _curves(ask, plain, timeline, range(begin, end_ms + 1, step_ms)) if curves else ()
    told("done", 1.0)
    return History(
        timeline,
        tuple(plan.choice for plan in plans if plan.choice is not None),
        tuple(asker.warnings),
        drawn,
        server_notes(client),
    )


def over_recordings(
    recordings: Recording | Tsdb | Sequence[Recording],
    rules: Sequence[Rule] | Sequence[Group],
    *,
    interval_ms: int | None = None,
    end_ms: int | None = None,
    curves: bool = False,
    progress: Progress | None = None,
) -> History:
    """Evaluate rules over recordings, as obs.evaluate.replay does; a data directory (``Tsdb``, opened) is a server.

    ``interval_ms`` (default: the recording's scrape interval; 1 min for a data directory) and ``end_ms`` as in
    ``replay``; errors too.
    """
    if isinstance(recordings, Tsdb):
        end = recordings.end_ms if end_ms is None else end_ms
        return over_server(
            recordings.client, rules, start_ms=recordings.start_ms, end_ms=end, step_ms=interval_ms or 60_000,
            curves=curves, progress=progress,
        )  # fmt: skip
    told = progress or (lambda text, part: None)
    with replay.played(recordings, rules, interval_ms=interval_ms, end_ms=end_ms, progress=told) as played:
        line = played.timeline
        drawn: tuple[Curve, ...] = ()
        if curves:
            told("reading the curves", 0.99)

            def ask(expr: str, low_ms: int, high_ms: int, by_ms: int) -> list[Series]:
                return played.server.client.query_range(expr, low_ms / 1000, high_ms / 1000, by_ms / 1000)

            drawn = _curves(ask, replay.plain_rules(rules), line, range(line.start_ms, line.end_ms + 1, line.interval_ms))
        told("done", 1.0)
        return History(line, (), played.warnings, drawn)


def _any_sample(client: Client, start_ms: int, end_ms: int, step_ms: int) -> bool:
    """Whether the server has any sample in a time; it knows names of a block, whose time may be another."""
    step = max(1, (end_ms - start_ms) // step_ms // _COVERAGE) * step_ms
    try:
        return any(
            _patient(lambda: client.ask_packed(expr, start_ms, end_ms, step, values=False)).series  # noqa: B023
            for expr in ("count(up)", 'count({__name__!=""})')
        )
    except QueryError:
        return True  # too many to be counted


# --- what to ask ------------------------------------------------------------------------------------------


class _Chooser:
    """Chooses per alert how its recorded series come about."""

    def __init__(
        self, asker: Asker, rules: Sequence[Rule], how: How, step_ms: int, times: Callable[[Rule], range]
    ) -> None:
        self.asker, self.how, self.step_ms, self.times = asker, how, step_ms, times
        self.turns = rules_.Turns(rules)
        everything = explain.by_name(rules)
        stored = set(self._stored(rules, everything))
        self.all = everything
        self.unstored = {name: makers for name, makers in everything.items() if name not in stored}
        self.shared = self._shared([rule for rule in rules if rule.kind == "alert"])

    def plan(self, rule: Rule) -> _Plan:
        reads = [name for name in self.all if metric_names.may_read(rule.expr, name)]
        missing = [name for name in reads if name in self.unstored]
        if not reads:
            return _Plan(rule, rule.expr)
        if not missing:
            why = f"the server has {_listed(reads)} as recorded at the time, by its own evaluations"
            return _Plan(rule, rule.expr, Choice(rule.name, "stored", why))
        step = f"{rule.interval_ms or self.step_ms}ms"
        expansion = explain.expand(rule.expr, self.unstored, step, aligned=True)
        reason = self._inexact(rule, expansion)
        if self.how == "first" or (self.how == "auto" and (reason or self.shared)):
            why = reason or ("as was asked" if self.how == "first" else self.shared)
            return _Plan(rule, "", Choice(rule.name, "evaluated first", why))
        why = reason or f"the expressions of {_listed(missing)} at the alert's own evaluation times give the same samples"
        return _Plan(rule, expansion.text, Choice(rule.name, "expanded", why, exact=not reason))

    def _shared(self, alerts: Sequence[Rule]) -> str:
        """Why evaluating first is less work for the server than expanding; "" when it is not."""
        makers = [one for makers in self.unstored.values() for one in makers]
        reads = [[one.name for one in rules_.needed([rule], makers)] for rule in alerts]
        every, distinct = sum(map(len, reads)), len({name for names in reads for name in names})
        if every < _SHARED * distinct or distinct < 3 or not _has_prometheus():
            return ""
        return (
            f"{sum(map(bool, reads))} alerts read {distinct} recorded series, {every} times in all: evaluated once for all "
            "of them, with the same result as expanded"
        )

    def _inexact(self, rule: Rule, expansion: explain.Expansion) -> str:
        """Why the expanded expression can give another result than recorded series; "" when it cannot."""
        for name, why in expansion.kept:
            return f"{name} cannot be put in: {why}"
        if expansion.sampled and self.asker.client.is_victoria_metrics:
            return f"{_listed(expansion.sampled)} is read over a range or an offset, and VictoriaMetrics has its own subqueries"
        if any("__name__" in text for text in (rule.expr, *rule.labels.values())):
            return "it reads the metric's name, which an expression put in its place has not"
        interval = rule.interval_ms or self.step_ms
        makers = [rule, *(maker for name in expansion.replaced for maker in self.unstored[name])]
        for maker in makers:
            nameless = [one for one in metric_names.selectors(maker.expr) or () if not one.name]
            for name in self.unstored if nameless else ():
                if any(one.may_read(name) for one in nameless):
                    return f"{name} is read by a pattern of names, where nothing can be put in"
        for maker in makers:
            late = (self.turns.later(maker) | self.turns.astride(maker)) & self.unstored.keys()
            if any(metric_names.may_read(maker.expr, name) for name in late):
                behind = _listed(sorted(late))
                return f"{maker.name} stands before {behind} in its group, and sees the samples of the time before"
            if maker.kind == "record" and maker.limit:
                return f"the group of {maker.name} has a limit, over which nothing is recorded"
            if (maker.interval_ms or self.step_ms) != interval:
                return (
                    f"{maker.name} is recorded every {(maker.interval_ms or self.step_ms) / 1000:g} s, and {rule.name} "
                    f"evaluated every {interval / 1000:g} s: it reads the last sample"
                )
            if maker.offset_ms != rule.offset_ms:
                return f"{maker.name} and {rule.name} have different query offsets"
            for subquery in explain.subqueries(maker.expr):
                if any(metric_names.may_read(subquery.text, name) for name in self.unstored):
                    by = explain.resolution_ms(subquery)
                    if by is None or by % interval:
                        return f"{maker.name} has a subquery between the recorded samples: {subquery.text}"
        return ""

    def _stored(self, rules: Sequence[Rule], makers: dict[str, list[Rule]]) -> Iterator[str]:
        """The names whose series the server has as our rules would have made them."""
        if not makers:
            return
        try:
            loaded = [one for one in _patient(self.asker.client.rules) if one.kind == "recording"]
        except ServerError:
            return  # VictoriaMetrics and others have no rules of their own
        for name, ours in makers.items():
            theirs = [one for one in loaded if one.name == name]
            if len(theirs) == len(ours) and all(any(_same_rule(one, two) for two in theirs) for one in ours) and (
                self._covered(name, ours[0], makers)
            ):
                yield name

    def _covered(self, name: str, rule: Rule, makers: dict[str, list[Rule]]) -> bool:
        """Whether the recorded series is there wherever the expression gives something, at times spread over all."""
        times = self.times(rule)
        step = max(1, len(times) // _COVERAGE) * times.step
        body = explain.expand(name, makers, f"{times.step}ms", aligned=True).text
        holes = f"(count(\n{indent(body)}\n) > 0) unless on () count({name})"
        try:
            answer = _patient(
                lambda: self.asker.client.ask_packed(holes, times[0], times[-1], step, values=False)
            )
        except QueryError:
            return False
        return not answer.series and not answer.warnings


def _copies(client: Client, start_ms: int, end_ms: int) -> Copies:
    """Whether a label can be copied after an aggregation; asked of the server once for each selector."""
    known: dict[tuple[str, str, str], bool] = {}

    def values(label: str, selector: str) -> list[str]:
        return client.label_values(label, start=start_ms / 1000, end=end_ms / 1000, match=selector)

    def same(selector: str, label: str, new: str) -> bool:
        if client.is_victoria_metrics:
            return False
        try:
            if not always_has(selector, label) and values("__name__", without(selector, label)):
                return False
            return not values(new, selector) and all("\n" not in one for one in values(label, selector))
        except ServerError:
            return False  # then it is asked as it stands

    def copies(selector: str, label: str, new: str) -> bool:
        key = (selector, label, new)
        if key not in known:
            known[key] = same(*key)
        return known[key]

    return copies


def _apart(client: Client, start_ms: int, end_ms: int) -> Apart:
    """Whether no two series of a selector agree in some labels; asked of the server once for each."""
    known: dict[tuple[str, tuple[str, ...]], bool] = {}

    def apart(selector: str, labels: Collection[str]) -> bool:
        key = (selector, tuple(sorted(labels)))
        if key not in known:
            known[key] = False  # where it cannot be told, it is asked as it stands
            with contextlib.suppress(ServerError):
                if not client.is_victoria_metrics:
                    series = [dict(one) for one in client.series(selector, start=start_ms / 1000, end=end_ms / 1000)]
                    known[key] = len({tuple(one.get(label, "") for label in key[1]) for one in series}) == len(series)
        return known[key]

    return apart


def _has_prometheus() -> bool:
    try:
        tools.find("prometheus")
    except ToolError:
        return False
    return True


def _same_rule(ours: Rule, theirs: LoadedRule) -> bool:
    return dict(ours.labels) == dict(theirs.labels) and explain.same(ours.expr, theirs.expr)


def _makeable(ordered: Sequence[Rule], known: set[str]) -> set[str]:
    """The metric names there are, and those that recording rules (those first that others read) can make of them."""
    names = set(known)
    for rule in ordered:
        if rule.kind == "record" and can_give(take_apart(rule.expr), names):
            names.add(rule.name)
    return names


# --- doing it ---------------------------------------------------------------------------------------------


def _check(rules: Sequence[Rule], start_ms: int, end_ms: int, step_ms: int) -> None:
    if not any(rule.kind == "alert" for rule in rules):
        raise InputError("the rules have no alert; name a rule file with alerts")
    if step_ms <= 0:
        raise InputError(f"an evaluation interval of {step_ms} ms is none; give one like 1m")
    longest = max([step_ms, *(rule.interval_ms for rule in rules)])
    if end_ms - start_ms < longest:
        raise InputError(
            f"from {_clock(start_ms)} to {_clock(end_ms)} there is no room for evaluations every {longest / 1000:g} s; "
            "give a longer time or a shorter step"
        )


def _grids(start_ms: int, end_ms: int, step_ms: int) -> Callable[[Rule], range]:
    """A rule's evaluation times: the multiples of its group's interval."""

    def times(rule: Rule) -> range:
        step = rule.interval_ms or step_ms
        return range(-(-start_ms // step) * step, end_ms + 1, step)

    return times


class _Told:
    """Tells of progress, one call at a time, never backwards; ``part`` is what was told last."""

    def __init__(self, progress: Progress | None) -> None:
        self.part = 0.0
        self._progress = progress
        self._lock = threading.Lock()

    def __call__(self, text: str, part: float) -> None:
        with self._lock:
            self.part = max(self.part, min(1.0, part))
            if self._progress is not None:
                self._progress(text, self.part)


class _Counter:
    """How much of all evaluations is done; they are ``share`` of all that is to be done."""

    def __init__(self, told: _Told, total: int, share: float) -> None:
        self.told, self.total, self.done, self.share = told, max(1, total), 0, share
        self._lock = threading.Lock()

    def add(self, rule: Rule, steps: int) -> None:
        with self._lock:
            self.done = min(self.total, self.done + steps)
            part = self.share * self.done / self.total
        self.told(rule.name, part)


@contextlib.contextmanager
def _resumable(resume: Path | None, told: _Told) -> Iterator[None]:
    """Says what can be done when the server went away in the middle of it."""
    try:
        yield
    except PassingError as error:
        done = f"{told.part:.0%} of the work was done"
        mend = (
            f"run it again with the resume folder {resume} to go on from there"
            if resume is not None
            else "give a resume folder, and a run after a failure goes on where it was"
        )
        raise ServerError(f"{error}; {done}: {mend}") from None


def _patient(call: Callable[[], _T], tries: int = 4) -> _T:
    """A call, again after a passing fault."""
    pause = threading.Event()
    for attempt in range(tries):
        try:
            return call()
        except PassingError:
            if attempt + 1 == tries:
                raise
            pause.wait(0.25 * 2**attempt)
    raise AssertionError("unreachable")


def _curves(
    ask: Callable[[str, int, int, int], list[Series]], rules: Sequence[Rule], timeline: Timeline, times: range
) -> tuple[Curve, ...]:
    from obs.evaluate.curves import curves  # type: ignore[import-not-found,unused-ignore]

    return tuple(curves(ask, rules, timeline, times))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _clock(at_ms: int) -> str:
    from obs.evaluate.liveness import clock

    return clock(at_ms / 1000)
