"""Compares what was measured on both sides and says pass, fail or inconclusive: no I/O, no PromQL.

A criterion *fails* when the canary is over ``max(baseline × factor, floor)`` or over the absolute maximum; errors, and a
P99 from a histogram, must be so by more than chance (obs.evaluate.gate.chance), and a P99 by more than the width of its
bucket or with a mean that is worse too. It is *inconclusive* when it cannot be
told, and *not measured* when neither side exports it. The gate fails when any criterion fails; it passes when none is
inconclusive, all of ``gate.require`` pass, and at least one time (queue, P99, TTFT, ITL) passes. Otherwise it is
inconclusive: no data is not a pass.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from obs.config import Config
from obs.evaluate.gate import chance
from obs.prom.remote_write import Labels

Verdict = Literal["pass", "fail", "inconclusive"]
State = Literal["pass", "fail", "inconclusive", "not measured"]

#: Criterion → title, unit. In the order in which they are shown.
CRITERIA: Mapping[str, tuple[str, str]] = {
    "error_ratio": ("error ratio", "ratio"),
    "queue_time": ("mean queue time", "s"),
    "latency_p99": ("P99 latency", "s"),
    "ttft_p99": ("P99 TTFT", "s"),
    "itl_p99": ("P99 ITL", "s"),
    "throughput": ("throughput per request", "1/s"),
}
TIMES = ("queue_time", "latency_p99", "ttft_p99", "itl_p99")
#: Criterion → (its own maximum's stand-in for plain models, and for LLM engines), keys of ``slo``.
_SLO = {
    "queue_time": ("queue_time", "llm_queue_time"),
    "latency_p99": ("latency_p99", "llm_latency_p99"),
    "ttft_p99": ("ttft_p99", "ttft_p99"),
    "itl_p99": ("itl_p99", "itl_p99"),
}


@dataclass(frozen=True)
class Measure:
    """A quantity of one side: its value (None = no data; NaN stays NaN), or why there is none (``why``).

    ``of``: observations behind it, None where they are not counted one by one. ``hits``: failed requests, of an error
    ratio. ``buckets``: of a histogram, (upper bound in seconds, observations up to it), ascending, the last infinite;
    ``mean``: its mean, which no bucket blurs.
    ``source``: histogram, summary or "".
    """

    value: float | None
    why: str = ""
    of: float | None = None
    hits: float = 0.0
    buckets: tuple[tuple[float, float], ...] = ()
    mean: float | None = None
    source: str = ""


@dataclass(frozen=True)
class Side:
    """One side: the matchers that pick it, its engine and model, and its requests in the window."""

    matchers: str
    engine: str = ""
    labels: Labels = ()
    requests: float = 0.0
    failed: float | None = None
    resets: float = 0.0
    measures: Mapping[str, Measure] = field(default_factory=dict)


@dataclass(frozen=True)
class Criterion:
    """One comparison. ``baseline`` and ``canary`` in ``unit``; ``limit`` is what the canary had to keep (``op``)."""

    name: str
    title: str
    unit: str
    state: State
    baseline: float | None = None
    canary: float | None = None
    op: str = "<="
    limit: float | None = None
    source: str = ""
    why: str = ""


@dataclass(frozen=True)
class Gate:
    """The verdict at a time (unix seconds) over the last ``span`` seconds. ``reasons``: why it is not a pass."""

    verdict: Verdict
    at: float
    span: float
    baseline: Side
    canary: Side
    criteria: tuple[Criterion, ...] = ()
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def inconclusive(
    at: float, span: float, baseline: Side, canary: Side, reasons: Sequence[str], notes: Sequence[str] = (),
    warnings: Sequence[str] = (),
) -> Gate:
    """A gate that could not even compare."""
    criteria = tuple(
        Criterion(name, title, unit, "inconclusive", why="not compared") for name, (title, unit) in CRITERIA.items()
    )
    return Gate("inconclusive", at, span, baseline, canary, criteria, tuple(reasons), tuple(notes), tuple(warnings))


def judge(
    baseline: Side, canary: Side, config: Config, *, at: float, span: float, llm: bool,
    notes: Sequence[str] = (), warnings: Sequence[str] = (),
) -> Gate:
    """Compare two sides that run the same engine. ``llm``: LLM engines have other default maxima."""
    few = _too_few(baseline, canary, config)
    if few:
        return inconclusive(at, span, baseline, canary, few, notes, warnings)
    model = dict(canary.labels).get("model", "")
    criteria = []
    for name, (title, unit) in CRITERIA.items():
        blank = Criterion(name, title, unit, "not measured", op=">=" if name == "throughput" else "<=")
        one, two = baseline.measures[name], canary.measures[name]
        found = _compare(blank, one, two, config, _maximum(name, config, model, llm))
        if found.state == "not measured" and name in config.gate_require:
            found = replace(found, state="inconclusive", why=f"gate.require asks for it, and {found.why}")
        criteria.append(found)
    states = {one.name: one.state for one in criteria}
    reasons = [f"{one.title}: {one.why}" for one in criteria if one.state == "fail"]
    verdict: Verdict = "fail"
    if warnings or not reasons:  # with a part of the data missing even a fail is not sure
        reasons += [f"{one.title}: {one.why}" for one in criteria if one.state == "inconclusive"]
        if not any(states[name] in {"pass", "inconclusive"} for name in TIMES):
            reasons.append("no time is measured on either side (queue, P99, TTFT or ITL)")
        reasons += [f"the server's answer is partial: {one}" for one in warnings]
        verdict = "inconclusive" if reasons else "pass"
    return Gate(verdict, at, span, baseline, canary, tuple(criteria), tuple(reasons), tuple(notes), tuple(warnings))


def _too_few(baseline: Side, canary: Side, config: Config) -> list[str]:
    need = config.gate("min_requests") or 0.0
    found = []
    for who, side in (("baseline", baseline), ("canary", canary)):
        if side.requests < need:
            why = f"the {who} had {side.requests:.0f} requests, needs {need:.0f} (gate.min_requests)"
            if side.resets:
                why += f"; its counters restarted {side.resets:.0f} times, which is no traffic"
            elif not side.requests:
                why += "; no traffic, or counters that stand still (counter_latencies=false)"
            found.append(why)
    return found


def _maximum(name: str, config: Config, model: str, llm: bool) -> tuple[float | None, str]:
    """The absolute limit of a criterion and the key that holds it."""
    own = "throughput_min" if name == "throughput" else f"{name}_max"
    given = config.gate(own)
    if given is not None or name == "throughput":
        return given, f"gate.{own}"
    if name == "error_ratio":
        return config.limit("failure_ratio"), "limits.failure_ratio"
    key = _SLO[name][llm]
    mine = config.model_slos(key).get(model)
    return (mine, f"models.{model}.{key}") if mine is not None else (config.slo(key), f"slo.{key}")


def _compare(
    blank: Criterion, baseline: Measure, canary: Measure, config: Config, maximum: tuple[float | None, str]
) -> Criterion:
    if baseline.value is None and canary.value is None and baseline.why == canary.why and not baseline.source:
        return replace(blank, why=baseline.why or "neither side exports it")
    found = replace(blank, state="inconclusive", baseline=baseline.value, canary=canary.value, source=canary.source)
    for who, side in (("baseline", baseline), ("canary", canary)):
        if side.value is None:
            return replace(found, why=f"the {who} has no data: {side.why or 'it does not export it'}")
        if not math.isfinite(side.value):
            return replace(found, why=f"the {who} is {'NaN' if math.isnan(side.value) else 'infinite'}: no observations")
    assert baseline.value is not None
    if blank.name == "throughput":
        return _throughput(found, baseline.value, config, maximum)
    factor, floor = config.gate(f"{blank.name}_factor"), config.gate(f"{blank.name}_floor")
    assert factor is not None
    assert floor is not None
    return _at_most(found, baseline, canary, factor, floor, maximum, config.gate("confidence") or 0.99)


def _throughput(found: Criterion, baseline: float, config: Config, minimum: tuple[float | None, str]) -> Criterion:
    factor = config.gate("throughput_factor")
    assert factor is not None
    assert found.canary is not None
    relative = baseline * factor
    limit = max(relative, minimum[0] or 0.0)
    key = "gate.throughput_factor" if limit == relative else minimum[1]
    if found.canary < limit:
        words = f"{show(found.canary, found.unit)} under {show(limit, found.unit)} ({key})"
        return replace(found, state="fail", limit=limit, why=words)
    return replace(found, state="pass", limit=limit)


def _at_most(
    found: Criterion, baseline: Measure, canary: Measure, factor: float, floor: float,
    maximum: tuple[float | None, str], confidence: float,
) -> Criterion:
    assert baseline.value is not None
    assert canary.value is not None
    relative = max(baseline.value * factor, floor)
    most, key = maximum
    absolute = math.inf if most is None else most
    limit = min(relative, absolute)
    found = replace(found, limit=limit)
    cut = [who for who, one in (("baseline", baseline), ("canary", canary)) if _cut_off(one)]
    if canary.value <= limit:
        if cut:
            return replace(found, why=f"the P99 of the {cut[-1]} is over the largest bucket bound, so it is not known")
        same = bool(canary.buckets and baseline.buckets) and _bucket(canary) == _bucket(baseline)
        if same and _mean_worse(baseline, canary, factor, floor):
            low, high = _bucket(canary)
            return replace(found, why=f"both P99s lie between {show(low, 's')} and {show(high, 's')}, which the buckets do not "
                           f"tell apart, and the mean is worse: {_means(baseline, canary)}")
        return replace(found, state="pass")
    over = baseline.value * factor >= floor
    own = f"gate.{found.name}_factor × baseline" if over else f"gate.{found.name}_floor"
    which = own if limit == relative else key
    words = f"{show(canary.value, found.unit)} over {show(limit, found.unit)} ({which})"
    if limit == relative and "baseline" in cut:
        return replace(found, why=f"{words}, but the baseline's P99 is over its largest bucket bound, so it is not known")
    if found.name == "error_ratio":
        assert canary.of is not None
        assert baseline.of is not None
        pair, other = (canary.hits, canary.of), (baseline.hits, baseline.of)
        worse = chance.surely_over(*pair, absolute, confidence) or (
            chance.surely_over(*pair, floor, confidence)
            and chance.surely_over_multiple(pair, other, factor, confidence)
        )
        counted = f"{canary.hits:.0f} of {canary.of:.0f} against {baseline.hits:.0f} of {baseline.of:.0f}"
        if not worse:
            return replace(found, why=f"{words}, but {counted} can be chance; wait for more requests")
        return replace(found, state="fail", why=f"{words}: {counted} failed")
    if canary.buckets:
        total = canary.buckets[-1][1]
        slow = total - up_to(canary.buckets, limit)
        if not chance.surely_over(slow, total, 0.01, confidence):
            return replace(found, why=f"{words}, but {slow:.0f} of {total:.0f} over it can be chance; wait for more requests")
        low, high = _bucket(canary)
        surely = low >= min(max((_bucket(baseline)[1] if baseline.buckets else baseline.value) * factor, floor), absolute)
        if not surely and not _mean_worse(baseline, canary, factor, floor):
            return replace(found, why=f"{words}, but it may lie anywhere between {show(low, 's')} and {show(high, 's')}, the "
                           f"bounds of its bucket, and the mean is not worse: {_means(baseline, canary)}")
    return replace(found, state="fail", why=words)


def _cut_off(one: Measure) -> bool:
    """Whether a P99 lies above the largest finite bucket bound: histogram_quantile then gives that bound."""
    if len(one.buckets) < 2 or one.value is None:
        return False
    return one.buckets[-1][1] > 0 and one.buckets[-2][1] < 0.99 * one.buckets[-1][1]


def _bucket(one: Measure) -> tuple[float, float]:
    """The bounds of the bucket that holds the P99: between them histogram_quantile only guesses."""
    low, rank = 0.0, 0.99 * one.buckets[-1][1]
    for bound, count in one.buckets:
        if count >= rank:
            return low, bound
        low = bound
    return low, math.inf


def _mean_worse(baseline: Measure, canary: Measure, factor: float, floor: float) -> bool:
    if baseline.mean is None or canary.mean is None:
        return False
    return canary.mean > max(baseline.mean * factor, floor)


def _means(baseline: Measure, canary: Measure) -> str:
    return f"{show(canary.mean, 's')} against {show(baseline.mean, 's')}"


def up_to(buckets: Sequence[tuple[float, float]], threshold: float) -> float:
    """Observations up to a threshold, evenly spread within a bucket, as histogram_quantile takes them to be."""
    low, below = 0.0, 0.0
    for bound, count in buckets:
        if threshold <= bound:
            if math.isinf(bound) or bound <= low:
                return below
            return below + (count - below) * (threshold - low) / (bound - low)
        low, below = bound, count
    return below


def show(value: float | None, unit: str) -> str:
    """A value for people: 0.0342 s → 34.2ms, a ratio in percent."""
    if value is None:
        return "–"
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "∞"
    if unit == "ratio":
        return f"{value * 100:.3g}%"
    if unit == "s":
        return f"{value:.3g}s" if value >= 1 else f"{value * 1000:.3g}ms"
    return f"{value:.4g}/s" if unit == "1/s" else f"{value:.4g}"
