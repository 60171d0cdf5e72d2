"""``obs preview``: dashboards drawn without Grafana, as HTML pages and pictures."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from obs.cli.common import Progress, duration_of, moment
from obs.cli.connection import URL, add_connection, connection
from obs.cli.past import add_rules, load_rules
from obs.errors import EXIT_FINDINGS, EXIT_OK, InputError, OutputError

if TYPE_CHECKING:
    from obs.preview.load import Dashboard
    from obs.preview.page import Page
    from obs.preview.query import Range
    from obs.prom.client import Client

FOLDER = "previews"
MOST_TIME = 4_102_444_800.0
"""The year 2100, unix seconds."""
MOST_AFTER = 86_400.0
"""How long after a recording's end its rules go on at most, seconds: every evaluation is stored."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "dashboards", nargs="*", metavar="DASHBOARD",
        help="a dashboard of the pack (fleet, model, llm, gpu, alerts), a Grafana dashboard's .json file, or a folder of them",
    )
    parser.add_argument("--all", action="store_true", help="every dashboard of the pack")
    parser.add_argument(
        "--recording", type=Path, action="extend", nargs="+", metavar="PATH",
        help="instead of a server: folders or .tar.gz of scrapes, played side by side through the rules on a private "
        "Prometheus; or one Prometheus data directory or snapshot, with what it holds (never modified)",
    )
    parser.add_argument("--job", default="", help="job label of a recorded single target (default: the recording's name)")
    parser.add_argument("--instance", default="", help="instance label of it (default: recording:0)")
    parser.add_argument(
        "--from", dest="start", default="", metavar="TIME",
        help="unix seconds, 2026-11-30T09:00:00Z or now-3h (default: the dashboard's own; of a recording its beginning)",
    )
    parser.add_argument(
        "--to", dest="end", default="", metavar="TIME",
        help="until when, and what \"now\" is (default: now; of a recording its end, or +35s after it)",
    )
    parser.add_argument(
        "--var", action="append", default=[], metavar="NAME=VALUE",
        help="the value of a variable (All for all of them); repeatable, also for one that takes several",
    )
    parser.add_argument(
        "--out", type=Path, metavar="PATH",
        help=f"an .html file for one dashboard, else a folder (default: the dashboard's name in this folder, or {FOLDER}/)",
    )
    parser.add_argument("--png", action="store_true", help="a picture of each page beside it, by a headless Chromium")
    add_rules(parser)
    add_connection(parser)


def run(args: argparse.Namespace) -> int:
    """Draw and write; 1 when a query failed."""
    from obs.config import load_config
    from obs.preview import browser, pack

    if bool(args.dashboards) == args.all:
        raise InputError("name the dashboards to draw (fleet, or a .json file), or give --all")
    if args.recording and args.prometheus:
        raise InputError("--recording and --prometheus are both given; give one of them")
    if not (args.recording or args.prometheus or os.environ.get(URL)):
        raise InputError("there is nothing to draw from; give --recording PATH or --prometheus URL")
    if args.png:
        browser.find()
    boards = pack.chosen(args.dashboards, args.all, pack.of_pack(load_config(args.config)))
    wanted = _wanted(args.var, boards)
    paths = _paths(args.out, boards, args.all)
    with Progress() as progress:
        pages = _pages(args, boards, wanted, paths, progress)
        _write(pages, paths, args.png, progress)
    return _report(pages, paths, args.png)


# --- what is asked for ------------------------------------------------------------------------------------


def _wanted(given: Sequence[str], boards: Sequence[Dashboard]) -> dict[str, list[str]]:
    """Variable → values. InputError for a variable that none of the dashboards has."""
    known = list(dict.fromkeys(v.name for board in boards for v in board.variables if v.kind != "datasource"))
    found: dict[str, list[str]] = {}
    for text in given:
        name, equals, value = text.partition("=")
        name = name.removeprefix("var-")
        if not equals or not name:
            raise InputError(f"--var {text!r}: no NAME=VALUE; write it like model=llama")
        if name not in known:
            has = f"the variables are {', '.join(known)}" if known else "there are no variables"
            raise InputError(f"--var {name}: no such variable; {has}")
        found.setdefault(name, []).append(value)
    return found


def _paths(out: Path | None, boards: Sequence[Dashboard], everything: bool) -> dict[str, Path]:
    """Stem → the page's path. OutputError when nothing can be written there."""
    one_file = len(boards) == 1 and not everything
    if out is not None and out.suffix == ".html" and not out.is_dir():
        if not one_file:
            raise InputError(f"--out {out}: several dashboards are drawn; give a folder")
        paths = {boards[0].stem: out}
    else:
        folder = out if out is not None else Path() if one_file else Path(FOLDER)
        paths = {board.stem: folder / f"{board.stem}.html" for board in boards}
    folder = next(iter(paths.values())).parent
    above = next((one for one in (folder, *folder.absolute().parents) if one.exists()), Path("/"))
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise OutputError(f"{folder}: cannot be written: {above} is not a writable folder; give another with --out")
    return paths


@dataclass(frozen=True)
class _Data:
    """Something to ask, what it is in words, and the time that it has (None: any, for a server)."""

    client: Client
    words: str
    start: float | None
    end: float


