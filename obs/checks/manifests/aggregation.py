"""The aggregation over pods fits the target's type.

`AverageValue`, KEDA's default, divides by the replicas: it wants a sum, and an average is divided twice, so that two loaded
pods read as half loaded. `Value` compares as it is: it wants an average, and with a sum the ratio grows with every replica
that it adds. KServe's InferenceService always makes an AverageValue. A query with one element per pod is an error for KEDA
from the second replica on (vllm-project/production-stack's tutorial).

Bad:
    metricType: AverageValue
    metadata: {query: avg(llm_scaling_load_ratio)}

Mend:
    metadata: {query: avg(llm_scaling_load_ratio) * max(kube_deployment_status_replicas_ready{deployment="llm"})}
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from obs.checks.manifests import queries, roles
from obs.checks.manifests.objects import text
from obs.checks.manifests.scalers import Scaler, Trigger
from obs.checks.manifests.world import ManifestWorld
from obs.engines import metric_owners
from obs.model.problem import Problem

ID = "scaler-aggregation"

_MEANS = frozenset({"avg", "max", "min", "quantile"})


def check(world: ManifestWorld) -> Iterator[Problem]:
    for scaler, trigger in world.triggers():
        if trigger.tree is not None:
            yield from _query(scaler, trigger)
        elif trigger.type == "metrics-api":
            yield from _metrics_api(trigger)
        elif trigger.type in ("Object", "External") and trigger.metric_type == "Value" and _adds_up(world, trigger):
            yield trigger.manifest.problem(
                trigger.metric_at, f"the adapter's rule for {trigger.metric} adds up the pods, and Value compares that as it "
                "is: each replica added asks for more", "use an External metric with AverageValue, or Pods metrics",
            )
        elif trigger.type == "Pods" and trigger.metric_type != "AverageValue":
            yield trigger.manifest.problem((*trigger.at, "pods", "target", "type"),
                                           f"a Pods metric takes AverageValue only, not {trigger.metric_type or 'nothing'}",
                                           "write type: AverageValue and averageValue")


def _adds_up(world: ManifestWorld, trigger: Trigger) -> bool:
    """Whether a rule of the adapter serves the sum of an engine's series over the pods."""
    return any(
        re.match(r"\s*sum\b", rule.query) and any(metric_owners(name) for name in rule.selectors)
        for rule in world.adapter_rules
        if rule.external == (trigger.type == "External") and rule.serves(trigger.metric)
    )


def _query(scaler: Scaler, trigger: Trigger) -> Iterator[Problem]:
    assert trigger.tree is not None
    one = trigger.manifest
    form = queries.form(trigger.tree)
    if roles.of_engine(trigger.tree) and not queries.single(trigger.tree):
        yield one.problem(trigger.query_at, "has one element per pod (or model): KEDA takes one, and fails with more",
                          "aggregate it: avg(...) * max(kube_deployment_status_replicas_ready{...})")
        return
    total = form.times_pods or form.over_pods == "sum"
    if trigger.metric_type == "AverageValue" and form.over_pods in _MEANS and not form.times_pods:
        always = " (KServe always makes one)" if scaler.form == "kserve" else ""
        yield one.problem(
            trigger.query_at, f"{form.over_pods} is the value of one pod, and AverageValue{always} divides it by the replicas "
            "again", "multiply by max(kube_deployment_status_replicas_ready{...})"
            + ("" if scaler.form == "kserve" else ", or write metricType: Value (fallback then needs KEDA 2.18)"),
        )
    elif trigger.metric_type == "Value" and total and roles.of_engine(trigger.tree):
        yield one.problem(trigger.query_at, "grows with the replicas, and Value compares it as it is: each replica added asks "
                          "for more", "write metricType: AverageValue, or an average")


def _metrics_api(trigger: Trigger) -> Iterator[Problem]:
    one = trigger.manifest
    metadata = (*trigger.at, "metadata")
    several = text(one.get(*metadata, "aggregateFromKubeServiceEndpoints")).lower() in ("true", "t", "1")
    how = text(one.get(*metadata, "aggregationType")) or "average"
    if not several:
        yield one.problem((*metadata, "aggregateFromKubeServiceEndpoints"),
                          "is not \"true\": the service answers with one pod's value, another one each time",
                          'write aggregateFromKubeServiceEndpoints: "true" (KEDA 2.20)')
    elif how in ("average", "max", "min") and trigger.metric_type == "AverageValue":
        yield one.problem((*metadata, "aggregationType"), f"{how} is the value of one pod, and AverageValue divides it by the "
                          "replicas again", "write metricType: Value")
    elif how == "sum" and trigger.metric_type == "Value":
        yield one.problem((*metadata, "aggregationType"), "a sum grows with the replicas, and Value compares it as it is",
                          "write aggregationType: average")
