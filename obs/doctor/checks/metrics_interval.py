"""Triton refreshes GPU and CPU gauges as often as they are scraped.

--metrics-interval-ms (2000 by default) is how often it polls them. Above the scrape interval Prometheus stores the same
value again and again, and max_over_time misses peaks.

Mend: --metrics-interval-ms=2000, or at most the scrape interval.
"""

from __future__ import annotations

from collections.abc import Iterator

from obs.doctor.facts import Facts
from obs.doctor.finding import Finding
from obs.promql import duration

ID = "metrics-interval"


def check(facts: Facts) -> Iterator[Finding]:
    given = facts.flag("metrics-interval-ms")
    if not given.isdigit():
        return
    scrape = facts.config.scrape_interval
    if int(given) / 1000 > scrape:
        yield Finding(
            ID, "warning", facts.metrics_url or "command line",
            f"--metrics-interval-ms={given} is longer than the scrape interval of {duration(scrape)}",
            "GPU and CPU gauges stand still between polls: peaks are missed",
            f"start Triton with --metrics-interval-ms=2000 (at most {scrape * 1000:.0f})",
        )
