"""Counters are compared as rates, not as they stand.

A counter tells what happened since the server started. Compared with a limit it is first always below and then, until
the next restart, always above. A quotient of two counters is an average over the life of the server: a bad quarter of
an hour after a good week does not show in it.

Bad:
    expr: nv_inference_queue_duration_us > 100000

That is the queue time of all requests so far, added up, in microseconds. Mend: the mean per request of the last 5 m:
    expr: rate(nv_inference_queue_duration_us[5m]) / (rate(nv_inference_request_success[5m]) > 0) / 1e6 > 0.1
"""

from __future__ import annotations

from collections.abc import Iterator

from obs.checks.facts import Facts, facts
from obs.checks.syntax import Binary, constant
from obs.checks.world import Expression, World
from obs.model.problem import Problem

ID = "counter-raw"


def check(world: World) -> Iterator[Problem]:
    known = facts(world)
    for expression in world.expressions:
        for node in expression.nodes:
            if not isinstance(node, Binary):
                continue
            if node.compares:
                yield from _compared(expression, node, known)
            elif node.op == "/" and constant(node.rhs) is None:
                found = known.of(node)
                if found and all(fact.kind == "lifetime" for fact in found):
                    yield expression.problem(
                        node, "divides two counters: an average since the server started, which hides the last minutes",
                        "divide their rates", "warning",
                    )


def _compared(expression: Expression, node: Binary, known: Facts) -> Iterator[Problem]:
    left, right = constant(node.lhs), constant(node.rhs)
    limit, value = (right, node.lhs) if right is not None else (left, node.rhs)
    if limit is None or (limit == 0 and (node.op in ("==", "!=") or node is not expression.tree)):
        return  # "never" and, inside a condition, "ever" are questions that a counter answers
    found = known.of(value)
    if found and all(fact.kind in ("counter", "bucket") for fact in found):
        metric = found[0].metric
        unit = f" {_UNITS.get(metric.unit, metric.unit)}" if metric is not None else ""
        yield expression.problem(
            node, f"{found[0].name} is a counter: the{unit} since the server started, compared with {limit:g}",
            "compare rate() or increase() of it",
        )


_UNITS = {"us": "microseconds", "s": "seconds", "ms": "milliseconds", "1": "count", "observations": "count"}
