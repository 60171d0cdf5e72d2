"""Templates of labels and annotations, held against promtool (which expands them with Go's own text/template)."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from obs.evaluate import templates
from obs.evaluate.templates import TemplateError, expand
from obs.prom import tools

LABELS = {"__name__": "x", "i": "a-1", "instance": "node-7.example.org:8002", "model": "llama_70b chat", "v6": "[::1]:80"}
VALUES = [
    0.0, 1.0, -1.0, 0.5, 3.25, 999.0, 1000.0, 1023.0, 1024.0, 1500.5, 123456.0, 1234567.0, 86399.0, 90061.5, 1e-7, 0.000123,
    2.5e15, 9e18, -0.0042, -98765.4321, 1 / 3, 1796022960.5, math.inf, -math.inf, math.nan,
]  # fmt: skip
TEXTS = [
    'plain',
    '{{ $value }}',
    '{{ .Value }}',
    '{{ $labels.i }}/{{ .Labels.model }}',
    '{{ $labels.nothing }}|',
    'a {{- $value -}} b',
    '{{ humanize $value }}',
    '{{ $value | humanize1024 }}',
    '{{ $value | humanizeDuration }}',
    '{{ humanizePercentage .Value }}',
    '{{ printf "%.2f" $value }}',
    '{{ printf "%g|%v|%8.3f|%-8.1f|%+.1e" $value $value $value $value $value }}',
    '{{ printf "%s %q %d %t %%" $labels.i $labels.i 7 true }}',
    '{{ printf "%d" $value }}',
    '{{ printf "%s" $value }}',
    '{{ printf "%5s|%-6s|" $labels.i $labels.i }}',
    '{{ printf "%s" }}',
    '{{ printf "x" $labels.i }}',
    '{{ printf "%05.1f" 3.14159 }}',
    '{{ $labels.model | title }}',
    '{{ toUpper $labels.i }}',
    '{{ "ÀB_c d-e" | toLower }} {{ "àb_c d-e x1 éa" | title }}',
    '{{ reReplaceAll "([a-z]+)-(\\\\d+)" "$2:${1}x$$" $labels.i }}',
    '{{ reReplaceAll "a*" "x" "baaac" }}',
    '{{ if match "^a-[0-9]$" $labels.i }}yes{{ else }}no{{ end }}',
    '{{ stripPort $labels.instance }} {{ stripPort $labels.v6 }}',
    '{{ stripDomain $labels.instance }} {{ stripDomain "10.0.0.1:80" }} {{ stripPort "none" }}',
    '{{ if gt $value 1000.0 }}big{{ else if lt $value 0.0 }}negative{{ else }}small{{ end }}',
    '{{ with $labels.nothing }}[{{ . }}]{{ else }}without{{ end }} {{ with $labels.i }}[{{ . }}]{{ end }}',
    '{{ $x := $labels.i }}{{ $x }}{{ $x = $labels.model }} {{ $x }}',
    '{{ if and (eq $labels.i "a-1") (ne $labels.model "") }}both{{ end }}',
    '{{ if or $labels.nothing (eq $labels.i "b" "a-1") }}one{{ end }} {{ not true }} {{ len $labels.i }}',
    '{{ index $labels "model" }} {{ print $labels.i 1 2 "x" }} {{ 1.50 }} {{ 1e3 }} {{ true }}',
    '{{/* nothing */}}x',
    '{{ humanize "12345.678" }} {{ humanizeDuration "0.00342" }} {{ parseDuration "1h30m" }}',
    '{{ $value | humanizeTimestamp }}',
    '{{ ($labels.i | toUpper) }} {{ `raw\\n` }}',
    '{{ "q\\"uote\\ttab" }}',
]


@pytest.mark.prometheus
def test_like_promtool(tmp_path: Path) -> None:
    """Each text for each value, as an annotation; the labels are those of the series."""
    notes = {f"n{number}": text for number, text in enumerate(TEXTS)}
    # a value beyond what Go can make a time of is an error there, and here
    rule = {"alert": "A", "expr": "x", "annotations": notes}
    (tmp_path / "rules.yaml").write_text(json.dumps({"groups": [{"name": "g", "rules": [rule]}]}))
    series = "x{" + ",".join(f"{name}={json.dumps(value)}" for name, value in LABELS.items() if name != "__name__") + "}"
    tests = []
    for value in VALUES:
        shown = {}
        for name, text in notes.items():
            try:
                shown[name] = expand(text, LABELS, value)
            except TemplateError:
                assert "Timestamp" in text
                shown[name] = (
                    f"<error expanding template: error executing template __alert_A: template: __alert_A:1:124: executing "
                    f'"__alert_A" at <humanizeTimestamp>: error calling humanizeTimestamp: {_go(value)} cannot be represented '
                    "as a nanoseconds timestamp since it overflows int64>"
                )
        labels = {name: text for name, text in LABELS.items() if name != "__name__"}
        written = "NaN" if value != value else "Inf" if value == math.inf else "-Inf" if value == -math.inf else repr(value)
        alert = {"eval_time": "0m", "alertname": "A", "exp_alerts": [{"exp_labels": labels, "exp_annotations": shown}]}
        tests.append({"interval": "1m", "input_series": [{"series": series, "values": written}], "alert_rule_test": [alert]})
    (tmp_path / "t.yaml").write_text(json.dumps({"rule_files": ["rules.yaml"], "tests": tests}))
    done = tools.run([tools.find("promtool"), "test", "rules", str(tmp_path / "t.yaml")])
    assert "SUCCESS" in done.output, done.output[:6000]


def _go(value: float) -> str:
    return templates.number(value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{{ query \"up\" }}", "the function query is not known"),
        ("{{ range $labels }}x{{ end }}", "range }} is not known"),
        ("{{ $externalLabels.x }}", r"\$externalLabels is the server's own"),
        ("{{ if $value }}", "has no {{ end }}"),
        ("{{ end }}", "without its beginning"),
        ("{{ $value", "a {{ has no }}"),
        ("{{ }}", "a value is missing"),
        ("{{ $value ) }}", "is out of place"),
        ("{{ 'x' }}", "cannot be read"),
    ],
)
def test_what_is_not_known_is_said_when_read(text: str, said: str) -> None:
    with pytest.raises(TemplateError, match=said):
        templates.check(text)


@pytest.mark.parametrize(
    "text",
    ["{{ if gt $value 1 }}x{{ end }}", "{{ toUpper $value }}", '{{ reReplaceAll "[[:alpha:]]" "" $labels.i }}', "{{ $no }}",
     "{{ humanize $labels.i }}", "{{ $value.x }}"],
)  # fmt: skip
def test_what_go_refuses_is_an_error(text: str) -> None:
    templates.check(text)
    with pytest.raises(TemplateError):
        expand(text, LABELS, 1.0)


def test_title_is_that_of_prometheus_2() -> None:
    """Prometheus 3 has another `title` (golang.org/x/text/cases): 1X here. promtool 2 and 3 agree on the rest of TEXTS."""
    assert expand('{{ "1x x1" | title }}', {}, 1.0) == "1x X1"


def test_reads_value() -> None:
    assert templates.reads_value("{{ $value | humanize }}")
    assert templates.reads_value("{{ .Value }}")
    assert not templates.reads_value("{{ $labels.value }} $value")
