"""``obs check``: find faults in the pack, or in rule files, dashboards and manifests of your own."""

from __future__ import annotations

import argparse
import difflib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from obs.cli.common import add_config, add_format, colour
from obs.errors import EXIT_FINDINGS, EXIT_OK, InputError, ToolError

if TYPE_CHECKING:
    from obs.checks.manifests.world import ManifestWorld
    from obs.checks.registry import Entry
    from obs.checks.rulefiles import RuleFile
    from obs.checks.world import World
    from obs.config import Config
    from obs.model.problem import Problem

def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths", nargs="*", type=Path, metavar="PATH",
        help="rule file, dashboard or folder of them (default: the pack in the working directory)",
    )
    parser.add_argument(
        "--manifests", action="append", type=Path, metavar="PATH", default=[],
        help="Kubernetes manifests that scale a service (HPA, KEDA, KServe, prometheus-adapter): a YAML file or a folder; "
        "may be given several times",
    )
    add_config(parser)
    add_format(parser, "text", "json", "github")
    parser.add_argument(
        "--static", action="store_true", help="only the quick checks: no other program, no unit tests, no build"
    )
    parser.add_argument("--no-promtool", action="store_true", help="leave promtool out; the result says so")
    parser.add_argument("--explain", metavar="ID", help="say what a check finds, why it matters and how to mend it")
    parser.add_argument("--list", action="store_true", help="list every check with one line")


def run(args: argparse.Namespace) -> int:
    if args.list or args.explain:
        from obs.checks import registry

        return _list(registry.entries()) if args.list else _explain(args.explain, registry.entries())
    result = _check(args)
    if result.failure is not None and args.format != "text":
        raise result.failure  # half a report is none for a program
    if args.format == "json":
        print(json.dumps(_as_json(result), indent=2))
    elif args.format == "github":
        _print_github(result)
    else:
        _print_text(result)
    if result.failure is not None:
        raise result.failure
    bad = any(problem.level != "info" for problem in result.problems)
    return EXIT_FINDINGS if bad else EXIT_OK


@dataclass
class _Result:
    """What was found, and what that covers."""

    problems: list[Problem]
    rules: int
    dashboards: int
    expressions: int
    silenced: int = 0
    not_run: list[str] = field(default_factory=list)
    passed_over: list[str] = field(default_factory=list)
    failure: ToolError | None = None
    objects: int = 0
    queries: int = 0


def _check(args: argparse.Namespace) -> _Result:
    from obs.checks.manifests import registry as manifests
    from obs.config import load_config

    config = load_config(args.config)
    folders = list(args.manifests)
    own = not args.paths and not folders
    built = Path("exporters/autoscaling")
    if own and any(built.glob("*.yaml")):
        folders = [built]  # the pack's
    result = _check_rules(args, config) if own or args.paths else _Result([], 0, 0, 0)
    if folders:
        _check_manifests(manifests.load(config, folders), result)
    return result


def _check_manifests(world: ManifestWorld, result: _Result) -> None:
    """Add what is found in manifests to the result."""
    from obs.checks import registry, suppression
    from obs.checks.manifests import registry as manifests

    ids = {entry.id for entry in registry.entries()}
    ran = {check.ID for check in registry.STATIC} | {check.ID for check in manifests.CHECKS}
    problems, silenced = manifests.apply_ignores(world, registry.run_manifests(world), ids, ran)
    problems, more = suppression.apply(world.queries, problems, ids, ran)
    result.problems = sorted({*result.problems, *problems})
    result.silenced += silenced + more
    result.objects, result.queries = len(world.manifests), world.count
    result.passed_over += world.passed_over


def _check_rules(args: argparse.Namespace, config: Config) -> _Result:
    from obs.checks import registry, suppression

    world, passed_over = _pack(config) if not args.paths else _own_files(config, args.paths)
    checks = list(registry.STATIC)
    if world.own:
        checks += registry.PACK if args.static else (*registry.PACK, *registry.PACK_DEEP)
    not_run = []
    if args.static or args.no_promtool:
        not_run.append("promtool-rules")
    if world.own and args.static:
        not_run += [check.ID for check in registry.PACK_DEEP]
    if world.own:
        # A pack that `obs build` wrote elsewhere has the project's runbooks and tests, and none of its own.
        for check in tuple(checks):
            folder = registry.NEEDS.get(check.ID)
            if folder and not Path(folder).is_dir():
                checks.remove(check)
                not_run.append(f"{check.ID} (no {folder} here)")
    problems = [*registry.run(world, checks), *registry.run_dashboards(world)]
    failure = None
    if not (args.static or args.no_promtool):
        try:
            problems += registry.run(world, registry.EXTERNAL)
            checks += registry.EXTERNAL
        except ToolError as error:  # what the others found is told first
            failure = error
            not_run.append("promtool-rules")
    silenced = 0
    if not world.own:
        ids = {entry.id for entry in registry.entries()}
        ran = {check.ID for check in checks}
        problems, silenced = suppression.apply(world, problems, ids, ran)
    return _Result(
        sorted(set(problems)), len(world.rules), len(world.dashboards), len(world.expressions), silenced, not_run,
        passed_over, failure,
    )


# --- which files ----------------------------------------------------------------------------------------


def _pack(config: Config) -> tuple[World, list[str]]:
    """The world of the pack in the working directory."""
    from obs.checks import rulefiles
    from obs.checks.world import build

    rules = sorted(Path("alerts/rules").glob("*.yaml"))
    if not rules:
        raise InputError(
            "alerts/rules: holds no rule file: this is no folder of the pack; run `obs build` first, or name your files"
        )
    boards = {str(path): rulefiles.read_text(path) for path in sorted(Path("dashboards").glob("*.json"))}
    return build(config, [rulefiles.load(path) for path in rules], boards, own=True), []


