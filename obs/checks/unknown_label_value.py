"""Matchers name values that the label can have.

Some labels have a closed set of values, which the catalogue lists. A matcher for another one matches nothing; an
exclusion of another one excludes nothing.

Bad:
    expr: rate(nv_inference_request_failure{reason="CANCELLED"}[5m]) > 0

Triton writes CANCELED. The same goes for `le`, whose values are the histogram's bucket bounds.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

from obs.checks.syntax import Matcher, Selector
from obs.checks.world import Expression, World
from obs.model.metric import Metric
from obs.model.problem import Level, Problem

ID = "unknown-label-value"

_PLAIN = re.compile(r"[\w+ -]+")


def check(world: World) -> Iterator[Problem]:
    for expression in world.expressions:
        for node in expression.nodes:
            if not isinstance(node, Selector):
                continue
            metrics = [metric for _, metric in world.owners(node)]
            for matcher in node.matchers if metrics else ():
                yield from _values(expression, node, matcher, metrics)


def _values(expression: Expression, node: Selector, matcher: Matcher, metrics: list[Metric]) -> Iterator[Problem]:
    if expression.dashboard is not None and not re.search(rf"[\"'`]{re.escape(matcher.value)}[\"'`]", expression.text):
        return  # a variable's stand-in
    if matcher.name == "le" and node.name.endswith("_bucket"):
        yield from _bounds(expression, node, matcher, metrics)
        return
    if not all(matcher.name in metric.values for metric in metrics):
        return
    values = sorted({value for metric in metrics for value in metric.values[matcher.name]})
    for part in _parts(matcher):
        if part and part not in values:
            near = difflib.get_close_matches(part.lower(), [value.lower() for value in values], n=1, cutoff=0.7)
            right = [value for value in values if near and value.lower() == near[0]]
            verb = "is excluded in vain" if matcher.op.startswith("!") else "never occurs"
            level: Level = "error" if right else "warning"
            mend = f"did you mean {right[0]}?" if right else f"its values are {', '.join(values)}"
            yield expression.problem(str(matcher), f"{matcher.name}={part!r} of {node.name} {verb}", mend, level)


def _parts(matcher: Matcher) -> list[str]:
    """The plain values that a matcher names; nothing for a real pattern."""
    if matcher.op in ("=", "!="):
        return [matcher.value]
    parts = matcher.value.split("|")
    return parts if all(_PLAIN.fullmatch(part) for part in parts) else []


def _bounds(expression: Expression, node: Selector, matcher: Matcher, metrics: list[Metric]) -> Iterator[Problem]:
    if not all(metric.buckets for metric in metrics) or matcher.op not in ("=", "=~"):
        return
    bounds = sorted({bound for metric in metrics for bound in metric.buckets})
    for part in _parts(matcher):
        try:
            value = float(part)
        except ValueError:
            continue
        if value != float("inf") and not any(abs(bound - value) <= 1e-9 * max(1.0, bound) for bound in bounds):
            near = min(bounds, key=lambda bound: abs(bound - value))
            yield expression.problem(
                str(matcher), f"{node.name} has no bucket {part} (unless the server sets its own bounds)",
                f"the nearest is {near:g}", "warning",
            )
