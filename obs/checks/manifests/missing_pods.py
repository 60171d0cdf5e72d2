"""A pod that runs and has no value does not count as idle.

External metrics have no missing-pod rule: HPA takes KEDA's number as it is. In a sum a pod whose exporter or sidecar
dropped out counts as 0, and the service is scaled in while it is loaded. So: the mean of the pods that answer times the
ready pods, or HPA's Pods metrics, which take a missing pod to be on target when they scale in.

Bad:
    query: sum(llm_scaling_load_ratio{namespace="ml"})

Mend:
    query: avg(llm_scaling_load_ratio{namespace="ml"}) * max(kube_deployment_status_replicas_ready{deployment="llm"})
"""

from __future__ import annotations

from collections.abc import Iterator

from obs.checks.manifests import queries, roles
from obs.checks.manifests.objects import text
from obs.checks.manifests.world import ManifestWorld
from obs.model.problem import Problem

ID = "scaler-missing-pods"


def check(world: ManifestWorld) -> Iterator[Problem]:
    for _, trigger in world.triggers():
        one = trigger.manifest
        if trigger.type == "metrics-api":
            at = (*trigger.at, "metadata", "aggregationType")
            if text(one.get(*at)) == "sum":
                yield one.problem(at, "in a sum a pod that does not answer counts as idle",
                                  "write average, with metricType: Value (KEDA 2.20)", "warning")
        if trigger.tree is None:
            continue
        form = queries.form(trigger.tree)
        if form.over_pods == "sum" and not form.times_pods and any(
            roles.role(name) in roles.BUSY or roles.role(name) == "waiting" for name in roles.names(form.core)
        ):
            yield one.problem(
                trigger.query_at, "in a sum a pod that runs without a value counts as idle",
                "write avg(...) * max(kube_deployment_status_replicas_ready{...}) instead of sum(...)", "warning",
            )
