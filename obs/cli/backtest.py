"""``obs backtest``: what would have fired over a past, how good that was, and what other rules would change.

Its exit codes are its own where obs.errors has 3 for a server or tool: here 3 means a bug of ours.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from obs.cli.common import add_format, check_writable, colour, guarded, write_file
from obs.cli.past import add_past, add_rules, load_rules, open_past
from obs.errors import InputError

if TYPE_CHECKING:
    from obs.cli.past import RuleSet
    from obs.evaluate import Comparison, Report, Rule, Score

GOOD, BROKEN, USAGE, BUG, INCONCLUSIVE = 0, 1, 2, 3, 4

#: What --fail-on knows of one set of rules (with --against: of the new ones); obs.evaluate.compare has the others.
OWN_POLICIES = {
    "firing": "anything fired",
    "false": "an episode that no incident explains (needs --incidents)",
    "missed": "an incident that none of its expected alerts detected (needs --incidents)",
    "missed-alert": "an expected alert that did not detect its incident (needs --incidents)",
}

EXIT_CODES = """exit codes of `obs backtest`:
  0  no policy of --fail-on is broken
  1  one is. The default: anything fired; with --incidents: false or missed; with --against: none
  2  usage or tool: wrong arguments, rules or incidents, a server that cannot be used, a partial answer
  3  a bug of obs
  4  every alert was blind: nothing was judged; with --strict: at least one was

