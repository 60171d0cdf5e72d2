"""Each format as its consumer reads it: the rules and dashboards in it are those of the pack, in every one."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from obs.build import render_all
from obs.config import parse_config
from obs.prom import promtool
from obs.render.kubernetes import APPLIED_MAX, applied
from obs.render.rulers import MAX_GROUPS, MAX_RULES
from obs.render.split import families, parts
from tests.render.forms import (
    CONFIGS,
    below,
    built,
    dashboards,
    dashboards_in,
    documents,
    groups_in,
    kustomized,
    on_disk,
    originals,
    program,
    rendered,
    rules_of,
    run,
)

KUBERNETES = "1.33"
EACH = pytest.mark.parametrize("name", CONFIGS)


def accepted(groups: list[Mapping[str, Any]], folder: Path) -> None:
    """promtool takes the groups (the rules of ``partial_response_strategy`` aside, which is Thanos' own)."""
    path = folder / "rules.yaml"
    plain = [{key: value for key, value in group.items() if key != "partial_response_strategy"} for group in groups]
    path.write_text(yaml.dump({"groups": plain}, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper)))
    assert promtool.check_rules([str(path)]) == []


# --- rules --------------------------------------------------------------------------------------------------------


@EACH
def test_prometheus_rules_hold_the_same_rules(name: str, tmp_path: Path) -> None:
    objects = documents(below(name, "deploy/prometheusrule").values())
    assert [len(one["spec"]["groups"]) for one in objects] == [1] * len(objects)
    assert {one["metadata"]["name"] for one in objects} == {group["name"] for group in originals(name)}
    assert rules_of(groups_in(objects)) == rules_of(originals(name))
    accepted(groups_in(objects), tmp_path)


@EACH
def test_mimir_s_namespace_file(name: str, tmp_path: Path) -> None:
    """mimirtool: pkg/mimirtool/rules/rules.go RuleNamespace; the limits are Mimir's defaults."""
    ((path, text),) = below(name, "deploy/mimir").items()
    one = yaml.safe_load(text)
    assert set(one) == {"namespace", "groups"}
    assert path == f"{one['namespace']}.yaml"
    assert rules_of(one["groups"]) == rules_of(originals(name))
    assert max(len(group["rules"]) for group in one["groups"]) <= MAX_RULES
    assert len({group["name"] for group in one["groups"]}) == len(one["groups"]) <= MAX_GROUPS
    accepted(one["groups"], tmp_path)


@EACH
def test_thanos_rule_files(name: str, tmp_path: Path) -> None:
    """Thanos: pkg/rules/rulespb; docs/components/rule.md, partial_response_strategy."""
    texts = below(name, "deploy/thanos")
    assert texts.keys() == below(name, "alerts/rules").keys()
    groups = [group for one in documents(texts.values()) for group in one["groups"]]
    assert {group["partial_response_strategy"] for group in groups} == {"abort"}
    assert rules_of(groups) == rules_of(originals(name))
    accepted(groups, tmp_path)


@EACH
def test_the_mixin_in_real_jsonnet(name: str, tmp_path: Path) -> None:
    jsonnet = pytest.importorskip("_jsonnet", reason="jsonnet is not installed")
    path = on_disk(name, "deploy/mixin", tmp_path) / "mixin.libsonnet"
    fields = ("prometheusAlerts", "prometheusRules", "grafanaDashboards")
    picked = ", ".join(f"{field}: mixin.{field}" for field in fields)
    found = json.loads(jsonnet.evaluate_snippet("x", f"local mixin = import '{path}'; {{{picked}}}"))
    alerts, recordings = (found[key]["groups"] for key in fields[:2])
    assert {key for group in alerts for rule in group["rules"] for key in rule} & {"alert", "record"} == {"alert"}
    assert {key for group in recordings for rule in group["rules"] for key in rule} & {"alert", "record"} == {"record"}
    assert rules_of([*alerts, *recordings]) == rules_of(originals(name))
    accepted([*alerts, *recordings], tmp_path)
    assert found["grafanaDashboards"] == {file: json.loads(text) for file, text in dashboards(name).items()}
    # as mixins are put together: hidden fields, added to
    more = f"((import '{path}') + {{ prometheusAlerts+:: {{ groups+: [{{ name: 'mine', rules: [] }}] }} }}).prometheusAlerts"
    assert len(json.loads(jsonnet.evaluate_snippet("x", more))["groups"]) == len(alerts) + 1
    assert json.loads(jsonnet.evaluate_file(str(path))) == {}


