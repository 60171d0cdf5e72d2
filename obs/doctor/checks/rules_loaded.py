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
from obs.model.rule import Alert, Group, Recording

ID = "rules-loaded"


def check(facts: Facts) -> Iterator[Finding]:
    prometheus = facts.prometheus
    if prometheus is None or prometheus.rules is None:
        return
    loaded: dict[str, list[str]] = {}
    for theirs in prometheus.rules:
        loaded.setdefault(theirs.name, []).append(theirs.expr)
    groups = [one for one in all_groups(facts.config) if one.rules]
    missing, changed = list[Group](), list[str]()
    names = {theirs.group for theirs in prometheus.rules}
    for group in groups:
        # a recorded name can have rules in several groups: it is the expression that tells whose it is
        other = [name for name, expr in map(_plain, group.rules) if not any(same(expr, one) for one in loaded.get(name, ()))]
        if len(other) == len(group.rules) and group.name not in names:
            missing.append(group)
        else:
            changed += other
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
        shown = ", ".join(changed[:4]) + (f" and {len(changed) - 4} more" if len(changed) > 4 else "")
        yield Finding(
            ID, "warning", prometheus.url, f"{len(changed)} rules are not as obs.yaml builds them now: {shown}",
            "an older build, or another obs.yaml: what is reviewed is not what runs",
            "obs build, deploy alerts/rules and reload; or give the obs.yaml they were built from with --config",
        )


def _plain(rule: Alert | Recording) -> tuple[str, str]:
    """A rule's name and expression."""
    return (rule.name if isinstance(rule, Alert) else rule.record), rule.expr
