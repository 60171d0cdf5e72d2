"""The rules for rulers other than Prometheus' own: Mimir and Cortex, Thanos."""

from __future__ import annotations

from obs.render.pack import Pack, header
from obs.render.prometheus import dump
from obs.render.split import parts

#: Mimir's defaults: ruler_max_rules_per_rule_group and ruler_max_rule_groups_per_tenant (configuration reference 3.x).
MAX_RULES, MAX_GROUPS = 20, 70


def mimir(pack: Pack) -> dict[str, str]:
    """One namespace file, as ``mimirtool rules load`` and ``cortextool rules load`` read it."""
    name = pack.config.deploy.ruler_namespace
    groups = [part for group in pack.rule_groups for part in parts(group, lambda rule: 1, MAX_RULES)]
    about = [
        f"mimirtool rules load --address=URL --id=TENANT {name}.yaml (or cortextool, the same words).",
        f"Groups of more than {MAX_RULES} rules, Mimir's default limit, are in parts whose rules have nothing in common.",
    ]
    largest = max((len(one["rules"]) for one in groups), default=0)
    if largest > MAX_RULES:
        about.append(f"Raise ruler_max_rules_per_rule_group to {largest}: these rules read each other.")
    if len(groups) > MAX_GROUPS:
        about.append(f"Raise ruler_max_rule_groups_per_tenant to {len(groups)}.")
    return {f"{name}.yaml": header("#", *about) + dump({"namespace": name, "groups": groups})}


def thanos(pack: Pack) -> dict[str, str]:
    """Rule files for ``thanos rule --rule-file``."""
    about = header(
        "#", "abort: with the answer of some stores only, alerts on absence would fire and the others fall silent. Failed",
        "evaluations are counted in prometheus_rule_evaluation_failures_total: alert on that.",
    )
    by_stem: dict[str, list[dict[str, object]]] = {}
    for group, data in zip(pack.groups, pack.rule_groups, strict=True):
        rest = {key: value for key, value in data.items() if key not in ("name", "interval")}
        by_stem.setdefault(group.stem, []).append(
            {"name": data["name"], "interval": data["interval"], "partial_response_strategy": "abort", **rest}
        )
    return {f"{stem}.yaml": about + dump({"groups": groups}) for stem, groups in by_stem.items()}
