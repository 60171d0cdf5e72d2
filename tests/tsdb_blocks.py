"""Copies of a Prometheus block at other times: a month of samples from one day, without writing each of them.

A block (Prometheus, tsdb/docs/format: chunks.md, index.md) names times in three places, all of which are patched where
they stand, with the checksums (CRC32C) behind them:

- each XOR chunk in ``chunks/*`` begins with its number of samples (2 bytes) and its first time, a zigzag varint; the other
  times are differences;
- each series in ``index`` has its first chunk's first time, a zigzag varint too, and differences from there;
- ``meta.json`` has the block's first time and the time behind its last.

A varint of milliseconds keeps its length from 2004 to 2039, so nothing moves. Only chunks of floats (XOR) are known here.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.request import Request, urlopen

from obs.prom.remote_write import varint
from obs.prom.server import PrivatePrometheus

_CHUNKS, _INDEX = 0x85BD40DD, 0xBAAAD700
_XOR = 1
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


@dataclass(frozen=True)
class _Place:
    """Where a time stands in a file, and the part (from, to) whose checksum, behind it, covers it."""

    at: int
    length: int
    time_ms: int
    begin: int
    end: int


class Block:
    """A block, read and looked through once, to be written again at other times.

    ValueError when it is none, or has something in it that is not known here.
    """

    def __init__(self, folder: Path) -> None:
        self.meta = json.loads((folder / "meta.json").read_text())
        self._files: dict[str, tuple[bytes, list[_Place]]] = {}
        for path in sorted((folder / "chunks").iterdir()):
            data = path.read_bytes()
            self._files[f"chunks/{path.name}"] = data, list(_in_chunks(data))
        data = (folder / "index").read_bytes()
        self._files["index"] = data, list(_in_index(data))
        self._files["tombstones"] = (folder / "tombstones").read_bytes(), []

    def write(self, data: Path, by_ms: int) -> Path:
        """Write it into a data folder, ``by_ms`` later (earlier, if negative); the new block's folder."""
        import google_crc32c

        low, high = self.meta["minTime"] + by_ms, self.meta["maxTime"] + by_ms
        name = _ulid(high, low)
        temporary = data / f"{name}.tmp-for-creation"  # Prometheus looks at no such folder
        (temporary / "chunks").mkdir(parents=True)
        times: dict[int, bytes] = {}
        for file, (body, places) in self._files.items():
            out = bytearray(body)
            for place in places:
                moved = times.get(place.time_ms)
                if moved is None:
                    moved = times[place.time_ms] = _zigzag(place.time_ms + by_ms)
                if len(moved) != place.length:
                    raise ValueError(f"{place.time_ms} ms and {by_ms} ms later are numbers of different length")
                out[place.at : place.at + place.length] = moved
                struct.pack_into(">I", out, place.end, google_crc32c.value(bytes(out[place.begin : place.end])))
            (temporary / file).write_bytes(out)
        source = {"level": 1, "sources": [name]}
        meta = {**self.meta, "ulid": name, "minTime": low, "maxTime": high, "compaction": source}
        (temporary / "meta.json").write_text(json.dumps(meta))
        return temporary.rename(data / name)


def snapshot(server: PrivatePrometheus) -> Path:
    """What a server has in its head, as a block in a folder; it was started with --web.enable-admin-api."""
    with urlopen(Request(f"{server.url}/api/v1/admin/tsdb/snapshot", method="POST"), timeout=600) as answer:
        name = json.load(answer)["data"]["name"]
    (folder,) = (meta.parent for meta in (server.data / "snapshots" / name).glob("*/meta.json"))
    return folder


def _in_chunks(data: bytes) -> Iterator[_Place]:
    if struct.unpack_from(">I", data)[0] != _CHUNKS or data[4] != 1:
        raise ValueError("no file of chunks in format 1")
    at = 8
    while at < len(data):
        length, at = _uvarint(data, at)
        if data[at] != _XOR:
            raise ValueError(f"a chunk in the encoding {data[at]}; only XOR (1) is known here")
        time_ms, behind = _signed(data, at + 3)
        end = at + 1 + length
        yield _Place(at + 3, behind - at - 3, time_ms, at, end)
        at = end + 4


def _in_index(data: bytes) -> Iterator[_Place]:
    if struct.unpack_from(">I", data)[0] != _INDEX or data[4] != 2:
        raise ValueError("no index in format 2")
    _, series, behind, *_ = struct.unpack_from(">6Q", data, len(data) - 52)
    at = -(-series // 16) * 16
    while at < behind:
        length, begin = _uvarint(data, at)
        if not length:  # padding
            break
        labels, here = _uvarint(data, begin)
        for _ in range(2 * labels):
            _, here = _uvarint(data, here)
        chunks, here = _uvarint(data, here)
        if chunks:
            time_ms, after = _signed(data, here)
            yield _Place(here, after - here, time_ms, begin, begin + length)
        at = -(-(begin + length + 4) // 16) * 16


def _uvarint(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins at ``at``, and the place behind it."""
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7


def _signed(data: bytes, at: int) -> tuple[int, int]:
    number, at = _uvarint(data, at)
    return (number >> 1) ^ -(number & 1), at


def _zigzag(number: int) -> bytes:
    return varint(number << 1 if number >= 0 else (-number << 1) - 1)


def _ulid(time_ms: int, number: int) -> str:
    """A block's name: 48 bits of time, and 80 that here are a number, not chance."""
    whole = time_ms << 80 | number
    return "".join(_CROCKFORD[whole >> 5 * place & 31] for place in reversed(range(26)))
