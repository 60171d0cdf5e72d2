"""A filled dashboard as one HTML file: Grafana's grid, light and dark, on screen and on paper; no script, no network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from html import escape

from obs.preview import draw
from obs.preview.draw.common import Drawn, Space
from obs.preview.load import COLUMNS, Dashboard, Panel, Row
from obs.preview.query import Shown, words

WIDTH = 1440
"""Of the grid, pixels; a narrower window shrinks it."""
CELL, GAP = 30, 8
"""Height of a grid row and the distance between panels, pixels: Grafana's."""
_TITLE, _PADDING = 30, 8

_CSS = """
:root { color-scheme: light dark; --page: #f4f5f7; --panel: #ffffff; --ink: #1d2127; --muted: #59616d; --edge: #d9dde3;
  --grid: #e4e7ec; --red: #cf222e; --orange: #d9730d; --yellow: #b58900; --green: #1a7f37; --blue: #2166c0;
  --purple: #8250df; --heat: #c2410c; --on: #ffffff;
  --c0: #1a7f37; --c1: #2166c0; --c2: #b7791f; --c3: #8250df; --c4: #0e7c8b; --c5: #c2410c; --c6: #a33a6f; --c7: #5b6f95;
  --c8: #6b8e23; --c9: #7c4a21; }
@media screen and (prefers-color-scheme: dark) { :root { --page: #111217; --panel: #181b1f; --ink: #dfe2e7; --muted: #9aa3ae;
  --edge: #2b3037; --grid: #262a31; --red: #f2555f; --orange: #ff9a3c; --yellow: #f0cd3d; --green: #4cc07a; --blue: #6aa5f5;
  --purple: #b58cf0; --heat: #ff8c42; --on: #14171c;
  --c0: #4cc07a; --c1: #6aa5f5; --c2: #f0b23c; --c3: #b58cf0; --c4: #56c9d6; --c5: #ff8c42; --c6: #ee8fbc; --c7: #9fb2dc;
  --c8: #b4cc5e; --c9: #d3a27f; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 16px; max-width: 1472px; background: var(--page); color: var(--ink);
  font: 13px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 20px; margin: 0; } h1 small { font-weight: 400; font-size: 13px; color: var(--muted); margin-left: .6em; }
p { margin: 2px 0; } .muted, .vars { color: var(--muted); } .vars b { color: var(--ink); font-weight: 600; }
.vars span { margin-right: 1.4em; white-space: nowrap; } .warn { color: var(--red); } nav a { margin-right: 1.2em; }
a { color: var(--blue); text-decoration: none; }
summary { cursor: pointer; font-size: 14px; font-weight: 600; height: 30px; padding-top: 6px; margin-top: 8px; }
summary small { font-weight: 400; color: var(--muted); }
.grid { display: grid; grid-template-columns: repeat(24, minmax(0, 1fr)); grid-auto-rows: 30px; gap: 8px; }
section { background: var(--panel); border: 1px solid var(--edge); border-radius: 4px; overflow: hidden; min-width: 0;
  display: flex; flex-direction: column; }
h3 { font-size: 13px; font-weight: 600; margin: 0; padding: 6px 7px 4px; height: 29px; white-space: nowrap; overflow: hidden;
  text-overflow: ellipsis; cursor: default; }
h3 i { font-style: normal; font-weight: 400; color: var(--muted); border: 1px solid var(--edge); border-radius: 50%;
  font-size: 10px; padding: 0 4px; margin-left: 5px; }
.body { flex: 1; min-height: 0; padding: 0 7px 5px; display: flex; flex-direction: column; position: relative; }
.note { position: absolute; right: 7px; bottom: 2px; font-size: 10px; color: var(--orange); background: var(--panel);
  max-width: 100%; }
.body > svg, .tall svg { display: block; width: 100%; height: auto; max-height: 100%; flex: none; }
.tall { overflow: auto; flex: none; } .tall svg { max-height: none; }
svg text { font-size: 11px; fill: var(--muted); } svg text.name { fill: var(--ink); } svg path.grid { stroke: var(--grid); }
svg path.line { fill: none; stroke-linejoin: round; } svg path.limit { stroke-width: 1.4; }
svg path.mark { stroke-dasharray: 4 4; opacity: .8; } svg .heat { fill: var(--heat); }
svg path.rest { fill: none; stroke: var(--grid); stroke-width: 12; }
.middle { margin: auto; color: var(--muted); font-size: 15px; text-align: center; padding: 4px; }
.error { color: var(--red); font-size: 12px; overflow: auto; max-width: 100%; overflow-wrap: anywhere; }
.box { border: 1px dashed var(--muted); padding: 10px; }
.legend { overflow: auto; font-size: 11.5px; line-height: 1.4; flex: none; margin: 2px 0 0; }
.legend i { display: inline-block; width: 14px; height: 0; border-top: 4px solid var(--c); border-radius: 2px;
  margin: 0 6px 3px 0; vertical-align: middle; } .legend i.dash { border-top: 2px dashed var(--c); }
ul.legend { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: 0 14px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
.legend td, .legend th { padding: 0 0 0 12px; } .legend td:first-child,
.legend th:first-child { padding: 0; } .legend td:first-child { width: 100%; max-width: 0; white-space: nowrap;
  overflow: hidden; text-overflow: ellipsis; }
th { text-align: left; font-weight: 600; color: var(--muted); } td.r, th.r { text-align: right; white-space: nowrap; }
.rows { overflow: auto; flex: 1; min-height: 0; } .rows th { position: sticky; top: 0; background: var(--panel); }
.rows td, .rows th { padding: 4px 8px; border-bottom: 1px solid var(--grid); white-space: nowrap; font-size: 12.5px; }
.rows td.filled { background: var(--c); color: var(--on); font-weight: 600; } td.missing { color: var(--muted); }
.stats { display: flex; gap: 6px; flex: 1; min-height: 0; } .tile { flex: 1; min-width: 0; position: relative; display: flex;
  flex-direction: column; align-items: center; justify-content: center; border-radius: 3px; overflow: hidden; }
.tile b { line-height: 1.1; font-weight: 600; white-space: nowrap; } .tile span { color: var(--muted); font-size: 12px; }
.tile.filled { background: var(--c); color: var(--on); } .tile.filled span { color: var(--on); }
.spark { position: absolute; inset: auto 0 0 0; width: 100%; height: 45%; }
.bars { overflow: auto; display: flex; flex-direction: column; gap: 6px; padding: 4px 0; }
.bar { display: flex; align-items: center; gap: 10px; min-height: 22px; } .bar span { width: 34%; overflow: hidden;
  text-overflow: ellipsis; white-space: nowrap; } .bar i { flex: 1; height: 16px; background: var(--grid); border-radius: 2px; }
.bar em { display: block; height: 100%; background: var(--c); border-radius: 2px; }
.bar b { min-width: 5.5em; text-align: right; font-weight: 600; white-space: nowrap; }
.text { white-space: pre-wrap; overflow: auto; }
@media screen and (max-width: 820px) { .grid { display: block; } section { margin-bottom: 8px; max-height: 480px;
  min-height: 120px; } }
@page { size: A4 landscape; margin: 10mm; }
@media print { body { max-width: none; padding: 0; background: none; } .grid { grid-auto-rows: minmax(21px, auto); }
  section { break-inside: avoid; overflow: visible; } .legend, .rows, .tall, .bars { overflow: visible;
  max-height: none !important; height: auto !important; } .body > svg { max-height: none; } summary { break-after: avoid; }
  .rows th { position: static; } * { -webkit-print-color-adjust: exact; print-color-adjust: exact; } }
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


@dataclass(frozen=True)
class Page:
    """A page as text, and what it came to: the state of each panel by title, and its height in pixels, about."""

    html: str
    states: tuple[tuple[str, str], ...]
    height: int


def space(panel: Panel) -> Space:
    """The room inside a panel, pixels."""
    column = (WIDTH - (COLUMNS - 1) * GAP) / COLUMNS
    width = panel.grid.width * column + (panel.grid.width - 1) * GAP
    height = panel.grid.height * CELL + (panel.grid.height - 1) * GAP
    return Space(int(width) - 16, max(24, height - _TITLE - _PADDING))


def widths(dashboard: Dashboard) -> dict[int, int]:
    """The width of each panel's inside, by ``id()``: as many points are asked for."""
    return {id(panel): space(panel).width for panel in dashboard.panels}


