"""Every page is scraped once.

Pod annotations (prometheus.io/scrape) and a PodMonitor, or two monitors, that select the same pod scrape it twice under
two jobs: every sum counts it twice, and an alert comes twice.

Mend: remove the annotation or the second monitor.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from obs.doctor.checks.scrape_target import ours
from obs.doctor.facts import Facts, ScrapeTarget
from obs.doctor.finding import Finding

ID = "double-scrape"


def page(url: str) -> str:
    """A scrape URL with one spelling of this machine."""
    return url.replace("//localhost:", "//127.0.0.1:")


def check(facts: Facts) -> Iterator[Finding]:
    if facts.prometheus is None:
        return
    pages: defaultdict[str, list[ScrapeTarget]] = defaultdict(list)
    for target in ours(facts):
        pages[page(target.url)].append(target)
    for url, targets in sorted(pages.items()):
        if len(targets) > 1:
            jobs = sorted({one.pool or one.job for one in targets})
            yield Finding(
                ID, "warning", url, f"scraped {len(targets)} times: {', '.join(jobs)}",
                "sums over models and jobs count it each time, and its alerts come as often",
                "keep one: remove the annotation prometheus.io/scrape from the pod, or the PodMonitor or ServiceMonitor that "
                "selects it as well" if len(jobs) > 1 else f"keep one of the equal targets of {jobs[0]}",
            )
