"""The evaluator: what fires now, what would have fired, and why (or why not) on a real Prometheus.

    from obs.evaluate import evaluate, evaluate_recording

    with Client("http://127.0.0.1:9090") as client:
        found = evaluate(client, from_groups(all_groups(load_config())))
    for result in found.of("no data"):
        print(result.alert, result.reason, result.why)

``evaluate`` and ``evaluate_recording`` give an Evaluation of Results; ``replay`` a Timeline of every state over a
recording. Names are loaded when they are first used, so that a command imports only what it needs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from obs.evaluate.live import Difference, Evaluation, Instance, Result, evaluate, evaluate_recording
    from obs.evaluate.recording import Recording, Tsdb
    from obs.evaluate.rules import Rule, from_groups, load_rule_files

_HOMES = {
    "Difference": "live", "Evaluation": "live", "Instance": "live", "Result": "live", "evaluate": "live",
    "evaluate_recording": "live", "Recording": "recording", "Tsdb": "recording", "Rule": "rules",
    "from_groups": "rules", "load_rule_files": "rules",
}

__all__ = [
    "Difference", "Evaluation", "Instance", "Recording", "Result", "Rule", "Tsdb", "evaluate", "evaluate_recording",
    "from_groups", "load_rule_files",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
