"""What the stand-in's pages hold, against the real servers' pages and against itself."""

from __future__ import annotations

import itertools
import re
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from obs.engines import engine
from obs.evaluate import exposition
from obs.fake.ledger import Histo, Ledger, served
from obs.fake.load import Load
from obs.fake.world import ENGINES, World
from obs.fake.world import Spec as SpecOf
from obs.prom import tools

SCRAPES = Path(__file__).parents[1] / "data" / "scrapes"
SUMMARIES = "--metrics-config summary_latencies=true"
REAL = {
    # the recorded release; its summaries were on, and it had neither a GPU nor a handler that a load used
    "triton": (SCRAPES / "triton-2.51-queue-overload.prom",
               SpecOf(engine="triton", models=("a", "b"), release="24.10", flags=(SUMMARIES,), gpus=0)),
    "vllm": (SCRAPES / "vllm-0.32-kv-saturated.prom", SpecOf(engine="vllm", models=("tiny",), max_model_len=1024)),
}
_QUANTILES = re.compile(r'quantile="[^"]*"')  # the recording's server was told other ones


def world(seconds: float = 30, **spec: object) -> World:
    spec.setdefault("models", ("a",))
    found = World(SpecOf(**spec), 1_000_000.0)  # type: ignore[arg-type]
    found.advance(1_000_000.0 + seconds)
    return found


