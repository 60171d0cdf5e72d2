"""``obs doctor``: what of the pack can and cannot work on these servers, and the mend for each."""

from __future__ import annotations

import argparse
import difflib
import json
import os
import shutil
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from obs.cli.common import add_config, add_format, colour, duration_of
from obs.cli.connection import URL, add_connection, connection
from obs.errors import EXIT_COULD_NOT, EXIT_FINDINGS, EXIT_OK, InputError

if TYPE_CHECKING:
    from obs.doctor.run import Report, Sources

EXIT_INTERRUPTED = 130

EXIT_CODES = """exit codes of `obs doctor`:
  0    all was looked at, and nothing is as bad as --fail-on (default: warning)
  1    findings of that severity, or worse
  2    wrong input: arguments, obs.yaml, no model repository, a recording that cannot be read
  3    a source could not be looked at (or not wholly), and what could be has no findings; or a package is missing
  130  interrupted: what was looked at is reported, and marked partial
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXIT_CODES
    what = parser.add_argument_group("what to look at", "One or more; each is only read, nothing is changed.")
    what.add_argument("--triton", default="", metavar="URL", help="Triton's HTTP port, such as http://host:8000")
    what.add_argument(
        "--metrics", default="", metavar="URL", help="Triton's metrics page (default: port 8002 of the --triton host, /metrics)"
    )
    what.add_argument("--vllm", default="", metavar="URL", help="a native vLLM API server, such as http://host:8000")
    what.add_argument(
        "--model-repository", type=Path, metavar="DIR", help="a model repository on disk: config.pbtxt, model.json, versions"
    )
    what.add_argument(
        "--backend-directory", type=Path, metavar="DIR",
        help="where its backends are (default: /opt/tritonserver/backends, where that is)",
    )
    what.add_argument(
        "--recording", type=Path, metavar="PATH", help="a recording instead of a metrics page: a folder or .tar.gz"
    )
    what.add_argument(
        "--triton-args", default="", metavar="TEXT",
        help="the server's command line, which Triton tells nobody (default: read from /proc when it runs on this machine)",
    )
    add_config(what)  # type: ignore[arg-type]  # a group takes arguments as a parser does
    show = parser.add_argument_group("what to show")
    show.add_argument("--verbose", "-v", action="store_true", help="every alert, and the mend of every info")
    add_format(show, "text", "json")  # type: ignore[arg-type]
    show.add_argument(
        "--fail-on", choices=("error", "warning"), default="warning", help="exit 1 from this severity on (default: %(default)s)"
    )
    show.add_argument("--ignore", action="append", default=[], metavar="ID", help="leave out a check's findings; repeatable")
    show.add_argument("--explain", metavar="ID", help="say what a check looks at, why it matters and how to mend it")
    show.add_argument("--list", action="store_true", help="list every check with one line")
    add_connection(parser)
    parser.add_argument(
        "--authorization-file", default="", metavar="FILE",
        help="file with the Authorization header for Triton and vLLM (Prometheus: --token-file)",
    )
    parser.set_defaults(timeout="10s", deadline="1m", retries=0)


def run(args: argparse.Namespace) -> int:
    """Look and print; see EXIT_CODES."""
    from obs.doctor.checks import registry

    if args.list:
        longest = max(map(len, registry.IDS))
        for check in registry.CHECKS:
            print(f"{check.ID:<{longest}}  {registry.explanation(check).splitlines()[0]}")
        return EXIT_OK
    if args.explain:
        _known(args.explain, registry.IDS, "--explain")
        check = next(one for one in registry.CHECKS if args.explain == one.ID)
        print(f"{check.ID}\n\n{registry.explanation(check)}")
        return EXIT_OK
    for name in args.ignore:
        _known(name, registry.IDS, "--ignore")
    from obs.doctor import report
    from obs.doctor.run import examine

    found = examine(_sources(args), args.ignore)
    if args.format == "json":
        print(json.dumps(report.as_json(found), indent=2))
    else:
        width = min(120, shutil.get_terminal_size((100, 24)).columns)
        print("\n".join(report.as_text(found, width=width, colour=colour(), verbose=args.verbose)))
    code = verdict(found, args.fail_on)
    if found.interrupted and any(not one.daemon and one is not threading.main_thread() for one in threading.enumerate()):
        sys.stdout.flush()
        os._exit(code)  # a request on its way would hold the exit up for as long as its timeout
    return code


def verdict(found: Report, fail_on: str) -> int:
    """The exit code."""
    if found.interrupted:
        return EXIT_INTERRUPTED
    if not found.looked:
        return EXIT_COULD_NOT
    if found.at_least("error" if fail_on == "error" else "warning"):
        return EXIT_FINDINGS
    return EXIT_OK if found.complete else EXIT_COULD_NOT


def _known(name: str, ids: tuple[str, ...], flag: str) -> None:
    if name not in ids:
        near = difflib.get_close_matches(name, ids, n=1)
        raise InputError(f"{flag} {name}: no such check; {f'did you mean {near[0]}?' if near else 'see obs doctor --list'}")


def _sources(args: argparse.Namespace) -> Sources:
    from obs.cli.sidecar import authorization
    from obs.config import load_config
    from obs.doctor.run import Sources

    if args.backend_directory is not None and args.model_repository is None:
        raise InputError("--backend-directory without --model-repository; give both")
    if args.recording is not None and (args.triton or args.metrics):
        raise InputError("--recording stands for a metrics page; give it without --triton and --metrics")
    named = args.triton or args.metrics or args.vllm or args.model_repository or args.recording
    asked = args.prometheus or ("" if named else os.environ.get(URL, ""))
    return Sources(
        load_config(args.config),
        args.triton,
        args.metrics,
        args.vllm,
        connection(args) if asked else None,
        args.model_repository,
        args.backend_directory,
        args.recording,
        args.triton_args,
        authorization(args.authorization_file),
        str(args.ca_file or ""),
        duration_of("--timeout", args.timeout),
    )
