"""Every number the pack compares with, once, with its reason. ``obs.yaml`` overrides any of them.

Values are in base units: seconds, ratios (0 to 1), requests, tokens, per second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Quantity = Literal["duration", "ratio", "number", "factor"]
Section = Literal["slo", "limits", "windows", "gate"]


@dataclass(frozen=True)
class Limit:
    """One number. ``section`` and ``key`` are its place in ``obs.yaml``; ``low``/``high`` bound it.

    ``default`` is ``None`` where nothing is assumed until the user declares it.
    """

    section: Section
    key: str
    quantity: Quantity
    default: float | None
    why: str
    low: float = 0.0
    high: float = float("inf")
    signal: str = ""
    """The distribution signal whose quantile or mean it bounds; lint holds it against that signal's buckets."""
    alone: Mapping[str, float] = field(default_factory=dict, compare=False)
    """engine → the default where it is the only LLM engine: its histogram has no bound at ``default``."""

    @property
    def path(self) -> str:
        return f"{self.section}.{self.key}"


LIMITS: tuple[Limit, ...] = (
    # --- service level objectives; each may be set per model under models.<name> -------------------
    Limit("slo", "queue_time", "duration", 0.1,
          "mean wait per request; a server that keeps up waits for one batch (milliseconds)", 0.001, 3600.0),
    Limit("slo", "queue_time_p99", "duration", 0.2,
          "P99 wait: two mean limits; the real recorded overload read 0.24 to 0.26 s, its steady phase 0.014 s",
          0.001, 3600.0, "queue_time_seconds"),
    Limit("slo", "llm_queue_time", "duration", 1.0,
          "mean wait inside an LLM engine: admission takes whole engine steps, and TTFT allows 2.5 s",
          0.01, 3600.0),
    Limit("slo", "llm_queue_time_p99", "duration", 2.5,
          "P99 wait inside an LLM engine: the TTFT limit, and a bucket bound of vLLM",
          0.01, 3600.0, "queue_time_seconds", {"sglang": 2.0}),
    Limit("slo", "latency_p99", "duration", 0.5,
          "P99 of a whole request on a plain backend; a bucket bound of Triton's first-response histogram",
          0.001, 3600.0, "request_latency_seconds"),
    Limit("slo", "llm_latency_p99", "duration", 30.0,
          "P99 of a whole generation; a bucket bound of vLLM and of Triton's vLLM backend (whose top bound is 60 s)",
          0.1, 7200.0, "request_latency_seconds", {"sglang": 40.0}),
    Limit("slo", "ttft_p99", "duration", 2.5,
          "P99 time to first token that a person at a prompt bears; a bucket bound of every vLLM dialect",
          0.001, 600.0, "time_to_first_token_seconds", {"sglang": 2.0}),
    Limit("slo", "itl_p99", "duration", 0.2,
          "P99 gap between outputs: five a second is slower than people read; a bucket bound of every vLLM dialect",
          0.001, 60.0, "inter_token_latency_seconds"),
    Limit("slo", "availability", "ratio", None,
          "share of requests answered; burn-rate alerts exist only for models that declare it", 0.5, 0.99999),
    Limit("slo", "latency_objective", "ratio", None,
          "share of requests under the P99 limit; burn-rate alerts exist only for models that declare it",
          0.5, 0.99999),
    # --- thresholds ----------------------------------------------------------------------------
    Limit("limits", "request_rate_floor", "number", 0.01,
          "requests/s below which a ratio or a mean says nothing: 3 requests in 5 minutes", 0.0, 1e6),
    Limit("limits", "gpu_memory", "ratio", 0.9,
          "used/total on a backend that allocates on demand: the next large batch may not fit", 0.1, 1.0),
    Limit("limits", "gpu_memory_preallocated", "ratio", 0.92,
          "what an LLM engine takes at start: vLLM's gpu_memory_utilization default since 0.20", 0.1, 1.0),
    Limit("limits", "gpu_memory_margin", "ratio", 0.05,
          "above the preallocation target only something else on the GPU can grow", 0.0, 0.5),
    Limit("limits", "failure_ratio", "ratio", 0.05,
          "failed requests among all; under 1 in 20 retries hide it", 0.0001, 1.0),
    Limit("limits", "cancel_ratio", "ratio", 0.2,
          "cancelled requests among all: clients give up when they wait too long", 0.001, 1.0),
    Limit("limits", "aborted_ratio", "ratio", 0.1,
          "requests that got a first token and never finished, among those started", 0.001, 1.0),
    Limit("limits", "traffic_drop", "ratio", 0.2,
          "part of the baseline below which traffic counts as dropped; day-night swings stay above it", 0.001, 0.95),
    Limit("limits", "traffic_floor", "number", 0.1,
          "baseline in requests/s below which a drop is noise: 6 a minute", 0.0, 1e6),
    Limit("limits", "pending_floor", "number", 20.0,
          "pending requests below which growth is jitter", 0.0, 1e6),
    Limit("limits", "pending_growth", "factor", 1.5,
          "growth against one growth window ago that means arrivals outrun the server", 1.01, 100.0),
    Limit("limits", "waiting_floor", "number", 10.0,
          "waiting LLM requests below which growth is jitter", 0.0, 1e6),
    Limit("limits", "kv_usage", "ratio", 0.9,
          "KV blocks in use; saturation only together with waiting or preemption (a full batch runs at 0.98)",
          0.1, 1.0),
    Limit("limits", "waiting_demand", "number", 1.0,
          "requests waiting on one server on average that count as demand; less is the scheduler's jitter", 0.01, 1e6),
    Limit("limits", "kv_transfer_failures", "ratio", 0.01,
          "failed KV transfers among all: each is a recomputed or lost request", 0.0001, 1.0),
    Limit("limits", "kv_low", "ratio", 0.6,
          "KV use below which a growing wait is due to prefill or slots, not memory", 0.05, 0.99),
    Limit("limits", "preemption_rate", "number", 0.05,
          "preemptions/s of one replica, its ranks together: one in 20 s, each recomputes a whole prompt", 0.0, 1e6),
    Limit("limits", "rank_imbalance", "ratio", 0.4,
          "gap in KV use between the fullest and emptiest data-parallel rank of one server", 0.05, 1.0),
    Limit("limits", "decode_collapse", "ratio", 0.5,
          "part of its recent decode throughput that an engine still reaches at the same load", 0.01, 0.95),
    Limit("limits", "decode_floor", "number", 10.0,
          "baseline tokens/s below which decode throughput is not compared", 0.0, 1e9),
    Limit("limits", "prefix_hit_drop", "ratio", 0.5,
          "part of its recent prefix-cache hit ratio that is left", 0.01, 0.95),
    Limit("limits", "prefix_hit_floor", "ratio", 0.1,
          "baseline hit ratio below which the cache did not matter anyway", 0.0, 1.0),
    Limit("limits", "prefix_query_floor", "number", 100.0,
          "prompt tokens/s looked up below which the hit ratio is noise", 0.0, 1e9),
    Limit("limits", "kv_transfer_time", "duration", 1.0,
          "mean KV transfer between prefill and decode servers; it adds to every time to first token", 0.001, 600.0),
    Limit("limits", "beyond_buckets", "ratio", 0.01,
          "share of observations above the top bucket: more than this and the P99 is cut off", 0.0001, 1.0),
    Limit("limits", "target_changes", "number", 4.0,
          "changes of up in the flap window: two outages", 2.0, 1e3),
    Limit("limits", "burn_errors", "number", 5.0,
          "bad requests in the long window below which no budget alert fires: one failure in a quiet hour is no trend",
          0.0, 1e9),
    Limit("limits", "replica_majority", "ratio", 0.5,
          "share of a job's servers that hold a model from which the others are expected to", 0.01, 1.0),
    # --- windows -------------------------------------------------------------------------------
    Limit("windows", "rate", "duration", 300.0,
          "range of rate(); at least 4 scrapes, so that two lost ones leave a result", 1.0, 3600.0),
    Limit("windows", "growth", "duration", 600.0, "how far back growth is compared", 1.0, 86400.0),
    Limit("windows", "idle", "duration", 1800.0, "no execution for this long is idle", 10.0, 604800.0),
    Limit("windows", "baseline", "duration", 3600.0, "length of the recent past that traffic is compared with",
          10.0, 604800.0),
    Limit("windows", "baseline_gap", "duration", 900.0,
          "how far before now the baseline ends, so that a drop does not become its own baseline", 0.0, 86400.0),
    Limit("windows", "season", "duration", 7200.0,
          "span around the same time before whose median traffic is compared: an outage then shorter than half of it "
          "does not count", 10.0, 86400.0),
    Limit("windows", "stuck", "duration", 600.0, "no token and no change of a busy gauge for this long is a hang",
          10.0, 86400.0),
    Limit("windows", "vanish", "duration", 3600.0, "how long a vanished model or GPU is reported", 10.0, 604800.0),
    Limit("windows", "known", "duration", 21600.0,
          "how long a server that once answered is remembered when selectors.jobs does not name its job",
          10.0, 604800.0),
    Limit("windows", "startup", "duration", 1800.0,
          "how long an engine may take to come up the first time: large models load for many minutes", 10.0, 86400.0),
    Limit("windows", "flap", "duration", 900.0, "in which target changes are counted", 10.0, 86400.0),
    Limit("windows", "aborts", "duration", 900.0, "in which started and finished requests are balanced",
          10.0, 86400.0),
    # --- canary gate: the canary may be at most factor times the baseline, or under the floor; and never over max --
    Limit("gate", "min_requests", "number", 100.0,
          "requests on each side below which nothing is judged: the P99 of fewer is their slowest one", 1.0, 1e9),
    Limit("gate", "confidence", "ratio", 0.99,
          "certainty (one-sided) with which errors, and a histogram's P99, must be worse to fail; a watch looks often, "
          "so 95 % would fail sound canaries", 0.5, 0.99999),
    Limit("gate", "error_ratio_factor", "factor", 1.5,
          "error ratio against the baseline's; less than half as many again is no reason to stop a release", 1.0, 100.0),
    Limit("gate", "error_ratio_floor", "ratio", 0.001,
          "error ratio that passes whatever the baseline has: 1 in 1000, else a baseline of 0 forbids every error",
          0.0, 1.0),
    Limit("gate", "error_ratio_max", "ratio", None,
          "error ratio that no canary may exceed; not declared: limits.failure_ratio, where the alert fires", 0.0001, 1.0),
    Limit("gate", "queue_time_factor", "factor", 1.5,
          "mean wait against the baseline's; waiting grows steeply with load, so small differences are noise", 1.0, 100.0),
    Limit("gate", "queue_time_floor", "duration", 0.01,
          "mean wait that passes whatever the baseline has: a tenth of slo.queue_time", 0.0, 3600.0),
    Limit("gate", "queue_time_max", "duration", None,
          "mean wait that no canary may exceed; not declared: slo.queue_time, for LLM engines slo.llm_queue_time",
          0.001, 3600.0),
    Limit("gate", "latency_p99_factor", "factor", 1.2,
          "P99 latency against the baseline's; a fifth is about what interpolation within a bucket is worth", 1.0, 100.0),
    Limit("gate", "latency_p99_floor", "duration", 0.02,
          "P99 latency that passes whatever the baseline has: below it the network decides", 0.0, 3600.0),
    Limit("gate", "latency_p99_max", "duration", None,
          "P99 latency that no canary may exceed; not declared: slo.latency_p99, for LLM engines slo.llm_latency_p99",
          0.001, 7200.0),
    Limit("gate", "ttft_p99_factor", "factor", 1.2,
          "P99 time to first token against the baseline's; as latency_p99_factor", 1.0, 100.0),
    Limit("gate", "ttft_p99_floor", "duration", 0.05,
          "P99 time to first token that passes whatever the baseline has: nobody sees less", 0.0, 600.0),
    Limit("gate", "ttft_p99_max", "duration", None,
          "P99 time to first token that no canary may exceed; not declared: slo.ttft_p99", 0.001, 600.0),
    Limit("gate", "itl_p99_factor", "factor", 1.2,
          "P99 gap between outputs against the baseline's; as latency_p99_factor", 1.0, 100.0),
    Limit("gate", "itl_p99_floor", "duration", 0.02,
          "P99 gap between outputs that passes whatever the baseline has: 50 outputs a second", 0.0, 60.0),
    Limit("gate", "itl_p99_max", "duration", None,
          "P99 gap between outputs that no canary may exceed; not declared: slo.itl_p99", 0.001, 60.0),
    Limit("gate", "throughput_factor", "ratio", 0.9,
          "throughput per request that the canary must reach, as part of the baseline's", 0.01, 1.0),
    Limit("gate", "throughput_min", "number", None,
          "throughput per request (tokens/s, or inferences/s of computing) that a canary must reach", 0.0, 1e9),
)

BY_PATH = {limit.path: limit for limit in LIMITS}

#: Offsets of "the same time before" (seconds): yesterday and last week.
SEASONS: tuple[float, ...] = (86400.0, 604800.0)


@dataclass(frozen=True)
class BurnWindow:
    """One pair of windows of a multi-window burn-rate alert (Google SRE Workbook, chapter 5, table 5-8).

    Fires while the error budget burns ``factor`` times faster than it lasts, over ``long`` and ``short`` seconds.
    """

    long: float
    short: float
    factor: float
    severity: Literal["critical", "warning"]


BURN_WINDOWS: tuple[BurnWindow, ...] = (
    BurnWindow(3600.0, 300.0, 14.4, "critical"),
    BurnWindow(21600.0, 1800.0, 6.0, "critical"),
    BurnWindow(259200.0, 21600.0, 1.0, "warning"),
)
