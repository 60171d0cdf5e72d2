"""Arguments that several commands share."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from obs.errors import InputError


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
