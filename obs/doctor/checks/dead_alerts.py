"""Every alert that this server could feed is fed.

An alert whose metric is not there is silent for ever: it looks like health. This check groups the dead alerts by what would
wake them, and names the flag; blind ones have their series, which tell nothing now. Alerts that read other engines' metrics
are not counted.

Mend: the flag that is named; `obs doctor --verbose` lists every alert.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from obs.doctor.checks.latency_source import ALL_MODELS
from obs.doctor.facts import Facts
from obs.doctor.finding import Finding
from obs.doctor.life import Alive

ID = "dead-alerts"


def check(facts: Facts) -> Iterator[Finding]:
    for place, alerts in list(facts.alerts.items())[:1]:  # of several judgements the first: that of the pages themselves
        groups: defaultdict[tuple[str, ...], list[Alive]] = defaultdict(list)
        for one in alerts:
            if one.life == "dead":
                groups[_works(facts, one.wakes)].append(one)
        for wakes, dead in sorted(groups.items()):
            names = ", ".join(one.alert for one in dead)
            whys = list(dict.fromkeys(one.why for one in dead))
            more = f"; and {len(whys) - 1} more" if len(whys) > 1 else ""
            yield Finding(
                ID, "info", place, f"dead here: {names}" + (f"; woken by {wakes[0]}" if wakes else ""), whys[0] + more,
                " or ".join(wakes) if wakes else "no flag brings them: do not count on these alerts here",
            )


    for place, alerts in facts.alerts.items():
        blind = [one for one in alerts if one.life == "blind"]
        if blind:
            shown = ", ".join(one.alert for one in blind[:4]) + (f" and {len(blind) - 4} more" if len(blind) > 4 else "")
            asked = f"obs eval --prometheus {place}" if facts.prometheus and place == facts.prometheus.url else "-v"
            yield Finding(ID, "info", place, f"blind now: {shown}", blind[0].why, f"{asked} says why of each")


def _works(facts: Facts, wakes: tuple[str, ...]) -> tuple[str, ...]:
    """Without the flags that this version takes and does nothing with."""
    release = facts.triton.release if facts.triton is not None else None
    if release is None or release >= ALL_MODELS:
        return wakes
    left = tuple(one for one in wakes if "histogram_latencies" not in one)
    return left or tuple(f"{one}, from {ALL_MODELS} on" for one in wakes)
