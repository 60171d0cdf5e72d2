"""The fleet: the sidecar's signals, the chain of delays, faults, determinism, draining."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from obs.errors import InputError
from obs.simulate import observe
from obs.simulate.arrivals import Arrival, Lengths, bursts, constant, synthetic
from obs.simulate.engine import Replica, Request
from obs.simulate.fleet import Fault, Fleet, Result, Settings
from obs.simulate.hardware import ENGINES
from obs.simulate.policies import BEHAVIOR, LOAD, PROJECTED, policy
from obs.simulate.router import ROUTERS
from obs.simulate.store import Store

CHAT = Lengths(prompt=500, prompt_sigma=0.8, output=280, output_sigma=0.7)
ENGINE = replace(ENGINES["reference-40k"], load=60.0)
HALF = 500.0
BURST = synthetic(bursts(3, 9, rise=60, hold=500, fall=60, period=1000), CHAT, 1000.0, 1)


def run(name: str, arrivals: list[Arrival], seconds: float, seed: int = 1, **settings: Any) -> Result:
    given = Settings(ENGINE, seconds, 860.0, **settings)
    return Fleet(given, arrivals, policy(name), seed).run()


# --- the sidecar -------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [
    observe.settings(860.0, 1.0), observe.settings(860.0, 1.0, projected=False),
    observe.settings(None, 1.0, itl_objective=0.06),
], ids=["projected", "short", "learnt"])
def test_the_fast_sidecar_is_the_sidecar(given: observe.Settings) -> None:
    """The same samples as text through the sidecar's own reader, and directly: every signal is equal, at each scrape."""
    arrivals = synthetic(bursts(1, 5, rise=30, hold=60, fall=30, period=180), CHAT, 240.0, 1)
    replica = Replica(ENGINE, 3.0, sample_interval=1.0, sample_phase=0.3)
    capacity = ENGINE.blocks * ENGINE.block
    wire, fast = observe.WireSidecar(given, capacity, 3.0), observe.FastSidecar(given, capacity)
    few = observe.FastSidecar(given, capacity, [PROJECTED])
    waiting = list(arrivals)
    withheld = 0
    for now in range(15, 330, 15):
        while waiting and waiting[0].at <= now:
            arrival = waiting.pop(0)
            replica.advance(max(3.0, arrival.at))
            replica.submit(Request(*arrival))
        replica.advance(now)
        if now == 180:
            replica.frozen = True  # from now on nothing moves, and after 30 samples the sidecar withholds
        if now == 255:
            replica.thaw(now)
        samples, replica.samples = replica.samples, []
        wire.feed(samples)
        fast.feed(samples)
        few.feed(samples)
        one, two = wire.signals(now), fast.signals(now)
        assert one.keys() == two.keys(), now
        assert two == pytest.approx(dict(one), rel=1e-9, abs=1e-12)
        assert few.signals(now) == {name: value for name, value in two.items() if name == PROJECTED}
        withheld += not one
    assert withheld > 0
    assert LOAD in one
    assert wire.signals(1000.0) == fast.signals(1000.0) == {}  # too old


def test_the_whole_run_is_the_same_with_text() -> None:
    arrivals = [one for one in BURST if one.at < 200]
    one, two = (run("load", arrivals, 200.0, wire=wire) for wire in (False, True))
    assert one.syncs == [(at, wanted, pytest.approx(seen)) for at, wanted, seen in two.syncs]
    assert one.ttfts == two.ttfts


def test_load_rises_with_load() -> None:
    means = []
    for rate in (1.0, 2.0, 4.0, 8.0):
        result = Fleet(Settings(ENGINE, 240.0, 860.0, low=2, high=2), synthetic(constant(rate), CHAT, 240.0, 1),
                       policy("load"), 1).run()
        seen = [value for at, _, value in result.syncs if value is not None and at > 100]
        means.append(sum(seen) / len(seen))
    assert means == sorted(means)
    assert means[-1] > 1.5  # it goes on rising where KV usage and throughput stand still


# --- delays and scaling --------------------------------------------------------------------------------


def test_store_follows_prometheus() -> None:
    store = Store()
    store.scrape("a", 10.0, {"x": 1.0, "y": None})
    assert store.values("x", 309.9, ["a", "b"]) == {"a": 1.0}
    assert store.values("x", 310.0, ["a"]) == {}      # five minutes of look-back
    assert store.values("y", 10.0, ["a"]) == {}
    store.scrape("a", 20.0, {})                       # withheld: a staleness marker
    assert store.values("x", 20.0, ["a"]) == {}
    store.scrape("a", 30.0, {"x": 2.0})
    store.down = True
    store.scrape("a", 40.0, {"x": 3.0})
    store.forget("a")
    assert store.values("x", 40.0, ["a"]) == {"a": 2.0}


def test_a_pod_takes_its_time() -> None:
    result = run("load", BURST, HALF)
    ups = [(at, wanted) for at, wanted, _ in result.replicas]
    first = next(at for (_, before), (at, after) in itertools.pairwise(ups) if after > before)
    more = next(at for at, _, ready in result.replicas if ready > 2)
    assert more == pytest.approx(first + 10 + 60)      # scheduled, then loaded
    assert result.peak <= 12
    assert result.replica_seconds < 12 * HALF


def test_same_seed_same_result_other_seed_another() -> None:
    one, two, other = (run("load", BURST, HALF, seed=seed) for seed in (1, 1, 2))
    assert one == two
    assert one.syncs != other.syncs


