"""Replays on a real Prometheus: known timelines of the two recordings, and small worlds for each rule of play."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from obs.alerts.registry import all_groups
from obs.cli import replay as cli
from obs.config import load_config
from obs.errors import InputError, ToolError
from obs.evaluate import explain, recording, rules
from obs.evaluate.replay import Timeline, replay
from obs.evaluate.rules import Rule, duration_ms, in_order, load_rule_files
from obs.model.rule import Alert, Group, NoData
from obs.model.rule import Recording as RecordingRule

pytestmark = pytest.mark.prometheus

T0 = 1_796_022_960_000
RECORDINGS = Path(__file__).parent.parent / "data" / "recordings"
QUEUE = "rate(nv_inference_queue_duration_us[20s]) / 1e6 / (rate(nv_inference_request_success[20s]) > 0)"


def folder(path: Path, bodies: dict[int, str]) -> Path:
    """A recording with a body at each second after T0."""
    path.mkdir()
    for second, body in bodies.items():
        (path / f"{T0 + second * 1000}.prom").write_text(body)
    return path


def firing(timeline: Timeline, alert: str, label: str = "instance") -> dict[str, list[tuple[int, int]]]:
    """Per value of a label, (from, to) of each firing span in seconds after the start."""
    start = timeline.start_ms
    return {
        dict(one.labels)[label]: [
            ((span.start_ms - start) // 1000, (span.end_ms - start) // 1000) for span in one.firing()
        ]
        for one in timeline.of(alert)
    }


@pytest.fixture(scope="module")
def triton() -> Timeline:
    rules = [
        Rule("alert", "Down", "up == 0", {"severity": "critical"}),
        Rule("alert", "QueueSlow", "model:queue:mean > 0.1", {"m": "{{ $labels.model }}"}),
        Rule("alert", "QueueSlowFor", "model:queue:mean > 0.1", hold_ms=10_000),
        Rule("record", "model:queue:mean", QUEUE),  # after its reader: the order must not matter
        Rule("alert", "Gone", "(nv_inference_count offset 20s) unless nv_inference_count"),
        Rule("alert", "Never", "up > 2"),
        Rule("alert", "Blind", "vllm:num_requests_waiting > 0"),
    ]
    return replay(recording.read(RECORDINGS / "triton-2.51-incident.tar.gz"), rules)


def test_triton_down_in_the_kill_window_only(triton: Timeline) -> None:
    # killed at +495 s, five scrapes fail from +500 s, back at +525.029 s: seen by the evaluation at +530 s
    assert firing(triton, "Down") == {"recording:0": [(500, 530)]}


def test_triton_queue_in_the_overload_only(triton: Timeline) -> None:
    ((model, ((start, end),)),) = firing(triton, "QueueSlow", "model").items()
    assert model == "doubler"
    assert 120 < start <= 130  # overload starts at +120 s: within two intervals
    assert 300 <= end <= 320  # it ends at +300 s, and the window is 20 s
    (one,) = triton.of("QueueSlow")
    assert dict(one.labels)["m"] == "doubler"
    ((_, ((late, _),)),) = firing(triton, "QueueSlowFor", "model").items()
    assert late == start + 10
    (one,) = triton.of("QueueSlowFor")
    assert [span.state for span in one.spans] == ["pending", "firing"]


def test_triton_vanished_series_are_gone_at_once(triton: Timeline) -> None:
    gone = firing(triton, "Gone", "model")
    assert gone["tokens"][0][0] == 455  # unloaded at +450 s: the next scrape lacks it
    assert gone["doubler"][0][0] == 500  # only with the server


def test_triton_quiet_and_blind_are_told_apart(triton: Timeline) -> None:
    assert triton.of("Never") == triton.of("Blind") == ()
    assert triton.dead == (("Blind", ("vllm:num_requests_waiting",)),)
    assert triton.alerts == ("Down", "QueueSlow", "QueueSlowFor", "Gone", "Never", "Blind")


def test_vllm_saturation_and_the_end() -> None:
    rules = [
        Rule("alert", "Down", "up == 0"),
        Rule("alert", "Kv", "vllm:kv_cache_usage_perc > 0.9 and vllm:num_requests_waiting > 5", hold_ms=10_000),
        Rule("record", "tokens", "vllm:generation_tokens_total"),
        Rule("alert", "Rate", "abs(rate(tokens[150s]) - 1172.5) < 10"),
    ]
    one = recording.read(RECORDINGS / "vllm-0.32-incident.tar.gz")
    assert firing(replay(one, rules), "Down") == {}
    found = replay(one, rules, end_ms=one.end_ms + 35_000)
    assert firing(found, "Down") == {"recording:0": [(445, 475)]}
    ((start, end),) = firing(found, "Kv")["recording:0"]
    assert 90 < start <= 120
    assert 270 <= end <= 290
    # the README's truth: 1,172.5 tokens/s over the 150 s up to +265 s
    assert any(start <= 265 < end for start, end in firing(found, "Rate")["recording:0"])


def test_same_input_same_output(triton: Timeline) -> None:
    one = recording.read(RECORDINGS / "triton-2.51-incident.tar.gz")
    rules = [Rule("alert", "Busy", "nv_inference_pending_request_count > 0")]
    assert replay(one, rules) == replay(one, rules)


def test_gaps_in_a_recording_rule_are_gaps_for_its_readers(tmp_path: Path) -> None:
    """Written back without a stale marker, hot:x would linger for five minutes and Hot fire to the end."""
    values = [0, 5, 5, 0, 0, 5, 0, 0]
    one = recording.read(folder(tmp_path / "r", {step * 5: f"x {value}\n" for step, value in enumerate(values)}))
    rules = [Rule("record", "hot:x", "x > 1", {"a": "b"}), Rule("alert", "Hot", 'hot:x{a="b"}')]
    assert firing(replay(one, rules), "Hot") == {"recording:0": [(5, 15), (25, 30)]}


def test_nan_is_an_element_but_breaks_no_threshold(tmp_path: Path) -> None:
    one = recording.read(folder(tmp_path / "r", {0: "x Nan\n", 5: "x Nan\n"}))
    found = replay(one, [Rule("alert", "There", "x"), Rule("alert", "High", "x > 0"), Rule("alert", "Low", "x <= 0")])
    assert firing(found, "There") == {"recording:0": [(0, 5)]}
    assert firing(found, "High") == firing(found, "Low") == {}


def test_the_packs_own_groups(tmp_path: Path) -> None:
    one = recording.read(folder(tmp_path / "r", {0: "x 5\n", 5: "x 5\n", 10: "x 5\n"}))
    alert = Alert("Hot", "r:x > 1", "5s", "warning", "s", "d", NoData("silent", "w"), labels={"team": "t"})
    record = RecordingRule("r:x", "x", "h")
    (late,) = replay(one, [Group("g", "stem", "h", (alert, record))]).instances
    assert late.spans[0].start_ms == T0 + 5000  # at its turn at T0 the rule behind it had recorded nothing
    (instance,) = replay(one, [Group("g", "stem", "h", (record, alert))]).instances
    assert instance.labels == (
        ("alertname", "Hot"), ("instance", "recording:0"), ("job", "r"), ("severity", "warning"), ("team", "t"),
    )  # fmt: skip
    assert instance.state_at(T0) == "pending"
    assert instance.state_at(T0 + 5000) == "firing"
    assert instance.state_at(T0 + 50_000) == "inactive"


def test_several_recordings_side_by_side(tmp_path: Path) -> None:
    one = recording.read(folder(tmp_path / "one", {0: "x 1\n", 5: "x 1\n"}))
    two = recording.read(folder(tmp_path / "two", {0: "x 1\n", 5: "x 1\n", 10: "x 1\n"}))
    found = replay([one, two], [Rule("alert", "Down", "up == 0")])
    assert firing(found, "Down", "job") == {"one": [(10, 10)]}


def test_rules_that_cannot_be_evaluated(tmp_path: Path) -> None:
    one = recording.read(folder(tmp_path / "r", {0: 'x{a="1"} 1\nx{a="2"} 1\n', 5: 'x{a="1"} 1\nx{a="2"} 1\n'}))
    with pytest.raises(InputError, match=r"^f\.yaml:3: Bad cannot be evaluated: .*parse error"):
        replay(one, [Rule("alert", "Bad", "x >", where="f.yaml:3")])
    with pytest.raises(InputError, match=r"Many cannot be evaluated: .*many-to-many"):
        replay(one, [Rule("alert", "Many", "x / on(job) x")])
    with pytest.raises(InputError, match="Same gives two results with the same labels"):
        replay(one, [Rule("alert", "Same", "x", {"a": "same"})])
    with pytest.raises(InputError, match="have no alert"):
        replay(one, [Rule("record", "a:b", "x")])
    with pytest.raises(InputError, match="is not after the first scrape"):
        replay(one, [Rule("alert", "A", "x")], end_ms=T0)


def test_missing_prometheus_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMETHEUS", "/bin/false")
    one = recording.read(folder(tmp_path / "r", {0: "x 1\n", 5: "x 1\n"}))
    with pytest.raises(ToolError, match="PROMETHEUS at a real binary"):
        replay(one, [Rule("alert", "A", "x")])


def test_order_of_rules() -> None:
    a, b, c = Rule("record", "a", "b + 1"), Rule("record", "b", "rate(c[5m])"), Rule("record", "c", "x")
    alert = Rule("alert", "A", "a")
    assert in_order([alert, a, b, c]) == [c, b, a, alert]
    with pytest.raises(InputError, match="in a circle: a, b"):
        in_order([Rule("record", "a", "b"), Rule("record", "b", "a")])
    with pytest.raises(InputError, match="A reads ALERTS, which a replay does not make"):
        in_order([Rule("alert", "A", "count(ALERTS) > 3")])


@pytest.mark.parametrize(
    ("text", "ms"), [("", 0), ("0", 0), ("500ms", 500), ("5m", 300_000), ("1h30m", 5_400_000), ("1d2s", 86_402_000)]
)
def test_durations(text: str, ms: int) -> None:
    assert duration_ms(text, "f") == ms


@pytest.mark.parametrize("text", ["5", "5x", "m", "-5m", "5s5m", "1.5m"])
def test_no_durations(text: str) -> None:
    with pytest.raises(InputError, match="is no Prometheus duration"):
        duration_ms(text, "f")


RULES = """\
groups:
- name: g
  rules:
  - alert: Down
    expr: up == 0
    for: 5s
    keep_firing_for: 10s
    labels: {severity: critical}
  - record: a:b
    expr: sum(x)
