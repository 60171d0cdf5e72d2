"""Which metrics an expression reads, by parsing it (parse only: the author's text is what ships)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

_WORD = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_QUOTED = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|`[^`]*`')


@dataclass(frozen=True)
class Selector:
    """One vector selector: the metric name (exact), or a pattern on it, or neither; and its equalities."""

    name: str
    pattern: str = ""
    equal: tuple[tuple[str, str], ...] = ()

    def may_read(self, metric: str) -> bool:
        """Whether a metric of that name can be among what the selector reads."""
        if self.name:
            return self.name == metric
        return not self.pattern or re.fullmatch(self.pattern, metric) is not None


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


def may_read(expr: str, metric: str) -> bool:
    """Whether the expression can read a metric of that name; by its words when it does not parse."""
    parsed = selectors(expr)
    if parsed is None:
        return metric in _WORD.findall(_QUOTED.sub("", expr))
    return any(selector.may_read(metric) for selector in parsed)


def _selector(node: Any, op: Any) -> Selector:
    name = node.name or ""
    pattern = ""
    equal: list[tuple[str, str]] = []
    for matcher in node.matchers.matchers:
        if matcher.name == "__name__":
            if matcher.op == op.Equal:
                name = matcher.value
            elif matcher.op == op.Re:
                pattern = matcher.value
        elif matcher.op == op.Equal:
            equal.append((matcher.name, matcher.value))
    return Selector(name, pattern, tuple(equal))
