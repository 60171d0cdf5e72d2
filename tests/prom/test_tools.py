"""Finding and running programs: a missing or broken one is an error with one line, never "ok"."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from obs.errors import ToolError
from obs.prom import tools

ROOT = Path(__file__).parents[2]


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_environment_comes_before_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = script(tmp_path / "my-promtool", "exit 0")
    monkeypatch.setenv("PROMTOOL", str(mine))
    assert tools.find("promtool") == mine


def test_missing_tool_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PROMTOOL", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolError, match=r"^promtool is not on PATH; install it .*apt-get.*PROMTOOL=") as caught:
        tools.find("promtool")
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 3


def test_variable_that_points_nowhere_is_told_not_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMETHEUS", "/nope/prometheus")
    with pytest.raises(ToolError, match="PROMETHEUS=/nope/prometheus is not an executable"):
        tools.find("prometheus")


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ("promtool, version 2.42.0+ds (branch: debian/sid)", (2, 42, 0)),
        ("prometheus, version 3.5.1 (branch: HEAD)", (3, 5, 1)),
        ("prometheus, version 3.0.0-rc.1 (branch: HEAD)", (3, 0, 0)),
    ],
)
def test_version(tmp_path: Path, said: str, version: tools.Version) -> None:
    assert tools.version(script(tmp_path / "promtool", f"echo '{said}'")) == version


def test_version_of_something_else(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"does not tell a Prometheus version .*'hello'"):
        tools.version(script(tmp_path / "promtool", "echo hello"))


def test_real_version() -> None:
    assert tools.version(tools.find("promtool")) >= (2, 42, 0)


def test_run_not_executable(tmp_path: Path) -> None:
    broken = tmp_path / "promtool"
    broken.write_bytes(b"\x7fELF nonsense")
    broken.chmod(0o755)
    with pytest.raises(ToolError, match="cannot be started: Exec format error"):
        tools.run([broken])


def test_run_killed_and_hanging(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="killed by signal 9"):
        tools.run([script(tmp_path / "dies", "kill -9 $$")])
    with pytest.raises(ToolError, match=r"did not finish within 0\.2 s"):
        tools.run([script(tmp_path / "hangs", "exec sleep 30")], timeout=0.2)


@pytest.mark.skipif(shutil.which("apt-get") is None, reason="no apt-get here: the script is for systems with apt")
def test_get_prometheus3_says_in_one_line_why_not_and_touches_nothing(tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine").touch()
    reasons = {tmp_path / "new": "Debian sid cannot be read from file:///nowhere", full: "holds no Prometheus 3"}
    for folder, reason in reasons.items():
        done = subprocess.run(
            ["sh", str(ROOT / "scripts" / "get-prometheus3.sh"), str(folder)],
            env={**os.environ, "PROMETHEUS3_MIRROR": "file:///nowhere"}, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 3
        assert re.fullmatch(rf"get-prometheus3: .*{reason}.*\n", done.stderr)
    assert [path.name for path in tmp_path.rglob("*")] == ["full", "mine"]
