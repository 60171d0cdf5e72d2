"""TensorRT-LLM's parameters leave it room, and the metrics that the pack reads.

gpt_model_type V1 batches statically and reports nv_trt_llm_v1_metrics only: KV cache and queue alerts are blind.
kv_cache_free_gpu_mem_fraction (0.9 by default) is of what is free after loading; above 0.95 nothing is left for
activations. max_beam_width above 1 divides the KV cache by the beams, and token counters count every beam.

Mend:
    parameters { key: "kv_cache_free_gpu_mem_fraction" value { string_value: "0.9" } }
"""

from __future__ import annotations

from collections.abc import Iterator

from obs.doctor.facts import Facts, ModelConfig
from obs.doctor.finding import Finding

ID = "trtllm-settings"

MOST_KV = 0.95


def check(facts: Facts) -> Iterator[Finding]:
    for config in facts.configs():
        if config.trtllm:
            yield from _kv(config)
            yield from _batching(config)
            yield from _unfilled(config)


def _kv(config: ModelConfig) -> Iterator[Finding]:
    key = "kv_cache_free_gpu_mem_fraction"
    given = config.parameters.get(key, "")
    try:
        fraction = float(given) if given and "${" not in given else None
    except ValueError:
        fraction = -1.0
    if fraction is not None and not 0 < fraction <= 1:
        yield Finding(
            ID, "error", config.at(key), f"model {config.model}: {key} {given!r} is no share above 0 and up to 1",
            "the KV cache gets no size and the model does not load", _parameter(key, "0.9"),
        )
    elif fraction is not None and fraction > MOST_KV:
        yield Finding(
            ID, "warning", config.at(key), f"model {config.model}: {key} {given}",
            "next to nothing is left for activations: a long prompt ends in out of memory", _parameter(key, "0.9"),
        )
    most = config.parameters.get("max_tokens_in_paged_kv_cache", "")
    if fraction is not None and most.isdigit():
        yield Finding(
            ID, "info", config.at("max_tokens_in_paged_kv_cache"),
            f"model {config.model}: both {key} and max_tokens_in_paged_kv_cache are set", "the smaller of the two counts",
            "keep one of them",
        )


def _batching(config: ModelConfig) -> Iterator[Finding]:
    kind = config.parameters.get("gpt_model_type", "")
    if kind.upper() == "V1":
        yield Finding(
            ID, "warning", config.at("gpt_model_type"), f"model {config.model}: gpt_model_type V1 batches statically",
            "it reports nv_trt_llm_v1_metrics only: LLMKVCacheSaturated and the queue alerts are blind, and short requests "
            "wait for long ones", _parameter("gpt_model_type", "inflight_fused_batching"),
        )
    beams = config.parameters.get("max_beam_width", "")
    if beams.isdigit() and int(beams) > 1:
        yield Finding(
            ID, "info", config.at("max_beam_width"), f"model {config.model}: max_beam_width {beams}",
            "the KV cache holds that many times fewer sequences, and nv_llm_output_token_len counts every beam",
            _parameter("max_beam_width", "1") + "\n(if nobody asks for beam search)",
        )
    if config.parameters.get("batch_scheduler_policy", "") == "max_utilization":
        yield Finding(
            ID, "info", config.at("batch_scheduler_policy"), f"model {config.model}: batch_scheduler_policy max_utilization",
            "under pressure it pauses running requests: watch paused_requests (LLMPreempting does not see it)",
            _parameter("batch_scheduler_policy", "guaranteed_no_evict") + "\n(to queue instead of pausing)",
        )


def _unfilled(config: ModelConfig) -> Iterator[Finding]:
    left = [key for key, value in config.parameters.items() if "${" in value]
    if left:
        yield Finding(
            ID, "info", config.at(left[0]), f"model {config.model}: the template's {', '.join(left[:4])}"
            + (f" and {len(left) - 4} more" if len(left) > 4 else "") + " were not filled in",
            "the backend uses its defaults for them", "fill them with tools/fill_template.py, or remove them",
        )


def _parameter(key: str, value: str) -> str:
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}'
