"""trtllm-serve: TensorRT-LLM's own OpenAI server, on ``/prometheus/metrics`` (its ``/metrics`` is JSON).

Sources: TensorRT-LLM:tensorrt_llm/metrics/collector.py (commits of 2025-08 and 2026) and serve/openai_server.py.
The ``trtllm_`` prefix came in between, in a release not established: both spellings are listed.
"""

from __future__ import annotations

from functools import partial

from obs.engines._missing import NO_GPU, NO_TRITON_PHASES, missing
from obs.engines.vllm import REQUEST_TIME_BOUNDS, TOKEN_TIME_BOUNDS, TTFT_BOUNDS
from obs.model.metric import Engine, Histogram, Metric, Native, Quotient

_LABELS = ("model_name", "engine_type")
_PERF = "return_perf_metrics: true"
_ITERATION = "return_perf_metrics: true and enable_iter_perf_stats: true"
_COLLECTOR = "TensorRT-LLM:tensorrt_llm/metrics/collector.py"
_PR_12545 = f"{_COLLECTOR}, PR #12545 (2026-03, after 1.3.0rc9)"
_PR_12636 = f"{_COLLECTOR}, PR #12636 (after #12545)"
_PR_12132 = f"{_COLLECTOR}, PR #12132"
_PR_12413 = f"{_COLLECTOR}, PR #12413"
_FINISHED = ("stop", "length", "timeout", "cancelled")

# The registry is multiprocess, so gauges can carry pid.
_request = partial(Metric, labels=_LABELS, enabled_by=_PERF, evidence="documented",
                   source=_COLLECTOR)
_gauge = partial(Metric, kind="gauge", labels=_LABELS, optional_labels=("pid",), enabled_by=_ITERATION,
                 evidence="documented", source=_PR_12545)
_iteration_counter = partial(Metric, kind="counter", labels=_LABELS, enabled_by=_ITERATION,
                             evidence="documented")


def _both(name: str, help: str, buckets: tuple[float, ...]) -> tuple[Metric, Metric]:
    """A histogram under its prefixed name and under the bare one of the 1.1 line."""
    return (
        _request(f"trtllm_{name}", "histogram", "s", help, buckets=buckets),
        _request(name, "histogram", "s", help, since="1.1", renamed_to=f"trtllm_{name}", buckets=buckets),
    )


def _histograms(name: str, note: str = "") -> tuple[Histogram, Histogram]:
    return (Histogram(f"trtllm_{name}", note=note), Histogram(name, note="Without prefix in the 1.1 line."))


