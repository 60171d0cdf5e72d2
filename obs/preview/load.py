"""Reads a dashboard's JSON (the classic form, as ``obs build`` writes it and Grafana exports it) into a small model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from obs.errors import InputError

Json = Mapping[str, Any]

COLUMNS = 24
_BUILT_IN = frozenset({"grafana", "datasource", "__expr__"})


@dataclass(frozen=True)
class Grid:
    """A place in Grafana's grid of 24 columns; ``y`` counts from the top of the panel's row."""

    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True)
class Target:
    """One query. ``foreign`` names the kind of its data source when that is not Prometheus."""

    ref: str
    expr: str
    legend: str = ""
    instant: bool = False
    format: str = "time_series"
    interval: str = ""
    foreign: str = ""


@dataclass(frozen=True)
class Panel:
    """One panel; ``options``, ``defaults``, ``overrides`` and ``transformations`` are Grafana's own objects.

    ``scoped``: the values of variables that a repeated panel or row has for itself.
    """

    id: int
    type: str
    title: str
    description: str
    grid: Grid
    targets: tuple[Target, ...] = ()
    options: Json = field(default_factory=dict)
    defaults: Json = field(default_factory=dict)
    overrides: tuple[Json, ...] = ()
    transformations: tuple[Json, ...] = ()
    interval: str = ""
    max_points: int = 0
    repeat: str = ""
    repeat_down: bool = False
    max_per_row: int = 4
    scoped: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """A row and its panels; the first may have no title."""

    title: str
    collapsed: bool
    panels: tuple[Panel, ...]
    repeat: str = ""

    @property
    def height(self) -> int:
        """In rows of the grid."""
        return max((panel.grid.y + panel.grid.height for panel in self.panels), default=0)


@dataclass(frozen=True)
class Variable:
    """A variable at the top of the dashboard. ``current``: the values stored with it ("$__all" among them)."""

    name: str
    label: str
    kind: str
    query: str = ""
    regex: str = ""
    sort: int = 0
    multi: bool = False
    include_all: bool = False
    all_value: str = ""
    current: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    hidden: bool = False


@dataclass(frozen=True)
class Annotation:
    """A query whose results are marks over every graph."""

    name: str
    expr: str
    title: str
    color: str
    step: str


@dataclass(frozen=True)
class Dashboard:
    """One dashboard. ``stem`` names its files; ``time_from`` and ``time_to`` are Grafana's ("now-3h")."""

    stem: str
    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]
    variables: tuple[Variable, ...] = ()
    annotations: tuple[Annotation, ...] = ()
    time_from: str = "now-6h"
    time_to: str = "now"

    @property
    def panels(self) -> tuple[Panel, ...]:
        return tuple(panel for row in self.rows for panel in row.panels)


def parse(text: str, where: str, stem: str) -> Dashboard:
    """The dashboard that a JSON text holds. InputError, naming ``where``, when it holds none that can be drawn."""
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{where}:{error.lineno}:{error.colno}: is no JSON: {error.msg}; name a dashboard's file") from None
    except RecursionError:
        raise InputError(f"{where}: is nested too deeply for a dashboard; name a dashboard's file") from None
    if isinstance(data, dict) and isinstance(data.get("dashboard"), dict) and "panels" not in data:
        data = data["dashboard"]  # as Grafana's HTTP API wraps it
    if not isinstance(data, dict):
        raise InputError(f"{where}: holds no dashboard but a JSON {type(data).__name__}; name a dashboard's file")
    if isinstance(data.get("elements"), dict) or isinstance(data.get("spec"), dict):
        raise InputError(f"{where}: is of Grafana's v2 schema; export it as Classic")
    if "rows" in data and not isinstance(data.get("panels"), list):
        raise InputError(f"{where}: is of a Grafana before 5 (`rows`); open it in a current one and export it again")
    if not isinstance(data.get("panels"), list):
        raise InputError(f"{where}: has no `panels`: this is no dashboard; name a dashboard's file")
    if not data["panels"]:
        raise InputError(f"{where}: has no panel, so there is nothing to draw")
    try:
        return _dashboard(data, stem)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InputError(f"{where}: is no sound dashboard ({type(error).__name__}: {error}); see `obs check {where}`") from None


def _dashboard(data: Json, stem: str) -> Dashboard:
    time = data.get("time") or {}
    return Dashboard(
        stem=stem,
        uid=str(data.get("uid") or ""),
        title=str(data.get("title") or stem),
        description=str(data.get("description") or ""),
        rows=_rows(data["panels"]),
        variables=tuple(_variable(one) for one in (data.get("templating") or {}).get("list") or ()),
        annotations=tuple(
            _annotation(one) for one in (data.get("annotations") or {}).get("list") or ()
            if not one.get("builtIn") and one.get("enable", True) and not _foreign(one.get("datasource"))
        ),
        time_from=str(time.get("from") or "now-6h"),
        time_to=str(time.get("to") or "now"),
    )


