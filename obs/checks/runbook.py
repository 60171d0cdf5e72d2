"""Every alert of the pack has a runbook, and every runbook an alert. (The pack only.)

`alerts/runbooks/<Alert>.md` says what the alert means, what to check and how to mend it, in the sections
`## Meaning`, `## Check` and `## Mend`, under `## No data` what it does without data, and under `## Blind spots` what it
cannot see, where it has such.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from obs.checks.world import World
from obs.model.problem import Problem

if TYPE_CHECKING:
    from obs.model.rule import Alert

ID = "runbook"

_HEADING = re.compile(r"^##\s+(.+?)\s*$", re.MULTILINE)


def _wanted(alert: Alert | None) -> list[str]:
    """The sections of an alert's runbook."""
    blind = ["Blind spots"] if alert is not None and alert.blind_spots else []
    return ["Meaning", "Check", "Mend", "No data", *blind]


def _sections(alert: Alert | None) -> str:
    *most, last = [f"## {heading}" for heading in _wanted(alert)]
    return f"{', '.join(most)} and {last}"


def check(world: World) -> Iterator[Problem]:
    from obs.alerts.registry import CONDITIONAL, alerts

    folder = world.root / "alerts" / "runbooks"
    known = {alert.name: alert for alert in alerts(world.config)}
    for rule in world.alerts:
        name = rule.name
        path = folder / f"{name}.md"
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            yield Problem(str(path), 0, ID, name, "has no runbook", f"write it, with {_sections(known.get(name))}")
            continue
        except (OSError, UnicodeDecodeError) as error:
            yield Problem(str(path), 0, ID, name, f"its runbook cannot be read: {error}", "mend the file")
            continue
        headings = set(_HEADING.findall(text))
        for heading in _wanted(known.get(name)):
            if heading not in headings:
                yield Problem(str(path), 0, ID, name, f"its runbook has no section {heading}", f"write ## {heading}")
    existing = {rule.name for rule in world.alerts} | set(known) | set(CONDITIONAL)
    for path in sorted(folder.glob("*.md")):
        if path.stem not in existing and path.stem != "README":
            yield Problem(
                str(path), 0, ID, path.stem, "is a runbook of no alert", "remove it, or name it after its alert"
            )
