"""Autoscalers that are blind, inactive or at their end; only for the workloads under ``autoscaling`` in obs.yaml.

A blind autoscaler holds, which is right and looks like calm. Nothing but these alerts tells the difference.
Platform series and their sources: ``obs/catalog/platform.py``.
"""

from __future__ import annotations

from obs.catalog.scaling import TOLERANCE
from obs.config import Config, Workload
from obs.model.rule import Alert, Group, NoData
from obs.promql import duration, indent, number, quote, selector
from obs.recordings import scaling

NAMES = (
    "LLMAutoscalerInputsMissing", "LLMAutoscalerMissing", "LLMAutoscalerInactive", "LLMAutoscalerTriggerFailing",
    "LLMScalingSignalAbsent", "LLMScalingSignalPartial", "LLMAutoscalerAtMaximum",
)


def groups(config: Config) -> tuple[Group, ...]:
    """The recording and the alerting group; none without workloads."""
    recording = scaling.group(config)
    if recording is None:
        return ()
    alerts = tuple(alert for workload in config.workloads for alert in _alerts(workload, config))
    return recording, Group("obs-autoscaling", "autoscaling", "Autoscalers are blind, inactive or at their end.", alerts)


def _alerts(workload: Workload, config: Config) -> tuple[Alert, ...]:
    one = scaling.target(workload)
    signal, goal = workload.signals[0]
    title = f"{workload.namespace}/{workload.name}"
    labels = {config.namespace: workload.namespace, "workload": workload.name}
    namespace = f"namespace={quote(workload.namespace)}"
    hpa = f"horizontalpodautoscaler=~{quote(one.autoscalers)}"
    ready = scaling.replicas(workload, ready=True)
    seen = scaling.per_pod(workload, signal, config)
    inputs = "LLMAutoscalerInputsMissing"
    window = duration(config.window("rate"))
    keda = one.autoscalers.split("|")[0].replace("(keda-hpa-)?", "").replace("keda-hpa-", "")

    def alert(name: str, expr: str, for_: str, severity: str, summary: str, description: str, no_data: NoData,
              blind: tuple[str, ...] = ()) -> Alert:
        return Alert(name, expr, for_, severity, summary, description, no_data,  # type: ignore[arg-type]
                     labels=labels, blind_spots=blind, dashboard="obs-llm")

    current = selector("kube_horizontalpodautoscaler_status_current_replicas", namespace, hpa)
    highest = selector("kube_horizontalpodautoscaler_spec_max_replicas", namespace, hpa)
    condition = selector("kube_horizontalpodautoscaler_status_condition", namespace, hpa, 'condition="ScalingActive"',
                         'status!="true"')
    failures = selector("keda_scaler_detail_errors_total", f"scaledObject={quote(keda)}")
    return (
        alert(
            "LLMAutoscalerInputsMissing", f"absent({ready})", "10m", "warning",
            f"kube-state-metrics tells nothing of {title}",
            f"There is no {one.replicas}_ready of {one.kind} {workload.namespace}/{one.name} (value {{{{ $value }}}}: its "
            "absence): kube-state-metrics is down or not scraped, or the workload is gone. The scaling query is empty "
            "without it, and the other autoscaler alerts are blind.",
            NoData("fires", "The absence of the series is what it reports."),
            ("A workload that was removed on purpose fires until it is removed from obs.yaml.",),
        ),
        alert(
            "LLMAutoscalerMissing", f"{ready} > 0\nunless\nmax({highest})", "15m", "warning",
            f"{title} runs without an autoscaler",
            f"{{{{ $value }}}} pods of {title} are ready and no HorizontalPodAutoscaler {one.autoscalers} exists: none was "
            "applied, or KEDA has not made it (its ScaledObject is not Ready).",
            NoData("silent", "Without kube-state-metrics nothing is known of autoscalers.", inputs),
            ("An HPA of another name is not seen.",),
        ),
        alert(
            "LLMAutoscalerInactive", f"max({condition}) == 1", "10m", "critical",
            f"The autoscaler of {title} has stopped deciding",
            f"The HPA of {title} has had its condition ScalingActive not true for 10 minutes (value {{{{ $value }}}}): it "
            "cannot read its metrics. It holds the replicas it has; a burst will find no more.",
            NoData("silent", "Without an HPA there is no condition.", "LLMAutoscalerMissing"),
            ("While KEDA falls back the HPA reads active: see LLMAutoscalerTriggerFailing.",),
        ),
        alert(
            "LLMAutoscalerTriggerFailing", f"sum(increase({failures}[{window}])) > 0", "10m", "warning",
            f"KEDA cannot read a trigger of {title}",
            f"The triggers of ScaledObject {keda} failed {{{{ $value | humanize }}}} times in {window}: Prometheus or "
            "the sidecars do not answer, or the query is empty. After its failure threshold KEDA falls back: it holds "
            "what is there and adds nothing.",
            NoData("silent", "Without KEDA, or with its metrics not scraped, there is no such counter.",
                   "LLMAutoscalerInactive"),
            ("A ScaledObject of the same name in another namespace counts too: the operator's namespace label is lost "
             "to that of its scrape.",),
        ),
        alert(
            "LLMScalingSignalAbsent", f"{ready} > 0\nunless\ncount({seen})", "5m", "critical",
            f"No pod of {title} serves its scaling signal",
            f"{{{{ $value }}}} pods of {title} are ready and none serves {signal.metric}: the autoscaler is blind and "
            "holds. The sidecars are down or not scraped, or they withhold the signal (llm_signal_info tells why).",
            NoData("silent", "Without kube-state-metrics it is not known whether pods run.", inputs),
        ),
        alert(
            "LLMScalingSignalPartial",
            f"1\n-\ncount(\n{indent(scaling.ready_pods(workload, signal, config))}\n)\n/ ({ready} > 0)\n> 0", "10m",
            "warning",
            f"Some pods of {title} do not serve their scaling signal",
            f"{{{{ $value | humanizePercentage }}}} of the ready pods of {title} serve no {signal.metric}. They are taken "
            "to be as loaded as the others.",
            NoData("silent", "No pod at all with a signal is another alert's.", "LLMScalingSignalAbsent"),
        ),
        alert(
            "LLMAutoscalerAtMaximum",
            f"avg(\n{indent(scaling.ready_pods(workload, signal, config))}\n)\n> {number(round(goal * (1 + TOLERANCE), 6))}"
            f"\nand\nmax({current}) >= max({highest})", "15m", "warning",
            f"{title} is at its maximum of replicas and over its target",
            f"The mean {signal.metric} of {title} is " '{{ printf "%.2f" $value }}' f" (target {number(goal)}) and its HPA has "
            "no replica left to add: objectives break as load grows.",
            NoData("silent", "Without the signal nothing is known of the load.", "LLMScalingSignalAbsent"),
        ),
    )


__all__ = ["NAMES", "groups"]
