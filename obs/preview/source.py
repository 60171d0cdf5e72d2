"""A Prometheus to draw from that holds a recording, what the rules record of it, and the alerts they would have raised."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from obs.evaluate.recording import Recording
from obs.evaluate.replay import Played, played
from obs.evaluate.rules import Rule
from obs.model.rule import Group
from obs.prom.remote_write import STALE_NAN, Labels, make_labels
from obs.prom.server import PrivatePrometheus

Column = tuple[Labels, list[int], "array[float]"]


@contextmanager
def filled(
    recordings: Sequence[Recording],
    rules: Sequence[Rule] | Sequence[Group],
    *,
    interval_ms: int | None = None,
    end_ms: int | None = None,
    progress: Callable[[str, float], None] = lambda text, part: None,
) -> Iterator[PrivatePrometheus]:
    """Such a server.

    ``interval_ms``: the evaluation interval of rules that have none of their own (default: the recording's scrape
    interval; panels that count evaluations assume that of obs.yaml). ``end_ms``: play until then (unix milliseconds;
    default: the last scrape).

    InputError when a rule cannot be evaluated; ToolError or ServerError when Prometheus cannot work.
    """
    with played(
        recordings, rules, interval_ms=interval_ms, end_ms=end_ms, without_alerts=True, progress=progress
    ) as found:
        found.server.writer.write_series(alerts(found, rules))
        yield found.server


def alerts(found: Played, rules: Sequence[Rule] | Sequence[Group]) -> Iterator[Column]:
    """``ALERTS`` and ``ALERTS_FOR_STATE`` as Prometheus would have stored them while the rules ran."""
    from obs.evaluate.replay import plain_rules

    intervals = {rule.name: rule.interval_ms or found.timeline.interval_ms for rule in plain_rules(rules)}
    last = found.timeline.end_ms
    for one in found.timeline.instances:
        step = intervals.get(one.alert, found.timeline.interval_ms)
        since = 0
        before = -1
        since_times: list[int] = []
        since_values: list[float] = []
        by_state: dict[str, tuple[list[int], list[float]]] = {}
        for place, span in enumerate(one.spans):
            if span.start_ms != before:
                since = span.start_ms
            before = span.end_ms
            going_on = place + 1 < len(one.spans) and one.spans[place + 1].start_ms == span.end_ms
            times = list(range(span.start_ms, span.end_ms, step))
            if span.end_ms >= last and (not times or times[-1] + step <= last):
                times.append((times[-1] + step) if times else span.start_ms)
            ends = times[-1] + step
            own_times, own_values = by_state.setdefault(span.state, ([], []))
            own_times += times
            own_values += [1.0] * len(times)
            since_times += times
            since_values += [since / 1000] * len(times)
            if ends <= last:
                own_times.append(ends)
                own_values.append(STALE_NAN)
                if not going_on:
                    since_times.append(ends)
                    since_values.append(STALE_NAN)
        for state, (times_, values) in by_state.items():
            labels = make_labels([("__name__", "ALERTS"), ("alertstate", state), *one.labels])
            yield labels, times_, array("d", values)
        yield make_labels([("__name__", "ALERTS_FOR_STATE"), *one.labels]), since_times, array("d", since_values)
