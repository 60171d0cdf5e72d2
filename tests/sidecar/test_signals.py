"""The signals, with virtual time: no thread, no socket, no clock."""

from __future__ import annotations

import gc
import random
import statistics

import pytest

from obs.engines.sidecar import ENGINE, ESTIMATED
from obs.sidecar import estimate, view
from obs.sidecar.collector import families
from obs.sidecar.counters import Total
from obs.sidecar.model import LOAD, SOURCES, WITHHELD, Signal
from obs.sidecar.sampler import Work
from obs.sidecar.scrape import REASONS
from obs.sidecar.settings import ModelSettings, Settings
from obs.sidecar.signals import ModelState, Signals
from obs.sidecar.window import Point, mean, rate, slope, tail

from .engine import recording, samples, scrape, vllm

KV = "llm_kv_cache_usage_ratio"
LOAD_RATIO = "llm_scaling_load_ratio"
DECODE = "llm_decode_throughput_tokens_per_second"
WAITING = "llm_requests_waiting"


class Pod:
    """Feeds pages at virtual seconds and asks for the signals of the one model."""

    def __init__(self, **settings: object) -> None:
        given = settings.pop("model", None)
        models = {"*": given} if given is not None else {}
        self.signals = Signals(Settings(models=models, **settings))  # type: ignore[arg-type]
        self.now = 1000.0

    def feed(self, text: str | bytes, after: float = 1.0) -> None:
        self.now += after
        self.signals.feed(self.now, samples(text))

    @property
    def state(self) -> ModelState:
        found = self.signals.snapshot(self.now).models
        assert len(found) == 1, found
        return found[0]

    def __getitem__(self, name: str) -> float | None:
        return self.state.signals[name].value

    def reason(self, name: str) -> str:
        return self.state.signals[name].reason

    def source(self, name: str) -> str:
        return self.state.signals[name].source


# --- the recordings --------------------------------------------------------------------------------------------


def test_saturated_phase_of_the_vllm_recording() -> None:
    """Decode rate within 1 % of what the recording's README says, KV ratio the engine's own."""
    pod = Pod(interval=5.0)
    rates, first, last = [], None, None
    last_kv: list[float] = []
    for at, body in recording("vllm-0.32-incident"):
        pod.signals.feed(at, samples(body))
        pod.now = at
        last_kv.append(next(one.value for one in samples(body)["vllm:kv_cache_usage_perc"]))
        if at >= 1796023816 + 15 and at < 1796023967:
            rates.append(pod[DECODE])
            in_window = last_kv[-4:]  # 15 s at one page every 5 s
            assert pod[KV] == pytest.approx(statistics.mean(in_window))
        if 1796023816 <= at < 1796023967:
            total = pod.state.counters["llm_generation_tokens_total"]
            first, last = first or (at, total), (at, total)
    assert statistics.mean(rates) == pytest.approx(1172.5, rel=0.01)
    assert first is not None
    assert last is not None
    assert (last[1] - first[1]) / (last[0] - first[0]) == pytest.approx(1172.5, rel=0.0005)


def test_saturation_tells_the_phases_apart() -> None:
    pod = Pod(interval=5.0, model=ModelSettings(decode_capacity=1500))
    by_phase: dict[str, list[float]] = {}
    for at, body in recording("vllm-0.32-incident"):
        pod.signals.feed(at, samples(body))
        pod.now = at
        phase = "light" if at < 1796023785 else "saturated" if 1796023830 < at < 1796023970 else ""
        value = pod["llm_scaling_saturation_ratio"]
        if phase and value is not None:
            by_phase.setdefault(phase, []).append(value)
    assert max(by_phase["light"]) < 0.1
    assert min(by_phase["saturated"]) > 5


def test_triton_recording() -> None:
    signals = Signals(Settings(interval=5.0))
    queue, pending, batches = [], [], []
    for at, body in recording("triton-2.51-incident"):
        signals.feed(at, samples(body))
        found = {model.name: model for model in signals.snapshot(at).models}
        doubler = found["doubler"].signals
        if 1796023120 < at < 1796023260:
            queue.append(doubler["triton_model_queue_time_mean_seconds"].value)
            pending.append(doubler["triton_model_pending_requests"].value)
            batches.append(doubler["triton_model_batch_size_mean"].value)
        if 1796023415 < at < 1796023456:
            assert found["tokens"].signals["triton_model_pending_requests"].value is None  # unloaded
    assert statistics.mean(queue) > 0.1
    assert 10 < min(batches) <= max(batches) <= 16
    assert statistics.mean(pending) > 150
    assert signals.snapshot(at).restarts == 1


