"""``obs test``: run promtool unit tests with our verdict, and show which alerts they leave untested."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from obs.cli.common import add_format, colour
from obs.errors import EXIT_FINDINGS, EXIT_OK, InputError, ToolError

if TYPE_CHECKING:
    from obs.model.problem import Problem
    from obs.prom.promtool import TestResult

_HEADS = {"firing": "firing", "quiet": "quiet", "no_data": "no data"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths", nargs="*", type=Path, metavar="PATH",
        help="promtool test file or folder of them (default: alerts/tests); of named ones, missing cases do not fail",
    )
    add_format(parser, "text", "json")


def run(args: argparse.Namespace) -> int:
    from obs.prom import promtool_tests

    files = _files(args.paths or [Path("alerts/tests")])
    results, failure = _run(files)
    if failure is not None:
        if args.format == "text":  # what the others came to is told first
            _print(results, {}, (), promtool_tests.CASES)
        raise failure
    shown, lacking = _coverage(files)
    # Named files may be part of a suite: what they leave untested is shown, and is no failure.
    ok = all(result.ok for result in results) and (bool(args.paths) or not lacking)
    if args.format == "json":
        print(json.dumps(_as_json(ok, results, shown, lacking), indent=2))
    else:
        _print(results, shown, lacking, promtool_tests.CASES)
    return EXIT_OK if ok else EXIT_FINDINGS


def _run(files: Sequence[Path]) -> tuple[list[TestResult], ToolError | None]:
    """The results in the order of the files, several promtools at a time; and why a file could not be run."""
    from concurrent.futures import ThreadPoolExecutor

    from obs.prom import promtool

    def one(file: Path) -> list[TestResult] | ToolError:
        try:
            return promtool.test_rules([file])
        except ToolError as error:
            return ToolError(f"{file}: {error}")

    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        found = list(pool.map(one, files))
    results = [result for part in found if not isinstance(part, ToolError) for result in part]
    return results, next((part for part in found if isinstance(part, ToolError)), None)


def _files(paths: Sequence[Path]) -> list[Path]:
    """The test files of the paths; in a folder, every YAML file is one."""
    found: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            inner = sorted(p for p in path.iterdir() if p.suffix in (".yaml", ".yml") and p.is_file())
            if not inner:
                raise InputError(f"{path}: holds no test file; write promtool unit tests there, or name others")
            found.update(dict.fromkeys(inner))
        elif path.is_file():
            found[path] = None
        else:
            raise InputError(f"{path}: there is no such file or folder; name promtool test files")
    return list(found)


def _coverage(files: Sequence[Path]) -> tuple[dict[str, set[str]], list[Problem]]:
    """Which cases the files show of each alert of the rule files that they name, and what is lacking.

    A file that cannot be read is among the failed results already.
    """
    from obs.prom import promtool_tests

    sound: list[Path] = []
    rules: dict[Path, None] = {}
    for path in files:
        try:
            one = promtool_tests.read(path)
            one.rules()
        except InputError:
            continue
        sound.append(path)
        rules.update(dict.fromkeys(file.resolve() for file in one.rule_files))
    shown = promtool_tests.coverage(sound, list(rules))
    return shown, promtool_tests.missing_cases(shown, str(files[0].parent))


def _print(
    results: Sequence[TestResult], shown: Mapping[str, set[str]], lacking: Sequence[Problem], cases: Sequence[str]
) -> None:
    coloured = colour()

    def paint(text: str, code: str) -> str:
        return f"\033[{code}m{text}\033[0m" if coloured else text

    for result in results:
        verdict = paint("ok  ", "32") if result.ok else paint("FAIL", "31")
        print(f"{verdict} {result.path} ({result.cases} assertions)")
        for problem in result.problems:
            where = f"line {problem.line}: " if problem.line else ""
            print(f"     {where}{problem.subject}: {problem.what}; {problem.mend} [{problem.check}]")
    if shown:
        width = max(len("alert"), *(len(alert) for alert in shown))
        print()
        print("  ".join([f"{'alert':<{width}}", *(f"{_HEADS[case]:<7}" for case in cases)]).rstrip())
        for alert, have in shown.items():
            marks = [f"{'yes' if case in have else 'MISSING':<7}" for case in cases]
            print("  ".join([f"{alert:<{width}}", *marks]).rstrip())
    failed = sum(not result.ok for result in results)
    assertions = sum(result.cases for result in results)
    print()
    print(
        f"{len(results)} files, {assertions} assertions, {failed} failed; "
        f"{len(shown)} alerts, {len({problem.subject for problem in lacking})} not fully shown"
    )


def _as_json(
    ok: bool, results: Sequence[TestResult], shown: Mapping[str, set[str]], lacking: Sequence[Problem]
) -> dict[str, object]:
    return {
        "ok": ok,
        "files": [
            {"path": result.path, "ok": result.ok, "cases": result.cases,
             "problems": [asdict(problem) for problem in result.problems]}
            for result in results
        ],
        "coverage": {alert: sorted(cases) for alert, cases in shown.items()},
        "lacking": [asdict(problem) for problem in lacking],
    }
