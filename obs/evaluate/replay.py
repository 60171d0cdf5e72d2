"""Replays a recording through rules on a real Prometheus: when would each alert have been pending and firing.

The recording is written into a private Prometheus as a scraper would have stored it; recording rules are
evaluated over it at each of their group's evaluation times and written back, those first that others read; then
every alert's expression is asked at its own, and obs.evaluate.state decides. PromQL is Prometheus's own: its
version's rules hold (ranges are closed on the left in 2.x, open in 3.x: traps.md, 69), and it is named in the result.

A rule that reads what a later rule of its own group records sees what that recorded the time before, as live. Two
things differ from a live server, both in favour of an answer that depends on the input alone: rules see what other
groups record at the same time (live, it may be the time before), and every evaluation happens exactly on time.
"""

from __future__ import annotations

import contextlib
import datetime
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from obs.errors import InputError
from obs.evaluate import explain, state
from obs.evaluate import rules as rules_
from obs.evaluate.elements import Elements, Made, Recorded
from obs.evaluate.explain import take_apart
from obs.evaluate.ranges import EVERYWHERE, Asker, Where, in_order_of_time, in_parallel
from obs.evaluate.recording import Recording
from obs.evaluate.simplify import Asked, can_give
from obs.model.rule import Group
from obs.prom import metric_names, tools
from obs.prom.remote_write import Labels
from obs.prom.server import PrivatePrometheus

Rule = rules_.Rule


@dataclass(frozen=True)
class Instance:
    """One alert instance: its rule's name, its labels (``alertname`` included) and its states in order."""

    alert: str
    labels: Labels
    spans: tuple[state.Span, ...]

    def firing(self) -> tuple[state.Span, ...]:
        return tuple(span for span in self.spans if span.state == "firing")

    def state_at(self, at_ms: int) -> str:
        """ "pending", "firing" or "inactive" at a time (unix milliseconds)."""
        return next((span.state for span in self.spans if span.start_ms <= at_ms < span.end_ms), "inactive")


@dataclass(frozen=True)
class Timeline:
    """What a replay came to. Times are unix milliseconds; evaluations are at start, start + interval, … <= end.

    ``alerts`` names every alert evaluated; ``instances`` holds those that were ever active, sorted by labels.
    ``dead`` says, per alert, the metrics it reads of which the recording (and its recording rules) has no
    sample at all: such an alert was not quiet, it was blind, wholly or in part.
    ``failed``: alerts with evaluations that failed, and the times of those. Such an evaluation changes no state (one
    over its group's limit ends all): the spans go on over it, as a server still shows the alert's last state.
    """

    recording: str
    prometheus: str
    start_ms: int
    end_ms: int
    interval_ms: int
    alerts: tuple[str, ...]
    instances: tuple[Instance, ...]
    dead: tuple[tuple[str, tuple[str, ...]], ...]
    failed: tuple[tuple[str, tuple[int, ...]], ...] = ()

    def of(self, alert: str) -> tuple[Instance, ...]:
        """The instances of one alert."""
        return tuple(instance for instance in self.instances if instance.alert == alert)


@dataclass(frozen=True)
class Played:
    """A replay's timeline, what was worth a warning, and the private Prometheus that still holds all of it."""

    server: PrivatePrometheus
    timeline: Timeline
    warnings: tuple[str, ...]


def replay(
    recordings: Recording | Sequence[Recording],
    rules: Sequence[Rule] | Sequence[Group],
    *,
    interval_ms: int | None = None,
    end_ms: int | None = None,
    normalise_le: bool | None = None,
) -> Timeline:
    """Evaluate rules over one recording, or over several played side by side.

    ``rules``: from obs.evaluate.rules, or the pack's groups. ``interval_ms``: the evaluation interval of groups
    that have none of their own (default: the recording's scrape interval). ``end_ms``: until when (default: the
    last scrape); targets that have no scrape by then are down. ``normalise_le``: store ``le="1"`` as ``"1.0"``
    (default: as this version of Prometheus would: from 3.0 on).

    InputError when a rule cannot be evaluated; ToolError or ServerError when Prometheus cannot work.
    """
    with (
        _Progress() as shown,
        played(
            recordings, rules, interval_ms=interval_ms, end_ms=end_ms, normalise_le=normalise_le,
            progress=lambda text, part: shown.say(text),
        ) as found,
    ):  # fmt: skip
        return found.timeline


