"""The past that a command judges: a recording, a data directory or a live server, and the rules to judge it by."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from obs.cli.common import Progress, add_config, duration_of, moment, refuse_broken
from obs.cli.connection import URL, add_connection, connection
from obs.errors import InputError

if TYPE_CHECKING:
    from obs.config import Config
    from obs.evaluate.backtest import How
    from obs.evaluate.chart import Phase
    from obs.evaluate.history import History
    from obs.evaluate.outages import Target
    from obs.evaluate.recording import Recording
    from obs.evaluate.rules import Rule
    from obs.prom.client import Client

DEFAULT_STEP = "1m"
DEFAULT_SINCE = "30d"


def add_past(parser: argparse.ArgumentParser) -> None:
    """Arguments that say which past, and the connection to a server."""
    group = parser.add_argument_group("the past to judge")
    group.add_argument(
        "--recording", type=Path, action="extend", nargs="+", metavar="PATH",
        help="instead of a server: folders or .tar.gz of scrapes, or OpenMetrics text with timestamps, played side by side; "
        "or one Prometheus data directory or snapshot (never modified)",
    )
    group.add_argument("--since", default="", metavar=DEFAULT_SINCE, help=f"how far back (default: {DEFAULT_SINCE})")
    group.add_argument("--from", dest="start", default="", metavar="TIME", help="instead: unix seconds or 2026-11-30T09:00:00Z")
    group.add_argument(
        "--to", dest="end", default="", metavar="TIME",
        help="until when (default: now; of a recording its end, or +35s after it: a target without scrapes by then is down)",
    )
    group.add_argument(
        "--step", default="", metavar=DEFAULT_STEP,
        help=f"evaluation interval (default: {DEFAULT_STEP}; of a recording its scrape interval)",
    )
    group.add_argument("--job", default="", help="job label of a recorded single target (default: the recording's name)")
    group.add_argument("--instance", default="", help="instance label of it (default: recording:0)")
    group.add_argument(
        "--phases", type=Path, metavar="FILE",
        help="list of {from: unix seconds, name: text} to draw (default: <recording>.phases.yaml beside it, if there)",
    )
    group.add_argument(
        "--how", choices=("auto", "expand", "first"), default="auto",
        help="recording rules that a server lacks: put their expressions in, or evaluate them first (default: %(default)s)",
    )
    group.add_argument("--resume", type=Path, metavar="DIR", help="keep a server's answers there and go on from them")
    group.add_argument(
        "--merge", default="", metavar="5m",
        help="firing less than this apart is one episode (default: 5 evaluation intervals)",
    )
    add_connection(parser)
    parser.set_defaults(deadline="2h")  # a month at a minute is many questions


def add_rules(parser: argparse.ArgumentParser) -> None:
    """``--rules`` and ``--config``."""
    parser.add_argument(
        "--rules", action="extend", nargs="+", metavar="FILE",
        help="rule files, globs or folders (default: the pack, by obs.yaml)",
    )
    add_config(parser)


@dataclass(frozen=True)
class RuleSet:
    """Rules and what they are in words; ``config`` when the pack's own code made them."""

    rules: Sequence[Rule]
    name: str
    config: Config | None


def load_rules(paths: Sequence[str] | None, config_path: Path | None) -> RuleSet:
    """The rules of files, or the pack's."""
    from obs.evaluate import rules

    if not paths:
        from obs.alerts.registry import all_groups
        from obs.config import load_config

        config = load_config(config_path)
        return RuleSet(rules.from_groups(all_groups(config)), f"the pack by {config.path}", config)
    files = [file for path in paths for file in _files(path)]
    loaded = rules.load_rule_files(files)
    refuse_broken(files)
    return RuleSet(loaded, ", ".join(paths), None)


def _files(path: str) -> list[str]:
    folder = Path(path)
    if not folder.is_dir():
        return [path]
    found = sorted(str(file) for ending in ("*.yaml", "*.yml") for file in folder.glob(ending))
    if not found:
        raise InputError(f"{path}: has no .yaml or .yml file; name a folder with rule files")
    return found


