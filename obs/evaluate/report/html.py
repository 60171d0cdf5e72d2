"""A backtest as one HTML file: readable without a network, on a phone and on paper, in light and dark."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

from obs.evaluate import compare
from obs.evaluate.history import Choice, History
from obs.evaluate.liveness import label_text
from obs.evaluate.report import Report, drawing, inexact, ordered, ways, words
from obs.evaluate.rules import Rule
from obs.evaluate.score import Episode, Score
from obs.promql import duration

MAX_CHARTS = 40
"""Alerts drawn each by itself: the noisiest; the others are in the tables."""
_EPISODES_SHOWN = 20
_FALSE_SHOWN = 100

_CSS = """
:root { color-scheme: light dark; --page: #ffffff; --ink: #1d2127; --muted: #59616d; --grid: #d9dde3; --soft: #f4f5f7;
  --pending: #d98a00; --firing: #d03238; --band: #5b6f95; --limit: #8a1c7c; --good: #16803c;
  --line0: #1764ab; --line1: #12805c; --line2: #8b5a14; --line3: #6a4fbf; --line4: #0e7c8b; --line5: #a33a6f; }
@media screen and (prefers-color-scheme: dark) { :root { --page: #14171c; --ink: #e7eaee; --muted: #a4adb9;
  --grid: #333a45; --soft: #1d222a; --pending: #f0b23c; --firing: #f2666b; --band: #8fa5d0; --limit: #e08ad2;
  --good: #4cc07a; --line0: #6db3f2; --line1: #4fcf9f; --line2: #d9a55b; --line3: #a992f5; --line4: #56c9d6;
  --line5: #ee8fbc; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.2rem 1rem 3rem; max-width: 66rem; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .3rem; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; }
h3 { font-size: 1rem; margin: 1.8rem 0 .2rem; overflow-wrap: anywhere; }
h4 { font-size: .9rem; margin: .8rem 0 .1rem; color: var(--muted); }
p { margin: .4rem 0; } .muted { color: var(--muted); } code, pre { font: .85em/1.45 ui-monospace, Menlo, Consolas, monospace; }
pre { background: var(--soft); padding: .5rem .7rem; border-radius: 4px;
  white-space: pre-wrap; overflow-wrap: anywhere; margin: .4rem 0; }
.verdict { font-size: 1.05rem; border-left: .3rem solid var(--muted); padding: .2rem 0 .2rem .7rem; margin: .8rem 0; }
.verdict.bad { border-color: var(--firing); } .verdict.good { border-color: var(--good); }
.tiles { display: flex; flex-wrap: wrap; gap: .6rem; margin: 1rem 0; padding: 0; list-style: none; }
.tiles li { background: var(--soft); border-radius: 6px; padding: .5rem .9rem; min-width: 6.5rem; }
.tiles b { display: block; font-size: 1.25rem; line-height: 1.3; } .tiles span { color: var(--muted); font-size: .85rem; }
.wide { overflow-x: auto; } .wide svg { display: block; width: 100%; min-width: 40rem; height: auto; }
svg path { stroke-linejoin: round; }
table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums; width: 100%; }
th, td { padding: .3rem .45rem; border-bottom: 1px solid var(--grid); text-align: left; vertical-align: top; }
th { font-weight: 600; color: var(--muted); vertical-align: bottom; }
th.r, td.r { text-align: right; white-space: nowrap; } tr.sum td { font-weight: 600; border-bottom: 0; }
td.bad { color: var(--firing); font-weight: 600; } td:first-child { white-space: nowrap; }
.key { display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; color: var(--muted); font-size: .85rem; margin: .3rem 0; }
.key i { display: inline-block; width: .9rem; height: .7rem; border-radius: 2px; margin-right: .35rem; }
a { color: inherit; }
@media (max-width: 40rem) { body { padding: .8rem .7rem 2rem; font-size: 14px; } h1 { font-size: 1.25rem; }
  .tiles li { min-width: 5.2rem; padding: .4rem .6rem; } th, td { padding: .3rem .4rem; } }
@media print { details::details-content { content-visibility: visible; }
  body { max-width: none; padding: 0; font-size: 10pt; } .wide { overflow: visible; }
  .wide svg { min-width: 0; } section.alert, tr, .tiles, figure { break-inside: avoid; } h2, h3 { break-after: avoid; }
  table { font-size: 8pt; } th, td { padding: .15rem .3rem; } td:first-child { white-space: normal; }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; } }
figure { margin: .3rem 0; } summary { cursor: pointer; color: var(--muted); font-size: .9rem; }
"""


def render(report: Report) -> str:
    """The report as a whole HTML page. ToolError, with the mend, when matplotlib is missing."""
    body = [
        f"<h1>obs backtest</h1><p>{escape(words.subject(report))}</p>",
        f'<p class="muted">rules: {escape(report.rules)}'
        + (f"; against: {escape(report.against_rules)}" if report.comparison else "") + "</p>",
        *_verdict(report), *_tiles(report), *_overview(report), *_comparison(report), *_scores(report), *_sweeps(report),
        *_alerts(report), *_rest(report),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>obs backtest: {escape(report.title)}</title>\n<style>{_CSS}</style>\n</head>\n<body>\n"
        + "\n".join(body) + "\n</body>\n</html>\n"
    )


def _verdict(report: Report) -> Iterable[str]:
    judged = report.score.incidents is not None
    last = report.score if report.comparison is None else report.comparison.new
    bad = bool(report.broken or report.warnings or (judged and (last.total.false or last.missed)))
    kind = "bad" if bad else "good" if judged or report.policies else ""
    yield f'<p class="verdict {kind}">{escape(words.verdict(report))}</p>'
    for one in report.broken:
        yield f'<p class="verdict bad">broken: {escape(one)}</p>'
    for one in report.warnings:
        yield f'<p class="verdict bad">warning, data may be missing: {escape(one)}</p>'


def _tiles(report: Report) -> Iterable[str]:
    if report.comparison is not None:
        return
    total = report.score.total
    tiles = [(str(total.episodes), "episodes")]
    if report.score.incidents is not None:
        tiles += [
            (words.count(total.false), "false"), (words.share(total.precision), "precision"),
            (f"{(total.expected or 0) - (total.missed or 0)} of {total.expected}", "incidents detected"),
            (words.span(total.detect_median_ms), "to detect (median)"),
        ]
    tiles += [(str(total.flaps), "flaps"), (words.hours(total.firing_ms), "firing"), (str(len(report.blind)), "blind alerts")]
    if total.pages_per_week is not None:
        tiles.append((words.count(total.pages_per_week), "pages a week"))
    items = "".join(f"<li><b>{escape(value)}</b><span>{escape(name)}</span></li>" for value, name in tiles)
    yield f'<ul class="tiles">{items}</ul>'


def _old(report: Report) -> str:
    return ", old rules" if report.comparison is not None else ""


_KEY = (
    '<p class="key"><span><i style="background:var(--pending)"></i>pending</span>'
    '<span><i style="background:var(--firing)"></i>firing</span>'
    '<span><i style="background:var(--band);opacity:.35"></i>{what}</span></p>'
)


def _key(report: Report) -> str:
    return _KEY.format(what="incident" if report.incident_bands else "phase") if report.background else _KEY.format(
        what=""
    ).replace('<span><i style="background:var(--band);opacity:.35"></i></span>', "")


def _figure(svg: str) -> str:
    return f'<figure class="wide">{svg}</figure>'


def _overview(report: Report) -> Iterable[str]:
    line = report.history.timeline
    if not line.instances:
        yield "<p>No alert was ever pending or firing.</p>"
    else:
        yield f"<h2>Timeline{_old(report)}</h2>" + _key(report)
        yield _figure(drawing.lanes(line, report.background, f"timeline of {report.rules}"))
    if report.against is not None and report.against.timeline.instances:
        yield f"<h3>New rules: {escape(report.against_rules)}</h3>"
        label = f"timeline of the new rules {report.against_rules}"
        yield _figure(drawing.lanes(report.against.timeline, report.background, label))


def _scores(report: Report) -> Iterable[str]:
    drawn = _drawn(report)
    yield f"<h2>Score{_old(report)}</h2>"
    if report.comparison is not None:
        yield f"<p>{escape(words.score_line(report))}</p>"
    yield _table(words.scores(report.score), {name: f"#{_anchor(name)}" for name in drawn})
    if report.score.incidents:
        yield f"<h2>Incidents{_old(report)}</h2>" + _table(words.incidents(report))
    shown, more = words.false_episodes(report, _FALSE_SHOWN)
    if shown.rows and report.score.incidents is not None:
        yield "<h2>False episodes</h2>" + _table(shown) + (f"<p>and {more} more</p>" if more else "")
    if report.score.outside:
        yield f"<p>Outside this time and not judged: {escape(', '.join(report.score.outside))}</p>"


def _comparison(report: Report) -> Iterable[str]:
    found = report.comparison
    if found is None:
        return
    yield "<h2>Old rules and new</h2>" + _table(words.totals(found))
    if found.incidents:
        yield "<h3>Incidents</h3>" + _table(words.incident_changes(found))
    yield "<h3>Alerts that changed</h3>" + (_table(words.changes(found)) if found.changed else "<p>None.</p>")
    rows = [
        (kind + (f" by {words.span(abs(by))}" if by else ""), words.when(episode.start_ms, report),
         words.when(episode.end_ms, report), words.episode(episode))
        for change in found.changed
        for kind, episode, by in compare.examples(change)
    ]
    if rows:
        heads: tuple[tuple[str, words.Align], ...] = (
            ("what", "left"), ("from", "right"), ("to", "right"), ("alert", "left"),
        )
        yield "<h3>Examples</h3>" + _table(words.Table(heads, tuple(rows)))


def _sweeps(report: Report) -> Iterable[str]:
    for sweep in report.sweeps:
        yield f"<h2>{escape(sweep.spec.text)}</h2><pre>{escape(sweep.of)}</pre>"
        yield _figure(drawing.sweep(sweep, f"noise and detection by {sweep.spec.text}"))
        if any(point.current for point in sweep.points):
            yield '<p class="muted">* in use</p>'
        yield _table(words.sweep(sweep))
        yield from (f'<p class="muted">{escape(note)}</p>' for note in sweep.notes)


def _drawn(report: Report) -> list[str]:
    """The alerts that get a chart: those that changed first, then those with a score to show, then the merely pending."""
    changed = [one.alert for one in report.comparison.changed] if report.comparison else []
    active = set(report.active)
    if report.against is not None:
        active |= {one.alert for one in report.against.timeline.instances}
    every = [*changed, *ordered(report.score), *report.active]
    return [name for name in dict.fromkeys(every) if name in active][:MAX_CHARTS]


def _alerts(report: Report) -> Iterable[str]:
    drawn = _drawn(report)
    if not drawn:
        return
    yield "<h2>Alerts</h2>" + _key(report)
    more = len(report.active) - len(drawn)
    if more > 0:
        yield f"<p>The {len(drawn)} noisiest; {more} more are in the tables.</p>"
    changed = {one.alert for one in report.comparison.changed} if report.comparison else set()
    for name in drawn:
        yield f'<section class="alert" id="{_anchor(name)}"><h3>{escape(name)}</h3>'
        old, new = (report.history, report.score, report.alerts), None
        if name in changed and report.against is not None and report.comparison is not None:
            new = (report.against, report.comparison.new, report.against_alerts)
            yield "<h4>old rules</h4>"
        yield from _alert(name, report, *old, f"{name} over time")
        if new is not None:
            yield "<h4>new rules</h4>"
            yield from _alert(name, report, *new, f"{name} over time, new rules")
        yield "</section>"


def _alert(
    name: str, report: Report, history: History, score: Score, rules: Sequence[Rule], label: str
) -> Iterable[str]:
    """One alert under one set of rules: expression, chart, episodes."""
    if name not in history.timeline.alerts:
        yield '<p class="muted">Not among these rules.</p>'
        return
    yield from _rule(name, rules)
    instances = history.timeline.of(name)
    if not instances:
        yield '<p class="muted">Never pending or firing.</p>'
        return
    curves = [one for one in history.curves if one.alert == name]
    if curves and len(curves) < len(instances):
        yield f'<p class="muted">{len(curves)} of {len(instances)} instances are drawn, those that fired longest.</p>'
    yield _figure(drawing.alert(curves, instances, history.timeline, report.about(name), label))
    yield from _episodes([one for one in score.episodes if one.alert == name], report)


_SHORT = 8


def _rule(name: str, rules: Sequence[Rule]) -> Iterable[str]:
    """The expression and ``for`` of an alert; a long one is folded."""
    for rule in rules:
        if rule.name == name:
            hold = f"\nfor: {duration(rule.hold_ms / 1000)}" if rule.hold_ms else ""
            text = f"<pre>{escape(rule.expr.strip() + hold)}</pre>"
            lines = rule.expr.count("\n") + 1
            yield text if lines <= _SHORT else f"<details><summary>expression ({lines} lines)</summary>{text}</details>"


def _episodes(episodes: Sequence[Episode], report: Report) -> Iterable[str]:
    if not episodes:
        yield '<p class="muted">Never fired.</p>'
        return
    judged = report.score.incidents is not None
    heads: list[tuple[str, words.Align]] = [("from", "right"), ("to", "right"), ("firing", "right")]
    heads += [("incident", "left")] if judged else []
    rows = []
    for one in episodes[:_EPISODES_SHOWN]:
        end = words.when(one.end_ms, report) if one.ends else "still firing"
        cells = [words.when(one.start_ms, report), end, words.span(one.firing_ms)]
        cells += [", ".join(one.incidents) or ("true" if one.kind == "true" else "false")] if judged else []
        rows.append((*cells, label_text(one.labels) or words.NONE))
    yield _table(words.Table((*heads, ("series", "left")), tuple(rows)))
    if len(episodes) > _EPISODES_SHOWN:
        yield f'<p class="muted">and {len(episodes) - _EPISODES_SHOWN} more</p>'


def _rest(report: Report) -> Iterable[str]:
    dead = dict(report.history.timeline.dead)
    if report.blind:
        yield "<h2>Blind</h2><p>These alerts read series that were never there: they were not quiet, they could not see.</p>"
        rows = tuple((name, ", ".join(dead[name])) for name in report.blind)
        yield _table(words.Table((("alert", "left"), ("reads", "left")), rows))
    if report.quiet:
        yield f"<h2>Never active</h2><p>{escape(', '.join(report.quiet))}</p>"
    if report.history.choices:
        yield f"<h2>How it was evaluated</h2><p>{escape(ways(report.history))}</p>"
        differ = inexact(report.history)
        if differ:
            yield "<p>The result can differ from that of deployed rules:</p>" + _choices(differ)
        yield f"<details><summary>every alert</summary>{_choices(report.history.choices)}</details>"
    yield from (f"<p>{escape(one)}</p>" for one in report.notes)
    merge = duration(report.score.merge_ms / 1000)
    yield (
        f'<p class="muted">Firing less than {merge} apart, or with nothing but missing data between, is one episode. '
        "Times are UTC. – means that it cannot be told.</p>"
    )


def _choices(choices: Sequence[Choice]) -> str:
    items = "".join(
        f"<li><code>{escape(one.rule)}</code> was {escape(one.how)}: {escape(one.why)}</li>" for one in choices
    )
    return f"<ul>{items}</ul>"


def _anchor(name: str) -> str:
    return "alert-" + re.sub(r"[^A-Za-z0-9_-]", "-", name)


def _table(table: words.Table, links: dict[str, str] | None = None) -> str:
    """A table; "false", "missed" and LOST stand out."""
    heads = "".join(f"<th{_side(side)}>{escape(head)}</th>" for head, side in table.heads)
    body = []
    for place, row in enumerate(table.rows):
        cells = []
        for cell, (head, side) in zip(row, table.heads, strict=True):
            bad = (head in {"false", "missed"} and cell not in {"0", words.NONE}) or cell in {"LOST", "missed", "false"}
            kind = " ".join(word for word in ("r" if side == "right" else "", "bad" if bad else "") if word)
            link = (links or {}).get(cell)
            text = f'<a href="{link}">{escape(cell)}</a>' if link else escape(cell)
            cells.append(f'<td class="{kind}">{text}</td>' if kind else f"<td>{text}</td>")
        total = ' class="sum"' if place >= len(table.rows) - table.totals else ""
        body.append(f"<tr{total}>{''.join(cells)}</tr>")
    return f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>{"".join(body)}</tbody></table></div>'


def _side(side: words.Align) -> str:
    return ' class="r"' if side == "right" else ""
