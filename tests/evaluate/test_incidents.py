from __future__ import annotations

from pathlib import Path

import pytest

from obs.errors import InputError
from obs.evaluate.incidents import LEAD_MS, Seen, clock, draft, parse_incidents, read_incidents
from obs.prom.remote_write import make_labels

RECORDINGS = Path(__file__).parent.parent / "data" / "recordings"
TEXT = """
lead: 90s
incidents:
  - name: one
    from: 2026-11-30T07:00:00Z
    to: "2026-11-30T08:30:00+01:00"
    matchers: {model: "=~dou.*", job: "!=canary"}
    expected: [High]
    acceptable: [Low, Other]
  - {name: two, from: +35s, to: +2m05s, expected: [High]}
  - {name: three, from: 1796022000, to: 1796022000.5, acceptable: [High]}
"""
SEVEN = 1_796_022_000_000  # 2026-11-30T07:00:00Z


def test_times_and_lists() -> None:
    found = parse_incidents(TEXT, start_ms=SEVEN + 1)
    one, two, three = found.incidents
    assert found.lead_ms == 90_000
    assert (one.start_ms, one.end_ms) == (SEVEN, SEVEN + 30 * 60_000)
    assert one.matchers == (("model", "=~", "dou.*"), ("job", "!=", "canary"))
    assert (one.expected, one.acceptable) == (("High",), ("Low", "Other"))
    assert (two.start_ms, two.end_ms) == (SEVEN + 1 + 35_000, SEVEN + 1 + 125_000)
    assert (three.start_ms, three.end_ms) == (SEVEN, SEVEN + 500)
    assert parse_incidents("incidents: []").lead_ms == LEAD_MS


def test_an_incident_speaks_of_instances_that_no_matcher_contradicts() -> None:
    one, two, _ = parse_incidents(TEXT).incidents

    def labels(**pairs: str) -> tuple[tuple[str, str], ...]:
        return make_labels(pairs.items())

    assert one.speaks_of("High", labels(model="doubler", job="prod"))
    assert one.speaks_of("Low", labels(model="doubler"))
    assert one.speaks_of("High", labels(instance="a"))  # no label that a matcher could contradict
    assert not one.speaks_of("High", labels(model="tokens"))
    assert not one.speaks_of("High", labels(model="doubler", job="canary"))
    assert not one.speaks_of("Unnamed", labels(model="doubler"))
    assert two.speaks_of("High", labels(model="anything"))


def test_only_incidents_that_overlap_can_be_judged() -> None:
    found = parse_incidents("incidents:\n" + "".join(
        f"  - {{name: n{at}, from: +{at}s, to: +{at + 10}s, expected: [A]}}\n" for at in (0, 20, 40)
    ))
    assert [one.name for one in found.within(10_000, 40_000)] == ["n20", "n40"]
    assert [one.name for one in found.within(9_999, 39_999)] == ["n0", "n20"]


def test_unknown_alerts_are_refused_with_the_nearest_name() -> None:
    found = parse_incidents(TEXT, "my.yaml")
    found.check_alerts(["High", "Low", "Other"])
    said = r"^my.yaml: incidents.0.acceptable.1: no such alert 'Other' .* did you mean 'Others'"
    with pytest.raises(InputError, match=said):
        found.check_alerts(["High", "Low", "Others"])