def _own_files(config: Config, paths: Sequence[Path]) -> tuple[World, list[str]]:
    """The world of the user's files; and the files of folders that are neither rules nor dashboards."""
    from obs.checks import rulefiles
    from obs.checks.world import build

    rules: dict[str, RuleFile] = {}
    boards: dict[str, str] = {}
    passed_over: list[str] = []
    for path in paths:
        if path.is_dir():
            before = len(rules) + len(boards)
            for inner in sorted(p for p in path.rglob("*") if p.suffix in (".yaml", ".yml", ".json") and p.is_file()):
                if any(part.startswith(".") for part in inner.relative_to(path).parts):
                    continue
                if not _take(inner, rules, boards, named=False):
                    passed_over.append(str(inner))
            if len(rules) + len(boards) == before:
                raise InputError(f"{path}: holds no rule file and no dashboard; name a folder or file that does")
        elif path.suffix == ".json":
            _take(path, rules, boards, named=True)
        else:
            rules[str(path)] = rulefiles.load(path)
    return build(config, rules.values(), boards), passed_over


def _take(path: Path, rules: dict[str, RuleFile], boards: dict[str, str], *, named: bool) -> bool:
    """Enter a file as what it is; False for one in a folder that is neither rules nor a dashboard."""
    from obs.checks import rulefiles

    text = rulefiles.read_text(path)
    if path.suffix == ".json":
        try:
            data = json.loads(text)
        except ValueError as error:
            line = f":{error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
            raise InputError(f"{path}{line}: is not valid JSON: {error}; mend the syntax") from error
        if named or (isinstance(data, dict) and data.keys() & {"panels", "rows", "dashboard", "elements"}):
            boards[str(path)] = text
            return True
        return False
    try:
        file = rulefiles.parse(str(path), text)
    except InputError:
        if "groups:" in text:
            raise
        return False  # a template of something else
    if file is not None:
        rules[str(path)] = file
    return file is not None


# --- output ---------------------------------------------------------------------------------------------

_COLOURS = {"error": "\033[31m", "warning": "\033[33m", "info": "\033[36m"}


def _print_text(result: _Result) -> None:
    coloured = colour()
    for problem in result.problems:
        where = f"{problem.path}:{problem.line}" if problem.line else problem.path
        level = f"{_COLOURS[problem.level]}{problem.level}\033[0m" if coloured else problem.level
        print(f"{where}: {level}: {problem.subject} [{problem.check}]")
        if problem.place:
            print(f"    at:   {problem.place}")
        print(f"    why:  {problem.what}")
        print(f"    mend: {problem.mend}")
    print(_summary(result))


def _summary(result: _Result) -> str:
    counts = Counter(problem.level for problem in result.problems)
    found = ", ".join(f"{counts[level]} {level}{'s' if counts[level] != 1 else ''}" for level in ("error", "warning"))
    parts = []
    if result.rules or result.dashboards or not result.objects:
        parts.append(f"{result.rules} rules, {result.dashboards} dashboards, {result.expressions} expressions")
    if result.objects:
        parts.append(f"{result.objects} objects, {result.queries} queries of scalers")
    text = f"{', '.join(parts)}: {found}"
    if counts["info"]:
        text += f", {counts['info']} info"
    if result.silenced:
        text += f", {result.silenced} silenced by obs:ignore"
    if result.passed_over:
        others = "neither rules nor dashboards" if not result.objects else "none of these"
        text += f"; passed over {len(result.passed_over)} files that are {others}"
    if result.not_run:
        text += f"; NOT RUN: {', '.join(result.not_run)}"
    if result.problems:
        text += "\n`obs check --explain ID` says more about a check"
    return text


def _as_json(result: _Result) -> dict[str, object]:
    counts = Counter(problem.level for problem in result.problems)
    return {
        "problems": [asdict(problem) for problem in result.problems],
        "summary": {
            "rules": result.rules, "dashboards": result.dashboards, "expressions": result.expressions,
            "errors": counts["error"], "warnings": counts["warning"], "infos": counts["info"],
            "silenced": result.silenced, "objects": result.objects, "queries": result.queries,
        },
        "not_run": result.not_run,
        "passed_over": result.passed_over,
    }


def _print_github(result: _Result) -> None:
    """Workflow commands, which GitHub shows at the lines of a pull request."""
    for problem in result.problems:
        kind = "notice" if problem.level == "info" else problem.level
        line = f",line={problem.line}" if problem.line else ""
        place = f" `{problem.place}`:" if problem.place else ""
        message = f"{problem.subject}:{place} {problem.what}; {problem.mend}"
        print(f"::{kind} file={_property(problem.path)}{line},title={_property(problem.check)}::{_escape(message)}")
    print(_summary(result).splitlines()[0])


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _escape(text).replace(":", "%3A").replace(",", "%2C")


def _list(entries: Sequence[Entry]) -> int:
    width = max(len(entry.id) for entry in entries)
    for entry in entries:
        print(f"{entry.id:<{width}}  {entry.summary}")
    return EXIT_OK


def _explain(name: str, entries: Sequence[Entry]) -> int:
    for entry in entries:
        if entry.id == name:
            print(f"{entry.id}\n\n{entry.explanation.strip()}")
            return EXIT_OK
    near = difflib.get_close_matches(name, [entry.id for entry in entries], n=1)
    hint = f"did you mean {near[0]}?" if near else "`obs check --list` shows them all"
    raise InputError(f"--explain {name}: there is no such check; {hint}")
