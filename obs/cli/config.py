"""``obs config``: the effective configuration, each value with where it comes from and why."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from obs.alerts.registry import all_groups
from obs.cli.common import add_config, add_format
from obs.config import load_config
from obs.errors import EXIT_OK


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    parser.add_argument("--show", action="store_true", help="print it (the default)")
    add_format(parser, "text", "json")


def run(args: argparse.Namespace) -> int:
    config = load_config(args.config)
    all_groups(config)  # refuses alerts that do not exist
    settings = config.settings()
    if args.format == "json":
        print(json.dumps([asdict(setting) for setting in settings], indent=2))
        return EXIT_OK
    width = max(len(setting.path) for setting in settings)
    shown = max(min(len(setting.value), 34) for setting in settings)
    for setting in settings:
        origin = "" if setting.origin == "default" else f"  [{setting.origin}]"
        print(f"{setting.path:<{width}}  {setting.value:<{shown}}  # {setting.why}{origin}")
    return EXIT_OK