def render(shown: Shown, source: str, links: Mapping[str, str] | None = None) -> Page:
    """The page. ``source``: where the data is from, in words; ``links``: title → address of the other pages."""
    board = shown.dashboard
    states: list[tuple[str, str]] = []
    rows = "".join(_row(row, shown, states) for row in board.rows)
    head = _head(shown, source, links or {})
    html = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(board.title)}</title>\n<style>{_CSS}</style>\n</head>\n"
        f'<body data-dashboard="{escape(board.stem)}">\n{head}\n{rows}\n</body>\n</html>\n'
    )
    height = 130 + 20 * len(shown.warnings) + sum(46 + row.height * (CELL + GAP) for row in board.rows)
    return Page(html, tuple(states), height)


def clock(at: float) -> str:
    return f"{datetime.fromtimestamp(at, timezone.utc):%Y-%m-%d %H:%M:%S}"


def _head(shown: Shown, source: str, links: Mapping[str, str]) -> str:
    board = shown.dashboard
    found = "".join(
        f"<span>{escape(one.variable.label)}: <b>{escape(one.text)}</b></span>"
        for one in shown.values.values() if not one.variable.hidden and one.variable.kind != "datasource"
    )
    nav = "".join(f'<a href="{escape(address)}">{escape(title)}</a>' for title, address in links.items())
    warnings = "".join(f'<p class="warn">{escape(one)}</p>' for one in shown.warnings)
    return (
        f"<header><h1>{escape(board.title)}<small>{escape(board.description)}</small></h1>"
        f'<p class="muted">{clock(shown.range.start)} to {clock(shown.range.end)} UTC, {escape(source)}. '
        "Drawn by obs preview, not by Grafana.</p>"
        + (f'<p class="vars">{found}</p>' if found else "") + (f"<nav>{nav}</nav>" if nav else "") + warnings + "</header>"
    )


