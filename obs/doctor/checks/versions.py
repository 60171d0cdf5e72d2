"""Every version that should be served has a model file, and is served.

version_policy picks the newest version unless it says otherwise. A folder that it leaves out is never loaded, and one that
came after the start is loaded only when the server polls or is told to.

Mend:
    version_policy { latest { num_versions: 2 } }    # or all { }, or specific { versions: [ 1, 3 ] }
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence

from obs.doctor.facts import DiskModel, Facts, ModelConfig
from obs.doctor.finding import Finding

ID = "versions"

#: The file that a backend looks for when default_model_filename says nothing (each backend's own default).
FILES = {
    "python": ("model.py",), "onnxruntime": ("model.onnx",), "tensorrt": ("model.plan",), "pytorch": ("model.pt", "model.pt2"),
    "openvino": ("model.xml",), "vllm": ("model.json",),
}


def check(facts: Facts) -> Iterator[Finding]:
    served: dict[str, set[str]] = {}
    for one in facts.triton.index or () if facts.triton is not None else ():
        if one.state == "READY":
            served.setdefault(one.name, set()).add(one.version)
    for model in facts.repository.models if facts.repository is not None else ():
        config = model.config
        if config is not None:
            yield from _of_model(model, config, served.get(model.folder), facts.flag("model-control-mode"))


def _of_model(model: DiskModel, config: ModelConfig, served: set[str] | None, mode: str) -> Iterator[Finding]:
    numbers = [one.number for one in model.versions]
    if not numbers:
        meant = next((one[:-1] for one in model.beside if re.fullmatch(r"(?i)(v|version[-_]?)?\d+/", one)), "")
        loose = next((one for one in model.beside if one in _files(config)), "")
        yield Finding(
            ID, "error", f"{model.path}/{meant or loose}".rstrip("/"), f"model {model.folder} has no version folder"
            + (f": {meant} is no number without a leading zero, and is passed over" if meant else
               f": {loose} lies beside config.pbtxt" if loose else ""),
            "the model does not load",
            f"mv {model.path}/{meant} {model.path}/{int(re.sub('[^0-9]', '', meant)) or 1}" if meant
            else f"mkdir {model.path}/1 && mv {model.path}/{loose} {model.path}/1/" if loose
            else f"put the model into {model.path}/1/",
        )
        return
    wanted = _wanted(config, numbers)
    missing = [number for number in wanted if number not in numbers]
    if missing:
        yield Finding(
            ID, "error", config.at("version_policy"), f"model {model.folder}: version_policy names version {_list(missing)}, "
            f"and there is {_list(numbers)}", "the model does not load",
            f"version_policy {{ specific {{ versions: [ {numbers[-1]} ] }} }}",
        )
    for version in model.versions:
        names = _files(config)
        if version.number in wanted and names and not any(name in version.files for name in names):
            near = difflib.get_close_matches(names[0], [one.lower() for one in version.files], n=1, cutoff=0.8)
            other = next((one for one in version.files if one.lower() in near), "")
            yield Finding(
                ID, "error", f"{model.path}/{version.number}",
                f"model {model.folder} version {version.number} has no {' or '.join(names)}"
                + (f", but {other}" if other else ""),
                "Triton waits for it for ever, and opens no port (seen with 2.51)" if config.backend == "python"
                else "this version does not load",
                f"mv {other} {names[0]}" if other
                else f"put {names[0]} there, remove the folder, or set default_model_filename",
            )
    left = [number for number in numbers if number not in wanted and str(number) not in (served or ())]
    if left and max(left) > max(wanted, default=0):
        yield Finding(
            ID, "warning", config.at("version_policy"),
            f"model {model.folder}: version_policy leaves out the newest, {_list(left)}",
            "a release that was copied there is never served", "version_policy { latest { num_versions: 1 } }",
        )
    elif left:
        yield Finding(
            ID, "info", config.at("version_policy"),
            f"model {model.folder}: version {_list(left)} is not loaded by its version policy",
            "only what is loaded has series", f"version_policy {{ latest {{ num_versions: {len(numbers)} }} }}",
        )
    if served is not None:
        waiting = [number for number in wanted if number in numbers and str(number) not in served]
        if waiting:
            yield Finding(
                ID, "warning", f"{model.path}/{waiting[-1]}",
                f"model {model.folder}: version {_list(waiting)} is on disk and not loaded; "
                f"the server has {_list(sorted(served))}",
                "requests get the old version, and nothing says so",
                "wait for the next poll, and see the server's log when it does not load" if mode == "poll"
                else f"explicit control: POST /v2/repository/models/{model.folder}/load; else restart the server",
            )


def _files(config: ModelConfig) -> tuple[str, ...]:
    """The names that the model's file may have; () where that is not known."""
    return (config.default_model_filename,) if config.default_model_filename else FILES.get(config.backend, ())


def _wanted(config: ModelConfig, numbers: list[int]) -> list[int]:
    policy = config.version_policy
    if "all" in policy:
        return numbers
    if "specific" in policy:
        return sorted(int(one) for one in policy["specific"].get("versions", ()))
    latest = policy.get("latest")
    count = int(latest.get("num_versions", 1) or 1) if latest else 1
    return numbers[-count:]


def _list(items: Sequence[object]) -> str:
    return ", ".join(str(one) for one in items)
