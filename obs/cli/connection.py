"""Arguments that say how to reach a Prometheus; shared by every command that asks one."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from obs.cli.common import duration_of
from obs.errors import InputError

if TYPE_CHECKING:
    from obs.prom.client import Connection

URL, TOKEN, PASSWORD = "PROMETHEUS_URL", "OBS_PROMETHEUS_TOKEN", "OBS_PROMETHEUS_PASSWORD"


def add_connection(parser: argparse.ArgumentParser) -> None:
    """``--prometheus`` and what goes with it."""
    group = parser.add_argument_group(
        "connection", "Secrets come from files or the environment, never from the command line, and are never shown."
    )
    group.add_argument(
        "--prometheus", metavar="URL", default="",
        help=f"Prometheus, Thanos, Mimir or VictoriaMetrics, with any path before /api/v1 (or {URL})",
    )
    group.add_argument("--token-file", type=Path, metavar="FILE", help=f"file with a bearer token (or {TOKEN})")
    group.add_argument("--user", default="", metavar="NAME", help="user for basic authentication")
    group.add_argument("--password-file", type=Path, metavar="FILE", help=f"file with its password (or {PASSWORD})")
    group.add_argument("--ca-file", type=Path, metavar="PEM", help="authority of the server's certificate")
    group.add_argument("--cert-file", type=Path, metavar="PEM", help="our certificate, where the server wants one")
    group.add_argument("--key-file", type=Path, metavar="PEM", help="its key, when it is in another file")
    group.add_argument(
        "--header", action="append", default=[], metavar="NAME:VALUE",
        help="sent with every request, such as X-Scope-OrgID:tenant; NAME:@FILE takes the value from a file; repeatable",
    )
    group.add_argument(
        "--timeout", default="30s", metavar="30s", help="for one request, retries included (default: %(default)s)"
    )
    group.add_argument("--deadline", default="5m", metavar="5m", help="for everything asked together (default: %(default)s)")
    group.add_argument(
        "--retries", type=int, default=2, metavar="N", help="after 429, 502, 503, 504 or no connection (default: 2)"
    )
    group.add_argument("--parallel", type=int, default=8, metavar="N", help="requests at a time (default: %(default)s)")


def connection(args: argparse.Namespace) -> Connection:
    """The connection that the arguments describe; InputError when they do not fit together."""
    from obs.prom.client import Connection

    url = args.prometheus or os.environ.get(URL, "")
    if not url:
        raise InputError("no Prometheus is named; give --prometheus URL, such as http://127.0.0.1:9090")
    if args.parallel < 1 or args.retries < 0:
        raise InputError("--parallel is 1 or more, --retries 0 or more; correct them")
    if args.password_file is not None and not args.user:
        raise InputError("--password-file without --user; give both")
    token = "" if args.token_file is not None or args.user else os.environ.get(TOKEN, "")
    return Connection(
        url,
        token_file=args.token_file,
        token=token,
        user=args.user,
        password_file=args.password_file,
        password=os.environ.get(PASSWORD, "") if args.user else "",
        ca_file=args.ca_file,
        cert_file=args.cert_file,
        key_file=args.key_file,
        headers=dict(_header(text) for text in args.header),
        timeout=duration_of("--timeout", args.timeout),
        deadline=duration_of("--deadline", args.deadline),
        retries=args.retries,
        parallel=args.parallel,
    )


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        shown = name.strip().split("=", 1)[0][:40]
        raise InputError(f"--header {shown!r}: no NAME:VALUE; write it like X-Scope-OrgID:tenant")
    value = value.strip()
    if value.startswith("@"):
        from obs.prom.client import read_secret

        value = read_secret(Path(value[1:]), f"{name.strip()} header").strip()
    return name.strip(), value
