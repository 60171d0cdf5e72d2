"""Reads the text a server serves on /metrics, keeping every name as it is on the wire.

``prometheus_client``'s parser adds ``_total`` to Triton's counters and takes an exemplar's value for a
timestamp (traps.md, 84 and 85). This reader renames nothing; exemplars are read and dropped, and in a scrape
timestamps too, as ``honor_timestamps`` off would. ``timed`` reads a history: text in which every line has its
time (seconds in OpenMetrics, milliseconds in the older format). Source of the grammar: Prometheus's "Exposition
formats" page (text 0.0.4), with OpenMetrics's ``# EOF`` and exemplars, and quoted UTF-8 names, accepted.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from obs.errors import InputError

Pairs = tuple[tuple[str, str], ...]

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(
    r'[ \t]*(?:([a-zA-Z_][a-zA-Z0-9_]*)|"((?:[^"\\]|\\.)*)")[ \t]*(?:(=)[ \t]*"((?:[^"\\]|\\.)*)"[ \t]*)?'
)
_HEAD = re.compile(r'(?:[a-zA-Z_:][a-zA-Z0-9_:]*)?[ \t]*\{(?:[^"}]|"(?:[^"\\]|\\.)*")*\}')
_REST = re.compile(r"[ \t]*(\S+)(?:[ \t]+(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?))?[ \t]*(#[ \t]*\{.*)?$")
_NUMBER = re.compile(
    r"[+-]?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|inf|infinity)|nan", re.IGNORECASE | re.ASCII
)
_HEX = re.compile(r"[+-]?0[xX][0-9a-fA-F]*\.?[0-9a-fA-F]*[pP][+-]?\d+")
_META = re.compile(r"#[ \t]+(HELP|TYPE)[ \t]+(?:\"((?:[^\"\\]|\\.)*)\"|(\S+))(?:[ \t](.*))?$")
_ESCAPES = {"n": "\n", '"': '"', "\\": "\\"}
_TYPES = frozenset(
    ("counter", "gauge", "histogram", "gaugehistogram", "summary", "untyped", "unknown", "info", "stateset")
)


class Sample(NamedTuple):
    """One line: metric name as served, labels sorted by name, value."""

    name: str
    labels: Pairs
    value: float


@dataclass
class Exposition:
    """One body: samples in the order served, and each family's TYPE and HELP (families without are absent)."""

    samples: list[Sample] = field(default_factory=list)
    types: dict[str, str] = field(default_factory=dict)
    helps: dict[str, str] = field(default_factory=dict)


class Timed(NamedTuple):
    """A sample with its time in unix milliseconds and its line."""

    sample: Sample
    time_ms: int
    line: int


Heads = dict[str, tuple[str, Pairs]]
"""What the part of a line before its value means; share one dict over many bodies of a target."""


def parse(text: str, source: str, heads: Heads | None = None) -> Exposition:
    """Read a body; ``source`` is the file or address for error messages.

    InputError, with the line's number and text, when a line is no sample and no comment, or when the last
    line is cut off.
    """
    heads = {} if heads is None else heads
    found = Exposition()
    lines = text.split("\n")
    tail = lines.pop()
    if tail.strip() and tail.strip() != "# EOF":
        raise InputError(
            f"{source}:{len(lines) + 1}: the last line has no line feed: {_shown(tail)}; "
            "the body was cut off while it was saved: record it again or remove the file"
        )
    for number, raw in enumerate(lines, 1):
        line = raw.strip(" \t\r")
        if not line:
            continue
        if line[0] == "#":
            if line == "# EOF":
                break
            _comment(line, found, source, number)
            continue
        head, _, value = line.rpartition(" ")
        known = heads.get(head)
        if known is not None:  # a head seen before, and nothing but a value behind it
            found.samples.append(Sample(*known, _value(value, line, source, number)))
            continue
        known, rest = _split(line, heads, source, number)
        found.samples.append(Sample(*known, _value(rest[1], line, source, number)))
    return found


def timed(text: str, source: str) -> list[Timed]:
    """Read a history: every sample with its own timestamp, in the order of the text.

    Seconds where the text ends with ``# EOF`` (OpenMetrics), else milliseconds. InputError, with the line's number
    and text, when a line is no sample, has no timestamp, or the text was cut off.
    """
    heads: Heads = {}
    found: list[Timed] = []
    lines = text.rstrip().split("\n")
    seconds = lines[-1].strip() == "# EOF"
    if not seconds and text.rstrip(" \t\r")[-1:] not in {"\n", ""}:
        raise InputError(
            f"{source}:{len(lines)}: the last line has no line feed: {_shown(lines[-1])}; it was cut off: copy it again"
        )
    for number, raw in enumerate(lines, 1):
        line = raw.strip(" \t\r")
        if line == "# EOF" and number < len(lines):
            raise InputError(f"{source}:{number}: text follows # EOF: two files were joined; keep them apart")
        if not line or line[0] == "#":
            continue
        known, rest = _split(line, heads, source, number)
        if rest[2] is None:
            raise InputError(
                f"{source}:{number}: no timestamp: {_shown(line)}; one scrape is no history: put scrapes in a folder, "
                "each named <unix milliseconds>.prom"
            )
        stamp = float(rest[2])
        if not seconds and abs(stamp) < 1e11:
            raise InputError(
                f"{source}:{number}: its time is in seconds (OpenMetrics) but the text does not end with # EOF; "
                "it was cut off: copy it again"
            )
        time_ms = round(stamp * 1000 if seconds else stamp)
        found.append(Timed(Sample(*known, _value(rest[1], line, source, number)), time_ms, number))
    return found


