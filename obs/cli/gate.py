"""``obs gate``: may this canary go on? Pass, fail or inconclusive, once or until it is known.

Its exit codes are those of ``obs eval``: 3 means a bug of ours.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from obs.cli.common import add_config, add_format, colour, duration_of, guarded, moment, recording_time
from obs.cli.connection import URL, add_connection, connection
from obs.errors import InputError, ServerError

if TYPE_CHECKING:
    from obs.evaluate.gate import Gate

PASS, FAIL, USAGE, BUG, INCONCLUSIVE = 0, 1, 2, 3, 4

EXIT_CODES = """exit codes of `obs gate`:
  0  pass: no criterion is worse, and what must be measured is
  1  fail: at least one criterion is worse than the baseline allows, or over its maximum
  2  usage or tool: wrong arguments or configuration, a server that cannot be used
  3  a bug of obs
  4  inconclusive: too few requests, no data, NaN, several series where one is needed, counters that only restarted,
     a target down, a partial answer

The limits are in obs.yaml under `gate:`; `obs config --show` lists them with their reasons.
"""
_CODES = {"pass": PASS, "fail": FAIL, "inconclusive": INCONCLUSIVE}
_COLOURS = {"pass": "32", "fail": "31;1", "inconclusive": "33", "not measured": "2"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXIT_CODES
    what = parser.add_argument_group("what to compare")
    what.add_argument(
        "--baseline", required=True, metavar="MATCHERS",
        help="matchers that pick the baseline's raw series, such as 'version=\"1\"' or 'pod=~\"stable-.*\"'",
    )
    what.add_argument("--canary", required=True, metavar="MATCHERS", help="matchers that pick the canary's")
    what.add_argument("--since", default="15m", metavar="15m", help="the window to compare (default: %(default)s)")
    what.add_argument(
        "--recording", type=Path, metavar="PATH", help="instead of a server: a recording, in any form that obs eval takes"
    )
    what.add_argument(
        "--at", default="", metavar="TIME",
        help="when: unix seconds, 2026-11-30T09:00:00Z, or (recording) +35s after its end; default: now, or its end",
    )
    what.add_argument("--job", default="", help="job label of a recorded single target (default: the recording's name)")
    what.add_argument("--instance", default="", help="instance label of it (default: recording:0)")
    add_config(what)  # type: ignore[arg-type]  # a group takes arguments as a parser does
    how = parser.add_argument_group("watching and serving")
    how.add_argument("--watch", action="store_true", help="look again and again; end with the first fail, else as --until says")
    how.add_argument("--every", default="30s", metavar="30s", help="between two looks (default: %(default)s)")
    how.add_argument("--until", default="30m", metavar="30m", help="how long to watch (default: %(default)s)")
    how.add_argument(
        "--serve", default="", metavar="HOST:PORT",
        help="answer over HTTP, for Argo Rollouts and Flagger: /verdict (the JSON), /pass and /fail (200 when so, else 409); "
        "it looks again at most every --every",
    )
    add_format(parser, "text", "json")
    add_connection(parser)


def run(args: argparse.Namespace) -> int:
    """Compare and print; see EXIT_CODES."""
    return guarded(lambda: _run(args))


def _run(args: argparse.Namespace) -> int:
    from obs.config import load_config

    config = load_config(args.config)
    span = duration_of("--since", args.since)
    if args.recording is not None:
        if args.prometheus or args.watch or args.serve:
            raise InputError("--recording goes with neither --prometheus, --watch nor --serve; leave one out")
        from obs.evaluate.gate import gate_recording

        found = gate_recording(
            args.recording, args.baseline, args.canary, config=config, span=span, at=recording_time(args.at), job=args.job,
            instance=args.instance,
        )
        return _end(found, args.format)
    if not args.prometheus and not os.environ.get(URL):
        raise InputError("nothing to judge; give --prometheus URL or --recording PATH")
    if (args.watch or args.serve) and args.at:
        raise InputError("--at is one moment, --watch and --serve go on; leave one out")
    from obs.evaluate.gate import gate
    from obs.prom.client import Client

    def look() -> Gate:
        # a client of its own for each look: --deadline bounds one look, not the watch
        with Client(connection(args)) as client:
            return gate(
                client, args.baseline, args.canary, config=config, span=span,
                at=moment("--at", args.at) if args.at else None, parallel=args.parallel,
            )

    every = duration_of("--every", args.every)
    if args.serve:
        from obs.cli.gate_server import serve

        return serve(args.serve, look, every)
    if not args.watch:
        return _end(look(), args.format)
    return _watch(look, every, duration_of("--until", args.until), args.format)


def _watch(look: Callable[[], Gate], every: float, until: float, form: str) -> int:
    from obs.evaluate.gate import watch

    *_, last = _shown(watch(look, every=every, until=until))
    if isinstance(last, ServerError):
        raise last
    return _end(last, form)


def _shown(looks: Iterable[Gate | ServerError]) -> Iterable[Gate | ServerError]:
    """The looks, each told on standard error: one line that is rewritten on a terminal, lines elsewhere."""
    from obs.evaluate.liveness import clock

    terminal = sys.stderr.isatty()
    for number, one in enumerate(looks, 1):
        if isinstance(one, ServerError):
            text = f"look {number}: no answer: {one}"
        else:
            why = f": {one.reasons[0]}" if one.reasons else ""
            text = f"look {number} at {clock(one.at)}: {one.verdict}{why}"
        if terminal:
            print(f"\r\x1b[K{text[:118]}", end="", file=sys.stderr, flush=True)
        else:
            print(text, file=sys.stderr, flush=True)
        yield one
    if terminal:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _end(found: Gate, form: str) -> int:
    if form == "json":
        print(json.dumps(as_json(found), indent=2))
    else:
        print("\n".join(_text(found)))
    return _CODES[found.verdict]


def _text(found: Gate) -> list[str]:
    from obs.evaluate.gate.judge import show
    from obs.evaluate.liveness import clock
    from obs.promql import duration

    shown = colour()

    def paint(state: str, text: str) -> str:
        return f"\x1b[{_COLOURS[state]}m{text}\x1b[0m" if shown else text

    engine = found.canary.engine or found.baseline.engine
    model = dict(found.canary.labels).get("model", "")
    what = f" of model {model}" if model else ""
    lines = [
        f"{paint(found.verdict, found.verdict.upper())}: canary {found.canary.matchers} against baseline "
        f"{found.baseline.matchers}{what}{f' ({engine})' if engine else ''}, {duration(found.span)} up to {clock(found.at)}",
    ]
    if found.canary.measures:
        rows = [("", "baseline", "canary", "limit", "", "source")]
        rows += [
            (one.title, show(one.baseline, one.unit), show(one.canary, one.unit),
             "" if one.limit is None else f"{one.op} {show(one.limit, one.unit)}", one.state, one.source)
            for one in found.criteria
        ]
        rows.insert(1, ("requests", f"{found.baseline.requests:.0f}", f"{found.canary.requests:.0f}", "", "", ""))
        wide = [max(len(row[column]) for row in rows) for column in range(6)]
        for row in rows:
            cells = [row[0].ljust(wide[0]), row[1].rjust(wide[1]), row[2].rjust(wide[2]), row[3].ljust(wide[3])]
            state = row[4].ljust(wide[4])
            lines.append(f"  {'  '.join(cells)}  {paint(row[4], state) if row[4] else state}  {row[5]}".rstrip())
    lines += [f"{found.verdict}: {one}" for one in found.reasons]
    lines += [
        f"not measured: {one.title}: {one.why}" for one in found.criteria if one.state == "not measured" and one.why
    ]
    lines += [f"warning: {one}" for one in found.warnings]
    lines += [f"note: {one}" for one in found.notes]
    return lines


def as_json(found: Gate) -> dict[str, object]:
    """The gate for machines: ``verdict`` for Argo's ``jsonPath: "{$.verdict}"``; no value is null, NaN is null."""
    import math

    from obs.evaluate.liveness import clock

    def number(value: float | None) -> float | None:
        return value if value is not None and math.isfinite(value) else None

    return {
        "verdict": found.verdict,
        "at": clock(found.at),
        "since_seconds": found.span,
        "reasons": list(found.reasons),
        **{
            who: {
                "matchers": side.matchers, "engine": side.engine or None, "labels": dict(side.labels),
                "requests": number(side.requests), "failed": number(side.failed), "resets": number(side.resets),
            }
            for who, side in (("baseline", found.baseline), ("canary", found.canary))
        },
        "criteria": [
            {
                "name": one.name, "state": one.state, "unit": one.unit, "baseline": number(one.baseline),
                "canary": number(one.canary), "op": one.op, "limit": number(one.limit), "source": one.source or None,
                "why": one.why,
            }
            for one in found.criteria
        ],
        "notes": list(found.notes),
        "warnings": list(found.warnings),
    }
