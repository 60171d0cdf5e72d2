"""Servers that nobody here could record, made up from the catalogue's real names, labels and buckets: counters that move,
gauges that swing, histograms that fill. For tests that need every series once, not for what a real load looks like."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from obs.alerts.registry import all_groups
from obs.checks.dashboards import expressions, substitute_variables
from obs.config import DEFAULT_ENGINES, Config, load_config, parse_config
from obs.dashboards.registry import all_dashboards
from obs.engines import BY_NAME as ENGINES
from obs.evaluate import exposition
from obs.evaluate.exposition import Sample
from obs.evaluate.recording import Recording, Scrape, Target, read
from obs.model.metric import Metric
from obs.preview.query import Range
from obs.prom.metric_names import selectors
from obs.prom.server import PrivatePrometheus
from obs.render.grafana import render_dashboard

DATA = Path(__file__).parent / "data"
RECORDINGS = DATA / "recordings"
_MIB = 1048576.0
_UNITS = {"bytes": 40 * 1024 * _MIB, "MiB": 40 * 1024.0, "percent": 60.0, "W": 250.0, "celsius": 60.0, "MHz": 1400.0,
          "s": 0.2, "us": 20_000.0, "ratio": 0.5, "tokens/s": 900.0}


@dataclass(frozen=True)
class Server:
    """One target: its labels, the engines whose families it serves, the values of labels, and of gauges by name."""

    labels: Mapping[str, str]
    engines: tuple[str, ...]
    known: Mapping[str, str]
    gauges: Mapping[str, float] = field(default_factory=dict)
    some: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Label → the values to serve, where the catalogue's closed set is too long or there is none."""

    def samples(self, at: float) -> Iterator[Sample]:
        """Its page so many seconds after the start."""
        for name in self.engines:
            for metric in ENGINES[name].metrics:
                if not metric.until:
                    yield from self._family(metric, at)

    def _family(self, metric: Metric, at: float) -> Iterator[Sample]:
        wanted = [*metric.labels, *(one for one in metric.optional_labels if one in self.known)]
        choices = [
            self.some.get(label) or ((self.known[label],) if label in self.known else metric.values.get(label, ("x",)))
            for label in wanted
        ]
        swing = math.sin(at / 40)
        for place, values in enumerate(itertools.product(*choices)):
            labels = tuple(sorted((key, value) for key, value in zip(wanted, values, strict=True) if value))
            base = 3.0 + place
            grown = base * at + 40.0 * (1 - math.cos(at / 40))  # what a rate of base + sin comes to: it never falls
            if metric.kind == "counter":
                scale = {"us": 15_000.0, "s": 0.05, "J": 250.0, "mJ": 2.5e5, "tokens": 200.0}.get(metric.unit, 1.0)
                yield Sample(metric.name, labels, 1000 + scale * grown)
            elif metric.kind == "histogram":
                yield from _histogram(metric, labels, grown)
            elif metric.kind == "summary":
                for quantile, times in (("0.5", 1.0), ("0.9", 2.0), ("0.99", 4.0)):
                    pairs = tuple(sorted((*labels, ("quantile", quantile))))
                    yield Sample(metric.name, pairs, 20_000.0 * times * (1 + 0.2 * swing))
                yield Sample(f"{metric.name}_sum", labels, 20_000.0 * grown)
                yield Sample(f"{metric.name}_count", labels, grown)
            elif metric.kind == "info":
                yield Sample(metric.name, labels, 1.0)
            elif metric.name in self.gauges:
                yield Sample(metric.name, labels, self.gauges[metric.name])
            else:
                yield Sample(metric.name, labels, _UNITS.get(metric.unit, 6.0) * (1 + 0.3 * swing + 0.05 * place))


