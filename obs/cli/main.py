"""``obs``: finds the command, imports only its module, and turns errors into one line and an exit code."""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Protocol

from obs import __version__
from obs.errors import EXIT_COULD_NOT, ObsError, ToolError

COMMANDS: dict[str, tuple[str, str]] = {
    "build": ("obs.cli.build", "write rules, dashboards and docs"),
    "check": ("obs.cli.check", "find faults in rules, dashboards and tests"),
    "test": ("obs.cli.test", "run the promtool unit tests and report their coverage"),
    "replay": ("obs.cli.replay", "play a recording through the rules on a private Prometheus"),
    "eval": ("obs.cli.eval", "judge every alert now, on a live Prometheus or a recording, and say why"),
    "gate": ("obs.cli.gate", "compare a canary with its baseline: pass, fail or inconclusive"),
    "backtest": ("obs.cli.backtest", "judge alerts over a past: what would have fired, how good that was, what would change"),
    "incidents": ("obs.cli.incidents", "write or check the file that says what really happened, for the score of a backtest"),
    "preview": ("obs.cli.preview", "draw dashboards without Grafana, from a Prometheus or a recording, as HTML pages"),
    "record": ("obs.cli.record", "capture a recording of /metrics from live servers, for replay, eval and backtest"),
    "sidecar": ("obs.cli.sidecar", "serve an engine's normalised signals beside it, for Prometheus, HPA and KEDA"),
    "simulate": ("obs.cli.simulate", "simulate replicas under an autoscaler, and compare scaling signals"),
    "doctor": ("obs.cli.doctor", "say what of the pack can and cannot work on your servers, and the mend for each"),
    "fake-engine": ("obs.cli.fake_engine", "stand in for an inference server: real metrics pages, loads and faults to order"),
    "config": ("obs.cli.config", "show the effective configuration and the reason for each value"),
}

EXIT_CODES = """exit codes:
  0  all is well
  1  findings: a check, a test or a comparison failed
  2  the input is wrong (arguments, obs.yaml, a file)
  3  the work could not be done (a missing tool, an unwritable output, an unreachable server)
"""


class _Command(Protocol):
    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...
    def run(self, args: argparse.Namespace) -> int: ...


def parser_for(name: str | None) -> argparse.ArgumentParser:
    """The parser; only command ``name`` gets its arguments, so that the others are not imported."""
    parser = argparse.ArgumentParser(
        prog="obs",
        description="Observability pack and alert evaluator for Triton Inference Server and vLLM.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"obs {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command, (_, text) in COMMANDS.items():
        sub = commands.add_parser(
            command, help=text, description=text[0].upper() + text[1:] + ".", epilog=EXIT_CODES,
            formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
        )
        if command == name:
            _module(command).add_arguments(sub)
    return parser


def _module(command: str) -> _Command:
    try:
        return importlib.import_module(COMMANDS[command][0])
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith("obs"):
            raise
        raise ToolError(_needs(command, error.name)) from error


def _needs(command: str, package: str | None) -> str:
    return f"obs {command}: needs the Python package {package}; install it with: pip install 'obs-inference[pack]'"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the return value is the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    name = next((word for word in words if word in COMMANDS), None)
    _heed_sigterm()
    try:
        args = parser_for(name).parse_args(words)
        code = _module(args.command).run(args)
        sys.stdout.flush()  # a full disk is told here, not in a traceback at the end
        return code
    except ObsError as error:
        for line in str(error).splitlines():
            print(f"obs: {line}", file=sys.stderr)
        return error.exit_code
    except ModuleNotFoundError as error:
        if not error.name or error.name.startswith("obs"):
            raise
        print(f"obs: {_needs(name or 'COMMAND', error.name)}", file=sys.stderr)
        return EXIT_COULD_NOT
    except BrokenPipeError:
        # The reader (head, less) went away: not an error, and nothing more can be said to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        from obs.cli.common import told_full

        if not told_full(error):
            raise
        return EXIT_COULD_NOT
    except KeyboardInterrupt:
        print("obs: interrupted", file=sys.stderr)
        return 130
    except _Terminated:
        print("obs: terminated", file=sys.stderr)
        return 143


class _Terminated(BaseException):
    """SIGTERM, as KeyboardInterrupt is SIGINT."""


def _heed_sigterm() -> None:
    """A job that is stopped (`timeout`, CI) ends what it has started as well: a private Prometheus, a browser.

    Commands that serve until they are stopped have handlers of their own.
    """

    def stop(*_: object) -> None:
        raise _Terminated

    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, stop)


def run() -> None:
    """The console script."""
    sys.exit(main())


if __name__ == "__main__":
    run()


