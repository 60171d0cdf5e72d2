"""`obs check --manifests`: each fault is found at its file, object and field; what is right passes; traps 42 to 54."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from obs.checks import registry
from obs.checks.manifests import registry as manifests
from obs.checks.manifests.objects import parse, quantity
from obs.checks.manifests.roles import role
from obs.cli.main import main
from obs.config import parse_config
from obs.errors import InputError
from obs.model.problem import Problem
from obs.render.autoscaling import files

Obs = Callable[..., tuple[int, str, str]]
DATA = Path(__file__).parent / "data" / "manifests"

#: file (named after its check) → (line, check, object, field), of errors and warnings.
FOUND: dict[str, list[tuple[int, str, str, str]]] = {
    "scaler-null-values": [
        (11, "scaler-null-values", "ScaledObject ml/llm", "spec.triggers[0].metadata.ignoreNullValues"),
        (34, "scaler-null-values", "InferenceService kserve/llm",
         "spec.predictor.autoScaling.metrics[0].external.metric.query"),
    ],
    "scaler-strings": [
        (14, "scaler-strings", "ScaledObject ml/llm", "spec.triggers[0].metadata.threshold"),
        (15, "scaler-strings", "ScaledObject ml/llm", "spec.triggers[0].metadata.ignoreNullValues"),
        (36, "scaler-strings", "InferenceService kserve/llm",
         "spec.predictor.autoScaling.metrics[0].external.target.value"),
    ],
    "scaler-fallback": [
        (9, "scaler-fallback", "ScaledObject ml/static", "spec.fallback.behavior"),
        (9, "scaler-fallback", "ScaledObject ml/static", "spec.fallback.replicas"),
        (15, "scaler-fallback", "ScaledObject ml/static", "spec.triggers[0].metadata.threshold"),
        (21, "scaler-fallback", "ScaledObject ml/none", "spec.fallback"),
        (41, "scaler-fallback", "ScaledObject ml/formula", "spec.advanced.scalingModifiers.target"),
    ],
    "scaler-query-zero": [
        (13, "scaler-query-zero", "ScaledObject ml/llm", "spec.triggers[0].metadata.query"),
        (19, "scaler-query-zero", "ScaledObject ml/llm", "spec.triggers[1].metadata.query"),
        (25, "scaler-query-zero", "ScaledObject ml/llm", "spec.triggers[2].metadata.query"),
    ],
    "scaler-query-nan": [
        *((13 + 6 * n, "scaler-query-nan", "ScaledObject ml/llm", f"spec.triggers[{n}].metadata.query") for n in range(5)),
        *((13 + 6 * n, "scaler-signal", "ScaledObject ml/llm", f"spec.triggers[{n}].metadata.query") for n in (0, 2, 4)),
        (37, "scaler-aggregation", "ScaledObject ml/llm", "spec.triggers[4].metadata.query"),
    ],
    "scaler-dead-pods": [
        (13, "scaler-dead-pods", "ScaledObject ml/llm", "spec.triggers[0].metadata.query"),
        (13, "scaler-missing-pods", "ScaledObject ml/llm", "spec.triggers[0].metadata.query"),
        (19, "scaler-dead-pods", "ScaledObject ml/llm", "spec.triggers[1].metadata.query"),
        (25, "scaler-missing-pods", "ScaledObject ml/llm", "spec.triggers[2].metadata.query"),  # living pods only
    ],
    "scaler-missing-pods": [
        (13, "scaler-missing-pods", "ScaledObject ml/llm", "spec.triggers[0].metadata.query"),
        (23, "scaler-missing-pods", "ScaledObject ml/llm", "spec.triggers[1].metadata.aggregationType"),
    ],
    "scaler-aggregation": [
        (13, "scaler-aggregation", "ScaledObject ml/llm", "spec.triggers[0].metadata.query"),
        (20, "scaler-aggregation", "ScaledObject ml/llm", "spec.triggers[1].metadata.query"),
        (20, "scaler-missing-pods", "ScaledObject ml/llm", "spec.triggers[1].metadata.query"),
        (26, "scaler-aggregation", "ScaledObject ml/llm", "spec.triggers[2].metadata.query"),
        (30, "scaler-aggregation", "ScaledObject ml/llm", "spec.triggers[3].metadata.aggregationType"),
        (37, "scaler-aggregation", "ScaledObject ml/llm", "spec.triggers[4].metadata.aggregateFromKubeServiceEndpoints"),
        (53, "scaler-aggregation", "HorizontalPodAutoscaler ml/other", "spec.metrics[0].pods.target.type"),
    ],
    "scaler-target": [
        (14, "scaler-target", "ScaledObject ml/llm", "spec.triggers[0].metadata.threshold"),
        (20, "scaler-target", "ScaledObject ml/llm", "spec.triggers[1].metadata.threshold"),
        (26, "scaler-target", "ScaledObject ml/llm", "spec.triggers[2].metadata.threshold"),
        (31, "scaler-signal", "ScaledObject ml/llm", "spec.triggers[3].metadata.query"),
        (32, "scaler-fallback", "ScaledObject ml/llm", "spec.triggers[3].metadata.threshold"),
        (32, "scaler-target", "ScaledObject ml/llm", "spec.triggers[3].metadata.threshold"),
        (35, "scaler-target", "ScaledObject ml/llm", "spec.triggers[4].metadata.threshold"),
        (51, "scaler-target", "HorizontalPodAutoscaler ml/other", "spec.metrics[0].pods.target.averageValue"),
        (55, "scaler-target", "HorizontalPodAutoscaler ml/other", "spec.metrics[1].pods.target.averageValue"),
    ],
    "scaler-signal": [
        (13, "scaler-signal", "ScaledObject ml/llm", "spec.triggers[0].metadata.query"),
        (19, "scaler-signal", "ScaledObject ml/llm", "spec.triggers[1].metadata.query"),
        (25, "scaler-signal", "ScaledObject ml/llm", "spec.triggers[2].metadata.query"),
        (28, "scaler-signal", "ScaledObject ml/llm", "spec.triggers[3]"),
        (42, "scaler-signal", "HorizontalPodAutoscaler ml/other", "spec.metrics[0].pods.metric.name"),
    ],
    "scaler-scale-in": [
        (13, "scaler-scale-in", "ScaledObject ml/llm", "spec.triggers[0].metadata.query"),
        (27, "scaler-scale-in", "HorizontalPodAutoscaler ml/other", "spec.metrics[0].pods.metric.name"),
    ],
    "scaler-stabilization": [
        (14, "scaler-stabilization", "HorizontalPodAutoscaler ml/llm",
         "spec.behavior.scaleUp.stabilizationWindowSeconds"),
        (16, "scaler-stabilization", "HorizontalPodAutoscaler ml/llm",
         "spec.behavior.scaleDown.stabilizationWindowSeconds"),
        (32, "scaler-stabilization", "HorizontalPodAutoscaler ml/long",
         "spec.behavior.scaleDown.stabilizationWindowSeconds"),
    ],
    "scaler-grace": [
        (21, "scaler-grace", "Deployment ml/llm", "spec.template.spec.terminationGracePeriodSeconds"),
        (34, "scaler-grace", "StatefulSet ml/with-sidecar", "spec.template.spec.terminationGracePeriodSeconds"),
    ],
    "scaler-min-replicas": [
        (4, "scaler-min-replicas", "ScaledObject ml/left-out", "spec.minReplicaCount"),
        (21, "scaler-min-replicas", "ScaledObject ml/idle", "spec.idleReplicaCount"),
        (37, "scaler-grace", "InferenceService kserve/llm", "spec.predictor.terminationGracePeriodSeconds"),
        (38, "scaler-min-replicas", "InferenceService kserve/llm", "spec.predictor.minReplicas"),
        (48, "scaler-min-replicas", "HorizontalPodAutoscaler ml/swapped", "spec.maxReplicas"),
    ],
    "scaler-metric-name": [
        (11, "scaler-metric-name", "HorizontalPodAutoscaler ml/llm", "spec.metrics[0].pods.metric.name"),
        (24, "scaler-metric-name", "HorizontalPodAutoscaler ml/colon", "spec.metrics[0].pods.metric.name"),
        (37, "scaler-metric-name", "HorizontalPodAutoscaler ml/typo", "spec.metrics[0].pods.metric.name"),
        (53, "scaler-metric-name", "ScaledObject ml/direct", "spec.triggers[0].metadata.valueLocation"),
    ],
    "adapter-rule": [
        (4, "adapter-rule", "prometheus-adapter", "rules.custom[0].resources"),
        (5, "adapter-rule", "prometheus-adapter", "rules.custom[0].name.as"),
        (6, "adapter-rule", "prometheus-adapter", "rules.custom[0].metricsQuery"),
        (9, "adapter-rule", "prometheus-adapter", "rules.custom[1].name.as"),
        (10, "adapter-rule", "prometheus-adapter", "rules.custom[1].metricsQuery"),
        (17, "scaler-metric-name", "prometheus-adapter", "rules.external[0].seriesQuery"),
        (20, "adapter-rule", "prometheus-adapter", "rules.external[0].metricsQuery"),
    ],
    "scaler-double": [
        (18, "scaler-double", "ScaledObject ml/llm", "spec.scaleTargetRef"),
        (46, "scaler-double", "HorizontalPodAutoscaler ml/chat-predictor", "spec.scaleTargetRef"),
    ],
    "scaler-polling": [
        (9, "scaler-polling", "ScaledObject ml/llm", "spec.pollingInterval"),
        (29, "scaler-polling", "ScaledObject ml/cached", "spec.triggers[0].useCachedMetrics"),
    ],
    "scaler-kserve": [
        (3, "scaler-kserve", "InferenceService ml/no-class", "metadata.annotations.serving.kserve.io/autoscalerClass"),
        (23, "scaler-kserve", "InferenceService ml/knative", "metadata.annotations.serving.kserve.io/deploymentMode"),
        (28, "scaler-kserve", "InferenceService ml/knative", "spec.predictor.scaleMetric"),
        (35, "scaler-kserve", "InferenceService ml/knative",
         "spec.predictor.autoScaling.metrics[0].external.target.value"),
    ],
}

LOAD = (
    '100 * avg(max by (pod) (llm_scaling_load_ratio{namespace="ml"}) and on (pod) '
    'kube_pod_status_ready{namespace="ml",condition="true"} == 1) '
    '* max(kube_deployment_status_replicas_ready{namespace="ml",deployment="llm"})'
)


def problems(text: str, config: str = "", path: str = "given.yaml") -> list[Problem]:
    world = manifests.ManifestWorld(parse_config(config), tuple(parse(path, text)))
    return sorted(registry.run_manifests(world))


def keda(query: str = LOAD, threshold: str = "75", *, metric_type: str = "AverageValue", extra: str = "", least: int = 2,
         fallback: str = "{failureThreshold: 3, replicas: 2, behavior: currentReplicasIfHigher}") -> str:
    return f"""
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {{name: llm, namespace: ml}}
spec:
  scaleTargetRef: {{name: llm}}
  minReplicaCount: {least}
  maxReplicaCount: 12
  fallback: {fallback}
  triggers:
  - type: prometheus
    metricType: {metric_type}
    metadata:
      serverAddress: http://prometheus:9090
      threshold: "{threshold}"
      ignoreNullValues: "false"
      query: |-
        {query}
{extra}"""


def ids(text: str, config: str = "") -> set[str]:
    return {problem.check for problem in problems(text, config) if problem.level != "info"}


def hpa(metric: str = "llm_scaling_load_ratio", target: str = "750m", behavior: str = "{}") -> str:
    return f"""
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {{name: llm, namespace: ml}}
spec:
  scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: llm}}
  minReplicas: 2
  maxReplicas: 12
  behavior: {behavior}
  metrics:
  - type: Pods
    pods: {{metric: {{name: {metric}}}, target: {{type: AverageValue, averageValue: {target}}}}}