def relabel(text: str, change: Callable[[str, str], str | None]) -> str:
    """A line, or its part up to its value, with label values changed and nothing else.

    ``change`` is called with each label's name and value; it returns the value to write, or None to leave the label
    out. ``text`` is of a body that ``parse`` has read without error, or the part of an exemplar after its ``#``.
    """
    end = _head_end(text)
    head, rest = text[:end], text[end:]
    name, brace, inside = head.partition("{")
    if not brace:
        return text
    parts, at = [], 0
    inside = inside[:-1]
    while pair := _LABEL.match(inside, at):
        bare, quoted, equals, value = pair.groups()
        part: str | None = pair[0]
        if equals:
            old = _unescape(value)
            new = change(bare if bare is not None else _unescape(quoted), old)
            if new is None:
                part = None
            elif new != old:
                part = f'{inside[at : pair.start(4)]}{_escape(new)}"'
        if part is not None:
            parts.append(part)
        at = pair.end() + 1
    return name + ("{" + ",".join(parts) + "}" if parts else "") + rest


def head_of(line: str) -> str:
    """The part of a sample line before its value, as it is a key of ``Heads``; "" of a comment or a blank line."""
    line = line.strip(" \t\r")
    return line[: _head_end(line)] if line and line[0] != "#" else ""


def _comment(line: str, found: Exposition, source: str, number: int) -> None:
    meta = _META.match(line)
    if meta is None:
        return
    kind, quoted, bare, rest = meta.groups()
    name = _unescape(quoted) if quoted is not None else bare
    if kind == "HELP":
        found.helps[name] = _unescape(rest or "")
        return
    type_ = (rest or "").strip()
    if type_ not in _TYPES:
        raise _garbled(source, number, line, f"{type_ or 'nothing'!r} is no metric type")
    found.types[name] = type_


def _split(line: str, heads: Heads, source: str, number: int) -> tuple[tuple[str, Pairs], re.Match[str]]:
    """Name and labels of a sample line, and the match of its value (1) and timestamp (2)."""
    end = _head_end(line)
    head = line[:end]
    known = heads.get(head)
    if known is None:
        known = heads[head] = _head(head, line, source, number)
    rest = _REST.match(line, end)
    if rest is None:
        raise _garbled(source, number, line, "no value follows the labels")
    return known, rest


def _head_end(line: str) -> int:
    """Where the name and labels end: after the closing brace outside quotes, else after the name."""
    whole = _HEAD.match(line)
    if whole is not None:
        return whole.end()
    name = _NAME.match(line)
    at = name.end() if name else 0
    brace = at
    while brace < len(line) and line[brace] in " \t":
        brace += 1
    if brace >= len(line) or line[brace] != "{":
        return at
    quoted = escaped = False
    for index in range(brace, len(line)):
        char = line[index]
        if escaped:
            escaped = False
        elif char == "\\" and quoted:
            escaped = True
        elif char == '"':
            quoted = not quoted
        elif char == "}" and not quoted:
            return index + 1
    return len(line)


def _head(head: str, line: str, source: str, number: int) -> tuple[str, Pairs]:
    match = _NAME.match(head)
    name = match[0] if match else ""
    rest = head[len(name) :].strip(" \t")
    if not rest:
        if not name:
            raise _garbled(source, number, line, "it starts with no metric name")
        return name, ()
    if not rest.startswith("{") or not rest.endswith("}"):
        raise _garbled(source, number, line, "its labels have no closing brace")
    labels: dict[str, str] = {}
    inside, at = rest[1:-1], 0
    while inside[at:].strip(" \t"):
        pair = _LABEL.match(inside, at)
        if pair is None:
            raise _garbled(source, number, line, f'label {inside[at:]!r} is not name="value"')
        bare, quoted, equals, value = pair.groups()
        key = bare if bare is not None else _unescape(quoted)
        if equals:
            if key in labels:
                raise _garbled(source, number, line, f"label {key!r} comes twice")
            labels[key] = _unescape(value)
        elif quoted is not None and not name:
            name = key  # {"a.utf8.name", ...}
        else:
            raise _garbled(source, number, line, f"label {key!r} has no quoted value")
        at = pair.end()
        if at < len(inside):
            if inside[at] != ",":
                raise _garbled(source, number, line, "a comma is missing between its labels")
            at += 1
    if not name:
        raise _garbled(source, number, line, "it has no metric name")
    return name, tuple(sorted(labels.items()))


def _value(text: str, line: str, source: str, number: int) -> float:
    if _NUMBER.fullmatch(text):
        return float(text)
    if _HEX.fullmatch(text):
        return float.fromhex(text)
    raise _garbled(source, number, line, f"{text!r} is no number")


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[0]), text)


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _garbled(source: str, number: int, line: str, why: str) -> InputError:
    what = f"{source}:{number}: not a metric line: {why}: {_shown(line)}"
    return InputError(f"{what}; record it again or remove the file")


def _shown(line: str) -> str:
    return repr(line if len(line) <= 120 else line[:119] + "…")
