"""Limits are in the unit of what they are compared with.

The engines use microseconds, milliseconds, seconds, MiB, ratios and percentages, and their names do not always tell:
`vllm:kv_cache_usage_perc` is a ratio from 0 to 1, `DCGM_FI_DEV_GPU_UTIL` a percentage, `DCGM_FI_DEV_FB_USED` MiB. A
limit in another unit is always or never exceeded. The unit is followed through rates, quotients and constant factors;
only limits that cannot be meant are reported.

Bad:
    expr: vllm:kv_cache_usage_perc > 90
    expr: rate(nv_inference_queue_duration_us[5m]) / (rate(nv_inference_request_success[5m]) > 0) > 0.1
    expr: DCGM_FI_DEV_FB_USED > 8e10

Mend:
    expr: vllm:kv_cache_usage_perc > 0.9
    expr: rate(nv_inference_queue_duration_us[5m]) / (rate(nv_inference_request_success[5m]) > 0) / 1e6 > 0.1
    expr: DCGM_FI_DEV_FB_USED * 1048576 > 8e10
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache

from obs.catalog.limits import LIMITS
from obs.catalog.scaling import UNBOUNDED
from obs.checks.facts import Fact, facts, family, signal_of
from obs.checks.syntax import Binary, constant
from obs.checks.world import World
from obs.model.problem import Problem

ID = "threshold-unit"

_SHORTEST = 1e-4  # seconds: no limit on a request's phases is shorter
_LEAST_BYTES, _MOST_BYTES = 1e6, 1e15
_MIRRORED = {">": "<", "<": ">", ">=": "<=", "<=": ">="}


def check(world: World) -> Iterator[Problem]:
    known = facts(world)
    for expression in world.expressions:
        for node in expression.nodes:
            if not isinstance(node, Binary) or not node.compares:
                continue
            left, right = constant(node.lhs), constant(node.rhs)
            if (left is None) == (right is None):
                continue
            limit = right if right is not None else left
            assert limit is not None
            value = node.lhs if right is not None else node.rhs
            op = node.op if right is not None else _MIRRORED.get(node.op, node.op)
            found = known.of(value)
            verdicts = [_judge(fact, op, limit) for fact in found]
            if found and all(verdicts):
                assert verdicts[0] is not None
                yield expression.problem(node, *verdicts[0])


def _judge(fact: Fact, op: str, limit: float) -> tuple[str, str] | None:
    """What is wrong with comparing the value with the limit, and the mend."""
    if fact.kind in ("counter", "bucket", "lifetime") or not math.isfinite(limit) or limit == 0:
        return None
    base = limit * fact.factor
    if fact.top is not None and fact.name not in UNBOUNDED:
        return _ratio(fact, op, limit, base)
    if fact.measure == "s":
        return _duration(fact, limit, base)
    if fact.measure == "bytes" and fact.kind in ("gauge", "value"):
        return _bytes(fact, op, limit, base)
    return None


def _ratio(fact: Fact, op: str, limit: float, base: float) -> tuple[str, str] | None:
    assert fact.top is not None
    percent = math.isclose(fact.factor, 0.01)
    beyond = base > fact.top * (1 + 1e-9) or (op == ">" and base >= fact.top * (1 - 1e-9) and fact.top == 1.0)
    if beyond:
        highest = fact.top / fact.factor
        often = "never" if op in (">", ">=", "==") else "always"
        of = f"{fact.name} is a {'percentage' if percent else 'ratio'}" if fact.metric else "it is a ratio"
        if fact.dims == frozenset({("ratio", 1)}) and fact.kind != "gauge" and fact.metric is not None:
            of = "the quotient is a ratio" if fact.metric.unit not in ("ratio", "percent") else of
        mend = f"write {base * 0.01 / fact.factor:g}" if base * 0.01 <= fact.top and not percent else "lower the limit"
        return f"is {often} true: {of}, at most {highest:g}", mend
    if percent and op in (">", ">=") and 0 < limit < 1:
        of = fact.name if fact.metric is not None and fact.metric.unit == "percent" else "the value"
        return f"is about always true: {of} is a percentage, from 0 to 100", f"write {limit * 100:g}"
    return None


def _duration(fact: Fact, limit: float, base: float) -> tuple[str, str] | None:
    if limit < 0:
        return None
    unit = {1e-6: "microseconds", 1e-3: "milliseconds", 1.0: "seconds"}.get(_rounded(fact.factor), "")
    if unit in ("microseconds", "milliseconds") and base < _SHORTEST * (1 - 1e-9):
        scale = "1e6" if unit == "microseconds" else "1e3"
        return (
            f"compares {unit} of {fact.name} with {limit:g}: {base:.1g} s cannot be meant",
            f"divide by {scale} to compare seconds, or write {limit * float(scale):g}",
        )
    if fact.kind in ("quantile", "value") and not fact.bounds and fact.metric is not None:
        signal = signal_of(family(fact))
        highest = _highest().get(signal)
        if highest is not None and base > highest:
            return (
                f"compares {unit or 'a time'} of {fact.name} with {limit:g}: {base:.3g} s cannot be meant",
                f"write {limit / 1000:g}" if unit == "seconds" else "correct the factor",
            )
    return None


def _bytes(fact: Fact, op: str, limit: float, base: float) -> tuple[str, str] | None:
    mib = math.isclose(fact.factor, 1048576.0)
    unit = "MiB" if mib else "bytes" if math.isclose(fact.factor, 1.0) else "its unit"
    if base > _MOST_BYTES:
        return f"compares {fact.name} in {unit} with {limit:g}: {base:.1e} bytes cannot be meant", (
            f"write {limit / 1048576:.6g}" if mib else "correct the factor"
        )
    if "memory" not in fact.name.lower() and "_FB_" not in fact.name:
        return None
    if 0 < base < _LEAST_BYTES and (op in (">", ">=") or 0 < limit < 1):
        return f"compares {fact.name} in {unit} with {limit:g}: {base:.3g} bytes cannot be meant", (
            "divide by the total to compare a ratio" if limit <= 1 else "correct the unit of the limit"
        )
    return None


def _rounded(factor: float) -> float:
    return next((known for known in (1e-6, 1e-3, 1.0) if math.isclose(factor, known)), factor)


@cache
def _highest() -> dict[str, float]:
    """Signal → the highest limit on it that obs.yaml takes."""
    found: dict[str, float] = {}
    for limit in LIMITS:
        if limit.signal:
            found[limit.signal] = max(limit.high, found.get(limit.signal, 0.0))
    return found
