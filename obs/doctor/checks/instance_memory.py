"""The instances of all models fit into the GPU's memory.

Every instance of an ONNX, PyTorch or Python model holds its own copy of the weights. What is counted is the size of the
version folders times the instances on a GPU: a lower bound, for activations and workspaces come on top. TensorRT engines
are shared by the instances of a GPU and count once.

Mend: a smaller count in instance_group, or other GPUs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from obs.doctor.facts import DiskModel, Facts
from obs.doctor.finding import Finding

ID = "instance-memory"

GIB = 1024**3
_SHARED = frozenset(("tensorrt", "tensorrtllm"))
_OWN_RULES = frozenset(("vllm",))


def check(facts: Facts) -> Iterator[Finding]:
    if facts.repository is None or facts.page is None:
        return
    sizes = [sample.value for sample in facts.page.of("nv_gpu_memory_total_bytes") if sample.value > 0]
    if not sizes:
        return
    per_gpu: defaultdict[int, list[tuple[DiskModel, int, int]]] = defaultdict(list)
    for model in facts.repository.models:
        config = model.config
        if config is None or not model.versions or config.backend in _OWN_RULES:
            continue
        for group in config.instances:
            if group.kind != "KIND_GPU":
                continue
            count = 1 if config.backend in _SHARED else group.count
            for gpu in group.gpus or range(len(sizes)):
                per_gpu[gpu].append((model, count, model.versions[-1].size))
    for gpu, ones in sorted(per_gpu.items()):
        room = min(sizes)
        total = sum(count * size for _, count, size in ones)
        if total <= room:
            continue
        model, count, size = max(ones, key=lambda one: one[1] * one[2])
        assert model.config is not None
        fits = max(1, int((room - total + count * size) // size))
        yield Finding(
            ID, "warning", model.config.at("count", after="instance_group"),
            f"GPU {gpu}: the instances need at least {total / GIB:.1f} GiB of {room / GIB:.1f} GiB; "
            f"{model.folder} alone {count} x {size / GIB:.1f} GiB",
            "the last instances fail to load with out of memory",
            f"instance_group [ {{ kind: KIND_GPU count: {fits} }} ]",
        )
