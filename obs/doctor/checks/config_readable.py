"""Every config.pbtxt can be read, by protobuf's own parser and the schema that tritonclient carries.

A word that the schema does not know, or a bracket that does not close, and the model does not load. A field that is newer
than the installed tritonclient is refused here as well: upgrade it then.

Mend: correct the line that is named.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from obs.doctor.facts import DiskModel, Facts
from obs.doctor.finding import Finding

ID = "config-readable"


def check(facts: Facts) -> Iterator[Finding]:
    for model in facts.repository.models if facts.repository is not None else ():
        if model.broken is not None:
            place, why = model.broken
            yield Finding(
                ID, "error", place, f"model {model.folder}: config.pbtxt cannot be read: {why}",
                "the model does not load", "correct it there (a newer Triton may know more: pip install -U tritonclient)",
            )
        elif model.config is None and (near := _misnamed(model)):
            yield Finding(
                ID, "warning", f"{model.path}/{near}", f"model {model.folder}: {near} is not read: the name is config.pbtxt",
                "Triton takes its defaults, or does not load the model", f"mv {near} config.pbtxt",
            )
        elif model.config is None and model.versions:
            yield Finding(
                ID, "info", model.path, f"model {model.folder} has no config.pbtxt",
                "Triton completes it from the model file where the backend can; batching and instances are its defaults",
                "write down what it made of it: GET /v2/models/" + model.folder + "/config",
            )
        elif model.config is None:
            yield Finding(
                ID, "warning", model.path, f"{model.folder} is no model: no config.pbtxt, no version folder",
                "Triton reports it as a model that failed to load", "remove the folder from the repository",
            )


def _misnamed(model: DiskModel) -> str:
    """A file that was meant to be config.pbtxt; "" for none."""
    files = {one.lower(): one for one in reversed(model.beside) if not one.endswith("/")}
    near = difflib.get_close_matches("config.pbtxt", files, n=1, cutoff=0.75)
    return files[near[0]] if near else ""
