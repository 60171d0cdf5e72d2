from __future__ import annotations

from dataclasses import replace

import pytest

from obs.errors import InputError
from obs.evaluate.compare import POLICIES, as_json, compare, examples, noise
from obs.evaluate.incidents import parse_incidents
from obs.evaluate.replay import Instance, Timeline
from obs.evaluate.score import score
from obs.evaluate.state import Span
from obs.prom.remote_write import make_labels

INCIDENTS = parse_incidents(
    "lead: 0s\nincidents:\n  - {name: one, from: +100s, to: +300s, expected: [A, B]}\n"
    "  - {name: two, from: +600s, to: +700s, expected: [C]}\n"
)


def line(**spans: tuple[tuple[int, int], ...]) -> Timeline:
    """Firing spans in seconds per alert; severity differs between rule sets on purpose."""
    instances = tuple(
        Instance(
            name, make_labels({"alertname": name, "m": "x", "severity": "page"}.items()),
            tuple(Span(a * 1000, b * 1000, "firing") for a, b in theirs),
        )
        for name, theirs in sorted(spans.items()) if theirs
    )
    return Timeline("r", "", 0, 1_000_000, 10_000, tuple(spans), instances, ())


OLD = line(A=((120, 200),), B=((150, 250), (400, 450)), C=((610, 650),), Gone=((10, 20),), Same=((1, 2),))
NEW = line(A=((160, 200),), B=((130, 250), (800, 850)), C=(), Added=((10, 20),), Same=((1, 2),))


def test_gained_lost_earlier_later_with_examples() -> None:
    found = compare(score(OLD), score(NEW))
    by_name = {one.alert: one for one in found.alerts}
    assert list(by_name) == ["A", "Added", "B", "C", "Gone", "Same"]
    assert [(len(one.gained), len(one.lost), len(one.earlier), len(one.later), one.same) for one in found.alerts] == [
        (0, 0, 0, 1, 0), (1, 0, 0, 0, 0), (1, 1, 1, 0, 0), (0, 1, 0, 0, 0), (0, 1, 0, 0, 0), (0, 0, 0, 0, 1),
    ]
    assert by_name["A"].later[0].by_ms == 40_000
    assert by_name["B"].earlier[0].by_ms == -20_000
    assert (by_name["Added"].presence, by_name["Gone"].presence, by_name["A"].presence) == ("added", "removed", "both")
    assert by_name["A"].firing_ms == (80_000, 40_000)
    assert [one.alert for one in found.changed] == ["A", "Added", "B", "C", "Gone"]
    assert [(kind, one.start_ms, by) for kind, one, by in examples(by_name["B"])] == [
        ("gained", 800_000, 0), ("lost", 400_000, 0), ("earlier", 130_000, -20_000),
    ]


def test_other_labels_are_other_episodes_and_severity_is_none_of_them() -> None:
    def one(**labels: str) -> Timeline:
        spans = (Span(1000, 2000, "firing"),)
        return replace(line(A=()), instances=(Instance("A", make_labels({"alertname": "A", **labels}.items()), spans),))

    def change(old: Timeline, new: Timeline) -> tuple[int, int]:
        (found,) = compare(score(old), score(new)).alerts
        return len(found.gained), len(found.lost)

    assert change(one(m="x", severity="page"), one(m="x", severity="warning", team="infra")) == (0, 0)
    assert change(one(m="x"), one(m="y")) == (1, 1)


def test_incidents_are_compared_by_their_first_detection() -> None:
    found = compare(score(OLD, INCIDENTS), score(NEW, INCIDENTS))
    one, two = found.incidents or ()
    assert (one.old, one.new, one.old_ms, one.new_ms) == (True, True, 20_000, 30_000)
    assert (two.old, two.new, two.old_ms, two.new_ms) == (True, False, 10_000, None)


def broken(policy: str, old: Timeline = OLD, new: Timeline = NEW, judged: bool = True) -> tuple[str, ...]:
    incidents = INCIDENTS if judged else None
    return compare(score(old, incidents), score(new, incidents)).broken([policy], step_ms=5_000)


def test_policies_are_broken_and_kept() -> None:
    assert broken("lost-incident") == ("lost-incident: two: the old rules detected it, the new do not",)
    assert broken("later") == ("later: one (+10s)",)
    assert broken("lost-alert") == ("lost-alert: C, Gone: fired under the old rules and never under the new",)
    assert broken("any-change") == ("any-change: A, Added, B, C, Gone",)
    assert broken("more-noise") == ()  # three false episodes before, three after
    more = line(A=((120, 200), (900, 910)), B=((150, 250), (400, 450)), C=((610, 650),), Gone=((10, 20),), Same=((1, 2),))
    assert broken("more-noise", new=more) == ("more-noise: 4 false episodes, 3 before",)
    assert broken("more-noise", new=more, judged=False) == ("more-noise: 7 episodes and flaps, 6 before",)
    for policy in POLICIES:
        assert broken(policy, new=OLD) == ()


def test_one_evaluation_later_is_not_later() -> None:
    found = compare(score(OLD, INCIDENTS), score(NEW, INCIDENTS))
    assert found.broken(["later"], step_ms=10_000) == ()


def test_a_policy_on_incidents_without_incidents_is_refused() -> None:
    for policy in ("lost-incident", "later"):
        with pytest.raises(InputError, match="none are given; give --incidents FILE"):
            broken(policy, judged=False)


def test_an_alert_that_goes_blind_is_told() -> None:
    blind = replace(NEW, dead=(("Same", ("gone_metric",)), ("Added", ("other",))))
    assert broken("blind", new=blind) == ("blind: Same (gone_metric)",)
    assert broken("blind", old=blind, new=blind) == ()


def test_json() -> None:
    found = compare(score(OLD, INCIDENTS), score(NEW, INCIDENTS))
    document = as_json(found, ["x"])
    assert document["unchanged"] == ["Same"]
    assert document["noise"] == {"old": noise(found.old), "new": noise(found.new)} == {"old": 3, "new": 3}
    assert document["broken"] == ["x"]
    assert document["incidents"][1] == {"name": "two", "old": True, "new": False, "old_after": 10.0, "new_after": None}
    assert document["alerts"][0]["examples"] == [
        {"kind": "later", "labels": {"alertname": "A", "m": "x", "severity": "page"}, "from": 160.0, "to": 200.0, "by": 40.0}
    ]
