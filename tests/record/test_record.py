"""`obs record`: the files, what a failed scrape becomes, rotation, packing, Ctrl-C and bad input, over real HTTP."""

from __future__ import annotations

import itertools
import os
import queue
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from obs.alerts.registry import all_groups
from obs.cli import main as cli
from obs.cli.record import _bytes
from obs.config import load_config
from obs.errors import InputError
from obs.evaluate import recording
from obs.evaluate.record import store as files
from obs.evaluate.record.capture import Captured, Inbox, capture
from obs.evaluate.record.page import checked
from obs.evaluate.record.scrub import Scrubber
from obs.evaluate.record.source import Source, arrange, parse
from obs.evaluate.record.store import Store, pack
from obs.evaluate.replay import replay
from obs.evaluate.rules import from_groups
from obs.sidecar.scrape import REASONS, Fetcher, Page, ScrapeFailed, Target
from tests.sidecar.engine import recording as pages_of
from tests.waiting import eventually

from .world import START, FastClock, Server, record

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data" / "recordings"
PAGE = b'# TYPE up_time gauge\nup_time{pod="a",model="m"} 1\n'


def series(number: int, *, model: str = "m") -> bytes:
    return f'x_total{{pod="a",model="{model}"}} {number}\n'.encode()


def ups(one: recording.Recording, folder_instance: str, **rest: int) -> list[int]:
    found = []
    for point in one.points(**rest):
        labels = dict(point.labels)
        if labels["__name__"] == "up" and labels["instance"] == folder_instance:
            found.append(int(point.value))
    return found


@pytest.fixture(scope="module")
def incident() -> list[bytes | None]:
    """The bundled Triton incident, round by round; None where the server was down."""
    scrapes = pages_of("triton-2.51-incident")
    rounds = {round((at - scrapes[0][0]) / 5): body for at, body in scrapes}
    return [rounds.get(number) for number in range(max(rounds) + 1)]


def test_a_recorded_incident_replays_like_the_original(tmp_path: Path, incident: list[bytes | None]) -> None:
    with Server(incident) as server:
        done, _ = record(tmp_path / "again", [server.url], len(incident))
    assert done.tallies[0].failures == {"http_status": 5}
    again = recording.read(pack(tmp_path / "again"), job="j")
    target = recording.read(DATA / "triton-2.51-incident.tar.gz").targets[0]
    rounds = [number for number, body in enumerate(incident) if body is not None]
    # the original's scrapes are some milliseconds off the grid, which moves what a range just holds
    pairs = zip(rounds, target.scrapes, strict=True)
    scrapes = [replace(one, time_ms=round((START + 5 * number) * 1000)) for number, one in pairs]
    original = recording.Recording("again", (recording.Target({"job": "j", "instance": "t0:8002"}, tuple(scrapes)),))
    rules = from_groups(all_groups(load_config(DATA / "triton.obs.yaml")))
    assert list(map(str, again.points())) == list(map(str, original.points()))  # as text: NaN is no equal of NaN
    fired = {one.alert for one in replay(again, rules, interval_ms=5000).instances}
    assert {"InferenceTargetDown", "InferenceQueueTimeHigh", "InferenceModelVanished", "InferenceTrafficDrop"} <= fired


def test_files_are_the_bytes_served_at_even_times(tmp_path: Path, incident: list[bytes | None]) -> None:
    bodies = incident[:4]
    with Server(bodies) as server:
        record(tmp_path / "r", [server.url], 4)
    found = sorted((tmp_path / "r" / "t0-8002").iterdir())
    assert [one.read_bytes() for one in found] == bodies
    assert [int(one.stem) for one in found] == [round((START + 5 * number) * 1000) for number in range(4)]
    assert yaml.safe_load((tmp_path / "r" / "targets.yaml").read_text()) == {"t0-8002": {"instance": "t0:8002"}}