"""


@pytest.fixture
def obs(capsys: pytest.CaptureFixture[str]) -> Obs:
    """``obs(word, …)`` runs a command here: (exit code, standard output, standard error)."""

    def run(*words: str) -> tuple[int, str, str]:
        code = main(words)
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


# --- the examples ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(FOUND))
def test_each_check_finds_its_example(name: str) -> None:
    path = DATA / f"{name}.yaml"
    found = registry.run_manifests(manifests.load(parse_config(""), [path]))
    assert sorted((p.line, p.check, p.subject, p.place) for p in found) == sorted(FOUND[name])


def test_every_check_has_an_example_and_an_explanation() -> None:
    assert {check.ID for check in manifests.CHECKS} - {"manifest-readable"} == set(FOUND)
    assert set(FOUND) == {path.stem for path in DATA.glob("*.yaml")}
    texts = {entry.id: entry.explanation for entry in registry.entries()}
    for check in manifests.CHECKS:
        assert "Bad" in texts[check.ID], check.ID
        assert "Mend" in texts[check.ID], check.ID


def test_findings_say_what_is_wrong_and_how_to_mend_it() -> None:
    for name in FOUND:
        for problem in registry.run_manifests(manifests.load(parse_config(""), [DATA / f"{name}.yaml"])):
            assert problem.what
            assert problem.mend
            assert "\n" not in problem.what + problem.mend


# --- what is right passes -------------------------------------------------------------------------------------


def test_what_is_right_passes() -> None:
    assert problems(keda()) == []
    assert problems(hpa()) == []
    assert problems(keda("100 * avg(llm_scaling_load_ratio)", metric_type="Value")) == []


CONFIGS = {
    "example": (Path(__file__).parents[2] / "examples" / "obs.yaml").read_text(),
    "labels": "labels: {pod: pod_name, namespace: ns}\ninterval: {scrape: 1m, evaluation: 30s}\nautoscaling: {workloads: "
              "[{name: a, namespace: x, kind: StatefulSet, engine: sglang, max_replicas: 3, longest_generation: 20m}]}",
    "all signals": "autoscaling: {workloads: [{name: a, namespace: x, kind: InferenceService, engine: trtllm-serve, "
                   "max_replicas: 3, targets: {load_ratio: 0.7, projected_load_ratio: 0.95, saturation_ratio: 1, "
                   "decode_demand_ratio: 1, kv_demand_ratio: 0.8, kv_usage_ratio: 0.9, requests_running: 40, "
                   "requests_waiting: 5}}]}",
}  # fmt: skip


@pytest.mark.parametrize("name", list(CONFIGS))
def test_what_obs_build_writes_passes(name: str, tmp_path: Path) -> None:
    from obs.alerts.registry import all_groups

    config = parse_config(CONFIGS[name])
    written = files(all_groups(config), config)
    assert len(written) > 5
    for path, text in written.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    world = manifests.load(config, [tmp_path])
    assert world.count >= 1
    assert [str(problem) for problem in registry.run_manifests(world)] == []


def test_both_sides_of_the_limits() -> None:
    def kv(target: str) -> set[str]:
        return ids(hpa("llm_kv_cache_usage_ratio", target))

    assert kv("900m") == set()
    assert kv("910m") == {"scaler-target"}
    assert ids(hpa(target='"1"')) == set()
    assert ids(hpa(target="1001m")) == {"scaler-target"}
    assert ids(hpa(behavior="{scaleDown: {stabilizationWindowSeconds: 300}}")) == set()
    assert ids(hpa(behavior="{scaleDown: {stabilizationWindowSeconds: 299}}")) == {"scaler-stabilization"}
    longer = ("autoscaling: {workloads: [{name: llm, namespace: ml, engine: vllm, max_replicas: 3, "
              "longest_generation: 10m}]}")
    assert ids(hpa(behavior="{scaleDown: {stabilizationWindowSeconds: 599}}"), longer) == {"scaler-stabilization"}
    assert ids(hpa(behavior="{scaleDown: {stabilizationWindowSeconds: 600}}"), longer) == set()
    assert ids(hpa(), longer) == {"scaler-stabilization"}  # Kubernetes' default is 5m
    assert ids(keda(threshold="100")) == set()
    assert ids(keda(threshold="101")) == {"scaler-target"}


def test_a_waiting_trigger_beside_a_busy_one_is_safe() -> None:
    waiting = """
  - type: prometheus
    metadata:
      serverAddress: http://prometheus:9090
      threshold: "5"
      ignoreNullValues: "false"
      query: avg(vllm:num_requests_waiting) * max(kube_deployment_status_replicas_ready{deployment="llm"})
