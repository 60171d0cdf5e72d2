"""The queries that ship, read out of the written manifests, on a real Prometheus: with a recording, without load, without
data, with a pod gone, with an exporter gone. The sidecar's series come from its own code."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import yaml
from sidecar.engine import recording, samples, vllm

from obs.alerts.registry import all_groups
from obs.config import Config, parse_config
from obs.prom.remote_write import STALE_NAN, Point, make_labels
from obs.prom.server import PrivatePrometheus
from obs.render.autoscaling import files
from obs.sidecar.collector import families
from obs.sidecar.sampler import Work
from obs.sidecar.settings import ModelSettings, Settings
from obs.sidecar.signals import Signals
from obs.sidecar.view import as_json

pytestmark = pytest.mark.prometheus

#: One world per namespace: what happens to pod b of two, in the saturated phase of the vLLM recording.
WORLDS = {
    "busy": "both pods run",
    "idle": "both run and nobody asks anything",
    "gone": "b was deleted a minute ago, and Prometheus wrote its end",
    "lingers": "b was deleted a minute ago, and nobody wrote its end (an agent, a federation)",
    "dropout": "b runs and its sidecar is gone",
    "unready": "b runs, is not ready, and its sidecar serves a value",
    "blind": "both run and no sidecar is there",
    "no-ksm": "both run and kube-state-metrics is gone",
    "half-ksm": "both run and kube-state-metrics tells of pods only",
    "nothing": "no series at all",
}
PODS = {"a": "llama-7c9f8d6b5-aaaaa", "b": "llama-7c9f8d6b5-bbbbb"}
#: Another workload, whose name begins with the same letters: it must never count.
STRANGER = "llama-big-5d4f6c7b8-ccccc"
STEP = 15.0


def config_of(world: str, kind: str = "Deployment") -> Config:
    return parse_config(
        f"interval: {{scrape: 15s}}\nautoscaling: {{workloads: [{{name: llama, namespace: {world}, kind: {kind}, "
        "engine: vllm, max_replicas: 12, targets: {load_ratio: 0.75, requests_waiting: 5}}]}"
    )


def written(world: str, form: str, kind: str = "Deployment") -> dict[str, Any]:
    config = config_of(world, kind)
    text = files(all_groups(config), config)[f"exporters/autoscaling/{form}/{world}.llama.yaml"]
    return next(one for one in yaml.safe_load_all(text) if one["kind"] != "Service")


def keda_query(world: str, trigger: int = 0) -> str:
    return str(written(world, "keda-prometheus")["spec"]["triggers"][trigger]["metadata"]["query"])


@dataclass
class Recorded:
    """What was written: when the worlds are asked, and the load and waiting requests that the pods then showed."""

    server: PrivatePrometheus
    at: float
    load: float
    waiting: float

    def ask(self, query: str) -> list[float]:
        return [sample.value for sample in self.server.client.query(query, self.at)]

    def keda(self, query: str) -> float | None:
        """As KEDA reads it with ignoreNullValues "false": the value, ``None`` for its error."""
        found = self.ask(query)
        return found[0] if len(found) == 1 and math.isfinite(found[0]) else None


@pytest.fixture(scope="module")
def recorded() -> Iterator[Recorded]:
    with PrivatePrometheus() as server:
        yield _record(server)


def _record(server: PrivatePrometheus) -> Recorded:
    settings = Settings(interval=5.0, models={"*": ModelSettings(decode_capacity=400)})
    busy, idle = Signals(settings), Signals(settings)
    points: list[Point] = []
    last: dict[str, float] = {}
    pages = [(at, body) for at, body in recording("vllm-0.32-incident") if at < 1796023900]
    end = pages[-1][0]
    dead = end - 60
    scraped = 0.0
    for at, body in pages:
        busy.feed(at, samples(body))
        idle.feed(at, samples(vllm(0, 0, 0.0, generation=500)))
        if at - scraped < STEP - 0.5:
            continue
        scraped = at
        load = _served(busy, at)
        last = {name: value for (name, labels), value in load.items() if "signal" not in dict(labels)}
        for world in WORLDS:
            points += _scrape(world, at, dead, load, _served(idle, at))
    server.writer.write(sorted(points, key=lambda point: point.time_ms))
    return Recorded(server, scraped + 1, last["llm_scaling_load_ratio"], last["llm_requests_waiting"])


def _served(signals: Signals, at: float) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """What one scrape of a sidecar gets."""
    found = families(signals.snapshot(at), Work(0.01, 1, 1, 0), None)
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in found for sample in family.samples if not sample.name.startswith("llm_sidecar")
    }


def _scrape(world: str, at: float, dead: float, load: Any, idle: Any) -> Iterator[Point]:
    """What Prometheus stores of a world at one moment."""
    time_ms = round(at * 1000)
    ended = at >= dead

    def point(name: str, value: float, **labels: str) -> Point:
        return Point(time_ms, make_labels([("__name__", name), ("namespace", world), *labels.items()]), value)

    if world == "nothing":
        return
    for letter, pod in (*PODS.items(), ("stranger", STRANGER)):
        shown = idle if world == "idle" and letter != "stranger" else load
        gone = letter == "b" and ended and world in ("gone", "dropout", "lingers")
        if world != "blind" or letter == "stranger":
            for (name, labels), value in shown.items():
                if gone and world == "lingers":
                    continue  # simply no more samples
                # a pod that must not count says something else
                shown_value = 3 * value if letter == "b" and world in ("unready", "lingers") else value
                yield point(name, STALE_NAN if gone else shown_value, pod=pod, job="sidecar", instance=pod, **dict(labels))
        if world != "no-ksm":
            deleted = gone and world != "dropout"
            ready = not (letter == "b" and ended and world == "unready")
            yield point("kube_pod_status_ready", STALE_NAN if deleted else float(ready), pod=pod, condition="true")
    if world not in ("no-ksm", "half-ksm"):
        left = 1.0 if ended and world in ("gone", "lingers", "unready") else 2.0
        yield point("kube_deployment_status_replicas_ready", left, deployment="llama")
        total = 1.0 if ended and world in ("gone", "lingers") else 2.0
        yield point("kube_deployment_status_replicas", total, deployment="llama")
        yield point("kube_deployment_status_replicas_ready", 1.0, deployment="llama-big")


def hpa(value: float, target: float, replicas: int) -> int:
    """autoscaling/v2's External AverageValue (replica_calculator.go): within 10 % it stays."""
    if abs(value / (target * replicas) - 1) <= 0.1:
        return replicas
    return math.ceil(value / target)


