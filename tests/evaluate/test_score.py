"""Every figure here is computed by hand from the spans beside it."""

from __future__ import annotations

import pytest

from obs.evaluate.incidents import Incidents, parse_incidents
from obs.evaluate.outages import Target
from obs.evaluate.replay import Instance, Timeline
from obs.evaluate.score import WEEK_MS, as_json, default_merge_ms, episodes, score
from obs.evaluate.state import Span
from obs.prom.remote_write import Labels, make_labels

DAY = 86_400_000


def labels(alert: str, **pairs: str) -> Labels:
    return make_labels({"alertname": alert, "job": "j", **pairs}.items())


def instance(alert: str, *spans: tuple[int, int, str], **pairs: str) -> Instance:
    """Spans in seconds; "f" fires, "p" is pending."""
    names = {"f": "firing", "p": "pending"}
    return Instance(
        alert, labels(alert, **pairs), tuple(Span(a * 1000, b * 1000, names[s]) for a, b, s in spans)  # type: ignore[arg-type]
    )


def timeline(*instances: Instance, alerts: tuple[str, ...] = (), end: int = 1000, dead: tuple[str, ...] = ()) -> Timeline:
    names = alerts or tuple(dict.fromkeys(one.alert for one in instances))
    ordered = tuple(sorted(instances, key=lambda one: (one.alert, one.labels)))
    return Timeline("r", "2.42.0", 0, end * 1000, 10_000, names, ordered, tuple((name, ("gone",)) for name in dead))


def incidents(*lines: str, lead: str = "0s") -> Incidents:
    return parse_incidents(f"lead: {lead}\nincidents:\n" + "".join(f"  - {{{line}}}\n" for line in lines))


# --- episodes ----------------------------------------------------------------------------------------------


def test_spans_less_than_the_merge_gap_apart_are_one_episode_with_a_flap() -> None:
    line = timeline(instance("A", (90, 100, "p"), (100, 200, "f"), (249, 300, "f"), (350, 400, "f")))
    assert default_merge_ms(line) == 50_000
    first, second = episodes(line)
    assert (first.start_ms, first.end_ms, first.firing_ms, first.flaps) == (100_000, 300_000, 151_000, 1)
    assert first.pending_ms == 90_000
    assert (second.start_ms, second.flaps, second.pending_ms) == (350_000, 0, 350_000)  # 50 s is not less than 50 s
    assert first.ends
    assert len(episodes(line, merge_ms=51_000)) == 1
    assert len(episodes(line, merge_ms=0)) == 3


def test_missing_data_does_not_split_an_episode_and_is_no_flap() -> None:
    line = timeline(instance("A", (100, 200, "f"), (500, 600, "f")))
    down = [Target(make_labels({"job": "j"}.items()), ((205_000, 490_000),))]
    (whole,) = episodes(line, targets=down)  # 5 s and 10 s of the gap had data
    assert (whole.start_ms, whole.end_ms, whole.firing_ms, whole.flaps) == (100_000, 600_000, 200_000, 0)
    part = [Target(make_labels({"job": "j"}.items()), ((205_000, 450_000),))]
    assert len(episodes(line, targets=part)) == 2  # 55 s had data, and the alert did not fire
    other = [Target(make_labels({"job": "k"}.items()), ((200_000, 500_000),))]
    assert len(episodes(line, targets=other)) == 2
    (whole,) = episodes(timeline(instance("A", (100, 200, "f"), (500, 600, "f"))), merge_ms=0, targets=[
        Target(make_labels({"job": "j"}.items()), ((200_000, 500_000),))
    ])
    assert whole.flaps == 0


def test_instances_are_episodes_of_their_own_and_firing_at_the_ends_is_told() -> None:
    line = timeline(instance("A", (0, 50, "f"), m="a"), instance("A", (20, 1000, "f"), m="b"))
    a, b = episodes(line)
    assert (a.began_before, a.ends) == (True, True)
    assert (b.began_before, b.ends) == (False, False)


# --- without incidents --------------------------------------------------------------------------------------


def test_without_incidents_episodes_noise_and_flaps_are_told_and_nothing_else() -> None:
    line = timeline(
        instance("A", (100, 200, "f"), (210, 300, "f"), m="a"), instance("A", (150, 400, "f"), m="b"),
        alerts=("A", "Quiet", "Blind"), dead=("Blind",),
    )
    found = score(line)
    one = found.of("A")
    assert (one.episodes, one.flaps) == (2, 1)
    assert one.firing_ms == 300_000  # 100 to 400, however many instances
    assert (one.true, one.false, one.missed, one.precision, one.recall, one.detect_median_ms) == (None,) * 6
    assert one.pages_per_week is None  # 1,000 s say nothing about a week
    assert found.of("Quiet").episodes == 0
    assert found.of("Blind").blind == ("gone",)
    assert found.incidents is None
    assert {episode.kind for episode in found.episodes} == {"unjudged"}
    with pytest.raises(KeyError):
        found.of("Nobody")


def test_pages_a_week_count_every_beginning_of_firing() -> None:
    line = timeline(
        instance("A", (100, 200, "f"), (210, 300, "f")), instance("B", (5000, 6000, "f")), end=2 * DAY // 1000,
    )
    found = score(line)
    assert found.of("A").pages_per_week == 2 * WEEK_MS / (2 * DAY) == 7.0
    assert found.total.pages_per_week == 10.5


# --- with incidents -----------------------------------------------------------------------------------------


