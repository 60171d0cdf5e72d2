"""Arithmetic on a series of points: no clock, no state. ``None`` is "cannot be said"."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

EPSILON = 1e-6
_at = itemgetter(0)


class Point(NamedTuple):
    """One sample of one model: when, its running totals, its gauges."""

    at: float
    totals: Mapping[str, float]
    gauges: Mapping[str, float]


def tail(points: Sequence[Point], seconds: float, jitter: float = 0.0) -> Sequence[Point]:
    """The points of the last ``seconds``, the newest included; never fewer than two while there are two.

    ``points`` are in order of time.
    """
    if not points:
        return points
    start = points[-1].at - seconds - jitter - EPSILON
    index = bisect_left(points, start, key=_at)
    return points[min(index, max(0, len(points) - 2)):]


def ends(points: Sequence[Point], total: str) -> tuple[Point, Point] | None:
    """The first and the last point that have a total; None when fewer than two do."""
    if points and total in points[0].totals and total in points[-1].totals:  # as a rule
        return (points[0], points[-1]) if len(points) > 1 else None
    first = next((one for one in points if total in one.totals), None)
    last = next((one for one in reversed(points) if total in one.totals), None)
    return (first, last) if first is not None and last is not None and first is not last else None


def delta(points: Sequence[Point], total: str) -> float | None:
    """How much a total grew."""
    known = ends(points, total)
    return known[1].totals[total] - known[0].totals[total] if known is not None else None


def rate(points: Sequence[Point], total: str) -> float | None:
    """A total's growth per second."""
    known = ends(points, total)
    if known is None or known[1].at <= known[0].at:
        return None
    return (known[1].totals[total] - known[0].totals[total]) / (known[1].at - known[0].at)


def quotient(points: Sequence[Point], above: str, below: str) -> float | None:
    """Growth of one total over growth of another; None when the other did not grow."""
    upper, lower = delta(points, above), delta(points, below)
    return upper / lower if upper is not None and lower is not None and lower > 0 else None


def mean(points: Sequence[Point], gauge: str) -> float | None:
    """A gauge's mean."""
    known = [gauges[gauge] for _, _, gauges in points if gauge in gauges]
    return sum(known) / len(known) if known else None


def line(values: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The slope of (time, value) by least squares and its standard error; (0, 0) of fewer than four."""
    count = len(values)
    if count < 4:
        return 0.0, 0.0
    middle = sum(at for at, _ in values) / count
    level = sum(value for _, value in values) / count
    spread = sum((at - middle) ** 2 for at, _ in values)
    if spread <= 0:
        return 0.0, 0.0
    found = sum((at - middle) * (value - level) for at, value in values) / spread
    rest = sum((value - level - found * (at - middle)) ** 2 for at, value in values)
    return found, math.sqrt(rest / (count - 2) / spread)


def slope(points: Sequence[Point], gauge: str) -> float | None:
    """A gauge's growth per second, by least squares."""
    known = [(at, gauges[gauge]) for at, _, gauges in points if gauge in gauges]
    if len(known) < 3:
        return None
    start = known[0][0]
    times = [at - start for at, _ in known]
    middle = sum(times) / len(known)
    level = sum([value for _, value in known]) / len(known)
    apart = [at - middle for at in times]
    spread = sum([at**2 for at in apart])
    if spread <= 0:
        return None
    return sum([at * (value - level) for at, (_, value) in zip(apart, known, strict=True)]) / spread
