"""Expands the templates of alert labels and annotations as Prometheus does: Go's text/template, in the part that matters.

``{{ $labels.x }}``, ``{{ $value }}``, variables, pipelines, ``if``/``else``/``with``, comparisons, ``printf``, and
Prometheus's own functions (template/template.go): humanize, humanize1024, humanizeDuration, humanizePercentage,
humanizeTimestamp, title, toUpper, toLower, match, reReplaceAll, stripPort, stripDomain, parseDuration. A label's value
is part of an alert's identity, so nothing is guessed: what is not known here (``range``, ``query``, ``$externalLabels``
and whatever else needs the server) is a TemplateError. tests/evaluate/test_templates.py holds it against promtool.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

from obs.errors import InputError

_ACTION = re.compile(r"\{\{(?P<left>-(?=\s))?(?P<body>.*?)(?P<right>(?<=\s)-)?\}\}", re.DOTALL)
_VALUE = re.compile(r"\$value\b|\.Value\b|\$(?!\w)|(?<![\w.)\d])\.(?![\w])")  # by name, or all that there is
_TOKEN = re.compile(
    r"""\s*(?:(?P<string>"(?:\\.|[^"\\\n])*"|`[^`]*`)
    |(?P<number>[+-]?(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?))
    |(?P<variable>\$\w*)|(?P<field>\.\w*)|(?P<word>[A-Za-z_]\w*)|(?P<sign>:=|=|\||\(|\)|,))""",
    re.VERBOSE,
)


class TemplateError(InputError):
    """A template that cannot be expanded exactly; the message says which part, without the rule's place."""


@dataclass(frozen=True)
class _Text:
    text: str


@dataclass(frozen=True)
class _Print:
    pipe: _Pipe


@dataclass(frozen=True)
class _Branch:
    """``if`` or (``dot``) ``with``: the condition, what to do when it holds, and otherwise."""

    pipe: _Pipe
    then: tuple[Any, ...]
    other: tuple[Any, ...]
    dot: bool


@dataclass(frozen=True)
class _Pipe:
    """``$name := a | b``: commands, each a list of operands; ``declares`` tells ``:=`` from ``=``."""

    commands: tuple[tuple[Any, ...], ...]
    name: str = ""
    declares: bool = True


@dataclass(frozen=True)
class _Operand:
    """What an operand is made of: kind "const", "variable", "field", "word" or "pipe", then a chain of fields."""

    kind: str
    value: Any
    fields: tuple[str, ...] = ()


def expand(text: str, labels: Mapping[str, str], value: float) -> str:
    """The text with its templates filled in for an element of the result: its labels (``__name__`` too) and value.

    TemplateError when it is no template that can be expanded here.
    """
    if "{{" not in text:
        return text
    scope = _Scope(labels, value)
    return "".join(scope.run(_parsed(text), {"Labels": scope.labels, "Value": value}))


def check(text: str) -> None:
    """TemplateError when the text's template cannot be read or uses what is not known here."""
    if "{{" in text:
        _parsed(text)


def reads_value(text: str) -> bool:
    """Whether the text can differ with the element's value."""
    return any(_VALUE.search(match["body"]) for match in _ACTION.finditer(text))


# --- reading -----------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _parsed(text: str) -> tuple[Any, ...]:
    reader = _Reader(text)
    nodes, end = reader.block(())
    if end:
        raise TemplateError(f"{{{{ {end} }}}} without its beginning")
    return nodes


