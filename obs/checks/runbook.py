"""Every alert of the pack has a runbook, and every runbook an alert. (The pack only.)

`alerts/runbooks/<Alert>.md` says what the alert means, what to check and how to mend it, in the sections
`## Meaning`, `## Check` and `## Mend`, and under `## Blind spots` what the alert cannot see, where it has such.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from obs.checks.world import World
from obs.model.problem import Problem

ID = "runbook"

_HEADING = re.compile(r"^##\s+(.+?)\s*$", re.MULTILINE)


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
            yield Problem(str(path), 0, ID, name, "has no runbook", "write it, with ## Meaning, ## Check and ## Mend")
            continue
        except (OSError, UnicodeDecodeError) as error:
            yield Problem(str(path), 0, ID, name, f"its runbook cannot be read: {error}", "mend the file")
            continue
        headings = set(_HEADING.findall(text))
        wanted = ["Meaning", "Check", "Mend"]
        alert = known.get(name)
        if alert is not None and alert.blind_spots:
            wanted.append("Blind spots")
        for heading in wanted:
            if heading not in headings:
                yield Problem(str(path), 0, ID, name, f"its runbook has no section {heading}", f"write ## {heading}")
    existing = {rule.name for rule in world.alerts} | set(known) | set(CONDITIONAL)
    for path in sorted(folder.glob("*.md")):
        if path.stem not in existing and path.stem != "README":
            yield Problem(
                str(path), 0, ID, path.stem, "is a runbook of no alert", "remove it, or name it after its alert"
            )