def test_a_failed_scrape_is_a_gap_and_reads_as_down(tmp_path: Path) -> None:
    first = [series(n) for n in range(10)]
    second: list[bytes | None] = [series(n) for n in range(10)]
    second[4], second[5], second[8] = None, b"<html>busy</html>", b'x_total{pod="a" 1\n'
    with Server(first) as one, Server(second) as two:
        done, _ = record(tmp_path / "r", [one.url, two.url], 10)
    assert done.tallies[1].failures == {"http_status": 1, "html": 1, "garbled": 1}
    read = recording.read(tmp_path / "r")
    assert ups(read, "t0:8002") == [1] * 10
    assert ups(read, "t1:8002") == [1, 1, 1, 1, 0, 0, 1, 1, 0, 1]


def test_a_target_that_dies_is_down_until_the_end(tmp_path: Path) -> None:
    with Server([series(n) for n in range(8)]) as one, Server([series(1), series(2), series(3), None]) as two:
        record(tmp_path / "r", [one.url, two.url], 8)
    assert ups(recording.read(tmp_path / "r"), "t1:8002") == [1, 1, 1, 0, 0, 0, 0, 0]


def test_a_target_with_one_scrape_or_none_leaves_the_recording_readable(tmp_path: Path) -> None:
    with Server([series(n) for n in range(5)]) as one, Server([None, series(1), None]) as two, Server([None]) as three:
        _, store = record(tmp_path / "r", [one.url, two.url, three.url], 5)
    assert {target.labels["instance"] for target in recording.read(tmp_path / "r").targets} == {"t0:8002"}
    assert store.times("t1-8002") == store.times("t2-8002") == ()
    assert sorted(path.name for path in (tmp_path / "r").iterdir()) == ["t0-8002", "targets.yaml"]


def test_at_every_moment_the_folder_is_readable_or_has_nothing(tmp_path: Path) -> None:
    """As after a kill -9 at the end of any round, and with what an interrupted write leaves."""
    out = tmp_path / "r"
    sources = [Source(Target(f"http://h{n}/"), {"instance": f"h{n}"}, f"h{n}") for n in range(2)]
    store = Store(out, sources)
    (out / ".h0" / ".abc.part").write_bytes(b"half a li")
    seen = []
    for number in range(5):
        store.add(1_796_022_962_000 + number * 5000, {"h0": series(number)} | ({"h1": series(number)} if number > 1 else {}))
        try:
            seen.append([len(target.scrapes) for target in recording.read(out).targets])
        except InputError as error:
            assert "holds no scrape" in str(error)  # noqa: PT017
            seen.append([])
    assert seen == [[], [2], [3], [4, 2], [5, 3]]


@pytest.mark.parametrize(("keep_ms", "keep_bytes"), [(20_000, 0), (0, 250)])
def test_rotation_drops_the_oldest_and_keeps_a_dead_target_readable(tmp_path: Path, keep_ms: int, keep_bytes: int) -> None:
    alive = [series(n) for n in range(30)]
    with Server(alive) as one, Server([series(1), series(2), series(3), None]) as two:
        _, store = record(tmp_path / "r", [one.url, two.url], 30, keep_ms=keep_ms, keep_bytes=keep_bytes)
    assert len(store.times("t0-8002")) == (5 if keep_ms else 6)
    assert store.times("t1-8002") == tuple(round((START + 5 * n) * 1000) for n in (1, 2))
    assert store.size == sum(path.stat().st_size for path in (tmp_path / "r").glob("*/*.prom"))
    assert store.size <= (keep_bytes or store.size)
    read = recording.read(tmp_path / "r")
    assert [int(one.samples[0].value) for one in read.targets[0].scrapes][-1] == 29
    assert ups(read, "t1:8002") == [1, 1] + [0] * 27


