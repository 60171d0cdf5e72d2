"""Dashboards as data -> Grafana's JSON, through grafanalib, whose defaults of 2016 are mended here.

The only importer of grafanalib, and inside functions only: the import costs about 0.13 s, which
``obs --help`` need not pay.

What grafanalib 0.7.1 gets wrong, and what stands here instead:

* It emits every legacy key with a null or a default of Grafana 2 to 6 (``rows``, ``__inputs``, ``style``,
  ``sharedCrosshair``, ``hideControls``, ``span``, ``cacheTimeout``, ``yAxis``, ``useTags``, …). We keep an
  *allow-list* of keys per object, so that a new one cannot slip in, and drop the nulls.
* ``schemaVersion`` 12 makes Grafana run 25 migrations meant for Angular dashboards; here 39.
* Data sources are strings, and null on targets; here ``{type, uid}`` on panels, targets, annotations and
  query variables, all pointing at one ``datasource`` variable. ``__inputs`` work in the import dialog only.
* ``maxDataPoints`` 100 blurs every graph (a point per 108 s over 3 h); left out, Grafana takes the width.
* ``TimeSeries`` takes integers only as ``min`` and ``max``; ``GaugePanel`` and ``BarGauge`` write options
  that Grafana reads no more; ``Heatmap`` is Angular with ``options: []``; ``AlertList`` is of legacy
  alerting; ``Table`` puts ``color`` and ``mappings`` beside the field configuration. We take the frame of
  these from grafanalib and write ``options`` and ``fieldConfig`` ourselves.
* ``RowPanel(collapsed=False, panels=…)`` hides its panels; here open rows are followed by their panels.
* ``Template`` repeats ``auto_*`` and tag keys, and knows the string form of queries only.

``id`` of the dashboard is the one null that stays: it is the database's number, and null says "find me by
``uid``"; a number from another Grafana clashes when it is provisioned.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from obs.model.dashboard import Annotation, Dashboard, Panel, Query, Row, Threshold, Variable

Json = dict[str, Any]

SCHEMA_VERSION = 39  # Grafana 10.3's; 11 to 13 read it without an Angular migration
GRID_WIDTH = 24
DATASOURCE_VARIABLE = "datasource"
DATASOURCE = {"type": "prometheus", "uid": "${" + DATASOURCE_VARIABLE + "}"}
PANEL_TYPES = frozenset(
    {"timeseries", "stat", "gauge", "bargauge", "table", "state-timeline", "heatmap", "text", "alertlist"}
)

_UID = re.compile(r"[A-Za-z0-9_-]{1,40}")  # Grafana's own limit
# fmt: off
_DASHBOARD_KEYS = (
    "annotations", "description", "editable", "graphTooltip", "id", "links", "panels", "refresh",
    "schemaVersion", "tags", "templating", "time", "timezone", "title", "uid",
)
_PANEL_KEYS = ("collapsed", "description", "gridPos", "id", "panels", "title", "type")
_QUERIED_KEYS = (*_PANEL_KEYS, "datasource", "interval", "targets", "transformations")
_TARGET_KEYS = ("datasource", "expr", "format", "instant", "interval", "legendFormat", "refId")
_VARIABLE_KEYS = (
    "allValue", "current", "datasource", "hide", "includeAll", "label", "multi", "name", "options", "query",
    "refresh", "regex", "sort", "type",
)
# fmt: on
_QUERY_TYPES = {"label_names": 0, "label_values": 1, "metrics": 2, "query_result": 3}


def render_dashboard(dashboard: Dashboard, *, links: tuple[Dashboard, ...] = (), scrape_interval: str = "30s") -> str:
    """The dashboard as JSON text, the same bytes for the same input, ready for file provisioning.

    ``links`` are the sibling dashboards: links at the top carry the time range and the variables over.
    ``scrape_interval`` becomes the "min step" of every query, from which Grafana reckons
    ``$__rate_interval`` (four times it at least): left to the data source's setting, whose default is 15 s,
    a rate over a target scraped every minute is empty.

    Raises ``ValueError`` for what Grafana could not show: a dead panel type, a uid that it refuses, a panel
    without a query or wider than the grid, a row without a title, two variables of one name.
    """
    from grafanalib import core

    if not _UID.fullmatch(dashboard.uid):
        raise ValueError(f"dashboard uid {dashboard.uid!r}: Grafana takes 1 to 40 of A-Z a-z 0-9 - _")
    shell = core.Dashboard(
        title=dashboard.title,
        uid=dashboard.uid,
        description=dashboard.description,
        tags=list(dashboard.tags),
        editable=False,  # the JSON is generated: an edit in the browser is lost at the next build
        graphTooltip=core.GRAPH_TOOLTIP_MODE_SHARED_CROSSHAIR,
        schemaVersion=SCHEMA_VERSION,
        refresh=dashboard.refresh,
        timezone="browser",
        time=core.Time(dashboard.time_from, "now"),
        links=[_link(other) for other in links if other.uid != dashboard.uid],
        templating=core.Templating(_variables(dashboard.variables)),
        annotations=core.Annotations(
            [_built_in_annotation(), *(_annotation(a, scrape_interval) for a in dashboard.annotations)]
        ),
        panels=_panels(dashboard.rows, scrape_interval),
    )
    data = _pick(_data(shell), _DASHBOARD_KEYS)
    data["id"] = None
    data["timepicker"] = {}
    return json.dumps(data, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


# --- grafanalib to plain data ---------------------------------------------------------------------------


def _data(thing: Any) -> Json:
    """grafanalib's object as plain dictionaries and lists."""
    from grafanalib._gen import DashboardEncoder

    data: Json = json.loads(json.dumps(thing, cls=DashboardEncoder))
    return data