# --- unknown is absent, never 0 --------------------------------------------------------------------------------


def test_first_sample_gives_nothing_the_second_a_rate() -> None:
    pod = Pod()
    pod.feed(vllm(generation=90000))
    assert {signal.value for signal in pod.state.signals.values()} == {None}
    assert pod.reason(DECODE) == "warming"
    pod.feed(vllm(generation=90600), after=15)
    assert pod[DECODE] == 40
    assert pod.state.counters["llm_generation_tokens_total"] == 600


def test_idle_is_a_known_zero() -> None:
    pod = Pod(model=ModelSettings(decode_capacity=100, output_tokens=50))
    for _ in range(40):
        pod.feed(vllm(0, 0, 0, generation=500))
    assert (pod[LOAD_RATIO], pod[KV], pod[DECODE], pod["llm_scaling_decode_demand_ratio"]) == (0, 0, 0, 0)
    assert not pod.state.suspect


def test_staleness() -> None:
    pod = Pod()
    pod.feed(vllm())
    pod.feed(vllm(generation=1100))
    good = pod.now
    pod.now = good + 2.9
    assert pod[KV] == 0.5
    pod.signals.fail("refused")
    assert pod[KV] == 0.5
    pod.now = good + 3.1
    snapshot = pod.signals.snapshot(pod.now)
    assert (snapshot.up, snapshot.reason, snapshot.pod) == (False, "refused", {})
    assert {signal.value for signal in pod.state.signals.values()} == {None}
    assert pod.reason(KV) == "down"
    assert pod.state.counters["llm_generation_tokens_total"] == 100  # a counter stays, it just stops


def test_a_sampler_that_stands_still_is_stale_not_down() -> None:
    pod = Pod()
    pod.feed(vllm())
    pod.feed(vllm())
    pod.now += 60
    snapshot = pod.signals.snapshot(pod.now)
    assert (snapshot.up, snapshot.reason, pod.reason(KV)) == (False, "stale", "stale")


def test_renamed_metric_takes_only_its_dependents_away() -> None:
    pod = Pod(model=ModelSettings(decode_capacity=100, output_tokens=50))
    for number in range(20):
        pod.feed(vllm(finished=10 + number, generation=1000 + 50 * number))
    assert pod[KV] == 0.5
    pod.feed(vllm(finished=31, generation=2050).replace("kv_cache_usage_perc", "something_new"))
    assert pod[KV] is None
    assert pod.reason(KV) == "missing_metric"
    assert pod[LOAD_RATIO] == pod["llm_scaling_decode_demand_ratio"] == pytest.approx(0.5, rel=0.1)


def test_garbage_is_dropped_then_withheld() -> None:
    pod = Pod()
    for number in range(5):
        pod.feed(vllm(kv=0.5, generation=number))
    for number in range(3):
        pod.feed(vllm(kv=float("nan"), generation=10 + number))
        assert pod[KV] == 0.5
    pod.feed(vllm(kv=float("nan"), generation=20))
    assert pod[KV] is None
    assert pod.reason(KV) == "invalid"


def test_not_ready_and_asleep_are_withheld() -> None:
    pod = Pod()
    for number in range(3):
        pod.feed(vllm(generation=number))
    pod.signals.set_ready(False)
    assert pod.reason(LOAD_RATIO) == "not_ready"
    assert not pod.signals.snapshot(pod.now).ready
    pod.signals.set_ready(True)
    assert pod[KV] == 0.5
    pod.feed(vllm(extra='vllm:engine_sleep_state{model_name="m",engine="0",sleep_state="awake"} 0\n'))
    assert pod.reason(LOAD_RATIO) == "sleeping"


