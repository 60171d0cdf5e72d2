"""`obs.evaluate.live` on real Prometheus servers: each state, each reason for no data, with and without deployed rules."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from obs.alerts.registry import all_groups
from obs.config import load_config, parse_config
from obs.errors import InputError, ServerError
from obs.evaluate import explain, live, recording, replay
from obs.evaluate.live import Result, as_json, evaluate, evaluate_recording
from obs.evaluate.rules import Rule, from_groups
from obs.prom.client import Client, Sample
from obs.prom.remote_write import STALE_NAN, Point, make_labels
from obs.prom.server import PrivatePrometheus
from obs.render.prometheus import rule_files

RECORDINGS = Path(__file__).parent.parent / "data" / "recordings"
T0 = 1_796_022_960  # unix seconds, a multiple of 15
END = T0 + 1800

pytestmark = pytest.mark.prometheus


def series(name: str, values: dict[int, float], **labels: str) -> list[Point]:
    """A series from its values by second after T0."""
    pairs = make_labels({"__name__": name, "job": "j", "instance": "a:1", **labels}.items())
    return [Point((T0 + at) * 1000, pairs, value) for at, value in values.items()]


def steady(name: str, value: float, start: int = 0, end: int = 1800, **labels: str) -> list[Point]:
    return series(name, dict.fromkeys(range(start, end + 1, 15), value), **labels)


def world() -> list[Point]:
    points = steady("up", 1.0) + steady("up", 1.0, 0, 900, instance="b:1")
    points += series("up", dict.fromkeys(range(915, 1801, 15), 0.0), instance="b:1")
    points += steady("queue", 0.5, model="slow") + steady("queue", 0.02, model="fast")
    points += series("load", {at: (9.0 if at >= 1500 else 1.0) for at in range(0, 1801, 15)}, model="m")
    points += series("requests_total", {at: at * 2.0 for at in range(0, 1801, 15)}, model="busy")
    points += series("requests_total", {at: at * 0.001 for at in range(0, 1801, 15)}, model="lazy")
    points += steady("quantile", math.nan, model="idle")
    points += steady("gone", 7.0, 0, 600) + series("gone", {615: STALE_NAN})
    points += steady("of_b", 7.0, 0, 900, instance="b:1") + series("of_b", {915: STALE_NAN}, instance="b:1")
    points += steady("nv_inference_request_success", 5.0, model="m", version="1")
    points += steady("nv_inference_queue_duration_us", 5.0, model="m", version="1")
    points += steady("env", 1.0, env="dev")
    points += series("flap", {at: 1.0 for at in range(0, 1801, 15) if at % 300 < 200})
    return sorted(points, key=lambda point: point.time_ms)


@pytest.fixture(scope="module")
def server() -> Iterator[PrivatePrometheus]:
    with PrivatePrometheus() as running:
        running.writer.write(world())
        yield running


def judged(server: PrivatePrometheus, expr: str, hold: int = 0, keep: int = 0, at: float = END, **more: object) -> Result:
    rule = Rule("alert", "A", expr, {"severity": "warning"}, hold * 1000, keep * 1000)
    return evaluate(server.client, [rule], at=at, interval=15, **more).results[0]  # type: ignore[arg-type]


def test_firing_with_value_beside_threshold(server: PrivatePrometheus) -> None:
    found = judged(server, "load > 5 and queue{model='slow'} * 0 + 1 > 0", 0)
    assert (found.state, found.reason) == ("ok", None)  # the models differ: both sides have series, none in common
    found = judged(server, "load > 5", 120)
    assert found.state == "firing"
    (one,) = found.instances
    assert dict(one.labels) == {"alertname": "A", "severity": "warning", "job": "j", "instance": "a:1", "model": "m"}
    assert (one.value, one.op, one.threshold, one.exact) == (9.0, ">", 5.0, True)
    assert (one.active_since, one.since) == (T0 + 1500, T0 + 1620)
    assert found.since == T0 + 1620
    assert found.part == "load > 5"


def test_pending_and_since_when(server: PrivatePrometheus) -> None:
    found = judged(server, "load > 5", 600)
    assert (found.state, found.since) == ("pending", T0 + 1500)
    long = judged(server, "queue > 0.1", 600)
    assert (long.state, long.instances[0].since) == ("firing", T0 + 600)  # found by looking further back
    assert judged(server, "queue > 0.1", 0, at=T0 + 30).instances[0].since == T0


def test_kept_firing(server: PrivatePrometheus) -> None:
    found = judged(server, "gone > 5", 0, 300, at=T0 + 700)
    assert found.state == "firing"
    assert found.instances[0].value is None
    assert "keep_firing_for" in found.why
    assert judged(server, "gone > 5", 0, 300, at=T0 + 1000).state == "no data"


def test_a_threshold_that_is_a_vector(server: PrivatePrometheus) -> None:
    found = judged(server, "load > on (model) (load offset 10m) * 3")
    assert (found.state, found.instances[0].value, found.instances[0].threshold) == ("firing", 9.0, 3.0)


def test_a_threshold_per_model(server: PrivatePrometheus) -> None:
    found = judged(server, 'queue{model="fast"} > 1 or queue{model="slow"} > 0.25')
    assert (found.state, found.instances[0].threshold) == ("firing", 0.25)
    assert found.part == 'queue{model="slow"} > 0.25'


def test_ok_names_the_nearest_series(server: PrivatePrometheus) -> None:
    found = judged(server, "queue > 0.9")
    assert (found.state, found.value, found.op, found.threshold) == ("ok", 0.5, ">", 0.9)
    assert dict(found.labels)["model"] == "slow"
    assert judged(server, "queue < 0.001").value == 0.02
    assert judged(server, "0.9 < queue").threshold == 0.9
    assert judged(server, "absent(queue)").state == "ok"


def test_which_side_decides(server: PrivatePrometheus) -> None:
    found = judged(server, "load > 5 and on (job) queue > 2")
    assert (found.state, found.side, found.part) == ("ok", "right", "queue > 2")
    assert found.why.startswith("load is 9")
    found = judged(server, "load > 5 unless on (job) queue > 0.1")
    assert (found.state, found.side, found.part) == ("ok", "right", "queue > 0.1")
    found = judged(server, "load > 50 and on (job) queue > 2")
    assert (found.state, found.side, found.part) == ("ok", "left", "load > 50")
    found = judged(server, "load > 5 and on (job) gone > 2")
    assert (found.state, found.side, found.part) == ("no data", "right", "gone")


@pytest.mark.parametrize(
    ("expr", "reason", "says"),
    [
        ("never_seen > 1", "metric never existed", "never_seen never existed here"),
        ("queeue > 1", "metric never existed", "did you mean queue?"),
        ("gone > 1", "vanished", "2026-11-30T07:26:00Z (20m ago); its target a:1 is up"),
        ("of_b > 1", "target down", "its target b:1 is down since its last sample at 2026-11-30T07:31:00Z"),
        ('env{env="prod"} > 0', "label missing", 'no series of env has env="prod"; it has dev'),
        ('env{zone="x"} > 0', "label missing", "no series of env has the label zone"),
        ("quantile > 1", "NaN only", "NaN only"),
        ('queue / on (job) (sum by (job) (rate(requests_total{model="lazy"}[5m])) > 0.1) > 2', "traffic floor", "0.001"),
        ("queue > 0.1 and on (job) sum by (job) (rate(requests_total[5m])) > 100", "traffic floor", "too little traffic"),
        ("load < 0.5 * (load offset 1d)", "no history", "load has no samples that old yet"),
        ("load > queue", "labels do not match", "no pair has equal labels"),
        ("sum(rate(gone[5m])) > 0", "vanished", "gone vanished"),
    ],
)
def test_no_data_and_why(server: PrivatePrometheus, expr: str, reason: str, says: str) -> None:
    found = judged(server, expr)
    assert (found.state, found.reason) == ("no data", reason), found.why
    assert says in found.why
    assert "\n" not in found.why


@pytest.mark.parametrize(
    ("expr", "says"),
    [
        ("vllm:num_requests_waiting > 0", "this server has nothing of vLLM"),
        ('nv_inference_queue_summary_us{quantile="0.99"} > 5', "only with --metrics-config summary_latencies=true"),
        ("nv_inference_pending_request_count > 5", "since Triton Inference Server 23.09: this server is older"),
        ("rate(nv_inference_request_duration_us_bucket[5m]) > 5", "no engine that we know serves"),
        ("queue > 0.1 and on (job) vllm:num_requests_running > 0", "vllm:num_requests_running: this server has noth"),
        ("made:by_nobody:rate > 0", "made:by_nobody:rate"),
    ],
)
def test_dead_and_why(server: PrivatePrometheus, expr: str, says: str) -> None:
    live_now = says.startswith("made:")  # known only where the server lists its rules
    found = judged(server, expr, at=None if live_now else END)  # type: ignore[arg-type]
    assert found.state == "dead", (found.state, found.why)
    assert says in found.why


def test_a_renamed_metric_is_dead(server: PrivatePrometheus) -> None:
    points = steady("vllm:kv_cache_usage_perc", 0.5, model_name="m", engine="0")
    with PrivatePrometheus() as other:
        other.writer.write(points)
        found = judged(other, "vllm:gpu_cache_usage_perc > 0.9")
    assert found.state == "dead"
    assert "is called vllm:kv_cache_usage_perc on this server" in found.why


def test_error_is_one_alert_only(server: PrivatePrometheus) -> None:
    rules = [
        Rule("alert", "Fine", "queue > 0.1"),
        Rule("alert", "Broken", "queue > "),
        Rule("alert", "ManyToMany", "queue * on (job) load"),
        Rule("alert", "Also", "queue > 0.9"),
    ]
    found = {one.alert: one for one in evaluate(server.client, rules, at=END).results}
    assert {name: one.state for name, one in found.items()} == {
        "Fine": "firing", "Broken": "error", "ManyToMany": "error", "Also": "ok",
    }
    assert "unexpected end of input" in found["Broken"].why


def test_an_empty_server_is_an_error_and_no_alert_an_input_error(server: PrivatePrometheus) -> None:
    with PrivatePrometheus() as empty, pytest.raises(ServerError, match=r"holds no series .* tenant"):
        judged(empty, "x > 1")
    with pytest.raises(InputError, match="no alerting rule"):
        evaluate(server.client, [Rule("record", "a:b", "queue")])


def test_a_server_in_its_first_second_has_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its samples are younger than the full second that is looked at elsewhere."""
    with PrivatePrometheus() as young:
        young.writer.write([Point(T0 * 1000 + 100, make_labels([("__name__", "queue"), ("job", "j")]), 0.5)])
        whole = Client.query
        now = T0 + 0.2
        monkeypatch.setattr(
            Client, "query", lambda self, expr, at=None: [Sample((), now, now)] if expr == "time()" else whole(self, expr, at)
        )
        found = evaluate(young.client, [Rule("alert", "A", "queue > 0.1"), Rule("alert", "B", "queue > 1")])
    assert ([one.state for one in found.results], found.at) == (["firing", "ok"], now)


