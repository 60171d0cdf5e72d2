"""What the checks of manifests look at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from obs.catalog.scaling import LONGEST_GENERATION
from obs.checks.manifests.objects import Manifest
from obs.checks.manifests.scalers import AdapterRule, Scaler, Trigger, adapter_rules, scalers
from obs.checks.rulefiles import Rule, RuleFile, Text
from obs.checks.syntax import Selector, parse
from obs.checks.world import World
from obs.config import Config
from obs.model.problem import Problem
from obs.recordings.scaling import target


@dataclass(eq=False)
class ManifestWorld:
    """``rule_files``: rules among the manifests, whose series the queries may read. ``passed_over``: files that are no
    YAML and name no scaler; ``unreadable``: a finding for each that names one."""

    config: Config
    manifests: tuple[Manifest, ...] = ()
    rule_files: tuple[RuleFile, ...] = ()
    passed_over: tuple[str, ...] = ()
    unreadable: tuple[Problem, ...] = ()

    @cached_property
    def scalers(self) -> tuple[Scaler, ...]:
        return tuple(scalers(self.manifests))

    @cached_property
    def adapter_rules(self) -> tuple[AdapterRule, ...]:
        return tuple(adapter_rules(self.manifests))

    def triggers(self) -> Iterator[tuple[Scaler, Trigger]]:
        for scaler in self.scalers:
            for trigger in scaler.triggers:
                yield scaler, trigger

    def longest_generation(self, scaled: tuple[str, str, str]) -> float:
        """Seconds: of the workload in obs.yaml, else the default."""
        for workload in self.config.workloads:
            if (workload.namespace, target(workload).name) == (scaled[0], scaled[2]):
                return workload.longest_generation
        return LONGEST_GENERATION

    def series(self, trigger: Trigger) -> tuple[str, ...]:
        """The names of the series behind a metric that HPA or metrics-api names: the adapter's, else the name itself."""
        if trigger.of_keda:
            return (trigger.metric,)
        found = dict.fromkeys(
            name for rule in self.adapter_rules
            if rule.external == (trigger.type == "External") and rule.serves(trigger.metric)
            for name in rule.selectors if name
        )
        return tuple(found) or (trigger.metric,)

    @cached_property
    def queries(self) -> World:
        """The scaling queries as expressions, for the checks of PromQL; with the rules among the manifests."""
        files: dict[str, list[Rule]] = {}
        for _, trigger in self.triggers():
            if trigger.query is not None:
                one = trigger.manifest
                line = one.line(*trigger.query_at)
                rule = Rule(one.path, "", "query", one.subject, line, line, _placed(trigger.query))
                files.setdefault(one.path, []).append(rule)
        own = tuple(RuleFile(path, tuple(rules)) for path, rules in files.items())
        return World(self.config, (*self.rule_files, *own))

    @property
    def count(self) -> int:
        """The queries there are."""
        return sum(trigger.query is not None for _, trigger in self.triggers())


def recorded_from(world: ManifestWorld, name: str) -> tuple[str, ...]:
    """The series that a recording rule of that name reads; the name itself when no rule is known."""
    found: dict[str, None] = {}
    for one in world.queries.recorded.get(name, ()):
        try:
            tree = parse(one.expr)
        except ValueError:
            continue
        found.update(dict.fromkeys(part.name for part in tree.walk() if isinstance(part, Selector) and part.name))
    return tuple(found) or (name,)


def _placed(query: Text) -> Text:
    return query if query.body else Text(query.value, query.line)
