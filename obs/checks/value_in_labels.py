"""An alert's labels do not hold its value.

Labels are the alert's identity. With `$value` in one, each evaluation makes another alert: `for` never runs out,
notifications repeat, silences do not hold. The value belongs into annotations.

Bad:
    labels: {severity: warning, usage: "{{ $value }}"}

Mend:
    annotations: {description: "{{ $value | humanizePercentage }} in use"}
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from obs.checks.world import World
from obs.model.problem import Problem

ID = "value-in-labels"

_VALUE = re.compile(r"\{\{[^}]*(?:\$value\b|(?<![\w)])\.Value\b)[^}]*\}\}")


def check(world: World) -> Iterator[Problem]:
    for rule in world.alerts:
        for name, text in rule.labels.items():
            match = _VALUE.search(text.value)
            if match:
                yield Problem(
                    rule.path, text.line, ID, rule.name,
                    f"label {name} changes with the value: each evaluation is another alert, and `for` never runs out",
                    "put the value into an annotation", "error", match[0],
                )
