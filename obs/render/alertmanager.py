"""Alertmanager's routes and inhibitions for the pack's alerts.

Alertmanager takes a label of ``equal`` that both alerts lack as equal. So each inhibition names the labels that its
source must have (``present``), and its targets are chosen by the labels that their own texts name: an alert whose text
says ``$labels.instance`` has that label. tests/render/test_alertmanager.py holds both against the labels that the unit
tests of the rules state.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from obs.config import Config
from obs.model.rule import Alert
from obs.promql import duration, escape_regex
from obs.render.pack import Pack, header
from obs.render.prometheus import dump

_LABEL = re.compile(r"\$labels\.(\w+)")

#: A page comes again after 4 h, a ticket after a day.
REPEAT = {"critical": "4h", "warning": "24h", "info": "24h"}


@dataclass(frozen=True)
class Inhibition:
    """While one of ``sources`` fires, no notification of ``targets`` with the same ``equal`` labels is sent.

    ``present``: labels that the source must have besides, so that two absent ones are not taken as equal.
    ``severities``: (source's, target's) where only some count.
    """

    why: str
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    equal: tuple[str, ...]
    present: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    severities: tuple[str, str] | None = None

    def rule(self) -> dict[str, Any]:
        """As in Alertmanager's ``inhibit_rules``."""
        source, target = [names(self.sources)], [names(self.targets)]
        source += [f'{label}=~".+"' for label in self.present]
        source += self.only
        if self.severities:
            source.append(f'severity="{self.severities[0]}"')
            target.append(f'severity="{self.severities[1]}"')
        return {"source_matchers": source, "target_matchers": target, "equal": list(self.equal)}


def names(alerts: Iterable[str]) -> str:
    """The matcher of alerts by name; Alertmanager anchors it."""
    chosen = sorted(set(alerts))
    return f'alertname="{chosen[0]}"' if len(chosen) == 1 else f'alertname=~"{"|".join(map(escape_regex, chosen))}"'


def labels_of(alert: Alert) -> frozenset[str]:
    """Labels that the alert surely has: those that its texts name, and its own."""
    return frozenset(_LABEL.findall(alert.summary + alert.description)) | alert.labels.keys()


def inhibitions(alerts: tuple[Alert, ...], config: Config) -> tuple[Inhibition, ...]:
    """Those whose sources and targets are among ``alerts``."""
    has = {alert.name: labels_of(alert) for alert in alerts}

    def naming(*wanted: str, severity: str = "") -> tuple[str, ...]:
        return tuple(dict.fromkeys(
            alert.name for alert in alerts
            if any(label in has[alert.name] for label in wanted) and severity in ("", alert.severity)
        ))

    def some(*chosen: str) -> tuple[str, ...]:
        return tuple(name for name in chosen if name in has)

    def without(chosen: tuple[str, ...], *out: str) -> tuple[str, ...]:
        return tuple(name for name in chosen if name not in out)

    here = (config.cluster, config.namespace)
    slow = tuple(name for name in has if has[name] & {"model"} and _slow(name))
    found = (
        Inhibition(
            "A target that is down: what is said about it alone is a consequence.",
            some("InferenceTargetDown"), without(naming("instance"), "InferenceTargetDown", "InferenceJobAbsent"),
            (*here, "job", "instance"),
        ),
        Inhibition(
            "The engine's target is down: its sidecar, another target of the same pod, reports the same.",
            some("InferenceTargetDown"), some("InferenceEngineDown", "LLMEngineStalled"),
            (*here, config.pod), present=(config.pod,),
        ),
        Inhibition(
            "No target of a job is left: what is said about its models and servers is a consequence.",
            some("InferenceJobAbsent"), without(naming("job", "model", "instance"), "InferenceJobAbsent"),
            # absent() knows only the labels that it is asked for
            ("job",) if config.jobs else (*here, "job"),
        ),
        Inhibition(
            "A model that no server has: no traffic, and missing on some, are consequences.",
            some("InferenceModelVanished"),
            some("InferenceTrafficDrop", "InferenceTrafficBelowSeasonal", "InferenceModelMissingOnReplica",
                 "InferenceModelIdle", "InferenceLatencySourceMissing"),
            (*here, "job", "model"),
        ),
        Inhibition(
            "The GPU's KV cache is full: requests queue and answers are slow because of it.",
            some("LLMKVCacheSaturated", "LLMPreempting"), slow, (*here, "job", "model"),
        ),
        Inhibition(
            "The same, told by the sidecar, whose job is another than the engine's.",
            some("LLMKVCacheSaturated") if "sidecar" in config.engines else (), slow, (*here, "model"),
            only=('engine="sidecar"',),
        ),
        Inhibition(
            "deploy.alertmanager.gpu_inhibits_latency: a GPU's series name no model, so this silences a whole cluster.",
            some("GPUMemoryHigh") if config.deploy.alertmanager.gpu_inhibits_latency else (), slow, (config.cluster,),
        ),
        Inhibition(
            "One page for one fault: a critical alert of a model silences the warnings of the same model.",
            naming("model", severity="critical"), naming("model", severity="warning"), (*here, "job", "model"),
            present=("model",), severities=("critical", "warning"),
        ),
        Inhibition(
            "The same for the autoscaler of a workload.",
            naming("workload", severity="critical"), naming("workload", severity="warning"),
            (config.namespace, "workload"), present=("workload",), severities=("critical", "warning"),
        ),
    )
    return tuple(one for one in found if one.sources and one.targets)


def _slow(name: str) -> bool:
    """Whether the alert tells of time: of an answer, a token or a queue."""
    return re.search("Latency(?!BudgetBurn|SourceMissing)|QueueTime|TimeToFirstToken", name) is not None


def configuration(pack: Pack) -> dict[str, str]:
    """``alertmanager.yml``: whole and valid, with the receivers of ``deploy.alertmanager``."""
    config, receivers = pack.config, pack.config.deploy.alertmanager
    severities = [severity for severity in REPEAT if any(alert.severity == severity for alert in pack.alerts)]
    urls = {"critical": receivers.critical, "warning": receivers.warning, "info": receivers.info}
    whole = {
        "route": {
            "receiver": "inference-warning",
            "group_by": ["alertname", config.cluster, config.namespace, "job"],
            "group_wait": duration(receivers.group_wait),
            "group_interval": duration(receivers.group_interval),
            "repeat_interval": REPEAT["critical"],
            "routes": [{
                "matchers": [names(alert.name for alert in pack.alerts)],
                "receiver": "inference-warning",
                "routes": [
                    {"matchers": [f'severity="{severity}"'], "receiver": f"inference-{severity}",
                     "repeat_interval": REPEAT[severity]}
                    for severity in severities
                ],
            }],
        },
        "receivers": [
            {"name": f"inference-{severity}", **({"webhook_configs": [{"url": url, "send_resolved": True}]} if url else {})}
            for severity, url in urls.items()
        ],
    }
    about = (
        "Routes and inhibitions of the pack. It runs as it is; where you have an Alertmanager already, take over the route",
        "under routes, the receivers and the inhibit_rules. Alerts that are not the pack's go to inference-warning. The",
        "receivers' addresses are those of obs.yaml, deploy.alertmanager.",
    )
    rules = "inhibit_rules:\n" + "".join(
        f"  # {one.why}\n" + _listed(one.rule()) for one in inhibitions(pack.alerts, config)
    )
    return {"alertmanager.yml": header("#", *about) + dump(whole) + rules}


def _listed(rule: dict[str, Any]) -> str:
    lines = dump([rule]).splitlines()
    return "".join(f"  {line}\n" for line in lines)
