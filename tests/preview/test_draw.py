"""What each kind of panel draws: gaps stay gaps, no data is never a zero, what is not drawn is named."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any

import pytest

from obs.preview import draw, field, frames, page
from obs.preview.draw import heatmap
from obs.preview.draw.common import Drawn
from obs.preview.load import Panel, Target, parse
from obs.preview.query import Filled, Mark, Range, Result, Series, Shown
from obs.prom.remote_write import make_labels

SHOWN = Range(0.0, 600.0)
NAN = math.nan


def series(name: str, values: Sequence[float | None], ref: str = "A", step: float = 60.0, **labels: str) -> Series:
    """``None``: a point that is missing."""
    points = tuple((place * step, value) for place, value in enumerate(values) if value is not None)
    return Series(ref, name, make_labels(labels.items()), points)


def panel(kind: str, *targets: str, **more: Any) -> Panel:
    data = {"type": kind, "title": "p", "gridPos": {"x": 0, "y": 0, "w": 8, "h": 8},
            "targets": [{"refId": ref, "expr": "x"} for ref in targets or ("A",)], **more}
    return parse(json.dumps({"title": "t", "panels": [data]}), "t", "t").panels[0]


def drawn(one: Panel, *many: Series, step: float = 60.0, marks: Sequence[Mark] = (), error: str = "") -> Drawn:
    results = tuple(
        Result(target, "x", step, tuple(s for s in many if s.ref == target.ref), error) for target in one.targets
    )
    board = parse(json.dumps({"title": "t", "panels": [{"type": "stat"}]}), "t", "t")
    return draw.panel(Filled(one, results), Shown(board, SHOWN, {}, {}, tuple(marks)), page.space(one))


def config(**defaults: Any) -> dict[str, Any]:
    return {"fieldConfig": {"defaults": defaults, "overrides": []}}


# --- time series ------------------------------------------------------------------------------------------


def lines(html: str) -> list[str]:
    return re.findall(r'<path class="line" d="([^"]*)"', html)


def test_a_missing_step_is_a_gap() -> None:
    whole = drawn(panel("timeseries"), series("a", [1, 2, 3, 4]))
    broken = drawn(panel("timeseries"), series("a", [1, 2, None, 4, 5]))
    assert [line.count("M") for line in lines(whole.html) + lines(broken.html)] == [1, 2]


def test_nan_is_a_gap_and_a_lone_point_a_dot() -> None:
    found = drawn(panel("timeseries"), series("a", [1, NAN, 3, NAN, 4, 5]))
    assert lines(found.html)[0].count("M") == 1
    assert found.html.count("<circle") == 2


def test_spanned_gaps_where_the_panel_asks_for_it() -> None:
    found = drawn(panel("timeseries", **config(custom={"spanNulls": True})), series("a", [1, None, 3]))
    assert lines(found.html)[0].count("M") == 1


def test_no_series_says_so_in_the_panels_words() -> None:
    found = drawn(panel("timeseries", **config(noValue="no traffic")))
    assert (found.state, found.count) == ("empty", 0)
    assert "no traffic" in found.html
    assert "<svg" not in found.html
    assert "No data" in drawn(panel("timeseries")).html


def test_the_legend_has_the_values_with_their_unit() -> None:
    options = {"legend": {"displayMode": "table", "calcs": ["lastNotNull", "max", "stdDev"], "showLegend": True}}
    found = drawn(panel("timeseries", options=options, **config(unit="s")), series("a", [0.1, 0.3, 0.2]))
    assert re.findall(r"<th[^>]*>([^<]*)</th>", found.html) == ["Name", "Last *", "Max"]
    assert re.findall(r'<td class="r">([^<]*)</td>', found.html) == ["200 ms", "300 ms"]
    assert "legend value stdDev" in found.notes


def test_overrides_colour_dash_and_hide() -> None:
    one = panel("timeseries", fieldConfig={"defaults": {}, "overrides": [
        {"matcher": {"id": "byRegexp", "options": "/^limit\\b/"}, "properties": [
            {"id": "color", "value": {"mode": "fixed", "fixedColor": "red"}},
            {"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [8, 8]}}]},
        {"matcher": {"id": "byName", "options": "secret"}, "properties": [
            {"id": "custom.hideFrom", "value": {"legend": True, "viz": True}}]}]})
    found = drawn(one, series("limit a", [1, 1]), series("secret", [2, 2]))
    assert 'stroke="var(--red)"' in found.html
    assert 'stroke-dasharray="8 8"' in found.html
    assert "secret" not in found.html


def test_thresholds_are_lines_within_the_axis() -> None:
    steps = {"mode": "absolute", "steps": [{"color": "green", "value": None}, {"color": "red", "value": 0.5},
                                           {"color": "orange", "value": 99}]}
    one = panel("timeseries", **config(min=0, max=1, thresholds=steps, custom={"thresholdsStyle": {"mode": "line"}}))
    assert re.findall(r'class="limit" d="[^"]*" stroke="([^"]*)"', drawn(one, series("a", [0, 1])).html) == ["var(--red)"]
    area = panel("timeseries", **config(min=0, max=1, thresholds=steps, custom={"thresholdsStyle": {"mode": "area"}}))
    assert drawn(area, series("a", [0, 1])).html.count('opacity=".12"') == 2


def test_stacked_series_stand_upon_each_other() -> None:
    one = panel("timeseries", **config(min=0, custom={"stacking": {"mode": "normal", "group": "A"}, "fillOpacity": 30}))
    found = drawn(one, series("a", [1, 1]), series("b", [2, 2]))
    low, high = (float(re.search(r"M[\d.]+ ([\d.]+)", line)[1]) for line in lines(found.html))  # type: ignore[index]
    bottom = max(float(y) for y in re.findall(r"L[\d.]+ ([\d.]+)", found.html))
    assert bottom - high == pytest.approx(3 * (bottom - low), abs=0.5)


def test_annotations_are_lines_and_one_band() -> None:
    marks = [Mark(60, 300, "Alerts firing: A", "red"), Mark(120, 360, "Alerts firing: B", "red")]
    found = drawn(panel("timeseries"), series("a", [1] * 11), marks=marks)
    assert found.html.count('class="mark"') == 2
    assert found.html.count('opacity=".08"') == 1
    assert "<title>Alerts firing: A</title>" in found.html


def test_what_comes_from_labels_is_escaped() -> None:
    evil = '<script>alert("x")</script>'
    for kind in ("timeseries", "stat", "bargauge", "state-timeline", "gauge"):
        found = drawn(panel(kind), series(evil, [1, 2]), series("other", [1, 2]))
        assert "<script" not in found.html, kind
    found = drawn(panel("table"), series("a", [1], model=evil), step=0.0)
    assert "&lt;script&gt;" in found.html


# --- stat, gauges -----------------------------------------------------------------------------------------


def test_a_stat_without_a_series_is_not_zero() -> None:
    mapped = [{"type": "special", "options": {"match": "null", "result": {"text": "none", "color": "text"}}}]
    steps = {"steps": [{"color": "green", "value": None}, {"color": "red", "value": 1}]}
    one = panel("stat", options={"colorMode": "background"},
                **config(noValue="none", mappings=mapped, thresholds=steps, color={"mode": "thresholds"}))
    empty = drawn(one)
    assert (empty.state, re.findall(r"<b[^>]*>([^<]*)</b>", empty.html)) == ("empty", ["none"])
    assert "filled" not in empty.html  # not in the colour of health
    assert 'filled" style="--c:var(--red)' in drawn(one, series("a", [1])).html
    assert 'filled" style="--c:var(--green)' in drawn(one, series("a", [0])).html


def test_a_stat_of_nan_says_so() -> None:
    assert ">NaN</b>" in drawn(panel("stat"), series("a", [NAN])).html


def test_bars_are_shares_of_the_longest() -> None:
    found = drawn(panel("bargauge", **config(unit="s", min=0)), series("a", [240]), series("b", [60]))
    assert re.findall(r"width:([\d.]+)%", found.html) == ["100.0", "25.0"]
    assert re.findall(r"<b>([^<]*)</b>", found.html) == ["4 mins", "1 mins"]


def test_a_gauge_is_filled_up_to_its_value() -> None:
    found = drawn(panel("gauge", **config(min=0, max=10)), series("a", [5]))
    assert "A48 48 0 0 1 60.0 12.0" in found.html  # half of it
    assert found.state == "data"


# --- state timeline, heatmap ------------------------------------------------------------------------------

STATES = [{"type": "value", "options": {"1": {"text": "up", "color": "green"}, "0": {"text": "down", "color": "red"}}}]


def bars(html: str) -> list[tuple[float, str]]:
    found = re.findall(r'<rect x="[^"]*" y="[^"]*" width="([\d.]+)"[^>]*fill="([^"]*)"', html)
    return [(float(width), color) for width, color in found]


def test_states_are_bars_with_gaps_between() -> None:
    found = drawn(panel("state-timeline", **config(mappings=STATES)), series("a", [1, 1, 0, None, None, 1]))
    shape = bars(found.html)
    assert [color for _, color in shape] == ["var(--green)", "var(--red)", "var(--green)"]
    assert shape[0][0] == pytest.approx(2 * shape[1][0], rel=0.01)
    assert [one for one in ("up", "down") if f"</i>{one}" in found.html] == ["up", "down"]


def test_many_rows_make_a_longer_picture_instead_of_an_unreadable_one() -> None:
    found = drawn(panel("state-timeline"), *(series(f"s{n}", [1]) for n in range(60)))
    assert int(re.search(r'<svg viewBox="0 0 \d+ (\d+)"', found.html)[1]) > 60 * 14  # type: ignore[index]
    assert found.count == 60


def test_buckets_are_what_is_new_in_each() -> None:
    many = [series("", [n], le=le) for le, n in (("+Inf", 10), ("0.5", 4), ("1", 9))]
    assert [(bound, list(points.values())) for bound, points in heatmap.buckets(many)] == [
        (0.5, [4]), (1.0, [5]), (math.inf, [1])]


def test_a_heatmap_of_nothing_but_empty_cells_is_empty() -> None:
    many = [series("", [0, 0], le=le) for le in ("0.5", "+Inf")]
    found = drawn(panel("heatmap", **config(noValue="no traffic")), *many)
    assert (found.state, "no traffic" in found.html) == ("empty", True)
    full = drawn(panel("heatmap"), series("", [1, 2], le="0.5"), series("", [1, 4], le="+Inf"))
    assert full.state == "data"
    assert ">+Inf<" in full.html


# --- tables -----------------------------------------------------------------------------------------------


def result(ref: str, *many: Series) -> Result:
    return Result(Target(ref, "x", instant=True, format="table"), "x", 0.0, many)


def test_rows_of_the_same_labels_are_one_after_a_merge() -> None:
    tables = frames.tables([
        result("A", series("", [1], model="a"), series("", [2], model="b")),
        result("B", series("", [5], "B", model="b", source="summary")),
    ])
    merged = frames.merge(tables)
    assert [(row["model"], row.get("Value #A"), row.get("Value #B"), row.get("source")) for row in merged.rows] == [
        ("a", 1, None, None), ("b", 2, 5, "summary")]


def test_columns_are_left_out_ordered_renamed_and_rows_sorted() -> None:
    one = panel("table", transformations=[
        {"id": "merge", "options": {}},
        {"id": "organize", "options": {"excludeByName": {"Time": True}, "indexByName": {"Value": 0, "model": 1},
                                       "renameByName": {"Value": "Firing", "model": "Model"}}}],
        options={"sortBy": [{"displayName": "Firing", "desc": True}]},
        fieldConfig={"defaults": {"unit": "short"}, "overrides": [
            {"matcher": {"id": "byName", "options": "Firing"}, "properties": [
                {"id": "thresholds", "value": {"steps": [{"color": "green", "value": None}, {"color": "red", "value": 2}]}},
                {"id": "custom.cellOptions", "value": {"type": "color-background"}}]},
            {"matcher": {"id": "byName", "options": "Model"}, "properties": [
                {"id": "links", "value": [{"url": "https://runbooks/${__value.raw}.md"}]}]}]})
    found = drawn(one, series("", [1], model="a b"), series("", [NAN], model="n"), series("", [3], model="c"), step=0.0)
    assert re.findall(r"<th[^>]*>([^<]*)</th>", found.html) == ["Firing", "Model"]
    assert re.findall(r"<td[^>]*>(?:<a[^>]*>)?([^<]*)", found.html) == ["3", "c", "1", "a b", "NaN", "n"]
    assert 'class="r filled" style="--c:var(--red)"' in found.html
    assert 'href="https://runbooks/a%20b.md"' in found.html


def test_a_cell_without_a_value_is_not_zero() -> None:
    dash = {"matcher": {"id": "byRegexp", "options": "/.*/"}, "properties": [{"id": "noValue", "value": "–"}]}
    one = panel("table", "A", "B", transformations=[{"id": "merge"}],
                fieldConfig={"defaults": {"noValue": "no model"}, "overrides": [dash]})
    found = drawn(one, series("", [1], model="a"), series("", [2], "B", model="b"), step=0.0)
    assert found.html.count('<td class="r missing">–</td>') == 2
    assert drawn(one).html == '<div class="middle none">no model</div>'


def test_other_transformations_are_named() -> None:
    found = drawn(panel("table", transformations=[{"id": "calculateField"}]), series("", [1]), step=0.0)
    assert "transformation calculateField" in found.notes


# --- what is not drawn ------------------------------------------------------------------------------------


def test_an_unknown_kind_is_a_box_with_its_name() -> None:
    found = drawn(panel("piechart"), series("a", [1]))
    assert found.state == "unsupported"
    assert "“piechart”" in found.html


def test_settings_that_are_not_understood_cost_their_panel_only() -> None:
    found = drawn(panel("timeseries", **config(thresholds={"steps": [{"color": "red", "value": "high"}]}, custom={
        "thresholdsStyle": {"mode": "line"}})), series("a", [1, 2]))
    assert found.state == "unsupported"
    assert "not understood (ValueError" in found.html


def test_features_that_are_not_drawn_are_named() -> None:
    one = panel("timeseries", timeFrom="1h", fieldConfig={
        "defaults": {"color": {"mode": "continuous-GrYlRd"}, "custom": {"stacking": {"mode": "percent"}, "fillBelowTo": "x",
                                                                       "lineInterpolation": "smooth",
                                                                       "scaleDistribution": {"type": "log"}}},
        "overrides": [{"matcher": {"id": "byValue"}, "properties": [{"id": "custom.transform", "value": "negative-Y"}]}]})
    notes = " ".join(drawn(one, series("a", [1, 2])).notes)
    for said in ("its own time range", "continuous-GrYlRd", "stacking percent", "fillBelowTo", "smooth", "logarithmic",
                 "byValue", "custom.transform"):
        assert said in notes, said


def test_a_query_that_failed_is_told_in_the_panel() -> None:
    found = drawn(panel("timeseries"), error="bad_data: <unexpected>")
    assert found.state == "error"
    assert "bad_data: &lt;unexpected&gt;" in found.html


@pytest.mark.parametrize(("name", "css"), [
    ("red", "var(--red)"), ("dark-red", "var(--red)"), ("super-light-blue", "var(--blue)"), ("#73BF69", "#73BF69"),
    ("rgba(0, 211, 255, 1)", "rgba(0, 211, 255, 1)"), ("text", "var(--ink)"), ('red"/><script>', "var(--ink)"), ("transparent",
    "transparent"),
])
def test_colours(name: str, css: str) -> None:
    assert field.color(name) == css


@pytest.mark.parametrize(("mapping", "value", "text"), [
    ({"type": "range", "options": {"from": 1, "to": 5, "result": {"text": "some"}}}, 3.0, "some"),
    ({"type": "regex", "options": {"pattern": "/^a/", "result": {"text": "starts"}}}, "ab", "starts"),
    ({"type": "special", "options": {"match": "nan", "result": {"text": "nothing"}}}, NAN, "nothing"),
    ({"type": "value", "options": {"2": {"text": "two"}}}, 2.0, "two"),
    ({"type": "value", "options": {"2": {"text": "two"}}}, 3.0, "3"),
])
def test_mappings(mapping: dict[str, Any], value: Any, text: str) -> None:
    assert field.Field("f", {"mappings": [mapping]}).text(value)[0] == text
