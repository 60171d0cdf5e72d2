"""Reads recordings of metrics and plays them as Prometheus would have stored them. Three forms:

- scrapes of /metrics, as served (``read``);
- one file of text in which every sample has its time: OpenMetrics, or the older format (``read``);
- a Prometheus data directory or snapshot, opened by a private Prometheus and never modified (``Tsdb``).

Scrapes are a folder or a .tar.gz (.tgz, .tar). One target: files ``<unix milliseconds>.prom``, each the body of a
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
import json
import math
import re
import shutil
import statistics
import tarfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from obs.errors import InputError, ServerError, ToolError
from obs.evaluate import exposition
from obs.prom.remote_write import STALE_NAN, Labels, Point, make_labels, one_line
from obs.prom.server import PrivatePrometheus

GAP = 1.5  # two scrapes further apart than this many intervals had a failed scrape between them
_SUFFIXES = (".tar.gz", ".tgz", ".tar")
_COUNTER = re.compile(r"_total$|_count$|_bucket$|^nv_inference_(request_success|count|exec_count)$|_duration_us$")
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
class Stored:
    """A series with its own times: whole labels, and (unix milliseconds, value) in order of time."""

    labels: Labels
    points: tuple[tuple[int, float], ...]

    @property
    def interval_ms(self) -> int:
        """The median distance of its samples; 0 when it has one only."""
        if len(self.points) < 2:
            return 0
        return max(1, round(statistics.median(b[0] - a[0] for a, b in itertools.pairwise(self.points))))


@dataclass(frozen=True)
class Recording:
    """A recording: its name (of its file or folder, without suffix) and targets, or series with times of their own."""

    name: str
    targets: tuple[Target, ...]
    series: tuple[Stored, ...] = ()

    @property
    def start_ms(self) -> int:
        """The first sample, unix milliseconds."""
        scrapes = [target.scrapes[0].time_ms for target in self.targets]
        return min([*scrapes, *(one.points[0][0] for one in self.series)])

    @property
    def end_ms(self) -> int:
        """The last sample, unix milliseconds."""
        scrapes = [target.scrapes[-1].time_ms for target in self.targets]
        return max([*scrapes, *(one.points[-1][0] for one in self.series)])

    @property
    def interval_ms(self) -> int:
        """The shortest scrape interval of its targets (of series with own times: the usual one), milliseconds."""
        if self.targets:
            return min(target.interval_ms for target in self.targets)
        return _usual_interval(self.series)

    @property
    def metric_names(self) -> set[str]:
        """Every metric name in it, those of the scrape itself (``up``, …) included."""
        names = {dict(one.labels)["__name__"] for one in self.series}
        names |= {sample.name for target in self.targets for scrape in target.scrapes for sample in scrape.samples}
        return names | set(SCRAPE_METRICS if self.targets else ())

    def points(self, *, end_ms: int | None = None, normalise_le: bool = False) -> Iterator[Point]:
        """What Prometheus would have stored, in order of time.

        ``end_ms``: until when to play (default: the last sample). Scrapes after it are left out; a target
        whose scrapes stop before it was down until then. ``normalise_le``: write the bounds ``le="1"`` and
        ``quantile="1"`` as ``"1.0"``, as Prometheus 3 stores them (traps.md, 68).
        """
        end = self.end_ms if end_ms is None else end_ms
        streams = [_play(target, end, normalise_le) for target in self.targets]
        usual = _usual_interval(self.series) if self.series else 0
        streams += [_play_stored(one, end, usual, normalise_le) for one in self.series]
        return heapq.merge(*streams, key=lambda point: point.time_ms)


SCRAPE_METRICS = ("up", "scrape_duration_seconds", "scrape_samples_scraped")
"""What Prometheus adds to each scrape. The duration is not in a recording: it is written as NaN, not as 0."""


def name_of(path: Path) -> str:
    """The recording's name: the file or folder name without its suffix."""
    name = path.resolve().name
    return next((name[: -len(suffix)] for suffix in _SUFFIXES if name.endswith(suffix)), name)


