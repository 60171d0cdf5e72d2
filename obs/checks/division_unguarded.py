"""Denominators are filtered to be above 0.

Without traffic 0/0 is NaN: every comparison with it is false, so neither an alert nor its inverse fires, it poisons
sums, and a scaler may read it as a number. x/0 is +Inf: above every limit. Filtered, the quotient is absent, which
rules and panels can tell from a value.

Bad:
    expr: rate(nv_inference_queue_duration_us[5m]) / rate(nv_inference_request_success[5m]) / 1e6 > 0.1

Mend:
    expr: rate(nv_inference_queue_duration_us[5m]) / (rate(nv_inference_request_success[5m]) > 0) / 1e6 > 0.1
"""

from __future__ import annotations

from collections.abc import Iterator

from obs.checks.syntax import Aggregate, Binary, Call, Node, Selector, Unary, constant
from obs.checks.world import World
from obs.model.problem import Problem

ID = "division-unguarded"

_KEEPING = frozenset({
    "label_replace", "label_join", "sort", "sort_desc", "abs", "max_over_time", "min_over_time", "avg_over_time",
    "sum_over_time", "last_over_time", "sqrt", "ceil",
})  # fmt: skip


def check(world: World) -> Iterator[Problem]:
    for expression in world.expressions:
        if expression.tree is not None:
            for node in unguarded(expression.tree):
                if not any(isinstance(part, Selector) and world.is_known(part.name) for part in node.rhs.walk()):
                    continue  # another exporter's: it may never be 0
                yield expression.problem(
                    node.rhs, "is a denominator that can be 0: the quotient is then NaN or +Inf",
                    f"write {_filtered(node.rhs)}", "error" if world.own else "warning",
                )


def _filtered(node: Node) -> str:
    loose = isinstance(node, Binary) and (node.compares or node.op in ("and", "or", "unless"))
    return f"(({node.text}) > 0)" if loose else f"({node.text} > 0)"


def unguarded(node: Node, guarded: frozenset[str] = frozenset()) -> Iterator[Binary]:
    """The divisions whose denominator can be 0, as far as the form tells."""
    if isinstance(node, Binary):
        if node.op == "and":
            yield from unguarded(node.lhs, guarded | _required(node.rhs))
            yield from unguarded(node.rhs, guarded | _required(node.lhs))
            return
        if node.op == "unless":
            yield from unguarded(node.lhs, guarded | _excluded(node.rhs))
            yield from unguarded(node.rhs, guarded)
            return
        if node.op == "/" and constant(node.rhs) is None and node.rhs.text not in guarded and not _positive(node.rhs):
            yield node
    for child in node.children:
        yield from unguarded(child, guarded)


def _required(node: Node) -> frozenset[str]:
    """The texts of what the node requires to be above 0."""
    if isinstance(node, Binary):
        if node.op == "and":
            return _required(node.lhs) | _required(node.rhs)
        if _filters_zero(node):
            return frozenset({node.lhs.text})
    return frozenset()


def _excluded(node: Node) -> frozenset[str]:
    """The texts of what `unless node` takes away where it is 0."""
    if isinstance(node, Binary):
        if node.op == "or":
            return _excluded(node.lhs) | _excluded(node.rhs)
        if node.op in ("==", "<=") and not node.returns_bool and constant(node.rhs) == 0:
            return frozenset({node.lhs.text})
    return frozenset()


def _filters_zero(node: Binary) -> bool:
    if node.returns_bool:
        return False
    limit = constant(node.rhs)
    if limit is not None:
        return (
            (node.op == ">" and limit >= 0) or (node.op == ">=" and limit > 0) or (node.op == "!=" and limit == 0)
            or (node.op == "==" and limit != 0)
        )
    limit = constant(node.lhs)
    return limit is not None and ((node.op == "<" and limit >= 0) or (node.op == "<=" and limit > 0))


def _positive(node: Node) -> bool:
    """Whether no value of the node is 0, as far as its form tells. Not vectors (time(), scalar()) pass."""
    value = constant(node)
    if value is not None:
        return value != 0
    if isinstance(node, Unary):
        return _positive(node.expr)
    if isinstance(node, Aggregate):
        return node.op in ("count", "group") or (node.op not in ("stddev", "stdvar") and _positive(node.expr))
    if isinstance(node, Call):
        if node.function in ("count_over_time", "present_over_time", "time", "scalar", "absent", "pi", "timestamp"):
            return True
        if node.function == "vector":
            return _positive(node.args[0])
        if node.function in ("clamp_min", "clamp"):
            least = constant(node.args[1])
            return (least is not None and least > 0) or _positive(node.args[0])
        return node.function in _KEEPING and _positive(node.args[0])
    if isinstance(node, Binary):
        if node.compares:
            return _filters_zero(node) or (not node.returns_bool and _positive(node.lhs))
        if node.op in ("and", "unless"):
            return _positive(node.lhs) or (node.op == "and" and node.lhs.text in _required(node.rhs))
        if node.op in ("or", "*", "/"):
            return _positive(node.lhs) and _positive(node.rhs)
        if node.op == "+":
            return _positive(node.lhs) or _positive(node.rhs)
        return False
    return False
