"""Faults that no command sees coming: a package that is not installed, a full disk, a hole in the project's own data."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from obs.cli.main import main
from obs.config import load_config
from obs.errors import DeclarationError
from obs.prom.server import free_port
from obs.recordings.names import series

FULL = Path("/dev/full")


def obs(*words: str, code: str = "pass", **given: object) -> subprocess.CompletedProcess[str]:
    run = f"import sys; {code}; from obs.cli.main import run; sys.argv = ['obs', *{list(words)!r}]; run()"
    return subprocess.run([sys.executable, "-c", run], text=True, check=False, stderr=subprocess.PIPE, **given)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize(("words", "package"), [
    (("check", "rules.yaml"), "yaml"), (("eval", "--prometheus", "http://127.0.0.1:1"), "requests"), (("config",), "yaml"),
])
def test_a_missing_package_is_named_and_3(words: tuple[str, ...], package: str, tmp_path: Path) -> None:
    """What a bare install lacks (None in sys.modules makes an import fail as if it were not there)."""
    (tmp_path / "rules.yaml").write_text("groups: [{name: g, rules: [{record: a, expr: b}]}]\n")
    (tmp_path / "obs.yaml").write_text("engines: [vllm]\n")  # on its defaults obs reads no YAML
    done = obs(*words, code=f"sys.modules[{package!r}] = None", cwd=tmp_path, stdout=subprocess.DEVNULL)
    assert done.returncode == 3, done.stderr
    assert done.stderr.splitlines()[-1] == (
        f"obs: obs {words[0]}: needs the Python package {package}; install it with: pip install 'obs-inference[pack]'"
    )
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")
@pytest.mark.parametrize("words", [("config", "--show"), ("check", "--list")])
def test_a_full_disk_is_one_line_and_3(words: tuple[str, ...], tmp_path: Path) -> None:
    with FULL.open("w") as full:
        done = obs(*words, cwd=tmp_path, stdout=full)
    assert done.returncode == 3
    assert done.stderr == "obs: the output cannot be written: No space left on device; free some space, or write elsewhere\n"


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")
def test_a_full_disk_is_2_where_3_is_a_bug() -> None:
    """``eval``, ``backtest`` and ``gate`` have their own codes."""
    code = "from obs.cli.common import guarded; sys.exit(guarded(lambda: print('told') or 0))"
    with FULL.open("w") as full:
        words = [sys.executable, "-c", f"import sys; {code}"]
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.stderr == "obs: the output cannot be written: No space left on device; free some space, or write elsewhere\n"
    assert done.returncode == 2


@pytest.mark.parametrize(
    "command",
    [("eval",), ("backtest", "--since", "1h", "--step", "1m"), ("gate", "--baseline", 'a="1"', "--canary", 'a="2"')],
)
def test_a_dead_port_is_one_line_in_plain_words(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    assert main([*command, "--prometheus", url, "--retries", "0"]) in {2, 4}
    said = capsys.readouterr()
    (line,) = (said.err or said.out).splitlines()
    assert "cannot be reached: connection refused; check the address, and that it runs" in line
    assert url in line
    assert "Pool" not in line


def test_a_program_that_is_no_promtool_is_no_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text("groups: [{name: g, rules: [{record: 'a:b:c', expr: up}]}]\n")
    monkeypatch.setenv("PROMTOOL", "/bin/true")
    assert main(["check", str(rules)]) == 3
    assert "does not tell a Prometheus version" in capsys.readouterr().err


def test_a_hole_in_the_project_s_data_names_the_file() -> None:
    with pytest.raises(DeclarationError, match=r"^obs/catalog/limits.py: limits.batch_high: no such limit; declare it there"):
        load_config(None).limit("batch_high")
    with pytest.raises(DeclarationError, match=r"^obs/recordings/names.py: 'widgets' is neither a signal"):
        series("model", "widgets", "sum")
    with pytest.raises(DeclarationError, match=r"^obs/recordings/names.py: the signal .requests_running. is not recorded"):
        series("model", "requests_running", "rate")


def test_an_engine_that_leaves_a_signal_out_is_named(tmp_path: Path) -> None:
    code = (
        "import obs.catalog.signals as s, dataclasses; "
        "s.SIGNALS = (*s.SIGNALS, dataclasses.replace(s.SIGNALS[0], name='host_memory_usage'))"
    )
    done = obs("build", code=code, cwd=tmp_path, stdout=subprocess.DEVNULL, env={**os.environ})
    assert done.returncode == 3
    assert done.stderr.startswith("obs: obs/engines/triton.py: signal 'host_memory_usage' has neither a source nor Missing")
    assert not list(tmp_path.iterdir())


def test_sigterm_ends_a_command_as_an_error_would() -> None:
    """So that what it has started (a private Prometheus) ends with it: SIGTERM is what `timeout` and CI send."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        process = subprocess.Popen(
            [sys.executable, "-m", "obs", "eval", "--prometheus", url, "--timeout", "60s"], stderr=subprocess.PIPE, text=True
        )
        try:
            with silent.accept()[0]:
                process.terminate()
                _, error = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, error) == (143, "obs: terminated\n")
