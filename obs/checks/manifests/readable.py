"""A file that names a scaler can be read.

A template that was not rendered, or YAML with a slip in it: nothing of the file could be checked, and nothing of it can be
applied. Files of a folder that are no YAML and name no scaler are passed over, and counted.

Bad:
    image: {user}/server:1.0

Mend: render the templates first (`helm template`, `kustomize build`), or mend the syntax.
"""

from __future__ import annotations

from collections.abc import Iterator

from obs.checks.manifests.world import ManifestWorld
from obs.model.problem import Problem

ID = "manifest-readable"


def check(world: ManifestWorld) -> Iterator[Problem]:
    yield from world.unreadable
