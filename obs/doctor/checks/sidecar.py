"""The sidecar is scraped where alerts read it.

Alerts on models that failed to load, versions that are not loaded, stalled engines and vulnerable versions read the
sidecar's series, for no engine exports them.

Mend: `obs sidecar` beside each server, or leave its engine out: engines: [triton, …] in obs.yaml.
"""

from __future__ import annotations

from collections.abc import Iterator

from obs.doctor.facts import Facts
from obs.doctor.finding import Finding

ID = "sidecar"


def check(facts: Facts) -> Iterator[Finding]:
    prometheus = facts.prometheus
    if prometheus is None or "sidecar" not in facts.config.engines or not prometheus.engine_targets:
        return
    if not any("sidecar" in engines for engines in prometheus.engine_targets.values()):
        dead = sum(one.life == "elsewhere" and "sidecar" in one.why for one in facts.alerts.get(prometheus.url, ()))
        yield Finding(
            ID, "info", prometheus.url, "no sidecar is scraped", (f"{dead} alerts read" if dead else "some alerts read")
            + " what only the sidecar exports: models that failed to load, stalled engines, scaling signals",
            "run `obs sidecar` beside each server and scrape it, or leave sidecar out of engines in obs.yaml",
        )
