"""The learnt decode capacity: against an engine whose costs are known, against a recorded vLLM, and before it is known."""

from __future__ import annotations

import itertools
import random

import pytest

from obs.sidecar.calibrate import CHANCE, ENOUGH, KV_SHARE, SLOT_SHARE, Calibration
from obs.sidecar.collector import families
from obs.sidecar.model import WITHHELD
from obs.sidecar.sampler import Work
from obs.sidecar.settings import ModelSettings, Settings
from obs.sidecar.signals import Signals
from obs.sidecar.window import Point

from .engine import recording, samples

BASE, BATCH, PROMPT = 0.020, 0.0003, 0.0001


def engine(seconds: int, level: float = 20.0, spread: float = 0.3, noise: float = 0.02) -> list[Point]:
    """An engine's samples: a batch that wanders about ``level``, some prompts, tokens that cost what the line says."""
    dice = random.Random(1)
    totals = dict.fromkeys(("itl_sum", "itl_count", "computed_prompt"), 0.0)
    points = []
    running = level
    for second in range(seconds):
        points.append(Point(float(second), dict(totals), {"running": running, "kv_capacity": 40_000.0,
                                                          "kv_mean": running * 1000 / 40_000}))
        after = max(1.0, dice.gauss(level, spread * level))
        rate = dice.expovariate(1 / 2000)
        latency = (BASE + BATCH * (running + after) / 2) / (1 - min(0.8, PROMPT * rate)) * dice.gauss(1, noise)
        tokens = (running + after) / 2 / latency
        totals["itl_sum"] += tokens * latency
        totals["itl_count"] += tokens
        totals["computed_prompt"] += min(8000.0, rate)
        running = after
    return points


def learn(points: list[Point]) -> Calibration:
    found = Calibration()
    for before, after in itertools.pairwise(points):
        found.feed(before, after)
    return found


def test_the_line_is_found() -> None:
    line = learn(engine(600)).line()
    assert line is not None
    assert line == pytest.approx((BASE, BATCH, PROMPT), rel=0.06)


def test_the_capacity_keeps_the_objective_and_bears_chance() -> None:
    known = learn(engine(600))
    base, batch, prompt = known.line() or (0, 0, 0)
    slope = batch + prompt * 600 / 300
    found = known.capacity(0.06, 600, 300)
    assert found is not None
    latency = base / (1 - slope * found)             # running = rate x latency on the line
    running = found * latency
    assert base + slope * (running + CHANCE * running**0.5) == pytest.approx(0.06)
    longer = known.capacity(0.06, 6000, 300)         # the same answers, prompts ten times as long: it follows at once
    assert longer is not None
    assert longer < found / 2


def test_neither_cache_nor_slots_may_end_it() -> None:
    known = learn(engine(600))                        # each request holds 1,000 tokens
    base, batch, _ = known.line() or (0, 0, 0)
    cached = known.capacity(1.0, 0, 300, kv_capacity=40_000)
    assert cached == pytest.approx(KV_SHARE * 40 / (base + batch * KV_SHARE * 40), rel=0.01)
    slots = known.capacity(1.0, 0, 300, slots=10)
    assert slots == pytest.approx(SLOT_SHARE * 10 / (base + batch * SLOT_SHARE * 10), rel=0.01)


def test_unknown_is_no_number() -> None:
    assert Calibration().capacity(0.06, 600, 300) is None
    assert learn(engine(int(ENOUGH))).line() is None              # one sample too few
    assert learn(engine(int(ENOUGH) + 5)).line() is not None
    assert learn(engine(600, spread=0.0)).line() is None          # a batch that never changes shows no slope
    known = learn(engine(600))
    assert known.capacity(0.015, 600, 300) is None                # one request alone takes longer
    assert known.capacity(0.06, 600, None) is None


def test_idle_seconds_teach_nothing() -> None:
    points = engine(600)
    known = learn(points)
    last = points[-1]
    for second in range(3600):
        known.feed(last._replace(at=last.at + second), last._replace(at=last.at + second + 1))
    assert known.line() == learn(points).line()


def test_recorded_vllm() -> None:
    """What a real engine's pages teach: in its saturated phase it made 1,172 tokens/s, with a full cache and late answers."""
    signals = Signals(Settings(interval=5.0, models={"*": ModelSettings(itl_objective=0.03)}))
    reasons, found = set(), []
    for at, body in recording("vllm-0.32-incident"):
        signals.feed(at, samples(body))
        (model,) = signals.snapshot(at).models
        if model.decode_capacity is None:
            reasons.add(model.signals["llm_scaling_decode_demand_ratio"].reason)
            kv, load = (model.signals[name].value for name in ("llm_kv_cache_usage_ratio", "llm_scaling_load_ratio"))
            assert load == kv                         # until it is known: the KV axis alone
        elif at < 1796023967:
            found.append(model.decode_capacity)
            assert model.decode_capacity_source == "calibrated"
            assert model.signals["llm_scaling_decode_demand_ratio"].source == "estimate"
    assert reasons <= {"calibrating", "warming", "stalled"}
    assert "calibrating" in reasons & WITHHELD.keys()
    assert found
    assert all(950 < one < 1172 for one in found)


def test_told_wins_over_learnt() -> None:
    given = ModelSettings(decode_capacity=500, itl_objective=0.03)
    signals = Signals(Settings(interval=5.0, models={"*": given}))
    for at, body in list(recording("vllm-0.32-incident"))[:20]:
        signals.feed(at, samples(body))
    (model,) = signals.snapshot(at).models
    assert (model.decode_capacity, model.decode_capacity_source) == (500, "config")
    served = {family.name for family in families(signals.snapshot(at), Work(0.01, 5, 9, 0), None)}
    assert "llm_decode_capacity_tokens_per_second" in served
