from __future__ import annotations

import pytest

from obs.prom.metric_names import Selector, may_read, selectors


def test_selectors_of_every_shape() -> None:
    found = selectors(
        'sum(rate({__name__=~"foo.*", x="y"}[5m])) / a:b offset 5m unless max_over_time(c{d!="e"}[5m:1m])'
    )
    assert found == (
        Selector("", "foo.*", (("x", "y"),), (("x", "=", "y"),)), Selector("a:b"), Selector("c", matchers=(("d", "!=", "e"),))
    )


def test_unparsable() -> None:
    assert selectors("x >") is None


@pytest.mark.parametrize(
    ("expr", "metric", "expected"),
    [
        ("rate(a:b[5m])", "a:b", True),
        ("rate(a:bc[5m])", "a:b", False),
        ('label_replace(x, "a:b", "", "", "")', "a:b", False),
        ('{__name__=~"a:.*"}', "a:b", True),
        ('{__name__="a:b"}', "a:b", True),
        ("some_function_of_the_future(a:b)", "a:b", True),
        ('some_function_of_the_future("a:b")', "a:b", False),
    ],
)
def test_may_read(expr: str, metric: str, expected: bool) -> None:
    assert may_read(expr, metric) is expected


@pytest.mark.parametrize(("expr", "expected"), [
    ("a", True), ('a{e="x"}', True), ('a{e="y"}', False), ('a{e!="x"}', False), ('a{e=~"x|z"}', True), ('a{e!~"x|z"}', False),
    ('a{other="y"}', True), ('a{e="y"} or a{e="x"}', True),
])
def test_labels_that_are_known_decide(expr: str, expected: bool) -> None:
    assert may_read(expr, "a", {"e": "x"}) is expected
