"""The written manifests: Kubernetes' own schemas for what is Kubernetes', the part that we use for the others; and what no
schema says.

No PyPI package carries the CRDs of KEDA, KServe, prometheus-operator and prometheus-adapter. So: the fields that we write,
and no others, each with its source. Once (30 November 2026) the files were also held against the whole CRDs of
kedacore/keda 8b4f083 and kserve/kserve aaac4e2 with every object closed: no finding.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from obs.alerts.registry import all_groups
from obs.build import render_all, write
from obs.catalog import platform
from obs.catalog.scaling import PRIMARY, SIGNALS, TARGETS
from obs.config import parse_config
from obs.engines import metric_owners
from obs.promql import duration
from obs.recordings.scaling import target
from obs.render.autoscaling import FOLDER, files, quantity

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = (ROOT / "examples" / "obs.yaml").read_text()
EVERY = """
autoscaling:
  prometheus: https://thanos.example:9090/
  kserve_mode: RawDeployment
  rule_labels: {}
  workloads:
    - {name: set, namespace: x, kind: StatefulSet, engine: sglang, max_replicas: 3, scale_up_stabilization: 15s,
       targets: {load_ratio: 70%, kv_usage_ratio: 0.8}}
    - {name: isvc, namespace: x, kind: InferenceService, engine: triton-vllm, max_replicas: 4, pod_labels: {a: b}}
    - {name: llm, namespace: x, kind: LLMInferenceService, engine: vllm, max_replicas: 5, longest_generation: 90s}
