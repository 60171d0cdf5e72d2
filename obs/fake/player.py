"""A recording played as if it happened now: each page at its time, the server gone where scrapes failed.

The pages are served as recorded. Over a loop the counters fall back to where the recording began: what a scraper sees is a
restart of the server, and that is what the last page's end and the first page's begin are. Times that a page tells
(``process_start_time_seconds``, ``…_created``) are moved to now.
"""

from __future__ import annotations

import re
import statistics
from bisect import bisect_right
from collections.abc import Mapping
from pathlib import Path

from obs.errors import InputError
from obs.evaluate import recording

_MOVED = re.compile(r"^((?:process_start_time_seconds|\w[\w:]*_created)(?:\{[^\n]*\})?) ([^\s]+)$", re.MULTILINE)


class Player:
    """One target of a recording. ``loop``: from the begin again after the end; otherwise the server is gone then."""

    def __init__(self, path: Path, start: float, *, target: str = "", loop: bool = True) -> None:
        pages = recording.bodies(path)
        if not target and len(pages) > 1:
            raise InputError(f"{path}: holds several targets; choose one with --target: {', '.join(sorted(pages))}")
        if target and target not in pages:
            known = ", ".join(filter(None, sorted(pages))) or "one, unnamed"
            raise InputError(f"{path}: has no target {target!r}; it has: {known}")
        chosen = pages[target or next(iter(pages))]
        self.times = [ms / 1000 for ms in chosen]
        self.pages = [body.decode("utf-8") for body in chosen.values()]
        self.interval = statistics.median(two - one for one, two in zip(self.times, self.times[1:], strict=False))
        self.length = self.times[-1] - self.times[0] + self.interval
        self.start = start
        self.loop = loop
        self.now = start

    def advance(self, until: float) -> None:
        """It is so late."""
        self.now = until

    @property
    def _at(self) -> tuple[float, int]:
        """The recording's time, and which loop this is."""
        passed = max(0.0, self.now - self.start)
        loops = int(passed // self.length) if self.loop else 0
        return self.times[0] + passed - loops * self.length, loops

    @property
    def down(self) -> bool:
        """In a gap of the recording (a scrape failed), or after its end without a loop."""
        at, _ = self._at
        return at - self.times[bisect_right(self.times, at) - 1] >= 1.5 * self.interval

    def page(self) -> str:
        """The page of this time."""
        at, loops = self._at
        moved = self.start + loops * self.length - self.times[0]
        text = self.pages[bisect_right(self.times, at) - 1]
        return _MOVED.sub(lambda match: f"{match[1]} {float(match[2]) + moved!r}", text)

    def state(self) -> Mapping[str, object]:
        """For GET /control."""
        at, loops = self._at
        return {"recording_time": round(at, 3), "loops": loops, "down": self.down, "pages": len(self.pages),
                "seconds": round(self.length, 3)}
