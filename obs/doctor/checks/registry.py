"""Every check, once: one line per module, in the order in which they run."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Protocol

from obs.doctor.checks import (
    alertmanager,
    backend_library,
    blind_spots,
    cache_metrics,
    clock,
    config_readable,
    config_refused,
    control_mode,
    counters_frozen,
    custom_metrics,
    dead_alerts,
    double_scrape,
    dropped_metrics,
    gpu_metrics,
    instance_memory,
    labels,
    latency_source,
    llm_batching,
    metrics_interval,
    metrics_page,
    model_name,
    pinned_memory,
    python_environment,
    rate_limiter,
    release,
    rules_failing,
    rules_loaded,
    rules_slow,
    scrape_interval,
    scrape_target,
    server_ready,
    sidecar,
    trtllm_settings,
    versions,
    vllm_arguments,
    vllm_server,
    vulnerable,
)
from obs.doctor.facts import Facts
from obs.doctor.finding import Finding


class Check(Protocol):
    """A module of this package: ``ID``, a docstring that explains it, and ``check``."""

    ID: str

    def check(self, facts: Facts) -> Iterable[Finding]: ...


CHECKS: tuple[Check, ...] = (
    server_ready,
    vulnerable,
    release,
    metrics_page,
    counters_frozen,
    latency_source,
    custom_metrics,
    gpu_metrics,
    cache_metrics,
    pinned_memory,
    metrics_interval,
    dead_alerts,
    blind_spots,
    control_mode,
    config_readable,
    config_refused,
    model_name,
    versions,
    backend_library,
    python_environment,
    llm_batching,
    trtllm_settings,
    vllm_arguments,
    instance_memory,
    rate_limiter,
    vllm_server,
    scrape_target,
    scrape_interval,
    double_scrape,
    labels,
    dropped_metrics,
    rules_loaded,
    rules_failing,
    rules_slow,
    alertmanager,
    clock,
    sidecar,
)

IDS: tuple[str, ...] = tuple(one.ID for one in CHECKS)


def explanation(check: Check) -> str:
    """A check's docstring: what it holds, why that matters, and the mend."""
    return inspect.cleandoc(check.__doc__ or "")


def run(facts: Facts) -> list[Finding]:
    """All findings, the worst first."""
    return sorted({one for check in CHECKS for one in check.check(facts)}, key=lambda one: one.key)
