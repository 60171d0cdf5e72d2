"""Kubernetes objects of YAML files, with the line of every field."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from obs.checks.rulefiles import Ignore, Text
from obs.checks.rulefiles import ignores as comments_of
from obs.errors import InputError
from obs.model.problem import Level, Problem

Keys = tuple[str | int, ...]
"""The place of a field in its object: ``("spec", "triggers", 0, "type")``."""


@dataclass(frozen=True, eq=False)
class Manifest:
    """One object. ``root`` is its place in the YAML document (not the top inside a List). ``ignores`` are the comments
    ``# obs:ignore ID reason`` within the document: they silence the check for the object."""

    path: str
    data: dict[str, Any]
    root: Keys
    lines: dict[Keys, int] = field(repr=False)
    texts: dict[Keys, Text] = field(repr=False)
    ignores: tuple[Ignore, ...] = ()

    @property
    def kind(self) -> str:
        return text(self.data.get("kind"))

    @property
    def api(self) -> str:
        """The API group (``autoscaling``, ``keda.sh``), without the version."""
        return text(self.data.get("apiVersion")).partition("/")[0]

    @property
    def name(self) -> str:
        return text(self.get("metadata", "name"))

    @property
    def namespace(self) -> str:
        return text(self.get("metadata", "namespace"))

    @property
    def subject(self) -> str:
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {where}" if self.kind else "prometheus-adapter"

    def get(self, *keys: str | int) -> Any:
        """The field, or ``None``."""
        found: Any = self.data
        for key in keys:
            if isinstance(key, int):
                found = found[key] if isinstance(found, list) and key < len(found) else None
            else:
                found = found.get(key) if isinstance(found, dict) else None
        return found

    def items(self, *keys: str | int) -> Iterator[tuple[Keys, dict[str, Any]]]:
        """The objects of a list field, each with its place."""
        found = self.get(*keys)
        for index, one in enumerate(found if isinstance(found, list) else ()):
            if isinstance(one, dict):
                yield (*keys, index), one

    def mapping(self, *keys: str | int) -> dict[str, Any]:
        found = self.get(*keys)
        return found if isinstance(found, dict) else {}

    def text_at(self, *keys: str | int) -> Text | None:
        """A text field with its line."""
        found = self.texts.get((*self.root, *keys))
        return found if found is not None and isinstance(self.get(*keys), str) else None

    def line(self, *keys: str | int) -> int:
        """The line of a field; of what is around it when it is not there."""
        place = (*self.root, *keys)
        while place not in self.lines and place:
            place = place[:-1]
        return self.lines.get(place, 1)

    def problem(self, keys: Keys, what: str, mend: str, level: Level = "error", check: str = "") -> Problem:
        """A finding at a field, which need not exist; the registry enters the check's id."""
        return Problem(self.path, self.line(*keys), check, self.subject, what, mend, level, spelled(keys))


def text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def spelled(keys: Keys) -> str:
    """``spec.triggers[0].type``."""
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys).lstrip(".")


def number(value: Any) -> float | None:
    """A finite number, or one written as text (KEDA's metadata are all text)."""
    if isinstance(value, bool):
        return None
    try:
        found = float(value if isinstance(value, int | float) else text(value))
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


_SUFFIXES = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 1024.0,
             "Mi": 1024.0**2, "Gi": 1024.0**3, "Ti": 1024.0**4}  # fmt: skip


def quantity(value: Any) -> float | None:
    """A Kubernetes quantity: ``750m`` → 0.75."""
    match = re.fullmatch(r"([+-]?[\d.]+(?:[eE][+-]?\d+)?)([numkMGT]?|[KMGT]i)", text(value).strip())
    if match is None:
        return number(value)
    found = number(match[1])
    return None if found is None else found * _SUFFIXES[match[2]]


def parse(path: str, source: str) -> list[Manifest]:
    """The objects of a YAML text, and prometheus-adapter's configuration (``rules`` with ``seriesQuery``), which is
    none. ``InputError`` when it is no YAML."""
    try:
        nodes = list(yaml.compose_all(source, Loader=yaml.SafeLoader))
        values = list(yaml.safe_load_all(source))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark is not None else path
        what = getattr(error, "problem", None) or str(error).splitlines()[0]
        mend = "render the template first (helm template, kustomize build)" if "{{" in source else "mend the syntax"
        raise InputError(f"{where}: is not valid YAML: {what}; {mend}") from error
    comments = comments_of(source)
    found: list[Manifest] = []
    begins = [node.start_mark.line + 1 for node in nodes]
    for index, (node, value) in enumerate(zip(nodes, values, strict=True)):
        first = 1 if index == 0 else _above(source, begins[index])
        last = _above(source, begins[index + 1]) if index + 1 < len(nodes) else 1 << 30
        own = tuple(one for one in comments if first <= one.line < last)
        lines: dict[Keys, int] = {}
        texts: dict[Keys, Text] = {}
        _walk(node, (), lines, texts)
        for root, one in _objects(value):
            found.append(Manifest(path, one, root, lines, texts, own))
    return found


def _above(source: str, line: int) -> int:
    """The line after the ``---`` above a document."""
    rows = source.splitlines()
    while line > 1 and not rows[line - 2].startswith("---"):
        line -= 1
    return line


def _objects(value: Any) -> Iterator[tuple[Keys, dict[str, Any]]]:
    if not isinstance(value, dict):
        return
    if value.get("kind") == "List" and isinstance(value.get("items"), list):
        for index, one in enumerate(value["items"]):
            if isinstance(one, dict):
                yield ("items", index), one
        return
    yield (), value


def _walk(node: yaml.Node, place: Keys, lines: dict[Keys, int], texts: dict[Keys, Text]) -> None:
    lines.setdefault(place, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inner = (*place, str(key.value))
            lines[inner] = key.start_mark.line + 1
            _walk(value, inner, lines, texts)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            lines[(*place, index)] = value.start_mark.line + 1
            _walk(value, (*place, index), lines, texts)
    elif isinstance(node, yaml.ScalarNode):
        line = node.start_mark.line + 1
        body = line + 1 if node.style == "|" else line if node.style != ">" else 0
        texts[place] = Text(str(node.value), line, body)
