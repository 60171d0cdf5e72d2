"""The backend of every model is installed.

A backend is BACKENDS/NAME/libtriton_NAME.so, or model.py for one written in Python, or a library beside the model.
Images differ in what they carry: the -py3, -vllm-python-py3 and -trtllm-python-py3 tags are different images.

Mend: the image that has the backend, or --backend-directory.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from obs.doctor.facts import Facts
from obs.doctor.finding import Finding

ID = "backend-library"

#: The backends of NVIDIA's images and of the server's documentation.
KNOWN = (
    "dali", "fil", "identity", "onnxruntime", "openvino", "python", "pytorch", "tensorflow", "tensorrt", "tensorrtllm", "vllm",
)
_IMAGES = {"vllm": "-vllm-python-py3", "tensorrtllm": "-trtllm-python-py3 (up to 26.07)"}


def check(facts: Facts) -> Iterator[Finding]:
    repository = facts.repository
    if repository is None:
        return
    for model in repository.models:
        config = model.config
        if config is None or repository.backends.get(config.backend, True):
            continue
        tag = _IMAGES.get(config.backend, "-py3")
        near = "" if config.backend in KNOWN else _near(config.backend)
        yield Finding(
            ID, "error", config.at("backend"),
            f"model {model.folder}: backend {config.backend} is not in {repository.backend_folder}",
            "the model does not load", f'backend: "{near}"' if near
            else f"use the image tag {tag}, or give the folder that has it with --backend-directory",
        )


def _near(name: str) -> str:
    """The backend that was meant; "" where none is like it."""
    bare = name.lower().replace("_", "").replace("-", "")
    longer = [one for one in KNOWN if one.startswith(bare) or bare.startswith(one)] if len(bare) > 3 else []
    return max(longer, key=len) if longer else next(iter(difflib.get_close_matches(bare, KNOWN, n=1, cutoff=0.75)), "")
