"""`obs backtest` and `obs incidents` as a user meets them, on the bundled recordings and a real Prometheus."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from obs.cli import backtest as command
from obs.cli import common, main
from obs.evaluate import recording
from obs.evaluate.history import History
from obs.evaluate.replay import Instance, Timeline
from obs.evaluate.report import Report
from obs.evaluate.score import score
from obs.evaluate.state import Span
from obs.prom import tools
from obs.prom.remote_write import Point, make_labels
from obs.prom.server import PrivatePrometheus, free_port

RECORDINGS = Path(__file__).parent.parent / "data" / "recordings"
TRITON = RECORDINGS / "triton-2.51-incident.tar.gz"
VLLM = RECORDINGS / "vllm-0.32-incident.tar.gz"
OVERLOAD = 1796023082
RULES = """groups:
- name: g
  rules:
  - record: queue_ms
    expr: rate(nv_inference_queue_duration_us[20s]) / 1000 / (rate(nv_inference_request_success[20s]) > 0)
  - {alert: Queue, expr: queue_ms > LIMIT, for: 10s, labels: {severity: page}}
  - {alert: Quiet, expr: up > 5}
  - {alert: Blind, expr: nothing_like_it > 5}
"""
INCIDENTS = f"""lead: 0s
incidents:
  - name: overload
    from: {OVERLOAD}
    to: {OVERLOAD + 180}
    matchers: {{model: doubler}}
    expected: [Queue]
"""


def obs(*words: object) -> int:
    return main.main([str(word) for word in words])


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("PROMETHEUS_URL", "OBS_PROMETHEUS_TOKEN", "OBS_PROMETHEUS_PASSWORD"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    return write(tmp_path / "rules.yaml", RULES.replace("LIMIT", "100"))


@pytest.fixture
def incidents(tmp_path: Path) -> Path:
    return write(tmp_path / "incidents.yaml", INCIDENTS)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def overload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real overload of `doubler` alone, five minutes of it with two metrics: quick to read and to play."""
    folder = tmp_path_factory.mktemp("recording") / "overload"
    folder.mkdir()
    wanted = re.compile(r"(nv_inference_queue_duration_us|nv_inference_request_success)\{.*doubler")
    with tarfile.open(TRITON) as archive:
        for member in archive:
            at = re.search(r"(\d+)\.prom$", member.name)
            if at and OVERLOAD - 60 <= int(at[1]) / 1000 <= OVERLOAD + 240:
                file = archive.extractfile(member)
                assert file is not None
                lines = [line for line in file.read().decode().splitlines() if wanted.match(line)]
                (folder / f"{at[1]}.prom").write_text("\n".join(lines) + "\n")
    (folder.parent / "overload.phases.yaml").write_text(f"- {{from: {OVERLOAD}, name: too many clients}}\n")
    return folder