# --- KEDA ------------------------------------------------------------------------------------------------------


def test_the_recording_is_what_it_should_be(recorded: Recorded) -> None:
    """Saturated: a load far above 1, a queue, and a KV cache that is a fraction whatever vLLM calls it."""
    assert recorded.load > 1.5
    assert recorded.waiting > 5
    (usage,) = recorded.ask('max(llm_kv_cache_usage_ratio{namespace="busy"})')
    assert 0.9 < usage <= 1


@pytest.mark.parametrize(
    ("world", "pods"),
    [("busy", 2), ("gone", 1), ("lingers", 1), ("dropout", 2), ("unready", 1)],
)
def test_load(recorded: Recorded, world: str, pods: int) -> None:
    """The pods that count, each with the load that the sidecar served; one without a value like the others."""
    assert recorded.keda(keda_query(world)) == pytest.approx(100 * recorded.load * pods)
    assert recorded.keda(keda_query(world, 1)) == pytest.approx(recorded.waiting * pods)


def test_no_load_is_a_finite_0(recorded: Recorded) -> None:
    assert recorded.keda(keda_query("idle")) == 0
    assert recorded.keda(keda_query("idle", 1)) == 0


@pytest.mark.parametrize("world", ["blind", "no-ksm", "half-ksm", "nothing"])
def test_no_data_is_nothing_and_not_0(recorded: Recorded, world: str) -> None:
    assert recorded.ask(keda_query(world)) == []
    assert recorded.ask(keda_query(world, 1)) == []
    assert recorded.keda(keda_query(world)) is None


def test_trap_47_a_sidecar_that_drops_out_does_not_scale_in(recorded: Recorded) -> None:
    """A plain sum would have halved; the shipped query keeps what it asked for."""
    before, after = (recorded.keda(keda_query(world)) for world in ("busy", "dropout"))
    assert before is not None
    assert after is not None
    assert hpa(after, 75, 2) == hpa(before, 75, 2) > 2
    plain = 'sum(llm_scaling_load_ratio{namespace="dropout",pod=~"llama-[a-z0-9]+-[a-z0-9]{5}"})'
    assert recorded.ask(plain) == [pytest.approx(recorded.load)]


