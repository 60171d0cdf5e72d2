"""No job drops what the pack reads.

metric_relabel_configs that drop or keep by name, and sample_limit, take series away after the scrape: up stays 1, and
alerts that read them are silent.

Mend: leave the pack's families out of the drop, or add them to the keep.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from obs.doctor.checks.scrape_target import ours
from obs.doctor.facts import Facts
from obs.doctor.finding import Finding
from obs.engines import BY_NAME

ID = "dropped-metrics"


def check(facts: Facts) -> Iterator[Finding]:
    prometheus = facts.prometheus
    if prometheus is None:
        return
    for pool in sorted({target.pool for target in ours(facts)}):
        job = (prometheus.jobs or {}).get(pool)
        if job is None:
            continue
        engines = {
            engine for (name, _), found in prometheus.engine_targets.items()
            if name in {target.job for target in ours(facts) if target.pool == pool} for engine in found
        }
        names = sorted(
            series for engine in engines for metric in BY_NAME[engine].metrics for series in metric.series_names()
        )
        for rule in job.get("metric_relabel_configs") or ():
            lost = _lost(rule, names)
            if lost:
                action = rule.get("action", "replace")
                yield Finding(
                    ID, "warning", f"job {pool} metric_relabel_configs",
                    f"action {action} with regex {rule.get('regex')!r} takes away {', '.join(lost[:3])}"
                    + (f" and {len(lost) - 3} more" if len(lost) > 3 else ""),
                    "up stays 1, and what reads them is silent",
                    f"leave them out of the regex of job {pool}" if action == "drop"
                    else f"add to the regex of job {pool}: " + "|".join(sorted({_prefix(name) + ".*" for name in lost})),
                )


def _prefix(name: str) -> str:
    return re.match(r"[a-zA-Z]+[_:]?", name)[0]  # type: ignore[index]


def _lost(rule: Any, names: list[str]) -> list[str]:
    if not isinstance(rule, Mapping) or rule.get("source_labels") != ["__name__"] or rule.get("action") not in {"drop", "keep"}:
        return []
    try:
        regex = re.compile(str(rule.get("regex", "(.*)")))
    except re.error:
        return []
    drops = rule["action"] == "drop"
    return [name for name in names if (regex.fullmatch(name) is not None) == drops]