def test_the_json_has_no_nan(server: PrivatePrometheus) -> None:
    rules = [Rule("alert", "Nan", "quantile"), Rule("alert", "Ok", "queue > 1"), Rule("alert", "Inf", "queue / 0 > 1")]
    text = json.dumps(as_json(evaluate(server.client, rules, at=END)), allow_nan=False)
    document = json.loads(text)
    assert [one["state"] for one in document["alerts"]] == ["firing", "ok", "firing"]
    assert document["alerts"][1]["threshold"] == 1
    assert document["at"] == "2026-11-30T07:46:00Z"


# --- recorded series put in place ------------------------------------------------------------------------

RECORDED = [
    Rule("record", "j:queue:max", "max by (job, model) (queue)", {"engine": "e"}),
    Rule("record", "j:load:max", "max by (job, model) (load)", {"engine": "e"}),
    Rule("record", "j:load:max", "max by (job, model) (queue) * 100", {"engine": "f"}),
    Rule("record", "j:load:twice", 'j:load:max{engine="e"} * 2'),
]


@pytest.mark.parametrize(
    ("expr", "values"),
    [
        ("j:queue:max > 0.1", [0.5]),
        ('j:queue:max{model!="slow"}', [0.02]),
        ('j:queue:max{model=~"sl.*"}', [0.5]),
        ('j:load:max{engine="f",model="slow"}', [50.0]),
        ('j:load:max{engine!~"f|g"}', [9.0]),
        ('j:load:max{engine="none"}', []),
        ("j:load:twice > 5", [18.0]),
        ("j:load:twice offset 10m", [2.0]),
        ("max_over_time(j:load:twice[20m])", [18.0]),
        ("min_over_time(j:load:twice[20m])", [2.0]),
        ("max_over_time(j:load:twice[5m] offset 10m)", [2.0]),
        ("max_over_time(j:load:twice[20m:1m])", [18.0]),
        ("sum by (engine) (j:load:max) > 50", [52.0]),
        ('j:queue:max{model="sl.w"}', []),
    ],
)
def test_recorded_series_in_place(server: PrivatePrometheus, expr: str, values: list[float]) -> None:
    expansion = explain.expand(expr, explain.by_name(RECORDED), "15s")
    assert sorted(one.value for one in server.client.query(expansion.text, END)) == values
    assert expansion.replaced
    assert bool(expansion.sampled) == ("offset" in expr or "[20m]" in expr)


