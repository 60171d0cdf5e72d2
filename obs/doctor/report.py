"""A report for people and for programs."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from obs.doctor.finding import SEVERITIES, Finding
from obs.doctor.life import Alive, Life
from obs.doctor.run import Report

LIVES: tuple[Life, ...] = ("live", "dead", "blind", "elsewhere")
_COLOURS = {"error": "31;1", "warning": "33;1", "info": "36", "ok": "32", "partial": "33;1", "failed": "31;1",
            "live": "32", "dead": "36", "blind": "35", "elsewhere": "2"}
_LABEL = 9


def as_json(report: Report) -> dict[str, Any]:
    """Sources, findings and alerts; ``complete`` False when a part could not be looked at."""
    return {
        "complete": report.complete,
        "interrupted": report.interrupted,
        "counts": {severity: sum(one.severity == severity for one in report.findings) for severity in SEVERITIES},
        "ignored": report.ignored,
        "sources": [{**asdict(one), "lacking": list(one.lacking)} for one in report.sources],
        "findings": [asdict(one) for one in report.findings],
        "alerts": [
            {"place": place, "counts": _counts(alerts), "alerts": [asdict(one) for one in alerts]}
            for place, alerts in report.alerts.items()
        ],
    }


def _counts(alerts: Sequence[Alive]) -> dict[str, int]:
    counted = Counter(one.life for one in alerts)
    return {life: counted[life] for life in LIVES}


def as_text(report: Report, *, width: int, colour: bool, verbose: bool) -> Iterator[str]:
    """Lines for a terminal of ``width`` columns."""

    def paint(text: str, name: str) -> str:
        return f"\x1b[{_COLOURS[name]}m{text}\x1b[0m" if colour else text

    named = max((len(source.name) for source in report.sources), default=0)
    placed = max((len(source.place) for source in report.sources), default=0)
    for source in report.sources:
        mark = {"ok": "ok", "partial": "partial", "failed": "FAILED"}[source.state]
        head = f"{source.name:<{named}}  {source.place:<{placed}}  {paint(f'{mark:<7}', source.state)}"
        if named + placed + 13 + len(source.what) <= width:
            yield f"{head}  {source.what}".rstrip()
        else:
            yield head.rstrip()
            yield from _block("", source.what, width)
        for one in source.lacking:
            yield from _block("", one, width)
    shown = [one for one in report.findings if verbose or one.severity != "info"]
    for finding in shown:
        yield ""
        yield from _finding(finding, width, paint(finding.severity, finding.severity))
    short = [one for one in report.findings if one.severity == "info" and not verbose]
    if short:
        yield ""
        for finding in short:
            lines = _wrap(f"{finding.what} [{finding.id}]", width - 6)
            yield f"{paint('info', 'info')}  {lines[0]}"
            yield from (f"      {line}" for line in lines[1:])
    yield ""
    for place, alerts in report.alerts.items():
        yield from _alerts(place, alerts, verbose, paint)
    hint = " (-v: all alerts, and the mend of each info)" if short or (report.alerts and not verbose) else ""
    yield _verdict(report, paint) + hint


def _finding(finding: Finding, width: int, severity: str) -> Iterator[str]:
    yield f"{severity}  {finding.place}  [{finding.id}]"
    yield from _block("", finding.what, width)
    yield from _block("why", finding.why, width)
    yield from _block("mend", finding.mend, width)


def _block(label: str, text: str, width: int) -> Iterator[str]:
    """Indented text behind a label; lines that a mend breaks itself are kept as they are, to be copied."""
    head = f"  {label + ':':<{_LABEL - 3}}" if label else "  "
    rest = " " * len(head)
    for place, line in enumerate(text.split("\n")):
        for piece in [line] if place else _wrap(line, width - len(head)):
            yield f"{head}{piece}"
            head = rest


def _wrap(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(40, width), break_long_words=False, break_on_hyphens=False) or [""]


def _alerts(place: str, alerts: Sequence[Alive], verbose: bool, paint: Any) -> Iterator[str]:
    counts = _counts(alerts)
    flagged = sum(bool(one.wakes) for one in alerts if one.life == "dead")
    words = [f"{counts['live']} live", f"{counts['dead']} dead" + (f" ({flagged} a flag away)" if flagged else "")]
    words += [f"{counts['blind']} blind", f"{counts['elsewhere']} of other engines"]
    yield f"alerts  {', '.join(words)}: {place}"
    if not verbose:
        return
    longest = max(len(one.alert) for one in alerts)
    for life in LIVES:
        for one in alerts:
            if one.life == life:
                missing = [flag for flag in one.wakes if flag not in one.why]
                why = one.why + (f"; needs {' or '.join(missing)}" if missing else "")
                yield f"  {paint(f'{life:<9}', life)}  {one.alert:<{longest}}  {why if life != 'live' else ''}".rstrip()


def _verdict(report: Report, paint: Any) -> str:
    counted = Counter(one.severity for one in report.findings)
    told = ", ".join(f"{counted[severity]} {severity}{'s' if counted[severity] > 1 and severity != 'info' else ''}"
                     for severity in SEVERITIES if counted[severity])
    left = f" ({report.ignored} ignored)" if report.ignored else ""
    if not report.complete:
        states = [source.name for source in report.sources if source.state != "ok"]
        why = "interrupted" if report.interrupted else f"{', '.join(states)} not wholly looked at"
        return f"{paint('PARTIAL', 'partial')}: {why}; of the rest: {told or 'no findings'}{left}"
    if counted["error"] or counted["warning"]:
        return f"{told}{left}"
    return f"{paint('healthy', 'ok')}: nothing above info" + (f" ({told})" if told else "") + left
