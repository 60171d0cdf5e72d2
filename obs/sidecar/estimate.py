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

    In every bucket the same share of its width lies below its requests' mean, chosen so that the whole has the known
    mean; within the bucket they spread as widely as a mean at that share allows a smooth distribution to.
    """
    finite: list[tuple[float, float, float]] = []
    lower = below = 0.0
    for upper in sorted(buckets):
        count = buckets[upper] - below
        if count > 0:
            # nothing is known above the last finite bound but the mean
            finite.append((lower, upper if upper != float("inf") else max(2 * lower, mean), count))
        lower, below = upper, max(below, buckets[upper])
    requests = sum(count for _, _, count in finite)
    if requests <= 0:
        return None
    floor = sum(low * count for low, _, count in finite)
    width = sum((high - low) * count for low, high, count in finite)
    share = min(1.0, max(0.0, (mean * requests - floor) / width)) if width > 0 else 1.0
    square = 0.0
    for low, high, count in finite:
        square += count * ((low + share * (high - low)) ** 2 + (high - low) ** 2 * share * (1 - share) / 3)
    return square / requests
