"""Engines told apart, and their pages read into one vocabulary."""

from __future__ import annotations

import random

import pytest

from obs.sidecar import detect, dialects
from obs.sidecar.dialects import BY_KEY, DIALECTS, Matchers, Reading
from obs.sidecar.scrape import ScrapeFailed

from .engine import SCRAPES, samples, scrape, vllm


def readings(text: str | bytes, engine: str = "auto", model_name: str = "") -> list[Reading]:
    page = samples(text, engine)
    return [one for dialect in detect.detect(engine, page) for one in dialects.read(dialect, page, model_name)]


def one(text: str | bytes, key: str = "") -> Reading:
    found = [reading for reading in readings(text) if key in ("", reading.engine)]
    assert len(found) == 1, found
    return found[0]


@pytest.mark.parametrize(("name", "engines"), [
    ("vllm-0.32-kv-saturated", ["vllm"]),
    ("vllm-0.32-api-server-count-2", ["vllm"]),
    ("triton-2.51-steady", ["triton"]),
    ("documented-triton-trtllm", ["triton_trtllm", "triton"]),
])
def test_detection(name: str, engines: list[str]) -> None:
    assert [dialect.key for dialect in detect.detect("auto", samples(scrape(name)))] == engines


@pytest.mark.parametrize(("text", "engine"), [
    ('vllm:generation_tokens_total{model="m",version="1"} 5\n', "triton_vllm"),
    ('vllm:generation_tokens_total{model_name="m"} 5\n', "vllm"),
    ('trtllm_num_requests_running{model_name="m",engine_type="pytorch"} 5\n', "trtllm_serve"),
    ('e2e_request_latency_seconds_count{model_name="undefined",engine_type="undefined"} 2\n', "trtllm_serve"),
    ('sglang:num_running_reqs{model_name="m",engine_type="unified",tp_rank="0"} 5\n', "sglang"),
    ("nv_cpu_utilization 0.5\n", "triton"),
])
def test_detection_by_one_line(text: str, engine: str) -> None:
    assert detect.detect("auto", samples(text))[0].key == engine


def test_unknown_and_missing_are_different() -> None:
    for text, engine, reason in (
        ("node_load1 3\n", "auto", "unknown_engine"),
        ("node_load1 3\n", "vllm", "missing_family"),
        (scrape("vllm-0.32-disable-log-stats"), "vllm", "missing_family"),
        (scrape("triton-2.51-steady"), "triton_vllm", "missing_family"),
    ):
        with pytest.raises(ScrapeFailed) as failed:
            detect.detect(engine, samples(text, engine))
        assert failed.value.reason == reason


def test_every_name_is_in_the_catalogue() -> None:
    """A typo in DIALECTS would read nothing for ever. These belong to others, and are known as such."""
    others = {dialects.PROCESS_START}
    triton = {name for metric in BY_KEY["triton"].engine.metrics for name in metric.series_names()}
    for dialect in DIALECTS:
        known = {name for metric in dialect.engine.metrics for name in metric.series_names()}
        if dialect.key.startswith("triton"):
            known |= triton
        assert dialects.needed(dialect) - known - others == set(), dialect.key


def test_vllm_page() -> None:
    found = one(scrape("vllm-0.32-kv-saturated"))
    assert (found.engine, found.model) == ("vllm", "tiny")
    assert found.gauges == {"running": 26, "waiting": 30, "kv_max": 0.9921259842519685, "kv_mean": 0.9921259842519685,
                            "kv_capacity": 16384}
    assert found.waiting_by_reason == {"capacity": 30, "deferred": 0}
    assert sum(found.counters["finished"].values()) == 880
    assert found.buckets[100] == 285


def test_trtllm_page() -> None:
    found = one(scrape("documented-triton-trtllm"), "triton_trtllm")
    assert found.gauges["kv_max"] == 0.85
    assert {key: found.gauges[key] for key in ("running", "waiting", "slots", "generating", "paused")} == {
        "running": 32, "waiting": 8, "slots": 64, "generating": 30, "paused": 0}
    assert (found.gauges["kv_capacity"], found.gauges["kv_used"]) == (64000, 54400)
    assert found.at_finish
    assert sum(found.counters["generation"].values()) == 264000


def test_trtllm_used_over_max_before_fraction() -> None:
    """The executor can misattribute fraction (0.4875 with 1 of 6239 blocks used)."""
    lines = "".join(f'nv_trt_llm_kv_cache_block_metrics{{model="m",version="1",kv_cache_block_type="{kind}"}} {value}\n'
                    for kind, value in (("fraction", 0.4875), ("used", 1), ("max", 6239)))
    assert one(lines).gauges["kv_max"] == pytest.approx(1 / 6239)
    assert one(lines.splitlines()[0] + "\n").gauges["kv_max"] == 0.4875


def test_trtllm_waiting_before_0_18() -> None:
    lines = "".join(f'nv_trt_llm_request_metrics{{model="m",version="1",request_type="{kind}"}} {value}\n'
                    for kind, value in (("active", 40), ("scheduled", 32)))
    assert one(lines).gauges["waiting"] == 8


def test_trtllm_serve_page() -> None:
    labels = 'model_name="m",engine_type="pytorch"'
    names = {"num_requests_running": 4, "num_requests_waiting": 2, "kv_cache_utilization": 0.3,
             "kv_cache_max_blocks": 100, "kv_cache_used_blocks": 30, "kv_cache_tokens_per_block": 32,
             "max_num_active_requests": 64, "generation_tokens_total": 5}
    found = one("".join(f"trtllm_{name}{{{labels}}} {value}\n" for name, value in names.items()))
    assert found.engine == "trtllm_serve"
    assert found.gauges == {"running": 4, "waiting": 2, "kv_max": 0.3, "kv_mean": 0.3, "kv_capacity": 3200,
                            "kv_used": 960, "slots": 64}
    assert found.at_finish