"""
    assert ids(keda(extra=waiting)) == set()
    unknown = keda("avg(my_router_queue) * max(kube_deployment_status_replicas_ready)")
    assert "scaler-scale-in" not in ids(unknown)


def test_a_condition_is_not_the_value() -> None:
    """What stands right of `and` decides whether there is a value, and is none itself."""
    replicas = "max(kube_deployment_status_replicas_ready)"
    guarded = f"100 * avg(llm_scaling_load_ratio) * {replicas} and on () {replicas} > 0"
    assert ids(keda(guarded, "100")) == set()
    assert ids(keda(guarded, "101")) == {"scaler-target"}
    waiting = f"avg(vllm:num_requests_waiting) * {replicas} and on () avg(vllm:num_requests_running) > 0"
    assert ids(keda(waiting, "5")) == {"scaler-scale-in"}


def test_the_names_of_the_adapter_lead_to_the_series() -> None:
    rule = """
---
rules:
- seriesQuery: 'vllm:num_requests_waiting{namespace!="",pod!=""}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  name: {matches: "^vllm:(.*)$", as: "vllm_$1"}
  metricsQuery: max(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""
    assert ids(hpa("vllm_num_requests_waiting", '"5"') + rule) == {"scaler-scale-in"}
    assert ids(hpa("vllm_num_requests_running", '"20"') + rule) == {"scaler-metric-name"}
    recorded = """
---
apiVersion: v1
kind: ConfigMap
metadata: {name: adapter-config, namespace: monitoring}
data:
  config.yaml: |
    rules:
    - seriesQuery: 'DCGM_FI_DEV_GPU_UTIL{namespace!="",pod!=""}'
      resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
      name: {as: gpu}
      metricsQuery: max(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""
    assert ids(hpa("gpu", '"80"') + recorded) == {"scaler-signal"}


def test_an_external_metric_leads_through_the_recording_rule_to_the_series(tmp_path: Path) -> None:
    from obs.alerts.registry import all_groups

    config = parse_config("autoscaling: {workloads: [{name: a, namespace: x, engine: vllm, max_replicas: 3, targets: "
                          "{kv_usage_ratio: 0.9}}]}")
    for path, text in files(all_groups(config), config).items():
        if "hpa-external" in path or "prometheus" in Path(path).name:
            (tmp_path / Path(path).name).write_text(text.replace("averageValue: 900m", "averageValue: 950m"))
    # without obs.yaml: the PrometheusRule among the files tells what is recorded
    (problem,) = registry.run_manifests(manifests.load(parse_config(""), [tmp_path]))
    assert (problem.check, problem.place) == ("scaler-target", "spec.metrics[0].external.target.averageValue")


def test_a_load_may_exceed_1_and_a_usage_not(say: Callable[..., list[Problem]]) -> None:
    assert say("threshold-unit", "llm_scaling_load_ratio > 1.1", "llm_pod_saturation_ratio > 2") == []
    assert len(say("threshold-unit", "llm_kv_cache_usage_ratio > 1.1")) == 1


def test_promql_of_a_query_is_checked_too() -> None:
    found = problems(keda("avg(vllm:gpu_cache_usage_perc) * max(kube_deployment_status_replicas_ready)", "0.5"))
    assert ("renamed-metric", 18) in {(problem.check, problem.line) for problem in found}
    assert "promql-syntax" in ids(keda("avg(llm_scaling_load_ratio"))
    assert "unknown-metric" in ids(keda("avg(vllm:kv_cache_usage) * max(kube_deployment_status_replicas_ready)", "1"))
    short = keda("avg(rate(vllm:generation_tokens_total[30s])) * max(kube_deployment_status_replicas_ready)", "900")
    assert "range-too-short" in ids(short)


@pytest.mark.parametrize(
    ("name", "what"),
    [("llm_scaling_load_ratio", "load"), ("llm_pod_load_ratio", "load"), ("vllm:gpu_cache_usage_perc", "kv"),
     ("ray_vllm_kv_cache_usage_perc", "kv"), ("vllm:num_requests_running", "running"), ("nv_gpu_utilization", "gpu"),
     ("DCGM_FI_DEV_GPU_UTIL", "gpu"), ("nv_inference_pending_request_count", "waiting"), ("llm_engine_up", "up"),
     ("vllm:time_to_first_token_seconds_bucket", "latency"), ("sglang:token_usage", "kv"), ("up", "platform"),
     ("kube_pod_status_ready", "platform"), ("node_load1", "")],
)  # fmt: skip
def test_roles_come_from_the_catalogue(name: str, what: str) -> None:
    assert role(name) == what


@pytest.mark.parametrize(("text", "value"), [("750m", 0.75), ("5", 5.0), (5, 5.0), ("1k", 1000.0), ("0.75", 0.75),
                                             ("1Ki", 1024.0), ("x", None), ("", None), (True, None)])  # fmt: skip
def test_quantities(text: object, value: float | None) -> None:
    assert quantity(text) == value


# --- traps of the reference -----------------------------------------------------------------------------------


def test_trap_42_an_empty_result_becomes_0_and_scales_in() -> None:
    without = keda().replace('      ignoreNullValues: "false"\n', "")
    assert ids(without) == {"scaler-null-values"}
    assert ids(keda(fallback="null")) == {"scaler-fallback"}


def test_trap_43_no_requests_make_nan() -> None:
    x = "sum(rate(vllm:e2e_request_latency_seconds_{}[5m]))"
    assert "scaler-query-nan" in ids(keda(f"{x.format('sum')} / {x.format('count')}", "5"))
    guarded = keda(f"{x.format('sum')} / ({x.format('count')} > 0)", "5")
    assert "scaler-query-nan" in ids(guarded)


def test_trap_44_zero_replicas_with_a_signal_in_the_pods() -> None:
    assert ids(keda(least=0)) == {"scaler-min-replicas"}
    outside = """
  - type: kafka
    metadata: {bootstrapServers: "kafka:9092", consumerGroup: g, topic: t, lagThreshold: "5"}
"""
    assert ids(keda(least=0, extra=outside)) == set()
    inside = """
  - type: memory
    metricType: Utilization
    metadata: {value: "80"}
"""
    assert "scaler-min-replicas" in ids(keda(least=0, extra=inside))


def test_trap_45_one_failing_trigger_needs_a_fallback_that_holds() -> None:
    assert ids(keda(fallback="{failureThreshold: 3, replicas: 2}")) == {"scaler-fallback"}
    assert ids(keda(fallback="{failureThreshold: 3, replicas: 12}")) == set()  # nowhere to scale in to


def test_trap_46_a_terminated_pod_is_kept_by_max_over_time() -> None:
    query = 'avg(max_over_time(llm_kv_cache_usage_ratio{namespace="ml"}[1m])) * max(kube_deployment_status_replicas_ready)'
    assert "scaler-dead-pods" in ids(keda(f"100 * {query}", "50"))
    alive = query.replace("[1m]))", '[1m]) and on (pod) up == 1)')
    assert ids(keda(f"100 * {alive}", "50")) == set()


def test_trap_47_a_missed_scrape_does_not_read_as_no_load() -> None:
    assert "scaler-query-zero" in ids(keda("100 * (sum(llm_scaling_load_ratio) or vector(0))"))
    assert ids(keda("100 * sum(llm_scaling_load_ratio)")) == {"scaler-missing-pods"}


def test_trap_48_scale_in_while_generations_run() -> None:
    assert "scaler-scale-in" in ids(hpa("llm_requests_waiting", '"5"'))
    deployment = """
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: llm, namespace: ml}
spec: {template: {spec: {terminationGracePeriodSeconds: GRACE, containers: []}}}
"""
    assert ids(hpa() + deployment.replace("GRACE", "180")) == {"scaler-grace"}
    assert ids(hpa() + deployment.replace("GRACE", "300")) == set()


def test_trap_51_gpu_utilisation_or_memory_as_signal() -> None:
    replicas = "max(kube_deployment_status_replicas_ready)"
    assert ids(keda(f"avg(DCGM_FI_DEV_GPU_UTIL) * {replicas}", "80")) == {"scaler-signal"}
    memory = "avg(nv_gpu_memory_used_bytes / (nv_gpu_memory_total_bytes > 0))"
    assert "scaler-signal" in ids(keda(f"100 * {memory} * {replicas}", "80"))


def test_trap_52_colon_names_and_one_rule_for_one_metric() -> None:
    assert ids(hpa('"vllm:num_requests_running"', '"20"')) == {"scaler-metric-name"}
    assert ids(hpa("vllm_num_requests_running", '"20"')) == {"scaler-metric-name"}


# --- reading ---------------------------------------------------------------------------------------------------


def test_several_elements_are_an_error_from_the_second_replica_on() -> None:
    """production-stack's own tutorial."""
    assert "scaler-aggregation" in ids(keda("vllm:num_requests_waiting", "5"))


