"""A model's name is that of its folder.

Triton refuses a configuration whose name is not the folder's (core: "the name in the model configuration must match").

Mend: name: "FOLDER", or no name at all.
"""

from __future__ import annotations

from collections.abc import Iterator

from obs.doctor.facts import Facts
from obs.doctor.finding import Finding

ID = "model-name"


def check(facts: Facts) -> Iterator[Finding]:
    for model in facts.repository.models if facts.repository is not None else ():
        config = model.config
        if config is not None and config.name and config.name != model.folder:
            yield Finding(
                ID, "error", config.at("name"), f"name {config.name!r} is not the folder's, {model.folder!r}",
                "Triton does not load the model (unless namespacing is on)", f'name: "{model.folder}"',
            )
