"""Native vLLM: its own ``/metrics``, from 0.8.5 to 0.32, with the names that changed on the way.

Sources: 25 released wheels (vllm/v1/metrics/{loggers,stats,perf}.py, vllm/engine/metrics.py for V0), the NIXL
connector's stats.py, and scrapes of vLLM 0.32 in tests/data/scrapes, from which the bucket bounds are taken.
The counters' wire names end in ``_total``; ``vllm:iteration_tokens_total`` is a histogram all the same.
"""

from __future__ import annotations

from functools import partial

from obs.engines._missing import NO_GPU, NO_TRITON_PHASES, missing
from obs.model.metric import Engine, Histogram, Metric, Native

#: vLLM's 1-2-5 series for token counts. A server cuts it at its ``max_model_len``; this is the uncut series.
LENGTH_BOUNDS = tuple(float(step * 10**power) for power in range(8) for step in (1, 2, 5))

TTFT_BOUNDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
                40.0, 80.0, 160.0, 640.0, 2560.0)
TOKEN_TIME_BOUNDS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
                      20.0, 40.0, 80.0)
REQUEST_TIME_BOUNDS = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0,
                        240.0, 480.0, 960.0, 1920.0, 7680.0)
_NIXL_BOUNDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 5.0)

_LABELS = ("model_name", "engine")
_LOGGERS = "vllm:vllm/v1/metrics/loggers.py"
_BLOCK_METRICS = "--kv-cache-metrics (samples 1 % of the blocks)"
_SPECULATIVE = "speculative decoding"

_served = partial(Metric, labels=_LABELS, evidence="captured", source=_LOGGERS)  # seen at 0.32
_read = partial(Metric, labels=_LABELS, evidence="source", source=_LOGGERS)  # read in wheels only
# V0 has no engine label, and V0 served the old names until 0.11.0.
_old = partial(Metric, labels=("model_name",), optional_labels=("engine",), evidence="source",
               source="vllm:vllm/engine/metrics.py, vllm/v1/metrics/loggers.py")
_nixl = partial(Metric, labels=_LABELS, enabled_by="the NIXL KV connector", evidence="source",
                source="vllm:vllm/distributed/kv_transfer/kv_connector/v1/nixl/stats.py")
_http = partial(Metric, evidence="captured", source="vllm:vllm/entrypoints/serve/instrumentator/metrics.py")