"""


def test_rule_files(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(RULES)
    down, record = load_rule_files([tmp_path / "*.yaml"])
    assert (down.kind, down.name, down.hold_ms, down.keep_ms) == ("alert", "Down", 5000, 10_000)
    assert (down.labels, down.where) == ({"severity": "critical"}, f"{path}:4")
    assert (record.kind, record.name, record.expr) == ("record", "a:b", "sum(x)")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("for: 5s", "for: 5", "r.yaml:4: '5' is no Prometheus duration"),
        ("expr: sum(x)", "", "r.yaml:9: a rule needs `expr`"),
        ("groups:", "group:", "r.yaml: is no Prometheus rule file"),
        ("critical", "'{{ query \"x\" }}'", "r.yaml:4: label severity has the template"),
        ("rules:", "rules: [", "is not valid YAML"),
    ],
)
def test_wrong_rule_files(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(RULES.replace(old, new))
    with pytest.raises(InputError) as caught:
        load_rule_files([path])
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_rule_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="names no file"):
        load_rule_files([tmp_path / "*.yaml"])
    (tmp_path / "r.yaml").write_text("groups: []\n")
    with pytest.raises(InputError, match="no rule in there"):
        load_rule_files([tmp_path / "r.yaml"])


def command(*words: object) -> int:
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser)
    return cli.run(parser.parse_args([str(word) for word in words]))


def test_command_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "r.yaml").write_text(RULES + "  - {alert: Never, expr: up > 2}\n  - {alert: Blind, expr: nope}\n")
    assert command(RECORDINGS / "triton-2.51-incident.tar.gz", "--rules", tmp_path / "r.yaml", "--blind") == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out  # not a terminal
    assert "▼ queue overload (doubler)" in out  # the phases file beside the recording is found
    (strip,) = [line for line in out.splitlines() if line.startswith("Down")]
    assert strip.index("·") < strip.index("█") < strip.rindex("·")
    assert "+8m20s  +8m25s  pending  server killed" in out
    assert "+8m25s  +9m00s  firing" in out  # up again at +8m50s, kept for 10 s
    assert "never active: Never" in out
    assert "blind: Blind: they read series that this recording has not" in out
    assert "  Blind reads nope" in out


def test_command_for_machines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "r.yaml").write_text(RULES)
    words = ["--rules", tmp_path / "r.yaml", "--job", "t", "--end", "+35s", "--interval", "1s", "--format", "json"]
    assert command(RECORDINGS / "vllm-0.32-incident.tar.gz", *words) == 0
    out = json.loads(capsys.readouterr().out)
    (one,) = out["instances"]
    assert one["labels"] == {"alertname": "Down", "instance": "recording:0", "job": "t", "severity": "critical"}
    assert [span["state"] for span in one["spans"]] == ["pending", "firing"]
    assert one["spans"][0]["from"] == pytest.approx(1796024146.191)
    assert (out["interval"], out["phases"][0]) == (1.0, {"from": 1796023701.0, "name": "light"})


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--end", "soon"], "--end 'soon' is no unix time"),
        (["--end", "+soon"], "--end: 'soon' is no Prometheus duration"),
        (["--interval", "5"], "--interval: '5' is no Prometheus duration"),
        (["--interval", "0"], "--interval 0 evaluates nothing"),
        (["--phases", "nope.yaml"], "nope.yaml: cannot be read"),
    ],
)
def test_wrong_arguments(tmp_path: Path, words: list[str], said: str) -> None:
    (tmp_path / "r.yaml").write_text(RULES)
    with pytest.raises(InputError) as caught:
        command(RECORDINGS / "vllm-0.32-incident.tar.gz", "--rules", tmp_path / "r.yaml", *words)
    assert str(caught.value).startswith(said)


def test_the_default_pack_is_in_order_and_expands() -> None:
    """The sidecar's rules read, of engines, what they record themselves under another `engine`: that is no circle."""
    pack = rules.from_groups(all_groups(load_config(None)))
    ordered = rules.in_order(pack)
    place = {id(rule): number for number, rule in enumerate(ordered)}
    for reader in ordered:
        for maker in ordered:
            if maker.kind == "record" and maker is not reader and rules.reads(reader, maker):
                assert place[id(maker)] < place[id(reader)], (reader.where, maker.where)
    by_name = explain.by_name([rule for rule in pack if rule.kind == "record"])
    kept = {rule.name: explain.expand(rule.expr, by_name, "30s").kept for rule in pack if rule.kind == "alert"}
    assert not {name: why for name, why in kept.items() if why}


def test_a_rule_may_read_what_others_record_under_its_name() -> None:
    own = rules.Rule("record", "m:x:sum", 'sum(a) unless m:x:sum{by="other"}', {"by": "me"})
    other = rules.Rule("record", "m:x:sum", "sum(b)", {"by": "other"})
    assert rules.in_order([own, other]) == [other, own]
    with pytest.raises(InputError, match="in a circle"):
        rules.in_order([rules.Rule("record", "m:x:sum", 'm:x:sum{by=~"me|you"} + 1', {"by": "me"})])