policies of --fail-on (comma-separated):
"""


def _epilog() -> str:
    from obs.evaluate.compare import POLICIES

    rows = [*OWN_POLICIES.items(), *((f"{name}", f"{text} (with --against)") for name, text in POLICIES.items())]
    return EXIT_CODES + "\n".join(f"  {name:<14} {text}" for name, text in [*rows, ("none", "never exit 1")]) + "\n"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _epilog()
    add_past(parser)
    judge = parser.add_argument_group("what to judge it by")
    add_rules(judge)  # type: ignore[arg-type]  # a group takes arguments as a parser does
    judge.add_argument(
        "--incidents", type=Path, metavar="FILE", help="what really happened (see `obs incidents init`): scores the alerts"
    )
    judge.add_argument(
        "--against", action="extend", nargs="+", metavar="FILE",
        help="the new rules: files, globs or folders; --rules (or the pack) are the old",
    )
    judge.add_argument(
        "--sweep", action="append", default=[], metavar="ALERT.threshold=50ms..500ms",
        help="what other values would have meant: ALERT.threshold, ALERT.for=1m..15m, or a number of obs.yaml that the "
        "alert reads (ALERT.limits.pending_floor=5..50); /12 asks for 12 values; repeatable",
    )
    judge.add_argument(
        "--fail-on", action="append", metavar="POLICY[,POLICY]", help="what makes exit code 1 (see below); repeatable"
    )
    judge.add_argument("--strict", action="store_true", help="exit 4 when an alert was blind, wholly or in part")
    show = parser.add_argument_group("what to show")
    add_format(show, "text", "json", "markdown", "junit")  # type: ignore[arg-type]
    show.add_argument("--html", type=Path, metavar="FILE", help="also write a report with curves (needs obs-inference[report])")
    show.add_argument("--verbose", "-v", action="store_true", help="name the series that blind alerts read in vain")


def run(args: argparse.Namespace) -> int:
    """Judge, write and print; see EXIT_CODES."""
    return guarded(lambda: _run(args))


def _run(args: argparse.Namespace) -> int:
    report = _report(args)
    if args.html is not None:
        from obs.evaluate import render_html

        write_file(args.html, render_html(report), "--html")
    encoding = sys.stdout.encoding or "utf-8"
    print(_text(report, args).encode(encoding, "replace").decode(encoding), end="")  # label values are any text
    if args.html is not None and args.format == "text":
        print(f"report: {args.html}")
    if not _can_see(report):
        print("obs: every alert was blind: none of the series they read was there; nothing was judged", file=sys.stderr)
    return verdict(report, strict=args.strict)


def verdict(report: Report, *, strict: bool) -> int:
    """The exit code."""
    if report.broken:
        return BROKEN
    if report.warnings:
        return USAGE
    last = report.against or report.history
    return INCONCLUSIVE if not _can_see(report) or (strict and last.timeline.dead) else GOOD


def _can_see(report: Report) -> bool:
    timeline = (report.against or report.history).timeline
    return bool(timeline.instances) or len(timeline.dead) < len(timeline.alerts)


def _report(args: argparse.Namespace) -> Report:
    from obs.evaluate import (
        Report,
        check_sweep,
        compare_scores,
        parse_spec,
        read_incidents,
        score_timeline,
        sweep_alert,
    )

    policies = _policies(args)
    specs = [parse_spec(text) for text in args.sweep]
    if args.html is not None:
        from obs.evaluate.report import drawing

        check_writable(args.html, "--html")
        drawing.ready()
    old = load_rules(args.rules, args.config)
    new = load_rules(args.against, None) if args.against else None
    for spec in specs:
        check_sweep(spec, old.rules, old.config)
    with open_past(args) as past:
        incidents = None
        if args.incidents is not None:
            incidents = read_incidents(args.incidents, start_ms=past.start_ms)
            incidents.check_alerts(rule.name for one in (old, new) if one for rule in one.rules if rule.kind == "alert")
        history, targets = past.run(old.rules, "rules", curves=args.html is not None)
        scored = score_timeline(history.timeline, incidents, merge_ms=past.merge_ms, targets=targets)
        against = comparison = None
        if new is not None:
            against, _ = past.run(new.rules, "new rules", curves=args.html is not None)
            new_score = score_timeline(against.timeline, incidents, merge_ms=past.merge_ms, targets=targets)
            comparison = compare_scores(scored, new_score)
        swept = tuple(
            sweep_alert(
                spec, old.rules, lambda rules, spec=spec: past.run(rules, spec.text),  # type: ignore[misc]
                config=old.config, incidents=incidents, merge_ms=past.merge_ms,
            )
            for spec in specs
        )
        step_ms, title, phases = past.step_ms, past.title, past.phases

    def alerts(rules: RuleSet) -> tuple[Rule, ...]:
        return tuple(rule for rule in rules.rules if rule.kind == "alert")

    broken = _broken(policies, scored, comparison, step_ms)
    return Report(
        title, old.name, history, scored, phases, comparison, against, new.name if new else "", swept,
        tuple(policies), tuple(broken), alerts(old), alerts(new) if new else (),
    )


def _policies(args: argparse.Namespace) -> list[str]:
    from obs.config import nearest
    from obs.evaluate.compare import POLICIES

    if args.fail_on is None:
        if args.against:
            return []
        return ["false", "missed"] if args.incidents is not None else ["firing"]
    found = [name.strip() for text in args.fail_on for name in text.split(",") if name.strip()]
    for name in found:
        if name not in {*OWN_POLICIES, *POLICIES, "none"}:
            raise InputError(f"--fail-on {name}: no such policy; {nearest(name, [*OWN_POLICIES, *POLICIES, 'none'])}")
        if name in POLICIES and not args.against:
            raise InputError(f"--fail-on {name} compares two sets of rules; give the new ones with --against")
        if "needs --incidents" in {**OWN_POLICIES, **POLICIES}.get(name, "") and args.incidents is None:
            raise InputError(f"--fail-on {name} speaks of incidents, and none are given; give --incidents FILE")
    return [name for name in dict.fromkeys(found) if name != "none"]


def _broken(policies: Sequence[str], old: Score, comparison: Comparison | None, step_ms: int) -> list[str]:
    last = old if comparison is None else comparison.new
    lines: list[str] = []
    for policy in policies:
        if policy == "firing":
            names = sorted({one.alert for one in last.episodes})
            lines += [f"firing: {', '.join(names)}"] if names else []
        elif policy == "false":
            names = sorted({one.alert for one in last.episodes if one.kind == "false"})
            lines += [f"false: {last.total.false} episodes of {', '.join(names)}"] if names else []
        elif policy == "missed":
            names = [
                one.incident.name for one in last.incidents or ()
                if one.detections and not any(it.found for it in one.detections)
            ]
            lines += [f"missed: {', '.join(names)}"] if names else []
        elif policy == "missed-alert":
            names = [
                f"{it.alert} ({one.incident.name})" for one in last.incidents or () for it in one.detections if not it.found
            ]
            lines += [f"missed-alert: {', '.join(names)}"] if names else []
        elif comparison is not None:
            lines += comparison.broken([policy], step_ms=step_ms)
    return lines


def _text(report: Report, args: argparse.Namespace) -> str:
    from obs import evaluate

    if args.format != "text":
        render = {"json": evaluate.render_json, "markdown": evaluate.render_markdown, "junit": evaluate.render_junit}
        return render[args.format](report)
    encoding = (sys.stdout.encoding or "ascii").lower().replace("-", "")
    width = max(60, shutil.get_terminal_size((110, 24)).columns) if sys.stdout.isatty() else 110
    return evaluate.render_text(
        report, width=width, colour=colour() and os.environ.get("TERM") != "dumb", unicode=encoding.startswith("utf"),
        verbose=args.verbose,
    )
