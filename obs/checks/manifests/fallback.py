"""A ScaledObject says what to do without data, and that is to hold.

Without `fallback` HPA stops deciding: it holds too, but below what must run nothing is added. The default behaviour
`static` goes to `replicas` at once, which scales in at the peak when fewer than run; `currentReplicasIfHigher` (KEDA 2.17)
keeps what is there. It takes effect on errors only (scaler-null-values). Its limits: no cpu and memory triggers; `Value`
metrics since 2.18; before 2.18 a target below 1 is cut to 0, and the fallback is the minimum
(kedacore/keda v2.17.3 pkg/fallback/fallback.go); with scalingModifiers the target must be a whole number in every
version, or there is no fallback.

Bad:
    fallback: {failureThreshold: 3, replicas: 2}

Mend:
    fallback: {failureThreshold: 3, replicas: 2, behavior: currentReplicasIfHigher}
"""

from __future__ import annotations

from collections.abc import Iterator

from obs.checks.manifests.objects import number, text
from obs.checks.manifests.scalers import Scaler
from obs.checks.manifests.world import ManifestWorld
from obs.model.problem import Problem

ID = "scaler-fallback"

_HOLDS = ("currentReplicas", "currentReplicasIfHigher", "scalingModifiers")


def check(world: ManifestWorld) -> Iterator[Problem]:
    for scaler in world.scalers:
        if scaler.form in ("keda", "llmisvc") and scaler.triggers:
            yield from _check(scaler)


def _check(scaler: Scaler) -> Iterator[Problem]:
    one = scaler.manifest
    at = (*scaler.keda_at, "fallback")
    usable = [trigger for trigger in scaler.triggers if trigger.type not in ("cpu", "memory")]
    if not usable:
        return  # scaler-signal says what is wrong with it
    if one.get(*at) is None:
        yield one.problem(at, "is not there: without data nothing is decided, and nothing restores what must run",
                          f"write failureThreshold: 3, replicas: {max(1, scaler.least)}, behavior: currentReplicasIfHigher")
        return
    behavior = text(one.get(*at, "behavior")) or "static"
    replicas = number(one.get(*at, "replicas"))
    most = scaler.most if scaler.most is not None else 1 << 30
    if behavior not in _HOLDS and (replicas is None or replicas < most):
        yield one.problem((*at, "behavior"), f"{behavior} scales to {_count(replicas)} while the scaler is blind, also when "
                          "more run", "write behavior: currentReplicasIfHigher")
    if replicas is not None and replicas < scaler.least:
        yield one.problem((*at, "replicas"), f"{replicas:g} is below the minimum of {scaler.least}",
                          f"write {scaler.least} or more", "warning")
    modifiers = ("spec", "advanced", "scalingModifiers", "target")
    goal = text(one.get(*modifiers))
    if goal and not goal.strip().isdigit():
        yield one.problem(modifiers, f"{goal} is no whole number: KEDA then has no fallback, in every version",
                          "express the formula in percent, such as target: \"75\"")
    if goal:
        return
    for trigger in usable:
        if trigger.metric_type == "AverageValue" and trigger.target is not None and trigger.target % 1:
            cut = int(trigger.target)
            yield one.problem(
                trigger.target_at, f"{trigger.target:g} is cut to {cut} when KEDA before 2.18 falls back: it then scales to "
                f"{'the minimum' if cut == 0 else f'{cut / trigger.target:.0%} of what it should'}",
                "give the query in percent (100 * ...) and a whole target, or use HPA", "warning",
            )


def _count(replicas: float | None) -> str:
    return "fallback.replicas" if replicas is None else f"{replicas:g} replicas"
