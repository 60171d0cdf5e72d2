"""The evaluator: what fires now, what would have fired, and why (or why not) on a real Prometheus.

    from obs.evaluate import evaluate, evaluate_recording

    with Client("http://127.0.0.1:9090") as client:
        found = evaluate(client, from_groups(all_groups(load_config())))
    for result in found.of("no data"):
        print(result.alert, result.reason, result.why)

``evaluate`` and ``evaluate_recording`` give an Evaluation of Results. ``over_server`` and ``over_recordings`` give a
History: a Timeline of every state of every alert over a past, how recorded series came about, and warnings.

        history = over_server(client, load_rule_files(["rules.yaml"]), start_ms=..., end_ms=..., step_ms=60_000)
    for alert in history.timeline.instances:
        print(alert.labels, alert.firing())

Names are loaded when they are first used, so that a command imports only what it needs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from obs.evaluate.backtest import over_recordings, over_server
    from obs.evaluate.history import Choice, Curve, History
    from obs.evaluate.live import Difference, Evaluation, Instance, Result, evaluate, evaluate_recording
    from obs.evaluate.recording import Recording, Tsdb
    from obs.evaluate.replay import Timeline
    from obs.evaluate.rules import Rule, from_groups, load_rule_files
    from obs.evaluate.state import Span

_HOMES = {
    "Difference": "live", "Evaluation": "live", "Instance": "live", "Result": "live", "evaluate": "live",
    "evaluate_recording": "live", "Recording": "recording", "Tsdb": "recording", "Rule": "rules",
    "from_groups": "rules", "load_rule_files": "rules", "over_recordings": "backtest", "over_server": "backtest",
    "Choice": "history", "Curve": "history", "History": "history", "Timeline": "replay", "Span": "state",
}

__all__ = [
    "Choice", "Curve", "Difference", "Evaluation", "History", "Instance", "Recording", "Result", "Rule", "Span", "Timeline",
    "Tsdb", "evaluate", "evaluate_recording", "from_groups", "load_rule_files", "over_recordings", "over_server",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
