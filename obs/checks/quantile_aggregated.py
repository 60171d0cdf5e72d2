"""Quantiles are not averaged, summed or added.

The mean of two servers' P99 is no P99 of anything: with 10 slow requests on one and 9,990 quick ones on the other it
reads half of the slow ones' time. `max` is honest: the worst replica. A fleet's quantile comes from summed buckets.

Bad:
    expr: avg(nv_inference_request_summary_us{quantile="0.99"}) > 500000
    expr: avg by (model_name) (histogram_quantile(0.99, rate(vllm:e2e_request_latency_seconds_bucket[5m]))) > 30

Mend:
    expr: max by (model) (nv_inference_request_summary_us{quantile="0.99"}) / 1e6 > 0.5
    expr: histogram_quantile(0.99, sum by (le, model_name) (rate(vllm:e2e_request_latency_seconds_bucket[5m]))) > 30
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from obs.checks.facts import Facts, facts
from obs.checks.syntax import Aggregate, Binary, Call, Node, Selector, constant
from obs.checks.world import World
from obs.model.problem import Problem

ID = "quantile-aggregated"

_OPERATORS = {"avg": "averages", "sum": "sums", "quantile": "takes a quantile of", "stddev": "spreads"}
_OVER_TIME = {"avg_over_time": "averages over time", "sum_over_time": "sums over time"}
_NAMED = re.compile(r":p\d{2,3}(?::|$)|_p\d{2,3}$")


def check(world: World) -> Iterator[Problem]:
    known = facts(world)
    for expression in world.expressions:
        for node in expression.nodes:
            if isinstance(node, Aggregate) and node.op in _OPERATORS and _is_quantile(node.expr, known):
                yield expression.problem(
                    node, f"{_OPERATORS[node.op]} quantiles: the result is a quantile of nothing", _mend(node.expr, known)
                )
            elif isinstance(node, Call) and node.function in _OVER_TIME and _is_quantile(node.args[0], known):
                yield expression.problem(
                    node, f"{_OVER_TIME[node.function]} a quantile, busy minutes weighing like idle ones",
                    "use max_over_time(), or a histogram over the longer window", "warning",
                )
            elif (
                isinstance(node, Binary) and node.op == "+" and constant(node.lhs) is None
                and constant(node.rhs) is None and all(_is_quantile(side, known) for side in node.children)
            ):
                yield expression.problem(
                    node, "adds two quantiles: the slowest requests of one phase need not be those of the other",
                    "take the quantile of the whole, or add means", "warning",
                )


def _is_quantile(node: Node, known: Facts) -> bool:
    found = known.of(node)
    if found:
        return all(fact.kind == "quantile" for fact in found)
    return isinstance(node, Selector) and _NAMED.search(node.name) is not None


def _mend(node: Node, known: Facts) -> str:
    if any(fact.metric is not None and fact.metric.kind == "summary" for fact in known.of(node)):
        return "use max: the worst replica"
    return "sum the buckets by (le, …) inside histogram_quantile, or use max: the worst one"
