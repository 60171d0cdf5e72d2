"""One module per kind of panel. Each draws a filled panel into a space of so many pixels, as HTML or SVG."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape

from obs.preview.draw import bargauge, gauge, heatmap, stat, state_timeline, table, textpanel, timeseries
from obs.preview.draw.common import Drawn, Space
from obs.preview.query import Filled, Shown

KINDS: dict[str, Callable[[Filled, Shown, Space], Drawn]] = {
    "bargauge": bargauge.draw,
    "gauge": gauge.draw,
    "heatmap": heatmap.draw,
    "stat": stat.draw,
    "state-timeline": state_timeline.draw,
    "table": table.draw,
    "text": textpanel.draw,
    "timeseries": timeseries.draw,
}
"""The kinds of panels that are drawn; any other is a box with its name."""


def panel(filled: Filled, shown: Shown, space: Space) -> Drawn:
    """The inside of a panel: what its kind draws, else its errors, else a box that says what is not drawn."""
    if filled.errors and not filled.series:
        lines = "".join(f"<p>{escape(one)}</p>" for one in filled.errors)
        return Drawn(f'<div class="middle error">{lines}</div>', "error")
    make = KINDS.get(filled.panel.type)
    if make is None:
        text = f"A panel of the kind “{filled.panel.type}” is not drawn here."
        return Drawn(f'<div class="middle box">{escape(text)}</div>', "unsupported")
    try:
        drawn = make(filled, shown, space)
    except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError, re.error) as error:
        # A dashboard from elsewhere may hold anything: one odd panel must not cost the others.
        text = f"This panel's settings are not understood ({type(error).__name__}: {error}); it is not drawn."
        return Drawn(f'<div class="middle box">{escape(text)}</div>', "unsupported")
    notes = (*filled.panel.notes, *drawn.notes, *filled.errors)
    return Drawn(drawn.html, "error" if filled.errors else drawn.state, notes, drawn.count)
