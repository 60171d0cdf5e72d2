"""Every format built once, the rules and dashboards read back out of each, and the tools that consume them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from obs.build import render_all
from obs.config import parse_config

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = {
    "default": "",
    "example": (ROOT / "examples" / "obs.yaml").read_text(),
    "other": """
engines: [triton, trtllm-serve, sglang, dynamo, dcgm]
selectors: {trtllm-serve: 'job="trtllm"'}
labels: {namespace: kube_namespace, pod: kube_pod}
interval: {scrape: 8s}
deploy:
  namespace: gpu-alerts
  prometheus_rule_labels: {team: "on.call", example.org/tier: "1"}
  monitor_labels: {}
  ruler_namespace: gpus
  targets:
    triton: {job: tritons, labels: {app.kubernetes.io/name: triton, tier: "a"}, port: http-metrics, namespaces: [ml, ml-2],
             interval: 4s, timeout: 3s, static: ["10.0.0.1:8002", "[fd00::1]:8002"]}
  grafana: {folder: "", dashboard_labels: {dash: "yes"}}
""",
}


@cache
def built(name: str) -> Mapping[str, str]:
    """Path → text of every format with one of ``CONFIGS``."""
    return render_all(parse_config(CONFIGS[name]), chosen=["all"])


def below(name: str, folder: str) -> dict[str, str]:
    """Path below ``folder`` → text."""
    return {path.removeprefix(f"{folder}/"): text for path, text in built(name).items() if path.startswith(f"{folder}/")}


def documents(texts: Iterable[str]) -> list[dict[str, Any]]:
    return [one for text in texts for one in yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)) if one]


def on_disk(name: str, folder: str, root: Path) -> Path:
    """The files below ``folder`` as such."""
    for path, text in below(name, folder).items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


# --- rules and dashboards, read back ---------------------------------------------------------------------------


def rules_of(groups: Iterable[Mapping[str, Any]]) -> dict[str, list[tuple[str, Any]]]:
    """Group (its parts together) → (interval, rule) of each rule, sorted: what is evaluated, wherever it stands."""
    found: dict[str, list[tuple[str, Any]]] = {}
    for group in groups:
        assert set(group) <= {"name", "interval", "rules", "partial_response_strategy"}
        name = re.sub(r"-\d+$", "", group["name"])
        found.setdefault(name, []).extend((group["interval"], rule) for rule in group["rules"])
    return {name: sorted(rules, key=lambda one: json.dumps(one, sort_keys=True)) for name, rules in found.items()}


def groups_in(objects: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The groups of the PrometheusRules among the objects."""
    return [group for one in objects if one["kind"] == "PrometheusRule" for group in one["spec"]["groups"]]


def originals(name: str) -> list[Mapping[str, Any]]:
    return [group for one in documents(below(name, "alerts/rules").values()) for group in one["groups"]]


def dashboards(name: str) -> dict[str, str]:
    return below(name, "dashboards")


def dashboards_in(objects: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    return {file: text for one in objects if one["kind"] == "ConfigMap" for file, text in one["data"].items()}


# --- the consumers' own tools ----------------------------------------------------------------------------------


def program(*names: str) -> str:
    """The first of them that is here; skips the test where none is."""
    for name in names:
        if shutil.which(name):
            return name
    pytest.skip(f"{names[0]} is not here")


def run(*words: str | Path) -> str:
    """What a program says; its failure fails the test."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def kustomized(folder: Path) -> list[dict[str, Any]]:
    """What a real kustomize makes of the folder."""
    if shutil.which("kustomize"):
        return documents([run("kustomize", "build", folder)])
    return documents([run(program("kubectl"), "kustomize", folder)])


def rendered(folder: Path, values: Mapping[str, Any], namespace: str = "releases") -> list[dict[str, Any]]:
    """What a real Helm makes of the chart."""
    helm = pytest.importorskip("helm_python", reason="helm-python-sdk is not installed")
    with helm.Chart.load(folder) as chart:
        return documents(chart.render(dict(values), name="demo", namespace=namespace).values())
