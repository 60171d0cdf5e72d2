"""Groups of rules are evaluated within their interval.

When a group takes longer than its interval Prometheus leaves evaluations out: `for` is late, and recorded series have gaps.

Mend: a longer interval for the group, fewer series, or more CPU.
"""

from __future__ import annotations

from collections.abc import Iterator

from obs.doctor.facts import Facts
from obs.doctor.finding import Finding
from obs.promql import duration

ID = "rules-slow"

SLOW = 0.5


def check(facts: Facts) -> Iterator[Finding]:
    for group in (facts.prometheus.groups or ()) if facts.prometheus is not None else ():
        if group.interval > 0 and group.evaluation > SLOW * group.interval:
            over = group.evaluation > group.interval
            yield Finding(
                ID, "error" if over else "warning", f"{group.file} {group.name}".strip(),
                f"its last evaluation took {group.evaluation:.3g} s of an interval of {duration(group.interval)}",
                "evaluations are left out: alerts are late and recorded series have gaps" if over
                else "little is left before evaluations are left out",
                "raise interval.evaluation in obs.yaml and build again, or give Prometheus more CPU",
            )
