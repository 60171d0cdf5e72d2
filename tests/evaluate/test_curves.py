from __future__ import annotations

import math

from obs.evaluate.curves import curves, thinned
from obs.evaluate.replay import Instance, Timeline
from obs.evaluate.rules import Rule
from obs.evaluate.state import Span
from obs.prom.client import Series
from obs.prom.remote_write import Labels, make_labels

TIMES = range(0, 30_001, 10_000)


def series(labels: dict[str, str], *values: float) -> Series:
    return Series(make_labels(labels.items()), tuple((10.0 * place, value) for place, value in enumerate(values)))


def rule(expr: str, **labels: str) -> Rule:
    return Rule("alert", "A", expr, {"severity": "page", **labels})


def timeline(*labels: dict[str, str], firing: int = 20_000) -> Timeline:
    instances = tuple(
        Instance("A", make_labels({"alertname": "A", "severity": "page", **one}.items()), (
            Span(0, 5_000, "pending"), Span(5_000, firing - 1000 * place, "firing"),
        ))
        for place, one in enumerate(labels)
    )
    return Timeline("r", "", 0, 30_000, 10_000, ("A",), instances, ())


class Server:
    """Answers what it was told to; a question that it was not told of fails the test."""

    def __init__(self, **answers: object) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def __call__(self, expr: str, start: int, end: int, step: int) -> list[Series]:
        assert (start, end, step) == (0, 30_000, 10_000)
        self.asked.append(expr)
        return self.answers[expr]  # type: ignore[return-value]


def short(labels: Labels) -> dict[str, str]:
    return {name: value for name, value in labels if name not in {"alertname", "severity"}}


def test_value_and_scalar_threshold_per_instance() -> None:
    server = Server(**{
        "a": [series({"__name__": "a", "m": "x"}, 1, 2, 9, 9), series({"__name__": "a", "m": "y"}, 0, 0, 0, 8)],
        "5": [series({}, 5, 5, 5, 5)],
    })
    x, y = curves(server, [rule("a > 5 and on (m) b > 0")], timeline({"m": "x"}, {"m": "y"}), TIMES)
    assert (short(x.labels), short(y.labels)) == ({"m": "x"}, {"m": "y"})
    assert x.points == ((0, 1), (10_000, 2), (20_000, 9), (30_000, 9))
    assert (x.op, x.threshold) == (">", ((0, 5.0), (30_000, 5.0)))
    assert server.asked == ["a", "5"]  # each once, however many instances


def test_a_threshold_that_is_a_series_of_its_own() -> None:
    server = Server(**{
        "a": [series({"m": "x", "i": "1"}, 1, 1, 1, 1)],
        "0.5 * b": [series({"m": "x"}, 2, 3, 4, 5), series({"m": "y"}, 9, 9, 9, 9)],
    })
    (one,) = curves(server, [rule("a < on (m) 0.5 * b")], timeline({"m": "x", "i": "1"}), TIMES)
    assert (one.op, one.threshold) == ("<", ((0, 2), (10_000, 3), (20_000, 4), (30_000, 5)))


def test_a_number_on_the_left_is_the_threshold_all_the_same() -> None:
    server = Server(a=[series({"m": "x"}, 1, 2, 3, 4)], **{"5": [series({}, 5, 5, 5, 5)]})
    (one,) = curves(server, [rule("5 < a")], timeline({"m": "x"}), TIMES)
    assert (one.op, one.threshold[0][1]) == (">", 5.0)


def test_of_an_or_the_comparison_that_has_the_instance() -> None:
    server = Server(**{
        'a{m!="x"}': [series({"m": "y"}, 1, 1, 1, 1)], 'a{m="x"}': [series({"m": "x"}, 3, 3, 3, 4)],
        "5": [series({}, 5, 5, 5, 5)], "2": [series({}, 2, 2, 2, 2)],
    })
    (one,) = curves(server, [rule('(a{m!="x"} > 5) or (a{m="x"} > 2)')], timeline({"m": "x"}), TIMES)
    assert one.points[-1] == (30_000, 4)
    assert one.threshold == ((0, 2.0), (30_000, 2.0))


def test_an_alert_that_compares_nothing_is_drawn_whole() -> None:
    server = Server(**{"absent(a)": [series({"job": "j"}, 1, 1, 1, 1)]})
    (one,) = curves(server, [rule("absent(a)")], timeline({"job": "j"}), TIMES)
    assert (one.op, one.threshold) == ("", ())


def test_of_rules_of_one_name_the_one_whose_labels_the_instance_has() -> None:
    server = Server(a=[series({"m": "x"}, 9, 9, 9, 9)], **{"5": [series({}, 5, 5, 5, 5)]})
    found = curves(
        server, [rule("b > 1", tier="gold"), rule("a > 5", tier="tin")], timeline({"m": "x", "tier": "tin"}), TIMES
    )
    assert len(found) == 1
    assert "b" not in server.asked


def test_the_number_of_instances_is_bounded_and_those_that_fired_longest_stay() -> None:
    labels = [{"m": str(place)} for place in range(10)]
    server = Server(a=[series(one, 9, 9, 9, 9) for one in labels], **{"5": [series({}, 5, 5, 5, 5)]})
    found = curves(server, [rule("a > 5")], timeline(*labels), TIMES, max_instances=3)
    assert [short(one.labels)["m"] for one in found] == ["0", "1", "2"]


def test_thinned_keeps_the_lowest_and_highest_of_each_slice() -> None:
    points = tuple((at, float(at % 7)) for at in range(10_000))
    spike = (*points[:5_000], (5_000, 99.0), *points[5_001:])
    dip = (*spike[:7_001], (7_001, -99.0), *spike[7_002:])
    kept = thinned(dip, 100)
    assert len(kept) <= 100
    assert (5_000, 99.0) in kept
    assert (7_001, -99.0) in kept
    assert kept == tuple(sorted(kept))
    assert thinned(points[:50], 100) == points[:50]


def test_a_constant_line_keeps_its_ends_unless_it_has_a_gap() -> None:
    flat = tuple((at, 5.0) for at in range(0, 100, 10))
    assert thinned(flat, 600) == (flat[0], flat[-1])
    gap = (*flat[:3], *flat[6:])
    assert thinned(gap, 600) == gap


def test_nan_is_never_chosen_over_a_number() -> None:
    points = tuple((at, math.nan if at % 2 else float(at)) for at in range(1000))
    assert not any(math.isnan(value) for _, value in thinned(points, 10))
