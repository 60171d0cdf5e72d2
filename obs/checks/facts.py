"""What is known of an expression's value: counter or gauge, its unit, its buckets, its labels.

Everything is derived from the catalogue through the operators; where a step is not understood, nothing is known,
and no check says anything. An expression has several facts when it can have several sources (two engines that
share a name, ``or``, a recorded series with a rule per engine).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Literal

from obs.catalog.signals import BY_NAME as SIGNALS
from obs.checks.syntax import SET_OPERATORS, Aggregate, Binary, Call, Node, Selector, Subquery, Unary, constant
from obs.checks.world import BUILT_IN, Recorded, World
from obs.engines import ENGINES
from obs.model.metric import Histogram, MeanOf, Metric, Missing, Native, Quotient, Summary
from obs.recordings.names import DERIVED

Kind = Literal["counter", "bucket", "bucket_rate", "rate", "gauge", "quantile", "info", "lifetime", "value"]

_UNITS: Mapping[str, tuple[Mapping[str, int], float]] = {
    "s": ({"s": 1}, 1.0),
    "ms": ({"s": 1}, 1e-3),
    "us": ({"s": 1}, 1e-6),
    "bytes": ({"bytes": 1}, 1.0),
    "MiB": ({"bytes": 1}, 1048576.0),
    "ratio": ({"ratio": 1}, 1.0),
    "percent": ({"ratio": 1}, 0.01),
    "tokens/s": ({"tokens": 1, "per_s": 1}, 1.0),
    "1": ({}, 1.0),
}
_MEASURED = frozenset({"s", "bytes", "ratio", "per_s"})
_RATIO = frozenset({("ratio", 1)})
_ALTERNATIVES = 12

#: A part and the whole that it is of, as signals: their quotient is at most about 1.
_PARTS = {
    ("gpu_memory_used_bytes", "gpu_memory_total_bytes"),
    ("prefix_cache_hits", "prefix_cache_queries"),
    ("request_failures", "requests"),
}


@dataclass(frozen=True)
class Fact:
    """One possible source of a value.

    ``dims`` are the dimensions with their exponents (``None`` = unknown), and the value times ``factor`` is in base
    units (seconds, bytes, 1). ``bounds`` are the finite bucket bounds, in the value's own unit, of a quantile.
    ``top`` is the largest possible value in base units.
    """

    kind: Kind
    name: str
    metric: Metric | None = field(default=None, compare=False)
    engine: str = ""
    dims: frozenset[tuple[str, int]] | None = None
    factor: float = 1.0
    bounds: tuple[float, ...] = ()
    top: float | None = None

    @property
    def measure(self) -> str:
        """"s", "bytes" or "ratio" when the value is that, whatever it is counted per; else ""."""
        if self.dims is None:
            return ""
        rest = [(dim, power) for dim, power in self.dims if dim in _MEASURED]
        if rest == [("ratio", 1)] and len(self.dims) == 1:
            return "ratio"
        if self.dims and not rest:
            return ""
        return rest[0][0] if len(rest) == 1 and rest[0][1] == 1 and rest[0][0] in ("s", "bytes") else ""


@cache
def signal_of(metric: str) -> str:
    """The signal that a family gives, "" when none or several."""
    return _signals().get(metric, "")


@cache
def _signals() -> dict[str, str]:
    found: dict[str, set[str]] = {}
    for engine in ENGINES:
        for name, sources in engine.signals.items():
            if isinstance(sources, Missing) or name in ("server", "model_loaded", "sleeping"):
                continue
            for source in sources:
                if isinstance(source, Histogram | Summary | Native):
                    found.setdefault(source.metric, set()).add(name)
                elif isinstance(source, MeanOf):
                    found.setdefault(source.total.metric, set()).add(name)
                elif isinstance(source, Quotient):
                    found.setdefault(source.numerator.metric, set()).add(name)
    return {metric: min(names) for metric, names in found.items() if len(names) == 1}


def family(fact: Fact) -> str:
    return fact.metric.name if fact.metric is not None else ""


@lru_cache(maxsize=4)
def facts(world: World) -> Facts:
    """The facts of a world, made once."""
    return Facts(world)


class Facts:
    """The facts of the nodes of one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._of: dict[int, tuple[tuple[Fact, ...], Node]] = {}
        self._labels: dict[int, tuple[LabelSet | None, Node]] = {}
        self._recorded: dict[int, tuple[Fact, ...]] = {}

    # --- value ------------------------------------------------------------------------------------------
    def of(self, node: Node) -> tuple[Fact, ...]:
        """The possible sources of a node's value; empty when nothing is known."""
        known = self._of.get(id(node))
        if known is None:
            self._of[id(node)] = ((), node)  # a rule that records from itself
            found = tuple(dict.fromkeys(self._compute(node)))
            known = self._of[id(node)] = (found if len(found) <= _ALTERNATIVES else (), node)
        return known[0]

    def _compute(self, node: Node) -> tuple[Fact, ...]:
        if isinstance(node, Selector):
            return self._selector(node)
        if isinstance(node, Unary):
            return tuple(dataclasses.replace(fact, bounds=(), top=None) for fact in self.of(node.expr))
        if isinstance(node, Subquery):
            return self.of(node.expr)
        if isinstance(node, Call):
            return self._call(node)
        if isinstance(node, Aggregate):
            return self._aggregate(node)
        if isinstance(node, Binary):
            return self._binary(node)
        return ()

    def _selector(self, node: Selector) -> tuple[Fact, ...]:
        if node.name in self.world.recorded:
            return tuple(fact for rule in self.readable(node) for fact in self._of_recorded(rule))
        if node.name in BUILT_IN:
            return (Fact("gauge", node.name),)
        return tuple(_served(node.name, metric, engine.name) for engine, metric in self.world.owners(node))

    def readable(self, node: Selector) -> tuple[Recorded, ...]:
        """The recording rules whose series the selector can read, by the labels that the rules set."""
        rules = self.world.recorded.get(node.name, ())
        return tuple(
            rule for rule in rules
            if all(m.accepts(rule.labels[m.name]) for m in node.matchers if rule.labels.get(m.name))
        )

    def _of_recorded(self, rule: Recorded) -> tuple[Fact, ...]:
        if id(rule) not in self._recorded:
            self._recorded[id(rule)] = ()
            facts = (self.of(rule.tree) if rule.tree is not None else ()) or (Fact("value", rule.name),)
            if _is_share(rule.name):
                facts = tuple(
                    dataclasses.replace(fact, kind="value", dims=_RATIO, factor=1.0, top=1.0) for fact in facts
                )
            self._recorded[id(rule)] = facts
        return self._recorded[id(rule)]

    def _call(self, node: Call) -> tuple[Fact, ...]:
        name, args = node.function, node.args
        if name == "histogram_quantile" and len(args) == 2:
            return tuple(_quantile(fact) for fact in self.of(args[1]) if fact.kind in ("bucket", "bucket_rate"))
        if name in ("label_replace", "label_join", "sort", "sort_desc", "sort_by_label", "sort_by_label_desc", "abs",
                    "ceil", "floor", "round", "clamp", "clamp_min", "clamp_max", "scalar") and args:
            return self.of(args[0])
        inner = self.of(args[-1]) if args else ()
        if name in ("rate", "irate", "deriv"):
            return tuple(_rate(fact) for fact in inner)
        if name == "increase":
            return tuple(
                dataclasses.replace(f, kind="bucket_rate" if f.kind == "bucket" else "rate", top=None) for f in inner
            )
        if name in ("max_over_time", "min_over_time", "last_over_time", "first_over_time"):
            return inner
        if name in ("avg_over_time", "quantile_over_time"):
            return tuple(dataclasses.replace(f, kind="value") if f.kind == "counter" else f for f in inner)
        if name in ("sum_over_time", "delta", "idelta"):
            return tuple(dataclasses.replace(fact, kind="value", top=None, bounds=()) for fact in inner)
        return ()

    def _aggregate(self, node: Aggregate) -> tuple[Fact, ...]:
        inner = self.of(node.expr)
        if node.op in ("avg", "max", "min", "quantile", "topk", "bottomk", "limitk", "limit_ratio"):
            return inner
        if node.op == "sum":
            return tuple(dataclasses.replace(fact, top=None, bounds=()) for fact in inner)
        return ()

    def _binary(self, node: Binary) -> tuple[Fact, ...]:
        left, right = constant(node.lhs), constant(node.rhs)
        if node.compares:
            if node.returns_bool:
                return ()
            return self.of(node.rhs) if left is not None else self.of(node.lhs)
        if node.op == "or":
            return (*self.of(node.lhs), *self.of(node.rhs))
        if node.op in SET_OPERATORS:
            return self.of(node.lhs)
        if right is not None:
            return tuple(_with_constant(fact, node.op, right) for fact in self.of(node.lhs))
        if left is not None:
            return tuple(_constant_with(left, node.op, fact) for fact in self.of(node.rhs))
        ours, theirs = self.of(node.lhs), self.of(node.rhs)
        found = []
        for one in ours:
            for other in theirs:
                if one.engine and other.engine and one.engine != other.engine and len(ours) + len(theirs) > 2:
                    continue
                found.append(_combine(one, node.op, other, part=self._is_part(node)))
        return tuple(found)

    def _is_part(self, node: Binary) -> bool:
        """Whether the node is ``x / (x + y)``."""
        whole = node.rhs
        if isinstance(whole, Binary) and whole.op == ">":
            whole = whole.lhs
        return isinstance(whole, Binary) and whole.op == "+" and self._names(node.lhs) < self._names(whole)

    def _names(self, node: Node) -> frozenset[str]:
        return frozenset(one.name for one in node.walk() if isinstance(one, Selector))

    # --- labels -----------------------------------------------------------------------------------------
    def labels(self, node: Node) -> LabelSet | None:
        """The labels that a node's series can have; ``None`` when nothing is known."""
        known = self._labels.get(id(node))
        if known is None:
            self._labels[id(node)] = (None, node)
            known = self._labels[id(node)] = (self._labels_of(node), node)
        return known[0]

    def _labels_of(self, node: Node) -> LabelSet | None:
        if isinstance(node, Selector):
            return self._selector_labels(node)
        if isinstance(node, Subquery | Unary):
            return self.labels(node.expr)
        if isinstance(node, Call):
            return self._call_labels(node)
        if isinstance(node, Aggregate):
            return self._aggregate_labels(node)
        if isinstance(node, Binary):
            return self._binary_labels(node)
        return None

    def _selector_labels(self, node: Selector) -> LabelSet | None:
        if node.name in self.world.recorded:
            found = None
            for rule in self.readable(node):
                inner = self.labels(rule.tree) if rule.tree is not None else None
                if inner is None:
                    return None
                inner = LabelSet(inner.names | set(rule.labels), inner.closed)
                found = inner if found is None else found.union(inner)
            return found
        names: set[str] = set()
        owners = self.world.owners(node)
        for _, metric in owners:
            names |= served_labels(node.name, metric)
        return LabelSet(frozenset(names), False) if owners else None

    def _call_labels(self, node: Call) -> LabelSet | None:
        from obs.checks.syntax import String

        vectors = [arg for arg in node.args if constant(arg) is None and not isinstance(arg, String)]
        if len(vectors) != 1 or node.function in ("absent", "absent_over_time", "vector", "scalar", "info"):
            return None
        inner = self.labels(vectors[0])
        if inner is None:
            return None
        if node.function in ("label_replace", "label_join") and len(node.args) > 1:
            target = node.args[1]
            return inner.adding(target.value) if isinstance(target, String) else None
        if node.function == "histogram_quantile":
            return LabelSet(inner.names - {"le"}, inner.closed)
        return inner

    def _aggregate_labels(self, node: Aggregate) -> LabelSet | None:
        inner = self.labels(node.expr)
        if node.op in ("topk", "bottomk", "limitk", "limit_ratio"):
            return inner
        if node.op == "count_values":
            return None
        if node.without:
            return None if inner is None else LabelSet(inner.names - set(node.labels), inner.closed)
        return LabelSet(frozenset(node.labels), True)

    def _binary_labels(self, node: Binary) -> LabelSet | None:
        if constant(node.rhs) is not None:
            return self.labels(node.lhs)
        if constant(node.lhs) is not None:
            return self.labels(node.rhs)
        left, right = self.labels(node.lhs), self.labels(node.rhs)
        if node.op == "or":
            return None if left is None or right is None else left.union(right)
        if node.op in SET_OPERATORS:
            return left
        if node.group:
            many = left if node.group == "left" else right
            return None if many is None else LabelSet(many.names | set(node.include), many.closed)
        if node.on is not None and not (node.compares and not node.returns_bool):
            return LabelSet(frozenset(node.on), True)
        if left is None:
            return None
        return LabelSet(left.names - set(node.ignoring or ()), left.closed)


