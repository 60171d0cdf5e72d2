"""promtool with our verdict: what it calls SUCCESS for nothing fails here, whatever its version."""

from __future__ import annotations

from pathlib import Path

import pytest

from obs.errors import ToolError
from obs.prom import promtool, promtool_tests

pytestmark = pytest.mark.prometheus

RULES = """\
groups:
- name: g
  rules:
  - alert: Hot
    expr: x > 1
    for: 1m
    labels: {severity: page}
  - record: a:b
    expr: sum(x)
"""
TEST = """\
rule_files: [rules.yaml]
evaluation_interval: 1m
tests:
- name: hot
  interval: 1m
  input_series:
  - {series: 'x{a="b"}', values: '0 0 5x5'}
  alert_rule_test:
  - {eval_time: 1m, alertname: Hot, exp_alerts: []}
  - {eval_time: 5m, alertname: Hot, exp_alerts: [{exp_labels: {a: b, severity: page}}]}
  promql_expr_test:
  - {eval_time: 5m, expr: 'a:b', exp_samples: [{labels: 'a:b', value: 5}]}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rules.yaml").write_text(RULES)
    (tmp_path / "test.yaml").write_text(TEST)
    return tmp_path


def problems_in(text: str) -> list[str]:
    """The problems of a test file, without their mends."""
    Path("other.yaml").write_text(text)
    (result,) = promtool.test_rules(["other.yaml"])
    assert result.ok == (not result.problems)
    return [f"{problem.check} {problem.subject}: {problem.what}" for problem in result.problems]


def test_good_files_pass(folder: Path) -> None:
    assert promtool.check_rules(["rules.yaml"]) == []
    (result,) = promtool.test_rules(["test.yaml"])
    assert (result.ok, result.cases) == (True, 3)


def test_duplicates_fail(folder: Path) -> None:
    Path("rules.yaml").write_text(RULES + "  - alert: Hot\n    expr: x > 2\n    labels: {severity: page}\n")
    (problem,) = promtool.check_rules(["rules.yaml"])
    assert (problem.path, problem.line, problem.subject) == ("rules.yaml", 10, "Hot")
    assert "rules.yaml:4 has the same name and labels" in problem.what


def test_other_labels_are_no_duplicate(folder: Path) -> None:
    Path("rules.yaml").write_text(RULES + "  - alert: Hot\n    expr: x > 2\n    labels: {severity: warn}\n")
    assert promtool.check_rules(["rules.yaml"]) == []


def test_duplicates_across_files_fail(folder: Path) -> None:
    Path("more.yaml").write_text(RULES)
    assert [problem.subject for problem in promtool.check_rules(["*s.yaml", "more.yaml"])] == ["Hot", "a:b"]


def test_bad_expressions_have_line_and_rule(folder: Path) -> None:
    Path("rules.yaml").write_text(RULES.replace("x > 1", "x >> 1"))
    (problem,) = promtool.check_rules(["rules.yaml"])
    assert (problem.line, problem.subject) == (5, "Hot")
    assert "could not parse expression" in problem.what


def test_unknown_field_has_line(folder: Path) -> None:
    Path("rules.yaml").write_text(RULES.replace("for:", "fro:"))
    (problem,) = promtool.check_rules(["rules.yaml"])
    assert problem.line == 6
    assert "field fro not found" in problem.what


@pytest.mark.parametrize("paths", [["nope.yaml"], ["nope*.yaml"], ["."], []])
def test_nothing_to_check_fails(folder: Path, paths: list[str]) -> None:
    assert len(promtool.check_rules(paths)) == 1
    (result,) = promtool.test_rules(paths)
    assert not result.ok


def test_file_without_rules_fails(folder: Path) -> None:
    Path("rules.yaml").write_text("groups: []\n")
    assert [problem.what for problem in promtool.check_rules(["rules.yaml"])] == ["holds no rule"]


def test_missing_promtool_is_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMTOOL", "/nope")
    with pytest.raises(ToolError):
        promtool.check_rules(["rules.yaml"])
    with pytest.raises(ToolError):
        promtool.test_rules(["test.yaml"])


def test_silent_fake_promtool_is_no_success(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMTOOL", "/bin/true")
    with pytest.raises(ToolError, match="without saying SUCCESS"):
        promtool.test_rules(["test.yaml"])


def test_failures_are_readable(folder: Path) -> None:
    Path("test.yaml").write_text(TEST.replace("a: b, sev", "a: c, sev").replace("value: 5", "value: 4"))
    (result,) = promtool.test_rules(["test.yaml"])
    first, second = result.problems
    assert first.subject == "Hot (hot)"
    assert "time: 5m" in first.what
    assert 'a="c"' in first.what
    assert 'a="b"' in first.what
    assert second.subject.startswith("a:b")
    assert "4E+00 got" in second.what
    assert "\n" not in f"{first}{second}"


def test_unmatched_rule_file_fails(folder: Path) -> None:
    assert problems_in(TEST.replace("[rules.yaml]", "[rules.yaml, nothere*.yaml]")) == [
        "vacuous-test nothere*.yaml: this `rule_files` entry matches no file"
    ]


def test_misspelt_alert_fails(folder: Path) -> None:
    text = TEST + "- input_series: [{series: x, values: '0x9'}]\n  alert_rule_test:\n"
    text += "  - {eval_time: 7m, alertname: Hott, exp_alerts: []}\n"
    assert problems_in(text) == ["vacuous-test Hott: no rule file of this test defines an alert of this name"]


def test_misspelt_alert_in_an_expression_fails(folder: Path) -> None:
    text = TEST.replace("'a:b', exp", "'ALERTS{alertname=\"Hott\"}', exp").replace("[{labels: 'a:b', value: 5}]", "[]")
    assert problems_in(text) == ["vacuous-test Hott: no rule file of this test defines an alert of this name"]


def test_unknown_metric_expected_empty_fails(folder: Path) -> None:
    text = TEST.replace("'a:b', exp", "'a:bb', exp").replace("[{labels: 'a:b', value: 5}]", "[]")
    (said,) = problems_in(text)
    assert said.startswith("vacuous-test a:bb: expects no sample of a metric that neither")


def test_known_metric_expected_empty_passes(folder: Path) -> None:
    assert problems_in(TEST.replace("'a:b', exp", "'a:b > 9', exp").replace("[{labels: 'a:b', value: 5}]", "[]")) == []


def test_test_without_assertion_fails(folder: Path) -> None:
    assert problems_in(TEST + "- name: lazy\n  input_series: [{series: x, values: '0x9'}]\n") == [
        "vacuous-test lazy: asserts nothing"
    ]


def test_quiet_without_input_fails_unless_it_is_about_no_data(folder: Path) -> None:
    text = TEST + "- name: quiet\n  alert_rule_test:\n  - {eval_time: 7m, alertname: Hot, exp_alerts: []}\n"
    assert problems_in(text) == ["vacuous-test quiet: has no input series and expects nothing"]
    assert problems_in(text.replace("name: quiet", "name: Hot, No Data")) == []


def test_empty_test_file_fails(folder: Path) -> None:
    assert "vacuous-test other.yaml: holds no test" in problems_in("rule_files: [rules.yaml]\n")
    assert "vacuous-test other.yaml: names no `rule_files`" in problems_in(
        TEST.replace("rule_files: [rules.yaml]\n", "")
    )


def test_file_that_is_no_yaml(folder: Path) -> None:
    (said,) = problems_in("rule_files: [\n")
    assert "is not valid YAML" in said


def test_coverage(folder: Path) -> None:
    rules, tests = [Path("rules.yaml")], [Path("test.yaml")]
    assert promtool_tests.coverage(tests, rules) == {"Hot": {"firing", "quiet"}}
    (problem,) = promtool_tests.missing_cases(promtool_tests.coverage(tests, rules))
    assert (problem.subject, problem.what) == ("Hot", "no test shows it no data")
    extra = "- name: hot, no data\n  alert_rule_test: [{eval_time: 7m, alertname: Hot, exp_alerts: []}]\n"
    Path("test.yaml").write_text(TEST + extra)
    assert promtool_tests.coverage(tests, rules) == {"Hot": {"firing", "quiet", "no_data"}}
    assert promtool_tests.missing_cases(promtool_tests.coverage(tests, rules)) == []


def test_a_no_data_test_is_no_quiet_case(folder: Path) -> None:
    Path("test.yaml").write_text(TEST.replace("name: hot", "name: hot with no data"))
    assert promtool_tests.coverage([Path("test.yaml")], [Path("rules.yaml")]) == {"Hot": {"firing", "no_data"}}