@contextlib.contextmanager
def _data(args: argparse.Namespace, progress: Progress) -> Iterator[_Data]:
    from obs.evaluate import recording
    from obs.preview.source import filled
    from obs.prom.client import Client

    with ExitStack() as stack:
        if not args.recording:
            client = stack.enter_context(Client(connection(args)))
            client.ask("vector(1)")  # a server that is not there, or no Prometheus, is told before anything else
            yield _Data(client, client.url, None, time.time())
            return
        if any(path.is_dir() and recording.is_tsdb(path) for path in args.recording):
            if len(args.recording) > 1:
                raise InputError("a Prometheus data directory is drawn alone; give one --recording")
            tsdb = stack.enter_context(recording.Tsdb(args.recording[0]))
            yield _Data(tsdb.client, f"the data directory {args.recording[0]}", tsdb.start_ms / 1000, tsdb.end_ms / 1000)
            return
        ones = [recording.read(path, job=args.job, instance=args.instance) for path in args.recording]
        start = min(one.start_ms for one in ones) / 1000
        last = max(one.end_ms for one in ones) / 1000
        end = _time("--to", args.end, last) if args.end else last
        if end > last + MOST_AFTER:
            raise InputError(f"--to {args.end} is more than a day after the recording's end ({last:.0f}); give an earlier one")
        rules = load_rules(args.rules, args.config)
        if end <= start:
            raise InputError(f"--to {args.end} is before the recording begins ({start:.0f}); give a later one")
        server = stack.enter_context(filled(
            ones, rules.rules, end_ms=round(end * 1000),
            interval_ms=round(rules.config.evaluation_interval * 1000) if rules.config is not None else None,
            progress=lambda text, part: progress(text, 0.6 * part),
        ))
        yield _Data(server.client, f"the recording {', '.join(one.name for one in ones)} by {rules.name}", start, end)


def _time(flag: str, text: str, now: float) -> float:
    """A time of the command line; ``now``: what "now" and "+35s" count from."""
    from obs.preview import query

    if text.startswith("+"):
        return now + duration_of(flag, text[1:])
    found = query.moment(text, now)
    return moment(flag, text) if found is None else found


def _range(args: argparse.Namespace, board: Dashboard, data: _Data) -> Range:
    from obs.preview import query

    now = data.end
    if data.start is not None:
        end = _time("--to", args.end, data.end) if args.end else data.end
        start = _time("--from", args.start, end) if args.start else data.start
    else:
        end = _time("--to", args.end, now) if args.end else _own(board.time_to, now)
        start = _time("--from", args.start, end) if args.start else end - (now - _own(board.time_from, now))
    if not 0 <= start <= MOST_TIME or not 0 <= end <= MOST_TIME:
        raise InputError("the time shown reaches before 1970 or beyond 2100; give other --from and --to")
    if end <= start:
        raise InputError("the time shown ends before it begins; give a --to after --from")
    return query.Range(start, end)


def _own(text: str, now: float) -> float:
    """A time as a dashboard stores it."""
    from obs.preview import query

    found = query.moment(text, now)
    return moment("the dashboard's time", text) if found is None else found


# --- drawing and writing ----------------------------------------------------------------------------------


def _pages(
    args: argparse.Namespace, boards: Sequence[Dashboard], wanted: dict[str, list[str]], paths: dict[str, Path],
    progress: Progress,
) -> dict[str, Page]:
    from obs.preview import page, query, repeat

    found: dict[str, Page] = {}
    with _data(args, progress) as data:
        for number, board in enumerate(boards):
            progress(board.title, 0.6 + 0.4 * number / len(boards))
            shown = _range(args, board, data)
            values = query.resolve(data.client, board, shown, wanted)
            board = repeat.expand(board, values)
            filled = query.fill(data.client, board, shown, values, page.widths(board), parallel=args.parallel)
            others = {other.title: paths[other.stem].name for other in boards if other.stem != board.stem}
            found[board.stem] = page.render(filled, data.words, others)
        if not any(state == "data" for one in found.values() for _, state in one.states) and not any(
            state == "error" for one in found.values() for _, state in one.states
        ):
            names = ", ".join(found)
            raise InputError(
                f"{names}: no panel has data from {page.clock(shown.start)} to {page.clock(shown.end)} UTC in {data.words}; "
                "choose another time (--from, --to), another --var, or a server that has what it shows"
            )
    return found


def _write(pages: dict[str, Page], paths: dict[str, Path], png: bool, progress: Progress) -> None:
    """All files or none: they are made in a folder of their own, and moved when they are whole."""
    from obs.preview import browser

    folder = next(iter(paths.values())).parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".obs-preview-", dir=folder) as name:
            made: list[tuple[Path, Path]] = []
            for stem, path in paths.items():
                whole = Path(name) / path.name
                whole.write_text(pages[stem].html, encoding="utf-8")
                made.append((whole, path))
                if png:
                    progress(f"picture of {path.name}", None)
                    browser.picture(whole, whole.with_suffix(".png"), pages[stem].height)
                    made.append((whole.with_suffix(".png"), path.with_suffix(".png")))
            for whole, path in made:
                os.chmod(whole, 0o644)
                shutil.move(whole, path)
    except OSError as error:
        raise OutputError(
            f"{folder}: cannot be written: {error.strerror or error}; nothing half-written was left; give a writable folder "
            "with --out"
        ) from error


def _report(pages: dict[str, Page], paths: dict[str, Path], png: bool) -> int:
    from obs.preview import page

    failed = 0
    for stem, path in paths.items():
        beside = f" and {path.with_suffix('.png').name}" if png else ""
        print(f"{path}{beside}: {page.summary(pages[stem].states)}")
        for title, state in pages[stem].states:
            if state == "error":
                failed += 1
                print(f"obs: {stem}: {title}: a query failed; the page says how", file=sys.stderr)
    return EXIT_FINDINGS if failed else EXIT_OK
