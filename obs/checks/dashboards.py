"""Checks of dashboards as Grafana will read them: ours after rendering, and anybody's own.

Most follow the published rules of grafana/dashboard-linter (a Go program that looks at one dashboard at a
time); the others are failures seen in public. Each is one small function here, whose docstring is what
``obs check --explain ID`` prints, entered in ``RULES``.

Rules of the linter that are not here, and why: ``template-instance-rule`` and ``target-instance-rule``
(inference servers are looked at per model and namespace; an instance is a pod, gone with the next rollout,
and a list of hundreds of dead pods helps nobody), ``target-promql-rule`` and ``target-counter-agg-rule``
(other checks parse PromQL, knowing each metric's type: feed them ``expressions``), ``target-logql-*`` (no
logs here).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from obs.model.problem import Level, Problem

Json = dict[str, Any]

MIN_SCHEMA_VERSION = 36  # the first with data sources as {type, uid}
MAX_BYTES = 200_000
GRID_WIDTH = 24

# As Grafana's own variableRegex: $name, [[name]], [[name:format]], ${name}, ${name.field:format}.
VARIABLE = re.compile(
    r"\$(?P<plain>[A-Za-z_]\w*)"
    r"|\[\[(?P<old>[A-Za-z_]\w*)(?::(?P<old_format>\w+))?\]\]"
    r"|\$\{(?P<braced>[A-Za-z_]\w*)(?:\.(?P<field>[^:}]+))?(?::(?P<format>[^}]+))?\}"
)
_BUILT_IN_UIDS = frozenset({"-- Grafana --", "-- Mixed --", "-- Dashboard --", "grafana", "__expr__"})
_BUILT_IN_TYPES = frozenset({"grafana", "datasource", "__expr__"})
_WITHOUT_QUERIES = frozenset({"row", "text", "alertlist", "dashlist", "news", "welcome", "canvas"})
_NUMERIC_PANELS = frozenset({"timeseries", "stat", "gauge", "bargauge", "heatmap", "histogram", "barchart"})
_DEAD_PANELS = {
    "graph": "timeseries",
    "singlestat": "stat",
    "table-old": "table",
    "grafana-singlestat-panel": "stat",
    "grafana-piechart-panel": "piechart",
    "grafana-worldmap-panel": "geomap",
    "natel-discrete-panel": "state-timeline",
    "flant-statusmap-panel": "status-history",
    "larona-epict-panel": "canvas",
    "marcuscalidus-svg-panel": "canvas",
    "ae3e-plotly-panel": "xychart",
}


def _objects(value: Any) -> Iterator[tuple[int, Json]]:
    """The objects of a list with their places; nothing for what is not a list."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            if isinstance(item, dict):
                yield index, item


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _name(match: re.Match[str]) -> str:
    return match["plain"] or match["old"] or match["braced"]


@dataclass(frozen=True)
class _Panel:
    """A panel with its JSON path and the path of the list that holds it."""

    place: str
    inside: str
    data: Json

    @property
    def type(self) -> str:
        return _text(self.data.get("type"))

    @property
    def subject(self) -> str:
        kind = "row" if self.type == "row" else "panel"
        return f"{kind} '{_text(self.data.get('title')) or self.place}'"

    @property
    def queries(self) -> bool:
        return self.type not in _WITHOUT_QUERIES

    def targets(self) -> Iterator[tuple[str, Json]]:
        for index, target in _objects(self.data.get("targets")):
            yield f"{self.place}.targets[{index}]", target


def _panels(data: Json) -> Iterator[_Panel]:
    """All panels, rows too, in order; those inside rows after their row, and those of legacy ``rows``."""
    for index, panel in _objects(data.get("panels")):
        place = f"panels[{index}]"
        yield _Panel(place, "panels", panel)
        for inner, nested in _objects(panel.get("panels")):
            yield _Panel(f"{place}.panels[{inner}]", f"{place}.panels", nested)
    for index, row in _objects(data.get("rows")):
        for inner, nested in _objects(row.get("panels")):
            yield _Panel(f"rows[{index}].panels[{inner}]", f"rows[{index}].panels", nested)


def _listed(data: Json, key: str) -> Iterator[tuple[str, Json]]:
    """The entries of ``templating.list`` or ``annotations.list`` with their paths."""
    holder = data.get(key)
    for index, item in _objects(holder.get("list") if isinstance(holder, dict) else None):
        yield f"{key}.list[{index}]", item


def _variable_query(variable: Json) -> str:
    """A query variable's text: a string up to Grafana 9, an object since."""
    query = variable.get("query")
    return _text(query.get("query") if isinstance(query, dict) else query).strip()


