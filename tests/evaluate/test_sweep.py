from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from obs.alerts.registry import all_groups
from obs.config import parse_config
from obs.errors import ConfigError, InputError
from obs.evaluate.history import History
from obs.evaluate.outages import Target
from obs.evaluate.replay import Instance, Timeline
from obs.evaluate.rules import Rule, from_groups, needed
from obs.evaluate.state import Span
from obs.evaluate.sweep import STEPS, Spec, check, parse_spec, sweep, values, with_threshold
from obs.prom.remote_write import make_labels

CONFIG = parse_config("models: {slow: {queue_time: 2s}}\n")
PACK = from_groups(all_groups(CONFIG))


def test_specs() -> None:
    assert parse_spec("A.threshold=50ms..500ms") == Spec("A", "threshold", "50ms", "500ms", STEPS)
    assert parse_spec("A.for=1m..15m/4") == Spec("A", "for", "1m", "15m", 4)
    assert parse_spec("A.limits.kv_usage=0.5..0.95").key == "limits.kv_usage"
    assert parse_spec("A.threshold=-5..1e3").low == "-5"


@pytest.mark.parametrize("text", ["A", "A.for", "A.for=1m", "=1..2", "A.for=1m..", "A.for=1m..2m/x", "A=1..2"])
def test_no_specs(text: str) -> None:
    with pytest.raises(InputError, match=r"is no sweep; write Alert\.threshold="):
        parse_spec(text)


def test_a_sweep_has_2_to_50_values() -> None:
    for count in (1, 51):
        with pytest.raises(InputError, match="ask for 2 to 50"):
            parse_spec(f"A.for=1m..2m/{count}")


def span(text: str, quantity: str = "any") -> list[float]:
    return values(parse_spec(f"A.threshold={text}"), quantity)


def test_values() -> None:
    assert span("50ms..800ms/5", "duration") == [0.05, 0.1, 0.2, 0.4, 0.8]  # geometric
    assert span("1m..16m/5", "duration") == [60, 120, 240, 480, 960]
    assert span("0s..60s/4", "duration") == [0, 20, 40, 60]  # from 0 there is no factor
    assert span("1..1000/4") == [1, 10, 100, 1000]  # a decade or more: geometric
    assert span("5..20/4") == [5, 10, 15, 20]
    assert span("-10..10/3") == [-10, 0, 10]
    assert span("50%..90%/3") == [0.5, 0.7, 0.9]
    assert span("10ms..40ms/3") == [0.01, 0.02, 0.04]  # of a rule file: seconds
    assert span("1.234567..2/2") == [1.234567, 2]  # the ends stay as given


@pytest.mark.parametrize(
    ("text", "quantity", "said"),
    [
        ("5..5", "any", "5 is not below 5"), ("9..5", "any", "9 is not below 5"), ("a..b", "any", "'a' is not a number"),
        ("5..10", "duration", "'5' is not a duration"), ("nan..5", "any", "'nan' is not a number"),
    ],
)
def test_no_values(text: str, quantity: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        span(text, quantity)


@pytest.mark.parametrize(
    ("expr", "wanted"),
    [
        ("a > 5", "a > 7"),
        ("5 < a", "7 < a"),
        ("a > -5", "a > 7"),
        ("a{x=\"5\"} / 5 >= 5", "a{x=\"5\"} / 5 >= 7"),
        ("(a > (5))", "(a > (7))"),
        ("rate(b[5m]) > 5 # not 5\nand on (m) c > 5", "rate(b[5m]) > 7 # not 5\nand on (m) c > 5"),
        ("# 5\na > 5", "# 5\na > 7"),
        ("(a > 5 and c > 1)\nor\n(b > 5 unless d == 5)", "(a > 7 and c > 1)\nor\n(b > 7 unless d == 5)"),
        ("a > 5 or 5 < b", "a > 7 or 7 < b"),
    ],
)
def test_the_number_of_the_deciding_comparison_is_replaced_in_the_authors_text(expr: str, wanted: str) -> None:
    assert with_threshold(expr, 7.0) == wanted


@pytest.mark.parametrize("expr", ["a", "absent(a)", "a > b", "a unless b > 5", "sum(a > 5)", "a > 2 * 5"])
def test_an_expression_without_such_a_number_is_refused(expr: str) -> None:
    with pytest.raises(ValueError, match=r"no number|cannot be told"):
        with_threshold(expr, 7.0)


def alert(name: str, expr: str, **more: object) -> Rule:
    return replace(Rule("alert", name, expr, where=f"f.yaml:{name}"), **more)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("InferenceQueueTimeHihg.threshold=1..2", "no such alert among these rules; did you mean 'InferenceQueueTimeHigh'"),
        ("InferenceQueueTimeHigh.treshold=50ms..1s", "has no such number; did you mean 'threshold'"),
        ("InferenceQueueTimeHigh.threshold=50..500", "'50' is not a duration"),
        ("InferenceTargetDown.limits.kv_usage=0.1..0.2", "InferenceTargetDown"),
    ],
)
def test_wrong_sweeps_of_the_pack_are_refused_before_anything_is_evaluated(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        check(parse_spec(text), PACK, CONFIG)


def test_a_value_beyond_what_obs_yaml_allows_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"slo.queue_time: 2h is out of range; write a value from 1ms to 1h"):
        check(parse_spec("InferenceQueueTimeHigh.threshold=1s..2h"), PACK, CONFIG)


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ([alert("A", "a > b")], "f.yaml:A: A compares its value with no number"),
        ([alert("A", "a > 5 or b > 6")], r"f.yaml:A: A has several thresholds \(5, 6\)"),
        ([alert("A", "a > 5"), alert("A", "a > 6")], r"2 rules of that name have different thresholds \(5, 6\)"),
    ],
)
def test_wrong_sweeps_of_rule_files(rules: list[Rule], said: str) -> None:
    with pytest.raises(InputError, match=said):
        check(parse_spec("A.threshold=1..2"), rules)
    with pytest.raises(InputError, match=r"a rule file has no 'limits.kv_usage'"):
        check(parse_spec("A.limits.kv_usage=0.1..0.2"), rules)


