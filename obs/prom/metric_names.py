"""Which metrics an expression reads, by parsing it (parse only: the author's text is what ships)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

_WORD = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_QUOTED = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|`[^`]*`')


@dataclass(frozen=True)
class Selector:
    """One vector selector: the metric name (exact), or a pattern on it, or neither; its equalities; and all its
    matchers on labels as (label, one of ``= != =~ !~``, value)."""

    name: str
    pattern: str = ""
    equal: tuple[tuple[str, str], ...] = ()
    matchers: tuple[tuple[str, str, str], ...] = ()

    def may_read(self, metric: str, labels: Mapping[str, str] | None = None) -> bool:
        """Whether a metric of that name, of whose labels ``labels`` are known, can be among what the selector reads."""
        if self.name and self.name != metric:
            return False
        if not self.name and self.pattern and re.fullmatch(self.pattern, metric) is None:
            return False
        known = labels or {}
        return all(agrees(known[label], op, wanted) for label, op, wanted in self.matchers if label in known)


def agrees(value: str, op: str, wanted: str) -> bool:
    """Whether a label's value satisfies a matcher."""
    hit = value == wanted if op in {"=", "!="} else re.fullmatch(wanted, value) is not None
    return hit == (op in {"=", "=~"})


@lru_cache(maxsize=4096)
def selectors(expr: str) -> tuple[Selector, ...] | None:
    """The selectors of a PromQL expression, in order; None when promql-parser cannot parse it.

    None does not mean that Prometheus cannot either: promtool is the authority.
    """
    import promql_parser

    try:
        tree = promql_parser.parse(expr)
    except ValueError:
        return None
    found: list[Selector] = []

    def visit(node: Any) -> bool:
        if isinstance(node, promql_parser.VectorSelector):
            found.append(_selector(node, promql_parser.MatchOp))
        return True

    walk: Callable[[Any, Callable[[Any], bool]], bool] = promql_parser.walk
    walk(tree, visit)
    return tuple(dict.fromkeys(found))


def may_read(expr: str, metric: str, labels: Mapping[str, str] | None = None) -> bool:
    """Whether the expression can read a metric of that name, of whose labels ``labels`` are known; by its words when it
    does not parse."""
    read = _by_name(expr)
    if read is None:
        return metric in _WORD.findall(_QUOTED.sub("", expr))
    named, nameless = read
    return any(selector.may_read(metric, labels) for selector in (*named.get(metric, ()), *nameless))


@lru_cache(maxsize=4096)
def _by_name(expr: str) -> tuple[Mapping[str, Sequence[Selector]], Sequence[Selector]] | None:
    """An expression's selectors by the metric's name, and those without one; None when it does not parse."""
    parsed = selectors(expr)
    if parsed is None:
        return None
    named: dict[str, list[Selector]] = {}
    for one in parsed:
        if one.name:
            named.setdefault(one.name, []).append(one)
    return named, [one for one in parsed if not one.name]


def _selector(node: Any, op: Any) -> Selector:
    name = node.name or ""
    pattern = ""
    equal: list[tuple[str, str]] = []
    signs = ((op.Equal, "="), (op.NotEqual, "!="), (op.Re, "=~"), (op.NotRe, "!~"))
    matchers: list[tuple[str, str, str]] = []
    for matcher in node.matchers.matchers:
        if matcher.name == "__name__":
            if matcher.op == op.Equal:
                name = matcher.value
            elif matcher.op == op.Re:
                pattern = matcher.value
            continue
        matchers.append((matcher.name, next(sign for one, sign in signs if one == matcher.op), matcher.value))
        if matcher.op == op.Equal:
            equal.append((matcher.name, matcher.value))
    return Selector(name, pattern, tuple(equal), tuple(matchers))
