"""Writes samples into a Prometheus through ``/api/v1/write`` (remote write 1.0: protobuf, snappy).

The protobuf is written by hand: four messages (prometheus/prompb/types.proto and remote.proto)

    WriteRequest { repeated TimeSeries timeseries = 1; }
    TimeSeries   { repeated Label labels = 1; repeated Sample samples = 2; }
    Label        { string name = 1; string value = 2; }
    Sample       { double value = 1; int64 timestamp = 2; }   // milliseconds

A series ends at once where STALE_NAN is written; without it the last value lingers for five minutes.
"""

from __future__ import annotations

import struct
import threading
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import TracebackType
from typing import NamedTuple

from obs.errors import ServerError, ToolError

Labels = tuple[tuple[str, str], ...]
"""Label pairs sorted by name, ``__name__`` among them; never an empty value."""

_SAMPLE = struct.Struct("<BBBd").pack  # all of a sample but its end: 20 bytes at most, so one byte for its size
_Moulds = dict[range, tuple[bytes, int]]
STALE_BITS = 0x7FF0000000000002
STALE_NAN: float = struct.unpack("<d", struct.pack("<Q", STALE_BITS))[0]
"""Prometheus's staleness marker (model/value/value.go): one NaN among many, told apart by its bits."""


class Point(NamedTuple):
    """One sample: unix milliseconds, labels, value."""

    time_ms: int
    labels: Labels
    value: float


def is_stale(value: float) -> bool:
    """Whether a float is the staleness marker, by its bits (an ordinary NaN is a value, not an end)."""
    return value != value and bool(struct.pack("<d", value) == struct.pack("<Q", STALE_BITS))


def make_labels(labels: Iterable[tuple[str, str]]) -> Labels:
    """Sorted labels; empty values dropped, as Prometheus does."""
    return tuple(sorted((name, value) for name, value in labels if value))


def encode(points: Iterable[Point], cache: dict[Labels, bytes] | None = None) -> bytes:
    """The WriteRequest for some points (uncompressed); each series once, its samples in the given order."""
    cache = {} if cache is None else cache
    series: dict[Labels, list[bytes]] = {}
    for time_ms, labels, value in points:
        end = _tail(time_ms)
        series.setdefault(labels, []).append(_SAMPLE(0x12, 9 + len(end), 0x09, value) + end)
    out = bytearray()
    for labels, samples in series.items():
        head = cache.get(labels)
        if head is None:
            head = cache[labels] = b"".join(_label(name, value) for name, value in labels)
        size = len(head) + sum(map(len, samples))
        out += b"\x0a" + varint(size) + head + b"".join(samples)
    return bytes(out)


@dataclass
class Writer:
    """Posts points to one Prometheus, ``batch`` at a time; use it as a context manager.

    ``timeout`` is in seconds, per request.
    """

    url: str
    batch: int = 40_000
    timeout: float = 60.0

    def __enter__(self) -> Writer:
        import requests

        self._lock = threading.Lock()
        self._session = requests.Session()
        self._session.trust_env = False  # it talks to loopback: no proxy, no .netrc
        self._cache: dict[Labels, bytes] = {}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.close()

    def write(self, points: Iterable[Point]) -> int:
        """Write points that are in order of time; returns how many.

        ToolError when they are out of order (a fault of the caller); ServerError when Prometheus is not
        there or refuses them, with its own words.
        """
        pending: list[Point] = []
        last = -(2**63)
        count = 0
        for point in points:
            if point.time_ms < last:
                raise ToolError(
                    f"samples out of order: {point.time_ms} ms after {last} ms "
                    f"({dict(point.labels).get('__name__', '?')}); write them in order of time"
                )
            last = point.time_ms
            pending.append(point)
            count += 1
            if len(pending) >= self.batch:
                self._post(pending)
                pending = []
        if pending:
            self._post(pending)
        return count

    def write_series(self, series: Iterable[tuple[Labels, Sequence[int], array[float]]]) -> int:
        """Write whole series: labels, times in order (unix milliseconds) and as many values; returns how many samples.

        Each series must be in order; Prometheus does not mind in which order series come. Several threads may write.
        """
        moulds: _Moulds = {}
        out = bytearray()
        held = count = 0
        low, high = 2**63, -(2**63)
        for labels, times, values in series:
            for at in range(0, len(times), self.batch):
                some = times[at : at + self.batch]
                out += _column(labels, some, values[at : at + self.batch].tobytes(), self._cache, moulds)
                held += len(some)
                low, high = min(low, some[0]), max(high, some[-1])
                if held >= self.batch:
                    self._send(bytes(out), held, low, high)
                    count += held
                    held = 0
                    out.clear()
                    low, high = 2**63, -(2**63)
        if held:
            self._send(bytes(out), held, low, high)
        return count + held

    def _post(self, points: list[Point]) -> None:
        self._send(encode(points, self._cache), len(points), points[0].time_ms, points[-1].time_ms)

    def _send(self, request: bytes, count: int, low_ms: int, high_ms: int) -> None:
        import cramjam

        body = bytes(cramjam.snappy.compress_raw(request))
        with self._lock:
            self._send_one(body, count, low_ms, high_ms)

    def _send_one(self, body: bytes, count: int, low_ms: int, high_ms: int) -> None:
        import requests

        address = f"{self.url.rstrip('/')}/api/v1/write"
        try:
            answer = self._session.post(
                address,
                data=body,
                headers={
                    "Content-Encoding": "snappy",
                    "Content-Type": "application/x-protobuf",
                    "X-Prometheus-Remote-Write-Version": "0.1.0",
                },
                timeout=self.timeout,
                allow_redirects=False,
            )
        except requests.RequestException as error:
            from obs.prom import faults

            raise ServerError(f"{address} cannot be reached: {faults.reason(error)}; is Prometheus running there?") from error
        if answer.status_code // 100 != 2:
            raise ServerError(
                f"{address} refused {count} samples ({low_ms} to {high_ms} ms): "
                f"{answer.status_code} {one_line(answer.text)}; {_mend(answer.status_code, answer.text)}"
            )