def test_needed() -> None:
    def record(name: str, expr: str) -> Rule:
        return Rule("record", name, expr)

    rules = [record("a", "x"), record("b", "rate(a[1m])"), record("c", "x"), alert("A", "b > 1")]
    assert [rule.name for rule in needed([rules[-1]], rules[:-1])] == ["a", "b"]


class Stub:
    """Stands for an evaluation: an alert whose number is below 5 fires from 100 s to 200 s, and notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[list[Rule]] = []

    def __call__(self, rules: Sequence[Rule]) -> tuple[History, Sequence[Target]]:
        self.asked.append(list(rules))
        alerts = [rule for rule in rules if rule.kind == "alert"]
        instances = tuple(
            Instance(
                rule.name, make_labels({"alertname": rule.name, "m": "x"}.items()), (Span(100_000, 200_000, "firing"),)
            )
            for rule in alerts if float(rule.expr.rsplit(" ", 1)[1]) < 5
        )
        return History(Timeline("r", "", 0, 300_000, 5_000, tuple(rule.name for rule in alerts), instances, ())), ()


def test_all_values_are_evaluated_in_one_go_and_the_one_in_use_is_among_them() -> None:
    run = Stub()
    rules = [Rule("record", "r", "x"), Rule("record", "unread", "x"), alert("A", "r > 4.5"), alert("B", "r > 1")]
    found = sweep(parse_spec("A.threshold=2..8/3"), rules, run)
    assert [(point.value, point.text, point.current, point.score.episodes) for point in found.points] == [
        (2.0, "2", False, 1), (4.5, "4.5", True, 1), (5.0, "5", False, 0), (8.0, "8", False, 0),
    ]
    assert {point.score.alert for point in found.points} == {"A"}
    (asked,) = run.asked
    assert [rule.name for rule in asked if rule.kind == "record"] == ["r"]
    assert [rule.expr for rule in asked if rule.kind == "alert"] == ["r > 2", "r > 4.5", "r > 5", "r > 8"]
    assert found.of == "r > 4.5"


def test_a_limit_of_the_pack_is_rendered_by_the_packs_own_code_for_every_model() -> None:
    seen: list[list[Rule]] = []

    def run(rules: Sequence[Rule]) -> tuple[History, Sequence[Target]]:
        seen.append(list(rules))
        names = tuple(rule.name for rule in rules if rule.kind == "alert")
        return History(Timeline("r", "", 0, 1, 1, names, (), ())), ()

    found = sweep(parse_spec("InferenceQueueTimeHigh.threshold=50ms..200ms/2"), PACK, run, config=CONFIG)
    assert found.of == "slo.queue_time"
    assert found.notes[0] == "models with an objective of their own (slow 2s) are swept with the others"
    assert [point.text for point in found.points] == ["50ms", "200ms"]  # two thresholds are in use: neither is marked
    (asked,) = seen
    low, high = (rule.expr for rule in asked if rule.kind == "alert")
    assert low.count("> 0.05") == 2
    assert high.count("> 0.2") == 2
    assert "slow" in low
    assert low.replace("> 0.05", "> 0.2") == high


def test_values_whose_recording_rules_differ_are_evaluated_apart() -> None:
    seen: list[list[Rule]] = []

    def run(rules: Sequence[Rule]) -> tuple[History, Sequence[Target]]:
        seen.append(list(rules))
        names = tuple(rule.name for rule in rules if rule.kind == "alert")
        return History(Timeline("r", "", 0, 1, 1, names, (), ())), ()

    sweep(parse_spec("InferenceTrafficDrop.windows.baseline=30m..2h/2"), PACK, run, config=CONFIG)
    assert len(seen) == 3  # 30m, 1h (in use), 2h: the baseline is recorded
    assert any("[30m]" in rule.expr for rule in seen[0] if rule.kind == "record")
    seen.clear()
    sweep(parse_spec("InferencePendingRequestsGrowing.windows.growth=5m..20m/3"), PACK, run, config=CONFIG)
    assert len(seen) == 1  # only the alert reads it


def test_for_is_swept_on_any_rule() -> None:
    run = Stub()
    found = sweep(parse_spec("A.for=0s..20s/3"), [alert("A", "a > 1", hold_ms=5_000)], run)
    assert [rule.hold_ms for rule in run.asked[0]] == [0, 5_000, 10_000, 20_000]
    assert [(point.text, point.current) for point in found.points] == [
        ("0s", False), ("5s", True), ("10s", False), ("20s", False),
    ]