@dataclass(frozen=True)
class LabelSet:
    """``closed``: no other label is possible; else Prometheus' target labels come on top."""

    names: frozenset[str]
    closed: bool

    def union(self, other: LabelSet) -> LabelSet:
        return LabelSet(self.names | other.names, self.closed and other.closed)

    def adding(self, name: str) -> LabelSet:
        return LabelSet(self.names | {name}, self.closed)


def _is_share(name: str) -> bool:
    """Whether a recorded series of the pack is a part of a whole, by its name."""
    _, _, rest = name.partition(":")
    quantity, _, operation = rest.partition(":")
    if operation == "ratio":
        return quantity in DERIVED
    signal = SIGNALS.get(quantity)
    return signal is not None and signal.unit == "ratio" and operation in ("max", "mean")


def served_labels(series: str, metric: Metric) -> set[str]:
    """The labels that the engine sets on one sample name of a family."""
    names = {*metric.labels, *metric.optional_labels}
    if metric.kind == "histogram" and series.endswith("_bucket"):
        names.add("le")
    if metric.kind == "summary" and not series.endswith(("_sum", "_count")):
        names.add("quantile")
    return names


# --- arithmetic -----------------------------------------------------------------------------------------


def _served(series: str, metric: Metric, engine: str) -> Fact:
    unit = _UNITS.get(metric.unit)
    dims: Mapping[str, int] | None
    factor = 1.0
    if unit is not None:
        dims, factor = unit
    else:
        dims = None if metric.unit == "mixed" else {metric.unit: 1}
    kind: Kind
    top = None
    if metric.kind in ("histogram", "summary") and series.endswith(("_sum", "_count", "_bucket")):
        kind = "bucket" if series.endswith("_bucket") else "counter"
        if not series.endswith("_sum"):
            dims, factor = {"observations": 1}, 1.0
    elif metric.kind == "summary":
        kind = "quantile"
    elif metric.kind == "info":
        kind = "info"
    else:
        kind = "counter" if metric.kind == "counter" else "gauge"
        if metric.unit in ("ratio", "percent") and kind == "gauge":
            top = 1.0
    if metric.name.endswith("_created") or "Unix time" in metric.help or "since the epoch" in metric.help:
        dims = None  # a point in time is not a duration
    return Fact(kind, series, metric, engine, None if dims is None else frozenset(dims.items()), factor, (), top)


