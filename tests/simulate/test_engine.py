"""The engine against closed forms, conservation laws, a step-by-step twin, and a recording of a real vLLM."""

from __future__ import annotations

import heapq
import io
import random
import re
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from obs.errors import InputError
from obs.simulate.arrivals import Arrival, Lengths, constant, synthetic
from obs.simulate.engine import Replica, Request, _steps_within
from obs.simulate.hardware import ENGINES, Cost, Engine, roofline

CHAT = Lengths(prompt=500, prompt_sigma=0.8, output=280, output_sigma=0.7)
DATA = Path(__file__).parents[1] / "data"


def play(engine: Engine, arrivals: list[Arrival], *, slice_: float = 0.0, check: bool = True) -> tuple[Replica, list[Request]]:
    """All arrivals through one replica, to the end; with ``slice_`` the time is cut into such pieces."""
    done: list[Request] = []
    replica = Replica(engine, on_finish=done.append)
    now = 0.0
    for arrival in arrivals:
        while slice_ and now + slice_ < arrival.at:
            now += slice_
            replica.advance(now)
        replica.advance(arrival.at)
        replica.submit(Request(*arrival))
        if check:
            replica.check()
    replica.advance(1e7)
    replica.check()
    return replica, done


def small(kv_tokens: int, **rest: int) -> Engine:
    return Engine("small", Cost(0.02, 1e-4, 5e-5, 1e-7), kv_tokens, **rest)  # type: ignore[arg-type]


REQUESTS = st.lists(
    st.tuples(st.floats(0, 2), st.integers(1, 400), st.integers(1, 200)), min_size=1, max_size=40,
).map(lambda gaps: [Arrival(sum(gap for gap, _, _ in gaps[: index + 1]), prompt, output)
                    for index, (_, prompt, output) in enumerate(gaps)])


