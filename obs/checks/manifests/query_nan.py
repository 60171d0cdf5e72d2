"""A scaling query is a finite number when there is no load.

A quotient over traffic is 0/0 = NaN when nobody asks; guarded with `> 0` it is empty, which looks like lost data. So is a
quantile without observations. KEDA before 2.20 took NaN for a huge negative number (kedacore/keda#7475), later ones for an
error or 0. `scalar()` of nothing is NaN as well.

Bad:
    query: sum(rate(vllm:e2e_request_latency_seconds_sum[1m])) / sum(rate(vllm:e2e_request_latency_seconds_count[1m]))

Mend: take a gauge that is 0 when idle, such as llm_scaling_projected_load_ratio.
"""

from __future__ import annotations

from collections.abc import Iterator

from obs.checks.division_unguarded import unguarded
from obs.checks.manifests import queries
from obs.checks.manifests.roles import of_engine
from obs.checks.manifests.world import ManifestWorld
from obs.checks.syntax import Binary, Call, Node, Selector, constant
from obs.model.problem import Problem

ID = "scaler-query-nan"

_RATES = frozenset({"rate", "irate", "increase", "delta", "idelta"})
_GAUGE = "scale on a gauge that is 0 when idle, such as llm_scaling_projected_load_ratio"


def check(world: ManifestWorld) -> Iterator[Problem]:
    for _, trigger in world.triggers():
        if trigger.tree is None:
            continue
        one = trigger.manifest
        bare = {id(node) for node in unguarded(trigger.tree)}
        for node in trigger.tree.walk():
            if isinstance(node, Binary) and node.op == "/" and constant(node.rhs) is None:
                if id(node) in bare and not queries.counts_pods(node.rhs):
                    yield one.problem(trigger.query_at, f"`{node.rhs.text}` is 0 without load: the quotient is NaN or Inf",
                                      _GAUGE)
                elif id(node) not in bare and _traffic(node.rhs):
                    yield one.problem(trigger.query_at, f"`{node.rhs.text}` leaves nothing without load, which cannot be "
                                      "told from lost data", _GAUGE)
            elif isinstance(node, Call) and node.function == "histogram_quantile":
                yield one.problem(trigger.query_at, "a quantile of no observations is NaN", _GAUGE)
            elif isinstance(node, Call) and node.function == "scalar" and not all(map(_is_number, node.args)):
                yield one.problem(
                    trigger.query_at, f"`{node.text}` is NaN without data, which KEDA before 2.20 took for a number",
                    "multiply aggregates without labels instead: avg(...) * max(kube_...)", "warning",
                )
            elif isinstance(node, Selector) and any(matcher.name == "quantile" for matcher in node.matchers):
                yield one.problem(trigger.query_at, f"`{node.text}` is NaN while the model is idle", _GAUGE)


def _traffic(node: Node) -> bool:
    """Whether it is 0 when nothing is asked."""
    return bool(of_engine(node)) and any(isinstance(part, Call) and part.function in _RATES for part in node.walk())


def _is_number(node: Node) -> bool:
    return isinstance(node, Call) and node.function == "vector"
