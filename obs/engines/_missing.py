"""Reasons that several engines share for not exposing a signal.

One sentence each, because they are read by people: ``obs doctor`` and the docs print them as they stand.
"""

from __future__ import annotations

from obs.model.metric import Missing


def missing(why: str, *signals: str) -> dict[str, Missing]:
    """The same reason for several signals."""
    return {signal: Missing(why) for signal in signals}


NO_GPU = missing(
    "The engine does not report its GPU: use the dcgm engine.",
    "gpu_memory_used_bytes", "gpu_memory_total_bytes", "gpu_utilization", "gpu_power_watts",
)

#: What only Triton's scheduler knows; an LLM engine that batches continuously has no such phases.
NO_TRITON_PHASES = {
    **missing("The engine batches continuously: it counts tokens, not inferences or executions.",
              "inferences", "executions"),
    **missing("The engine has no response cache; its prefix cache has signals of its own.",
              "cache_hits", "cache_misses"),
    **missing("The engine does not time input, execution and output of a request apart.",
              "compute_input_seconds", "compute_infer_seconds", "compute_output_seconds"),
}

#: A plain Triton model, and every backend whose Triton process also serves ``nv_inference_*`` for it.
TRITON_COUNTS_IT = {
    **missing("Triton itself counts it for the same model: see nv_inference_* of the triton engine.",
              "requests", "request_failures", "inferences", "executions"),
    **missing("Triton's response cache is counted by the triton engine.", "cache_hits", "cache_misses"),
    **missing("Triton times it, but only up to the hand-off to the backend: see the triton engine.",
              "compute_input_seconds", "compute_infer_seconds", "compute_output_seconds"),
    **missing("Triton holds nothing back for this backend, which takes a request at once: it reads 0.",
              "pending_requests"),
    **missing("Triton reports the GPU: see nv_gpu_* of the triton engine, or the dcgm engine.",
              "gpu_memory_used_bytes", "gpu_memory_total_bytes", "gpu_utilization", "gpu_power_watts"),
}
