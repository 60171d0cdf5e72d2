"""histogram_quantile gets rates of buckets.

Of anything else it gives nothing, without an error. Of raw buckets it gives the quantile since the server started.

Bad:
    expr: histogram_quantile(0.99, rate(nv_inference_request_duration_us[5m])) > 1e6
    expr: histogram_quantile(0.99, sum by (le) (vllm:e2e_request_latency_seconds_bucket)) > 30

Mend:
    expr: histogram_quantile(0.99, sum by (le) (rate(vllm:e2e_request_latency_seconds_bucket[5m]))) > 30
"""

from __future__ import annotations

from collections.abc import Iterator

from obs.checks.facts import facts
from obs.checks.world import World
from obs.model.problem import Problem

ID = "quantile-input"


def check(world: World) -> Iterator[Problem]:
    known = facts(world)
    for expression, node, buckets in world.quantiles():
        found = known.of(buckets)
        served = [fact for fact in found if fact.metric is not None and fact.kind != "value"]
        if not found or len(served) < len(found):
            continue
        if not any(fact.kind in ("bucket", "bucket_rate") for fact in found):
            metric = served[0].metric
            assert metric is not None
            mend = (
                f"use {metric.name}_bucket" if metric.kind == "histogram"
                else "select its `quantile` label instead" if metric.kind == "summary"
                else "it has no histogram; use the mean: rate of the total / rate of the count"
                if metric.kind == "counter" else "use a histogram's _bucket series"
            )
            yield expression.problem(node, f"{served[0].name} has no buckets: the result is empty", mend)
        elif all(fact.kind == "bucket" for fact in found):
            yield expression.problem(
                node, f"{found[0].name} is not under rate(): a quantile of all requests since the server started",
                "write rate(…[5m]) around the buckets", "warning",
            )
