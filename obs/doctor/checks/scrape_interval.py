"""Targets are scraped often enough for the ranges of the rules.

The rules' ranges are built for interval.scrape of obs.yaml. rate() needs two samples in its range; with fewer than four
scrapes in one, a lost scrape or two leave it empty and the alert silent (traps: prometheus#1428).

Mend: scrape_interval in the job, or interval.scrape in obs.yaml and `obs build` again.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from obs.config import seconds
from obs.doctor.checks.scrape_target import ours
from obs.doctor.facts import Facts
from obs.doctor.finding import Finding
from obs.engines import metric_owners
from obs.promql import duration

ID = "scrape-interval"

SCRAPES = 4
_RANGE = re.compile(r"\[(\w+)\]")


def check(facts: Facts) -> Iterator[Finding]:
    prometheus = facts.prometheus
    if prometheus is None:
        return
    slow: defaultdict[tuple[str, float], list[str]] = defaultdict(list)
    for target in ours(facts):
        if target.interval > 0:
            slow[target.job, target.interval].append(target.instance)
    window = _smallest(facts)
    for (job, interval), instances in sorted(slow.items()):
        if SCRAPES * interval <= window:
            continue
        empty = 2 * interval > window
        yield Finding(
            ID, "error" if empty else "warning", f"{job}/{instances[0]}",
            f"scraped every {duration(interval)}, and the rules look at ranges of {duration(window)}",
            "their rates are empty: the alerts never fire" if empty
            else "a lost scrape leaves their rates empty, and the alerts silent",
            f"scrape_interval: {duration(max(1, int(window / SCRAPES)))} in job {job}; or in obs.yaml `interval: "
            f"{{scrape: {duration(interval)}}}`, then obs build",
        )


def _smallest(facts: Facts) -> float:
    """The smallest range over an engine's own series among the loaded recording rules, else that of obs.yaml."""
    rules = facts.prometheus.rules if facts.prometheus is not None else None
    found = [
        seconds(text) for rule in rules or () if rule.kind == "recording" and any(
            metric_owners(word) for word in re.findall(r"[a-zA-Z_:][a-zA-Z0-9_:]*(?=[\[{])", rule.expr)
        )
        for text in _RANGE.findall(rule.expr)
    ]
    return min(found, default=facts.config.window("rate"))