def _pick(data: Mapping[str, Any], keys: Iterable[str]) -> Json:
    """These keys of ``data``, in so far as they are there and not null."""
    return {key: data[key] for key in keys if data.get(key) is not None}


def _plain(value: Any) -> Any:
    """A copy as JSON's own types (tuples and read-only mappings become lists and dictionaries)."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _merged(base: Mapping[str, Any], extra: Mapping[str, Any]) -> Json:
    """``base`` with ``extra`` laid over it; dictionaries merge, everything else is replaced."""
    result: Json = dict(base)
    for key, value in extra.items():
        below = result.get(key)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            result[key] = _merged(below, value)
        else:
            result[key] = _plain(value)
    return result


def _number(value: float) -> float:
    """``2.0`` as ``2``: one number, one text."""
    return int(value) if math.isfinite(value) and value == int(value) else value


# --- head of the dashboard ------------------------------------------------------------------------------


def _link(other: Dashboard) -> Json:
    from grafanalib import core

    link = core.DashboardLink(
        type="link",
        title=other.title,
        uri=f"/d/{other.uid}",  # Grafana puts its own sub-path before it
        tooltip=other.description,
        icon="dashboard",
        includeVars=True,
        keepTime=True,
    )
    return _data(link)


def _variables(variables: tuple[Variable, ...]) -> list[Json]:
    """All variables, the one for the data source first: the others' queries need it."""
    names = [variable.name for variable in variables]
    if len(set(names)) != len(names):
        raise ValueError(f"two variables of one name among {', '.join(names)}")
    sources = [variable for variable in variables if variable.kind == "datasource"]
    if not sources:
        sources = [Variable(DATASOURCE_VARIABLE, "Data source", kind="datasource")]
    if DATASOURCE_VARIABLE not in {variable.name for variable in sources}:
        raise ValueError(f"the data source variable must be named {DATASOURCE_VARIABLE!r}")
    return [_variable(v) for v in (*sources, *(v for v in variables if v.kind != "datasource"))]