@settings(max_examples=60, deadline=None)
@given(REQUESTS, st.sampled_from([640, 1024, 4096, 100_000]), st.sampled_from([16, 128]), st.sampled_from([2, 64]))
def test_nothing_is_lost_whatever_comes(arrivals: list[Arrival], kv: int, block: int, sequences: int) -> None:
    replica, done = play(small(kv, block=block, max_sequences=sequences, batch_tokens=256), arrivals)
    assert len(done) == len(arrivals)
    assert replica.free == replica.engine.blocks
    assert replica.requests == 0
    answered = [one for one in done if not one.failed]
    assert replica.finished == len(answered)
    # a failed request may have been answered in part before it outgrew the cache
    given_up = sum(one.generated for one in done if one.failed)
    assert replica.generation == sum(one.output for one in answered) + given_up
    assert replica.output_sum == sum(one.output for one in answered)
    for one in answered:
        assert one.arrival < one.first <= one.finish
    for one in done:
        if one.failed:  # only what no empty cache could hold
            assert -(-(one.prompt + one.generated) // block) > replica.engine.blocks


@settings(max_examples=25, deadline=None)
@given(REQUESTS, st.sampled_from([1024, 100_000]), st.floats(0.003, 0.4))
def test_when_one_looks_changes_nothing(arrivals: list[Arrival], kv: int, slice_: float) -> None:
    """Jumps over many steps give what single steps give: looking often forces the engine to step."""
    _, one = play(small(kv), arrivals)
    _, two = play(small(kv), arrivals, slice_=slice_)
    key = [(request.arrival, request.prompt, request.output) for request in one]
    assert key == [(request.arrival, request.prompt, request.output) for request in two]
    assert [request.finish for request in one] == pytest.approx([request.finish for request in two], abs=1e-6)
    assert [request.first for request in one] == pytest.approx([request.first for request in two], abs=1e-6)


@settings(max_examples=60, deadline=None)
@given(REQUESTS, st.sampled_from([640, 1024, 4096, 100_000]), st.sampled_from([0.11, 0.5, 3.0]))
def test_samples_on_the_way_are_those_of_one_look_after_another(arrivals: list[Arrival], kv: int, interval: float) -> None:
    """To the last bit: a stretch of decode is gone through with its samples at once."""
    engine = small(kv, batch_tokens=256)
    sampled, plain = Replica(engine, sample_interval=interval), Replica(engine)
    end = arrivals[-1].at + 20.0
    looks = []
    at = 0.0
    for when, arrival in [*((one.at, one) for one in arrivals), (end, None)]:
        while at <= when:
            plain.advance(at)
            looks.append(plain.record(at))
            at += interval
        for replica in (sampled, plain):
            replica.advance(when)
            if arrival is not None:
                replica.submit(Request(*arrival))
    assert sampled.samples == looks
    assert (sampled.time, sampled.busy, sampled.free) == (plain.time, plain.busy, plain.free)


def test_one_request_by_hand() -> None:
    replica, (request,) = play(small(4096), [Arrival(5.0, 100, 3)])
    prefill = 0.02 + 100e-4 + 100e-7            # the step that also gives the first token
    second = 0.02 + 5e-5 + 100e-7               # reads the prompt's 100 tokens
    third = 0.02 + 5e-5 + 101e-7
    assert request.first == pytest.approx(5.0 + prefill)
    assert request.finish == pytest.approx(5.0 + prefill + second + third)
    assert replica.busy == pytest.approx(prefill + second + third)
    assert request.itl == pytest.approx((second + third) / 2)


def test_long_prompts_are_chunked() -> None:
    _, (request,) = play(small(8192, batch_tokens=512), [Arrival(0.0, 2000, 1)])
    # 512 + 512 + 512 + 464 tokens: four steps
    assert request.first == pytest.approx(4 * 0.02 + 2000e-4 + (512 * 3 + 464) * 1e-7, rel=1e-6)


def test_one_slot_is_an_m_d_1_queue() -> None:
    """One sequence at a time, all alike: the mean wait is ρ·s / 2(1−ρ) (Pollaczek–Khinchine)."""
    engine = Engine("slot", Cost(0.01, 0.0, 0.0, 0.0), 100_000, max_sequences=1)
    service = 0.1                                # one prefill step and nine more tokens
    rate = 7.0
    arrivals = synthetic(constant(rate), Lengths(10, 0, 10, 0), 6000.0, 3)
    _, done = play(engine, arrivals, check=False)
    waits = [one.first - 0.01 - one.arrival for one in done]
    load = rate * service
    assert sum(waits) / len(waits) == pytest.approx(load * service / (2 * (1 - load)), rel=0.06)


def test_throughput_saturates_at_the_cost_models_bound() -> None:
    """With a full batch of alike sequences: tokens per second = n / step."""
    engine = Engine("bound", Cost(0.02, 1e-4, 5e-5, 0.0), 1_000_000, max_sequences=64)
    arrivals = [Arrival(0.0, 64, 400)] * 640
    replica, done = play(engine, arrivals, check=False)
    total = max(one.finish for one in done)
    # each of ten waves: 64 prompts of 64 tokens (two steps of up to 2048), then 399 decode steps
    ideal = 10 * (399 * (0.02 + 64 * 5e-5) + 64 * 64 * 1e-4 + 2 * 0.02)
    assert replica.generation == 640 * 400
    assert total == pytest.approx(ideal, rel=0.01)


def test_littles_law() -> None:
    """Mean requests in the system = rate × mean time in it."""
    done: list[Request] = []
    replica = Replica(ENGINES["reference-60k"], on_finish=done.append, sample_interval=0.5)
    arrivals = synthetic(constant(2.0), CHAT, 3000.0, 5)
    for arrival in arrivals:
        replica.advance(arrival.at)
        replica.submit(Request(*arrival))
    replica.advance(3000.0)
    inside = [record.running + record.waiting for record in replica.samples]
    times = [one.finish - one.arrival for one in done]
    assert sum(inside) / len(inside) == pytest.approx(len(done) / 3000 * sum(times) / len(times), rel=0.02)


def test_preemption_only_when_blocks_run_out() -> None:
    arrivals = synthetic(constant(3.0), CHAT, 900.0, 1)
    roomy, _ = play(ENGINES["reference-400k"], arrivals, check=False)
    assert roomy.preemptions == 0
    tight, done = play(ENGINES["reference-40k"], arrivals, check=False)
    assert tight.preemptions > 0
    assert tight.preemptions == sum(one.preempted for one in done)
    assert tight.computed > tight.prompt       # recomputed prompts
    assert roomy.computed == roomy.prompt


def test_what_never_fits_fails_and_blocks_nobody() -> None:
    _, done = play(small(1024), [Arrival(0.0, 5000, 10), Arrival(0.1, 50, 10)])
    assert [bool(one.failed) for one in done] == [True, False]


def test_a_frozen_engine_stands_still_and_goes_on() -> None:
    replica = Replica(small(4096))
    replica.submit(Request(0.0, 100, 200))
    replica.advance(1.0)
    replica.frozen = True
    before = replica.record(1.0)
    replica.advance(50.0)
    assert replica.record(1.0) == before
    replica.thaw(50.0)
    replica.advance(49.9)
    assert replica.generation == before.generation
    replica.advance(60.0)
    assert replica.finished == 1


@pytest.mark.parametrize(("seconds", "first", "growth"),
                         [(1.0, 0.1, 0.0), (1.0, 0.1, 0.01), (0.05, 0.1, 0.01), (9.0, 0.02, 1e-6)])
def test_steps_within(seconds: float, first: float, growth: float) -> None:
    steps, used = 0, 0.0
    while used + first + growth * steps <= seconds + 1e-12:
        used += first + growth * steps
        steps += 1
    assert abs(_steps_within(seconds + 1e-9, first, growth) - steps) == 0


def test_presets_and_bad_engines() -> None:
    assert ENGINES["llama-3.1-8b@H100-80G"].cost.base < ENGINES["llama-3.1-8b@A100-80G"].cost.base
    # 128 KiB a token: 2 × 32 layers × 8 heads × 128 × 2 bytes
    assert ENGINES["llama-3.1-8b@A100-80G"].kv_tokens == pytest.approx((80e9 * 0.92 - 16.06e9 - 2e9) / 131072, rel=0.001)
    with pytest.raises(InputError, match="no room for a KV cache"):
        roofline("L4", "llama-3.1-70b")
    with pytest.raises(InputError, match="holds no block"):
        small(8)
    with pytest.raises(InputError, match="watermark"):
        Engine("x", Cost(0.01, 0, 0, 0), 1024, watermark=1.5)
    with pytest.raises(InputError, match="must take time"):
        Engine("x", Cost(0.0, 0, 0, 0), 1024)


# --- calibration --------------------------------------------------------------------------------------


def recorded(first: int, last: int) -> dict[str, float]:
    """Figures of a phase of the recording of vLLM 0.32: rates and means between these unix seconds."""
    pages: dict[float, dict[str, float]] = {}
    with tarfile.open(DATA / "recordings" / "vllm-0.32-incident.tar.gz") as archive:
        for member in archive:
            found = re.search(r"(\d+)\.prom$", member.name)
            file = archive.extractfile(member) if found else None
            if found is None or file is None or not first <= int(found[1]) / 1000 < last:
                continue
            page: dict[str, float] = {}
            for line in io.TextIOWrapper(file):
                if line.startswith("vllm:"):
                    head, _, value = line.rpartition(" ")
                    name = head.partition("{")[0]
                    page[name] = page.get(name, 0.0) + float(value)
            pages[int(found[1]) / 1000] = page
    start, end = pages[min(pages)], pages[max(pages)]
    seconds = max(pages) - min(pages)

    def grown(name: str) -> float:
        return end[name] - start[name]

    def level(name: str) -> float:
        return sum(page[name] for page in pages.values()) / len(pages)

    return {
        "tokens": grown("vllm:generation_tokens_total") / seconds, "preemptions": grown("vllm:num_preemptions_total") / seconds,
        "running": level("vllm:num_requests_running"), "waiting": level("vllm:num_requests_waiting"),
        "usage": level("vllm:kv_cache_usage_perc"), "requests": grown("vllm:request_success_total") / seconds,
        **{name: grown(f"{family}_sum") / grown(f"{family}_count") for name, family in (
            ("itl", "vllm:inter_token_latency_seconds"), ("ttft", "vllm:time_to_first_token_seconds"))},
    }


def closed_loop(engine: Engine, clients: int, tokens: tuple[int, int], seconds: float) -> dict[str, float]:
    """The same from the simulator: so many clients, each with one request after another, lengths uniform in ``tokens``."""
    dice = random.Random(1)
    due = [0.001 * index for index in range(clients)]
    replica = Replica(engine, on_finish=lambda request: heapq.heappush(due, request.finish), sample_interval=1.0)
    now = 0.0
    while now < seconds:
        while due and due[0] <= now:
            replica.submit(Request(heapq.heappop(due), dice.randint(*tokens), dice.randint(*tokens)))
        now += 0.01
        replica.advance(now)
    records = [record for record in replica.samples if record.at >= 20]
    start, end = records[0], records[-1]
    span = end.at - start.at

    def level(read: Callable[[object], float]) -> float:
        return sum(read(record) for record in records) / len(records)

    return {
        "tokens": (end.generation - start.generation) / span, "preemptions": (end.preemptions - start.preemptions) / span,
        "running": level(lambda one: one.running), "waiting": level(lambda one: one.waiting),  # type: ignore[attr-defined]
        "usage": level(lambda one: one.usage), "requests": (end.finished - start.finished) / span,  # type: ignore[attr-defined]
        "itl": (end.itl_sum - start.itl_sum) / (end.itl_count - start.itl_count),
        "ttft": (end.ttft_sum - start.ttft_sum) / (end.ttft_count - start.ttft_count),
    }


#: Costs taken from the recording's light (3 clients) and medium (16 clients) phases: step 5.7 ms and 12.9 ms, prompt
#: 0.19 ms a token from the prefill times. The heavy phase is then a prediction.
RECORDED = Engine("vllm-0.32-cpu", Cost(4.25e-3, 0.19e-3, 0.37e-3, 0.0), 128 * 128, block=128, max_sequences=32)


@pytest.mark.parametrize(("phase", "clients", "tokens", "errors"), [
    ((1796023720, 1796023791), 3, (50, 150), {"tokens": 0.12, "itl": 0.1}),
    ((1796024106, 1796024142), 16, (100, 300), {"tokens": 0.08, "itl": 0.08, "usage": 0.1}),
    ((1796023806, 1796023966), 56, (300, 500),
     {"tokens": 0.1, "itl": 0.1, "ttft": 0.12, "running": 0.1, "waiting": 0.1, "usage": 0.05, "preemptions": 0.2}),
], ids=["light", "medium", "heavy: predicted"])
def test_a_real_vllm_comes_out(phase: tuple[int, int], clients: int, tokens: tuple[int, int],
                               errors: dict[str, float]) -> None:
    real, simulated = recorded(*phase), closed_loop(RECORDED, clients, tokens, 160.0)
    assert {name: simulated[name] for name in errors} == {
        name: pytest.approx(real[name], rel=error) for name, error in errors.items()}
