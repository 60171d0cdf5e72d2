"""Rules that a server lacks, evaluated once into a private Prometheus: the same answers as with the rules put in."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from obs.alerts.registry import all_groups
from obs.config import load_config
from obs.evaluate import explain, live, questions, recording, standin
from obs.evaluate.live import Evaluation, as_json, evaluate
from obs.evaluate.rules import Rule, from_groups
from obs.prom.client import Client
from obs.prom.remote_write import STALE_NAN, Point, make_labels
from obs.prom.server import PrivatePrometheus

RECORDINGS = Path(__file__).parent.parent / "data" / "recordings"
T0 = 1_796_022_960  # unix seconds, a multiple of 60
END = T0 + 7200


def series(name: str, values: dict[int, float], **labels: str) -> list[Point]:
    pairs = make_labels({"__name__": name, "job": "j", **labels}.items())
    return [Point((T0 + at) * 1000, pairs, value) for at, value in values.items()]


def world() -> list[Point]:
    every = range(0, 7201, 15)
    points = series("up", dict.fromkeys(every, 1.0), instance="a") + series("up", dict.fromkeys(every, 0.0), instance="b")
    points += series("served", {at: at * 2.0 for at in every}, instance="a", model="m")
    points += series("served", {at: at * 0.5 for at in every if at < 5000}, instance="b", model="m")
    points += series("served", {5000: STALE_NAN}, instance="b", model="m")
    points += series("waiting", {at: 9.0 if at >= 6300 else 1.0 for at in every}, instance="a", model="m")
    points += series("waiting", {at: float(at % 70) for at in every}, instance="b", model="n")
    points += series("full", {at: 1.0 for at in every if at >= 900}, instance="a", model="m")
    return sorted(points, key=lambda point: point.time_ms)


RULES = [
    Rule("record", "i:served:rate", "sum by (job, instance, model) (rate(served[5m]))"),
    Rule("record", "m:served:rate", "sum by (job, model) (i:served:rate)"),
    Rule("record", "m:waiting:max", "max by (job, model) (waiting)", {"engine": "e"}),
    Rule("record", "m:waiting:max", "max by (job, model) (waiting) * 100", {"engine": "f"}),
    Rule("record", "m:waiting:smooth", 'avg_over_time(m:waiting:max{engine="e"}[10m])'),
    Rule("record", "i:alive:group", "group by (job, instance) (served) and on (job, instance) i:served:rate"),
    Rule("alert", "Slow", "m:served:rate < 2.2", hold_ms=600_000),
    Rule("alert", "SlowLater", "m:served:rate < 2.2 and m:served:rate offset 1h > 2.2", hold_ms=60_000),
    Rule("alert", "Waits", 'm:waiting:max{engine="e"} > 5', hold_ms=300_000),
    Rule("alert", "WaitsLong", 'm:waiting:max{engine="e"} > 5', hold_ms=3_600_000),
    Rule("alert", "Smooth", "m:waiting:smooth > 8"),
    Rule("alert", "Vanished", "present_over_time(i:served:rate[1h]) unless i:served:rate", keep_ms=600_000),
    Rule("alert", "Flaps", "changes(m:waiting:max[10m]) > 5 and on (job) max_over_time(m:waiting:max[15m] offset 15m) > 3"),
    Rule("alert", "DownAndAlive", "up == 0 and on (job, instance) present_over_time(i:alive:group[2h])"),
    Rule("alert", "UpButGone", "up == 1 unless on (job, instance) i:alive:group"),
    Rule("alert", "Always", "i:alive:group == 1"),
    Rule("alert", "Never", "m:served:rate > 1000"),
    Rule("alert", "Raw", "full > 5"),
    Rule("alert", "Subquery", "max_over_time(m:served:rate[30m:1m]) > 2"),
    Rule("alert", "Elsewhere", 'm:waiting:max{engine="none"} > 1'),
]


@pytest.fixture(scope="module")
def server() -> Iterator[PrivatePrometheus]:
    with PrivatePrometheus() as running:
        running.writer.write(world())
        yield running


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether a stand-in was used, of each evaluation that began one."""
    found: list[bool] = []
    whole = live._Run._stood_in

    def noted(self: Any, *args: Any) -> Any:
        result = whole(self, *args)
        found.append(result is not None)
        return result

    monkeypatch.setattr(live._Run, "_stood_in", noted)
    return found


def both(client: Client, rules: list[Rule], at: float, interval: float = 30, **more: Any) -> tuple[Evaluation, Evaluation]:
    """An evaluation with the rules put in, and one with the stand-in."""
    patch = pytest.MonkeyPatch()
    with patch.context() as on:
        on.setattr(live, "_WORTH", 10**6)
        plain = evaluate(client, rules, at=at, interval=interval, **more)
        on.setattr(live, "_WORTH", 1)
        return plain, evaluate(client, rules, at=at, interval=interval, **more)


def told(found: Evaluation) -> list[dict[str, Any]]:
    """What is said, without which of several equal series it is said of."""
    alerts = as_json(found)["alerts"]
    return [{key: value for key, value in one.items() if key not in {"why", "series"}} for one in alerts]


@pytest.mark.prometheus
@pytest.mark.parametrize("at", [END, END - 900, END - 1830, T0 + 600, T0 + 30])
def test_it_says_what_the_server_says_with_the_rules_put_in(server: PrivatePrometheus, used: list[bool], at: float) -> None:
    plain, stood = both(server.client, RULES, at)
    assert told(stood) == told(plain)
    assert used == [True]
    if at == END:
        states = {one.alert: one.state for one in stood.results}
        assert set(states.values()) >= {"firing", "pending", "ok"}, states
        since = {one.alert: one.instances[0].active_since for one in stood.results if one.instances}
        assert since["WaitsLong"] == T0 + 6300  # further back than its state needs


