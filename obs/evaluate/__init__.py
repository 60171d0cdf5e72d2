"""The evaluator: what fires now, what would have fired, and why (or why not) on a real Prometheus.

    from obs.evaluate import evaluate, evaluate_recording

    with Client("http://127.0.0.1:9090") as client:
        found = evaluate(client, from_groups(all_groups(load_config())))
    for result in found.of("no data"):
        print(result.alert, result.reason, result.why)

``evaluate`` and ``evaluate_recording`` give an Evaluation of Results: what every alert says now.

Over a past, ``over_server`` and ``over_recordings`` give a History (a Timeline, how it was made, curves):

    from obs.evaluate import (
        Report, over_recordings, read, read_incidents, render_html, score_timeline, targets_of_recordings,
    )

    one = read(Path("incident.tar.gz"))
    history = over_recordings([one], rules, curves=True)
    incidents = read_incidents(Path("incidents.yaml"), start_ms=history.timeline.start_ms)
    found = score_timeline(history.timeline, incidents, targets=targets_of_recordings([one], one.end_ms))
    print(found.total.precision, found.of("InferenceQueueTimeHigh").detect_median_ms)
    Path("report.html").write_text(render_html(Report("incident", "my rules", history, found)))

``compare_scores`` tells what other rules would change, ``sweep_alert`` what other values would mean. A Report is rendered by
``render_text``, ``render_json``, ``render_markdown``, ``render_junit`` and ``render_html``: text from values, no file is
written. ``replay`` (obs.evaluate.replay) is what evaluates recordings. Names are loaded when they are first used, so
that a command imports only what it needs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from obs.evaluate.backtest import over_recordings, over_server
    from obs.evaluate.chart import Band, Phase, read_phases
    from obs.evaluate.compare import POLICIES, AlertChange, Comparison, IncidentChange, Moved
    from obs.evaluate.compare import compare as compare_scores
    from obs.evaluate.curves import curves as alert_curves
    from obs.evaluate.history import Choice, Curve, History
    from obs.evaluate.incidents import Incident, Incidents, parse_incidents, read_incidents
    from obs.evaluate.incidents import Seen as SeenEpisode
    from obs.evaluate.incidents import draft as draft_incidents
    from obs.evaluate.live import Difference, Evaluation, Instance, Result, evaluate, evaluate_recording
    from obs.evaluate.outages import Target
    from obs.evaluate.outages import of_recordings as targets_of_recordings
    from obs.evaluate.outages import of_server as targets_of_server
    from obs.evaluate.recording import Recording, Tsdb, read
    from obs.evaluate.replay import Instance as TimelineInstance
    from obs.evaluate.replay import Timeline
    from obs.evaluate.report import Report
    from obs.evaluate.report.html import render as render_html
    from obs.evaluate.report.junit import render as render_junit
    from obs.evaluate.report.machine import render as render_json
    from obs.evaluate.report.markdown import render as render_markdown
    from obs.evaluate.report.terminal import render as render_text
    from obs.evaluate.rules import Rule, from_groups, load_rule_files
    from obs.evaluate.score import AlertScore, Detection, Episode, IncidentScore, Score, default_merge_ms, episodes
    from obs.evaluate.score import score as score_timeline
    from obs.evaluate.state import Span
    from obs.evaluate.sweep import Point as SweepPoint
    from obs.evaluate.sweep import Spec, Sweep, parse_spec
    from obs.evaluate.sweep import check as check_sweep
    from obs.evaluate.sweep import sweep as sweep_alert

_HOMES = {
    "over_recordings": "backtest", "over_server": "backtest", "Band": "chart", "Phase": "chart",
    "read_phases": "chart", "AlertChange": "compare", "Comparison": "compare", "IncidentChange": "compare",
    "Moved": "compare", "POLICIES": "compare", "Choice": "history", "Curve": "history", "History": "history",
    "Incident": "incidents", "Incidents": "incidents", "parse_incidents": "incidents",
    "read_incidents": "incidents", "Difference": "live", "Evaluation": "live", "Instance": "live", "Result": "live",
    "evaluate": "live", "evaluate_recording": "live", "Target": "outages", "Recording": "recording",
    "Tsdb": "recording", "read": "recording", "Timeline": "replay", "Report": "report", "Rule": "rules",
    "from_groups": "rules", "load_rule_files": "rules", "AlertScore": "score", "Detection": "score",
    "Episode": "score", "IncidentScore": "score", "Score": "score", "default_merge_ms": "score",
    "episodes": "score", "Spec": "sweep", "Sweep": "sweep", "parse_spec": "sweep",
    "Span": "state",
}
#: names that would clash with a module of this package, or say too little: (module, name there)
_ALIASES = {
    "SeenEpisode": ("incidents", "Seen"), "SweepPoint": ("sweep", "Point"),
    "TimelineInstance": ("replay", "Instance"), "alert_curves": ("curves", "curves"),
    "check_sweep": ("sweep", "check"), "compare_scores": ("compare", "compare"),
    "draft_incidents": ("incidents", "draft"), "render_html": ("report.html", "render"),
    "render_json": ("report.machine", "render"), "render_junit": ("report.junit", "render"),
    "render_markdown": ("report.markdown", "render"), "render_text": ("report.terminal", "render"),
    "score_timeline": ("score", "score"), "sweep_alert": ("sweep", "sweep"),
    "targets_of_recordings": ("outages", "of_recordings"), "targets_of_server": ("outages", "of_server"),
}

__all__ = [
    "POLICIES",
    "AlertChange",
    "AlertScore",
    "Band",
    "Choice",
    "Comparison",
    "Curve",
    "Detection",
    "Difference",
    "Episode",
    "Evaluation",
    "History",
    "Incident",
    "IncidentChange",
    "IncidentScore",
    "Incidents",
    "Instance",
    "Moved",
    "Phase",
    "Recording",
    "Report",
    "Result",
    "Rule",
    "Score",
    "SeenEpisode",
    "Span",
    "Spec",
    "Sweep",
    "SweepPoint",
    "Target",
    "Timeline",
    "TimelineInstance",
    "Tsdb",
    "alert_curves",
    "check_sweep",
    "compare_scores",
    "default_merge_ms",
    "draft_incidents",
    "episodes",
    "evaluate",
    "evaluate_recording",
    "from_groups",
    "load_rule_files",
    "over_recordings",
    "over_server",
    "parse_incidents",
    "parse_spec",
    "read",
    "read_incidents",
    "read_phases",
    "render_html",
    "render_json",
    "render_junit",
    "render_markdown",
    "render_text",
    "score_timeline",
    "sweep_alert",
    "targets_of_recordings",
    "targets_of_server",
]


def __getattr__(name: str) -> Any:
    module, attribute = _ALIASES.get(name) or (_HOMES.get(name, ""), name)
    if not module:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), attribute)
