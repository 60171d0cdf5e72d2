"""Asks expressions at many evaluation times: in pieces a server can answer, again when it fails, kept when told to.

A piece is halved when the server says that it is too much or too slow, and grows while answers are small and quick.
A passing fault (no connection, 429, 5xx, no answer in time) is tried again with growing pauses. An expression that
fails at some times only (many-to-many matching, say) is taken apart until those times are known: a server's rule
evaluation fails then too, and nothing else. Finished pieces go into a folder, if one is given, each written whole or
not at all; their names are hashes of server, expression and grid, so that another backtest finds them as well.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import tempfile
import threading
import time
import zlib
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path

from obs.errors import InputError, OutputError, ServerError
from obs.evaluate.rules import Rule
from obs.prom.client import MAX_POINTS, Client, PassingError, QueryError, SlowError, TooMuchError
from obs.prom.packed import Packed

TRIES = 6
_PARALLEL = 4
_PAUSE = 0.5  # seconds before the second try; doubled each time
_FIRST = 1_000  # steps of a first piece
_BODY = 8_000_000  # bytes of an answer to aim at: decoding it takes some 50 MB
_SECONDS = 8.0  # of an answer to aim at
GAP = 30  # steps; to ask at these too costs less than another question
_FAULTS = 2_000  # failing queries of one rule before we give up to find out at which times it works


@dataclass(frozen=True)
class Piece:
    """Part of an expression's result: ``count`` evaluation times from index ``first`` on.

    Indexes in ``series`` count from ``first``, those in ``failed`` (times at which it cannot be evaluated) likewise.
    """

    first: int
    count: int
    series: tuple[Packed, ...]
    failed: tuple[int, ...] = ()


@dataclass(frozen=True)
class Where:
    """At which of the times an expression is asked (obs.evaluate.narrow says why that is enough).

    ``runs``: at these only, the first of all times among them: from the end of a run to the next nothing changes.
    ``conditions``: not at times at which one of these, asked in this order, has no element: there it has none either.
    One of the two.
    """

    runs: tuple[tuple[int, int], ...] | None = None
    conditions: tuple[str, ...] = ()


EVERYWHERE = Where()


@dataclass
class Asker:
    """Asks one server. ``say`` is told after each piece how many steps it had; ``stop``, once set, ends all work.

    ``failed``: per alert, the times (unix ms) of its evaluations that failed, as those who use the answers find out.
    """

    client: Client
    resume: Path | None = None
    tries: int = TRIES
    say: Callable[[Rule, int], None] = lambda rule, steps: None
    stop: threading.Event = field(default_factory=threading.Event)
    warnings: dict[str, None] = field(default_factory=dict)
    failed: dict[str, set[int]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def pieces(self, rule: Rule, expr: str, times: range, *, values: bool) -> Iterator[Piece]:
        """The expression's result at ``times`` (unix milliseconds), piece by piece in order of time.

        ``rule`` is named in errors. InputError when it cannot be evaluated; ServerError when the server cannot answer.
        """
        store = _Store(self.resume, f"{self.client.identity}\n{expr}\n{times.step} {times[0] % times.step} {values}")
        size = _FIRST
        at = 0
        faults = _Faults()
        first_said = ""
        failed = 0
        while at < len(times):
            if self.stop.is_set():
                raise StoppedError
            kept, room = store.look(times, at)
            if kept is not None:
                piece = kept
            else:
                count = min(size, room, len(times) - at)
                before = time.monotonic()
                piece, largest = self._piece(rule, expr, times, at, count, values, faults)
                took = max(0.001, time.monotonic() - before)
                store.keep(times, piece)
                factor = min(4.0, _BODY / max(1, largest), _SECONDS / took)
                size = max(1, min(MAX_POINTS - 10, int((count if count < room else size) * factor)))
            failed += len(piece.failed)
            first_said = first_said or (faults.said if piece.failed else "")
            self.say(rule, piece.count)
            at += piece.count
            yield piece
        if failed == len(times):
            said = faults.said or "it fails at all times"
            raise InputError(f"{rule.where or rule.name}: {rule.name} cannot be evaluated: {said}")
        if failed:
            self.warn(
                f"{rule.name}: {failed} of {len(times)} evaluations fail, and change nothing, as on a server: "
                f"{first_said or 'see the expression'}"
            )

    def answers(self, rule: Rule, expr: str, times: range, where: Where, *, values: bool) -> Iterator[Piece]:
        """``pieces``, asked only at some of the times: the rest is known. Times without any element can be left out."""
        left: Sequence[tuple[int, int]] = [(0, len(times))] if where.runs is None else where.runs
        for condition in where.conditions:
            found: list[tuple[int, int]] = []
            for low, high in left:
                for piece in self.pieces(rule, f"group({condition})", times[low:high], values=False):
                    runs = [*(run for one in piece.series for run in one.runs), *((at, at + 1) for at in piece.failed)]
                    found += [(low + piece.first + begin, low + piece.first + end) for begin, end in runs]
            left = merged(found, GAP)
        for number, (low, high) in enumerate(left):
            last = None
            for piece in self.pieces(rule, expr, times[low:high], values=values):
                last = replace(piece, first=low + piece.first)
                yield last
            until = left[number + 1][0] if number + 1 < len(left) else len(times)
            if where.runs is not None and last is not None and until > high:
                yield _held(last, high, until - high)

    def warn(self, text: str) -> None:
        with self._lock:
            self.warnings.setdefault(text)

    def fails(self, alert: str, times: Iterable[int]) -> None:
        """An alert's evaluations at these times (unix ms) fail."""
        with self._lock:
            self.failed.setdefault(alert, set()).update(times)

    def _piece(
        self, rule: Rule, expr: str, times: range, first: int, count: int, values: bool, faults: _Faults
    ) -> tuple[Piece, int]:
        """One piece, put together from smaller ones where needed; and the size of the largest answer, in bytes,
        scaled to the whole piece."""
        try:
            answer = self._ask(rule, expr, times, first, count, values)
        except (TooMuchError, SlowError) as error:
            if count == 1:
                raise ServerError(f"{rule.where or rule.name}: {rule.name}: even one step is too much: {error}") from None
        except QueryError as error:
            faults.add(rule, str(error), times[first])
            if count == 1:
                return Piece(first, 1, (), (0,)), 0
        else:
            return Piece(first, count, answer.series), answer.size
        half = (count + 1) // 2
        one, big = self._piece(rule, expr, times, first, half, values, faults)
        two, large = self._piece(rule, expr, times, first + half, count - half, values, faults)
        return _joined(one, two), max(big, large) * 2

    def _ask(self, rule: Rule, expr: str, times: range, first: int, count: int, values: bool) -> _Answer:
        start, end = times[first], times[first + count - 1]
        for attempt in range(self.tries):
            if self.stop.is_set():
                raise StoppedError
            try:
                answer = self.client.ask_packed(expr, start, end, times.step, values=values)
            except PassingError as error:
                slow = isinstance(error, SlowError)
                if slow and (count > 1 or attempt):
                    raise
                if attempt + 1 == self.tries:
                    raise PassingError(f"{error} (asked {self.tries} times)") from None
                self.stop.wait(_PAUSE * 2**attempt * (1 + random.random() / 4))
            else:
                for one in answer.warnings:
                    self.warn(one)
                return _Answer(answer.series, answer.size)
        raise AssertionError("unreachable")