def test_what_cannot_be_put_in_place_is_told() -> None:
    assert explain.expand("j:queue:max @ 5 > 1", explain.by_name(RECORDED), "15s").kept[0][0] == "j:queue:max"
    circle = [Rule("record", "a:a", "b:b + 1"), Rule("record", "b:b", "a:a + 1")]
    assert "circle" in explain.expand("a:a", explain.by_name(circle), "15s").kept[0][1]


def test_alerts_on_recorded_series_without_deployed_rules(server: PrivatePrometheus) -> None:
    rules = [*RECORDED, Rule("alert", "A", "avg_over_time(j:load:twice[2m]) > 10"), Rule("alert", "B", "j:queue:max > 3")]
    one, two = evaluate(server.client, rules, at=END, interval=15).results
    assert (one.state, one.instances[0].value, one.sampled) == ("firing", 18.0, ("j:load:twice",))
    assert set(one.in_place) == {"j:load:max", "j:load:twice"}
    assert (two.state, two.value, two.sampled) == ("ok", 0.5, ())


def test_every_part_of_the_pack_is_the_authors_text() -> None:
    for rule in from_groups(all_groups(load_config())):
        parts = list(explain.walk(explain.take_apart(rule.expr)))
        assert [part.text for part in parts if part.kind == "opaque"] == []
        for part in parts:
            if part.kind == "range" and part.parts[0].kind == "selector":
                assert part.text.startswith(part.parts[0].bare)
            elif not part.shifted:
                assert part.text in rule.expr