def test_frozen_gauges_are_suspect() -> None:
    """Running 106, waiting 15, KV 0.904, the same for minutes, and no token: not "KV full" but frozen."""
    pod = Pod(stalled_samples=10)
    for number in range(12):
        pod.feed(vllm(106, 15, 0.904, generation=1000))
        assert (pod[KV] is None) == (number == 0 or number >= 10), number
    assert pod.state.suspect
    assert pod.reason(LOAD_RATIO) == "stalled"
    pod.feed(vllm(106, 15, 0.904, generation=1001))
    assert not pod.state.suspect
    assert pod[KV] == pytest.approx(0.904)


def test_a_long_answer_that_is_counted_at_its_end_is_not_frozen() -> None:
    """trtllm-serve's figures move when a request ends: minutes without a change are usual."""
    pod = Pod(stalled_samples=10)
    page = ('trtllm_num_requests_running{model_name="m",engine_type="p"} 3\n'
            'trtllm_generation_tokens_total{model_name="m",engine_type="p"} 3\n')
    for _ in range(60):
        pod.feed(page)
    assert pod["llm_requests_running"] == 3
    for _ in range(60):
        pod.feed(page)
    assert pod.state.suspect


# --- counters --------------------------------------------------------------------------------------------------


def test_dip_of_one_page_is_no_reset() -> None:
    pod = Pod()
    for value in (1000, 1100, 1200, 700, 1400, 1500):
        pod.feed(vllm(generation=value))
    assert pod.signals.snapshot(pod.now).restarts == 0
    assert pod.state.counters["llm_generation_tokens_total"] == 500
    assert pod[DECODE] == 100


def test_restart_clears_the_window_and_keeps_the_counter() -> None:
    pod = Pod()
    for value in (1000, 1100, 1200, 5, 100, 200, 300):
        pod.feed(vllm(generation=value))
        assert pod[DECODE] is None or 0 <= pod[DECODE] <= 101  # type: ignore[operator]
    assert pod.signals.snapshot(pod.now).restarts == 1
    assert pod.state.counters["llm_generation_tokens_total"] == 200 + 300
    assert pod[DECODE] == 100


def test_restart_by_start_time_is_seen_at_once() -> None:
    pod = Pod()
    for value, start in ((1000, 5), (1100, 5), (1200, 900), (1300, 900)):
        pod.feed(vllm(generation=value, extra=f"process_start_time_seconds {start}\n"))
    assert pod.signals.snapshot(pod.now).restarts == 1
    assert pod.state.counters["llm_generation_tokens_total"] == 100 + 1300


def test_totals_are_monotone_whatever_comes() -> None:
    total, seen = Total(), 0.0
    for value in (5, 3, 8, 1, 1, 0, 9, 9, 2, 2, 3):
        total.feed({"a": value, "b": 10 - value})
        assert total.value >= seen
        seen = total.value
    assert Total().feed({str(number): 1.0 for number in range(100_000)}) is False


def test_time_that_goes_back_starts_over() -> None:
    pod = Pod()
    for value in (1000, 1100, 1200):
        pod.feed(vllm(generation=value))
    pod.feed(vllm(generation=1300), after=-500)
    assert pod[DECODE] is None
    pod.feed(vllm(generation=1350))
    assert pod[DECODE] == 50


# --- formulas --------------------------------------------------------------------------------------------------


def test_decode_demand_and_load() -> None:
    """(arrivals x O + waiting x O / 30) / D; arrivals by flow balance, also while throughput is flat."""
    pod = Pod(model=ModelSettings(decode_capacity=1000, output_tokens=100))
    for second in range(31):  # 8 arrive each second, 5 finish, 20 run, the rest wait
        pod.feed(vllm(20, 3 * second, 0.4, generation=500 * second, finished=5 * second))
    assert pod["llm_request_arrivals_per_second"] == pytest.approx(8)
    waiting = statistics.mean(3 * second for second in range(15, 31))
    assert pod["llm_scaling_decode_demand_ratio"] == pytest.approx((8 * 100 + waiting * 100 / 30) / 1000)
    assert pod[LOAD_RATIO] == pod["llm_scaling_decode_demand_ratio"]
    assert pod["llm_decode_throughput_ratio"] == pytest.approx(0.5)
    assert pod.source(LOAD_RATIO) == "config"


