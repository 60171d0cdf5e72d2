"""The form of a scaling query: its unit, how it is aggregated over pods, and what it says without data."""

from __future__ import annotations

from dataclasses import dataclass

from obs.checks.manifests import roles
from obs.checks.syntax import Aggregate, Binary, Call, Node, Number, Selector, Subquery, Unary, constant

_KEEP = frozenset({"round", "ceil", "floor", "clamp", "clamp_max", "clamp_min", "abs", "sort", "sort_desc"})


@dataclass(frozen=True)
class Form:
    """``factor`` × ``core`` (× the pods where ``times_pods``); ``otherwise`` is what stands after ``or``."""

    factor: float
    core: Node
    times_pods: bool
    otherwise: tuple[Node, ...] = ()

    @property
    def over_pods(self) -> str:
        """How the pods are aggregated: ``sum``, ``avg``, ``max`` …; "" when they are not."""
        return self.core.op if isinstance(self.core, Aggregate) else ""


def form(node: Node) -> Form:
    """The form of a query; what is not understood is its core."""
    if isinstance(node, Binary):
        if node.op == "or":
            left = form(node.lhs)
            return Form(left.factor, left.core, left.times_pods, (*left.otherwise, node.rhs))
        if node.op in ("and", "unless") or node.compares:
            return form(node.lhs)
        left_value, right_value = constant(node.lhs), constant(node.rhs)
        if node.op == "*":
            if left_value is not None or right_value is not None:
                inner = form(node.rhs if left_value is not None else node.lhs)
                value = left_value if left_value is not None else right_value
                assert value is not None
                return Form(inner.factor * value, inner.core, inner.times_pods, inner.otherwise)
            for pods, rest in ((node.rhs, node.lhs), (node.lhs, node.rhs)):
                if counts_pods(pods):
                    inner = form(rest)
                    return Form(inner.factor, inner.core, True, inner.otherwise)
        if node.op == "/" and right_value:
            inner = form(node.lhs)
            return Form(inner.factor / right_value, inner.core, inner.times_pods, inner.otherwise)
    if isinstance(node, Call) and node.function in _KEEP:
        return form(node.args[0])
    if isinstance(node, Unary):
        inner = form(node.expr)
        return Form(-inner.factor, inner.core, inner.times_pods, inner.otherwise)
    return Form(1.0, node, False)


def counts_pods(node: Node) -> bool:
    """Whether it reads nothing but the platform's series of pods and replicas."""
    selectors = [part for part in node.walk() if isinstance(part, Selector)]
    return bool(selectors) and all(part.name.startswith("kube_") for part in selectors)


def single(node: Node) -> bool:
    """Whether it has at most one element, whatever the number of pods."""
    if isinstance(node, Number):
        return True
    if isinstance(node, Aggregate):
        return not node.labels and not node.without and node.op not in ("topk", "bottomk", "count_values", "limitk")
    if isinstance(node, Call):
        if node.function in ("scalar", "vector", "absent", "time"):
            return True
        if node.function == "histogram_quantile":
            inner = node.args[-1]
            return isinstance(inner, Aggregate) and not inner.without and set(inner.labels) <= {"le"}
        return bool(node.args) and all(single(arg) for arg in node.args)
    if isinstance(node, Binary):
        if node.op in ("and", "unless"):
            return single(node.lhs)
        return single(node.lhs) and single(node.rhs)
    if isinstance(node, Unary):
        return single(node.expr)
    if isinstance(node, Subquery):
        return single(node.expr)
    return isinstance(node, Selector) and not roles.role(node.name)  # a recorded series may be one


def is_fixed(node: Node) -> bool:
    """Whether it is a number for any data and none: ``vector(0)``, ``absent(x)``, ``0 * absent(x)``."""
    if isinstance(node, Number):
        return True
    if isinstance(node, Call) and node.function in ("vector", "absent", "absent_over_time", "time", "pi"):
        return True
    if isinstance(node, Binary) and node.op not in ("and", "unless"):
        return is_fixed(node.lhs) and is_fixed(node.rhs)
    if isinstance(node, Unary):
        return is_fixed(node.expr)
    if isinstance(node, Aggregate):
        return is_fixed(node.expr)
    return False