def _variable(variable: Variable) -> Json:
    from grafanalib import core

    is_source, is_query = variable.kind == "datasource", variable.kind == "query"
    if not is_source and not variable.query:
        raise ValueError(f"variable {variable.name!r} has no query")
    template = core.Template(
        name=variable.name,
        label=variable.label,
        type=variable.kind,
        query=(variable.query or "prometheus") if is_source else variable.query,
        dataSource=DATASOURCE if is_query else None,
        multi=variable.multi and not is_source,  # two data sources at once make every panel fail
        includeAll=variable.include_all and not is_source,
        allValue=variable.all_value or None,
        refresh=core.REFRESH_ON_TIME_RANGE_CHANGE if is_query else core.REFRESH_ON_DASHBOARD_LOAD,
        regex="" if is_query or is_source else None,
        sort=core.SORT_ALPHA_ASC,
        hide=core.HIDE_VARIABLE if variable.hide else core.SHOW,
    )
    data = _pick(_data(template), _VARIABLE_KEYS)
    data["skipUrlSync"] = False
    data["current"] = {}
    if data["includeAll"]:
        everything: Any = (["All"], ["$__all"]) if data["multi"] else ("All", "$__all")
        data["current"] = {"selected": True, "text": everything[0], "value": everything[1]}
    else:
        data.pop("allValue", None)
    if is_source:
        data["options"] = []
        del data["sort"]  # Grafana offers data sources in its own order
    elif is_query:
        # The object that Grafana's own editor writes since 10; `definition` is for its list of variables.
        function = variable.query.partition("(")[0].strip()
        data["definition"] = variable.query
        data["query"] = {"query": variable.query, "refId": "PrometheusVariableQueryEditor-VariableQuery"}
        if function in _QUERY_TYPES:
            data["query"]["qryType"] = _QUERY_TYPES[function]
    else:
        for option in data["options"]:
            option["text"], option["value"] = option["text"].strip(), option["value"].strip()
            option["selected"] = not data["includeAll"] and option is data["options"][0]
        if not data["includeAll"]:
            first = data["options"][0]["value"]
            data["current"] = {"selected": True, "text": first, "value": [first] if data["multi"] else first}
        del data["refresh"], data["sort"]
    return data


def _built_in_annotation() -> Json:
    """Grafana's own annotations, which it would add on load and then call the dashboard changed."""
    return {
        "builtIn": 1,
        "datasource": {"type": "grafana", "uid": "-- Grafana --"},
        "enable": True,
        "hide": True,
        "iconColor": "rgba(0, 211, 255, 1)",
        "name": "Annotations & Alerts",
        "type": "dashboard",
    }


def _annotation(annotation: Annotation, step: str) -> Json:
    """``target`` is what Grafana reads now, ``expr`` and ``step`` what it read up to 11 and still takes."""
    return {
        "datasource": dict(DATASOURCE),
        "enable": True,
        "expr": annotation.expr,
        "hide": False,
        "iconColor": annotation.color,
        "name": annotation.name,
        "step": step,
        "tagKeys": annotation.tags,
        "target": {"expr": annotation.expr, "interval": step, "refId": "Anno"},
        "textFormat": "",
        "titleFormat": annotation.title,
        "useValueForTime": False,
    }


# --- panels ---------------------------------------------------------------------------------------------


def _panels(rows: tuple[Row, ...], interval: str) -> list[Json]:
    """Rows and panels in order, numbered from 1 and laid out from the left, each row below the last.

    A collapsed row takes one line; its panels sit inside it, placed as they will be when it opens.
    """
    from grafanalib import core

    panels: list[Json] = []
    ids = iter(range(1, 100_000))
    y = 0
    for index, row in enumerate(rows):
        if not row.title and (row.collapsed or index > 0):
            raise ValueError(f"row {index + 1} has no title: only the first may go without, and stays open")
        head: Json | None = None
        if row.title:
            place = core.GridPos(1, GRID_WIDTH, 0, y)
            header = core.RowPanel(title=row.title, collapsed=row.collapsed, id=next(ids), gridPos=place)
            head = _pick(_data(header), _PANEL_KEYS)
            panels.append(head)
            y += 1
        inside: list[Json] = []
        bottom = y
        for panel, x, top in _placed(row.panels, y):
            position = core.GridPos(panel.height, panel.width, x, top)
            inside.append(_panel(panel, next(ids), position, interval))
            bottom = max(bottom, top + panel.height)
        if row.collapsed and head is not None:
            head["panels"] = inside
        else:
            panels.extend(inside)
            y = bottom
    return panels


def _placed(panels: tuple[Panel, ...], y: int) -> Iterable[tuple[Panel, int, int]]:
    """Each panel with its column and line: left to right, and a new line when the next one does not fit."""
    x = line_height = 0
    for panel in panels:
        if not 1 <= panel.width <= GRID_WIDTH or panel.height < 1:
            raise ValueError(f"panel {panel.title!r}: {panel.width}x{panel.height} does not fit a grid of 24")
        if x + panel.width > GRID_WIDTH:
            x, y, line_height = 0, y + line_height, 0
        yield panel, x, y
        x += panel.width
        line_height = max(line_height, panel.height)


