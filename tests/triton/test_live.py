"""A real Triton under a real Prometheus: what the server tells, and an alert's whole life under real load."""

import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from obs.alerts.registry import all_groups
from obs.config import parse_config
from obs.prom.server import PrivatePrometheus
from obs.render.prometheus import rule_files as render_rules
from tests.waiting import eventually

from . import server
from .load import Load, infer, stream
from .server import TritonServer

pytestmark = [
    pytest.mark.triton,
    pytest.mark.skipif(server.why_not() is not None, reason=str(server.why_not())),
]

POLL_SECONDS = 0.2
QUEUE_ALERT = "InferenceQueueTimeHigh"
TRAFFIC = 'rate(nv_inference_request_success{model="doubler"}[5s])'


@pytest.fixture(scope="module")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    flags = ["--metrics-config=summary_latencies=true", "--metrics-config=histogram_latencies=true"]
    with TritonServer(tmp_path_factory.mktemp("triton"), *flags) as running:
        yield running


def value(text: str, family: str, **labels: str) -> float:
    """The value of the one sample of `family` that carries these labels."""
    found = [
        line.rsplit(" ", 1)[1]
        for line in text.splitlines()
        if line.startswith(family + "{") and all(f'{key}="{label}"' in line for key, label in labels.items())
    ]
    assert len(found) == 1, f"{family} {labels}: {found}"
    return float(found[0])


def families(text: str) -> dict[str, str]:
    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))


# --- What the server tells -------------------------------------------------------------------------------------


def test_error_responses_count_as_success(triton: TritonServer) -> None:
    """A blind spot: a Python model's error response is HTTP 500 to its client and a success to the metrics."""

    def counted(family: str) -> float:
        return value(triton.metrics(), family, model="flaky")

    def failures() -> dict[str, float]:
        text = triton.metrics()
        reasons = re.findall(r'nv_inference_request_failure\{model="flaky",reason="(\w+)"', text)
        return {reason: value(text, "nv_inference_request_failure", model="flaky", reason=reason) for reason in reasons}

    before, failed_before = counted("nv_inference_request_success"), failures()
    assert [infer(triton.http_port, "flaky", number)[0] for number in (1, -1, 1, -1, -1)] == [200, 500, 200, 500, 500]
    eventually("five successes", 5, lambda: counted("nv_inference_request_success") == before + 5)
    assert failures() == failed_before
    assert set(failed_before) == {"REJECTED", "CANCELED", "BACKEND", "OTHER"}


def test_raised_errors_count_as_backend_failures(triton: TritonServer) -> None:
    """What the failure counter does see of a Python model: `execute` raising."""

    def failed() -> float:
        return value(triton.metrics(), "nv_inference_request_failure", model="flaky", reason="BACKEND")

    before = failed()
    assert infer(triton.http_port, "flaky", -200)[0] == 500
    eventually("one failure", 5, lambda: failed() == before + 1)


def test_a_refused_request_counts_nowhere(triton: TritonServer) -> None:
    """A request that fails validation (17 rows, at most 16) moves neither counter."""

    def moved() -> list[str]:
        pattern = r'^nv_inference_request_(?:success|failure)\{model="doubler".*$'
        return sorted(re.findall(pattern, triton.metrics(), re.MULTILINE))

    before = moved()
    assert infer(triton.http_port, "doubler", 1, rows=17)[0] == 400
    time.sleep(1)
    assert moved() == before


def test_a_decoupled_request_counts_once(triton: TritonServer) -> None:
    def counted() -> float:
        return value(triton.metrics(), "nv_inference_request_success", model="tokens")

    before = counted()
    status, body = stream(triton.http_port, "tokens", 1)
    assert (status, body.count(b"data: ")) == (200, 5)
    eventually("one success", 5, lambda: counted() == before + 1)


def test_families(triton: TritonServer) -> None:
    """No GPU families without a GPU, counters without `_total`, summaries as asked for.

    Histograms were asked for as well: this version takes the flag and serves none.
    """
    types = families(triton.metrics())
    assert not [name for name in types if name.startswith("nv_gpu_")]
    counters = {name for name, kind in types.items() if kind == "counter"}
    assert {"nv_inference_request_success", "nv_inference_queue_duration_us"} <= counters
    assert not [name for name in counters if name.endswith("_total")]
    assert types["nv_inference_queue_summary_us"] == "summary"
    assert types["nv_inference_pending_request_count"] == "gauge"
    assert "histogram" not in types.values()