@contextlib.contextmanager
def played(
    recordings: Recording | Sequence[Recording],
    rules: Sequence[Rule] | Sequence[Group],
    *,
    interval_ms: int | None = None,
    end_ms: int | None = None,
    normalise_le: bool | None = None,
    without_alerts: bool = False,
    progress: Callable[[str, float], None] = lambda text, part: None,
) -> Iterator[Played]:
    """``replay``, with the server left running inside the ``with``. ``progress``: what is being done, and the part
    of all that is done (0 to 1). ``without_alerts``: rules that only record are no mistake."""
    many = [recordings] if isinstance(recordings, Recording) else list(recordings)
    plain = plain_rules(rules)
    if not many:
        raise InputError("no recording was given; name one")
    if not without_alerts and not any(rule.kind == "alert" for rule in plain):
        raise InputError("the rules have no alert; name a rule file with alerts")
    ordered = rules_.in_order(plain)
    start = min(one.start_ms for one in many)
    end = max(one.end_ms for one in many) if end_ms is None else end_ms
    step = min(one.interval_ms for one in many) if interval_ms is None else interval_ms
    if end <= start:
        raise InputError(f"the end ({end / 1000:g}) is not after the first scrape ({start / 1000:g}); give a later one")
    if step <= 0:
        raise InputError(f"an evaluation interval of {step} ms is none; give one like 5s")
    binary = tools.find("prometheus")
    version = tools.version(binary)
    le = version >= (3, 0, 0) if normalise_le is None else normalise_le
    known = set().union(*(one.metric_names for one in many))
    with PrivatePrometheus(binary=binary) as server:
        for one in many:
            progress(f"writing {one.name}", 0.0)
            server.writer.write(one.points(end_ms=end, normalise_le=le))
        asker = Asker(server.client)
        turns = rules_.Turns(plain)
        done = 0

        def times(rule: Rule) -> range:
            return range(start, end + 1, rule.interval_ms or step)

        def say(rule: Rule) -> None:
            nonlocal done
            done += 1
            progress(f"rule {done}/{len(ordered)}: {rule.name}", done / (len(ordered) + 1))

        known |= record_in_order(asker, server, plain, turns, known, times, say)
        judged = [rule for rule in ordered if rule.kind == "alert" and can_give(take_apart(rule.expr), known)]
        found: list[list[Instance]] = [[] for _ in judged]

        def judge(number: int, rule: Rule) -> None:
            found[number] = instances_of(asker, rule, at_its_turn(asker, rule, rule.expr, turns), times(rule), end)
            say(rule)

        in_parallel([partial(judge, number, rule) for number, rule in enumerate(judged)], asker.stop)
        instances = [one for some in found for one in some]
        alerts = tuple(dict.fromkeys(rule.name for rule in ordered if rule.kind == "alert"))
        timeline = Timeline(
            recording=", ".join(one.name for one in many),
            prometheus=".".join(map(str, version)),
            start_ms=start,
            end_ms=end,
            interval_ms=step,
            alerts=alerts,
            instances=tuple(sorted(instances, key=lambda one: (one.alert, one.labels))),
            dead=tuple(dead(ordered, known)),
            failed=in_order_of_time(asker.failed),
        )
        yield Played(server, timeline, tuple(sorted(asker.warnings)))


def plain_rules(rules: Sequence[Rule] | Sequence[Group]) -> list[Rule]:
    """Rules, or the rules of the pack's groups."""
    plain: list[Rule] = []
    for one in rules:
        plain += [one] if isinstance(one, Rule) else rules_.from_groups([one])
    return plain


def at_its_turn(asker: Asker, rule: Rule, expr: str, turns: rules_.Turns) -> str:
    """What to ask for a rule (``expr``: its expression, or what took its place), so that it sees the series that later
    rules of its group record as they were at its turn. Where that cannot be asked, a warning."""
    later, astride = turns.later(rule), turns.astride(rule)
    if not later and not astride:
        return expr
    asked = explain.delayed(expr, later)
    blind = [name for name in astride if metric_names.may_read(expr, name)]
    inside = [part.text for part in explain.subqueries(expr)]
    blind += [name for name in later if any(metric_names.may_read(text, name) for text in inside)]
    for name in sorted(blind):
        asker.warn(
            f"{rule.name} reads {name}, which a rule behind it in its group records: a server shows it the value of the "
            "time before, this evaluation the new one; put the rule behind it"
        )
    return asked


def record_in_order(
    asker: Asker,
    server: PrivatePrometheus,
    rules: Sequence[Rule],
    turns: rules_.Turns,
    known: Collection[str],
    times: Callable[[Rule], range],
    said: Callable[[Rule], None] = lambda rule: None,
) -> set[str]:
    """Evaluate the recording rules among ``rules`` at their ``times`` and write what they give into ``server``: those first
    that others read, a few at a time. A rule whose metrics exist at no time is not asked. ``known``: the metrics there are.

    The names of those that gave samples. ``said`` is told of each that is done. Errors as ``record_all``.
    """
    made: set[str] = set()
    for level in rules_.levels(rules):
        there = made.union(known)
        some: list[dict[str, Made]] = []

        def work(rule: Rule) -> None:
            expr = at_its_turn(asker, rule, rule.expr, turns)
            some.append(record_all(asker, server, [rule], [Asked(expr)], times(rule)))  # noqa: B023 (done within the loop)
            said(rule)

        in_parallel([partial(work, rule) for rule in level if can_give(take_apart(rule.expr), there)], asker.stop)
        made.update(*some)
    return made


