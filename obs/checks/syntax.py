"""PromQL as a small typed tree, made from promql-parser's, and the way back to the author's text.

promql-parser keeps no positions. ``locate`` finds a part again by its tokens, so that a finding shows what the
author wrote and the line on which it stands; where the author's order differs from the parser's (``sum(x) by (y)``),
the parser's spelling is shown instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from typing import Any


@dataclass(frozen=True, eq=False)
class Node:
    """A part of an expression; parentheses are not nodes."""

    raw: Any = field(repr=False)

    @property
    def children(self) -> tuple[Node, ...]:
        return ()

    @property
    def text(self) -> str:
        """The parser's spelling, on one line."""
        return re.sub(r"\s+", " ", str(self.raw.prettify())).strip()

    def walk(self) -> Iterator[Node]:
        """This node and all below it, outermost first."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True, eq=False)
class Number(Node):
    value: float


@dataclass(frozen=True, eq=False)
class String(Node):
    value: str


@dataclass(frozen=True)
class Matcher:
    """``name op "value"``."""

    name: str
    op: str
    value: str

    def __str__(self) -> str:
        escaped = self.value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'{self.name}{self.op}"{escaped}"'

    def accepts(self, value: str) -> bool:
        """Whether a series with that label value passes ("" = no such label)."""
        if self.op == "=":
            return value == self.value
        if self.op == "!=":
            return value != self.value
        try:
            hit = re.fullmatch(self.value, value, re.DOTALL) is not None
        except re.error:
            return True  # RE2 that Python does not know: nothing is said of it
        return hit if self.op == "=~" else not hit


@dataclass(frozen=True, eq=False)
class Selector(Node):
    """A vector or range selector; ``name`` is "" when it is given by a pattern or not at all."""

    name: str
    matchers: tuple[Matcher, ...]
    range: float | None = None
    offset: float = 0.0


@dataclass(frozen=True, eq=False)
class Subquery(Node):
    expr: Node
    range: float
    step: float | None
    offset: float = 0.0

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.expr,)


@dataclass(frozen=True, eq=False)
class Call(Node):
    function: str
    args: tuple[Node, ...]

    @property
    def children(self) -> tuple[Node, ...]:
        return self.args


@dataclass(frozen=True, eq=False)
class Aggregate(Node):
    """``labels`` are those of ``by`` or ``without``; both flags false means that neither is written."""

    op: str
    expr: Node
    param: Node | None
    labels: tuple[str, ...]
    without: bool = False

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.expr,) if self.param is None else (self.param, self.expr)


COMPARISONS = frozenset({"==", "!=", ">", "<", ">=", "<="})
SET_OPERATORS = frozenset({"and", "or", "unless"})


@dataclass(frozen=True, eq=False)
class Binary(Node):
    """``on`` is ``None`` unless written; ``group`` is "left", "right" or ""."""

    op: str
    lhs: Node
    rhs: Node
    on: tuple[str, ...] | None = None
    ignoring: tuple[str, ...] | None = None
    group: str = ""
    include: tuple[str, ...] = ()
    returns_bool: bool = False

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.lhs, self.rhs)

    @property
    def compares(self) -> bool:
        return self.op in COMPARISONS


@dataclass(frozen=True, eq=False)
class Unary(Node):
    expr: Node

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.expr,)


@lru_cache(maxsize=4096)
def parse(text: str) -> Node:
    """The tree of an expression; ``ValueError`` with the parser's words when there is none."""
    import promql_parser

    return _node(promql_parser.parse(text))


def constant(node: Node) -> float | None:
    """The value of a part that is arithmetic on numbers only."""
    if isinstance(node, Number):
        return node.value
    if isinstance(node, Unary):
        inner = constant(node.expr)
        return None if inner is None else -inner
    if isinstance(node, Binary) and node.op in _ARITHMETIC:
        left, right = constant(node.lhs), constant(node.rhs)
        if left is None or right is None:
            return None
        try:
            return _ARITHMETIC[node.op](left, right)
        except (ZeroDivisionError, OverflowError):
            return None
    return None


_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "^": lambda a, b: float(a**b),
}


def _seconds(value: timedelta | None) -> float:
    return 0.0 if value is None else value.total_seconds()


def _words(labels: Any) -> tuple[str, ...]:
    return tuple(str(label) for label in labels or ())


_OPS = {"Equal": "=", "NotEqual": "!=", "Re": "=~", "NotRe": "!~"}


