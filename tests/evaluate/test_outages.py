from __future__ import annotations

from obs.evaluate import outages
from obs.evaluate.outages import Target
from obs.evaluate.recording import Recording, Scrape
from obs.evaluate.recording import Target as Recorded
from obs.prom.client import Series
from obs.prom.remote_write import make_labels


def target(*down: tuple[int, int], **labels: str) -> Target:
    return Target(make_labels(labels.items()), down)


def test_a_recorded_target_is_down_from_the_first_failed_scrape_to_the_next_good_one() -> None:
    times = [0, 5_000, 10_000, 30_000, 35_000]
    one = Recording("r", (Recorded({"job": "j", "instance": "a"}, tuple(Scrape(at, ()) for at in times)),))
    (found,) = outages.of_recordings([one], 35_000)
    assert dict(found.labels) == {"job": "j", "instance": "a"}
    assert found.down == ((15_000, 30_000),)
    (found,) = outages.of_recordings([one], 50_000)
    assert found.down == ((15_000, 30_000), (40_000, 50_001))
    (found,) = outages.of_recordings([one], 12_000)
    assert found.down == ()


def test_a_job_is_down_where_the_server_has_no_target_of_it_up() -> None:
    asked = []

    def ask(expr: str, start: int, end: int, step: int) -> list[Series]:
        asked.append((expr, start, end, step))
        return [
            Series((("job", "a"),), ((0.0, 2.0), (60.0, 0.0), (240.0, 1.0))),
            Series((("job", "b"),), tuple((60.0 * place, 1.0) for place in range(5))),
        ]

    a, b = outages.of_server(ask, start_ms=0, end_ms=240_000, step_ms=60_000)
    assert asked == [("sum by (job) (up)", 0, 240_000, 60_000)]
    assert a.down == ((60_000, 240_000),)
    assert b.down == ()


def test_an_alert_is_blind_only_while_all_targets_it_may_speak_of_are_down() -> None:
    targets = [
        target((10, 50), job="j", instance="a"), target((30, 90), job="j", instance="b"),
        target((0, 99), job="k", instance="c"),
    ]
    assert outages.blind(make_labels({"job": "j", "model": "m"}.items()), targets) == ((30, 50),)
    assert outages.blind(make_labels({"job": "j", "instance": "a"}.items()), targets) == ((10, 50),)
    assert outages.blind(make_labels({"model": "m"}.items()), targets) == ((30, 50),)
    assert outages.blind(make_labels({"job": "other"}.items()), targets) == ()
    assert outages.blind((), []) == ()


def test_without() -> None:
    assert outages.without(0, 100, [(10, 20), (90, 200)]) == 80
    assert outages.without(0, 100, []) == 100
    assert outages.without(40, 60, [(0, 100)]) == 0