def read(path: Path, *, job: str = "", instance: str = "") -> Recording:
    """Read a recording of scrapes, or a file with timestamps.

    ``job`` (default: its name) and ``instance`` (default "recording:0") label a single target; a ``targets.yaml``
    has the last word on several.

    InputError when it is missing, empty, cut off or garbled, naming the file and line.
    """
    name = name_of(path)
    if path.is_dir() and is_tsdb(path):
        raise InputError(f"{path}: is a Prometheus data directory; this command needs scrapes, `obs eval` takes both")
    if path.is_file() and not _is_archive(path):
        return _read_timed(path, name, job, instance)
    files = _files(path)
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
        if any(key.name == "meta.json" for key in files):
            raise InputError(f"{path}: is a packed Prometheus data directory; unpack it and name the folder")
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
        scrapes.sort(key=lambda one: one.time_ms)
        for one, two in itertools.pairwise(scrapes):
            if one.time_ms == two.time_ms:
                raise InputError(f"{path}: two scrapes of target {folder or name!r} at {one.time_ms} ms; remove one of them")
        _unmixed(path, folder or name, scrapes)
        targets.append(Target({**default, **labels[folder]}, tuple(scrapes)))
    _distinct(path, targets)
    return Recording(name, tuple(targets))


def bodies(path: Path) -> dict[str, dict[int, bytes]]:
    """The pages of a recording of scrapes as they were served: target ("" for a single one) -> unix milliseconds -> body.

    Raises what ``read`` does: the recording is read first.
    """
    if not read(path).targets:
        raise InputError(f"{path}: holds samples with times and no pages; give a recording of scrapes")
    found: dict[str, dict[int, bytes]] = {}
    for key, body in sorted(_files(path).items()):
        if key.suffix == ".prom":
            found.setdefault(key.parts[0] if len(key.parts) > 1 else "", {})[int(key.stem)] = body
    return found


def _files(path: Path) -> dict[PurePosixPath, bytes]:
    """A recording's files by their path in it, hidden ones left out."""
    files = _folder(path) if path.is_dir() else _archive(path)
    files = {key: body for key, body in files.items() if not any(part.startswith(".") for part in key.parts)}
    root = _root(files)
    return {key.relative_to(root): body for key, body in files.items() if key.is_relative_to(root)}


class Mixture:
    """Sees when two servers' scrapes are taken for one's: the counters then fall again and again. True when they do."""

    def __init__(self) -> None:
        self.falls = self.pairs = 0
        self._last: dict[tuple[str, exposition.Pairs], float] = {}

    def add(self, samples: Sequence[exposition.Sample]) -> None:
        """The next scrape."""
        # ups and downs are what a gauge does: look at names that only a counter has
        now = {(one.name, one.labels): one.value for one in samples if _COUNTER.search(one.name)}
        common = [key for key in now if key in self._last]
        if self._last:
            self.pairs += 1
            self.falls += any(now[key] < self._last[key] for key in common) or not common
        if now:
            self._last = now

    def __bool__(self) -> bool:
        return self.pairs >= 4 and self.falls * 3 > self.pairs


def _unmixed(path: Path, target: str, scrapes: Sequence[Scrape]) -> None:
    """InputError when two servers' scrapes lie in one folder."""
    mixture = Mixture()
    for scrape in scrapes:
        mixture.add(scrape.samples)
    if mixture:
        raise InputError(
            f"{path}: the counters of target {target!r} fall at {mixture.falls} of {mixture.pairs} scrapes: scrapes of "
            "several servers are mixed; put each server's in a sub-folder of its own with a targets.yaml beside them"
        )


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


