"""What is printed, for people and for programs, and what the exit code says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from obs.cli.doctor import verdict
from obs.cli.main import main
from obs.doctor import flags
from obs.doctor.checks import registry
from obs.doctor.finding import Finding, Severity, Source
from obs.doctor.life import Alive
from obs.doctor.report import as_json, as_text
from obs.doctor.run import Report

from .stub import as_json as answer
from .stub import scrape, serving, text, triton

RECORDINGS = Path(__file__).parents[1] / "data" / "recordings"


def finding(severity: Severity) -> Finding:
    return Finding("an-id", severity, "place", f"what is {severity}", "why it matters", "first line\n  second {\n  }")


ALERTS = {"http://page": (
    Alive("A", "live"), Alive("B", "dead", "x is not on its page", "x", ("--flag",)),
    Alive("C", "dead", "y is gone", "y"), Alive("D", "elsewhere", "z: nothing of vLLM", "z"),
)}
OK = Source("Triton", "http://t", "ok", "Triton 2.71.0")
PART = Source("Triton", "http://t", "partial", "Triton 2.71.0", ("the index was refused",))
GONE = Source("Prometheus", "http://p", "failed", lacking=("cannot be reached",))


def lines(report: Report, *, verbose: bool = False, colour: bool = False, width: int = 100) -> list[str]:
    return list(as_text(report, width=width, colour=colour, verbose=verbose))


@pytest.mark.parametrize(
    ("sources", "severities", "fail_on", "code"),
    [
        ([OK], [], "warning", 0),
        ([OK], ["info"], "warning", 0),
        ([OK], ["warning"], "warning", 1),
        ([OK], ["warning"], "error", 0),
        ([OK], ["error"], "error", 1),
        ([OK, GONE], ["info"], "warning", 3),
        ([PART], [], "warning", 3),
        ([OK, GONE], ["error"], "warning", 1),
        ([GONE], [], "warning", 3),
    ],
)
def test_the_exit_code(sources: list[Source], severities: list[Severity], fail_on: str, code: int) -> None:
    report = Report(tuple(sources), tuple(map(finding, severities)))
    assert verdict(report, fail_on) == code
    assert ("healthy" in lines(report)[-1]) == (code == 0 and "warning" not in severities)


def test_interrupted() -> None:
    report = Report((OK, GONE), (), interrupted=True)
    assert verdict(report, "warning") == 130
    assert lines(report)[-1] == "PARTIAL: interrupted; of the rest: no findings"


def test_text() -> None:
    report = Report((OK, GONE), (finding("error"), finding("info")), ALERTS)
    assert lines(report) == [
        "Triton      http://t  ok       Triton 2.71.0",
        "Prometheus  http://p  FAILED",
        "  cannot be reached",
        "",
        "error  place  [an-id]",
        "  what is error",
        "  why:  why it matters",
        "  mend: first line",
        "          second {",
        "          }",
        "",
        "info  what is info [an-id]",
        "",
        "alerts  1 live, 2 dead (1 a flag away), 0 blind, 1 of other engines: http://page",
        "PARTIAL: Prometheus not wholly looked at; of the rest: 1 error, 1 info (-v: all alerts, and the mend of each info)",
    ]


def test_verbose_shows_every_alert_and_mend() -> None:
    shown = lines(Report((OK,), (finding("info"),), ALERTS), verbose=True)
    assert "  dead       B  x is not on its page; needs --flag" in shown
    assert "  live       A" in shown
    assert sum(line.startswith("  mend:") for line in shown) == 1


def test_colour_is_only_paint() -> None:
    report = Report((OK, PART), (finding("warning"),), ALERTS)
    import re

    painted = lines(report, colour=True)
    assert any("\x1b[" in line for line in painted)
    assert [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in painted] == lines(report)


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_nothing_but_addresses_is_wider_than_the_terminal(width: int) -> None:
    long = Finding("an-id", "error", "p", "word " * 60, "word " * 60, "word " * 60)
    source = Source("Triton", "http://t", "ok", "Triton 2.71.0, " + "word " * 30)
    assert all(len(line) <= max(width, 52) for line in lines(Report((source,), (long,)), width=width))


def test_json_is_what_the_report_holds() -> None:
    found = json.loads(json.dumps(as_json(Report((PART,), (finding("warning"),), ALERTS, ignored=2))))
    assert found["complete"] is False
    assert found["counts"] == {"error": 0, "warning": 1, "info": 0}
    assert found["ignored"] == 2
    assert found["findings"][0]["mend"] == "first line\n  second {\n  }"
    assert found["alerts"][0]["counts"] == {"live": 1, "dead": 2, "blind": 0, "elsewhere": 1}
    assert found["sources"][0]["lacking"] == ["the index was refused"]


# --- the command ---------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_list_and_explain(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--list"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed] == list(registry.IDS)
    assert main(["doctor", "--explain", "counters-frozen"]) == 0
    assert "counter_latencies=true" in capsys.readouterr().out


def test_help_tells_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["doctor", "--help"])
    out = capsys.readouterr().out
    assert "130  interrupted" in out
    assert "exit codes of `obs doctor`" in out


@pytest.mark.parametrize(
    ("name", "live"), [("triton-2.51-incident", "InferenceFailureRatioHigh"), ("vllm-0.32-incident", "LLMKVCacheSaturated")]
)
def test_a_recording(capsys: pytest.CaptureFixture[str], name: str, live: str) -> None:
    assert main(["doctor", "--recording", str(RECORDINGS / f"{name}.tar.gz"), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    lives = {one["alert"]: one["life"] for one in found["alerts"][0]["alerts"]}
    assert lives[live] == "live"
    assert found["complete"] is True


def test_two_engines_are_judged_together(capsys: pytest.CaptureFixture[str]) -> None:
    vllm = {"/version": answer({"version": "0.32.0"}), "/v1/models": answer({"data": [{"id": "m"}]}),
            "/metrics": text(scrape("vllm-0.32-light.prom"))}
    with serving(triton()) as one, serving(vllm) as two:
        assert main(["doctor", "--metrics", f"{one}/metrics", "--vllm", two, "--format", "json"]) == 0
    (alerts,) = json.loads(capsys.readouterr().out)["alerts"]
    lives = {each["alert"]: each["life"] for each in alerts["alerts"]}
    assert lives["InferenceFailureRatioHigh"] == lives["LLMKVCacheSaturated"] == "live"


def test_no_colour_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(triton("2.51.0")) as url:
        main(["doctor", "--triton", url, "--metrics", f"{url}/metrics"])
    assert "\x1b[" not in capsys.readouterr().out


# --- the flags of a server -----------------------------------------------------------------------------


def test_flags_of_a_command_line() -> None:
    found = flags.of_text("tritonserver --a=1 --b 2 --metrics-config=x=1 --metrics-config y=2 --on --c='q r'")
    assert found == {"a": ("1",), "b": ("2",), "metrics-config": ("x=1", "y=2"), "on": ("true",), "c": ("q r",)}


def test_flags_of_the_process_that_listens(tmp_path: Path) -> None:
    """A /proc made by hand: the port decides, and only a tritonserver counts."""
    (tmp_path / "net").mkdir()
    head = "  sl  local_address rem_address   st tx rx tr tm retr uid timeout inode\n"
    (tmp_path / "net" / "tcp").write_text(head + "   0: 0100007F:1F40 00000000:0000 0A 0:0 0:0 0 0 0 4242 1\n")
    for pid, command in ((7, b"/opt/bin/tritonserver\0--model-control-mode=poll\0"), (8, b"python\0--x=1\0")):
        (tmp_path / str(pid) / "fd").mkdir(parents=True)
        (tmp_path / str(pid) / "cmdline").write_bytes(command)
        (tmp_path / str(pid) / "fd" / "3").symlink_to("socket:[4242]")
    assert flags.of_listener("http://127.0.0.1:8000", tmp_path) == {"model-control-mode": ("poll",)}
    assert flags.of_listener("http://localhost:8001", tmp_path) is None
    assert flags.of_listener("http://triton:8000", tmp_path) is None
