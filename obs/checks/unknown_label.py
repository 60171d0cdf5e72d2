"""Matchers and groupings use labels that the metric has.

A matcher on a label that the series do not have matches nothing, and a sum by one folds everything together. Native
vLLM calls the model `model_name`, Triton `model`; recorded series have exactly the labels that their rule keeps.
Labels that Prometheus adds (job, instance, namespace, pod, …) and names that no engine uses are not judged.

Bad:
    expr: sum by (model_name) (rate(nv_inference_request_failure[5m])) > 1

Mend:
    expr: sum by (model) (rate(nv_inference_request_failure[5m])) > 1
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from functools import cache

from obs.checks.facts import LabelSet, facts
from obs.checks.syntax import Aggregate, Binary, Matcher, Node, Selector
from obs.checks.world import Expression, World
from obs.model.problem import Problem

ID = "unknown-label"

#: What Prometheus, the operator and common relabelling add to every series of a target.
_TARGET = frozenset({
    "job", "instance", "namespace", "pod", "cluster", "container", "node", "service", "endpoint", "region", "zone",
    "env", "environment", "app", "release", "prometheus", "prometheus_replica", "replica", "__name__",
})  # fmt: skip
#: Labels that tell one engine's series from another's: used on the wrong metric, they are a mistake.
_TELLING = frozenset({
    "model", "model_name", "gpu_uuid", "UUID", "reason", "finished_reason", "le", "quantile", "engine_type",
    "sleep_state",
})  # fmt: skip
#: What one engine calls the same thing that another calls differently.
_COUNTERPARTS = {"model": "model_name", "model_name": "model", "gpu_uuid": "UUID", "UUID": "gpu_uuid"}


def check(world: World) -> Iterator[Problem]:
    known = facts(world)
    target = _TARGET | {
        world.config.cluster, world.config.namespace, world.config.pod, *world.config.extra_labels,
    }
    for expression in world.expressions:
        for node in expression.nodes:
            if isinstance(node, Selector):
                labels = known.labels(node)
                for matcher in node.matchers:
                    if labels is not None and not matcher.accepts(""):
                        yield from _matcher(expression, node, matcher, labels, target)
            elif isinstance(node, Aggregate) and not node.without:
                yield from _grouping(expression, node, "by", node.labels, known.labels(node.expr), target)
            elif isinstance(node, Binary) and node.on:
                for side in node.children:
                    yield from _grouping(expression, side, "on", node.on, known.labels(side), target)


@cache
def _near(label: str, labels: LabelSet) -> str:
    other = _COUNTERPARTS.get(label, "")
    if other in labels.names:
        return other
    close = difflib.get_close_matches(label, sorted(labels.names), n=1, cutoff=0.85)
    return close[0] if close else ""


def _matcher(
    expression: Expression, node: Selector, matcher: Matcher, labels: LabelSet, target: frozenset[str]
) -> Iterator[Problem]:
    label = matcher.name
    if label in labels.names or label.startswith(("_", "exported_")) or not expression.written(label):
        return
    near = _near(label, labels)
    if labels.closed:
        if label in ("prometheus", "prometheus_replica", "replica", "__name__"):
            return
        kept = ", ".join(sorted(labels.names)) or "none"
        what = f"matches nothing: the rule that records {node.name} keeps only the labels {kept}"
    elif label in target or (label not in _TELLING and not near):
        return
    else:
        what = f"matches nothing: {node.name} has no label {label}"
    has = ", ".join(sorted(labels.names)) or "no label of its own"
    mend = f"did you mean {near}?" if near else f"{node.name} has: {has}" if not labels.closed else "drop the matcher"
    yield expression.problem(str(matcher), what, mend)


def _grouping(
    expression: Expression, node: Node, word: str, names: tuple[str, ...], labels: LabelSet | None,
    target: frozenset[str],
) -> Iterator[Problem]:
    if labels is None:
        return
    for label in names:
        if label in labels.names or label.startswith(("_", "exported_")) or not expression.written(label):
            continue
        near = _near(label, labels)
        # A label too many in by() does no harm where the right one stands beside it.
        if not near or near in names or (label in target and not labels.closed):
            continue
        what = f"`{word} ({', '.join(names)})` names {label}, which these series do not have"
        yield expression.problem(node, what, f"did you mean {near}?")
