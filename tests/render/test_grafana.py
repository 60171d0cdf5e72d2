"""render/grafana.py against Grafana's own schema, and checks/dashboards.py against bad dashboards."""

from __future__ import annotations

import copy
import itertools
import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models import dashboard as schema

from obs.checks.dashboards import RULES, check_dashboard, expressions, substitute_variables
from obs.model.dashboard import Annotation, Dashboard, Panel, Query, Row, Threshold, Variable
from obs.render.grafana import PANEL_TYPES, render_dashboard

promql_parser = pytest.importorskip("promql_parser")

RATE = 'sum by (model) (rate(nv_inference_request_success{model=~"$model"}[$__rate_interval]))'
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def panel(title: str, type_: str = "timeseries", **more: Any) -> Panel:
    queries = () if type_ in {"text", "alertlist"} else (Query(RATE, "{{model}}"),)
    return Panel(title, **({"queries": queries, "type": type_, "description": "What it counts."} | more))


EVERY_TYPE = Dashboard(
    stem="overview",
    uid="obs-overview",
    title="Inference: overview",
    description="All models at a glance.",
    variables=(
        Variable("datasource", "Data source", kind="datasource"),
        Variable("cluster", "Cluster", "label_values(nv_inference_request_success, cluster)"),
        Variable("job", "job", 'label_values(nv_inference_request_success{cluster=~"$cluster"}, job)'),
        Variable("model", "Model", 'label_values(nv_inference_request_success{job=~"$job"}, model)'),
        Variable("window", "Window", "5m, 1h", kind="custom", multi=False, include_all=False, hide=True),
    ),
    annotations=(Annotation("restarts", 'changes(up{job=~"$job"}[$window]) > 0', "restart", "orange", "job"),),
    rows=(
        Row("", (panel("How to read this", "text", content="# Hello", width=24, height=3),)),
        Row(
            "Traffic",
            (
                panel(
                    "Requests",
                    unit="reqps",
                    queries=(Query(RATE, "{{model}}"), Query("vector(1)", "one"), Query("up")),
                    thresholds=(Threshold(0.5, "orange"), Threshold(2.0)),
                    min=0,
                    max=0.99,
                    stack=True,
                    no_value="no traffic",
                    overrides=({"matcher": {"id": "byName", "options": "one"}, "properties": ()},),
                    options={"legend": {"calcs": ("mean",)}},
                ),
                panel("Latency", "heatmap", unit="s", height=10),
                panel(
                    "Success",
                    "stat",
                    unit="percentunit",
                    thresholds=(Threshold(-math.inf, "red"), Threshold(0.99, "green")),
                ),
                panel("KV cache", "gauge", unit="percentunit", width=6),
                panel("Queue", "bargauge", unit="s", width=20),
                panel(
                    "Replicas",
                    "table",
                    queries=(Query(RATE, instant=True, format="table"),),
                    transformations=({"id": "organize", "options": {}},),
                    width=12,
                ),
                panel(
                    "Ready",
                    "state-timeline",
                    field_defaults={"mappings": [{"type": "value", "options": {"1": {"text": "ready"}}}]},
                    width=12,
                ),
            ),
        ),
        Row("Details", (panel("Inner", height=5), panel("Inner too", width=24)), collapsed=True),
        Row("Alerts", (panel("Firing", "alertlist"),)),
    ),
)
GOOD = json.loads(render_dashboard(EVERY_TYPE))


def one(type_: str = "timeseries", **more: Any) -> dict[str, Any]:
    """A dashboard's only panel, rendered."""
    rows = (Row("Row", (panel("Only", type_, **more),)),)
    rendered: dict[str, Any] = json.loads(render_dashboard(replace(EVERY_TYPE, rows=rows)))["panels"][1]
    return rendered


