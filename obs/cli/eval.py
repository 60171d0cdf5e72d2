"""``obs eval``: what every alert says now, on a live Prometheus or a recording, and why.

Its exit codes are its own where obs.errors has 3 for a server or tool: here 3 means a bug of ours.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from obs.cli.common import add_config, add_format, colour, duration_of, guarded, moment, recording_time, refuse_broken
from obs.cli.connection import URL, add_connection, connection
from obs.errors import InputError

if TYPE_CHECKING:
    from obs.evaluate.live import Evaluation, Instance, Result
    from obs.evaluate.rules import Rule

QUIET, FIRING, USAGE, BUG, INCONCLUSIVE = 0, 1, 2, 3, 4

EXIT_CODES = """exit codes of `obs eval`:
  0  nothing fires (pending is not firing)
  1  at least one alert fires
  2  usage or tool: wrong arguments or rules, a server that cannot be used, an alert that cannot be evaluated,
     a partial answer; also a recording that cannot be read
  3  a bug of obs
  4  with --strict: nothing fires, but an alert has no data or is dead

states:
  firing, pending   as Prometheus means them, over the last minutes
  ok                its input has data, and the data says no
  no data           its input is missing, NaN, or too little to judge; the reason is shown
  dead              it reads a series that this server can never have, as it is
  error             the server cannot evaluate it, or its answer is partial
