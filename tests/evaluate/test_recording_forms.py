"""The other forms of a recording: text with timestamps, and a Prometheus data directory that stays as it is."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from obs.errors import InputError
from obs.evaluate import recording
from obs.evaluate.live import evaluate_recording
from obs.evaluate.rules import Rule
from obs.prom import tools
from obs.prom.remote_write import Point, is_stale, make_labels
from obs.prom.server import PrivatePrometheus

T0 = 1_796_022_960


def openmetrics(path: Path, rows: list[tuple[str, float, float]], end: str = "# EOF\n") -> Path:
    """Rows of (series, second after T0, value), sorted by series as OpenMetrics wants them."""
    lines = [f"{name} {value} {T0 + at}" for name, at, value in rows]
    path.write_text("# TYPE x gauge\n" + "\n".join(lines) + f"\n{end}")
    return path


def seen(points: list[Point], name: str) -> list[tuple[float, float | str]]:
    return [
        (point.time_ms / 1000 - T0, "stale" if is_stale(point.value) else point.value)
        for point in points
        if dict(point.labels)["__name__"] == name
    ]


def every(name: str, seconds: range, value: float = 1.0) -> list[tuple[str, float, float]]:
    return [(name, at, value) for at in seconds]


def test_openmetrics_with_timestamps(tmp_path: Path) -> None:
    path = openmetrics(
        tmp_path / "one.om",
        [*every('x{instance="a:1",job="t"}', range(0, 61, 15)), *every('y{instance="a:1",job="t"}', range(0, 31, 15), 2.0)],
    )
    one = recording.read(path)
    assert (one.start_ms, one.end_ms, one.interval_ms) == (T0 * 1000, (T0 + 60) * 1000, 15_000)
    assert one.metric_names == {"x", "y", "up"}
    points = list(one.points())
    assert [point.time_ms for point in points] == sorted(point.time_ms for point in points)
    assert seen(points, "y") == [(0, 2.0), (15, 2.0), (30, 2.0), (45, "stale")]
    assert seen(points, "up") == [(0, 1), (15, 1), (30, 1), (45, 1), (60, 1)]
    assert dict(points[0].labels)["job"] == "t"


def test_a_gap_is_a_target_that_was_down(tmp_path: Path) -> None:
    path = openmetrics(tmp_path / "gap.om", every("x", range(0, 31, 15)) + every("x", range(90, 121, 15)))
    points = list(recording.read(path, job="j").points())
    assert seen(points, "x") == [(0, 1), (15, 1), (30, 1), (45, "stale"), (90, 1), (105, 1), (120, 1)]
    assert seen(points, "up") == [(0, 1), (15, 1), (30, 1), (45, 0), (60, 0), (75, 0), (90, 1), (105, 1), (120, 1)]
    assert {dict(point.labels)["job"] for point in points} == {"j"}
    later = list(recording.read(path).points(end_ms=(T0 + 150) * 1000))
    assert seen(later, "x")[-1] == (135, "stale")


def test_its_own_up_stays_and_names_too(tmp_path: Path) -> None:
    path = openmetrics(
        tmp_path / "up.om",
        [*every('nv_inference_request_success{instance="a",job="t"}', range(0, 31, 15)),
         ('up{instance="a",job="t"}', 0, 1), ('up{instance="a",job="t"}', 15, 0), ('up{instance="a",job="t"}', 30, 1)],
    )
    points = list(recording.read(path).points())
    assert seen(points, "up") == [(0, 1), (15, 0), (30, 1)]
    assert len(seen(points, "nv_inference_request_success")) == 3


def test_text_with_milliseconds(tmp_path: Path) -> None:
    path = tmp_path / "old.prom"
    path.write_text("".join(f"x {at} {(T0 + at) * 1000}\n" for at in range(0, 60, 15)))
    assert seen(list(recording.read(path).points()), "x") == [(0, 0), (15, 15), (30, 30), (45, 45)]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("x 1 1796022960\nx 2 1796022975\n", "it was cut off"),
        ("x 1 1796022960\nx 2 17960229", "it was cut off"),
        ("x 1\ny 2\n# EOF\n", "no timestamp"),
        ("x 2 1796022975\nx 1 1796022960\n# EOF\n", "is older than the one before it; sort the file"),
        ("x 2 1796022975\nx 1 1796022975\n# EOF\n", "comes twice"),
        ("x 2 1796022975\n# EOF\nx 1 1796022990\n# EOF\n", "text follows # EOF"),
        ("x 2 1796022975\n# EOF\n", "no series has two samples"),
        ("# EOF\n", "holds no sample"),
        ("", "holds no sample"),
        ("{ 2 1796022975\n# EOF\n", "not a metric line"),
    ],
)
def test_bad_text_is_one_line(tmp_path: Path, body: str, says: str) -> None:
    path = tmp_path / "bad.om"
    path.write_text(body)
    with pytest.raises(InputError) as caught:
        recording.read(path)
    assert says in str(caught.value)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "x.om").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="neither a tar archive nor UTF-8 text"):
        recording.read(tmp_path / "x.om")


def scrapes(path: Path, bodies: list[str]) -> Path:
    path.mkdir()
    for number, body in enumerate(bodies):
        (path / f"{(T0 + number * 5) * 1000}.prom").write_text(body)
    return path


def test_mixed_targets_are_refused(tmp_path: Path) -> None:
    mixed = [f"a_total {100 + n}\n" if n % 2 else f"a_total {n}\n" for n in range(8)]
    with pytest.raises(InputError, match="scrapes of several servers are mixed"):
        recording.read(scrapes(tmp_path / "replicas", mixed))
    with pytest.raises(InputError, match="mixed"):
        recording.read(scrapes(tmp_path / "engines", ["a_total 1\n", "b_total 1\n"] * 4))
    recording.read(scrapes(tmp_path / "restart", [f"a_total {n % 5}\n" for n in range(10)]))  # a reset is no mixture


def test_duplicated_scrapes_are_refused(tmp_path: Path) -> None:
    path = scrapes(tmp_path / "r", ["x 1\n", "x 2\n"])
    (path / f"0{T0 * 1000}.prom").write_text("x 1\n")
    with pytest.raises(InputError, match=f"two scrapes of target 'r' at {T0 * 1000} ms"):
        recording.read(path)


# --- a Prometheus data directory -------------------------------------------------------------------------------


def state(path: Path) -> dict[str, tuple[str, int]]:
    """Every file with its content and time of change."""
    return {
        str(file.relative_to(path)): (hashlib.sha256(file.read_bytes()).hexdigest(), file.stat().st_mtime_ns)
        for file in sorted(path.rglob("*")) if file.is_file()
    }


RULES = [
    Rule("record", "j:x:max", "max by (job) (x)"),
    Rule("alert", "High", "x > 5", hold_ms=60_000),
    Rule("alert", "Recorded", "j:x:max > 5"),
    Rule("alert", "Gone", "y > 0"),
    Rule("alert", "Quiet", "x > 50"),
]


def blocks(tmp_path: Path) -> Path:
    rows = [*every('x{instance="a",job="t"}', range(0, 1801, 15), 9.0), *every('y{instance="a",job="t"}', range(0, 601, 15))]
    text = openmetrics(tmp_path / "data.om", rows)
    tools.run([tools.find("promtool"), "tsdb", "create-blocks-from", "openmetrics", text, tmp_path / "data"])
    return tmp_path / "data"


@pytest.mark.prometheus
def test_a_snapshot_is_judged_and_not_modified(tmp_path: Path) -> None:
    path = blocks(tmp_path)
    before = state(path)
    assert before
    found = evaluate_recording(path, RULES)
    assert state(path) == before
    assert found.at == T0 + 1800
    by_name = {one.alert: one for one in found.results}
    assert {name: one.state for name, one in by_name.items()} == {
        "High": "firing", "Recorded": "firing", "Gone": "no data", "Quiet": "ok",
    }
    assert by_name["Gone"].reason == "vanished"
    assert by_name["Recorded"].in_place == ("j:x:max",)
    earlier = evaluate_recording(path, RULES, at=lambda end: (T0 + 300) * 1000)
    assert {one.alert: one.state for one in earlier.results}["Gone"] == "firing"
    with pytest.raises(InputError, match="before its first sample"):
        evaluate_recording(path, RULES, at=lambda end: 1000)


@pytest.mark.prometheus
def test_a_data_directory_with_a_write_ahead_log(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with PrivatePrometheus() as server:
        labels = make_labels([("__name__", "x"), ("job", "t"), ("instance", "a")])
        server.writer.write(Point((T0 + at) * 1000, labels, 9.0) for at in range(0, 901, 15))
        assert server._folder is not None
        shutil.copytree(server._folder / "data", path)  # as a running server has it
    before = state(path)
    found = evaluate_recording(path, RULES)
    assert state(path) == before
    assert found.at == T0 + 900
    assert {one.alert: one.state for one in found.results}["High"] == "firing"


@pytest.mark.prometheus
def test_damaged_and_empty_data_directories(tmp_path: Path) -> None:
    (tmp_path / "empty" / "wal").mkdir(parents=True)
    with pytest.raises(InputError, match="holds no sample"):
        evaluate_recording(tmp_path / "empty", RULES)
    path = blocks(tmp_path)
    (index,) = path.glob("*/index")
    index.write_bytes(index.read_bytes()[:100])
    with pytest.raises(InputError) as caught:
        evaluate_recording(path, RULES)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)
    (meta,) = path.glob("*/meta.json")
    meta.write_text("{")
    with pytest.raises(InputError, match=r"meta\.json|cannot open"):
        evaluate_recording(path, RULES)


def test_replay_refuses_what_it_cannot_play(tmp_path: Path) -> None:
    (tmp_path / "wal").mkdir()
    with pytest.raises(InputError, match="is a Prometheus data directory"):
        recording.read(tmp_path)