@dataclass(frozen=True)
class Document:
    """One dashboard under check: its file, its text and its parsed JSON."""

    path: str
    text: str
    data: Json

    @cached_property
    def panels(self) -> tuple[_Panel, ...]:
        return tuple(_panels(self.data))

    @cached_property
    def variables(self) -> tuple[tuple[str, Json], ...]:
        return tuple(_listed(self.data, "templating"))

    @cached_property
    def annotations(self) -> tuple[tuple[str, Json], ...]:
        return tuple(_listed(self.data, "annotations"))

    @cached_property
    def datasource_variables(self) -> frozenset[str]:
        return frozenset(_text(v.get("name")) for _, v in self.variables if v.get("type") == "datasource")

    def datasources(self) -> Iterator[tuple[str, str, Any]]:
        """Each place that names a data source, or should: (subject, JSON path, what stands there)."""
        for panel in self.panels:
            if panel.queries:
                yield panel.subject, f"{panel.place}.datasource", panel.data.get("datasource")
                for place, target in panel.targets():
                    yield panel.subject, f"{place}.datasource", target.get("datasource")
        for place, variable in self.variables:
            if variable.get("type") == "query":
                yield f"variable '{variable.get('name')}'", f"{place}.datasource", variable.get("datasource")
        for place, annotation in self.annotations:
            if not annotation.get("builtIn"):
                subject = f"annotation '{annotation.get('name')}'"
                yield subject, f"{place}.datasource", annotation.get("datasource")

    @cached_property
    def _lines(self) -> dict[str, int]:
        return _line_numbers(self.text)

    def line(self, place: str) -> int:
        """The line of a JSON path, or of the nearest thing around it; 0 for the whole file."""
        while place and place not in self._lines:
            place = re.sub(r"(\.?[^.\[]+|\[\d+\])$", "", place)
        return self._lines.get(place, 0) if place else 0

    def problem(self, subject: str, place: str, what: str, mend: str, level: Level = "error") -> Problem:
        """A finding at a JSON path; ``check_dashboard`` enters the rule's id."""
        return Problem(self.path, self.line(place), "", subject, what, mend, level, place)


_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}:,]|[^\s\[\]{}:,"]+')


def _line_numbers(text: str) -> dict[str, int]:
    """The 1-based line on which each value of a valid JSON text starts, by its path (``panels[0].title``)."""
    lines: dict[str, int] = {}
    stack: list[tuple[str, bool]] = []  # path of the container, whether it is a list
    index: list[int] = []
    key: str | None = None
    line, seen = 1, 0
    for match in _TOKEN.finditer(text):
        line += text.count("\n", seen, match.start())
        seen = match.start()
        token = match[0]
        if token in "]}":
            stack.pop()
            index.pop()
            key = None
        elif token == ",":
            index[-1] += 1
            key = None
        elif token == ":":
            continue
        elif stack and not stack[-1][1] and key is None:
            key = json.loads(token)
        else:
            path = ""
            if stack:
                around, is_list = stack[-1]
                path = f"{around}[{index[-1]}]" if is_list else f"{around}.{key}" if around else str(key)
            lines[path] = line
            if token in "[{":
                stack.append((path, token == "["))
                index.append(0)
                key = None
    return lines


# --- the whole file -------------------------------------------------------------------------------------


def readable(doc: Document) -> Iterator[Problem]:
    """The file holds one classic dashboard as JSON.

    File provisioning refuses the v2 schema (``apiVersion: dashboard.grafana.app/v2…``, ``elements``, ``layout``) and
    the envelope in which Grafana's HTTP API wraps a dashboard (``{"dashboard": …, "meta": …}``): the
    dashboard is then missing, and only Grafana's log tells. No other check runs on such a file.
    """
    data = doc.data
    if isinstance(data.get("dashboard"), dict) and "panels" not in data:
        yield doc.problem(
            "dashboard", "dashboard", "is wrapped as by Grafana's HTTP API", "keep what `dashboard` holds"
        )
    elif isinstance(data.get("elements"), dict) or isinstance(data.get("spec"), dict):
        yield doc.problem(
            "dashboard", "", "is of the v2 schema, which file provisioning refuses", "export it as Classic"
        )
    elif "panels" not in data and "rows" not in data:
        yield doc.problem("dashboard", "", "has no `panels`: this is no dashboard", "name dashboard files only")


def schema_version(doc: Document) -> Iterator[Problem]:
    """``schemaVersion`` is 36 or more.

    Below, Grafana migrates the dashboard on every load by rules made for Angular panels and string data
    sources; since Grafana 11 some of these go wrong. grafanalib writes 12 unless told otherwise.
    """
    version = doc.data.get("schemaVersion")
    if not isinstance(version, int) or version < MIN_SCHEMA_VERSION:
        yield doc.problem(
            "dashboard",
            "schemaVersion",
            f"is {version}, older than {MIN_SCHEMA_VERSION}",
            "open it in a current Grafana and export it again",
        )


def inputs(doc: Document) -> Iterator[Problem]:
    """The dashboard does without ``__inputs``.

    Only the import dialog replaces ``${DS_PROMETHEUS}``. A dashboard that a sidecar or a provisioning file
    loads keeps the text, and every panel says "Datasource ${DS_PROMETHEUS} was not found".
    """
    if doc.data.get("__inputs"):
        yield doc.problem(
            "dashboard",
            "__inputs",
            "`__inputs` are filled in by the import dialog only, not under provisioning",
            "remove them and use a variable of type datasource",
        )


def uid(doc: Document) -> Iterator[Problem]:
    """``uid`` is there, and Grafana takes it: 1 to 40 of letters, digits, ``-`` and ``_``.

    Without one, each provisioning may make another: links and bookmarks break.
    """
    value = doc.data.get("uid")
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9_-]{1,40}", value):
        yield doc.problem(
            "dashboard", "uid", f"uid {value!r} is not one", "set 1 to 40 letters, digits, - or _, and keep it"
        )


