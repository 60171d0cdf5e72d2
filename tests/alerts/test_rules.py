"""The rule groups as data: what holds for every configuration."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from obs.alerts.registry import CONDITIONAL, SUBJECTS, alerts, all_groups
from obs.alerts.texts import NUMBER
from obs.catalog.limits import BY_PATH
from obs.config import ENGINE_NAMES, Config, parse_config, seconds
from obs.errors import ConfigError
from obs.prom import tools
from obs.render.prometheus import rule_files

CONFIGS = {
    "default": "",
    "one engine: triton": "engines: [triton]",
    "one engine: vllm": "engines: [vllm]",
    "one engine: triton-vllm": "engines: [triton-vllm]",
    "one engine: triton-trtllm": "engines: [triton-trtllm]",
    "one engine: sglang": "engines: [sglang]",
    "one engine: dynamo": "engines: [dynamo]",
    "one engine: dcgm": "engines: [dcgm]",
    "one engine: sidecar": "engines: [sidecar]",
    "all engines": f"engines: [{', '.join(ENGINE_NAMES)}]\nselectors: {{trtllm-serve: 'job=\"trtllm\"'}}",
    "every dialect": "dialects: {vllm: [standard, ray, ray-colon, kserve]}",
    "other labels": "labels: {cluster: k8s_cluster, namespace: exported_namespace, pod: pod_name}",
    "objectives": "slo: {latency_p99: 100ms}\nmodels: {'/models/a.b': {availability: 99.9%, latency_objective: 95%, "
                  "latency_p99: 500ms, llm_latency_p99: 30s}, c: {queue_time: 1s, itl_p99: 50ms}}",
    "jobs": "jobs: [triton, vllm]\nexpected_gpus: {triton: 4}\nselectors: {triton: 'job=\"triton\"'}",
    "ensembles and aliases": "ensembles: {e: [a, b]}\nidle_exclude: [x]\naliases: {/models/m: m}",
    "no seasons": "seasons: []",
    "slow scrapes": "interval: {scrape: 2m, evaluation: 1m}",
    "autoscaling": "labels: {pod: pod_name}\nautoscaling: {workloads: [{name: a, namespace: x, engine: vllm, max_replicas: 3}, "
                   "{name: b, namespace: x, kind: StatefulSet, engine: sglang, max_replicas: 3, "
                   "targets: {saturation_ratio: 1, requests_waiting: 5}}]}",
}


def config_of(name: str) -> Config:
    return parse_config(CONFIGS[name], f"{name}.yaml")


@pytest.mark.prometheus
@pytest.mark.parametrize("name", CONFIGS)
def test_promtool_takes_the_rules_of_every_configuration(name: str, tmp_path: Path) -> None:
    config = config_of(name)
    paths = []
    for file, text in rule_files(all_groups(config), config).items():
        (tmp_path / file).write_text(text)
        paths.append(tmp_path / file)
    done = subprocess.run([tools.find("promtool"), "check", "rules", *paths], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "FAILED" not in done.stdout + done.stderr  # duplicates print that and exit 0


@pytest.mark.parametrize("name", CONFIGS)
def test_no_range_is_shorter_than_four_scrapes(name: str) -> None:


    config = config_of(name)
    for group in all_groups(config):
        for rule in group.rules:
            for window in re.findall(r"\[(\w+)\]", rule.expr):
                assert seconds(window) >= 4 * config.scrape_interval, (group.name, rule)


@pytest.mark.parametrize("name", CONFIGS)
def test_every_recorded_series_that_a_rule_reads_is_recorded(name: str) -> None:
    """A rule on a series that this configuration does not record would load and be silent for ever."""
    groups = all_groups(config_of(name))
    written = {rule.record for group in groups for rule in group.recordings}
    assert written
    for group in groups:
        for rule in group.rules:
            read = set(re.findall(r"\b[a-z_]+:[a-z0-9_]+:[a-z0-9_]+\b", rule.expr))
            assert read <= written, (group.name, read - written)


def test_a_backend_of_triton_brings_triton() -> None:
    assert parse_config("engines: [triton-vllm]").engines == ("triton", "triton-vllm")
    assert parse_config("engines: [vllm]").engines == ("vllm",)


def test_alerts_that_need_what_no_engine_gives_are_left_out() -> None:
    gpu = {alert.name for alert in alerts(parse_config("engines: [dcgm]"))}
    assert "GPUMemoryHigh" in gpu
    assert not {name for name in gpu if name.startswith(("LLM", "InferenceQueue", "InferenceLatency", "InferenceModel"))}


def test_same_configuration_same_bytes() -> None:
    first, second = (rule_files(all_groups(config_of("objectives")), config_of("objectives")) for _ in range(2))
    assert first == second


def test_every_alert_declares_its_limits_and_a_known_companion() -> None:
    everything = (*alerts(config_of("objectives")), *alerts(config_of("autoscaling")))
    names = {alert.name for alert in everything}
    assert set(CONDITIONAL) <= names
    for alert in everything:
        assert all(path in BY_PATH for path in alert.limits), alert.name
        assert alert.no_data.why, alert.name
        if alert.no_data.policy == "silent":
            assert alert.no_data.companion in names, f"{alert.name} is silent and names no alert that speaks instead"
            assert alert.no_data.companion != alert.name


def test_conditional_alerts_are_absent_by_default_and_refused_by_name() -> None:
    assert not {alert.name for alert in alerts(parse_config(""))} & set(CONDITIONAL)
    with pytest.raises(ConfigError, match="it exists only for models that declare an objective"):
        all_groups(parse_config("alerts: {InferenceLatencyBudgetBurn: {enabled: false}}"))
    with pytest.raises(ConfigError, match="it exists only for workloads under autoscaling"):
        all_groups(parse_config("alerts: {LLMAutoscalerMissing: {enabled: false}}"))


def test_an_unknown_alert_in_the_configuration_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"alerts\.InferenceQueueTimeHi: .*did you mean 'InferenceQueueTimeHigh'\?"):
        all_groups(parse_config("alerts: {InferenceQueueTimeHi: {enabled: false}}"))


def test_overrides_reach_the_rule_file() -> None:
    config = parse_config(
        "alerts: {'*': {for: 7s}, InferenceQueueTimeHigh: {severity: critical, labels: {page: 'yes'}}, "
        "InferenceJobAbsent: {enabled: false}}\nextra_labels: {team: ml}"
    )
    found = {alert.name: alert for alert in alerts(config)}
    assert "InferenceJobAbsent" not in found
    queue = found["InferenceQueueTimeHigh"]
    assert (queue.for_, queue.severity, queue.labels) == ("7s", "critical", {"team": "ml", "page": "yes"})


def test_a_model_with_its_own_limit_is_compared_with_that_alone() -> None:
    (queue,) = [a for a in alerts(parse_config("models: {m: {queue_time: 2s}}")) if a.name == "InferenceQueueTimeHigh"]
    assert 'model!="m"} > 0.1' in queue.expr
    assert 'model="m"} > 2' in queue.expr


def test_a_latency_objective_off_the_buckets_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"is no bucket bound of triton's latency histogram, .*use 0\.1s"):
        all_groups(parse_config("models: {m: {latency_objective: 99%, latency_p99: 170ms}}"))


def test_every_subject_is_a_group_of_its_own() -> None:
    config = config_of("default")
    names = [group.name for group in (subject(config) for subject in SUBJECTS) if group is not None]
    assert len(names) == len(set(names)) == len(SUBJECTS)


def test_an_objective_for_all_leaves_out_the_models_that_have_their_own() -> None:
    config = parse_config("slo: {availability: 99%}\nmodels: {m: {availability: 99.9%}, n: {availability: 95%}}")
    fast, slow, slowest = (a.expr for a in alerts(config) if a.name == "InferenceAvailabilityBudgetBurn")
    for expr, factor in ((fast, "14.4"), (slow, "6"), (slowest, "1")):
        for model, budget in (('model!~"m|n"', "0.01"), ('model="m"', "0.001"), ('model="n"', "0.05")):
            (arm,) = (arm for arm in expr.split("\nor\n") if model in arm)
            assert arm.count(f"> {factor} * {budget}\n") == 2  # over both windows
            assert arm.count(model) == 5  # bad and all requests over both windows, and the floor


def test_the_floor_of_bad_requests_counts_by_the_evaluation_interval() -> None:
    config = parse_config("limits: {burn_errors: 7}\ninterval: {evaluation: 15s}\nslo: {availability: 99%}")
    for alert in alerts(config):
        if alert.name == "InferenceAvailabilityBudgetBurn":
            assert alert.expr.endswith(f"[{alert.labels['long']}])) * 15 >= 7")


def test_aborted_requests_of_tritons_backend_alone_need_no_running_gauge() -> None:
    (aborted,) = [a for a in alerts(config_of("one engine: triton-vllm")) if a.name == "LLMAbortedRequestsHidden"]
    assert "requests_running:" not in aborted.expr
    assert "requests_running_estimate:" in aborted.expr
    assert "LLMAbortedRequestsHidden" not in {a.name for a in alerts(config_of("one engine: sglang"))}


def test_no_rate_below_one_reads_as_minutes() -> None:
    for alert in alerts(config_of("objectives")):
        if alert.name != "GPUMemoryDataMissing":  # bytes
            for text in (alert.summary, alert.description):
                assert "$value | humanize }}" not in text.replace(NUMBER, ""), alert.name
