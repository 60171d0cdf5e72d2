"""Every alert of the pack tells what is wrong, how much, and where to read on. (The pack only.)

It has `severity` critical, warning or info, a summary, a description that shows `{{ $value }}`, and the runbook_url
that obs.yaml makes for it.

Bad:
    annotations: {summary: "Queue too long"}

Mend: add a description with the value, and runbook_url. In obs/alerts/ all of them are fields of Alert.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from obs.checks.world import World
from obs.model.problem import Problem

ID = "alert-texts"


def check(world: World) -> Iterator[Problem]:
    for rule in world.alerts:

        def problem(what: str, mend: str, line: int = rule.line, path: str = rule.path, name: str = rule.name) -> Problem:
            return Problem(path, line, ID, name, what, mend)

        severity = rule.labels.get("severity")
        if severity is None or severity.value not in ("critical", "warning", "info"):
            yield problem("has no severity critical, warning or info", "set the label severity")
        for key in ("summary", "description", "runbook_url"):
            if key not in rule.annotations or not rule.annotations[key].value.strip():
                yield problem(f"has no {key}", f"write the annotation {key}")
        description = rule.annotations.get("description")
        if description is not None and not re.search(r"\{\{[^}]*\$value\b", description.value):
            yield problem("does not show its value in the description", "write {{ $value }} into it", description.line)
        url = rule.annotations.get("runbook_url")
        right = f"{world.config.runbook_base_url}/{rule.name}.md"
        if url is not None and url.value != right:
            yield problem(f"points to the runbook {url.value}", f"write {right}", url.line)
