"""Recordings are read whole or not at all, and played as a scraper would have stored them."""

from __future__ import annotations

import gzip
import io
import math
import tarfile
from pathlib import Path

import pytest

from obs.errors import InputError
from obs.evaluate import recording
from obs.prom.remote_write import Point, is_stale

RECORDINGS = Path(__file__).parent.parent / "data" / "recordings"
T0 = 1_796_022_960_000


def folder(path: Path, bodies: dict[int, str]) -> Path:
    """A recording with a body at each second after T0."""
    path.mkdir(parents=True, exist_ok=True)
    for second, body in bodies.items():
        (path / f"{T0 + second * 1000}.prom").write_text(body)
    return path


def seen(points: list[Point], name: str, **labels: str) -> list[tuple[float, float | str]]:
    """(second, value) of a series; a stale marker as "stale"."""
    return [
        ((time_ms - T0) / 1000, "stale" if is_stale(value) else value)
        for time_ms, pairs, value in points
        if dict(pairs)["__name__"] == name and labels.items() <= dict(pairs).items()
    ]


def test_the_two_real_ones() -> None:
    triton = recording.read(RECORDINGS / "triton-2.51-incident.tar.gz")
    assert (triton.name, triton.interval_ms, len(triton.targets[0].scrapes)) == ("triton-2.51-incident", 5000, 115)
    assert triton.targets[0].labels == {"job": "triton-2.51-incident", "instance": "recording:0"}
    ups = [point.value for point in triton.points() if dict(point.labels)["__name__"] == "up"]
    assert (ups.count(1.0), ups.count(0.0)) == (115, 5)  # the README: five failed scrapes
    vllm = recording.read(RECORDINGS / "vllm-0.32-incident.tar.gz", job="vllm", instance="a:8000")
    assert vllm.targets[0].labels == {"job": "vllm", "instance": "a:8000"}
    ups = [point.value for point in vllm.points(end_ms=vllm.end_ms + 35_000) if dict(point.labels)["__name__"] == "up"]
    assert (ups.count(1.0), ups.count(0.0)) == (89, 7)


def test_points_are_in_order_of_time() -> None:
    times = [point.time_ms for point in recording.read(RECORDINGS / "triton-2.51-incident.tar.gz").points()]
    assert times == sorted(times)


def test_a_series_that_vanishes_ends_once(tmp_path: Path) -> None:
    path = folder(tmp_path / "r", {0: "x 1\ny 1\n", 5: "x 2\n", 10: "x 3\n", 15: "x 4\ny 9\n"})
    points = list(recording.read(path).points())
    assert seen(points, "y") == [(0, 1.0), (5, "stale"), (15, 9.0)]
    assert seen(points, "x") == [(0, 1.0), (5, 2.0), (10, 3.0), (15, 4.0)]
    assert seen(points, "up") == [(0, 1.0), (5, 1.0), (10, 1.0), (15, 1.0)]
    assert seen(points, "scrape_samples_scraped") == [(0, 2.0), (5, 1.0), (10, 1.0), (15, 2.0)]
    assert all(math.isnan(float(value)) for _, value in seen(points, "scrape_duration_seconds"))


def test_a_gap_is_a_server_that_was_down(tmp_path: Path) -> None:
    path = folder(tmp_path / "r", dict.fromkeys((0, 5, 10, 25, 30, 35, 42), "x 1\n"))
    points = list(recording.read(path).points())
    assert seen(points, "up") == [(0, 1), (5, 1), (10, 1), (15, 0), (20, 0), (25, 1), (30, 1), (35, 1), (42, 1)]
    assert seen(points, "x")[2:5] == [(10, 1.0), (15, "stale"), (25, 1.0)]
    assert (42, 1.0) in seen(points, "x")  # 7 s late is no gap: 1.5 intervals are


def test_down_at_the_end(tmp_path: Path) -> None:
    one = recording.read(folder(tmp_path / "r", {0: "x 1\n", 5: "x 2\n"}))
    assert seen(list(one.points()), "up") == [(0, 1), (5, 1)]
    longer = list(one.points(end_ms=T0 + 15_000))
    assert seen(longer, "up") == [(0, 1), (5, 1), (10, 0), (15, 0)]
    assert seen(longer, "x") == [(0, 1.0), (5, 2.0), (10, "stale")]
    assert seen(list(one.points(end_ms=T0 + 4_000)), "up") == [(0, 1)]


def test_labels_as_prometheus_stores_them(tmp_path: Path) -> None:
    body = 'x{job="mine",instance="",a=""} 1\nx{job="mine"} 7\nz_bucket{le="1"} 2\nq{quantile="1",n="1"} 3\n'
    one = recording.read(folder(tmp_path / "r", {0: body, 5: body}), job="j")
    stored = {dict(point.labels)["__name__"]: dict(point.labels) for point in one.points()}
    assert stored["x"] == {"__name__": "x", "exported_job": "mine", "job": "j", "instance": "recording:0"}
    assert stored["z_bucket"]["le"] == "1"
    assert seen(list(one.points()), "x") == [(0, 1.0), (5, 1.0)]  # the first of two equal series counts
    version3 = {dict(point.labels)["__name__"]: dict(point.labels) for point in one.points(normalise_le=True)}
    assert version3["z_bucket"]["le"] == "1.0"
    assert (version3["q"]["quantile"], version3["q"]["n"]) == ("1.0", "1")


