"""Takes an author's expression apart by slicing its text, and puts recording rules in where they are read.

Nothing is ever printed from a syntax tree: every part is a slice of the author's own text. The slicing is ours;
promql-parser is the witness: a slice is used only when it parses to the same thing as the operand that the
parser found there. Where it does not, the part stays whole (``opaque``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from obs.evaluate.rules import Rule, duration_ms
from obs.prom import metric_names
from obs.promql import escape_regex, indent, quote

Kind = Literal["and", "or", "unless", "compare", "arithmetic", "call", "selector", "range", "scalar", "opaque"]

_TOKEN = re.compile(
    r"""(?P<comment>\#[^\n]*)
    |(?P<string>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`[^`]*`)
    |(?P<number>(?:0[xX][0-9a-fA-F]+|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)(?:[a-z]\w*)?)
    |(?P<word>[a-zA-Z_:][a-zA-Z0-9_:]*)
    |(?P<sign>==|!=|>=|<=|=~|!~|[-+*/%^<>=@(){}\[\],])
    |(?P<space>\s+)
    |(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_PRECEDENCE = {"or": 1, "and": 2, "unless": 2, "==": 3, "!=": 3, ">": 3, "<": 3, ">=": 3, "<=": 3, "+": 4, "-": 4}
_PRECEDENCE |= {"*": 5, "/": 5, "%": 5, "atan2": 5, "^": 6}
_COMPARE = frozenset(("==", "!=", ">", "<", ">=", "<="))
_BEFORE_UNARY = frozenset("([{,=@") | frozenset(_PRECEDENCE) | {"offset", "bool"}
MOST_OPERATORS = 150
"""Above this an expression is machine-made (a list joined by ``or``): its parts explain nothing, and each costs a query."""
_LISTS = frozenset(("by", "without", "on", "ignoring", "group_left", "group_right"))
_OPEN, _CLOSE = "([{", ")]}"


class _Token(NamedTuple):
    kind: str
    text: str
    start: int
    end: int
    depth: int


@dataclass(frozen=True)
class Part:
    """A piece of an expression: ``text`` is the author's (outer parentheses left out), and what it is made of.

    ``op``: the operator, or the function's or aggregation's name. ``modifier``: what stands between an operator and
    its right side (``on (model) group_left ()``). ``parts``: its operands or arguments. ``scalar``: it has no series.
    Of a selector: ``name``, and ``bare``, its text without range, offset and ``@``.
    """

    text: str
    kind: Kind
    op: str = ""
    modifier: str = ""
    parts: tuple[Part, ...] = ()
    name: str = ""
    bare: str = ""

    @property
    def scalar(self) -> bool:
        return self.kind == "scalar"

    @property
    def shifted(self) -> bool:
        """Whether a selector looks at another time than now."""
        return self.kind in {"selector", "range"} and re.search(r"\boffset\b|@", self.text) is not None


@dataclass(frozen=True)
class Expansion:
    """An expression with recording rules put in. ``replaced``: the recorded names that it no longer reads.

    ``sampled``: those among them that it reads over a range or at an offset: there the rule's expression is
    evaluated at fixed steps, where a deployed rule has its values from its own evaluation times, so the result can
    differ by what happens within one step. ``kept``: names that could not be replaced, with the reason.
    """

    text: str
    replaced: tuple[str, ...] = ()
    sampled: tuple[str, ...] = ()
    kept: tuple[tuple[str, str], ...] = ()


@lru_cache(maxsize=4096)
def take_apart(expr: str) -> Part:
    """The expression as parts; wholly ``opaque`` when promql-parser cannot read it, or it has too many operators."""
    text = expr.strip()
    operators = sum(token.kind in {"word", "sign"} and token.text.lower() in _PRECEDENCE for token in _tokens(text))
    if operators > MOST_OPERATORS or _parsed(text)[0] is None:
        return Part(text, "opaque")
    return _part_of(text)


def walk(part: Part) -> Iterator[Part]:
    """The part and all that it is made of, from left to right."""
    yield part
    for one in part.parts:
        yield from walk(one)


def deciding(part: Part) -> list[Part]:
    """The comparisons that give an alert its value: of ``and`` and ``unless`` the left side, of ``or`` both."""
    if part.kind in {"and", "unless"}:
        return deciding(part.parts[0])
    if part.kind == "or":
        return [found for one in part.parts for found in deciding(one)]
    return [part] if part.kind == "compare" else []


def same(one: str, two: str) -> bool:
    """Whether two expressions are the same but for their layout (Prometheus prints its own)."""
    return one == two or _printed(one) == _printed(two)


@lru_cache(maxsize=4096)
def _printed(expr: str) -> str:
    import promql_parser

    try:
        return _BRACES.sub(_ordered, str(promql_parser.parse(expr)))
    except ValueError:
        return " ".join(expr.split())


_BRACES = re.compile(r'\{((?:[^"{}]|"(?:\\.|[^"\\])*")*)\}')
_MATCHER = re.compile(r'[^",]+"(?:\\.|[^"\\])*"')


def _ordered(braces: re.Match[str]) -> str:
    """Matchers in one order: Prometheus prints them in its own."""
    return "{" + ",".join(sorted(one.strip() for one in _MATCHER.findall(braces[1]))) + "}"


def _part(text: str, node: Any) -> Part:
    kind = type(node).__name__
    opaque = Part(text, "scalar" if _is_scalar(node) else "opaque")
    if kind == "ParenExpr":
        return _checked(_inside(text), node.expr) or opaque
    if _is_scalar(node):
        return opaque
    if kind == "BinaryExpr":
        return _binary(text, node) or opaque
    if kind in {"Call", "AggregateExpr"}:
        return _call(text, node) or opaque
    if kind == "UnaryExpr":
        found = _checked(text.lstrip("+-").strip(), node.expr)
        return Part(text, "call", "-", parts=(found,)) if found else opaque
    if kind == "VectorSelector":
        return Part(text, "selector", name=_name(node), bare=_bare(text))
    if kind == "MatrixSelector":
        selector = node.vector_selector
        bare = _bare(text)
        shift = text[_range_end(text) :].strip()
        inner = Part(f"{bare} {shift}".strip(), "selector", name=_name(selector), bare=bare)
        return Part(text, "range", parts=(inner,), name=inner.name, bare=bare)
    if kind == "SubqueryExpr":
        tokens = _tokens(text)
        opens = [token.start for token in tokens if token.text == "[" and token.depth == 0]
        found = _checked(text[: opens[-1]].strip(), node.expr) if opens else None
        return Part(text, "range", parts=(found,)) if found else opaque
    return opaque


def _checked(text: str, node: Any) -> Part | None:
    """The part when ``text`` is what the parser found as ``node``; None otherwise."""
    again, printed = _parsed(text)
    return _part_of(text) if again is not None and printed == str(node) else None


@lru_cache(maxsize=8192)
def _parsed(text: str) -> tuple[Any, str]:
    """What promql-parser makes of a text, and as it prints it; (None, "") when it cannot read it."""
    import promql_parser

    try:
        node = promql_parser.parse(text)
    except ValueError:
        return None, ""
    return node, str(node)


@lru_cache(maxsize=8192)
def _part_of(text: str) -> Part:
    return _part(text.strip(), _parsed(text)[0])


def _binary(text: str, node: Any) -> Part | None:
    tokens = _tokens(text)
    found: list[tuple[int, _Token]] = []
    for index, token in enumerate(tokens):
        word = token.text.lower()
        if token.depth or word not in _PRECEDENCE or token.kind not in {"word", "sign"} or index == 0:
            continue
        if word in {"+", "-"} and (tokens[index - 1].text.lower() in _BEFORE_UNARY):
            continue
        found.append((index, token))
    for index, token in sorted(found, key=lambda one: (_PRECEDENCE[one[1].text.lower()], -one[0])):
        lowest = min(_PRECEDENCE[one.text.lower()] for _, one in found)
        if _PRECEDENCE[token.text.lower()] != lowest:
            return None
        left = _checked(text[: token.start].strip(), node.lhs)
        if left is None:
            continue
        modifier, start, boolean = _modifier(text, tokens, index + 1)
        right = _checked(text[start:].strip(), node.rhs)
        if right is None:
            continue
        op = token.text.lower()
        kind: Kind = "arithmetic"
        if op == "and" or op == "or" or op == "unless":
            kind = op  # type: ignore[assignment]
        elif op in _COMPARE and not boolean:
            kind = "compare"
        return Part(text, kind, op, modifier, (left, right))
    return None


def _modifier(text: str, tokens: Sequence[_Token], index: int) -> tuple[str, int, bool]:
    """The matching modifier that begins at a token, where the right operand begins, and whether there is a bool."""
    start = tokens[index].start if index < len(tokens) else len(text)
    boolean = False
    begun = start
    while index < len(tokens) and tokens[index].text.lower() in {"bool", "on", "ignoring", "group_left", "group_right"}:
        boolean = boolean or tokens[index].text.lower() == "bool"
        index += 1
        if tokens[index - 1].text.lower() != "bool" and index < len(tokens) and tokens[index].text == "(":
            while index < len(tokens) and not (tokens[index].text == ")" and tokens[index].depth == 0):
                index += 1
            index += 1
        start = tokens[index].start if index < len(tokens) else len(text)
    return text[begun:start].strip(), start, boolean


def _call(text: str, node: Any) -> Part | None:
    tokens = _tokens(text)
    opens = [index for index, token in enumerate(tokens) if token.text == "(" and token.depth == 0]
    aggregate = type(node).__name__ == "AggregateExpr"
    for index in opens:
        if aggregate and index and tokens[index - 1].text.lower() in {"by", "without"}:
            continue
        close = next((i for i in range(index, len(tokens)) if tokens[i].text == ")" and tokens[i].depth == 0), None)
        if close is None:
            return None
        cuts = [tokens[index].end]
        ends = []
        for token in tokens[index + 1 : close]:
            if token.text == "," and token.depth == 1:
                ends.append(token.start)
                cuts.append(token.end)
        ends.append(tokens[close].start)
        texts = [text[start:end].strip() for start, end in zip(cuts, ends, strict=True)]
        nodes = [one for one in (node.param, node.expr) if one is not None] if aggregate else list(node.args)
        if texts == [""]:
            texts = []
        if len(texts) != len(nodes):
            return None
        parts = [_checked(one, its) for one, its in zip(texts, nodes, strict=True)]
        op = tokens[0].text.lower()
        if any(one is None for one in parts):
            return None
        return Part(text, "call", op, parts=tuple(one for one in parts if one is not None))
    return None


def _is_scalar(node: Any) -> bool:
    kind = type(node).__name__
    if kind in {"NumberLiteral", "StringLiteral"}:
        return True
    if kind in {"ParenExpr", "UnaryExpr"}:
        return _is_scalar(node.expr)
    if kind == "BinaryExpr":
        return _is_scalar(node.lhs) and _is_scalar(node.rhs)
    return kind == "Call" and str(node.func.return_type).endswith("Scalar")


def _name(node: Any) -> str:
    if node.name:
        return str(node.name)
    return next((value for name, op, value in _matchers(node) if (name, op) == ("__name__", "=")), "")


@lru_cache(maxsize=4096)
def matchers(selector: str) -> tuple[tuple[str, str, str], ...]:
    """The matchers of a selector's text: (label, one of ``= != =~ !~``, value); () when it is none."""
    import promql_parser

    try:
        return _matchers(promql_parser.parse(selector))
    except (ValueError, AttributeError):
        return ()


def _matchers(node: Any) -> tuple[tuple[str, str, str], ...]:
    signs = {"Equal": "=", "NotEqual": "!=", "Re": "=~", "NotRe": "!~"}
    return tuple((one.name, signs[str(one.op).rsplit(".", 1)[-1]], one.value) for one in node.matchers.matchers)


def _bare(text: str) -> str:
    """A selector without range, offset and @."""
    tokens = _tokens(text)
    end = tokens[0].end if tokens and tokens[0].kind == "word" else 0
    for token in tokens:
        if token.text == "}" and token.depth == 0:
            return text[: token.end]
        if token.depth == 0 and (token.text in {"[", "@"} or token.text.lower() == "offset"):
            break
    return text[:end]


def _range_end(text: str) -> int:
    return next((token.end for token in _tokens(text) if token.text == "]" and token.depth == 0), len(text))


def _inside(text: str) -> str:
    return text.strip()[1:-1].strip()


@lru_cache(maxsize=4096)
def _tokens(text: str) -> tuple[_Token, ...]:
    """The words and signs of a text, without spaces and comments."""
    found = []
    depth = 0
    for match in _TOKEN.finditer(text):
        kind, word = match.lastgroup or "other", match[0]
        if kind in {"space", "comment"}:
            continue
        if kind == "sign" and word in _CLOSE:
            depth -= 1
        found.append(_Token(kind, word, match.start(), match.end(), depth))
        if kind == "sign" and word in _OPEN:
            depth += 1
    return tuple(found)


# --- recording rules put in ------------------------------------------------------------------------


@dataclass
class _Expander:
    rules: Mapping[str, Sequence[Rule]]
    step: str
    aligned: bool = False
    replaced: dict[str, None] = field(default_factory=dict)
    sampled: dict[str, None] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)
    busy: list[Rule] = field(default_factory=list)
    #: what a selector became before, in any expression with the same rules and step
    unions: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = field(default_factory=dict)

    def expand(self, text: str) -> str:
        tokens = _tokens(text)
        out: list[str] = []
        at = index = 0
        while index < len(tokens):
            token = tokens[index]
            follows = tokens[index + 1].text if index + 1 < len(tokens) else ""
            if not self._reads(tokens, index, follows):
                index += 1
                continue
            end = index
            if follows == "{":
                end = next(i for i in range(index + 1, len(tokens)) if tokens[i].text == "}")
            put, end = self._put(token.text, text[token.start : tokens[end].end], text, tokens, end)
            if put is not None:
                out += [text[at : token.start], put]
                at = tokens[end].end
            index = end + 1
        return "".join([*out, text[at:]])

    def _reads(self, tokens: Sequence[_Token], index: int, follows: str) -> bool:
        return tokens[index].text in self.rules and _is_selector(tokens, index, follows)

    def _put(
        self, name: str, selector: str, text: str, tokens: Sequence[_Token], end: int
    ) -> tuple[str | None, int]:
        """What replaces a selector whose last token is ``end``, and the last token that is replaced."""
        if any(one in self.busy for one in self._makers(name, selector)):
            self.kept[name] = "its rules read each other in a circle"
            return None, end
        rest = tokens[end + 1 :]
        window = ""
        shift = ""
        last = end
        if rest and rest[0].text == "[":
            close = next(i for i, token in enumerate(rest) if token.text == "]" and token.depth == rest[0].depth)
            inner = text[rest[0].end : rest[close].start]
            if not re.search(r":", inner):
                window = inner.strip()
                last = end + 1 + close
                rest = rest[close + 1 :]
        if not window and rest and rest[0].text.lower() == "offset":
            size = 2 if len(rest) > 1 and rest[1].text in "+-" else 1
            shift = text[rest[0].start : rest[size].end]
            last = end + 1 + size
            rest = rest[size + 1 :]
        if rest and rest[0].text == "@":
            self.kept[name] = "it is read at a fixed time (@)"
            return None, end
        body = self._known_union(name, selector)
        self.replaced[name] = None
        body = f"(\n{indent(body)}\n)"
        if window:
            self.sampled[name] = None
            return f"{body}[{window}:{self.step}]", last
        if shift:
            self.sampled[name] = None
            moment = "1s:1s"
            if self.aligned:
                # the one evaluation in a window of 1 ms is exactly at the time that is read
                shift_ms = abs(_shift_ms(shift[len("offset") :].strip()))
                moment = f"1ms:{math.gcd(duration_ms(self.step, 'step'), shift_ms)}ms"
            return f"last_over_time({body}[{moment}] {shift})", last
        return body, last

    def _known_union(self, name: str, selector: str) -> str:
        known = self.unions.get(selector)
        if known is None:
            inner = _Expander(self.rules, self.step, self.aligned, busy=[*self.busy], unions=self.unions)
            known = inner._union(name, selector), tuple(inner.replaced), tuple(inner.sampled)
            self.kept.update(inner.kept)
            if not inner.kept:  # a circle looks different from each of its members
                self.unions[selector] = known
        text, replaced, sampled = known
        self.replaced.update(dict.fromkeys(replaced))
        self.sampled.update(dict.fromkeys(sampled))
        return text

    def _makers(self, name: str, selector: str) -> list[Rule]:
        """The rules of that name whose series the selector can read: the labels that they set decide."""
        wanted = matchers(selector)
        return [
            rule for rule in self.rules[name]
            if all(metric_names.agrees(rule.labels[of], op, value) for of, op, value in wanted if of in rule.labels)
        ]

    def _union(self, name: str, selector: str) -> str:
        """What the selector reads, from the rules of that name: labels that rules set decide which of them count."""
        arms = []
        for rule in self._makers(name, selector):
            self.busy.append(rule)
            body = self.expand(rule.expr)
            self.busy.pop()
            for label, value in sorted(rule.labels.items()):
                put = f"{quote(label)}, {quote(value.replace('$', '$$'))}"
                body = f'label_replace(\n{indent(_wrapped(body))},\n  {put}, "", ""\n)'
            for label, op, wanted in matchers(selector):
                if label != "__name__" and label not in rule.labels:
                    pattern = wanted if op in {"=~", "!~"} else escape_regex(wanted)
                    body = _filtered(body, label, pattern, keep=op in {"=", "=~"})
            arms.append(_wrapped(body))
        return "\nor\n".join(arms) if arms else "vector(0) > 0"


Unions = dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]]


def expand(
    expr: str, rules: Mapping[str, Sequence[Rule]], step: str, unions: Unions | None = None, *, aligned: bool = False
) -> Expansion:
    """The expression with each series that ``rules`` record (by name) replaced by the rules' own expressions.

    Exact where the series is read as it is now. Over a range it becomes a subquery by ``step`` (a Prometheus
    duration, the rules' evaluation interval), at an offset the value one moment before: see Expansion. ``aligned``:
    it is asked at multiples of ``step`` only, as the rules are evaluated; then it is exact there too.
    ``unions``: a dictionary to keep what selectors became, for calls with the same rules, step and ``aligned``.
    """
    if not rules:
        return Expansion(expr)
    expander = _Expander(rules, step, aligned, unions={} if unions is None else unions)
    text = expander.expand(expr)
    return Expansion(text, tuple(expander.replaced), tuple(expander.sampled), tuple(expander.kept.items()))


def subqueries(expr: str) -> tuple[Part, ...]:
    """The subqueries in an expression, outermost first."""
    return tuple(
        part for part in walk(take_apart(expr)) if part.kind == "range" and part.parts and not _plain_range(part)
    )


def _plain_range(part: Part) -> bool:
    """Whether it is a range selector, and no subquery."""
    return part.parts[0].kind == "selector" and bool(part.bare)


def resolution_ms(subquery: Part) -> int | None:
    """A subquery's resolution in milliseconds; None when it leaves that to the server."""
    text = subquery.text[subquery.text.rindex("[") + 1 : subquery.text.rindex("]")]
    by = text.partition(":")[2].strip()
    return duration_ms(by, "subquery") if by else None


def reach_ms(expr: str, reads: Callable[[str], bool] = lambda selector: True) -> int:
    """How far back an expression can look, in milliseconds, at what those of its selectors read that ``reads`` picks (by
    their text): the ranges and offsets that lie around one another together, at most. 0 where it picks none."""
    return max(0, _reach(take_apart(expr), reads))


def _reach(part: Part, reads: Callable[[str], bool]) -> int:
    """``reach_ms``; -1 for a part of which no selector is picked."""
    own = _durations(part.text)
    if part.kind == "selector":
        return own if reads(part.bare or part.text) else -1
    if not part.parts:
        return own  # what cannot be taken apart may read anything
    inner = max(_reach(one, reads) for one in part.parts)
    return inner if inner < 0 else inner + max(0, own - sum(_durations(one.text) for one in part.parts))


@lru_cache(maxsize=4096)
def _durations(text: str) -> int:
    """All ranges and offsets in a text together, in milliseconds."""
    tokens = _tokens(text)
    found = 0
    for index, token in enumerate(tokens):
        if token.kind == "number" and index and _DURATION.fullmatch(token.text):
            before = tokens[index - 1].text
            if before in {"[", "-", "+"} or before.lower() == "offset":
                found += duration_ms(token.text, "range")
    return found


_DURATION = re.compile(r"(?:\d+(?:ms|[smhdwy]))+")


def divided(expr: str, wanted: Callable[[str], bool], put: Callable[[str], str]) -> str:
    """The expression with its largest parts that are not ``wanted`` replaced by what ``put`` names for their text.

    A part without any series stays. ValueError when a part cannot be told apart by its text.
    """
    text = expr.strip()
    part = take_apart(text)
    return _divided(text, part, wanted, put) if wanted(text) else put(text)


def _divided(text: str, part: Part, wanted: Callable[[str], bool], put: Callable[[str], str]) -> str:
    """``text`` (the part's, perhaps in parentheses) with parts of it replaced."""
    if part.kind == "selector" or (part.kind == "range" and _plain_range(part)):
        return text
    if not part.parts:
        raise ValueError(f"its part {part.text!r} cannot be taken apart")
    done = text
    for index, child in enumerate(part.parts):
        if wanted(child.text):
            new = _divided(child.text, child, wanted, put)
        elif not metric_names.selectors(child.text):
            continue
        elif child.kind == "range":
            raise ValueError(f"the range {child.text!r} of raw series stands beside recorded ones")
        else:
            new = f"scalar({put(child.text)})" if child.scalar else put(child.text)
        if new != child.text:
            done = swapped(done, index, child.text, new)
    return done


def swapped(text: str, index: int, old: str, new: str) -> str:
    """The text with the part at an index replaced: at the one place where that changes this part and no other."""
    before = take_apart(text)
    at = text.find(old)
    while at >= 0:
        changed = f"{text[:at]}{new}{text[at + len(old):]}"
        after = take_apart(changed)
        if (after.kind, after.op, after.modifier, len(after.parts)) == (
            before.kind, before.op, before.modifier, len(before.parts),
        ) and all(
            one.text == (new if number == index else two.text)
            for number, (one, two) in enumerate(zip(after.parts, before.parts, strict=True))
        ):  # fmt: skip
            return changed
        at = text.find(old, at + 1)
    raise ValueError(f"its part {old!r} cannot be told apart")


def delayed(expr: str, names: Collection[str]) -> str:
    """The expression with the series of some names read as they were one millisecond before.

    For a rule that stands before those that record them, in one group: at its turn they have no new sample yet.
    What is read at an offset is there already. A subquery is left as it is: see ``subqueries``.
    """
    if not names:
        return expr
    tokens = _tokens(expr)
    out: list[str] = []
    at = 0
    for index, token in enumerate(tokens):
        follows = tokens[index + 1].text if index + 1 < len(tokens) else ""
        if token.text not in names or not _is_selector(tokens, index, follows):
            continue
        last = index
        for opening, closing in (("{", "}"), ("[", "]")):
            if last + 1 < len(tokens) and tokens[last + 1].text == opening:
                last = next(i for i in range(last + 1, len(tokens)) if tokens[i].text == closing)
        rest = tokens[last + 1 : last + 2]
        if (rest and rest[0].text.lower() in {"offset", "@"}) or _in_subquery(expr, tokens, index, last):
            continue
        out += [expr[at : tokens[last].end], " offset 1ms"]
        at = tokens[last].end
    return "".join([*out, expr[at:]])


def renamed(expr: str, names: Collection[str], prefix: str) -> str:
    """The expression with a prefix before the metrics' names that are among ``names``."""
    tokens = _tokens(expr)
    out: list[str] = []
    at = 0
    for index, token in enumerate(tokens):
        follows = tokens[index + 1].text if index + 1 < len(tokens) else ""
        if token.text in names and _is_selector(tokens, index, follows):
            out += [expr[at : token.start], prefix]
            at = token.start
    return "".join([*out, expr[at:]])


def _in_subquery(text: str, tokens: Sequence[_Token], index: int, last: int) -> bool:
    """Whether a selector (its tokens ``index`` to ``last``) is all or part of what a subquery evaluates."""
    if tokens[last].text == "]":
        opening = max(i for i in range(index, last) if tokens[i].text == "[")
        if ":" in text[tokens[opening].end : tokens[last].start]:
            return True
    depth = tokens[index].depth
    for number in range(last + 1, len(tokens) - 1):
        one = tokens[number]
        if one.text == ")" and one.depth < depth:
            depth = one.depth
            if tokens[number + 1].text == "[":
                return True  # only a subquery has its range behind a parenthesis
    return False


def _shift_ms(text: str) -> int:
    sign = -1 if text.startswith("-") else 1
    return sign * duration_ms(text.lstrip("+-").strip(), "offset")


def _is_selector(tokens: Sequence[_Token], index: int, follows: str) -> bool:
    """Whether a word is a metric's name: no function's, no label's (between braces, or in a list of labels)."""
    if tokens[index].kind != "word" or follows == "(":
        return False
    opened: list[int] = []
    for number, one in enumerate(tokens[:index]):
        if one.kind == "sign" and one.text in _OPEN:
            opened.append(number)
        elif one.kind == "sign" and one.text in _CLOSE and opened:
            opened.pop()
    if not opened:
        return True
    before = tokens[opened[-1] - 1].text.lower() if opened[-1] else ""
    return tokens[opened[-1]].text != "{" and before not in _LISTS


def by_name(rules: Sequence[Rule]) -> dict[str, list[Rule]]:
    """The recording rules among some rules, by the name of the series they make."""
    found: dict[str, list[Rule]] = {}
    for rule in rules:
        if rule.kind == "record":
            found.setdefault(rule.name, []).append(rule)
    return found


def _wrapped(text: str) -> str:
    return f"(\n{indent(text)}\n)"


def _filtered(body: str, label: str, pattern: str, *, keep: bool) -> str:
    """The elements whose label matches (or does not): marked by label_replace, told apart by the mark."""
    mark = 'label_replace(vector(1), "__obs", "1", "", "")'
    marked = f'label_replace(\n{indent(_wrapped(body))},\n  "__obs", "1", {quote(label)}, {quote(pattern)}\n)'
    if not keep:
        return f"{marked}\nunless on (__obs) {mark}"
    return f'label_replace(\n{indent(f"{marked}{chr(10)}and on (__obs) {mark}")},\n  "__obs", "", "", ""\n)'