def database_id(doc: Document) -> Iterator[Problem]:
    """The dashboard's ``id`` is null or absent.

    It is the row number in one Grafana's database; in another it means another dashboard.
    """
    if doc.data.get("id"):
        yield doc.problem("dashboard", "id", "carries another Grafana's id", "set it to null", "warning")


def editable(doc: Document) -> Iterator[Problem]:
    """A dashboard kept as code is not editable in the browser (dashboard-linter: uneditable-dashboard).

    Edits would be lost at the next provisioning.
    """
    if doc.data.get("editable") is not False:
        yield doc.problem(
            "dashboard", "editable", "is not false: edits in the browser get lost", "set it to false", "info"
        )


def size(doc: Document) -> Iterator[Problem]:
    """The file is smaller than 200 kB.

    ``kubectl apply`` stores a ConfigMap a second time in an annotation of 256 KiB at most, and a ConfigMap
    holds 1 MiB: larger dashboards stop deploying from one day to the next. They are slow to open, too.
    """
    count = len(doc.text.encode())
    if count >= MAX_BYTES:
        yield doc.problem(
            "dashboard", "", f"is {count / 1000:.0f} kB, over 200 kB", "split it, or export it unindented", "warning"
        )


# --- variables ------------------------------------------------------------------------------------------


def template_datasource(doc: Document) -> Iterator[Problem]:
    """A variable of type ``datasource`` chooses the data source (dashboard-linter: template-datasource).

    It is named ``datasource`` (or ``prometheus_datasource``), the name by which dashboards hand the choice
    to each other in their links.
    """
    sources = [(place, v) for place, v in doc.variables if v.get("type") == "datasource"]
    if not sources:
        yield doc.problem(
            "dashboard",
            "templating",
            "has no variable of type datasource",
            "add one named `datasource` with the query `prometheus`",
        )
    for place, variable in sources:
        plugin = _text(variable.get("query"))
        allowed = {f"{plugin.lower()}_datasource"} | ({"datasource"} if len(sources) == 1 else set())
        if variable.get("name") not in allowed:
            yield doc.problem(
                f"variable '{variable.get('name')}'",
                f"{place}.name",
                "is not the usual name of a data source variable",
                f"name it {' or '.join(sorted(allowed))}",
                "warning",
            )


def template_job(doc: Document) -> Iterator[Problem]:
    """A variable ``job`` picks among scrape jobs (dashboard-linter: template-job). For information only.

    Every scraped series has a ``job``, so this works everywhere. The linter wants ``instance`` as well; we
    do not: an instance is a pod here, gone with the next rollout.
    """
    if "job" not in {variable.get("name") for _, variable in doc.variables}:
        yield doc.problem(
            "dashboard",
            "templating",
            "has no variable `job`",
            "add one where two servers of one kind are scraped by two jobs",
            "info",
        )


def template_query(doc: Document) -> Iterator[Problem]:
    """Query variables ask for values of a metric's label (dashboard-linter: template-label-promql).

    ``label_values(model_name)`` without a metric offers every exporter's model names: batteries were seen
    in a list of language models. Name a metric of the server: ``label_values(metric{…}, label)``.
    """
    for place, variable in doc.variables:
        source = variable.get("datasource")
        plugin = source.get("type", "prometheus") if isinstance(source, dict) else "prometheus"
        if variable.get("type") != "query" or plugin != "prometheus":
            continue
        subject, query = f"variable '{variable.get('name')}'", _variable_query(variable)
        call = re.fullmatch(r"(label_names|label_values|metrics|query_result)\((.*)\)", query, re.DOTALL)
        if not call:
            yield doc.problem(
                subject, f"{place}.query", f"`{query}` is no query of values", "use label_values(metric, label)"
            )
        elif call[1] == "label_values" and not _label_values(query):
            yield doc.problem(
                subject,
                f"{place}.query",
                "takes the label from every metric that has it, whoever exports it",
                "name a metric of the server: label_values(metric, label)",
                "warning",
            )


