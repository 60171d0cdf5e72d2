"""``obs incidents``: write a first incidents file from what fired, or check one."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from obs.cli.common import write_file
from obs.cli.past import add_past, add_rules, load_rules, open_past
from obs.errors import EXIT_OK, InputError

_INIT_HELP = "write a draft of incidents.yaml from what fired over a past"
_CHECK_HELP = "check an incidents file, its alerts against the rules"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="init | check", required=True)
    init = actions.add_parser("init", help=_INIT_HELP, description=f"{_INIT_HELP}.", allow_abbrev=False)
    add_past(init)
    add_rules(init)
    init.add_argument("--out", type=Path, default=Path("incidents.yaml"), metavar="FILE", help="(default: %(default)s)")
    init.add_argument("--force", action="store_true", help="replace a file that is there")
    check = actions.add_parser("check", help=_CHECK_HELP, description=f"{_CHECK_HELP}.", allow_abbrev=False)
    check.add_argument("file", type=Path, nargs="?", default=Path("incidents.yaml"), help="(default: %(default)s)")
    add_rules(check)


def run(args: argparse.Namespace) -> int:
    """Write or check; 0, or an ObsError."""
    return _init(args) if args.action == "init" else _check(args)


def _init(args: argparse.Namespace) -> int:
    from obs.evaluate import SeenEpisode, default_merge_ms, draft_incidents, episodes

    if args.out.exists() and not args.force:
        raise InputError(f"{args.out}: is there already; give another --out, or --force to replace it")
    rules = load_rules(args.rules, args.config)
    with open_past(args) as past:
        history, targets = past.run(rules.rules, "rules")
        title, merge = past.title, past.merge_ms
    timeline = history.timeline
    found = episodes(timeline, merge_ms=merge, targets=targets)
    seen = [SeenEpisode(one.alert, one.labels, one.pending_ms, one.end_ms) for one in found]
    gap = default_merge_ms(timeline) if merge is None else merge
    for warning in history.warnings:
        print(f"obs: warning: {warning}", file=sys.stderr)
    write_file(args.out, draft_incidents(seen, gap_ms=gap, source=title), "--out")
    print(f"{args.out}: {len(found)} episodes of {len({one.alert for one in found})} alerts; now tell what really happened")
    return EXIT_OK


def _check(args: argparse.Namespace) -> int:
    from obs.evaluate import read_incidents

    found = read_incidents(args.file)
    found.check_alerts(rule.name for rule in load_rules(args.rules, args.config).rules if rule.kind == "alert")
    expected = len({name for one in found.incidents for name in one.expected})
    print(f"{args.file}: {len(found.incidents)} incidents, {expected} alerts expected")
    return EXIT_OK