"""
_COLOURS = {"firing": "31;1", "pending": "33", "ok": "32", "no data": "35", "dead": "36", "error": "31"}
_TITLES = {
    "firing": "FIRING", "pending": "PENDING", "error": "ERROR", "no data": "NO DATA", "dead": "DEAD", "ok": "OK",
}
_ORDER = ("ok", "dead", "no data", "error", "pending", "firing")  # the worst is read last, above the prompt


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXIT_CODES
    what = parser.add_argument_group("what to judge")
    what.add_argument(
        "--recording", type=Path, metavar="PATH",
        help="instead of a server: a folder or .tar.gz of scrapes, OpenMetrics text with timestamps, or a Prometheus data "
        "directory or snapshot (never modified)",
    )
    what.add_argument(
        "--rules", action="append", metavar="FILE", help="rule file or glob; repeatable (default: the pack, by obs.yaml)"
    )
    add_config(what)  # type: ignore[arg-type]  # a group takes arguments as a parser does
    what.add_argument("--alert", action="append", metavar="NAME", help="only this alert; repeatable")
    what.add_argument(
        "--at", default="", metavar="TIME",
        help="when: unix seconds, 2026-11-30T09:00:00Z, or (recording) +35s after its end; default: now, or its end",
    )
    what.add_argument("--job", default="", help="job label of a recorded single target (default: the recording's name)")
    what.add_argument("--instance", default="", help="instance label of it (default: recording:0)")
    what.add_argument(
        "--interval", default="", metavar="30s", help="evaluation interval (default: of obs.yaml, or the recording's)"
    )
    what.add_argument("--lookback", default="30d", metavar="30d", help="how far back a series counts as known (default: 30d)")
    show = parser.add_argument_group("what to show")
    show.add_argument(
        "--only", action="append", choices=_ORDER, metavar="STATE",
        help=f"only this state ({', '.join(_ORDER)}); repeatable",
    )
    show.add_argument("--verbose", "-v", action="store_true", help="the deciding part of every alert's expression")
    show.add_argument("--strict", action="store_true", help="exit 4 when an alert has no data or is dead")
    add_format(show, "text", "json")  # type: ignore[arg-type]
    add_connection(parser)


def run(args: argparse.Namespace) -> int:
    """Judge and print; see EXIT_CODES."""
    collecting = gc.isenabled()
    gc.disable()  # it finds nothing in a command that soon ends, and takes a seventh of its time
    try:
        return guarded(lambda: _run(args))
    finally:
        if collecting:
            gc.enable()


def _run(args: argparse.Namespace) -> int:
    found = _evaluate(args)
    if args.format == "json":
        from obs.evaluate.live import as_json

        document = as_json(found)
        if args.only:
            document["alerts"] = [one for one in document["alerts"] if one["state"] in args.only]
        print(json.dumps(document, indent=2))
    else:
        print("\n".join(_text(found, args.only or _ORDER, args.verbose)))
    return verdict(found, strict=args.strict)


def verdict(found: Evaluation, *, strict: bool) -> int:
    """The exit code."""
    if found.of("firing"):
        return FIRING
    if found.of("error") or found.warnings:
        return USAGE
    return INCONCLUSIVE if strict and (found.of("no data") or found.of("dead")) else QUIET


def _evaluate(args: argparse.Namespace) -> Evaluation:
    from obs.evaluate import live

    if args.recording is not None and args.prometheus:
        raise InputError("--recording and --prometheus are both given; give one of them")
    rules, interval = _rules(args)
    if args.interval:
        interval = duration_of("--interval", args.interval)
    names = {rule.name for rule in rules if rule.kind == "alert"}
    for name in args.alert or ():
        if name not in names:
            from obs.config import nearest

            raise InputError(f"--alert {name}: no such alert among these rules; {nearest(name, names)}")
    if args.recording is not None:
        return live.evaluate_recording(
            args.recording, rules, at=recording_time(args.at), job=args.job, instance=args.instance,
            interval=interval if args.interval else None, only=args.alert,
        )
    if not args.prometheus and not os.environ.get(URL):
        raise InputError("nothing to judge; give --prometheus URL or --recording PATH")
    from obs.prom.client import Client

    with Client(connection(args)) as client:
        return live.evaluate(
            client, rules, at=moment("--at", args.at) if args.at else None, interval=interval,
            lookback=duration_of("--lookback", args.lookback), parallel=args.parallel, only=args.alert,
        )


def _rules(args: argparse.Namespace) -> tuple[list[Rule], float]:
    """The rules and their evaluation interval."""
    from obs.config import load_config
    from obs.evaluate import rules

    config = load_config(args.config)
    if not args.rules:
        from obs.alerts.registry import all_groups

        return rules.from_groups(all_groups(config)), config.evaluation_interval
    loaded = rules.load_rule_files(args.rules)
    refuse_broken(args.rules)
    return loaded, config.evaluation_interval


# --- on the terminal ---------------------------------------------------------------------------------------


def _text(found: Evaluation, states: Sequence[str], verbose: bool) -> list[str]:
    from obs.evaluate.live import STATES
    from obs.evaluate.liveness import clock

    shown = colour()
    width = max(60, shutil.get_terminal_size((120, 24)).columns) if sys.stdout.isatty() else 120

    def paint(state: str, text: str) -> str:
        return f"\x1b[{_COLOURS[state]}m{text}\x1b[0m" if shown else text

    lines: list[str] = []
    wide = min(36, max((len(one.alert) for one in found.results), default=8))
    for state in _ORDER:
        here = [one for one in found.results if one.state == state]
        if state not in states or not here:
            continue
        lines.append(paint(state, f"{_TITLES[state]} ({len(here)})"))
        for result in here:
            lines += _lines(result, wide, width, verbose, found.at)
        lines.append("")
    if found.differences:
        lines.append(f"The server's own rules say otherwise ({len(found.differences)}):")
        for one in found.differences:
            lines.append(f"  {one.alert}: {one.what}: here {one.ours}, there {one.theirs}")
        lines.append("")
    lines += [f"warning: {one}" for one in found.warnings]
    lines += [f"note: {one}" for one in found.notes]
    counts = [paint(state, f"{len(found.of(state))} {state}") for state in STATES if found.of(state)]
    compared = ""
    if found.compared is not None:
        compared = f"; {found.compared} of them loaded there too" if found.compared else "; none of them loaded there"
    lines.append(f"{found.source} at {clock(found.at)}: {len(found.results)} alerts{compared}: {', '.join(counts)}")
    return lines


def _lines(result: Result, wide: int, width: int, verbose: bool, at: float) -> list[str]:
    from obs.evaluate import liveness

    own = liveness.label_text(tuple(sorted(result.rule.labels.items())), ("severity", "alertname"))
    head = f"  {result.alert:<{wide}}"
    lines = []
    if result.instances:
        for one in result.instances:
            lines.append(f"{head}  {_instance(one, at)}")
            head = f"  {'':<{wide}}"
        if result.why:
            lines += _wrapped(result.why, wide, width)
    else:
        reason = f"{result.reason}: " if result.reason else ""
        words = f"{reason}{result.why}" + (f"  {own}" if own and verbose else "")
        if result.state == "ok" and not verbose:
            if result.value is not None and result.threshold is not None:
                value, threshold = liveness.number(result.value), liveness.number(result.threshold)
                where = liveness.label_text(result.labels)
                holds = result.op in liveness.TESTS and liveness.TESTS[result.op](result.value, result.threshold)
                words = f"{value} {'' if holds else 'not '}{result.op} {threshold}  {where}".rstrip()
                if holds:  # the limit is passed, and another part of the rule holds it back: "not > 0.9" would be a lie
                    words += f", but {result.why.rpartition(', but ')[2]}"
            else:
                words = liveness.short(words, max(40, width - wide - 6))
        room = max(40, width - wide - 4)
        rows = [words] if len(words) <= room else textwrap.wrap(words, room, break_long_words=False)
        lines.append(f"{head}  {rows[0]}")
        lines += [f"  {'':<{wide}}  {row}" for row in rows[1:]]
    if verbose:
        side = f" ({result.side} side)" if result.side else ""
        lines += _wrapped(f"decides{side}: {' '.join(result.part.split())}", wide, width)
        if result.path:
            lines += _wrapped(f"by way of: {' ← '.join(result.path)}", wide, width)
        if result.in_place:
            lines += _wrapped(f"computed in place: {', '.join(result.in_place)}", wide, width)
        if result.sampled:
            lines += _wrapped(f"sampled, may differ slightly from deployed rules: {', '.join(result.sampled)}", wide, width)
    return lines


def _wrapped(text: str, wide: int, width: int) -> list[str]:
    pad = " " * (wide + 4)
    return [pad + row for row in textwrap.wrap(text, max(40, width - wide - 4), break_long_words=False)]


def _instance(one: Instance, at: float) -> str:
    from obs.evaluate import liveness

    value = "" if one.value is None else liveness.number(one.value)
    beside = f"{value} {one.op} {liveness.number(one.threshold)}" if value and one.threshold is not None else value
    since = f"{'' if one.exact else 'at least '}{liveness.ago(at - one.since)}"
    labels = liveness.label_text(one.labels)
    state = f"{one.state} " if one.state == "pending" else ""
    return f"{state}since {liveness.clock(one.since)} ({since})  {beside}  {labels}".rstrip()