def template_reload(doc: Document) -> Iterator[Problem]:
    """Query variables reload when the time range changes (dashboard-linter: template-on-time-change-reload).

    Otherwise a model that ran last week only cannot be chosen when looking at last week.
    """
    for place, variable in doc.variables:
        if variable.get("type") == "query" and variable.get("refresh") != 2:
            yield doc.problem(
                f"variable '{variable.get('name')}'",
                f"{place}.refresh",
                "does not reload when the time range changes",
                "set `refresh` to 2",
                "warning",
            )


def undefined_variable(doc: Document) -> Iterator[Problem]:
    """Every variable in a query is one that the dashboard has, or Grafana's own (``$__…``).

    Grafana sends the text of an unknown variable to Prometheus as it stands: ``{model=~"$modle"}`` matches
    nothing, and the panel is empty for ever.
    """
    known = {_text(variable.get("name")) for _, variable in doc.variables}
    for subject, place, expr in _queries(doc.data):
        for name in sorted({_name(match) for match in VARIABLE.finditer(expr)} - known):
            if not name.startswith("__"):
                yield doc.problem(subject, place, f"uses ${name}, which is not a variable here", "define it")


def unescaped_variable(doc: Document) -> Iterator[Problem]:
    """A variable with one value and no "All" is compared with ``=``, not with ``=~``.

    Grafana escapes a value for a regex only where the variable may hold several: of the others, a model called
    ``a+b`` or ``llama[8b]`` is read as a regex, and the panel is empty or shows another model.
    """
    single = {
        _text(variable.get("name")) for _, variable in doc.variables
        if variable.get("type") == "query" and not variable.get("multi") and not variable.get("includeAll")
    }
    for subject, place, expr in _queries(doc.data):
        for match in re.finditer(rf'[=!]~\s*"(?:{VARIABLE.pattern})"', expr):
            if (name := _name(match)) in single and not (match["format"] or match["old_format"]):
                yield doc.problem(
                    subject, place, f"matches the value of ${name}, which Grafana does not escape, as a regex",
                    "write `=` for `=~` (or `!=` for `!~`)", "info",
                )


# --- data sources ---------------------------------------------------------------------------------------


def datasource_string(doc: Document) -> Iterator[Problem]:
    """Data sources are objects ``{"type": …, "uid": …}``, not strings.

    A string is the name or the uid, and Grafana has to guess; what it guesses changed with 8.3, 11 and 12.
    """
    for subject, place, source in doc.datasources():
        if isinstance(source, str):
            yield doc.problem(
                subject,
                place,
                f'data source is the string "{source}"',
                'write {"type": "prometheus", "uid": "${datasource}"}',
            )


def datasource_literal(doc: Document) -> Iterator[Problem]:
    """Data sources come from the variable (dashboard-linter: panel-datasource).

    A literal uid exists in one Grafana only; ``${DS_PROMETHEUS}`` outside the import dialog exists in none.
    """
    for subject, place, source in doc.datasources():
        if not isinstance(source, dict) or source.get("type") in _BUILT_IN_TYPES:
            continue
        value = _text(source.get("uid"))
        if not value or value in _BUILT_IN_UIDS:
            continue
        match = VARIABLE.fullmatch(value)
        if match is None:
            what = f"data source is fixed to uid {value}"
        elif _name(match) not in doc.datasource_variables:
            what = f"data source is {value}, which is not a datasource variable here"
        else:
            continue
        yield doc.problem(subject, place, what, 'use the variable: "uid": "${datasource}"')


def datasource_missing(doc: Document) -> Iterator[Problem]:
    """Panels, targets, query variables and annotations all name their data source.

    Without one, Grafana takes its default, which may be of another kind; and the choice at the top of the
    dashboard does not reach that panel.
    """
    for subject, place, source in doc.datasources():
        if source is None or (isinstance(source, dict) and not source.get("uid")):
            yield doc.problem(
                subject,
                place,
                "names no data source",
                'write {"type": "prometheus", "uid": "${datasource}"}',
                "warning",
            )


def datasource_text(doc: Document) -> Iterator[Problem]:
    """Titles, legends and texts show a data source by name.

    Since Grafana 10.1 ``${datasource}`` in a text shows the uid; ``${datasource:text}`` shows the name.
    """
    texts = [("dashboard", "title", doc.data.get("title"))]
    for panel in doc.panels:
        texts += [(panel.subject, f"{panel.place}.{key}", panel.data.get(key)) for key in ("title", "description")]
        texts += [(panel.subject, f"{at}.legendFormat", target.get("legendFormat")) for at, target in panel.targets()]
        options = panel.data.get("options")
        if panel.type == "text" and isinstance(options, dict):
            texts.append((panel.subject, f"{panel.place}.options.content", options.get("content")))
    for subject, place, text in texts:
        for match in VARIABLE.finditer(_text(text)):
            if _name(match) in doc.datasource_variables and ":" not in match[0]:
                yield doc.problem(
                    subject, place, f"{match[0]} shows a uid", f"write ${{{_name(match)}:text}}", "warning"
                )


