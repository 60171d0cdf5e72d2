"""NVIDIA Dynamo: the frontend's view of each model, and what its workers add.

Sources: dynamo:docs/reference/observability/{metrics-catalog,metric-labels}.mdx and prometheus_names.py of
ai-dynamo-runtime 0.6.1 to 1.6.1. Not run here. The engines behind Dynamo pass their own metrics through on the
worker's port: those belong to the vllm, sglang and trtllm-serve engines. Bucket bounds are set by DYN_METRICS_*
in the environment, so none are listed.
"""

from __future__ import annotations

from functools import partial

from obs.engines._missing import NO_GPU, NO_TRITON_PHASES, missing
from obs.model.metric import Engine, Histogram, Metric, Native

_CATALOGUE = "dynamo:docs/reference/observability/metrics-catalog.mdx"
_COMPONENT_LABELS = ("dynamo_namespace", "dynamo_component", "dynamo_endpoint")
_WORKER_PORT = "DYN_SYSTEM_PORT (off by default)"

_frontend = partial(Metric, labels=("model",), evidence="documented", source=_CATALOGUE)
_worker = partial(Metric, kind="gauge", labels=("worker_id", "dp_rank", "worker_type"), since="1.0.2",
                  evidence="documented", source=_CATALOGUE)
_component = partial(Metric, labels=_COMPONENT_LABELS, optional_labels=("worker_id", "model", "model_name"),
                     enabled_by=_WORKER_PORT, evidence="documented", source=_CATALOGUE)
_kvstats = partial(Metric, kind="gauge", labels=("dynamo_namespace", "dynamo_component"),
                   optional_labels=("worker_id", "model"), since="0.5.1", until="0.7.1",
                   enabled_by=_WORKER_PORT, evidence="documented", source="dynamo:docs/observability/metrics.md")
_router = partial(Metric, labels=(), optional_labels=(*_COMPONENT_LABELS, "worker_id", "router_id"), since="1.0",
                  enabled_by="--router-mode kv (0 for ever without it)", evidence="documented", source=_CATALOGUE)

_QUEUED_NOTE = "From arrival to the first token: prefill counts as queued."

