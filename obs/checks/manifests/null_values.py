"""A query without a result is an error for the scaler, not 0.

KEDA's prometheus trigger reads an empty result, NaN and Inf as 0 unless `ignoreNullValues` is "false": a Prometheus that
lost its targets scales the service to its minimum at the peak (kedacore/keda#3065). KServe's InferenceService cannot set
it; there the query itself must hold: `(QUERY) or TARGET * max(kube_deployment_status_replicas{...})`.

Bad:
    triggers:
    - type: prometheus
      metadata: {query: sum(llm_scaling_load_ratio), threshold: "0.75"}

Mend:
      metadata: {query: ..., threshold: "0.75", ignoreNullValues: "false"}
"""

from __future__ import annotations

from collections.abc import Iterator

from obs.checks.manifests import queries
from obs.checks.manifests.world import ManifestWorld
from obs.model.problem import Problem

ID = "scaler-null-values"


def check(world: ManifestWorld) -> Iterator[Problem]:
    for scaler, trigger in world.triggers():
        if trigger.type != "prometheus":
            continue
        one = trigger.manifest
        if scaler.form == "kserve":
            if trigger.tree is not None and not any(
                queries.form(part).times_pods or queries.counts_pods(part)
                for part in queries.form(trigger.tree).otherwise
            ):
                pods = "max(kube_deployment_status_replicas" + "{...})"
                yield one.problem(
                    trigger.query_at, "KServe's ScaledObject reads an empty result as 0 and scales to the minimum",
                    f"let the query hold: (QUERY) or {_plain(trigger.target)} * {pods}; or set autoscalerClass: external and "
                    "write a ScaledObject of your own",
                )
            continue
        at = (*trigger.at, "metadata", "ignoreNullValues")
        given = one.get(*at)
        if given is None:
            yield one.problem(at, "is not set: an empty result, NaN or Inf counts as 0 and scales in",
                              'write ignoreNullValues: "false"')
        elif str(given).lower() in ("true", "t", "1"):
            yield one.problem(at, f"is {given!s}: an empty result, NaN or Inf counts as 0 and scales in",
                              'write ignoreNullValues: "false"')


def _plain(value: float | None) -> str:
    return "TARGET" if value is None else f"{value:g}"
