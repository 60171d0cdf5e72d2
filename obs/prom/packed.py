"""A range answer in little memory: per series, the runs of grid times at which it has a value.

A month at one minute is 43,200 points a series; as Python objects each takes some 170 bytes. Here one series at a
time is decoded, and what is kept of it is where it begins and ends and, if wanted, eight bytes a value.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from obs.prom.remote_write import Labels, make_labels

_RESULT = b'"result":['
_VALUES = b'"values":['


class OffGridError(Exception):
    """The server answered with other times than those asked for."""


@dataclass(frozen=True)
class Packed:
    """A series on a grid of times: ``runs`` are (first, behind the last) indexes, in order, apart from each other.

    ``values``: those of all runs, one behind the other; None when they were not wanted.
    """

    labels: Labels
    runs: tuple[tuple[int, int], ...]
    values: array[float] | None = None


@dataclass(frozen=True)
class PackedAnswer:
    """What a range query came to; ``warnings`` as in obs.prom.client.Answer, ``size`` in bytes of the answer."""

    series: tuple[Packed, ...]
    warnings: tuple[str, ...] = ()
    size: int = 0


def unpack(body: bytes, start_ms: int, step_ms: int, *, values: bool) -> tuple[tuple[Packed, ...], bytes]:
    """The series of a range answer, and the answer without them (JSON, to be judged as any other).

    Series are cut out of the text as servers lay it out: decoding all of it as JSON takes four times as long. What is
    laid out in another way is decoded whole. OffGridError when a time is not on the grid; KeyError, TypeError or
    ValueError when the shape is unknown.
    """
    at = body.find(_RESULT)
    if at < 0:
        return _whole(body, start_ms, step_ms, values) if b'"result"' in body else ((), body)
    head = body[: at + len(_RESULT)]
    at += len(_RESULT)
    found: list[Packed] = []
    try:
        while body[at : at + 1] == b"{":
            one, at = _cut_out(body, at, start_ms, step_ms, values)
            found.append(one)
            if body[at : at + 1] == b",":
                at += 1
        if body[at : at + 1] == b"]":
            return tuple(found), head + body[at:]
    except ValueError:
        pass
    return _whole(body, start_ms, step_ms, values)


def _whole(body: bytes, start_ms: int, step_ms: int, values: bool) -> tuple[tuple[Packed, ...], bytes]:
    """``unpack`` of an answer laid out in another way than servers do, or with a series without values."""
    document = json.loads(body)
    items = document["data"]["result"]
    document["data"]["result"] = []
    return tuple(_pack(item, start_ms, step_ms, values) for item in items), json.dumps(document).encode()


def _cut_out(body: bytes, at: int, start_ms: int, step_ms: int, wanted: bool) -> tuple[Packed, int]:
    """The series whose object begins at ``at`` ({"metric":{…},"values":[[time,"value"],…]}), and where it ends."""
    begin = body.find(_VALUES, at)  # in a label's value the quotes would be escaped
    if begin < 0:
        raise ValueError("a series has no values")
    item = json.loads(body[at:begin].rstrip(b", ") + b"}")
    begin += len(_VALUES)
    end = body.find(b"]]", begin - 1)
    if body[begin : begin + 1] != b"[" or body[end : end + 3] != b"]]}" or list(item) != ["metric"]:
        raise ValueError("a series has another shape")
    count = body.count(b',"', begin, end)
    first, last = (
        _step(body[place + 1 : body.find(b",", place)], start_ms, step_ms) for place in (begin, body.rfind(b"[", begin, end))
    )
    labels = make_labels(item["metric"].items())
    if last - first == count - 1:
        same = body[body.rfind(b',"', begin, end) : end + 1]  # ,"value"]
        if not wanted:
            return Packed(labels, ((first, last + 1),)), end + 3
        if body.count(same, begin, end + 1) == count:
            return Packed(labels, ((first, last + 1),), array("d", [float(same[2:-2])]) * count), end + 3
    parts = body[begin:end].split(b'"')  # [time,  value  ],[time,  value  … and nothing behind the last
    if len(parts) != 2 * count + 1 or parts[-1]:
        raise ValueError("a series has another shape")
    runs = _runs(count, lambda number: _step(parts[2 * number].strip(b"[], "), start_ms, step_ms))
    return Packed(labels, runs, array("d", map(float, parts[1::2])) if wanted else None), end + 3


def _pack(item: Any, start_ms: int, step_ms: int, wanted: bool) -> Packed:
    points: Sequence[tuple[float, str]] = item.get("values", ())
    runs = _runs(len(points), lambda number: _step(points[number][0], start_ms, step_ms))
    values = array("d", (float(value) for _, value in points)) if wanted else None
    return Packed(make_labels(item["metric"].items()), runs, values)


def _step(seconds: float | bytes, start_ms: int, step_ms: int) -> int:
    """The index on the grid of a time in seconds."""
    ms = round(float(seconds) * 1000)
    steps, rest = divmod(ms - start_ms, step_ms)
    if rest:
        raise OffGridError(f"a value at {ms} ms")
    return steps


def _runs(count: int, index: Callable[[int], int]) -> tuple[tuple[int, int], ...]:
    """The runs of ``count`` points in order of time, of which ``index`` tells the place on the grid."""
    runs: list[tuple[int, int]] = []

    def add(low: int, high: int, first: int, last: int) -> None:
        """Points ``low`` to ``high`` (inclusive), whose grid indexes are ``first`` and ``last``."""
        if last - first == high - low:
            if runs and runs[-1][1] == first:
                runs[-1] = (runs[-1][0], last + 1)
            else:
                runs.append((first, last + 1))
            return
        if high - low < 2:
            add(low, low, first, first)
            add(high, high, last, last)
            return
        middle = (low + high) // 2
        inner = index(middle)
        add(low, middle, first, inner)
        after = index(middle + 1)
        add(middle + 1, high, after, last)

    if count:
        add(0, count - 1, index(0), index(count - 1))
    return tuple(runs)
