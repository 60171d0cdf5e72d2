"""The reduced differential test; `make differential` runs 1,000 cases (tests/evaluate/differential.py)."""

from __future__ import annotations

import random

import pytest

from tests.evaluate import differential


@pytest.mark.prometheus
@pytest.mark.parametrize("seed", [1, 2])
def test_the_same_states_as_promtool(seed: int) -> None:
    tally = differential.Tally()
    differential.compare(random.Random(seed), 10, tally)
    assert tally.said == []
    assert tally.evaluations == 360
    assert min(tally.states["pending"], tally.states["firing"]) > 100  # the cases are worth something


@pytest.mark.prometheus
def test_evaluations_that_fail_fail_when_promtools_do() -> None:
    tally = differential.Tally()
    for seed in range(4):
        differential.compare_failing(random.Random(seed), tally)
    assert tally.said == []
    assert tally.states["failing"] >= 2


@pytest.mark.prometheus
def test_an_alert_whose_results_clash_is_compared_up_to_there_and_the_others_wholly() -> None:
    tally = differential.Tally()
    differential.compare(random.Random("20261130/19"), 3, tally)  # a rule set in which A2's own labels clash
    assert tally.said == []
    assert tally.states["failing"] >= 2


@pytest.mark.prometheus
def test_a_server_goes_on_after_a_failed_evaluation_as_we_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(differential, "SPAN", 12)
    tally = differential.Tally()
    differential.after_failures(random.Random(1), tally, alerts=30)
    assert tally.said == []
    assert tally.states["failed on a server"] > 0


@pytest.mark.prometheus
def test_a_wrong_state_machine_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from obs.evaluate import state

    right = state.spans_of_runs
    monkeypatch.setattr(differential, "RUNS", 1)
    monkeypatch.setattr(
        "obs.evaluate.replay.state.spans_of_runs", lambda *args, **kw: right(*args, **{**kw, "hold_ms": kw["hold_ms"] + 1})
    )
    tally = differential.Tally()
    differential.compare(random.Random(1), 1, tally)
    assert tally.mismatches > 0
