"""The commands as a user meets them: output, exit codes, and one line per fault."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from obs.cli.main import COMMANDS, main

ROOT = Path(__file__).resolve().parents[2]


def obs(*words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "obs", *words], cwd=cwd, capture_output=True, text=True, check=False)


def test_help_names_every_command_and_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    text = capsys.readouterr().out
    assert stopped.value.code == 0
    assert all(command in text for command in COMMANDS)
    assert "exit codes" in text


def test_help_imports_no_command() -> None:
    code = "import sys; from obs.cli.main import parser_for; parser_for(None); print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"yaml", "pydantic", "grafanalib", "requests", "obs.config"} & set(loaded)


def test_pydantic_is_paid_for_only_where_there_is_an_obs_yaml(tmp_path: Path) -> None:
    code = "import sys; from obs.config import load_config; load_config(); print('pydantic' in sys.modules)"

    def imported() -> str:
        return subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    assert imported() == "False\n"
    (tmp_path / "obs.yaml").write_text("slo: {queue_time: 5ms}")
    assert imported() == "True\n"


def test_an_unknown_command_is_a_usage_error() -> None:
    done = obs("biuld")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_build_writes_and_check_agrees(tmp_path: Path) -> None:
    assert obs("build", "--out", str(tmp_path)).returncode == 0
    assert (tmp_path / "alerts/rules/queue.yaml").exists()
    assert (tmp_path / "dashboards/obs-fleet.json").exists()
    assert obs("build", "--check", "--out", str(tmp_path)).returncode == 0
    (tmp_path / "alerts/rules/queue.yaml").write_text("edited")
    done = obs("build", "--check", "--format", "json", "--out", str(tmp_path))
    assert done.returncode == 1
    assert json.loads(done.stdout)["changes"] == [{"path": "alerts/rules/queue.yaml", "kind": "changed"}]
    assert (tmp_path / "alerts/rules/queue.yaml").read_text() == "edited"


def test_a_broken_configuration_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "obs.yaml").write_text("slo: {queue_tme: 5ms}")
    done = obs("build", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "obs: obs.yaml: slo.queue_tme: unknown key; did you mean 'queue_time'?\n"
    assert [path.name for path in tmp_path.iterdir()] == ["obs.yaml"]


def test_an_unwritable_output_is_one_line_and_exit_3(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = obs("build", "--out", str(tmp_path / "file"))
    assert done.returncode == 3
    assert len(done.stderr.splitlines()) == 1
    assert "cannot be written" in done.stderr


def test_config_show_gives_every_value_its_reason(tmp_path: Path) -> None:
    (tmp_path / "obs.yaml").write_text("slo: {queue_time: 50ms}")
    done = obs("config", "--show", "--format", "json", cwd=tmp_path)
    rows = {row["path"]: row for row in json.loads(done.stdout)}
    assert rows["slo.queue_time"]["value"] == "50ms"
    assert rows["slo.queue_time"]["origin"] == "obs.yaml"
    assert rows["windows.rate"]["origin"] == "default"
    assert all(row["why"] for row in rows.values())
    text = obs("config", cwd=tmp_path).stdout
    assert "[obs.yaml]" in next(line for line in text.splitlines() if line.startswith("slo.queue_time "))


def test_config_refuses_an_alert_that_does_not_exist(tmp_path: Path) -> None:
    (tmp_path / "obs.yaml").write_text("alerts: {InferenceQueueTimeHigh2: {enabled: false}}")
    done = obs("config", cwd=tmp_path)
    assert done.returncode == 2
    assert "did you mean 'InferenceQueueTimeHigh'?" in done.stderr


def test_the_committed_pack_is_a_fresh_build() -> None:
    assert obs("build", "--check").returncode == 0
    done = obs("build", "--check", "--config", "examples/obs.yaml", "--out", "examples/pack")
    assert done.returncode == 0, done.stdout


def test_a_closed_pipe_is_no_traceback() -> None:
    done = subprocess.run(f"{sys.executable} -m obs config | head -1", cwd=ROOT, shell=True, capture_output=True,
                          text=True, check=False)
    assert done.stderr == ""
