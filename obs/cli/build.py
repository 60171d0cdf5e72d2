"""``obs build``: write the pack, or tell how the files on disk differ from it."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from obs import build
from obs.cli.common import add_config
from obs.config import load_config
from obs.errors import EXIT_FINDINGS, EXIT_OK, InputError

_REPORTS = ("text", "json")
_VERBS = {"missing": "write", "changed": "write", "orphan": "remove"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    parser.add_argument("--out", type=Path, default=Path(), metavar="DIR", help="folder to write into (default: .)")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file differs")
    parser.add_argument(
        "--format", default="text", metavar="LIST",
        help="what to write, by commas (default: rules,dashboards,docs,autoscaling; see --list-formats); json among it "
        "reports in JSON",
    )
    parser.add_argument("--list-formats", action="store_true", help="name what can be written, and where")


def run(args: argparse.Namespace) -> int:
    if args.list_formats:
        return _list()
    words = [word.strip() for word in args.format.split(",") if word.strip()]
    if not words:
        raise InputError("--format names nothing; leave it out, or see --list-formats")
    as_json = "json" in words
    chosen = [word for word in words if word not in _REPORTS] or None
    build.formats(chosen)  # a name that is none is told before the work
    files = build.render_all(load_config(args.config), chosen=chosen)
    drift = build.compare(args.out, files, chosen) if args.check else build.write(args.out, files, chosen)
    if as_json:
        print(json.dumps({"files": sorted(files), "changes": [vars(change) for change in drift]}, indent=2))
    else:
        for change in drift:
            verb = f"{change.kind}: " if args.check else f"{_VERBS[change.kind]} "
            print(f"{verb}{args.out / change.path}")
        if args.check and drift:
            print(f"{len(drift)} of {len(files)} files differ from a fresh build; run `obs build` and commit the result")
        else:
            print(f"{len(files)} files, {len(drift)} {'differ' if args.check else 'changed'}")
    return EXIT_FINDINGS if args.check and drift else EXIT_OK


def _list() -> int:
    formats = build.formats(["all"])
    names, folders = (max(len(getattr(one, key)) for one in formats) for key in ("name", "folder"))
    for one in formats:
        print(f"{one.name:<{names}}  {one.folder + '/':<{folders + 1}}  {one.about}{' (by default)' if one.default else ''}")
    print(f"{'all':<{names}}  {'':<{folders + 1}}  everything")
    return EXIT_OK
