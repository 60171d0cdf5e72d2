"""A service is scaled on its load, not on what its GPU or its clock shows.

GPU utilisation is near 1 with one request and says nothing of headroom; GPU memory is taken at start; CPU waits for the GPU.
Latency is non-linear: HPA multiplies by value/target, and overshoots. Token throughput levels off at saturation: scaled on
alone, nothing above its plateau is ever asked for. A server that is up says nothing of load.

Bad:
    query: avg(DCGM_FI_DEV_GPU_UTIL{pod=~"llm-.*"})

Mend: llm_scaling_projected_load_ratio counts arrivals and KV cache.
"""

from __future__ import annotations

from collections.abc import Iterator

from obs.checks.manifests import roles
from obs.checks.manifests.scale_in import roles_of
from obs.checks.manifests.world import ManifestWorld
from obs.model.problem import Level, Problem

ID = "scaler-signal"

_WHY: dict[str, tuple[str, Level]] = {
    "gpu": ("GPU utilisation is near 1 with one request: it says nothing of headroom", "error"),
    "gpu_memory": ("LLM engines take their GPU memory at start: it never falls", "error"),
    "up": ("a server that is up says nothing of its load", "error"),
    "latency": ("latency is non-linear in load: HPA's value/target overshoots, and clients' limits show late", "warning"),
}
_RESOURCES = {"cpu": "the CPU of an LLM server waits for its GPU", "memory": "memory does not follow requests"}


def check(world: ManifestWorld) -> Iterator[Problem]:
    for scaler in world.scalers:
        told = {id(trigger): roles_of(world, trigger) for trigger in scaler.triggers}
        llm = any(found & (roles.BUSY | {"waiting", "latency", "gpu"}) for found in told.values())
        for trigger in scaler.triggers:
            one = trigger.manifest
            at = trigger.query_at or trigger.metric_at or trigger.at
            found = told[id(trigger)]
            resource = trigger.metric if trigger.type.lower() in ("cpu", "memory", "resource", "containerresource") else ""
            if resource in _RESOURCES and llm:
                yield one.problem(trigger.at, f"{_RESOURCES[resource]}: it only holds replicas up", "leave the trigger out",
                                  "warning")
            for role in sorted(found & set(_WHY)):
                what, level = _WHY[role]
                yield one.problem(at, what, "scale on llm_scaling_projected_load_ratio", level)
            if found == {"tokens"} and len(scaler.triggers) == 1:
                yield one.problem(at, "token throughput levels off at saturation: it never asks for what is missing",
                                  "scale on llm_scaling_projected_load_ratio, which counts arrivals", "warning")
