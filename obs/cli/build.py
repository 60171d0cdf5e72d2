"""``obs build``: write the pack, or tell how the files on disk differ from it."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from obs import build
from obs.cli.common import add_config, add_format
from obs.config import load_config
from obs.errors import EXIT_FINDINGS, EXIT_OK

_VERBS = {"missing": "write", "changed": "write", "orphan": "remove"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    parser.add_argument("--out", type=Path, default=Path(), metavar="DIR", help="folder to write into (default: .)")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file differs")
    add_format(parser, "text", "json")


def run(args: argparse.Namespace) -> int:
    files = build.render_all(load_config(args.config))
    drift = build.compare(args.out, files) if args.check else build.write(args.out, files)
    if args.format == "json":
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
