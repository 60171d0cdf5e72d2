"""A pod that is scaled in may end its longest answer.

Kubernetes kills a pod `terminationGracePeriodSeconds` after it asked it to end, 30 s unless told. A generation of three
minutes is cut off, and the client sees a broken stream. Checked for the workloads that a scaler in the same files scales,
and for pods with the sidecar. The longest answer is `longest_generation` in obs.yaml, 5m unless told.

Bad:
    template: {spec: {containers: [...]}}

Mend:
    template: {spec: {terminationGracePeriodSeconds: 330, containers: [...]}}
"""

from __future__ import annotations

from collections.abc import Iterator

from obs.checks.manifests.objects import Keys, Manifest, number
from obs.checks.manifests.world import ManifestWorld
from obs.model.problem import Problem
from obs.promql import duration

ID = "scaler-grace"

DEFAULT = 30.0
_PODS: dict[str, Keys] = {
    "Deployment": ("spec", "template", "spec"), "StatefulSet": ("spec", "template", "spec"),
    "InferenceService": ("spec", "predictor"),
}


def check(world: ManifestWorld) -> Iterator[Problem]:
    scaled = {scaler.target for scaler in world.scalers}
    for one in world.manifests:
        at = _PODS.get(one.kind)
        if at is None:
            continue
        target = (one.namespace, "Deployment", f"{one.name}-predictor") if one.kind == "InferenceService" else (
            one.namespace, one.kind, one.name)
        if target not in scaled and not _has_sidecar(one, at):
            continue
        longest = world.longest_generation(target)
        place = (*at, "terminationGracePeriodSeconds")
        given = number(one.get(*place))
        effective = DEFAULT if given is None else given
        if effective < longest:
            yield one.problem(
                place, f"{duration(effective)}{' (the default)' if given is None else ''} is shorter than the longest "
                f"generation, {duration(longest)}: a scale-in cuts it off", f"write {longest + DEFAULT:g}",
            )


def _has_sidecar(one: Manifest, at: Keys) -> bool:
    return any(
        "obs-sidecar" in str(container.get("image", "")) or container.get("name") == "obs-sidecar"
        for key in ("initContainers", "containers") for _, container in one.items(*at, key)
    )
