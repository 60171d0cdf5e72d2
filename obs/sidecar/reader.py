"""The needed samples of a metrics page, under the names that the wire has.

prometheus_client's parser renames Triton's counters (it appends ``_total``) and builds an object per sample; we
need a tenth of a page, ten times a second at worst. So: the part of a line before its value (name and labels) is
parsed once, by a full grammar, and remembered; from then on a line costs a dictionary look-up, and a number only
where the family is needed.

Text format 0.0.4 and 1.0.0 and OpenMetrics are read alike: comments are skipped, timestamps and exemplars are
dropped, CRLF, tabs and UTF-8 names in quotes are allowed. Of two equal series in one page the first counts. A line
that is no metric line fails the whole page, as does a page whose last line is cut off: nothing of it is published. (The
value of a series that we do not need is looked at only when its head is new.)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from obs.sidecar.scrape import Page, ScrapeFailed

HEADS = 20_000
"""Most line heads remembered: several times what an engine serves; a page with more is read slowly, not wrongly."""
HEAD_BYTES = 8 * 1024 * 1024
"""Most characters of heads remembered, whatever their number."""
SERIES = 20_000
"""Most needed series of one page. An engine serves some hundreds; what follows a page costs time for each of them."""

Labels = Mapping[str, str]


class Sample(NamedTuple):
    """Labels and value of one series of a family."""

    labels: Labels
    value: float


Samples = Mapping[str, Sequence[Sample]]
"""Sample name (``x_bucket`` and not ``x``) -> its series, in the page's order."""


class _Series:
    """A needed series; identity is enough, for the cache holds one per head."""

    __slots__ = ("key", "labels", "name")

    def __init__(self, name: str, labels: dict[str, str]) -> None:
        self.name = name
        self.labels = labels
        self.key = (name, tuple(sorted(labels.items())))


_SPACE = " \t"
# No two repetitions can share a character, so a hostile line costs time in proportion to its length.
_QUOTED = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_LINE = re.compile(
    r"[ \t]*(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)?[ \t]*"
    rf'(?:(?P<labels>\{{[^"{{}}]*(?:{_QUOTED}[^"{{}}]*)*\}})|(?=[ \t]))(?P<rest>[ \t]*[^ \t{{}}"].*)',
    re.DOTALL,
)
# A line as nearly all are: told apart from a garbled one without being taken apart.
_PLAIN = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?:[a-zA-Z_][a-zA-Z0-9_]*="[^"\\]*",?)*\})? ([^ \t]+)')
_LABEL = re.compile(
    r'[ \t]*(?:(?P<bare>[a-zA-Z_][a-zA-Z0-9_]*)|"(?P<quoted>[^"\\]*(?:\\.[^"\\]*)*)")[ \t]*'
    r'(?:(?P<equals>=)[ \t]*"(?P<value>[^"\\]*(?:\\.[^"\\]*)*)"[ \t]*)?(?P<end>,|$)',
    re.DOTALL,
)
_REST = re.compile(r"[ \t]*(?P<value>[^ \t]+)(?:[ \t]+-?[0-9][0-9.eE+-]*)?[ \t]*(?:#[ \t]*\{.*)?$", re.DOTALL)
_BLANK = re.compile(r"[ \t]*\Z")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", '"': '"', "\\": "\\"}


