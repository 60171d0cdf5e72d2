"""Triton does not batch on top of an engine that batches in flight.

vLLM and TensorRT-LLM's LLM API take every request at once and batch by token. dynamic_batching before them only holds
requests back, and max_batch_size above 0 adds a batch dimension that their inputs do not have (the vLLM backend's own
configuration has 0; the LLM API's belongs in model.yaml). For TensorRT-LLM's C++ backend both are part of its template; a
queue delay still adds latency.

Mend:
    max_batch_size: 0      # and no dynamic_batching
"""

from __future__ import annotations

from collections.abc import Iterator

from obs.doctor.facts import Facts
from obs.doctor.finding import Finding

ID = "llm-batching"


def check(facts: Facts) -> Iterator[Finding]:
    models = facts.repository.models if facts.repository is not None else ()
    llm_api = {model.folder for model in models if "tensorrt_llm" in model.imports}
    for config in facts.configs():
        if config.vllm:
            if config.max_batch_size > 0:
                yield Finding(
                    ID, "warning", config.at("max_batch_size"),
                    f"model {config.model}: max_batch_size {config.max_batch_size} before the {config.backend} backend",
                    "the engine batches by token itself; a batch dimension is added that its requests do not have",
                    "max_batch_size: 0",
                )
            if config.dynamic_batching is not None:
                yield Finding(
                    ID, "warning", config.at("dynamic_batching"),
                    f"model {config.model}: dynamic_batching before the {config.backend} backend",
                    "it only holds requests back: the engine batches by token itself",
                    "remove the dynamic_batching block",
                )
        elif config.model in llm_api and config.max_batch_size > 0:
            yield Finding(
                ID, "warning", config.at("max_batch_size"),
                f"model {config.model}: max_batch_size {config.max_batch_size} in config.pbtxt of TensorRT-LLM's LLM API",
                "the engine batches by token itself; its batch size and decoupling are read from model.yaml",
                "remove max_batch_size here, and set it in model.yaml",
            )
        elif (config.trtllm or config.model in llm_api) and config.dynamic_batching is not None:
            delay = _microseconds(config.dynamic_batching.get("max_queue_delay_microseconds"))
            if delay > 0:
                yield Finding(
                    ID, "warning", config.at("max_queue_delay_microseconds"),
                    f"model {config.model}: a queue delay of {delay / 1000:g} ms before in-flight batching",
                    "every request waits for others that the engine would join anyway: time to first token grows by it",
                    "max_queue_delay_microseconds: 0",
                )


def _microseconds(value: object) -> int:
    try:
        return int(str(value or 0))
    except ValueError:
        return 0