def _selector(raw: Any, span: float | None, outer: Any) -> Selector:
    matchers: list[Matcher] = []
    name = str(raw.name or "")
    for matcher in raw.matchers.matchers:
        op = _OPS[str(matcher.op).rpartition(".")[2]]
        if matcher.name == "__name__" and op == "=":
            name = str(matcher.value)
        else:
            matchers.append(Matcher(str(matcher.name), op, str(matcher.value)))
    return Selector(outer, name, tuple(matchers), span, _seconds(raw.offset))


def _node(raw: Any) -> Node:
    kind = type(raw).__name__
    if kind == "ParenExpr":
        return _node(raw.expr)
    if kind == "VectorSelector":
        return _selector(raw, None, raw)
    if kind == "MatrixSelector":
        return _selector(raw.vector_selector, _seconds(raw.range), raw)
    if kind == "NumberLiteral":
        return Number(raw, float(raw.val))
    if kind == "StringLiteral":
        return String(raw, str(raw.val))
    if kind == "UnaryExpr":
        return Unary(raw, _node(raw.expr))
    if kind == "Call":
        return Call(raw, str(raw.func.name), tuple(_node(arg) for arg in raw.args))
    if kind == "SubqueryExpr":
        step = None if raw.step is None else _seconds(raw.step)
        return Subquery(raw, _node(raw.expr), _seconds(raw.range), step, _seconds(raw.offset))
    if kind == "AggregateExpr":
        modifier = raw.modifier
        without = modifier is not None and str(modifier.type).endswith("Without")
        param = None if raw.param is None else _node(raw.param)
        labels = () if modifier is None else _words(modifier.labels)
        return Aggregate(raw, str(raw.op), _node(raw.expr), param, labels, without)
    if kind == "BinaryExpr":
        return _binary(raw)
    raise ValueError(f"promql-parser gave a {kind}, which is not known here")


def _binary(raw: Any) -> Binary:
    modifier = raw.modifier
    on = ignoring = None
    group, returns_bool = "", False
    include: tuple[str, ...] = ()
    if modifier is not None:
        returns_bool = bool(modifier.return_bool)
        card = str(modifier.card).rpartition(".")[2]
        group = {"ManyToOne": "left", "OneToMany": "right"}.get(card, "")
        include = _words(modifier.group_labels)
        if modifier.matching is not None:
            if str(modifier.matching.type).endswith("Include"):
                on = _words(modifier.matching.labels)
            else:
                ignoring = _words(modifier.matching.labels)
    return Binary(raw, str(raw.op), _node(raw.lhs), _node(raw.rhs), on, ignoring, group, include, returns_bool)


# --- the author's text ----------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"#[^\n]*|\$\{[^}]*\}|\$\w+|\[\[\w+(?::\w+)?\]\]|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|`[^`]*`"
    r"|\d+(?:[a-z]+\d*)*(?:\.\d+)?(?:[eE][+-]?\d+)?|[A-Za-z_:][\w:]*|[=!<>]=|[=!]~|\S"
)


def _tokens(text: str) -> list[tuple[str, int, int]]:
    """(normal form, start, end); comments and the commas before closing brackets are left out."""
    found: list[tuple[str, int, int]] = []
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token.startswith("#"):
            continue
        if token[0] in "'`":
            token = '"' + token[1:-1] + '"'
        if token in "})" and found and found[-1][0] == ",":
            found.pop()
        if token[0].isdigit():
            token = _number(token)
        found.append((token, match.start(), match.end()))
    return found


def _same(written: str, token: str) -> bool:
    return written == token or "$" in written or written.startswith("[[")


def _number(token: str) -> str:
    try:
        return repr(float(int(token, 16)) if token[:2] in ("0x", "0X") else float(token))
    except ValueError:
        return token  # a duration


def locate(text: str, part: str) -> tuple[int, int] | None:
    """Where ``part`` (as the parser spells it) stands in the author's text; ``None`` when it is spelled otherwise.

    A token of the author's with one of Grafana's variables (``$model``, ``[[model]]``) can be any token.
    """
    wanted = [token for token, _, _ in _tokens(part)]
    have = _tokens(text)
    if not wanted:
        return None
    for start in range(len(have) - len(wanted) + 1):
        if all(_same(have[start + index][0], token) for index, token in enumerate(wanted)):
            return have[start][1], have[start + len(wanted) - 1][2]
    return None
