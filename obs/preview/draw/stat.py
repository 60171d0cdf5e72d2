"""Stat: one number per series, in the colour of its threshold, with its course behind it where the panel asks for it."""

from __future__ import annotations

import math
from html import escape

from obs.preview import field as fields
from obs.preview.draw.common import Drawn, Space, reduced
from obs.preview.field import Field
from obs.preview.query import Filled, Series, Shown


def draw(filled: Filled, shown: Shown, space: Space) -> Drawn:
    """A tile per series, side by side; without a series one that says so."""
    options = filled.panel.options
    notes = fields.notes(filled.panel)
    tiles = []
    many: list[Series | None] = list(filled.series) or [None]
    for index, series in enumerate(many):
        own = fields.field(filled.panel, series.name if series else "", ref=series.ref if series else "")
        value, more = reduced(options, series.numbers if series else ())
        notes += more
        text, tint = own.text(value, shown.range.end)
        color = tint or ("var(--muted)" if value is None else own.colored(index, value))
        tiles.append(_tile(text, color, own, series, options.get("colorMode") or "value", len(many), space, options))
    html = f'<div class="stats">{"".join(tiles)}</div>'
    return Drawn(html, "data" if filled.series else "empty", tuple(dict.fromkeys(notes)), len(filled.series))


def _tile(
    text: str, color: str, own: Field, series: Series | None, mode: str, many: int, space: Space, options: object
) -> str:
    width = space.width / many - 8
    wanted = options.get("textMode") if isinstance(options, dict) else ""
    name = own.name if series is not None and wanted != "value" and (many > 1 or wanted in {"name", "value_and_name"}) else ""
    room = space.height - (22 if name else 4)
    size = max(13.0, min(0.62 * room, 1.45 * width / max(4, len(text)), 52.0))
    style = f"font-size:{size:.0f}px"
    kind = "tile"
    if mode.startswith("background") and color not in {"var(--ink)", "var(--muted)"}:
        return _html(f'{kind} filled" style="--c:{color}', "" if wanted == "name" else text, name, style, "")
    spark = _spark(series, color, space) if isinstance(options, dict) and options.get("graphMode") == "area" else ""
    tint = "var(--ink)" if mode == "none" else color
    return _html(kind, "" if wanted == "name" else text, name, f"{style};color:{tint}", spark)


def _html(kind: str, text: str, name: str, style: str, spark: str) -> str:
    head = f"<span>{escape(name)}</span>" if name else ""
    return f'<div class="{kind}">{spark}{head}<b style="{style}">{escape(text)}</b></div>'


def _spark(series: Series | None, color: str, space: Space) -> str:
    """The course of the value, small, at the tile's bottom."""
    points = [one for one in series.points if math.isfinite(one[1])] if series else []
    if len(points) < 2:
        return ""
    start, end = points[0][0], points[-1][0]
    low, high = min(0.0, *(value for _, value in points)), max(value for _, value in points)
    size = high - low or 1.0
    path = "L".join(
        f"{100 * (at - start) / (end - start):.1f} {30 - 28 * (value - low) / size:.1f}" for at, value in points
    )
    return (
        f'<svg class="spark" viewBox="0 0 100 30" preserveAspectRatio="none" aria-hidden="true"><path d="M{path}L100 30L0 30Z" '
        f'fill="{color}" opacity=".25"/></svg>'
    )