def test_two_folders_beside_each_other_are_overlays(tmp_path: Path) -> None:
    for folder in ("dev", "prod"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "hpa.yaml").write_text(hpa())
    assert list(registry.run_manifests(manifests.load(parse_config(""), [tmp_path]))) == []
    (tmp_path / "keda.yaml").write_text(keda())
    found = list(registry.run_manifests(manifests.load(parse_config(""), [tmp_path])))
    assert {problem.check for problem in found} == {"scaler-double"}


def test_a_sum_of_the_adapter_is_not_compared_as_it_is() -> None:
    """production-stack's tutorial 10: the queue of the namespace against 1."""
    text = """
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: llm, namespace: ml}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: llm}
  minReplicas: 2
  maxReplicas: 12
  metrics:
  - type: Object
    object:
      metric: {name: running}
      describedObject: {apiVersion: v1, kind: Namespace, name: ml}
      target: {type: TYPE, value: 20, averageValue: 20}
---
rules:
- seriesQuery: '{__name__=~"^vllm:num_requests_running$"}'
  resources: {overrides: {namespace: {resource: namespace}}}
  name: {as: running}
  metricsQuery: sum by (namespace) (<<.Series>>{<<.LabelMatchers>>})
"""
    assert ids(text.replace("TYPE", "Value")) == {"scaler-aggregation"}
    assert ids(text.replace("TYPE", "AverageValue")) == set()