class Reader:
    """Reads the pages of one target. ``needed`` holds sample names, or says of a name whether it is needed."""

    def __init__(self, needed: Collection[str] | Callable[[str], bool], heads: int = HEADS) -> None:
        self._needed = needed if callable(needed) else frozenset(needed).__contains__
        self._limit = heads
        self._heads: dict[str, _Series | None] = {}
        self._size = 0
        self.lines = 0
        """Lines of the last page."""

    def page(self, page: Page) -> Samples:
        """The needed samples of a body; ScrapeFailed, with its reason, when it is no whole metrics page."""
        text = page.text()
        if text.lstrip()[0] in "<[{":
            _refuse_markup(text, page.content_type)
        page.refuse_cut(text)
        return self.text(text)

    def text(self, text: str) -> Samples:
        """The needed samples of a page's text."""
        heads = self._heads
        if len(heads) >= self._limit or self._size >= HEAD_BYTES:
            heads.clear()
            self._size = 0
        found: dict[_Series, float] = {}
        lines = text.split("\n")
        self.lines = len(lines)
        last = lines.pop()
        if last and last.strip() not in ("", "# EOF"):
            raise ScrapeFailed("truncated", "the last line has no line feed")
        for line in lines:
            head, _, value = line.rpartition(" ")
            try:
                series = heads[head]
            except KeyError:
                series, value = self._new(line, head)
            if series is not None and series not in found:
                try:
                    found[series] = float(value)
                except ValueError:
                    raise ScrapeFailed("garbled", f"{value.strip()[:40]!r} is no number") from None
                if "_" in value:
                    raise ScrapeFailed("garbled", f"{value.strip()[:40]!r} is no number")
                if len(found) > SERIES:
                    raise ScrapeFailed("too_large", f"more than {SERIES} series of the families that are read")
        samples: dict[str, list[Sample]] = {}
        seen: set[object] = set()
        for series, number in found.items():
            if series.key in seen:  # the same series, spelled differently
                continue
            seen.add(series.key)
            samples.setdefault(series.name, []).append(Sample(series.labels, number))
        return samples

    def _new(self, line: str, head: str) -> tuple[_Series | None, str]:
        """A line whose head is not known yet: parsed in full; the head is remembered when only a value follows."""
        stripped = line.strip(" \t\r")
        if not stripped:
            return None, ""
        plain = _PLAIN.fullmatch(stripped)
        if plain is not None and not self._needed(plain[1]):
            _number(plain[2])
            self._remember(head, None)
            return None, ""
        if stripped[0] == "#":
            if head.lstrip(_SPACE)[:1] == "#":
                self._remember(head, None)
            return None, ""
        match = _LINE.match(stripped)
        rest = _REST.match(match["rest"]) if match is not None else None
        if match is None or rest is None or not (match["name"] or match["labels"]):
            raise ScrapeFailed("garbled", f"no metric line: {stripped[:80]!r}")
        name, labels = _labels(match["name"] or "", match["labels"] or "", stripped)
        series = _Series(name, labels) if self._needed(name) else None
        if head and line[len(head):].strip(" \t\r") == match["rest"].strip(_SPACE):
            self._remember(head, series)  # nothing but the value follows
        elif series is None:
            _number(rest["value"])
        return series, rest["value"]

    def _remember(self, head: str, series: _Series | None) -> None:
        self._size += len(head)
        if len(self._heads) < self._limit and self._size <= HEAD_BYTES:
            self._heads[head] = series


def _refuse_markup(text: str, content_type: str) -> None:
    start = text[:200].lstrip().lower()
    if start.startswith("<"):
        raise ScrapeFailed("html", "an HTML page; is the path right?")
    if start.startswith("[") or "json" in content_type:
        raise ScrapeFailed("json", "JSON; trtllm-serve has its metrics text at /prometheus/metrics")
    if re.match(r'\{\s*("[^"]*"\s*:|\})', start):
        raise ScrapeFailed("json", "JSON instead of metrics text")


def _labels(name: str, braces: str, line: str) -> tuple[str, dict[str, str]]:
    labels: dict[str, str] = {}
    inside, at = braces[1:-1], 0
    while _BLANK.match(inside, at) is None:
        match = _LABEL.match(inside, at)
        if match is None:
            raise ScrapeFailed("garbled", f"labels in {line[:80]!r}")
        key = match["bare"] if match["bare"] is not None else _unescape(match["quoted"])
        if match["equals"]:
            if key in labels:
                raise ScrapeFailed("garbled", f"label {key[:40]!r} twice in {line[:80]!r}")
            labels[key] = _unescape(match["value"])
        elif match["quoted"] is not None and not name:
            name = key  # {"a.utf8.name", …}
        else:
            raise ScrapeFailed("garbled", f"labels in {line[:80]!r}")
        at = match.end()
    if not name:
        raise ScrapeFailed("garbled", f"no metric name in {line[:80]!r}")
    return name, labels


def _number(text: str) -> float:
    try:
        if "_" in text:
            raise ValueError
        return float(text)
    except ValueError:
        raise ScrapeFailed("garbled", f"{text[:40]!r} is no number") from None


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[0]), text) if "\\" in text else text
