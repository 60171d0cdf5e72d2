"""Prometheus's clock and this machine's agree.

With a clock that is off alerts begin and end at the wrong time, samples are refused as too old or too new, and `obs eval` at
"now" looks at another time than Prometheus does.

Mend: NTP (chronyc tracking) on the machine that is off.
"""

from __future__ import annotations

from collections.abc import Iterator

from obs.doctor.facts import Facts
from obs.doctor.finding import Finding
from obs.evaluate.live import SKEW
from obs.evaluate.liveness import ago

ID = "clock"


def check(facts: Facts) -> Iterator[Finding]:
    prometheus = facts.prometheus
    if prometheus is None or prometheus.skew is None or abs(prometheus.skew) < SKEW:
        return
    yield Finding(
        ID, "warning", prometheus.url,
        f"its clock is {ago(abs(prometheus.skew))} {'ahead of' if prometheus.skew > 0 else 'behind'} this machine's",
        "times of alerts are wrong, and what is asked for \"now\" is not there", "check NTP on both machines: chronyc tracking",
    )
