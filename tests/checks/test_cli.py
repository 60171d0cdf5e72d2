"""`obs check` and `obs test` as a user meets them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from obs.build import render_all
from obs.cli.main import main
from obs.config import parse_config

CLASSIC = Path(__file__).parent / "data" / "classic.yaml"
ROOT = Path(__file__).resolve().parents[2]
GOOD = """\
groups:
- name: g
  rules:
  - alert: Waiting
    expr: avg_over_time(vllm:num_requests_waiting[5m]) > 20
"""
BOARD = {
    "uid": "mine", "title": "Mine", "schemaVersion": 39, "editable": False,
    "templating": {"list": [
        {"type": "datasource", "name": "datasource", "query": "prometheus"},
        {"type": "query", "name": "model", "datasource": {"type": "prometheus", "uid": "${datasource}"}, "refresh": 2,
         "query": "label_values(vllm:num_requests_running, model_name)"},
    ]},
    "panels": [{
        "id": 1, "type": "timeseries", "title": "KV", "description": "x", "gridPos": {"x": 0, "y": 0, "w": 8, "h": 8},
        "datasource": {"type": "prometheus", "uid": "${datasource}"}, "fieldConfig": {"defaults": {"unit": "short"}},
        "targets": [{
            "refId": "A", "datasource": {"type": "prometheus", "uid": "${datasource}"},
            "expr": 'vllm:num_requests_waiting{model_name=~"$model"}',
        }],
    }],
}  # fmt: skip


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_findings_exit_1_with_place_reason_and_mend(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--static", str(CLASSIC)]) == 1
    text = capsys.readouterr().out
    assert f"{CLASSIC}:6: error: TritonQueueTooLong [counter-raw]" in text
    assert "    at:   nv_inference_queue_duration_us > 100000\n    why:  " in text
    assert f"{CLASSIC}:12: error: TritonP99TooHigh [unknown-metric]" in text
    assert "NOT RUN: promtool-rules" in text


def test_clean_files_exit_0(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "r.yml").write_text(GOOD)
    assert main(["check", "--no-promtool", "r.yml"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "1 rules, 0 dashboards, 1 expressions: 0 errors, 0 warnings; NOT RUN: promtool-rules"
    ]


def test_json(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--static", "--format", "json", str(CLASSIC)]) == 1
    data = json.loads(capsys.readouterr().out)
    first = data["problems"][0]
    assert first["path"] == str(CLASSIC)
    assert (first["line"], first["check"], first["subject"]) == (6, "counter-raw", "TritonQueueTooLong")
    assert first["place"] == "nv_inference_queue_duration_us > 100000"
    assert data["not_run"] == ["promtool-rules"]
    assert data["summary"]["rules"] == 16
    assert data["summary"]["errors"] + data["summary"]["warnings"] == len(data["problems"])


def test_github(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = GOOD.replace("> 20", "> 20 and rate(vllm:num_requests_waiting[5m]) > 100 % 7")
    (here / "a,b.yaml").write_text(text)
    assert main(["check", "--static", "--format", "github", "a,b.yaml"]) == 1
    line = capsys.readouterr().out.splitlines()[0]
    assert line.startswith("::error file=a%2Cb.yaml,line=5,title=metric-type::Waiting: `rate(vllm:num_requests_waiting[5m])`")


def test_explain_and_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--explain", "threshold-unit"]) == 0
    assert "Bad:" in capsys.readouterr().out
    assert main(["check", "--list"]) == 0
    listed = capsys.readouterr().out
    assert "threshold-unit  " in listed
    assert "dashboard-grid  " in listed
    assert main(["check", "--explain", "threshold-units"]) == 2
    assert "did you mean threshold-unit?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("none.yaml", None, "cannot be read"),
        ("bad.yaml", "groups: [", "is not valid YAML"),
        ("other.yaml", "a: b", "is no Prometheus rule file"),
        ("bad.json", "{", "is not valid JSON"),
    ],
)
def test_bad_input_exits_2_with_one_line(
    here: Path, capsys: pytest.CaptureFixture[str], name: str, content: str | None, said: str
) -> None:
    if content is not None:
        (here / name).write_text(content)
    assert main(["check", "--static", name]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"obs: {name}")
    assert said in line


def test_no_pack_here(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check"]) == 2
    assert "run `obs build` first, or name your files" in capsys.readouterr().err
    (here / "empty").mkdir()
    assert main(["check", "empty"]) == 2
    assert "holds no rule file and no dashboard" in capsys.readouterr().err


def test_folders(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = here / "monitoring" / "deep"
    folder.mkdir(parents=True)
    (folder / "rules.yaml").write_text(GOOD)
    (folder / "values.yaml").write_text("replicas: 3\n")
    (folder / "template.yaml").write_text("{{- if .Values.x }}\na: b\n{{ end }}\n")
    (folder / "package.json").write_text("{}")
    (folder / "board.json").write_text(json.dumps(BOARD, indent=1))
    assert main(["check", "--static", "monitoring"]) == 0
    text = capsys.readouterr().out
    assert "1 rules, 1 dashboards, 3 expressions: 0 errors, 0 warnings" in text
    assert "passed over 3 files" in text


def test_dashboards_of_ones_own(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    board = json.loads(json.dumps(BOARD))
    board["panels"][0]["targets"][0]["expr"] = 'rate(vllm:num_requests_waiting{model_name=~"$model"}[$__rate_interval])'
    (here / "b.json").write_text(json.dumps(board, indent=1))
    assert main(["check", "--static", "--format", "json", "b.json"]) == 1
    (problem,) = [p for p in json.loads(capsys.readouterr().out)["problems"] if p["level"] != "info"]
    assert (problem["check"], problem["subject"]) == ("metric-type", "KV")
    assert problem["place"] == 'rate(vllm:num_requests_waiting{model_name=~"$model"}[$__rate_interval])'
    assert '"expr"' in (here / "b.json").read_text().splitlines()[problem["line"] - 1]


def test_missing_promtool_is_no_pass(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("PROMTOOL", raising=False)
    monkeypatch.setenv("PATH", str(here))
    (here / "r.yaml").write_text(GOOD)
    assert main(["check", "r.yaml"]) == 3
    out = capsys.readouterr()
    assert "NOT RUN: promtool-rules" in out.out
    assert "promtool is not on PATH" in out.err
    assert main(["check", "r.yaml", "--format", "json"]) == 3
    assert capsys.readouterr().out == ""
    assert main(["check", "--no-promtool", "r.yaml"]) == 0


@pytest.mark.prometheus
def test_promtool_speaks_for_plain_files_and_operator_objects(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = GOOD.replace("> 20", "> 20 and up[5m]")
    (here / "r.yaml").write_text(bad)
    spec = "\n".join(f"  {line}" for line in bad.splitlines())
    (here / "o.yaml").write_text(f"apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nspec:\n{spec}\n")
    assert main(["check", "--format", "json", "r.yaml", "o.yaml"]) == 1
    found = [p for p in json.loads(capsys.readouterr().out)["problems"] if p["check"] == "promtool-rules"]
    assert {(p["path"], p["subject"]) for p in found} == {("r.yaml", "Waiting"), ("o.yaml", "Waiting")}


# --- the pack's own demands -----------------------------------------------------------------------------


@pytest.fixture
def pack(here: Path) -> Path:
    """A pack with one alert, tested and explained."""
    (here / "alerts" / "rules").mkdir(parents=True)
    (here / "alerts" / "tests").mkdir()
    (here / "alerts" / "runbooks").mkdir()
    url = "https://github.com/obs-inference/obs/blob/main/alerts/runbooks/LLMPreempting.md"
    (here / "alerts" / "rules" / "llm.yaml").write_text(
        "groups:\n- name: g\n  rules:\n  - alert: LLMPreempting\n    expr: rate(vllm:num_preemptions_total[5m]) > 1\n"
        "    labels: {severity: warning}\n    annotations:\n      summary: Preempting\n"
        f"      description: \"{{{{ $value }}}} a second\"\n      runbook_url: {url}\n"
    )
    (here / "alerts" / "runbooks" / "LLMPreempting.md").write_text("# x\n\n## Meaning\n\n## Check\n\n## Mend\n\n## No data\n")
    (here / "alerts" / "tests" / "llm.yaml").write_text(
        "rule_files: [../rules/llm.yaml]\ntests:\n"
        "- name: fires\n  interval: 1m\n  input_series: [{series: 'vllm:num_preemptions_total', values: '0+600x20'}]\n"
        "  alert_rule_test:\n  - eval_time: 10m\n    alertname: LLMPreempting\n    exp_alerts:\n"
        "    - exp_labels: {severity: warning}\n      exp_annotations: {summary: Preempting, description: '10 a second',"
        f" runbook_url: '{url}'}}\n"
        "- name: quiet\n  interval: 1m\n  input_series: [{series: 'vllm:num_preemptions_total', values: '0+6x20'}]\n"
        "  alert_rule_test: [{eval_time: 10m, alertname: LLMPreempting, exp_alerts: []}]\n"
        "- name: no data\n  alert_rule_test: [{eval_time: 10m, alertname: LLMPreempting, exp_alerts: []}]\n"
    )
    return here


def own(capsys: pytest.CaptureFixture[str]) -> list[tuple[str, str, str]]:
    main(["check", "--no-promtool", "--format", "json"])
    problems = json.loads(capsys.readouterr().out)["problems"]
    return [(p["check"], p["subject"], p["what"]) for p in problems if p["check"] not in ("drift",)]


def test_a_whole_pack_passes(pack: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert own(capsys) == []


def test_an_alert_without_runbook_or_tests(pack: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.move("alerts/runbooks/LLMPreempting.md", "alerts/runbooks/Gone.md")
    path = Path("alerts/tests/llm.yaml")
    path.write_text(path.read_text().split("- name: quiet")[0])
    assert own(capsys) == [
        ("alert-tested", "LLMPreempting", "no test shows it no data"),
        ("alert-tested", "LLMPreempting", "no test shows it quiet"),
        ("runbook", "Gone", "is a runbook of no alert"),
        ("runbook", "LLMPreempting", "has no runbook"),
    ]


def test_an_incomplete_alert(pack: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path("alerts/rules/llm.yaml")
    text = path.read_text().replace("severity: warning", "severity: page").replace("{{ $value }} a", "Many")
    path.write_text(text.replace("LLMPreempting.md", "Other.md").replace("      summary: Preempting\n", ""))
    Path("alerts/runbooks/LLMPreempting.md").write_text("## Meaning\n## Check\n")
    found = own(capsys)
    assert [what for check, _, what in found if check == "alert-texts"] == [
        "has no severity critical, warning or info", "has no summary", "does not show its value in the description",
        "points to the runbook https://github.com/obs-inference/obs/blob/main/alerts/runbooks/Other.md",
    ]
    assert ("runbook", "LLMPreempting", "its runbook has no section Mend") in found


def test_a_test_that_cannot_fail(pack: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path("alerts/tests/llm.yaml")
    path.write_text(path.read_text().replace("../rules/llm.yaml", "../rules/lm.yaml"))
    assert ("alert-tested", "../rules/lm.yaml", "this `rule_files` entry matches no file") in own(capsys)


def test_drift(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in render_all(parse_config("")).items():
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text(text)

    def drift() -> list[tuple[str, str]]:
        main(["check", "--no-promtool", "--format", "json"])
        problems = json.loads(capsys.readouterr().out)["problems"]
        return [(p["subject"], p["what"]) for p in problems if p["check"] == "drift"]

    assert drift() == []
    path = here / "alerts" / "rules" / "queue.yaml"
    path.write_text(path.read_text() + "# by hand\n")
    (here / "docs" / "alerts.md").unlink()
    assert drift() == [
        ("alerts/rules/queue.yaml", "differs from a fresh build"),
        ("docs/alerts.md", "is missing: a fresh build writes it"),
    ]
    # What is written by hand is not looked for where the pack was only built, and that is said.
    assert main(["check", "--static"]) == 0
    assert "NOT RUN: promtool-rules, alert-tested, drift, runbook (no alerts/runbooks here)" in capsys.readouterr().out
    (here / "alerts" / "runbooks").mkdir()
    assert main(["check", "--static"]) == 1


# --- obs test -------------------------------------------------------------------------------------------


@pytest.mark.prometheus
def test_tests_pass_with_full_coverage(pack: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["test"]) == 0
    text = capsys.readouterr().out
    assert "ok   alerts/tests/llm.yaml (3 assertions)" in text
    assert "LLMPreempting  yes      yes      yes" in text
    assert "1 files, 3 assertions, 0 failed; 1 alerts, 0 not fully shown" in text


@pytest.mark.prometheus
def test_a_lacking_case_fails(pack: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path("alerts/tests/llm.yaml")
    path.write_text(path.read_text().replace("- name: no data", "- name: nothing at all"))
    assert main(["test", "alerts/tests/llm.yaml", "--format", "json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert not data["ok"]
    assert data["coverage"] == {"LLMPreempting": ["firing", "quiet"]}
    assert [problem["what"] for problem in data["lacking"]] == ["no test shows it no data"]


@pytest.mark.prometheus
def test_a_failing_test_is_told_with_what_came(pack: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path("alerts/tests/llm.yaml")
    path.write_text(path.read_text().replace("0+600x20", "0+1x20"))
    assert main(["test"]) == 1
    text = capsys.readouterr().out
    assert "FAIL alerts/tests/llm.yaml" in text
    assert "LLMPreempting (fires)" in text


def test_bad_test_input(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["test"]) == 2
    assert "alerts/tests: there is no such file or folder" in capsys.readouterr().err
    (here / "t").mkdir()
    assert main(["test", "t"]) == 2
    assert "holds no test file" in capsys.readouterr().err


def test_check_imports_neither_grafanalib_nor_requests(here: Path) -> None:
    (here / "r.yaml").write_text(GOOD)
    code = (
        "import sys; from obs.cli.main import main; main(['check', '--static', 'r.yaml']); "
        "sys.exit(bool({'grafanalib', 'requests', 'rich', 'prometheus_api_client'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(ROOT)}, check=False, capture_output=True)
    assert done.returncode == 0, done.stderr


def test_named_files_need_not_show_every_case(pack: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file of a suite leaves to the others what it does not show; it is told, and is no failure. The suite's is one."""
    path = Path("alerts/tests/llm.yaml")
    path.write_text(path.read_text().split("- name: quiet")[0])
    assert main(["test", str(path)]) == 0
    assert "MISSING" in capsys.readouterr().out
    assert main(["test"]) == 1
