"""Rule files with the line of everything: plain ones, and PrometheusRule objects of the Prometheus operator."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from obs.errors import InputError


@dataclass(frozen=True)
class Text:
    """A scalar with its 1-based line. ``body`` is the line of its first character when each of its lines is a line
    of the file (a block literal or one line), else 0."""

    value: str
    line: int
    body: int = 0


@dataclass(frozen=True)
class Rule:
    """One rule as written. ``line`` is that of its first key, ``end`` the last line of it."""

    path: str
    group: str
    kind: str  # "alert" or "record"
    name: str
    line: int
    end: int
    expr: Text
    labels: dict[str, Text] = field(default_factory=dict)
    annotations: dict[str, Text] = field(default_factory=dict)


@dataclass(frozen=True)
class RuleFile:
    """``operator``: its groups stand in a PrometheusRule, which promtool does not read."""

    path: str
    rules: tuple[Rule, ...]
    ignores: tuple[Ignore, ...] = ()
    operator: bool = False
    text: str = ""


@dataclass(frozen=True)
class Ignore:
    """A comment ``# obs:ignore ID reason``."""

    line: int
    check: str
    reason: str


_IGNORE = re.compile(r"#\s*obs:ignore\b[ \t]*(?P<check>[\w-]*)[ \t]*(?P<reason>.*)$")
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8 text (byte {error.start}); save it as UTF-8") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}; check the path") from error


def parse(path: str, text: str) -> RuleFile | None:
    """The rules of a YAML text; ``None`` when it is YAML and no rule file. ``InputError`` when it is no YAML."""
    try:
        documents = list(yaml.compose_all(text, Loader=_Loader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark is not None else path
        what = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise InputError(f"{where}: is not valid YAML: {what}; mend the syntax") from error
    rules: list[Rule] = []
    seen = operator = False
    for document in documents:
        groups = _get(document, "groups")
        if groups is None and _value(_get(document, "kind")) == "PrometheusRule":
            groups = _get(_get(document, "spec"), "groups")
            operator = operator or groups is not None
        if isinstance(groups, yaml.SequenceNode):
            seen = True
            for group in groups.value:
                rules += _group(path, group)
    if not seen:
        return None
    return RuleFile(path, tuple(rules), ignores(text), operator, text)


def ignores(text: str) -> tuple[Ignore, ...]:
    """The comments ``# obs:ignore`` of a file."""
    return tuple(
        Ignore(number, match["check"], match["reason"].strip())
        for number, line in enumerate(text.splitlines(), 1)
        if "obs:ignore" in line and (match := _IGNORE.search(line))
    )


def load(path: Path) -> RuleFile:
    """The rule file at ``path``; ``InputError`` when it cannot be read, is no YAML or no rule file."""
    found = parse(str(path), read_text(path))
    if found is None:
        raise InputError(f"{path}: is no Prometheus rule file: it has no list `groups`; name rule files or dashboards")
    return found


def _pairs(node: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield _value(key), key, value


def _get(node: Any, name: str) -> Any:
    for key, _, value in _pairs(node):
        if key == name:
            return value
    return None


def _value(node: Any) -> str:
    return str(node.value) if isinstance(node, yaml.ScalarNode) else ""


def _text(node: Any) -> Text:
    if not isinstance(node, yaml.ScalarNode):
        return Text("", 0)
    line = node.start_mark.line + 1
    if node.style == "|":
        return Text(str(node.value), line, line + 1)
    one_line = node.style != ">" and node.start_mark.line == node.end_mark.line
    return Text(str(node.value), line, line if one_line else 0)


def _texts(node: Any) -> dict[str, Text]:
    return {key: _text(value) for key, _, value in _pairs(node)}


def _group(path: str, group: Any) -> Iterator[Rule]:
    rules = _get(group, "rules")
    for rule in rules.value if isinstance(rules, yaml.SequenceNode) else ():
        keys = {key for key, _, _ in _pairs(rule)}
        if not keys & {"alert", "record"}:
            continue  # promtool says what is wrong with it
        kind = "alert" if "alert" in keys else "record"
        start, end = rule.start_mark.line + 1, rule.end_mark
        last = end.line if end.column == 0 or end.line >= start else end.line + 1
        yield Rule(
            path, _value(_get(group, "name")), kind, _value(_get(rule, kind)), start, max(last, start),
            _text(_get(rule, "expr")), _texts(_get(rule, "labels")), _texts(_get(rule, "annotations")),
        )