def every_panel(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for item in data["panels"]:
        yield item
        yield from item.get("panels", [])


def titled(title: str) -> dict[str, Any]:
    return next(item for item in every_panel(GOOD) if item["title"] == title)


# --- the renderer ---------------------------------------------------------------------------------------


def test_same_bytes_in_any_process() -> None:
    text = render_dashboard(EVERY_TYPE)
    assert text == render_dashboard(copy.deepcopy(EVERY_TYPE))
    assert text.endswith("}\n")
    assert not text.endswith("\n\n")
    code = "import sys; sys.path.insert(0, sys.argv[1]); import test_grafana as t; print(t.rendered(), end='')"
    here = __file__.rpartition("/")[0]
    for seed in ("1", "2"):
        environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}
        done = subprocess.run([sys.executable, "-c", code, here], capture_output=True, text=True, env=environment)
        assert done.stdout == text, done.stderr


def rendered() -> str:
    return render_dashboard(EVERY_TYPE)


def test_grafanalib_is_imported_late() -> None:
    code = "import sys, obs.render.grafana, obs.checks.dashboards; sys.exit('grafanalib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path)}).returncode == 0


def test_grafanas_own_schema_reads_it_and_loses_nothing() -> None:
    register_default_plugins()
    read = schema.Dashboard.from_json(GOOD)
    again = json.loads(json.dumps(read, cls=JSONEncoder))
    for key in ("uid", "title", "schemaVersion", "tags", "links", "refresh", "time", "timezone", "editable"):
        assert again[key] == GOOD[key]
    before, after = list(every_panel(GOOD)), list(every_panel(again))
    assert len(before) == len(after) == 14
    for ours, theirs in zip(before, after, strict=True):
        for key in ("id", "type", "title", "gridPos", "datasource", "interval", "transformations"):
            assert (theirs.get(key) or None) == (ours.get(key) or None), (ours["title"], key)
        assert len(theirs.get("targets") or []) == len(ours.get("targets", []))
        for a, b in zip(ours.get("targets", []), theirs.get("targets") or [], strict=True):
            assert b == a
        if "fieldConfig" in ours:
            mine, its = ours["fieldConfig"]["defaults"], theirs["fieldConfig"]["defaults"]
            for key in ("unit", "min", "max", "noValue", "thresholds", "mappings", "color"):
                assert its.get(key) == mine.get(key), (ours["title"], key)
            lost = set(mine.get("custom", {})) - set(its.get("custom", {}))
            assert not lost, (ours["title"], lost)
        # What the schema of 10.1 does not know of our options came later, and is named here.
        later = {"heatmap": {"tooltip.mode"}}
        lost_options = set(_leaves(ours.get("options", {}))) - set(_leaves(theirs.get("options", {})))
        assert lost_options <= later.get(ours["type"], set()), ours["title"]
    for ours, theirs in zip(GOOD["templating"]["list"], again["templating"]["list"], strict=True):
        for key in set(ours) - {"definition"}:  # which Grafana writes, but its schema of 10.1 leaves out
            if ours[key] != {}:  # no choice yet: theirs spells it out as ""
                assert theirs.get(key) == ours[key], (ours["name"], key)


def _leaves(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}".lstrip("."))
    else:
        yield path


def test_ids_number_all_panels_in_order() -> None:
    assert [item["id"] for item in every_panel(GOOD)] == list(range(1, 15))
    assert GOOD["id"] is None
    assert GOOD["uid"] == "obs-overview"


def test_the_only_nulls_are_the_database_id_and_the_base_of_thresholds() -> None:
    def nulls(value: Any, path: str) -> Iterator[str]:
        if value is None:
            yield path
        for key, item in (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        ):
            yield from nulls(item, f"{path}/{key}")

    paths = list(nulls(GOOD, ""))
    assert "/id" in paths
    assert all(path == "/id" or path.endswith("thresholds/steps/0/value") for path in paths)


def test_no_legacy_keys() -> None:
    assert set(GOOD) == {
        "annotations", "description", "editable", "graphTooltip", "id", "links", "panels", "refresh", "schemaVersion",
        "tags", "templating", "time", "timepicker", "timezone", "title", "uid",
    }  # fmt: skip
    assert (GOOD["schemaVersion"], GOOD["graphTooltip"], GOOD["timezone"]) == (39, 1, "browser")
    allowed = {
        "collapsed", "datasource", "description", "fieldConfig", "gridPos", "id", "interval", "options", "panels",
        "targets", "title", "transformations", "type",
    }  # fmt: skip
    for item in every_panel(GOOD):
        assert set(item) <= allowed
        for target in item.get("targets", []):
            assert set(target) == {
                "datasource", "editorMode", "expr", "format", "instant", "interval", "legendFormat", "range", "refId",
            }  # fmt: skip


