"""A pod goes only after the load was low for as long as the longest answer takes.

The scaler picks the pod, nobody else: with a short scale-down window a lull between two bursts removes pods whose answers
are under way, and the next burst waits minutes for a new one. The longest answer is `longest_generation` in obs.yaml, 5m
unless told. A window for scaling up only adds to the minutes of a start: 60 s cost 3 to 7 points of the objectives.

Bad:
    behavior: {scaleDown: {stabilizationWindowSeconds: 0}}

Mend:
    behavior: {scaleDown: {stabilizationWindowSeconds: 300}}
"""

from __future__ import annotations

from collections.abc import Iterator

from obs.catalog.scaling import LONGEST_GENERATION, STABILIZATION_MAX
from obs.checks.manifests.world import ManifestWorld
from obs.model.problem import Problem
from obs.promql import duration

ID = "scaler-stabilization"


def check(world: ManifestWorld) -> Iterator[Problem]:
    for scaler in world.scalers:
        one = scaler.manifest
        longest = world.longest_generation(scaler.target)
        down, at = scaler.window("scaleDown")
        effective = LONGEST_GENERATION if down is None else down  # Kubernetes' default is as long
        if effective < longest:
            given = f"{duration(effective)}" + (" (the default)" if down is None else "")
            yield one.problem(at, f"{given} is shorter than the longest generation, {duration(longest)}",
                              f"write {longest:g}")
        up, up_at = scaler.window("scaleUp")
        if up is not None and up >= 60:
            yield one.problem(up_at, f"a burst waits {duration(up)} before a pod is even asked for", "write 0", "warning")
        for window, place in ((down, at), (up, up_at)):
            if window is not None and window > STABILIZATION_MAX:
                yield one.problem(place, f"{duration(window)} is more than Kubernetes takes",
                                  f"write at most {STABILIZATION_MAX:g}")