# --- panels ---------------------------------------------------------------------------------------------


def panel_type(doc: Document) -> Iterator[Problem]:
    """No panel is of a type that Grafana has dropped.

    Angular panels (graph, singlestat, table-old and many plugins) show nothing since Grafana 12. A heatmap
    without ``options`` or a table with ``styles`` is the Angular one under a name that lives on.
    """
    for panel in doc.panels:
        place = f"{panel.place}.type"
        if panel.type in _DEAD_PANELS:
            yield doc.problem(panel.subject, place, f"type {panel.type} is gone", f"use {_DEAD_PANELS[panel.type]}")
        elif panel.type == "heatmap" and not panel.data.get("options"):
            yield doc.problem(panel.subject, place, "is an Angular heatmap", "give it `options`")
        elif panel.type == "table" and panel.data.get("styles"):
            yield doc.problem(panel.subject, place, "is an Angular table", "replace `styles` by `fieldConfig`")


def panel_id(doc: Document) -> Iterator[Problem]:
    """Every panel, rows and those inside them too, has its own positive ``id``.

    With a null or a doubled id, links to the panel, its alerts and "view" open another one or none.
    """
    seen: dict[int, _Panel] = {}
    for panel in doc.panels:
        number = panel.data.get("id")
        place = f"{panel.place}.id"
        if not isinstance(number, int) or number < 1:
            yield doc.problem(panel.subject, place, f"id is {number!r}", "number the panels from 1")
        elif number in seen:
            yield doc.problem(
                panel.subject, place, f"id {number} is that of {seen[number].subject}", "number the panels apart"
            )
        else:
            seen[number] = panel


def ref_id(doc: Document) -> Iterator[Problem]:
    """Each target has a ``refId`` of its own within its panel.

    Of two that share one, Grafana shows one.
    """
    for panel in doc.panels:
        ids = [(place, _text(target.get("refId"))) for place, target in panel.targets()]
        counts = Counter(value for _, value in ids)
        for place, value in ids:
            if not value:
                yield doc.problem(panel.subject, f"{place}.refId", "target has no refId", "name it A, B, C, …")
            elif counts[value] > 1:
                yield doc.problem(
                    panel.subject, f"{place}.refId", f"refId {value} occurs twice", "name them A, B, C, …"
                )


def grid(doc: Document) -> Iterator[Problem]:
    """Panels have a place in the grid of 24 columns, and do not overlap.

    Grafana pushes overlapping panels about on load, so that nobody sees the layout that was written.
    Panels in legacy ``rows`` lose their place altogether.
    """
    if doc.data.get("rows"):
        yield doc.problem(
            "dashboard", "rows", "keeps panels in legacy `rows`", "put them in `panels`, each with its gridPos"
        )
    boxes: dict[str, list[tuple[_Panel, tuple[int, int, int, int]]]] = {}
    for panel in doc.panels:
        if panel.inside.startswith("rows["):
            continue
        position = panel.data.get("gridPos")
        values = [position.get(key) for key in "xywh"] if isinstance(position, dict) else []
        place = f"{panel.place}.gridPos"
        numbers = [value for value in values if isinstance(value, int) and value >= 0]
        if len(numbers) != 4:
            yield doc.problem(panel.subject, place, "has no place in the grid", "set gridPos with x, y, w, h")
            continue
        x, y, w, h = numbers
        if w < 1 or h < 1 or x + w > GRID_WIDTH:
            yield doc.problem(panel.subject, place, f"x={x} w={w} h={h} leaves the grid", "keep x + w within 24")
        for other, (x2, y2, w2, h2) in boxes.setdefault(panel.inside, []):
            if x < x2 + w2 and x2 < x + w and y < y2 + h2 and y2 < y + h:
                yield doc.problem(panel.subject, place, f"overlaps {other.subject}", "move one of them")
        boxes[panel.inside].append((panel, (x, y, w, h)))


def row_layout(doc: Document) -> Iterator[Problem]:
    """An open row is followed by its panels; a collapsed one holds them inside.

    Panels inside an open row are not shown until somebody closes and opens it. Panels that follow a
    collapsed row without being inside it stay visible below its closed title.
    """
    above: _Panel | None = None
    for panel in doc.panels:
        if panel.inside != "panels":
            continue
        if panel.type == "row":
            above = panel
            if panel.data.get("panels") and not panel.data.get("collapsed"):
                what = "is open but holds panels: they stay hidden"
                mend = "put them after the row, or set collapsed"
                yield doc.problem(panel.subject, f"{panel.place}.panels", what, mend)
        elif above is not None and above.data.get("collapsed"):
            yield doc.problem(
                panel.subject, panel.place, f"follows the collapsed {above.subject}", "put it inside", "warning"
            )


