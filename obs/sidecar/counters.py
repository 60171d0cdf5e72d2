"""An engine's counter as one that never goes back, over restarts, dips of one page, and several series."""

from __future__ import annotations

from collections.abc import Hashable

from obs.sidecar.dialects import Counts

SERIES = 256
"""Most series of one counter that are followed; engines serve a few per model."""


class Total:
    """The sum of a counter's increases since we began to look; starts at 0.

    A series that falls may have been reset, or may be lower for one page only. Its new value is held back until the
    next page tells: back at the old value or above, it was a dip; else the counter was reset, and all that it counts
    now is new. A series that appears later was born since, so that its whole value is new.
    """

    def __init__(self) -> None:
        self.value = 0.0
        self.raw = 0.0
        """The engine's own sum, as last served."""
        self._last: dict[Hashable, float] = {}
        self._fallen: set[Hashable] = set()
        self._begun = False

    def feed(self, counts: Counts, *, restarted: bool = False) -> bool:
        """Take a page's values; whether they show that the engine was restarted."""
        reset = False
        for series, value in counts.items():
            last = self._last.get(series)
            if last is None:
                if len(self._last) >= SERIES:
                    continue
                self.value += value if self._begun else 0.0
            elif restarted:
                self.value += value
            elif value >= last:
                self.value += value - last
            elif series not in self._fallen:
                self._fallen.add(series)
                continue
            else:
                self.value += value
                reset = True
            self._last[series] = value
            self._fallen.discard(series)
        self._begun = True
        self.raw = sum(counts.values())
        return reset