def test_missed_rounds_are_counted_and_times_stay_on_the_grid(tmp_path: Path) -> None:
    class Busy(FastClock):
        def wait(self, inbox: object, until: float) -> bool:
            self.now = max(self.now, until)
            if until == 15.0:
                self.now = 27.0  # stopped: 15 is begun too late, and so are 20 and 25
            if until == 40.0:
                self.jump = 3600.0  # slept: only the wall clock went on
            return False

    with Server([series(n) for n in range(20)]) as server:
        done, store = record(tmp_path / "r", [server.url], 10, clock=Busy())
    offsets = [(at - round(START * 1000)) / 1000 for at in store.times("t0-8002")]
    assert offsets == [0, 5, 10, 25, 30, 35, 3640, 3645]
    assert (done.missed, done.late) == (2 + 720, 1)


def test_packing_gives_the_same_bytes_and_takes_nothing_away_when_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        with Server([series(n) for n in range(4)]) as server:
            record(tmp_path / name / "r", [server.url], 4)
    monkeypatch.setattr(files.tarfile.TarFile, "addfile", _full)
    with pytest.raises(files.OutputError, match=r"r\.tar\.gz: cannot be written: No space.*is whole in"):
        pack(tmp_path / "one" / "r")
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["r"]
    monkeypatch.undo()
    packed = [pack(tmp_path / name / "r") for name in ("one", "two")]
    assert packed[0].read_bytes() == packed[1].read_bytes()
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["r.tar.gz"]
    assert len(recording.read(packed[0]).targets[0].scrapes) == 4


