"""SGLang: its own names for what vLLM calls otherwise, on ``/metrics`` once ``--enable-metrics`` is given.

Sources: released wheels 0.4.6 to 0.5.23, sglang:python/sglang/srt/observability/metrics_collector.py (up to 0.5.6
srt/metrics/collector.py). Not run here.
"""

from __future__ import annotations

from functools import partial

from obs.engines._missing import NO_GPU, NO_TRITON_PHASES, missing
from obs.model.metric import Engine, Histogram, Metric, Native

_SOURCE = "sglang:python/sglang/srt/observability/metrics_collector.py"

# Only attention-TP rank 0 reports, unless --enable-metrics-for-all-schedulers.
_scheduler = partial(
    Metric, labels=("model_name", "engine_type", "tp_rank", "pp_rank", "moe_ep_rank"),
    optional_labels=("dp_rank", "priority"), enabled_by="--enable-metrics", evidence="documented", source=_SOURCE,
)
_request = partial(
    Metric, labels=("model_name",), optional_labels=("engine_type", "dp_rank"), enabled_by="--enable-metrics",
    evidence="documented", source=_SOURCE,
)
# Their labels are not established.
_http = partial(Metric, since="0.5.23", enabled_by="--enable-metrics", evidence="documented", source=_SOURCE)
# is_streaming came between 0.5.14 and 0.5.17: sum it away.
_STREAMING = ("engine_type", "dp_rank", "is_streaming")

_E2E_BOUNDS = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 200.0, 400.0,
               600.0, 1200.0, 1800.0, 2400.0)

