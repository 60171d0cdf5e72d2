"""The manifests against Kubernetes' own schemas, and the image's steps in a clean venv."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from obs.cli import sidecar
from obs.sidecar.settings import model_settings

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "exporters" / "sidecar"
KUBERNETES = "1.33"

#: Fields of a predictor and a runtime that are KServe's own; all others are a pod's (KServe 0.21's SDK models).
PREDICTOR = {"minReplicas", "maxReplicas", "scaleTarget", "scaleMetric", "model", "timeout", "labels", "annotations"}
MODEL = {"modelFormat", "runtime", "protocolVersion", "storageUri", "runtimeVersion"}
RUNTIME = {"supportedModelFormats", "protocolVersions", "multiModel", "disabled", "annotations", "labels"}


def documents() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted(FOLDER.glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            yield f"{path.name}:{document['kind']}/{document['metadata']['name']}", document


DOCUMENTS = dict(documents())


def valid(resource: dict[str, Any]) -> None:
    kubernetes_validate.validate(resource, KUBERNETES, strict=True)


def as_pod(spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": spec}


def closed(required: str = "", **properties: Any) -> dict[str, Any]:
    """An object with these keys and no others."""
    return {"type": "object", "properties": properties, "additionalProperties": False, "required": required.split()}


TEXT, COUNT, FLAG = {"type": "string"}, {"type": "integer", "minimum": 0}, {"type": "boolean"}
TEXTS = {"type": "object", "additionalProperties": TEXT}
DURATION = {"type": "string", "pattern": r"^\d+(ms|s|m|h)$"}
METADATA = closed("name", name=TEXT, labels=TEXTS, annotations=TEXTS)

#: No package carries these two without a pytest plugin of its own, so: the part of each CRD that we use, and no more.
#: prometheus-operator's monitoring.coreos.com/v1 PodMonitor, KEDA's keda.sh/v1alpha1 ScaledObject.
CUSTOM = {
    "PodMonitor": closed(
        "apiVersion kind metadata spec", apiVersion={"const": "monitoring.coreos.com/v1"}, kind=TEXT, metadata=METADATA,
        spec=closed(
            "selector podMetricsEndpoints", selector=closed(matchLabels=TEXTS),
            podMetricsEndpoints={"type": "array", "items": closed(
                "port", port=TEXT, path=TEXT, interval=DURATION, scrapeTimeout=DURATION, honorLabels=FLAG)}),
    ),
    "ScaledObject": closed(
        "apiVersion kind metadata spec", apiVersion={"const": "keda.sh/v1alpha1"}, kind=TEXT, metadata=METADATA,
        spec=closed(
            "scaleTargetRef triggers", scaleTargetRef=closed("name", name=TEXT, kind=TEXT, apiVersion=TEXT),
            minReplicaCount=COUNT, maxReplicaCount=COUNT, pollingInterval=COUNT,
            fallback=closed("failureThreshold replicas", failureThreshold=COUNT, replicas=COUNT, behavior={"enum": [
                "static", "currentReplicas", "currentReplicasIfHigher", "currentReplicasIfLower"]}),
            advanced=closed(horizontalPodAutoscalerConfig=closed(behavior={"type": "object"})),
            triggers={"type": "array", "items": closed(
                "type metadata", type={"const": "metrics-api"}, metricType={"enum": ["AverageValue", "Value"]},
                # all of a trigger's metadata are strings, also numbers and booleans
                metadata=closed("url valueLocation targetValue", url=TEXT, format=TEXT, valueLocation=TEXT,
                                targetValue=TEXT, aggregateFromKubeServiceEndpoints={"enum": ["true", "false"]},
                                aggregationType={"enum": ["average", "sum", "max", "min"]}))}),
    ),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_schema(name: str) -> None:
    document = DOCUMENTS[name]
    kind = document["kind"]
    if kind in CUSTOM:
        jsonschema.validate(document, CUSTOM[kind])
        if kind == "ScaledObject":
            behavior = document["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
            target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"}
            valid({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "x"},
                   "spec": {"maxReplicas": 2, "scaleTargetRef": target, "behavior": behavior}})
    elif kind == "ServingRuntime":
        assert document["apiVersion"] == "serving.kserve.io/v1alpha1"
        valid(as_pod({key: value for key, value in document["spec"].items() if key not in RUNTIME}))
    elif kind == "InferenceService":
        assert document["apiVersion"] == "serving.kserve.io/v1beta1"
        predictor = document["spec"]["predictor"]
        model = predictor["model"]
        container = {"name": "kserve-container", **{key: value for key, value in model.items() if key not in MODEL}}
        pod = {key: value for key, value in predictor.items() if key not in PREDICTOR}
        valid(as_pod({**pod, "containers": [*pod.get("containers", []), container]}))
    else:
        valid(document)


def test_the_validator_validates() -> None:
    with pytest.raises(kubernetes_validate.ValidationError):
        valid(as_pod({"containers": [{"name": "x", "imagee": "y"}]}))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**DOCUMENTS["podmonitor.yaml:PodMonitor/obs-sidecar"], "spec": {"selector": {}}},
                            CUSTOM["PodMonitor"])


def containers(document: dict[str, Any]) -> list[dict[str, Any]]:
    found = []

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            for key, value in node.items():
                if key in ("containers", "initContainers"):
                    found.extend(value)
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(document)
    return found


ALL = [container for document in DOCUMENTS.values() for container in containers(document)]
SIDECARS = [container for container in ALL if container["name"] == "obs-sidecar"]


def test_sidecars_are_native_locked_and_start_with_arguments_that_exist() -> None:
    assert len(SIDECARS) == 3
    for container in SIDECARS:
        assert container["restartPolicy"] == "Always"
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert container["securityContext"]["runAsNonRoot"]
        assert {port["name"]: port["containerPort"] for port in container["ports"]} == {"signals": 9105}
        assert "readinessProbe" not in container
        parser = argparse.ArgumentParser()
        sidecar.add_arguments(parser)
        args = parser.parse_args(container["args"])
        assert args.listen_port == 9105
        variables = set(re.findall(r"OBS_SIDECAR_[A-Z_]+", re.sub(r"\s+", "", parser.format_help())))
        assert {one["name"] for one in container.get("env", [])} <= variables


def test_engines_have_their_probes_and_limits() -> None:
    tritons = [container for container in ALL if "tritonserver" in container["image"]]
    assert len(tritons) == 2
    for container in tritons:
        assert container["readinessProbe"]["httpGet"]["path"] == "/v2/health/ready"
        assert container["livenessProbe"]["httpGet"]["path"] == "/v2/health/live"
        assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
        assert "--model-control-mode=explicit" in container["args"]
        year, month = map(int, re.search(r":(\d\d)\.(\d\d)-", container["image"]).groups())  # type: ignore[union-attr]
        assert (year, month) >= (26, 6)


def test_replicas_are_resident() -> None:
    assert DOCUMENTS["triton-deployment.yaml:Deployment/triton"]["spec"]["replicas"] >= 2
    for name, document in DOCUMENTS.items():
        if document["kind"] == "InferenceService":
            assert document["spec"]["predictor"]["minReplicas"] >= 2, name
        if document["kind"] == "ScaledObject":
            assert document["spec"]["minReplicaCount"] >= 1
            assert "idleReplicaCount" not in document["spec"]


def test_the_monitor_names_ports_that_exist() -> None:
    ports = {endpoint["port"] for endpoint in DOCUMENTS["podmonitor.yaml:PodMonitor/obs-sidecar"]["spec"][
        "podMetricsEndpoints"]}
    assert ports == {"signals", "metrics"}
    pod = DOCUMENTS["vllm-pod.yaml:Pod/vllm"]
    assert ports <= {port["name"] for container in containers(pod) for port in container.get("ports", [])}
    template = DOCUMENTS["triton-deployment.yaml:Deployment/triton"]["spec"]["template"]
    assert ports <= {port["name"] for container in containers(template) for port in container.get("ports", [])}
    selector = {"obs-sidecar": "true"}
    assert selector.items() <= pod["metadata"]["labels"].items()
    assert selector.items() <= template["metadata"]["labels"].items()


def test_the_models_file_is_one() -> None:
    given = json.loads(DOCUMENTS["triton-deployment.yaml:ConfigMap/obs-sidecar"]["data"]["models.json"])
    assert model_settings("x", given["llama"]).kv_capacity_tokens == 40000


def test_the_readme_s_models_file_and_files() -> None:
    text = (FOLDER / "README.md").read_text()
    named = set(re.findall(r"`([\w-]+\.(?:yaml|txt))`", text))
    assert {path.name for path in FOLDER.iterdir() if path.suffix in (".yaml", ".txt")} == named


def test_the_image_s_steps_in_a_clean_venv(tmp_path: Path) -> None:
    """What `docker build` would run, with the venv elsewhere: it pulls in one package, and the command starts."""
    text = (FOLDER / "Dockerfile").read_text()
    assert re.search(r"^USER 65532:65532$", text, re.MULTILINE)
    assert text.count("\nFROM ") == 2
    venv = tmp_path / "obs"
    source = tmp_path / "src"
    source.mkdir()
    for line in re.findall(r"^(?:RUN|COPY) .*$", text.split("\nFROM ")[1], re.MULTILINE):
        step, *words = shlex.split(line)
        if step == "COPY":
            *wanted, target = words
            subprocess.run(["cp", "-r", *(str(ROOT / one) for one in wanted), str(source / target)], check=True)
            continue
        words = [word.replace("/opt/obs", str(venv)) for word in words]
        words[0] = sys.executable if words[0] == "python" else words[0]
        subprocess.run(words, cwd=source, check=True, capture_output=True, timeout=300)
    packages = next(venv.glob("lib/python3.*/site-packages"))
    installed = {path.name.split("-")[0] for path in packages.glob("*.dist-info")}
    size = sum(path.stat().st_size for path in packages.rglob("*") if path.is_file())
    print(f"\nthe image's packages: {sorted(installed)}, {size / 1e6:.1f} MB with bytecode")
    assert installed - {"setuptools"} == {"obs_inference", "prometheus_client"}
    assert size < 15e6
    result = subprocess.run([venv / "bin" / "python", "-m", "obs.cli.sidecar", "--help"], capture_output=True,
                            text=True, check=True, cwd=tmp_path, env={})
    assert "--listen-port" in result.stdout
