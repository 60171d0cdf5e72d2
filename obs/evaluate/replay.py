"""Replays a recording through rules on a real Prometheus: when would each alert have been pending and firing.

The recording is written into a private Prometheus as a scraper would have stored it; recording rules are
evaluated over it at every step and written back, those first that others read; then every alert's
expression is asked at every step, and obs.evaluate.state decides. PromQL is Prometheus's own: its version's
rules hold (ranges are closed on the left in 2.x, open in 3.x: traps.md, 69), and it is named in the result.

Two things differ from a live server, both in favour of an answer that depends on the input alone: all rules
of a step see that step's recording rules (live, a rule of another group may see the previous step's), and
every evaluation happens exactly on time.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from obs.errors import InputError
from obs.evaluate import rules as rules_
from obs.evaluate import state
from obs.evaluate.recording import Recording
from obs.model.rule import Group
from obs.prom import metric_names, tools
from obs.prom.client import QueryError, Series
from obs.prom.remote_write import STALE_NAN, Labels, Point
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
    """

    recording: str
    prometheus: str
    start_ms: int
    end_ms: int
    interval_ms: int
    alerts: tuple[str, ...]
    instances: tuple[Instance, ...]
    dead: tuple[tuple[str, tuple[str, ...]], ...]

    def of(self, alert: str) -> tuple[Instance, ...]:
        """The instances of one alert."""
        return tuple(instance for instance in self.instances if instance.alert == alert)


def replay(
    recordings: Recording | Sequence[Recording],
    rules: Sequence[Rule] | Sequence[Group],
    *,
    interval_ms: int | None = None,
    end_ms: int | None = None,
    normalise_le: bool | None = None,
) -> Timeline:
    """Evaluate rules over one recording, or over several played side by side.

    ``rules``: from obs.evaluate.rules, or the pack's groups. ``interval_ms``: the evaluation interval
    (default: the recording's scrape interval). ``end_ms``: until when (default: the last scrape); targets
    that have no scrape by then are down. ``normalise_le``: store ``le="1"`` as ``"1.0"`` (default: as this
    version of Prometheus would: from 3.0 on).

    InputError when a rule cannot be evaluated; ToolError or ServerError when Prometheus cannot work.
    """
    many = [recordings] if isinstance(recordings, Recording) else list(recordings)
    plain = _plain(rules)
    if not many:
        raise InputError("no recording was given; name one")
    if not any(rule.kind == "alert" for rule in plain):
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
    times = range(start, end + 1, step)
    known = set().union(*(one.metric_names for one in many))
    instances: list[Instance] = []
    with PrivatePrometheus(binary=binary) as server, _Progress() as progress:
        for one in many:
            progress.say(f"writing {one.name}")
            server.writer.write(one.points(end_ms=end, normalise_le=le))
        for number, rule in enumerate(ordered, 1):
            progress.say(f"rule {number}/{len(ordered)}: {rule.name}")
            found = evaluate_rule(server, rule, times)
            if rule.kind == "record":
                if found:
                    known.add(rule.name)
                server.writer.write(written_back(found, times))
            else:
                instances += _instances(rule, found, times, end)
    alerts = tuple(dict.fromkeys(rule.name for rule in ordered if rule.kind == "alert"))
    return Timeline(
        recording=", ".join(one.name for one in many),
        prometheus=".".join(map(str, version)),
        start_ms=start,
        end_ms=end,
        interval_ms=step,
        alerts=alerts,
        instances=tuple(sorted(instances, key=lambda one: (one.alert, one.labels))),
        dead=tuple(_dead(ordered, known)),
    )


def _plain(rules: Sequence[Rule] | Sequence[Group]) -> list[Rule]:
    plain: list[Rule] = []
    for one in rules:
        plain += [one] if isinstance(one, Rule) else rules_.from_groups([one])
    return plain


def evaluate_rule(server: PrivatePrometheus, rule: Rule, times: range) -> dict[Labels, dict[int, float]]:
    """The rule's result: per set of result labels, the value at each time (unix ms) where there is one."""
    try:
        series: list[Series] = server.client.query_range(
            rule.expr, times[0] / 1000, times[-1] / 1000, times.step / 1000
        )
    except QueryError as error:
        raise InputError(f"{rule.where or rule.name}: {rule.name} cannot be evaluated: {error}") from error
    found: dict[Labels, dict[int, float]] = {}
    for one in series:
        values = found.setdefault(rule.result_labels(one.labels), {})
        for at, value in one.points:
            at_ms = round(at * 1000)
            if at_ms in values:
                raise InputError(
                    f"{rule.where or rule.name}: {rule.name} gives two results with the same labels "
                    f"{dict(rule.result_labels(one.labels))}; keep the label that tells them apart"
                )
            values[at_ms] = value
    return found


def written_back(found: dict[Labels, dict[int, float]], times: range) -> Iterator[Point]:
    """A recording rule's samples in order of time; a stale marker where a series is gone from one step to the next."""
    for at in times:
        for labels, values in found.items():
            if at in values:
                yield Point(at, labels, values[at])
            elif at - times.step in values:
                yield Point(at, labels, STALE_NAN)


def _instances(rule: Rule, found: dict[Labels, dict[int, float]], times: range, end_ms: int) -> Iterator[Instance]:
    evaluations = ((at, [labels for labels, values in found.items() if at in values]) for at in times)
    spans = state.spans(evaluations, end_ms=end_ms, hold_ms=rule.hold_ms, keep_ms=rule.keep_ms)
    for labels, theirs in spans.items():
        yield Instance(rule.name, labels, theirs)


def _dead(rules: Iterable[Rule], known: set[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
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
