"""The container release fits what runs in it.

From 26.08 on NVIDIA ships no Triton image with the TensorRT-LLM backend on NGC, and the image is built on CUDA 13.4, which
wants a driver that supports it. Sources: the project's issue 4, and the release notes of 26.08 to 26.10
(docs.nvidia.com/deeplearning/triton-inference-server/release-notes).

Mend: stay on the last image that has the backend, build your own, or move to trtllm-serve; check the driver.
"""

from __future__ import annotations

from collections.abc import Iterator

from obs.doctor.facts import Facts
from obs.doctor.finding import Finding
from obs.doctor.releases import Release

ID = "release"

WITHOUT_TRTLLM = Release(26, 8)
CUDA_13_4 = Release(26, 8)


def check(facts: Facts) -> Iterator[Finding]:
    triton = facts.triton
    release = triton.release if triton is not None else None
    if triton is None or release is None:
        return
    if release >= WITHOUT_TRTLLM:
        for config in facts.configs():
            if config.backend == "tensorrtllm":
                yield Finding(
                    ID, "warning", config.at("backend"),
                    f"model {config.model} needs the tensorrtllm backend, which no NGC image has from {WITHOUT_TRTLLM} on "
                    f"(this is {release})",
                    "an upgrade by image tag alone leaves the model without its backend",
                    "keep the image tag 26.07-trtllm-python-py3, build an image of your own, or move to trtllm-serve",
                )
    if release >= CUDA_13_4 and any(config.gpu_instances or config.vllm or config.trtllm for config in facts.configs()):
        yield Finding(
            ID, "info", triton.url, f"Triton {triton.version} (about {release}) is built on CUDA 13.4",
            "an older NVIDIA driver runs it only where CUDA forward compatibility covers it; else models fail to load",
            "check the driver with nvidia-smi against NVIDIA's CUDA compatibility table",
        )