def title_description(doc: Document) -> Iterator[Problem]:
    """Every panel has a title and a description (dashboard-linter: panel-title-description).

    The description is what the reader at night sees behind the "i": what is counted, and what it hides.
    """
    for panel in doc.panels:
        if not panel.queries:
            continue
        if not _text(panel.data.get("title")).strip():
            yield doc.problem(panel.subject, f"{panel.place}.title", "has no title", "give it one")
        if not _text(panel.data.get("description")).strip():
            yield doc.problem(
                panel.subject,
                f"{panel.place}.description",
                "has no description",
                "say what it counts and what it cannot see",
                "warning",
            )


def units(doc: Document) -> Iterator[Problem]:
    """Panels of numbers have a unit (dashboard-linter: panel-units).

    Excused as in the linter: panels with value mappings, and stat panels that show a text field.
    """
    for panel in doc.panels:
        if panel.type not in _NUMERIC_PANELS:
            continue
        config = panel.data.get("fieldConfig")
        config = config if isinstance(config, dict) else {}
        defaults = config.get("defaults")
        defaults = defaults if isinstance(defaults, dict) else {}
        options = panel.data.get("options")
        reduce = options.get("reduceOptions") if isinstance(options, dict) else None
        fields = reduce.get("fields") if isinstance(reduce, dict) else None
        overridden = any(
            prop.get("id") == "unit"
            for _, override in _objects(config.get("overrides"))
            for _, prop in _objects(override.get("properties"))
        )
        if not (defaults.get("unit") or defaults.get("mappings") or overridden or fields):
            yield doc.problem(
                panel.subject,
                f"{panel.place}.fieldConfig.defaults.unit",
                "has no unit",
                "set one; `short` is the unit of a plain number",
                "warning",
            )


def no_targets(doc: Document) -> Iterator[Problem]:
    """Every panel that draws data has a query (dashboard-linter: panel-no-targets)."""
    for panel in doc.panels:
        if panel.queries and not panel.data.get("libraryPanel") and not any(panel.targets()):
            yield doc.problem(panel.subject, f"{panel.place}.targets", "has no query", "add one or remove it")


# --- queries --------------------------------------------------------------------------------------------


def rate_interval(doc: Document) -> Iterator[Problem]:
    """``rate``, ``irate`` and ``increase`` look back by ``$__rate_interval`` (dashboard-linter: target-rate-interval).

    ``$__interval`` is one step of the graph: zoomed in it is shorter than a scrape interval, and the panel
    is empty. A fixed range is empty where targets are scraped too seldom for it, and skips samples when the
    step is longer. ``$__range`` (a total over what is shown) and the dashboard's own variables pass.
    """
    for subject, place, expr in _queries(doc.data):
        for function, text in _ranges(expr):
            if function not in {"rate", "irate", "increase"}:
                continue
            names = {_name(match) for match in VARIABLE.finditer(text)}
            if "__interval" in names:
                yield doc.problem(
                    subject, place, f"{function}(…[{text}]) is empty when zoomed in", "use $__rate_interval"
                )
            elif not names:
                yield doc.problem(
                    subject,
                    place,
                    f"{function}(…[{text}]) has a fixed range",
                    "use $__rate_interval, or say in the title that it is over that time",
                    "warning",
                )


def min_interval(doc: Document) -> Iterator[Problem]:
    """Queries with ``$__rate_interval`` say how often the target is scraped (their ``interval``, "min step").

    Grafana makes ``$__rate_interval`` four times that, or four times the data source's setting, which is
    15 s unless somebody changed it: a rate over a target scraped every minute is then empty.
    """
    for panel in doc.panels:
        for place, target in panel.targets():
            if "__rate_interval" in _text(target.get("expr")) and not target.get("interval"):
                yield doc.problem(
                    panel.subject,
                    place,
                    "leaves the scrape interval to the data source's setting",
                    "set the target's `interval` to the scrape interval",
                    "info",
                )


# --- the registry ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rule:
    """A check with its id; its docstring explains it."""

    id: str
    check: Callable[[Document], Iterator[Problem]]

    @property
    def explanation(self) -> str:
        return self.check.__doc__ or ""


READABLE = Rule("dashboard-json", readable)
"""The first of all: the others need a dashboard to look at."""

