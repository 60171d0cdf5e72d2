"""Our own sidecar: per-pod scaling signals, and the readiness that Triton does not export.

The names are the contract of ``obs/sidecar``: the ``llm_*`` series carry only ``engine`` and ``model_name``, pod and
namespace come from the scrape. A signal that cannot be had is withheld, never reported as 0.
"""

from __future__ import annotations

from functools import partial

from obs.engines._missing import NO_GPU, missing
from obs.model.metric import Engine, Metric, Native

_ENGINES = ("vllm", "triton_vllm", "triton_trtllm", "trtllm_serve", "sglang", "triton")
_VALUES = {"engine": (*_ENGINES, "unknown")}
_SOURCES = ("engine", "engine_at_finish", "iterations", "estimate", "config")
_WITHHELD = ("down", "stale", "not_ready", "sleeping", "stalled", "warming", "missing_metric", "invalid", "no_capacity",
             "calibrating", "no_history", "no_observations", "not_growing")
_FAILURES = ("refused", "timeout", "network", "tls", "redirect", "http_status", "too_large", "bad_encoding", "truncated",
             "empty", "html", "json", "garbled", "unknown_engine", "missing_family")
_model = partial(Metric, labels=("engine", "model_name"), values=_VALUES, evidence="documented",
                 source="obs/sidecar")
# Known before the first scrape, when the model's name is not.
_engine = partial(Metric, labels=("engine",), values=_VALUES, evidence="documented", source="obs/sidecar")
_own = partial(Metric, evidence="documented", source="obs/sidecar")
_triton = partial(Metric, evidence="documented", source="obs/sidecar, from Triton's health and repository API")

#: signal -> the engines (as in the label ``engine``) for which the sidecar's figure is computed from others: they hide it.
ESTIMATED = dict.fromkeys(("requests_running", "requests_waiting", "kv_cache_usage"), ("triton_vllm",))

_CAPACITY = "a decode capacity (--decode-capacity or --models-file, or learnt for --itl-objective)"

