"""The decode capacity, learnt from the engine itself: what its tokens cost against its batch and its prompts.

A step of continuous batching gives each running request one token and does some prompt tokens beside, so the mean gap
between tokens is a straight line:

    ITL = a + b x running + p x (prompt tokens per second) x ITL

(the last term is the time that prompts take from those who wait for their next token). The three are found by least squares
over the sidecar's samples, old ones forgotten. At a rate of R requests a second with prompts of I and answers of O tokens,
running = R x O x ITL and prompt tokens = R x I, so ITL = a + (b + p I / O) x running. The capacity is the token rate at the
largest batch that keeps, with room for chance, the objective; neither the KV cache nor the slots may be what ends it.

The line is that of llm-d's workload-variant autoscaler (ITL = a + b x batch) with the prompts' term added. CHANCE and
KV_SHARE were set so that what is learnt comes near what a simulated load test finds (docs/simulate.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

HALF_LIFE = 600.0
"""Seconds with tokens after which a sample counts half."""
HELD_HALF_LIFE = 60.0
"""The same for the tokens that a request holds: they follow the prompts that come, not the engine."""
ENOUGH = 30.0
"""So many samples (in weight) make a line."""
SPREAD = 0.05
"""The batch must have varied by this share of its mean (standard deviation), or its slope is noise."""
CHANCE = 3.0
"""Standard deviations of a batch (Poisson: the root of its mean) that the objective must still bear."""
KV_SHARE = 0.7
"""Of the KV cache; above it prompts wait and sequences are preempted."""
SLOT_SHARE = 0.9

Matrix = list[list[float]]


class _Sample(Protocol):
    @property
    def at(self) -> float: ...
    @property
    def totals(self) -> Mapping[str, float]: ...
    @property
    def gauges(self) -> Mapping[str, float]: ...


class Calibration:
    """Feed it consecutive samples; ask it for the capacity."""

    def __init__(self) -> None:
        self._sums: Matrix = [[0.0] * 4 for _ in range(4)]  # of products of (1, running, prompt rate x ITL, ITL), by tokens
        self._samples = self._used = self._held_by = 0.0

    def feed(self, before: _Sample, after: _Sample) -> None:
        """Take what happened between two samples of one life of the engine; no tokens, nothing learnt."""
        seconds = after.at - before.at
        totals, then = after.totals, before.totals
        if seconds <= 0 or "itl_count" not in then or "running" not in after.gauges or "running" not in before.gauges:
            return
        count = totals["itl_count"] - then["itl_count"]
        if count <= 0:
            return
        latency = (totals["itl_sum"] - then["itl_sum"]) / count
        running = (before.gauges["running"] + after.gauges["running"]) / 2
        if running <= 0 or latency <= 0:
            return
        row = (1.0, running, _prompt_tokens(then, totals) / seconds * latency, latency)
        keep = 0.5 ** (seconds / HALF_LIFE)
        for i, sums in enumerate(self._sums):
            for j in range(4):
                sums[j] = sums[j] * keep + count * row[i] * row[j]
        self._samples = self._samples * keep + 1
        capacity, level = after.gauges.get("kv_capacity"), after.gauges.get("kv_mean")
        used = after.gauges.get("kv_used", level * capacity if capacity and level is not None else None)
        if used is not None and after.gauges["running"] > 0:
            keep = 0.5 ** (seconds / HELD_HALF_LIFE)
            self._used = self._used * keep + used
            self._held_by = self._held_by * keep + after.gauges["running"]

    def line(self) -> tuple[float, float, float] | None:
        """a (s), b (s per running request), p (s per prompt token); None while unknown or without sense."""
        sums = self._sums
        count = sums[0][0]
        if self._samples < ENOUGH:
            return None
        mean = sums[0][1] / count
        if sums[1][1] / count - mean**2 < (SPREAD * mean) ** 2:
            return None
        for chosen in ((0, 1, 2), (0, 1), (0, 2)):  # without what comes out negative: noise
            found = _solve([[sums[i][j] for j in chosen] for i in chosen], [sums[i][3] for i in chosen])
            if found is None:
                continue
            by_place = dict(zip(chosen, found, strict=True))
            line = by_place[0], by_place.get(1, 0.0), by_place.get(2, 0.0)
            if line[0] > 0 and min(line) >= 0 and line[1] + line[2] > 0:
                return line
        return None

    def capacity(self, objective: float, input_tokens: float | None, output_tokens: float | None,
                 kv_capacity: float | None = None, slots: float | None = None) -> float | None:
        """Decode tokens per second at an ITL objective (s); None while unknown, or when one request alone breaks it."""
        line = self.line()
        if line is None or not output_tokens:
            return None
        base, batch, prompt = line
        slope = batch + prompt * (input_tokens or 0.0) / output_tokens
        room = objective - base
        if room <= 0 or slope <= 0:
            return None
        running = ((math.sqrt(CHANCE**2 + 4 * room / slope) - CHANCE) / 2) ** 2
        if kv_capacity and self._held_by > 0 and self._used > 0:
            running = min(running, KV_SHARE * kv_capacity / (self._used / self._held_by))
        if slots:
            running = min(running, SLOT_SHARE * slots)
        return running / (base + slope * running)


def _prompt_tokens(then: Mapping[str, float], now: Mapping[str, float]) -> float:
    """Prompt tokens computed; those from a cache cost nothing."""
    if "computed_prompt" in now and "computed_prompt" in then:
        return max(0.0, now["computed_prompt"] - then["computed_prompt"])
    if "prompt" not in now or "prompt" not in then:
        return 0.0
    cached = now.get("cached_prompt", 0.0) - then.get("cached_prompt", 0.0)
    return max(0.0, now["prompt"] - then["prompt"] - cached)


def _solve(matrix: Matrix, right: list[float]) -> list[float] | None:
    """Gaussian elimination with pivots; None when two columns say the same."""
    size = len(right)
    rows = [[*line, value] for line, value in zip(matrix, right, strict=True)]
    for at in range(size):
        best = max(range(at, size), key=lambda one: abs(rows[one][at]))
        if abs(rows[best][at]) <= 1e-12 * max(abs(value) for value in matrix[at]):
            return None
        rows[at], rows[best] = rows[best], rows[at]
        for other in range(size):
            if other != at:
                factor = rows[other][at] / rows[at][at]
                rows[other] = [one - factor * two for one, two in zip(rows[other], rows[at], strict=True)]
    return [rows[at][size] / rows[at][at] for at in range(size)]