def test_sglang_page() -> None:
    def line(name: str, value: float, tp: int = 0, more: str = "") -> str:
        labels = f'model_name="m",engine_type="unified",tp_rank="{tp}",pp_rank="0",moe_ep_rank="0"{more}'
        return f"sglang:{name}{{{labels}}} {value}\n"

    text = "".join([
        line("num_running_reqs", 4), line("num_running_reqs", 4, tp=1), line("num_queue_reqs", 2),
        line("token_usage", 0.2, more=',dp_rank="0"'), line("token_usage", 0.6, more=',dp_rank="1"'),
        line("max_total_num_tokens", 1000),
        *(line("realtime_tokens_total", value, more=f',mode="{mode}"')
          for mode, value in (("prefill_compute", 50), ("prefill_cache", 30), ("decode", 700))),
    ])
    found = one(text)
    assert found.gauges == {"running": 4, "waiting": 2, "kv_max": 0.6, "kv_mean": pytest.approx(0.4),
                            "kv_capacity": 1000}
    assert {name: sum(found.counters[name].values()) for name in ("generation", "computed_prompt", "prompt")} == {
        "generation": 700, "computed_prompt": 50, "prompt": 80}
    assert not found.at_finish


def test_triton_page() -> None:
    found = {reading.model: reading for reading in readings(scrape("triton-2.51-queue-overload"))}
    assert set(found) == {"doubler", "tokens", "flaky", "idle"}
    assert found["doubler"].gauges == {"pending": 233}
    assert sum(found["doubler"].counters["success"].values()) == 122835


def test_data_parallel_ranks() -> None:
    """Waiting is added, KV kept as maximum and mean, whatever the order of the lines."""
    lines = (vllm(20, 40, 0.97, engine="0") + vllm(1, 0, 0.05, engine="1")).splitlines(keepends=True)
    results = []
    for seed in range(5):
        random.Random(seed).shuffle(lines)
        found = one("".join(lines))
        results.append((found.gauges["waiting"], found.gauges["running"], found.gauges["kv_max"],
                        round(found.gauges["kv_mean"], 9), sum(found.counters["generation"].values())))
    assert set(results) == {(40, 21, 0.97, 0.51, 2000)}


def test_leftovers_of_other_processes_do_not_count() -> None:
    text = 'vllm:kv_cache_usage_perc{model_name="m",engine="0",pid="7"} 0\n' \
           'vllm:kv_cache_usage_perc{model_name="m",engine="0",pid="8"} 0.6\n'
    assert one(text).gauges == {"kv_max": 0.6, "kv_mean": 0.6}


@pytest.mark.parametrize("names", [["gpu_cache_usage_perc"], ["kv_cache_usage_perc"],
                                   ["gpu_cache_usage_perc", "kv_cache_usage_perc"]])
def test_renamed_kv_gauge(names: list[str]) -> None:
    assert one("".join(f'vllm:{name}{{model_name="m"}} 0.93\n' for name in names)).gauges["kv_max"] == 0.93


@pytest.mark.parametrize("bad", ["NaN", "+Inf", "-0.1", "1.2"])
def test_garbage_ratio_is_left_out(bad: str) -> None:
    found = one(vllm(kv=bad))  # type: ignore[arg-type]
    assert "kv_max" not in found.gauges
    assert found.invalid == {"kv_max"}
    assert found.gauges["running"] == 3


def test_rounding_above_one_is_one() -> None:
    assert one(vllm(kv=1.0000001)).gauges["kv_max"] == 1


def test_no_token_capacity_from_blocks() -> None:
    """Blocks times block size is wrong for hybrid models: only a size in tokens counts."""
    extra = 'vllm:cache_config_info{engine="0",block_size="4",num_gpu_blocks="1000"} 1\n'
    assert "kv_capacity" not in one(vllm(extra=extra)).gauges


def test_models_and_their_names() -> None:
    text = vllm(model="/models/a.b") + vllm(model="z")
    assert [reading.model for reading in readings(text)] == ["/models/a.b", "z"]
    bare = 'trtllm_num_requests_running{model_name="undefined",engine_type="undefined"} 1\n'
    assert readings(bare, model_name="llama")[0].model == "llama"
    assert readings(bare)[0].model == "undefined"


def test_asleep() -> None:
    state = 'vllm:engine_sleep_state{{model_name="m",engine="0",sleep_state="awake"}} {}\n'
    assert one(vllm(extra=state.format(0))).asleep
    assert not one(vllm(extra=state.format(1))).asleep
    assert not one(vllm(extra='vllm:engine_sleep_state{strange="shape"} 0\n')).asleep


def test_matchers() -> None:
    assert Matchers('finished_reason!~"error|abort"')({"finished_reason": "stop"})
    assert not Matchers('finished_reason!~"error|abort"')({"finished_reason": "abort"})
    assert Matchers('a="1", b!=""')({"a": "1", "b": "x"})
    assert not Matchers('a="1", b!=""')({"a": "1"})
    assert Matchers("")({})
    with pytest.raises(ValueError, match="matcher"):
        Matchers("nonsense")


def test_captured_pages_have_a_model() -> None:
    for path in SCRAPES.glob("*.prom"):
        if "disable-log-stats" not in path.name:
            assert readings(path.read_bytes()), path