def test_a_group_parts_only_where_its_rules_have_nothing_in_common() -> None:
    def rule(name: str, expr: str) -> dict[str, str]:
        return {"record": name, "expr": expr}

    chain = [rule("a:x", "up"), rule("b:x", "sum(a:x)"), rule("c:x", "b:x + 1")]
    alone = [rule(f"l{place}:x", f"up{place}") for place in range(4)]
    assert families([*chain[:1], *alone, *chain[1:]]) == ((0, 5, 6), (1,), (2,), (3,), (4,))
    assert families([rule("a:x", "up"), rule("a:x:more", "down"), rule("b:x", "a:x:more")]) == ((0,), (1, 2))
    for reader in ('ALERTS{alertname="A"}', 'sum({__name__=~".+:x"})'):
        assert families([*alone, rule("b:x", reader)]) == ((0, 1, 2, 3, 4),)

    def one_each(rule: Mapping[str, Any]) -> int:
        return 1

    group = {"name": "g", "interval": "30s", "rules": [*alone[:1], *chain, *alone[1:]]}
    found = parts(group, one_each, 3)
    assert [one["name"] for one in found] == ["g", "g-2", "g-3"]
    assert [[rule["record"] for rule in one["rules"]] for one in found] == [["l0:x"], ["a:x", "b:x", "c:x"],
                                                                           ["l1:x", "l2:x", "l3:x"]]
    assert parts({**group, "rules": chain}, one_each, 2) == ({**group, "rules": chain},)
    assert parts(group, one_each, 7) == (group,)
    assert [len(one["rules"]) for one in parts(group, one_each, 6)] == [6, 1]


def many(count: int) -> str:
    """A configuration with so many workloads that the autoscalers' alerts do not fit into one object."""
    rows = "".join(f"  - {{name: llm-{place}, namespace: ml, engine: vllm, max_replicas: 4}}\n" for place in range(count))
    return f"autoscaling:\n  workloads:\n{rows}"


def test_a_group_too_large_for_kubectl_apply_is_in_parts(tmp_path: Path) -> None:
    config = parse_config(many(60))
    files = render_all(config, chosen=["rules", "prometheusrule", "helm", "kustomize"])
    objects = {path: one for path, text in files.items() if path.startswith("deploy/prometheusrule/")
               for one in documents([text])}
    assert "deploy/prometheusrule/obs-autoscaling-2.yaml" in objects
    assert all(applied(one) <= APPLIED_MAX for one in objects.values())
    groups = [group for path, text in files.items() if path.startswith("alerts/") for one in documents([text])
              for group in one["groups"]]
    assert len(json.dumps([group for group in groups if group["name"] == "obs-autoscaling"])) > APPLIED_MAX
    assert rules_of(groups_in(objects.values())) == rules_of(groups)
    for form in ("helm/files", "kustomize"):
        assert f"deploy/{form}/rules/obs-autoscaling-2.yaml" in files


def test_what_cannot_part_says_that_it_needs_server_side_apply() -> None:
    from obs.render import kubernetes

    huge = kubernetes.prometheus_rule("x", [{"name": "x", "rules": [{"record": "a:b", "expr": "up" * 140_000}]}], {})
    assert "kubectl apply --server-side" in kubernetes.text(huge)
    assert not [path for path, text in built("example").items() if "--server-side" in text]


# --- Kubernetes ---------------------------------------------------------------------------------------------------


def closed(required: str = "", **properties: Any) -> dict[str, Any]:
    """An object with these keys and no others."""
    return {"type": "object", "properties": properties, "additionalProperties": False, "required": required.split()}


