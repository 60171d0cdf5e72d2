"""At least one replica stays, unless something outside the pods can wake the service.

The signals live in the pods: at 0 replicas there is no series, the result is empty, and nothing wakes the service
(llm-d/llm-d#2492). A trigger outside (a gateway's queue, a message queue) can. KEDA's minReplicaCount is 0 when it is left
out. KServe's `minReplicas: 0` is the same, but in its Knative mode, where the activator wakes the service.

Bad:
    minReplicaCount: 0
    triggers: [{type: prometheus, metadata: {query: "sum(vllm:num_requests_waiting)", ...}}]

Mend:
    minReplicaCount: 2
"""

from __future__ import annotations

from collections.abc import Iterator

from obs.checks.manifests import roles
from obs.checks.manifests.objects import number, text
from obs.checks.manifests.scalers import MODE, Trigger
from obs.checks.manifests.world import ManifestWorld
from obs.model.problem import Problem

ID = "scaler-min-replicas"

_INSIDE = frozenset({"cpu", "memory", "Pods", "Resource", "ContainerResource", "PodMetric", "metrics-api"})


def check(world: ManifestWorld) -> Iterator[Problem]:
    for scaler in world.scalers:
        one = scaler.manifest
        knative = text(one.get("metadata", "annotations", MODE)) in ("Serverless", "Knative")
        outside = knative or any(map(_outside, scaler.triggers))
        if scaler.least < 1 and not outside:
            given = "is 0" if one.get(*scaler.least_at) is not None else "is not there, which means 0"
            yield one.problem(scaler.least_at, f"{given}: without pods there is no signal, and nothing wakes the service",
                              "write 1 or more (2 to survive one pod), or add a trigger outside the pods")
        idle = (*scaler.keda_at, "idleReplicaCount")
        if scaler.keda_at and number(one.get(*idle)) == 0 and not outside:
            yield one.problem(idle, "is 0: without pods there is no signal, and nothing wakes the service", "leave it out")
        if scaler.most is not None and scaler.most < scaler.least:
            yield one.problem(scaler.most_at, f"{scaler.most} is below the minimum of {scaler.least}", "swap them")


def _outside(trigger: Trigger) -> bool:
    """Whether it may have a value without pods."""
    if trigger.type == "prometheus":
        return trigger.tree is not None and not roles.of_engine(trigger.tree)
    return bool(trigger.type) and trigger.type not in _INSIDE and roles.role(trigger.metric) in ("", "platform")
