"""What KEDA hands on is as new as what Prometheus has.

HPA asks KEDA for the value every 15 s, and KEDA asks Prometheus then: `pollingInterval` only serves the step from 0 to 1.
With `useCachedMetrics` the value is as old as the polling interval, 30 s unless told. A poll more often than Prometheus
scrapes finds nothing new.

Bad:
    pollingInterval: 120
    triggers: [{type: prometheus, useCachedMetrics: true, ...}]

Mend: leave useCachedMetrics out.
"""

from __future__ import annotations

from collections.abc import Iterator

from obs.checks.manifests.objects import number
from obs.checks.manifests.world import ManifestWorld
from obs.model.problem import Problem
from obs.promql import duration

ID = "scaler-polling"

DEFAULT = 30.0


def check(world: ManifestWorld) -> Iterator[Problem]:
    for scaler in world.scalers:
        if not scaler.keda_at:
            continue
        one = scaler.manifest
        at = (*scaler.keda_at, "pollingInterval")
        given = number(one.get(*at))
        interval = DEFAULT if given is None else given
        scrape = world.config.scrape_interval
        for trigger in scaler.triggers:
            if one.get(*trigger.at, "useCachedMetrics") is True and interval > scrape:
                yield one.problem((*trigger.at, "useCachedMetrics"),
                                  f"HPA then sees values up to {duration(interval)} old, where Prometheus has newer ones",
                                  "leave it out", "warning")
        if given is not None and given < scrape and any(trigger.type == "prometheus" for trigger in scaler.triggers):
            yield one.problem(at, f"{duration(given)} is more often than Prometheus scrapes ({duration(scrape)})",
                              f"write {scrape:g}", "info")