TEXT, FLAG = {"type": "string", "minLength": 1}, {"type": "boolean"}
TEXTS = {"type": "object", "additionalProperties": {"type": "string"}, "minProperties": 1}
LABEL_MAP = {**TEXTS, "propertyNames": {"pattern": r"^([a-z0-9.-]+/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"}}
DURATION = {"type": "string", "pattern": r"^(0|([0-9]+y)?([0-9]+w)?([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?)$"}
META = closed("name", name={"type": "string", "pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}, namespace=TEXT,
              labels=LABEL_MAP, annotations=TEXTS)
NAMESPACES = {"oneOf": [closed("any", any={"const": True}), closed("matchNames", matchNames={"type": "array", "items": TEXT})]}
RELABELING = closed("targetLabel", sourceLabels={"type": "array", "items": {"type": "string", "pattern": "^[a-zA-Z_]"}},
                    targetLabel=TEXT, replacement=TEXT)
ENDPOINT = {"type": "array", "minItems": 1, "items": closed(
    "port", port=TEXT, path={"type": "string", "pattern": "^/"}, interval=DURATION, scrapeTimeout=DURATION,
    honorLabels=FLAG, relabelings={"type": "array", "items": RELABELING})}
SELECTOR = closed("matchLabels", matchLabels=LABEL_MAP)


def custom(api: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    return closed("apiVersion kind metadata spec", apiVersion={"const": api}, kind={"const": kind}, metadata=META, spec=spec)


#: The part of each CRD that we use, and no more. Once (30 November 2026) all formats were also held against the whole
#: CRDs of prometheus-operator 6adcebc and grafana-operator 60d3ebd with every object closed: no finding.
CRD = {
    # pkg/apis/monitoring/v1 prometheusrule_types.go, podmonitor_types.go, servicemonitor_types.go
    "PrometheusRule": custom("monitoring.coreos.com/v1", "PrometheusRule", closed("groups", groups={
        "type": "array", "minItems": 1, "maxItems": 1, "items": closed(
            "name rules", name=TEXT, interval=DURATION, rules={"type": "array", "minItems": 1, "items": closed(
                "expr", record=TEXT, alert=TEXT, expr=TEXT, **{"for": DURATION}, keep_firing_for=DURATION, labels=TEXTS,
                annotations=TEXTS)})})),
    "PodMonitor": custom("monitoring.coreos.com/v1", "PodMonitor", closed(
        "selector podMetricsEndpoints", selector=SELECTOR, namespaceSelector=NAMESPACES, podMetricsEndpoints=ENDPOINT)),
    "ServiceMonitor": custom("monitoring.coreos.com/v1", "ServiceMonitor", closed(
        "selector endpoints", selector=SELECTOR, namespaceSelector=NAMESPACES, endpoints=ENDPOINT)),
    # grafana-operator api/v1beta1 grafanadashboard_types.go
    "GrafanaDashboard": custom("grafana.integreatly.org/v1beta1", "GrafanaDashboard", closed(
        "instanceSelector json", instanceSelector=SELECTOR, allowCrossNamespaceImport=FLAG, folder=TEXT, json=TEXT)),
}


CHECKED = {kind: jsonschema.Draft202012Validator(schema) for kind, schema in CRD.items()}


def valid(one: dict[str, Any]) -> None:
    if one["kind"] in CHECKED:
        CHECKED[one["kind"]].validate(one)
    else:
        kubernetes_validate.validate(one, KUBERNETES, strict=True)


@EACH
def test_every_object_is_valid_and_small_enough(name: str) -> None:
    seen = set()
    for form in ("prometheusrule", "podmonitor", "servicemonitor", "configmap", "grafana-dashboard"):
        for one in documents(below(name, f"deploy/{form}").values()):
            valid(one)
            assert applied(one) <= APPLIED_MAX
            seen.add(one["kind"])
    assert seen == {*CRD, "ConfigMap"}


def test_the_schemas_can_fail() -> None:
    (rule, *_), (pods, *_), (config_map, *_) = (
        documents(below("default", f"deploy/{form}").values()) for form in ("prometheusrule", "podmonitor", "configmap"))
    rule["spec"]["groups"][0]["rules"][0]["fro"] = "5m"
    pods["spec"]["podMetricsEndpoints"][0]["intervall"] = "5s"
    config_map["datta"] = {}
    for broken in (rule, pods):
        with pytest.raises(jsonschema.ValidationError):
            valid(broken)
    with pytest.raises(kubernetes_validate.ValidationError):
        valid(config_map)


def test_names_labels_and_namespace_are_those_of_obs_yaml() -> None:
    for one in documents(below("other", "deploy/prometheusrule").values()):
        assert one["metadata"]["namespace"] == "gpu-alerts"
        assert one["metadata"]["labels"] == {"team": "on.call", "example.org/tier": "1"}
    found = {one["metadata"]["name"]: one for one in documents(below("other", "deploy/podmonitor").values())}
    assert set(found) == {"obs-triton", "obs-trtllm-serve", "obs-dynamo", "obs-sglang", "obs-dcgm"}
    triton = found["obs-triton"]
    assert "labels" not in triton["metadata"]
    assert triton["spec"]["selector"]["matchLabels"] == {"app.kubernetes.io/name": "triton", "tier": "a"}
    assert triton["spec"]["namespaceSelector"] == {"matchNames": ["ml", "ml-2"]}
    (endpoint,) = triton["spec"]["podMetricsEndpoints"]
    assert endpoint == {
        "port": "http-metrics", "path": "/metrics", "interval": "4s", "scrapeTimeout": "3s", "honorLabels": False,
        "relabelings": [
            {"targetLabel": "job", "replacement": "tritons"},
            {"sourceLabels": ["namespace"], "targetLabel": "kube_namespace"},
            {"sourceLabels": ["pod"], "targetLabel": "kube_pod"},
        ],
    }
    (dcgm,) = found["obs-dcgm"]["spec"]["podMetricsEndpoints"]
    assert (dcgm["interval"], dcgm["scrapeTimeout"]) == ("8s", "8s")
    assert found["obs-trtllm-serve"]["spec"]["podMetricsEndpoints"][0]["path"] == "/prometheus/metrics"
    (config_map, *_) = documents(below("other", "deploy/configmap").values())
    assert config_map["metadata"]["labels"] == {"dash": "yes"}
    assert "annotations" not in config_map["metadata"]


def test_the_sidecar_s_monitor_is_that_of_its_manifests() -> None:
    """Same name, labels, selector and port: applied after exporters/sidecar/podmonitor.yaml, it replaces it."""
    written = yaml.safe_load((Path(__file__).parents[2] / "exporters/sidecar/podmonitor.yaml").read_text())
    (made,) = documents([below("default", "deploy/podmonitor")["sidecar.yaml"]])
    assert made["metadata"]["name"] == written["metadata"]["name"]
    assert made["metadata"]["labels"] == written["metadata"]["labels"]
    assert made["spec"]["selector"] == written["spec"]["selector"]
    (signals,) = [one for one in written["spec"]["podMetricsEndpoints"] if one["port"] == "signals"]
    (endpoint,) = made["spec"]["podMetricsEndpoints"]
    for key in ("port", "scrapeTimeout", "honorLabels"):
        assert endpoint[key] == signals[key]


@EACH
def test_the_autoscalers_rules_are_those_of_their_folder(name: str) -> None:
    apart = [group for path, text in below(name, "exporters/autoscaling").items() if path == "prometheusrule.yaml"
             for group in groups_in(documents([text]))]
    names = {group["name"] for group in apart}
    assert (name == "example") == bool(names)
    together = groups_in(documents(below(name, "deploy/prometheusrule").values()))
    assert rules_of(apart) == rules_of([group for group in together if group["name"] in names])


# --- dashboards ---------------------------------------------------------------------------------------------------


@EACH
def test_dashboards_are_the_same_text_in_every_form(name: str) -> None:
    maps = documents(below(name, "deploy/configmap").values())
    assert [len(one["data"]) for one in maps] == [1] * len(maps)
    assert dashboards_in(maps) == dashboards(name)
    custom_ones = documents(below(name, "deploy/grafana-dashboard").values())
    assert sorted(one["spec"]["json"] for one in custom_ones) == sorted(dashboards(name).values())
    for folder in ("deploy/mixin/dashboards", "deploy/kustomize/dashboards", "deploy/grafana-provisioning/dashboards/obs"):
        assert below(name, folder) == dashboards(name)


# --- scrapes ------------------------------------------------------------------------------------------------------


@EACH
def test_promtool_takes_the_scrape_configuration_and_finds_the_rules(name: str, tmp_path: Path) -> None:
    on_disk(name, "deploy/scrape", tmp_path / "deploy" / "scrape")
    on_disk(name, "alerts/rules", tmp_path / "alerts" / "rules")
    said = run(program("promtool"), "check", "config", tmp_path / "deploy/scrape/static/prometheus.yml")
    assert f"SUCCESS: {len(below(name, 'alerts/rules'))} rule files found" in said
    for variant in ("static", "kubernetes"):
        whole = yaml.safe_load((tmp_path / f"deploy/scrape/{variant}/prometheus.yml").read_text())
        part = yaml.safe_load((tmp_path / f"deploy/scrape/{variant}/obs.yaml").read_text())
        assert part == {"scrape_configs": whole["scrape_configs"]}


def discovered(config: dict[str, Any], job: str, pods: list[dict[str, str]], folder: Path) -> list[dict[str, str]]:
    """What promtool makes of the pods that Kubernetes' discovery would give: the targets that are kept."""
    (scrape,) = [one for one in config["scrape_configs"] if one["job_name"] == job]
    del scrape["kubernetes_sd_configs"]  # Debian builds Prometheus without it
    scrape["static_configs"] = [
        {"targets": [pod["__address__"]], "labels": {key: value for key, value in pod.items() if key != "__address__"}}
        for pod in pods
    ]
    path = folder / "prometheus.yml"
    path.write_text(yaml.safe_dump({"scrape_configs": [scrape]}))
    kept: list[dict[str, str]] = []
    for wait in ("1s", "5s", "30s"):  # promtool waits that long, whatever it has found
        said = run(program("promtool"), "check", "service-discovery", f"--timeout={wait}", path, job)
        kept = [one["labels"] for one in json.loads(said) if one.get("labels")]
        if kept:
            break
    return kept


def pod(address: str, **labels: str) -> dict[str, str]:
    known = {"namespace": "ml", "pod_name": "p", "pod_container_name": "c", "pod_phase": "Running",
             "pod_container_port_name": "metrics", **labels}
    return {"__address__": address, **{f"__meta_kubernetes_{key}": value for key, value in known.items()}}


def test_kubernetes_discovery_keeps_the_right_pods_and_names_them(tmp_path: Path) -> None:
    config = yaml.safe_load(below("default", "deploy/scrape/kubernetes")["prometheus.yml"])
    found = discovered(config, "triton", [
        pod("10.0.0.1:8002", pod_label_app="triton", pod_name="triton-0"),
        pod("10.0.0.1:8000", pod_label_app="triton", pod_container_port_name="http"),
        pod("10.0.0.2:8002", pod_label_app="tritonish"),
        pod("10.0.0.3:8002", pod_label_app="triton", pod_phase="Failed"),
        pod("10.0.0.4:8000"),
    ], tmp_path)
    (kept,) = found
    assert {key: value for key, value in kept.items() if not key.startswith("__")} == {
        "job": "triton", "instance": "10.0.0.1:8002", "namespace": "ml", "pod": "triton-0", "container": "c"}
    assert (kept["__metrics_path__"], kept["__scrape_interval__"], kept["__scrape_timeout__"]) == ("/metrics", "30s", "10s")
    other = yaml.safe_load(below("other", "deploy/scrape/kubernetes")["prometheus.yml"])
    assert other["scrape_configs"][0]["kubernetes_sd_configs"] == [{"role": "pod", "namespaces": {"names": ["ml", "ml-2"]}}]
    (kept,) = discovered(other, "tritons", [pod("h:1", pod_label_app_kubernetes_io_name="triton", pod_label_tier="a",
                                                pod_container_port_name="http-metrics")], tmp_path)
    assert (kept["kube_namespace"], kept["kube_pod"]) == ("ml", "p")


@EACH
@pytest.mark.parametrize("variant", ["static", "kubernetes"])
def test_vmagent_takes_the_part_strictly(name: str, variant: str, tmp_path: Path) -> None:
    """A second reader, which knows kubernetes_sd_configs."""
    on_disk(name, "deploy/scrape", tmp_path)
    run(program("vmagent"), "-dryRun", "-promscrape.config.strictParse=true",
        f"-promscrape.config={tmp_path / variant / 'obs.yaml'}")


def test_each_configured_engine_is_scraped_once() -> None:
    for name, jobs in (("default", ["triton", "vllm", "dcgm-exporter", "obs-sidecar"]),
                       ("other", ["tritons", "trtllm", "dynamo", "sglang", "dcgm-exporter"])):
        part = yaml.safe_load(below(name, "deploy/scrape/static")["obs.yaml"])
        assert [one["job_name"] for one in part["scrape_configs"]] == jobs
        for form in ("podmonitor", "servicemonitor"):
            kinds = ("podMetricsEndpoints", "endpoints")
            replaced = [one["spec"].get(kinds[0], one["spec"].get(kinds[1]))[0]["relabelings"][0]["replacement"]
                        for one in documents(below(name, f"deploy/{form}").values())]
            assert sorted(replaced) == sorted(jobs)


# --- kustomize and Helm -------------------------------------------------------------------------------------------


def same_as_apart(objects: list[dict[str, Any]], name: str) -> None:
    """Each object is the one that its own format writes, which is held against its schema; the namespace aside."""
    apart = documents(text for form in ("configmap", "podmonitor", "servicemonitor", "prometheusrule")
                      for text in below(name, f"deploy/{form}").values())
    known = {(one["kind"], one["metadata"]["name"]): one for one in apart}
    for one in objects:
        other = known[one["kind"], one["metadata"]["name"]]
        namespaces = {"namespace": one["metadata"]["namespace"]}
        assert one == {**other, "metadata": {**other["metadata"], **namespaces}}
    # each server has one monitor, of either kind
    assert len(objects) == len({(one["kind"].replace("Service", "Pod"), one["metadata"]["name"]) for one in apart})


@EACH
def test_a_real_kustomize_builds_the_base(name: str, tmp_path: Path) -> None:
    objects = kustomized(on_disk(name, "deploy/kustomize", tmp_path))
    assert {one["metadata"]["namespace"] for one in objects} == {"gpu-alerts" if name == "other" else "monitoring"}
    assert rules_of(groups_in(objects)) == rules_of(originals(name))
    assert dashboards_in(objects) == dashboards(name)
    same_as_apart(objects, name)


def test_kustomize_s_overlay_changes_labels_and_namespace(tmp_path: Path) -> None:
    on_disk("default", "deploy/kustomize", tmp_path / "base")
    (tmp_path / "over").mkdir()
    (tmp_path / "over" / "kustomization.yaml").write_text("""
resources: [../base]
namespace: mine
patches:
  - target: {kind: PrometheusRule}
    patch: |
      - op: replace
        path: /metadata/labels/release
        value: prom
""")
    objects = kustomized(tmp_path / "over")
    assert {one["metadata"]["namespace"] for one in objects} == {"mine"}
    assert {one["metadata"]["labels"]["release"] for one in objects if one["kind"] == "PrometheusRule"} == {"prom"}


@EACH
def test_a_real_helm_renders_the_chart(name: str, tmp_path: Path) -> None:
    chart = on_disk(name, "deploy/helm", tmp_path)
    objects = rendered(chart, {})
    same_as_apart(objects, name)
    assert rules_of(groups_in(objects)) == rules_of(originals(name))
    assert any("{{ $labels.instance }}" in text for group in groups_in(objects) for rule in group["rules"]
               for text in rule.get("annotations", {}).values())
    assert dashboards_in(objects) == dashboards(name)
    # deploy.namespace of obs.yaml if it is given there, else the release's
    namespaces = {"default": "releases", "example": "monitoring", "other": "gpu-alerts"}
    assert {one["metadata"]["namespace"] for one in objects} == {namespaces[name]}


def test_helm_s_values(tmp_path: Path) -> None:
    chart = on_disk("default", "deploy/helm", tmp_path)
    helm = pytest.importorskip("helm_python", reason="helm-python-sdk is not installed")
    assert [one for one in helm.lint(chart, strict=True)["messages"] if one["severity"] > 1] == []
    few = rendered(chart, {"namespace": "mine", "monitors": {"enabled": False}, "dashboards": {"enabled": False},
                           "rules": {"labels": {"release": None, "odd/key": 'q"uote\\'}}})
    assert {one["kind"] for one in few} == {"PrometheusRule"}
    assert {one["metadata"]["namespace"] for one in few} == {"mine"}
    assert few[0]["metadata"]["labels"] == {"odd/key": 'q"uote\\'}
    assert "labels" not in rendered(chart, {"rules": {"labels": None}})[-1]["metadata"]
    apart = rendered(chart, {"rules": {"enabled": False}, "monitors": {"targets": {"dcgm": False}}})
    assert sorted(one["metadata"]["name"] for one in apart if one["kind"] != "ConfigMap") == [
        "obs-sidecar", "obs-triton", "obs-vllm"]
    for values in ({"rules": {"labels": {"a": 1}}}, {"rulez": {}}, {"monitors": {"targets": {"x": True}}},
                   {"namespace": "No"}):
        with pytest.raises(helm.HelmValuesError):
            rendered(chart, values)


#: All that the templates may do: Go's own text/template, and .Files.Get of a name written out.
_ACTION = re.compile(r"""(?x)
    /\* [^*{}]* \*/ | end
    | if \s \.Values\.\w+\.enabled | if \s index \s \.Values\.monitors\.targets \s "[-\w]+"
    | with \s \.Values\.\w+\.(labels|annotations) | range \s \$key,\ \$value \s := \s \.
    | or \s \.Values\.namespace \s \.Release\.Namespace | printf \s "%q" \s \$(key|value)
    | \.Files\.Get \s "(?P<file>files/[-\w/]+\.yaml)"
""")


@EACH
def test_helm_never_reads_a_rule_as_a_template(name: str) -> None:
    """Without Helm: no rule text stands in a template, and .Files.Get puts a file in as it is, so each object is the
    head in the template and the body in the file. The head is rendered here with the chart's default values."""
    chart = below(name, "deploy/helm")
    templates = {path: text for path, text in chart.items() if path.startswith("templates/")}
    got: list[str] = []
    bodies: list[dict[str, Any]] = []
    for text in templates.values():
        assert "$labels" not in text
        assert text.count("{{") == text.count("}}")
        actions = [found.strip("- ") for found in re.findall(r"\{\{(.*?)\}\}", text)]
        for action in actions:
            match = _ACTION.fullmatch(action)
            assert match, action
            if match["file"]:
                got.append(match["file"])
                bodies += documents([chart[match["file"]]])
        opened = sum(action.split()[0] in ("if", "with", "range") for action in actions)
        assert opened == actions.count("end")
    assert sorted(got) == sorted(path for path in chart if path.startswith("files/"))
    groups = [group for body in bodies for group in body.get("spec", {}).get("groups", [])]
    assert rules_of(groups) == rules_of(originals(name))
    assert {file: text for body in bodies for file, text in body.get("data", {}).items()} == dashboards(name)
    schema = json.loads(chart["values.schema.json"])
    jsonschema.Draft7Validator.check_schema(schema)
    jsonschema.validate(yaml.safe_load(chart["values.yaml"]), schema)
    assert yaml.safe_load(chart["Chart.yaml"])["apiVersion"] == "v2"
