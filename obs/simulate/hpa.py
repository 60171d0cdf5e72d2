"""The Horizontal Pod Autoscaler's arithmetic, as pure functions: what it proposes, and what it then allows.

Written from the Kubernetes documentation ("Horizontal Pod Autoscaling": algorithm details, configurable scaling
behaviour) and checked against pkg/controller/podautoscaler (replica_calculator.go, horizontal.go). Values are numbers,
not milli-quantities. The behaviour path of autoscaling/v2 is followed, with its defaults.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

TOLERANCE = 0.1
SYNC_SECONDS = 15.0


class NoMetric(Exception):
    """A metric cannot be had; its text is the condition's message."""


@dataclass(frozen=True)
class PodState:
    """A pod as the controller sees it. Running and not ready counts in full (readiness is for CPU only)."""

    name: str
    phase: Literal["Pending", "Running", "Failed"] = "Running"
    ready: bool = True
    deleted: bool = False


def _within(ratio: float, tolerance: float) -> bool:
    return 1.0 - tolerance <= round(ratio, 9) <= 1.0 + tolerance


def _ceil(value: float) -> int:
    """The ceiling, as the controller takes it: of exact milli-values, so float dust must not add a pod."""
    return math.ceil(round(value, 9))


def pods_metric(current: int, target: float, values: Mapping[str, float], pods: Sequence[PodState],
                tolerance: float = TOLERANCE) -> int:
    """Proposal of a Pods metric (AverageValue). ``values``: by pod; pods without one are missing.

    Pending pods are left out, or count 0 when the rest asks for more. Missing pods count exactly the target when the rest
    asks for fewer, and 0 otherwise: also when the rest is exactly on target, as upstream has it. Raises NoMetric without
    pods or values.
    """
    if not pods:
        raise NoMetric("no pods returned by selector while calculating replica count")
    alive = [pod for pod in pods if not pod.deleted and pod.phase != "Failed"]
    unready = [pod.name for pod in alive if pod.phase == "Pending"]
    running = [pod.name for pod in alive if pod.phase != "Pending"]
    known = {name: values[name] for name in running if name in values}
    missing = [name for name in running if name not in values]
    if not known:
        raise NoMetric("did not receive metrics for any ready pods")
    ratio = sum(known.values()) / len(known) / target
    add_unready = bool(unready) and ratio > 1.0
    if not missing and not add_unready:
        return current if _within(ratio, tolerance) else _ceil(ratio * len(known))
    for name in missing:
        known[name] = target if ratio < 1.0 else 0.0
    if add_unready:
        known.update(dict.fromkeys(unready, 0.0))
    new = sum(known.values()) / len(known) / target
    if _within(new, tolerance) or (ratio < 1.0 < new) or (new < 1.0 < ratio):
        return current
    proposal = _ceil(new * len(known))
    if (new < 1.0 and proposal > current) or (new > 1.0 and proposal < current):
        return current  # a change of direction by the number of pods alone
    return proposal


def external_average(status_replicas: int, target: float, value: float, tolerance: float = TOLERANCE) -> int:
    """Proposal of an External or Object metric with AverageValue: the value spread over the replicas there are."""
    if status_replicas > 0 and _within(value / (target * status_replicas), tolerance):
        return status_replicas
    return _ceil(value / target)


def external_value(current: int, ready: int, target: float, value: float, tolerance: float = TOLERANCE) -> int:
    """Proposal of an External or Object metric with Value: the ratio times the pods that are ready."""
    ratio = value / target
    if current == 0:
        return _ceil(ratio)
    return current if _within(ratio, tolerance) else _ceil(ratio * ready)


def combine(current: int, proposals: Sequence[int | None]) -> int | None:
    """The largest proposal; ``None`` in the list is a metric in error, ``None`` as the result: leave everything.

    With a metric in error nothing is scaled in; scaling out goes on.
    """
    known = [proposal for proposal in proposals if proposal is not None]
    if not known:
        return None
    best = max(known)
    return None if len(known) < len(proposals) and best < current else best


@dataclass(frozen=True)
class Policy:
    """``behavior.*.policies``: so many Pods, or so much Percent, in a period of seconds."""

    kind: Literal["Pods", "Percent"]
    value: float
    period: float


