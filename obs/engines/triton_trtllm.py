"""Triton's TensorRT-LLM C++ backend (``inflight_batcher_llm``): gauges that each bundle several quantities.

One family holds many numbers told apart by a label (``request_type="waiting"``), so a name alone means nothing.
Sources: TensorRT-LLM:triton_backend/inflight_batcher_llm/src/{custom_metrics_reporter/custom_metrics_reporter,
model_instance_state}.cc, tags v0.7 to v0.19. Not captured: tests/data holds an exposition written from these.
"""

from __future__ import annotations

from obs.engines._missing import TRITON_COUNTS_IT, missing
from obs.model.metric import Engine, MeanOf, Metric, Native, Quotient

_SOURCE = "TensorRT-LLM:triton_backend/inflight_batcher_llm/src/custom_metrics_reporter"


def _metric(name: str, unit: str, help: str, label: str, values: tuple[str, ...], since: str = "0.7") -> Metric:
    return Metric(name, "gauge", unit, help, labels=("model", "version", label), values={label: values},
                  since=since, until="1.2.1", source=_SOURCE)


def _lengths(name: str, value: str, help: str) -> Metric:
    return Metric(name, "histogram", "tokens", help, labels=("model", "version", "response_metric_type"),
                  values={"response_metric_type": (value,)}, since="0.16", until="1.2.1",
                  buckets=(10.0, 50.0, 100.0, 500.0, 1000.0), source=_SOURCE)


def _requests(kind: str) -> Native:
    return Native("nv_trt_llm_request_metrics", matchers=f'request_type="{kind}"')


def _blocks(kind: str) -> Native:
    return Native("nv_trt_llm_kv_cache_block_metrics", matchers=f'kv_cache_block_type="{kind}"')


_ITERATION = Native("nv_trt_llm_general_metrics", matchers='general_type="iteration_counter"')

ENGINE = Engine(
    name="triton-trtllm",
    title="Triton with the TensorRT-LLM backend",
    versions="TensorRT-LLM 0.7 to 1.2.x; backend deleted upstream in 2026-07 (PR #15907)",
    model_label="model",
    version_label="version",
    captured=False,
    preallocates_gpu_memory=True,
    # The request duration spans the generation here, but waiting happens inside the executor.
    hides=("queue_time_seconds", "pending_requests"),
    inherits=("request_latency_seconds",),
    metrics=(
        _metric("nv_trt_llm_request_metrics", "requests",
                "Requests by state; waiting (active minus scheduled) since 0.18, the executor's queue left out.",
                "request_type", ("active", "max", "scheduled", "context", "waiting")),
        _metric("nv_trt_llm_kv_cache_block_metrics", "blocks",
                "KV-cache blocks by state, tokens per block, and fraction (used/max, a ratio). reused since 0.13, "
                "fraction since 0.18.",
                "kv_cache_block_type", ("max", "free", "used", "tokens_per", "reused", "fraction")),
        _metric("nv_trt_llm_runtime_memory_metrics", "bytes", "Memory of the runtime.",
                "memory_type", ("cpu", "gpu", "pinned")),
        _metric("nv_trt_llm_inflight_batcher_metrics", "mixed",
                "In-flight batching: tokens, requests or an id, by label. paused_requests in 0.9.0, not in 0.7.0.",
                "inflight_batcher_specific_metric",
                ("total_context_tokens", "generation_requests", "micro_batch_id", "paused_requests")),
        _metric("nv_trt_llm_v1_metrics", "mixed", "Static batching: tokens or slots of one iteration.",
                "v1_specific_metric",
                ("total_context_tokens", "total_generation_tokens", "empty_generation_slots")),
        _metric("nv_trt_llm_general_metrics", "mixed",
                "Time in microseconds since the epoch, and the iteration counter (a gauge).",
                "general_type", ("timestamp", "iteration_counter")),
        Metric("nv_trt_llm_disaggregated_serving_metrics", "counter", "mixed",
               "Cumulative KV-transfer time in milliseconds, and the number of requests that moved their KV cache.",
               labels=("model", "version", "disaggregated_serving_type"),
               values={"disaggregated_serving_type": ("kv_cache_transfer_ms", "request_count")},
               since="0.15", until="1.2.1", source=_SOURCE),
        _lengths("nv_llm_output_token_len", "total_output_tokens",
                 "Generated tokens per request, recorded when it ends; all beams, errors and cancels too."),
        _lengths("nv_llm_input_token_len", "total_input_tokens", "Prompt tokens per request, recorded at its end."),
    ),
    signals={
        **TRITON_COUNTS_IT,
        "server": (_ITERATION,),
        "model_loaded": (_ITERATION,),
        "requests_running": (_requests("scheduled"),),
        "requests_waiting": (
            Native("nv_trt_llm_request_metrics", matchers='request_type="waiting"',
                   note="Since 0.18; before that it is active minus scheduled. The executor's own queue is left "
                        "out: above the active maximum it reads too low."),
        ),
        "requests_paused": (Native("nv_trt_llm_inflight_batcher_metrics",
                                   matchers='inflight_batcher_specific_metric="paused_requests"'),),
        "kv_cache_usage": (
            Quotient(_blocks("used"), _blocks("max"),
                     note="Before fraction, which exists since 0.18 only and is misattributed when the executor "
                          "drops a JSON key."),
            _blocks("fraction"),
        ),
        "generation_tokens": (Native("nv_llm_output_token_len_sum",
                                     note="Since 0.16; counted when a request ends, so it comes in bursts."),),
        "engine_steps": (Native("nv_trt_llm_general_metrics", matchers='general_type="iteration_counter"',
                                note="A gauge that only grows."),),
        "prompt_tokens": (Native("nv_llm_input_token_len_sum", note="Since 0.16; counted when a request ends."),),
        "kv_transfer_seconds": (
            MeanOf(Native("nv_trt_llm_disaggregated_serving_metrics",
                          matchers='disaggregated_serving_type="kv_cache_transfer_ms"', scale=1e-3),
                   Native("nv_trt_llm_disaggregated_serving_metrics",
                          matchers='disaggregated_serving_type="request_count"')),
        ),
        **missing("TensorRT-LLM has no sleep state under Triton.", "sleeping"),
        **missing("Triton's own request duration spans the whole generation for this backend: see the triton engine.",
                  "request_latency_seconds"),
        **missing("Triton times the first response of streaming (decoupled) models: see the triton engine.",
                  "first_response_seconds", "time_to_first_token_seconds"),
        **missing("The executor's queue is not timed, and Triton's own queue time ends at the hand-off.",
                  "queue_time_seconds"),
        **missing("The backend measures no time between tokens.", "inter_token_latency_seconds"),
        **missing("The backend counts no preemptions; requests_paused shows the same pressure.", "preemptions"),
        **missing("Only a gauge of reused blocks exists, no count of lookups and hits.",
                  "prefix_cache_queries", "prefix_cache_hits"),
        **missing("The backend counts KV transfers and their time, not their failures.", "kv_transfer_failures"),
    },
    notes=(
        "Gauges are refreshed by polling iteration stats. The llmapi (PyTorch) backend exposes none of this: only "
        "Triton's nv_inference_* remain there. A missing JSON key in the executor's report shifts every later label."
    ),
)