ENGINE = Engine(
    name="trtllm-serve",
    title="TensorRT-LLM (trtllm-serve)",
    versions="TensorRT-LLM 1.1 to 1.3 read in source, not run",
    model_label="model_name",
    own='engine_type!=""',
    captured=False,
    preallocates_gpu_memory=True,
    metrics=(
        # --- per request, recorded when it ends -----------------------------------------------
        _request("trtllm_request_success_total", "counter", "requests", "Requests finished, whatever the reason.",
                 labels=(*_LABELS, "finished_reason"), values={"finished_reason": _FINISHED}),
        _request("request_success_total", "counter", "requests", "Requests finished, whatever the reason.",
                 labels=(*_LABELS, "finished_reason"), values={"finished_reason": _FINISHED},
                 since="1.1", renamed_to="trtllm_request_success_total"),
        *_both("e2e_request_latency_seconds", "Time from arrival to complete answer.", REQUEST_TIME_BOUNDS),
        *_both("time_to_first_token_seconds", "Time to first token.", TTFT_BOUNDS),
        *_both("time_per_output_token_seconds", "Mean time per output token of each request.", TOKEN_TIME_BOUNDS),
        *_both("request_queue_time_seconds", "Time in the WAITING phase.", REQUEST_TIME_BOUNDS),
        _request("trtllm_request_prefill_time_seconds", "histogram", "s",
                 "Time from first scheduling to the first token.", source=_PR_12545,
                 buckets=(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0,
                          160.0, 640.0, 2560.0)),
        _request("trtllm_request_decode_time_seconds", "histogram", "s", "Time from the first to the last token.",
                 source=_PR_12545, buckets=REQUEST_TIME_BOUNDS),
        _request("trtllm_request_inference_time_seconds", "histogram", "s",
                 "Time from first scheduling to the last token.", source=_PR_12545,
                 buckets=REQUEST_TIME_BOUNDS),
        _request("trtllm_prompt_tokens_total", "counter", "tokens",
                 "Prompt tokens, counted at finish; suppressed when n > 1.", source=_PR_12545),
        _request("trtllm_generation_tokens_total", "counter", "tokens",
                 "Generated tokens, counted at finish; suppressed when n > 1.", source=_PR_12545),
        _request("trtllm_prompt_cached_tokens_total", "counter", "tokens", "Prompt tokens found in the KV cache.",
                 source=_PR_12636),
        _request("trtllm_request_error_total", "counter", "requests", "Request errors by HTTP status.",
                 labels=(*_LABELS, "http_code"), source=_PR_12636),
        # --- iteration stats: refreshed only when a request ends ---------------------------------
        _gauge("trtllm_kv_cache_utilization", unit="ratio", help="Used part of the KV cache, 0 to 1.",
               since="1.3.0rc5", source=f"{_COLLECTOR}, PR #11243"),
        _gauge("trtllm_kv_cache_hit_rate", unit="ratio", help="KV-cache hit rate, 0 to 1.",
               since="1.3.0rc5", source=f"{_COLLECTOR}, PR #11243"),
        *(_gauge(name, unit=unit, help=text)
          for name, unit, text in (
              ("trtllm_num_requests_running", "requests", "Active requests."),
              ("trtllm_num_requests_waiting", "requests", "Requests in the executor's queue (numQueuedRequests)."),
              ("trtllm_num_context_requests", "requests", "Requests in prefill."),
              ("trtllm_num_generation_requests", "requests", "Requests in decode."),
              ("trtllm_num_paused_requests", "requests", "Requests paused for lack of KV cache."),
              ("trtllm_num_scheduled_requests", "requests", "Requests scheduled in the iteration."),
              ("trtllm_max_num_active_requests", "requests", "Most requests that can be active."),
              ("trtllm_kv_cache_max_blocks", "blocks", "KV-cache blocks."),
              ("trtllm_kv_cache_free_blocks", "blocks", "KV-cache blocks free."),
              ("trtllm_kv_cache_used_blocks", "blocks", "KV-cache blocks in use."),
              ("trtllm_kv_cache_tokens_per_block", "tokens", "Tokens per KV-cache block."),
              ("trtllm_gpu_memory_usage_bytes", "bytes", "GPU memory of the runtime."),
              ("trtllm_cpu_memory_usage_bytes", "bytes", "Host memory of the runtime."),
              ("trtllm_pinned_memory_usage_bytes", "bytes", "Pinned memory of the runtime."),
              ("trtllm_iteration_latency_seconds", "s", "Time of the last iteration."),
              ("trtllm_max_batch_size_static", "requests", "Batch size built for."),
              ("trtllm_max_batch_size_runtime", "requests", "Batch size in force."),
          )),
        _gauge("trtllm_prefill_batch_occupancy", unit="ratio", help="Requests in prefill over the active maximum.",
               source=_PR_12636),
        _gauge("trtllm_kv_cache_iter_reuse_rate", unit="ratio", help="KV-block reuse of the last iteration.",
               source=_PR_12413),
        Metric("trtllm_prefill_batch_tokens", "histogram", "tokens", "Prefill tokens per iteration.",
               labels=_LABELS, enabled_by=_ITERATION, evidence="documented",
               buckets=(64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0, 32768.0),
               source=_PR_12636),
        *(_iteration_counter(name, unit=unit, help=text, source=source)
          for name, unit, text, source in (
              ("trtllm_num_requests_completed_total", "requests",
               "Requests completed; loses all but one iteration per drain.", _PR_12545),
              ("trtllm_spec_decode_num_draft_tokens_total", "tokens", "Tokens drafted; undercounts likewise.",
               _PR_12545),
              ("trtllm_spec_decode_num_accepted_tokens_total", "tokens",
               "Drafted tokens accepted; undercounts likewise.", _PR_12545),
              ("trtllm_kv_cache_reused_blocks_total", "blocks", "KV blocks reused.", _PR_12132),
              ("trtllm_kv_cache_missed_blocks_total", "blocks", "KV blocks missed.", _PR_12132),
              ("trtllm_kv_cache_iter_reused_blocks_total", "blocks", "KV blocks reused, full and partial.",
               _PR_12413),
              ("trtllm_kv_cache_iter_full_reused_blocks_total", "blocks", "KV blocks reused in full.", _PR_12413),
              ("trtllm_kv_cache_iter_partial_reused_blocks_total", "blocks", "KV blocks reused in part.",
               _PR_12413),
              ("trtllm_kv_cache_iter_missed_blocks_total", "blocks", "KV blocks missed in prefill.", _PR_12413),
              ("trtllm_kv_cache_onboard_bytes_total", "bytes", "KV bytes moved from host to GPU.", _PR_12413),
              ("trtllm_kv_cache_offload_bytes_total", "bytes", "KV bytes moved from GPU to host.", _PR_12413),
          )),
        # Their labels are the configuration's keys, whatever the release puts there.
        *(_request(f"trtllm_{subject}_config_info", "info", "1", f"The {subject} configuration as labels.",
                   source=_PR_12545)
          for subject in ("model", "parallel", "speculative", "kv_cache")),
    ),
    signals={
        **missing("Only the newest step is described, when a request finishes.", "engine_steps"),
        "server": (Native("trtllm_request_success_total"), Native("trtllm_num_requests_running"),
                   Native("request_success_total")),
        "model_loaded": (Native("trtllm_request_success_total"), Native("trtllm_num_requests_running"),
                         Native("request_success_total")),
        "requests": (
            Native("trtllm_request_success_total", matchers='finished_reason!~"timeout|cancelled"'),
            Native("request_success_total", matchers='finished_reason!~"timeout|cancelled"'),
        ),
        "request_failures": (Native("trtllm_request_error_total",
                                    note="Since PR #12636; http_code tells the reason."),),
        "request_latency_seconds": _histograms("e2e_request_latency_seconds"),
        "queue_time_seconds": _histograms("request_queue_time_seconds",
                                          note="Recorded at finish; reads 0.297 s at P99 when nothing waits."),
        "time_to_first_token_seconds": _histograms("time_to_first_token_seconds"),
        "requests_running": (Native("trtllm_num_requests_running"),),
        "requests_waiting": (Native("trtllm_num_requests_waiting",
                                    note="Refreshed only when a request ends: frozen during a hang."),),
        "requests_paused": (Native("trtllm_num_paused_requests"),),
        "kv_cache_usage": (
            Native("trtllm_kv_cache_utilization", note="Refreshed only when a request ends: frozen during a hang."),
            Quotient(Native("trtllm_kv_cache_used_blocks"), Native("trtllm_kv_cache_max_blocks")),
        ),
        "generation_tokens": (Native("trtllm_generation_tokens_total", note="Counted when a request ends."),),
        "prompt_tokens": (Native("trtllm_prompt_tokens_total", note="Counted when a request ends."),),
        "prefix_cache_queries": (Native("trtllm_prompt_tokens_total",
                                        note="Every prompt token is looked up; counted when a request ends."),),
        "prefix_cache_hits": (Native("trtllm_prompt_cached_tokens_total", note="Since PR #12636."),),
        **NO_TRITON_PHASES,
        **NO_GPU,
        **missing("trtllm-serve exposes no sleep state.", "sleeping"),
        **missing("Tokens stream from the first one on: see time_to_first_token_seconds.", "first_response_seconds"),
        **missing("Only the mean per request exists (time_per_output_token_seconds), no time between tokens.",
                  "inter_token_latency_seconds"),
        **missing("The server hands every request to the executor at once: see requests_waiting.",
                  "pending_requests"),
        **missing("No counter of preemptions; requests_paused shows the same pressure.", "preemptions"),
        **missing("trtllm-serve exposes no metric of KV transfers between servers.",
                  "kv_transfer_seconds", "kv_transfer_failures"),
    },
    notes=(
        "Nothing is served without return_perf_metrics. engine_type reads \"undefined\" in builds before PR #12545. "
        "Scrape /prometheus/metrics: /metrics is JSON and fails as a target."
    ),
)
