"""Triton Inference Server: what its core serves for every model, whatever the backend.

Sources: triton-inference-server/core src/{metrics,metric_model_reporter,infer_stats,infer_response}.cc, and
scrapes of Triton 2.51 in tests/data/scrapes. Triton's counters carry no ``_total`` and its durations are
cumulative microseconds. ``since`` is the container release (YY.MM).
"""

from __future__ import annotations

from functools import partial

from obs.engines._missing import missing
from obs.model.metric import Engine, Histogram, MeanOf, Metric, Native, Summary

_METRICS_CC = "core:src/metrics.cc"
_REPORTER_CC = "core:src/metric_model_reporter.cc"
_LATENCIES = "--metrics-config counter_latencies=true (the default)"
_SUMMARIES = "--metrics-config summary_latencies=true"
_CACHE = "--cache-config and response_cache{enable:true} in the model's configuration"
_GPU = "--allow-gpu-metrics (the default) and DCGM"

# A KIND_GPU instance adds gpu_uuid; model namespacing adds namespace. Series that belong to the model and
# not to an instance never have gpu_uuid.
_instance = partial(Metric, labels=("model", "version"), optional_labels=("gpu_uuid", "namespace"),
                    evidence="captured", source=_METRICS_CC)
_model = partial(Metric, labels=("model", "version"), optional_labels=("namespace",))
_server = partial(Metric, evidence="captured", source=_METRICS_CC)
_gpu = partial(Metric, labels=("gpu_uuid",), enabled_by=_GPU, evidence="source", source=_METRICS_CC)

_SUCCESS = Native("nv_inference_request_success")


def _mean(total: str) -> MeanOf:
    """Mean per request from one of Triton's cumulative microsecond counters."""
    return MeanOf(Native(total, scale=1e-6), _SUCCESS,
                  note="Per successful request, answers from the response cache included.")


_SUMMARY_NOTE = ("One replica's quantiles over the last 60 s: NaN after 60 s without a request, "
                 "absent for models with a response cache.")

