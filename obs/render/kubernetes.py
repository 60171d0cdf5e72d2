"""The pack as Kubernetes objects: PrometheusRule, PodMonitor, ServiceMonitor, ConfigMap and GrafanaDashboard.

Field names by the CRDs of prometheus-operator 6adcebc (monitoring.coreos.com/v1) and grafana-operator 60d3ebd
(grafana.integreatly.org/v1beta1).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from obs.config import Config
from obs.render.pack import Pack, header
from obs.render.prometheus import dump
from obs.render.split import parts
from obs.render.targets import Scraped, scraped

Object = dict[str, Any]

MONITORING = "monitoring.coreos.com/v1"
#: kubectl apply keeps the whole object in an annotation, and all annotations together hold 262,144 bytes
#: (apimachinery pkg/api/validation TotalAnnotationSizeLimitB). etcd takes 1.5 MiB a request.
APPLIED_MAX = 262_144
SERVER_SIDE = "Too large for kubectl apply alone: use kubectl apply --server-side."


def thing(api: str, kind: str, metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> Object:
    """An object with a spec."""
    return {"apiVersion": api, "kind": kind, "metadata": dict(metadata), "spec": dict(spec)}


def metadata(name: str, labels: Mapping[str, str], namespace: str = "", annotations: Mapping[str, str] | None = None) -> Object:
    """Name, and what of the others is given."""
    found: Object = {"name": name}
    if namespace:
        found["namespace"] = namespace
    if labels:
        found["labels"] = dict(labels)
    if annotations:
        found["annotations"] = dict(annotations)
    return found


def applied(one: Object) -> int:
    """Bytes of the annotation that ``kubectl apply`` keeps of the object: its JSON and a line end. Go's encoder writes
    <, > and & as six characters each."""
    return _json_bytes(one) + 1


def _json_bytes(value: Any) -> int:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return len(text.encode()) + 5 * sum(map(text.count, "<>&"))


def text(one: Object, *about: str) -> str:
    """The object as a file; one that is too large for ``kubectl apply`` says so."""
    return header("#", *about, *((SERVER_SIDE,) if applied(one) > APPLIED_MAX else ())) + dump(one)


# --- rules --------------------------------------------------------------------------------------------------------


def prometheus_rule(
    name: str, groups: Iterable[Mapping[str, Any]], labels: Mapping[str, str], namespace: str = ""
) -> Object:
    """A PrometheusRule; ``labels`` are those that Prometheus' ``ruleSelector`` asks for."""
    return thing(MONITORING, "PrometheusRule", metadata(name, labels, namespace), {"groups": list(groups)})


def rule_objects(pack: Pack, *, namespaced: bool = True) -> dict[str, Object]:
    """Name → PrometheusRule, one per group. A group that is too large parts where its rules have nothing in common."""
    deploy = pack.config.deploy

    def made(group: Mapping[str, Any]) -> Object:
        namespace = deploy.namespace if namespaced else ""
        return prometheus_rule(group["name"], [group], deploy.prometheus_rule_labels, namespace)

    found: dict[str, Object] = {}
    for group in pack.rule_groups:
        # the parts' names are a little longer, and stand in metadata and group
        room = APPLIED_MAX - applied(made({**group, "name": f"{group['name']}-9999", "rules": []}))
        for part in parts(group, lambda rule: _json_bytes(rule) + 1, room):
            found[part["name"]] = made(part)
    return found


def prometheus_rules(pack: Pack) -> dict[str, str]:
    about = "Its labels must be those of your Prometheus' ruleSelector (obs.yaml: deploy.prometheus_rule_labels)."
    return {f"{name}.yaml": text(one, about) for name, one in rule_objects(pack).items()}


# --- monitors -----------------------------------------------------------------------------------------------------


def _endpoint(one: Scraped, config: Config) -> Object:
    relabelings = [{"targetLabel": "job", "replacement": one.job}]
    for label, meta in ((config.namespace, "namespace"), (config.pod, "pod")):
        if label != meta:  # the operator writes namespace and pod; the rules of this configuration read others
            relabelings.append({"sourceLabels": [meta], "targetLabel": label})  # type: ignore[dict-item]
    return {
        "port": one.port,
        "path": one.path,
        "interval": one.interval,
        "scrapeTimeout": one.timeout,
        # What a server says of pod and namespace goes to exported_*, which the rules read: the target's own stay.
        "honorLabels": False,
        "relabelings": relabelings,
    }


