"""Reads recordings of /metrics and plays them as Prometheus would have stored them.

A recording is a folder or a .tar.gz (.tgz, .tar). One target: files ``<unix milliseconds>.prom``, each the body of a
scrape as served. Several targets: one sub-folder each and a ``targets.yaml`` that maps the sub-folder's name
to its labels (``replica-a: {job: triton, instance: "a:8002"}``). A scrape that failed has no file.

Playing follows Prometheus's scrape loop (scrape/scrape.go): the target's labels are added, a label of the
same name in the body becomes ``exported_…``, an empty label goes, the first of two equal series counts; a
series that the next scrape lacks ends with a stale marker; a scrape that failed ends all the target's series
and writes ``up`` 0.
"""

from __future__ import annotations

import gzip
import heapq
import io
import itertools
import math
import re
import statistics
import tarfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from obs.errors import InputError
from obs.evaluate import exposition
from obs.prom.remote_write import STALE_NAN, Labels, Point, make_labels

GAP = 1.5  # two scrapes further apart than this many intervals had a failed scrape between them
_SUFFIXES = (".tar.gz", ".tgz", ".tar")
_INTEGER = re.compile(r"[+-]?\d+")


@dataclass(frozen=True)
class Scrape:
    """One scrape that succeeded: unix milliseconds and its samples as served."""

    time_ms: int
    samples: tuple[exposition.Sample, ...]


@dataclass(frozen=True)
class Target:
    """One scraped target: its labels (``job`` and ``instance`` among them) and scrapes in order of time."""

    labels: Mapping[str, str]
    scrapes: tuple[Scrape, ...]

    @property
    def interval_ms(self) -> int:
        """The scrape interval in milliseconds: the median distance of its scrapes, to the nearest 100 ms."""
        times = [scrape.time_ms for scrape in self.scrapes]
        median = statistics.median(b - a for a, b in itertools.pairwise(times))
        return max(1, round(median / 100) * 100 or round(median))


@dataclass(frozen=True)
class Recording:
    """A recording: its name (of its file or folder, without suffix) and targets."""

    name: str
    targets: tuple[Target, ...]

    @property
    def start_ms(self) -> int:
        """The first scrape, unix milliseconds."""
        return min(target.scrapes[0].time_ms for target in self.targets)

    @property
    def end_ms(self) -> int:
        """The last scrape, unix milliseconds."""
        return max(target.scrapes[-1].time_ms for target in self.targets)

    @property
    def interval_ms(self) -> int:
        """The shortest scrape interval of its targets, milliseconds."""
        return min(target.interval_ms for target in self.targets)

    @property
    def metric_names(self) -> set[str]:
        """Every metric name in it, those of the scrape itself (``up``, …) included."""
        served = {sample.name for target in self.targets for scrape in target.scrapes for sample in scrape.samples}
        return served | set(SCRAPE_METRICS)

    def points(self, *, end_ms: int | None = None, normalise_le: bool = False) -> Iterator[Point]:
        """What Prometheus would have stored, in order of time.

        ``end_ms``: until when to play (default: the last scrape). Scrapes after it are left out; a target
        whose scrapes stop before it was down until then. ``normalise_le``: write the bounds ``le="1"`` and
        ``quantile="1"`` as ``"1.0"``, as Prometheus 3 stores them (traps.md, 68).
        """
        end = self.end_ms if end_ms is None else end_ms
        streams = [_play(target, end, normalise_le) for target in self.targets]
        return heapq.merge(*streams, key=lambda point: point.time_ms)


SCRAPE_METRICS = ("up", "scrape_duration_seconds", "scrape_samples_scraped")
"""What Prometheus adds to each scrape. The duration is not in a recording: it is written as NaN, not as 0."""


def name_of(path: Path) -> str:
    """The recording's name: the file or folder name without its suffix."""
    name = path.resolve().name
    return next((name[: -len(suffix)] for suffix in _SUFFIXES if name.endswith(suffix)), name)