ENGINE = Engine(
    name="dynamo",
    title="NVIDIA Dynamo",
    versions="Dynamo 0.5.1 to 1.6.1 read in documentation and wheels, not run",
    model_label="model",
    captured=False,
    preallocates_gpu_memory=True,
    metrics=(
        # --- frontend -------------------------------------------------------------------------
        _frontend("dynamo_frontend_requests_total", "counter", "requests", "Requests by outcome.",
                  labels=("model", "endpoint", "request_type", "status"), optional_labels=("error_type",),
                  values={"request_type": ("unary", "stream"), "status": ("success", "error")}),
        _frontend("dynamo_frontend_request_duration_seconds", "histogram", "s",
                  "Time from arrival to complete answer; the first bound above 0 can be 1.9 s."),
        _frontend("dynamo_frontend_time_to_first_token_seconds", "histogram", "s", "Time to first token."),
        _frontend("dynamo_frontend_inter_token_latency_seconds", "histogram", "s",
                  "Time between tokens; the last bound can be 2 s."),
        _frontend("dynamo_frontend_output_tokens_total", "counter", "tokens", "Generated tokens, as they come.",
                  since="0.7"),
        _frontend("dynamo_frontend_input_sequence_tokens", "histogram", "tokens", "Prompt tokens per request."),
        _frontend("dynamo_frontend_output_sequence_tokens", "histogram", "tokens", "Generated tokens per request."),
        _frontend("dynamo_frontend_queued_requests_total", "gauge", "requests",
                  f"{_QUEUED_NOTE} A gauge despite its name.",
                  until="0.5.1", renamed_to="dynamo_frontend_queued_requests"),
        _frontend("dynamo_frontend_queued_requests", "gauge", "requests",
                  f"{_QUEUED_NOTE} Deprecated in 2026-04 (PR #8054).",
                  since="0.6.1", renamed_to="dynamo_frontend_stage_requests"),
        _frontend("dynamo_frontend_inflight_requests_total", "gauge", "requests",
                  "Requests in the frontend. A gauge despite its name.",
                  until="0.5.1", renamed_to="dynamo_frontend_inflight_requests"),
        _frontend("dynamo_frontend_inflight_requests", "gauge", "requests",
                  "Requests in the frontend. Deprecated in 2026-04 (PR #8054).",
                  since="0.6.1", renamed_to="dynamo_frontend_active_requests"),
        _frontend("dynamo_frontend_active_requests", "gauge", "requests", "Requests in the frontend.",
                  since="1.3.1"),
        _frontend("dynamo_frontend_stage_requests", "gauge", "requests",
                  "Requests before their first token, by stage; the dispatch stage includes prefill.",
                  labels=("stage", "phase"), optional_labels=("model",),
                  values={"stage": ("preprocess", "route", "dispatch"),
                          "phase": ("prefill", "decode", "aggregated", "")},
                  since="1.3.1"),
        _frontend("dynamo_frontend_model_rejection_total", "counter", "requests", "Requests rejected.",
                  optional_labels=("endpoint",), since="1.3.1"),
        _frontend("dynamo_frontend_model_cancellation_total", "counter", "requests", "Requests cancelled.",
                  optional_labels=("endpoint", "request_type"), since="1.3.1"),
        _frontend("dynamo_frontend_requests_started_total", "counter", "requests", "Requests started.",
                  optional_labels=("endpoint", "request_type"), since="1.3.1"),
        _frontend("dynamo_frontend_failures_total", "counter", "requests", "Requests failed.",
                  optional_labels=("endpoint", "request_type", "error_type"), since="1.6.1"),
        _frontend("dynamo_frontend_model_ready", "gauge", "1", "Whether the model is ready.", since="1.6.1"),
        _frontend("dynamo_frontend_router_queue_pending_requests", "gauge", "requests",
                  "Requests parked in the router's queue.",
                  labels=("worker_type",), values={"worker_type": ("prefill", "decode")},
                  since="1.3.1", enabled_by="--router-queue-threshold"),
        *(_worker(name, unit=unit, help=text)
          for name, unit, text in (
              ("dynamo_frontend_worker_active_decode_blocks", "blocks", "KV blocks in decode on the worker."),
              ("dynamo_frontend_worker_active_prefill_tokens", "tokens", "Prefill tokens queued on the worker."),
              ("dynamo_frontend_worker_last_time_to_first_token_seconds", "s", "The worker's last TTFT."),
              ("dynamo_frontend_worker_last_inter_token_latency_seconds", "s", "The worker's last ITL."),
          )),
        # Taken from the first worker that registers; keeps the case of the name, where request series are
        # lower-cased: a join on model fails.
        *(_frontend(name, "gauge", unit, text)
          for name, unit, text in (
              ("dynamo_frontend_model_total_kv_blocks", "blocks", "KV blocks of a worker."),
              ("dynamo_frontend_model_max_num_seqs", "requests", "Most requests in a worker's batch."),
              ("dynamo_frontend_model_max_num_batched_tokens", "tokens", "Most tokens in a worker's batch."),
              ("dynamo_frontend_model_context_length", "tokens", "Context length."),
              ("dynamo_frontend_model_kv_cache_block_size", "tokens", "Tokens per KV block."),
              ("dynamo_frontend_model_migration_limit", "requests", "Migrations allowed per request."),
          )),
        # --- workers --------------------------------------------------------------------------
        _component("dynamo_component_requests_total", "counter", "requests",
                   "Requests to a worker's endpoint; only dynamo_endpoint=\"generate\" is inference."),
        _component("dynamo_component_errors_total", "counter", "errors",
                   "Errors by stage; publish_response counts client cancellations too.",
                   labels=(*_COMPONENT_LABELS, "error_type"),
                   values={"error_type": ("deserialization", "invalid_message", "response_stream", "generate",
                                          "publish_response", "publish_final")}),
        _component("dynamo_component_request_duration_seconds", "histogram", "s", "Time in the worker."),
        _component("dynamo_component_inflight_requests", "gauge", "requests", "Requests in the worker."),
        _component("dynamo_component_request_bytes_total", "counter", "bytes", "Bytes received."),
        _component("dynamo_component_response_bytes_total", "counter", "bytes", "Bytes sent."),
        _component("dynamo_component_gpu_cache_usage_percent", "gauge", "ratio",
                   "KV-cache usage, 0 to 1 despite the name.", optional_labels=(
                       "worker_id", "dp_rank", "model", "model_name"), since="1.0.2"),
        _component("dynamo_component_total_blocks", "gauge", "blocks", "KV blocks.",
                   optional_labels=("worker_id", "dp_rank", "model", "model_name"), since="1.0.2"),
        _component("dynamo_component_kv_cache_hit_rate", "gauge", "ratio", "Prefix-cache hit rate, 0 to 1.",
                   optional_labels=("worker_id", "dp_rank", "model", "model_name"), since="1.3.1"),
        Metric("dynamo_component_uptime_seconds", "gauge", "s", "Time since the process started.", since="0.6.1",
               evidence="documented", source=_CATALOGUE),
        _kvstats("dynamo_component_kvstats_active_blocks", unit="blocks", help="KV blocks in use."),
        _kvstats("dynamo_component_kvstats_total_blocks", unit="blocks", help="KV blocks.",
                 renamed_to="dynamo_component_total_blocks"),
        _kvstats("dynamo_component_kvstats_gpu_cache_usage_percent", unit="ratio",
                 help="KV-cache usage, 0 to 1. Neither name exists at 0.9.1.",
                 renamed_to="dynamo_component_gpu_cache_usage_percent"),
        _kvstats("dynamo_component_kvstats_gpu_prefix_cache_hit_rate", unit="ratio",
                 help="Prefix-cache hit rate, 0 to 1.", renamed_to="dynamo_component_kv_cache_hit_rate"),
        # --- router ---------------------------------------------------------------------------
        _router("dynamo_component_router_requests_total", "counter", "requests", "Requests routed."),
        _router("dynamo_component_router_time_to_first_token_seconds", "histogram", "s", "Time to first token."),
        _router("dynamo_component_router_inter_token_latency_seconds", "histogram", "s", "Time between tokens."),
        _router("dynamo_component_router_input_sequence_tokens", "histogram", "tokens", "Prompt tokens."),
        _router("dynamo_component_router_output_sequence_tokens", "histogram", "tokens", "Generated tokens."),
        _router("dynamo_component_router_kv_hit_rate", "histogram", "ratio", "Predicted KV hit rate, 0 to 1."),
    ),
    signals={
        **missing("The frontend does not see the engine's steps.", "engine_steps"),
        # The frontend's own families appear only with the first request.
        "server": (Native("dynamo_frontend_requests_total"), Native("dynamo_component_uptime_seconds")),
        "model_loaded": (
            Native("dynamo_frontend_model_context_length",
                   note="Keeps the case of the model's name, where request series are lower-cased."),
            Native("dynamo_frontend_requests_total"),
        ),
        "requests": (Native("dynamo_frontend_requests_total", matchers='status="success"'),),
        "request_failures": (Native("dynamo_frontend_requests_total", matchers='status="error"',
                                    note="Newer releases tell the reason in error_type."),),
        "request_latency_seconds": (Histogram("dynamo_frontend_request_duration_seconds",
                                              note="Reads 1.88 s at P99 with the default bounds when idle."),),
        "time_to_first_token_seconds": (Histogram("dynamo_frontend_time_to_first_token_seconds"),),
        "inter_token_latency_seconds": (Histogram("dynamo_frontend_inter_token_latency_seconds",
                                                  note="2 s at most with the default bounds."),),
        "pending_requests": (
            Native("dynamo_frontend_stage_requests", note="By stage, without model; dispatch includes prefill."),
            Native("dynamo_frontend_queued_requests", note=_QUEUED_NOTE),
            Native("dynamo_frontend_queued_requests_total", note=_QUEUED_NOTE),
        ),
        "requests_running": (
            Native("dynamo_frontend_active_requests", note="All requests in the frontend, waiting ones included."),
            Native("dynamo_frontend_inflight_requests"),
            Native("dynamo_frontend_inflight_requests_total"),
        ),
        "kv_cache_usage": (
            Native("dynamo_component_gpu_cache_usage_percent", note="Since 1.0.2; model is not always set."),
            Native("dynamo_component_kvstats_gpu_cache_usage_percent", note="0.5.1 to 0.7.1, without model."),
        ),
        "generation_tokens": (Native("dynamo_frontend_output_tokens_total", note="Since 0.7."),),
        "prompt_tokens": (Native("dynamo_frontend_input_sequence_tokens_sum"),),
        **NO_TRITON_PHASES,
        **NO_GPU,
        **missing("Dynamo exposes no sleep state.", "sleeping"),
        **missing("Tokens stream from the first one on: see time_to_first_token_seconds.", "first_response_seconds"),
        **missing("Dynamo's queue counts prefill as queued; the engine behind it times its own queue.",
                  "queue_time_seconds"),
        **missing("Dynamo's queue counts prefill as queued; the engine behind it reports who waits for a place.",
                  "requests_waiting"),
        **missing("The engine behind Dynamo reports it on the worker's port, under its own names.",
                  "requests_paused", "preemptions", "prefix_cache_queries", "prefix_cache_hits"),
        **missing("NIXL's telemetry has a port of its own, and vLLM behind Dynamo reports vllm:nixl_*.",
                  "kv_transfer_seconds", "kv_transfer_failures"),
    },
    notes=(
        "Families appear only with the first request. DYN_METRICS_PREFIX can rename the frontend's family. "
        "Before PR #2176 (2025-07) the names began with nv_llm_http_service_."
    ),
)