def test_trap_46_a_dead_pod_is_not_counted_even_if_its_series_lingers(recorded: Recorded) -> None:
    counted = keda_query("lingers").partition("\n* max(")[0].replace("100 * avg(", "count(")
    assert recorded.ask(counted) == [1]
    lingering = 'count(llm_scaling_load_ratio{namespace="lingers",pod=~"llama-[a-z0-9]+-[a-z0-9]{5}"})'
    assert recorded.ask(lingering) == [2]


def test_trap_54_a_sidecar_that_warms_up_serves_nothing() -> None:
    pod = Signals(Settings(interval=5.0))
    pod.feed(0.0, samples(vllm(generation=90000)))
    names = {name for name, _ in _served(pod, 0.0)}
    assert "llm_scaling_load_ratio" not in names
    pod.feed(15.0, samples(vllm(generation=90600)))
    values = {name: value for (name, labels), value in _served(pod, 15.0).items() if "signal" not in dict(labels)}
    assert values["llm_decode_throughput_tokens_per_second"] == 40


def test_metrics_api_reads_what_the_sidecar_s_signals_have() -> None:
    """KEDA takes the value at the path of each pod's /signals, and an absent one as that pod's error."""
    config = parse_config("autoscaling: {workloads: [{name: llama, namespace: x, engine: vllm, max_replicas: 3, targets: "
                          "{load_ratio: 0.75, saturation_ratio: 0.9}}]}")
    text = files(all_groups(config), config)["exporters/autoscaling/keda-metrics-api/x.llama.yaml"]
    service, scaled = yaml.safe_load_all(text)
    settings = Settings(interval=5.0, models={"*": ModelSettings(decode_capacity=400)})
    pod = Signals(settings)
    triggers = [trigger["metadata"] for trigger in scaled["spec"]["triggers"]]
    assert len(triggers) == 2
    for at in (0.0, 5.0):
        pod.feed(at, samples(vllm(generation=1000 + at)))
        shown = as_json(pod.snapshot(at), None)
        for metadata in triggers:
            section, name = metadata["valueLocation"].split(".")
            assert (name in shown[section]) == (at > 0)  # the first sample gives no signal
            host = metadata["url"].removeprefix("http://").split("/")[0]
            assert host == f"{service['metadata']['name']}.x.svc.cluster.local:{service['spec']['ports'][0]['port']}"


# --- HPA through prometheus-adapter ------------------------------------------------------------------------------


def adapter(world: str, section: str) -> dict[str, Any]:
    config = config_of(world)
    rules = yaml.safe_load(files(all_groups(config), config)["exporters/autoscaling/prometheus-adapter.yaml"])
    return {rule["name"]["as"]: rule for rule in rules[section]}


def expanded(rule: dict[str, Any], series: str, matchers: str, group_by: str = "") -> str:
    """As prometheus-adapter fills in its template (pkg/naming/metrics_query.go)."""
    query = str(rule["metricsQuery"])
    for name, value in (("Series", series), ("LabelMatchers", matchers), ("GroupBy", group_by)):
        query = query.replace(f"<<.{name}>>", value)
    assert "<<" not in query
    return query


@pytest.mark.parametrize("world", [world for world in WORLDS if world not in ("nothing",)])
def test_pods_metric(recorded: Recorded, world: str) -> None:
    """The adapter asks for the pods that the HPA names; a pod without a value is missing, which HPA knows to handle."""
    (metric,) = [one["pods"]["metric"]["name"] for one in written(world, "hpa-pods")["spec"]["metrics"]][:1]
    rule = adapter(world, "rules")[metric]
    there = [pod for letter, pod in PODS.items() if letter == "a" or world not in ("gone", "lingers")]
    query = expanded(rule, metric, f'namespace="{world}",pod=~"{"|".join(there)}"', "pod")
    found = {dict(s.labels)["pod"]: s.value for s in recorded.server.client.query(query, recorded.at)}
    missing = {"dropout": [PODS["b"]], "blind": there}.get(world, [])
    value = 0.0 if world == "idle" else recorded.load
    if world == "unready":  # HPA itself looks at readiness for CPU only: the sidecar must withhold, and does
        found.pop(PODS["b"])
        there.remove(PODS["b"])
    assert found == {pod: pytest.approx(value) for pod in there if pod not in missing}
    assert recorded.server.client.query(str(rule["seriesQuery"]), recorded.at)


