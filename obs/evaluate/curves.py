"""The curves behind a timeline: the value of each alert that was ever active, beside what it is compared with."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence

from obs.evaluate.explain import Part, deciding, take_apart
from obs.evaluate.history import Curve
from obs.evaluate.liveness import FLIPPED
from obs.evaluate.replay import Instance, Timeline
from obs.evaluate.rules import Rule
from obs.prom.client import Series
from obs.prom.remote_write import Labels

MAX_INSTANCES = 6
"""Instances drawn of one alert: those that fired longest."""
MAX_POINTS = 600
"""Points of one line; of more, each slice of time keeps its lowest and its highest."""

Ask = Callable[[str, int, int, int], Sequence[Series]]
"""``ask(expression, start_ms, end_ms, step_ms)``: the series of a range query."""
_Line = tuple[tuple[int, float], ...]


def curves(
    ask: Ask,
    rules: Sequence[Rule],
    timeline: Timeline,
    times: range,
    *,
    max_instances: int = MAX_INSTANCES,
    max_points: int = MAX_POINTS,
) -> tuple[Curve, ...]:
    """A curve per instance of each alert that was active in ``timeline``, sorted by alert and labels.

    ``times``: unix milliseconds, evenly spaced. The value is that side of the deciding comparison which the alert
    takes its value from; of several (an ``or``), the one that has the instance. An alert that compares nothing is
    drawn as the value of its whole expression, without a threshold. At most ``max_instances`` per alert, those that
    fired (then were pending) longest, and ``max_points`` per line.
    """
    cache: dict[str, Sequence[Series]] = {}

    def asked(text: str) -> Sequence[Series]:
        if text not in cache:
            cache[text] = ask(text, times[0], times[-1], times.step)
        return cache[text]

    found = []
    for name in dict.fromkeys(rule.name for rule in rules if rule.kind == "alert"):
        instances = sorted(timeline.of(name), key=lambda one: (*_weight(one), one.labels))[:max_instances]
        mine = [rule for rule in rules if rule.kind == "alert" and rule.name == name]
        for instance in instances:
            curve = _curve(asked, mine, instance, max_points)
            if curve is not None:
                found.append(curve)
        cache.clear()
    return tuple(sorted(found, key=lambda one: (one.alert, one.labels)))


def _weight(instance: Instance) -> tuple[int, int]:
    firing = sum(span.end_ms - span.start_ms for span in instance.firing())
    return -firing, -sum(span.end_ms - span.start_ms for span in instance.spans)


def _curve(ask: Callable[[str], Sequence[Series]], rules: Sequence[Rule], instance: Instance, limit: int) -> Curve | None:
    best: Curve | None = None
    for rule in rules:
        if not _may_be(rule, instance.labels):
            continue
        comparisons: list[Part | None] = [*deciding(take_apart(rule.expr))]
        for part in comparisons or [None]:
            value, threshold, op = _sides(part, rule)
            points = _of_instance(ask(value), rule, instance.labels)
            # of several comparisons, the one whose value the instance has; then the one that has most of it
            if points and (best is None or len(points) > len(best.points)):
                line = _beside(ask(threshold), instance.labels) if threshold else ()
                best = Curve(instance.alert, instance.labels, op, points, line)
    if best is None:
        return None
    return Curve(best.alert, best.labels, best.op, thinned(best.points, limit), thinned(best.threshold, limit))


def _may_be(rule: Rule, labels: Labels) -> bool:
    """Whether the instance can be this rule's: its plain labels are the rule's."""
    own = dict(labels)
    return all("{{" in value or own.get(name, "") == value for name, value in rule.labels.items())


def _sides(part: Part | None, rule: Rule) -> tuple[str, str, str]:
    """(value, threshold, operator) as expressions; the whole expression alone when nothing is compared."""
    if part is None:
        return rule.expr, "", ""
    left, right = part.parts
    if left.scalar:
        return right.text, left.text, FLIPPED[part.op]
    return left.text, right.text, part.op


def _of_instance(series: Iterable[Series], rule: Rule, labels: Labels) -> _Line:
    """The series that becomes the instance: the same labels, else the only one that agrees on all it has in common."""
    loose = []
    for one in series:
        made = rule.result_labels(one.labels)
        if made == labels:
            return _ms(one)
        own, mine = dict(made), dict(labels)
        if all(own.get(name, value) == value for name, value in mine.items()):
            loose.append(one)
    return _ms(loose[0]) if len(loose) == 1 else ()


def _beside(series: Sequence[Series], labels: Labels) -> _Line:
    """What the instance is compared with: a scalar, or the only series that agrees on the labels both have."""
    own = dict(labels)
    fitting = [
        one for one in series if all(own.get(name, value) == value for name, value in one.labels if name != "__name__")
    ]
    return _ms(fitting[0]) if len(fitting) == 1 else ()


def _ms(one: Series) -> _Line:
    return tuple((round(at * 1000), value) for at, value in one.points)


def thinned(points: _Line, limit: int) -> _Line:
    """At most ``limit`` points (4 or more): each of ``limit // 2`` equal slices of time keeps its lowest and highest, in
    order; a NaN is kept out where a number is there. A line that never changes keeps its two ends."""
    if len(points) > 2 and all(value == points[0][1] for _, value in points) and _even(points):
        return (points[0], points[-1])
    if len(points) <= limit:
        return points
    slices = max(2, limit // 2)
    start, length = points[0][0], points[-1][0] - points[0][0] + 1
    kept: dict[int, list[tuple[int, float]]] = {}
    for at, value in points:
        kept.setdefault((at - start) * slices // length, []).append((at, value))
    found: list[tuple[int, float]] = []
    for many in kept.values():
        numbers = [one for one in many if one[1] == one[1]] or many
        low, high = min(numbers, key=lambda one: one[1]), max(numbers, key=lambda one: one[1])
        found += sorted({low, high})
    return tuple(found)


def _even(points: _Line) -> bool:
    """Whether there is no gap in a line: its points are all equally far apart."""
    steps = {b[0] - a[0] for a, b in itertools.pairwise(points)}
    return len(steps) == 1
