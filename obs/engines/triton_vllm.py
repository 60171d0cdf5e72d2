"""Triton's vLLM backend: eight ``vllm:`` families on Triton's own metrics port, and nothing else of vLLM's.

Sources: vllm_backend:src/utils/metrics.py on the branches r24.08 to r26.01. The names are vLLM's, the labels
are Triton's (``model``, ``version``): that is how to tell them from native vLLM.
"""

from __future__ import annotations

from functools import partial

from obs.engines._missing import TRITON_COUNTS_IT, missing
from obs.engines.vllm import LENGTH_BOUNDS
from obs.model.metric import Engine, Histogram, Metric, Native

_metric = partial(
    Metric, labels=("model", "version"), since="24.09", evidence="source",
    enabled_by="REPORT_CUSTOM_METRICS=true in config.pbtxt, and model.json's disable_log_stats not true",
    source="vllm_backend:src/utils/metrics.py",
)

ENGINE = Engine(
    name="triton-vllm",
    title="Triton with the vLLM backend",
    versions="Triton 24.08 to 26.01 read; since/until are container releases (YY.MM)",
    model_label="model",
    version_label="version",
    # A native vLLM target may carry a `version` label too, from a pod label; it has a model_name besides.
    own='version!="",model_name=""',
    captured=False,
    preallocates_gpu_memory=True,
    # Triton hands the request over at once: its own times end after about 0.3 ms.
    hides=("request_latency_seconds", "queue_time_seconds", "compute_input_seconds", "compute_infer_seconds",
           "compute_output_seconds", "pending_requests"),
    metrics=(
        _metric("vllm:prompt_tokens_total", "counter", "tokens", "Prompt tokens, counted at each engine step.",
                since="24.08"),
        _metric("vllm:generation_tokens_total", "counter", "tokens",
                "Generated tokens, counted at each engine step.", since="24.08"),
        _metric("vllm:time_to_first_token_seconds", "histogram", "s", "Time to first token; 10 s at most.",
                since="24.08",
                buckets=(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5,
                         10.0)),
        _metric("vllm:time_per_output_token_seconds", "histogram", "s",
                "Inter-token latency under vLLM's old name, which this backend keeps; 2.5 s at most.",
                since="24.08",
                buckets=(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)),
        _metric("vllm:e2e_request_latency_seconds", "histogram", "s",
                "Time from arrival to complete answer; 60 s at most.",
                buckets=(1.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0)),
        _metric("vllm:request_prompt_tokens", "histogram", "tokens",
                "Prompt tokens per request; bounds end at the model's max_model_len.", buckets=LENGTH_BOUNDS),
        _metric("vllm:request_generation_tokens", "histogram", "tokens",
                "Generated tokens per request; bounds end at the model's max_model_len.", buckets=LENGTH_BOUNDS),
        _metric("vllm:request_params_n", "histogram", "1", "The request parameter n.",
                buckets=(1.0, 2.0, 5.0, 10.0, 20.0)),
        _metric("vllm:request_params_best_of", "histogram", "1", "The request parameter best_of.", until="24.12"),
    ),
    signals={
        **missing("The backend does not export vLLM's steps.", "engine_steps"),
        **TRITON_COUNTS_IT,
        "server": (Native("vllm:generation_tokens_total"),),
        "model_loaded": (Native("vllm:generation_tokens_total"),),
        "request_latency_seconds": (Histogram("vllm:e2e_request_latency_seconds",
                                              note="Finished requests only; 60 s at most."),),
        "time_to_first_token_seconds": (Histogram("vllm:time_to_first_token_seconds", note="10 s at most."),),
        "inter_token_latency_seconds": (Histogram("vllm:time_per_output_token_seconds",
                                                  note="The backend keeps vLLM's old name. 2.5 s at most."),),
        "generation_tokens": (Native("vllm:generation_tokens_total"),),
        "prompt_tokens": (Native("vllm:prompt_tokens_total"),),
        **missing("Triton has no sleep state: a model is loaded or it is not.", "sleeping"),
        **missing("Tokens stream from the first one on: see time_to_first_token_seconds.", "first_response_seconds"),
        **missing("The backend exports no queue time, and Triton's own ends at the hand-off to vLLM.",
                  "queue_time_seconds"),
        **missing("The backend is handed the scheduler's state and ignores it in every release "
                  "(vllm_backend#92 would add it).",
                  "requests_running", "requests_waiting", "kv_cache_usage"),
        **missing("vLLM preempts and does not pause, and the backend exports neither.", "requests_paused"),
        **missing("The backend exports no preemption, prefix-cache or KV-transfer metric in any release.",
                  "preemptions", "prefix_cache_queries", "prefix_cache_hits", "kv_transfer_seconds",
                  "kv_transfer_failures"),
    },
    notes=(
        "Turning the metrics on turns vLLM's frontend multiprocessing off. Errors count as success in Triton's "
        "nv_inference_request_success (Python backend). The backend as of 2026-01 fails to import with vLLM 0.30 "
        "or later (26.07 ships 0.24)."
    ),
)