@pytest.mark.prometheus
def test_between_two_evaluations_only_ranges_can_differ(server: PrivatePrometheus, used: list[bool]) -> None:
    plain, stood = both(server.client, RULES, END - 17)
    differing = [one.alert for one, two in zip(stood.results, plain.results, strict=True) if one.state != two.state]
    assert differing == []
    exact = [one.alert for one in stood.results if not one.sampled]
    ours, theirs = ([one for one in told(which) if one["alert"] in exact] for which in (stood, plain))
    assert ours == theirs
    assert any("every 30s before" in note for note in stood.notes)
    assert not any("every 30s before" in note for note in plain.notes)


@pytest.mark.prometheus
def test_each_rule_is_asked_of_the_server_once(server: PrivatePrometheus, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    whole = Client._exchange

    def noted(self: Client, path: str, form: Any) -> Any:
        if self.url == server.url and form:
            asked.append(form["query"])
        return whole(self, path, form)

    monkeypatch.setattr(Client, "_exchange", noted)
    quiet = [rule for rule in RULES if rule.kind == "record" or rule.name in {"Never", "Smooth", "Elsewhere"}]
    both(server.client, quiet, T0 + 3600)
    put_in = sum(text.count("rate(served[5m])") for text in asked)
    asked.clear()
    with monkeypatch.context() as on:
        on.setattr(live, "_WORTH", 1)
        evaluate(server.client, quiet, at=T0 + 3600)
    assert sum(text.count("rate(served[5m])") for text in asked) == 1 < put_in


@pytest.mark.prometheus
def test_the_pack_on_a_recording(used: list[bool]) -> None:
    rules = from_groups(all_groups(load_config(RECORDINGS / "triton.obs.yaml")))
    one = recording.read(RECORDINGS / "triton-2.51-incident.tar.gz")
    at = 1796023200
    with PrivatePrometheus() as bare:
        bare.writer.write(one.points(end_ms=at * 1000))
        plain, stood = both(bare.client, rules, at, interval=5)
    assert used == [True]
    assert told(stood) == told(plain)


@pytest.mark.prometheus
def test_what_cannot_be_had_here_is_asked_of_the_server(
    server: PrivatePrometheus, used: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    clash = Rule("record", "x:clash:max", "label_replace(waiting, 'instance', 'same', '', '') * on (job) served")
    plain, stood = both(server.client, [*RULES, clash, Rule("alert", "Clash", "x:clash:max > 1")], END)
    assert told(stood) == told(plain)
    assert stood.results[-1].state == "error"
    limited = [dataclasses.replace(rule, limit=5) if rule.name == "i:served:rate" else rule for rule in RULES]
    assert both(server.client, limited, END)[1].results[0].state == "firing"
    version = Client.version
    monkeypatch.setattr(Client, "version", lambda self: "3.1.0" if self.url == server.url else version(self))
    plain, stood = both(server.client, RULES, END)
    assert told(stood) == told(plain)
    assert used == [False, False, False]


@pytest.mark.prometheus
def test_a_partial_answer_is_not_taken_in(
    server: PrivatePrometheus, used: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Client.ask_packed
    monkeypatch.setattr(
        Client, "ask_packed",
        lambda self, *args, **more: dataclasses.replace(whole(self, *args, **more), warnings=("store x is away",)),
    )
    both(server.client, RULES, END)
    assert used == [False]


@pytest.mark.parametrize(
    ("expr", "read"),
    [
        ("a > 1", {("a", 0, 0)}),
        ("a offset 10m + rate(b[5m])", {("a", 600_000, 600_000), ("b", 0, 300_000)}),
        ('avg_over_time(a{x="[1h]"}[5m] offset 1h) / on (y) a', {("a", 3_600_000, 3_900_000), ("a", 0, 0)}),
    ],
)
def test_how_far_an_expression_looks(expr: str, read: set[tuple[str, int, int]]) -> None:
    assert set(standin.looks(expr)) == read


@pytest.mark.parametrize("expr", ["a @ 5", "a offset -5m", "max_over_time(a[5m:1m])", '{job="x"}', "a +"])
def test_a_look_that_cannot_be_told(expr: str) -> None:
    with pytest.raises(standin.DiffersError):
        standin.looks(expr)


def test_renamed() -> None:
    expr = 'sum by (a) (rate(a{a="a"}[5m])) + b offset 5m unless on (b) c'
    assert explain.renamed(expr, {"a", "b"}, "x_") == 'sum by (a) (rate(x_a{a="a"}[5m])) + x_b offset 5m unless on (b) c'


def test_the_same_question_of_several_metrics_is_one() -> None:
    texts = ["count(a)", "count(b)", 'count(c{x="1"})', "topk(1, (\na\n))"]
    texts += ['topk(1, (\nb{x="1"}\n))', 'topk(1, (\nc{x="1"}\n))', "a"]
    found = {one.text: dict(one.queries) for one in questions._by_name([(text, text) for text in texts])}
    assert found == {
        'count by (__name__) ({__name__=~"a|b"})': {"a": "count(a)", "b": "count(b)"},
        'topk by (__name__) (1, {__name__=~"b|c",x="1"})': {"b": texts[4], "c": texts[5]},
        'count(c{x="1"})': {"": texts[2]}, "topk(1, (\na\n))": {"": texts[3]}, "a": {"": "a"},
    }  # fmt: skip