def test_load_without_capacity_is_the_kv_axis() -> None:
    pod = Pod()
    for second in range(20):
        pod.feed(vllm(kv=0.3, generation=second))
    assert pod[LOAD_RATIO] == pytest.approx(0.3)
    assert pod.reason("llm_scaling_decode_demand_ratio") == "no_capacity"


def test_kv_alone_misses_saturation() -> None:
    """KV 0.32 flat while requests queue up: the composite sees it, and each part is there too."""
    pod = Pod()
    before = 0.0
    for second in range(40):
        pod.feed(vllm(20, 5 + 10 * second, 0.32, generation=100 * second))
        if second > 1:
            value = pod["llm_scaling_saturation_ratio"]
            assert value is not None
            assert value > before  # grows with demand although throughput is flat
            before = value
    assert before > 1
    assert pod[KV] == pytest.approx(0.32)
    assert pod[WAITING] == 395


def test_saturation_by_slots() -> None:
    pod = Pod(model=ModelSettings(slots=20))
    for second in range(20):
        pod.feed(vllm(18, 0, 0.1, generation=second))
    assert pod["llm_scaling_saturation_ratio"] == pytest.approx(18 / 20 / 0.9)
    assert pod.source("llm_request_slots") == "config"


def test_kv_demand() -> None:
    pod = Pod(model=ModelSettings(kv_capacity_tokens=10_000, input_tokens=300, output_tokens=200))
    for second in range(20):
        pod.feed(vllm(20, 10, 0.6, generation=second))
    assert pod["llm_scaling_kv_demand_ratio"] == pytest.approx(0.6 + 10 * (300 + 100) / 10_000)
    assert pod["llm_kv_cache_used_tokens"] == pytest.approx(6000)


def test_exhaustion_and_projection() -> None:
    pod = Pod()
    for second in range(70):
        pod.feed(vllm(kv=0.2 + 0.005 * second, generation=second))
    assert pod["llm_kv_cache_exhaustion_seconds"] == pytest.approx((1 - 0.545) / 0.005)
    kv = pod[KV]
    assert kv is not None
    assert pod["llm_scaling_projected_load_ratio"] == pytest.approx(kv + 0.005 * 30)
    for second in range(70):
        pod.feed(vllm(kv=0.545, generation=100 + second))
    assert pod["llm_kv_cache_exhaustion_seconds"] is None
    assert pod.reason("llm_kv_cache_exhaustion_seconds") == "not_growing"


def ramp(start: float, growth: float, noise: float, seed: int = 1) -> tuple[float, float]:
    """Load and projected load after 90 s in which arrivals grow by ``growth`` a second, with ``noise`` of their own."""
    dice = random.Random(seed)
    pod = Pod(model=ModelSettings(decode_capacity=1000, output_tokens=50))
    running = arrived = 0.0
    for second in range(90):
        arrived += max(0.0, dice.gauss(start + growth * second, noise))
        running = arrived  # nobody finishes: arrivals are what running grew
        pod.feed(vllm(round(running), 0, 0.1, generation=second))
    load, projected = pod[LOAD_RATIO], pod["llm_scaling_projected_load_ratio"]
    assert load is not None
    assert projected is not None
    return load, projected


def test_a_ramp_is_drawn_on_for_a_start_up_time() -> None:
    load, projected = ramp(4.0, 0.1, 0.0)
    assert projected - load == pytest.approx(0.1 * 120 * 50 / 1000, rel=0.15)  # the slope's doubt is rounding only


def test_chance_is_not_drawn_on() -> None:
    """Steady arrivals that vary by half: nearer to the truth (6 x 50 / 1000) than the load, and hardly above it."""
    found = [ramp(6.0, 0.0, 3.0, seed) for seed in range(20)]
    grown = [projected - 0.3 for _, projected in found]
    assert sum(one < 0.05 for one in grown) >= 16
    assert statistics.mean(grown) < 0.05
    quiet = [(load, projected) for load, projected in found if projected < 0.35]
    assert statistics.pstdev(projected for _, projected in quiet) < statistics.pstdev(load for load, _ in quiet)