def _quantile(fact: Fact) -> Fact:
    metric = fact.metric
    if metric is None:
        return dataclasses.replace(fact, kind="quantile", dims=None)
    unit = _UNITS.get(metric.unit)
    dims, factor = unit if unit is not None else ({metric.unit: 1}, 1.0)
    return dataclasses.replace(
        fact, kind="quantile", dims=frozenset(dims.items()), factor=factor, bounds=metric.buckets, top=None
    )


def _rate(fact: Fact) -> Fact:
    dims = _merge(fact.dims, frozenset({("per_s", 1)}), 1)
    kind: Kind = "bucket_rate" if fact.kind == "bucket" else "rate"
    return dataclasses.replace(fact, kind=kind, dims=dims, top=None, bounds=())


def _merge(
    one: frozenset[tuple[str, int]] | None, other: frozenset[tuple[str, int]] | None, sign: int
) -> frozenset[tuple[str, int]] | None:
    if one is None or other is None:
        return None
    powers = dict(one)
    for dim, power in other:
        powers[dim] = powers.get(dim, 0) + sign * power
    return frozenset((dim, power) for dim, power in powers.items() if power)


def _with_constant(fact: Fact, op: str, value: float) -> Fact:
    if op in ("*", "/") and value > 0 and math.isfinite(value):
        scale = value if op == "*" else 1.0 / value
        bounds = tuple(bound * scale for bound in fact.bounds)
        return dataclasses.replace(fact, factor=fact.factor / scale, bounds=bounds)
    if op in ("+", "-"):
        kind: Kind = "value" if fact.kind == "counter" and op == "-" else fact.kind
        return dataclasses.replace(fact, kind=kind, bounds=(), top=None)
    return Fact("value", fact.name, fact.metric, fact.engine)


