"""A recording's files: each whole or not there, at any moment in the form that ``obs.evaluate.recording`` reads.

A sub-folder per target and ``targets.yaml``. The evaluator needs two scrapes of a target to know its interval, so a
target's folder is hidden (a leading dot; the evaluator does not look there) until it holds two, and rotation leaves
every target its last two: one that has been down for longer is then still seen as down.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import shutil
import tarfile
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import yaml

from obs.errors import InputError, OutputError
from obs.evaluate.record.source import Source

KEPT = 2


class Store:
    """A new recording in ``folder``. ``keep_ms`` and ``keep_bytes`` bound it; 0 is no bound.

    InputError when something stands there already; OutputError when it cannot be written.
    """

    def __init__(self, folder: Path, sources: Sequence[Source], *, keep_ms: int = 0, keep_bytes: int = 0) -> None:
        self.folder = folder
        self.size = 0
        self._keep_ms = keep_ms
        self._keep_bytes = keep_bytes
        self._labels = {one.folder: dict(one.labels) for one in sources}
        self._files: dict[str, deque[tuple[int, int]]] = {one.folder: deque() for one in sources}
        self._shown: set[str] = set()
        self._made = False
        try:
            self._made = not folder.exists()
            if not self._made and (not folder.is_dir() or any(folder.iterdir())):
                raise InputError(
                    f"{folder}: is there already and not an empty folder; name a new one with --out (going on with an old "
                    "recording would make the time between look like an outage)"
                )
            folder.mkdir(exist_ok=True)
            for name in self._files:
                (folder / f".{name}").mkdir()
            with _whole(folder / ".probe"):
                pass
            (folder / ".probe").unlink()
        except OSError as error:
            self._remove()
            raise _unwritable(folder, error) from error

    def add(self, time_ms: int, bodies: Mapping[str, bytes]) -> None:
        """The scrapes of one round, by folder; then what is over the bounds goes, oldest first."""
        try:
            for name, body in bodies.items():
                with _whole(self._at(name) / f"{time_ms}.prom") as file:
                    file.write(body)
                self._files[name].append((time_ms, len(body)))
                self.size += len(body)
            fresh = [name for name in bodies if name not in self._shown and len(self._files[name]) >= KEPT]
            if fresh:
                self._show(fresh)
            self._rotate(time_ms)
        except OSError as error:
            raise _unwritable(self.folder, error) from error

    def times(self, name: str) -> tuple[int, ...]:
        """When the scrapes that are in the recording were taken, unix milliseconds; () of a target that is not in it."""
        return tuple(at for at, _ in self._files[name]) if name in self._shown else ()

    def size_of(self, name: str) -> int:
        """Bytes of a target's scrapes that are in the recording."""
        return sum(size for _, size in self._files[name]) if name in self._shown else 0

    def close(self) -> bool:
        """Take away what the evaluator would not read. Whether a recording is left; if not, nothing is."""
        for name in self._files.keys() - self._shown:
            shutil.rmtree(self.folder / f".{name}", ignore_errors=True)
        if not self._shown:
            self._remove()
        self.size = sum(self.size_of(name) for name in self._files)
        return bool(self._shown)

    def _at(self, name: str) -> Path:
        return self.folder / (name if name in self._shown else f".{name}")

    def _show(self, names: Sequence[str]) -> None:
        for name in names:
            os.rename(self.folder / f".{name}", self.folder / name)
            self._shown.add(name)
        labels = {name: self._labels[name] for name in sorted(self._shown)}
        with _whole(self.folder / "targets.yaml") as file:
            file.write(yaml.safe_dump(labels, default_flow_style=False, allow_unicode=True, sort_keys=True).encode())

    def _rotate(self, now_ms: int) -> None:
        while True:
            old = [(files[0][0], name) for name, files in self._files.items() if len(files) > KEPT]
            if not old:
                return
            at, name = min(old)
            aged = self._keep_ms and at < now_ms - self._keep_ms
            if not aged and not (self._keep_bytes and self.size > self._keep_bytes):
                return
            (self._at(name) / f"{at}.prom").unlink(missing_ok=True)
            self.size -= self._files[name].popleft()[1]

    def _remove(self) -> None:
        """Leave the place as it was found."""
        for name in self._files:
            shutil.rmtree(self.folder / f".{name}", ignore_errors=True)
        with contextlib.suppress(OSError):
            if self._made:
                self.folder.rmdir()


def archive_of(folder: Path) -> Path:
    """Where ``pack`` puts a recording."""
    return folder.parent / f"{folder.name}.tar.gz"


def pack(folder: Path) -> Path:
    """Pack a recording into ``<folder>.tar.gz`` and remove the folder. The same recording gives the same bytes.

    OutputError when it cannot be: the folder is then as it was.
    """
    place = archive_of(folder)
    top = folder.name.lstrip(".") or "recording"  # the evaluator does not look into hidden folders
    try:
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        with (
            _whole(place) as file,
            gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w") as archive,
        ):
            for path in files:
                member = tarfile.TarInfo(f"{top}/{path.relative_to(folder).as_posix()}")
                body = path.read_bytes()
                member.size = len(body)
                archive.addfile(member, io.BytesIO(body))
        shutil.rmtree(folder)
    except OSError as error:
        raise OutputError(
            f"{place}: cannot be written: {error.strerror or error}; the recording is whole in {folder}: pack it elsewhere"
        ) from error
    return place


@contextlib.contextmanager
def _whole(path: Path) -> Iterator[io.BufferedWriter]:
    """A file that appears under its name when it is whole and on the disk, or never."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _unwritable(folder: Path, error: OSError) -> OutputError:
    return OutputError(
        f"{folder}: cannot be written: {error.strerror or error}; what was recorded before is whole; "
        "make room, or name a writable folder with --out"
    )