def error(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that an error is."""
    said = capsys.readouterr()
    assert said.out == ""
    lines = said.err.splitlines()
    assert len(lines) == 1, said.err
    assert lines[0].startswith("obs: ")
    return lines[0]


# --- the bundled recordings ---------------------------------------------------------------------------------


@pytest.mark.prometheus
@pytest.mark.parametrize(
    ("path", "config", "more", "detected", "episodes"),
    [(TRITON, "triton", (), 6, 9), (VLLM, "vllm", ("--to", "+35s"), 3, 8)],
)
def test_the_pack_on_a_real_incident_has_no_false_alert_and_misses_nothing(
    path: Path, config: str, more: tuple[str, ...], detected: int, episodes: int, capsys: pytest.CaptureFixture[str]
) -> None:
    found = RECORDINGS / f"{recording.name_of(path)}.incidents.yaml"
    code = obs(
        "backtest", "--recording", path, *more, "--config", RECORDINGS / f"{config}.obs.yaml", "--incidents", found,
        "--fail-on", "false,missed,missed-alert", "--format", "json",
    )
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert document["broken"] == []
    assert code == command.GOOD
    total = document["score"]["total"]
    assert (total["episodes"], total["true"], total["false"], total["missed"]) == (episodes, episodes, 0, 0)
    assert (total["precision"], total["recall"], total["expected"]) == (1.0, 1.0, detected)
    assert all(it["detected"] for one in document["score"]["incidents"] for it in one["expected"])
    assert all(one["detected"] for one in document["score"]["incidents"])
    # the slowest by far is the idle model, whose window is a minute; all others say it within 40 s
    slow = {it["alert"]: it["after"] for one in document["score"]["incidents"] for it in one["expected"] if it["after"] > 40}
    assert set(slow) == {"InferenceModelIdle"}
    assert max(slow.values()) < 100


# --- forms and exit codes -----------------------------------------------------------------------------------


@pytest.mark.prometheus
def test_fired_is_1_and_text_shows_the_phases(overload: Path, rules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = obs("backtest", "--recording", overload, "--rules", rules)
    out = capsys.readouterr().out
    assert code == command.BROKEN
    assert "\x1b" not in out
    assert "▼ too many clients" in out
    assert re.search(r"^Queue +·+░+█+·+$", out, re.MULTILINE)
    assert "never active: Quiet" in out
    assert "-v names them): Blind" in out
    assert out.endswith("broken: firing: Queue\n")


@pytest.mark.prometheus
def test_a_locale_without_unicode_gets_text_all_the_same(overload: Path, rules: Path, tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    rules.write_text(rules.read_text().replace("severity: page", "severity: dringend für alle"))
    done = subprocess.run(
        [sys.executable, "-m", "obs", "backtest", "--recording", overload, "--rules", rules],
        cwd=tmp_path, capture_output=True, check=False,
        env={**os.environ, "PYTHONPATH": str(root), "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
    )
    assert (done.returncode, done.stderr) == (command.BROKEN, b"")
    assert b"v too many clients" in done.stdout
    assert b"##" in done.stdout


@pytest.mark.prometheus
def test_all_forms_and_the_html_report_of_one_score(
    overload: Path, rules: Path, incidents: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "report.html"
    page.write_text("old")
    base = ("backtest", "--recording", overload, "--rules", rules, "--incidents", incidents)
    assert obs(*base, "--format", "markdown", "--html", page, "--sweep", "Queue.threshold=50..800/3") == command.GOOD
    text = capsys.readouterr().out
    assert text.startswith("## obs backtest\n\n**OK**: 1 of 1 incidents detected")
    assert "| 800 |   | 0 | 0 | 0% | – | 0 | 0s |" in text
    html = page.read_text()
    assert html.startswith("<!DOCTYPE html>")
    assert html.count("<svg") == 3  # the timeline, the sweep, the alert
    assert "threshold (&gt;)" in html
    assert sorted(tmp_path.iterdir()) == sorted([page, rules, incidents])  # nothing beside it
    assert obs(*base, "--format", "junit") == command.GOOD
    assert ET.fromstring(capsys.readouterr().out).get("failures") == "0"


@pytest.mark.prometheus
def test_strict_makes_a_blind_alert_inconclusive_and_all_blind_is_never_ok(
    overload: Path, rules: Path, incidents: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ("backtest", "--recording", overload, "--incidents", incidents)
    assert obs(*base, "--rules", rules, "--strict") == command.INCONCLUSIVE
    blind = write(tmp_path / "blind.yaml", "groups: [{name: g, rules: [{alert: Blind, expr: nothing > 5}]}]\n")
    capsys.readouterr()
    assert obs("backtest", "--recording", overload, "--rules", blind) == command.INCONCLUSIVE
    assert "every alert was blind" in capsys.readouterr().err


@pytest.mark.prometheus
def test_new_rules_are_compared_and_judged_by_policy(
    overload: Path, rules: Path, incidents: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "new" / "rules.yml", RULES.replace("LIMIT", "900"))
    base = ("backtest", "--recording", overload, "--rules", rules, "--against", tmp_path / "new", "--incidents", incidents)
    code = obs(*base, "--fail-on", "lost-incident,more-noise", "--format", "markdown")
    out = capsys.readouterr().out
    assert code == command.BROKEN
    assert "- :x: lost-incident: overload: the old rules detected it, the new do not" in out
    assert "more-noise:" not in out
    assert re.search(r"^\| overload \| 2\ds \| missed \| LOST \|$", out, re.MULTILINE)
    assert "| Queue | 0 | 1 | 0 | 0 |" in out
    assert obs(*base, "--fail-on", "more-noise") == command.GOOD
    assert "Queue: 1 lost" in capsys.readouterr().out
    assert obs(*base) == command.GOOD  # a comparison alone only tells
    assert obs(*base, "--fail-on", "missed") == command.BROKEN  # of the new rules


def verdict(
    *, fired: bool = False, blind: bool = False, warned: bool = False, broken: bool = False, strict: bool = False
) -> int:
    instance = Instance("A", (("alertname", "A"),), (Span(0, 10, "pending"),))
    line = Timeline("r", "", 0, 10, 1, ("A",), (instance,) if fired else (), (("A", ("gone",)),) if blind else ())
    history = History(line, warnings=("partial",) if warned else ())
    report = Report("t", "r", history, score(line), broken=("firing: A",) if broken else ())
    return command.verdict(report, strict=strict)


def test_exit_codes_by_precedence() -> None:
    assert verdict() == command.GOOD
    assert verdict(broken=True, warned=True, blind=True, strict=True) == command.BROKEN
    assert verdict(warned=True, blind=True) == command.USAGE  # a partial answer proves nothing
    assert verdict(blind=True) == command.INCONCLUSIVE  # nothing was judged at all
    assert verdict(blind=True, fired=True) == command.GOOD  # partly blind
    assert verdict(blind=True, fired=True, strict=True) == command.INCONCLUSIVE


# --- a server -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[PrivatePrometheus]:
    with PrivatePrometheus() as prometheus:
        prometheus.writer.write(recording.read(TRITON).points())
        yield prometheus


SPAN = ("--from", "1796022965", "--to", "2026-11-30T07:25:55Z", "--step", "5s")


@pytest.mark.prometheus
@pytest.mark.parametrize("how", ["expand", "first"])
def test_a_servers_past_gives_the_score_of_the_recording(
    server: PrivatePrometheus, how: str, rules: Path, incidents: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "report.html"
    code = obs(
        "backtest", "--prometheus", server.url, *SPAN, "--rules", rules, "--incidents", incidents, "--how", how,
        "--format", "json", "--html", page, "--resume", tmp_path / "kept", "--sweep", "Queue.threshold=50..800/3",
    )
    said = capsys.readouterr()
    assert code == command.GOOD, said.err
    document = json.loads(said.out)
    (one,) = document["score"]["incidents"]
    assert one["detected"]
    assert 10 <= one["first"] <= 30
    assert document["score"]["total"]["false"] == 0
    assert document["history"]["dead"] == {"Blind": ["nothing_like_it"]}
    assert [choice["rule"] for choice in document["choices"]] == ["Queue"]
    assert page.read_text().count("<svg") == 3
    swept = document["sweeps"][0]["points"]
    assert [(point["text"], point["recall"]) for point in swept] == [("50", 1.0), ("100", 1.0), ("200", 1.0), ("800", 0.0)]


@pytest.mark.prometheus
def test_downtime_of_a_server_splits_no_episode(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start = 1796022960
    with PrivatePrometheus() as prometheus:
        points = []
        for at in range(0, 3601, 15):
            if 1200 <= at < 2400:
                continue  # Prometheus itself was down: it has nothing at all
            for name, value in (("x", 9.0), ("up", 1.0)):
                labels = make_labels([("__name__", name), ("job", "j"), ("instance", "a")])
                points.append(Point((start + at) * 1000, labels, value))
        prometheus.writer.write(points)
        high = write(tmp_path / "high.yaml", "groups: [{name: g, rules: [{alert: High, expr: x > 5, for: 1m}]}]\n")
        base = ("backtest", "--prometheus", prometheus.url, "--rules", high, "--from", start, "--to", start + 3600)
        assert obs(*base, "--step", "30s", "--format", "json") == command.BROKEN
    (one,) = json.loads(capsys.readouterr().out)["score"]["episodes"]
    assert one["flaps"] == 0
    assert one["to"] - one["from"] > 3000
    assert one["firing"] < 2600


@pytest.mark.prometheus
def test_a_data_directory_is_judged_from_its_first_sample(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start = 1796022960
    lines = ["# TYPE x gauge", *(f"x {9 if 900 <= at < 1500 else 1} {start + at}" for at in range(0, 1801, 15)), "# EOF"]
    text = write(tmp_path / "data.om", "\n".join(lines) + "\n")
    tools.run([tools.find("promtool"), "tsdb", "create-blocks-from", "openmetrics", text, tmp_path / "data"])
    high = write(tmp_path / "high.yaml", "groups: [{name: g, rules: [{alert: High, expr: x > 5, for: 1m}]}]\n")
    assert obs("backtest", "--recording", tmp_path / "data", "--rules", high, "--format", "json") == command.BROKEN
    document = json.loads(capsys.readouterr().out)
    assert document["history"]["start"] == start
    (one,) = document["score"]["episodes"]
    assert one["from"] == start + 960  # the first evaluation (each minute) at 900 s, and `for`
    assert start + 1500 <= one["to"] <= start + 1560


@pytest.mark.prometheus
def test_an_empty_history_is_one_line(server: PrivatePrometheus, rules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = obs("backtest", "--prometheus", server.url, "--rules", rules, "--from", "1600000000", "--to", "1600003600")
    assert code == command.USAGE
    assert "has no sample from 2020-09-13" in error(capsys)


# --- bad input ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "there is no past to judge; give --prometheus URL or --recording PATH"),
        (("--recording", "nothing.tar.gz"), "nothing.tar.gz"),
        (("--recording", TRITON, "--prometheus", "http://x"), "are both given"),
        (("--recording", TRITON, "--since", "1d"), "leave out --since"),
        (("--recording", TRITON, "--resume", "d"), "--resume is for a server"),
        (("--recording", TRITON, "--to", "yesterday"), "--to 'yesterday' is no time"),
        (("--recording", TRITON, "--step", "5"), "--step: '5' is not a duration"),
        (("--recording", TRITON, "--merge", "0s"), "--merge 0s is no time"),
        (("--prometheus", "http://x", "--since", "1d", "--from", "5"), "--since and --from are both given"),
        (("--prometheus", "http://x", "--from", "1796023000", "--to", "1796022000"), "ends before it begins"),
        (("--recording", TRITON, "--rules", "none.yaml"), "none.yaml: names no file"),
        (("--recording", TRITON, "--against", "empty"), "empty: has no .yaml or .yml file"),
        (("--recording", TRITON, "--incidents", "none.yaml"), "none.yaml: cannot be read"),
        (("--recording", TRITON, "--sweep", "Nope.for=1m..2m"), "no such alert among these rules; valid: Blind, Queue, Quiet"),
        (("--recording", TRITON, "--sweep", "Quiet.threshhold=1..2"), "a rule file has no 'threshhold'"),
        (("--recording", TRITON, "--fail-on", "more-nois"), "--fail-on more-nois: no such policy; did you mean 'more-noise'"),
        (("--recording", TRITON, "--fail-on", "lost-alert"), "give the new ones with --against"),
        (("--recording", TRITON, "--fail-on", "missed"), "none are given; give --incidents FILE"),
        (("--recording", TRITON, "--html", "no/folder.html"), "no/folder.html: cannot be written: no is no folder"),
        (("--recording", TRITON, "--html", "empty"), "empty: cannot be written: is a folder"),
    ],
)
def test_bad_input_is_one_line_and_2(
    words: tuple[object, ...], said: str, rules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    given = words if "--rules" in words else (*words, "--rules", rules)
    assert obs("backtest", *given) == command.USAGE
    assert said in error(capsys)


def test_incidents_that_name_an_unknown_alert_are_refused_before_the_work(
    rules: Path, incidents: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    incidents.write_text(INCIDENTS.replace("[Queue]", "[Qeue]"))
    assert obs("backtest", "--recording", TRITON, "--rules", rules, "--incidents", incidents) == command.USAGE
    assert "incidents.0.expected.0: no such alert 'Qeue' among these rules; did you mean 'Queue'?" in error(capsys)


def test_a_broken_incidents_file_has_a_line_per_fault(
    rules: Path, incidents: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    incidents.write_text(INCIDENTS.replace("from:", "form:"))
    assert obs("backtest", "--recording", TRITON, "--rules", rules, "--incidents", incidents) == command.USAGE
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(": ", 3)[2] for line in lines] == ["incidents.0.from", "incidents.0.form"]


def test_a_server_that_is_not_there(rules: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("obs.evaluate.ranges.TRIES", 1)
    url = f"http://127.0.0.1:{free_port()}"
    code = obs("backtest", "--prometheus", url, "--rules", rules, "--since", "1h", "--retries", "0", "--deadline", "2s")
    assert code == command.USAGE
    assert url in error(capsys)


@pytest.mark.prometheus
def test_what_fails_while_writing_leaves_the_old_report(
    overload: Path, rules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = write(tmp_path / "out" / "report.html", "old")

    def full(*unused: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(common.os, "replace", full)
    assert obs("backtest", "--recording", overload, "--rules", rules, "--html", page) == command.USAGE
    assert "report.html: cannot be written: No space left on device" in error(capsys)
    assert page.read_text() == "old"
    assert list(page.parent.iterdir()) == [page]


def test_a_bug_of_ours_is_3(rules: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*unused: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(command, "load_rules", broken)
    assert obs("backtest", "--recording", TRITON, "--rules", rules) == command.BUG
    assert capsys.readouterr().err.splitlines()[-1].startswith("obs: a bug of obs: ZeroDivisionError: oh; please report")


# --- incidents ----------------------------------------------------------------------------------------------


@pytest.mark.prometheus
def test_a_draft_of_incidents_explains_all_that_fired(
    overload: Path, rules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert obs("incidents", "init", "--recording", overload, "--rules", rules) == 0
    draft = tmp_path / "incidents.yaml"
    assert 'matchers: {model: "doubler"}' in draft.read_text()
    assert obs("incidents", "check", "--rules", rules) == 0
    assert capsys.readouterr().out.endswith("incidents.yaml: 1 incidents, 1 alerts expected\n")
    assert obs("backtest", "--recording", overload, "--rules", rules, "--incidents", draft) == command.GOOD
    capsys.readouterr()
    draft.write_text("mine")
    assert obs("incidents", "init", "--recording", overload, "--rules", rules) == 2
    assert "incidents.yaml: is there already; give another --out, or --force" in error(capsys)
    assert draft.read_text() == "mine"
    assert obs("incidents", "init", "--recording", overload, "--rules", rules, "--force") == 0
    assert draft.read_text() != "mine"


def test_a_wrong_incidents_file_does_not_pass_the_check(
    rules: Path, incidents: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    incidents.write_text("incidents: 5")
    assert obs("incidents", "check", incidents, "--rules", rules) == 2
    assert "is not a list" in error(capsys)


# --- progress -----------------------------------------------------------------------------------------------


class _Terminal:
    def __init__(self, tty: bool) -> None:
        self.tty = tty
        self.text = ""

    def isatty(self) -> bool:
        return self.tty

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None: ...


@pytest.mark.parametrize("tty", [True, False])
def test_progress_is_for_terminals_and_leaves_nothing(tty: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = _Terminal(tty)
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with common.Progress() as progress:
        progress("asking", 0.5)
    assert screen.text == ("\r\x1b[K[##########          ]  50%  asking\r\x1b[K" if tty else "")