def _is_archive(path: Path) -> bool:
    """Whether a file is (meant as) an archive: by its suffix or its first bytes."""
    if path.name.endswith(_SUFFIXES):
        return True
    try:
        with path.open("rb") as file:
            return file.read(2) == b"\x1f\x8b"
    except OSError:
        return True  # _archive says what is wrong with it


def _read_timed(path: Path, name: str, job: str, instance: str) -> Recording:
    """A file of text in which every sample has its time."""
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{path}: is neither a tar archive nor UTF-8 text; name a recording") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}; check its permissions") from error
    default = {"job": job or name.split(".")[0], "instance": instance or "recording:0"}
    found: dict[Labels, list[tuple[int, float]]] = {}
    lines: dict[tuple[str, exposition.Pairs], Labels] = {}
    for sample, time_ms, line in exposition.timed(text, str(path)):
        labels = lines.get((sample.name, sample.labels))
        if labels is None:
            labels = make_labels([*{**default, **dict(sample.labels), "__name__": sample.name}.items()])
            lines[(sample.name, sample.labels)] = labels
        points = found.setdefault(labels, [])
        if points and time_ms <= points[-1][0]:
            what = "comes twice" if time_ms == points[-1][0] else "is older than the one before it"
            raise InputError(f"{path}:{line}: the sample of {sample.name} at {time_ms} ms {what}; sort the file, and keep one")
        points.append((time_ms, sample.value))
    if not found:
        raise InputError(f"{path}: holds no sample; name a file of OpenMetrics text with timestamps")
    series = [Stored(labels, tuple(points)) for labels, points in sorted(found.items())]
    if max(len(one.points) for one in series) < 2:
        raise InputError(f"{path}: no series has two samples, so nothing can be judged over time; record longer")
    return Recording(name, (), (*series, *_made_up(series)))