class StoppedError(Exception):
    """Another worker failed: this one ends."""


@dataclass(frozen=True)
class _Answer:
    series: tuple[Packed, ...]
    size: int


@dataclass
class _Faults:
    """What the server said of an expression that it cannot evaluate, and how often."""

    said: str = ""
    count: int = 0

    def add(self, rule: Rule, said: str, at_ms: int) -> None:
        self.said = self.said or said
        self.count += 1
        if self.count > _FAULTS or re.search(r"parse error|cannot parse|unknown function|unsupported function", said):
            raise InputError(f"{rule.where or rule.name}: {rule.name} cannot be evaluated: {self.said}")


def _held(piece: Piece, first: int, count: int) -> Piece:
    """The last of a piece's times over and over, ``count`` times from index ``first`` on."""
    if piece.count - 1 in piece.failed:
        return Piece(first, count, (), tuple(range(count)))
    series = tuple(
        Packed(one.labels, ((0, count),), None if one.values is None else one.values[-1:] * count)
        for one in piece.series
        if one.runs[-1][1] == piece.count
    )
    return Piece(first, count, series)


def _joined(one: Piece, two: Piece) -> Piece:
    by_labels = {item.labels: item for item in one.series}
    for item in two.series:
        moved = tuple((begin + one.count, end + one.count) for begin, end in item.runs)
        before = by_labels.get(item.labels)
        if before is None:
            by_labels[item.labels] = Packed(item.labels, moved, item.values)
            continue
        values = None if before.values is None or item.values is None else before.values + item.values
        by_labels[item.labels] = Packed(item.labels, merged([*before.runs, *moved]), values)
    series = tuple(by_labels[labels] for labels in sorted(by_labels))
    return Piece(one.first, one.count + two.count, series, (*one.failed, *(index + one.count for index in two.failed)))


