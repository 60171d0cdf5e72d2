"""A backtest on a terminal: a strip per alert with incidents or phases above, and the tables."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from obs.evaluate import compare
from obs.evaluate.chart import strip_by_alert
from obs.evaluate.liveness import label_text, short
from obs.evaluate.report import Report, inexact, ways, words
from obs.evaluate.sweep import Sweep

_RED, _GREEN, _YELLOW, _BOLD, _OFF = "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[1m", "\x1b[0m"
_FALSE_SHOWN = 20
_BLOCKS = "▏▎▍▌▋▊▉█"


def render(report: Report, *, width: int = 110, colour: bool = False, unicode: bool = True, verbose: bool = False) -> str:
    """The report as text of about ``width`` columns; ``unicode`` False keeps to ASCII, ``verbose`` names what is blind."""
    paint = _Paint(colour, unicode)
    lines = [words.subject(report), f"rules: {report.rules}"]
    line = report.history.timeline
    if line.instances:
        lines.append("")
        lines += strip_by_alert(
            line, report.incident_bands, report.phases, width=width, colour=colour, unicode=unicode
        )
    if report.comparison is not None and report.against is not None and report.against.timeline.instances:
        lines += ["", f"against: {report.against_rules}"]
        lines += strip_by_alert(
            report.against.timeline, report.incident_bands, report.phases, width=width, colour=colour, unicode=unicode
        )
    if line.instances or report.score.incidents:
        lines += ["", *_score(report, paint, width)]
    if report.comparison is not None:
        lines += ["", *_comparison(report, paint)]
    for sweep in report.sweeps:
        lines += ["", *_sweep(sweep, paint, width)]
    lines += ["", *_rest(report, width, verbose)]
    lines += [paint(_YELLOW, f"warning: {one}") for one in report.warnings]
    lines += [paint(_RED, f"broken: {one}") for one in report.broken]
    text = "\n".join(lines) + "\n"
    return text if unicode else text.replace(words.NONE, "-").replace("×", "x").replace("…", "~")


class _Paint:
    def __init__(self, colour: bool, unicode: bool) -> None:
        self.colour = colour
        self.unicode = unicode

    def __call__(self, code: str, text: str) -> str:
        return f"{code}{text}{_OFF}" if self.colour else text

    def bar(self, value: float, most: float, size: int) -> str:
        """A horizontal bar; something for anything over 0."""
        if most <= 0 or value <= 0:
            return ""
        if not self.unicode:
            return "#" * max(1, round(value / most * size))
        eighths = max(1, round(value / most * size * 8))
        whole, part = divmod(eighths, 8)
        return "█" * whole + (_BLOCKS[part - 1] if part else "")


def _score(report: Report, paint: _Paint, width: int) -> list[str]:
    score = report.score
    good = score.incidents is not None and not score.total.false and not score.missed
    bad = score.incidents is not None and not good
    lines = [paint(_GREEN if good else _RED if bad else _BOLD, words.score_line(report)), ""]
    lines += words.lines(words.scores(score))
    if score.incidents:
        lines.append("")
        lines += [
            paint(_RED, row) if "missed" in row else row for row in words.lines(words.incidents(report), width=width)
        ]
    shown, more = words.false_episodes(report, _FALSE_SHOWN)
    if shown.rows and (score.incidents is not None or not more):
        lines += ["", "false episodes:" if score.incidents is not None else "episodes:", *words.lines(shown)]
        lines += [f"and {more} more"] if more else []
    if score.outside:
        lines += ["", f"outside this time and not judged: {', '.join(score.outside)}"]
    return lines


def _comparison(report: Report, paint: _Paint) -> list[str]:
    found = report.comparison
    assert found is not None
    lines = [paint(_BOLD, f"old rules ({report.rules}) and new rules ({report.against_rules})"), ""]
    lines += words.lines(words.totals(found))
    if found.incidents:
        rows = words.lines(words.incident_changes(found))
        lines += ["", *(paint(_RED, row) if row.endswith("LOST") else row for row in rows)]
    lines.append("")
    if not found.changed:
        return [*lines, "no alert changed"]
    for change in found.changed:
        lines.append(f"{change.alert}: {words.change_line(change)}")
        for kind, episode, by in compare.examples(change):
            moved = f" by {words.span(abs(by))}" if by else ""
            until = f"{words.when(episode.start_ms, report)} to {words.when(episode.end_ms, report)}"
            lines.append(f"  {kind}{moved}: {until}  {label_text(episode.labels)}".rstrip())
    same = len(found.alerts) - len(found.changed)
    return [*lines, f"unchanged: {same} alert{'s' if same != 1 else ''}"] if same else lines


def _sweep(found: Sweep, paint: _Paint, width: int) -> list[str]:
    lines = [paint(_BOLD, f"{found.spec.text} ({short(found.of)})")]
    table = words.sweep(found)
    judged = any(head == "false" for head, _ in table.heads)
    noise = [float(point.score.false or 0) if judged else point.score.episodes + point.score.flaps for point in found.points]
    most = max(noise, default=0)
    rows = words.lines(table)
    room = max(8, min(24, (width - max(len(row) for row in rows) - 6) // (2 if judged else 1)))
    pad = max(len(row) for row in rows)
    head = f"{rows[0]:<{pad}}   {'noise':<{room}}"
    lines.append((head + ("   detection" if judged else "")).rstrip())
    for row, point, loud in zip(rows[1:], found.points, noise, strict=True):
        bar = paint.bar(loud, most, room)
        text = f"{row:<{pad}}   {paint(_RED, bar)}{' ' * (room - len(bar))}"
        if judged and point.score.recall is not None:
            text += "   " + paint(_GREEN, paint.bar(point.score.recall, 1.0, room))
        lines.append(text.rstrip())
    return lines + [f"note: {note}" for note in found.notes]


def _rest(report: Report, width: int, verbose: bool) -> list[str]:
    lines = _wrapped("never active", report.quiet, width)
    dead = dict(report.history.timeline.dead)
    partly = [name for name in report.active if name in dead]
    lines += _wrapped("blind (they read series that were never there; -v names them)", report.blind, width)
    lines += _wrapped("partly blind", partly, width)
    if verbose:
        lines += [f"  {name} reads {', '.join(metrics)}" for name, metrics in dead.items()]
    lines += [line for line in (ways(report.history),) if line]
    for choice in report.history.choices if verbose else inexact(report.history):
        lines += textwrap.wrap(f"{choice.rule} was {choice.how}: {choice.why}", width, subsequent_indent="  ")
    return lines + [f"note: {one}" for one in report.notes]


def _wrapped(title: str, names: Sequence[str], width: int) -> list[str]:
    if not names:
        return []
    return textwrap.wrap(f"{title}: {', '.join(names)}", width, subsequent_indent="  ", break_long_words=False)
