"""What a series says of a pod, from the catalogue of engines and signals: no names are written here."""

from __future__ import annotations

from functools import cache
from typing import Literal

from obs.catalog import platform
from obs.catalog.scaling import SIGNALS
from obs.checks.syntax import Binary, Node, Selector
from obs.engines import ENGINES, metric_owners
from obs.model.metric import Histogram, MeanOf, Missing, Native, Quotient, Source, Summary

Role = Literal[
    "load", "kv", "running", "waiting", "tokens", "gpu", "gpu_memory", "latency", "requests", "up", "platform", "other", ""
]

#: Signal of the catalogue → what it says. Others of an engine are "other".
_OF_SIGNAL: dict[str, Role] = {
    "kv_cache_usage": "kv", "requests_running": "running", "requests_waiting": "waiting", "pending_requests": "waiting",
    "requests_paused": "waiting", "generation_tokens": "tokens", "gpu_utilization": "gpu", "gpu_power_watts": "gpu",
    "gpu_memory_used_bytes": "gpu_memory", "gpu_memory_total_bytes": "gpu_memory", "request_latency_seconds": "latency",
    "first_response_seconds": "latency", "queue_time_seconds": "latency", "time_to_first_token_seconds": "latency",
    "inter_token_latency_seconds": "latency", "requests": "requests",
}  # fmt: skip

#: These stay above 0 while requests run: a low value allows a scale-in.
BUSY: frozenset[Role] = frozenset({"load", "kv", "running", "tokens"})


def role(name: str) -> Role:
    """What a sample of that name says; "" for one that no catalogue has."""
    if name in platform.BY_NAME or name == "up":
        return "platform"
    own = _own().get(name)
    if own:
        return own
    found: Role = ""
    for engine, metric in metric_owners(name):
        found = _by_metric().get((engine.name, metric.name), "other")
        if found != "other":
            return found
    return found


def is_percent(name: str) -> bool:
    """Whether the wire's unit is 0 to 100."""
    return any(metric.unit == "percent" for _, metric in metric_owners(name))


def is_ratio(name: str) -> bool:
    """Whether the wire's unit is 0 to 1 (or a load over capacity)."""
    return any(metric.unit == "ratio" for _, metric in metric_owners(name))


def of_engine(node: Node) -> tuple[Selector, ...]:
    """The selectors of engines' series in a query, those of the platform left out."""
    return tuple(
        part for part in node.walk()
        if isinstance(part, Selector) and part.name and role(part.name) not in ("platform", "")
    )


def names(node: Node) -> tuple[str, ...]:
    """The engines' series that carry the value: what stands right of ``and``, ``unless`` and ``or`` only decides
    whether there is one."""
    found: dict[str, None] = {}

    def collect(part: Node) -> None:
        if isinstance(part, Selector) and role(part.name) not in ("platform", ""):
            found[part.name] = None
        elif isinstance(part, Binary) and part.op in ("and", "unless"):
            collect(part.lhs)
        else:
            for child in part.children:
                collect(child)

    collect(node)
    return tuple(found)


@cache
def _own() -> dict[str, Role]:
    """The sidecar's scaling gauges: of its scaling signals, those that no signal of the catalogue is."""
    roles: dict[str, Role] = {"llm_kv_cache_usage_mean_ratio": "kv"}
    for signal in SIGNALS:
        if ("sidecar", signal.metric) not in _by_metric():
            roles[signal.metric] = "load"
        if signal.pod:
            roles[signal.pod] = "load"
    for engine in ENGINES:
        if engine.name == "sidecar":
            for metric in engine.metrics:
                if metric.name.startswith("llm_decode_throughput"):
                    roles[metric.name] = "tokens"
                elif metric.name.endswith("_mean_seconds"):
                    roles[metric.name] = "latency"
                elif metric.name.endswith(("_up", "_ready", "_live")):
                    roles[metric.name] = "up"
    return roles


@cache
def _by_metric() -> dict[tuple[str, str], Role]:
    """(engine, family) → role."""
    found: dict[tuple[str, str], Role] = {}
    for engine in ENGINES:
        for signal, sources in engine.signals.items():
            what = _OF_SIGNAL.get(signal)
            if what is None or isinstance(sources, Missing):
                continue
            for source in sources:
                for metric in _families(source):
                    found.setdefault((engine.name, metric), what)
    return found


def _families(source: Source) -> tuple[str, ...]:
    if isinstance(source, Native | Histogram | Summary):
        return (source.metric,)
    if isinstance(source, Quotient):
        return (source.numerator.metric, source.denominator.metric)
    assert isinstance(source, MeanOf)
    return (source.total.metric, source.count.metric)
