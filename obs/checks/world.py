"""What the checks look at: rule files, dashboards, their expressions, and what is known of each metric."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from obs.catalog import platform
from obs.checks import dashboards
from obs.checks.rulefiles import Rule, RuleFile
from obs.checks.syntax import Call, Node, Selector, locate, parse
from obs.config import Config
from obs.engines import metric_owners
from obs.model.metric import Engine, Metric
from obs.model.problem import Level, Problem

#: What Prometheus makes itself.
BUILT_IN = frozenset({
    "up", "scrape_duration_seconds", "scrape_samples_scraped", "scrape_samples_post_metric_relabeling",
    "scrape_series_added", "scrape_timeout_seconds", "scrape_sample_limit", "scrape_body_size_bytes",
    "ALERTS", "ALERTS_FOR_STATE",
})  # fmt: skip


@dataclass(frozen=True)
class DashboardFile:
    path: str
    text: str

    @cached_property
    def document(self) -> dashboards.Document:
        import json

        return dashboards.Document(self.path, self.text, json.loads(self.text))


@dataclass(frozen=True)
class Expression:
    """One PromQL text: of a rule (``rule`` is set), or of a dashboard (``place`` is its JSON path).

    ``tree`` is ``None`` when it cannot be parsed, and ``error`` says why.
    """

    path: str
    subject: str
    text: str
    tree: Node | None
    error: str = ""
    rule: Rule | None = None
    dashboard: DashboardFile | None = None
    place: str = ""

    @property
    def is_alert(self) -> bool:
        return self.rule is not None and self.rule.kind == "alert"

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Every part of it, outermost first."""
        return () if self.tree is None else tuple(self.tree.walk())

    def written(self, token: str) -> bool:
        """Whether the author wrote this, and not a stand-in for one of Grafana's variables."""
        if self.dashboard is None:
            return True
        return re.search(rf"(?<![\w$:]){re.escape(token)}(?![\w:])", self.text.replace("${", "$")) is not None

    def problem(self, part: Node | str, what: str, mend: str, level: Level = "error", check: str = "") -> Problem:
        """A finding at a part of this expression; the registry enters the check's id."""
        spelled = part if isinstance(part, str) else part.text
        span = locate(self.text, spelled) if spelled else None
        shown = re.sub(r"\s+", " ", self.text[span[0] : span[1]]) if span else spelled
        return Problem(self.path, self._line(span[0] if span else 0), check, self.subject, what, mend, level, shown)

    def _line(self, start: int) -> int:
        if self.rule is not None:
            body = self.rule.expr.body
            if not body or not start:
                return body or self.rule.expr.line or self.rule.line
            return body + self.text.count("\n", 0, start) if "\n" in self.text.rstrip("\n") else body
        return self.dashboard.document.line(self.place) if self.dashboard is not None else 0


@dataclass(eq=False)
class World:
    """``own``: the pack itself is checked, and stricter rules hold. ``root`` is its folder."""

    config: Config
    rule_files: tuple[RuleFile, ...] = ()
    dashboards: tuple[DashboardFile, ...] = ()
    own: bool = False
    root: Path = field(default_factory=Path)

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        return tuple(rule for file in self.rule_files for rule in file.rules)

    @cached_property
    def alerts(self) -> tuple[Rule, ...]:
        return tuple(rule for rule in self.rules if rule.kind == "alert")

    @cached_property
    def expressions(self) -> tuple[Expression, ...]:
        """Every expression, those of rules first."""
        found = [_expression(rule.path, rule.name, rule.expr.value, rule=rule) for rule in self.rules]
        for file in self.dashboards:
            for title, place, text in dashboards.expressions(file.text):
                found.append(_expression(file.path, title, text, dashboard=file, place=place))
        return tuple(found)

    def quantiles(self) -> Iterator[tuple[Expression, Call, Node]]:
        """Every call of histogram_quantile with its buckets."""
        for expression in self.expressions:
            for node in expression.nodes:
                if isinstance(node, Call) and node.function == "histogram_quantile" and len(node.args) == 2:
                    yield expression, node, node.args[1]

    @cached_property
    def recorded(self) -> Mapping[str, tuple[Recorded, ...]]:
        """Series name → the recording rules that make it: of the files under check and of the pack."""
        found: defaultdict[str, list[Recorded]] = defaultdict(list)
        for rule in self.rules:
            if rule.kind == "record":
                labels = {name: text.value for name, text in rule.labels.items()}
                found[rule.name].append(Recorded(rule.name, rule.expr.value, labels))
        if not self.own:
            from obs.alerts.registry import all_groups

            for group in all_groups(self.config):
                for recording in group.recordings:
                    if not any(one.expr == recording.expr for one in found.get(recording.record, ())):
                        one = Recorded(recording.record, recording.expr, dict(recording.labels))
                        found[recording.record].append(one)
        return {name: tuple(rules) for name, rules in found.items()}

    def owners(self, selector: Selector) -> tuple[tuple[Engine, Metric], ...]:
        """The (engine, family) pairs that a selector can read: those whose labels its matchers do not rule out."""
        pairs = metric_owners(selector.name)
        if len(pairs) < 2:
            return pairs
        kept = tuple(pair for pair in pairs if self._possible(selector, pair[1]))
        return kept or pairs

    def _possible(self, selector: Selector, metric: Metric) -> bool:
        known = {*metric.labels, *metric.optional_labels}
        for matcher in selector.matchers:
            if matcher.name in ("model", "model_name", "version", "engine"):
                if matcher.name not in known and not matcher.accepts(""):
                    return False
                if matcher.name in metric.labels and matcher.op == "=" and not matcher.value:
                    return False
        return True

    def is_known(self, name: str) -> bool:
        """Whether the engines or the platform serve a sample of that name, a rule records it, or Prometheus makes it."""
        return name in BUILT_IN or name in platform.BY_NAME or name in self.recorded or bool(metric_owners(name))


@dataclass(frozen=True)
class Recorded:
    """One recording rule of a series."""

    name: str
    expr: str
    labels: Mapping[str, str]

    @cached_property
    def tree(self) -> Node | None:
        try:
            return parse(self.expr)
        except ValueError:
            return None


def _expression(
    path: str, subject: str, text: str, *, rule: Rule | None = None, dashboard: DashboardFile | None = None,
    place: str = "",
) -> Expression:
    read = text if dashboard is None else dashboards.substitute_variables(text)
    try:
        return Expression(path, subject, text, parse(read), "", rule, dashboard, place)
    except ValueError as error:
        reason = str(error).splitlines()[0] if str(error) else "no reason given"
        return Expression(path, subject, text, None, reason, rule, dashboard, place)


def build(config: Config, rule_files: Iterable[RuleFile], dashboard_texts: Mapping[str, str], *, own: bool = False,
          root: Path | None = None) -> World:
    """A world of rule files and of dashboards (path → text). Dashboards that are no JSON take part in no PromQL check:
    the dashboard checks report them."""
    files = tuple(DashboardFile(path, text) for path, text in dashboard_texts.items())
    return World(config, tuple(rule_files), files, own, root or Path())
