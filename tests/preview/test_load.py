"""Dashboards' JSON: rows, places, and what is none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from obs.errors import InputError
from obs.preview.load import parse


def board(panels: list[dict[str, Any]], **more: Any) -> Any:
    return parse(json.dumps({"title": "t", "panels": panels, **more}), "t.json", "t")


def panel(title: str, y: int, **more: Any) -> dict[str, Any]:
    return {"type": "stat", "title": title, "gridPos": {"x": 0, "y": y, "w": 6, "h": 4}, **more}


def test_open_rows_hold_what_follows_and_collapsed_rows_what_is_inside() -> None:
    found = board([
        panel("a", 0), {"type": "row", "title": "one"}, panel("b", 5), {"type": "row", "title": "two", "collapsed": True,
        "panels": [panel("c", 11)]}, panel("d", 20),
    ])
    assert [(row.title, row.collapsed, [p.title for p in row.panels]) for row in found.rows] == [
        ("", False, ["a"]), ("one", False, ["b"]), ("two", True, ["c"]), ("", False, ["d"])]
    assert {p.grid.y for p in found.panels} == {0}  # counted from the top of each row
    assert found.rows[0].height == 4


def test_hidden_queries_are_left_out_and_both_kinds_are_a_range() -> None:
    found = board([panel("a", 0, targets=[{"refId": "A", "expr": "x", "hide": True},
                                          {"refId": "B", "expr": "y", "instant": True, "range": True}])])
    assert [(t.ref, t.instant) for t in found.panels[0].targets] == [("B", False)]


def test_a_panel_wider_than_the_grid_is_kept_inside() -> None:
    found = board([panel("a", 0, gridPos={"x": 20, "y": 0, "w": 40, "h": 4})])
    assert (found.panels[0].grid.x, found.panels[0].grid.width) == (0, 24)


def test_as_grafanas_api_wraps_it() -> None:
    found = parse(json.dumps({"dashboard": {"title": "t", "panels": [panel("a", 0)]}, "meta": {}}), "t.json", "t")
    assert found.title == "t"


@pytest.mark.parametrize(("text", "said"), [
    ('{"panels": [', "t.json:1:13: is no JSON"),
    ("[1, 2]", "no dashboard but a JSON list"),
    ("{}", "has no `panels`"),
    ('{"panels": []}', "has no panel"),
    ('{"panels": {"a": 1}}', "has no `panels`"),
    ('{"rows": [{"panels": []}]}', "before 5"),
    ('{"kind": "Dashboard", "spec": {"elements": {}}}', "v2 schema"),
    ('{"panels": [3]}', "no sound dashboard"),
    ('{"panels": [{"gridPos": {"w": "wide"}}]}', "no sound dashboard"),
    ('{"panels": [{"gridPos": {"w": Infinity}}]}', "no sound dashboard"),
    ('{"panels": [{"type": "stat"}], "templating": {"list": [{"type": "query"}]}}', "no sound dashboard"),
])
def test_what_is_no_dashboard_is_refused_in_one_line(text: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        parse(text, "t.json", "t")
    assert said in str(error.value)
    assert str(error.value).startswith("t.json")
    assert "\n" not in str(error.value)
