"""Series of the platform around the engines, as far as our rules and queries use them: names, labels, sources.

They are not an engine's: nothing of a server is to be known from them. kube-state-metrics must be scraped with
``honorLabels: true`` (kube-prometheus does), or its ``namespace`` and ``pod`` become ``exported_namespace`` and
``exported_pod``.
"""

from __future__ import annotations

from functools import partial

from obs.model.metric import Metric

_KSM = "kubernetes/kube-state-metrics docs/metrics/workload"
_workload = partial(Metric, kind="gauge", unit="replicas", evidence="documented")
_hpa = partial(Metric, kind="gauge", evidence="documented", labels=("namespace", "horizontalpodautoscaler"),
               source=f"{_KSM}/horizontalpodautoscaler-metrics.md")
_keda = partial(Metric, evidence="source", source="kedacore/keda pkg/metricscollector/prommetrics.go at 8b4f083")

METRICS: tuple[Metric, ...] = (
    _workload("kube_deployment_status_replicas", help="Pods of the deployment.", labels=("namespace", "deployment"),
              source=f"{_KSM}/deployment-metrics.md"),
    _workload("kube_deployment_status_replicas_ready", help="Ready pods of the deployment.",
              labels=("namespace", "deployment"), source=f"{_KSM}/deployment-metrics.md"),
    _workload("kube_statefulset_status_replicas", help="Pods of the stateful set.", labels=("namespace", "statefulset"),
              source=f"{_KSM}/statefulset-metrics.md"),
    _workload("kube_statefulset_status_replicas_ready", help="Ready pods of the stateful set.",
              labels=("namespace", "statefulset"), source=f"{_KSM}/statefulset-metrics.md"),
    Metric("kube_pod_status_ready", "gauge", "1", "Whether the pod is ready.", labels=("namespace", "pod", "condition"),
           values={"condition": ("true", "false", "unknown")}, evidence="documented",
           source=f"{_KSM}/pod-metrics.md"),
    _hpa("kube_horizontalpodautoscaler_spec_max_replicas", unit="replicas", help="Most replicas that it may make."),
    _hpa("kube_horizontalpodautoscaler_status_current_replicas", unit="replicas", help="Replicas that it sees."),
    _hpa("kube_horizontalpodautoscaler_status_condition", unit="1", help="A condition of the autoscaler.",
         labels=("namespace", "horizontalpodautoscaler", "condition", "status"),
         values={"status": ("true", "false", "unknown")}),
    # The operator's own ``namespace`` label meets that of the scrape: it arrives as exported_namespace unless
    # labels are honoured, so no rule may select by it.
    _keda("keda_scaler_detail_errors_total", "counter", "errors", "Errors of a trigger (KEDA 2.14 and later).",
          labels=("namespace", "metric", "scaledObject", "scaler", "triggerIndex", "type"), since="2.14"),
)

BY_NAME: dict[str, Metric] = {metric.name: metric for metric in METRICS}
