"""The target is one that a pod can pass, in the signal's own unit.

HPA acts only outside target x (1 +- 0.1): a gauge that ends at 1, as KV-cache use does, never scales up above a target of
0.9. A load ratio of 1 is a pod at its objectives; a target above plans for broken ones. vLLM's `kv_cache_usage_perc` is a
fraction in spite of its name: 80 is never reached. dcgm-exporter's utilisation is in percent.

Bad:
    query: sum(vllm:kv_cache_usage_perc)
    threshold: "80"

Mend:
    threshold: "0.5"
"""

from __future__ import annotations

from collections.abc import Iterator

from obs.catalog.scaling import TOLERANCE
from obs.checks.manifests import queries, roles
from obs.checks.manifests.world import ManifestWorld, recorded_from
from obs.model.problem import Problem

ID = "scaler-target"


def check(world: ManifestWorld) -> Iterator[Problem]:
    for scaler, trigger in world.triggers():
        one = trigger.manifest
        if trigger.target is None:
            named = scaler.form != "kserve" and trigger.type in ("prometheus", "metrics-api")
            if named and one.get(*trigger.target_at) is None:
                yield one.problem(trigger.target_at, "is not there", "write the target")
            continue
        if trigger.tree is not None:
            form = queries.form(trigger.tree)
            names, factor = roles.names(form.core), form.factor
        else:
            names = tuple(name for series in world.series(trigger) for name in recorded_from(world, series))
            factor = 1.0
        if trigger.target <= 0:
            yield one.problem(trigger.target_at, f"{trigger.target:g} is no target", "write one above 0")
            continue
        if not factor or len({roles.role(name) for name in names} - {"platform"}) != 1:
            continue  # a mixture: its unit is the author's
        goal = trigger.target / factor
        kinds = {roles.role(name) for name in names}
        scaled = f" ({trigger.target:g} for {factor:g} times the signal)" if factor != 1 else ""
        if goal > 1 and any(map(roles.is_ratio, names)) and kinds & {"kv", "load"}:
            percent = 1 < goal <= 100 and "kv" in kinds
            yield one.problem(
                trigger.target_at,
                f"{goal:g}{scaled} is above 1: " + (
                    "the signal is a fraction, 0 to 1, and never passes it" if "kv" in kinds
                    else "at 1 a pod is at its objectives"),
                f"write {goal / 100 * factor:g}" if percent else f"write {0.75 * factor:g}",
            )
        elif "kv" in kinds and goal * (1 + TOLERANCE) >= 1:
            yield one.problem(
                trigger.target_at, f"{goal:g}{scaled} can hardly be passed: the signal ends at 1, and HPA acts above target x "
                f"{1 + TOLERANCE:g}", f"write at most {0.9 * factor:g}",
            )
        elif goal <= 1 and any(map(roles.is_percent, names)):
            yield one.problem(trigger.target_at, f"{goal:g} is always passed: the metric is in percent, 0 to 100",
                              f"write {goal * 100 * factor:g}")