class _Reader:
    """Reads a template's actions one after the other."""

    def __init__(self, text: str) -> None:
        self.items = list(_split(text))
        self.at = 0

    def block(self, ends: tuple[str, ...]) -> tuple[tuple[Any, ...], str]:
        """The nodes up to an action that is one of ``ends`` (or any stray one), and that action."""
        nodes: list[Any] = []
        while self.at < len(self.items):
            is_action, body = self.items[self.at]
            self.at += 1
            if not is_action:
                nodes.append(_Text(body))
                continue
            word = body.split(None, 1)[0] if body else ""
            if word in {"end", "else"}:
                return tuple(nodes), body
            if word in {"if", "with"}:
                nodes.append(self.branch(word, body[len(word) :]))
            elif word in {"range", "define", "template", "block", "break", "continue"}:
                raise TemplateError(f"{{{{ {word} }}}} is not known to this evaluator")
            else:
                nodes.append(_Print(_pipe(body)))
        if ends:
            raise TemplateError("an {{ if }} or {{ with }} has no {{ end }}")
        return tuple(nodes), ""

    def branch(self, word: str, condition: str) -> _Branch:
        pipe = _pipe(condition)
        then, end = self.block(("end", "else"))
        other: tuple[Any, ...] = ()
        if end.startswith("else"):
            rest = end[4:].strip()
            if rest.startswith(("if", "with")):
                following, _, its = rest.partition(" ")
                return _Branch(pipe, then, (self.branch(following, its),), word == "with")
            other, end = self.block(("end",))
        if end != "end":
            raise TemplateError(f"{{{{ {word} }}}} ends with {{{{ {end} }}}}")
        return _Branch(pipe, then, other, word == "with")


def _split(text: str) -> Iterator[tuple[bool, str]]:
    """(is it an action, its text), white space trimmed where ``{{-`` and ``-}}`` ask for it."""
    at, trim = 0, False
    for match in _ACTION.finditer(text):
        before = text[at : match.start()]
        before = before.lstrip() if trim else before
        before = before.rstrip() if match["left"] else before
        if before:
            yield False, before
        body = match["body"].strip()
        if not (body.startswith("/*") and body.endswith("*/")):
            yield True, body
        at, trim = match.end(), bool(match["right"])
    rest = text[at:]
    if "{{" in rest:
        raise TemplateError("a {{ has no }}")
    rest = rest.lstrip() if trim else rest
    if rest:
        yield False, rest


def _pipe(text: str) -> _Pipe:
    tokens = _tokens(text)
    pipe, rest = _read_pipe(tokens, 0)
    if rest != len(tokens):
        raise TemplateError(f"{tokens[rest][1]!r} is out of place in {text.strip()!r}")
    return pipe


def _tokens(text: str) -> list[tuple[str, str, bool]]:
    """(kind, text, whether it follows the token before without a space)."""
    found: list[tuple[str, str, bool]] = []
    at = 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None:
            raise TemplateError(f"{text[at:].strip()!r} cannot be read")
        kind = match.lastgroup or ""
        found.append((kind, match[kind], match.start(kind) == at))
        at = match.end()
    return found


def _read_pipe(tokens: list[tuple[str, str, bool]], at: int) -> tuple[_Pipe, int]:
    name, declares = "", True
    if at + 1 < len(tokens) and tokens[at][0] == "variable" and tokens[at + 1][1] in {":=", "="}:
        name, declares = tokens[at][1], tokens[at + 1][1] == ":="
        at += 2
    commands: list[tuple[Any, ...]] = []
    while True:
        operands: list[_Operand] = []
        while at < len(tokens) and tokens[at][1] not in {"|", ")"}:
            operand, at = _read_operand(tokens, at)
            operands.append(operand)
        if not operands:
            raise TemplateError("a value is missing in {{ }}")
        commands.append(tuple(operands))
        if at < len(tokens) and tokens[at][1] == "|":
            at += 1
            continue
        return _Pipe(tuple(commands), name, declares), at


def _read_operand(tokens: list[tuple[str, str, bool]], at: int) -> tuple[_Operand, int]:
    kind, text, _ = tokens[at]
    at += 1
    if text == "(":
        pipe, at = _read_pipe(tokens, at)
        if at >= len(tokens) or tokens[at][1] != ")":
            raise TemplateError("a ( has no )")
        operand = _Operand("pipe", pipe)
        at += 1
    elif kind == "string":
        operand = _Operand("const", text[1:-1] if text[0] == "`" else _unquoted(text))
    elif kind == "number":
        operand = _Operand("const", _number(text))
    elif kind == "variable":
        if text in {"$externalLabels", "$externalURL"}:
            raise TemplateError(f"{text} is the server's own; this evaluator does not know it")
        operand = _Operand("variable", text)
    elif kind == "field":
        operand = _Operand("field", text[1:])
    elif kind == "word":
        if text in {"true", "false", "nil"}:
            operand = _Operand("const", {"true": True, "false": False, "nil": None}[text])
        elif text in _FUNCTIONS or text in {"and", "or"}:
            operand = _Operand("word", text)
        else:
            raise TemplateError(f"the function {text} is not known to this evaluator")
    else:
        raise TemplateError(f"{text!r} is out of place")
    fields: list[str] = []
    while at < len(tokens) and tokens[at][0] == "field" and tokens[at][2] and len(tokens[at][1]) > 1:
        fields.append(tokens[at][1][1:])
        at += 1
    return _Operand(operand.kind, operand.value, tuple(fields)), at


