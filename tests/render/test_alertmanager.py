"""The Alertmanager configuration: amtool, a real Alertmanager, and the labels that the rules' unit tests state."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
import yaml

from obs.alerts.registry import all_groups
from obs.build import render_all
from obs.config import Config, load_config, parse_config
from obs.model.rule import Alert
from obs.render.alertmanager import Inhibition, inhibitions, labels_of
from tests.triton.process import free_ports

ROOT = Path(__file__).resolve().parents[2]
PATH = "deploy/alertmanager/alertmanager.yml"
EXAMPLE = load_config(ROOT / "examples" / "obs.yaml")
DEFAULT = parse_config("")
GPU = parse_config("deploy: {alertmanager: {gpu_inhibits_latency: true, info: 'http://127.0.0.1:5001/info'}}")


def alerts(config: Config) -> tuple[Alert, ...]:
    return tuple(alert for group in all_groups(config) for alert in group.alerts)


def text(config: Config) -> str:
    return render_all(config, chosen=["alertmanager"])[PATH]


def stated() -> dict[str, set[frozenset[str]]]:
    """alert -> each label set that a unit test of the rules expects of it."""
    found: dict[str, set[frozenset[str]]] = defaultdict(set)
    for path in sorted((ROOT / "alerts" / "tests").glob("*.yaml")):
        for test in yaml.safe_load(path.read_text())["tests"]:
            for case in test.get("alert_rule_test", []):
                for alert in case.get("exp_alerts") or []:
                    found[case["alertname"]].add(frozenset(alert["exp_labels"]))
    return found


STATED = stated()
#: Labels of a target that are there or not by the way it is scraped, on every alert of it alike.
TARGET = {"cluster", "namespace", "pod"}


def refused(rule: Inhibition) -> list[str]:
    """What is wrong with the rule's labels: a label that both sides may lack makes strangers equal."""
    faults = []
    for label in rule.equal:
        if label in TARGET and label not in rule.present:
            continue
        for name in rule.sources:
            if label not in rule.present and not all(label in labels for labels in STATED[name]):
                faults.append(f"source {name} may lack {label}")
        for name in rule.targets:
            if not any(label in labels for labels in STATED[name]):
                faults.append(f"target {name} never has {label}")
    return faults


@pytest.mark.parametrize("config", [DEFAULT, EXAMPLE, GPU], ids=["default", "example", "gpu"])
def test_equal_labels_are_on_both_sides(config: Config) -> None:
    for rule in inhibitions(alerts(config), config):
        assert refused(rule) == [], rule.why


def test_the_check_of_labels_can_fail() -> None:
    broken = Inhibition("", ("GPUMemoryHigh",), ("LLMTimeToFirstTokenP99High",), ("job",))
    assert refused(broken) == ["source GPUMemoryHigh may lack job"]
    assert refused(Inhibition("", ("InferenceModelVanished",), ("InferenceTargetDown",), ("model",))) == [
        "target InferenceTargetDown never has model"]


def test_what_a_text_names_is_a_label_of_the_alert() -> None:
    """The targets are chosen by it."""
    for alert in alerts(EXAMPLE):
        for label in labels_of(alert) & {"model", "instance", "job", "workload"}:
            assert any(label in labels for labels in STATED[alert.name]), (alert.name, label)


def test_each_of_the_issue_s_inhibitions_is_there() -> None:
    pairs = {(source, target) for rule in inhibitions(alerts(DEFAULT), DEFAULT)
             for source in rule.sources for target in rule.targets}
    assert ("InferenceTargetDown", "LLMStatsStuck") in pairs
    assert ("InferenceTargetDown", "InferenceMetricsEmpty") in pairs
    assert ("InferenceJobAbsent", "InferenceTrafficDrop") in pairs
    assert ("LLMKVCacheSaturated", "LLMTimeToFirstTokenP99High") in pairs
    assert ("InferenceFailureRatioHigh", "InferenceLatencyP99High") in pairs
    assert not [pair for pair in pairs if pair[0] == "GPUMemoryHigh"]
    wide = {source for rule in inhibitions(alerts(GPU), GPU) for source in rule.sources}
    assert "GPUMemoryHigh" in wide


def test_alerts_that_are_switched_off_are_not_named() -> None:
    config = parse_config("engines: [triton]\nalerts: {InferenceTargetDown: {enabled: false}}")
    written = text(config)
    assert "InferenceTargetDown" not in written
    assert "LLM" not in written


