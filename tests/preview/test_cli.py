"""``obs preview``: what it takes, what it writes, and how it fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from servers import World

from obs.cli.main import main
from obs.prom.server import free_port

ROOT = Path(__file__).parents[2]
TRITON = ROOT / "tests/data/recordings/triton-2.51-incident.tar.gz"
WINDOW = ("--from", "1796022962", "--to", "1796023557")


def run(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, str, str]:
    code = main(["preview", *map(str, args)])
    said = capsys.readouterr()
    return code, said.out, said.err


def refused(capsys: pytest.CaptureFixture[str], tmp_path: Path, *args: object) -> tuple[int, str]:
    """The exit code and the one line; nothing is written."""
    out = tmp_path / "out"
    code, text, error = run(capsys, *args, "--out", out)
    assert text == ""
    assert error.startswith("obs: ")
    assert error.count("\n") == 1
    assert not out.exists() or not any(out.iterdir())
    return code, error


@pytest.fixture
def dashboard(tmp_path: Path) -> Path:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"title": "Mine", "panels": [
        {"type": "timeseries", "title": "up", "targets": [{"expr": "up"}]},
        {"type": "piechart", "title": "pie", "targets": [{"expr": "up"}]},
    ]}))
    return path


def test_one_dashboard_of_a_live_server(
    world: World, dashboard: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text, error = run(capsys, dashboard, "--prometheus", world.server.url, *WINDOW, "--out", tmp_path / "x.html")
    assert (code, error) == (0, "")
    assert text == f"{tmp_path / 'x.html'}: 1 of 2 panels have data, 1 not drawn\n"
    page = (tmp_path / "x.html").read_text()
    assert "“piechart”" in page
    assert world.server.url in page


def test_a_folder_of_dashboards(world: World, dashboard: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, _ = run(capsys, tmp_path, "--prometheus", world.server.url, *WINDOW, "--out", tmp_path / "new" / "deep")
    assert code == 0
    assert [path.name for path in (tmp_path / "new" / "deep").iterdir()] == ["mine.html"]


def test_variables(world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ("fleet", "--prometheus", world.server.url, *WINDOW, "--var", "model=doubler", "--var", "model=tiny")
    assert run(capsys, *args, "--out", tmp_path)[0] == 0
    page = (tmp_path / "obs-fleet.html").read_text()
    assert "Model: <b>doubler + tiny</b>" in page
    assert "doubler triton-2.51-incident" in page
    assert "flaky triton-2.51-incident" not in page


def test_a_part_of_a_recording_by_own_rules_that_only_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules, board = tmp_path / "rules.yaml", tmp_path / "mine.json"
    rules.write_text("groups: [{name: g, rules: [{record: 'job:up:sum', expr: sum by (job) (up)}]}]")
    board.write_text(json.dumps({"title": "t", "panels": [
        {"type": "stat", "title": "s", "targets": [{"expr": "job:up:sum", "instant": True}]}]}))
    window = ("--from", "now-2m", "--to", "1796023262")
    code, text, error = run(capsys, board, "--recording", TRITON, "--rules", rules, *window, "--out", tmp_path)
    assert (code, error) == (0, "")
    assert "1 of 1 panels have data" in text
    page = (tmp_path / "mine.html").read_text()
    assert ">1</b>" in page
    assert "2026-11-30 07:19:02 to 2026-11-30 07:21:02 UTC" in page


def test_a_query_that_fails_is_drawn_and_told(world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps({"title": "Bad", "panels": [{"type": "stat", "title": "s", "targets": [{"expr": "up{"}]}]}))
    code, text, error = run(capsys, path, "--prometheus", world.server.url, *WINDOW, "--out", tmp_path / "bad.html")
    assert code == 1
    assert "1 with an error" in text
    assert error == "obs: bad: s: a query failed; the page says how\n"
    assert "parse error" in (tmp_path / "bad.html").read_text()


@pytest.mark.parametrize(("args", "code", "said"), [
    (("nosuch",), 2, "nosuch: no such dashboard; the pack has obs-alerts, obs-fleet, obs-gpu, obs-llm, obs-model; or name a"),
    (("nosuch.json",), 2, "nosuch.json: cannot be read: No such file"),
    ((), 2, "name the dashboards to draw"),
    (("fleet", "--all"), 2, "name the dashboards to draw"),
    (("fleet", "--var", "modle=x"), 2, "--var modle: no such variable; the variables are cluster, namespace, job, model"),
    (("fleet", "--var", "model"), 2, "no NAME=VALUE"),
    (("fleet", "--var", "model=typo"), 2, "--var model=typo: obs-fleet has no such value; it has chat, doubler"),
    (("fleet", "--from", "soon"), 2, "--from 'soon' is no time"),
    (("fleet", "--from", "1796023557", "--to", "1796022962"), 2, "ends before it begins"),
    (("fleet", "--from", "now-999y"), 2, "before 1970"),
    (("fleet", "--from", "now-2m", "--to", "now+99999y"), 2, "beyond 2100"),
    (("fleet", "--from", "1700000000", "--to", "1700003600"), 2, "obs-fleet: no panel has data from 2023-11-14 22:13:20"),
])
def test_bad_input_of_a_server(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str], args: tuple[str, ...], code: int, said: str
) -> None:
    window = () if "--from" in args else WINDOW
    found, error = refused(capsys, tmp_path, *args, "--prometheus", world.server.url, *window)
    assert found == code
    assert said in error


def test_a_server_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    code, error = refused(capsys, tmp_path, "fleet", "--prometheus", url, "--retries", "0")
    assert code == 3
    assert "cannot be reached" in error


def test_a_recordings_rules_do_not_go_on_for_ever(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, error = refused(capsys, tmp_path, "fleet", "--recording", TRITON, "--to", "+9999999d")
    assert (code, "more than a day after the recording's end" in error) == (2, True)


def test_neither_or_both_sources(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROMETHEUS_URL", raising=False)
    assert "give --recording PATH or --prometheus URL" in refused(capsys, tmp_path, "fleet")[1]
    both = ("fleet", "--recording", TRITON, "--prometheus", "http://127.0.0.1:9")
    assert "both given" in refused(capsys, tmp_path, *both)[1]


def test_a_broken_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken.tar.gz"
    broken.write_bytes(TRITON.read_bytes()[:20_000])
    code, error = refused(capsys, tmp_path, "fleet", "--recording", broken)
    assert code == 2
    assert "cut off" in error
    assert "holds no scrape" in refused(capsys, tmp_path, "fleet", "--recording", ROOT / "docs")[1]


def test_where_nothing_can_be_written(world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("x")
    args = ("--prometheus", world.server.url, *WINDOW, "--out")
    code, _, error = run(capsys, "fleet", *args, tmp_path / "file" / "x.html")
    assert code == 3
    assert "not a writable folder" in error
    assert run(capsys, "fleet", "gpu", *args, tmp_path / "x.html")[0] == 2  # two dashboards, one file


def test_a_picture_without_a_browser_is_refused_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHROMIUM", "/nowhere/chromium")
    code, error = refused(capsys, tmp_path, "fleet", "--recording", TRITON, "--png")
    assert code == 3
    assert "CHROMIUM=/nowhere/chromium is not an executable file" in error


def test_a_browser_that_makes_no_picture_leaves_nothing(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHROMIUM", "/bin/false")
    code, error = refused(capsys, tmp_path, "fleet", "--prometheus", world.server.url, *WINDOW, "--png")
    assert code == 3
    assert "made no picture of obs-fleet.html" in error
