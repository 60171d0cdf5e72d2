"""Functions get the kind of metric that they are made for.

`rate`, `irate` and `increase` take every fall of a value for a restart of its server: of a gauge they make nonsense.
`delta`, `deriv` and averages over time know no restarts: of a counter they make nonsense. And a sum must be of rates:
a rate of a sum takes the restart of one server for that of all.

Bad:
    expr: rate(vllm:num_requests_waiting[5m]) > 1
    expr: delta(nv_inference_request_success[5m]) < 10

Mend: deriv(vllm:num_requests_waiting[5m]) for a gauge, increase(nv_inference_request_success[5m]) for a counter.
The catalogue tells which is which; a name does not (`vllm:iteration_tokens_total` is a histogram).
"""

from __future__ import annotations

from collections.abc import Iterator

from obs.checks.facts import Fact, facts
from obs.checks.syntax import Aggregate, Call, Subquery
from obs.checks.world import World
from obs.model.problem import Problem

ID = "metric-type"

_OF_COUNTERS = frozenset({"rate", "irate", "increase", "resets"})
_OF_GAUGES = {
    "delta": "increase", "idelta": "increase", "deriv": "rate", "predict_linear": "rate", "holt_winters": "rate",
    "double_exponential_smoothing": "rate", "avg_over_time": "rate", "sum_over_time": "increase",
    "stddev_over_time": "rate", "stdvar_over_time": "rate", "quantile_over_time": "rate",
}  # fmt: skip


def check(world: World) -> Iterator[Problem]:
    known = facts(world)
    for expression in world.expressions:
        for node in expression.nodes:
            if not isinstance(node, Call) or not node.args:
                continue
            function = node.function
            if function not in _OF_COUNTERS and function not in _OF_GAUGES:
                continue
            argument = node.args[-1] if function == "quantile_over_time" else node.args[0]
            found = known.of(argument)
            if not found:
                continue
            name = found[0].name
            if function in _OF_COUNTERS:
                if isinstance(argument, Subquery):
                    inner = argument.expr
                    if isinstance(inner, Aggregate) and all(fact.kind in ("counter", "bucket") for fact in found):
                        yield expression.problem(
                            node, "is a rate of a sum: the restart of one server counts as a fall of all",
                            f"take the {function} first, then {inner.op} it",
                        )
                    continue
                if all(_no_counter(fact) for fact in found):
                    what = {
                        "rate": "is a rate already",
                        "bucket_rate": "is a rate already",
                        "quantile": "is a quantile",
                        "info": "is constant",
                    }.get(found[0].kind, "is a gauge")
                    mend = {
                        "increase": "use delta() or max_over_time()", "resets": "use changes()",
                    }.get(function, "use deriv(), or compare the value itself")
                    yield expression.problem(
                        node, f"{name} {what}: {function}() takes each fall for a restart", mend
                    )
            elif all(fact.kind in ("counter", "bucket") for fact in found):
                yield expression.problem(
                    node, f"{name} is a counter: {function}() goes wrong at each restart of the server",
                    f"use {_OF_GAUGES[function]}()",
                )


def _no_counter(fact: Fact) -> bool:
    if fact.kind == "gauge" and fact.metric is not None:
        # Some gauges only grow, and some families hold several things.
        return "only grows" not in fact.metric.help and fact.metric.unit != "mixed"
    return fact.kind in ("gauge", "rate", "bucket_rate", "quantile", "info") and bool(fact.metric)
