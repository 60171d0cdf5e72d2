"""A few functions that return readable PromQL text. Never a syntax tree: the text written is the text shipped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_UNITS = ((604800, "w"), (86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def duration(seconds: float) -> str:
    """A Prometheus duration in its largest whole unit: ``300.0`` → ``5m``, ``90`` → ``90s``, ``0.1`` → ``100ms``."""
    millis = round(seconds * 1000)
    if millis % 1000:
        return f"{millis}ms"
    whole = millis // 1000
    for size, unit in _UNITS:
        if whole and whole % size == 0:
            return f"{whole // size}{unit}"
    return f"{whole}s"


def number(value: float) -> str:
    """The shortest text that PromQL reads back as the same number: ``1.0`` → ``1``, ``1e-06`` → ``1e-06``."""
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


def quote(text: str) -> str:
    """A PromQL string literal."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def escape_regex(text: str) -> str:
    """``text`` as an RE2 pattern that matches it alone (``re.escape`` escapes more than RE2 allows)."""
    return re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", text)


def one_of(label: str, values: Iterable[str], *, negate: bool = False) -> str:
    """A matcher for a closed set of values; equality for one value, "" for none."""
    chosen = sorted(values)
    if not chosen:
        return ""
    if len(chosen) == 1:
        return f"{label}{'!=' if negate else '='}{quote(chosen[0])}"
    return f"{label}{'!~' if negate else '=~'}{quote('|'.join(escape_regex(value) for value in chosen))}"


def selector(name: str, *matchers: str) -> str:
    """``name{matchers}``; empty matchers are left out."""
    inner = ",".join(matcher for matcher in matchers if matcher)
    return f"{name}{{{inner}}}" if inner else name


def by(labels: Sequence[str]) -> str:
    return f"by ({', '.join(labels)})"


def on(labels: Sequence[str]) -> str:
    return f"on ({', '.join(labels)})"


def either(*operands: str) -> str:
    """The first operand, and what the following ones add to it."""
    return "\nor\n".join(operands)


def indent(text: str, spaces: int = 2) -> str:
    pad = " " * spaces
    return "\n".join(pad + line if line else line for line in text.splitlines())


def block(text: str) -> str:
    """``text`` in parentheses; on lines of its own when it has several."""
    return f"(\n{indent(text)}\n)" if "\n" in text else f"({text})"


def call(function: str, *arguments: str) -> str:
    if any("\n" in argument for argument in arguments):
        return f"{function}(\n" + ",\n".join(indent(argument) for argument in arguments) + "\n)"
    return f"{function}({', '.join(arguments)})"


def scaled(expr: str, factor: float) -> str:
    """``expr`` times a unit factor. Exact small divisors are shown as divisions: µs / 1e6."""
    if factor == 1.0:
        return expr
    inverse = 1.0 / factor
    if factor < 1 and abs(inverse - round(inverse)) < 1e-6:
        text = {1_000_000: "1e6"}.get(round(inverse), number(float(round(inverse))))
        return f"{expr} / {text}"
    return f"{expr} * {number(factor)}"
