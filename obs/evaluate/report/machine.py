"""A backtest as one JSON document."""

from __future__ import annotations

import json
from typing import Any

from obs.evaluate import chart, compare, score, sweep
from obs.evaluate.report import Report


def document(report: Report) -> dict[str, Any]:
    """The report for machines. Times are unix seconds and durations seconds; null is "cannot be told"."""
    return {
        "title": report.title,
        "rules": report.rules,
        "history": chart.as_json(report.history.timeline, report.phases),
        "choices": [vars(one) for one in report.history.choices],
        "notes": list(report.notes),
        "warnings": list(report.warnings),
        "score": score.as_json(report.score),
        "against": None
        if report.comparison is None or report.against is None
        else {
            "rules": report.against_rules,
            "history": chart.as_json(report.against.timeline, ()),
            "score": score.as_json(report.comparison.new),
        },
        "comparison": None if report.comparison is None else compare.as_json(report.comparison, report.broken),
        "sweeps": [sweep.as_json(one) for one in report.sweeps],
        "policies": list(report.policies),
        "broken": list(report.broken),
    }


def render(report: Report) -> str:
    """``document`` as text."""
    return json.dumps(document(report), indent=2, allow_nan=False) + "\n"
