"""Text: the words of a text panel, plainly."""

from __future__ import annotations

from html import escape

from obs.preview.draw.common import Drawn, Space
from obs.preview.query import Filled, Shown, words


def draw(filled: Filled, shown: Shown, space: Space) -> Drawn:
    """The text with the variables put in; Markdown and HTML are shown as they are written."""
    options = filled.panel.options
    text = words(str(options.get("content") or ""), shown.values, filled.panel.scoped)
    marked = options.get("mode", "markdown") != "code" and any(mark in text for mark in "*_#`[<")
    notes = (f"{options.get('mode', 'markdown')} (shown as written)",) if marked else ()
    html = f'<div class="text">{escape(text)}</div>'
    return Drawn(html, "data", notes, 1) if text.strip() else Drawn(html, "empty", notes)
