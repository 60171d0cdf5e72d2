"""Every metric that a scaler names is one that is served.

HPA shows <unknown> for a name that no rule of the adapter serves, and never scales. Names with a colon cannot be asked for:
`vllm:num_requests_waiting` has to be renamed by the adapter's rule, and `vllm_num_requests_waiting` is nobody's
(vllm-project/production-stack#341). The sidecar's names have no colon.

Bad:
    metrics: [{type: Pods, pods: {metric: {name: "vllm_num_requests_waiting"}, ...}}]

Mend: name a metric of the sidecar, or add the adapter's rule to the files.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from obs.checks.manifests.scalers import Trigger
from obs.checks.manifests.world import ManifestWorld
from obs.checks.unknown_metric import explain
from obs.engines import metric_owners
from obs.engines.sidecar import ENGINE
from obs.model.problem import Problem

ID = "scaler-metric-name"


def check(world: ManifestWorld) -> Iterator[Problem]:
    for _, trigger in world.triggers():
        if trigger.type in ("Pods", "External", "Object") and not trigger.of_keda:
            yield from _hpa(world, trigger)
        elif trigger.type == "metrics-api" and trigger.metric.startswith("llm_") and not metric_owners(trigger.metric):
            yield trigger.manifest.problem(trigger.metric_at, f"{trigger.metric} is nothing that the sidecar serves",
                                           _nearest(trigger.metric))
    for rule in world.adapter_rules:
        for name in rule.selectors:
            what, mend, level = explain(name) if name and not world.queries.is_known(name) else ("", "", "info")
            if what:
                yield rule.manifest.problem((*rule.at, "seriesQuery"), f"{name} {what}", mend, level)


def _hpa(world: ManifestWorld, trigger: Trigger) -> Iterator[Problem]:
    one, name = trigger.manifest, trigger.metric
    if not name:
        yield one.problem(trigger.metric_at, "is not there", "name the metric")
        return
    if ":" in name:
        yield one.problem(trigger.metric_at, f"{name} has a colon, which the metrics API does not take",
                          "name a metric of the sidecar, or what the adapter's rule makes of it")
        return
    external = trigger.type == "External"
    serving = [rule for rule in world.adapter_rules if rule.external == external and rule.serves(name)]
    if serving:
        return
    if any(rule.external == external for rule in world.adapter_rules):
        what = "external rule" if external else "rule"
        yield one.problem(trigger.metric_at, f"no {what} of prometheus-adapter serves {name}: HPA shows <unknown>",
                          "add the rule, or correct the name")
    elif not metric_owners(name):
        what, mend, _ = explain(name)
        told = f"{name} {what}" if what else f"no engine serves {name}, and no rule of prometheus-adapter is among the files"
        yield one.problem(trigger.metric_at, told, mend or _nearest(name), "error" if what else "warning")


def _nearest(name: str) -> str:
    near = difflib.get_close_matches(name, [metric.name for metric in ENGINE.metrics], n=1)
    return f"did you mean {near[0]}?" if near else "name one that is served, or check the adapter's rules too"