RULES: tuple[Rule, ...] = (
    READABLE,
    Rule("dashboard-schema-version", schema_version),
    Rule("dashboard-inputs", inputs),
    Rule("dashboard-uid", uid),
    Rule("dashboard-id", database_id),
    Rule("dashboard-editable", editable),
    Rule("dashboard-size", size),
    Rule("dashboard-template-datasource", template_datasource),
    Rule("dashboard-template-job", template_job),
    Rule("dashboard-template-query", template_query),
    Rule("dashboard-template-reload", template_reload),
    Rule("dashboard-undefined-variable", undefined_variable),
    Rule("dashboard-unescaped-variable", unescaped_variable),
    Rule("dashboard-datasource-string", datasource_string),
    Rule("dashboard-datasource-literal", datasource_literal),
    Rule("dashboard-datasource-missing", datasource_missing),
    Rule("dashboard-datasource-text", datasource_text),
    Rule("dashboard-panel-type", panel_type),
    Rule("dashboard-panel-id", panel_id),
    Rule("dashboard-ref-id", ref_id),
    Rule("dashboard-grid", grid),
    Rule("dashboard-row-layout", row_layout),
    Rule("dashboard-title-description", title_description),
    Rule("dashboard-units", units),
    Rule("dashboard-no-targets", no_targets),
    Rule("dashboard-rate-interval", rate_interval),
    Rule("dashboard-min-interval", min_interval),
)


def check_dashboard(path: str, text: str) -> list[Problem]:
    """All that is wrong with one dashboard, in the order of its lines. ``path`` is for the reports only."""
    try:
        data = json.loads(text)
    except ValueError as error:
        line = error.lineno if isinstance(error, json.JSONDecodeError) else 0
        what, mend = f"is not JSON: {error}", "mend or remove it"
        return [Problem(path, line, READABLE.id, "dashboard", what, mend)]
    if not isinstance(data, dict):
        what, mend = "holds no JSON object", "name dashboard files only"
        return [Problem(path, 1, READABLE.id, "dashboard", what, mend)]
    doc = Document(path, text, data)
    found = [replace(problem, check=READABLE.id) for problem in readable(doc)]
    if not found:
        found = [replace(problem, check=rule.id) for rule in RULES for problem in rule.check(doc)]
    return sorted(found)


# --- for the checks of PromQL ---------------------------------------------------------------------------


def expressions(text: str) -> Iterator[tuple[str, str, str]]:
    """Each PromQL text of a dashboard as (title, JSON path, expression), Grafana's variables left as they are.

    The title is that of the panel; "annotation NAME" and "variable NAME" are there too, the latter with the
    selector out of ``label_values(selector, label)``. Nothing for a text that is no dashboard:
    ``check_dashboard`` says so. Panels and targets of another kind of data source (Loki, …) are left out.
    """
    try:
        data = json.loads(text)
    except ValueError:
        return
    if isinstance(data, dict):
        for subject, place, expr in _queries(data):
            kind, _, name = subject.partition(" ")
            yield name[1:-1] if kind in {"panel", "row"} else f"{kind} {name[1:-1]}", place, expr


def _queries(data: Json) -> Iterator[tuple[str, str, str]]:
    """(subject, JSON path, PromQL) of panels, annotations and variables."""
    for panel in _panels(data):
        for place, target in panel.targets():
            expr = _text(target.get("expr"))
            if expr.strip() and _is_prometheus(target.get("datasource"), panel.data.get("datasource")):
                yield panel.subject, f"{place}.expr", expr
    for place, annotation in _listed(data, "annotations"):
        inner = annotation.get("target")
        nested = _text(inner.get("expr")) if isinstance(inner, dict) else ""
        expr, key = (nested, "target.expr") if nested else (_text(annotation.get("expr")), "expr")
        if expr.strip() and _is_prometheus(annotation.get("datasource")):
            yield f"annotation '{annotation.get('name')}'", f"{place}.{key}", expr
    for place, variable in _listed(data, "templating"):
        if variable.get("type") != "query" or not _is_prometheus(variable.get("datasource")):
            continue
        query = _variable_query(variable)
        result = re.fullmatch(r"query_result\((.*)\)", query, re.DOTALL)
        expr = result[1] if result else _label_values(query)
        if expr:
            yield f"variable '{variable.get('name')}'", f"{place}.query", expr


def _is_prometheus(*sources: Any) -> bool:
    """Whether the first data source that says its type says Prometheus; one that does not is taken for one."""
    for source in sources:
        kind = source.get("type") if isinstance(source, dict) else None
        if kind and kind not in _BUILT_IN_TYPES:
            return bool(kind == "prometheus")
    return True


def _label_values(query: str) -> str:
    """The selector in ``label_values(selector, label)``; empty if there is none."""
    match = re.fullmatch(r"label_values\((.*),\s*[^,{}()]+\)", query, re.DOTALL)
    return match[1].strip() if match else ""


