"""At which times an expression need not be asked, because the result is known.

1. Where a condition that it begins with holds nowhere. ``a and b unless c`` has an element only where ``a`` has one, and
where ``a and b`` has one. What it begins with often costs little (a few series) and holds seldom, the rest much. So its
beginnings are asked first, each only at the times that the one before left, and the whole at what is left at last: the same
result, for the others are empty.

2. Where nothing that it reads has changed. What says whether there is a server, a model, a rank is recorded at every
evaluation and changes a few times a day. An expression whose functions look at samples and not at the clock has the same
result as at the evaluation before when, in all that its selectors and ranges look at, no series has begun, ended or had
another value. So it is asked at the changes, and after them for as long as its ranges look back.

Both hold only for expressions that cannot fail. A failing evaluation changes no state, an empty one ends alerts; and
Prometheus evaluates both sides, so the right one can fail where the left one is empty. ``soundness`` proves of most
expressions that they cannot: no function or operator comes upon two elements that have the same labels. What it does not know
is taken for one that can.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from obs.evaluate.elements import Made
from obs.evaluate.explain import Part, reach_ms, take_apart
from obs.evaluate.ranges import EVERYWHERE, GAP, Where, merged
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
_SAMPLES_ONLY = _AGGREGATIONS | frozenset(
    ("avg_over_time", "min_over_time", "max_over_time", "sum_over_time", "count_over_time", "last_over_time",
     "present_over_time", "quantile_over_time", "abs", "ceil", "floor", "clamp_min", "clamp_max", "-")
)  # fmt: skip
_NUMBER = re.compile(r"[-+]?[0-9.]+(e[-+]?[0-9]+)?")
_ON = re.compile(r"on\s*\(([^)]*)\)(\s*group_left\s*(\(\s*\))?)?", re.IGNORECASE)


class Sound(NamedTuple):
    """An expression that cannot fail. ``unique``: no two elements have the same labels, the name left out. ``within``: the
    only labels that an element can have; None: any."""

    unique: bool
    within: frozenset[str] | None = None


class There(NamedTuple):
    """What there is of a metric, recorded ``every`` so often; None: by rules of different intervals."""

    made: Made
    every: range | None

    def beside(self, other: There | None) -> There:
        """With more series of the same name."""
        if other is None:
            return self
        same = other.every is not None and self.every is not None and _grid(self.every) == _grid(other.every)
        return There(self.made.beside(other.made), self.every if same else None)


def where(expr: str, times: range, there: Mapping[str, There], *, values: bool) -> Where:
    """Where to ask for an expression at some times, whose metrics are all ``there``. ``values``: every time is to be told,
    empty ones too (of a recording rule, that ends series)."""
    part = take_apart(expr)
    sizes = {name: one.made.series for name, one in there.items()}
    if _series(part, sizes) < _WORTH or soundness(part) is None:
        return EVERYWHERE
    runs = _changes(part, times, there)
    if runs is not None:
        return Where(runs)
    return EVERYWHERE if values else Where(conditions=tuple(conditions(part, sizes)))


def _grid(times: range) -> tuple[int, int]:
    return times.step, times.start % times.step


def _changes(part: Part, times: range, there: Mapping[str, There]) -> tuple[tuple[int, int], ...] | None:
    """The runs of indexes in ``times`` at which what the part reads changes, or has just changed, with the first; None when
    that cannot be told, or they are most of all."""
    reads = _reads(part)
    if reads is None:
        return None
    runs = [(0, 1)]
    for selector, back_ms in reads:
        for name in {name for one in metric_names.selectors(selector.text) or () for name in there if one.may_read(name)}:
            made, every = there[name]
            if made.changes is None or every is None or _grid(every) != _grid(times):
                return None
            for change in made.changes:
                low = -(-(change - times.start) // times.step)
                high = low + -(-back_ms // times.step) + 2
                if high > 0 and low < len(times):
                    runs.append((max(0, low), min(len(times), high)))
    found = merged(runs, GAP)
    return found if sum(high - low for low, high in found) <= _SHARE * len(times) else None


def _reads(part: Part) -> list[tuple[Part, int]] | None:
    """The selectors of a part that looks at samples and not at the clock, and how far back each looks, in milliseconds; None
    when that cannot be told."""
    if part.kind == "selector" or (part.kind == "range" and part.bare):
        shift = part.text.removeprefix(part.bare)
        return None if "@" in shift or re.search(r"offset\s*-", shift) else [(part, reach_ms(part.text))]
    if _number(part):
        return []
    if not part.parts or part.kind == "range" or (part.kind == "call" and part.op not in _SAMPLES_ONLY):
        return None
    found: list[tuple[Part, int]] = []
    for one in part.parts:
        inner = _reads(one)
        if inner is None:
            return None
        found += inner
    return found


def conditions(part: Part, sizes: Mapping[str, int]) -> list[str]:
    """The beginnings of an expression that are worth asking first, the shortest first; [] when none is.

    ``sizes``: how many series each metric has.
    """
    whole = _series(part, sizes)
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
