"""Limits on a histogram's quantile lie at a bucket bound.

histogram_quantile knows no value between two bounds: it draws a straight line. With bounds 10 and 100, waits of 11 s
can read 90 s, and a limit of 30 fires or not by chance. Above the largest finite bound everything reads as that bound,
so a higher limit never fires; below the smallest, a limit of 0.1 s with a first bound of 0.3 s always does.

Bad, as vLLM's largest bounds for this histogram are 7680 and +Inf:
    expr: histogram_quantile(0.99, sum by (le) (rate(vllm:e2e_request_latency_seconds_bucket[5m]))) > 9000

Mend: take a bound (docs/catalogue.md lists them), or give the server its own bounds and say so with obs:ignore.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from obs.checks.facts import Fact, facts
from obs.checks.syntax import Binary, constant
from obs.checks.world import World
from obs.model.problem import Level, Problem

ID = "threshold-bucket"

_MIRRORED = {">": "<", "<": ">", ">=": "<=", "<=": ">="}


def check(world: World) -> Iterator[Problem]:
    known = facts(world)
    for expression in world.expressions:
        for node in expression.nodes:
            if not isinstance(node, Binary) or node.op not in _MIRRORED:
                continue
            left, right = constant(node.lhs), constant(node.rhs)
            if (left is None) == (right is None):
                continue
            limit = right if right is not None else left
            assert limit is not None
            op = node.op if right is not None else _MIRRORED[node.op]
            sources = known.of(node.lhs if right is not None else node.rhs)
            found = [fact for fact in sources if fact.bounds]
            # A summary has no bounds: where one can stand in for the histogram, any limit can be reached.
            if limit == 0 or any(fact.metric is not None and fact.metric.kind == "summary" for fact in sources):
                continue
            verdicts = [(fact, verdict) for fact in found if (verdict := _judge(fact, op, limit)) is not None]
            # With several sources a limit that fits one of them is somebody's choice.
            if found and len(verdicts) == len(found):
                widest = max(verdicts, key=lambda pair: pair[0].bounds[-1])
                yield expression.problem(node, *widest[1])


def _judge(fact: Fact, op: str, limit: float) -> tuple[str, str, Level] | None:
    bounds = fact.bounds
    name = fact.metric.name if fact.metric is not None else fact.name
    if any(math.isclose(bound, limit, rel_tol=1e-9) for bound in bounds):
        if limit == bounds[-1] and op == ">":
            return (
                f"never fires: {limit:g} is the largest finite bound of {name}, and no quantile is above it",
                f"take a lower bound, such as {bounds[-2]:g}" if len(bounds) > 1 else "compare the share above it",
                "error",
            )
        return None
    near = min(bounds, key=lambda bound: abs(bound - limit))
    if limit > bounds[-1]:
        verb = "never fires" if op in (">", ">=") else "is always true"
        return (
            f"{verb}: {limit:g} is above {bounds[-1]:g}, the largest finite bound of {name}, at which quantiles are cut",
            f"take a lower bound, such as {bounds[-2] if len(bounds) > 1 else bounds[-1]:g}", "error",
        )
    if limit < bounds[0]:
        return (
            f"is decided by chance: {limit:g} is below {bounds[0]:g}, the smallest bound of {name}", f"take {bounds[0]:g}",
            "warning",
        )
    return f"compares with {limit:g}, which is no bucket bound of {name}", f"take {near:g}", "warning"