@pytest.mark.parametrize(
    ("expr", "kind", "op", "texts"),
    [
        ("a + b * c > 1 and d or e", "or", "or", ["a + b * c > 1 and d", "e"]),
        ("a - b - c", "arithmetic", "-", ["a - b", "c"]),
        ("a ^ b ^ c", "arithmetic", "^", ["a", "b ^ c"]),
        ("a > bool b", "arithmetic", ">", ["a", "b"]),
        ("(a) / on (x) group_left () (b)", "arithmetic", "/", ["a", "b"]),
        ("a offset -5m > -1", "compare", ">", ["a offset -5m", "-1"]),
        ('a{x="and b > 1"} # or c\n > 2', "compare", ">", ['a{x="and b > 1"} # or c', "2"]),
        ("sum(a > 1) by (x)", "call", "sum", ["a > 1"]),
        ("quantile by (le) (0.9, rate(a[5m]))", "call", "quantile", ["0.9", "rate(a[5m])"]),
        ("a UNLESS b", "unless", "unless", ["a", "b"]),
    ],
)
def test_taking_apart(expr: str, kind: str, op: str, texts: list[str]) -> None:
    part = explain.take_apart(expr)
    assert (part.kind, part.op, [one.text for one in part.parts]) == (kind, op, texts)


# --- the pack, on servers that run it and not -----------------------------------------------------------------


def test_the_pack_with_and_without_deployed_recordings() -> None:
    """The same instants by recorded series and in place: the same states."""
    config = load_config(RECORDINGS / "triton.obs.yaml")
    rules = from_groups(all_groups(config))
    path = RECORDINGS / "triton-2.51-incident.tar.gz"
    with_them = evaluate_recording(path, rules, at=lambda end: 1796023200 * 1000)
    one = recording.read(path)
    with PrivatePrometheus() as bare:
        bare.writer.write(one.points(end_ms=1796023200 * 1000))
        without = evaluate(bare.client, rules, at=with_them.at, interval=5, deployed=False)
        looked = evaluate(bare.client, rules, at=with_them.at, interval=5)
    states = {one.alert: one.state for one in with_them.results}
    assert {one.alert: one.state for one in looked.results} == {one.alert: one.state for one in without.results}
    differing = {one.alert: (states[one.alert], one.state) for one in without.results if states[one.alert] != one.state}
    assert differing == {}
    assert {"InferenceQueueTimeHigh", "InferenceModelIdle"} <= {one.alert for one in without.of("firing")}
    assert any("computed from their rules" in note for note in looked.notes)


@pytest.mark.parametrize("second", [1796023050, 1796023200, 1796023440, 1796023475, 1796023530])
def test_a_recording_at_any_time_says_what_its_replay_says(second: int) -> None:
    config = load_config(RECORDINGS / "triton.obs.yaml")
    path = RECORDINGS / "triton-2.51-incident.tar.gz"
    found = evaluate_recording(path, from_groups(all_groups(config)), at=lambda end: second * 1000)
    timeline = _timeline(path, "triton")
    at_ms = round(found.at * 1000)
    ours = {(one.alert, its.labels): its.state for one in found.results for its in one.instances}
    theirs = {
        (one.alert, one.labels): one.state_at(at_ms) for one in timeline.instances if one.state_at(at_ms) != "inactive"
    }
    assert ours == theirs


