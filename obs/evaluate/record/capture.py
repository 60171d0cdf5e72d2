"""Scrapes all targets at once, round after round, on one schedule, and tells what became of each scrape.

A round's files carry the time at which it was due, the same for all targets and evenly spaced, as Prometheus aligns
its scrapes (scrape/scrape.go, ``AlignScrapeTimestamps``). A round is written when all its scrapes have ended, so that a
recording that is ended has whole rounds only: its last one says nothing wrong about a target that was a little slower.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from obs.evaluate import exposition
from obs.evaluate.record.page import checked
from obs.evaluate.record.scrub import Scrubber
from obs.evaluate.record.source import Source
from obs.evaluate.record.store import Store
from obs.evaluate.recording import Mixture
from obs.sidecar.scrape import Fetcher, ScrapeFailed

LATE = 0.1  # a round that began later than this share of the interval is counted: its times are that much wrong
_HEADS = 50_000  # remembered line heads of one target; more would be a page whose labels never repeat
_GRACE = 1.0  # seconds over a fetch's deadline: name resolution knows no deadline


class Clock:
    """Real time. ``wall`` names the files, ``monotonic`` keeps the distance between them."""

    def wall(self) -> float:
        """Unix seconds."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds since some moment; never set back."""
        return time.monotonic()

    def wait(self, inbox: Inbox, until: float) -> bool:
        """Wait until ``monotonic`` is ``until``; True as soon as the end is asked for."""
        while True:
            left = until - time.monotonic()
            try:
                if inbox.get(timeout=max(0.0, left)) is None:
                    return True
            except queue.Empty:
                return False


@dataclass
class Tally:
    """What became of a target's scrapes.

    ``now``: the reason why its last one failed, "" when it did not. ``mixed``: its counters fall so often that it must
    be several servers behind one address, which the evaluator refuses.
    """

    source: Source
    failures: Counter[str] = field(default_factory=Counter)
    ok: int = 0
    now: str = ""
    detail: str = ""
    mixed: bool = False


@dataclass
class Captured:
    """What has been done so far. Times in unix milliseconds, of rounds that are complete; 0 before the first."""

    tallies: tuple[Tally, ...]
    interval_ms: int
    start_ms: int = 0
    end_ms: int = 0
    rounds: int = 0
    late: int = 0
    missed: int = 0


@dataclass(frozen=True)
class _Answer:
    round: int
    at: int
    body: bytes = b""
    mixed: bool = False
    failed: ScrapeFailed | None = None
    fatal: Exception | None = None


Inbox = queue.SimpleQueue["_Answer | None"]
"""Answers of scrapes; None asks for the end (its ``put`` may be called in a signal handler)."""


def capture(
    sources: Sequence[Source],
    store: Store,
    scrubber: Scrubber,
    inbox: Inbox,
    *,
    interval: float,
    timeout: float,
    duration: float | None = None,
    clock: Clock | None = None,
    after_round: Callable[[Captured], None] = lambda _: None,
) -> Captured:
    """Record until ``duration`` is over (seconds; None: for ever) or None is put into ``inbox``.

    InputError when scrubbing makes two series equal; OutputError when the recording cannot be written. What was
    written before stays valid; ``store.close`` is the caller's.
    """
    clock = clock or Clock()
    scrapers = [_Scraper(number, one, scrubber, inbox, timeout) for number, one in enumerate(sources)]
    done = Captured(tuple(Tally(one) for one in sources), round(interval * 1000))
    wall, began = clock.wall(), clock.monotonic()
    number = 0
    while duration is None or number * interval < duration:
        due = began + number * interval
        if clock.wait(inbox, due):
            break
        behind = int((clock.monotonic() - due) // interval)
        if behind:  # we were stopped or starved: those rounds are over
            skipped = behind if duration is None else min(behind, max(0, -int(-duration // interval) - number))
            done.missed += skipped
            number += behind
            continue
        # a machine that slept: its monotonic clock stood still meanwhile
        slept = int((clock.wall() - wall - (clock.monotonic() - began)) // interval)
        if slept > 0:
            done.missed += slept
            wall += slept * interval
        done.late += clock.monotonic() - due > LATE * interval
        at = round((wall + number * interval) * 1000)
        answers = _round(scrapers, inbox, number, timeout)
        if answers is None:
            break
        store.add(at, {sources[each].folder: one.body for each, one in answers.items() if one.failed is None})
        for each, tally in enumerate(done.tallies):
            failed = answers[each].failed
            tally.ok += failed is None
            tally.now, tally.detail = (failed.reason, failed.detail) if failed else ("", "")
            if failed:
                tally.failures[failed.reason] += 1
            else:
                tally.mixed = answers[each].mixed
        done.start_ms = done.start_ms or at
        done.end_ms = at
        done.rounds += 1
        number += 1
        after_round(done)
    return done


def _round(scrapers: Sequence[_Scraper], inbox: Inbox, number: int, timeout: float) -> dict[int, _Answer] | None:
    """All targets' answers; None when the end is asked for meanwhile."""
    answers: dict[int, _Answer] = {}
    for one in scrapers:
        if not one.start(number):
            late = ScrapeFailed("timeout", "the scrape before has not ended: is the name resolved?")
            answers[one.at] = _Answer(number, one.at, failed=late)
    deadline = time.monotonic() + timeout + _GRACE
    while len(answers) < len(scrapers):
        try:
            answer = inbox.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            slow = ScrapeFailed("timeout", f"no complete answer within {timeout:g} s")
            for one in scrapers:
                answers.setdefault(one.at, _Answer(number, one.at, failed=slow))
            break
        if answer is None:
            return None
        if answer.round != number:
            continue  # of a round that was given up
        if answer.fatal is not None:
            raise answer.fatal
        answers[answer.at] = answer
    return answers


class _Scraper:
    """One target, scraped on a thread of its own, one scrape at a time."""

    def __init__(self, at: int, source: Source, scrubber: Scrubber, inbox: Inbox, timeout: float) -> None:
        self.at = at
        self._source = source
        self._scrubber = scrubber
        self._inbox = inbox
        self._fetcher = Fetcher(source.target, timeout=timeout)
        self._heads: exposition.Heads = {}
        self._mixture = Mixture()
        self._thread: threading.Thread | None = None

    def start(self, number: int) -> bool:
        """Begin a scrape whose answer goes into the inbox; False while the one before still runs."""
        if self._thread is not None and self._thread.is_alive():
            self._thread.join(_GRACE / 10)  # it may have answered and not quite ended
            if self._thread.is_alive():
                return False
        self._thread = threading.Thread(target=self._scrape, args=(number,), name=f"scrape {self.at}", daemon=True)
        self._thread.start()
        return True

    def _scrape(self, number: int) -> None:
        try:
            if len(self._heads) > _HEADS:
                self._heads.clear()
            _, page = self._fetcher.fetch()
            text, found = checked(page, self._heads)
            self._mixture.add(found.samples)
            body = self._scrubber.body(page.body, text, self._heads, self._source.name)
            self._inbox.put(_Answer(number, self.at, body, mixed=bool(self._mixture)))
        except ScrapeFailed as failed:
            self._inbox.put(_Answer(number, self.at, failed=failed))
        except Exception as error:  # two series made equal, or a bug: it ends the recording, and is no target that is down
            self._inbox.put(_Answer(number, self.at, fatal=error))