def _panel(panel: Panel, number: int, position: Any, interval: str) -> Json:
    if panel.type not in PANEL_TYPES:
        raise ValueError(
            f"panel {panel.title!r}: type {panel.type!r} is not one that Grafana 12 still has;"
            f" use one of {', '.join(sorted(PANEL_TYPES))}"
        )
    queried = panel.type not in {"text", "alertlist"}
    if queried and not panel.queries:
        raise ValueError(f"panel {panel.title!r} has no query")
    common: Json = {
        "title": panel.title,
        "description": panel.description,
        "id": number,
        "gridPos": position,
    }
    if queried:
        common |= {
            "dataSource": DATASOURCE,
            "interval": interval,
            "targets": [_target(panel, i, query, interval) for i, query in enumerate(panel.queries)],
        }
    raw = _data(_grafanalib_panel(panel, common))
    data = _pick(raw, _QUERIED_KEYS if queried else _PANEL_KEYS)
    data["type"] = panel.type
    data["options"] = _merged(_options(panel), panel.options)
    if queried:
        data["transformations"] = _plain(panel.transformations)
        data["fieldConfig"] = _field_config(panel, raw)
    return data


def _grafanalib_panel(panel: Panel, common: Json) -> Any:
    """grafanalib's panel: for those whose class is of today with its settings, else for its frame alone."""
    from grafanalib import core

    if panel.type == "timeseries":
        return core.TimeSeries(
            **common,
            unit=panel.unit,
            fillOpacity=30 if panel.stack else 0,  # areas of ten lines upon each other hide all of them
            stacking={"group": "A", "mode": "normal" if panel.stack else "none"},
            thresholdsStyleMode="line" if panel.thresholds else "off",
        )
    if panel.type == "stat":
        return core.Stat(**common, format=panel.unit)
    if panel.type == "gauge":
        return core.GaugePanel(**common)
    if panel.type == "bargauge":
        return core.BarGauge(**common)
    if panel.type == "table":
        return core.Table(**common, filterable=True, unit=panel.unit)
    if panel.type == "state-timeline":
        return core.StateTimeline(**common)
    if panel.type == "heatmap":
        return core.Heatmap(**common)
    if panel.type == "text":
        return core.Text(**common, content=panel.content)
    return core.AlertList(**common)


def _ref_id(index: int) -> str:
    """A, B, …, Z, AA, AB, …: as Grafana names them."""
    letters = ""
    index += 1
    while index:
        index, rest = divmod(index - 1, 26)
        letters = chr(ord("A") + rest) + letters
    return letters


def _target(panel: Panel, index: int, query: Query, interval: str) -> Json:
    from grafanalib import core

    form: str = query.format
    if panel.type == "heatmap" and form == "time_series" and not panel.options.get("calculate"):
        form = "heatmap"  # makes bands of cumulative `le` buckets; else each cell holds all those below
    target = core.Target(
        expr=query.expr,
        legendFormat=query.legend or "__auto",
        instant=query.instant,
        format=form,
        refId=_ref_id(index),
        interval=interval,
        datasource=DATASOURCE,
    )
    data = _pick(_data(target), _TARGET_KEYS)
    return data | {"editorMode": "code", "range": not query.instant}


def _thresholds(thresholds: tuple[Threshold, ...]) -> Json:
    """Grafana's steps: the first has no value and colours all below the second.

    Without thresholds the colour is neutral: green would claim that somebody judged the value. The base
    under thresholds is green; a threshold at minus infinity sets another ("red below 0.99").
    """
    steps = sorted(thresholds, key=lambda threshold: threshold.value)
    if any(math.isnan(step.value) or step.value == math.inf for step in steps):
        raise ValueError("a threshold must be a number")
    base = "green" if steps else "text"
    if steps and steps[0].value == -math.inf:
        base = steps.pop(0).color
    drawn = [{"color": step.color, "value": _number(step.value)} for step in steps]
    return {"mode": "absolute", "steps": [{"color": base, "value": None}, *drawn]}