@dataclass(frozen=True)
class Rules:
    """One direction of ``behavior``."""

    window: float
    """stabilizationWindowSeconds."""
    policies: tuple[Policy, ...]
    select: Literal["Max", "Min", "Disabled"] = "Max"
    tolerance: float = TOLERANCE


@dataclass(frozen=True)
class Behavior:
    """``behavior``, with the defaults of autoscaling/v2."""

    up: Rules = Rules(0.0, (Policy("Percent", 100, 15), Policy("Pods", 4, 15)))
    down: Rules = Rules(300.0, (Policy("Percent", 100, 15),))


def stabilised(now: float, current: int, proposal: int, history: Sequence[tuple[float, int]], behavior: Behavior) -> int:
    """The proposal after both stabilisation windows: not above the lowest, not below the highest of its window."""
    up = min([proposal, *(one for at, one in history if at > now - behavior.up.window)])
    down = max([proposal, *(one for at, one in history if at > now - behavior.down.window)])
    return min(max(current, up), down)


def _changed(now: float, period: float, events: Sequence[tuple[float, int]]) -> int:
    return sum(change for at, change in events if at > now - period)


def up_limit(now: float, current: int, added: Sequence[tuple[float, int]], removed: Sequence[tuple[float, int]],
             rules: Rules) -> int:
    """The most replicas that the scale-up policies allow now. ``added``, ``removed``: (time, pods) of past rescales."""
    if rules.select == "Disabled":
        return current
    limits = []
    for policy in rules.policies:
        start = current - _changed(now, policy.period, added) + _changed(now, policy.period, removed)
        grown = start + policy.value if policy.kind == "Pods" else math.ceil(start * (1 + policy.value / 100))
        limits.append(int(grown))
    return max(limits) if rules.select == "Max" else min(limits)


def down_limit(now: float, current: int, added: Sequence[tuple[float, int]], removed: Sequence[tuple[float, int]],
               rules: Rules) -> int:
    """The fewest replicas that the scale-down policies allow now."""
    if rules.select == "Disabled":
        return current
    limits = []
    for policy in rules.policies:
        start = current + _changed(now, policy.period, removed) - _changed(now, policy.period, added)
        left = start - policy.value if policy.kind == "Pods" else int(start * (1 - policy.value / 100))
        limits.append(int(left))
    return min(limits) if rules.select == "Max" else max(limits)


@dataclass
class Controller:
    """One HPA between syncs: what it recommended and did. ``decide`` is one sync."""

    low: int
    high: int
    behavior: Behavior = field(default_factory=Behavior)
    _recommended: list[tuple[float, int]] = field(default_factory=list)
    _added: list[tuple[float, int]] = field(default_factory=list)
    _removed: list[tuple[float, int]] = field(default_factory=list)

    def decide(self, now: float, current: int, proposal: int | None) -> int:
        """The replicas to set. ``proposal`` is that of ``combine``; None leaves the replicas as they are."""
        if current == 0 and self.low > 0:
            return 0  # autoscaling is disabled at zero
        if current > self.high:
            wanted = self.high
        elif current < self.low:
            wanted = self.low
        elif proposal is None:
            return current
        else:
            if not self._recommended:
                self._recommended.append((now, current))  # the controller's first look counts as a recommendation
            stable = stabilised(now, current, proposal, self._recommended, self.behavior)
            self._recommended.append((now, proposal))
            horizon = now - max(self.behavior.up.window, self.behavior.down.window, 1.0)
            self._recommended = [one for one in self._recommended if one[0] > horizon]
            wanted = self._limited(now, current, stable)
        if wanted > current:
            self._added.append((now, wanted - current))
        elif wanted < current:
            self._removed.append((now, current - wanted))
        longest = max(policy.period for rules in (self.behavior.up, self.behavior.down) for policy in rules.policies)
        self._added = [one for one in self._added if one[0] > now - longest]
        self._removed = [one for one in self._removed if one[0] > now - longest]
        return wanted

    def _limited(self, now: float, current: int, wanted: int) -> int:
        if wanted > current:
            limit = max(current, up_limit(now, current, self._added, self._removed, self.behavior.up))
            return min(wanted, limit, self.high)
        if wanted < current:
            limit = min(current, down_limit(now, current, self._added, self._removed, self.behavior.down))
            return max(wanted, limit, self.low)
        return min(max(wanted, self.low), self.high)
