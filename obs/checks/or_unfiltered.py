"""Both sides of an alert's `or` are conditions.

`or` binds more loosely than a comparison: in `new or old > 0.9` only `old` is compared, and the alert fires for every
series of `new`, whatever its value. That is how rules that read a metric under two names usually go wrong.

Bad:
    expr: vllm:kv_cache_usage_perc or vllm:gpu_cache_usage_perc > 0.9

Mend:
    expr: (vllm:kv_cache_usage_perc or vllm:gpu_cache_usage_perc) > 0.9
"""

from __future__ import annotations

from collections.abc import Iterator

from obs.checks.facts import Facts, facts
from obs.checks.syntax import Binary, Node
from obs.checks.world import World
from obs.model.problem import Problem

ID = "or-unfiltered"


def check(world: World) -> Iterator[Problem]:
    known = facts(world)
    for expression in world.expressions:
        tree = expression.tree
        if not expression.is_alert or not isinstance(tree, Binary) or tree.op != "or":
            continue
        arms = tuple(_arms(tree))
        compared = [arm for arm in arms if isinstance(arm, Binary) and arm.compares and not arm.returns_bool]
        for arm in arms if compared else ():
            if _is_bare(arm, known):
                yield expression.problem(
                    arm, f"is not compared: `or` binds more loosely than `{compared[0].op}`, so the alert fires "
                    "whenever this exists", f"write (… or …) {compared[0].op} {compared[0].rhs.text}",
                )


def _arms(node: Node) -> Iterator[Node]:
    if isinstance(node, Binary) and node.op == "or":
        yield from _arms(node.lhs)
        yield from _arms(node.rhs)
    else:
        yield node


def _is_bare(node: Node, known: Facts) -> bool:
    """Whether the node is a measured value that nothing filters."""
    if any(isinstance(part, Binary) and (part.compares or part.op in ("and", "unless")) for part in node.walk()):
        return False
    found = known.of(node)
    return bool(found) and all(fact.kind in ("gauge", "rate", "quantile", "counter", "bucket_rate") for fact in found)
