"""Rules as the evaluator needs them: plain, from the pack's own groups or from rule files."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from obs.errors import InputError
from obs.model.rule import Alert, Group
from obs.prom import metric_names
from obs.prom.remote_write import Labels, make_labels

_DURATION = re.compile(r"(?:(\d+)y)?(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+)s)?(?:(\d+)ms)?")
_MS = (31_536_000_000, 604_800_000, 86_400_000, 3_600_000, 60_000, 1_000, 1)


@dataclass(frozen=True)
class Rule:
    """A rule to evaluate. ``kind`` is "alert" or "record"; durations in milliseconds; ``where`` names its place.

    Of its group: ``group`` (name), ``file``, ``order`` (its place among the group's rules, from 0), ``interval_ms``
    (0: the evaluator's own step), ``limit`` (0: none) and ``offset_ms`` (``query_offset``: the expression is
    evaluated that much earlier, and what is recorded has that time).
    """

    kind: str
    name: str
    expr: str
    labels: Mapping[str, str] = field(default_factory=dict)
    hold_ms: int = 0
    keep_ms: int = 0
    where: str = ""
    group: str = ""
    file: str = ""
    order: int = 0
    interval_ms: int = 0
    limit: int = 0
    offset_ms: int = 0
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def reads_value(self) -> bool:
        """Whether the alert's labels, and so its identity, can differ with the element's value."""
        if self.kind != "alert" or not any("{{" in text for text in self.labels.values()):
            return False
        from obs.evaluate import templates

        return any(map(templates.reads_value, self.labels.values()))

    def result_labels(self, element: Labels, value: float = math.nan) -> Labels:
        """The labels of what the rule makes of one element: ``__name__`` replaced, its own labels on top.

        ``value`` matters where ``reads_value``. InputError when a label's template cannot be expanded.
        """
        found = dict(element)
        source = dict(found)
        found.pop("__name__", None)
        for name, text in self.labels.items():
            if self.kind == "alert" and "{{" in text:
                from obs.evaluate import templates

                try:
                    text = templates.expand(text, source, value)
                except templates.TemplateError as error:
                    raise InputError(f"{self.where or self.name}: label {name} of {self.name}: {error}; mend it") from error
            found[name] = text
        found["alertname" if self.kind == "alert" else "__name__"] = self.name
        return make_labels(found.items())


def duration_ms(text: str, where: str) -> int:
    """A Prometheus duration ("5m", "1h30m", "500ms", "0", "") in milliseconds; InputError when it is none."""
    if text in {"", "0"}:
        return 0
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        raise InputError(f"{where}: {text!r} is no Prometheus duration; write it like 90s, 5m or 1h30m")
    return sum(int(part) * unit for part, unit in zip(match.groups(), _MS, strict=True) if part)


def from_groups(groups: Iterable[Group]) -> list[Rule]:
    """The rules of the pack's own groups, in order. An alert carries its severity as a label."""
    rules = []
    for group in groups:
        for order, rule in enumerate(group.rules):
            if isinstance(rule, Alert):
                where = f"{group.stem}: {rule.name}"
                made = Rule(
                    "alert",
                    rule.name,
                    rule.expr,
                    {"severity": rule.severity, **rule.labels},
                    duration_ms(rule.for_, where),
                    duration_ms(rule.keep_firing_for, where),
                    where,
                    annotations={"summary": rule.summary, "description": rule.description},
                )
            else:
                where = f"{group.stem}: {rule.record}"
                made = Rule("record", rule.record, rule.expr, dict(rule.labels), where=where)
            rules.append(replace(made, group=group.name, file=group.stem, order=order))
    return rules


def load_rule_files(paths: Iterable[str | Path]) -> list[Rule]:
    """The rules of Prometheus rule files (paths, globs), in order.

    InputError when a file is missing, unreadable, no rule file or holds no rule, or when a rule has a label
    template that cannot be expanded exactly (its value is part of the alert's identity).
    """
    from obs.prom import promtool

    files, problems = promtool.expand(paths, promtool.RULES)
    if problems:
        raise InputError(f"{problems[0].path}: {problems[0].what}; {problems[0].mend}")
    rules = [rule for file in files for rule in _rules(file)]
    if not rules:
        raise InputError(f"{', '.join(map(str, files))}: no rule in there; name a file with rules")
    return rules


def _rules(file: Path) -> Iterable[Rule]:
    from obs.evaluate import templates
    from obs.prom import yamlfile

    document: Any = yamlfile.load(file)
    if not isinstance(document, dict) or not isinstance(document.get("groups"), list):
        raise InputError(f"{file}: is no Prometheus rule file: it has no list `groups`; name a rule file")
    for group in yamlfile.items(document["groups"]):
        place = f"{file}:{group[yamlfile.LINE]}"
        name = str(group.get("name") or "")
        own = yamlfile.plain(group.get("labels"))
        limit = group.get("limit") or 0
        if not isinstance(limit, int) or isinstance(limit, bool):
            raise InputError(f"{place}: limit {limit!r} of group {name!r} is no whole number; write it like 100")
        interval, offset = (duration_ms(str(group.get(key) or ""), place) for key in ("interval", "query_offset"))
        for order, item in enumerate(yamlfile.items(group.get("rules"))):
            where = f"{file}:{item[yamlfile.LINE]}"
            kind = "alert" if "alert" in item else "record"
            if not item.get(kind) or not item.get("expr"):
                raise InputError(f"{where}: a rule needs `expr` and `alert` or `record`; add what is missing")
            labels = {**own, **yamlfile.plain(item.get("labels"))}
            for label, value in labels.items():
                if kind == "alert":
                    try:
                        templates.check(value)
                    except templates.TemplateError as error:
                        raise InputError(
                            f"{where}: label {label} has the template {value!r}, which cannot be replayed: {error}; "
                            "write it with what this evaluator knows"
                        ) from error
            yield Rule(
                kind,
                str(item[kind]),
                str(item["expr"]).strip(),
                labels,
                duration_ms(str(item.get("for", "")), where),
                duration_ms(str(item.get("keep_firing_for", "")), where),
                where,
                group=name,
                file=str(file),
                order=order,
                interval_ms=interval,
                limit=max(0, limit),
                offset_ms=offset,
                annotations=yamlfile.plain(item.get("annotations")),
            )


def reads(rule: Rule, maker: Rule) -> bool:
    """Whether a rule can read what a recording rule makes: by its name, and by the labels that the maker sets.

    So a rule may read what others record under its own name, if the label that it sets tells them apart.
    """
    return metric_names.may_read(rule.expr, maker.name, maker.labels)


def needed(readers: Iterable[Rule], makers: Sequence[Rule]) -> list[Rule]:
    """The recording rules among ``makers`` that some rules read, directly or by way of others, in their order."""
    waiting = list(readers)
    found: set[int] = set()
    while waiting:
        reader = waiting.pop()
        for place, maker in enumerate(makers):
            if place not in found and reads(reader, maker):
                found.add(place)
                waiting.append(maker)
    return [makers[place] for place in sorted(found)]


def in_order(rules: Sequence[Rule]) -> list[Rule]:
    """Recording rules so that each comes after those it reads, then the alerts, otherwise in the given order.

    InputError when recording rules read each other in a circle, or a rule reads ALERTS (not replayed).
    """
    for rule in rules:
        for name in ("ALERTS", "ALERTS_FOR_STATE"):
            if any(one.name == name for one in metric_names.selectors(rule.expr) or ()):
                raise InputError(f"{rule.where}: {rule.name} reads {name}, which a replay does not make; leave it out")
    return [rule for level in levels(rules) for rule in level] + [rule for rule in rules if rule.kind == "alert"]


def levels(rules: Iterable[Rule]) -> list[list[Rule]]:
    """The recording rules so that each level reads only what those before it record; errors as ``in_order``."""
    waiting = [rule for rule in rules if rule.kind == "record"]
    found: list[list[Rule]] = []
    while waiting:
        ready = [rule for rule in waiting if not any(reads(rule, other) for other in waiting)]
        if not ready:
            circle = ", ".join(sorted({rule.name for rule in waiting}))
            raise InputError(f"{waiting[0].where}: recording rules read each other in a circle: {circle}; break it")
        found.append(ready)
        waiting = [rule for rule in waiting if rule not in ready]
    return found


class Turns:
    """Which recorded names a rule reads before they are recorded: the rules of a group are evaluated in its order."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._makers: dict[str, list[Rule]] = {}
        self._groups: dict[tuple[str, str], list[Rule]] = {}
        for rule in rules:
            if rule.kind == "record":
                self._makers.setdefault(rule.name, []).append(rule)
                self._groups.setdefault((rule.file, rule.group), []).append(rule)

    def later(self, rule: Rule) -> frozenset[str]:
        """The names that only later rules of its own group record: at its turn they are what they were before."""
        return frozenset(name for name, makers in self._read(rule) if all(_behind(one, rule) for one in makers))

    def astride(self, rule: Rule) -> frozenset[str]:
        """The names that later rules of its own group record, and others too."""
        return frozenset(name for name, makers in self._read(rule) if not all(_behind(one, rule) for one in makers))

    def _read(self, rule: Rule) -> Iterator[tuple[str, list[Rule]]]:
        """The names that a rule reads and later rules of its group record, each with its makers of which it can read the
        series."""
        behind = [one for one in self._groups.get((rule.file, rule.group), ()) if _behind(one, rule) and reads(rule, one)]
        for name in dict.fromkeys(one.name for one in behind):
            yield name, [one for one in self._makers[name] if reads(rule, one)]


def _behind(one: Rule, rule: Rule) -> bool:
    return bool(rule.group) and (one.file, one.group) == (rule.file, rule.group) and one.order > rule.order
