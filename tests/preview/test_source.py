"""``ALERTS`` and ``ALERTS_FOR_STATE`` as Prometheus stores them: one sample an evaluation, a stale marker at the end."""

from __future__ import annotations

from typing import Any, cast

from obs.evaluate.replay import Instance, Played, Timeline
from obs.evaluate.rules import Rule
from obs.evaluate.state import Span
from obs.preview import source
from obs.prom.remote_write import is_stale


def stored(*spans: tuple[int, int, str], end: int = 60) -> dict[str, list[tuple[int, float | str]]]:
    """What is written of one alert instance, evaluated every 10 s; times and spans in seconds."""
    labels = (("alertname", "A"), ("model", "m"))
    one = Instance("A", labels, tuple(Span(low * 1000, high * 1000, cast(Any, state)) for low, high, state in spans))
    line = Timeline("r", "2.42.0", 0, end * 1000, 10_000, ("A",), (one,), ())
    found: dict[str, list[tuple[int, float | str]]] = {}
    for own, times, values in source.alerts(Played(cast(Any, None), line, ()), cast("list[Rule]", [])):
        name = dict(own)["__name__"] + (f" {dict(own)['alertstate']}" if "alertstate" in dict(own) else "")
        assert dict(own)["model"] == "m"
        found[name] = [
            (at // 1000, "stale" if is_stale(value) else value) for at, value in zip(times, values, strict=True)
        ]
    return found


def test_pending_then_firing_then_over() -> None:
    assert stored((10, 30, "pending"), (30, 50, "firing")) == {
        "ALERTS pending": [(10, 1.0), (20, 1.0), (30, "stale")],
        "ALERTS firing": [(30, 1.0), (40, 1.0), (50, "stale")],
        "ALERTS_FOR_STATE": [(10, 10.0), (20, 10.0), (30, 10.0), (40, 10.0), (50, "stale")],
    }


def test_one_that_still_fires_at_the_end_has_a_sample_there() -> None:
    assert stored((40, 60, "firing")) == {
        "ALERTS firing": [(40, 1.0), (50, 1.0), (60, 1.0)], "ALERTS_FOR_STATE": [(40, 40.0), (50, 40.0), (60, 40.0)],
    }


def test_one_that_comes_back_counts_from_then() -> None:
    found = stored((0, 10, "firing"), (30, 50, "firing"))
    assert found["ALERTS firing"] == [(0, 1.0), (10, "stale"), (30, 1.0), (40, 1.0), (50, "stale")]
    assert found["ALERTS_FOR_STATE"] == [(0, 0.0), (10, "stale"), (30, 30.0), (40, 30.0), (50, "stale")]
