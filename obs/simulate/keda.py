"""KEDA's part: what a trigger reports to the HPA when data is missing, and when a workload goes to zero and back.

From KEDA's documentation ("Scaling Deployments": pollingInterval, cooldownPeriod, fallback; Prometheus scaler:
ignoreNullValues, activationThreshold) and pkg/fallback/fallback.go, pkg/scaling/executor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from obs.simulate.hpa import NoMetric


class QueryFailed(Exception):
    """Prometheus cannot be asked, or the answer has several elements."""


@dataclass(frozen=True)
class Fallback:
    """``fallback``: after more than ``failures`` failed queries in a row the metric stands for so many replicas."""

    failures: int = 3
    replicas: int = 2
    behavior: Literal["static", "currentReplicas", "currentReplicasIfHigher", "currentReplicasIfLower"] = "static"


def fallback_replicas(fallback: Fallback, current: int) -> int:
    """How many replicas the fallback stands for."""
    if fallback.behavior == "currentReplicas":
        return current
    if fallback.behavior == "currentReplicasIfHigher":
        return max(current, fallback.replicas)
    if fallback.behavior == "currentReplicasIfLower":
        return min(current, fallback.replicas)
    return fallback.replicas


@dataclass
class Trigger:
    """One Prometheus trigger (AverageValue) with the count of its failures."""

    threshold: float
    ignore_null: bool = True
    """ignoreNullValues, whose default is true: no data reads as 0."""
    fallback: Fallback | None = None
    failures: int = 0

    def metric(self, value: float | None, current: int, *, failed: bool = False) -> float:
        """What the HPA is told for a query's answer (None: empty). Raises NoMetric when that is an error."""
        number = self._number(value) if not failed else None
        if number is not None:
            self.failures = 0
            return number
        self.failures += 1
        if self.fallback is not None and self.failures > self.fallback.failures:
            return self.threshold * fallback_replicas(self.fallback, current)
        raise NoMetric("the query failed" if failed else "the query returned nothing")

    def _number(self, value: float | None) -> float | None:
        if value is None or not math.isfinite(value):
            return 0.0 if self.ignore_null else None
        return max(0.0, math.ceil(round(value * 1000, 6)) / 1000)  # milli precision; negative values read 0


@dataclass
class Activation:
    """0 ↔ 1: at each poll. Only where the minimum is 0; a resident service ignores it."""

    threshold: float = 0.0
    cooldown: float = 300.0
    idle_since: float | None = field(default=None)

    def replicas(self, now: float, current: int, value: float | None, minimum: int) -> int:
        """The replicas after a poll. None (an error or no data) neither wakes nor puts to sleep."""
        if minimum > 0:
            return max(current, minimum)
        if value is None:
            return current
        if value > self.threshold:
            self.idle_since = None
            return max(1, current)
        if self.idle_since is None:
            self.idle_since = now
        return 0 if now - self.idle_since >= self.cooldown else current
