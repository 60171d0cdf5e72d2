"""A Helm chart whose rules and dashboards Helm never reads as templates.

``{{ $labels.model }}`` is Prometheus' own template. So every body (``spec`` of a rule or monitor, ``data`` of a ConfigMap)
is a file under ``files/``, and a template holds only an object's head and ``.Files.Get``, whose text Helm puts in as it
is. The templates use nothing but Go's text/template and ``.Files``: no function of sprig.
"""

from __future__ import annotations

import json
from typing import Any

from obs import __version__
from obs.render.kubernetes import Object, chosen_monitors, config_map, dashboard_name, rule_objects
from obs.render.pack import MARK, Pack, header
from obs.render.prometheus import dump

NAME = "obs-inference"


def files(pack: Pack) -> dict[str, str]:
    """The chart's folder: path → text."""
    rules = rule_objects(pack, namespaced=False)
    monitors = chosen_monitors(pack)
    dashboards = {
        dashboard_name(file): config_map(file, text, pack.config) for file, text in pack.dashboard_texts.items()
    }
    found = {
        "Chart.yaml": header() + dump({
            "apiVersion": "v2",
            "name": NAME,
            "description": "Prometheus rules, monitors and Grafana dashboards for inference servers",
            "type": "application",
            "version": __version__,
            "appVersion": __version__,
        }),
        "values.yaml": _values(pack, monitors),
        "values.schema.json": json.dumps(_schema(tuple(monitors)), indent=2) + "\n",
        "templates/rules.yaml": _template("rules", "rules", rules),
        "templates/monitors.yaml": _template("monitors", "monitors", monitors, each=".Values.monitors.targets"),
        "templates/dashboards.yaml": _template("dashboards", "dashboards", dashboards, annotations=True),
    }
    for folder, objects, key in (("rules", rules, "spec"), ("monitors", monitors, "spec"), ("dashboards", dashboards, "data")):
        for name, one in objects.items():
            found[f"files/{folder}/{name}.yaml"] = header() + dump({key: one[key]})
    return found


def _values(pack: Pack, monitors: dict[str, Object]) -> str:
    deploy = pack.config.deploy
    namespace = deploy.namespace if "namespace" in deploy.model_fields_set else ""
    folder = {deploy.grafana.folder_annotation: deploy.grafana.folder} if deploy.grafana.folder else {}
    parts: tuple[tuple[str, dict[str, Any]], ...] = (
        ("Namespace of the objects; empty: the release's.", {"namespace": namespace}),
        ("PrometheusRules; the labels are those of your Prometheus' ruleSelector.",
         {"rules": {"enabled": True, "labels": dict(deploy.prometheus_rule_labels)}}),
        ("PodMonitors and ServiceMonitors; switch off those of servers that are scraped already.",
         {"monitors": {"enabled": True, "labels": dict(deploy.monitor_labels), "targets": dict.fromkeys(monitors, True)}}),
        ("ConfigMaps for the sidecar of Grafana's chart.",
         {"dashboards": {"enabled": True, "labels": dict(deploy.grafana.dashboard_labels), "annotations": folder}}),
    )
    return header() + "".join(f"\n# {about}\n{dump(value)}" for about, value in parts)


def _template(section: str, folder: str, objects: dict[str, Object], *, each: str = "", annotations: bool = False) -> str:
    """One document for each object, under the section's switch (and that of its own, in the map ``each``)."""
    found = f"{{{{- /* {MARK}; change obs.yaml, not this file. */ -}}}}\n{{{{- if .Values.{section}.enabled }}}}\n"
    for name, one in objects.items():
        switch = f"{{{{- if index {each} {json.dumps(name)} }}}}\n" if each else ""
        found += (
            f"{switch}---\napiVersion: {one['apiVersion']}\nkind: {one['kind']}\nmetadata:\n"
            f"  name: {one['metadata']['name']}\n"
            "  namespace: {{ or .Values.namespace .Release.Namespace }}\n"
            + _map(section, "labels") + (_map(section, "annotations") if annotations else "")
            + f'{{{{ .Files.Get "files/{folder}/{name}.yaml" }}}}\n' + ("{{- end }}\n" if switch else "")
        )
    return found + "{{- end }}\n"


def _map(section: str, key: str) -> str:
    return (
        f"  {{{{- with .Values.{section}.{key} }}}}\n  {key}:\n    {{{{- range $key, $value := . }}}}\n"
        '    {{ printf "%q" $key }}: {{ printf "%q" $value }}\n    {{- end }}\n  {{- end }}\n'
    )


def _schema(monitors: tuple[str, ...]) -> dict[str, Any]:
    texts = {"type": ["object", "null"], "additionalProperties": {"type": "string"}}
    switch = {"type": "boolean"}

    def section(**more: Any) -> dict[str, Any]:
        return {"type": "object", "additionalProperties": False, "properties": {"enabled": switch, "labels": texts, **more}}

    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$comment": MARK,
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "global": {"type": "object"},
            "namespace": {"type": "string", "pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$", "maxLength": 63},
            "rules": section(),
            "monitors": section(targets={
                "type": "object", "additionalProperties": False, "properties": dict.fromkeys(monitors, switch),
            }),
            "dashboards": section(annotations=texts),
        },
    }