def _histogram(metric: Metric, labels: exposition.Pairs, count: float) -> Iterator[Sample]:
    """Observations around the middle bucket, some of them above the last."""
    middle = len(metric.buckets) // 2
    for place, bound in enumerate(metric.buckets):
        share = 0.98 / (1 + math.exp(-(place - middle) * 1.2))
        yield Sample(f"{metric.name}_bucket", tuple(sorted((*labels, ("le", f"{bound:g}")))), round(count * share))
    yield Sample(f"{metric.name}_bucket", tuple(sorted((*labels, ("le", "+Inf")))), round(count))
    yield Sample(f"{metric.name}_sum", labels, count * (metric.buckets[middle] if metric.buckets else 1.0))
    yield Sample(f"{metric.name}_count", labels, round(count))


_GPU = {"gpu_uuid": "GPU-0a1b", "UUID": "GPU-0a1b", "gpu": "0", "pci_bus_id": "00000000:01:00.0", "device": "nvidia0",
        "modelName": "NVIDIA H100", "Hostname": "node-1", "namespace": "ml", "pod": "triton-0", "container": "triton"}
_NV_GPU = {"nv_gpu_memory_total_bytes": 80 * 1024 * _MIB, "nv_gpu_memory_used_bytes": 74 * 1024 * _MIB,
           "nv_gpu_power_limit": 700.0}

_CHAT = {"model_name": "split", "engine": "0", "handler": "/v1/chat/completions", "method": "POST"}
SERVERS = (
    # Triton with its vLLM backend, a response cache and histograms, on a GPU that the engine takes at start.
    Server(
        {"job": "triton", "instance": "triton-0:8002", "pod": "triton-0", "namespace": "ml"}, ("triton", "triton-vllm"),
        {"model": "chat", "version": "1", "gpu_uuid": "GPU-0a1b"}, _NV_GPU,
    ),
    # A plain model with a response cache and histograms of the first response, on a GPU of its own.
    Server(
        {"job": "triton", "instance": "triton-1:8002"}, ("triton",),
        {"model": "resnet", "version": "2", "gpu_uuid": "GPU-2c3d"},
        {"nv_gpu_memory_total_bytes": 24 * 1024 * _MIB, "nv_gpu_memory_used_bytes": 9 * 1024 * _MIB,
         "nv_gpu_power_limit": 300.0},
    ),
    # vLLM that takes its KV cache from another server, and one that sleeps (its state "awake" is 0).
    Server(
        {"job": "vllm", "instance": "vllm-0:8000"}, ("vllm",), _CHAT,
        {"vllm:kv_cache_usage_perc": 0.6, "vllm:engine_sleep_state": 1.0},
        {"status": ("2xx", "4xx", "5xx"), "sleep_state": ("awake",)},
    ),
    Server(
        {"job": "vllm", "instance": "vllm-1:8000"}, ("vllm",), _CHAT,
        {"vllm:kv_cache_usage_perc": 0.1, "vllm:engine_sleep_state": 0.0}, {"status": ("2xx",), "sleep_state": ("awake",)},
    ),
    Server({"job": "dcgm", "instance": "node-1:9400"}, ("dcgm",), _GPU, {
        "DCGM_FI_DEV_FB_USED": 74 * 1024.0, "DCGM_FI_DEV_FB_FREE": 6 * 1024.0, "DCGM_FI_DEV_FB_RESERVED": 600.0,
        "DCGM_FI_DEV_XID_ERRORS": 31.0,
    }),
    # The sidecar beside Triton's vLLM backend.
    Server(
        {"job": "sidecar", "instance": "triton-0:9401", "pod": "triton-0", "namespace": "ml"}, ("sidecar",),
        {"engine": "triton_vllm", "model_name": "chat", "model": "chat", "version": "1", "id": "CVE-2026-0001",
         "status": "affected", "outcome": "ok"},
        {"llm_engine_up": 1.0, "llm_engine_ready": 1.0, "llm_engine_suspect": 0.0, "triton_server_ready": 1.0,
         "llm_kv_cache_exhaustion_seconds": 300.0},
        {"signal": ("load", "kv_cache_usage"), "source": ("estimate",), "reason": ("", "no_capacity"),
         "state": ("READY", "UNAVAILABLE")},
    ),
    # One whose engine stands still.
    Server(
        {"job": "sidecar", "instance": "vllm-0:9401", "pod": "vllm-0", "namespace": "ml"}, ("sidecar",),
        {"engine": "vllm", "model_name": "split", "model": "split", "version": "1", "id": "x", "status": "unknown",
         "outcome": "ok", "signal": "load", "source": "engine", "reason": "stalled", "state": "READY"},
        {"llm_engine_up": 1.0, "llm_engine_ready": 1.0, "llm_engine_suspect": 1.0, "triton_server_ready": 1.0},
    ),
)


