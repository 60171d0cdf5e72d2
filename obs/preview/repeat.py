"""Panels and rows that are repeated for each value of a variable, laid out as Grafana does."""

from __future__ import annotations

import math
from dataclasses import replace

from obs.preview.load import COLUMNS, Dashboard, Grid, Panel, Row
from obs.preview.query import Values


def expand(dashboard: Dashboard, values: Values) -> Dashboard:
    """The dashboard with each repeated row and panel written out."""
    rows: list[Row] = []
    for row in dashboard.rows:
        own = values.get(row.repeat)
        for chosen in own.chosen if row.repeat and own is not None else (None,):
            scoped = {} if chosen is None else {row.repeat: chosen}
            title = row.title.replace(f"${row.repeat}", chosen).replace(f"${{{row.repeat}}}", chosen) if chosen else row.title
            panels = tuple(replace(panel, scoped={**panel.scoped, **scoped}) for panel in row.panels)
            rows.append(Row(title, row.collapsed, _panels(panels, values)))
    return replace(dashboard, rows=tuple(rows))


def _panels(panels: tuple[Panel, ...], values: Values) -> tuple[Panel, ...]:
    """The panels of one row; those below a repeated one move down by what it grew."""
    found: list[Panel] = []
    grown: list[tuple[int, int]] = []  # (below this line, so far down)
    for panel in sorted(panels, key=lambda one: (one.grid.y, one.grid.x)):
        down = sum(by for line, by in grown if panel.grid.y >= line)
        panel = replace(panel, grid=replace(panel.grid, y=panel.grid.y + down))
        own = values.get(panel.repeat)
        if not panel.repeat or own is None or not own.chosen:
            found.append(panel)
            continue
        many = len(own.chosen)
        across = 1 if panel.repeat_down else min(many, panel.max_per_row)
        width = panel.grid.width if panel.repeat_down else COLUMNS // across
        for place, value in enumerate(own.chosen):
            column, line = place % across, place // across
            x = panel.grid.x if panel.repeat_down else column * width
            grid = Grid(x, panel.grid.y + line * panel.grid.height, width, panel.grid.height)
            found.append(replace(panel, grid=grid, scoped={**panel.scoped, panel.repeat: value}))
        extra = (math.ceil(many / across) - 1) * panel.grid.height
        if extra:
            grown.append((panel.grid.y - down + panel.grid.height, extra))
    return tuple(found)
