"""All of the pack's rule groups are loaded, as they are built now.

An alert reads recorded series: a group of recording rules that is missing makes alerts of other groups silent. In Kubernetes
a PrometheusRule that the Prometheus object's ruleSelector does not pick is there and not loaded (label release: …).

Mend: add the files to rule_files and reload; or give the PrometheusRule the label that ruleSelector wants.
"""

from __future__ import annotations

from collections.abc import Iterator

from obs.alerts.registry import all_groups
from obs.doctor.facts import Facts
from obs.doctor.finding import Finding
from obs.evaluate.explain import same
from obs.model.rule import Alert

ID = "rules-loaded"


def check(facts: Facts) -> Iterator[Finding]:
    prometheus = facts.prometheus
    if prometheus is None or prometheus.rules is None:
        return
    loaded: dict[str, list[str]] = {}
    for theirs in prometheus.rules:
        loaded.setdefault(theirs.name, []).append(theirs.expr)
    groups = [one for one in all_groups(facts.config) if one.rules]
    missing, changed = [], []
    for group in groups:
        names = {rule.name if isinstance(rule, Alert) else rule.record for rule in group.rules}
        if not names & loaded.keys():
            missing.append(group)
            continue
        for rule in group.rules:
            name = rule.name if isinstance(rule, Alert) else rule.record
            if not any(same(rule.expr, expr) for expr in loaded.get(name, ())):
                changed.append((group.name, name, name in loaded))
    if len(missing) == len(groups):
        yield Finding(
            ID, "error", prometheus.url, "none of the pack's rules is loaded", "no alert of the pack can fire",
            "rule_files: [ alerts/rules/*.yaml ], then reload; for the operator: the PrometheusRule needs the labels of "
            "ruleSelector, such as release: NAME",
        )
        return
    for group in missing:
        what = "recording rules" if group.recordings else f"{len(group.alerts)} alerts"
        yield Finding(
            ID, "error" if group.recordings else "warning", prometheus.url, f"group {group.name} ({what}) is not loaded",
            "alerts read its series and are silent without them" if group.recordings else "its alerts cannot fire",
            f"add alerts/rules/{group.stem}.yaml to rule_files and reload",
        )
    if changed:
        shown = ", ".join(name for _, name, _ in changed[:4]) + (f" and {len(changed) - 4} more" if len(changed) > 4 else "")
        yield Finding(
            ID, "warning", prometheus.url, f"{len(changed)} rules are not as obs.yaml builds them now: {shown}",
            "an older build, or another obs.yaml: what is reviewed is not what runs",
            "obs build, deploy alerts/rules and reload; or give the obs.yaml they were built from with --config",
        )