@dataclass(frozen=True)
class World:
    """A Prometheus with a series of everything, what ``config``'s rules record of it, and the alerts that they raise."""

    config: Config
    server: PrivatePrometheus
    range: Range


def asked(config: Config) -> set[str]:
    """The metrics that any rule or dashboard of the pack reads: the others would only cost time."""
    texts = [rule.expr for group in all_groups(config) for rule in group.rules]
    texts += [
        substitute_variables(expr) for dashboard in all_dashboards(config)
        for _, _, expr in expressions(render_dashboard(dashboard))
    ]
    return {one.name for text in texts for one in selectors(text) or ()}


def made_up(times_ms: Sequence[int], names: Container[str]) -> Recording:
    """The made-up servers, and the documented page of Triton's TensorRT-LLM backend with its counters moving.

    ``names``: the metrics to serve.
    """
    start = times_ms[0]
    targets = [
        Target(server.labels, tuple(
            Scrape(at, tuple(one for one in server.samples((at - start) / 1000) if one.name in names)) for at in times_ms
        ))
        for server in SERVERS
    ]
    page = exposition.parse((DATA / "scrapes/documented-triton-trtllm.prom").read_text(), "documented").samples
    counters = {name for engine in ("triton", "triton-trtllm") for metric in ENGINES[engine].metrics
                if metric.kind in {"counter", "histogram"} for name in metric.series_names()} | {
                    # A gauge that counts, as the backend has it.
                    "nv_trt_llm_general_metrics"}
    first = ENGINES["triton"].metric("nv_inference_first_response_histogram_ms")  # its models are decoupled
    labels = (("model", "tensorrt_llm"), ("version", "1"))
    targets.append(Target(
        {"job": "triton", "instance": "triton-2:8002"},
        tuple(Scrape(at, (
            *(one._replace(value=one.value * (1 + (at - start) / 1e6)) if one.name in counters else one for one in page),
            *_histogram(first, labels, (at - start) / 500),
        )) for at in times_ms),
    ))
    return Recording("made-up", tuple(targets))


def moved(recording: Recording, start_ms: int) -> Recording:
    """The recording with its first scrape at ``start_ms``."""
    by = start_ms - recording.start_ms
    return dataclasses.replace(recording, targets=tuple(
        dataclasses.replace(target, scrapes=tuple(
            dataclasses.replace(one, time_ms=one.time_ms + by) for one in target.scrapes)) for target in recording.targets
    ))


def everything(config: Config) -> list[Recording]:
    """Both recordings, from one time on, and the made-up servers beside them."""
    triton = read(RECORDINGS / "triton-2.51-incident.tar.gz")
    vllm = moved(read(RECORDINGS / "vllm-0.32-incident.tar.gz"), triton.start_ms)
    times = range(triton.start_ms, triton.end_ms + 1, triton.interval_ms)
    return [triton, vllm, made_up(times, asked(config))]


def short_times() -> Config:
    """The default engines, judged by seconds instead of minutes (as the recordings are)."""
    text = (RECORDINGS / "triton.obs.yaml").read_text()
    engines = next(line for line in text.splitlines() if line.startswith("engines:"))
    changed = text.replace(engines, f"engines: [{', '.join(DEFAULT_ENGINES)}]")
    assert load_config(RECORDINGS / "triton.obs.yaml").scrape_interval == 5
    return parse_config(changed, "short times")
