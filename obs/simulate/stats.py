"""Means with confidence intervals over seeds.

Student's t over the seeds: each seed is one independent observation, the five or so of them are too few for a
bootstrap. Policies meet the same arrivals, so differences between policies are taken seed by seed (paired) first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

#: Two-sided 95 % quantiles of Student's t by degrees of freedom: the usual table.
_T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
        2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042)


@dataclass(frozen=True)
class Mean:
    """A mean and the half width of its 95 % confidence interval; None with fewer than two values."""

    value: float
    half: float | None
    count: int

    def as_json(self) -> dict[str, float | int | None]:
        """Rounded, so that the output does not show float dust."""
        return {"mean": round(self.value, 6), "ci95": None if self.half is None else round(self.half, 6),
                "seeds": self.count}


def mean(values: Sequence[float]) -> Mean:
    """Mean and 95 % interval; ValueError without values."""
    if not values:
        raise ValueError("no values")
    count = len(values)
    middle = sum(values) / count
    if count < 2:
        return Mean(middle, None, count)
    spread = math.sqrt(sum((value - middle) ** 2 for value in values) / (count - 1))
    factor = _T95[count - 2] if count - 2 < len(_T95) else 1.96
    return Mean(middle, factor * spread / math.sqrt(count), count)


def quantile(values: Sequence[float], share: float) -> float:
    """The value that this share does not exceed; ValueError without values."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, math.ceil(share * len(ordered)) - 1))]
