"""A real Triton: what its vLLM backend hides is estimated, and compared with the truth that a test model tells."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from obs.alerts.sidecar import UNLOADED
from obs.engines.sidecar import ENGINE
from obs.sidecar import detect
from obs.sidecar.collector import families
from obs.sidecar.reader import Reader, Samples
from obs.sidecar.readiness import Prober
from obs.sidecar.sampler import Sampler
from obs.sidecar.scrape import Fetcher, Page, Target
from obs.sidecar.settings import ModelSettings, Settings
from obs.sidecar.signals import Signals
from tests.triton import server
from tests.triton.load import Load
from tests.triton.server import TritonServer
from tests.waiting import eventually

pytestmark = [
    pytest.mark.triton,
    pytest.mark.skipif(server.why_not() is not None, reason=str(server.why_not())),
]

MODELS = Path(__file__).parent / "models"
CAPACITY = 10_000.0
INTERVAL = 0.25


@pytest.fixture(scope="module")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    flags = ["--model-control-mode=explicit", "--load-model=batcher", "--load-model=plain", "--load-model=broken",
             "--exit-on-error=false", "--strict-readiness=false"]
    with TritonServer(tmp_path_factory.mktemp("triton"), *flags, models=MODELS) as running:
        yield running


def prober(triton: TritonServer) -> Prober:
    return Prober(Fetcher(Target(f"http://127.0.0.1:{triton.http_port}/"), timeout=2), "triton",
                  control_mode="explicit")


def generate(port: int, prompt: int, output: int) -> None:
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    with contextlib.closing(link):
        body = json.dumps({"PROMPT_TOKENS": prompt, "OUTPUT_TOKENS": output})
        link.request("POST", "/v2/models/batcher/generate_stream", body)
        response = link.getresponse()
        assert response.status == 200, response.read()
        response.read()


@contextlib.contextmanager
def clients(port: int, count: int) -> Iterator[None]:
    """Closed-loop clients with prompts of 200 to 400 and answers of 10 to 70 tokens."""
    ended = threading.Event()

    def loop(seed: int) -> None:
        source = random.Random(seed)
        while not ended.is_set():
            generate(port, source.randint(200, 400), source.randint(10, 70))

    threads = [threading.Thread(target=loop, args=(seed,), daemon=True) for seed in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join(20)


class Watching(Reader):
    """Keeps the last page's samples, the truth among them."""

    def __init__(self) -> None:
        needed = detect.needed_names("auto")
        super().__init__(lambda name: name in needed or name.startswith("truth_"))
        self.last: Samples = {}

    def page(self, page: Page) -> Samples:
        self.last = super().page(page)
        return self.last

    def truth(self, name: str) -> float:
        return self.last[f"truth_{name}"][0].value


def watch(triton: TritonServer, **settings: object) -> tuple[Sampler, Watching]:
    reader = Watching()
    given = Settings(interval=INTERVAL, window=6.0, models={"batcher": ModelSettings(kv_capacity_tokens=CAPACITY)},
                     **settings)  # type: ignore[arg-type]
    fetcher = Fetcher(Target(f"http://{triton.metrics_target}/metrics"), timeout=1)
    return Sampler(fetcher, reader, Signals(given), prober(triton)), reader


def test_estimates_against_the_model_s_own_truth(triton: TritonServer, record_property: object) -> None:
    """The promise: KV within 10 % in steady state. Running and waiting are held to the same."""
    sampler, reader = watch(triton)
    signals = {"running": "llm_requests_running", "waiting": "llm_requests_waiting", "kv_tokens": "llm_kv_cache_used_tokens"}
    truth: dict[str, list[float]] = {name: [] for name in signals}
    estimates: dict[str, list[float]] = {name: [] for name in signals}
    assert sampler.sample() == "ok"
    with clients(triton.http_port, 18):
        begun = time.monotonic()
        while time.monotonic() - begun < 16:
            assert sampler.sample() == "ok"
            if time.monotonic() - begun > 8:
                model = next(one for one in sampler.snapshot().models if one.name == "batcher")
                for name, signal in signals.items():
                    value = model.signals[signal].value
                    assert value is not None, model.signals[signal]
                    truth[name].append(reader.truth(name))
                    estimates[name].append(value)
            time.sleep(INTERVAL)
        usage = model.signals["llm_kv_cache_usage_ratio"]
        assert (model.engine, usage.source) == ("triton_vllm", "estimate")
        recent = statistics.mean(truth["kv_tokens"][-int(6 / INTERVAL * 0.8):]) / CAPACITY
        assert usage.value == pytest.approx(recent, rel=0.1)
    errors = {name: statistics.mean(estimates[name]) / statistics.mean(truth[name]) - 1 for name in signals}
    record_property("errors", errors)  # type: ignore[operator]
    print("\nestimate against truth:", {name: f"{error:+.1%}" for name, error in errors.items()},
          {name: round(statistics.mean(values), 1) for name, values in truth.items()})
    assert abs(errors["kv_tokens"]) < 0.1
    assert abs(errors["running"]) < 0.1
    assert abs(errors["waiting"]) < 0.1
    assert statistics.mean(truth["waiting"]) > 3
    # and when all is done, all is a known zero
    deadline = time.monotonic() + 12
    while time.monotonic() < deadline:
        sampler.sample()
        model = next(one for one in sampler.snapshot().models if one.name == "batcher")
        if model.signals["llm_scaling_load_ratio"].value == 0:
            break
        time.sleep(INTERVAL)
    assert {name: model.signals[signal].value for name, signal in signals.items()} == dict.fromkeys(signals, 0)
    assert model.signals["llm_scaling_load_ratio"].value == 0


