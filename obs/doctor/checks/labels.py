"""The labels that the pack groups by are the target's.

When a page has a label that the target has as well, Prometheus renames the page's to exported_… (honor_labels: false),
or drops the target's (honor_labels: true). A model or version under exported_model is not seen by any rule; instance or
job taken from the page no longer tell which server it is. dcgm-exporter's pod and namespace become exported_pod and
exported_namespace: those are the pods that use the GPU.

Mend: honor_labels: false, and drop the clashing target label in relabel_configs.
"""

from __future__ import annotations

from collections.abc import Iterator

from obs.doctor.checks.scrape_target import ours
from obs.doctor.facts import Facts
from obs.doctor.finding import Finding

ID = "labels"

_LOST = frozenset(("exported_model", "exported_version"))


def check(facts: Facts) -> Iterator[Finding]:
    prometheus = facts.prometheus
    if prometheus is None:
        return
    dcgm = {job for (job, _), engines in prometheus.engine_targets.items() if engines == {"dcgm"}}
    for label, jobs in sorted(prometheus.exported.items()):
        for job in jobs:
            bare = label.removeprefix("exported_")
            if job in dcgm and bare in {"pod", "namespace", "container"}:
                yield Finding(
                    ID, "info", f"job {job}", f"{label} is there: dcgm-exporter names the pod that uses the GPU",
                    "pod and namespace are the exporter's own", f"group by {label} to see who uses a GPU",
                )
                continue
            yield Finding(
                ID, "warning", f"job {job}", f"series carry {label}: the page and the target both have a label {bare}",
                f"the rules group by {bare}, which is the target's"
                + (": every model falls together" if label in _LOST else ", not the engine's own"),
                f"in job {job}:\n  relabel_configs:\n    - action: labeldrop\n      regex: {bare}" if label in _LOST
                else f"leave out the target's {bare} in relabel_configs of job {job}, or the engine's own",
            )
    for target_job in sorted({target.pool for target in ours(facts)}):
        if (prometheus.jobs or {}).get(target_job, {}).get("honor_labels") is True:
            yield Finding(
                ID, "warning", f"job {target_job}", "honor_labels: true",
                "a label instance, job or namespace of the page replaces the target's: its alerts name the wrong server, "
                "and up does not join",
                f"honor_labels: false in job {target_job} (in a PodMonitor or ServiceMonitor: honorLabels: false)",
            )