def _row(row: Row, shown: Shown, states: list[tuple[str, str]]) -> str:
    panels = "".join(_panel(panel, shown, states) for panel in row.panels)
    grid = f'<div class="grid">{panels}</div>'
    if not row.title:
        return grid
    title = words(row.title, shown.values, row.panels[0].scoped if row.panels else {})
    folded = " <small>(folded in Grafana)</small>" if row.collapsed else ""
    return f"<details open><summary>{escape(title)}{folded}</summary>{grid}</details>"


def _panel(panel: Panel, shown: Shown, states: list[tuple[str, str]]) -> str:
    drawn = draw.panel(shown.of(panel), shown, space(panel))
    title = words(panel.title, shown.values, panel.scoped)
    states.append((title, drawn.state))
    place = panel.grid
    style = f"grid-column:{place.x + 1}/span {place.width};grid-row:{place.y + 1}/span {place.height}"
    about = f' title="{escape(panel.description)}"' if panel.description else ""
    mark = "<i>i</i>" if panel.description else ""
    return (
        f'<section data-type="{escape(panel.type)}" data-state="{drawn.state}" data-count="{drawn.count}" '
        f'data-title="{escape(title)}" style="{style}"><h3{about}>{escape(title)}{mark}</h3>'
        f'<div class="body">{drawn.html}{_notes(drawn)}</div></section>'
    )


def _notes(drawn: Drawn) -> str:
    if not drawn.notes:
        return ""
    text = "not drawn: " + "; ".join(dict.fromkeys(drawn.notes)) if drawn.state != "error" else "; ".join(drawn.notes)
    return f'<div class="note">{escape(text)}</div>'


def summary(states: Sequence[tuple[str, str]]) -> str:
    """How many panels have data, in words."""
    counts = {state: sum(one == state for _, one in states) for state in ("data", "empty", "error", "unsupported")}
    said = [f"{counts['data']} of {len(states)} panels have data"]
    others = (("error", "with an error"), ("unsupported", "not drawn"))
    said += [f"{counts[state]} {what}" for state, what in others if counts[state]]
    return ", ".join(said)
