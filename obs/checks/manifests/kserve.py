"""KServe follows `autoScaling` only with the right class and mode.

The metrics under `predictor.autoScaling` are KEDA's: without the annotation serving.kserve.io/autoscalerClass: keda KServe
makes an HPA on CPU and ignores them. The Knative mode (Serverless) knows no KEDA. `scaleMetric` is refused with it. The
External target must be given as `value`, whatever its type: the class always makes an AverageValue.

Bad:
    annotations: {serving.kserve.io/deploymentMode: Serverless}
    spec: {predictor: {autoScaling: {metrics: [...]}}}

Mend:
    annotations: {serving.kserve.io/deploymentMode: Standard, serving.kserve.io/autoscalerClass: keda}
"""

from __future__ import annotations

from collections.abc import Iterator

from obs.checks.manifests.objects import text
from obs.checks.manifests.scalers import CLASS, MODE
from obs.checks.manifests.world import ManifestWorld
from obs.model.problem import Problem

ID = "scaler-kserve"


def check(world: ManifestWorld) -> Iterator[Problem]:
    for one in world.manifests:
        if one.kind != "InferenceService":
            continue
        scaling = ("spec", "predictor", "autoScaling")
        autoscaler = text(one.get("metadata", "annotations", CLASS))
        mode = text(one.get("metadata", "annotations", MODE))
        if one.get(*scaling) is not None and autoscaler != "keda":
            yield one.problem(("metadata", "annotations", CLASS),
                              f"is {autoscaler or 'not there'}: KServe ignores autoScaling"
                              + ("" if autoscaler else " and scales on CPU"), "write keda")
        if autoscaler == "keda":
            if mode in ("Serverless", "Knative", "ModelMesh"):
                yield one.problem(("metadata", "annotations", MODE), f"{mode} knows no KEDA", "write Standard")
            if one.get("spec", "predictor", "scaleMetric") is not None:
                yield one.problem(("spec", "predictor", "scaleMetric"), "KServe refuses it with KEDA",
                                  "use autoScaling.metrics")
            for at, metric in one.items(*scaling, "metrics"):
                external = metric.get("external")
                target = external.get("target") if isinstance(external, dict) else None
                if isinstance(target, dict) and "value" not in target:
                    yield one.problem((*at, "external", "target", "value"), "is not there: KServe refuses the object",
                                      "give the target as value")