ENGINE = Engine(
    name="sidecar",
    title="obs sidecar",
    versions="this release",
    model_label="model_name",
    captured=False,
    metrics=(
        # --- scaling --------------------------------------------------------------------------
        _model("llm_scaling_load_ratio", "gauge", "ratio",
               "Load over capacity at the SLO: the larger of KV-cache usage and decode demand. "
               "1 is full; more is possible."),
        _model("llm_scaling_saturation_ratio", "gauge", "ratio",
               "The fullest of KV cache, waiting requests and slots, each over its target (0.8, 5 and 0.9 unless "
               "configured): grows with demand also when throughput no longer does. Means of 15 s."),
        _model("llm_scaling_decode_demand_ratio", "gauge", "ratio",
               "Token demand over decode capacity: (arrivals per second x mean answer length + waiting x mean answer "
               "length / 30 s) / capacity.", enabled_by=_CAPACITY),
        _model("llm_scaling_kv_demand_ratio", "gauge", "ratio",
               "KV-cache usage plus what the waiting requests will need (prompt and half an answer each) over the "
               "capacity in tokens; can exceed 1."),
        _model("llm_scaling_projected_load_ratio", "gauge", "ratio",
               "The signal to scale on: the load with its growth, that of the KV cache in the last 30 s drawn on for 30 s, "
               "that of arrivals in the last 60 s, as far as it is sure, for 120 s. 1 is full; more is possible."),
        _engine("llm_pod_load_ratio", "gauge", "ratio", "The highest llm_scaling_load_ratio of the pod's models."),
        _engine("llm_pod_projected_load_ratio", "gauge", "ratio",
                "The highest llm_scaling_projected_load_ratio of the pod's models."),
        _engine("llm_pod_saturation_ratio", "gauge", "ratio",
                "The highest llm_scaling_saturation_ratio of the pod's models."),
        # --- KV cache -------------------------------------------------------------------------
        _model("llm_kv_cache_usage_ratio", "gauge", "ratio",
               "Used part of the KV cache, 0 to 1: mean of 15 s of the fullest rank. Estimated for Triton's vLLM "
               "backend (see llm_signal_info)."),
        _model("llm_kv_cache_usage_mean_ratio", "gauge", "ratio",
               "Used part of the KV cache, 0 to 1: mean of 15 s and of all ranks."),
        _model("llm_kv_cache_capacity_tokens", "gauge", "tokens",
               "KV-cache capacity of all ranks, from the engine or the configuration."),
        _model("llm_kv_cache_used_tokens", "gauge", "tokens",
               "KV-cache tokens in use: the engine's figure, usage times capacity, or an estimate."),
        _model("llm_kv_cache_exhaustion_seconds", "gauge", "s",
               "Time until the KV cache is full at its slope of the last 60 s, 3600 at most; absent while it does not "
               "grow."),
        # --- requests -------------------------------------------------------------------------
        _model("llm_requests_running", "gauge", "requests",
               "Requests running in the last sample, all ranks. Estimated for Triton's vLLM backend: token rate x mean "
               "inter-token latency."),
        _model("llm_requests_waiting", "gauge", "requests",
               "Requests waiting in the engine in the last sample, all ranks. Estimated for Triton's vLLM backend: "
               "handed over and without a first token."),
        _model("llm_requests_waiting_by_reason", "gauge", "requests", "Requests waiting, by the engine's reason.",
               labels=("engine", "model_name", "reason")),
        _model("llm_request_slots", "gauge", "requests",
               "Most requests that run at once, from the engine or the configuration."),
        _model("llm_request_arrivals_per_second", "gauge", "requests/s",
               "Arrivals over 15 s: counted where the engine counts them, else what finished plus the growth of "
               "running and waiting requests."),
        # --- tokens ---------------------------------------------------------------------------
        _model("llm_generation_tokens_total", "counter", "tokens",
               "Generated tokens since the sidecar began, over restarts of the engine."),
        _model("llm_prompt_tokens_total", "counter", "tokens",
               "Prompt tokens since the sidecar began, cached ones included, over restarts of the engine."),
        _model("llm_preemptions_total", "counter", "preemptions",
               "Requests preempted since the sidecar began, over restarts of the engine."),
        _model("llm_decode_throughput_tokens_per_second", "gauge", "tokens/s",
               "Generated tokens per second over 15 s; over 60 s where the engine counts them when a request ends. The "
               "source is in llm_signal_info."),
        _model("llm_decode_throughput_instant_tokens_per_second", "gauge", "tokens/s",
               "Generated tokens per second between the last two samples."),
        _model("llm_decode_throughput_ratio", "gauge", "ratio",
               "Decode throughput over decode capacity. It levels off at saturation: scale on arrivals.",
               enabled_by=_CAPACITY),
        _model("llm_prefill_throughput_tokens_per_second", "gauge", "tokens/s",
               "Prompt tokens computed per second over 15 s, those from the prefix cache left out."),
        _model("llm_decode_capacity_tokens_per_second", "gauge", "tokens/s",
               "The decode capacity at the SLO that the ratios use, as configured or learnt.", enabled_by=_CAPACITY),
        _model("llm_decode_capacity_info", "info", "1", "Where the decode capacity comes from.",
               labels=("engine", "model_name", "source"), values={**_VALUES, "source": ("config", "profile", "calibrated")},
               enabled_by=_CAPACITY),
        # --- latency --------------------------------------------------------------------------
        _model("llm_time_to_first_token_mean_seconds", "gauge", "s", "Mean time to first token of the last 15 s."),
        _model("llm_inter_token_latency_mean_seconds", "gauge", "s", "Mean inter-token latency of the last 15 s."),
        _model("llm_request_latency_mean_seconds", "gauge", "s",
               "Mean latency of the requests that ended in the last 15 s."),
        # --- health ---------------------------------------------------------------------------
        _engine("llm_engine_up", "gauge", "1",
                "Whether the last good sample of the engine is within the max age; reason says what failed if not.",
                optional_labels=("reason",), values={**_VALUES, "reason": ("", *_FAILURES, "stale", "starting")}),
        _engine("llm_engine_ready", "gauge", "1",
                "Whether the engine says that it is ready (or nobody asks it) and two samples are in."),
        _engine("llm_engine_info", "info", "1", "The engine's version, as it says itself.",
                labels=("engine", "version")),
        _engine("llm_engine_vulnerable_info", "info", "1",
                "A known vulnerability that this version has (status affected), or that its version cannot rule out "
                "(unknown), by a small table; source says where that is known from.",
                labels=("engine", "id", "status", "source"), values={**_VALUES, "status": ("affected", "unknown")}),
        _model("llm_engine_suspect", "gauge", "1",
               "1 when requests are there and nothing has moved for many samples: the engine's figures are frozen and "
               "its signals withheld."),
        _engine("llm_signal_available", "gauge", "1", "Whether the signal is being served.",
                labels=("engine", "model_name", "signal")),
        _engine("llm_signal_info", "info", "1",
                "How a signal is derived (source), and why it is withheld (reason, empty when it is served).",
                labels=("engine", "model_name", "signal", "source"), optional_labels=("reason",),
                values={**_VALUES, "source": _SOURCES, "reason": ("", *_WITHHELD)}),
        _engine("llm_engine_restarts_total", "counter", "restarts",
                "Restarts of the engine (or reloads of a model) that were noticed: a counter fell and stayed low, or "
                "the process's start time changed."),
        _own("llm_sidecar_scrapes_total", "counter", "scrapes", "Scrapes of the engine by outcome.",
             labels=("outcome",), values={"outcome": ("ok", *_FAILURES)}),
        _own("llm_sidecar_scrape_age_seconds", "gauge", "s", "Age of the last good scrape; absent before the first."),
        _own("llm_sidecar_scrape_duration_seconds", "gauge", "s", "Time that the last scrape took, failed or not."),
        _own("llm_sidecar_skipped_scrapes_total", "counter", "scrapes",
             "Scrapes left out because the one before was not done."),
        _own("llm_sidecar_series", "gauge", "series", "Series of the last good scrape that the sidecar uses."),
        _own("llm_sidecar_dropped_models", "gauge", "models", "Models above the limit, which are not followed."),
        _own("llm_sidecar_build_info", "info", "1", "The sidecar's version.", labels=("version",)),
        # --- Triton ---------------------------------------------------------------------------
        _triton("triton_server_ready", "gauge", "1", "Whether /v2/health/ready answers 200."),
        _triton("triton_server_live", "gauge", "1", "Whether /v2/health/live answers 200."),
        _triton("triton_server_info", "info", "1", "Triton's version, and its model control mode as configured here.",
                labels=("version",), optional_labels=("control_mode",),
                values={"control_mode": ("", "none", "poll", "explicit")}),
        _triton("triton_model_ready", "gauge", "1",
                "Whether the model is READY in the repository index and says so itself.",
                labels=("model",), optional_labels=("version",)),
        _triton("triton_model_info", "info", "1", "The model's state in the repository index, and the server's reason.",
                labels=("model", "state"), optional_labels=("reason", "version"),
                values={"state": ("READY", "LOADING", "UNLOADING", "UNAVAILABLE", "UNKNOWN")}),
        _triton("triton_models_not_loaded", "gauge", "models",
                "Models or versions that the repository has and the server has not loaded."),
        _triton("triton_model_pending_requests", "gauge", "requests",
                "Requests that Triton holds for the model in the last sample; not for LLM backends, which take a "
                "request at once.", labels=("model", "version")),
        _triton("triton_model_queue_time_mean_seconds", "gauge", "s",
                "Mean time in Triton's queue of the requests answered since the sample before.",
                labels=("model", "version")),
        _triton("triton_model_batch_size_mean", "gauge", "inferences",
                "Mean batch size of the executions since the sample before.", labels=("model", "version")),
    ),
    signals={
        **missing("The sidecar judges progress itself: a stalled engine's signals are withheld.", "engine_steps"),
        "server": (
            Native("llm_engine_up", note="Present means that the sidecar serves; the value tells of the engine."),
            Native("triton_server_ready", note="Present means that the sidecar serves; the value tells of Triton."),
        ),
        "requests_running": (Native("llm_requests_running"),),
        "requests_waiting": (Native("llm_requests_waiting"),),
        "kv_cache_usage": (Native("llm_kv_cache_usage_ratio"),),
        "generation_tokens": (Native("llm_generation_tokens_total"),),
        "prompt_tokens": (Native("llm_prompt_tokens_total"),),
        "preemptions": (Native("llm_preemptions_total"),),
        **NO_GPU,
        **missing("The sidecar keeps its series while the engine is down: llm_engine_ready and triton_model_ready "
                  "tell it by their value.", "model_loaded"),
        **missing("The sidecar exposes only the mean of 15 s (llm_inter_token_latency_mean_seconds), no "
                  "distribution.", "inter_token_latency_seconds"),
        **missing("The sidecar passes on what scaling needs; the engine itself exposes this, or nothing does.",
                  "sleeping", "requests", "request_failures", "inferences", "executions", "cache_hits",
                  "cache_misses", "request_latency_seconds", "first_response_seconds", "queue_time_seconds",
                  "compute_input_seconds", "compute_infer_seconds", "compute_output_seconds",
                  "time_to_first_token_seconds", "pending_requests", "requests_paused",
                  "prefix_cache_queries", "prefix_cache_hits", "kv_transfer_seconds", "kv_transfer_failures"),
    },
    notes="Absent means unknown; 0 is a known zero. Values are recomputed at each scrape and carry no timestamp.",
)
