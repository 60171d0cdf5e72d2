"""How many requests come: shapes over time, from obs.simulate.arrivals, and their draws."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

from obs.errors import InputError
from obs.simulate.arrivals import DAY, Ramp, bursts, constant, diurnal

SHAPES = ("steady", "burst", "ramp", "diurnal")
MAX_RATE = 2000.0
"""Requests per second that a model may be given: more would cost this process more than a core."""


@dataclass(frozen=True)
class Load:
    """A rate in requests per second over time. ``peak`` and ``period`` (seconds) are for the shapes that have them.

    burst: ``rate``, and in the second half of each period ``peak``. ramp: from ``rate`` to ``peak`` within the period, then
    it stays. diurnal: a day in ``period`` seconds, from ``rate`` to ``peak`` and back.
    """

    shape: str = "steady"
    rate: float = 0.0
    peak: float = 0.0
    period: float = 600.0

    def __post_init__(self) -> None:
        if self.shape not in SHAPES:
            raise InputError(f"load: shape {self.shape!r} is none of {', '.join(SHAPES)}")
        for name, value, top in (("rate", self.rate, MAX_RATE), ("peak", self.peak, MAX_RATE), ("period", self.period, DAY)):
            if not (isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= top):
                raise InputError(f"load: {name} {value!r} is no number from 0 to {top:g}")
        if self.shape != "steady" and self.period < 1:
            raise InputError("load: a period under 1 s is no period")

    def ramp(self) -> Ramp:
        """As a function of the seconds since it was set."""
        if self.shape == "burst":
            edge = self.period / 1000
            return bursts(self.rate, self.peak, rise=edge, hold=self.period / 2, fall=edge, period=self.period)
        if self.shape == "ramp":
            return Ramp(((0.0, self.rate), (self.period, self.peak), (100 * DAY, self.peak)))
        if self.shape == "diurnal":
            return diurnal(self.rate, self.peak, self.period)
        return constant(self.rate)


class Arrivals:
    """A Poisson process whose rate follows a load; a change of load leaves the draws made so far alone."""

    def __init__(self, load: Load, dice: random.Random, at: float) -> None:
        self._dice = dice
        self._ahead = dice.expovariate(1.0)
        self.set(load, at)

    def set(self, load: Load, at: float) -> None:
        """Another load from now on."""
        self.load = load
        self._ramp = load.ramp()
        self._since = at

    def until(self, start: float, end: float) -> Iterator[float]:
        """The arrivals from ``start`` to ``end``, an interval short against the load's changes."""
        rate = self._ramp.rate(start - self._since)
        if rate <= 0:
            return
        at = start
        while at + self._ahead / rate < end:
            at += self._ahead / rate
            yield at
            self._ahead = self._dice.expovariate(1.0)
        self._ahead = max(0.0, self._ahead - (end - at) * rate)


def lognormal(dice: random.Random, median: float, sigma: float) -> float:
    """A factor of spread around a median."""
    return dice.lognormvariate(math.log(median), sigma)
