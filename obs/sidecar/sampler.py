"""Drives the signals with a clock: samples at an interval with jitter, never two at once; probes at a slower one.

A page is parsed whole before anything of it is published. Times come from the monotonic clock, so that a jump of the
wall clock changes nothing.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from obs.sidecar.reader import Reader
from obs.sidecar.readiness import Prober, Readiness
from obs.sidecar.scrape import Fetcher, ScrapeFailed
from obs.sidecar.signals import Signals, Snapshot

log = logging.getLogger("obs.sidecar")

JITTER = 0.05
"""Share of the interval by which each sample is early or late, so that sidecars do not sample in step."""
LOG_SECONDS = 60.0


@dataclass(frozen=True)
class Work:
    """The sidecar's own figures."""

    duration: float | None
    """Seconds that the last sample took, failed or not."""
    series: int
    """Series kept of the last good page."""
    lines: int
    skipped: int
    """Samples left out because the one before took too long."""


class Sampler:
    """Owns the Signals of one target; other threads only see whole snapshots."""

    def __init__(
        self,
        fetcher: Fetcher,
        reader: Reader,
        signals: Signals,
        prober: Prober | None = None,
        *,
        probe_interval: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        self._fetcher = fetcher
        self._reader = reader
        self._signals = signals
        self._prober = prober
        self._probe_interval = probe_interval
        self._clock = clock
        self._random = rng or random.Random()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._work = Work(None, 0, 0, 0)
        self._readiness: Readiness | None = None
        self._logged: dict[str, float] = {}
        self._outcome = ""

    def start(self) -> None:
        """Begin; the threads end with ``stop`` or with the process."""
        self._threads = [threading.Thread(target=self._sample_loop, name="sample", daemon=True)]
        if self._prober is not None:
            self._threads.append(threading.Thread(target=self._probe_loop, name="probe", daemon=True))
        for thread in self._threads:
            thread.start()

    def stop(self, seconds: float = 5.0) -> None:
        """End the threads; a fetch under way is given so long."""
        self._stop.set()
        for thread in self._threads:
            thread.join(seconds)

    @property
    def alive(self) -> bool:
        """Whether the sampling thread runs."""
        return bool(self._threads) and self._threads[0].is_alive()

    def snapshot(self) -> Snapshot:
        """What may be served now."""
        with self._lock:
            return self._signals.snapshot(self._clock())

    @property
    def work(self) -> Work:
        """The sidecar's own figures."""
        return self._work

    @property
    def readiness(self) -> Readiness | None:
        """The last probe's result; None before the first, or when nobody probes."""
        return self._readiness

    def sample(self) -> str:
        """Take one sample; its outcome."""
        begun = time.perf_counter()
        series = self._work.series
        try:
            _, page = self._fetcher.fetch()
            samples = self._reader.page(page)
            with self._lock:
                self._signals.feed(page.at, samples)
            outcome, detail = "ok", ""
            series = sum(map(len, samples.values()))
        except ScrapeFailed as failed:
            outcome, detail = failed.reason, failed.detail
            with self._lock:
                self._signals.fail(failed.reason)
        self._work = Work(time.perf_counter() - begun, series, self._reader.lines, self._work.skipped)
        self._report(outcome, detail)
        return outcome

    def probe(self) -> None:
        """Probe once."""
        if self._prober is None:
            return
        found = self._prober.probe()
        with self._lock:
            if found.ready is not None:
                self._signals.set_ready(found.ready)
        self._readiness = found

    def _sample_loop(self) -> None:
        interval = self._signals.settings.interval
        planned = time.monotonic()
        while not self._stop.is_set():
            try:
                self.sample()
            except Exception:  # a fault of ours: the signals grow old and disappear, which is the right answer
                log.exception("sampling failed")
            planned += interval
            now = time.monotonic()
            if now > planned:
                missed = int((now - planned) / interval) + 1
                planned += missed * interval
                self._work = Work(self._work.duration, self._work.series, self._work.lines,
                                  self._work.skipped + missed)
            self._stop.wait(max(0.0, planned - now + interval * JITTER * self._random.uniform(-1, 1)))

    def _probe_loop(self) -> None:
        while not self._stop.is_set():
            try:
                self.probe()
            except Exception:
                log.exception("probing failed")
            self._stop.wait(self._probe_interval * (1 + JITTER * self._random.uniform(-1, 1)))

    def _report(self, outcome: str, detail: str) -> None:
        """Log a change of outcome, and at most once a minute that it goes on."""
        now = time.monotonic()
        if outcome == self._outcome and now - self._logged.get(outcome, -LOG_SECONDS) < LOG_SECONDS:
            return
        if outcome == "ok":
            if self._outcome not in ("", "ok"):
                log.warning("sampling works again")
        else:
            log.warning("sampling %s failed: %s (%s)", self._fetcher.shown, outcome, detail)
        self._outcome = outcome
        self._logged[outcome] = now
