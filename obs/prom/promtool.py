"""Runs promtool, with our own verdict: the same on every version, and never "ok" for nothing.

promtool 2.42 prints FAILED for duplicates and exits 0 (traps.md, 74), and says SUCCESS for a test file
whose ``rule_files`` match nothing or whose alert name is misspelt (75). Both fail here: duplicates are
found by reading the rules, and test files pass a static check (obs.prom.promtool_tests) before they run.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from obs.errors import InputError, ToolError
from obs.model.problem import Problem
from obs.prom import tools, yamlfile

RULES = "promtool-rules"
TESTS = "promtool-tests"

_PLACED = re.compile(r"^(?P<path>.+?): (?P<line>\d+):\d+: (?P<what>.+)$")
_SUBJECT = re.compile(r'^group "(?P<group>.*?)", rule \d+, "(?P<rule>.*?)": (?P<what>.+)$')
_YAML_LINE = re.compile(r"^\s*line (?P<line>\d+): (?P<what>.+)$")
_CASE = re.compile(
    r"^    (?:name: (?P<name>.*),|alertname: (?P<alert>.*?), time: .*|expr: (?P<expr>\".*\"), time: .*)$"
)


@dataclass(frozen=True)
class TestResult:
    """What one test file came to. ``cases`` counts its assertions; ``problems`` is empty when all hold."""

    __test__ = False  # not a pytest class

    path: str
    cases: int
    problems: tuple[Problem, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.problems


def expand(paths: Iterable[str | Path], check: str) -> tuple[list[Path], list[Problem]]:
    """The files that paths and globs name, each once, in order; and a Problem for each that names none."""
    files: dict[Path, None] = {}
    problems: list[Problem] = []
    for path in paths:
        text = str(path)
        found = [Path(text)] if Path(text).is_file() else [Path(hit) for hit in sorted(glob.glob(text, recursive=True))]
        found = [hit for hit in found if hit.is_file()]
        files.update(dict.fromkeys(found))
        if not found:
            what = "is a folder, not a file" if Path(text).is_dir() else "names no file"
            problems.append(Problem(text, 0, check, text, what, "correct the path, or write the file"))
    if not files and not problems:
        problems.append(Problem("-", 0, check, "-", "no file was given, so nothing was checked", "name the files"))
    return list(files), problems


def check_rules(paths: Iterable[str | Path]) -> list[Problem]:
    """What is wrong with rule files (paths or globs); [] when all of them exist, hold rules and are valid.

    Beyond promtool: a missing file, a glob without a match, a file without a rule, and the same rule
    (name and labels) twice in the given files are errors. ToolError when promtool is missing or breaks.
    """
    promtool = tools.find("promtool")
    files, problems = expand(paths, RULES)
    seen: dict[tuple[str, tuple[tuple[str, str], ...]], str] = {}
    for file in files:
        said = _check_one(promtool, file)
        problems += said
        if said:
            continue
        rules = list(rules_of(file))
        if not rules:
            problems.append(Problem(str(file), 0, RULES, str(file), "holds no rule", "add a rule or remove the file"))
        for rule in rules:
            labels = tuple(sorted(rule.labels.items()))
            first = seen.setdefault((rule.name, labels), f"{file}:{rule.line}")
            if first != f"{file}:{rule.line}":
                problems.append(
                    Problem(
                        str(file),
                        rule.line,
                        RULES,
                        rule.name,
                        f"is a duplicate: {first} has the same name and labels",
                        "rename one of them or give it another label",
                    )
                )
    return problems


@dataclass(frozen=True)
class RuleLine:
    """A rule of a rule file: its name, kind, expression, labels and 1-based line."""

    name: str
    kind: str  # "alert" or "record"
    expr: str
    labels: dict[str, str]
    line: int


def rules_of(path: Path) -> tuple[RuleLine, ...]:
    """The rules of a rule file, in order; InputError when it is no rule file."""
    try:
        stamp = path.stat().st_mtime_ns
    except OSError:
        stamp = 0  # reading it will tell what is wrong
    return _rules_of(path, stamp)


@lru_cache(maxsize=256)
def _rules_of(path: Path, stamp: int) -> tuple[RuleLine, ...]:
    """Every test of a file asks for the same rule files: they are read once for each version on disk."""
    return tuple(_read_rules(path))


def _read_rules(path: Path) -> Iterator[RuleLine]:
    document = yamlfile.load(path)
    if document is None:
        return
    if not isinstance(document, dict) or not isinstance(document.get("groups", []), list):
        raise InputError(f"{path}: is no Prometheus rule file: it has no list `groups`; name a rule file")
    for group in yamlfile.items(document.get("groups", [])):
        for rule in yamlfile.items(group.get("rules", [])):
            kind = "alert" if "alert" in rule else "record"
            name, expr = str(rule.get(kind, "")), str(rule.get("expr", ""))
            yield RuleLine(name, kind, expr, yamlfile.plain(rule.get("labels")), rule[yamlfile.LINE])


def test_rules(paths: Iterable[str | Path]) -> list[TestResult]:
    """Run promtool unit tests (paths or globs), one result per file in order.

    A file that asserts nothing, or about rules that do not exist, fails whatever promtool says.
    ToolError when promtool is missing or breaks.
    """
    from obs.prom import promtool_tests

    promtool = tools.find("promtool")
    files, missing = expand(paths, TESTS)
    results = [TestResult(problem.path, 0, (problem,)) for problem in missing]
    for file in files:
        try:
            parsed = promtool_tests.read(file)
        except InputError as error:
            results.append(TestResult(str(file), 0, (_problem(file, TESTS, str(error)),)))
            continue
        static = promtool_tests.vacuous(parsed)
        ran = _test_one(promtool, file)
        results.append(TestResult(str(file), parsed.cases, (*static, *ran)))
    return results


test_rules.__test__ = False  # type: ignore[attr-defined]  # nor a pytest function


def _check_one(promtool: Path, file: Path) -> list[Problem]:
    done = tools.run([promtool, "check", "rules", str(file)])
    failed = done.code != 0 or "FAILED" in done.output
    said = _after_failed(done.stderr)
    # duplicates are reported by check_rules itself, with their lines
    if failed and said and all("duplicate rule" in line or _duplicate_detail(line) for line in said):
        return []
    if not failed:
        return []
    if not said:
        said = [f"promtool failed with exit code {done.code} and said nothing"]
    return _problems(file, said)


def _duplicate_detail(line: str) -> bool:
    return line.startswith(("Metric:", "Label(s):", "\t", "Might cause inconsistency"))


def _after_failed(stderr: str) -> list[str]:
    lines = [line for line in stderr.splitlines() if line.strip()]
    return [line.strip() if not line.startswith("\t") else line for line in lines if line.strip() != "FAILED:"]


def _problems(file: Path, lines: Sequence[str]) -> list[Problem]:
    """promtool's complaints as Problems: with line and rule where it names them."""
    found: list[Problem] = []
    for line in lines:
        placed = _PLACED.match(line)
        inner = _YAML_LINE.match(line)
        if placed:
            subject = _SUBJECT.match(placed["what"])
            name, what = (subject["rule"], subject["what"]) if subject else (file.name, placed["what"])
            found.append(Problem(str(file), int(placed["line"]), RULES, name, what, "mend the rule"))
        elif inner:
            found.append(Problem(str(file), int(inner["line"]), RULES, file.name, inner["what"], "mend the YAML"))
        elif line.endswith("unmarshal errors:"):
            continue
        else:
            what = line.removeprefix(f"{file}: ").removeprefix("promtool: error: ")
            found.append(Problem(str(file), 0, RULES, file.name, what, "mend the rule file"))
    return found