ENGINE = Engine(
    name="vllm",
    title="vLLM",
    versions="vLLM 0.8.5 to 0.32.0 read; captured at 0.32.0",
    model_label="model_name",
    rank_label="engine",
    own='model_name!=""',
    dialects={
        "standard": {},
        "ray": {"vllm:": "ray_vllm_"},
        "ray-colon": {"vllm:": "ray_vllm:"},
        "kserve": {"vllm:": "kserve_vllm:"},
    },
    preallocates_gpu_memory=True,
    metrics=(
        # --- scheduler ------------------------------------------------------------------------
        _served("vllm:num_requests_running", "gauge", "requests", "Requests in the running batch."),
        _served("vllm:num_requests_waiting", "gauge", "requests",
                "Requests waiting; since 0.20 the sum of capacity and deferred."),
        _served("vllm:num_requests_waiting_by_reason", "gauge", "requests",
                "Requests waiting for capacity, or deferred (LoRA budget, KV transfer).",
                labels=(*_LABELS, "reason"), values={"reason": ("capacity", "deferred")}, since="0.20"),
        _read("vllm:num_requests_kv_fetch_by_stage", "gauge", "requests",
              "Requests whose KV cache is being fetched, by stage.",
              labels=(*_LABELS, "stage"), since="0.32", enabled_by="KV-consumer role"),
        _old("vllm:num_requests_swapped", "gauge", "requests", "Requests swapped to the CPU; V0 only.",
             until="0.8.5", enabled_by="V0 engine and --show-hidden-metrics-for-version"),
        _served("vllm:engine_sleep_state", "gauge", "1", "1 for the state that holds; awake=0 means asleep.",
                labels=(*_LABELS, "sleep_state"),
                values={"sleep_state": ("awake", "weights_offloaded", "discard_all")}, since="0.11.1"),
        # --- KV cache -------------------------------------------------------------------------
        _old("vllm:gpu_cache_usage_perc", "gauge", "ratio",
             "KV-cache usage, 0 to 1. In 0.11 only with --show-hidden-metrics-for-version; gone in 0.12.",
             until="0.10.2", renamed_to="vllm:kv_cache_usage_perc"),
        _served("vllm:kv_cache_usage_perc", "gauge", "ratio",
                "KV-cache usage, 0 to 1 despite the name; evictable prefix-cache blocks count as free.",
                optional_labels=("pid",), since="0.9.2",
                source=f"{_LOGGERS}, vllm/v1/core/block_pool.py"),
        _served("vllm:num_preemptions_total", "counter", "preemptions", "Requests preempted."),
        _served("vllm:request_num_preemptions", "histogram", "preemptions",
                "Preemptions per request; the first bucket holds 0 and 1 alike.",
                since="0.30", buckets=(1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0)),
        _old("vllm:gpu_prefix_cache_queries_total", "counter", "tokens", "Prompt tokens looked up.",
             until="0.10.2", renamed_to="vllm:prefix_cache_queries_total"),
        _old("vllm:gpu_prefix_cache_hits_total", "counter", "tokens", "Prompt tokens found.",
             until="0.10.2", renamed_to="vllm:prefix_cache_hits_total"),
        _served("vllm:prefix_cache_queries_total", "counter", "tokens", "Prompt tokens looked up.", since="0.9.2"),
        _served("vllm:prefix_cache_hits_total", "counter", "tokens", "Prompt tokens found.", since="0.9.2"),
        _served("vllm:external_prefix_cache_queries_total", "counter", "tokens",
                "Prompt tokens looked up in other instances by the KV connector.", since="0.11.1"),
        _served("vllm:external_prefix_cache_hits_total", "counter", "tokens",
                "Prompt tokens found in other instances by the KV connector.", since="0.11.1"),
        _served("vllm:mm_cache_queries_total", "counter", "items", "Multi-modal items looked up.", since="0.11.1"),
        _served("vllm:mm_cache_hits_total", "counter", "items", "Multi-modal items found.", since="0.11.1"),
        *(_read(name, "histogram", "s", text, since="0.12", enabled_by=_BLOCK_METRICS)
          for name, text in (
              ("vllm:kv_block_lifetime_seconds", "Life of a KV block, from allocation to eviction."),
              ("vllm:kv_block_idle_before_evict_seconds", "Time unused before a KV block's eviction."),
              ("vllm:kv_block_reuse_gap_seconds", "Time between two uses of a KV block."),
          )),
        _served("vllm:cache_config_info", "info", "1", "Cache configuration as labels; they change per release.",
                labels=("engine", "block_size", "gpu_memory_utilization", "num_gpu_blocks"),
                optional_labels=(
                    "_block_size_resolved", "cache_dtype", "cache_hit_alignment_tokens",
                    "effective_attention_block_size", "enable_mamba_shared_prefix_checkpoint",
                    "enable_prefix_caching", "hash_block_size", "is_attention_free",
                    "kv_cache_dtype_skip_layers", "kv_cache_layout", "kv_cache_max_concurrency",
                    "kv_cache_memory_bytes", "kv_cache_size_tokens", "kv_offloading_backend",
                    "kv_offloading_size", "kv_sharing_fast_prefill", "mamba_block_size", "mamba_cache_dtype",
                    "mamba_cache_mode", "mamba_page_size_padded", "mamba_ssm_cache_dtype", "num_cpu_blocks",
                    "num_gpu_blocks_override", "prefix_cache_retention_interval", "prefix_caching_hash_algo",
                    "prefix_match_unit", "replayssm_buffer_len", "skip_page_size_padded", "sliding_window",
                    "swa_bounded_replay", "use_kda_recoverssm", "use_replayssm", "user_specified_block_size",
                )),
        # --- tokens and requests --------------------------------------------------------------
        _served("vllm:prompt_tokens_total", "counter", "tokens", "Prompt tokens, cached ones included."),
        _served("vllm:generation_tokens_total", "counter", "tokens", "Generated tokens, at each engine step."),
        _served("vllm:prompt_tokens_by_source_total", "counter", "tokens", "Prompt tokens by where they came from.",
                labels=(*_LABELS, "source"),
                values={"source": ("local_compute", "local_cache_hit", "external_kv_transfer")}, since="0.16"),
        _served("vllm:prompt_tokens_cached_total", "counter", "tokens", "Prompt tokens found in a cache.",
                since="0.16"),
        _read("vllm:prompt_tokens_recomputed_total", "counter", "tokens", "Cached prompt tokens computed again.",
              since="0.16", until="0.19"),
        _served("vllm:prompt_tokens_cached_by_source_total", "counter", "tokens",
                "Prompt tokens found in a cache, by tier.",
                labels=(*_LABELS, "source"),
                values={"source": ("device", "host", "disk", "p2p", "external_unspecified")}, since="0.32"),
        _served("vllm:request_success_total", "counter", "requests",
                "Requests finished, whatever the reason; error by 0.16, repetition by 0.20.",
                labels=(*_LABELS, "finished_reason"),
                values={"finished_reason": ("stop", "length", "abort", "error", "repetition")}),
        _served("vllm:admission_rejections_total", "counter", "requests", "Requests refused by a queue limit.",
                labels=("model_name", "reason"),
                values={"reason": ("max_num_queued_reqs", "max_num_queued_tokens")}, since="0.32"),
        _read("vllm:corrupted_requests_total", "counter", "requests", "Requests with NaN in their logits.",
              since="0.11.1", enabled_by="VLLM_COMPUTE_NANS_IN_LOGITS=1"),
        # --- latency --------------------------------------------------------------------------
        _served("vllm:time_to_first_token_seconds", "histogram", "s", "Time to first token.", buckets=TTFT_BOUNDS),
        _old("vllm:time_per_output_token_seconds", "histogram", "s",
             "Inter-token latency. From 0.12 to 0.14 only with --show-hidden-metrics-for-version; gone in 0.15.",
             until="0.11.2", renamed_to="vllm:inter_token_latency_seconds"),
        _served("vllm:inter_token_latency_seconds", "histogram", "s",
                "Time between two engine outputs of a request; one output can hold several tokens.",
                since="0.10.2", buckets=TOKEN_TIME_BOUNDS),
        _served("vllm:request_time_per_output_token_seconds", "histogram", "s",
                "Mean time per output token of each request.", since="0.11.0", buckets=TOKEN_TIME_BOUNDS),
        _served("vllm:e2e_request_latency_seconds", "histogram", "s",
                "Time from arrival to complete answer, at finish.", buckets=REQUEST_TIME_BOUNDS),
        *(_served(name, "histogram", "s", text, buckets=REQUEST_TIME_BOUNDS)
          for name, text in (
              ("vllm:request_queue_time_seconds", "Time in the WAITING phase, at finish."),
              ("vllm:request_inference_time_seconds", "Time in the RUNNING phase, at finish."),
              ("vllm:request_prefill_time_seconds", "Time in the PREFILL phase, at finish."),
              ("vllm:request_decode_time_seconds", "Time in the DECODE phase, at finish."),
          )),
        # --- sizes ----------------------------------------------------------------------------
        _served("vllm:iteration_tokens_total", "histogram", "tokens",
                "Tokens per engine step: a histogram despite its name.",
                buckets=(1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0)),
        _served("vllm:request_prompt_tokens", "histogram", "tokens", "Prompt tokens per request.",
                buckets=LENGTH_BOUNDS),
        _served("vllm:request_generation_tokens", "histogram", "tokens", "Generated tokens per request.",
                buckets=LENGTH_BOUNDS),
        _served("vllm:request_max_num_generation_tokens", "histogram", "tokens",
                "Most tokens asked for, per request.", buckets=LENGTH_BOUNDS),
        _served("vllm:request_params_max_tokens", "histogram", "tokens", "The request parameter max_tokens.",
                buckets=LENGTH_BOUNDS),
        _served("vllm:request_prefill_kv_computed_tokens", "histogram", "tokens",
                "KV tokens computed in prefill, cached ones left out.", since="0.13", buckets=LENGTH_BOUNDS),
        _served("vllm:request_params_n", "histogram", "1", "The request parameter n.",
                buckets=(1.0, 2.0, 5.0, 10.0, 20.0)),
        # --- optional parts -------------------------------------------------------------------
        _read("vllm:lora_requests_info", "gauge", "s",
              "LoRA adapters in use as labels; the value is the Unix time, not 1.",
              labels=("max_lora", "running_lora_adapters", "waiting_lora_adapters"), enabled_by="--enable-lora"),
        *(_read(name, "counter", "tokens" if "tokens" in name else "drafts", text, enabled_by=_SPECULATIVE,
                source="vllm:vllm/v1/spec_decode/metrics.py")
          for name, text in (
              ("vllm:spec_decode_num_drafts_total", "Drafts made."),
              ("vllm:spec_decode_num_draft_tokens_total", "Tokens drafted."),
              ("vllm:spec_decode_num_accepted_tokens_total", "Drafted tokens accepted."),
          )),
        _read("vllm:spec_decode_num_accepted_tokens_per_pos_total", "counter", "tokens",
              "Drafted tokens accepted, by position in the draft.", labels=(*_LABELS, "position"),
              enabled_by=_SPECULATIVE, source="vllm:vllm/v1/spec_decode/metrics.py"),
        *(_served(name, "counter", unit, text, since="0.17", enabled_by="--enable-mfu-metrics (0 without it)",
                  source="vllm:vllm/v1/metrics/perf.py")
          for name, unit, text in (
              ("vllm:estimated_flops_per_gpu_total", "flops", "Estimated floating-point operations per GPU."),
              ("vllm:estimated_read_bytes_per_gpu_total", "bytes", "Estimated bytes read per GPU."),
              ("vllm:estimated_write_bytes_per_gpu_total", "bytes", "Estimated bytes written per GPU."),
          )),
        _nixl("vllm:nixl_xfer_time_seconds", "histogram", "s", "Time of a KV transfer.",
              buckets=_NIXL_BOUNDS[1:]),
        _nixl("vllm:nixl_post_time_seconds", "histogram", "s", "Time to post a KV transfer.", buckets=_NIXL_BOUNDS),
        _nixl("vllm:nixl_bytes_transferred", "histogram", "bytes", "Bytes of a KV transfer.",
              buckets=tuple(float(2**power) for power in range(11, 35, 2))),
        _nixl("vllm:nixl_num_descriptors", "histogram", "descriptors", "Descriptors of a KV transfer.",
              buckets=(10.0, 20.0, 30.0, 50.0, 75.0, 100.0, 200.0, 400.0, 1000.0, 2000.0, 4000.0, 10000.0, 20000.0,
                       50000.0)),
        _nixl("vllm:nixl_num_failed_transfers_total", "counter", "transfers", "KV transfers that failed."),
        _nixl("vllm:nixl_num_failed_notifications_total", "counter", "notifications", "Notifications that failed."),
        _nixl("vllm:nixl_num_kv_expired_reqs_total", "counter", "requests",
              "Requests whose KV cache expired on the prefill server before it was fetched."),
        # --- HTTP: no model_name, and all that is left with --disable-log-stats -----------------
        _http("http_requests_total", "counter", "requests",
              "HTTP requests by status class; a stream's status is fixed when it starts.",
              labels=("handler", "method", "status"), values={"status": ("2xx", "3xx", "4xx", "5xx")}),
        _http("http_request_duration_seconds", "histogram", "s", "HTTP latency by handler.",
              labels=("handler", "method"), buckets=(0.1, 0.5, 1.0)),
        _http("http_request_duration_highr_seconds", "histogram", "s", "HTTP latency of all handlers, in detail.",
              buckets=(0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0,
                       7.5, 10.0, 30.0, 60.0)),
        _http("http_request_size_bytes", "summary", "bytes", "Content-Length of requests; sum and count only.",
              labels=("handler",)),
        _http("http_response_size_bytes", "summary", "bytes", "Content-Length of responses; sum and count only.",
              labels=("handler",)),
    ),
    signals={
        "server": (Native("vllm:num_requests_running",
                          note="Absent with --disable-log-stats, which leaves only http_*."),),
        "model_loaded": (Native("vllm:num_requests_running"),),
        "sleeping": (Native("vllm:engine_sleep_state", matchers='sleep_state="awake"',
                            note="The value 0 means asleep."),),
        "requests": (Native("vllm:request_success_total", matchers='finished_reason!~"error|abort"'),),
        "request_failures": (
            Native("vllm:request_success_total", matchers='finished_reason="error"',
                   note="Engine errors only, by 0.16. Requests that clients abort vanish, HTTP 4xx/5xx show in "
                        "http_requests_total (no model_name), refusals in vllm:admission_rejections_total."),
        ),
        "request_latency_seconds": (Histogram("vllm:e2e_request_latency_seconds",
                                              note="Finished requests only: aborted ones leave no trace."),),
        "queue_time_seconds": (Histogram("vllm:request_queue_time_seconds",
                                         note="Recorded at finish; reads 0.297 s at P99 when nothing waits."),),
        "time_to_first_token_seconds": (Histogram("vllm:time_to_first_token_seconds"),),
        "inter_token_latency_seconds": (
            Histogram("vllm:inter_token_latency_seconds"),
            Histogram("vllm:time_per_output_token_seconds", note="The name up to 0.11."),
        ),
        "requests_running": (Native("vllm:num_requests_running"),),
        "requests_waiting": (
            Native("vllm:num_requests_waiting_by_reason", matchers='reason="capacity"',
                   note="Since 0.20: requests that wait for a place, deferred ones left out."),
            Native("vllm:num_requests_waiting"),
        ),
        "kv_cache_usage": (
            Native("vllm:kv_cache_usage_perc"),
            Native("vllm:gpu_cache_usage_perc", note="The name up to 0.10."),
        ),
        "generation_tokens": (Native("vllm:generation_tokens_total"),),
        "engine_steps": (Native("vllm:iteration_tokens_total_count"),),
        "prompt_tokens": (Native("vllm:prompt_tokens_total"),),
        "preemptions": (Native("vllm:num_preemptions_total"),),
        "prefix_cache_queries": (
            Native("vllm:prefix_cache_queries_total"),
            Native("vllm:gpu_prefix_cache_queries_total", note="The name up to 0.10."),
        ),
        "prefix_cache_hits": (
            Native("vllm:prefix_cache_hits_total"),
            Native("vllm:gpu_prefix_cache_hits_total", note="The name up to 0.10."),
        ),
        "kv_transfer_seconds": (Histogram("vllm:nixl_xfer_time_seconds", note="NIXL connector only."),),
        "kv_transfer_failures": (Native("vllm:nixl_num_failed_transfers_total", note="NIXL connector only."),),
        **NO_TRITON_PHASES,
        **NO_GPU,
        **missing("Tokens stream from the first one on: see time_to_first_token_seconds.", "first_response_seconds"),
        **missing("The server hands every request to the engine at once: see requests_waiting.", "pending_requests"),
        **missing("vLLM preempts and does not pause: see preemptions.", "requests_paused"),
    },
    notes=(
        "--disable-log-stats removes every vllm: series. With --api-server-count above 1 the _created series "
        "disappear, and before 0.11.1 kv_cache_usage_perc gains a pid label. --custom-histogram-buckets (0.32) "
        "replaces the bounds listed here."
    ),
)
