"""The buckets keep their `le` on the way into histogram_quantile.

Without `le` there are no buckets, and histogram_quantile gives nothing, without an error.

Bad:
    expr: histogram_quantile(0.99, sum by (model_name) (rate(vllm:time_to_first_token_seconds_bucket[5m]))) > 2.5

Mend:
    expr: histogram_quantile(0.99, sum by (le, model_name) (rate(vllm:time_to_first_token_seconds_bucket[5m]))) > 2.5
"""

from __future__ import annotations

from collections.abc import Iterator

from obs.checks.facts import facts
from obs.checks.syntax import Aggregate, Binary, Node
from obs.checks.world import World
from obs.model.problem import Problem

ID = "quantile-without-le"


def check(world: World) -> Iterator[Problem]:
    known = facts(world)
    for expression, _, buckets in world.quantiles():
        losing = next(_losing(buckets), None)
        labels = known.labels(buckets)
        if losing is not None:
            mend = (
                f"take le out of without ({', '.join(losing.labels)})" if losing.without
                else f"write {losing.op} by ({', '.join(('le', *losing.labels))}) (…)"
            )
            yield expression.problem(losing, "drops `le`: histogram_quantile gets no buckets and gives nothing", mend)
        elif labels is not None and labels.closed and "le" not in labels.names:
            yield expression.problem(
                buckets, "has no `le`: histogram_quantile gets no buckets and gives nothing",
                "record the buckets with le, or use a series that keeps it",
            )


def _losing(node: Node) -> Iterator[Aggregate]:
    """The aggregations that drop `le` on the way of the values: not those of conditions."""
    if isinstance(node, Aggregate) and _loses(node):
        yield node
    children = node.children[:1] if isinstance(node, Binary) and node.op in ("and", "unless") else node.children
    for child in children:
        yield from _losing(child)


def _loses(node: Aggregate) -> bool:
    if node.op in ("topk", "bottomk", "limitk", "limit_ratio"):
        return False
    return "le" in node.labels if node.without else "le" not in node.labels