def test_the_labels_are_those_of_obs_yaml() -> None:
    config = parse_config("labels: {cluster: site, namespace: kube_namespace, pod: kube_pod}")
    down, beside, *_ = inhibitions(alerts(config), config)
    assert down.equal == ("site", "kube_namespace", "job", "instance")
    assert (beside.equal, beside.present) == (("site", "kube_namespace", "kube_pod"), ("kube_pod",))
    assert yaml.safe_load(text(config))["route"]["group_by"] == ["alertname", "site", "kube_namespace", "job"]


def test_every_alert_of_the_pack_is_routed_by_its_name() -> None:
    (route,) = yaml.safe_load(text(EXAMPLE))["route"]["routes"]
    (matcher,) = route["matchers"]
    assert set(matcher.removeprefix('alertname=~"').rstrip('"').split("|")) == {one.name for one in alerts(EXAMPLE)}


# --- amtool and a real Alertmanager ---------------------------------------------------------------------------


def program(*names: str) -> str:
    for name in names:
        if shutil.which(name):
            return name
    pytest.skip(f"{names[0]} is not here (make test-tools)")


@pytest.mark.parametrize("config", [DEFAULT, EXAMPLE, GPU], ids=["default", "example", "gpu"])
def test_amtool_accepts_it_and_routes_by_severity(config: Config, tmp_path: Path) -> None:
    amtool = program("amtool")
    path = tmp_path / "alertmanager.yml"
    path.write_text(text(config))
    done = subprocess.run([amtool, "check-config", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for severity, alert in (("critical", "InferenceTargetDown"), ("warning", "LLMKVCacheSaturated"),
                            ("info", "InferenceModelIdle"), ("warning", "SomebodyElses")):
        words = [amtool, "config", "routes", "test", f"--config.file={path}",
                 f"--verify.receivers=inference-{severity}", f"alertname={alert}", f"severity={severity}"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (alert, done.stdout + done.stderr)


class Alertmanager:
    def __init__(self, url: str) -> None:
        self.url = url
        self.asked = 0

    def call(self, path: str, data: Any = None) -> Any:
        body = None if data is None else json.dumps(data).encode()
        request = urllib.request.Request(self.url + path, data=body, headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            read = answer.read()
        return json.loads(read) if read[:1] in (b"[", b"{") else None

    def suppressed(self, *firing: dict[str, str]) -> set[str]:
        """Names of those of the firing alerts that are inhibited; the alerts are resolved again after it.

        Two more alerts, of which one surely inhibits the other, tell when the inhibitor has seen them all: it takes
        them in the order in which they come.
        """
        self.asked += 1
        last = {"namespace": "last", "job": "last", "instance": str(self.asked)}
        end = [alert("InferenceTargetFlapping", **last), alert("InferenceTargetDown", "critical", **last)]
        now = datetime.now(timezone.utc).isoformat()
        sent = [{"labels": labels, "startsAt": now} for labels in (*firing, *end)]
        self.call("/api/v2/alerts", sent)
        deadline = time.monotonic() + 60
        while True:
            found = self.call("/api/v2/alerts")
            inhibited = [one["labels"] for one in found if one["status"]["inhibitedBy"]]
            if end[0] in inhibited:
                break
            assert time.monotonic() < deadline
            time.sleep(0.02)
        self.call("/api/v2/alerts", [{**one, "endsAt": now} for one in sent])
        return {labels["alertname"] for labels in inhibited if labels not in end}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alertmanager]:
    name = program("prometheus-alertmanager", "alertmanager")
    folder = tmp_path_factory.mktemp("alertmanager")
    (folder / "alertmanager.yml").write_text(text(GPU))
    found = Alertmanager(f"http://127.0.0.1:{free_ports(1)[0]}")
    words = [name, f"--config.file={folder / 'alertmanager.yml'}", f"--storage.path={folder}",
             f"--web.listen-address={found.url.removeprefix('http://')}", "--cluster.listen-address="]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + 60
            while True:
                try:
                    found.call("/-/ready")
                    break
                except (urllib.error.URLError, OSError):
                    assert process.poll() is None, (folder / "log").read_text()
                    assert time.monotonic() < deadline
                    time.sleep(0.05)
            yield found
        finally:
            process.terminate()
            process.wait(20)


def alert(name: str, severity: str = "warning", **labels: str) -> dict[str, str]:
    return {"alertname": name, "severity": severity, **labels}


A = {"namespace": "ml", "job": "vllm"}
MODEL = {**A, "model": "llama", "engine": "vllm"}
ONE = {**A, "instance": "10.0.0.1:8000", "pod": "vllm-0"}
OTHER = {**A, "instance": "10.0.0.2:8000", "pod": "vllm-1"}
BESIDE = {"namespace": "ml", "job": "obs-sidecar", "instance": "10.0.0.1:9105", "pod": "vllm-0", "engine": "vllm"}
DOWN = alert("InferenceTargetDown", "critical", **ONE)


@pytest.mark.parametrize(("firing", "expected"), [
    pytest.param([DOWN, alert("InferenceTargetFlapping", **ONE)], {"InferenceTargetFlapping"}, id="same target"),
    pytest.param([DOWN, alert("InferenceTargetFlapping", **OTHER)], set(), id="another target of the job"),
    pytest.param([DOWN, alert("LLMStatsStuck", "critical", **ONE, model="llama", engine="vllm")], {"LLMStatsStuck"},
                 id="a critical alert of the target"),
    pytest.param([DOWN, alert("LLMTimeToFirstTokenP99High", **MODEL)], set(), id="the model, which others serve too"),
    pytest.param([DOWN, alert("InferenceEngineDown", "critical", **BESIDE, reason="refused")], {"InferenceEngineDown"},
                 id="the sidecar of the pod"),
    pytest.param([alert("InferenceTargetDown", "critical", job="vllm", instance="a:8000"),
                  alert("InferenceEngineDown", "critical", job="obs-sidecar", instance="b:9105", engine="vllm", reason="x")],
                 set(), id="no pods: two absent labels are not equal"),
    pytest.param([alert("InferenceJobAbsent", "critical", **A), alert("InferenceTrafficDrop", **MODEL)],
                 {"InferenceTrafficDrop"}, id="no target of the job"),
    pytest.param([alert("InferenceJobAbsent", "critical", **A), alert("InferenceTrafficDrop", **{**MODEL, "job": "b"})],
                 set(), id="another job"),
    pytest.param([alert("InferenceModelVanished", "critical", **A, model="llama"),
                  alert("InferenceModelIdle", "info", **MODEL)], {"InferenceModelIdle"}, id="the model vanished"),
    pytest.param([alert("LLMKVCacheSaturated", **MODEL), alert("LLMTimeToFirstTokenP99High", **MODEL, source="histogram")],
                 {"LLMTimeToFirstTokenP99High"}, id="GPU's KV cache and latency"),
    pytest.param([alert("LLMKVCacheSaturated", **MODEL), alert("LLMTimeToFirstTokenP99High", **{**MODEL, "model": "b"})],
                 set(), id="another model's latency"),
    pytest.param([alert("LLMKVCacheSaturated", **{**MODEL, "job": "obs-sidecar", "engine": "sidecar"}),
                  alert("LLMQueueTimeHigh", **MODEL)], {"LLMQueueTimeHigh"}, id="KV cache as the sidecar tells it"),
    pytest.param([alert("GPUMemoryHigh", gpu_uuid="GPU-1", cluster="a"),
                  alert("InferenceLatencyP99High", **MODEL, cluster="a")],
                 {"InferenceLatencyP99High"}, id="a GPU of the cluster, switched on"),
    pytest.param([alert("GPUMemoryHigh", gpu_uuid="GPU-1", cluster="a"),
                  alert("InferenceLatencyP99High", **MODEL, cluster="b")], set(), id="a GPU of another cluster"),
    pytest.param([alert("InferenceFailureRatioHigh", "critical", **MODEL), alert("InferenceLatencyP99High", **MODEL)],
                 {"InferenceLatencyP99High"}, id="critical and warning of a model"),
    pytest.param([alert("InferenceFailureRatioHigh", "critical", **MODEL),
                  alert("InferenceFailureRatioHigh", "critical", **{**MODEL, "model": "b"})],
                 set(), id="critical alerts stand"),
    pytest.param([alert("InferenceHTTPErrorRatioHigh", "critical", **A), alert("InferenceLatencyP99High", **MODEL)],
                 set(), id="a critical alert without a model"),
])
def test_what_a_real_alertmanager_suppresses(server: Alertmanager, firing: list[dict[str, str]], expected: set[str]) -> None:
    assert server.suppressed(*firing) == expected
