"""A backtest as Markdown fit for a pull request comment: the verdict first, tables next, details folded."""

from __future__ import annotations

import re

from obs.evaluate import compare
from obs.evaluate.report import Report, inexact, words
from obs.evaluate.sweep import Sweep

LIMIT = 60_000
"""Characters: GitHub refuses a comment over 65,536."""
_FALSE_SHOWN = 20


def render(report: Report) -> str:
    """The report as GitHub-flavoured Markdown, cut at its end with a note when it would not fit a comment."""
    lines = ["## obs backtest" + (": rules compared" if report.comparison else ""), ""]
    lines += [f"**{'BROKEN' if report.broken else 'OK' if report.policies else 'Result'}**: {_text(words.verdict(report))}", ""]
    lines += [f"- :x: {_text(one)}" for one in report.broken]
    lines += [f"- :warning: {_text(one)}" for one in report.warnings]
    lines += [f"- {_text(words.subject(report))}", f"- rules: {_text(report.rules)}"]
    lines += [f"- {_text(one)}" for one in report.notes]
    if report.comparison is not None:
        lines += [f"- against: {_text(report.against_rules)}", "", *_comparison(report)]
        lines += ["", "<details><summary>Score of the old rules</summary>", ""]
        lines += [_text(words.score_line(report)), "", *_score(report), "", "</details>"]
    else:
        lines += ["", *_score(report)]
    for sweep in report.sweeps:
        lines += ["", *_sweep(sweep)]
    if report.blind:
        lines += ["", f"Blind (they read series that were never there): {', '.join(report.blind)}."]
    differ = inexact(report.history)
    if differ:
        lines += ["", "<details><summary>Where the result can differ from deployed rules</summary>", ""]
        lines += [f"- `{one.rule}` was {one.how}: {_text(one.why)}" for one in differ]
        lines += ["", "</details>"]
    text = "\n".join(lines) + "\n"
    if len(text) <= LIMIT:
        return text
    cut = text[: text.rindex("\n", 0, LIMIT)]
    open_ = cut.count("<details>") - cut.count("</details>")
    return cut + "\n\n</details>" * open_ + "\n\n(cut: too long for a comment; the HTML report has all of it)\n"


def _comparison(report: Report) -> list[str]:
    found = report.comparison
    assert found is not None
    lines = [*table(words.totals(found)), ""]
    if found.incidents:
        lines += [*table(words.incident_changes(found)), ""]
    if not found.changed:
        return [*lines, "No alert changed."]
    lines += [*table(words.changes(found)), "", "<details><summary>Examples</summary>", ""]
    for change in found.changed:
        for kind, episode, by in compare.examples(change):
            moved = f" by {words.span(abs(by))}" if by else ""
            until = f"{words.when(episode.start_ms, report)} to {words.when(episode.end_ms, report)}"
            lines.append(f"- {kind}{moved}: {until} {_code(words.episode(episode))}")
    return [*lines, "", "</details>"]


def _score(report: Report) -> list[str]:
    score = report.score
    lines = table(words.scores(score))
    if score.incidents:
        lines += ["", *table(words.incidents(report))]
    shown, more = words.false_episodes(report, _FALSE_SHOWN)
    if shown.rows and score.incidents is not None:
        lines += ["", "False episodes:", "", *table(shown)]
        lines += ["", f"and {more} more"] if more else []
    return lines


def _sweep(found: Sweep) -> list[str]:
    return [
        f"### {found.spec.text}", "", f"{_code(found.of)}", "", *table(words.sweep(found)),
        *(f"\n{_text(note)}" for note in found.notes),
    ]


def table(one: words.Table) -> list[str]:
    """A table; a bar within a cell does not end it."""
    heads = [head or " " for head, _ in one.heads]
    rule = ["---:" if side == "right" else ":---" for _, side in one.heads]
    rows = [[_text(cell) or " " for cell in row] for row in one.rows]
    for row in rows[len(rows) - one.totals :] if one.totals else []:
        row[:] = [f"**{cell}**" if cell.strip() else cell for cell in row]
    return [f"| {' | '.join(row)} |" for row in (heads, rule, *rows)]


def _text(text: str) -> str:
    """Text in which nothing is markup: label values are other people's."""
    return re.sub(r"([\\`*_\[\]<>|#~@])", r"\\\1", " ".join(text.split()))


def _code(text: str) -> str:
    flat = " ".join(text.split())
    fence = "``" if "`" in flat else "`"
    return f"{fence} {flat} {fence}" if fence == "``" else f"`{flat}`"
