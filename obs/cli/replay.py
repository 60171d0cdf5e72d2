"""``obs replay RECORDING``: when would each alert have been pending and firing on a recording."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from obs.errors import EXIT_OK, InputError

if TYPE_CHECKING:
    from obs.evaluate.chart import Phase
    from obs.evaluate.replay import Timeline

HELP = "run the alerts over a recording of /metrics and draw when each would have fired"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "recording", type=Path, help="a folder or .tar.gz of scrapes named <unix milliseconds>.prom, or of such folders"
    )
    parser.add_argument(
        "--rules", action="append", metavar="PATH", help="rule file or glob; repeatable (default: alerts/rules/*.yaml)"
    )
    parser.add_argument("--job", default="", help="job label of the target (default: the recording's name)")
    parser.add_argument("--instance", default="", help="instance label of the target (default: recording:0)")
    parser.add_argument(
        "--end",
        default="",
        metavar="T",
        help="until when: unix seconds, or +35s after the last scrape; a target without scrapes by then is down",
    )
    parser.add_argument(
        "--interval", default="", metavar="5s", help="evaluation interval (default: the recording's scrape interval)"
    )
    parser.add_argument("--format", choices=("text", "json"), default="text", help="output (default: text)")
    parser.add_argument("--blind", action="store_true", help="name the series that blind alerts read and the recording has not")
    parser.add_argument(
        "--phases",
        type=Path,
        metavar="FILE.yaml",
        help="list of {from: unix seconds, name: text} (default: <recording>.phases.yaml beside it, if there)",
    )


def run(args: argparse.Namespace) -> int:
    """Replay and print; 0 whatever fired (what should have is for the caller to judge)."""
    from obs.evaluate import chart, recording, rules
    from obs.evaluate.replay import replay

    one = recording.read(args.recording, job=args.job, instance=args.instance)
    beside = args.recording.parent / f"{one.name}.phases.yaml"
    phases_file = args.phases or (beside if beside.is_file() else None)
    phases = chart.read_phases(phases_file) if phases_file else ()
    loaded = rules.load_rule_files(args.rules or ["alerts/rules/*.yaml"])
    interval_ms = rules.duration_ms(args.interval, "--interval") or None
    if args.interval and interval_ms is None:
        raise InputError("--interval 0 evaluates nothing; give one like 5s")
    timeline = replay(one, loaded, interval_ms=interval_ms, end_ms=_end_ms(args.end, one.end_ms))
    if args.format == "json":
        import json

        print(json.dumps(chart.as_json(timeline, phases), indent=2, sort_keys=True))
        return EXIT_OK
    _print_text(timeline, phases, args.blind)
    return EXIT_OK


def _print_text(timeline: Timeline, phases: Sequence[Phase], show_blind: bool) -> None:
    from obs.evaluate import chart

    terminal = sys.stdout.isatty()
    colour = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    encoding = (sys.stdout.encoding or "ascii").lower().replace("-", "")
    width = shutil.get_terminal_size((110, 24)).columns if terminal else 110
    seconds = (timeline.end_ms - timeline.start_ms) / 1000
    print(
        f"{timeline.recording}: {seconds:g} s from {timeline.start_ms / 1000:.3f}, "
        f"every {timeline.interval_ms / 1000:g} s, {len(timeline.alerts)} alerts, Prometheus {timeline.prometheus}"
    )
    if timeline.instances:
        print()
        print("\n".join(chart.strip(timeline, phases, width=width, colour=colour, unicode=encoding.startswith("utf"))))
        print()
        print("\n".join(chart.table(timeline, phases)))
    active = {one.alert for one in timeline.instances}
    quiet = [name for name in timeline.alerts if name not in active]
    dead = dict(timeline.dead)
    print()
    print(f"never active: {', '.join(name for name in quiet if name not in dead) or 'none'}")
    blind = {state: [name for name in dead if (name in quiet) == (state == "blind")] for state in ("blind", "partly blind")}
    for state, names in blind.items():
        if names:
            print(f"{state}: {', '.join(names)}: they read series that this recording has not (--blind names them)")
    if show_blind:
        print("\n".join(f"  {name} reads {', '.join(metrics)}" for name, metrics in dead.items()))


def _end_ms(text: str, last_ms: int) -> int | None:
    """``--end`` in unix milliseconds; None when it is not given."""
    from obs.evaluate import rules

    if not text:
        return None
    if text.startswith("+"):
        return last_ms + rules.duration_ms(text[1:], "--end")
    try:
        end = float(text)
        if not 0 < end < 1e11:
            raise ValueError
    except ValueError:
        raise InputError(f"--end {text!r} is no unix time in seconds; write it like 1796023557 or +35s") from None
    return round(end * 1000)
