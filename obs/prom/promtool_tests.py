"""Reads promtool unit-test files without running them: what they assert, and whether that means anything.

A test passes vacuously when nothing could have made it fail: a ``rule_files`` entry that matches no file,
an alert name that no rule has, an expression over a metric that nothing feeds, no assertion at all, or
"no alert expected" with no input (traps.md, 75). ``vacuous`` finds these; ``coverage`` says which alerts are
shown firing, quiet and without data, and ``missing_cases`` which are not.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from obs.errors import InputError
from obs.model.problem import Problem
from obs.prom import metric_names, yamlfile
from obs.prom.promtool import RuleLine, any_list, rules_of

VACUOUS = "vacuous-test"
COVERAGE = "alert-test-coverage"
CASES = ("firing", "quiet", "no_data")

_SERIES_NAME = re.compile(r"^\s*([a-zA-Z_:][a-zA-Z0-9_:]*)?")
_NAME_LABEL = re.compile(r'__name__\s*=\s*"([^"]*)"')


@dataclass(frozen=True)
class TestFile:
    """A unit-test file: its document, the rule files it names, and those of its patterns that match none."""

    __test__ = False

    path: Path
    document: dict[str, Any]
    rule_files: tuple[Path, ...]
    unmatched: tuple[str, ...]

    @property
    def tests(self) -> list[dict[str, Any]]:
        return yamlfile.items(self.document.get("tests"))

    @property
    def cases(self) -> int:
        """The number of assertions."""
        return sum(
            len(any_list(test.get(kind))) for test in self.tests for kind in ("alert_rule_test", "promql_expr_test")
        )

    def rules(self) -> list[RuleLine]:
        """The rules of all its rule files; InputError when one of them is no rule file."""
        return [rule for path in self.rule_files for rule in rules_of(path)]


def read(path: Path) -> TestFile:
    """A unit-test file; InputError when it is unreadable or no test file."""
    document = yamlfile.load(path)
    if not isinstance(document, dict):
        raise InputError(f"{path}: is no promtool test file: it is no YAML mapping; write `rule_files:` and `tests:`")
    files: dict[Path, None] = {}
    unmatched: list[str] = []
    for entry in any_list(document.get("rule_files")):
        # promtool reads patterns relative to the test file
        hits = [Path(hit) for hit in sorted(glob.glob(str(path.parent / str(entry)))) if Path(hit).is_file()]
        files.update(dict.fromkeys(hits))
        if not hits:
            unmatched.append(str(entry))
    return TestFile(path, document, tuple(files), tuple(unmatched))


def vacuous(file: TestFile) -> list[Problem]:
    """Every assertion (or lack of one) in the file that could not fail."""

    def problem(line: int, subject: str, what: str, mend: str) -> Problem:
        return Problem(str(file.path), line, VACUOUS, subject, what, mend)

    name = file.path.name
    problems = [
        problem(0, pattern, "this `rule_files` entry matches no file", "correct the path (it is relative to the test)")
        for pattern in file.unmatched
    ]
    if not any_list(file.document.get("rule_files")):
        problems.append(problem(0, name, "names no `rule_files`", "name the rule files under test"))
    if not file.tests:
        problems.append(problem(0, name, "holds no test", "add a test"))
    try:
        rules = file.rules()
    except InputError as error:
        return [*problems, problem(0, name, str(error), "mend the rule file")]
    alerts = {rule.name for rule in rules if rule.kind == "alert"}
    records = {rule.name for rule in rules if rule.kind == "record"}
    for number, test in enumerate(file.tests, 1):
        title = title_of(test, number)
        line = int(test[yamlfile.LINE])
        alert_tests = yamlfile.items(test.get("alert_rule_test"))
        expr_tests = yamlfile.items(test.get("promql_expr_test"))
        if not alert_tests and not expr_tests:
            problems.append(problem(line, title, "asserts nothing", "add alert_rule_test or promql_expr_test"))
        inputs = input_names(test)
        if (
            not inputs
            and not is_no_data(test)
            and not any(any_list(case.get("exp_alerts")) for case in alert_tests)
            and not any(any_list(case.get("exp_samples")) for case in expr_tests)
            and (alert_tests or expr_tests)
        ):
            mend = 'add input, or put "no data" in its name'
            problems.append(problem(line, title, "has no input series and expects nothing", mend))
        for case in alert_tests:
            alert = str(case.get("alertname", ""))
            if alert not in alerts:
                problems.append(
                    problem(
                        int(case[yamlfile.LINE]),
                        alert or title,
                        "no rule file of this test defines an alert of this name",
                        _nearest(alert, alerts),
                    )
                )
        for case in expr_tests:
            problems += _vacuous_expr(file, case, inputs, alerts, records)
    return problems


def coverage(test_files: Iterable[Path], rule_files: Iterable[Path]) -> dict[str, set[str]]:
    """For each alert of the rule files, in order, which of CASES the test files show.

    ``firing``: an assertion with alerts expected. ``quiet``: one with none expected, in a test that has input
    series and is not a "no data" test. ``no_data``: any assertion in a test whose name says "no data".
    InputError when a file cannot be read.
    """
    found: dict[str, set[str]] = {
        rule.name: set() for path in rule_files for rule in rules_of(path) if rule.kind == "alert"
    }
    for path in test_files:
        for test in read(path).tests:
            for case in yamlfile.items(test.get("alert_rule_test")):
                shown = found.get(str(case.get("alertname", "")))
                if shown is None:
                    continue
                if is_no_data(test):
                    shown.add("no_data")
                if any_list(case.get("exp_alerts")):
                    shown.add("firing")
                elif input_names(test) and not is_no_data(test):
                    shown.add("quiet")
    return found


def missing_cases(shown: Mapping[str, set[str]], path: str = "alerts/tests") -> list[Problem]:
    """A Problem for each alert that lacks one of CASES."""
    mends = {
        "firing": "add a test with exp_alerts for it",
        "quiet": "add a test with input just under the threshold and exp_alerts: []",
        "no_data": 'add a test with "no data" in its name that asserts it',
    }
    return [
        Problem(path, 0, COVERAGE, alert, f"no test shows it {case.replace('_', ' ')}", mends[case])
        for alert, cases in shown.items()
        for case in CASES
        if case not in cases
    ]


def title_of(test: Mapping[str, Any], number: int) -> str:
    """The test's name, or its number."""
    return str(test.get("name") or f"test {number}")