def test_a_decoupled_request_is_counted_at_the_hand_over(triton: TritonServer) -> None:
    """What the waiting estimate stands on: Triton counts the request while it is still being answered."""
    def successes() -> float:
        return next(one.value for one in Reader({"nv_inference_request_success"}).text(triton.metrics())[
            "nv_inference_request_success"] if one.labels["model"] == "batcher")

    before = successes()
    thread = threading.Thread(target=generate, args=(triton.http_port, 10, 100))  # 4 s
    thread.start()
    eventually("counted", 2, lambda: successes() == before + 1)
    assert thread.is_alive()
    thread.join(20)
    assert successes() == before + 1


def test_plain_model_beside_it(triton: TritonServer) -> None:
    sampler, _ = watch(triton)
    with Load(triton.http_port, "plain", clients=32, seconds=10, rows=8):
        time.sleep(0.5)
        sampler.sample()
        time.sleep(1)
        sampler.sample()
        found = {model.name: model for model in sampler.snapshot().models}
    plain = {name: signal.value for name, signal in found["plain"].signals.items()}
    assert found["plain"].engine == "triton"
    assert plain["triton_model_pending_requests"] is not None
    assert plain["triton_model_pending_requests"] > 5
    assert plain["triton_model_batch_size_mean"] == pytest.approx(16, abs=2)
    assert plain["triton_model_queue_time_mean_seconds"] is not None
    assert 0.05 < plain["triton_model_queue_time_mean_seconds"] < 1
    assert found["batcher"].engine == "triton_vllm"


def test_repository_and_readiness(triton: TritonServer) -> None:
    sampler, _ = watch(triton)
    sampler.sample()
    sampler.probe()
    found = sampler.readiness
    assert found is not None
    assert (found.ready, found.live, found.version, found.control_mode) == (True, True, "2.51.0", "explicit")
    states = {model.name: (model.state, model.ready) for model in found.models}
    assert states["batcher"] == states["plain"] == ("READY", True)
    assert states["broken"] == ("UNAVAILABLE", False)
    assert states["spare"][0] == "UNKNOWN"
    reason = next(model.reason for model in found.models if model.name == "broken")
    assert "no_such_backend" in reason
    assert [(one.hole.id, one.status) for one in found.vulnerabilities] == [("CVE-2026-47627", "affected")]
    wire = {(sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in families(sampler.snapshot(), sampler.work, found) for sample in family.samples}
    declared = {metric.name: metric for metric in ENGINE.metrics}
    for (name, labels), _ in wire.items():
        assert set(declared[name].labels) <= dict(labels).keys() <= {*declared[name].labels,
                                                                    *declared[name].optional_labels}
    assert wire["triton_model_ready", (("model", "broken"), ("version", "1"))] == 0
    assert wire["triton_model_ready", (("model", "batcher"), ("version", "1"))] == 1
    assert wire["triton_models_not_loaded", ()] == 1
    assert wire["triton_server_ready", ()] == 1
    assert [value for (name, _), value in wire.items() if name == "llm_engine_vulnerable_info"] == [1]


def test_an_ordered_unload_is_no_failure(triton: TritonServer) -> None:
    """Triton's own word for it is what InferenceModelLoadFailed leaves out."""
    def order(what: str) -> None:
        link = http.client.HTTPConnection("127.0.0.1", triton.http_port, timeout=20)
        with contextlib.closing(link):
            link.request("POST", f"/v2/repository/models/plain/{what}", "{}")
            assert link.getresponse().status == 200

    def state() -> tuple[str, str]:
        return next((model.state, model.reason) for model in prober(triton).probe().models if model.name == "plain")

    assert state() == ("READY", "")
    order("unload")
    try:
        eventually("unloaded", 20, lambda: state() == ("UNAVAILABLE", UNLOADED), 0.2)
    finally:
        order("load")
    assert state() == ("READY", "")


def test_killed_triton_is_down_with_a_reason(tmp_path: Path) -> None:
    with TritonServer(tmp_path, "--model-control-mode=explicit", "--load-model=plain", models=MODELS) as own:
        sampler, _ = watch(own)
        assert sampler.sample() == "ok"
        assert own.process is not None
        sampler.probe()
        own.process.end()
        assert sampler.sample() == "refused"
        time.sleep(3 * INTERVAL)
        snapshot = sampler.snapshot()
        assert (snapshot.up, snapshot.reason, snapshot.engine) == (False, "refused", "triton")
        for _ in range(3):
            sampler.probe()
        assert sampler.readiness is not None
        assert sampler.readiness.ready is False
