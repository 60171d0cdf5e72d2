"""Table: a row per series, after the panel's transformations; thresholds and mappings colour cells."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from urllib.parse import quote

from obs.preview import field as fields
from obs.preview import frames
from obs.preview.draw.common import Drawn, Space, nothing
from obs.preview.field import Field
from obs.preview.frames import Cell, Table
from obs.preview.load import Json
from obs.preview.query import Filled, Shown

_PLAIN = {"auto", "color-text", "color-background", "json-view"}
MOST_ROWS = 500


def draw(filled: Filled, shown: Shown, space: Space) -> Drawn:
    """The table, its header always seen."""
    panel = filled.panel
    table, notes = frames.transformed(frames.tables(filled.results), panel.transformations)
    notes = [*fields.notes(panel), *notes]
    if not table.rows:
        return nothing(fields.plain(panel), notes)
    for sort in reversed(panel.options.get("sortBy") or ()):
        table = frames.sort_by(table, str(sort.get("displayName")), bool(sort.get("desc")))
    kinds = {column: _kind(table, column) for column in table.columns}
    own = {column: fields.field(panel, column, kind=kinds[column]) for column in table.columns}
    columns = [column for column in table.columns if not own[column].custom.get("hidden")]
    for column in columns:
        style = str((own[column].custom.get("cellOptions") or {}).get("type") or "auto")
        if style not in _PLAIN:
            notes.append(f"cells of the kind {style} (shown as text)")
    if len(table.rows) > MOST_ROWS:
        notes.append(f"{len(table.rows) - MOST_ROWS} more rows")
    side = {column: ' class="r"' if kinds[column] == "number" else "" for column in columns}
    heads = "".join(f"<th{side[column]}>{escape(own[column].name)}</th>" for column in columns)
    body = "".join(
        "<tr>" + "".join(_cell(own[c], row.get(c), kinds[c], row, shown) for c in columns) + "</tr>"
        for row in table.rows[:MOST_ROWS]
    )
    html = f'<div class="rows"><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>'
    return Drawn(html, "data", tuple(dict.fromkeys(notes)), len(table.rows))


def _kind(table: Table, column: str) -> str:
    if column == "Time":
        return "time"
    values = [row.get(column) for row in table.rows]
    return "number" if any(isinstance(value, (int, float)) for value in values) else "string"


def _cell(own: Field, value: Cell, kind: str, row: Mapping[str, Cell], shown: Shown) -> str:
    if kind == "time" and own.unit in {"none", "short"} and isinstance(value, (int, float)):
        own = Field(own.name, {**own.config, "unit": "dateTimeAsIso"})
    missing = value is None or value == ""
    text, tint = own.text(None if missing else value, shown.range.end)
    if missing and kind == "string" and "noValue" not in own.config:
        text = ""
    style = str((own.custom.get("cellOptions") or {}).get("type") or "auto")
    classes = ["r"] if kind == "number" else []
    css = ""
    if style in {"color-text", "color-background"}:
        number = value if isinstance(value, (int, float)) and not math.isnan(value) else None
        color = tint or ("" if number is None else own.threshold(number))
        if color and color != "var(--ink)":
            classes += ["filled"] if style == "color-background" else []
            css = f' style="--c:{color}"' if style == "color-background" else f' style="color:{color}"'
    elif missing:
        classes.append("missing")
    kind_ = f' class="{" ".join(classes)}"' if classes else ""
    inner = escape(text)
    link = None if missing else _link(own.config.get("links") or (), str(value), row)
    if link:
        inner = f'<a href="{escape(link)}" rel="noreferrer">{inner}</a>'
    return f"<td{kind_}{css}>{inner}</td>"


def _link(links: Sequence[Json], value: str, row: Mapping[str, Cell]) -> str:
    """The first link that leads out of Grafana, with the cell's value put in; "" where there is none."""
    for one in links:
        url = str(one.get("url") or "")
        url = url.replace("${__value.raw}", quote(value, safe="")).replace("${__value.text}", quote(value, safe=""))
        if url.startswith(("https://", "http://")) and "${" not in url:
            return url
    return ""