@dataclass
class Past:
    """A past, opened. Times in unix milliseconds. ``run`` evaluates rules over it."""

    title: str
    start_ms: int
    end_ms: int
    step_ms: int
    merge_ms: int | None
    phases: tuple[Phase, ...]
    how: How
    resume: Path | None
    progress: Progress
    recordings: tuple[Recording, ...] = ()
    client: Client | None = None
    _targets: list[Sequence[Target]] = field(default_factory=list)

    def run(self, rules: Sequence[Rule], what: str, *, curves: bool = False) -> tuple[History, Sequence[Target]]:
        """The history of the rules over it, and the targets whose absence splits no episode."""
        from obs.evaluate import over_recordings, over_server

        self.progress.what = what
        if self.client is None:
            history = over_recordings(
                self.recordings, rules, interval_ms=self.step_ms, end_ms=self.end_ms, curves=curves, progress=self.progress
            )
        else:
            history = over_server(
                self.client, rules, start_ms=self.start_ms, end_ms=self.end_ms, step_ms=self.step_ms, how=self.how,
                resume=self.resume, curves=curves, progress=self.progress,
            )
        targets = self.targets()
        if self.client is not None:  # an answer about `up` can be partial as well
            history = replace(history, warnings=tuple(dict.fromkeys((*history.warnings, *self.client.warnings))))
        return history, targets

    def targets(self) -> Sequence[Target]:
        """When its targets, or the server itself, gave no data; found once."""
        from obs.evaluate import targets_of_recordings, targets_of_server

        if not self._targets:
            client = self.client
            if client is None:
                self._targets.append(targets_of_recordings(self.recordings, self.end_ms))
            else:
                self._targets.append(
                    targets_of_server(
                        lambda expr, start, end, step: client.query_range(expr, start / 1000, end / 1000, step / 1000),
                        start_ms=self.start_ms, end_ms=self.end_ms, step_ms=self.step_ms,
                    )
                )
        return self._targets[0]


@contextmanager
def open_past(args: argparse.Namespace) -> Iterator[Past]:
    """The past that the arguments name; InputError when they name none or do not fit together."""
    from obs.evaluate import recording

    if args.recording and args.prometheus:
        raise InputError("--recording and --prometheus are both given; give one of them")
    if args.since and args.start:
        raise InputError("--since and --from are both given; give one of them")
    merge = round(duration_of("--merge", args.merge) * 1000) if args.merge else None
    with ExitStack() as stack:
        progress = stack.enter_context(Progress())
        phases = _phases(args)
        if args.recording and any(path.is_dir() and recording.is_tsdb(path) for path in args.recording):
            if len(args.recording) > 1:
                raise InputError("a Prometheus data directory is judged alone; give one --recording")
            server = stack.enter_context(recording.Tsdb(args.recording[0]))
            step = round(duration_of("--step", args.step or DEFAULT_STEP) * 1000)
            start, end = _period(args, server.start_ms, server.end_ms)
            yield Past(
                str(args.recording[0]), start, end, step, merge, phases, args.how, args.resume, progress,
                client=server.client,
            )
        elif args.recording:
            if args.since or args.start:
                raise InputError("a recording is judged from its beginning; leave out --since and --from")
            if args.resume:
                raise InputError("--resume is for a server; a recording is quick: leave it out")
            ones = tuple(recording.read(path, job=args.job, instance=args.instance) for path in args.recording)
            last = max(one.end_ms for one in ones)
            interval = round(duration_of("--step", args.step) * 1000) if args.step else min(one.interval_ms for one in ones)
            yield Past(
                ", ".join(one.name for one in ones), min(one.start_ms for one in ones), _end(args.end, last), interval,
                merge, phases, args.how, None, progress, recordings=ones,
            )
        else:
            if not args.prometheus and not os.environ.get(URL):
                raise InputError("there is no past to judge; give --prometheus URL or --recording PATH")
            from obs.prom.client import Client

            step = round(duration_of("--step", args.step or DEFAULT_STEP) * 1000)
            client = stack.enter_context(Client(connection(args)))
            start, end = _period(args, None, round(time.time() * 1000))
            # evaluation times that do not depend on when the command was started, so that --resume finds them again
            start, end = start // step * step, end // step * step
            if end <= start:
                raise InputError("the period is shorter than one --step; give a longer one")
            yield Past(client.url, start, end, step, merge, phases, args.how, args.resume, progress, client=client)


def _period(args: argparse.Namespace, first_ms: int | None, last_ms: int) -> tuple[int, int]:
    end = _end(args.end, last_ms) if first_ms is not None or args.end else last_ms
    if args.start:
        start = round(moment("--from", args.start) * 1000)
    elif args.since or first_ms is None:
        start = end - round(duration_of("--since", args.since or DEFAULT_SINCE) * 1000)
    else:
        start = first_ms
    if first_ms is not None:
        start = max(start, first_ms)
    if end <= start:
        raise InputError("the period ends before it begins; give a --to after --from")
    return start, end


def _end(text: str, last_ms: int) -> int:
    if not text:
        return last_ms
    if text.startswith("+"):
        return last_ms + round(duration_of("--to", text[1:]) * 1000)
    return round(moment("--to", text) * 1000)


def _phases(args: argparse.Namespace) -> tuple[Phase, ...]:
    from obs.evaluate import chart, recording

    files = [args.phases] if args.phases else []
    if not files and args.recording and len(args.recording) == 1:
        path = args.recording[0]
        beside = path.parent / f"{recording.name_of(path)}.phases.yaml"
        files = [beside] if beside.is_file() else []
    return chart.read_phases(files[0]) if files else ()