def _unquoted(text: str) -> str:
    try:
        return str(json.loads(re.sub(r"\\a", r"\\u0007", text).replace("\t", "\\t")))
    except ValueError:
        raise TemplateError(f"the string {text} cannot be read") from None


def _number(text: str) -> float | int:
    """An untyped constant: a float64 where it is written like one, else an int (text/template, idealConstant)."""
    if re.search(r"[.eE]", text) and not text.lower().lstrip("+-").startswith("0x"):
        return float(text)
    return int(text, 16) if "x" in text.lower() else int(text)


# --- running -----------------------------------------------------------------------------------------


class _Scope:
    def __init__(self, labels: Mapping[str, str], value: float) -> None:
        self.labels = dict(labels)
        self.variables: list[dict[str, Any]] = [{"$labels": self.labels, "$value": value}]
        self.root = {"Labels": self.labels, "Value": value}
        self.variables[0]["$"] = self.root

    def run(self, nodes: tuple[Any, ...], dot: Any) -> Iterator[str]:
        for node in nodes:
            if isinstance(node, _Text):
                yield node.text
            elif isinstance(node, _Print):
                value = self.pipe(node.pipe, dot)
                if not node.pipe.name:
                    yield _shown(value)
            else:
                self.variables.append({})
                value = self.pipe(node.pipe, dot)
                if _true(value):
                    yield from self.run(node.then, value if node.dot else dot)
                else:
                    yield from self.run(node.other, dot)
                self.variables.pop()

    def pipe(self, pipe: _Pipe, dot: Any) -> Any:
        value: Any = None
        for number, command in enumerate(pipe.commands):
            value = self.command(command, dot, () if number == 0 else (value,))
        if pipe.name:
            scopes = [one for one in self.variables if pipe.name in one]
            (self.variables[-1] if pipe.declares or not scopes else scopes[-1])[pipe.name] = value
        return value

    def command(self, command: tuple[_Operand, ...], dot: Any, last: tuple[Any, ...]) -> Any:
        first, rest = command[0], command[1:]
        if first.kind != "word":
            if rest or last:
                raise TemplateError("a value that is no function is given arguments")
            return self.operand(first, dot)
        if first.value in {"and", "or"}:
            return self.logic(first.value, rest, dot, last)
        values = [*(self.operand(one, dot) for one in rest), *last]
        return _fields(_call(first.value, values), first.fields)

    def logic(self, word: str, rest: tuple[_Operand, ...], dot: Any, last: tuple[Any, ...]) -> Any:
        value: Any = None
        for one in rest:
            value = self.operand(one, dot)
            if _true(value) == (word == "or"):
                return value
        return last[0] if last else value

    def operand(self, operand: _Operand, dot: Any) -> Any:
        if operand.kind == "const":
            return operand.value
        if operand.kind == "pipe":
            return _fields(self.pipe(operand.value, dot), operand.fields)
        if operand.kind == "field":
            return _fields(dot, ((operand.value,) if operand.value else ()) + operand.fields)
        if operand.kind == "word":
            return _fields(_call(operand.value, []), operand.fields)
        for scope in reversed(self.variables):
            if operand.value in scope:
                return _fields(scope[operand.value], operand.fields)
        raise TemplateError(f"the variable {operand.value} is not set")


def _fields(value: Any, fields: tuple[str, ...]) -> Any:
    for name in fields:
        if not isinstance(value, dict):
            raise TemplateError(f".{name} is asked of something that has no fields")
        if "Labels" in value and name not in value:
            raise TemplateError(f".{name} is not known to this evaluator")
        value = value.get(name, "")
    return value