ENGINE = Engine(
    name="sglang",
    title="SGLang",
    versions="SGLang 0.4.6 to 0.5.23 read in released wheels, not run",
    model_label="model_name",
    rank_label="dp_rank",
    captured=False,
    preallocates_gpu_memory=True,
    metrics=(
        # --- scheduler ------------------------------------------------------------------------
        _scheduler("sglang:num_running_reqs", "gauge", "requests", "Requests running."),
        _scheduler("sglang:num_queue_reqs", "gauge", "requests", "Requests in the waiting queue."),
        _scheduler("sglang:token_usage", "gauge", "ratio",
                   "Pinned part of the KV cache, 0 to 1 in steps of 0.01, evictable prefix cache left out; the "
                   "fullest pool of a hybrid model."),
        _scheduler("sglang:full_token_usage", "gauge", "ratio", "Use of the full-attention pool, 0 to 1.",
                   since="0.5.11"),
        _scheduler("sglang:kv_available_tokens", "gauge", "tokens", "KV slots free.", since="0.5.11"),
        _scheduler("sglang:kv_evictable_tokens", "gauge", "tokens", "KV slots held by evictable prefix cache.",
                   since="0.5.11"),
        _scheduler("sglang:kv_used_tokens", "gauge", "tokens", "KV slots in use.", since="0.5.11"),
        _scheduler("sglang:swa_token_usage", "gauge", "ratio", "Use of the sliding-window pool, 0 to 1.",
                   since="0.5.3"),
        _scheduler("sglang:mamba_usage", "gauge", "ratio", "Use of the Mamba state pool, 0 to 1.", since="0.5.6"),
        _scheduler("sglang:gen_throughput", "gauge", "tokens/s",
                   "Decode rate over the last 40 steps; held while decode starves."),
        _scheduler("sglang:realtime_tokens_total", "counter", "tokens", "Tokens as they are worked on, by mode.",
                   labels=("model_name", "engine_type", "tp_rank", "pp_rank", "moe_ep_rank", "mode"),
                   values={"mode": ("prefill_compute", "prefill_cache", "decode")}, since="0.5.9"),
        _scheduler("sglang:cache_hit_rate", "gauge", "ratio", "Prefix-cache hit rate, 0 to 1."),
        _scheduler("sglang:num_retracted_reqs", "gauge", "requests", "Requests retracted in the last batch.",
                   since="0.5.3"),
        _scheduler("sglang:num_retracted_requests_total", "counter", "requests",
                   "Requests retracted because the KV cache was full.", since="0.5.9"),
        _scheduler("sglang:queue_time_seconds", "histogram", "s",
                   "Time in the queue. Up to 0.5.9 the bounds were 0, 0.1, 0.2 and so on.", since="0.5.3",
                   buckets=(0.0, 0.001, 0.005, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 15.0, 20.0,
                            30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 100.0, 200.0, 300.0, 400.0, 500.0, 600.0,
                            700.0, 800.0, 900.0, 1000.0, 1200.0, 1400.0, 1600.0, 1800.0, 2000.0, 2500.0, 3000.0)),
        _scheduler("sglang:avg_request_queue_latency", "gauge", "s", "Mean time in the queue.",
                   until="0.4.10", renamed_to="sglang:queue_time_seconds"),
        _scheduler("sglang:max_total_num_tokens", "gauge", "tokens", "KV slots in all.", since="0.5.6"),
        _scheduler("sglang:cache_config_info", "info", "1", "Page size and pages as labels.",
                   labels=("page_size", "num_pages"),
                   optional_labels=("model_name", "engine_type", "tp_rank", "pp_rank", "moe_ep_rank", "dp_rank"),
                   since="0.5.9", until="0.5.10.post1", renamed_to="sglang:num_pages"),
        _scheduler("sglang:page_size", "gauge", "tokens", "Tokens per KV page.", since="0.5.12"),
        _scheduler("sglang:num_pages", "gauge", "pages", "KV pages.", since="0.5.12"),
        # --- requests, recorded when they end -------------------------------------------------
        _request("sglang:prompt_tokens_total", "counter", "tokens", "Prompt tokens, cached ones included.",
                 optional_labels=_STREAMING),
        _request("sglang:generation_tokens_total", "counter", "tokens", "Generated tokens.",
                 optional_labels=_STREAMING),
        _request("sglang:num_requests_total", "counter", "requests", "Requests finished.",
                 optional_labels=_STREAMING),
        _request("sglang:num_aborted_requests_total", "counter", "requests", "Requests aborted.", since="0.5.3"),
        _request("sglang:time_to_first_token_seconds", "histogram", "s", "Time to first token.",
                 optional_labels=_STREAMING, buckets=_E2E_BOUNDS[:18]),
        _request("sglang:inter_token_latency_seconds", "histogram", "s",
                 "Time between two chunks over the tokens in the chunk.",
                 buckets=(0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08, 0.1,
                          0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0)),
        _request("sglang:e2e_request_latency_seconds", "histogram", "s",
                 "Time from arrival to complete answer; 800 s at most at 0.4.10.",
                 optional_labels=_STREAMING, buckets=_E2E_BOUNDS),
        _request("sglang:request_time_per_output_token_seconds", "histogram", "s",
                 "Mean time per output token of each request; not in 0.5.20.", since="0.5.23"),
        # --- HTTP -----------------------------------------------------------------------------
        _http("sglang:http_requests_total", "counter", "requests", "HTTP requests."),
        _http("sglang:http_responses_total", "counter", "responses", "HTTP responses."),
        _http("sglang:http_requests_active", "gauge", "requests", "HTTP requests being served."),
    ),
    signals={
        **missing("No counter of scheduler steps is documented.", "engine_steps"),
        "server": (Native("sglang:num_running_reqs"),),
        "model_loaded": (Native("sglang:num_running_reqs"),),
        "requests": (Native("sglang:num_requests_total"),),
        "request_failures": (Native("sglang:num_aborted_requests_total",
                                    note="Aborted requests, by the client or the server alike."),),
        "request_latency_seconds": (Histogram("sglang:e2e_request_latency_seconds"),),
        "queue_time_seconds": (Histogram("sglang:queue_time_seconds",
                                         note="Since 0.5.3; up to 0.5.9 it reads 0.099 s at P99 when nothing "
                                              "waits."),),
        "time_to_first_token_seconds": (Histogram("sglang:time_to_first_token_seconds",
                                                  note="Never below 0.1 s: the first bound."),),
        "inter_token_latency_seconds": (Histogram("sglang:inter_token_latency_seconds"),),
        "requests_running": (Native("sglang:num_running_reqs"),),
        "requests_waiting": (Native("sglang:num_queue_reqs"),),
        "kv_cache_usage": (Native("sglang:token_usage",
                                  note="Pinned tokens only, rounded to 0.01: evictable prefix cache is left out."),),
        "generation_tokens": (
            Native("sglang:realtime_tokens_total", matchers='mode="decode"'),
            Native("sglang:generation_tokens_total", note="Before 0.5.9; counted when a request ends."),
        ),
        "prompt_tokens": (
            Native("sglang:realtime_tokens_total", matchers='mode=~"prefill_compute|prefill_cache"'),
            Native("sglang:prompt_tokens_total", note="Before 0.5.9; counted when a request ends."),
        ),
        "preemptions": (Native("sglang:num_retracted_requests_total", note="Since 0.5.9."),),
        "prefix_cache_queries": (Native("sglang:realtime_tokens_total",
                                        matchers='mode=~"prefill_compute|prefill_cache"'),),
        "prefix_cache_hits": (Native("sglang:realtime_tokens_total", matchers='mode="prefill_cache"'),),
        **NO_TRITON_PHASES,
        **NO_GPU,
        **missing("SGLang exposes no sleep state.", "sleeping"),
        **missing("Tokens stream from the first one on: see time_to_first_token_seconds.", "first_response_seconds"),
        **missing("The server hands every request to the scheduler at once: see requests_waiting.",
                  "pending_requests"),
        **missing("SGLang retracts requests: see preemptions.", "requests_paused"),
        **missing("No metric of KV transfers is catalogued for SGLang.",
                  "kv_transfer_seconds", "kv_transfer_failures"),
    },
    notes="Physical KV use is 1 - kv_available/(kv_available + kv_evictable + kv_used), from 0.5.11 on.",
)