def test_knative_wakes_a_service_from_zero() -> None:
    text = """
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: llm, namespace: ml, annotations: {serving.kserve.io/deploymentMode: MODE}}
spec: {predictor: {minReplicas: 0, terminationGracePeriodSeconds: 330, model: {}}}
"""
    assert ids(text.replace("MODE", "Standard")) == {"scaler-min-replicas"}
    assert ids(text.replace("MODE", "Knative")) == set()


def test_the_same_object_twice_is_one() -> None:
    assert ids(hpa() + "---" + hpa()) == set()


def test_objects_of_a_list_have_their_own_lines() -> None:
    text = "apiVersion: v1\nkind: List\nitems:\n" + "\n".join(
        f"- {hpa(target='2').strip()}".replace("\n", "\n  ").splitlines()
    )
    (problem,) = problems(text)
    assert problem.place == "spec.metrics[0].pods.target.averageValue"
    assert "averageValue: 2" in text.splitlines()[problem.line - 1]


def test_comments_silence_a_check_for_their_object(tmp_path: Path, obs: Obs) -> None:
    file = tmp_path / "m.yaml"
    file.write_text(
        "# obs:ignore scaler-target we plan for broken objectives\n" + hpa(target="2").strip()
        + "\n---\n# obs:ignore scaler-target never needed here\n" + hpa().strip().replace("llm,", "other,")
        + "\n---\n# obs:ignore scaler-tarqet x\n# obs:ignore scaler-target\n"
        + hpa(target="2").strip().replace("name: llm,", "name: third,").replace("name: llm}", "name: third}")
    )
    code, out, _ = obs("check", "--manifests", str(file), "--format", "json")
    assert code == 1
    report = json.loads(out)
    assert report["summary"]["silenced"] == 1
    assert [(p["subject"], p["check"], p["level"]) for p in report["problems"] if p["check"] != "scaler-double"] == [
        ("HorizontalPodAutoscaler ml/other", "suppression", "info"), ("obs:ignore", "suppression", "error"),
        ("obs:ignore", "suppression", "error"), ("HorizontalPodAutoscaler ml/third", "scaler-target", "error"),
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [("a: [1", "m.yaml:1: is not valid YAML: expected ',' or ']', but got '<stream end>'; mend the syntax"),
     ("a: {{ .Values.x }}: y", "m.yaml:1: is not valid YAML: mapping values are not allowed here; "
                               "render the template first (helm template, kustomize build)")],
)  # fmt: skip
def test_no_yaml_is_one_line(text: str, line: str) -> None:
    with pytest.raises(InputError) as caught:
        parse("m.yaml", text)
    assert str(caught.value) == line


