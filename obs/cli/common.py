"""Arguments that several commands share."""

from __future__ import annotations

import argparse
import errno
import os
import shutil
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType

from obs.errors import InputError, ObsError, OutputError, ToolError


def add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config", type=Path, metavar="FILE",
        help="obs.yaml to use (default: ./obs.yaml if it is there, else the built-in defaults)",
    )


def add_format(parser: argparse.ArgumentParser, *formats: str) -> None:
    parser.add_argument("--format", choices=formats, default=formats[0], help="output form (default: %(default)s)")


def colour() -> bool:
    """Whether standard output may be coloured: a terminal, and NO_COLOR is not set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def guarded(work: Callable[[], int]) -> int:
    """What ``work`` returns, in a command with the exit codes of ``obs eval``: 2 after an ObsError, whose lines are
    printed, and when the output cannot be written, 3 after a bug of ours. What is no error of the command (a closed pipe,
    Ctrl-C, a package that is not installed) is left to obs.cli.main."""
    try:
        code = work()
        sys.stdout.flush()
        return code
    except ObsError as error:
        for line in str(error).splitlines():
            print(f"obs: {line}", file=sys.stderr)
        return 2
    except (BrokenPipeError, KeyboardInterrupt, ModuleNotFoundError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and told_full(error):
            return 2
        traceback.print_exc()
        print(f"obs: a bug of obs: {type(error).__name__}: {error}; please report it with the lines above", file=sys.stderr)
        return 3


def told_full(error: OSError) -> bool:
    """Whether the output's disk is full or broken: then it is said, and standard output given up."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    print(f"obs: the output cannot be written: {error.strerror}; free some space, or write elsewhere", file=sys.stderr)
    return True


def duration_of(flag: str, text: str) -> float:
    """Seconds of a flag's value such as ``30s``. Raises ``InputError`` for no duration and for none above 0."""
    from obs.config import seconds

    try:
        found = seconds(text)
    except ValueError as error:
        raise InputError(f"{flag}: {error}") from None
    if found <= 0:
        raise InputError(f"{flag} {text} is no time; give one like 30s")
    return found


def moment(flag: str, text: str) -> float:
    """A time (unix seconds, or RFC 3339; UTC where it has no zone) in unix seconds; InputError, naming the flag, otherwise."""
    try:
        found = float(text)
    except ValueError:
        try:
            when = datetime.fromisoformat(text.replace("Z", "+00:00"))
        except ValueError:
            raise InputError(f"{flag} {text!r} is no time; write 1796023557 or 2026-11-30T09:00:00Z") from None
        if when.tzinfo is None:
            when = when.replace(tzinfo=timezone.utc)
        found = when.timestamp()
    if not 0 < found < 1e11:
        raise InputError(f"{flag} {text!r} is no unix time in seconds; write 1796023557 or 2026-11-30T09:00:00Z")
    return found


def recording_time(text: str) -> Callable[[int], int | None] | None:
    """``--at`` of a recording: what makes the time (unix milliseconds) of its end; None when none is given."""
    if not text:
        return None
    if text.startswith("+"):
        more = duration_of("--at", text[1:])
        return lambda end_ms: end_ms + round(more * 1000)
    at = round(moment("--at", text) * 1000)
    return lambda end_ms: at


def refuse_broken(paths: Sequence[str]) -> None:
    """A rule file that Prometheus would refuse is refused, where promtool is there to say so."""
    from obs.prom import promtool

    try:
        problems = promtool.check_rules(paths)
    except ToolError:
        return  # the server has the last word on each expression
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        one = problems[0]
        place = f"{one.path}:{one.line}" if one.line else one.path
        raise InputError(f"{place}: {one.subject}: {one.what}{more}; {one.mend}")


def check_writable(path: Path, flag: str) -> None:
    """OutputError when a file cannot be written there: said before the work, not after it."""
    folder = path.parent
    why = ""
    if path.is_dir():
        why = "is a folder"
    elif not folder.is_dir():
        why = f"{folder} is no folder"
    elif not os.access(folder, os.W_OK):
        why = f"{folder} is not writable"
    if why:
        raise OutputError(f"{path}: cannot be written: {why}; give a path in a writable folder with {flag}")


def write_file(path: Path, text: str, flag: str) -> None:
    """Write a file whole or not at all; OutputError when it cannot be, and what stood there is intact."""
    check_writable(path, flag)
    name = ""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(name, 0o644)
        os.replace(name, path)
        name = ""
    except OSError as error:
        raise OutputError(
            f"{path}: cannot be written: {error.strerror or error}; nothing half-written was left; "
            f"give a path in a writable folder with {flag}"
        ) from error
    finally:
        if name:
            Path(name).unlink(missing_ok=True)


class Progress:
    """A bar on a terminal's stderr that is rewritten in place and removed at the end; nothing elsewhere.

    Called, from any thread, with what is being done and which share of it (0 to 1; None: there is no end to it) is.
    """

    def __init__(self) -> None:
        self.on = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self.what = ""
        self._lock = threading.Lock()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.on:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def __call__(self, text: str, done: float | None) -> None:
        if not self.on:
            return
        room = shutil.get_terminal_size((100, 24)).columns - 1
        bar = ""
        if done is not None:
            share = min(1.0, max(0.0, done))
            bar = f"[{'#' * round(20 * share):<20}] {share:4.0%}  "
        line = f"{bar}{self.what + ': ' if self.what else ''}{text}"
        with self._lock:
            print(f"\r\x1b[K{line[:room]}", end="", file=sys.stderr, flush=True)