"""
KUBERNETES = "1.33"


def documents(config: str) -> list[tuple[str, dict[str, Any]]]:
    parsed = parse_config(config)
    written = files(all_groups(parsed), parsed)
    return [(path, one) for path, text in written.items() for one in yaml.safe_load_all(text)]


ALL = [("example", *one) for one in documents(EXAMPLE)] + [("every", *one) for one in documents(EVERY)]


def closed(required: str = "", **properties: Any) -> dict[str, Any]:
    """An object with these keys and no others."""
    return {"type": "object", "properties": properties, "additionalProperties": False, "required": required.split()}


def listed(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item, "minItems": 1}


TEXT, COUNT = {"type": "string", "minLength": 1}, {"type": "integer", "minimum": 0}
TEXTS = {"type": "object", "additionalProperties": TEXT}
REFERENCE = closed("apiVersion kind name", apiVersion=TEXT, kind={"enum": ["Deployment", "StatefulSet"]}, name=TEXT)
WINDOW = closed("stabilizationWindowSeconds", stabilizationWindowSeconds={**COUNT, "maximum": 3600}, policies=listed(
    closed("type value periodSeconds", type={"enum": ["Pods", "Percent"]}, value=COUNT, periodSeconds=COUNT)))
BEHAVIOR = closed("scaleUp scaleDown", scaleUp=WINDOW, scaleDown=WINDOW)
#: KEDA: apis/keda/v1alpha1/scaledobject_types.go, scaletriggers_types.go; metadata: schema/generated/scalers-schema.json.
METADATA = {
    "prometheus": closed("serverAddress query threshold ignoreNullValues", serverAddress=TEXT, query=TEXT, threshold=TEXT,
                         ignoreNullValues={"const": "false"}),
    "metrics-api": closed("url valueLocation targetValue", url=TEXT, format={"enum": ["json"]}, valueLocation=TEXT,
                          targetValue=TEXT, aggregateFromKubeServiceEndpoints={"const": "true"},
                          aggregationType={"enum": ["average", "sum", "max", "min"]}),
}
TRIGGER = {"oneOf": [
    closed("type metricType metadata", type={"const": kind}, name=TEXT, metricType={"enum": ["AverageValue", "Value"]},
           metadata=metadata)
    for kind, metadata in METADATA.items()
]}
KEDA = {
    "pollingInterval": COUNT,
    "fallback": closed("failureThreshold replicas behavior", failureThreshold=COUNT, replicas=COUNT,
                       behavior={"const": "currentReplicasIfHigher"}),
    "advanced": closed("horizontalPodAutoscalerConfig",
                       horizontalPodAutoscalerConfig=closed("behavior", behavior=BEHAVIOR)),
    "triggers": listed(TRIGGER),
}
#: prometheus-adapter: pkg/config/config.go DiscoveryRule.
RULE = closed(
    "seriesQuery resources name metricsQuery", seriesQuery=TEXT, metricsQuery=TEXT,
    resources=closed("overrides", overrides={"type": "object", "additionalProperties": closed("resource", resource=TEXT)}),
    name=closed("matches as", matches=TEXT, **{"as": TEXT}),
)


def custom(api: str, kind: str, spec: dict[str, Any], *, namespaced: bool = True) -> dict[str, Any]:
    metadata = closed("name namespace" if namespaced else "name", name=TEXT, namespace=TEXT, labels=TEXTS,
                      annotations=TEXTS)
    return closed("apiVersion kind metadata spec", apiVersion={"const": api}, kind={"const": kind}, metadata=metadata,
                  spec=spec)


CUSTOM = {
    "ScaledObject": custom("keda.sh/v1alpha1", "ScaledObject", closed(
        "scaleTargetRef minReplicaCount maxReplicaCount fallback advanced triggers", scaleTargetRef=REFERENCE,
        minReplicaCount={**COUNT, "minimum": 1}, maxReplicaCount={**COUNT, "minimum": 1}, **KEDA)),
    # KServe: pkg/apis/serving/v1beta1/component.go; the grace period is a pod's own field.
    "InferenceService": custom("serving.kserve.io/v1beta1", "InferenceService", closed("predictor", predictor=closed(
        "minReplicas maxReplicas autoScaling", minReplicas={**COUNT, "minimum": 1}, maxReplicas=COUNT,
        terminationGracePeriodSeconds=COUNT, autoScaling=closed("metrics behavior", behavior=BEHAVIOR, metrics=listed(closed(
            "type external", type={"const": "External"}, external=closed(
                "metric target", metric=closed("backend serverAddress query", backend={"const": "prometheus"},
                                               serverAddress=TEXT, query=TEXT),
                target=closed("type value", type={"const": "Value"},
                              value={"type": "string", "pattern": r"^\d+(\.\d+)?$"})))))))),
    # KServe: pkg/apis/serving/v1alpha2/llm_inference_service_types.go ScalingSpec, DirectKEDAScalingSpec.
    "LLMInferenceService": custom("serving.kserve.io/v1alpha2", "LLMInferenceService", closed("scaling", scaling=closed(
        "maxReplicas keda", minReplicas={**COUNT, "minimum": 1}, maxReplicas={**COUNT, "minimum": 1},
        keda=closed("triggers", **KEDA)))),
    # prometheus-operator: monitoring.coreos.com/v1 PrometheusRuleSpec; promtool checks the groups themselves.
    "PrometheusRule": custom("monitoring.coreos.com/v1", "PrometheusRule", closed("groups", groups=listed(closed(
        "name rules", name=TEXT, interval=TEXT, rules=listed({"type": "object", "required": ["expr"]})))), namespaced=False),
    "adapter": closed("rules externalRules", rules=listed(RULE), externalRules=listed(RULE)),
}


def valid(resource: dict[str, Any]) -> None:
    kubernetes_validate.validate(resource, KUBERNETES, strict=True)


@pytest.mark.parametrize(("name", "path", "document"), ALL, ids=[f"{name}-{path}-{one.get('kind')}" for name, path, one in ALL])
def test_schema(name: str, path: str, document: dict[str, Any]) -> None:
    kind = document.get("kind", "adapter")
    if kind in CUSTOM:
        jsonschema.validate(document, CUSTOM[kind])
    elif path.startswith(f"{FOLDER}/workload-patch/"):
        document["spec"]["selector"] = {"matchLabels": {"app": "x"}}  # what the patched object has
        if kind == "StatefulSet":
            document["spec"]["serviceName"] = "x"
        document["spec"]["template"]["metadata"] = {"labels": {"app": "x"}}
        document["spec"]["template"]["spec"]["containers"] = [{"name": "x", "image": "x"}]
        valid(document)
    else:
        assert kind in ("HorizontalPodAutoscaler", "Service")
        valid(document)


def test_the_schemas_can_fail() -> None:
    (document,) = [one for _, path, one in ALL if path == f"{FOLDER}/keda-prometheus/ml.llama.yaml"]
    for keys, value in ((("spec", "fallbak"), {}), (("spec", "triggers", 0, "metadata", "threshold"), 75),
                        (("spec", "triggers", 0, "metadata", "ignoreNullValues"), "true")):
        broken = yaml.safe_load(yaml.safe_dump(document))
        inner = broken
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = value
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(broken, CUSTOM["ScaledObject"])


def test_every_form_is_written_for_each_kind() -> None:
    forms: dict[str, set[str]] = {}
    for name, path, _ in ALL:
        if name == "every" and path.count("/") == 3:
            form, file = path.removeprefix(f"{FOLDER}/").split("/")
            forms.setdefault(file, set()).add(form)
    hpas = {"keda-prometheus", "hpa-pods", "hpa-external"}
    assert forms == {
        "x.set.yaml": hpas | {"workload-patch"},  # kv_usage_ratio is not in /signals as a pod's value
        "x.isvc.yaml": hpas | {"keda-metrics-api", "inferenceservice-patch"},
        "x.llm.yaml": {"llminferenceservice-patch"},
    }


def test_each_names_what_is_scaled() -> None:
    found = {(path.split("/")[2], one["metadata"]["name"]): one["spec"]["scaleTargetRef"]["name"]
             for name, path, one in ALL if name == "every" and "scaleTargetRef" in one.get("spec", {})}
    assert set(found.values()) == {"set", "isvc-predictor"}
    assert all(name == scaled for (_, name), scaled in found.items())


def test_kserve_s_class_and_mode() -> None:
    found = {name: one["metadata"]["annotations"] for name, path, one in ALL if one.get("kind") == "InferenceService"}
    assert found == {
        name: {"serving.kserve.io/autoscalerClass": "keda", "serving.kserve.io/deploymentMode": mode}
        for name, mode in (("example", "Standard"), ("every", "RawDeployment"))
    }


def test_every_series_of_the_platform_is_used() -> None:
    texts = "".join(str(one) for _, _, one in ALL)
    assert [name for name in platform.BY_NAME if name not in texts and name != "kube_statefulset_status_replicas"] == []


def test_trap_42_null_values_are_refused_and_the_fallback_holds_as_text() -> None:
    seen = 0
    for _, path, one in ALL:
        if one.get("kind") == "ScaledObject":
            assert one["spec"]["fallback"]["behavior"] == "currentReplicasIfHigher"
            assert one["spec"]["fallback"]["replicas"] == one["spec"]["minReplicaCount"] >= 1
            for trigger in one["spec"]["triggers"]:
                assert all(isinstance(value, str) for value in trigger["metadata"].values()), path
                if trigger["type"] == "prometheus":
                    assert trigger["metadata"]["ignoreNullValues"] == "false"
                    assert float(trigger["metadata"]["threshold"]) % 1 == 0, "KEDA before 2.18 cuts it"
                    seen += 1
    assert seen >= 5


def test_trap_44_one_replica_stays() -> None:
    for _, _, one in ALL:
        spec = one.get("spec", {})
        least = [spec.get("minReplicas"), spec.get("minReplicaCount"), spec.get("predictor", {}).get("minReplicas"),
                 spec.get("scaling", {}).get("minReplicas")]
        assert all(value is None or value >= 1 for value in least)
        assert "idleReplicaCount" not in str(one)


def test_trap_48_windows_and_grace_cover_the_longest_generation() -> None:
    for config in (EXAMPLE, EVERY):
        for workload in parse_config(config).workloads:
            assert workload.stabilization >= workload.longest_generation
    windows = {
        path: one["spec"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"]
        for name, path, one in ALL if name == "example" and one.get("kind") == "HorizontalPodAutoscaler"
    }
    assert set(windows.values()) == {300}
    (qwen,) = [one for _, path, one in ALL if path == f"{FOLDER}/llminferenceservice-patch/ml.qwen.yaml"]
    behavior = qwen["spec"]["scaling"]["keda"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert behavior["scaleDown"]["stabilizationWindowSeconds"] == 900
    (patch,) = [one for name, path, one in ALL if path == f"{FOLDER}/workload-patch/ml.llama.yaml"]
    assert patch["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 330


def test_trap_50_down_one_pod_a_minute_up_at_once() -> None:
    for _, _, one in ALL:
        if one.get("kind") == "HorizontalPodAutoscaler" and one["metadata"]["name"] != "set":
            behavior = one["spec"]["behavior"]
            assert behavior["scaleUp"] == {"stabilizationWindowSeconds": 0}
            assert behavior["scaleDown"]["policies"] == [{"type": "Pods", "value": 1, "periodSeconds": 60}]


def test_trap_52_every_metric_of_an_hpa_leads_to_a_series_that_is_served() -> None:
    for config in (EXAMPLE, EVERY):
        parsed = parse_config(config)
        recorded = {one.record for group in all_groups(parsed) for one in group.recordings}
        found = documents(config)
        (adapter,) = [one for path, one in found if path.endswith("prometheus-adapter.yaml")]
        pods = {rule["name"]["as"]: rule["name"]["matches"] for rule in adapter["rules"]}
        external = {rule["name"]["as"]: rule["name"]["matches"] for rule in adapter["externalRules"]}
        assert len(pods) == len(adapter["rules"])
        assert len(external) == len(adapter["externalRules"])
        for _, one in found:
            if one.get("kind") != "HorizontalPodAutoscaler":
                continue
            for metric in one["spec"]["metrics"]:
                name = metric.get("pods", metric.get("external"))["metric"]["name"]
                assert ":" not in name
                if metric["type"] == "Pods":
                    assert metric_owners(pods[name].strip("^$"))
                else:
                    assert external[name].strip("^$") in recorded


def test_trap_53_a_series_that_is_not_there_yet_is_told() -> None:
    """The adapter's slow relist is named where it is configured; who never heals is LLMAutoscalerInactive's."""
    config = parse_config(EXAMPLE)
    text = files(all_groups(config), config)[f"{FOLDER}/prometheus-adapter.yaml"]
    assert "--metrics-relist-interval=1m" in text
    names = {alert.name for group in all_groups(config) for alert in group.alerts}
    assert {"LLMAutoscalerInactive", "LLMScalingSignalAbsent"} <= names


def test_trap_45_a_blind_autoscaler_is_alerted_on() -> None:
    config = parse_config(EXAMPLE)
    alerts = [alert for group in all_groups(config) for alert in group.alerts if alert.name == "LLMAutoscalerInactive"]
    assert len(alerts) == len(config.workloads)
    assert {alert.for_ for alert in alerts} == {"10m"}


def test_nothing_is_written_without_the_section(tmp_path: Path) -> None:
    written = render_all(parse_config(""))
    assert not [path for path in written if path.startswith("exporters/")]
    assert "alerts/rules/autoscaling.yaml" not in written
    write(tmp_path, render_all(parse_config(EXAMPLE)))
    assert list((tmp_path / FOLDER).rglob("*.yaml"))
    (tmp_path / FOLDER / "hpa-pods" / "mine.yaml").write_text("kind: HorizontalPodAutoscaler\n")
    write(tmp_path, written)
    assert [path.name for path in (tmp_path / FOLDER).rglob("*.yaml")] == ["mine.yaml"]  # ours are gone, theirs is not


def test_the_prometheusrule_holds_the_same_groups_as_the_rule_file() -> None:
    written = render_all(parse_config(EXAMPLE))
    rules = yaml.safe_load(written["alerts/rules/autoscaling.yaml"])["groups"]
    operator = yaml.safe_load(written[f"{FOLDER}/prometheusrule.yaml"])
    assert operator["spec"]["groups"] == rules
    assert operator["metadata"]["labels"] == {"release": "kube-prometheus-stack"}
    assert [group["name"] for group in rules] == ["obs-record-autoscaling", "obs-autoscaling"]


def test_the_same_input_gives_the_same_bytes() -> None:
    config = parse_config(EXAMPLE)
    assert files(all_groups(config), config) == files(all_groups(config), config)


@pytest.mark.parametrize(
    ("kind", "name", "yes", "no"),
    [
        ("Deployment", "llama", ["llama-7c9f8d6b5-x2x4z", "llama-66f-abcde"],
         ["llama-big-7c9f8d6b5-x2x4z", "llama-0", "xllama-7c9f8d6b5-x2x4z", "llama-7c9f8d6b5-x2x4zz"]),
        ("StatefulSet", "llama", ["llama-0", "llama-12"], ["llama-big-0", "llama-7c9f8d6b5-x2x4z"]),
        ("InferenceService", "llama", ["llama-predictor-7c9f8d6b5-x2x4z"], ["llama-7c9f8d6b5-x2x4z"]),
        ("LLMInferenceService", "llama", ["llama-kserve-7c9f8d6b5-x2x4z"], ["llama-kserve-prefill-7c9f8d6b5-x2x4z"]),
    ],
)
def test_pods_of_one_workload_and_no_other(kind: str, name: str, yes: list[str], no: list[str]) -> None:
    import re

    config = parse_config(f"autoscaling: {{workloads: [{{name: {name}, namespace: x, kind: {kind}, engine: vllm, "
                          "max_replicas: 3}]}")
    pods = target(config.workloads[0]).pods
    assert [pod for pod in (*yes, *no) if re.fullmatch(pods, pod)] == yes


@pytest.mark.parametrize(("value", "text"), [(0.75, "750m"), (5.0, "5"), (0.9, "900m"), (1.0, "1"), (0.125, "125m")])
def test_quantity(value: float, text: str) -> None:
    assert quantity(value) == text


def test_the_signals_are_the_sidecar_s() -> None:
    for signal in SIGNALS:
        for name in (signal.metric, signal.pod):
            assert not name or any(engine.name == "sidecar" for engine, _ in metric_owners(name)), name


# --- obs.yaml ---------------------------------------------------------------------------------------------------

GOOD = "name: llama, namespace: llm, engine: vllm, max_replicas: 12"
AT = "obs.yaml: autoscaling.workloads.0"


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (f"{GOOD}, kind: Deploymnt", f"{AT}.kind: 'Deploymnt' is not one of its values; did you mean 'Deployment'?"),
        (f"{GOOD}, min_replicas: 20", f"{AT}.min_replicas: 20 is above max_replicas 12; swap them"),
        (f"{GOOD}, min_replicas: 0", f"{AT}.min_replicas: 0 is not a number of replicas; write 1 or more: the signal lives "
                                     "in the pods, and from 0 nothing would wake them"),
        (f"{GOOD}, targets: {{load_ratio: 75}}",
         f"{AT}.targets.load_ratio: 75 is not above 0 and at most 1 (load over capacity at the SLO; 1 is full, so a higher "
         "target plans for broken objectives); write it as a fraction, such as 0.75"),
        (f"{GOOD}, targets: {{load_ratio: 1.1}}",
         f"{AT}.targets.load_ratio: 1.1 is not above 0 and at most 1 (load over capacity at the SLO; 1 is full, so a higher "
         "target plans for broken objectives)"),
        (f"{GOOD}, targets: {{lod_ratio: 0.7}}", f"{AT}.targets.lod_ratio: unknown signal; did you mean 'load_ratio'?"),
        (f"{GOOD}, targets: {{kv_usage_ratio: 0.95}}",
         f"{AT}.targets.kv_usage_ratio: 0.95 is not above 0 and at most 0.9 (a fraction that ends at 1: HPA acts only above "
         "target x 1.1, so a target over 0.9 never scales up)"),
        (f"{GOOD}, targets: {{requests_waiting: 5}}",
         f"{AT}.targets: waiting requests alone invite a scale-in while others still run; add load_ratio"),
        (f"{GOOD}, longest_generation: 2h", f"{AT}.longest_generation: 2h is longer than 1h, the longest window that "
                                            "Kubernetes takes"),
        (f"{GOOD}, longest_generation: 10m, scale_down_stabilization: 5m",
         f"{AT}.scale_down_stabilization: 5m is shorter than longest_generation 10m; write at least that"),
        (f"{GOOD}, longest_generation: 0s", f"{AT}.longest_generation: 0s is no answer; write the longest that you allow, "
                                            "such as 5m"),
        (f"{GOOD}, nam: x", f"{AT}.nam: unknown key; did you mean 'name'?"),
        ("name: A_b, namespace: llm, engine: vllm, max_replicas: 12",
         f"{AT}.name: 'A_b' is not a Kubernetes name; use at most 63 lower-case letters, digits and -"),
        ("name: llama, namespace: llm, engine: triton, max_replicas: 12",
         f"{AT}.engine: 'triton' is not one of its values; did you mean 'triton-vllm'?"),
        (f"name: {'x' * 40}, namespace: llm, engine: vllm, max_replicas: 12",
         f"{AT}.name: {'x' * 40!r} has 40 letters; with more than 36 Kubernetes cuts its pods' names and no query finds them"),
        ("name: llama, namespace: llm, engine: vllm", f"{AT}.max_replicas: field required; got "
         "{'name': 'llama', 'namespace': 'llm', 'engine': 'vllm'}"),
        (f"{GOOD}}}, {{{GOOD}", "obs.yaml: autoscaling.workloads.1.name: llm/llama is given twice; one autoscaler owns one "
                                "workload"),
    ],
)
def test_each_fault_is_one_line(given: str, line: str) -> None:
    from obs.errors import ConfigError

    with pytest.raises(ConfigError) as caught:
        parse_config(f"autoscaling: {{workloads: [{{{given}}}]}}")
    assert str(caught.value) == line


def test_an_empty_section_is_one_line() -> None:
    from obs.errors import ConfigError

    with pytest.raises(ConfigError, match=r"autoscaling\.workloads: names nothing"):
        parse_config("autoscaling: {workloads: []}")
    with pytest.raises(ConfigError, match=r"autoscaling\.prometeus: unknown key; did you mean 'prometheus'"):
        parse_config(f"autoscaling: {{prometeus: x, workloads: [{{{GOOD}}}]}}")


def test_every_setting_is_shown_with_its_reason() -> None:
    rows = {row.path: row for row in parse_config(EXAMPLE, "my.yaml").settings()}
    assert rows["autoscaling.ml/llama.targets.projected_load_ratio"].value == f"{TARGETS[PRIMARY.key]:g}"
    assert rows["autoscaling.ml/llama.targets.projected_load_ratio"].origin == "default"
    assert rows["autoscaling.ml/mistral.targets.saturation_ratio"].origin == "my.yaml"
    assert rows["autoscaling.ml/qwen.scale_down_stabilization"].value == duration(900)
    assert rows["autoscaling.prometheus"].origin == "my.yaml"
    assert all(row.why for row in rows.values())
    none = {row.path: row for row in parse_config("").settings()}
    assert none["autoscaling"].value == "(none)"
