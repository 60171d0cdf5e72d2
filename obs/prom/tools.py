"""Finds promtool and prometheus, and runs programs: the only place of this package that starts one and waits.

A missing tool is a ToolError, never "ok" (design.md, section 3.5).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from obs.errors import ToolError

Name = Literal["promtool", "prometheus"]
Version = tuple[int, int, int]

_VERSION = re.compile(r"version (\d+)\.(\d+)(?:\.(\d+))?")


@dataclass(frozen=True)
class Completed:
    """What a finished program left: its exit code (never negative) and its output as text."""

    code: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        return self.stdout + self.stderr


def find(name: Name) -> Path:
    """The program's path: environment variable ``PROMTOOL`` / ``PROMETHEUS`` first, then PATH.

    ToolError when there is none, or when the variable names something that cannot be executed.
    """
    variable = name.upper()
    wanted = os.environ.get(variable, "")
    if wanted:
        found = shutil.which(wanted)
        if found is None:
            raise ToolError(
                f"{variable}={wanted} is not an executable file; point {variable} at the {name} binary or unset it"
            )
        return Path(found)
    found = shutil.which(name)
    if found is None:
        raise ToolError(
            f"{name} is not on PATH; install it (`apt-get install prometheus`, or a release tarball from "
            f"prometheus.io) or set {variable}=/path/to/{name}"
        )
    return Path(found)


def run(argv: Sequence[str | Path], *, timeout: float = 900.0) -> Completed:
    """Run a program to its end, for at most ``timeout`` seconds; a non-zero exit is the caller's to judge.

    ToolError when it cannot be started, does not end in time, or is killed by a signal.
    """
    program = str(argv[0])
    try:
        done = subprocess.run(
            [str(word) for word in argv],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout,
            check=False,
        )
    except OSError as error:
        raise ToolError(
            f"{program} cannot be started: {error.strerror or error}; install it again, or point PROMTOOL or "
            "PROMETHEUS at a working binary"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise ToolError(
            f"{program} did not finish within {timeout:g} s; run it by hand on the same files to see why"
        ) from error
    if done.returncode < 0:
        raise ToolError(
            f"{program} was killed by signal {-done.returncode}; run it again, and check the memory of this machine"
        )
    return Completed(done.returncode, done.stdout, done.stderr)


def version(program: Path) -> Version:
    """The program's version, such as ``(2, 42, 0)``; ToolError when it does not tell one."""
    done = run([program, "--version"], timeout=30.0)
    match = _VERSION.search(done.output)
    if match is None:
        said = done.output.strip().splitlines()
        raise ToolError(
            f"{program} --version does not tell a Prometheus version (it said {said[0] if said else 'nothing'!r}); "
            "point PROMTOOL or PROMETHEUS at a real binary"
        )
    major, minor, patch = match.groups()
    return int(major), int(minor), int(patch or 0)
