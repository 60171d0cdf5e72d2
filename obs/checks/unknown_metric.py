"""Every metric is one that an engine serves or a rule records.

A rule on a metric that does not exist loads, passes `promtool check rules` and stays silent for ever. Names are looked
up in the catalogue (docs/catalogue.md). In your own files, names of other exporters are none of our business; names
that begin like an engine's (`nv_`, `vllm:`, …) are.

Bad:
    expr: histogram_quantile(0.99, rate(nv_inference_request_duration_us_bucket[5m])) > 500000

Triton's durations are cumulative microsecond counters and have no buckets. Mend: take a quantile that exists
(`nv_inference_first_response_histogram_ms_bucket` or `nv_inference_request_summary_us{quantile="0.99"}`, both opt-in),
or the mean: rate(nv_inference_request_duration_us[5m]) / (rate(nv_inference_request_success[5m]) > 0) / 1e6.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from functools import cache

from obs.checks.syntax import Selector
from obs.checks.world import Expression, World
from obs.engines import ENGINES, metric_owners
from obs.model.metric import Engine, Metric
from obs.model.problem import Level, Problem

ID = "unknown-metric"

_PREFIXES = ("nv_", "vllm:", "vllm_", "ray_vllm", "kserve_vllm", "trtllm_", "sglang:", "sglang_", "dynamo_", "DCGM_")
_SUFFIX = re.compile(r"_(?:bucket|sum|count|total|created)$")
_LITERALS = re.compile(r"[\w:|()]+")


def check(world: World) -> Iterator[Problem]:
    for expression in world.expressions:
        seen: set[str] = set()
        for node in expression.nodes:
            if not isinstance(node, Selector):
                continue
            for name in _names(node):
                if name and name not in seen and not world.is_known(name):
                    seen.add(name)
                    yield from _unknown(world, expression, name)


def _names(node: Selector) -> list[str]:
    """The name, or those in a plain alternation of names."""
    for matcher in node.matchers:
        if matcher.name == "__name__" and matcher.op == "=~" and _LITERALS.fullmatch(matcher.value):
            return [name for name in re.split(r"[|()]", matcher.value) if name]
    return [node.name]


def _unknown(world: World, expression: Expression, name: str) -> Iterator[Problem]:
    if not expression.written(name):
        return  # holds one of Grafana's variables
    what, mend, level = explain(name)
    if not mend:
        near = difflib.get_close_matches(name, world.recorded, n=1, cutoff=0.85) if ":" in name else []
        if near:
            what, mend, level = "is recorded by no rule", f"did you mean {near[0]}?", "error"
        elif world.own:
            what, mend, level = "is served by no engine and recorded by no rule", "correct the name", "error"
        else:
            return
    yield expression.problem(name, what, mend, "error" if world.own else level)


def explain(name: str) -> tuple[str, str, Level]:
    """What is wrong with a name that no engine serves, the mend, and how sure that is; all empty for a name that is
    not like an engine's."""
    families = _families()
    if name in families:
        return _bare(families[name])
    base = _SUFFIX.sub("", name)
    for candidate in (base, f"{name}_total", f"{base}_total"):
        if candidate != name and candidate in families:
            return _wrong_suffix(name, families[candidate])
    if not name.startswith(_PREFIXES):
        return "", "", "info"
    foreign = re.sub(r"^(ray_|kserve_)?(vllm|sglang)[_:]", r"\2:", name)
    if metric_owners(foreign):
        return "is not how the engine spells it", f"did you mean {foreign}?", "error"
    if name.startswith("nv_") and name.endswith("_total") and metric_owners(name.removesuffix("_total")):
        return "does not exist: Triton's counters have no `_total`", f"write {name.removesuffix('_total')}", "error"
    near = difflib.get_close_matches(name, _samples(), n=1, cutoff=0.93 if name.startswith("DCGM_") else 0.7)
    if near:
        return "is served by no engine in any version that the catalogue knows", f"did you mean {near[0]}?", "error"
    if name.startswith("DCGM_FI_"):
        return "is not in the catalogue", "check that your dcgm-exporter's counters file lists it", "info"
    return (
        "is served by no engine in any version that the catalogue knows",
        "look the name up in your server's /metrics; if it is there, obs:ignore this with that as the reason",
        "warning",
    )


def _bare(owner: tuple[Engine, Metric]) -> tuple[str, str, Level]:
    metric = owner[1]
    return (
        f"is a {metric.kind} of {owner[0].title}: no sample is called that",
        f"use {metric.name}_bucket, {metric.name}_sum or {metric.name}_count",
        "error",
    )


def _wrong_suffix(name: str, owner: tuple[Engine, Metric]) -> tuple[str, str, Level]:
    engine, metric = owner
    suffix = name.removeprefix(metric.name) if name.startswith(metric.name) else ""
    what = f"does not exist: {metric.name} of {engine.title} is a {metric.kind}"
    if metric.kind == "counter" and metric.unit == "us" and suffix:
        request = metric.name.endswith("request_duration_us")
        summary = metric.name.replace("_duration_us", "_summary_us")
        mend = "take the mean, its rate divided by (rate of nv_inference_request_success > 0) and by 1e6"
        if metric_owners(summary):
            mend += f', or the opt-in summary {summary}{{quantile="0.99"}}'
        if request:
            mend += ", or the opt-in histogram nv_inference_first_response_histogram_ms_bucket (milliseconds)"
        return f"{what} of cumulative microseconds, without buckets", mend, "error"
    if metric.kind in ("histogram", "summary"):
        return what, f"its samples are {', '.join(metric.series_names())}", "error"
    return what, f"write {metric.name}", "error"


@cache
def _families() -> dict[str, tuple[Engine, Metric]]:
    """Family name → its first owner. Names without an engine's prefix are left out: other programs use them too."""
    found: dict[str, tuple[Engine, Metric]] = {}
    for engine in ENGINES:
        for metric in engine.metrics:
            if metric.name.startswith(_PREFIXES):
                found.setdefault(metric.name, (engine, metric))
    return found


@cache
def _samples() -> tuple[str, ...]:
    return tuple(
        sorted({
            name for _, metric in _families().values() if not metric.until for name in metric.series_names()
        })
    )
