"""A scaling query is empty when its data are missing.

`or vector(0)`, `absent(...)` and the like make a number out of nothing: then neither `ignoreNullValues: "false"` nor a
fallback ever sees that the data are gone, and the service is scaled in at its peak. A known zero comes from the pods.

Bad:
    query: sum(llm_scaling_load_ratio) or vector(0)

Mend: leave the `or` out. To hold without data: `or 75 * max(kube_deployment_status_replicas{deployment="llm"})`.
"""

from __future__ import annotations

from collections.abc import Iterator

from obs.checks.manifests import queries
from obs.checks.manifests.world import ManifestWorld
from obs.checks.syntax import Binary, Call
from obs.model.problem import Problem

ID = "scaler-query-zero"


def check(world: ManifestWorld) -> Iterator[Problem]:
    for _, trigger in world.triggers():
        if trigger.tree is None:
            continue
        one = trigger.manifest
        for node in trigger.tree.walk():
            if isinstance(node, Binary) and node.op == "or" and queries.is_fixed(node.rhs):
                yield one.problem(trigger.query_at, f"`or {node.rhs.text}` turns missing data into a number",
                                  "leave it out: without data the query must be empty")
            elif isinstance(node, Call) and node.function == "vector" and node is trigger.tree:
                yield one.problem(trigger.query_at, f"`{node.text}` is a number whatever happens", "ask for a signal")
            elif isinstance(node, Call) and node.function.startswith("absent"):
                yield one.problem(trigger.query_at, f"`{node.text}` is 1 when data are missing: it scales on their absence",
                                  "leave it out and alert on the absence (LLMScalingSignalAbsent)")
