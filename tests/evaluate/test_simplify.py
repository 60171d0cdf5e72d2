"""What is not evaluated changes no result: held against a real Prometheus, value by value."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import pytest

from obs.evaluate.explain import reach_ms, take_apart
from obs.evaluate.simplify import always_has, can_give, simplified
from obs.prom.remote_write import make_labels
from obs.prom.server import PrivatePrometheus

T0 = 1_796_000_000_000


@pytest.mark.parametrize(
    ("expr", "gives"),
    [
        ("a", True), ("x", False), ("rate(x[5m])", False), ("a or x", True), ("x or x", False), ("x unless a", False),
        ("a unless x", True), ("a and x", False), ("a / x", False), ("1 - x", False), ("sum(x) > 0", False),
        ("absent(x)", True), ("vector(1)", True), ("time()", True), ("a * scalar(x)", True), ("topk(1, x)", False),
        ('{__name__=~"a|x"}', True), ('{__name__=~"x.*"}', False), ('{job="j"}', True), ("max_over_time(sum(x)[1h:1m])", False),
        ("absent_over_time(x[5m])", True), ("-x", False), ("count_values(\"v\", x)", False),
    ],
)  # fmt: skip
def test_what_can_give_something(expr: str, gives: bool) -> None:
    assert can_give(take_apart(expr), {"a", "b"}) is gives


@pytest.mark.parametrize(
    ("expr", "wanted"),
    [
        ("a or x", "a"),
        ("x or a", "a"),
        ("x or y or a or z", "a"),
        ("a unless on (job) x", "a"),
        ("x unless a", "x unless a"),
        ("sum(a or on (job) x) > 1", "sum(a) > 1"),
        ("(a or x) / (b or y)", "(a) / (b)"),
        ("b and (a > 0 unless x)", "b and (a > 0)"),
        ("a or b unless x", "a or b"),
        ("a or absent(x)", "a or absent(x)"),
        ("max_over_time((a or x)[1h:1m])", "max_over_time((a)[1h:1m])"),
        ("label_replace(a or x, \"b\", \"$1\", \"c\", \"(x or .*)\")", "label_replace(a, \"b\", \"$1\", \"c\", \"(x or .*)\")"),
    ],
)
def test_what_can_only_be_empty_goes(expr: str, wanted: str) -> None:
    assert simplified(expr, {"a", "b"}) == wanted


def test_a_label_is_copied_after_the_sum_where_that_is_the_same() -> None:
    expr = 'sum by (le, model) (label_replace(rate(a{m!=""}[5m]), "model", "$1", "m", "(.+)"))'
    asked = []

    def copies(selector: str, label: str, new: str) -> bool:
        asked.append((selector, label, new))
        return True

    assert simplified(expr, {"a"}, copies) == (
        'sum by (le, model) (label_replace(sum by (le, m) (rate(a{m!=""}[5m])), "model", "$1", "m", "(.+)"))'
    )
    assert asked == [('a{m!=""}', "m", "model")]
    assert simplified(expr, {"a"}) == expr  # nobody says that it is the same
    for other in (
        expr.replace("sum by", "count by"),
        expr.replace("(.+)", "(.*)"),
        expr.replace("sum by (le, model)", "sum by (le)"),
        expr.replace("sum by (le, model)", "sum without (le)"),
        expr.replace("rate(a", "topk(1, a").replace("[5m]", ""),
        expr.replace("le, model", "instance, model"),
    ):
        assert simplified(other, {"a"}, copies) == other
    assert always_has('a{m!=""}', "m")
    assert always_has('a{m="x"}', "m")
    assert not always_has('a{m=~".*"}', "m")
    assert not always_has("a", "m")


def test_how_far_back_what_is_around_one_another() -> None:
    assert reach_ms("rate(x[5m] offset 1h) / avg_over_time(y[2h])") == 7_200_000
    assert reach_ms("avg_over_time(rate(x[5m])[1h:1m] offset 1d)") == (86_400 + 3600 + 300) * 1000
    only_x = lambda selector: selector.startswith("x")  # noqa: E731
    assert reach_ms("rate(x[5m]) > 1 and y offset 7d", only_x) == 300_000
    assert reach_ms("y offset 7d", only_x) == 0


@pytest.fixture(scope="module")
def server() -> Iterator[PrivatePrometheus]:
    with PrivatePrometheus() as own:
        times = range(T0, T0 + 3_600_000, 60_000)
        own.writer.write_series(
            (
                make_labels([("__name__", name), ("instance", str(pod)), ("m", f"m{pod % 3}"), ("le", le), ("job", "j")]),
                times,
                array("d", (index * (pod + 1.1) * (0.1 + len(le)) for index in range(len(times)))),
            )
            for name in ("a", "b") for pod in range(9) for le in ("1", "+Inf")
        )
        yield own


@pytest.mark.parametrize("op", ["sum", "min", "max", "group", "avg"])
@pytest.mark.parametrize("inner", ['rate(a{m!=""}[5m])', 'a{m!="",le="1"}', 'a{m!="m1"} offset 5m'])
def test_the_same_values(server: PrivatePrometheus, op: str, inner: str) -> None:
    expr = f'{op} by (le, model, job) (label_replace({inner} or x, "model", "$1", "m", "(.+)"))'
    new = simplified(expr, {"a", "b"}, lambda *unused: True)
    assert new != expr
    assert " or x" not in new
    asked = [server.client.ask_packed(text, T0, T0 + 3_540_000, 60_000) for text in (expr, new)]
    one, two = ({series.labels: (series.runs, list(series.values or ())) for series in answer.series} for answer in asked)
    assert one.keys() == two.keys()
    assert one
    for labels, (runs, values) in one.items():
        assert two[labels][0] == runs
        # Prometheus adds in an order of its own, another one each time
        assert two[labels][1] == pytest.approx(values, rel=1e-12)