def test_trap_79_rows() -> None:
    top = GOOD["panels"]
    assert [(item["type"], item["title"]) for item in top if item["type"] == "row"] == [
        ("row", "Traffic"),
        ("row", "Details"),
        ("row", "Alerts"),
    ]
    traffic, details, alerts = (item for item in top if item["type"] == "row")
    assert traffic["collapsed"] is False
    assert traffic["panels"] == []
    assert top[2]["title"] == "Requests"
    assert [item["title"] for item in details["panels"]] == ["Inner", "Inner too"]
    y = details["gridPos"]["y"]
    assert [item["gridPos"] for item in details["panels"]] == [
        {"x": 0, "y": y + 1, "w": 8, "h": 5},
        {"x": 0, "y": y + 6, "w": 24, "h": 8},
    ]
    assert alerts["gridPos"]["y"] == y + 1
    assert "rows" not in GOOD


def overlapping(panels: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """By brute force: which two panels share a cell."""
    cells: dict[tuple[int, int], str] = {}
    found = []
    for item in panels:
        box = item["gridPos"]
        for cell in itertools.product(range(box["x"], box["x"] + box["w"]), range(box["y"], box["y"] + box["h"])):
            if cell in cells:
                found.append((cells[cell], item["title"]))
            cells[cell] = item["title"]
            assert cell[0] < 24
    return found


def test_no_two_panels_share_a_cell() -> None:
    assert overlapping(GOOD["panels"]) == []
    for item in GOOD["panels"]:
        assert overlapping(item.get("panels", [])) == []


@pytest.mark.parametrize("seed", range(20))
def test_no_overlap_for_any_sizes(seed: int) -> None:
    import random

    dice = random.Random(seed)
    rows = tuple(
        Row(
            f"Row {n}",
            tuple(
                panel(f"{n}/{i}", width=dice.randint(1, 24), height=dice.randint(1, 12))
                for i in range(dice.randint(0, 9))
            ),
            collapsed=dice.random() < 0.3,
        )
        for n in range(6)
    )
    data = json.loads(render_dashboard(replace(EVERY_TYPE, rows=rows)))
    assert overlapping(data["panels"]) == []
    for item in data["panels"]:
        assert overlapping(item.get("panels", [])) == []
    ids = [item["id"] for item in every_panel(data)]
    assert ids == list(range(1, len(ids) + 1))


def test_traps_81_and_82_datasources() -> None:
    for item in every_panel(GOOD):
        if item["type"] in {"row", "text", "alertlist"}:
            assert "datasource" not in item
            continue
        assert item["datasource"] == SOURCE
        assert item["targets"]
        assert all(target["datasource"] == SOURCE for target in item["targets"])
    source, *others = GOOD["templating"]["list"]
    assert (source["type"], source["name"], source["query"], source["multi"]) == (
        "datasource", "datasource", "prometheus", False,
    )  # fmt: skip
    assert all(variable["datasource"] == SOURCE for variable in others if variable["type"] == "query")
    built_in, restarts = GOOD["annotations"]["list"]
    assert built_in["builtIn"] == 1
    assert restarts["datasource"] == SOURCE
    assert "__inputs" not in json.dumps(GOOD)
    assert [target["refId"] for target in titled("Requests")["targets"]] == ["A", "B", "C"]


def test_ref_ids_past_z() -> None:
    targets = one(queries=tuple(Query(f"m{i}") for i in range(28)))["targets"]
    assert [targets[i]["refId"] for i in (0, 25, 26, 27)] == ["A", "Z", "AA", "AB"]


def test_trap_33_variables_chain_and_stay_with_their_metric() -> None:
    model = next(v for v in GOOD["templating"]["list"] if v["name"] == "model")
    assert model == {
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "datasource": SOURCE,
        "definition": 'label_values(nv_inference_request_success{job=~"$job"}, model)',
        "hide": 0,
        "includeAll": True,
        "label": "Model",
        "multi": True,
        "name": "model",
        "options": [],
        "query": {
            "qryType": 1,
            "query": 'label_values(nv_inference_request_success{job=~"$job"}, model)',
            "refId": "PrometheusVariableQueryEditor-VariableQuery",
        },
        "refresh": 2,
        "regex": "",
        "skipUrlSync": False,
        "sort": 1,
        "type": "query",
    }
    window = next(v for v in GOOD["templating"]["list"] if v["name"] == "window")
    assert window["hide"] == 2
    assert window["current"] == {"selected": True, "text": "5m", "value": "5m"}
    assert [option["value"] for option in window["options"]] == ["5m", "1h"]


def test_the_datasource_variable_comes_by_itself_and_first() -> None:
    model = Variable("model", "Model", "label_values(up, model)")
    listed = json.loads(render_dashboard(replace(EVERY_TYPE, variables=(model,))))["templating"]["list"]
    assert [variable["name"] for variable in listed] == ["datasource", "model"]
    source = Variable("datasource", "Data source", kind="datasource")
    listed = json.loads(render_dashboard(replace(EVERY_TYPE, variables=(model, source))))["templating"]["list"]
    assert [variable["name"] for variable in listed] == ["datasource", "model"]


def test_trap_56_rate_interval_and_its_minimum() -> None:
    shown = json.loads(render_dashboard(EVERY_TYPE, scrape_interval="1m"))
    requests = next(item for item in every_panel(shown) if item["title"] == "Requests")
    assert requests["interval"] == "1m"
    assert {target["interval"] for target in requests["targets"]} == {"1m"}
    assert requests["targets"][0]["expr"] == RATE
    assert "maxDataPoints" not in requests


def test_timeseries() -> None:
    item = titled("Requests")
    defaults = item["fieldConfig"]["defaults"]
    assert defaults["thresholds"] == {
        "mode": "absolute",
        "steps": [{"color": "green", "value": None}, {"color": "orange", "value": 0.5}, {"color": "red", "value": 2}],
    }
    assert defaults["custom"]["thresholdsStyle"] == {"mode": "line"}
    assert defaults["custom"]["stacking"] == {"group": "A", "mode": "normal"}
    assert (defaults["unit"], defaults["noValue"], defaults["min"], defaults["max"]) == ("reqps", "no traffic", 0, 0.99)
    assert item["options"]["legend"]["calcs"] == ["mean"]
    assert item["options"]["legend"]["displayMode"] == "table"
    assert one()["options"]["legend"]["calcs"] == ["lastNotNull", "max"]
    assert one()["fieldConfig"]["defaults"]["custom"]["thresholdsStyle"] == {"mode": "off"}
    assert one()["fieldConfig"]["defaults"]["custom"]["spanNulls"] is False
    assert item["targets"][2]["legendFormat"] == "__auto"


def test_no_data_is_grey_and_not_green() -> None:
    defaults = titled("Success")["fieldConfig"]["defaults"]
    assert defaults["thresholds"]["steps"] == [{"color": "red", "value": None}, {"color": "green", "value": 0.99}]
    assert [(m["options"]["match"], m["options"]["result"]) for m in defaults["mappings"]] == [
        ("null", {"color": "text", "index": 0, "text": "no data"}),
        ("nan", {"color": "text", "index": 1, "text": "NaN"}),
    ]
    assert one("stat")["fieldConfig"]["defaults"]["thresholds"]["steps"] == [{"color": "text", "value": None}]
    own = [{"type": "special", "options": {"match": "null+nan", "result": {"text": "idle"}}}]
    assert one("stat", field_defaults={"mappings": own})["fieldConfig"]["defaults"]["mappings"] == own


def test_heatmap_is_a_modern_one() -> None:
    item = titled("Latency")
    assert item["targets"][0]["format"] == "heatmap"
    assert item["options"]["calculate"] is False
    assert item["options"]["yAxis"]["unit"] == "s"
    assert one("heatmap", options={"calculate": True})["targets"][0]["format"] == "time_series"


def test_instant_table() -> None:
    item = titled("Replicas")
    target = item["targets"][0]
    assert (target["instant"], target["range"], target["format"]) == (True, False, "table")
    assert item["transformations"] == [{"id": "organize", "options": {}}]
    assert item["fieldConfig"]["defaults"]["custom"]["cellOptions"] == {"type": "auto"}


def test_links_keep_the_selection_and_leave_itself_out() -> None:
    other = replace(EVERY_TYPE, uid="obs-vllm", title="vLLM")
    links = json.loads(render_dashboard(EVERY_TYPE, links=(EVERY_TYPE, other)))["links"]
    assert [(link["url"], link["title"]) for link in links] == [("/d/obs-vllm", "vLLM")]
    assert (links[0]["type"], links[0]["includeVars"], links[0]["keepTime"]) == ("link", True, True)


def test_annotation() -> None:
    annotation = GOOD["annotations"]["list"][1]
    assert annotation["target"]["expr"] == annotation["expr"] == 'changes(up{job=~"$job"}[$window]) > 0'
    assert (annotation["titleFormat"], annotation["tagKeys"], annotation["iconColor"]) == ("restart", "job", "orange")


@pytest.mark.parametrize("type_", ["graph", "singlestat", "table-old", "piechart", "row", "natel-discrete-panel"])
def test_trap_83_dead_types_are_refused(type_: str) -> None:
    with pytest.raises(ValueError, match="Grafana 12"):
        one(type_)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"uid": "a b"}, "uid"),
        ({"uid": "x" * 41}, "uid"),
        ({"rows": (Row("", (), collapsed=True),)}, "title"),
        ({"rows": (Row("A", ()), Row("", ()))}, "title"),
        ({"rows": (Row("A", (panel("Wide", width=25),)),)}, "grid"),
        ({"rows": (Row("A", (panel("Flat", height=0),)),)}, "grid"),
        ({"rows": (Row("A", (panel("Empty", queries=()),)),)}, "no query"),
        ({"rows": (Row("A", (panel("NaN", thresholds=(Threshold(math.nan),)),)),)}, "threshold"),
        ({"variables": (Variable("a", "A", "x"), Variable("a", "A", "y"))}, "two variables"),
        ({"variables": (Variable("a", "A"),)}, "no query"),
        ({"variables": (Variable("source", "Source", kind="datasource"),)}, "named"),
    ],
)
def test_nonsense_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        render_dashboard(replace(EVERY_TYPE, **change))


