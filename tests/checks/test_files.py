"""Reading files: lines of rules and of places in them, PrometheusRule objects, comments, and what is no rule file."""

from __future__ import annotations

from pathlib import Path

import pytest

from obs.checks import registry, rulefiles, suppression
from obs.checks.syntax import locate, parse
from obs.checks.world import build
from obs.config import parse_config
from obs.errors import InputError
from obs.model.problem import Problem

RULES = """\
groups:
- name: g
  rules:
  - alert: OneLine
    expr: vllm_kv_cache_usage_perc > 0.9
  - alert: Block
    expr: |
      up == 1

      # the next line is wrong
      and vllm_num_requests_waiting > 3
    labels: {severity: warning}
  - {alert: Flow, expr: "nv_inference_request_success_total > 1"}
  - alert: Folded
    expr: >-
      up ==
      vllm_num_requests_running
    for: 5m
"""


def lines(text: str, *checks: str) -> list[tuple[str, int, str]]:
    file = rulefiles.parse("r.yaml", text)
    assert file is not None
    world = build(parse_config(""), [file], {})
    chosen = [check for check in registry.STATIC if check.ID in checks]
    return [(problem.subject, problem.line, problem.place) for problem in registry.run(world, chosen)]


def test_places_and_lines() -> None:
    assert lines(RULES, "unknown-metric") == [
        ("OneLine", 5, "vllm_kv_cache_usage_perc"),
        ("Block", 11, "vllm_num_requests_waiting"),
        ("Flow", 13, "nv_inference_request_success_total"),
        ("Folded", 15, "vllm_num_requests_running"),
    ]


def test_the_place_is_the_authors_text() -> None:
    for text, part, shown in [
        ("sum( rate(x{a='b',}[5m]) )  > 1e3", "rate(x{a='b'}[5m])", "rate(x{a='b',}[5m])"),
        ("a\n  / (b  > 0)", "b > 0", "b  > 0"),
        ('x{m="$model"}[$__rate_interval]', 'x{m="model"}[5m]', 'x{m="$model"}[$__rate_interval]'),
        ("x{m=~\"${model:regex}\"} > 1", 'x{m=~"model"}', 'x{m=~"${model:regex}"}'),
    ]:
        spelled = parse(part).text if "[" not in part else part
        span = locate(text, spelled)
        assert span is not None, text
        assert text[span[0] : span[1]] == shown
    assert locate("sum(x) by (y)", "sum by (y) (x)") is None


def test_prometheus_rule_objects() -> None:
    text = (
        "apiVersion: v1\nkind: ConfigMap\ndata: {a: b}\n---\n"
        "apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nspec:\n  groups:\n  - name: g\n    rules:\n"
        "    - alert: A\n      expr: vllm_kv_cache_usage_perc > 1\n"
    )
    file = rulefiles.parse("r.yaml", text)
    assert file is not None
    assert file.operator
    assert lines(text, "unknown-metric") == [("A", 12, "vllm_kv_cache_usage_perc")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("groups: [", "r.yaml:"),
        ("a: b\n", "is no Prometheus rule file"),
        ("- a\n", "is no Prometheus rule file"),
        ("", "is no Prometheus rule file"),
        ("groups:\n", "is no Prometheus rule file"),
        ("{{ if x }}\ngroups: []\n", "is not valid YAML"),
    ],
)
def test_what_is_no_rule_file(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=r"r\.yaml") as caught:
        rulefiles.load(path)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unreadable_files(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"groups: [] # \xe9\n")
    with pytest.raises(InputError, match="not UTF-8"):
        rulefiles.load(tmp_path / "latin.yaml")
    with pytest.raises(InputError, match="cannot be read"):
        rulefiles.load(tmp_path / "none.yaml")


def suppressed(text: str) -> tuple[list[Problem], int]:
    file = rulefiles.parse("r.yaml", text)
    assert file is not None
    world = build(parse_config(""), [file], {})
    ids = {entry.id for entry in registry.entries()}
    return suppression.apply(world, registry.run(world, registry.STATIC), ids, {check.ID for check in registry.STATIC})


def rules(*comments: str) -> str:
    above, beside, inside = (*comments, "", "", "")[:3]
    return (
        f"groups:\n- name: g\n  rules:\n{above}  - alert: A{beside}\n    expr: |\n{inside}"
        "      vllm_kv_cache_usage_perc > 0.9\n  - alert: B\n    expr: vllm_kv_cache_usage_perc > 0.9\n"
    )


@pytest.mark.parametrize(
    "comments",
    [
        ("  # obs:ignore unknown-metric our gateway writes it so\n",),
        ("  # obs:ignore unknown-metric our gateway writes it so\n  # another remark\n",),
        ("", "  # obs:ignore unknown-metric our gateway writes it so"),
        ("", "", "      # obs:ignore unknown-metric our gateway writes it so\n"),
    ],
)
def test_a_comment_silences_one_check_for_one_rule(comments: tuple[str, ...]) -> None:
    found, silenced = suppressed(rules(*comments))
    assert silenced == 1
    assert [(problem.check, problem.subject) for problem in found] == [("unknown-metric", "B")]


@pytest.mark.parametrize(
    ("comment", "what", "mend"),
    [
        ("obs:ignore unknown-metric", "gives no reason", "and why"),
        ("obs:ignore unknown-metrics because", "no check 'unknown-metrics'", "did you mean unknown-metric?"),
        ("obs:ignore", "no check ''", "--list"),
    ],
)
def test_a_comment_without_reason_or_check_silences_nothing(comment: str, what: str, mend: str) -> None:
    found, silenced = suppressed(rules(f"  # {comment}\n"))
    assert silenced == 0
    assert [problem.subject for problem in found if problem.check == "unknown-metric"] == ["A", "B"]
    (own,) = [problem for problem in found if problem.check == "suppression"]
    assert (own.line, own.level) == (4, "error")
    assert what in own.what
    assert mend in own.mend


def test_a_comment_that_silences_nothing_is_mentioned() -> None:
    found, _ = suppressed(rules("  # obs:ignore range-too-short slow scrapes\n"))
    (own,) = [problem for problem in found if problem.check == "suppression"]
    assert (own.level, own.subject) == ("info", "A")


def test_value_in_labels() -> None:
    for label, found in [
        ("{{ $value }}", 1), ("{{ $value | humanize }}", 1), ("{{ .Value }}", 1), ('{{ printf "%.0f" $value }}', 1),
        ("{{ $labels.model }}", 0), ("value", 0), ("{{ $valued }}", 0),
    ]:  # fmt: skip
        text = f"groups:\n- name: g\n  rules:\n  - alert: A\n    expr: up == 0\n    labels:\n      a: '{label}'\n"
        assert lines(text, "value-in-labels") == [("A", 7, label)] * found
    text = "groups:\n- name: g\n  rules:\n  - alert: A\n    expr: up == 0\n    annotations:\n      a: '{{ $value }}'\n"
    assert lines(text, "value-in-labels") == []
