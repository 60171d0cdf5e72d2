"""One number out of a series: what legends, stats and gauges show (Grafana's reducers). NaN counts as no value, except
in ``last``; None where there is none."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

Values = Sequence[float]

TITLES = {
    "lastNotNull": "Last *", "last": "Last", "firstNotNull": "First *", "first": "First", "max": "Max", "min": "Min",
    "mean": "Mean", "sum": "Total", "count": "Count", "range": "Range", "diff": "Difference", "delta": "Delta",
}


def reduce(name: str, values: Values) -> float | None:
    """The value of a calculation; None without data. KeyError for one that is not in ``TITLES``."""
    if name in {"last", "first"}:
        return values[-1 if name == "last" else 0] if values else None
    found = [value for value in values if not math.isnan(value)]
    if not found:
        return math.nan if values else None
    return _CALCS[name](found)


def _delta(values: Values) -> float:
    return sum(b - a if b >= a else b for a, b in itertools.pairwise(values))


_CALCS: dict[str, Callable[[Values], float]] = {
    "lastNotNull": lambda values: values[-1],
    "firstNotNull": lambda values: values[0],
    "max": max,
    "min": min,
    "mean": lambda values: math.fsum(values) / len(values),
    "sum": math.fsum,
    "count": lambda values: float(len(values)),
    "range": lambda values: max(values) - min(values),
    "diff": lambda values: values[-1] - values[0],
    "delta": _delta,
}