def test_quantiles_of_an_idle_model_are_nan(triton: TritonServer) -> None:
    text = triton.metrics()
    quantiles = re.findall(r'^nv_inference_queue_summary_us\{model="idle",.*quantile="(\S+)"\} (\S+)$', text, re.M)
    assert dict(quantiles) == dict.fromkeys(["0.5", "0.9", "0.95", "0.99", "0.999"], "Nan")
    assert value(text, "nv_inference_queue_summary_us_count", model="idle") == 0
    assert value(text, "nv_inference_request_success", model="idle") == 0


# --- An alert's life ---------------------------------------------------------------------------------------------


CONFIG = """
interval: {scrape: 1s, evaluation: 1s}
windows: {rate: 10s}
alerts:
  "*": {for: 3s, keep_firing_for: 0s}
"""


def rule_files(folder: Path) -> Sequence[Path]:
    """The pack's own rule files, with a window and a `for` of seconds."""
    config = parse_config(CONFIG)
    paths = []
    for name, text in render_rules(all_groups(config), config).items():
        path = folder / name
        path.write_text(text)
        paths.append(path)
    return paths


def state(watched: PrivatePrometheus, alert: str, model: str) -> str:
    """Of this alert on this model; Prometheus lists only what is pending or firing."""
    states = [
        found.state
        for found in watched.client.alerts()
        if dict(found.labels)["alertname"] == alert and dict(found.labels).get("model") == model
    ]
    assert len(states) <= 1, states
    return states[0] if states else "inactive"


def follow(watched: PrivatePrometheus, alert: str, model: str, until: str | None, seconds: float) -> list[str]:
    """The states the alert goes through until it reaches `until`, or for so many seconds."""
    seen: list[str] = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if (now := state(watched, alert, model)) not in seen[-1:]:
            seen.append(now)
        if now == until:
            break
        time.sleep(POLL_SECONDS)
    return seen


def query(watched: PrivatePrometheus, promql: str) -> float:
    """The value of the one series the query yields, 0 if it yields none."""
    result = watched.client.query(promql)
    assert len(result) <= 1, result
    return result[0].value if result else 0


def evaluated(watched: PrivatePrometheus) -> bool:
    rules = watched.client.rules()
    assert rules
    assert not [rule for rule in rules if rule.health == "err"], rules
    return all(rule.health == "ok" for rule in rules)


@pytest.mark.prometheus
def test_queue_alert_fires_and_resolves(triton: TritonServer, tmp_path: Path) -> None:
    """The generated rule files, unchanged, in a real Prometheus that scrapes a real Triton under real load."""
    port = triton.http_port
    scrape = {"job_name": "triton", "static_configs": [{"targets": [triton.metrics_target]}]}
    with (
        Load(port, "doubler", clients=1, seconds=90) as light,
        PrivatePrometheus(
            rule_files=rule_files(tmp_path), scrape_configs=[scrape], scrape_interval="1s", evaluation_interval="1s"
        ) as watched,
    ):
        eventually("every rule evaluated", 10, lambda: evaluated(watched))
        eventually("traffic seen", 10, lambda: query(watched, TRAFFIC) > 0)
        assert follow(watched, QUEUE_ALERT, "doubler", until=None, seconds=5) == ["inactive"]

        # 64 requests of 8 rows under way, 2 to a batch of 10 ms: about 330 ms in the queue.
        with Load(port, "doubler", clients=64, rows=8, seconds=60) as heavy:
            assert follow(watched, QUEUE_ALERT, "doubler", "firing", 30) == ["inactive", "pending", "firing"]
        assert follow(watched, QUEUE_ALERT, "doubler", "inactive", 30) == ["firing", "inactive"]

        # It resolved because the queue is short again, not because the series ended.
        assert query(watched, "up") == 1
        assert query(watched, TRAFFIC) > 0
        assert light.statuses.keys() == heavy.statuses.keys() == {200}