def _field_config(panel: Panel, raw: Json) -> Json:
    defaults: Json = {
        "unit": panel.unit,
        "noValue": panel.no_value,
        "thresholds": _thresholds(panel.thresholds),
        "mappings": [],
        "color": {"mode": "palette-classic" if panel.type in {"timeseries", "heatmap"} else "thresholds"},
    }
    if panel.min is not None:
        defaults["min"] = _number(panel.min)
    if panel.max is not None:
        defaults["max"] = _number(panel.max)
    custom = raw.get("fieldConfig", {}).get("defaults", {}).get("custom")
    if panel.type == "timeseries":
        custom = {key: value for key, value in custom.items() if value is not None}
        custom["scaleDistribution"] = {"type": "linear"}
    elif panel.type == "table":
        custom = {key: value for key, value in custom.items() if key != "displayMode"}
        custom |= {"cellOptions": {"type": "auto"}, "inspect": False}
    elif panel.type == "heatmap":
        custom = {"hideFrom": {"legend": False, "tooltip": False, "viz": False}}
    if custom:
        defaults["custom"] = custom
    defaults = _merged(defaults, panel.field_defaults)
    if panel.type in {"stat", "gauge", "bargauge"}:
        defaults["mappings"] = _with_unknowns(defaults["mappings"], panel.no_value)
    return {"defaults": defaults, "overrides": _plain(panel.overrides)}


def _with_unknowns(mappings: list[Json], no_value: str) -> list[Json]:
    """The mappings, and grey for "no data" and NaN, which Grafana paints in the base colour: green.

    They stay apart: no series, and a series of nothing (0/0), are two different things.
    """
    if any(mapping.get("type") == "special" for mapping in mappings):
        return mappings
    unknowns: list[Json] = []
    for index, (match, text) in enumerate((("null", no_value), ("nan", "NaN")), start=len(mappings)):
        result = {"color": "text", "index": index, "text": text}
        unknowns.append({"type": "special", "options": {"match": match, "result": result}})
    return [*mappings, *unknowns]


def _options(panel: Panel) -> Json:
    """A panel's ``options`` before the author's own are merged in."""
    reduced: Json = {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}}
    if panel.type == "timeseries":
        return {
            "legend": {
                "calcs": ["lastNotNull", "max"],
                "displayMode": "table",
                "placement": "bottom",
                "showLegend": True,
            },
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    if panel.type == "stat":
        return reduced | {
            "colorMode": "value",
            "graphMode": "area",
            "justifyMode": "auto",
            "orientation": "auto",
            "textMode": "auto",
        }
    if panel.type == "gauge":
        return reduced | {"orientation": "auto", "showThresholdLabels": False, "showThresholdMarkers": True}
    if panel.type == "bargauge":
        return reduced | {
            "displayMode": "basic",
            "minVizHeight": 10,
            "minVizWidth": 0,
            "orientation": "horizontal",
            "showUnfilled": True,
            "valueMode": "color",
        }
    if panel.type == "table":
        return {"cellHeight": "sm", "showHeader": True, "sortBy": []}
    if panel.type == "state-timeline":
        return {
            "alignValue": "left",
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "mergeValues": True,
            "rowHeight": 0.9,
            "showValue": "auto",
            "tooltip": {"mode": "single", "sort": "none"},
        }
    if panel.type == "heatmap":
        return {
            "calculate": False,
            "cellGap": 1,
            "cellValues": {"unit": "short"},
            "color": {
                "exponent": 0.5,
                "fill": "dark-orange",
                "mode": "scheme",
                "reverse": False,
                "scale": "exponential",
                "scheme": "Oranges",
                "steps": 64,
            },
            "exemplars": {"color": "rgba(255,0,255,0.7)"},
            "filterValues": {"le": 1e-9},  # empty cells stay empty
            "legend": {"show": True},
            "rowsFrame": {"layout": "auto"},
            "showValue": "never",
            "tooltip": {"mode": "single", "show": True, "yHistogram": False},  # `show` up to Grafana 10
            "yAxis": {"axisPlacement": "left", "reverse": False, "unit": panel.unit},
        }
    if panel.type == "text":
        return {"content": panel.content, "mode": "markdown"}
    return {  # alertlist, of unified alerting
        "alertInstanceLabelFilter": "",
        "alertName": "",
        "dashboardAlerts": False,
        "groupBy": [],
        "groupMode": "default",
        "maxItems": 20,
        "sortOrder": 3,  # by importance
        "stateFilter": {"error": True, "firing": True, "noData": True, "normal": False, "pending": True},
        "viewMode": "list",
    }
