"""The canary gate on a real Prometheus: two sides with real names and buckets, and every reason for no verdict."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from obs.config import parse_config
from obs.engines import BY_NAME as ENGINES
from obs.engines import metric_owners
from obs.errors import InputError, ServerError
from obs.evaluate.gate import Gate, chance, formulas, gate, gate_recording, watch
from obs.evaluate.gate.judge import Criterion, Measure, Side, judge, up_to
from obs.prom.client import Answer, Client
from obs.prom.server import PrivatePrometheus

from .gate_world import END, Load, played, target, triton, vllm

RECORDINGS = Path(__file__).parent.parent / "data" / "recordings"
CONFIG = parse_config("")


def versions(one: Load, two: Load, **more: tuple[str, ...]) -> Callable[[float], str]:
    return lambda second: triton({"1": one, "2": two}, second, **more)  # type: ignore[arg-type]


BUSY = Load(rate=5)
#: job → what its Triton serves as version 1 (baseline) and 2 (canary), and which of them export histograms and summaries
TRITONS: dict[str, tuple[Load, Load, tuple[str, ...], tuple[str, ...]]] = {
    "same": (BUSY, Load(rate=1), ("1", "2"), ("1", "2")),
    "errors": (BUSY, Load(rate=1, failed=0.03), (), ()),
    "few-errors": (BUSY, Load(rate=0.3, failed=0.005), (), ()),
    "waits": (BUSY, Load(rate=1, wait=0.05), (), ()),
    "waits-always": (Load(rate=5, wait=0.3), Load(rate=5, wait=0.3), (), ()),
    "slow-tail": (BUSY, Load(rate=1, slow=0.05), (), ("1", "2")),
    "slow-computing": (BUSY, Load(rate=1, compute=0.03), (), ()),
    "few": (BUSY, Load(rate=0.02), (), ()),
    "idle": (BUSY, Load(rate=0.0), (), ("1", "2")),
    "restarted": (BUSY, Load(rate=0.0, reset_at=600), (), ()),
    "mixed-sources": (BUSY, Load(rate=1), ("1",), ("2",)),
    "one-source": (BUSY, Load(rate=1), (), ("1",)),
    "reset": (BUSY, Load(rate=1, reset_at=450), ("1", "2"), ()),
    "cancels": (BUSY, Load(rate=1, late=99), (), ()),
}


@pytest.fixture(scope="module")
def server() -> Iterator[PrivatePrometheus]:
    targets = [
        target({"job": job, "instance": f"{job}:8002"}, versions(one, two, histograms=histograms, summaries=summaries))
        for job, (one, two, histograms, summaries) in TRITONS.items()
    ]
    targets.append(target({"job": "reset-only", "instance": "r:8002"}, reset_only))
    targets.append(target({"job": "tp", "instance": "a:8002"}, lambda s: triton({"1": BUSY}, s)))
    targets.append(target({"job": "tp", "instance": "a:8003"}, lambda s: triton({"1": BUSY}, s, model="other")))
    targets.append(target({"job": "gone", "instance": "g:8002"},
                          lambda s: triton({"1": BUSY} if s > 600 else {"1": BUSY, "2": BUSY}, s)))
    targets.append(target({"job": "down", "instance": "d:8002", "pod": "stable-1"}, lambda s: triton({"1": BUSY}, s)))
    targets.append(target({"job": "down", "instance": "d:8003", "pod": "canary-1"}, lambda s: triton({"1": BUSY}, s),
                          ends=840))
    generation = Load(rate=3, wait=0.1, compute=2.0)
    for pod, load in (
        ("stable-1", generation), ("stable-2", generation), ("canary-1", dataclasses.replace(generation, rate=1, begins=300)),
        ("slower-1", Load(rate=1, wait=0.1, compute=2.5)), ("failing-1", Load(rate=1, wait=0.1, compute=2.0, failed=0.05)),
        ("blurred-1", Load(rate=1, wait=0.1, compute=2.45)), ("endless-1", Load(rate=1, wait=0.1, compute=400.0)),
    ):
        targets.append(target({"job": "vllm", "instance": f"{pod}:8000", "pod": pod},
                              lambda s, load=load: vllm(load, s), begins=int(load.begins)))
    for version, load in (("1", generation), ("2", dataclasses.replace(generation, rate=1))):
        targets.append(target({"job": "tv", "instance": f"{version}:8002"},
                              lambda s, load=load, version=version: vllm(load, s, inside_triton=True, version=version)))
    with PrivatePrometheus() as running:
        running.writer.write(played(*targets))
        yield running


def reset_only(second: float) -> str:
    """Version 2 had traffic long ago: its counters stand at 5,000 and fall to 0 by a restart."""
    text = triton({"1": BUSY, "2": Load(rate=0.0)}, second)
    return text.replace('{model="resnet",version="2"} 0', '{model="resnet",version="2"} 5000') if second < 450 else text


def judged(server: PrivatePrometheus, job: str, config: str = "", **more: float) -> Gate:
    given = {"config": parse_config(config), "at": END, **more}
    return gate(server.client, f'job="{job}",version="1"', f'job="{job}",version="2"', **given)  # type: ignore[arg-type]


def pods(server: PrivatePrometheus, canary: str, config: str = "") -> Gate:
    return gate(server.client, 'job="vllm",pod=~"stable-.*"', f'job="vllm",pod=~"{canary}-.*"',
                config=parse_config(config), at=END)


def states(found: Gate) -> dict[str, str]:
    return {one.name: one.state for one in found.criteria}


def of(found: Gate, name: str) -> Criterion:
    return next(one for one in found.criteria if one.name == name)


@pytest.mark.prometheus
def test_equal_versions_pass_with_the_true_numbers(server: PrivatePrometheus) -> None:
    found = judged(server, "same")
    assert (found.verdict, found.reasons) == ("pass", ())
    assert states(found) == {
        "error_ratio": "pass", "queue_time": "pass", "latency_p99": "pass", "ttft_p99": "not measured",
        "itl_p99": "not measured", "throughput": "pass",
    }
    assert (round(found.baseline.requests), round(found.canary.requests)) == (4500, 900)
    assert (found.canary.engine, dict(found.canary.labels)["version"]) == ("triton", "2")
    assert of(found, "queue_time").canary == pytest.approx(0.004, rel=1e-3)
    assert of(found, "throughput").canary == pytest.approx(50, rel=1e-3)  # 1 / 20 ms of computing
    assert of(found, "latency_p99").source == "histogram"  # where both have both, the better one
    assert of(found, "latency_p99").canary == pytest.approx(0.099)  # of one bucket up to 100 ms


@pytest.mark.prometheus
@pytest.mark.parametrize(
    ("job", "criterion", "says"),
    [
        ("errors", "error_ratio", "3% over 0.1% (gate.error_ratio_floor): 27 of 900 against 0 of 4500 failed"),
        ("waits", "queue_time", "50ms over 10ms (gate.queue_time_floor)"),
        ("waits-always", "queue_time", "300ms over 100ms (slo.queue_time)"),
        ("slow-tail", "latency_p99", "400ms over 28.8ms (gate.latency_p99_factor × baseline)"),
        ("slow-computing", "throughput", "33.33/s under 45/s (gate.throughput_factor)"),
    ],
)
def test_each_criterion_fails(server: PrivatePrometheus, job: str, criterion: str, says: str) -> None:
    found = judged(server, job)
    assert found.verdict == "fail"
    assert {name for name, state in states(found).items() if state == "fail"} == {criterion}
    assert of(found, criterion).why == says
    assert found.reasons == (f"{of(found, criterion).title}: {says}",)


@pytest.mark.prometheus
@pytest.mark.parametrize(
    ("job", "says"),
    [
        ("few", "the canary had 18 requests, needs 100 (gate.min_requests)"),
        ("idle", "the canary had 0 requests, needs 100 (gate.min_requests); no traffic, or counters that stand still"),
        ("reset-only", "the canary had 0 requests, needs 100 (gate.min_requests); its counters restarted 1 times"),
        ("nowhere", 'the canary has no data: nothing of a known engine matches job="nowhere",version="2"'),
        ("gone", "the canary vanished within the window:"),
        ("few-errors", "error ratio: 0.37% over 0.1% (gate.error_ratio_floor), but 1 of 270 against 0 of 4500 can be chance"),
        ("mixed-sources", "P99 latency: the baseline has no data: it has a histogram, the other side a summary"),
        ("one-source", "P99 latency: the canary has no data: it exports no histogram or summary of it"),
    ],
)
def test_each_reason_for_no_verdict(server: PrivatePrometheus, job: str, says: str) -> None:
    found = judged(server, job)
    assert found.verdict == "inconclusive"
    assert any(one.startswith(says) for one in found.reasons), found.reasons


@pytest.mark.prometheus
def test_a_target_that_is_down(server: PrivatePrometheus) -> None:
    found = gate(server.client, 'job="down",pod=~"stable-.*"', 'job="down",pod=~"canary-.*"', config=CONFIG, at=END)
    assert found.verdict == "inconclusive"
    assert 'a target of the canary is down: {instance="d:8003", job="down"}' in found.reasons


@pytest.mark.prometheus
def test_several_series_where_one_is_needed(server: PrivatePrometheus) -> None:
    found = gate(server.client, 'job="tp"', 'job="same",version="2"', config=CONFIG, at=END)
    assert found.verdict == "inconclusive"
    (reason,) = found.reasons
    assert 'the baseline picks several series where one is needed: {model="other"}; {model="resnet"}' in reason
    found = gate(server.client, 'job=~"same|tv",version="1"', 'job="same",version="2"', config=CONFIG, at=END)
    (reason,) = found.reasons
    assert reason == (
        'the baseline picks several engines: triton {job="same", model="resnet", version="1"}; '  # not its llama
        'triton-vllm {job="tv", model="llama", version="1"}; add a matcher'
    )
    found = gate(server.client, 'job=~"vllm|tp"', 'job="same",version="2"', config=CONFIG, at=END)
    assert found.reasons[0].startswith("the baseline picks several engines: triton {")


@pytest.mark.prometheus
def test_sides_that_cannot_be_compared(server: PrivatePrometheus) -> None:
    found = gate(server.client, 'job="tv",version="1"', 'job="vllm",pod="canary-1"', config=CONFIG, at=END)
    assert "the sides run different engines" in found.reasons[0]
    other = 'job="tp",instance="a:8003"'
    found = gate(server.client, 'job="same",version="1"', other, config=CONFIG, at=END)
    assert found.reasons[0].startswith("the sides serve different models: resnet and other; name the model")
    named = gate(server.client, 'job="same",version="1",model="resnet"', f'{other},model="other"', config=CONFIG, at=END)
    assert named.verdict == "inconclusive"  # one side exports no histogram or summary
    assert "different models" not in " ".join(named.reasons)
    with pytest.raises(InputError, match="the same series are on both sides"):
        gate(server.client, 'job="same"', 'job="same",version="2"', config=CONFIG, at=END)
    for wrong in ("", "version", 'version="2"} or up{job="x"', "version=2"):
        with pytest.raises(InputError, match=r"--canary .* is no list of matchers"):
            gate(server.client, 'job="same"', wrong, config=CONFIG, at=END)


@pytest.mark.prometheus
def test_a_reset_within_the_window_is_no_fault(server: PrivatePrometheus) -> None:
    found = judged(server, "reset")
    assert found.verdict == "pass"
    assert found.canary.requests == pytest.approx(900, rel=0.05)
    assert "the canary's counters restarted within the window (1 resets seen)" in found.notes


@pytest.mark.prometheus
def test_cancelled_requests_are_not_failures(server: PrivatePrometheus) -> None:
    found = judged(server, "cancels")
    assert of(found, "error_ratio").canary == 0
    assert found.canary.requests == pytest.approx(1800, rel=0.01)  # they are attempts all the same


@pytest.mark.prometheus
def test_what_is_required_must_be_measured(server: PrivatePrometheus) -> None:
    assert judged(server, "slow-computing", "gate: {throughput_factor: 0.5}").verdict == "pass"
    found = judged(server, "slow-computing", "gate: {throughput_factor: 0.5, require: [error_ratio, latency_p99]}")
    assert found.verdict == "inconclusive"
    assert found.reasons[0].startswith("P99 latency: gate.require asks for it, and neither side exports a histogram or summary")
    assert "nv_inference_request_summary_us (since 23.05) takes --metrics-config summary_latencies=true" in found.reasons[0]


@pytest.mark.prometheus
def test_pods_behind_a_gateway(server: PrivatePrometheus) -> None:
    found = pods(server, "canary")
    assert (found.verdict, found.canary.engine) == ("pass", "vllm")  # it is younger than the window
    assert set(states(found).values()) == {"pass"}
    assert found.baseline.requests == pytest.approx(5400, rel=0.01)
    assert of(found, "throughput").canary == pytest.approx(100 / 2.1, rel=0.01)
    slower = pods(server, "slower")
    assert {name for name, state in states(slower).items() if state == "fail"} == {
        "latency_p99", "ttft_p99", "itl_p99", "throughput",
    }
    assert of(pods(server, "failing"), "error_ratio").state == "fail"


@pytest.mark.prometheus
def test_what_buckets_cannot_tell(server: PrivatePrometheus) -> None:
    # 2.1 s and 2.55 s lie on both sides of the bound 2.5 s: the P99 reads 2.5 s and 4.97 s
    blurred = of(pods(server, "blurred", "gate: {latency_p99_factor: 1.3}"), "latency_p99")
    assert blurred.state == "inconclusive"
    assert "may lie anywhere between 2.5s and 5s, the bounds of its bucket, and the mean is not worse" in blurred.why
    assert of(pods(server, "blurred"), "latency_p99").state == "fail"  # the mean is 21 % worse, 20 % is allowed
    endless = pods(server, "endless", "gate: {latency_p99_factor: 100, latency_p99_max: 2h}")
    assert of(endless, "latency_p99").state == "inconclusive"
    assert "the P99 of the canary is over the largest bucket bound" in of(endless, "latency_p99").why


@pytest.mark.prometheus
def test_an_engine_inside_triton(server: PrivatePrometheus) -> None:
    found = judged(server, "tv")
    assert (found.verdict, found.canary.engine) == ("pass", "triton-vllm")
    assert states(found)["queue_time"] == "not measured"
    assert "ends at the hand-off to vLLM" in of(found, "queue_time").why
    assert any("as a success" in note for note in found.notes)  # the blind spot is named


@pytest.mark.prometheus
def test_a_partial_answer_is_no_verdict(server: PrivatePrometheus, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = Client.ask

    def partial(self: Client, expr: str, at: float | None = None) -> Answer:
        return dataclasses.replace(ask(self, expr, at), warnings=("store b is away",))

    monkeypatch.setattr(Client, "ask", partial)
    for job in ("same", "errors"):  # a fail is not sure either
        found = judged(server, job)
        assert found.verdict == "inconclusive"
        assert "the server's answer is partial: store b is away" in found.reasons


@pytest.mark.prometheus
def test_the_formulas_read_only_what_servers_have(server: PrivatePrometheus) -> None:
    names = [name for name in server.client.label_values("__name__") if name.startswith(("nv_", "vllm:"))]
    assert len(names) > 30
    assert not [name for name in names if not metric_owners(name)]


@pytest.mark.prometheus
def test_on_a_recording_of_a_real_server() -> None:
    config = parse_config((RECORDINGS / "triton.obs.yaml").read_text())
    path = RECORDINGS / "triton-2.51-incident.tar.gz"

    def at(second: int) -> Gate:
        return gate_recording(path, 'model="tokens"', 'model="doubler"', config=config, span=60, at=lambda end: second * 1000)

    overload = at(1796023200)
    assert overload.verdict == "fail"
    assert states(overload)["queue_time"] == "fail"
    assert states(overload)["latency_p99"] == "fail"
    assert of(overload, "latency_p99").source == "summary"
    flaky = gate_recording(
        path, 'model="doubler"', 'model="flaky"', config=config, span=60, at=lambda end: 1796023080 * 1000
    )
    assert states(flaky)["error_ratio"] == "pass"  # its failures are invisible, and the note says so
    assert any("as a success" in note for note in flaky.notes)
    idle = gate_recording(path, 'model="doubler"', 'model="idle"', config=config, span=60, at=lambda end: 1796023080 * 1000)
    assert idle.verdict == "inconclusive"
    killed = gate_recording(
        path, 'model="tokens"', 'model="doubler"', config=config, span=60, at=lambda end: 1796023475 * 1000
    )
    assert any("is down" in reason for reason in killed.reasons)


# --- without a server ----------------------------------------------------------------------------------------


def test_chance() -> None:
    low, high = chance.limits(0, 20, 0.95)
    assert (low, round(high, 4)) == (0, 0.1192)  # z² / (n + z²)
    low, high = chance.limits(10, 100, 0.975)
    assert (round(low, 4), round(high, 4)) == (0.0552, 0.1744)  # the textbook's 95 % interval of 10 of 100
    assert not chance.surely_over_multiple((1, 20), (0, 20), 1.5, 0.95)
    assert chance.surely_over_multiple((100, 1000), (10, 1000), 1.5, 0.99)
    assert not chance.surely_over_multiple((15, 1000), (10, 1000), 1.5, 0.99)
    with pytest.raises(ValueError, match="no requests"):
        chance.limits(0, 0, 0.95)


def side(requests: float, hits: float, **more: Measure) -> Side:
    measures = dict.fromkeys(("queue_time", "latency_p99", "ttft_p99", "itl_p99", "throughput"), Measure(None, "none"))
    measures |= {"error_ratio": Measure(hits / requests, of=requests, hits=hits), "queue_time": Measure(0.001), **more}
    return Side("x", "triton", (), requests, hits, 0.0, measures)


def verdict(baseline: Side, canary: Side, config: str = "") -> str:
    return judge(baseline, canary, parse_config(config), at=0, span=900, llm=False).verdict


def test_one_of_twenty_is_chance() -> None:
    small = "gate: {min_requests: 10}"
    assert verdict(side(20, 0), side(20, 1), small) == "inconclusive"
    assert verdict(side(20, 0), side(20, 10), small) == "fail"
    assert verdict(side(20, 0), side(20, 0), small) == "pass"
    assert verdict(side(20, 0), side(20, 0)) == "inconclusive"  # 100 are needed by default
    assert verdict(side(1e6, 0), side(1e6, 900)) == "pass"  # surely more, and below the floor


def test_few_slow_requests_are_chance() -> None:
    def p99(slow: int, of: int) -> Measure:
        buckets = ((0.5, of - slow), (1.0, of - slow), (2.5, of), (math.inf, of))
        return Measure(2.0 if slow > of / 100 else 0.5, of=of, buckets=buckets, mean=0.1, source="histogram")

    good = side(1000, 0, latency_p99=p99(0, 1000))
    limits = "gate: {latency_p99_max: 1s}"
    assert verdict(good, side(1000, 0, latency_p99=p99(9, 1000)), limits) == "pass"
    assert verdict(good, side(1000, 0, latency_p99=p99(13, 1000)), limits) == "inconclusive"
    assert verdict(good, side(1000, 0, latency_p99=p99(40, 1000)), limits) == "fail"


def test_nan_and_nothing() -> None:
    assert verdict(side(500, 0), side(500, 0, queue_time=Measure(math.nan))) == "inconclusive"
    assert verdict(side(500, 0, queue_time=Measure(None, "x")), side(500, 0)) == "inconclusive"
    nothing = Measure(None, "x")
    assert verdict(side(500, 0, queue_time=nothing), side(500, 0, queue_time=nothing)) == "inconclusive"  # no time at all


def test_up_to_spreads_evenly() -> None:
    buckets = ((1.0, 10.0), (2.0, 30.0), (math.inf, 40.0))
    assert [up_to(buckets, at) for at in (0.5, 1.0, 1.5, 2.0, 9.0)] == [5.0, 10.0, 20.0, 30.0, 30.0]


def test_every_engine_has_formulas() -> None:
    for name in ("triton", "triton-vllm", "triton-trtllm", "vllm"):
        found = formulas.formulas(ENGINES[name], CONFIG, 'pod="x"', 900)
        assert found.requests
        assert found.failures
        assert found.throughput, name
        for query in found.queries().values():
            assert query.count("{") == query.count('pod="x"'), query  # no selector without the matcher
            assert "model:" not in query  # nor a recorded series
    trtllm = formulas.formulas(ENGINES["triton-trtllm"], CONFIG, 'pod="x"', 900)
    assert "nv_llm_output_token_len_sum" in trtllm.throughput
    assert "nv_inference_request_duration_us" in trtllm.throughput


def test_watch_fails_fast_and_passes_at_the_end() -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    def looks(*verdicts: object) -> list[object]:
        now[0] = 0.0
        answers = iter(verdicts)

        def look() -> Gate:
            found = next(answers)
            if isinstance(found, Exception):
                raise found
            return Gate(found, 0, 900, Side("a"), Side("b"))  # type: ignore[arg-type]

        seen = watch(look, every=30, until=90, clock=lambda: now[0], sleep=sleep)
        return [one.verdict if isinstance(one, Gate) else "error" for one in seen]

    assert looks("inconclusive", "pass", "pass", "pass") == ["inconclusive", "pass", "pass", "pass"]
    assert looks("pass", "fail", "pass") == ["pass", "fail"]
    assert looks("pass", ServerError("away"), "pass", "inconclusive") == ["pass", "error", "pass", "inconclusive"]
    assert now[0] == 90
