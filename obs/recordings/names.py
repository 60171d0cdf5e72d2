"""The recorded series: their names, and the label sets that each level keeps.

``<level>:<signal>:<operation>``. The range of a rate is not part of the name: it is derived from the scrape
interval (``obs config --show``), and dashboards must not break when that changes.
"""

from __future__ import annotations

from dataclasses import dataclass

from obs.catalog.signals import BY_NAME
from obs.config import Config
from obs.errors import DeclarationError

OPERATIONS = {
    "counter": ("rate", "baseline", "changes", "ratio"),
    "gauge": ("sum", "max", "mean", "baseline"),
    "distribution": ("p50", "p99", "mean", "rate", "bucket_rate"),
    "presence": ("present", "count"),
}

#: Recorded quantities that are computed from several signals: name -> help.
DERIVED = {
    "request_attempts": "requests answered or failed, whatever the reason",
    "request_failures": "failed requests, cancelled ones left out",
    "request_cancellations": "requests cancelled by their clients",
    "batch_size": "inferences per model execution",
    "gpu_memory_usage": "used part of a GPU's memory",
    "gpus": "number of GPUs that a Triton server reports",
    "preallocates": "a model here belongs to an engine that takes its GPU memory at start",
    "latency_source": "the server exports a source for the request P99",
    "prefix_cache_hit": "part of the looked-up prompt tokens that were cached",
    "frozen_counters": "latencies observed by models whose request counters stand at 0",
    "http_requests": "HTTP requests seen by the API server, by status class",
    "beyond_top_bucket": "share of observations above the largest finite bucket bound",
    "rank_imbalance": "gap in KV use between the data-parallel ranks of one server",
    "requests_running_estimate": "requests running, estimated where the engine does not count them",
    "latency_errors": "requests over the latency limit of their model",
    "latency_judged": "requests of which the histogram tells whether they kept the latency limit of their model",
}


def series(level: str, name: str, operation: str) -> str:
    """``level:name:operation`` for a signal or derived quantity of the catalogue; ``KeyError`` for another."""
    if name not in DERIVED and name not in BY_NAME:
        raise DeclarationError(
            f"obs/recordings/names.py: {name!r} is neither a signal of obs/catalog/signals.py nor declared there; declare it"
        )
    if name not in DERIVED and operation not in OPERATIONS[BY_NAME[name].shape]:
        raise DeclarationError(
            f"obs/recordings/names.py: the signal {name!r} is not recorded as :{operation}; take "
            f"{', '.join(f':{one}' for one in OPERATIONS[BY_NAME[name].shape])}, or declare it there"
        )
    return f"{level}:{name}:{operation}"


@dataclass(frozen=True)
class Labels:
    """The label sets of the levels, in the order they are written."""

    job: tuple[str, ...]
    instance: tuple[str, ...]
    model: tuple[str, ...]
    """per model and version"""
    model_name: tuple[str, ...]
    """per model, its versions together"""
    gpu: tuple[str, ...]
    """per physical GPU, or per MIG slice where dcgm-exporter reports slices"""

    @property
    def instance_model(self) -> tuple[str, ...]:
        return (*self.instance, "model", "version")


def labels(config: Config) -> Labels:
    base = (config.cluster, config.namespace)
    return Labels(
        job=(*base, "job"),
        instance=(*base, config.pod, "job", "instance"),
        model=(*base, "job", "model", "version"),
        model_name=(*base, "job", "model"),
        gpu=(config.cluster, "gpu_uuid", "GPU_I_ID"),
    )
