"""What Prometheus knows: the last scraped value of each pod's series, gone when a later scrape lacks it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

LOOKBACK = 300.0


class Store:
    """Instant values as of a moment. A scrape writes them; a pod's series end with a failed scrape or its target."""

    def __init__(self) -> None:
        self._series: dict[str, dict[str, tuple[float, float]]] = {}
        self.down = False

    def scrape(self, pod: str, at: float, values: Mapping[str, float | None]) -> None:
        """A scrape's result; None, and every name that is not there, ends the series (a staleness marker)."""
        if not self.down:
            self._series[pod] = {name: (at, value) for name, value in values.items() if value is not None}

    def forget(self, pod: str) -> None:
        """The scrape failed, or the target is gone: all its series end."""
        if not self.down:
            self._series.pop(pod, None)

    def values(self, name: str, now: float, pods: Iterable[str]) -> dict[str, float]:
        """The instant vector of a series over these pods."""
        found = {}
        for pod in pods:
            at, value = self._series.get(pod, {}).get(name, (-LOOKBACK, 0.0))
            if now - at < LOOKBACK:
                found[pod] = value
        return found