def _column(labels: Labels, times: Sequence[int], values: bytes, cache: dict[Labels, bytes], moulds: _Moulds) -> bytes:
    """A TimeSeries message; ``values``: eight bytes each."""
    head = cache.get(labels)
    if head is None:
        head = cache[labels] = b"".join(_label(name, value) for name, value in labels)
    if isinstance(times, range):  # of many series: all samples have the same size as a rule, and differ by their values
        mould, size = _cut(times, moulds)
        if size:
            body = bytearray(mould)
            for byte in range(8):
                body[3 + byte :: size] = values[byte::8]
            return b"\x0a" + varint(len(head) + len(body)) + head + body
    body = bytearray()
    for index, at in enumerate(times):
        end = _tail(at)
        body += b"\x12" + varint(9 + len(end)) + b"\x09" + values[8 * index : 8 * index + 8] + end
    return b"\x0a" + varint(len(head) + len(body)) + head + body


def _cut(times: range, moulds: _Moulds) -> tuple[bytes, int]:
    """``_mould`` of some times, cut from one of more times where there is one."""
    for all_, (mould, size) in moulds.items():
        if size and all_.step == times.step and times[0] in all_ and times[-1] in all_:
            at = all_.index(times[0]) * size
            return mould[at : at + len(times) * size], size
    return moulds.setdefault(times, _mould(times))


@lru_cache(maxsize=16_384)
def _tail(at: int) -> bytes:
    """What ends a sample: its time."""
    return b"\x10" + varint(at)


def _mould(times: range) -> tuple[bytes, int]:
    """The samples at some times, each value zero, and the size of each in bytes; size 0 when they differ in size."""
    ends = [_tail(at) for at in times]
    size = len(ends[0])
    if any(len(end) != size for end in ends):
        return b"", 0
    begin = b"\x12" + varint(9 + size) + b"\x09" + bytes(8)
    return b"".join([begin + end for end in ends]), len(begin) + size


def one_line(text: str, limit: int = 300) -> str:
    """Text on one line, cut at ``limit`` characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def _mend(status: int, text: str) -> str:
    if status == 404 or "receiver" in text:
        return "start Prometheus with --web.enable-remote-write-receiver"
    if "future" in text:  # Prometheus 3: more than ten minutes after its clock; it says "out of bounds" of these too
        return "the samples lie after this machine's clock: set the clock"
    if "out of bounds" in text or "too old" in text or "out of order" in text:
        return "write to a fresh Prometheus, oldest samples first"
    return "see the log of that Prometheus"


def _label(name: str, value: str) -> bytes:
    one, two = name.encode(), value.encode()
    body = b"\x0a" + varint(len(one)) + one + b"\x12" + varint(len(two)) + two
    return b"\x0a" + varint(len(body)) + body


def varint(number: int) -> bytes:
    """Protobuf's base-128 form, 7 bits a byte, the lowest first."""
    number &= 0xFFFFFFFFFFFFFFFF  # int64: a negative number takes ten bytes
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
