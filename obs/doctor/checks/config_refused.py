"""What can be read in config.pbtxt, and Triton refuses all the same.

A platform that there is not, a preferred batch larger than the largest, a tensor without dims, an ensemble of models that
are not there, a GPU that the machine has not. The first two fail the poll of the repository: the server's index then lists
the model without a state and without a reason, and only the log tells. Seen with Triton 2.51; a model that the server has
ready is passed over.

Mend: what the finding says; the line is named.
"""

from __future__ import annotations

from collections.abc import Iterator

from obs.doctor.facts import DiskModel, Facts, ModelConfig
from obs.doctor.finding import Finding

ID = "config-refused"

#: The platforms of the server's model repository documentation, and the backend that each stands for.
PLATFORMS = {
    "tensorrt_plan": "tensorrt", "onnxruntime_onnx": "onnxruntime", "pytorch_libtorch": "pytorch",
    "tensorflow_graphdef": "tensorflow", "tensorflow_savedmodel": "tensorflow", "ensemble": "",
}
_UNPOLLED = "the model does not load, and the server's index gives no reason"


def check(facts: Facts) -> Iterator[Finding]:
    repository = facts.repository
    if repository is None:
        return
    index = facts.triton.index if facts.triton is not None else None
    ready = {one.name for one in index or () if one.state == "READY"}
    there = {model.folder for model in repository.models} | {one.name for one in index or ()}
    gpus = len([sample for sample in facts.page.of("nv_gpu_memory_total_bytes") if sample.value > 0]) if facts.page else 0
    for model in repository.models:
        if model.config is not None and model.folder not in ready:
            yield from _platform(model.config)
            yield from _batches(model.config)
            yield from _dims(model, model.config)
            yield from _steps(model.config, there, sure=index is not None)
            yield from _gpus(model.config, gpus)


def _platform(config: ModelConfig) -> Iterator[Finding]:
    if not config.platform or config.backend or config.platform in PLATFORMS:
        return
    near = [name for name, backend in PLATFORMS.items() if config.platform in (backend, name.split("_")[-1])]
    yield Finding(
        ID, "error", config.at("platform"), f"model {config.model}: platform {config.platform!r} is none of "
        f"{', '.join(PLATFORMS)}", _UNPOLLED, f'platform: "{near[0]}"' if near else f'backend: "{config.platform}"',
    )


def _batches(config: ModelConfig) -> Iterator[Finding]:
    sizes = (config.dynamic_batching or {}).get("preferred_batch_size", ())
    large = [size for size in sizes if isinstance(size, int) and size > config.max_batch_size > 0]
    if large:
        yield Finding(
            ID, "error", config.at("preferred_batch_size"),
            f"model {config.model}: preferred_batch_size {max(large)} is larger than max_batch_size {config.max_batch_size}",
            _UNPOLLED, f"max_batch_size: {max(large)}, or smaller batches",
        )


def _dims(model: DiskModel, config: ModelConfig) -> Iterator[Finding]:
    if config.without_dims and config.backend == "python" and not model.completes:
        yield Finding(
            ID, "error", config.at(config.without_dims[0]),
            f"model {config.model}: {', '.join(config.without_dims)} without dims", "the model does not load",
            "dims: [ -1 ], or the tensor's shape without the batch; or auto_complete_config in model.py",
        )


def _steps(config: ModelConfig, there: set[str], *, sure: bool) -> Iterator[Finding]:
    lost = sorted({step for step in config.steps if step not in there})
    if lost:
        yield Finding(
            ID, "error" if sure else "warning", config.at(lost[0]),
            f"ensemble {config.model}: there is no model {', '.join(lost)}",
            "an ensemble loads only when all its models are there", "correct model_name, or put the model into the repository",
        )


def _gpus(config: ModelConfig, gpus: int) -> Iterator[Finding]:
    named = sorted({gpu for group in config.instances for gpu in group.gpus})
    lost = [gpu for gpu in named if gpu >= gpus > 0]
    if lost:
        yield Finding(
            ID, "error", config.at("gpus", after="instance_group"),
            f"model {config.model}: gpus names {', '.join(map(str, lost))}, and the server has {gpus} (0 to {gpus - 1})",
            "the model does not load", "leave gpus out: then there is an instance on every GPU",
        )
