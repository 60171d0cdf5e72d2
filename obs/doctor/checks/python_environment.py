"""A Python model's environment is there, and it has one where it needs one.

EXECUTION_ENV_PATH names a folder or an archive of conda-pack; when it points at nothing the model does not load. Without
it the model's imports must be in the server's own Python.

Mend:
    parameters { key: "EXECUTION_ENV_PATH" value { string_value: "$$TRITON_MODEL_DIRECTORY/env.tar.gz" } }
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from obs.doctor.facts import Facts
from obs.doctor.finding import Finding
from obs.doctor.repository import ENVIRONMENT, OWN_FOLDER

ID = "python-environment"

LINE = f'parameters {{ key: "{ENVIRONMENT}" value {{ string_value: "{OWN_FOLDER}/env.tar.gz" }} }}'


def check(facts: Facts) -> Iterator[Finding]:
    ready = {one.name for one in (facts.triton.index or () if facts.triton else ()) if one.state == "READY"}
    for model in facts.repository.models if facts.repository is not None else ():
        config = model.config
        if config is None:
            continue
        if model.source_broken is not None and model.folder not in ready:
            place, why = model.source_broken
            here = f"{sys.version_info[0]}.{sys.version_info[1]}"
            yield Finding(
                ID, "warning", place, f"model {model.folder}: model.py is no Python {here}: {why}",
                "the model does not load, unless the server's Python is a newer one", "correct it there",
            )
        if model.environment is not None:
            path, there = model.environment
            inside = Path(path).is_relative_to(model.path)
            if not there and inside:
                yield Finding(
                    ID, "error", config.at(ENVIRONMENT), f"model {model.folder}: {ENVIRONMENT} points at nothing: {path}",
                    "the Python backend cannot start: the model does not load",
                    "put the environment there, or correct the path:\n" + LINE,
                )
            elif not there and model.folder not in ready:
                yield Finding(
                    ID, "warning", config.at(ENVIRONMENT),
                    f"model {model.folder}: {ENVIRONMENT} is not on this machine: {path}",
                    "if it is not in the server's container either, the model does not load",
                    "check it there, or keep it beside the model:\n" + LINE,
                )
        elif model.imports and model.folder not in ready:
            yield Finding(
                ID, "info", config.place, f"model {model.folder} imports {', '.join(model.imports)} and has no {ENVIRONMENT}",
                "they must be in the server's own Python, or the model does not load", LINE,
            )