def _test_one(promtool: Path, file: Path) -> list[Problem]:
    done = tools.run([promtool, "test", "rules", str(file)])
    lines = [line for line in done.output.splitlines() if line.strip() and not line.startswith("Unit Testing:")]
    if done.code == 0 and "FAILED" not in done.output:
        if "SUCCESS" not in done.output:
            raise ToolError(
                f"{promtool} test rules {file} exited 0 without saying SUCCESS; point PROMTOOL at a real promtool"
            )
        return []
    said = [line for line in lines if line.strip() not in {"FAILED:", "SUCCESS"} and not line.endswith("errors:")]
    found = list(dict.fromkeys(_failures(file, said)))
    return found or [_problem(file, TESTS, f"promtool failed with exit code {done.code} and said nothing")]


def _failures(file: Path, lines: Sequence[str]) -> Iterable[Problem]:
    """Each failed assertion with what was expected and what came, on one line."""
    test, subject, body = "", "", list[str]()

    def flush() -> Iterable[Problem]:
        if body:
            what = re.sub(r"\s+", " ", " ".join(body)).strip()
            name = f"{subject or file.name}" + (f" ({test})" if test else "")
            yield Problem(str(file), 0, TESTS, name, what, "mend the rule, or what the test expects")

    for line in lines:
        case = _CASE.match(line.rstrip())
        if case and case["name"] is not None:
            yield from flush()
            test, subject, body = case["name"], "", []
        elif case or (line.startswith("    ") and not line.startswith("     ") and not body):
            yield from flush()
            subject = (case["alert"] or (case["expr"] or "").strip('"')) if case else ""
            if body:  # a second failure without a name line belongs to an unnamed test
                test = ""
            body = [line.strip()]
        elif line.startswith("        ") and body:
            body.append(line.strip())
        else:
            yield from flush()
            test, subject, body = "", "", [line.strip()]
    yield from flush()


def _problem(file: Path, check: str, what: str) -> Problem:
    return Problem(str(file), 0, check, file.name, what.removeprefix(f"{file}: "), "mend the file")


def any_list(value: Any) -> list[Any]:
    """The value when it is a list, else []."""
    return value if isinstance(value, list) else []