def read(path: Path, *, job: str = "", instance: str = "") -> Recording:
    """Read a recording. ``job`` (default: its name) and ``instance`` (default "recording:0") label a single
    target; a ``targets.yaml`` has the last word on several.

    InputError when it is missing, empty, cut off or garbled, naming the file and line.
    """
    name = name_of(path)
    files = _folder(path) if path.is_dir() else _archive(path)
    files = {key: body for key, body in files.items() if not any(part.startswith(".") for part in key.parts)}
    root = _root(files)
    files = {key.relative_to(root): body for key, body in files.items() if key.is_relative_to(root)}
    labels = _targets_yaml(path, files)
    by_folder: dict[str, list[Scrape]] = {}
    heads: exposition.Heads = {}
    for key, body in sorted(files.items()):
        if key.suffix != ".prom":
            continue
        if len(key.parts) > 2 or (labels is None) != (len(key.parts) == 1):
            raise InputError(
                f"{path}: {key} is out of place; put scrapes of one target side by side, or of several targets "
                "in a sub-folder each with a targets.yaml beside them"
            )
        folder = key.parts[0] if labels is not None else ""
        by_folder.setdefault(folder, []).append(_scrape(f"{path}/{key}", key, body, heads))
    if not by_folder:
        raise InputError(f"{path}: holds no scrape; a recording is files named <unix milliseconds>.prom")
    if labels is None:
        labels = {"": {}}
    for folder in sorted(by_folder.keys() ^ labels.keys()):
        where = "is in targets.yaml but has no scrapes" if folder in labels else "is missing in targets.yaml"
        raise InputError(f"{path}: target {folder!r} {where}; make the two agree")
    targets = []
    for folder, scrapes in sorted(by_folder.items()):
        if len(scrapes) < 2:
            raise InputError(f"{path}: target {folder or name!r} has one scrape only; an interval needs two or more")
        default = {"job": job or name, "instance": instance or f"{folder or 'recording'}:0"}
        targets.append(Target({**default, **labels[folder]}, tuple(sorted(scrapes, key=lambda one: one.time_ms))))
    _distinct(path, targets)
    return Recording(name, tuple(targets))


def _distinct(path: Path, targets: Sequence[Target]) -> None:
    seen = set()
    for target in targets:
        key = tuple(sorted(target.labels.items()))
        if key in seen:
            raise InputError(f"{path}: two targets have the same labels {dict(key)}; give each its own instance")
        seen.add(key)


def _scrape(where: str, key: PurePosixPath, body: bytes, heads: exposition.Heads) -> Scrape:
    if not re.fullmatch(r"\d{11,14}", key.stem):
        raise InputError(f"{where}: its name is no unix time in milliseconds; name it like 1796022962344.prom")
    if not body.strip():
        raise InputError(f"{where}: is empty; a failed scrape has no file: remove it")
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        line = body[: error.start].count(b"\n") + 1
        raise InputError(f"{where}:{line}: is not UTF-8 text; record it again or remove the file") from error
    return Scrape(int(key.stem), tuple(exposition.parse(text, where, heads).samples))


def _folder(path: Path) -> dict[PurePosixPath, bytes]:
    files: dict[PurePosixPath, bytes] = {}
    try:
        for file in sorted(path.rglob("*")):
            if file.is_file() and (file.suffix == ".prom" or file.name == "targets.yaml"):
                files[PurePosixPath(file.relative_to(path).as_posix())] = file.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}; check its permissions") from error
    return files


