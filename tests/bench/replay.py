"""Measures how long a recording of three targets over ten minutes takes until the result is on the screen.

    python tests/bench/replay.py [--minutes 10] [--repeats 3]

The recording: a Triton, its twin and a vLLM, from the bundled recordings, every 5 s, as sub-folders with a targets.yaml.
Timed are whole commands with the whole pack, the start of Python and of the private Prometheus included, and counted the
processor time of both. The peer in the same run: starting a Prometheus and a Python, which no command can do without.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import bench

ROOT = bench.ROOT
sys.path.insert(0, str(ROOT))
RECORDINGS = ROOT / "tests" / "data" / "recordings"
STEP_MS = 5000


def bodies(name: str) -> list[bytes]:
    """The scrapes of a bundled recording, in order of time."""
    with tarfile.open(RECORDINGS / f"{name}.tar.gz") as archive:
        found = {}
        for member in archive:
            file = archive.extractfile(member) if member.name.endswith(".prom") else None
            if file is not None:
                found[int(Path(member.name).stem)] = file.read()
    return [found[at] for at in sorted(found)]


def make(folder: Path, minutes: float) -> None:
    """Three targets side by side; one that is shorter than the rest ends earlier: it is down from then on."""
    start = 1_796_000_000_000
    triton, vllm = ("triton-2.51-incident", "triton"), ("vllm-0.32-incident", "vllm")
    targets = {"a": triton, "b": triton, "c": vllm}
    lines = []
    for target, (name, job) in targets.items():
        (folder / target).mkdir(parents=True)
        lines.append(f'{target}: {{job: {job}, instance: "{target}:8000"}}\n')
        for number, body in enumerate(bodies(name)[: round(minutes * 60_000 / STEP_MS) + 1]):
            (folder / target / f"{start + number * STEP_MS}.prom").write_bytes(body)
    (folder / "targets.yaml").write_text("".join(lines), encoding="utf-8")


def peer() -> None:
    from obs.prom.server import PrivatePrometheus

    subprocess.run([sys.executable, "-c", "pass"], check=True)
    with PrivatePrometheus():
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        make(Path(name) / "recording", args.minutes)
        environment = bench.compiled(Path(name) / "compiled")
        runs: dict[str, Callable[[], object]] = {"peer: start Prometheus and Python": peer}
        for command in ("eval", "backtest"):
            words = [sys.executable, "-m", "obs", command, "--recording", f"{name}/recording"]
            runs[f"obs {command} --recording"] = lambda words=words: subprocess.run(  # type: ignore[misc]
                words, check=False, capture_output=True, cwd=ROOT, env=environment
            )
        print(f"3 targets, {args.minutes:g} min, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs; goal: 5 s")
        for what, run in runs.items():
            run()  # to compile it
            taken, used = [], []
            for _ in range(args.repeats):
                begun, before = time.perf_counter(), bench.children()
                run()
                taken.append(time.perf_counter() - begun)
                used.append(bench.children() - before)
            print(f"{what:<36} least {min(taken):.2f} s, most {max(taken):.2f} s; processor {min(used):.2f} s", flush=True)


if __name__ == "__main__":
    main()
