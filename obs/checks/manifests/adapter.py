"""A rule of prometheus-adapter serves one signal, for the objects that are asked for.

A query without `<<.LabelMatchers>>` adds up all services of the cluster. Without `<<.GroupBy>>` a Pods metric has one value
for all pods. Without `resources` the series belong to no pod. A rule that takes several series under one name serves
whichever comes first.

Bad:
    metricsQuery: sum(vllm:num_requests_waiting)

Mend:
    metricsQuery: max(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from obs.checks.manifests.objects import text
from obs.checks.manifests.world import ManifestWorld
from obs.model.problem import Problem

ID = "adapter-rule"


def check(world: ManifestWorld) -> Iterator[Problem]:
    taken: dict[tuple[bool, str], int] = {}
    for rule in world.adapter_rules:
        one = rule.manifest
        if not re.search(r"\.LabelMatchers\b|\.LabelValuesByName\b", rule.query):
            yield one.problem((*rule.at, "metricsQuery"), "ignores <<.LabelMatchers>>: it adds up every namespace and service",
                              "write <<.Series>>{<<.LabelMatchers>>}")
        resources = rule.data.get("resources")
        per_pod = "pod" in str(resources) or "template" in str(resources)
        if not rule.external and per_pod and not re.search(r"\.GroupBy\b|\.GroupBySlice\b", rule.query):
            yield one.problem((*rule.at, "metricsQuery"), "ignores <<.GroupBy>>: it has one value for all pods",
                              "write by (<<.GroupBy>>)")
        if not rule.external and not (isinstance(resources, dict) and resources):
            yield one.problem((*rule.at, "resources"), "is not there: the series belong to no namespace and pod",
                              "write overrides for namespace and pod")
        naming = rule.data.get("name")
        served = text(naming.get("as")) if isinstance(naming, dict) else ""
        if served and "$" not in served:
            if len(set(rule.selectors)) > 1 or "" in rule.selectors:
                yield one.problem((*rule.at, "name", "as"), f"{served} may be any of several series: one rule per signal",
                                  "ask for one series by its name in seriesQuery")
            if (rule.external, served) in taken:
                yield one.problem((*rule.at, "name", "as"), f"{served} is served by another rule too",
                                  "keep one rule per signal")
            taken[rule.external, served] = 1
