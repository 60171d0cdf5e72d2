"""vLLM's model.json is readable, keeps statistics, and asks for no more of a GPU than there is.

gpu_memory_utilization is the share of the whole GPU that one engine takes at its start (0.9 by default up to vLLM 0.18, 0.92
from 0.20 on): models on the same GPU add up, and the one that starts last fails or kills another.
disable_log_stats turns every vllm: series off.

Mend: in each model.json a gpu_memory_utilization so that those of one GPU add up to 0.95 at most.
"""

from __future__ import annotations

import difflib
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from obs.doctor.facts import DiskModel, Facts
from obs.doctor.finding import Finding

ID = "vllm-arguments"

DEFAULT = 0.9
#: Often set arguments of vLLM's engine (vllm/engine/arg_utils.py). Not all of them: only what is nearly one is told.
ARGUMENTS = frozenset((
    "model", "tokenizer", "tokenizer_mode", "trust_remote_code", "download_dir", "load_format", "dtype", "kv_cache_dtype",
    "max_model_len", "pipeline_parallel_size", "tensor_parallel_size", "data_parallel_size",
    "data_parallel_size_local", "distributed_executor_backend",
    "block_size", "enable_prefix_caching", "swap_space", "gpu_memory_utilization", "max_num_batched_tokens", "max_num_seqs",
    "quantization", "enforce_eager", "seed", "revision", "tokenizer_revision", "disable_log_stats", "disable_log_requests",
    "enable_log_requests", "enable_lora", "max_loras", "max_lora_rank", "enable_chunked_prefill", "limit_mm_per_prompt",
    "served_model_name", "speculative_config", "kv_transfer_config", "compilation_config", "hf_overrides", "cpu_offload_gb",
    "max_num_partial_prefills", "max_long_partial_prefills", "num_gpu_blocks_override", "guided_decoding_backend",
))
MOST = 1.0


def check(facts: Facts) -> Iterator[Finding]:
    shares: defaultdict[int, list[tuple[DiskModel, float, int]]] = defaultdict(list)
    for model in facts.repository.models if facts.repository is not None else ():
        if model.engine_args_broken is not None:
            place, why = model.engine_args_broken
            yield Finding(
                ID, "error", place, f"model {model.folder}: model.json cannot be read: {why}",
                "the vLLM backend cannot start its engine: the model does not load", "correct the JSON there",
            )
        args = model.engine_args
        if args is None or model.config is None:
            continue
        if args.get("disable_log_stats") is True:
            yield Finding(
                ID, "warning", model.engine_args_place, f"model {model.folder}: disable_log_stats is true",
                "vLLM then reports no metric at all, whatever config.pbtxt says", '"disable_log_stats": false',
            )
        for key in args:
            near = difflib.get_close_matches(key, ARGUMENTS, n=1, cutoff=0.85) if key not in ARGUMENTS else []
            if near:
                yield Finding(
                    ID, "warning", model.engine_args_place, f"model {model.folder}: {key} looks like {near[0]}, misspelt",
                    "vLLM takes no argument that it does not know: the model does not load", f'"{near[0]}": …',
                )
        share = args.get("gpu_memory_utilization", DEFAULT)
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share <= 1:
            yield Finding(
                ID, "error", model.engine_args_place,
                f"model {model.folder}: gpu_memory_utilization {share!r} is no share above 0 and up to 1",
                "vLLM refuses to start", '"gpu_memory_utilization": 0.9',
            )
            continue
        wide = _width(args)
        if wide > 1 and any(group.kind == "KIND_GPU" for group in model.config.instances):
            yield Finding(
                ID, "error", model.config.at("KIND_GPU"), f"model {model.folder}: KIND_GPU with an engine over {wide} GPUs",
                "the backend refuses to load it: KIND_GPU is for one GPU", "instance_group [ { kind: KIND_MODEL } ]",
            )
            continue
        for gpu, count in _gpus(model, wide).items():
            shares[gpu].append((model, float(share), count))
    told: set[tuple[str, ...]] = set()
    for gpu, ones in sorted(shares.items()):
        total = sum(share * count for _, share, count in ones)
        who = tuple(sorted({model.folder for model, _, _ in ones}))
        if total <= MOST + 1e-9 or who in told:
            continue
        told.add(who)
        parts = " + ".join(f"{one.folder} {f'{count} x ' if count > 1 else ''}{share:g}" for one, share, count in ones)
        each = 0.95 / sum(count for _, _, count in ones)
        yield Finding(
            ID, "error", ones[0][0].engine_args_place, f"GPU {gpu}: gpu_memory_utilization adds up to {total:g} ({parts})",
            "each engine takes its share of the whole GPU at its start: the last one fails to load, or runs out of memory",
            f'at most {each:.2f} each: "gpu_memory_utilization": {each:.2f}; or other GPUs:'
            "\ninstance_group [ { kind: KIND_GPU gpus: [ 1 ] } ]",
        )


def _width(args: Mapping[str, Any]) -> int:
    """Over how many GPUs one engine is split (vllm_backend, src/model.py: tensor times pipeline parallel)."""
    sizes = [args.get(key, 1) for key in ("tensor_parallel_size", "pipeline_parallel_size")]
    return math.prod(one if isinstance(one, int) and not isinstance(one, bool) and 0 < one <= 64 else 1 for one in sizes)


def _gpus(model: DiskModel, wide: int) -> dict[int, int]:
    """GPU -> engines of this model on it. Where no GPU is named, the first ones, as many as the model is split over.

    KIND_MODEL takes its GPUs from the parameter GPU_DEVICE_IDS, where that is (vllm_backend, src/model.py).
    """
    assert model.config is not None
    named = [int(one) for one in model.config.parameters.get("GPU_DEVICE_IDS", "").split(",") if one.strip().isdigit()]
    found: dict[int, int] = {}
    for group in model.config.instances:
        if group.kind == "KIND_CPU":
            continue
        for gpu in (named if group.kind == "KIND_MODEL" else group.gpus) or range(wide):
            found[gpu] = found.get(gpu, 0) + group.count
    return found or dict.fromkeys(named or range(wide), 1)
