"""Dashboards, as data; ``render/grafana.py`` turns them into Grafana JSON through grafanalib."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

PanelType = Literal[
    "timeseries", "stat", "gauge", "bargauge", "table", "state-timeline", "heatmap", "text", "alertlist"
]


@dataclass(frozen=True)
class Query:
    """One target: PromQL text (may use ``$model`` and the like, and ``$__rate_interval``) and its legend."""

    expr: str
    legend: str = ""
    instant: bool = False
    format: Literal["time_series", "table", "heatmap"] = "time_series"


@dataclass(frozen=True)
class Threshold:
    """A line drawn on a panel: the value of a limit, in the panel's unit."""

    value: float
    color: str = "red"


@dataclass(frozen=True)
class Panel:
    """One panel. ``unit`` is a Grafana unit id ("s", "percentunit", "reqps", "bytes", "short", …).

    ``no_value`` is shown where the query returns nothing ("no traffic", "no data"); never "0".
    ``width`` is in Grafana grid columns (24 a row), ``height`` in grid rows.
    ``options`` are merged into the panel's ``options`` and ``field`` into ``fieldConfig.defaults``.
    """

    title: str
    queries: tuple[Query, ...]
    type: PanelType = "timeseries"
    unit: str = "short"
    description: str = ""
    thresholds: tuple[Threshold, ...] = ()
    min: float | None = None
    max: float | None = None
    width: int = 8
    height: int = 8
    stack: bool = False
    no_value: str = "no data"
    options: Mapping[str, Any] = field(default_factory=dict)
    field_defaults: Mapping[str, Any] = field(default_factory=dict)
    overrides: tuple[Mapping[str, Any], ...] = ()
    transformations: tuple[Mapping[str, Any], ...] = ()
    content: str = ""
    """Markdown, for ``text`` panels."""


@dataclass(frozen=True)
class Row:
    """A titled row of panels; collapsed rows hold their panels inside, open rows come before them."""

    title: str
    panels: tuple[Panel, ...]
    collapsed: bool = False


@dataclass(frozen=True)
class Variable:
    """A dashboard variable. A query variable reads ``label_values(metric, label)`` from ``${datasource}``."""

    name: str
    label: str
    query: str = ""
    kind: Literal["query", "datasource", "custom"] = "query"
    multi: bool = True
    include_all: bool = True
    all_value: str = ".*"
    hide: bool = False


@dataclass(frozen=True)
class Annotation:
    """An annotation query drawn over every panel."""

    name: str
    expr: str
    title: str
    color: str
    tags: str = ""


@dataclass(frozen=True)
class Dashboard:
    """One dashboard; ``uid`` is stable and public, ``stem`` is the file name without ``.json``."""

    stem: str
    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]
    variables: tuple[Variable, ...]
    annotations: tuple[Annotation, ...] = ()
    tags: tuple[str, ...] = ("obs", "inference")
    refresh: str = "30s"
    time_from: str = "now-3h"
