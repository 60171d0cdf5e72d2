"""What an engine hides, from what it shows.

Triton's vLLM backend exports tokens, latencies and lengths, but neither running requests nor KV-cache usage:

- running = token rate x mean inter-token latency (Little's law: every request in decode waits one latency per token);
- a running request holds its prompt and what it has generated so far. Requests that answer at length are met more
  often, so the mean of "so far" is E[O^2] / (2 E[O]), and not E[O] / 2, which is 13 to 16 % too low;
- E[O^2] comes from the histogram of answer lengths: each bucket's requests are placed where the known mean puts them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Lengths:
    """Mean prompt length, mean answer length, and the mean of the square of the latter (None when not known)."""

    input: float | None
    output: float | None
    output_square: float | None = None


def running(token_rate: float, inter_token_latency: float) -> float:
    """Requests in decode."""
    return token_rate * inter_token_latency


def tokens_held(requests: float, lengths: Lengths) -> float | None:
    """KV-cache tokens that so many running requests hold."""
    if lengths.input is None or not lengths.output:
        return None
    square = lengths.output_square if lengths.output_square is not None else lengths.output**2
    return requests * (lengths.input + square / (2 * lengths.output))


def second_moment(buckets: Mapping[float, float], mean: float) -> float | None:
    """E[O^2] from cumulative counts by upper bound (as a histogram has them) and the exact mean.

    Within a bucket the density runs in a straight line, with the slope that its neighbours' densities suggest. The
    last bucket, whose end is the least known and weighs the most, takes what is left of the known mean.
    """
    cells: list[tuple[float, float, float]] = []  # lower bound, width, requests
    lower = below = 0.0
    for upper in sorted(buckets):
        count = buckets[upper] - below
        if count > 0:
            # nothing is known above the last finite bound but the mean
            cells.append((lower, (upper if upper != float("inf") else max(2 * lower, mean)) - lower, count))
        elif cells and lower < cells[-1][0] + 3 * cells[-1][1]:
            cells.append((lower, min(upper, 2 * lower + 1) - lower, 0.0))
        lower, below = upper, max(below, buckets[upper])
    while cells and cells[-1][2] == 0:
        cells.pop()
    requests = sum(count for _, _, count in cells)
    if requests <= 0:
        return None
    total = square = 0.0
    for index, (low, width, count) in enumerate(cells[:-1]):
        share = _share(cells, index)
        total += count * (low + share * width)
        # of x = low + width * u, with E[u] = share and, on a straight line, E[u^2] = share - 1/6
        square += count * (low**2 + 2 * low * width * share + width**2 * (share - 1 / 6))
    low, width, count = cells[-1]
    share = min(1.0, max(0.0, ((mean * requests - total) / count - low) / width)) if width > 0 else 1.0
    spread = width * min(share, 1 - share)
    return (square + count * ((low + share * width) ** 2 + spread**2 / 3)) / requests


def _share(cells: list[tuple[float, float, float]], index: int) -> float:
    """Where in its bucket the mean of a straight-line density lies, 0 to 1."""
    _, width, count = cells[index]
    if count <= 0 or width <= 0:
        return 0.5
    near = cells[max(0, index - 1): index + 2]
    middles = [(one[0] + one[1] / 2, one[2] / one[1]) for one in near if one[1] > 0]
    if len(middles) < 2 or middles[-1][0] <= middles[0][0]:
        return 0.5
    slope = (middles[-1][1] - middles[0][1]) / (middles[-1][0] - middles[0][0])
    return min(2 / 3, max(1 / 3, 0.5 + slope * width / (12 * count / width)))
