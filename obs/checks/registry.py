"""Every check, once: one line per module, in the order in which they run."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from obs.checks import (
    alert_tested,
    alert_texts,
    counter_raw,
    dashboards,
    division_unguarded,
    drift,
    integer_bound,
    mean_divisor,
    metric_type,
    or_unfiltered,
    promql_syntax,
    promtool_rules,
    quantile_aggregated,
    quantile_input,
    quantile_without_le,
    range_too_short,
    renamed_metric,
    runbook,
    suppression,
    threshold_bucket,
    threshold_unit,
    unknown_label,
    unknown_label_value,
    unknown_metric,
    value_in_labels,
)
from obs.checks.manifests import registry as manifests
from obs.checks.world import World
from obs.model.problem import Problem


class Check(Protocol):
    """A module of this package: ``ID``, a docstring that explains it, and ``check``."""

    ID: str

    def check(self, world: World) -> Iterable[Problem]: ...


#: They read expressions and rules, and nothing else: quick, and right for anybody's files.
STATIC: tuple[Check, ...] = (
    promql_syntax,
    unknown_metric,
    renamed_metric,
    unknown_label,
    unknown_label_value,
    integer_bound,
    metric_type,
    counter_raw,
    quantile_aggregated,
    quantile_without_le,
    quantile_input,
    mean_divisor,
    division_unguarded,
    threshold_unit,
    threshold_bucket,
    range_too_short,
    or_unfiltered,
    value_in_labels,
)

#: What the pack demands of itself.
PACK: tuple[Check, ...] = (alert_texts, runbook)

#: The same, from all unit tests and a whole build: seconds, not milliseconds.
PACK_DEEP: tuple[Check, ...] = (alert_tested, drift)

#: What is written by hand beside the pack, and the checks that look at it.
NEEDS = {runbook.ID: "alerts/runbooks", alert_tested.ID: "alerts/tests"}

#: They run other programs.
EXTERNAL: tuple[Check, ...] = (promtool_rules,)


@dataclass(frozen=True)
class Entry:
    """A check as `--list` and `--explain` show it."""

    id: str
    explanation: str

    @property
    def summary(self) -> str:
        return self.explanation.strip().splitlines()[0]


def entries() -> tuple[Entry, ...]:
    """Every check with its explanation, the dashboards' rules and the suppression comment too."""
    modules = [
        *((module.ID, inspect.getdoc(module)) for module in (*STATIC, *PACK, *PACK_DEEP, *EXTERNAL)),
        *((module.ID, inspect.getdoc(module)) for module in manifests.CHECKS),
        (suppression.ID, inspect.getdoc(suppression)),
    ]
    rules = [(rule.id, inspect.cleandoc(rule.explanation)) for rule in dashboards.RULES]
    return tuple(Entry(name, text or "") for name, text in (*modules, *rules))


def run(world: World, checks: Iterable[Check]) -> Iterator[Problem]:
    """The findings of the checks, each with its check's id; of two that are the same, one."""
    for check in checks:
        found = (problem if problem.check else replace(problem, check=check.ID) for problem in check.check(world))
        yield from dict.fromkeys(found)


#: Where a scaling query divides, scaler-query-nan says more.
_NOT_OF_QUERIES = frozenset({division_unguarded.ID})


def run_manifests(world: manifests.ManifestWorld) -> Iterator[Problem]:
    """The findings of manifests: of the checks of scalers, and of those of PromQL on their queries and rules."""
    yield from manifests.run(world)
    scalers = {scaler.manifest.subject for scaler in world.scalers}
    for problem in run(world.queries, STATIC):
        if problem.check not in _NOT_OF_QUERIES or problem.subject not in scalers:
            yield problem


def run_dashboards(world: World) -> Iterator[Problem]:
    """The findings of the dashboards' own rules."""
    for file in world.dashboards:
        yield from dashboards.check_dashboard(file.path, file.text)
