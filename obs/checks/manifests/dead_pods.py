"""A pod that is gone counts no more.

`max_over_time(...[1m])` keeps a terminated pod's last load for the length of its range: the scaler adds replicas for it,
which ends in an oscillation (llm-d/llm-d-autoscaling#368). And the number of pods that have a series is not the number of
pods. Take the gauges as they are, or keep the living: `and on (pod) kube_pod_status_ready{condition="true"} == 1`.

Bad:
    query: sum(max_over_time(llm_kv_cache_usage_ratio[1m]))

Mend:
    query: sum(max_over_time(llm_kv_cache_usage_ratio[1m]) and on (pod) kube_pod_status_ready{condition="true"} == 1)
"""

from __future__ import annotations

from collections.abc import Iterator

from obs.checks.manifests.roles import of_engine
from obs.checks.manifests.world import ManifestWorld
from obs.checks.syntax import Aggregate, Binary, Call, Node, Selector, Subquery
from obs.model.problem import Problem

ID = "scaler-dead-pods"

_RATES = frozenset({"rate", "irate", "increase"})


def check(world: ManifestWorld) -> Iterator[Problem]:
    for _, trigger in world.triggers():
        if trigger.tree is None:
            continue
        one = trigger.manifest
        for node in _lasting(trigger.tree):
            yield one.problem(trigger.query_at, f"`{node.text}` goes on counting a pod that is gone",
                              'take the gauge as it is, or write `and on (pod) kube_pod_status_ready{condition="true"} == 1`')
        for node in trigger.tree.walk():
            if isinstance(node, Binary) and node.op in ("*", "/"):
                for side in node.children:
                    if isinstance(side, Aggregate) and side.op in ("count", "group") and of_engine(side):
                        yield one.problem(
                            trigger.query_at, f"`{side.text}` counts the pods that have a series, not those that run",
                            "take kube_deployment_status_replicas_ready", "warning",
                        )


def _lasting(node: Node) -> Iterator[Node]:
    """Ranges over engines' series that no condition limits to living pods."""
    if isinstance(node, Binary) and node.op == "and" and _alive(node.rhs):
        return
    if isinstance(node, Call) and node.function not in _RATES and any(
        (isinstance(arg, Selector) and arg.range is not None) or isinstance(arg, Subquery) for arg in node.args
    ) and of_engine(node):
        yield node
        return
    for child in node.children:
        yield from _lasting(child)


def _alive(node: Node) -> bool:
    return any(isinstance(part, Selector) and (part.name == "up" or part.name.startswith("kube_pod_"))
               for part in node.walk())