def _archive(path: Path) -> dict[PurePosixPath, bytes]:
    try:
        body = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}; name a folder or a .tar.gz") from error
    files: dict[PurePosixPath, bytes] = {}
    try:
        if body[:2] == b"\x1f\x8b":
            body = gzip.decompress(body)  # whole: tarfile itself takes a cut-off archive for a short one
        with tarfile.open(fileobj=io.BytesIO(body)) as archive:
            for member in archive:
                file = archive.extractfile(member) if member.isfile() else None
                if file is not None:
                    files[PurePosixPath(member.name)] = file.read()
    except (EOFError, gzip.BadGzipFile, zlib.error, tarfile.TarError, OSError) as error:
        raise InputError(
            f"{path}: is cut off or no tar archive ({str(error).splitlines()[0] if str(error) else 'damaged'}); "
            "copy it again"
        ) from error
    return files


def _root(files: Mapping[PurePosixPath, bytes]) -> PurePosixPath:
    """The folder that holds the scrapes or targets.yaml: an archive has usually one folder at its top."""
    for key in files:
        if key.name == "targets.yaml":
            return key.parent
    parents = {key.parent for key in files if key.suffix == ".prom"}
    return parents.pop() if len(parents) == 1 else PurePosixPath(".")


def _targets_yaml(path: Path, files: Mapping[PurePosixPath, bytes]) -> dict[str, dict[str, str]] | None:
    body = files.get(PurePosixPath("targets.yaml"))
    if body is None:
        return None
    import yaml

    where = f"{path}/targets.yaml"
    try:
        document: Any = yaml.safe_load(body)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{where}: is no YAML: {' '.join(str(error).split())}; mend its syntax") from error
    if not isinstance(document, dict) or not all(isinstance(labels, dict) for labels in document.values()):
        raise InputError(
            f'{where}: does not map sub-folders to labels; write lines like a: {{job: triton, instance: "a:8002"}}'
        )
    return {str(folder): {str(key): str(value) for key, value in labels.items()} for folder, labels in document.items()}


def _play(target: Target, end_ms: int, normalise_le: bool) -> Iterator[Point]:
    """One target's points up to ``end_ms``, in order of time."""
    extra = tuple(sorted(target.labels.items()))
    interval = target.interval_ms
    stored: dict[tuple[str, exposition.Pairs], Labels] = {}
    reports = {name: make_labels([("__name__", name), *extra]) for name in SCRAPE_METRICS}
    alive: dict[Labels, None] = {}

    def report(at: int, up: int, count: int) -> Iterator[Point]:
        for name, value in zip(SCRAPE_METRICS, (up, math.nan, count), strict=True):
            yield Point(at, reports[name], float(value))

    def failed(after: int, before: int) -> Iterator[Point]:
        at = after + interval
        while at <= before:
            for labels in alive:
                yield Point(at, labels, STALE_NAN)
            alive.clear()
            yield from report(at, 0, 0)
            at += interval

    last: int | None = None
    for scrape in target.scrapes:
        if scrape.time_ms > end_ms:
            break
        if last is not None and scrape.time_ms - last > GAP * interval:
            yield from failed(last, scrape.time_ms - interval // 2)
        last = scrape.time_ms
        now: dict[Labels, None] = {}
        for name, pairs, value in scrape.samples:
            labels = stored.get((name, pairs))
            if labels is None:
                labels = stored[(name, pairs)] = _store(name, pairs, target.labels, normalise_le)
            if labels not in now:
                now[labels] = None
                yield Point(scrape.time_ms, labels, value)
        for labels in alive:
            if labels not in now:
                yield Point(scrape.time_ms, labels, STALE_NAN)
        alive = now
        yield from report(scrape.time_ms, 1, len(scrape.samples))
    if last is not None:
        yield from failed(last, end_ms)


def _store(name: str, pairs: exposition.Pairs, extra: Mapping[str, str], normalise_le: bool) -> Labels:
    labels = {"__name__": name, **extra}
    for key, value in pairs:
        while key in extra:
            key = f"exported_{key}"
        if normalise_le and key in {"le", "quantile"} and _INTEGER.fullmatch(value):
            value = f"{value}.0"
        labels[key] = value
    return make_labels(labels.items())