def _constant_with(value: float, op: str, fact: Fact) -> Fact:
    if op in ("*", "+"):
        return _with_constant(fact, op, value)
    if op == "-" and fact.top is not None and math.isclose(value * fact.factor, fact.top):
        return dataclasses.replace(fact, kind="value", bounds=())  # 1 - ratio
    return Fact("value", fact.name, fact.metric, fact.engine)


def _combine(one: Fact, op: str, other: Fact, *, part: bool) -> Fact:
    name, metric, engine = one.name, one.metric, one.engine or other.engine
    if op in ("+", "-"):
        same = one.dims is not None and one.dims == other.dims and math.isclose(one.factor, other.factor)
        kind: Kind = "counter" if op == "+" and one.kind == other.kind == "counter" else "value"
        if one.kind == other.kind and one.kind in ("rate", "bucket_rate", "gauge"):
            kind = one.kind
        return Fact(kind, name, metric, engine, one.dims if same else None, one.factor if same else 1.0)
    if op == "*":
        if other.kind == "info":
            return one
        if one.kind == "info":
            return other
        return Fact("value", name, metric, engine, _merge(one.dims, other.dims, 1), one.factor * other.factor)
    if op == "/":
        kind = "lifetime" if one.kind == "counter" and other.kind == "counter" else "value"
        dims = _merge(one.dims, other.dims, -1)
        top = None
        pair = (signal_of(family(one)), signal_of(family(other)))
        if one.dims is not None and one.dims == other.dims and (part or pair in _PARTS):
            dims, top = _RATIO, 2.0 if pair == ("request_failures", "requests") else 1.0
        return Fact(kind, name, metric, engine, dims, one.factor / other.factor, (), top)
    return Fact("value", name, metric, engine)