def test_a_template_in_a_folder_is_a_finding_and_the_rest_is_checked(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("kind: ScaledObject\nmetadata: {name: {{ .Values.name }}}\n")
    (tmp_path / "b.yaml").write_text(hpa(target="2"))
    (tmp_path / "other.yaml").write_text("{{ .Values.x }}: [")
    world = manifests.load(parse_config(""), [tmp_path])
    found = sorted(registry.run_manifests(world))
    assert [(Path(p.path).name, p.line, p.check) for p in found] == [
        ("a.yaml", 2, "manifest-readable"), ("b.yaml", 12, "scaler-target")]
    assert found[0].mend == "render the template first (helm template, kustomize build)"
    assert [Path(path).name for path in world.passed_over] == ["other.yaml"]


def test_odd_objects_are_no_crash() -> None:
    for text in ("", "[]", "3", "---\n---\n# nothing\n---\nkind: 3\n",
                 "kind: ScaledObject\napiVersion: keda.sh/v1alpha1\n", "apiVersion: autoscaling/v2\n"
                 "kind: HorizontalPodAutoscaler\nspec: {metrics: [3, {type: Pods}, {type: 4, pods: []}], behavior: []}\n",
                 "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nspec: {predictor: {autoScaling: []}}\n",
                 keda(threshold="1e999"), keda(threshold="nan"), hpa(behavior="{scaleUp: {stabilizationWindowSeconds: .inf}}"),
                 "rules: [{seriesQuery: '{'}]", "rules: {custom: 3}", "apiVersion: keda.sh/v1alpha1\nkind: ScaledObject\n"
                 "spec: {triggers: [{type: prometheus, metadata: {query: 3, threshold: [1]}}], minReplicaCount: two}\n",
                 "kind: ConfigMap\napiVersion: v1\ndata: {a: 'seriesQuery: [', b: 'seriesQuery'}"):  # fmt: skip
        problems(text)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, obs: Obs) -> None:
    monkeypatch.chdir(DATA)
    code, out, _ = obs("check", "--manifests", "scaler-null-values.yaml")
    assert code == 1
    assert out.startswith(
        "scaler-null-values.yaml:11: error: ScaledObject ml/llm [scaler-null-values]\n"
        "    at:   spec.triggers[0].metadata.ignoreNullValues\n"
        "    why:  is not set: an empty result, NaN or Inf counts as 0 and scales in\n"
        '    mend: write ignoreNullValues: "false"\n'
    )
    assert "2 objects, 2 queries of scalers: 2 errors, 0 warnings" in out
    github = obs("check", "--manifests", "scaler-null-values.yaml", "--format", "github")[1].splitlines()[0]
    assert github.startswith("::error file=scaler-null-values.yaml,line=11,title=scaler-null-values::ScaledObject ml/llm:")
    (tmp_path / "ok.yaml").write_text(hpa())
    assert obs("check", "--manifests", str(tmp_path / "ok.yaml")) == (
        0, "1 objects, 0 queries of scalers: 0 errors, 0 warnings\n", "")
    (tmp_path / "empty").mkdir()
    code, _, err = obs("check", "--manifests", str(tmp_path / "empty"))
    assert code == 2
    assert err.endswith("holds no Kubernetes object; name a YAML file or a folder of them\n")
    code, _, err = obs("check", "--manifests", str(tmp_path / "nowhere.yaml"))
    assert code == 2
    assert "cannot be read" in err


def test_a_pack_checks_its_own_manifests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, obs: Obs) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "obs.yaml").write_text(
        "autoscaling: {workloads: [{name: a, namespace: x, engine: vllm, max_replicas: 3}]}"
    )
    assert obs("build")[0] == 0
    file = tmp_path / "exporters" / "autoscaling" / "keda-prometheus" / "x.a.yaml"
    file.write_text(file.read_text().replace("ignoreNullValues: 'false'", "ignoreNullValues: 'true'"))
    report = json.loads(obs("check", "--static", "--format", "json")[1])
    assert report["summary"]["objects"] == 8
    found = [p["path"] for p in report["problems"] if p["check"] == "scaler-null-values"]
    assert found == ["exporters/autoscaling/keda-prometheus/x.a.yaml"]
    assert {p["check"] for p in report["problems"]} == {"scaler-null-values"}