ONE = "incidents: [{name: a, from: +1s, to: +2s, expected: [A]}]"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no mapping with a list `incidents`"),
        ("- a", "is no mapping"),
        ("incidents: 5", "incidents: 5 is not a list"),
        ("{}", "incidents: is missing; add it"),
        ("incidents: [", "i.yaml:1: not valid YAML"),
        ("incidents: []\nincidents: []", "key 'incidents' is given twice"),
        ("incidents: []\nled: 5m", "led: unknown key; did you mean 'lead'?"),
        ("incidents: []\nlead: 5", "lead: 5 has no unit"),
        (ONE.replace("expected", "expect"), "incidents.0.expect: unknown key; did you mean 'expected'?"),
        (ONE.replace("from: +1s, ", ""), "incidents.0.from: is missing"),
        (ONE.replace("name: a", "name: ''"), "incidents.0.name: '' is no name"),
        (ONE.replace("+1s", "yesterday"), "incidents.0.from: 'yesterday' is no time; write"),
        (ONE.replace("+1s", "+1"), "incidents.0.from: 1 is no time"),
        (ONE.replace("+1s", "'+1'"), "incidents.0.from: '1' is not a duration"),
        (ONE.replace("+1s", "2026-13-01T00:00:00Z"), "i.yaml: not valid YAML: month must be"),
        (ONE.replace("+1s", "'2026-13-01T00:00:00Z'"), "incidents.0.from: '2026-13-01T00"),
        (ONE.replace("+1s", "2026-11-30T07:00:00"), "has no zone; write it with Z"),
        (ONE.replace("+1s", "2026-11-30T07:00:00Z"), "incidents.0.to: is an offset and `from`"),
        (ONE.replace("+1s", "+2s"), "incidents.0.to: is not after `from`"),
        (ONE.replace(", expected: [A]", ""), "incidents.0: names no alert"),
        (ONE.replace("[A]", "['A b']"), "incidents.0.expected.0: 'A b' is no name of an alert"),
        (ONE.replace("[A]", "[A], acceptable: [A]"), "incidents.0.acceptable: A is also expected"),
        (ONE.replace("[A]", "[A], matchers: {m: '=~('}"), "matchers.m: '=~(' is no regular"),
        (ONE.replace("[A]", "[A], matchers: {m: [x]}"), "matchers.m: ['x'] is no value of a label"),
        (ONE.replace("}]", "}, {name: a, from: +1s, to: +2s, expected: [A]}]"), "incidents.1.name: 'a' is there twice"),
    ],
)
def test_wrong_files_are_refused_in_one_line(text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_incidents(text, "i.yaml")
    assert said in str(caught.value)
    assert str(caught.value).startswith("i.yaml")
    assert "\n" not in str(caught.value)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing.yaml: cannot be read: No such file .* `obs incidents init`"):
        read_incidents(tmp_path / "nothing.yaml")


def test_a_draft_has_an_incident_per_subject_and_time_and_reads_back() -> None:
    m, n = make_labels({"model": 'a"b', "job": "j"}.items()), make_labels({"instance": "i:1"}.items())
    text = draft(
        [
            Seen("Late", m, SEVEN + 70_000, SEVEN + 90_000), Seen("Down", n, SEVEN, SEVEN + 5_000),
            Seen("Early", m, SEVEN + 10_500, SEVEN + 60_000), Seen("Early", m, SEVEN + 200_000, SEVEN + 230_000),
        ],
        gap_ms=10_000, source="somewhere",
    )
    down, first, second = parse_incidents(text).incidents
    assert text.startswith("# Draft by `obs incidents init` from what fired in somewhere")
    assert (down.name, down.expected, down.matchers) == ("instance i:1", ("Down",), (("instance", "=", "i:1"),))
    assert (first.name, first.expected) == ('model a"b', ("Early", "Late"))
    assert (first.start_ms, first.end_ms) == (SEVEN + 10_500, SEVEN + 90_000)
    assert (second.name, second.expected) == ('model a"b (2)', ("Early",))
    assert parse_incidents(draft([], gap_ms=1, source="s")).incidents == ()


def test_clock() -> None:
    assert clock(SEVEN) == "2026-11-30T07:00:00Z"
    assert clock(SEVEN + 344) == "2026-11-30T07:00:00.344Z"


@pytest.mark.parametrize(("name", "count"), [("triton-2.51-incident", 6), ("vllm-0.32-incident", 3)])
def test_the_bundled_incidents_read(name: str, count: int) -> None:
    found = read_incidents(RECORDINGS / f"{name}.incidents.yaml")
    assert len(found.incidents) == count
    assert found.lead_ms == 0
