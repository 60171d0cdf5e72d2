"""A mean time per request is the time divided by the requests.

Triton counts executions (batches) and inferences (elements of batches) beside requests. Divided by those, a duration
is per batch or per element: at a batch size of 8 a tenth of what a client waits, or eight times that. And a divisor
that cannot fall below 1 (`1 + rate`, `clamp_min(rate, 1)`) makes 2 s read 0.2 s at one request in ten seconds.

Bad:
    expr: rate(nv_inference_request_duration_us[5m]) / rate(nv_inference_exec_count[5m]) > 500000
    expr: rate(nv_inference_queue_duration_us[5m]) / clamp_min(rate(nv_inference_request_success[5m]), 1) > 1e5

Mend:
    expr: rate(nv_inference_queue_duration_us[5m]) / (rate(nv_inference_request_success[5m]) > 0) > 1e5
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from obs.checks.facts import facts
from obs.checks.syntax import Binary, Call, Node, Selector, constant
from obs.checks.world import World
from obs.engines import ENGINES
from obs.model.metric import MeanOf
from obs.model.problem import Problem

ID = "mean-divisor"

_OTHER_COUNTS = {
    "nv_inference_exec_count": "executions (batches)",
    "nv_inference_count": "inferences (elements of batches)",
}


def check(world: World) -> Iterator[Problem]:
    known = facts(world)
    for expression in world.expressions:
        for node in expression.nodes:
            if not isinstance(node, Binary) or node.op != "/" or constant(node.rhs) is not None:
                continue
            found = known.of(node.lhs)
            times = {fact.metric.name for fact in found if fact.metric is not None} & set(_means())
            sums = bool(found) and all(
                fact.metric is not None and fact.name == f"{fact.metric.name}_sum" for fact in found
            )
            if not times and not sums:
                continue
            floor = _floor(node.rhs)
            counts = {part.name for part in node.rhs.walk() if isinstance(part, Selector)}
            if floor and floor >= 0.5:
                yield expression.problem(
                    node.rhs, "is never below 1: with little traffic the mean reads too low, by any factor",
                    "divide by the rate itself, filtered by `> 0`", "warning",
                )
            elif len(times) == 1 and len(counts) == 1 and (other := _OTHER_COUNTS.get(next(iter(counts)))):
                right = _means()[next(iter(times))]
                yield expression.problem(
                    node, f"divides the time of requests by {other}", f"divide by the rate of {right}", "warning"
                )


@cache
def _means() -> dict[str, str]:
    """The total of each mean in the catalogue → the count that belongs to it."""
    found = {}
    for engine in ENGINES:
        for sources in engine.signals.values():
            for source in sources if isinstance(sources, tuple) else ():
                if isinstance(source, MeanOf):
                    found[source.total.metric] = source.count.metric
    return found


def _floor(node: Node) -> float | None:
    """The constant that a divisor never falls below."""
    if isinstance(node, Call) and node.function == "clamp_min":
        return constant(node.args[1])
    if isinstance(node, Binary) and node.op == "+":
        left, right = constant(node.lhs), constant(node.rhs)
        return right if right is not None else left
    return None
