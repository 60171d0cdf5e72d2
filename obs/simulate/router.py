"""Which replica gets a request. A router sees the ready replicas and, at most, what it can count or scrape."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from obs.errors import InputError
from obs.simulate.engine import Replica

Router = Callable[[float, Sequence[Replica]], int]
"""(now, ready replicas) -> the index of the chosen one."""


def _requests(replica: Replica, now: float) -> int:
    if replica.stable_until <= now:
        replica.advance(now)
    return replica.requests


def _round_robin(dice: random.Random) -> Router:
    turn = -1

    def choose(now: float, replicas: Sequence[Replica]) -> int:
        nonlocal turn
        turn = (turn + 1) % len(replicas)
        return turn

    return choose


def _random(dice: random.Random) -> Router:
    return lambda now, replicas: int(dice.random() * len(replicas))


def _two_choices(dice: random.Random) -> Router:
    def choose(now: float, replicas: Sequence[Replica]) -> int:
        one, two = (int(dice.random() * len(replicas)) for _ in range(2))
        return one if _requests(replicas[one], now) <= _requests(replicas[two], now) else two

    return choose


def _least_requests(dice: random.Random) -> Router:
    def choose(now: float, replicas: Sequence[Replica]) -> int:
        for replica in replicas:
            if replica.stable_until <= now:
                replica.advance(now)
        counts = [replica.requests for replica in replicas]
        return counts.index(min(counts))

    return choose


def _kv_aware(dice: random.Random) -> Router:
    """As an endpoint picker: the lowest of KV usage plus queue over five, from scraped figures up to 0.2 s old."""
    seen: dict[int, tuple[float, float]] = {}
    newest: dict[int, float] = {}

    def score(replica: Replica, now: float) -> float:
        key = id(replica)
        if now - newest.get(key, -1.0) >= 0.2:
            replica.advance(now)
            newest[key] = now
            seen[key] = replica.usage, float(len(replica.waiting))
        usage, waiting = seen[key]
        return usage + waiting / 5

    def choose(now: float, replicas: Sequence[Replica]) -> int:
        scores = [score(replica, now) for replica in replicas]
        return scores.index(min(scores))

    return choose


ROUTERS: dict[str, tuple[str, Callable[[random.Random], Router]]] = {
    "round-robin": ("one after another", _round_robin),
    "random": ("by chance, as a Kubernetes Service does", _random),
    "two-choices": ("the less busy of two drawn by chance", _two_choices),
    "least-requests": ("the one with the fewest requests, counted exactly", _least_requests),
    "kv-aware": ("the lowest of KV usage plus queue/5, scraped every 0.2 s", _kv_aware),
}


def router(name: str, seed: int) -> Router:
    """A fresh router; InputError for an unknown name."""
    if name not in ROUTERS:
        raise InputError(f"unknown router {name!r}; one of {', '.join(ROUTERS)}")
    return ROUTERS[name][1](random.Random(f"router/{seed}"))
