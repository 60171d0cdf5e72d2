"""A backtest as JUnit XML, for CI systems: a case per alert, per incident and per policy."""

from __future__ import annotations

import re
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

from obs.evaluate.report import Report, words

_NO_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class _Case:
    suite: str
    name: str
    failure: str = ""
    detail: str = ""
    skipped: str = ""


def render(report: Report) -> str:
    """The report as JUnit XML. With incidents an alert fails by false episodes and an incident by a missed alert;
    without, an alert fails when it fired. An alert that could see nothing is skipped, not passed."""
    cases = [*_alerts(report), *_incidents(report), *_policies(report)]
    suites = list(dict.fromkeys(case.suite for case in cases))
    title = _attr(f"obs backtest {report.title}")
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', f"<testsuites name={title}{_sums(cases)}>"]
    for suite in suites:
        mine = [case for case in cases if case.suite == suite]
        lines.append(f"  <testsuite name={_attr(suite)}{_sums(mine)}>")
        for case in mine:
            head = f"    <testcase classname={_attr('obs.' + suite)} name={_attr(case.name)}"
            if case.failure:
                detail = escape(_clean(case.detail))
                lines.append(f"{head}><failure message={_attr(case.failure)}>{detail}</failure></testcase>")
            elif case.skipped:
                lines.append(f"{head}><skipped message={_attr(case.skipped)}/></testcase>")
            else:
                lines.append(f"{head}/>")
        lines.append("  </testsuite>")
    return "\n".join([*lines, "</testsuites>"]) + "\n"


def _sums(cases: list[_Case]) -> str:
    failed, skipped = sum(bool(one.failure) for one in cases), sum(bool(one.skipped) for one in cases)
    return f' tests="{len(cases)}" failures="{failed}" errors="0" skipped="{skipped}"'


def _alerts(report: Report) -> list[_Case]:
    judged = report.score.incidents is not None
    cases = []
    for one in report.score.alerts:
        bad = [it for it in report.score.episodes if it.alert == one.alert and it.kind != "true"]
        if bad:
            what = f"{len(bad)} {'false ' if judged else ''}episode{'s' if len(bad) != 1 else ''}"
            detail = "\n".join(
                f"{words.when(it.start_ms, report)} to {words.when(it.end_ms, report)} {words.episode(it)}" for it in bad
            )
            cases.append(_Case("alerts", one.alert, what, detail))
        elif one.blind and not one.episodes:
            cases.append(_Case("alerts", one.alert, skipped=f"blind: {', '.join(one.blind)} was never there"))
        else:
            cases.append(_Case("alerts", one.alert))
    return cases


def _incidents(report: Report) -> list[_Case]:
    cases = []
    for one in report.score.incidents or ():
        for it in one.detections:
            failure = "" if it.found else f"{it.alert} missed it"
            detail = f"{words.when(one.incident.start_ms, report)} to {words.when(one.incident.end_ms, report)}"
            cases.append(_Case("incidents", f"{one.incident.name}: {it.alert}", failure, detail))
    return cases


def _policies(report: Report) -> list[_Case]:
    by_name = {line.partition(":")[0]: line for line in report.broken}
    return [
        _Case("policies", name, by_name.get(name, ""), by_name.get(name, "")) for name in report.policies
    ]


def _attr(text: str) -> str:
    return quoteattr(_clean(text))


def _clean(text: str) -> str:
    """Text without the characters that XML 1.0 has not."""
    return _NO_XML.sub("?", text)