def samples(page: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    found = {}
    for sample in exposition.parse(page, "page", {}).samples:
        key = (sample.name, frozenset(sample.labels))
        assert key not in found, f"{key} twice"
        found[key] = sample.value
    return found


def shape(page: str) -> dict[str, tuple[str, frozenset[frozenset[str]], frozenset[str]]]:
    """Family -> its type, the sets of label names of its lines, its bounds."""
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", page, re.MULTILINE))
    names: defaultdict[str, set[frozenset[str]]] = defaultdict(set)
    bounds: defaultdict[str, set[str]] = defaultdict(set)
    for name, labels in samples(page):
        family = name if name in kinds else re.sub(r"_(bucket|sum|count)$", "", name)
        names[family].add(frozenset(key for key, _ in labels))
        bounds[family] |= {value for key, value in labels if key == "le"}
    return {family: (kind, frozenset(names[family]), frozenset(bounds[family])) for family, kind in kinds.items()}


@pytest.mark.parametrize("name", REAL)
def test_families_types_labels_and_buckets_are_those_of_the_real_server(name: str) -> None:
    path, spec = REAL[name]
    found = World(spec, 1_000_000.0)
    found.advance(1_000_030.0)
    ours, real = shape(found.page()), shape(path.read_text())
    real = {family: one for family, one in real.items() if not family.startswith(("python_", "process_"))}
    ours.pop("process_start_time_seconds", None)
    assert ours.keys() == real.keys()
    ours.pop("vllm:cache_config_info", None)  # its labels are the server's settings
    for family in ours:
        assert ours[family] == real[family], family


@pytest.mark.parametrize("name", REAL)
@pytest.mark.prometheus
def test_promtool_says_of_a_page_what_it_says_of_the_real_one(name: str) -> None:
    path, spec = REAL[name]
    found = World(spec, 1_000_000.0)
    found.advance(1_000_030.0)

    def said(page: str) -> set[str]:
        command = [tools.find("promtool"), "check", "metrics"]
        done = subprocess.run(command, input=page, capture_output=True, text=True, check=False)
        lines = set(done.stderr.splitlines())
        assert not [line for line in lines if line.startswith("error")], lines
        return {line for line in lines if not line.startswith(("python_", "process_"))}

    assert said(found.page()) == said(path.read_text())


@pytest.mark.parametrize("name", ENGINES)
def test_every_page_is_read_by_the_clients_parser(name: str) -> None:
    running = world(engine=name, rate=5.0)
    for page in (running.page(), running.dcgm_page()):
        assert len(list(text_string_to_metric_families(page))) > 10
        assert page.endswith("\n")
    names = {sample for sample, _ in samples(running.page())}
    if name != "vllm":
        assert {"nv_gpu_memory_used_bytes", "nv_gpu_utilization", "nv_energy_consumption"} <= names


@pytest.mark.parametrize("name", ENGINES)
def test_the_figures_agree_with_each_other(name: str) -> None:
    """Buckets rise to +Inf, which is the count; no counter falls; sums and counters of one thing are equal."""
    running = world(0, engine=name, rate=6.0, flags=(SUMMARIES,))
    before: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for _ in range(12):
        running.advance(running.now + 5)
        now = samples(running.page())
        buckets: defaultdict[tuple[str, frozenset[tuple[str, str]]], list[tuple[float, float]]] = defaultdict(list)
        for (family, labels), value in now.items():
            if family.endswith("_bucket"):
                bound = float(dict(labels)["le"])
                rest = frozenset(one for one in labels if one[0] != "le")
                buckets[family.removesuffix("_bucket"), rest].append((bound, value))
            grows = re.search(r"_(total|count|bucket|sum|us|success|failure)$", family) and "pending" not in family
            if grows and "quantile" not in dict(labels):
                assert value >= before.get((family, labels), 0), family
        for (family, labels), rising in buckets.items():
            rising.sort()
            assert all(one[1] <= two[1] for one, two in itertools.pairwise(rising)), family
            assert rising[-1] == (float("inf"), now[f"{family}_count", labels])
        before = now
    total = {key[0]: value for key, value in before.items()}
    if name == "vllm":
        assert total["vllm:e2e_request_latency_seconds_count"] == total["http_request_duration_highr_seconds_count"] > 100
        assert total["vllm:prompt_tokens_total"] >= total["vllm:request_prompt_tokens_sum"] > 0
        assert total["vllm:generation_tokens_total"] >= total["vllm:request_generation_tokens_sum"] > 0
        assert total["vllm:time_to_first_token_seconds_count"] >= total["vllm:e2e_request_latency_seconds_count"]
    else:
        assert total["nv_inference_count"] == total["nv_inference_request_success"] > 100
        assert total["nv_inference_exec_count"] <= total["nv_inference_request_success"]
        assert total["nv_inference_request_summary_us_count"] == total["nv_inference_request_success"]
        assert total["nv_inference_queue_duration_us"] <= total["nv_inference_request_duration_us"]


def test_one_seed_is_one_history_however_often_it_is_asked() -> None:
    def history(step: float, **spec: object) -> str:
        running = world(0, engine="vllm", rate=10.0, **spec)
        while running.now < running.start + 20:
            running.advance(running.now + step)
            running.page()
        return running.page()

    assert history(20.0) == history(0.5)
    assert history(20.0) != history(20.0, seed=2)


def test_a_plain_model_answers_what_comes_up_to_its_capacity_and_queues_the_rest() -> None:
    running = world(60, rate=100.0)
    capacity = running.spec.service.capacity
    at_100 = samples(running.page())
    labels = frozenset({("model", "a"), ("version", "1")})
    assert at_100["nv_inference_request_success", labels] / 60 == pytest.approx(100, rel=0.1)
    running.set_load(Load(rate=capacity * 1.5))
    running.advance(running.now + 60)
    after = samples(running.page())
    answered = after["nv_inference_request_success", labels] - at_100["nv_inference_request_success", labels]
    assert answered / 60 == pytest.approx(capacity, rel=0.05)
    assert after["nv_inference_pending_request_count", labels] == pytest.approx(capacity * 0.5 * 60, rel=0.1)


def test_the_catalogue_decides_what_is_served() -> None:
    triton = engine("triton")
    names = {metric.name for metric in served(triton, "24.10")}
    assert "nv_inference_first_response_histogram_ms" not in names
    assert "nv_inference_queue_summary_us" not in names
    histograms = ("--metrics-config histogram_latencies=true",)
    assert "nv_inference_first_response_histogram_ms" not in {metric.name for metric in served(triton, "24.10", histograms)}
    assert "nv_inference_first_response_histogram_ms" in {metric.name for metric in served(triton, "26.06", histograms)}
    with pytest.raises(Exception, match="nv_inference_latency, which obs/engines lacks for triton"):
        Ledger(triton, served(triton, "26.06"), {}).put_family("nv_inference_latency", 1)


def test_a_value_on_a_bound_is_in_its_bucket() -> None:
    histo = Histo((1.0, 2.0))
    histo.observe(1.0)
    histo.observe(2.5, times=2)
    assert list(histo.lines()) == [("_bucket", "1.0", 1), ("_bucket", "2.0", 1), ("_bucket", "+Inf", 3), ("_count", None, 3),
                                   ("_sum", None, 6.0)]


def test_a_full_gpu_reads_full_in_both_exporters() -> None:
    running = world(5)
    running.set_fault("gpu-memory-full")
    running.advance(running.now + 2)
    triton, dcgm = samples(running.page()), samples(running.dcgm_page())
    used, total = (next(value for (name, _), value in triton.items() if name == f"nv_gpu_memory_{which}_bytes")
                   for which in ("used", "total"))
    assert used / total == pytest.approx(0.99)
    (mib,) = (value for (name, _), value in dcgm.items() if name == "DCGM_FI_DEV_FB_USED")
    assert mib * 2**20 == pytest.approx(used)
