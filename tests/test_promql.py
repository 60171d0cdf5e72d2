"""The text functions: each result is PromQL that a parser takes, and reads as written."""

from __future__ import annotations

import promql_parser
import pytest

from obs.promql import duration, escape_regex, number, one_of, quote, scaled, selector


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(300, "5m"), (90, "90s"), (0.1, "100ms"), (3600, "1h"), (604800, "1w"), (86400, "1d"), (5400, "90m"), (0, "0s"),
     (1.5, "1500ms")],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(("value", "text"), [(1.0, "1"), (0.1, "0.1"), (1e-6, "1e-06"), (0.999, "0.999")])
def test_number_reads_back(value: float, text: str) -> None:
    assert number(value) == text
    assert float(number(value)) == value


def test_matchers() -> None:
    assert one_of("model", []) == ""
    assert one_of("model", ["a"]) == 'model="a"'
    assert one_of("model", ["b", "a.c"], negate=True) == 'model!~"a\\\\.c|b"'
    assert selector("x", "", 'a="b"', "") == 'x{a="b"}'
    assert selector("x", "") == "x"


@pytest.mark.parametrize("name", ["/models/m", "a.b+c", 'quo"te', "back\\slash", "ünicode", "a|b", "x{y}"])
def test_any_model_name_survives(name: str) -> None:
    expression = promql_parser.parse(selector("up", one_of("model", [name])))
    assert expression.matchers.matchers[0].value == name
    expression = promql_parser.parse(selector("up", one_of("model", [name, "other"])))
    assert escape_regex(name) in expression.matchers.matchers[0].value


def test_quote_escapes() -> None:
    assert quote('a"b\\c\n') == '"a\\"b\\\\c\\n"'


def test_scaled_shows_division() -> None:
    assert scaled("x", 1.0) == "x"
    assert scaled("x", 1e-6) == "x / 1e6"
    assert scaled("x", 1e-3) == "x / 1000"
    assert scaled("x", 1048576.0) == "x * 1048576"
