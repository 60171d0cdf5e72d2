"""Variables, steps and times as Grafana takes them, on a server that answers by the book."""

from __future__ import annotations

import json
from typing import Any

import pytest

from obs.errors import InputError
from obs.preview import query, repeat
from obs.preview.load import Dashboard, Panel, Target, parse
from obs.preview.query import Range
from obs.prom.client import Answer, QueryError, RangeAnswer, Sample, Series

SHOWN = Range(1000.0, 1600.0)


class Fake:
    """Remembers what it is asked; ``values``: label → values, ``down``: refuses every expression."""

    def __init__(self, values: dict[str, list[str]] | None = None, *, down: bool = False) -> None:
        self.values, self.down = values or {}, down
        self.asked: list[tuple[Any, ...]] = []

    def ask(self, expr: str, at: float | None = None) -> Answer:
        self.asked.append((expr, at))
        if self.down:
            raise QueryError("bad expression")
        return Answer((Sample((("__name__", "up"), ("instance", "a:1")), 1600.0, 1.0),))

    def ask_range(self, expr: str, start: float, end: float, step: float) -> RangeAnswer:
        self.asked.append((expr, start, end, step))
        if self.down:
            raise QueryError("bad expression")
        return RangeAnswer((Series((("model", "m"),), ((start, 1.0), (end, 2.0))),))

    def label_values(
        self, name: str, *, start: float | None = None, end: float | None = None, match: str = ""
    ) -> list[str]:
        self.asked.append((name, match))
        if self.down:
            raise QueryError("bad selector")
        return self.values.get(name, [])


def board(*variables: dict[str, Any], panels: list[dict[str, Any]] | None = None) -> Dashboard:
    data = {"title": "t", "panels": panels or [{"type": "stat", "title": "p"}], "templating": {"list": list(variables)}}
    return parse(json.dumps(data), "t.json", "t")