def is_no_data(test: Mapping[str, Any]) -> bool:
    """Whether the test says in its name that it is about missing data."""
    return "no data" in str(test.get("name", "")).lower()


def input_names(test: Mapping[str, Any]) -> set[str]:
    """The metric names of the test's input series."""
    names = set()
    for item in yamlfile.items(test.get("input_series")):
        series = str(item.get("series", ""))
        label = _NAME_LABEL.search(series)
        match = _SERIES_NAME.match(series)
        names.add((match[1] if match and match[1] else "") or (label[1] if label else series))
    return names


def _vacuous_expr(
    file: TestFile, case: Mapping[str, Any], inputs: set[str], alerts: set[str], records: set[str]
) -> Iterator[Problem]:
    expr = str(case.get("expr", ""))
    line = int(case[yamlfile.LINE])
    parsed = metric_names.selectors(expr)
    if parsed is None:
        return  # promtool will say what is wrong with it
    for selector in parsed:
        if selector.name in {"ALERTS", "ALERTS_FOR_STATE"}:
            wanted = dict(selector.equal).get("alertname", "")
            if wanted and wanted not in alerts:
                yield Problem(
                    str(file.path),
                    line,
                    VACUOUS,
                    wanted,
                    "no rule file of this test defines an alert of this name",
                    _nearest(wanted, alerts),
                    place=expr,
                )
    if any_list(case.get("exp_samples")):
        return  # it can fail
    known = inputs | records | {"ALERTS", "ALERTS_FOR_STATE"}
    if parsed and not any(selector.may_read(name) for selector in parsed for name in known):
        yield Problem(
            str(file.path),
            line,
            VACUOUS,
            parsed[0].name or expr,
            "expects no sample of a metric that neither an input series nor a recording rule makes",
            _nearest(parsed[0].name, inputs | records),
            place=expr,
        )


def _nearest(name: str, known: set[str]) -> str:
    import difflib

    close = difflib.get_close_matches(name, sorted(known), n=1)
    return f"did you mean {close[0]}?" if close else "correct the name, or add the rule file to `rule_files`"
