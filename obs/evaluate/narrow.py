"""Where an expression need not be asked: at times at which a condition that it begins with holds nowhere.

``a and b unless c`` has an element only where ``a`` has one, and where ``a and b`` has one. What it begins with often costs
little (a few series) and holds seldom, the rest much. So its beginnings are asked first, each only at the times that the one
before left, and the whole at what is left at last: the same result, for the others are empty.

That holds only for expressions that cannot fail. A failing evaluation changes no state, an empty one ends alerts; and
Prometheus evaluates both sides, so the right one can fail where the left one is empty. ``soundness`` proves of most
expressions that they cannot: no function or operator comes upon two elements that have the same labels. What it does not know
is taken for one that can.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from obs.evaluate.explain import Part, take_apart
from obs.prom import metric_names

_WORTH = 30  # series that an expression reads; with fewer, a question costs no more than asking for its beginning
_SHARE = 0.5  # of the series that the whole reads: what a beginning may read at most
_GROWTH = 2  # so many times as many as the beginning asked before must it read, or it tells too little more
_AGGREGATIONS = frozenset(("sum", "min", "max", "avg", "count", "group"))
_DROPS_NAME = frozenset(
    ("rate", "irate", "increase", "delta", "idelta", "deriv", "changes", "resets", "avg_over_time", "min_over_time",
     "max_over_time", "sum_over_time", "count_over_time", "last_over_time", "present_over_time", "quantile_over_time", "abs",
     "ceil", "floor", "clamp_min", "clamp_max", "-")
)  # fmt: skip
_NUMBER = re.compile(r"[-+]?[0-9.]+(e[-+]?[0-9]+)?")
_ON = re.compile(r"on\s*\(([^)]*)\)(\s*group_left\s*(\(\s*\))?)?", re.IGNORECASE)


class Sound(NamedTuple):
    """An expression that cannot fail. ``unique``: no two elements have the same labels, the name left out. ``within``: the
    only labels that an element can have; None: any."""

    unique: bool
    within: frozenset[str] | None = None


def conditions(expr: str, sizes: Mapping[str, int]) -> list[str]:
    """The beginnings of an expression that are worth asking first, the shortest first; [] when none is.

    ``sizes``: how many series each metric has.
    """
    part = take_apart(expr)
    whole = _series(part, sizes)
    if whole < _WORTH or soundness(part) is None:
        return []
    found: list[str] = []
    before = 0
    for one in _beginnings(part):
        size = _series(one, sizes)
        if _GROWTH * before <= size <= _SHARE * whole:
            found.append(one.text)
            before = size
    return found


def _beginnings(part: Part) -> Iterator[Part]:
    """What must have an element where the part has one, the shortest first; not the part itself."""
    if part.kind in {"and", "unless"}:
        yield from _beginnings(part.parts[0])
        yield part.parts[0]
    elif part.kind == "call" and part.op in _AGGREGATIONS and len(part.parts) == 1:
        yield from _beginnings(part.parts[0])


def _series(part: Part, sizes: Mapping[str, int]) -> int:
    """How many series it reads, a selector twice when it stands there twice."""
    read = metric_names.selectors(part.text) or ()
    return sum(size for one in read for name, size in sizes.items() if one.may_read(name))


def soundness(part: Part) -> Sound | None:
    """What is known of an expression that cannot fail; None when it might."""
    if part.kind == "selector" or (part.kind == "range" and part.bare):
        return Sound(bool(part.name))
    if part.kind == "range":
        return soundness(part.parts[0])
    if part.kind == "call":
        return _call(part)
    if part.kind in {"and", "or", "unless", "compare", "arithmetic"}:
        return _binary(part)
    return None


def _call(part: Part) -> Sound | None:
    inner = [one for one in part.parts if not _number(one)]
    found = soundness(inner[0]) if len(inner) == 1 else None
    if found is None:
        return None
    if part.op in _AGGREGATIONS:
        return Sound(True, _by(part.text))
    return found if part.op in _DROPS_NAME and found.unique else None


def _by(aggregation: str) -> frozenset[str] | None:
    import promql_parser

    node: Any = promql_parser.parse(aggregation)
    modifier = node.modifier
    if modifier is None:
        return frozenset()
    return frozenset(modifier.labels) if str(modifier.type).endswith(".By") else None


def _binary(part: Part) -> Sound | None:
    left, right = part.parts
    numbers = _number(left), _number(right)
    if any(numbers):
        found = soundness(right if numbers[0] else left) if not all(numbers) else None
        # a comparison leaves the name, arithmetic takes it away
        return found if found is not None and (found.unique or part.kind == "compare") else None
    one, two = soundness(left), soundness(right)
    if one is None or two is None:
        return None
    if part.kind in {"and", "unless"}:
        return one
    if part.kind == "or":
        within = None if one.within is None or two.within is None else one.within | two.within
        return Sound(one.unique and two.unique, within)
    if not (one.unique and two.unique):
        return None
    if not part.modifier:
        return one
    modifier = _ON.fullmatch(part.modifier)
    if modifier is None:
        return None
    labels = frozenset(label.strip() for label in modifier[1].split(",") if label.strip())
    if two.within is None or not two.within <= labels:
        return None
    if modifier[2]:
        return one
    return one if one.within is not None and one.within <= labels else None


def _number(part: Part) -> bool:
    return part.kind == "scalar" and _NUMBER.fullmatch(part.text) is not None
