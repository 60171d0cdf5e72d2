"""A metric under its old name is read beside its successor.

Engines rename metrics: vLLM's `vllm:gpu_cache_usage_perc` became `vllm:kv_cache_usage_perc`, and the old name is no
longer served. A rule that reads only the old one goes silent with an upgrade, and nothing tells.

Bad:
    expr: vllm:gpu_cache_usage_perc > 0.9

Mend: use the new name, or both while you run both versions:
    expr: (vllm:kv_cache_usage_perc or vllm:gpu_cache_usage_perc) > 0.9
"""

from __future__ import annotations

from collections.abc import Iterator

from obs.checks.syntax import Selector
from obs.checks.world import World
from obs.model.problem import Problem

ID = "renamed-metric"


def check(world: World) -> Iterator[Problem]:
    for expression in world.expressions:
        selectors = [node for node in expression.nodes if isinstance(node, Selector)]
        read = {node.name for node in selectors}
        seen: set[str] = set()
        for node in selectors:
            owners = world.owners(node)
            if node.name in seen or not owners or not all(metric.until for _, metric in owners):
                continue
            seen.add(node.name)
            engine, metric = owners[0]
            if not metric.renamed_to:
                continue  # docs/catalogue.md tells; there is nothing to use in its place
            gone = f"was served by {engine.title} up to {metric.until} only"
            successor = node.name.replace(metric.name, metric.renamed_to)
            if not any(name.startswith(metric.renamed_to) or name == successor for name in read):
                yield expression.problem(
                    node.name, f"{gone}; its name is now {metric.renamed_to}",
                    f"use {successor}, or `{successor} or {node.name}` while both versions run", "warning",
                )