#: Text in which nothing opens, closes or stands in for something.
_PLAIN = re.compile(r"[^$\"'`#()\[\]{}\\]+")


def _ranges(expr: str) -> Iterator[tuple[str, str]]:
    """Each ``[…]`` outside strings with the innermost function that it stands in."""
    calls: list[str] = []
    for start, char, end in _tokens(expr):
        if char == "(":
            before = re.search(r"([A-Za-z_]\w*)\s*$", expr[:start])
            calls.append(before[1] if before else "")
        elif char == ")" and calls:
            calls.pop()
        elif char == "[":
            yield calls[-1] if calls else "", expr[start + 1 : end - 1].strip()


def _tokens(expr: str) -> Iterator[tuple[int, str, int]]:
    """(start, first character, end) of brackets, whole ranges and variables.

    Strings, comments and plain text are passed over, variables outside ranges are given as "$".
    """
    at = 0
    while at < len(expr):
        plain = _PLAIN.match(expr, at)
        if plain:
            at = plain.end()
            continue
        char = expr[at]
        variable = VARIABLE.match(expr, at)
        end = at + 1
        if variable:
            char, end = "$", variable.end()
        elif char in "\"'`":
            end = _string_end(expr, at)
            at = end
            continue
        elif char == "#":
            end = expr.find("\n", at)
            at = end if end >= 0 else len(expr)
            continue
        elif char == "[":
            end = _range_end(expr, at)
        yield at, char, end
        at = end


def _string_end(expr: str, at: int) -> int:
    quote, end = expr[at], at + 1
    while end < len(expr) and expr[end] != quote:
        end += 2 if expr[end] == "\\" and quote != "`" else 1
    return min(end + 1, len(expr))


def _range_end(expr: str, at: int) -> int:
    end = at + 1
    while end < len(expr) and expr[end] != "]":
        variable = VARIABLE.match(expr, end)
        end = variable.end() if variable else end + 1
    return min(end + 1, len(expr))


_DURATIONS = {"__rate_interval": "5m", "__interval": "1m", "__range": "1h"}
_NUMBERS = {"__range_s": "3600", "__range_ms": "3600000", "__interval_ms": "60000", "__rate_interval_ms": "300000"}


def substitute_variables(expr: str) -> str:
    """The expression with a stand-in for each of Grafana's variables, such that PromQL parsers take it.

    What stands in depends on the place: a duration in ``[…]`` and after ``offset``, the variable's name in
    strings, as a label and as (part of) a metric name, a function before ``(``, a matcher in ``{…}``, else
    a number. Only for looking at: what Grafana sends is another text.
    """
    out: list[str] = []
    at, quote, square, brace = 0, "", False, False
    while at < len(expr):
        plain = _PLAIN.match(expr, at)
        if plain:
            out.append(plain[0])
            at = plain.end()
            continue
        char = expr[at]
        match = VARIABLE.match(expr, at)
        if match:
            out.append(_stand_in(_name(match), quote, square, brace, "".join(out), expr[match.end() :]))
            at = match.end()
            continue
        step = 1
        if quote:
            if char == "\\" and quote != "`":
                step = 2
            elif char == quote:
                quote = ""
        elif char in "\"'`":
            quote = char
        elif char == "#":
            step = (expr + "\n").find("\n", at) - at
        elif char in "[]":
            square = char == "["
        elif char in "{}":
            brace = char == "{"
        out.append(expr[at : at + step])
        at += step
    return "".join(out)


def _stand_in(name: str, quote: str, square: bool, brace: bool, before: str, after: str) -> str:
    if quote:
        return name.strip("_")
    if square:
        if after[:1].isalnum():
            return "5"  # [${n}m]
        return "m" if before[-1:].isdigit() else _DURATIONS.get(name, "5m")
    if name in _DURATIONS:
        return _DURATIONS[name]
    if name.startswith("__"):
        return _NUMBERS.get(name, "1700000000000")
    if re.search(r"\boffset\s+-?$", before):
        return "5m"
    if re.search(r"@\s*$", before):
        return "1"
    if brace:
        return name if re.match(r"\w*\s*[=!]", after) or re.search(r"\w$", before) else f'{name}=~".*"'
    if re.search(r"[\w:]$", before) or re.match(r"[\w:]", after) or VARIABLE.match(after):
        return name
    if re.search(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^()]*$", before):
        return name
    if re.match(r"\s*\(", after):
        return "rate" if re.match(r"\s*\([^()]*\]\s*\)", after) else "sum"
    if re.match(r"\s+(by|without)\b", after):
        return "sum"
    if re.match(r"\s*[\[{]", after):
        return name
    alone = re.search(r"(?<!\bvector)\(\s*$", before) and re.match(r"\s*\)", after)
    whole = not before.strip() and not after.strip()
    return name if alone or whole else "1"