def merged(runs: Sequence[tuple[int, int]], gap: int = 0) -> tuple[tuple[int, int], ...]:
    """Runs in order, those that touch (or overlap, or have no more than ``gap`` between them) made one."""
    found: list[tuple[int, int]] = []
    for begin, end in sorted(runs):
        if found and begin <= found[-1][1] + gap:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return tuple(found)


def in_order_of_time(failed: Mapping[str, set[int]]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """``Asker.failed`` as a timeline has it: alerts by name, their times in order."""
    return tuple((alert, tuple(sorted(times))) for alert, times in sorted(failed.items()))


def in_parallel(works: Sequence[Callable[[], None]], stop: threading.Event, needs: Mapping[int, Collection[int]] = {}) -> None:
    """Do all, a few at a time; the first failure ends the rest and is raised (of several, that of the first work).

    ``needs``: per work (by its place) the earlier works that must be done before it. Those that most others wait for, one
    behind the other, are begun first.
    """
    height = [0] * len(works)  # how many works wait for it, one behind the other
    for place in reversed(range(len(works))):
        for other in needs.get(place, ()):
            height[other] = max(height[other], height[place] + 1)
    waiting = sorted(range(len(works)), key=lambda place: -height[place])
    done: set[int] = set()
    futures: dict[Future[None], int] = {}
    with ThreadPoolExecutor(max_workers=_PARALLEL, thread_name_prefix="asker") as pool:
        running: set[Future[None]] = set()
        try:
            while waiting or running:
                ready = [place for place in waiting if done.issuperset(needs.get(place, ()))]
                for place in ready[: _PARALLEL - len(running)]:
                    waiting.remove(place)
                    future = pool.submit(works[place])
                    futures[future] = place
                    running.add(future)
                ended, running = wait(running, return_when=FIRST_COMPLETED)
                if any(future.exception() for future in ended):
                    break
                done.update(futures[future] for future in ended)
        finally:
            if waiting or not all(future.done() and not future.exception() for future in futures):
                stop.set()
    failures = {place: future.exception() for future, place in futures.items()}
    for _, failure in sorted(failures.items(), key=lambda item: (isinstance(item[1], StoppedError), item[0])):
        if failure is not None:
            raise failure


# --- finished pieces on disk --------------------------------------------------------------------------


class _Store:
    """The pieces of one expression in a folder; nothing at all without one."""

    def __init__(self, folder: Path | None, what: str) -> None:
        self.folder = folder
        self.key = hashlib.sha256(what.encode()).hexdigest()[:32]
        self.known: list[tuple[int, int, Path]] = []
        if folder is None:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for path in sorted(folder.glob(f"{self.key}-*.piece")):
                match = re.fullmatch(r"[0-9a-f]+-(-?\d+)-(\d+)", path.stem)
                if match:
                    self.known.append((int(match[1]), int(match[2]), path))
        except OSError as error:
            why = error.strerror or error
            raise OutputError(f"{folder}: cannot be used to resume: {why}; name a folder of yours") from error
        self.known.sort()

    def look(self, times: range, at: int) -> tuple[Piece | None, int]:
        """What is kept from index ``at`` on, and else up to how many steps are free before the next that is kept."""
        now = times[at]
        room = len(times) - at
        for first_ms, count, path in self.known:
            behind = first_ms + count * times.step
            if first_ms <= now < behind:
                piece = _load(path, count)
                if piece is None:
                    continue
                skip = (now - first_ms) // times.step
                return _cut(piece, at, skip, min(count - skip, room)), room
            if first_ms > now:
                return None, min(room, (first_ms - now) // times.step)
        return None, room

    def keep(self, times: range, piece: Piece) -> None:
        if self.folder is None:
            return
        path = self.folder / f"{self.key}-{times[piece.first]}-{piece.count}.piece"
        head = json.dumps([list(piece.failed), [[one.labels, one.runs, one.values is not None] for one in piece.series]])
        values = b"".join(one.values.tobytes() for one in piece.series if one.values is not None)
        body = zlib.compress(head.encode() + b"\n" + values, 1)
        temporary = ""
        try:
            with tempfile.NamedTemporaryFile(dir=self.folder, prefix=".piece-", delete=False) as file:
                temporary = file.name
                file.write(body)
            os.replace(temporary, path)
        except OSError as error:
            if temporary:
                Path(temporary).unlink(missing_ok=True)
            why = error.strerror or error
            raise OutputError(f"{path}: cannot be written: {why}; make room, or resume elsewhere") from error


def _load(path: Path, count: int) -> Piece | None:
    """A kept piece; None when it is damaged (it is asked again)."""
    try:
        head, _, body = zlib.decompress(path.read_bytes()).partition(b"\n")
        failed, items = json.loads(head)
        series = []
        at = 0
        for labels, runs, has_values in items:
            pairs = tuple((str(name), str(value)) for name, value in labels)
            kept = tuple((int(begin), int(end)) for begin, end in runs)
            values = None
            if has_values:
                size = 8 * sum(end - begin for begin, end in kept)
                values = array("d")
                values.frombytes(body[at : at + size])
                at += size
            series.append(Packed(pairs, kept, values))
        return Piece(0, count, tuple(series), tuple(failed))
    except (OSError, ValueError, TypeError, zlib.error):
        return None


def _cut(piece: Piece, first: int, skip: int, count: int) -> Piece:
    """``count`` steps of a piece from ``skip`` on, as the piece that begins at index ``first``."""
    if skip == 0 and count == piece.count:
        return Piece(first, count, piece.series, piece.failed)
    series = []
    for one in piece.series:
        runs: list[tuple[int, int]] = []
        values = None if one.values is None else array("d")
        at = 0
        for begin, end in one.runs:
            low, high = max(begin, skip), min(end, skip + count)
            if low < high:
                runs.append((low - skip, high - skip))
                if values is not None and one.values is not None:
                    values.extend(one.values[at + low - begin : at + high - begin])
            at += end - begin
        if runs:
            series.append(Packed(one.labels, tuple(runs), values))
    failed = tuple(index - skip for index in piece.failed if skip <= index < skip + count)
    return Piece(first, count, tuple(series), failed)