def variable(name: str, text: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": "query", "query": {"query": text}, **more}


MODEL = variable("model", "label_values(up, model)", multi=True, includeAll=True)


@pytest.mark.parametrize(("text", "said"), [
    ("label_values(up, model)", "variable model: bad selector"),
    ("query_result(up)", "variable model: bad expression"),
    ("metrics(up()", "variable model: missing )"),
])
def test_a_variable_that_is_refused_is_a_note_and_the_others_go_on(text: str, said: str) -> None:
    """A model called ``a(b``, put into another variable's selector, is enough."""
    fake = Fake({"__name__": ["up"]}, down=text[0] != "m")
    found = query.resolve(fake, board(variable("model", text), {"name": "by", "type": "custom", "query": "a,b"}), SHOWN, {})
    assert said in found["model"].note
    assert (found["model"].chosen, found["by"].chosen) == ((), ("a",))


def put_in(
    text: str, values: dict[str, list[str]], *variables: dict[str, Any], chosen: dict[str, list[str]] | None = None
) -> str:
    found = query.resolve(Fake(values), board(*variables), SHOWN, chosen or {})
    return query.interpolate(text, found, SHOWN, step=15.0, least=30.0)


def test_grafanas_own_variables() -> None:
    text = "rate(x[$__rate_interval]) + rate(x[${__interval}]) + y[$__range] * $__range_s / $__interval_ms"
    assert put_in(text, {}) == "rate(x[120s]) + rate(x[15s]) + y[600s] * 600 / 15000"


def test_the_rate_interval_is_four_scrapes_or_the_step_and_one() -> None:
    assert query.globals_of(SHOWN, 15.0, 15.0)["__rate_interval"] == "60s"
    assert query.globals_of(SHOWN, 300.0, 15.0)["__rate_interval"] == "315s"


def test_several_values_are_an_alternation_and_one_is_not() -> None:
    values = {"model": ["a", "b.c", "d"]}
    every = MODEL | {"allValue": ".*"}
    assert put_in('x{m=~"$model"}', values, every, chosen={"model": ["All"]}) == 'x{m=~".*"}'
    assert put_in('x{m=~"$model"}', values, MODEL, chosen={"model": ["$__all"]}) == 'x{m=~"(a|b\\\\.c|d)"}'
    assert put_in('x{m=~"$model"}', values, MODEL, chosen={"model": ["a", "d"]}) == 'x{m=~"(a|d)"}'
    assert put_in('x{m=~"[[model]]"}', values, MODEL, chosen={"model": ["b.c"]}) == 'x{m=~"b\\\\.c"}'


def test_a_variable_of_one_value_is_put_in_as_it_is() -> None:
    single = variable("model", "label_values(up, model)")
    assert put_in('x{m="$model"}', {"model": ['it"s \\ a.b']}, single) == 'x{m="it\\"s \\\\ a.b"}'


def test_formats() -> None:
    values, chosen = {"model": ["a.b", "c"]}, {"model": ["a.b", "c"]}
    for form, text in (("regex", r"(a\.b|c)"), ("pipe", "a.b|c"), ("csv", "a.b,c"), ("raw", "a.b,c"), ("text", "a.b + c"),
                       ("json", '["a.b", "c"]'), ("doublequote", '"a.b","c"'), ("glob", "{a.b,c}")):
        assert put_in(f"${{model:{form}}}", values, MODEL, chosen=chosen) == text, form


def test_an_unknown_variable_stays_so_that_the_server_says_so() -> None:
    assert put_in("x[$nothing]", {}) == "x[$nothing]"


def test_each_variable_narrows_the_next() -> None:
    fake = Fake({"job": ["a", "b"], "model": ["m"]})
    query.resolve(fake, board(
        variable("job", "label_values(up, job)", multi=True), variable("model", 'label_values(up{job=~"$job"}, model)'),
    ), SHOWN, {"job": ["b"]})
    assert fake.asked == [("job", "up"), ("model", 'up{job=~"b"}')]


def test_regex_sort_and_query_result() -> None:
    found = query.resolve(Fake({"pod": ["gpu-10", "gpu-9", "cpu-1"]}), board(
        variable("pod", "label_values(pod)", regex="/gpu-(\\d+)/", sort=4),
        variable("target", "query_result(up)", regex='/instance="(?<value>[^"]+)"/'),
    ), SHOWN, {})
    assert found["pod"].options == ("10", "9")
    assert found["target"].options == ("a:1",)


def test_custom_interval_and_constant_variables() -> None:
    found = query.resolve(Fake(), board(
        {"name": "q", "type": "custom", "query": "p50 : 0.5, p99 : 0.99"}, {"name": "w", "type": "interval", "query": "1m,5m"},
        {"name": "c", "type": "constant", "query": "x"},
    ), SHOWN, {"q": ["0.99"]})
    assert [found[name].chosen for name in "qwc"] == [("0.99",), ("1m",), ("x",)]


def test_what_is_not_resolved_is_named() -> None:
    found = query.resolve(Fake(), board(variable("n", "label_names()"), {"name": "f", "type": "adhoc"}), SHOWN, {})
    assert "label_names()" in found["n"].note
    assert "adhoc" in found["f"].note


def test_a_value_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(InputError, match="--var model=typo: t has no such value; it has a, b"):
        put_in("x", {"model": ["a", "b"]}, MODEL, chosen={"model": ["typo"]})
    with pytest.raises(InputError, match="takes one value"):
        put_in("x", {"model": ["a", "b"]}, variable("model", "label_values(model)"), chosen={"model": ["a", "b"]})


@pytest.mark.parametrize(("length", "points", "least", "step"), [
    (600, 460, 5, 5), (600, 460, 30, 30), (10_800, 460, 15, 20), (21_600, 700, 15, 30), (86_400 * 30, 700, 15, 3600),
    (600, 1200, 0, 0.5),
])
def test_steps_are_grafanas(length: float, points: int, least: float, step: float) -> None:
    assert query.step_of(Range(0, length), points, least) == step


def test_ranges_are_aligned_to_the_step_and_instants_are_not() -> None:
    fake = Fake()
    panel = board(panels=[{"type": "timeseries", "title": "p", "interval": "30s"}]).panels[0]
    query.ask_target(fake, panel, Target("A", "x"), {}, Range(1003.0, 1607.0), 460)
    query.ask_target(fake, panel, Target("A", "x", instant=True), {}, Range(1003.0, 1607.0), 460)
    assert fake.asked == [("x", 990.0, 1590.0, 30.0), ("x", 1607.0)]


def test_a_query_that_the_server_refuses_is_an_error_of_its_panel_only() -> None:
    one = board(panels=[{"type": "timeseries", "title": "p", "targets": [{"expr": "x["}]}])
    shown = query.fill(Fake(down=True), one, SHOWN, {}, {})
    assert [filled.errors for filled in shown.panels.values()] == [("bad expression",)]


def test_another_kind_of_data_source_is_named() -> None:
    one = board(panels=[{"type": "timeseries", "title": "p", "datasource": {"type": "loki"}, "targets": [{"expr": "{a=1}"}]}])
    shown = query.fill(Fake(), one, SHOWN, {}, {})
    assert "loki" in next(iter(shown.panels.values())).errors[0]


@pytest.mark.parametrize(("form", "alone", "name"), [
    ("{{model}} {{version}} P99", True, "m  P99"), ("__auto", True, '{model="m"}'), ("", False, 'up{model="m"}'),
    ("{{no}}", True, "up"),
])
def test_legends(form: str, alone: bool, name: str) -> None:
    assert query.legend(form, (("__name__", "up"), ("model", "m")), "up", alone) == name


@pytest.mark.parametrize(("text", "at"), [
    ("now", 1e6), ("now-3h", 1e6 - 10_800), ("now-1d/d", 864_000.0), ("now-1h-30m", 1e6 - 5400), ("yesterday", None),
])
def test_relative_times(text: str, at: float | None) -> None:
    assert query.moment(text, 1e6) == at


# --- repeats ----------------------------------------------------------------------------------------------


def repeated(**more: Any) -> list[Panel]:
    panels = [
        {"type": "row", "title": "r"},
        {"type": "stat", "title": "$model", "repeat": "model", "gridPos": {"x": 0, "y": 1, "w": 24, "h": 4},
         "targets": [{"expr": 'x{m="$model"}'}], **more},
        {"type": "stat", "title": "below", "gridPos": {"x": 0, "y": 5, "w": 24, "h": 4}},
    ]
    one = board(MODEL, panels=panels)
    values = query.resolve(Fake({"model": ["a", "b", "c"]}), one, SHOWN, {"model": ["All"]})
    return list(repeat.expand(one, values).panels)


def test_a_panel_is_repeated_side_by_side_and_pushes_down_what_is_below() -> None:
    found = repeated(maxPerRow=2)
    assert [(p.grid.x, p.grid.y, p.grid.width) for p in found] == [(0, 0, 12), (12, 0, 12), (0, 4, 12), (0, 8, 24)]
    assert [p.scoped.get("model") for p in found] == ["a", "b", "c", None]


def test_a_panel_is_repeated_downwards() -> None:
    assert [(p.grid.x, p.grid.y) for p in repeated(repeatDirection="v")] == [(0, 0), (0, 4), (0, 8), (0, 12)]


def test_each_repeat_asks_for_its_own_value() -> None:
    found = repeated()
    fake = Fake()
    for panel in found[:3]:
        query.ask_target(fake, panel, panel.targets[0], {}, SHOWN, 400)
    assert [asked[0] for asked in fake.asked] == [f'x{{m="{name}"}}' for name in "abc"]
    assert query.words(found[1].title, {}, found[1].scoped) == "b"


def test_a_row_is_repeated_with_its_panels() -> None:
    one = board(MODEL, panels=[
        {"type": "row", "title": "of $model", "repeat": "model", "collapsed": True, "panels": [
            {"type": "stat", "title": "p", "gridPos": {"x": 0, "y": 1, "w": 6, "h": 4}}]}])
    values = query.resolve(Fake({"model": ["a", "b"]}), one, SHOWN, {"model": ["All"]})
    found = repeat.expand(one, values)
    assert [row.title for row in found.rows] == ["of a", "of b"]
    assert [row.panels[0].scoped for row in found.rows] == [{"model": "a"}, {"model": "b"}]