_TIMELINES: dict[str, replay.Timeline] = {}


def _timeline(path: Path, config: str) -> replay.Timeline:
    if config not in _TIMELINES:
        groups = all_groups(load_config(RECORDINGS / f"{config}.obs.yaml"))
        _TIMELINES[config] = replay.replay(recording.read(path), groups)
    return _TIMELINES[config]


def test_beside_the_servers_own_rules(tmp_path: Path) -> None:
    """A server that evaluates the pack itself, every second, on series of the last minutes."""
    config = parse_config("engines: [triton]\ninterval: {scrape: 5s, evaluation: 1s}\nwindows: {rate: 20s}\n")
    for path, body in rule_files(all_groups(config), config).items():
        (tmp_path / Path(path).name).write_text(body)
    rules = from_groups(all_groups(config))
    now = int(time.time())
    with PrivatePrometheus(rule_files=sorted(tmp_path.glob("*.yaml")), evaluation_interval="1s") as server:
        points: list[Point] = []
        for at in range(now - 600, now + 300, 5):
            labels = {"job": "j", "instance": "a:1", "model": "m", "version": "1"}
            grown = float(at - now + 600)
            for name, value in (
                ("nv_inference_request_success", grown * 10), ("nv_inference_queue_duration_us", grown * 10 * 300_000),
            ):
                points.append(Point(at * 1000, make_labels([("__name__", name), *labels.items()]), value))
            points.append(Point(at * 1000, make_labels([("__name__", "up"), ("job", "j"), ("instance", "a:1")]), 1.0))
        server.writer.write(sorted(points, key=lambda one: one.time_ms))
        limit = time.monotonic() + 120
        while time.monotonic() < limit:
            loaded = [rule for rule in server.client.rules() if rule.name == "InferenceQueueTimeHigh"]
            # evaluate looks at the last full second: its recorded input must be there by then
            if loaded and loaded[0].state == "pending" and server.client.query("model:queue_time_seconds:mean offset 2s"):
                break
            time.sleep(0.5)
        found = evaluate(server.client, rules)
        (queue,) = [one for one in found.results if one.alert == "InferenceQueueTimeHigh"]
        assert (queue.state, queue.in_place) == ("pending", ()), queue.why
        assert found.compared == len(found.results)
        assert [one for one in found.differences if one.alert == "InferenceQueueTimeHigh"] == []
        changed = [
            dataclasses.replace(rule, expr=rule.expr.replace("> 0.1", "> 9"), hold_ms=60_000)
            if rule.name == "InferenceQueueTimeHigh" else rule
            for rule in rules
        ]
        other = {one.what: one for one in evaluate(server.client, changed).differences if one.alert == "InferenceQueueTimeHigh"}
        assert {"expression", "for"} <= other.keys()
        assert (other["for"].ours, other["for"].theirs) == ("1m", "5m")
        (state,) = [one for what, one in other.items() if what.startswith("state of")]
        assert state.ours == "inactive"
        assert state.theirs.startswith("pending (its last evaluation: ")


def test_queries_come_in_bundles(server: PrivatePrometheus, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    whole = Client.ask
    monkeypatch.setattr(Client, "ask", lambda self, expr, at=None: asked.append(expr) or whole(self, expr, at))
    rules = [Rule("alert", f"A{number}", f"queue > {number}") for number in range(1, 60)]
    assert {one.state for one in evaluate(server.client, rules, at=END).results} == {"ok"}
    assert len(asked) < 40
    assert max(map(len, asked)) < 16_384


def test_warnings_make_a_quiet_alert_an_error(server: PrivatePrometheus, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Client.ask
    monkeypatch.setattr(
        Client, "ask", lambda self, expr, at=None: dataclasses.replace(whole(self, expr, at), warnings=("store x is away",))
    )
    rules = [Rule("alert", "Quiet", "queue > 9"), Rule("alert", "Fires", "queue > 0.1")]
    found = evaluate(server.client, rules, at=END)
    assert [one.state for one in found.results] == ["error", "firing"]
    assert found.results[0].why == "the answer is partial: store x is away"
    assert found.warnings == ("store x is away",)


def test_clock_skew_is_told(server: PrivatePrometheus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "SKEW", -1.0)
    found = evaluate(server.client, [Rule("alert", "A", "up == 0")])
    assert any("clock is" in note for note in found.notes)
