"""Rules evaluate without an error.

A rule that fails has no result: an alert that never fires and a recorded series that is not there.

Mend: what the error says. Duplicate series ("many-to-many matching") often come from a page that is scraped twice.
"""

from __future__ import annotations

from collections.abc import Iterator

from obs.doctor.facts import Facts
from obs.doctor.finding import Finding
from obs.evaluate.liveness import short

ID = "rules-failing"


def check(facts: Facts) -> Iterator[Finding]:
    for rule in (facts.prometheus.rules or ()) if facts.prometheus is not None else ():
        if rule.health == "err":
            yield Finding(
                ID, "error", f"{rule.file or facts.prometheus.url if facts.prometheus else ''} {rule.group}: {rule.name}",
                f"cannot be evaluated: {short(rule.last_error, 200)}", "it has no result: it can neither fire nor be read",
                "mend what the error says; duplicate series often come from a page that is scraped twice",
            )
