"""What ``obs build --format`` can write: one line per format, in the order they are shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from obs.render import (
    alertmanager,
    autoscaling,
    docs,
    docs_engines,
    grafana_files,
    helm,
    kubernetes,
    kustomize,
    mixin,
    rulers,
    scrape,
)
from obs.render.pack import MARK, Pack

DEPLOY = "deploy"


@dataclass(frozen=True)
class Format:
    """``files`` gives path below ``folder`` → text. ``owned`` are the forms of names in the folder under which only
    generated files stand that carry one of ``marks``: one that a fresh build does not write is removed."""

    name: str
    about: str
    files: Callable[[Pack], dict[str, str]]
    folder: str
    owned: tuple[str, ...] = ("**/*",)
    marks: tuple[str, ...] = (MARK, '"uid": "obs-')
    default: bool = False

    def paths(self, pack: Pack) -> dict[str, str]:
        """Path below the output folder → text."""
        return {f"{self.folder}/{path}": text for path, text in self.files(pack).items()}


def _docs(pack: Pack) -> dict[str, str]:
    return {
        "alerts.md": docs.alerts_page(pack.groups, pack.config),
        "recording-rules.md": docs.recordings_page(pack.groups),
        "catalogue.md": docs.catalogue_page(),
        "signals.md": docs_engines.signals_page(pack.groups),
        "flags.md": docs_engines.flags_page(),
        "upgrades.md": docs_engines.upgrades_page(),
    }


def _autoscaling(pack: Pack) -> dict[str, str]:
    written = autoscaling.files(pack.groups, pack.config)
    return {path.removeprefix(f"{autoscaling.FOLDER}/"): text for path, text in written.items()}


def _deployed(name: str, about: str, files: Callable[[Pack], dict[str, str]]) -> Format:
    return Format(name, about, files, f"{DEPLOY}/{name}")


FORMATS = (
    Format("rules", "Prometheus rule files: rule_files of prometheus.yml", lambda pack: dict(pack.rule_texts),
           "alerts/rules", ("*.yaml",), (MARK,), default=True),
    Format("dashboards", "Grafana dashboards as JSON", lambda pack: dict(pack.dashboard_texts),
           "dashboards", ("*.json",), ('"uid": "obs-',), default=True),
    Format("docs", "tables of alerts, recording rules and metrics", _docs, "docs", (), (), default=True),
    Format("autoscaling", "KEDA, HPA and KServe manifests of the workloads in obs.yaml",
           _autoscaling, autoscaling.FOLDER, ("**/*.yaml",), (MARK,), default=True),
    _deployed("prometheusrule", "PrometheusRule objects, one per group, for the Prometheus operator",
              kubernetes.prometheus_rules),
    _deployed("podmonitor", "PodMonitors of the engines, dcgm-exporter and the sidecar",
              lambda pack: kubernetes.monitors(pack, "PodMonitor")),
    _deployed("servicemonitor", "the same as ServiceMonitors", lambda pack: kubernetes.monitors(pack, "ServiceMonitor")),
    _deployed("scrape", "scrape configurations of Prometheus: by address, and by Kubernetes' discovery", scrape.files),
    _deployed("grafana-provisioning", "Grafana provisioning folder: dashboards, their provider, an example data source",
              grafana_files.provisioning),
    _deployed("configmap", "ConfigMaps of the dashboards, for the sidecar of Grafana's chart", kubernetes.config_maps),
    _deployed("grafana-dashboard", "GrafanaDashboard objects, for grafana-operator", kubernetes.grafana_dashboards),
    _deployed("mimir", "rules namespace file, for mimirtool and cortextool rules load", rulers.mimir),
    _deployed("thanos", "rule files of thanos rule", rulers.thanos),
    _deployed("mixin", "jsonnet mixin over the rule files and dashboards", mixin.files),
    _deployed("kustomize", "kustomize base of rules, monitors and dashboards", kustomize.files),
    _deployed("helm", "Helm chart of the same", helm.files),
    _deployed("alertmanager", "Alertmanager configuration: routes and inhibitions of the pack's alerts",
              alertmanager.configuration),
)
BY_NAME = {one.name: one for one in FORMATS}
DEFAULT = tuple(one.name for one in FORMATS if one.default)
