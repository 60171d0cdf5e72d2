"""Every benchmark still runs: each as a command of its own, at a size that says nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUNS: dict[str, tuple[str, ...]] = {
    "bench.py": ("--only", "groups", "--pods", "2"),
    "eval.py": ("--only", "deployed", "--pods", "1", "--repeats", "1", "--toy"),
    "backtest.py": ("--days", "0.02", "--pods", "2", "--no-peer"),
    "replay.py": ("--minutes", "0.5", "--repeats", "1"),
    "simulate.py": ("--hours", "0.01"),
    "sidecar.py": ("--help",),  # its measurements wait for real time: this imports it
}


BENCHES = sorted({path.name for path in Path(__file__).parent.glob("*.py")} - {Path(__file__).name})


@pytest.mark.parametrize("name", BENCHES)
def test_it_runs(name: str) -> None:
    words = [sys.executable, str(Path(__file__).with_name(name)), *RUNS[name]]  # a new one needs its line in RUNS
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, cwd=ROOT, env=environment, check=False, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip()
