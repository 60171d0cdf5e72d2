"""What is not evaluated changes no result: held against a real Prometheus, value by value."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator

import pytest

from obs.evaluate.explain import reach_ms, take_apart
from obs.evaluate.simplify import Asked, always_has, asked, can_give, simplified, without
from obs.prom.packed import Packed
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
    told = []

    def copies(selector: str, label: str, new: str) -> bool:
        told.append((selector, label, new))
        return True

    assert simplified(expr, {"a"}, copies) == (
        'sum by (le, model) (label_replace(sum by (le, m) (rate(a{m!=""}[5m])), "model", "$1", "m", "(.+)"))'
    )
    assert told == [('a{m!=""}', "m", "model")]
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
    answers = [server.client.ask_packed(text, T0, T0 + 3_540_000, 60_000) for text in (expr, new)]
    one, two = ({series.labels: (series.runs, list(series.values or ())) for series in answer.series} for answer in answers)
    assert one.keys() == two.keys()
    assert one
    for labels, (runs, values) in one.items():
        assert two[labels][0] == runs
        # Prometheus adds in an order of its own, another one each time
        assert two[labels][1] == pytest.approx(values, rel=1e-12)


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        # no two series in one group: they are asked for as they are
        ('sum by (instance, le, model) (label_replace(rate(a{m!=""}[5m]), "model", "$1", "m", "(.+)"))', 'rate(a{m!=""}[5m])'),
        ('group by (instance, le, m, z) (label_replace(label_replace(a, "y", "$1", "m", "(.+)"), "z", "$1", "job", "(.+)"))',
         "a"),
        ('max by (instance) (a{le="1"})', 'a{le="1"}'),
        # several
        ('sum by (le, model) (label_replace(rate(a{m!=""}[5m]), "model", "$1", "m", "(.+)"))',
         'sum by (le, m) (rate(a{m!=""}[5m]))'),
        ('max by (instance, model) (label_replace(a, "model", "$1", "m", "(.+)"))', "max by (instance, m) (a)"),
        ("group by (instance) (a) or group by (instance) (x) or\ngroup by (instance) (b)",
         'group by (instance) ({__name__=~"a|x|b"})'),
    ],
)  # fmt: skip
def test_labels_that_are_put_on_the_answer(server: PrivatePrometheus, expr: str, text: str) -> None:
    def apart(selector: str, labels: Collection[str]) -> bool:
        found = [dict(one) for one in server.client.series(selector, start=T0 / 1000, end=T0 / 1000 + 3600)]
        return len({tuple(one.get(label) for label in labels) for one in found}) == len(found) > 0

    way = asked(expr, {"a", "b", "x"}, lambda *unused: True, apart)
    assert way.text == text
    one, two = (server.client.ask_packed(what, T0, T0 + 3_540_000, 60_000).series for what in (expr, way.text))
    put = way.put(two)
    assert put is not None
    assert {series.labels: series.runs for series in put} == {series.labels: series.runs for series in one}
    values = {series.labels: list(series.values or ()) for series in one}
    for series in put:
        assert list(series.values or ()) == pytest.approx(values[series.labels], rel=1e-12)


def test_labels_that_are_not_put_on() -> None:
    copied = 'sum by (instance, m2) (label_replace(a, "m2", "$1", "m", "(.+)"))'
    yes, no = (lambda *unused: True), (lambda *unused: False)
    assert asked(copied, {"a"}, no, yes).text == copied
    assert asked("sum by (m) (a)", {"a"}, yes, yes).text == "sum by (m) (a)"
    assert asked("sum without (m) (a)", {"a"}, yes, yes).text == "sum without (m) (a)"
    assert asked("count by (instance) (a)", {"a"}, yes, yes).text == "count by (instance) (a)"
    assert asked('sum by (instance) ({job="j"})', {"a"}, yes, yes).text == 'sum by (instance) ({job="j"})'
    clash = Asked("a", (("m", "m"),)).put([Packed(make_labels([("m", "1"), ("i", i)]), ((0, 1),)) for i in "ab"])
    assert clash is None
    assert without("a", "m") == 'a{m=""}'
    assert without('a{x="1",}', "m") == 'a{x="1",m=""}'
    for expr in ('group by (i) (a) or group by (j) (b)', 'group by (__name__) (a) or group by (__name__) (b)',
                 'group by (i) (a{x="1"}) or group by (i) (b)', 'group by (i) (a) or on (i) group by (i) (b)'):  # fmt: skip
        assert simplified(expr, {"a", "b"}) == expr
