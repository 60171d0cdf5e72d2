"""Families as a page, by prometheus_client's encoders; the text of a family that says what it said before is kept.

Most of a page says the same at each scrape (which signals there are, how each is derived, versions). Encoding it anew
was two thirds of the time that a scrape took.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

_END = b"# EOF\n"
"""What ends a page of OpenMetrics, and no other."""

Encoder = Callable[[Collector], bytes]

KINDS = 8
"""Content types that are kept: a client names the version in it, so there may be any number."""


class Pages:
    """Keeps the last text of each family, per content type: so much memory as a page of each has."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[str, tuple[list[Sample], bytes]]] = {}

    def page(self, families: Iterable[Metric], encode: Encoder, content_type: str) -> bytes:
        """``families`` as ``encode`` writes them; ``content_type`` tells encoders apart."""
        if content_type not in self._kept and len(self._kept) >= KINDS:
            self._kept = {}
        before = self._kept.setdefault(content_type, {})
        parts = []
        end = b""
        for family in families:
            kept = before.get(family.name)
            if kept is None or kept[0] != family.samples:
                kept = before[family.name] = (family.samples, encode(_One(family)))
            text = kept[1]
            if text.endswith(_END):
                text, end = text[: -len(_END)], _END
            parts.append(text)
        return b"".join(parts) + end if parts else encode(_One())


class _One(Collector):
    def __init__(self, *families: Metric) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return iter(self._families)