def monitor(one: Scraped, config: Config, kind: str, *, namespaced: bool = True) -> Object:
    """A ``PodMonitor`` or ``ServiceMonitor`` of one kind of server."""
    deploy = config.deploy
    spec = {
        "selector": {"matchLabels": dict(one.labels)},
        "namespaceSelector": {"matchNames": list(one.namespaces)} if one.namespaces else {"any": True},
        "podMetricsEndpoints" if kind == "PodMonitor" else "endpoints": [_endpoint(one, config)],
    }
    name = one.name if one.name.startswith("obs-") else f"obs-{one.name}"
    return thing(MONITORING, kind, metadata(name, deploy.monitor_labels, deploy.namespace if namespaced else ""), spec)


_TWICE = {
    "dcgm": "Switch off the monitor of dcgm-exporter's chart (serviceMonitor.enabled: false): two would count each GPU twice.",
    "sidecar": "It replaces exporters/sidecar/podmonitor.yaml, which scrapes the engine too.",
}


def monitors(pack: Pack, kind: str) -> dict[str, str]:
    other = "podmonitor" if kind == "ServiceMonitor" else "servicemonitor"
    found = {}
    for one in scraped(pack.config):
        about = [f"Apply this or {other}/{one.name}.yaml, not both. Its labels must be those of your Prometheus' "
                 f"{kind[0].lower()}{kind[1:]}Selector."]
        if one.name in _TWICE:
            about.append(_TWICE[one.name])
        found[f"{one.name}.yaml"] = text(monitor(one, pack.config, kind), *about)
    return found


def chosen_monitors(pack: Pack) -> dict[str, Object]:
    """Name → one monitor per kind of server, by what finds it best: pods, or the service of a chart. Not namespaced."""
    kinds = {"pod": "PodMonitor", "service": "ServiceMonitor"}
    return {one.name: monitor(one, pack.config, kinds[one.by], namespaced=False) for one in scraped(pack.config)}


# --- dashboards ---------------------------------------------------------------------------------------------------


def dashboard_name(file: str) -> str:
    """Name of the object that holds the dashboard ``obs-fleet.json``."""
    return f"obs-dashboard-{file.removesuffix('.json').removeprefix('obs-')}"


def config_map(file: str, json_text: str, config: Config) -> Object:
    """The ConfigMap of a dashboard, as the sidecar of Grafana's chart finds it."""
    grafana, folder = config.deploy.grafana, {}
    if grafana.folder:
        folder = {grafana.folder_annotation: grafana.folder}
    name = metadata(dashboard_name(file), grafana.dashboard_labels, config.deploy.namespace, folder)
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": name, "data": {file: json_text}}


def config_maps(pack: Pack) -> dict[str, str]:
    about = (
        "Grafana's sidecar finds it by its label. The folder counts where the chart of Grafana has",
        f"sidecar.dashboards.folderAnnotation: {pack.config.deploy.grafana.folder_annotation} and "
        "provider.foldersFromFilesStructure: true.",
    )
    return {
        f"{dashboard_name(file)}.yaml": text(config_map(file, json_text, pack.config), *about)
        for file, json_text in pack.dashboard_texts.items()
    }


def grafana_dashboards(pack: Pack) -> dict[str, str]:
    """grafana-operator's objects."""
    deploy = pack.config.deploy
    found = {}
    for file, json_text in pack.dashboard_texts.items():
        name = metadata(dashboard_name(file), {}, deploy.namespace)
        one = thing("grafana.integreatly.org/v1beta1", "GrafanaDashboard", name, {
            "instanceSelector": {"matchLabels": dict(deploy.grafana.instance_labels)},
            "allowCrossNamespaceImport": True,
            **({"folder": deploy.grafana.folder} if deploy.grafana.folder else {}),
            "json": json_text,
        })
        found[f"{dashboard_name(file)}.yaml"] = text(
            one, "For the Grafana with these labels (obs.yaml: deploy.grafana.instance_labels)."
        )
    return found
