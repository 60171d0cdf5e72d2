"""What a replica of a pool can take: the highest rate at which it still serves its requests well, by simulated load test.

A pool's replicas take more than one alone: the router evens out chance. One alone is 5 % (decode-bound) to 90 %
(long prompts, short answers) below a replica of four, and a scaler that is told so buys too much.
"""

from __future__ import annotations

from dataclasses import dataclass

from obs.errors import InputError
from obs.simulate.arrivals import Sizes, constant, synthetic
from obs.simulate.engine import Replica, Request
from obs.simulate.fleet import Slo
from obs.simulate.hardware import Engine
from obs.simulate.router import router

WANTED = 0.95
"""Share of requests well served that counts as "still well"."""
REPLICAS = 4
"""In the pool: a small deployment."""
SECONDS = 1800.0
WARM_UP = 300.0


@dataclass(frozen=True)
class Capacity:
    """A replica at its limit: requests per second, decode tokens per second, and the attainment there."""

    rate: float
    tokens: float
    attainment: float


def load_test(engine: Engine, lengths: Sizes, rate: float, slo: Slo, seed: int, cv: float = 1.0,
              replicas: int = REPLICAS) -> Capacity:
    """A pool under a constant rate (of each replica) for half an hour; the first minutes do not count."""
    done: list[Request] = []
    pool = [Replica(engine, on_finish=done.append) for _ in range(replicas)]
    choose = router("least-requests", seed)
    arrivals = synthetic(constant(rate * replicas), lengths, SECONDS, seed, cv)
    for arrival in arrivals:
        replica = pool[choose(arrival.at, pool)]
        replica.advance(arrival.at)
        replica.submit(Request(*arrival))
    for replica in pool:
        replica.advance(SECONDS * 3)
    counted = [one for one in done if one.arrival >= WARM_UP]
    total = sum(1 for one in arrivals if one.at >= WARM_UP)
    good = sum(1 for one in counted if not one.failed and one.ttft <= slo.ttft and one.itl <= slo.itl)
    tokens = sum(one.output for one in arrivals) / SECONDS / replicas
    return Capacity(rate, tokens, good / total if total else 1.0)


def capacity(engine: Engine, lengths: Sizes, slo: Slo, seeds: int = 3, cv: float = 1.0) -> Capacity:
    """The highest rate, by bisection to 2 %, whose mean attainment over the seeds is WANTED; InputError when there is none."""

    def test(rate: float) -> Capacity:
        found = [load_test(engine, lengths, rate, slo, seed, cv) for seed in range(1, seeds + 1)]
        return Capacity(rate, sum(one.tokens for one in found) / seeds, sum(one.attainment for one in found) / seeds)

    low, high = 0.0, 0.05
    best: Capacity | None = None
    while (tried := test(high)).attainment >= WANTED:
        best, low, high = tried, high, high * 2
        if high > 1e4:
            raise InputError(f"{engine.name}: no rate is too high for it; are its costs right?")
    if best is None:
        raise InputError(f"{engine.name}: not even {high:g} requests/s meet the objectives (TTFT {slo.ttft:g} s, "
                         f"ITL {slo.itl:g} s); relax them or take a faster engine")
    while high - low > 0.02 * high:
        tried = test((low + high) / 2)
        if tried.attainment >= WANTED:
            best, low = tried, tried.rate
        else:
            high = tried.rate
    return best