def _rows(items: Sequence[Json]) -> tuple[Row, ...]:
    """Open rows hold the panels that follow them, collapsed ones those inside them."""
    heads: list[tuple[str, bool, str]] = [("", False, "")]
    held: list[list[Json]] = [[]]
    for item in items:
        if item.get("type") == "row":
            heads.append((str(item.get("title") or ""), bool(item.get("collapsed")), str(item.get("repeat") or "")))
            held.append(list(item.get("panels") or ()))
        else:
            if heads[-1][1]:  # panels after a collapsed row stand outside of it
                heads.append(("", False, ""))
                held.append([])
            held[-1].append(item)
    rows = []
    for (title, collapsed, repeat), panels in zip(heads, held, strict=True):
        if title or panels:
            rows.append(Row(title, collapsed, _placed(tuple(_panel(one) for one in panels)), repeat))
    return tuple(rows)


def _placed(panels: tuple[Panel, ...]) -> tuple[Panel, ...]:
    """The panels with ``y`` counted from the first."""
    top = min((panel.grid.y for panel in panels), default=0)
    return tuple(replace(panel, grid=replace(panel.grid, y=panel.grid.y - top)) for panel in panels)


def _panel(data: Json) -> Panel:
    place = data.get("gridPos") or {}
    kind = str(data.get("type") or ("library panel" if data.get("libraryPanel") else "panel without a type"))
    config = data.get("fieldConfig") or {}
    notes = []
    if data.get("timeFrom") or data.get("timeShift"):
        notes.append("its own time range")
    width = min(COLUMNS, max(1, int(place.get("w", 12))))
    return Panel(
        id=int(data.get("id") or 0),
        type=kind,
        title=str(data.get("title") or ""),
        description=str(data.get("description") or ""),
        grid=Grid(min(COLUMNS - width, max(0, int(place.get("x", 0)))), int(place.get("y", 0)), width,
                  max(1, int(place.get("h", 8)))),
        targets=tuple(
            _target(one, data.get("datasource"), index) for index, one in enumerate(data.get("targets") or ())
            if not one.get("hide")
        ),
        options=dict(data.get("options") or {}),
        defaults=dict(config.get("defaults") or {}),
        overrides=tuple(config.get("overrides") or ()),
        transformations=tuple(one for one in data.get("transformations") or () if not one.get("disabled")),
        interval=str(data.get("interval") or ""),
        max_points=int(data.get("maxDataPoints") or 0),
        repeat=str(data.get("repeat") or ""),
        repeat_down=data.get("repeatDirection") == "v",
        max_per_row=int(data.get("maxPerRow") or 4),
        notes=tuple(notes),
    )


def _target(data: Json, panels: Any, index: int) -> Target:
    return Target(
        ref=str(data.get("refId") or chr(ord("A") + index % 26)),
        expr=str(data.get("expr") or ""),
        legend=str(data.get("legendFormat") or ""),
        instant=bool(data.get("instant")) and not data.get("range"),
        format=str(data.get("format") or "time_series"),
        interval=str(data.get("interval") or ""),
        foreign=_foreign(data.get("datasource") or panels),
    )


def _foreign(source: Any) -> str:
    """The kind of a data source that is not Prometheus, "" for one that is or may be."""
    kind = source.get("type") if isinstance(source, dict) else ""
    if not kind and isinstance(source, dict) and source.get("uid") in _BUILT_IN | {"-- Grafana --", "-- Dashboard --"}:
        return str(source["uid"])
    return "" if not kind or kind == "prometheus" or str(kind).endswith("-prometheus-datasource") else str(kind)


def _variable(data: Json) -> Variable:
    query = data.get("query")
    current = (data.get("current") or {}).get("value")
    values = current if isinstance(current, list) else [] if current in (None, "", {}) else [current]
    return Variable(
        name=str(data["name"]),
        label=str(data.get("label") or data["name"]),
        kind=str(data.get("type") or "query"),
        query=str((query.get("query") if isinstance(query, dict) else query) or ""),
        regex=str(data.get("regex") or ""),
        sort=int(data.get("sort") or 0),
        multi=bool(data.get("multi")),
        include_all=bool(data.get("includeAll")),
        all_value=str(data.get("allValue") or ""),
        current=tuple(str(one) for one in values),
        options=tuple(str(one.get("value")) for one in data.get("options") or () if one.get("value") != "$__all"),
        hidden=data.get("hide") == 2,
    )


def _annotation(data: Json) -> Annotation:
    target = data.get("target") or {}
    return Annotation(
        name=str(data.get("name") or "annotation"),
        expr=str(target.get("expr") or data.get("expr") or ""),
        title=str(data.get("titleFormat") or ""),
        color=str(data.get("iconColor") or "blue"),
        step=str(target.get("interval") or data.get("step") or ""),
    )