def _call(name: str, values: list[Any]) -> Any:
    function, types = _FUNCTIONS[name]
    if types is not None:
        if len(values) != len(types):
            raise TemplateError(f"{name} takes {len(types)} values, not {len(values)}")
        for value, wanted in zip(values, types, strict=True):
            if wanted == "string" and not isinstance(value, str):
                raise TemplateError(f"{name} takes a string, not {_type(value)}")
    return function(*values)


def _true(value: Any) -> bool:
    return bool(value) or (isinstance(value, float) and value != value)


def _type(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    return {str: "string", float: "float64", int: "int"}.get(type(value), "map")


# --- Go's formatting ---------------------------------------------------------------------------------


def _shown(value: Any) -> str:
    """A value as Go prints it (``%v``)."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return number(value)
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{_shown(item)}" for key, item in sorted(value.items())) + "]"
    return "<no value>" if value is None else str(value)


def number(value: float) -> str:
    """A float64 as Go prints it: shortest, with an exponent below 1e-4 and from 1e6 on (strconv: ``%g``)."""
    if value != value:
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    text = "".join(map(str, digits)).rstrip("0") or "0"
    point = len(digits) + int(exponent)  # the decimal point stands after so many digits
    minus = "-" if sign else ""
    if text == "0":
        return f"{minus}0"
    if -4 <= point - 1 < 6:
        if point <= 0:
            return f"{minus}0.{'0' * -point}{text}"
        return minus + text.ljust(point, "0")[:point] + (f".{text[point:]}" if len(text) > point else "")
    tail = f".{text[1:]}" if len(text) > 1 else ""
    return f"{minus}{text[0]}{tail}e{'-' if point <= 0 else '+'}{abs(point - 1):02d}"


_VERB = re.compile(r"%(?P<flags>[-+# 0]*)(?P<width>\d+)?(?:\.(?P<precision>\d*))?(?P<verb>.)?", re.DOTALL)


def _printf(form: Any, *values: Any) -> str:
    if not isinstance(form, str):
        raise TemplateError(f"printf takes a format first, not {_type(form)}")
    left = list(values)

    def put(match: re.Match[str]) -> str:
        verb = match["verb"]
        if verb == "%":
            return "%"
        if verb is None:
            return "%!(NOVERB)"
        if not left:
            return f"%!{verb}(MISSING)"
        value = left.pop(0)
        width = f"{match['flags']}{match['width'] or ''}"
        precision = None if match["precision"] is None else int(match["precision"] or 0)
        return _verb(verb, value, width, precision)

    text = _VERB.sub(put, form)
    if left:
        text += "%!(EXTRA " + ", ".join(f"{_type(one)}={_shown(one)}" for one in left) + ")"
    return text


def _verb(verb: str, value: Any, width: str, precision: int | None) -> str:
    kind = _type(value)
    dot = "" if precision is None else f".{precision}"
    if kind == "float64" and verb in "feEgGF":
        if not math.isfinite(value):
            shown = number(value)
            shown = shown.lstrip("+") if "+" not in width else (shown if shown[0] in "+-" else f"+{shown}")
            shown = "+Inf" if value == math.inf else shown
            return _padded(shown, width.replace("0", " ", 1) if width.startswith("0") else width)
        if verb in "gG" and precision is None:
            return _padded(number(value), width)
        return str(f"%{width}{dot}{verb}" % value)
    if kind == "int" and verb == "d":
        return str(f"%{width}{dot}d" % value)
    if kind == "string" and verb in "sv":
        return f"%{width.replace('0', '')}{dot}s" % value if width.strip("0") or dot else str(value)
    if kind == "string" and verb == "q":
        return _padded(json.dumps(value, ensure_ascii=False), width)
    if verb == "v" or (kind == "bool" and verb == "t"):
        if kind == "float64" and precision is not None and math.isfinite(value):
            return str(f"%{width}{dot}g" % value)
        return _padded(_shown(value), width)
    if kind == "int" and verb in "xXobc":
        return f"%{width}{verb}" % value if verb in "xXo" else _bad(verb, value)
    return _bad(verb, value)


def _bad(verb: str, value: Any) -> str:
    return f"%!{verb}({_type(value)}={_shown(value)})"


def _padded(text: str, width: str) -> str:
    size = int(re.sub(r"^[-+# 0]*", "", width) or 0)
    return text.ljust(size) if "-" in width else text.rjust(size)


# --- Prometheus's functions --------------------------------------------------------------------------


def _float(value: Any) -> float:
    if isinstance(value, str):
        try:
            return float(value.replace("_", "!"))
        except ValueError:
            raise TemplateError(f"{value!r} is no number") from None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TemplateError(f"{_type(value)} is no number")
    return float(value)


def _g4(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else number(value)


def _small(value: float, unit: str) -> str:
    prefix = ""
    for one in "munpfazy":
        if abs(value) >= 1:
            break
        prefix, value = one, value * 1000
    return f"{_g4(value)}{prefix}{unit}"


def _humanize(given: Any) -> str:
    value = _float(given)
    if value == 0 or not math.isfinite(value):
        return _g4(value)
    if abs(value) < 1:
        return _small(value, "")
    prefix = ""
    for one in "kMGTPEZY":
        if abs(value) < 1000:
            break
        prefix, value = one, value / 1000
    return f"{_g4(value)}{prefix}"


def _humanize_1024(given: Any) -> str:
    value = _float(given)
    if abs(value) <= 1 or not math.isfinite(value):
        return _g4(value)
    prefix = ""
    for one in ("ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi"):
        if abs(value) < 1024:
            break
        prefix, value = one, value / 1024
    return f"{_g4(value)}{prefix}"


def _humanize_duration(given: Any) -> str:
    value = _float(given)
    if not math.isfinite(value):
        return _g4(value)
    if value == 0:
        return f"{_g4(value)}s"
    if abs(value) < 1:
        return _small(value, "s")
    sign, value = ("-" if value < 0 else ""), abs(value)
    if value >= 2**63:
        raise TemplateError(f"{number(value)} is too large for a duration")
    whole = int(value)
    seconds, minutes, hours, days = whole % 60, whole // 60 % 60, whole // 3600 % 24, whole // 86400
    if days:
        return f"{sign}{days}d {hours}h {minutes}m {seconds}s"
    if hours:
        return f"{sign}{hours}h {minutes}m {seconds}s"
    if minutes:
        return f"{sign}{minutes}m {seconds}s"
    return f"{sign}{_g4(value)}s"


def _humanize_timestamp(given: Any) -> str:
    value = _float(given)
    if not math.isfinite(value):
        return _g4(value)
    if not -(2**63) <= value * 1e9 <= 2**63 - 1:
        raise TemplateError(f"{number(value)} is too large for a time")
    nanoseconds = int(value * 1e9)
    milliseconds = abs(nanoseconds) // 1_000_000 * (1 if nanoseconds >= 0 else -1)
    at = datetime.datetime(1970, 1, 1) + datetime.timedelta(milliseconds=milliseconds)
    part = f".{at.microsecond // 1000:03d}".rstrip("0").rstrip(".")
    return f"{at:%Y-%m-%d %H:%M:%S}{part} +0000 UTC"


def _go_pattern(pattern: str) -> re.Pattern[str]:
    if "[[:" in pattern or r"\p" in pattern or r"\Q" in pattern:
        raise TemplateError(f"the pattern {pattern!r} has a class that this evaluator does not know")
    try:
        return re.compile(pattern.replace(r"\z", r"\Z"), re.ASCII)
    except re.error as error:
        raise TemplateError(f"the pattern {pattern!r} cannot be read: {error}") from None


def _replace_all(pattern: str, put: str, text: str) -> str:
    """Go's ReplaceAllString: an empty match right behind a match does not count."""
    out: list[str] = []
    at, last = 0, -1
    for match in _go_pattern(pattern).finditer(text):
        if match.start() == match.end() == last:
            continue
        out += [text[at : match.start()], _go_expanded(put, match)]
        at = last = match.end()
    return "".join([*out, text[at:]])


def _go_expanded(put: str, match: re.Match[str]) -> str:
    def one(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        name = found[1] or found[2]
        if name.isdigit():
            return (match[int(name)] or "") if int(name) <= match.re.groups else ""
        return match.groupdict().get(name) or ""

    return re.sub(r"\$\$|\$\{(\w+)\}|\$(\w+)", one, put)


def _split_host_port(text: str) -> tuple[str, str] | None:
    """Go's net.SplitHostPort; None where it gives an error."""
    host, colon, port = text.rpartition(":")
    if not colon:
        return None
    if host.startswith("["):
        if not host.endswith("]") or "[" in host[1:] or "]" in host[1:-1]:
            return None
        return host[1:-1], port
    return None if any(mark in host + port for mark in ":[]") else (host, port)


def _strip_port(text: str) -> str:
    found = _split_host_port(text)
    return text if found is None else found[0]


def _strip_domain(text: str) -> str:
    found = _split_host_port(text)
    host, port = found if found is not None else (text, "")
    try:
        ipaddress.ip_address(host)
    except ValueError:
        host = host.split(".")[0]
        return f"{host}:{port}" if port else host
    return text


def _title(text: str) -> str:
    """Go's strings.Title: letters, digits and the underscore make words; marks beyond ASCII end none but spaces.

    As Prometheus 2 does. Prometheus 3 (golang.org/x/text/cases) also raises a letter behind digits: "1x" is "1X" there.
    """
    out, before = [], " "
    for mark in text:
        ends = not (before.isalnum() or before == "_") if before.isascii() else before.isspace()
        out.append(mark.upper() if ends and len(mark.upper()) == 1 else mark)
        before = mark
    return "".join(out)


def _parse_duration(text: str) -> float:
    from obs.evaluate.rules import duration_ms

    return duration_ms(text, "parseDuration") / 1000


def _same_kind(one: Any, two: Any) -> None:
    kinds = {_type(one), _type(two)}
    if len(kinds) > 1 or "map" in kinds:
        raise TemplateError(f"{' and '.join(sorted(kinds))} cannot be compared; write a float like 1.0")


def _equal(first: Any, *rest: Any) -> bool:
    if not rest:
        raise TemplateError("eq takes two values or more")
    for one in rest:
        _same_kind(first, one)
    return any(first == one for one in rest)


def _compared(test: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def call(one: Any, two: Any) -> bool:
        _same_kind(one, two)
        return test(one, two)

    return call


def _index(value: Any, *keys: Any) -> Any:
    for key in keys:
        if not isinstance(value, dict) or not isinstance(key, str):
            raise TemplateError("index is known for labels only")
        value = value.get(key, "")
    return value


def _print(*values: Any) -> str:
    """Go's fmt.Sprint: a space between two values when neither is a string."""
    out = ""
    for number_, value in enumerate(values):
        if number_ and not isinstance(value, str) and not isinstance(values[number_ - 1], str):
            out += " "
        out += _shown(value)
    return out


def _length(value: Any) -> int:
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, dict):
        return len(value)
    raise TemplateError(f"len of {_type(value)}")


_FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[str, ...] | None]] = {
    "humanize": (_humanize, ("any",)),
    "humanize1024": (_humanize_1024, ("any",)),
    "humanizeDuration": (_humanize_duration, ("any",)),
    "humanizePercentage": (lambda given: f"{_g4(_float(given) * 100)}%", ("any",)),
    "humanizeTimestamp": (_humanize_timestamp, ("any",)),
    "title": (_title, ("string",)),
    "toUpper": (str.upper, ("string",)),
    "toLower": (str.lower, ("string",)),
    "match": (lambda pattern, text: _go_pattern(pattern).search(text) is not None, ("string", "string")),
    "reReplaceAll": (_replace_all, ("string", "string", "string")),
    "stripPort": (_strip_port, ("string",)),
    "stripDomain": (_strip_domain, ("string",)),
    "parseDuration": (_parse_duration, ("string",)),
    "safeHtml": (lambda text: text, ("string",)),
    "printf": (_printf, None),
    "print": (_print, None),
    "println": (lambda *values: " ".join(map(_shown, values)) + "\n", None),
    "len": (_length, ("any",)),
    "index": (_index, None),
    "not": (lambda value: not _true(value), ("any",)),
    "eq": (_equal, None),
    "ne": (_compared(lambda one, two: one != two), ("any", "any")),
    "lt": (_compared(lambda one, two: one < two), ("any", "any")),
    "le": (_compared(lambda one, two: one <= two), ("any", "any")),
    # so a NaN is greater than anything: text/template makes gt of le, and ge of lt
    "gt": (_compared(lambda one, two: not one <= two), ("any", "any")),
    "ge": (_compared(lambda one, two: not one < two), ("any", "any")),
}