def _full(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_full_disk_ends_it_and_what_was_written_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fsync
    count = itertools.count()

    def fsync(handle: int) -> None:
        if next(count) > 4:  # the probe, three scrapes and targets.yaml
            _full()
        real(handle)

    monkeypatch.setattr(files.os, "fsync", fsync)
    with Server([series(n) for n in range(9)]) as server, pytest.raises(files.OutputError, match="No space left"):
        record(tmp_path / "r", [server.url], 9)
    assert len(recording.read(tmp_path / "r").targets[0].scrapes) == 3
    assert not list((tmp_path / "r").rglob(".*"))


class EndedMidway(queue.SimpleQueue):  # type: ignore[type-arg]
    """The end comes when one target of the fourth round has answered, and the other has not."""

    ended = False

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        super().put(item)
        if item is not None and item.round == 3 and not self.ended:
            self.ended = True
            super().put(None)


def test_the_end_during_a_round_leaves_whole_rounds_only(tmp_path: Path) -> None:
    """Writing the one answer would show the other target as down."""
    with Server([series(n) for n in range(9)]) as one, Server([series(n) for n in range(9)]) as two:
        sources = arrange([Source(Target(each.url), {"instance": each.url}) for each in (one, two)], Scrubber())
        store = Store(tmp_path / "r", sources)
        done = capture(sources, store, Scrubber(), EndedMidway(), interval=5.0, timeout=20.0, duration=60.0, clock=FastClock())
    assert done.rounds == 3
    assert store.close()
    assert [len(target.scrapes) for target in recording.read(tmp_path / "r").targets] == [3, 3]


def test_a_target_that_hangs_beyond_its_deadline_costs_its_own_scrapes_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Name resolution knows no deadline."""
    let_go = threading.Event()
    inbox: Inbox = queue.SimpleQueue()
    asked: list[str] = []

    def fetch(fetcher: Fetcher) -> tuple[int, Page]:
        url = fetcher._target.url
        asked.append(url)
        if "slow" in url:
            assert let_go.wait(60)
        return 200, Page(series(len(asked)), "", 0.0)

    monkeypatch.setattr("obs.evaluate.record.capture._GRACE", 0.1)
    monkeypatch.setattr(Fetcher, "fetch", fetch)
    sources = arrange([Source(Target(f"http://{name}/"), {"instance": name}) for name in ("slow", "quick")], Scrubber())
    store = Store(tmp_path / "r", sources)

    def after(done: Captured) -> None:
        if done.rounds == 3:
            assert asked.count("http://slow/") == 1  # never two at a time
            assert done.tallies[0].failures == {"timeout": 3}
            let_go.set()
        if done.tallies[0].ok >= 2 and done.tallies[1].ok >= 2:
            inbox.put(None)

    capture(
        sources, store, Scrubber(), inbox, interval=5.0, timeout=0.1, duration=5000.0, clock=FastClock(), after_round=after
    )
    assert store.close()
    assert len(recording.read(tmp_path / "r").targets) == 2


# --- is it a page -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "empty"), (b" \n", "empty"), (b"\xff\xfe 1\n", "garbled"), (b"<html>", "html"), (b'{"a": 1}', "json"),
        (b"x 1\ny", "truncated"), (b"x 1\ny{a=\n", "garbled"), (b"x one\n", "garbled"),
    ],
)  # fmt: skip
def test_what_is_no_page_is_refused(body: bytes, reason: str) -> None:
    assert reason in REASONS
    with pytest.raises(ScrapeFailed) as caught:
        checked(Page(body, "text/plain", 0.0), {})
    assert caught.value.reason == reason


def test_openmetrics_needs_its_end() -> None:
    open_metrics = "application/openmetrics-text; version=1.0.0"
    assert checked(Page(b"x 1\n# EOF\n", open_metrics, 0.0), {})
    with pytest.raises(ScrapeFailed, match="EOF"):
        checked(Page(b"x 1\n", open_metrics, 0.0), {})


# --- the command --------------------------------------------------------------------------------------


def obs_record(*words: object) -> int:
    return cli.main(["record", *map(str, words)])


@pytest.fixture
def server() -> Iterator[Server]:
    with Server([series(n) for n in range(100_000)]) as running:
        yield running


def start(*words: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "obs", "record", *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


@pytest.mark.parametrize(("number", "more"), [(signal.SIGINT, ["--gzip"]), (signal.SIGTERM, [])])
def test_a_signal_leaves_a_valid_recording_and_says_how_to_replay_it(
    tmp_path: Path, server: Server, number: int, more: list[str]
) -> None:
    out = tmp_path / "my incident"
    process = start("--target", f"{server.url},job=triton,instance=a", "--out", out, "--interval", "200ms", *more)
    try:
        eventually("three scrapes", 60, lambda: len(list(out.glob("a/*.prom"))) >= 3 or process.poll() is not None)
        process.send_signal(number)
        said, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, errors) == (0, "")
    words = shlex.split(said.splitlines()[-1].partition("replay it: ")[2])
    assert words == ["obs", "replay", f"{out}.tar.gz" if more else str(out)]
    read = recording.read(Path(words[2]))
    assert read.targets[0].labels == {"job": "triton", "instance": "a"}
    assert len(read.targets[0].scrapes) >= 3
    assert [path.name for path in tmp_path.iterdir()] == [Path(words[2]).name]


def test_ctrl_c_does_not_wait_for_a_target_that_hangs(tmp_path: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0), backlog=8) as listener:  # accepts, and never answers
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/metrics"
        process = start("--target", url, "--out", tmp_path / "r", "--interval", "1h", "--timeout", "50m")
        try:
            eventually("a folder", 60, lambda: (tmp_path / "r").exists() or process.poll() is not None)
            link, _ = listener.accept()
            process.send_signal(signal.SIGINT)
            said, errors = process.communicate(timeout=60)
            link.close()
        finally:
            process.kill()
    assert (process.returncode, said) == (3, "")
    assert re.fullmatch(r"obs: .*nothing was recorded, for no target answered twice: it was ended before.*\n", errors)
    assert not (tmp_path / "r").exists()


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("obs.evaluate.record.capture.Clock", FastClock)


@pytest.mark.usefixtures("fast")
def test_report_of_failures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pages: list[bytes | None] = [series(n) for n in range(100)]
    pages[2] = None
    out = tmp_path / "r"
    with Server(pages) as one, Server([None]) as two:
        code = obs_record("--target", f"{one.url},instance=a", f"{two.url},instance=b", "--out", out, "--for", "30s")
    text = capsys.readouterr()
    assert code == 1  # b is not in the recording
    lines = text.out.splitlines()
    assert lines[0] == f"{out}: 6 rounds of 2 targets, every 5 s, 25 s from 1796022962.000, 145 B"
    assert [line.split() for line in lines[1:4]] == [
        ["target", "scrapes", "failed", "size"],
        [one.url, "5", "1", "145", "B", "http_status", "1"],
        [two.url, "0", "6", "0", "B", "http_status", "6"],
    ]
    assert lines[4:] == [
        f"note: {two.url} never answered: it is not in the recording, not even as down",
        f"replay it: obs replay {out}",
    ]
    assert text.err.splitlines() == [
        f"obs: 07:16:02Z {two.url}: failed: http_status: HTTP 503",
        f"obs: 07:16:12Z {one.url}: failed: http_status: HTTP 503",
        f"obs: 07:16:17Z {one.url}: answers again",
    ]
    assert {target.labels["instance"] for target in recording.read(out).targets} == {"a"}


@pytest.mark.usefixtures("fast")
def test_several_servers_behind_one_address_are_told_while_it_can_be_mended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Server([series(n + (1000 if n % 2 else 0)) for n in range(12)]) as one:
        assert obs_record("--target", one.url, "--out", tmp_path / "r", "--for", "60s") == 1
    text = capsys.readouterr()
    assert [line[5:15] for line in text.err.splitlines()] == ["07:16:22Z "]
    assert f"note: {one.url}: its counters fall again and again" in text.out
    with pytest.raises(InputError, match="several servers are mixed"):
        recording.read(tmp_path / "r")


@pytest.mark.usefixtures("fast")
def test_the_command_to_replay_has_an_end_when_all_are_down_at_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Server([series(1), series(2), series(3), None]) as one:
        assert obs_record("--target", one.url, "--out", tmp_path / "r", "--for", "30s") == 0
    last = capsys.readouterr().out.splitlines()[-1]
    end = float(last.partition(" --end ")[2])
    found = ups(recording.read(tmp_path / "r"), f"127.0.0.1:{one.port}", end_ms=round(end * 1000))
    assert found == [1, 1, 1, 0, 0, 0]


@pytest.mark.usefixtures("fast")
def test_each_target_has_its_own_credentials_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("Bearer a-secret\n")
    with Server([series(1), series(2)]) as one, Server([series(1), series(2)]) as two:
        obs_record("--target", f"{one.url},instance=a,authorization-file={tmp_path / 'a'}", f"{two.url},instance=b",
                   "--out", tmp_path / "r", "--for", "10s")
    assert {each.get("Authorization") for each in one.headers} == {"Bearer a-secret"}
    assert {each.get("Authorization") for each in two.headers} == {None}
    assert not [path for path in (tmp_path / "r").rglob("*") if path.is_file() and b"secret" in path.read_bytes()]


@pytest.mark.usefixtures("fast")
def test_a_terminal_sees_progress_and_size(
    tmp_path: Path, server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    assert obs_record("--target", server.url, "--out", tmp_path / "r", "--for", "20s") == 0
    shown = capsys.readouterr().err.split("\r\x1b[K")
    assert shown[3] == "[##########          ]  50%  r: 2 rounds of 1 target, 0 failed, 58 B"
    assert shown[-1] == ""  # the line is gone at the end


URL = "http://127.0.0.1:9/metrics"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--target", "ftp://h/metrics"], "'ftp://h/metrics' is no http(s) URL"),
        (["--target", "http://u:secret@h/metrics"], "must not hold credentials"),
        (["--target", URL, URL], f"--target {URL}: is given twice"),
        (["--target", f"{URL},instance=a", "http://h/metrics,instance=a"], "has the labels of another target"),
        (["--target", f"{URL},a=1,a=2"], "a is given twice"),
        (["--target", f"{URL},nonsense"], "'nonsense' is no label=value"),
        (["--target", f"{URL},__name__=x"], "'__name__' is no label's name"),
        (["--target", URL, "--interval", "5"], "--interval"),
        (["--target", URL, "--interval", "50ms"], "shorter than 200ms"),
        (["--target", URL, "--timeout", "6s"], "scrapes would overlap"),
        (["--target", URL, "--for", "6s"], "--for 6s: is shorter than two intervals"),
        (["--target", URL, "--out", "r.tar.gz"], "r.tar.gz: is an archive's name"),
        (["--target", URL, "--keep", "6s"], "--keep 6s: is shorter than two intervals"),
        (["--target", URL, "--rotate", "100"], "--rotate '100': is no size"),
        (["--target", URL, "--drop-label", "le"], "--drop-label le: holds a bucket's bound"),
        (["--target", URL, "--hash-label", "a-b"], "is no label's name"),
        (["--target", URL, "--hash-label", "a", "--drop-label", "a"], "choose one"),
        (["--target", URL, "--authorization-file", "/nowhere"], "/nowhere"),
        (["--target", URL.replace("http", "https"), "--ca-file", "/nowhere"], "/nowhere"),
    ],
)
def test_bad_input_is_one_line_and_makes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    assert obs_record("--out", tmp_path / "r", *words) == 2
    text = capsys.readouterr()
    assert text.out == ""
    assert text.err.count("\n") == 1
    assert says in text.err
    assert "secret" not in text.err
    assert not list(tmp_path.iterdir())


def test_places_that_cannot_be_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine").write_text("x")
    (tmp_path / "r.tar.gz").write_text("x")
    for out, more, code, says in (
        (full, [], 2, "is there already and not an empty folder"),
        (full / "mine", [], 2, "is there already and not an empty folder"),
        (tmp_path / "r", ["--gzip"], 2, "r.tar.gz: is there already"),
        (tmp_path / "no" / "r", [], 3, "cannot be written: No such file"),
        (full / "mine" / "r", [], 3, "cannot be written: Not a directory"),
    ):
        assert obs_record("--target", URL, "--out", out, *more) == code
        assert says in capsys.readouterr().err
    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")) == ["full", "full/mine", "r.tar.gz"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tmp_path.chmod(0o555)
    try:
        assert obs_record("--target", URL, "--out", tmp_path / "r") == 3
    finally:
        tmp_path.chmod(0o755)
    assert "Permission denied" in capsys.readouterr().err


@pytest.mark.usefixtures("fast")
def test_nothing_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Server([None]) as server:
        url = server.url
    assert obs_record("--target", url, "--out", tmp_path / "r", "--for", "10s") == 3
    error = capsys.readouterr().err.splitlines()[-1]
    assert re.fullmatch(rf"obs: .*nothing was recorded, for no target answered twice: {url} refused 2 .*", error)
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize("name", [".", ".hidden"])
def test_odd_names_of_folders_give_readable_archives(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert obs_record("--target", server.url, "--out", name, "--for", "15s", "--gzip") == 0
    (archive,) = tmp_path.rglob("*.tar.gz")
    assert len(recording.read(archive).targets[0].scrapes) == 3


def test_folders_of_targets_are_distinct_and_harmless(tmp_path: Path) -> None:
    names = ["x y", "x-y-3", "x/y", "X-Y", "wal", "../..", "é"]
    sources = arrange([Source(Target(f"http://h{n}/"), {"instance": name}) for n, name in enumerate(names)], Scrubber())
    assert [one.folder for one in sources] == ["x-y", "x-y-3", "x-y-3-3", "X-Y-4", "wal-5", "target-6", "target-7"]


def test_target_text() -> None:
    url, labels, its_files = parse("https://[::1]/m?a=b,job=triton,pod=p-0,ca-file=/x")
    assert (url, labels, its_files) == (
        "https://[::1]/m?a=b", {"instance": "[::1]:443", "job": "triton", "pod": "p-0"}, {"ca-file": "/x"}
    )
    assert [_bytes("--rotate", text) for text in ("100MB", "1.5 gb", "10kB")] == [100_000_000, 1_500_000_000, 10_000]
