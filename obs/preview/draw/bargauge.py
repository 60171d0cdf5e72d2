"""Bar gauge: a bar per series, its length the value's share of the longest (or of the field's maximum)."""

from __future__ import annotations

import math
from html import escape

from obs.preview import field as fields
from obs.preview.draw.common import Drawn, Space, nothing, readings, share
from obs.preview.query import Filled, Shown


def draw(filled: Filled, shown: Shown, space: Space) -> Drawn:
    """Bars from the left, in the order of the answer."""
    notes = fields.notes(filled.panel)
    if filled.panel.options.get("orientation") == "vertical":
        notes.append("vertical bars (drawn horizontally)")
    if not filled.series:
        return nothing(fields.plain(filled.panel), notes)
    rows, more = readings(filled, shown.range)
    longest = max((abs(value) for _, value, _, _ in rows if value is not None and math.isfinite(value)), default=0.0)
    out = []
    for own, value, text, color in rows:
        low, high = own.number("min") or 0.0, own.number("max")
        high = (longest or 1.0) if high is None else high
        part = 100 * share(value, low, high)
        out.append(
            f'<div class="bar"><span title="{escape(own.name)}">{escape(own.name)}</span>'
            f'<i style="--c:{color}"><em style="width:{part:.1f}%"></em></i><b>{escape(text)}</b></div>'
        )
    return Drawn(f'<div class="bars">{"".join(out)}</div>', "data", tuple(dict.fromkeys(notes + more)), len(rows))
