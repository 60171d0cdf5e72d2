"""Gauge: half a ring per series, filled up to its value."""

from __future__ import annotations

import math
from html import escape

from obs.preview import field as fields
from obs.preview.draw.common import Drawn, Space, nothing, readings, share
from obs.preview.query import Filled, Shown


def draw(filled: Filled, shown: Shown, space: Space) -> Drawn:
    """A ring per series; its ends are the field's minimum and maximum (0 and 100 where it has none)."""
    notes = fields.notes(filled.panel)
    if not filled.series:
        return nothing(fields.plain(filled.panel), notes)
    out = []
    found, more = readings(filled, shown.range)
    for own, value, text, color in found:
        low, high = own.number("min") or 0.0, own.number("max")
        high = (1.0 if own.unit == "percentunit" else 100.0) if high is None else high
        part = share(value, low, high)
        name = own.name if len(filled.series) > 1 else ""
        out.append(
            f'<div class="tile"><svg viewBox="0 0 120 66" style="max-height:{space.height - 24}px" aria-hidden="true">'
            f'<path d="{_arc(1.0)}" class="rest"/><path d="{_arc(part)}" fill="none" stroke="{color}" stroke-width="12"/>'
            f'<text x="60" y="58" text-anchor="middle" style="font-size:15px;fill:{color}">{escape(text)}</text></svg>'
            f"<span>{escape(name)}</span></div>"
        )
    return Drawn(f'<div class="stats">{"".join(out)}</div>', "data", tuple(dict.fromkeys(notes + more)), len(filled.series))


def _arc(part: float) -> str:
    angle = math.pi * (1 - max(0.001, part))
    return f"M12 60A48 48 0 0 1 {60 + 48 * math.cos(angle):.1f} {60 - 48 * math.sin(angle):.1f}"