def _made_up(series: Sequence[Stored]) -> Iterator[Stored]:
    """``up`` 1 at the times of each target that has no ``up`` of its own, 0 in its gaps."""
    times: dict[tuple[str, str], set[int]] = {}
    usual = _usual_interval(series)
    known = set()
    for one in series:
        labels = dict(one.labels)
        key = (labels["job"], labels["instance"])
        if labels["__name__"] == "up":
            known.add(key)
        # a recorded series has the labels it was given, not those of a scrape
        elif ":" not in labels["__name__"] or "instance" in labels:
            times.setdefault(key, set()).update(at for at, _ in one.points)
    end = max(one.points[-1][0] for one in series)
    for (job, instance), at in sorted(times.items()):
        if (job, instance) in known:
            continue
        ordered = sorted(at)
        points: list[tuple[int, float]] = []
        for here, after in itertools.pairwise([*ordered, end + 1]):
            points.append((here, 1.0))
            if after - here > GAP * usual:
                points += [(down, 0.0) for down in range(here + usual, after - usual // 2, usual)]
        yield Stored(make_labels([("__name__", "up"), ("job", job), ("instance", instance)]), tuple(points))


def _usual_interval(series: Sequence[Stored]) -> int:
    """The most frequent interval of some series, milliseconds."""
    every = Counter(one.interval_ms for one in series if one.interval_ms)
    return every.most_common(1)[0][0] if every else 1000


def _play_stored(one: Stored, end_ms: int, usual: int, normalise_le: bool) -> Iterator[Point]:
    """A series' points up to ``end_ms``, with a stale marker where it goes missing."""
    labels = _normalised(one.labels) if normalise_le else one.labels
    interval = one.interval_ms or usual
    for here, after in itertools.pairwise([*one.points, (end_ms + 1, 0.0)]):
        if here[0] > end_ms:
            return
        yield Point(here[0], labels, here[1])
        if min(after[0], end_ms + 1) - here[0] > GAP * interval and here[0] + interval <= end_ms:
            yield Point(here[0] + interval, labels, STALE_NAN)


def _normalised(labels: Labels) -> Labels:
    return tuple(
        (key, f"{value}.0" if key in {"le", "quantile"} and _INTEGER.fullmatch(value) else value) for key, value in labels
    )


# --- a Prometheus data directory ----------------------------------------------------------------------


_ULID = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")


def is_tsdb(path: Path) -> bool:
    """Whether a folder is a Prometheus data directory or snapshot: it has blocks, or a write-ahead log."""
    try:
        return (path / "wal").is_dir() or any(
            _ULID.fullmatch(child.name) is not None and (child / "meta.json").is_file() for child in path.iterdir()
        )
    except OSError:
        return False


class Tsdb(PrivatePrometheus):
    """A private Prometheus on a copy of a data directory or snapshot, which stays as it is.

    The big files of blocks never change: they are linked. The write-ahead log and the small files are copied, for
    a Prometheus that opens them repairs and truncates them. ``start_ms`` and ``end_ms``: the first and last sample.
    InputError when it is damaged or empty.
    """

    def __init__(self, path: Path, *, deadline: float = 120.0) -> None:
        super().__init__(deadline=deadline)
        self.path = path
        self.start_ms = self.end_ms = 0

    def __enter__(self) -> Tsdb:
        try:
            super().__enter__()
        except ToolError as error:
            if "before it was ready" not in str(error):
                raise
            said = one_line(str(error), 400)
            raise InputError(f"{self.path}: Prometheus cannot open it: {said}; take a fresh snapshot") from error
        try:
            self.start_ms, self.end_ms = self._limits()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _start(self, binary: Path, *, last: bool) -> bool:
        assert self._folder is not None
        if not (self._folder / "data").exists():
            try:
                _copy_tsdb(self.path, self._folder / "data")
            except (OSError, shutil.Error) as error:
                why = one_line(str(getattr(error, "strerror", None) or error), 200)
                raise InputError(f"{self.path}: cannot be read: {why}; check its permissions") from error
        return super()._start(binary, last=last)

    def _limits(self) -> tuple[int, int]:
        """The first and last sample: of its blocks by their meta.json, of its head by the server's own word."""
        starts, ends = [], []
        for meta in sorted((self.path).glob("*/meta.json")):
            try:
                document = json.loads(meta.read_text(encoding="utf-8"))
                starts.append(int(document["minTime"]))
                ends.append(int(document["maxTime"]) - 1)
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise InputError(f"{meta}: is damaged ({one_line(str(error), 80)}); take a fresh snapshot") from error
        try:
            head = self.client.status_tsdb()
        except ServerError:
            head = None
        if head is not None:
            starts.append(head[0])
            ends.append(head[1])
        if not starts:
            raise InputError(f"{self.path}: holds no sample; name a data directory with blocks or a write-ahead log")
        return min(starts), max(ends)


def _copy_tsdb(source: Path, target: Path) -> None:
    target.mkdir()
    for child in sorted(source.iterdir()):
        if child.is_dir() and (_ULID.fullmatch(child.name) and (child / "meta.json").is_file()):
            (target / child.name).mkdir()
            (target / child.name / "chunks").mkdir()
            for file in [child / "index", *sorted((child / "chunks").iterdir())]:
                link = target / file.relative_to(source)
                link.symlink_to(file.resolve())
            for name in ("meta.json", "tombstones"):
                if (child / name).is_file():
                    shutil.copyfile(child / name, target / child.name / name)
        elif child.name in {"wal", "wbl", "chunks_head"} and child.is_dir():
            shutil.copytree(child, target / child.name, copy_function=shutil.copyfile)


def _store(name: str, pairs: exposition.Pairs, extra: Mapping[str, str], normalise_le: bool) -> Labels:
    labels = {"__name__": name, **extra}
    for key, value in pairs:
        while key in extra:
            key = f"exported_{key}"
        if normalise_le and key in {"le", "quantile"} and _INTEGER.fullmatch(value):
            value = f"{value}.0"
        labels[key] = value
    return make_labels(labels.items())
