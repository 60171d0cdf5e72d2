"""What chance alone can do to a share of few requests: intervals for a binomial proportion, one-sided."""

from __future__ import annotations

import math
from statistics import NormalDist


def limits(hits: float, of: float, confidence: float) -> tuple[float, float]:
    """Wilson's score limits of a share: each is passed with probability ``1 - confidence``.

    E. B. Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22 (1927). It stays
    between 0 and 1 and is no point for 0 of n: 0 of 20 may be 21 % (99 %, one-sided). ValueError without requests.
    """
    if of <= 0:
        raise ValueError("a share of no requests has no limits")
    z = NormalDist().inv_cdf(confidence)
    middle = (hits + z * z / 2) / (of + z * z)
    half = z / (of + z * z) * math.sqrt(max(0.0, hits * (of - hits) / of) + z * z / 4)
    return max(0.0, middle - half), min(1.0, middle + half)


def surely_over(hits: float, of: float, threshold: float, confidence: float) -> bool:
    """Whether a share is over a fixed threshold by more than chance."""
    return limits(hits, of, confidence)[0] > threshold


def surely_over_multiple(
    canary: tuple[float, float], baseline: tuple[float, float], factor: float, confidence: float
) -> bool:
    """Whether the canary's share (hits, of) is over ``factor`` times the baseline's by more than chance.

    The lower limit of ``p_canary - factor * p_baseline`` from the Wilson limits of both, by square and add:
    R. G. Newcombe, Statistics in Medicine 17 (1998) 873-890, method 10; with a factor: G. Y. Zou and A. Donner,
    Statistics in Medicine 27 (2008) 1693-1702. 1 of 20 against 0 of 20 is chance; 100 of 1000 against 10 of 1000 is not.
    """
    share, other = canary[0] / canary[1], baseline[0] / baseline[1]
    low, high = limits(*canary, confidence)[0], limits(*baseline, confidence)[1]
    return share - factor * other - math.hypot(share - low, factor * (high - other)) > 0