def record_all(
    asker: Asker,
    server: PrivatePrometheus,
    rules: Sequence[Rule],
    asked: Sequence[Asked],
    times: range,
    where: Where = EVERYWHERE,
) -> dict[str, Made]:
    """Evaluate recording rules that ask for the same at the same times (and offset) by ``asker`` and write their samples,
    stale markers too, into ``server``. ``asked``: per rule, the question (one for all) and its labels.

    What those made that made any. InputError when they cannot be evaluated.
    """
    each = [Recorded(rule) for rule in rules]
    offset = rules[0].offset_ms
    at = range(times.start - offset, times.stop - offset, times.step)
    for piece in asker.answers(rules[0], asked[0].text, at, where, values=not all(way.ones for way in asked)):
        some = at[piece.first : piece.first + piece.count]
        for one, way in zip(each, asked, strict=True):
            series = way.put(piece.series)
            if series is not None:
                server.writer.write_series(one.series(replace(piece, series=tuple(series)), at))
                continue
            for part in asker.pieces(one.rule, way.plain, some, values=True):
                server.writer.write_series(one.series(replace(part, first=piece.first + part.first), at))
    for rule, recorded in zip(rules, each, strict=True):
        if recorded.clashes == len(times):
            raise InputError(
                f"{rule.where or rule.name}: {rule.name} gives two results with the same labels {dict(recorded.example)}; "
                "keep the label that tells them apart"
            )
        over = f"more series than its group's limit of {rule.limit}"
        for count, why in ((recorded.clashes, "two series with the same labels"), (recorded.over, over)):
            if count:
                asker.warn(f"{rule.name}: {count} of {len(times)} evaluations fail, as on a server: {why}")
    made: dict[str, Made] = {}
    for rule, recorded in zip(rules, each, strict=True):
        if recorded.most:
            made[rule.name] = made[rule.name].beside(recorded.made) if rule.name in made else recorded.made
    return made


def instances_of(
    asker: Asker, rule: Rule, expr: str, times: range, end_ms: int, where: Where = EVERYWHERE
) -> list[Instance]:
    """Evaluate an alert by ``asker``: its instances that were ever active. ``expr``: what is asked for it (``where``)."""
    elements = Elements(rule)
    at = range(times.start - rule.offset_ms, times.stop - rule.offset_ms, times.step)
    for piece in asker.answers(rule, expr, at, where, values=rule.reads_value):
        elements.add(piece)
    runs, evaluated = elements.settled(times)
    if elements.failed:
        asker.fails(rule.name, (times[index] for index in elements.failed))
    if elements.clashes:
        asker.warn(
            f"{rule.name}: {elements.clashes} of {len(times)} evaluations fail, as on a server, the first at "
            f"{clock(times[elements.failed[0]])}: two results have the same labels, such as {dict(elements.example)}"
        )
    exceeded: list[int] = []
    spans = state.spans_of_runs(
        runs, evaluated, end_ms=end_ms, hold_ms=rule.hold_ms, keep_ms=rule.keep_ms, limit=rule.limit, exceeded=exceeded
    )
    if exceeded:
        asker.fails(rule.name, exceeded)
        asker.warn(
            f"{rule.name}: {len(exceeded)} of {len(times)} evaluations, the first at {clock(exceeded[0])}, have more "
            f"alerts than its group's limit of {rule.limit}: a server then forgets all of them"
        )
    return [Instance(rule.name, labels, theirs) for labels, theirs in spans.items()]


def clock(at_ms: int) -> str:
    """A time as warnings give it."""
    return f"{datetime.datetime.fromtimestamp(at_ms / 1000, datetime.timezone.utc):%Y-%m-%d %H:%M:%S}Z"


def dead(rules: Iterable[Rule], known: set[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Per alert that reads metrics not among the ``known`` names: those."""
    for rule in rules:
        if rule.kind != "alert":
            continue
        selectors = metric_names.selectors(rule.expr) or ()
        missing = [
            one.name or f'{{__name__=~"{one.pattern}"}}'
            for one in selectors
            if not any(one.may_read(name) for name in known)
        ]
        if missing:
            yield rule.name, tuple(dict.fromkeys(missing))


class _Progress:
    """One line on a terminal's stderr that is rewritten and removed; nothing elsewhere."""

    def __init__(self) -> None:
        self.on = sys.stderr.isatty()

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *unused: object) -> None:
        if self.on:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def say(self, text: str) -> None:
        if self.on:
            print(f"\r\x1b[K{text[:100]}", end="", file=sys.stderr, flush=True)