def test_every_type_is_tried_here() -> None:
    assert {item["type"] for item in every_panel(GOOD)} == PANEL_TYPES | {"row"}


def test_size_of_forty_panels() -> None:
    rows = (Row("Many", tuple(panel(f"Panel {i}", thresholds=(Threshold(1),)) for i in range(40))),)
    assert len(render_dashboard(replace(EVERY_TYPE, rows=rows)).encode()) < 150_000


# --- the checks -----------------------------------------------------------------------------------------


def ids(data: Any) -> set[str]:
    return {problem.check for problem in check_dashboard("d.json", json.dumps(data, indent=2))}


def test_a_rendered_dashboard_is_clean() -> None:
    assert check_dashboard("d.json", render_dashboard(EVERY_TYPE, links=(replace(EVERY_TYPE, uid="other"),))) == []


def test_every_rule_explains_itself_and_is_named_once() -> None:
    assert len({rule.id for rule in RULES}) == len(RULES)
    assert all(rule.explanation.strip() for rule in RULES)


def bad(change: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    """A good dashboard with one thing spoilt."""
    data = copy.deepcopy(GOOD)
    change(data)
    return data


def on_panel(change: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    """Likewise, on the panel "Requests"."""
    return bad(lambda data: change(data["panels"][2]))


def expr(text: str) -> dict[str, Any]:
    return on_panel(lambda p: p["targets"][0].update(expr=text))


def variable(**change: Any) -> dict[str, Any]:
    return bad(lambda data: data["templating"]["list"][1].update(change))


FIRING: list[tuple[str, dict[str, Any]]] = [
    ("dashboard-json", {"apiVersion": "dashboard.grafana.app/v2beta1", "spec": {"elements": {}}}),
    ("dashboard-json", {"dashboard": GOOD, "meta": {}}),
    ("dashboard-json", {"groups": []}),
    ("dashboard-schema-version", bad(lambda d: d.update(schemaVersion=12))),
    ("dashboard-schema-version", bad(lambda d: d.pop("schemaVersion"))),
    ("dashboard-inputs", bad(lambda d: d.update(__inputs=[{"name": "DS_PROMETHEUS"}]))),
    ("dashboard-uid", bad(lambda d: d.update(uid=None))),
    ("dashboard-uid", bad(lambda d: d.update(uid="x" * 41))),
    ("dashboard-id", bad(lambda d: d.update(id=7))),
    ("dashboard-editable", bad(lambda d: d.update(editable=True))),
    ("dashboard-size", bad(lambda d: d.update(description="x" * 200_000))),
    ("dashboard-template-datasource", bad(lambda d: d["templating"]["list"][0].update(type="custom"))),
    ("dashboard-template-datasource", bad(lambda d: d["templating"]["list"][0].update(name="ds"))),
    ("dashboard-template-job", bad(lambda d: d["templating"]["list"].pop(2))),
    ("dashboard-template-query", variable(query="label_values(model_name)")),
    ("dashboard-template-query", variable(query={"query": "label_values(model_name)"})),
    ("dashboard-template-query", variable(query="tag_values(x)")),
    ("dashboard-template-query", variable(query=None)),
    ("dashboard-template-reload", variable(refresh=1)),
    ("dashboard-undefined-variable", expr('up{model=~"$modle"}')),
    ("dashboard-undefined-variable", variable(query='label_values(up{a=~"${nope:regex}"}, b)')),
    ("dashboard-unescaped-variable", variable(multi=False, includeAll=False)),
    ("dashboard-datasource-string", on_panel(lambda p: p.update(datasource="${datasource}"))),
    ("dashboard-datasource-string", on_panel(lambda p: p["targets"][0].update(datasource="Prometheus"))),
    ("dashboard-datasource-string", variable(datasource="Prometheus")),
    ("dashboard-datasource-literal", on_panel(lambda p: p.update(datasource={"type": "prometheus", "uid": "P18"}))),
    ("dashboard-datasource-literal", on_panel(lambda p: p["targets"][0].update(datasource={"uid": "${DS_PROM}"}))),
    ("dashboard-datasource-literal", bad(lambda d: d["annotations"]["list"][1]["datasource"].update(uid="prom"))),
    ("dashboard-datasource-missing", on_panel(lambda p: p.pop("datasource"))),
    ("dashboard-datasource-missing", on_panel(lambda p: p["targets"][1].update(datasource=None))),
    ("dashboard-datasource-missing", variable(datasource=None)),
    ("dashboard-datasource-text", on_panel(lambda p: p.update(title="On ${datasource}"))),
    ("dashboard-datasource-text", on_panel(lambda p: p["targets"][0].update(legendFormat="$datasource"))),
    ("dashboard-datasource-text", bad(lambda d: d["panels"][0]["options"].update(content="[[datasource]]"))),
    ("dashboard-panel-type", on_panel(lambda p: p.update(type="graph"))),
    ("dashboard-panel-type", bad(lambda d: d["panels"][3].pop("options"))),
    ("dashboard-panel-type", bad(lambda d: d["panels"][7].update(styles=[{}]))),
    ("dashboard-panel-id", on_panel(lambda p: p.update(id=None))),
    ("dashboard-panel-id", on_panel(lambda p: p.update(id=11))),
    ("dashboard-ref-id", on_panel(lambda p: p["targets"][1].update(refId="A"))),
    ("dashboard-ref-id", on_panel(lambda p: p["targets"][1].pop("refId"))),
    ("dashboard-grid", on_panel(lambda p: p["gridPos"].update(x=2))),
    ("dashboard-grid", on_panel(lambda p: p["gridPos"].update(x=20))),
    ("dashboard-grid", on_panel(lambda p: p.pop("gridPos"))),
    ("dashboard-grid", bad(lambda d: d.update(rows=[{"panels": []}]))),
    ("dashboard-row-layout", bad(lambda d: d["panels"][9].update(collapsed=False))),
    ("dashboard-row-layout", bad(lambda d: d["panels"][1].update(collapsed=True))),
    ("dashboard-title-description", on_panel(lambda p: p.update(title=""))),
    ("dashboard-title-description", on_panel(lambda p: p.pop("description"))),
    ("dashboard-units", on_panel(lambda p: p["fieldConfig"]["defaults"].pop("unit"))),
    ("dashboard-units", on_panel(lambda p: p.pop("fieldConfig"))),
    ("dashboard-no-targets", on_panel(lambda p: p.update(targets=[]))),
    ("dashboard-rate-interval", expr("sum(rate(x_total[5m]))")),
    ("dashboard-rate-interval", expr("sum(increase(x_total[$__interval]))")),
    ("dashboard-rate-interval", expr("max_over_time(rate(x_total[5m])[1h:])")),
    ("dashboard-min-interval", on_panel(lambda p: p["targets"][0].pop("interval"))),
]


@pytest.mark.parametrize(("check", "data"), FIRING, ids=[f"{n}-{check}" for n, (check, _) in enumerate(FIRING)])
def test_rule_fires_alone(check: str, data: dict[str, Any]) -> None:
    # What one fault brings with it: a variable that is gone is also undefined, and so on.
    company = {
        "dashboard-template-datasource": {"dashboard-datasource-literal"},
        "dashboard-template-job": {"dashboard-undefined-variable"},
        "dashboard-units": set[str](),
    }
    found = ids(data)
    assert check in found
    assert found - {check} <= company.get(check, set())


def test_every_rule_is_shown_firing() -> None:
    assert {check for check, _ in FIRING} == {rule.id for rule in RULES}


@pytest.mark.parametrize(
    "text",
    [
        "rate(x_total[$__rate_interval])",
        "rate(x_total[${__rate_interval}])",
        "increase(x_total[$__range])",
        "rate(x_total[$window])",
        "rate(x_total[[[window]]])",
        "max_over_time(x[5m])",
        'label_replace(up, "a", "$1", "b", "(.*)")',
        'up{a="rate(x[5m])"} # rate(x[5m])',
    ],
)
def test_queries_that_pass(text: str) -> None:
    assert ids(expr(text)) == set()


def test_units_are_excused_by_mappings_overrides_and_text_fields() -> None:
    for change in (
        {"fieldConfig": {"defaults": {"mappings": [{"type": "value"}]}}},
        {"fieldConfig": {"defaults": {}, "overrides": [{"properties": [{"id": "unit", "value": "s"}]}]}},
        {"fieldConfig": {}, "options": {"reduceOptions": {"fields": "/.*/"}}},
    ):
        assert ids(on_panel(lambda p, change=change: p.update(change))) == set()


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"x"'])
def test_what_is_no_json_object(text: str) -> None:
    (problem,) = check_dashboard("d.json", text)
    assert problem.check == "dashboard-json"
    assert list(expressions(text)) == []


@pytest.mark.parametrize(
    "junk",
    [
        {"panels": None},
        {"panels": [None, 1, {"type": None, "targets": {}}, {"gridPos": []}]},
        {"panels": [{"type": 3, "title": {}, "fieldConfig": [], "options": [], "targets": [None, {"expr": 1}]}]},
        {"panels": [], "templating": [], "annotations": {"list": {}}, "rows": 3},
        {"panels": [], "templating": {"list": [{"type": "query", "name": None, "query": []}]}},
    ],
)
def test_junk_is_reported_and_never_a_crash(junk: dict[str, Any]) -> None:
    assert ids(junk)


def test_a_problem_names_its_line() -> None:
    text = json.dumps(on_panel(lambda p: p["targets"][1].update(datasource="Prometheus")), indent=2, sort_keys=True)
    (problem,) = check_dashboard("d.json", text)
    assert problem.place == "panels[2].targets[1].datasource"
    assert problem.subject == "panel 'Requests'"
    assert text.splitlines()[problem.line - 1].strip() == '"datasource": "Prometheus",'
    assert str(problem).startswith(f"d.json:{problem.line}: error: panel 'Requests'")


def test_a_public_angular_dashboard() -> None:
    """What the vLLM and Triton examples of 2021 looked like."""
    found = ids(
        {
            "__inputs": [{"name": "DS_PROMETHEUS", "type": "datasource"}],
            "id": 12,
            "schemaVersion": 25,
            "panels": [
                {
                    "id": 2,
                    "type": "graph",
                    "datasource": "${DS_PROMETHEUS}",
                    "gridPos": {"x": 0, "y": 0, "w": 12, "h": 8},
                    "targets": [{"expr": "sum(nv_inference_count)", "refId": "A"}],
                    "title": "Inferences",
                },
            ],
        }
    )
    assert {
        "dashboard-inputs", "dashboard-id", "dashboard-schema-version", "dashboard-uid", "dashboard-panel-type",
        "dashboard-datasource-string", "dashboard-template-datasource", "dashboard-title-description",
    } <= found  # fmt: skip


# --- expressions and stand-ins --------------------------------------------------------------------------


def test_expressions() -> None:
    found = list(expressions(render_dashboard(EVERY_TYPE)))
    assert ("Requests", "panels[2].targets[0].expr", RATE) in found
    assert ("Inner", "panels[9].panels[0].targets[0].expr", RATE) in found
    assert (
        "annotation restarts",
        "annotations.list[1].target.expr",
        'changes(up{job=~"$job"}[$window]) > 0',
    ) in found
    assert (
        "variable model",
        "templating.list[3].query",
        'nv_inference_request_success{job=~"$job"}',
    ) in found
    for _, place, expression in found:
        promql_parser.parse(substitute_variables(expression))
        value: Any = GOOD
        for key in place.replace("[", ".").replace("]", "").split("."):
            value = value[int(key)] if key.isdigit() else value[key]
        assert expression in (value if isinstance(value, str) else value["query"])


def test_expressions_leave_out_other_data_sources() -> None:
    data = on_panel(lambda p: p["targets"][0].update(datasource={"type": "loki", "uid": "x"}, expr='{job="a"} |= "b"'))
    assert '{job="a"} |= "b"' not in [expression for _, _, expression in expressions(json.dumps(data))]


@pytest.mark.parametrize(
    ("raw", "stand_in"),
    [
        ("rate(x[$__rate_interval])", "rate(x[5m])"),
        ("rate(x[${__rate_interval}])", "rate(x[5m])"),
        ("x[$__range:$__interval]", "x[1h:1m]"),
        ("x[${__range_s}s]", "x[5s]"),
        ("x[[[window]]]", "x[5m]"),
        ("x[${n}m]", "x[5m]"),
        ("x[5$unit]", "x[5m]"),
        ("x offset $ago", "x offset 5m"),
        ("x @ ${__to}", "x @ 1700000000000"),
        ("x * $__range_s", "x * 3600"),
        ('x{model=~"$model"}', 'x{model=~"model"}'),
        ('x{model=~"${model:regex}|[[other:pipe]]"}', 'x{model=~"model|other"}'),
        ("x{$filter}", 'x{filter=~".*"}'),
        ('x{$label="a", b="c"}', 'x{label="a", b="c"}'),
        ("sum by ($group) (x)", "sum by (group) (x)"),
        ("sum by (a, ${group:csv}) (x)", "sum by (a, group) (x)"),
        ("${prefix}_total", "prefix_total"),
        ("a:${x}_b:c", "a:x_b:c"),
        ('$metric{a="b"}', 'metric{a="b"}'),
        ("rate($metric[5m])", "rate(metric[5m])"),
        ("sum($metric)", "sum(metric)"),
        ("$metric", "metric"),
        ("topk($n, x)", "topk(1, x)"),
        ("histogram_quantile($q, x)", "histogram_quantile(1, x)"),
        ("x > $limit", "x > 1"),
        ("vector($x)", "vector(1)"),
        ("$agg(x)", "sum(x)"),
        ("$agg by (a) (x)", "sum by (a) (x)"),
        ("$fn(x[5m])", "rate(x[5m])"),
        ('label_replace(x, "a", "$1", "b", "(.*)")', 'label_replace(x, "a", "$1", "b", "(.*)")'),
        ("x # $comment", "x # $comment"),
        ('x{a="\\"$b"}', 'x{a="\\"b"}'),
    ],
)
def test_stand_ins_parse(raw: str, stand_in: str) -> None:
    assert substitute_variables(raw) == stand_in
    promql_parser.parse(stand_in)