def test_a_fall_is_not_drawn_on() -> None:
    """The rate falls from 10 to 5.5: the load is of the last 15 s, the projected one of the last 30 s, no less."""
    load, projected = ramp(10.0, -0.05, 0.0)
    assert load == pytest.approx((10 - 0.05 * 81.5) * 50 / 1000, rel=0.02)
    assert projected == pytest.approx((10 - 0.05 * 74) * 50 / 1000, rel=0.02)


def test_a_young_history_has_no_growth() -> None:
    pod = Pod()
    for second in range(28):
        pod.feed(vllm(kv=0.01 * second, generation=second))
    assert pod["llm_scaling_projected_load_ratio"] == pod[LOAD_RATIO]
    pod.feed(vllm(kv=0.28, generation=28))
    pod.feed(vllm(kv=0.29, generation=29))
    assert pod["llm_scaling_projected_load_ratio"] == pytest.approx((pod[LOAD_RATIO] or 0.0) + 0.01 * 30)


def test_prefill_leaves_cached_tokens_out() -> None:
    """prompt +2488, cached +2128, generation +80 in 10 s: decode 8/s, prefill computed 36/s."""
    pod = Pod()
    page = ('vllm:prompt_tokens_total{{model_name="m"}} {}\nvllm:prefix_cache_hits_total{{model_name="m"}} {}\n'
            'vllm:generation_tokens_total{{model_name="m"}} {}\n')
    pod.feed(page.format(0, 0, 0))
    pod.feed(page.format(2488, 2128, 80), after=10)
    assert pod[DECODE] == 8
    assert pod["llm_prefill_throughput_tokens_per_second"] == 36


def test_tokens_come_from_token_counters_not_latencies() -> None:
    """Speculative decoding: 100 outputs in 10 s of latency, and 300 tokens."""
    pod = Pod()
    page = ('vllm:inter_token_latency_seconds_sum{{model_name="m"}} {}\nvllm:inter_token_latency_seconds_count'
            '{{model_name="m"}} {}\nvllm:generation_tokens_total{{model_name="m"}} {}\n')
    pod.feed(page.format(0, 0, 0))
    pod.feed(page.format(10, 100, 300), after=10)
    assert pod[DECODE] == 30
    assert pod["llm_inter_token_latency_mean_seconds"] == 0.1


def trt(iterations: float, generating: float, tokens: float | None = None) -> str:
    text = (f'nv_trt_llm_general_metrics{{model="m",version="1",general_type="iteration_counter"}} {iterations}\n'
            f'nv_trt_llm_inflight_batcher_metrics{{model="m",version="1",inflight_batcher_specific_metric='
            f'"generation_requests"}} {generating}\n'
            'nv_trt_llm_request_metrics{model="m",version="1",request_type="scheduled"} 10\n')
    if tokens is not None:
        text += f'nv_llm_output_token_len_sum{{model="m",version="1"}} {tokens}\n'
    return text


