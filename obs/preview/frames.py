"""Tables out of answers: a row per series, and the transformations that our panels use."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from obs.preview.load import Json
from obs.preview.query import Result

Cell = float | str | None


@dataclass(frozen=True)
class Table:
    """Columns in order, and rows as column → cell; a cell that is not there is None."""

    columns: tuple[str, ...]
    rows: tuple[dict[str, Cell], ...]


def tables(results: Sequence[Result]) -> list[Table]:
    """A table per query: time (unix milliseconds), labels, value ("Value #B" where there are several queries)."""
    found = []
    for result in results:
        name = "Value" if len(results) == 1 else f"Value #{result.target.ref}"
        labels = sorted({key for series in result.series for key, _ in series.labels})
        rows: tuple[dict[str, Cell], ...] = tuple(
            {"Time": at * 1000, **dict(series.labels), name: value}
            for series in result.series for at, value in (series.points[-1:] if result.step == 0 else series.points)
        )
        if rows:
            found.append(Table(("Time", *labels, name), rows))
    return found


def transformed(found: list[Table], transformations: Iterable[Json]) -> tuple[Table, list[str]]:
    """One table, and what was not applied. Without ``merge`` the first table is shown, as Grafana does."""
    notes = []
    for one in transformations:
        kind, options = str(one.get("id")), one.get("options") or {}
        if kind == "merge":
            found = [merge(found)] if found else []
        elif kind == "organize":
            found = [organize(table, options) for table in found]
        elif kind == "sortBy":
            for sort in reversed(options.get("sort") or ()):
                found = [sort_by(table, str(sort.get("field")), bool(sort.get("desc"))) for table in found]
        elif kind == "renameByRegex":
            found = [_rename(table, options) for table in found]
        elif kind == "filterFieldsByName":
            found = [_filtered(table, options) for table in found]
        else:
            notes.append(f"transformation {kind}")
    if len(found) > 1:
        notes.append(f"{len(found) - 1} more tables (Grafana offers a choice below)")
    return (found[0] if found else Table((), ())), notes


def merge(found: Sequence[Table]) -> Table:
    """One table: rows that agree in every column that all tables have, and contradict each other in none, are one."""
    columns = tuple(dict.fromkeys(column for table in found for column in table.columns))
    common = [column for column in columns if all(column in table.columns for table in found)]
    groups: dict[tuple[Cell, ...], list[dict[str, Cell]]] = {}
    for table in found:
        for row in table.rows:
            group = groups.setdefault(tuple(row.get(column) for column in common), [])
            for mine in group:
                if all(mine.get(key) is None or mine[key] == value for key, value in row.items()):
                    mine.update(row)
                    break
            else:
                group.append(dict(row))
    return Table(columns, tuple(row for group in groups.values() for row in group))


def organize(table: Table, options: Json) -> Table:
    """Columns left out, put in order and renamed."""
    left_out, places, names = (options.get(key) or {} for key in ("excludeByName", "indexByName", "renameByName"))
    kept = [column for column in table.columns if not left_out.get(column)]
    kept.sort(key=lambda column: float(places.get(column, math.inf)))
    new = {column: str(names.get(column) or column) for column in kept}
    return Table(tuple(new.values()), tuple({new[k]: v for k, v in row.items() if k in new} for row in table.rows))


def sort_by(table: Table, column: str, desc: bool) -> Table:
    """Rows in the order of a column; those without a value last."""
    if column not in table.columns:
        return table

    def missing(row: dict[str, Cell]) -> bool:
        value = row.get(column)
        return value is None or value == "" or (isinstance(value, float) and math.isnan(value))

    def key(row: dict[str, Cell]) -> tuple[int, Any]:
        value = row[column]
        return (1, value.lower()) if isinstance(value, str) else (0, value)

    full = sorted((row for row in table.rows if not missing(row)), key=key, reverse=desc)
    return Table(table.columns, (*full, *(row for row in table.rows if missing(row))))


def _renamed(table: Table, names: dict[str, str]) -> Table:
    return Table(tuple(names.values()), tuple({names[k]: v for k, v in row.items() if k in names} for row in table.rows))


def _rename(table: Table, options: Json) -> Table:
    pattern, text = str(options.get("regex") or ""), re.sub(r"\$(\d)", r"\\\1", str(options.get("renamePattern") or ""))
    try:
        return _renamed(table, {column: re.sub(pattern, text, column, count=1) for column in table.columns})
    except re.error:
        return table


def _filtered(table: Table, options: Json) -> Table:
    include, exclude = (options.get(key) or {} for key in ("include", "exclude"))

    def fits(column: str, rule: Json) -> bool:
        return column in (rule.get("names") or ()) or bool(rule.get("pattern") and re.search(str(rule["pattern"]), column))

    kept = [c for c in table.columns if (not include or fits(c, include)) and not (exclude and fits(c, exclude))]
    return _renamed(table, {column: column for column in kept})
