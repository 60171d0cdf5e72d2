"""A scaler follows something that stays up while requests run.

Waiting requests are 0 as soon as all of them run: a scaler that follows nothing else removes pods in the middle of their
generations (volcano-sh/kthena#1589). Running requests, KV-cache use or a load ratio beside it allow a scale-in only when
there is room. Several triggers are safe: HPA takes the largest proposal.

Bad:
    triggers: [{type: prometheus, metadata: {query: "sum(vllm:num_requests_waiting)", threshold: "5"}}]

Mend: scale on llm_scaling_projected_load_ratio, or add a trigger on KV-cache use.
"""

from __future__ import annotations

from collections.abc import Iterator

from obs.checks.manifests import roles
from obs.checks.manifests.scalers import Scaler, Trigger
from obs.checks.manifests.world import ManifestWorld, recorded_from
from obs.model.problem import Problem

ID = "scaler-scale-in"


def check(world: ManifestWorld) -> Iterator[Problem]:
    for scaler in world.scalers:
        told = [roles_of(world, trigger) for trigger in scaler.triggers]
        every = {role for part in told for role in part}
        if "waiting" in every and not every & roles.BUSY and all(told) and "" not in every:
            first = next(trigger for trigger, part in zip(scaler.triggers, told, strict=True) if "waiting" in part)
            yield _problem(scaler, first)


def _problem(scaler: Scaler, trigger: Trigger) -> Problem:
    at = trigger.query_at or trigger.metric_at or trigger.at
    return scaler.manifest.problem(
        at, "waiting requests are 0 while others run: this scales in during their generations",
        "scale on llm_scaling_projected_load_ratio, or add a trigger on KV-cache use or running requests",
    )


def roles_of(world: ManifestWorld, trigger: Trigger) -> frozenset[roles.Role]:
    """What the trigger's series say; "" among them for series that no catalogue has."""
    if trigger.tree is not None:
        names: tuple[str, ...] = roles.names(trigger.tree)
        if not names:
            return frozenset({""})
    elif trigger.query is not None:
        return frozenset({""})
    else:
        names = tuple(name for series in world.series(trigger) for name in recorded_from(world, series))
    return frozenset(found for found in (roles.role(name) for name in names) if found != "platform") or frozenset({""})