def test_every_request_is_accounted_for() -> None:
    early = [one for one in BURST if one.at < HALF]
    for name in ROUTERS:
        result = run("queue", early, HALF, router=name)
        assert len(result.ttfts) + result.failed == result.requests == len(early)
        assert result.failed == 0
        assert result.tokens == sum(one.output for one in early)


def test_scale_in_drains() -> None:
    long = [Arrival(1.0 + index / 10, 100, 3000) for index in range(20)]  # about 60 to 70 s each
    quick = replace(BEHAVIOR, down=replace(BEHAVIOR.down, window=0.0, policies=BEHAVIOR.up.policies))
    eager = replace(policy("queue"), behavior=quick)
    for grace, failed in ((300.0, 0), (5.0, True)):
        given = Settings(ENGINE, 200.0, 860.0, low=1, high=4, start=4, grace=grace)
        result = Fleet(given, long, eager, 1).run()
        assert result.scale_downs > 0
        assert bool(result.failed) == bool(failed)


def test_nobody_ready_is_waited_for() -> None:
    """All replicas die; the gateway holds what comes until one has loaded again."""
    result = run("load", BURST, HALF, high=2, faults=(Fault("kill", 100.0, 1.0, pods=2),))
    assert 0 < result.failed < 200
    assert max(result.ttfts) > 50.0


# --- no data -------------------------------------------------------------------------------------------

STEADY = synthetic(constant(8.7), CHAT, 600.0, 1)
HASTY = replace(BEHAVIOR, down=replace(BEHAVIOR.down, window=120.0))
"""Two minutes of stabilisation: the usual five would hide a false scale-in for as long."""


def steady(fault: Fault, **settings: Any) -> Result:
    """Five replicas, as many as the load takes, and something goes wrong after three minutes."""
    given = Settings(ENGINE, 600.0, 860.0, start=5, faults=(fault,), **settings)
    return Fleet(given, STEADY, replace(policy("projected"), behavior=HASTY), 1).run()


@pytest.mark.parametrize("controller", ["hpa", "keda"])
@pytest.mark.parametrize("kind", ["prometheus", "signals", "exporter", "hang"])
def test_missing_data_takes_no_replica(controller: str, kind: str) -> None:
    """Our signal with our manifests' settings: nothing is scaled in while data is missing."""
    fault = Fault(kind, 180.0, 300.0, 2 if kind == "exporter" else 1)  # type: ignore[arg-type]
    result = steady(fault, controller=controller)
    before = [wanted for at, wanted, _ in result.syncs if at < 180.0][-1]
    during = [wanted for at, wanted, _ in result.syncs if 180.0 <= at < 480.0]
    assert before == 5
    assert min(during) >= 5
    assert result.blind_scale_ins == 0


def test_null_read_as_zero_scales_to_the_minimum() -> None:
    """The trap that the settings above avoid: KEDA's defaults, in the same outage."""
    fault = Fault("signals", 180.0, 300.0)
    result = steady(fault, controller="keda", ignore_null=True, fallback=None)
    assert result.blind_scale_ins == 3
    assert min(wanted for at, wanted, _ in result.syncs if at < 480.0) == 2
    assert result.attainment < steady(fault, controller="keda").attainment - 0.2


@pytest.mark.parametrize("kind", ["prometheus", "signals", "exporter", "hang"])
def test_recovery_within_two_syncs(kind: str) -> None:
    """Every pod is hit, nothing is known, and two syncs after the mend something is, of all pods again after three."""
    result = steady(Fault(kind, 180.0, 300.0, 5))  # type: ignore[arg-type]
    seen = [at for at, _, value in result.syncs if at >= 480.0 and value is not None]
    assert seen[0] <= 480.0 + 2 * 15.0
    blind = 180.0 + (30.0 + 2 * 15.0 if kind == "hang" else 15.0)  # 30 samples without progress; a scrape; a sync
    assert all(value is None for at, _, value in result.syncs if blind <= at < 480.0)
    wanted = [wanted for at, wanted, _ in result.syncs if 180.0 <= at < 510.0]
    assert min(wanted) >= 5
    assert result.blind_scale_ins == 0


def test_a_burst_after_an_outage_is_seen_within_two_syncs() -> None:
    """The load rises while Prometheus is away: the first change comes within two syncs of its return."""
    rising = sorted([*synthetic(constant(6.0), CHAT, 600.0, 1),
                     *(one._replace(at=one.at + 240.0) for one in synthetic(constant(8.0), CHAT, 360.0, 2))])
    given = Settings(ENGINE, 600.0, 860.0, start=5, faults=(Fault("prometheus", 180.0, 180.0),))
    result = Fleet(given, rising, policy("projected"), 1).run()
    changes = [at for at, wanted, _ in result.syncs if wanted != 5]
    assert 360.0 <= changes[0] <= 360.0 + 2 * 15.0


# --- told and informed ---------------------------------------------------------------------------------


def test_a_policy_that_is_informed_hears_of_another_capacity() -> None:
    """At 2 requests/s two replicas are below half of 860 tokens/s, and far above 200."""
    steady = synthetic(constant(2.0), CHAT, 500.0, 1)
    told = {name: run(name, steady, 500.0, capacities=((200.0, 200.0),)) for name in ("projected", "informed")}
    assert {wanted for _, wanted, _ in told["projected"].replicas} == {2}
    ups = [at for at, wanted, _ in told["informed"].replicas if wanted > 2]
    assert 200.0 < ups[0] < 240.0
    with pytest.raises(InputError, match="capacities"):
        Settings(ENGINE, 100.0, capacities=((5.0, 0.0),))