def test_trtllm_decode_rate_says_where_it_is_from() -> None:
    pod = Pod()
    for second in range(20):
        pod.feed(trt(50 * second, 10))
    assert (pod[DECODE], pod.source(DECODE)) == (500, "iterations")
    assert pod.state.counters["llm_generation_tokens_total"] == 19 * 500
    pod = Pod()
    for second in range(61):  # 600 tokens arrive at once every 20 s
        pod.feed(trt(50 * second, 10, tokens=600 * (second // 20)))
    assert (pod[DECODE], pod.source(DECODE)) == (pytest.approx(30), "engine_at_finish")
    assert pod.source("llm_decode_throughput_instant_tokens_per_second") == "iterations"
    assert pod["llm_decode_throughput_instant_tokens_per_second"] == 500


def test_several_models_in_one_pod() -> None:
    signals = Signals(Settings())
    for number in range(3):
        signals.feed(float(number), samples(vllm(kv=0.2, model="a", generation=number) +
                                            vllm(kv=0.7, model="b", generation=number)))
    snapshot = signals.snapshot(2.0)
    assert [model.name for model in snapshot.models] == ["a", "b"]
    assert snapshot.pod["llm_pod_load_ratio"] == pytest.approx(0.7)
    assert snapshot.pod["llm_pod_projected_load_ratio"] == pytest.approx(0.7)


def test_triton_page_with_both_kinds_of_model() -> None:
    """A plain model beside a vLLM model: Triton's own queue is shown for the plain one only."""
    text = 'vllm:generation_tokens_total{model="llm",version="1"} 5\n' + "".join(
        f'nv_inference_pending_request_count{{model="{model}",version="1"}} 0\n' for model in ("llm", "plain"))
    signals = Signals(Settings())
    signals.feed(1.0, samples(text))
    assert [(model.engine, model.name) for model in signals.snapshot(1.0).models] == [
        ("triton", "plain"), ("triton_vllm", "llm")]


# --- bounds ----------------------------------------------------------------------------------------------------


def test_label_explosion_is_bounded() -> None:
    signals = Signals(Settings())
    text = "".join(vllm(model=f"m{number}") for number in range(500))
    for second in range(2):
        signals.feed(float(second), samples(text))
    snapshot = signals.snapshot(1.0)
    assert len(snapshot.models) == 32
    assert snapshot.dropped_models == 468


def test_hostile_names_are_bounded() -> None:
    """A name of a megabyte would be in each of the model's series; reasons without number would each be one."""
    reasons = "".join(f'vllm:num_requests_waiting_by_reason{{model_name="m",engine="0",reason="r{number}"}} 1\n'
                      for number in range(500))
    long = f'vllm:num_requests_waiting_by_reason{{model_name="m",engine="0",reason="{"r" * 5000}"}} 1\n'
    signals = Signals(Settings())
    for second in range(3):
        signals.feed(float(second), samples(vllm(extra=long + reasons) + vllm(model="x" * 1_000_000)))
    snapshot = signals.snapshot(2.0)
    assert [model.name for model in snapshot.models] == ["m"]
    assert snapshot.dropped_models == 1
    assert len(snapshot.models[0].waiting_by_reason) == 16


def test_a_day_of_samples_in_flat_memory() -> None:
    """24 h at one a second; the pages differ, the memory does not grow."""
    pages = [samples(vllm(number % 30, number % 7, (number % 90) / 100, generation=100 * number, finished=number))
             for number in range(300)]
    signals = Signals(Settings(models={"*": ModelSettings(decode_capacity=900)}))
    counts = []
    for second in range(0, 24 * 3600, 15):  # the windows are in seconds: as much is kept as at one a second
        signals.feed(float(second), pages[second // 15 % 300])
        if second % 14400 == 0:
            signals.snapshot(float(second))
            counts.append(len(gc.get_objects()))
    for second in range(24 * 3600, 24 * 3600 + 500):
        signals.feed(float(second), pages[second % 300])
    counts.append(len(gc.get_objects()))
    assert max(counts[1:]) - min(counts[1:]) < 2000, counts
    model = next(iter(signals._models.values()))
    assert len(model._points) < 70
    assert len(model._lengths) < 70


@pytest.mark.parametrize(("value", "text"), [
    (0.0, "0"), (30.0, "30"), (0.99213, "0.9921"), (0.022361, "0.02236"), (999.96, "1000"), (16253.7, "16254"),
    (123456789.4, "123456789"), (2.5e12, "2.5e+12"), (0.00001234, "1.234e-05"),
])
def test_numbers_for_people(value: float, text: str) -> None:
    assert view.number(value) == text


def test_windows() -> None:
    points = [Point(float(at), {"a": at * 2.0}, {"g": float(at)}) for at in range(100)]
    assert [point.at for point in tail(points, 3)] == [96, 97, 98, 99]
    assert len(tail(points, 0)) == 2
    assert rate(tail(points, 15), "a") == 2
    assert mean(tail(points, 3), "g") == 97.5
    assert slope(points, "g") == pytest.approx(1)
    assert rate(points[:1], "a") is rate([], "a") is slope(points[:2], "g") is mean(points, "x") is None


# --- the estimators --------------------------------------------------------------------------------------------


def histogram(lengths: list[float], bounds: tuple[float, ...]) -> dict[float, float]:
    return {bound: float(sum(length <= bound for length in lengths)) for bound in (*bounds, float("inf"))}


@pytest.mark.parametrize("name", ["fixed", "uniform", "exponential", "lognormal", "two kinds"])
def test_second_moment_from_buckets(name: str) -> None:
    source = random.Random(7)
    lengths = [float(max(1, round({
        "fixed": lambda: 100.0,
        "uniform": lambda: source.uniform(20, 400),
        "exponential": lambda: source.expovariate(1 / 200),
        "lognormal": lambda: source.lognormvariate(5.6, 0.7),
        "two kinds": lambda: source.choice([20.0, 800.0]),
    }[name]()))) for _ in range(5000)]
    bounds = tuple(step * 10.0**power for power in range(4) for step in (1, 2, 5))
    found = estimate.second_moment(histogram(lengths, bounds), statistics.mean(lengths))
    truth = statistics.mean(length**2 for length in lengths)
    assert found == pytest.approx(truth, rel=0.08)


def test_tokens_held() -> None:
    assert estimate.tokens_held(10, estimate.Lengths(300, 200, 200**2)) == 10 * (300 + 100)
    assert estimate.tokens_held(10, estimate.Lengths(300, 200, 2 * 200**2)) == 10 * (300 + 200)
    assert estimate.tokens_held(10, estimate.Lengths(None, 200)) is None


# --- the contract ----------------------------------------------------------------------------------------------


def served(signals: Signals, now: float) -> dict[str, list[dict[str, str]]]:
    found: dict[str, list[dict[str, str]]] = {}
    for family in families(signals.snapshot(now), Work(0.01, 5, 9, 0), None):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample.labels)
    return found


def test_served_labels_are_declared() -> None:
    declared = {metric.name: metric for metric in ENGINE.metrics}
    for page in (scrape("vllm-0.32-kv-saturated"), scrape("documented-triton-trtllm"), scrape("triton-2.51-steady")):
        signals = Signals(Settings(models={"*": ModelSettings(decode_capacity=900)}))
        for number in range(3):
            signals.feed(float(number), samples(page))
        signals.fail("refused")
        for name, sets in served(signals, 2.0).items():
            metric = declared[name]
            for labels in sets:
                assert labels.keys() <= {*metric.labels, *metric.optional_labels}, name
                assert labels.keys() >= set(metric.labels), name
                for label, text in labels.items():
                    if label in metric.values:
                        assert text in metric.values[label], (name, label)
                assert not labels.keys() & {"pod", "namespace", "instance", "job"}
            assert ":" not in name


def test_closed_sets_are_the_catalogue_s() -> None:
    declared = {metric.name: metric for metric in ENGINE.metrics}
    assert set(declared["llm_signal_info"].values["reason"]) == {"", *WITHHELD}
    assert set(declared["llm_signal_info"].values["source"]) == set(SOURCES)
    assert set(declared["llm_sidecar_scrapes_total"].values["outcome"]) == {"ok", *REASONS}
    assert set(declared["llm_engine_up"].values["reason"]) == {"", *REASONS, "stale", "starting"}


def test_every_signal_has_an_availability() -> None:
    pod = Pod()
    pod.feed(vllm())
    assert tuple(pod.state.signals) == LOAD
    pod.feed(vllm(generation=2000))
    assert tuple(pod.state.signals) == LOAD
    for signal in pod.state.signals.values():
        assert isinstance(signal, Signal)
        assert (signal.value is None) == bool(signal.reason)


def test_what_the_catalogue_calls_an_estimate_is_one() -> None:
    """``source="estimate"`` in the pack's recorded series is a table; here the sidecar itself says the same."""
    names = {"requests_running": "llm_requests_running", "requests_waiting": "llm_requests_waiting",
             "kv_cache_usage": "llm_kv_cache_usage_ratio"}
    triton = (
        'nv_inference_request_success{model="m",version="1"} 5\n'
        + "".join(f'vllm:{name}{{model="m",version="1"}} 5\n' for name in (
            "generation_tokens_total", "prompt_tokens_total", "time_to_first_token_seconds_count",
            "e2e_request_latency_seconds_count"))
    )
    pages = {"triton_vllm": triton, "vllm": vllm(), "triton_trtllm": scrape("documented-triton-trtllm")}
    for engine, page in pages.items():
        signals = Signals(Settings())
        for second in range(3):
            signals.feed(float(second), samples(page))
        found = next(model for model in signals.snapshot(2.0).models if model.engine == engine)
        for signal, name in names.items():
            assert (found.signals[name].source == "estimate") == (engine in ESTIMATED[signal]), (engine, name)