def test_true_false_missed_precision_recall() -> None:
    line = timeline(
        instance("A", (130, 250, "f"), (500, 520, "f"), m="a"),  # the first is true, the second false
        instance("A", (130, 250, "f"), m="b"),  # the matcher contradicts: false
        instance("B", (150, 260, "f")),  # acceptable
        instance("C", (700, 710, "f")),  # no incident names it: false
        alerts=("A", "B", "C", "D"),
    )
    found = score(line, incidents(
        "name: one, from: +100s, to: +200s, matchers: {m: a}, expected: [A, D], acceptable: [B]",
        "name: two, from: +800s, to: +900s, expected: [A]",
    ))
    a = found.of("A")
    assert (a.episodes, a.true, a.false, a.missed, a.expected) == (3, 1, 2, 1, 2)
    assert a.precision == pytest.approx(1 / 3)
    assert a.recall == 0.5
    assert (a.detect_median_ms, a.detect_max_ms) == (30_000, 30_000)
    assert (a.resolve_median_ms, a.resolve_max_ms) == (50_000, 50_000)
    b = found.of("B")
    assert (b.true, b.false, b.expected, b.recall, b.precision) == (1, 0, 0, None, 1.0)
    assert (found.of("C").precision, found.of("C").recall) == (0.0, None)
    d = found.of("D")
    assert (d.episodes, d.precision, d.missed, d.recall) == (0, None, 1, 0.0)
    assert found.total.precision == 2 / 5
    assert (found.total.expected, found.total.missed, found.total.recall) == (2, 1, 0.5)
    assert found.missed == 1
    one, two = found.incidents or ()
    assert [(it.alert, it.found, it.after_ms) for it in one.detections] == [("A", True, 30_000), ("D", False, None)]
    assert (one.detected, one.first_ms) == (True, 30_000)
    assert (two.detected, two.first_ms) == (False, None)


def test_time_to_detect_is_a_median_over_incidents_and_a_maximum() -> None:
    line = timeline(instance("A", (110, 150, "f"), (320, 340, "f"), (570, 590, "f")))
    found = score(line, incidents(*(f"name: n{at}, from: +{at}s, to: +{at + 100}s, expected: [A]" for at in (100, 300, 500))))
    one = found.of("A")
    assert (one.true, one.missed, one.recall) == (3, 0, 1.0)
    assert (one.detect_median_ms, one.detect_max_ms) == (20_000, 70_000)  # 10, 20 and 70 s
    assert one.resolve_max_ms == 0  # each was over before its incident


def test_an_alert_that_fires_always_detects_nothing() -> None:
    line = timeline(instance("A", (10, 1000, "f")))
    one = score(line, incidents("name: n, from: +500s, to: +600s, expected: [A]")).of("A")
    assert (one.true, one.false, one.missed, one.precision, one.recall) == (0, 1, 1, 0.0, 0.0)


def test_an_alert_may_begin_by_the_lead_before_its_incident() -> None:
    line = timeline(instance("A", (80, 150, "f")))
    spec = "name: n, from: +100s, to: +200s, expected: [A]"
    one = score(line, incidents(spec, lead="20s")).of("A")
    assert (one.true, one.detect_median_ms) == (1, 0)
    assert score(line, incidents(spec, lead="19s")).of("A").false == 1
    gone = timeline(instance("A", (80, 95, "f")))  # it foretold the incident, and was over: no detection, no noise
    one = score(gone, incidents(spec, lead="20s")).of("A")
    assert (one.true, one.false, one.missed) == (1, 0, 1)


def test_an_alert_that_fires_on_through_the_next_incident_detects_both() -> None:
    line = timeline(instance("A", (110, 400, "f")))
    found = score(line, incidents(
        "name: first, from: +100s, to: +200s, expected: [A]", "name: second, from: +300s, to: +350s, expected: [A]",
    ))
    one = found.of("A")
    assert (one.true, one.missed, one.detect_max_ms) == (1, 0, 10_000)
    assert found.episodes[0].incidents == ("first", "second")
    assert (one.resolve_median_ms, one.resolve_max_ms) == (125_000, 200_000)


def test_what_cannot_be_known_is_none() -> None:
    line = timeline(instance("A", (0, 50, "f")), instance("B", (960, 1000, "f")))
    found = score(line, parse_incidents(
        "incidents:\n  - {name: before, from: 1796022000, to: 1796022100, expected: [A]}\n"
        "  - {name: end, from: +950s, to: +980s, expected: [B]}\n"
    ))
    assert found.outside == ("before",)
    b = found.of("B")
    assert (b.detect_median_ms, b.resolve_median_ms) == (10_000, None)  # it still fires at the end
    assert found.of("A").recall is None
    early = score(line, Incidents(tuple(
        one.__class__(one.name, -5_000, 40_000, (), ("A",)) for one in incidents(
            "name: n, from: +1s, to: +2s, expected: [A]").incidents
    )))
    assert (early.of("A").recall, early.of("A").detect_median_ms) == (1.0, None)  # it began before the history


def test_json_has_null_for_unknown_and_only_seconds() -> None:
    line = timeline(instance("A", (100, 200, "f"), m="a"), alerts=("A",))
    document = as_json(score(line))
    assert document["incidents"] is None
    assert document["alerts"][0] == {
        "alert": "A", "episodes": 1, "true": None, "false": None, "missed": None, "expected": None, "precision": None,
        "recall": None, "time_to_detect": {"median": None, "max": None}, "time_to_resolve": {"median": None, "max": None},
        "flaps": 0, "pages_per_week": None, "hours_firing": 100 / 3600, "blind": [],
    }
    assert document["episodes"][0]["kind"] is None
    judged = as_json(score(line, incidents("name: n, from: +95s, to: +150s, expected: [A]")))
    assert judged["incidents"] == [{
        "name": "n", "from": 95.0, "to": 150.0, "detected": True, "first": 5.0,
        "expected": [{"alert": "A", "detected": True, "after": 5.0}], "acceptable": [],
    }]
