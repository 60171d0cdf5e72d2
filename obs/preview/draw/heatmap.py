"""Heatmap: buckets of a histogram over time. Prometheus's buckets hold those below them too; each cell is what is new in it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from obs.preview import field as fields
from obs.preview import units
from obs.preview.draw.common import CHARACTER, Drawn, Space, label, nothing, svg, time_ticks
from obs.preview.query import Filled, Series, Shown

_SHADES = 9
"""How many shades are told apart."""


def draw(filled: Filled, shown: Shown, space: Space) -> Drawn:
    """Cells from ``le`` buckets; empty cells are left empty."""
    panel, options = filled.panel, filled.panel.options
    notes = fields.notes(panel)
    own = fields.plain(panel)
    rows = buckets(filled.series)
    if options.get("calculate"):
        text = "A heatmap that calculates its own buckets is not drawn here."
        return Drawn(f'<div class="middle box">{text}</div>', "unsupported")
    least = float((options.get("filterValues") or {}).get("le") or 1e-9)
    cells = [(place, at, value) for place, (_, points) in enumerate(rows) for at, value in points.items() if value > least]
    if not cells:
        return nothing(own, notes)
    step = max(result.step for result in filled.results)
    unit = str((options.get("yAxis") or {}).get("unit") or own.unit)
    names = ["+Inf" if math.isinf(bound) else units.text(bound, unit) for bound, _ in rows]
    left = 10 + CHARACTER * max(len(name) for name in names)
    scale = 30.0
    top, bottom, right = 10.0, space.height - 18.0 - scale, space.width - 6.0
    band = (bottom - top) / len(rows)
    length = max(1e-9, shown.range.length)
    highest = max(value for _, _, value in cells)
    exponent = float((options.get("color") or {}).get("exponent") or 0.5)

    def x(at: float) -> float:
        return left + (at - shown.range.start) / length * (right - left)

    every = max(1, math.ceil(12 / band))
    out = [
        label(left - 6, bottom - band * place + 3.5, name, "end") for place, name in enumerate(names, 1)
        if (len(names) - place) % every == 0
    ]
    for at, text in time_ticks(shown.range, right - left):
        out.append(f'<path class="grid" d="M{x(at):.1f} {top}V{bottom:.1f}"/>')
        if x(at) + CHARACTER * len(text) / 2 <= space.width:
            out.append(label(x(at), bottom + 14, text, "middle"))
    shades: dict[int, list[str]] = {}
    for place, at, value in cells:
        shade = min(_SHADES - 1, int(_SHADES * (value / highest) ** exponent))
        low, high = max(left, x(at - step)), min(right, x(at))
        if high > low:
            y = bottom - band * (place + 1)
            shades.setdefault(shade, []).append(f"M{low:.1f} {y:.1f}H{high:.1f}V{y + band - 0.6:.1f}H{low:.1f}Z")
    for shade, paths in sorted(shades.items()):
        out.append(f'<path class="heat" d="{"".join(paths)}" opacity="{_opacity(shade):.2f}"/>')
    out += _key(highest, str((options.get("cellValues") or {}).get("unit") or "short"), exponent, left, space)
    return Drawn(svg(space, out, panel.title), "data", tuple(notes), len(rows))


def _opacity(shade: int) -> float:
    return 0.14 + 0.86 * shade / (_SHADES - 1)


def _key(highest: float, unit: str, exponent: float, left: float, space: Space) -> list[str]:
    """What the shades mean."""
    wide = 14.0
    y = space.height - 24.0
    out = []
    for shade in range(_SHADES):
        out.append(
            f'<rect class="heat" x="{left + wide * shade:.1f}" y="{y:.1f}" width="{wide}" height="9" '
            f'opacity="{_opacity(shade):.2f}"/>'
        )
    for share in (0.0, 0.5, 1.0):
        value = highest * share ** (1 / exponent)
        out.append(label(left + wide * _SHADES * share, y + 21, units.text(value, unit), "middle"))
    return out


def buckets(series: Sequence[Series]) -> list[tuple[float, dict[float, float]]]:
    """(upper bound, time → new in this bucket), lowest bound first. Series without a bound in their name are left out."""
    found: dict[float, dict[float, float]] = {}
    for one in series:
        text = dict(one.labels).get("le", one.name)
        try:
            bound = float(text)
        except ValueError:
            continue
        own = found.setdefault(bound, {})
        for at, value in one.points:
            own[at] = own.get(at, 0.0) + (0.0 if math.isnan(value) else value)
    rows = []
    below: dict[float, float] = {}
    for bound, points in sorted(found.items()):
        rows.append((bound, {at: max(0.0, value - below.get(at, 0.0)) for at, value in points.items()}))
        below = {**below, **points}
    return rows
