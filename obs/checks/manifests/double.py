"""One workload has one autoscaler.

An HPA beside a ScaledObject (which makes an HPA of its own), or two of either, undo each other's decisions: the replicas
swing between their answers. KServe makes one too unless its class is external. Files of folders beside each other are taken
for alternatives, as overlays are.

Bad: an HPA and a ScaledObject on Deployment llm.

Mend: keep one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from obs.checks.manifests.scalers import Scaler
from obs.checks.manifests.world import ManifestWorld
from obs.model.problem import Problem

ID = "scaler-double"


def check(world: ManifestWorld) -> Iterator[Problem]:
    seen: dict[tuple[str, str, str], list[Scaler]] = {}
    for scaler in world.scalers:
        if not scaler.target[2]:
            continue
        others = seen.setdefault(scaler.target, [])
        other = next((one for one in others if _together(one, scaler)), None)
        others.append(scaler)
        if other is not None:
            where = other.manifest
            yield scaler.manifest.problem(
                ("spec", "scaleTargetRef") if scaler.form in ("hpa", "keda") else ("spec",),
                f"{scaler.target[1]} {scaler.target[2]} is scaled by {where.subject} too ({where.path}:{where.line()})",
                "keep one of them",
            )


def _together(one: Scaler, other: Scaler) -> bool:
    """Whether they are two objects, and the folder of one file is that of the other, or around it."""
    if one.manifest.subject == other.manifest.subject:
        return False  # the same object, given twice
    first, second = Path(one.manifest.path).parent, Path(other.manifest.path).parent
    return first == second or first in second.parents or second in first.parents
