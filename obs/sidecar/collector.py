"""A snapshot as metric families: their kinds and help texts are the catalogue's, and nothing else is served.

Two series of one name with the same labels would make Prometheus drop one at random: of gauges and counters the
larger is served, of infos one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from obs import __version__
from obs.engines.sidecar import ENGINE
from obs.sidecar.readiness import STATES, Readiness
from obs.sidecar.sampler import Sampler, Work
from obs.sidecar.signals import ModelState, Snapshot

_FAMILIES = {metric.name: metric for metric in ENGINE.metrics}

Labels = tuple[tuple[str, str], ...]
Found = dict[str, dict[Labels, float]]


class SidecarCollector(Collector):
    """Reads the sampler's snapshot at every scrape."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    def collect(self) -> Iterator[Metric]:
        yield from families(self._sampler.snapshot(), self._sampler.work, self._sampler.readiness)

    def describe(self) -> Iterator[Metric]:
        """Nothing: registering must not need a sample."""
        return iter(())


def registry(sampler: Sampler) -> CollectorRegistry:
    """A registry with this collector alone: nothing of the process's default one is served."""
    own = CollectorRegistry(auto_describe=False)
    own.register(SidecarCollector(sampler))
    return own


def families(snapshot: Snapshot, work: Work, readiness: Readiness | None) -> Iterator[Metric]:
    """One family per name, in the catalogue's order."""
    found: Found = {}
    _health(found, snapshot, work)
    for model in snapshot.models:
        _model(found, model)
    for name, value in snapshot.pod.items():
        _put(found, name, value, engine=snapshot.engine)
    if readiness is not None:
        _readiness(found, snapshot, readiness)
    for name, metric in _FAMILIES.items():
        series = found.pop(name, None)
        if series is None:
            continue
        family = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
        built = family(name, metric.help)
        wire = name if metric.kind == "counter" else built.name
        for labels, value in sorted(series.items()):
            built.add_sample(wire, dict(labels), value)
        yield built
    assert not found, f"not in the catalogue: {sorted(found)}"


def _put(found: Found, name: str, value: float, **labels: str) -> None:
    series = found.setdefault(name, {})
    key = tuple(sorted((label, text) for label, text in labels.items() if text))
    series[key] = max(series.get(key, value), value)


def _health(found: Found, snapshot: Snapshot, work: Work) -> None:
    engine = snapshot.engine
    _put(found, "llm_engine_up", snapshot.up, engine=engine, reason=snapshot.reason)
    _put(found, "llm_engine_ready", snapshot.ready, engine=engine)
    _put(found, "llm_engine_restarts_total", snapshot.restarts, engine=engine)
    for outcome, count in snapshot.outcomes.items():
        _put(found, "llm_sidecar_scrapes_total", count, outcome=outcome)
    if snapshot.age is not None:
        _put(found, "llm_sidecar_scrape_age_seconds", snapshot.age)
        _put(found, "llm_sidecar_series", work.series)
    if work.duration is not None:
        _put(found, "llm_sidecar_scrape_duration_seconds", work.duration)
    _put(found, "llm_sidecar_skipped_scrapes_total", work.skipped)
    _put(found, "llm_sidecar_dropped_models", snapshot.dropped_models)
    _put(found, "llm_sidecar_build_info", 1, version=__version__)


def _model(found: Found, model: ModelState) -> None:
    if model.engine == "triton":
        for name, signal in model.signals.items():
            if signal.value is not None:
                _put(found, name, signal.value, model=model.name, version=model.version)
        return
    labels: Mapping[str, str] = {"engine": model.engine, "model_name": model.name}
    for name, signal in model.signals.items():
        if signal.value is not None:
            _put(found, name, signal.value, **labels)
        _put(found, "llm_signal_available", signal.value is not None, signal=name, **labels)
        _put(found, "llm_signal_info", 1, signal=name, source=signal.source, reason=signal.reason, **labels)
    for name, value in model.counters.items():
        _put(found, name, value, **labels)
    for reason, value in model.waiting_by_reason.items():
        _put(found, "llm_requests_waiting_by_reason", value, reason=reason, **labels)
    _put(found, "llm_engine_suspect", model.suspect, **labels)
    if model.decode_capacity is not None:
        _put(found, "llm_decode_capacity_tokens_per_second", model.decode_capacity, **labels)
        _put(found, "llm_decode_capacity_info", 1, source=model.decode_capacity_source, **labels)


def _readiness(found: Found, snapshot: Snapshot, readiness: Readiness) -> None:
    if readiness.version:
        _put(found, "llm_engine_info", 1, engine=snapshot.engine, version=readiness.version)
    for one in readiness.vulnerabilities:
        _put(found, "llm_engine_vulnerable_info", 1, engine=snapshot.engine, id=one.hole.id, status=one.status,
             source=one.hole.source)
    if readiness.kind != "triton":
        return
    if readiness.ready is not None:
        _put(found, "triton_server_ready", readiness.ready)
    if readiness.live is not None:
        _put(found, "triton_server_live", readiness.live)
    if readiness.version:
        _put(found, "triton_server_info", 1, version=readiness.version, control_mode=readiness.control_mode)
    for model in readiness.models:
        own = {"model": model.name, "version": model.version}
        assert model.state in STATES
        if model.ready is not None:
            _put(found, "triton_model_ready", model.ready, **own)
        _put(found, "triton_model_info", 1, state=model.state, reason=model.reason, **own)
    if readiness.index:
        _put(found, "triton_models_not_loaded", sum(model.state == "UNKNOWN" for model in readiness.models))
