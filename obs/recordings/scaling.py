"""The queries that scale a workload, and their recorded form: what alerts and manifests share.

A query must tell four things apart: load, no load (0), no data (nothing), and a pod that is gone (not counted). Hence:

- only ready pods, by kube-state-metrics, so that a dead pod's last sample does not count;
- the mean of the pods that have a value times all ready pods: a pod whose exporter dropped out counts like the others,
  not as 0, which would scale in (external metrics have no missing-pod rule; autoscaling/v2's Pods metrics have);
- a product of two label-less vectors: empty when either is missing. ``scalar()`` would make it NaN, which KEDA before
  2.20 read as a number (kedacore/keda#7475);
- a sum over the pods, for ``AverageValue`` divides by the replicas.
"""

from __future__ import annotations

from dataclasses import dataclass

from obs.catalog.scaling import ScalingSignal
from obs.config import Config, Workload
from obs.model.rule import Group, Recording
from obs.promql import block, by, escape_regex, indent, number, on, quote, selector

PERCENT = 100
"""KEDA before 2.18 cuts a target to a whole number when it falls back: 0.75 became 0, and the fallback the minimum
(kedacore/keda v2.17.3 pkg/fallback/fallback.go). So ratios are given to KEDA in percent."""


@dataclass(frozen=True)
class Target:
    """The Kubernetes object that is scaled, and what its pods and autoscalers are called."""

    kind: str
    name: str
    pods: str
    """RE2 of its pods' names, and of no other workload's."""
    autoscalers: str
    """RE2 of the HPAs that may scale it: ours, KEDA's, KServe's."""

    @property
    def replicas(self) -> str:
        """kube-state-metrics' family of its pods; with ``_ready`` of the ready ones."""
        return "kube_statefulset_status_replicas" if self.kind == "StatefulSet" else "kube_deployment_status_replicas"

    @property
    def label(self) -> str:
        return "statefulset" if self.kind == "StatefulSet" else "deployment"


def target(workload: Workload) -> Target:
    """What is scaled: KServe's services make a Deployment (kserve aaac4e2: pkg/constants PredictorServiceName,
    llmisvc/scaling.go mainScaledObjectName; Standard mode, one node)."""
    name = workload.name
    if workload.kind == "InferenceService":
        name = f"{name}-predictor"
    elif workload.kind == "LLMInferenceService":
        name = f"{name}-kserve"
    tail = "[0-9]+" if workload.kind == "StatefulSet" else "[a-z0-9]+-[a-z0-9]{5}"
    hpas = f"(keda-hpa-)?{name}"
    if workload.kind == "LLMInferenceService":
        hpas = f"keda-hpa-{name}-keda|{name}-hpa"
    kind = "StatefulSet" if workload.kind == "StatefulSet" else "Deployment"
    return Target(kind, name, f"{escape_regex(name)}-{tail}", hpas)


def replicas(workload: Workload, *, ready: bool) -> str:
    """Its pods, or its ready ones: no labels, empty without kube-state-metrics."""
    one = target(workload)
    name = one.replicas + ("_ready" if ready else "")
    return f"max({selector(name, _namespace(workload), f'{one.label}={quote(one.name)}')})"


def per_pod(workload: Workload, signal: ScalingSignal, config: Config) -> str:
    """The signal of each pod that serves it, whatever its state: labels ``pod`` (as configured)."""
    one = target(workload)
    engine = f"engine={quote(workload.engine.replace('-', '_'))}"
    own = f"{config.namespace}={quote(workload.namespace)}"
    pods = f"{config.pod}=~{quote(one.pods)}"
    return f"max {by((config.pod,))} ({selector(signal.metric, own, pods, engine)})"


def ready_pods(workload: Workload, signal: ScalingSignal, config: Config) -> str:
    """The signal of each ready pod that serves it."""
    ready = f"{selector('kube_pod_status_ready', _namespace(workload), 'condition=' + quote('true'))} == 1"
    if config.pod != "pod":
        ready = f'label_replace({ready}, {quote(config.pod)}, "$1", "pod", "(.+)")'
    return f"{per_pod(workload, signal, config)}\nand {on((config.pod,))}\n{ready}"


def total(workload: Workload, signal: ScalingSignal, config: Config) -> str:
    """The signal of all ready pods, in the signal's own unit: what ``AverageValue`` wants."""
    return f"avg(\n{indent(ready_pods(workload, signal, config))}\n)\n* {replicas(workload, ready=True)}"


def keda(workload: Workload, signal: ScalingSignal, config: Config) -> str:
    """``total`` in KEDA's unit: ratios in percent."""
    text = total(workload, signal, config)
    return f"{PERCENT} * {text}" if signal.ratio else text


def keda_target(signal: ScalingSignal, value: float) -> str:
    """The target in KEDA's unit."""
    return number(round(value * PERCENT if signal.ratio else value, 6))


def holding(workload: Workload, signal: ScalingSignal, value: float, config: Config) -> str:
    """``keda``, or without data exactly the target: for KServe's InferenceService, which can neither set a fallback nor
    ``ignoreNullValues`` (kserve aaac4e2 reconcilers/keda/keda_reconciler.go), so that nothing would read as 0."""
    known = block(keda(workload, signal, config))
    return f"{known}\nor\n{keda_target(signal, value)} * {replicas(workload, ready=False)}"


def recorded(signal: ScalingSignal) -> str:
    """The recorded ``total``, which an External metric reads."""
    return f"workload:{signal.key}:sum"


def external(signal: ScalingSignal) -> str:
    """The recorded series' name in the external metrics API, which takes no colon."""
    return f"llm_workload_{signal.key}"


def group(config: Config) -> Group | None:
    """The recording rules; none without workloads."""
    rules = tuple(
        Recording(
            recorded(signal), total(workload, signal, config),
            f"{signal.metric} of all ready pods of a workload; pods without a value count like the others.",
            {config.namespace: workload.namespace, "workload": workload.name},
        )
        for workload in config.workloads
        for signal, _ in workload.signals
    )
    if not rules:
        return None
    return Group("obs-record-autoscaling", "autoscaling", "The load of the workloads that are scaled.", rules)


def _namespace(workload: Workload) -> str:
    return f"namespace={quote(workload.namespace)}"