@pytest.mark.parametrize("signal", [0, 1])
def test_external_metric_reads_what_the_rules_record(recorded: Recorded, signal: int) -> None:
    """The recorded series and the HPA's labels fit the adapter's rule; the recorded value is KEDA's in the signal's unit."""
    world = "busy"
    config = config_of(world)
    (group,) = [group for group in all_groups(config) if group.name == "obs-record-autoscaling"]
    rule = group.recordings[signal]
    (value,) = recorded.ask(rule.expr)
    external = written(world, "hpa-external")["spec"]["metrics"][signal]["external"]
    served = adapter(world, "externalRules")[external["metric"]["name"]]
    labels = [("__name__", rule.record), *rule.labels.items()]
    recorded.server.writer.write([Point(round(recorded.at * 1000), make_labels(labels), value)])
    chosen = external["metric"]["selector"]["matchLabels"]
    matchers = ",".join([*(f'{name}="{text}"' for name, text in chosen.items()), f'namespace="{world}"'])
    assert recorded.ask(expanded(served, rule.record, matchers)) == [value]
    assert recorded.ask(str(served["seriesQuery"])) == [value]
    each = recorded.load if signal == 0 else recorded.waiting
    assert value == pytest.approx(2 * each)
    assert recorded.ask(expanded(served, rule.record, matchers.replace("busy", "elsewhere"))) == []


# --- KServe ------------------------------------------------------------------------------------------------------


def kserve_metric(world: str) -> tuple[str, float]:
    """The first External metric of KServe's patch; its Deployment is called llama-predictor, the worlds' llama."""
    external = written(world, "inferenceservice-patch", "InferenceService")["spec"]["predictor"]["autoScaling"]["metrics"][0][
        "external"]
    return str(external["metric"]["query"]).replace("llama-predictor", "llama"), float(external["target"]["value"])


@pytest.mark.parametrize(("world", "pods"), [("busy", 2), ("gone", 1), ("dropout", 2)])
def test_kserve_load(recorded: Recorded, world: str, pods: int) -> None:
    assert recorded.ask(kserve_metric(world)[0]) == [pytest.approx(100 * recorded.load * pods)]


def test_kserve_without_load(recorded: Recorded) -> None:
    assert recorded.ask(kserve_metric("idle")[0]) == [0]


def test_kserve_holds_without_data(recorded: Recorded) -> None:
    """KServe's ScaledObject reads nothing as 0: without a signal the query says exactly what is there."""
    query, target = kserve_metric("blind")
    (value,) = recorded.ask(query)
    assert hpa(value, target, 2) == 2
    assert value / target == 2
    assert recorded.ask(kserve_metric("nothing")[0]) == []


def test_llm_inference_service_has_the_same_query(recorded: Recorded) -> None:
    trigger = written("busy", "llminferenceservice-patch", "LLMInferenceService")["spec"]["scaling"]["keda"]["triggers"][0]
    query = str(trigger["metadata"]["query"]).replace("llama-kserve", "llama")
    assert query == keda_query("busy")


# --- the classic forms, to show that these worlds tell them apart -------------------------------------------------


def test_the_usual_queries_fail_here(recorded: Recorded) -> None:
    zero = 'sum(llm_scaling_load_ratio{namespace="blind",pod=~"llama-[a-z0-9]+-[a-z0-9]{5}"}) or vector(0)'
    assert recorded.ask(zero) == [0]  # blind reads as idle
    nan = ('sum(rate(llm_generation_tokens_total{namespace="idle",pod=~"llama-[a-z0-9]+-[a-z0-9]{5}"}[1m])) / '
           'sum(rate(llm_generation_tokens_total{namespace="idle",pod=~"llama-[a-z0-9]+-[a-z0-9]{5}"}[1m]))')
    (value,) = recorded.ask(nan)
    assert math.isnan(value)
    kept = 'sum(max_over_time(llm_scaling_load_ratio{namespace="gone",pod=~"llama-[a-z0-9]+-[a-z0-9]{5}"}[2m]))'
    (value,) = recorded.ask(kept)
    assert value > 1.5 * recorded.load  # a dead pod counts
