"""``obs record``: capture what live servers serve on /metrics, in the form that replay, eval and backtest read."""

from __future__ import annotations

import argparse
import re
import shlex
import signal
import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from obs.cli.common import Progress, duration_of
from obs.errors import EXIT_FINDINGS, EXIT_OK, InputError, ServerError

if TYPE_CHECKING:
    from obs.evaluate.record.capture import Captured, Inbox
    from obs.evaluate.record.source import Source
    from obs.evaluate.record.store import Store

MIN_INTERVAL = 0.2
MAX_TIMEOUT = 10.0
MIXED = (
    "its counters fall again and again: several servers answer there, and the recording cannot be replayed; "
    "name each server by its own address, not by a Service or load balancer"
)
_SIZES = {"": 1, "K": 1000, "M": 1000**2, "G": 1000**3}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMG]?)B", re.IGNORECASE)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "--target", action="extend", nargs="+", required=True, metavar="URL[,LABEL=VALUE…]",
        help="a metrics page, with labels for its series (instance: its host and port unless given; job: the recording's name) "
        "and, of its own, authorization-file=FILE or ca-file=FILE; repeatable",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to make, one sub-folder per target")
    parser.add_argument("--interval", default="5s", metavar="5s", help="between two scrapes (default: %(default)s)")
    parser.add_argument("--for", dest="duration", default="", metavar="10m", help="how long (default: until Ctrl-C or SIGTERM)")
    parser.add_argument(
        "--timeout", default="", metavar="4s", help="for one scrape (default: 0.8 intervals, at most 10s)"
    )
    parser.add_argument("--keep", default="", metavar="1h", help="keep the last hour only: older scrapes are removed")
    parser.add_argument("--rotate", default="", metavar="100MB", help="keep this much only: the oldest scrapes are removed")
    parser.add_argument("--gzip", action="store_true", help="at the end pack DIR into DIR.tar.gz, and remove DIR")
    parser.add_argument(
        "--drop-label", action="append", default=[], metavar="NAME", help="leave this label out of what is recorded; repeatable"
    )
    parser.add_argument(
        "--hash-label", action="append", default=[], metavar="NAME",
        help="replace its values by hashes, under a key that is kept nowhere; repeatable",
    )
    parser.add_argument(
        "--authorization-file", default="", metavar="FILE", help="Authorization header for targets without one of their own"
    )
    parser.add_argument("--ca-file", default="", metavar="PEM", help="CA certificate for https targets without their own")


def run(args: argparse.Namespace) -> int:
    """Record; 0 when every target is in the recording, 1 when one is not or is a mixture of servers, 3 when none is."""
    from obs.evaluate.record.capture import capture
    from obs.evaluate.record.scrub import Scrubber
    from obs.evaluate.record.source import arrange
    from obs.evaluate.record.store import Store, archive_of, pack
    from obs.evaluate.recording import name_of

    interval = duration_of("--interval", args.interval)
    if interval < MIN_INTERVAL:
        raise InputError(f"--interval {args.interval}: is shorter than {MIN_INTERVAL * 1000:g}ms; give a longer one")
    timeout = duration_of("--timeout", args.timeout) if args.timeout else min(MAX_TIMEOUT, 0.8 * interval)
    if timeout > interval:
        raise InputError(f"--timeout {args.timeout}: is longer than --interval {args.interval}; scrapes would overlap")
    duration = duration_of("--for", args.duration) if args.duration else None
    if duration is not None and duration < 2 * interval:
        raise InputError(f"--for {args.duration}: is shorter than two intervals, and an interval needs two scrapes")
    keep = duration_of("--keep", args.keep) if args.keep else 0.0
    if args.keep and keep < 2 * interval:
        raise InputError(f"--keep {args.keep}: is shorter than two intervals, and an interval needs two scrapes")
    out: Path = args.out if args.out.name not in ("", "..") else args.out.resolve()
    if out.name.endswith((".tar.gz", ".tgz", ".tar")):
        raise InputError(f"--out {out}: is an archive's name; write --out {out.parent / name_of(out)} --gzip")
    if args.gzip and archive_of(out).exists():
        raise InputError(f"{archive_of(out)}: is there already; name another --out")
    scrubber = Scrubber(args.drop_label, args.hash_label)
    sources = arrange([_source(text, args) for text in args.target], scrubber)
    keep_bytes = _bytes("--rotate", args.rotate) if args.rotate else 0
    store = Store(out, sources, keep_ms=round(keep * 1000), keep_bytes=keep_bytes)
    done: Captured | None = None
    try:
        with _ends() as inbox, Progress() as progress:
            shown = _Shown(out, store, progress, duration)
            done = capture(
                sources, store, scrubber, inbox, interval=interval, timeout=timeout, duration=duration, after_round=shown
            )
    finally:
        left = store.close()
        if done is None and left:
            print(f"obs: {out}: ended early; what was recorded until then is valid", file=sys.stderr)
    if not left:
        raise ServerError(f"{out}: nothing was recorded, for no target answered twice: {_reasons(done)}")
    place = pack(out) if args.gzip else out
    return _report(place, done, store)


def _source(text: str, args: argparse.Namespace) -> Source:
    from obs.cli.sidecar import authorization
    from obs.evaluate.record.source import Source, parse
    from obs.sidecar.scrape import Fetcher, Target

    url, labels, files = parse(text)
    secret = authorization(files.get("authorization-file", args.authorization_file))
    target = Target(url, secret, files.get("ca-file", args.ca_file))
    Fetcher(target, timeout=1.0)  # says what is wrong with a CA file before a folder is made
    return Source(target, labels)


