"""obs.yaml: what is accepted, and the one line that each kind of fault gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from obs.catalog.limits import LIMITS
from obs.config import load_config, parse_config, ratio, seconds
from obs.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("slo: {queue_tme: 5ms}", "obs.yaml: slo.queue_tme: unknown key; did you mean 'queue_time'?"),
        ("windws: {}", "obs.yaml: windws: unknown key; did you mean 'windows'?"),
        ("models: {a: {zzz: 3s}}", "obs.yaml: models.a.zzz: unknown key; valid: availability, itl_p99, "
         "latency_objective, latency_p99, llm_latency_p99, llm_queue_time, llm_queue_time_p99, queue_time, "
         "queue_time_p99, ttft_p99"),
        ("alerts: {InferenceQueueTimeHigh: {fr: 3s}}",
         "obs.yaml: alerts.InferenceQueueTimeHigh.fr: unknown key; did you mean 'for'?"),
        ("slo: {queue_time: 100}",
         "obs.yaml: slo.queue_time: 100 has no unit; write a duration such as 100ms, 5m or 1h30m"),
        ("slo: {queue_time: 100 ms}",
         "obs.yaml: slo.queue_time: '100 ms' is not a duration; write one such as 100ms, 5m or 1h30m"),
        ("slo: {queue_time: 10h}",
         "obs.yaml: slo.queue_time: '10h' is out of range; write a value from 1ms to 1h"),
        ("slo: {queue_time: null}",
         "obs.yaml: slo.queue_time: None has no unit; write a duration such as 100ms, 5m or 1h30m"),
        ("limits: {kv_usage: 90}", "obs.yaml: limits.kv_usage: 90 is not a ratio; write 0 to 1 (such as 0.9) or a "
         "percentage (such as 90%)"),
        ("limits: {pending_floor: 20ms}",
         "obs.yaml: limits.pending_floor: '20ms' is not a number; write a plain number without a unit"),
        ("engines: [vlm]", "obs.yaml: engines.0: 'vlm' is not one of its values; did you mean 'vllm'?"),
        ("engines: []", "obs.yaml: engines: names nothing; write at least one, or leave the key out"),
        ("windows: {rate: 10s}",
         "obs.yaml: windows.rate: 10s is shorter than 4 scrapes; write at least 2m or leave it out"),
        ("windows: {stuck: 30s}",
         "obs.yaml: windows.stuck: 30s is shorter than 4 scrapes; write at least 2m or leave it out"),
        ("interval: {scrape: 0s}", "obs.yaml: interval: an interval must be above 0; write one such as 30s"),
        ("labels: {cluster: 'a b'}", "obs.yaml: labels.cluster: 'a b' is not a label name; use letters, digits and _"),
        ("labels: {cluster: x, pod: x}", "obs.yaml: labels: cluster, namespace and pod must be three different labels"),
        ("selectors: {triton: job}",
         "obs.yaml: selectors.triton: 'job' is not a list of matchers; write them such as job=\"triton\",tier=\"prod\""),
        ("models: {a: 3}", "obs.yaml: models.a: 3 is not a mapping of keys; write 'key: value' lines under it"),
        ("ensembles: {a: [a]}", "obs.yaml: ensembles.a: an ensemble cannot be its own step; list only its steps"),
        ("expected_gpus: {triton: 0}", "obs.yaml: expected_gpus.triton: 0 is not a number of GPUs; write 1 or more"),
        ("engines: [trtllm-serve]", "obs.yaml: selectors.trtllm-serve: its metric names have no prefix and clash with "
         "other programs'; name its job, such as 'job=\"trtllm\"'"),
        ("[1, 2]", "obs.yaml: holds a list; write a mapping of keys such as 'engines: [vllm]'"),
        ("a: 1\na: 2", "obs.yaml:2: not valid YAML: key 'a' is given twice; mend the line"),
        ("slo: {queue_time: 1s", "obs.yaml:1: not valid YAML: expected ',' or '}', but got '<stream end>'; mend the line"),
        ("burn_windows: [{long: 1m, short: 5m, factor: 2}]",
         "obs.yaml: burn_windows.0: short must be below long, and factor above 0"),
    ],
)
def test_each_fault_is_one_line_with_file_key_reason_and_mend(text: str, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(text)
    assert str(caught.value) == line


def test_several_faults_are_several_lines() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config("slo: {queue_tme: 5ms}\nlimits: {kv_usage: 90}")
    assert [line.split(": ")[1] for line in str(caught.value).splitlines()] == ["slo.queue_tme", "limits.kv_usage"]


def test_empty_file_gives_the_defaults() -> None:
    assert parse_config("").slo("queue_time") == 0.1
    assert parse_config("# nothing\n").engines == parse_config("").engines


def test_every_limit_can_be_set_and_is_shown_with_its_reason() -> None:
    values = {"duration": "2m", "ratio": "0.6", "number": "7", "factor": "7"}
    low_durations = {limit.path: "500ms" for limit in LIMITS if limit.quantity == "duration" and limit.high < 120}
    sections: dict[str, list[str]] = {}
    for limit in LIMITS:
        value = low_durations.get(limit.path, values[limit.quantity])
        if limit.quantity == "ratio" and not limit.low <= 0.6 <= limit.high:
            value = str(limit.high)
        sections.setdefault(limit.section, []).append(f"  {limit.key}: {value}")
    text = "\n".join(f"{section}:\n" + "\n".join(lines) for section, lines in sections.items())
    shown = {setting.path: setting for setting in parse_config(text, "my.yaml").settings()}
    for limit in LIMITS:
        assert shown[limit.path].origin == "my.yaml"
        assert shown[limit.path].why.startswith(limit.why)


def test_ranges_follow_the_scrape_interval() -> None:
    config = parse_config("interval: {scrape: 2m}")
    assert config.window("rate") == 480
    assert config.hold == 480
    shown = {setting.path: setting for setting in config.settings()}
    assert shown["windows.rate"].value == "8m"
    assert "raised to 4 x interval.scrape" in shown["windows.rate"].why


def test_overrides_of_one_alert_win_over_those_of_all() -> None:
    config = parse_config("alerts: {'*': {for: 10s, severity: info}, A: {severity: critical}, B: {enabled: false}}")
    assert (config.override("A").severity, config.override("A").for_) == ("critical", 10.0)
    assert (config.override("C").severity, config.override("C").for_) == ("info", 10.0)
    assert not config.override("B").enabled


@pytest.mark.parametrize(("text", "value"), [("100ms", 0.1), ("1h30m", 5400.0), ("2.5s", 2.5), ("1w", 604800.0)])
def test_durations(text: str, value: float) -> None:
    assert seconds(text) == pytest.approx(value)


@pytest.mark.parametrize(("given", "value"), [("99.9%", 0.999), (0.5, 0.5), ("5 %", 0.05)])
def test_ratios(given: object, value: float) -> None:
    assert ratio(given) == pytest.approx(value)


def test_unreadable_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.yaml: cannot be read: .*; give a readable YAML file"):
        load_config(tmp_path / "missing.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"binary\.yaml: cannot be read"):
        load_config(tmp_path / "binary.yaml")


def test_obs_yaml_of_the_working_directory_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_config().slo("queue_time") == 0.1
    (tmp_path / "obs.yaml").write_text("slo: {queue_time: 7ms}")
    assert load_config().slo("queue_time") == pytest.approx(0.007)


def test_a_number_is_changed_by_its_path_for_every_model_that_has_its_own() -> None:
    config = parse_config("models: {a: {queue_time: 2s}, b: {latency_p99: 1s}}\nlimits: {kv_usage: 0.8}\n")
    other = config.changed("slo.queue_time", 0.5)
    assert (other.slo("queue_time"), other.model_slos("queue_time")) == (0.5, {"a": 0.5})
    assert other.model_slos("latency_p99") == {"b": 1.0}
    assert (config.slo("queue_time"), config.model_slos("queue_time")) == (0.1, {"a": 2.0})
    assert other.changed("limits.kv_usage", 0.7).limit("kv_usage") == 0.7
    assert config.changed("windows.growth", 600.0).window("growth") == 600.0
    with pytest.raises(ConfigError, match=r"limits.kv_usage: 7 is out of range; write a value from 0.1 to 1"):
        config.changed("limits.kv_usage", 7.0)
    with pytest.raises(ConfigError, match=r"slo.queue_tim: no such number; did you mean 'slo.queue_time'"):
        config.changed("slo.queue_tim", 1.0)


def test_a_default_that_is_no_bucket_bound_of_the_only_llm_engine_is_another() -> None:
    assert parse_config("engines: [sglang, dcgm, sidecar]").slo("ttft_p99") == 2.0
    assert parse_config("engines: [sglang, vllm]").slo("ttft_p99") == parse_config("").slo("ttft_p99") == 2.5
    assert parse_config("engines: [sglang]\nslo: {ttft_p99: 3s}").slo("ttft_p99") == 3.0
    (shown,) = [one for one in parse_config("engines: [sglang]").settings() if one.path == "slo.ttft_p99"]
    assert (shown.value, shown.origin) == ("2s", "default")
    assert "2500ms" in shown.why


@pytest.mark.parametrize(("text", "reason"), [
    ("labels: {cluster: job}", "labels.cluster: 'job' has a meaning of its own"),
    ("labels: {pod: model}", "labels.pod: 'model' has a meaning of its own"),
    ("labels: {namespace: __name__}", "labels.namespace: '__name__' has a meaning"),
    ("extra_labels: {severity: page}", "set it with alerts.<name>.severity"),
    ("extra_labels: {model: x}", "extra_labels.model: 'model' has a meaning"),
    ("alerts: {InferenceTargetDown: {labels: {alertname: x}}}", "'alertname' has a meaning"),
    ("extra_labels: {team: '{{ $labels.model '}", "does not close it"),
    ("runbook_base_url: 'https://x/{{'", "does not close it"),
    ('extra_labels: {team: "a\\nb"}', "control character"),
    ('aliases: {a: "\\ud800"}', "half a character"),
    ("aliases: {a: ''}", "aliases.a: is empty"),
    ("jobs: ['']", "jobs.0: is empty"),
    ("selectors: {vllm: 'a=~\"(\"'}", "illegal regex"),
    ("deploy: {targets: {triton: {job: x}, vllm: {job: x}}}", "is the job of triton and of vllm; give each its own"),
    ("deploy: {targets: {vllm: {job: triton}}}", "deploy.targets.vllm.job: 'triton' is the job of triton"),
    ("deploy: {alertmanager: {group_interval: 0s}}", "Alertmanager refuses it"),
    ("autoscaling: {prometheus: nope, workloads: [{name: a, namespace: x, engine: vllm, max_replicas: 2}]}", "not a URL"),
])
def test_what_a_consumer_would_refuse_is_refused_here_in_one_line(text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as found:
        parse_config(text)
    assert reason in str(found.value)
    assert len(str(found.value).splitlines()) == 1


def test_odd_but_legal_texts_are_taken() -> None:
    text = """
extra_labels: {team: "{{ $labels.model }}: {{ $value | humanize }}", ja: "日本", brace: "}{"}
selectors: {vllm: 'tier=~"a|b.*",x!="ü{}"', triton: '{env="x"}'}
models: {"org/M:latest": {latency_p99: 2s}, "a'b\\"c{{ x }}|d": {queue_time: 1s}}
"""
    assert parse_config(text).extra_labels["team"] == "{{ $labels.model }}: {{ $value | humanize }}"