def test_several_targets(tmp_path: Path) -> None:
    folder(tmp_path / "r" / "a", {0: "x 1\n", 5: "x 1\n", 10: "x 1\n"})
    folder(tmp_path / "r" / "b", {0: "x 2\n", 5: "x 2\n"})
    (tmp_path / "r" / "targets.yaml").write_text('a: {job: t, instance: "a:1"}\nb: {job: t, zone: z}\n')
    one = recording.read(tmp_path / "r")
    assert [target.labels for target in one.targets] == [
        {"job": "t", "instance": "a:1"},
        {"job": "t", "instance": "b:0", "zone": "z"},
    ]
    points = list(one.points())
    assert seen(points, "up", instance="a:1") == [(0, 1), (5, 1), (10, 1)]
    assert seen(points, "up", instance="b:0") == [(0, 1), (5, 1), (10, 0)]  # a's files prove that b's is missing
    assert [point.time_ms for point in points] == sorted(point.time_ms for point in points)


def test_folder_and_archive_are_the_same(tmp_path: Path) -> None:
    path = folder(tmp_path / "r", {0: "x 1\n", 5: "x 2\n"})
    with tarfile.open(tmp_path / "r.tar.gz", "w:gz") as archive:
        archive.add(path, "some-other-name")
    assert recording.read(tmp_path / "r.tar.gz") == recording.read(path)


def refused(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        recording.read(path)
    said = str(caught.value)
    assert "\n" not in said
    assert said.startswith(str(path))
    assert "; " in said  # a mend
    return said


@pytest.mark.parametrize("part", [0.1, 0.5, 0.99, 0.9999])
def test_cut_off_archive(tmp_path: Path, part: float) -> None:
    body = (RECORDINGS / "triton-2.51-incident.tar.gz").read_bytes()
    (tmp_path / "r.tar.gz").write_bytes(body[: int(len(body) * part)])
    assert "is cut off or no tar archive" in refused(tmp_path / "r.tar.gz")


def test_archive_cut_off_before_it_was_packed(tmp_path: Path) -> None:
    body = gzip.decompress((RECORDINGS / "triton-2.51-incident.tar.gz").read_bytes())
    for size in (100_000, 100_352):  # within a member's body; at a boundary of 512
        (tmp_path / "r.tar.gz").write_bytes(gzip.compress(body[:size]))
        assert "is cut off" in refused(tmp_path / "r.tar.gz")


def test_damaged_and_other_files(tmp_path: Path) -> None:
    body = bytearray((RECORDINGS / "triton-2.51-incident.tar.gz").read_bytes())
    body[len(body) // 2] ^= 0xFF
    (tmp_path / "bad.tar.gz").write_bytes(body)
    assert "is cut off or no tar archive" in refused(tmp_path / "bad.tar.gz")
    (tmp_path / "text.tar.gz").write_text("hello")
    assert "no tar archive" in refused(tmp_path / "text.tar.gz")
    assert "cannot be read: No such file" in refused(tmp_path / "none.tar.gz")


def test_archive_with_nothing_to_scrape(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "r.tar.gz", "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("readme"), io.BytesIO())
    assert "holds no scrape" in refused(tmp_path / "r.tar.gz")


def test_garbled_folders(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "holds no scrape" in refused(tmp_path / "empty")
    assert "one scrape only" in refused(folder(tmp_path / "single", {0: "x 1\n"}))
    path = folder(tmp_path / "name", {0: "x 1\n", 5: "x 1\n"})
    (path / "noon.prom").write_text("x 1\n")
    assert "noon.prom: its name is no unix time in milliseconds" in refused(path)
    assert f"{T0 + 5000}.prom:2: not a metric line" in refused(folder(tmp_path / "line", {0: "x 1\n", 5: "x 1\n?\n"}))
    assert f"{T0}.prom: is empty" in refused(folder(tmp_path / "void", {0: "", 5: "x 1\n"}))
    path = folder(tmp_path / "bytes", {0: "x 1\n", 5: "x 1\n"})
    (path / f"{T0}.prom").write_bytes(b'x 1\ny{a="\xff"} 1\n')
    assert f"{T0}.prom:2: is not UTF-8" in refused(path)


def test_garbled_targets(tmp_path: Path) -> None:
    for name in "ab":
        folder(tmp_path / "r" / name, {0: "x 1\n", 5: "x 1\n"})
    assert "out of place" in refused(tmp_path / "r")
    targets = tmp_path / "r" / "targets.yaml"
    targets.write_text("a: {job: t}\n")
    assert "target 'b' is missing in targets.yaml" in refused(tmp_path / "r")
    targets.write_text("a: {job: t}\nb: {job: t}\nc: {job: t}\n")
    assert "target 'c' is in targets.yaml but has no scrapes" in refused(tmp_path / "r")
    targets.write_text("a: {job: t, instance: i}\nb: {job: t, instance: i}\n")
    assert "two targets have the same labels" in refused(tmp_path / "r")
    targets.write_text("[a, b]\n")
    assert "does not map sub-folders to labels" in refused(tmp_path / "r")
    targets.write_text("a: {\n")
    assert "is no YAML" in refused(tmp_path / "r")