def _bytes(flag: str, text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    size = round(float(match[1]) * _SIZES[match[2].upper()]) if match else 0
    if size <= 0:
        raise InputError(f"{flag} {text!r}: is no size; give one like 100MB")
    return size


@contextmanager
def _ends() -> Iterator[Inbox]:
    """An inbox into which Ctrl-C and SIGTERM put the end."""
    import queue

    inbox: Inbox = queue.SimpleQueue()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for number in before:
            signal.signal(number, lambda *_: inbox.put(None))
        yield inbox
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Shown:
    """After each round: the state on a terminal, and anywhere a line when a target begins or ends to fail."""

    def __init__(self, out: Path, store: Store, progress: Progress, duration: float | None) -> None:
        self._store = store
        self._progress = progress
        self._duration = duration
        self._failing: dict[str, str] = {}
        self._mixed: set[str] = set()
        progress.what = out.name
        progress(f"0 rounds{_until(duration)}", None if duration is None else 0.0)

    def __call__(self, done: Captured) -> None:
        for tally in done.tallies:
            key, name, why = tally.source.folder, tally.source.name, tally.now
            if why != self._failing.get(key, ""):
                self._say(done, name, f"failed: {why}: {tally.detail}" if why else "answers again")
                self._failing[key] = why
            if tally.mixed and key not in self._mixed:
                self._say(done, name, MIXED)
                self._mixed.add(key)
        failed = sum(sum(tally.failures.values()) for tally in done.tallies)
        text = f"{_rounds(done)}, {failed} failed, {_size(self._store.size)}"
        share = None if self._duration is None else done.rounds * done.interval_ms / 1000 / self._duration
        self._progress(f"{text}{_until(self._duration)}", share)

    def _say(self, done: Captured, name: str, what: str) -> None:
        clear = "\r\x1b[K" if self._progress.on else ""
        print(f"{clear}obs: {_clock(done.end_ms)} {name}: {what}", file=sys.stderr, flush=True)


def _report(place: Path, done: Captured, store: Store) -> int:
    """What was captured, and how to replay it."""
    seconds = (done.end_ms - done.start_ms) / 1000
    print(
        f"{place}: {_rounds(done)}, every {done.interval_ms / 1000:g} s, {seconds:g} s from {done.start_ms / 1000:.3f}, "
        f"{_size(place.stat().st_size if place.is_file() else store.size)}"
    )
    rows = [("target", "scrapes", "failed", "size", "")]
    notes = []
    code = EXIT_OK
    last = 0
    for tally in done.tallies:
        name, times = tally.source.name, store.times(tally.source.folder)
        failed = sum(tally.failures.values())
        why = ", ".join(f"{reason} {count}" for reason, count in sorted(tally.failures.items()))
        rows.append((name, str(len(times)), str(failed), _size(store.size_of(tally.source.folder)), why))
        if not times:
            code = EXIT_FINDINGS
            answered = "answered once only" if tally.ok else "never answered"
            notes.append(f"{name} {answered}: it is not in the recording, not even as down")
            continue
        if tally.mixed:
            code = EXIT_FINDINGS
            notes.append(f"{name}: {MIXED}")
        last = max(last, times[-1])
        usual = statistics.median(two - one for one, two in pairwise(times))
        if usual > 1.5 * done.interval_ms:
            notes.append(f"{name} failed so often that its interval will be read as {usual / 1000:g} s, and fewer gaps as down")
        removed = tally.ok - len(times)
        if removed:
            notes.append(f"{name}: {_count(removed, 'older scrape')} removed (--keep, --rotate)")
        elif times[0] > done.start_ms:
            after = (times[0] - done.start_ms) / 1000
            notes.append(f"{name} first answered after {after:g} s: before that it is not in the recording, not even as down")
    if done.missed:
        notes.append(
            f"{_count(done.missed, 'round')} missed, for this machine slept or was too busy: they will be read as targets down"
        )
    if done.late:
        notes.append(f"{_count(done.late, 'round')} began late by over a tenth of the interval; their files have the time due")
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(row[column].rjust(widths[column]) for column in (1, 2, 3)), row[4]]
        print(f"  {'  '.join(cells)}".rstrip())
    for note in notes:
        print(f"note: {note}")
    end = f" --end {done.end_ms / 1000:.3f}" if last < done.end_ms else ""  # all were down at the end
    if not any(tally.mixed for tally in done.tallies):
        print(f"replay it: obs replay {shlex.quote(str(place))}{end}")
    return code


def _reasons(done: Captured | None) -> str:
    if done is None or not done.rounds:
        return "it was ended before the first round; let it run longer"
    each = []
    for tally in done.tallies:
        why = ", ".join(f"{reason} {count}" for reason, count in sorted(tally.failures.items()))
        said = f" ({tally.detail})" if tally.detail else ""
        each.append(f"{tally.source.name} {why or 'answered once'}{said}")
    return "; ".join(each)


def _until(duration: float | None) -> str:
    return "" if duration is not None else "; Ctrl-C ends it"


def _clock(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, timezone.utc).strftime("%H:%M:%SZ")


def _rounds(done: Captured) -> str:
    return f"{_count(done.rounds, 'round')} of {_count(len(done.tallies), 'target')}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _size(count: int) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} B"
