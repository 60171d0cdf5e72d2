"""Our own sidecar: per-pod scaling signals, and the readiness that Triton does not export.

The names are the contract of ``obs/sidecar``: the ``llm_*`` series carry only ``engine`` and ``model_name``, pod and
namespace come from the scrape. A signal that cannot be had is withheld, never reported as 0.
"""

from __future__ import annotations

from functools import partial

from obs.engines._missing import NO_GPU, missing
from obs.model.metric import Engine, Metric, Native

_ENGINES = ("vllm", "triton_vllm", "triton_trtllm", "trtllm_serve", "sglang")
_VALUES = {"engine": _ENGINES}
_model = partial(Metric, labels=("engine", "model_name"), values=_VALUES, evidence="documented",
                 source="obs/sidecar")
# Known before the first scrape, when the model's name is not.
_engine = partial(Metric, labels=("engine",), optional_labels=("model_name",), values=_VALUES,
                  evidence="documented", source="obs/sidecar")
_triton = partial(Metric, evidence="documented", source="obs/sidecar, from Triton's health and repository API")

_CAPACITY = "a decode capacity in the configuration or a profile"

ENGINE = Engine(
    name="sidecar",
    title="obs sidecar",
    versions="this release",
    model_label="model_name",
    captured=False,
    metrics=(
        # --- scaling --------------------------------------------------------------------------
        _model("llm_scaling_load_ratio", "gauge", "ratio",
               "Load over capacity at the SLO, 1 is full and more is possible: the signal to scale on."),
        _model("llm_kv_cache_usage_ratio", "gauge", "ratio",
               "Used part of the KV cache, 0 to 1: mean of 15 s, the fullest rank."),
        _model("llm_scaling_decode_demand_ratio", "gauge", "ratio", "Token demand over decode capacity.",
               enabled_by=_CAPACITY),
        _model("llm_scaling_kv_demand_ratio", "gauge", "ratio",
               "KV-cache usage with the waiting requests' need added; can exceed 1."),
        _model("llm_scaling_projected_load_ratio", "gauge", "ratio", "Load as it will be in 30 s."),
        # --- engine ---------------------------------------------------------------------------
        _model("llm_requests_running", "gauge", "requests", "Requests running, as reported or estimated."),
        _model("llm_requests_waiting", "gauge", "requests", "Requests waiting, as reported or estimated."),
        _model("llm_generation_tokens_total", "counter", "tokens",
               "Generated tokens, monotone over restarts of the engine."),
        _model("llm_prompt_tokens_total", "counter", "tokens", "Prompt tokens, monotone over restarts of the engine."),
        _model("llm_decode_throughput_tokens_per_second", "gauge", "tokens/s", "Generated tokens per second."),
        _model("llm_decode_throughput_ratio", "gauge", "ratio", "Throughput over decode capacity.",
               enabled_by=_CAPACITY),
        _model("llm_kv_cache_capacity_tokens", "gauge", "tokens", "KV-cache capacity."),
        _model("llm_kv_cache_used_tokens", "gauge", "tokens", "KV-cache tokens in use, as reported or estimated."),
        _model("llm_kv_cache_exhaustion_seconds", "gauge", "s",
               "Time until the KV cache is full at the present slope, 3600 at most; absent while it does not grow."),
        _model("llm_decode_capacity_tokens_per_second", "gauge", "tokens/s", "The decode capacity in use.",
               enabled_by=_CAPACITY),
        _model("llm_decode_capacity_info", "info", "1", "Where the decode capacity comes from.",
               labels=("engine", "model_name", "source"), values={**_VALUES, "source": ("config", "profile")},
               enabled_by=_CAPACITY),
        _model("llm_inter_token_latency_mean_seconds", "gauge", "s", "Mean inter-token latency of the last 15 s."),
        # --- health ---------------------------------------------------------------------------
        _engine("llm_engine_up", "gauge", "1", "Whether the last scrape of the engine is good and recent."),
        _engine("llm_engine_ready", "gauge", "1", "Whether the engine is ready and past its warm-up."),
        _engine("llm_signal_available", "gauge", "1", "Whether the signal is being served.",
                labels=("engine", "signal")),
        _engine("llm_signal_info", "info", "1", "Where a signal comes from, and why it is withheld.",
                labels=("engine", "signal", "source", "reason"),
                values={**_VALUES, "source": ("engine", "estimate", "config"),
                        "reason": ("", "down", "stale", "stalled", "warming", "missing_metric", "no_capacity",
                                   "no_history")}),
        _engine("llm_engine_restarts_total", "counter", "restarts", "Restarts of the engine that were noticed."),
        _engine("llm_sidecar_scrapes_total", "counter", "scrapes", "Scrapes of the engine by outcome.",
                labels=("engine", "outcome")),
        _engine("llm_sidecar_scrape_age_seconds", "gauge", "s", "Age of the last good scrape."),
        # --- Triton's readiness ---------------------------------------------------------------
        _triton("triton_server_ready", "gauge", "1", "Whether /v2/health/ready answers 200."),
        _triton("triton_model_ready", "gauge", "1", "Whether the model is READY.", labels=("model", "version")),
        _triton("triton_model_info", "info", "1", "The model's state in the repository index.",
                labels=("model", "version", "state", "reason"),
                values={"state": ("READY", "LOADING", "UNLOADING", "UNAVAILABLE", "UNKNOWN")}),
    ),
    signals={
        "server": (
            Native("llm_engine_up", note="Present means that the sidecar serves; the value tells of the engine."),
            Native("triton_server_ready", note="Present means that the sidecar serves; the value tells of Triton."),
        ),
        "requests_running": (Native("llm_requests_running"),),
        "requests_waiting": (Native("llm_requests_waiting"),),
        "kv_cache_usage": (Native("llm_kv_cache_usage_ratio"),),
        "generation_tokens": (Native("llm_generation_tokens_total"),),
        "prompt_tokens": (Native("llm_prompt_tokens_total"),),
        **NO_GPU,
        **missing("The sidecar keeps its series while the engine is down: llm_engine_ready and triton_model_ready "
                  "tell it by their value.", "model_loaded"),
        **missing("The sidecar exposes only the mean of 15 s (llm_inter_token_latency_mean_seconds), no "
                  "distribution.", "inter_token_latency_seconds"),
        **missing("The sidecar passes on what scaling needs; the engine itself exposes this, or nothing does.",
                  "sleeping", "requests", "request_failures", "inferences", "executions", "cache_hits",
                  "cache_misses", "request_latency_seconds", "first_response_seconds", "queue_time_seconds",
                  "compute_input_seconds", "compute_infer_seconds", "compute_output_seconds",
                  "time_to_first_token_seconds", "pending_requests", "requests_paused", "preemptions",
                  "prefix_cache_queries", "prefix_cache_hits", "kv_transfer_seconds", "kv_transfer_failures"),
    },
    notes="Absent means unknown; 0 is a known zero. Values are recomputed at each scrape and carry no timestamp.",
)