ENGINE = Engine(
    name="triton",
    title="Triton Inference Server",
    versions="Triton 2.x; since/until are container releases (YY.MM); captured at 2.51 (24.10)",
    model_label="model",
    version_label="version",
    metrics=(
        # --- requests -------------------------------------------------------------------------
        _instance("nv_inference_request_success", "counter", "requests",
                  "Requests answered; a Python-backend response that carries an error counts here too. "
                  "Frozen at 0 with counter_latencies=false."),
        _instance("nv_inference_request_failure", "counter", "requests",
                  "Requests failed, by reason (one series without reason before 24.08). A failed ensemble call "
                  "counts twice.",
                  labels=("model", "version", "reason"),
                  values={"reason": ("REJECTED", "CANCELED", "BACKEND", "OTHER")},
                  source="core a07169e"),
        _instance("nv_inference_count", "counter", "inferences",
                  "Inferences performed (batch elements), answers from the response cache left out."),
        _instance("nv_inference_exec_count", "counter", "batches",
                  "Model executions (batches), answers from the response cache left out."),
        _model("nv_inference_pending_request_count", "gauge", "requests",
               "Requests waiting to be executed; about 0 for backends that take a request at once, always 0 for "
               "ensembles.",
               since="23.09", evidence="captured", source="core c6c45ff"),
        _model("nv_model_load_duration_secs", "gauge", "s", "Time that the last load of the model took.",
               since="24.11", evidence="source", source="core 1962cce"),
        # --- durations: counters --------------------------------------------------------------
        *(_instance(name, "counter", "us", text, enabled_by=_LATENCIES, source="core:src/infer_stats.cc")
          for name, text in (
              ("nv_inference_request_duration_us",
               "Cumulative time from arrival to answer, successful requests only; for decoupled Python models it "
               "ends when execute() returns."),
              ("nv_inference_queue_duration_us", "Cumulative time in Triton's scheduler queue."),
              ("nv_inference_compute_input_duration_us", "Cumulative time preparing inputs; not on cache hits."),
              ("nv_inference_compute_infer_duration_us", "Cumulative time executing; not on cache hits."),
              ("nv_inference_compute_output_duration_us", "Cumulative time copying outputs; not on cache hits."),
          )),
        # --- durations: distributions ---------------------------------------------------------
        _model("nv_inference_first_response_histogram_ms", "histogram", "ms",
               "Time to the first response, errors included; the whole latency where the model answers once. "
               "Decoupled models only before 26.01.",
               since="24.11", enabled_by="--metrics-config histogram_latencies=true",
               buckets=(100.0, 500.0, 2000.0, 5000.0),
               evidence="source", source="core c815a13, 1d18c2b, d261b8d"),
        *(_instance(name, "summary", "us", text, since="23.05", enabled_by=_SUMMARIES, source=_REPORTER_CC)
          for name, text in (
              ("nv_inference_request_summary_us", "Quantiles of the request duration."),
              ("nv_inference_queue_summary_us", "Quantiles of the queue time."),
              ("nv_inference_compute_input_summary_us", "Quantiles of the time preparing inputs."),
              ("nv_inference_compute_infer_summary_us", "Quantiles of the time executing."),
              ("nv_inference_compute_output_summary_us", "Quantiles of the time copying outputs."),
          )),
        # --- response cache -------------------------------------------------------------------
        _instance("nv_cache_num_hits_per_model", "counter", "requests", "Response-cache hits.", enabled_by=_CACHE),
        _instance("nv_cache_num_misses_per_model", "counter", "requests", "Response-cache misses.",
                  enabled_by=_CACHE),
        _instance("nv_cache_hit_duration_per_model", "counter", "us", "Cumulative time of cache hits.",
                  enabled_by=_CACHE),
        _instance("nv_cache_miss_duration_per_model", "counter", "us",
                  "Cumulative time of cache misses, lookup and insertion.", enabled_by=_CACHE),
        _instance("nv_cache_hit_summary_per_model", "summary", "us", "Quantiles of the cache-hit time.",
                  since="23.05", enabled_by=f"{_CACHE}; {_SUMMARIES}", source=_REPORTER_CC),
        _instance("nv_cache_miss_summary_per_model", "summary", "us", "Quantiles of the cache-miss time.",
                  since="23.05", enabled_by=f"{_CACHE}; {_SUMMARIES}", source=_REPORTER_CC),
        *(_server(name, "gauge", unit, text, enabled_by="--cache-config")
          for name, unit, text in (
              ("nv_cache_util", "ratio", "Used part of the response cache, 0 to 1."),
              ("nv_cache_num_entries", "entries", "Responses in the response cache."),
              ("nv_cache_num_lookups", "lookups", "Lookups so far (a gauge that only grows)."),
              ("nv_cache_num_hits", "lookups", "Hits so far (a gauge that only grows)."),
              ("nv_cache_num_misses", "lookups", "Misses so far (a gauge that only grows)."),
              ("nv_cache_num_evictions", "entries", "Evictions so far (a gauge that only grows)."),
              ("nv_cache_lookup_duration", "us", "Time in lookups so far (a gauge that only grows)."),
              ("nv_cache_insertion_duration", "us", "Time in insertions so far (a gauge that only grows)."),
          )),
        # --- host -----------------------------------------------------------------------------
        _server("nv_cpu_utilization", "gauge", "ratio", "CPU use of the host, 0 to 1; Linux only.",
                enabled_by="--allow-cpu-metrics (the default)"),
        _server("nv_cpu_memory_total_bytes", "gauge", "bytes", "Memory of the host; Linux only.",
                enabled_by="--allow-cpu-metrics (the default)"),
        _server("nv_cpu_memory_used_bytes", "gauge", "bytes", "Memory in use on the host; Linux only.",
                enabled_by="--allow-cpu-metrics (the default)"),
        _server("nv_pinned_memory_pool_total_bytes", "gauge", "bytes", "Size of the pinned-memory pool.",
                since="24.02", source="core a6a0bc3"),
        _server("nv_pinned_memory_pool_used_bytes", "gauge", "bytes", "Pinned memory in use.",
                since="24.02", source="core a6a0bc3"),
        # --- GPU ------------------------------------------------------------------------------
        _gpu("nv_gpu_memory_total_bytes", "gauge", "bytes",
             "Framebuffer, reserved memory included; 0 while DCGM polls fail."),
        _gpu("nv_gpu_memory_used_bytes", "gauge", "bytes",
             "Framebuffer in use; 0 for up to three failed DCGM polls, then never updated again."),
        _gpu("nv_gpu_utilization", "gauge", "ratio", "Share of time in which a kernel ran, 0 to 1."),
        _gpu("nv_gpu_power_usage", "gauge", "W", "Power drawn."),
        _gpu("nv_gpu_power_limit", "gauge", "W", "Power limit."),
        _gpu("nv_energy_consumption", "counter", "J", "Energy used since the server started."),
    ),
    signals={
        **missing("A plain model has no engine loop of its own.", "engine_steps"),
        # A server without a model serves the families of the host and the GPU only.
        "server": (
            _SUCCESS,
            Native("nv_cpu_utilization"),
            Native("nv_pinned_memory_pool_total_bytes"),
            Native("nv_gpu_memory_total_bytes"),
        ),
        "model_loaded": (_SUCCESS,),
        "requests": (Native("nv_inference_request_success",
                            note="Python-backend responses that carry an error count as success."),),
        "request_failures": (Native("nv_inference_request_failure",
                                    note="Errors that a Python-backend model returns are not counted; a failed "
                                         "ensemble call counts twice."),),
        "inferences": (Native("nv_inference_count"),),
        "executions": (Native("nv_inference_exec_count"),),
        "cache_hits": (Native("nv_cache_num_hits_per_model"),),
        "cache_misses": (Native("nv_cache_num_misses_per_model"),),
        "request_latency_seconds": (
            Histogram("nv_inference_first_response_histogram_ms", 1e-3,
                      note="The whole latency where the model answers once; the first response where it is decoupled."),
            Summary("nv_inference_request_summary_us", 1e-6, note=_SUMMARY_NOTE),
            _mean("nv_inference_request_duration_us"),
        ),
        "first_response_seconds": (
            Histogram("nv_inference_first_response_histogram_ms", 1e-3,
                      note="Error responses count as first responses. Decoupled models only before 26.01."),
        ),
        "queue_time_seconds": (
            Summary("nv_inference_queue_summary_us", 1e-6, note=_SUMMARY_NOTE),
            _mean("nv_inference_queue_duration_us"),
        ),
        "compute_input_seconds": (
            Summary("nv_inference_compute_input_summary_us", 1e-6, note=_SUMMARY_NOTE),
            _mean("nv_inference_compute_input_duration_us"),
        ),
        "compute_infer_seconds": (
            Summary("nv_inference_compute_infer_summary_us", 1e-6, note=_SUMMARY_NOTE),
            _mean("nv_inference_compute_infer_duration_us"),
        ),
        "compute_output_seconds": (
            Summary("nv_inference_compute_output_summary_us", 1e-6, note=_SUMMARY_NOTE),
            _mean("nv_inference_compute_output_duration_us"),
        ),
        "pending_requests": (Native("nv_inference_pending_request_count",
                                    note="About 0 for vLLM and TensorRT-LLM models, which queue inside the engine."),),
        "gpu_memory_used_bytes": (Native("nv_gpu_memory_used_bytes"),),
        "gpu_memory_total_bytes": (Native("nv_gpu_memory_total_bytes",
                                          note="Reserved memory included, so the ratio reads lower than DCGM's."),),
        "gpu_utilization": (Native("nv_gpu_utilization"),),
        "gpu_power_watts": (Native("nv_gpu_power_usage"),),
        **missing("Triton has no sleep state: a model is loaded or it is not.", "sleeping"),
        **missing("Triton's core knows requests, not tokens or an engine's batch: an LLM backend reports its own.",
                  "time_to_first_token_seconds", "inter_token_latency_seconds", "requests_running",
                  "requests_waiting", "requests_paused", "kv_cache_usage", "generation_tokens", "prompt_tokens",
                  "preemptions", "prefix_cache_queries", "prefix_cache_hits", "kv_transfer_seconds",
                  "kv_transfer_failures"),
    },
    notes=(
        "No P99 by default: summaries are opt-in and per replica. The open upstream change core#474 would add "
        "nv_inference_{request,queue,compute_input,compute_infer,compute_output}_duration_histogram_us, among them "
        "nv_inference_request_duration_histogram_us, under histogram_latencies=true; no release serves them. "
        "counter_latencies=false freezes success, failure and counts at 0 as well. A model's metric_tags add labels "
        "named _<tag>. Always sum by (model, version): gpu_uuid splits a model's series."
    ),
)
