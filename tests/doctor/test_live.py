"""On a live real Triton: every planted fault is found, and a healthy server has nothing above info. With a real
Prometheus as well, healthy and with planted faults."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from obs.cli.main import main
from obs.errors import ToolError
from obs.prom import tools
from obs.prom.server import PrivatePrometheus, free_port
from tests.triton import server
from tests.triton.load import infer
from tests.triton.server import TritonServer
from tests.waiting import eventually

from .stub import serving, text

RULES = Path(__file__).parents[2] / "alerts" / "rules"

real = [pytest.mark.triton, pytest.mark.skipif(server.why_not() is not None, reason=str(server.why_not()))]


def _no_prometheus() -> str:
    try:
        tools.find("prometheus")
    except ToolError as error:
        return str(error)
    return ""


with_prometheus = [pytest.mark.prometheus, pytest.mark.skipif(bool(_no_prometheus()), reason=_no_prometheus())]

EXPLICIT = ["--model-control-mode=explicit", "--load-model=*"]
FAULTY = [
    "--metrics-config=counter_latencies=false", "--metrics-config=histogram_latencies=true", "--model-control-mode=poll",
    "--repository-poll-secs=3600", "--metrics-interval-ms=60000",
]


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    with TritonServer(tmp_path_factory.mktemp("healthy"), *EXPLICIT) as running:
        yield running


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    with TritonServer(tmp_path_factory.mktemp("faulty"), *FAULTY) as running:
        yield running


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # no obs.yaml of the repository
    monkeypatch.delenv("PROMETHEUS_URL", raising=False)


Report = Mapping[str, Any]


def doctor(capsys: pytest.CaptureFixture[str], *words: str, code: int) -> Report:
    # patient: a loaded machine makes a server slow, and a report that lacks an answer is partial
    found = main(["doctor", "--format", "json", "--timeout", "60s", "--deadline", "5m", *words])
    out, err = capsys.readouterr()
    assert err == ""
    report: Report = json.loads(out)
    assert found == code, out
    return report


def addresses(triton: TritonServer) -> list[str]:
    return ["--triton", f"http://127.0.0.1:{triton.http_port}", "--metrics", f"http://{triton.metrics_target}/metrics"]


def bad(report: Report) -> dict[str, str]:
    """Check -> severity, of what is above info."""
    return {one["id"]: one["severity"] for one in report["findings"] if one["severity"] != "info"}


class TestTriton:
    pytestmark = real

    def test_a_healthy_server_has_nothing_above_info(self, healthy: TritonServer, capsys: pytest.CaptureFixture[str]) -> None:
        """But for its version: the only Triton that runs here is 2.51, which is below the release that mends a hole."""
        report = doctor(capsys, *addresses(healthy), "--model-repository", str(healthy.folder / "models"), code=1)
        assert bad(report) == {"vulnerable": "error"}
        assert report["complete"] is True
        assert {source["name"]: source["state"] for source in report["sources"]} == dict.fromkeys(
            ("Triton", "metrics", "repository"), "ok"
        )
        assert " flags known" in report["sources"][0]["what"]
        report = doctor(capsys, *addresses(healthy), "--ignore", "vulnerable", code=0)
        (alerts,) = report["alerts"]
        assert alerts["counts"]["live"] >= 14
        assert alerts["counts"]["blind"] == 0

    def test_planted_faults(self, faulty: TritonServer, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        models = faulty.folder / "models"
        (models / "doubler" / "2").mkdir()  # after the start, and the next poll is an hour away
        (models / "doubler" / "2" / "model.py").write_text((models / "doubler" / "1" / "model.py").read_text())
        (models / "idle" / "config.pbtxt").write_text(
            (models / "idle" / "config.pbtxt").read_text() + "\nresponse_cache { enable: true }\n"
        )
        config = tmp_path / "obs.yaml"
        config.write_text("slo: {latency_p99: 200ms}\n")
        report = doctor(
            capsys, *addresses(faulty), "--model-repository", str(models), "--config", str(config), code=1
        )
        assert bad(report) == {
            "vulnerable": "error", "counters-frozen": "error", "control-mode": "warning", "latency-source": "warning",
            "metrics-interval": "warning", "versions": "warning", "cache-metrics": "warning",
        }
        said = {one["what"] for one in report["findings"]}
        assert "histogram_latencies=true is accepted by Triton 2.51.0 (24.10) and exports no histogram" in said
        assert "model doubler: version 2 is on disk and not loaded; the server has 1" in said
        (alerts,) = report["alerts"]
        assert alerts["counts"]["blind"] >= 5

    def test_statistics_tell_frozen_counters_from_an_idle_server(
        self, healthy: TritonServer, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert infer(healthy.http_port, "doubler", 1)[0] == 200
        report = doctor(capsys, *addresses(healthy), "--ignore", "vulnerable", code=0)
        assert "counters-frozen" not in bad(report)

    def test_the_metrics_port_is_that_of_the_flags(self, healthy: TritonServer, capsys: pytest.CaptureFixture[str]) -> None:
        report = doctor(capsys, *addresses(healthy)[:2], "--ignore", "vulnerable", code=0)
        assert report["sources"][1]["place"] == f"http://{healthy.metrics_target}/metrics"

    def test_flags_given_by_hand(self, healthy: TritonServer, capsys: pytest.CaptureFixture[str]) -> None:
        """As for a server on another machine."""
        known = ["--triton-args", "tritonserver --model-control-mode poll"]
        report = doctor(capsys, *addresses(healthy), "--ignore", "vulnerable", *known, code=1)
        assert bad(report) == {"control-mode": "warning"}

    def test_wrong_ports(self, healthy: TritonServer, capsys: pytest.CaptureFixture[str]) -> None:
        http, metrics = f"http://127.0.0.1:{healthy.http_port}", f"http://{healthy.metrics_target}"
        swapped = doctor(capsys, "--triton", metrics, "--metrics", f"{http}/metrics", code=3)
        told = {one["name"]: one["lacking"][0] for one in swapped["sources"]}
        assert "is this the metrics port (8002)?" in told["Triton"]
        assert "HTTP 404 (Triton's HTTP port?)" in told["metrics"]


class TestTritonUnderPrometheus:
    pytestmark = real + with_prometheus

    def test_healthy(self, healthy: TritonServer, capsys: pytest.CaptureFixture[str]) -> None:
        job = {"job_name": "triton", "scrape_interval": "1s", "static_configs": [{"targets": [healthy.metrics_target]}]}
        rules = sorted(RULES.glob("*.yaml"))
        with PrivatePrometheus(rule_files=rules, scrape_configs=[job], alertmanagers=["127.0.0.1:9"]) as watched:
            scrapes = "count_over_time(nv_inference_request_success[5m]) > 3"
            eventually("a few scrapes", 60, lambda: watched.client.query(scrapes))
            report = doctor(capsys, *addresses(healthy), "--prometheus", watched.url, "--ignore", "vulnerable", code=0)
        assert report["complete"] is True
        assert len(report["alerts"]) == 2


class TestPrometheus:
    """With a page of a Triton, as recorded: the faults are Prometheus's."""

    pytestmark = with_prometheus

    def test_planted_faults(self, capsys: pytest.CaptureFixture[str]) -> None:
        scrape = (Path(__file__).parents[1] / "data" / "scrapes" / "triton-2.51-steady.prom").read_text()
        rules = [path for path in sorted(RULES.glob("*.yaml")) if path.name not in {"recordings-triton.yaml", "gpu.yaml"}]
        with serving({"/metrics": text(scrape)}) as url:
            host = url.removeprefix("http://")
            local, blue = host.replace("127.0.0.1", "localhost"), {"targets": [host], "labels": {"version": "b"}}
            drop = {"source_labels": ["__name__"], "regex": "nv_inference_queue.*", "action": "drop"}
            jobs: Sequence[Mapping[str, Any]] = [
                {"job_name": "triton", "scrape_interval": "1s", "honor_labels": True, "metric_relabel_configs": [drop],
                 "static_configs": [{"targets": [host]}]},
                {"job_name": "pods", "scrape_interval": "10m", "static_configs": [blue]},
                {"job_name": "small", "scrape_interval": "1s", "sample_limit": 3, "static_configs": [{"targets": [local]}]},
                {"job_name": "blue", "scrape_interval": "1s", "static_configs": [blue]},
            ]
            with PrivatePrometheus(rule_files=rules, scrape_configs=jobs) as watched:
                eventually("a scrape", 30, lambda: watched.client.query('nv_inference_request_success{job="triton"}'))
                eventually("another", 30, lambda: watched.client.query('nv_inference_request_success{job="blue"}'))
                eventually("a failed scrape", 30, lambda: watched.client.query('up{job="small"} == 0'))
                report = doctor(capsys, "--metrics", f"{url}/metrics", "--prometheus", watched.url, code=1)
        assert set(bad(report)) == {
            "rules-loaded", "scrape-interval", "scrape-target", "double-scrape", "dropped-metrics", "labels", "alertmanager",
        }
        said = {(one["id"], one["place"].removeprefix(url)): one["what"] for one in report["findings"]}
        assert said["scrape-target", f"small/{local}"] == "the target is down: sample limit exceeded"
        assert said["double-scrape", "/metrics"] == "scraped 4 times: blue, pods, small, triton"
        assert said["labels", "job blue"].startswith("series carry exported_version")
        missing = {one["what"] for one in report["findings"] if one["id"] == "rules-loaded"}
        assert missing == {"group obs-record-triton (recording rules) is not loaded", "group obs-gpu (2 alerts) is not loaded"}

    def test_an_alertmanager_that_does_not_answer(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        rules = tmp_path / "r.yaml"
        rules.write_text("groups: [{name: g, rules: [{alert: Always, expr: vector(1)}]}]")
        dead, targets = f"127.0.0.1:{free_port()}", tmp_path / "itself.json"
        targets.write_text("[]")
        itself = {
            "job_name": "prometheus", "scrape_interval": "1s",
            "file_sd_configs": [{"files": [str(targets)], "refresh_interval": "1s"}],
        }
        with PrivatePrometheus(
            rule_files=[rules], scrape_configs=[itself], alertmanagers=[dead], evaluation_interval="1s",
            arguments=["--rules.alert.resend-delay=1s"],
        ) as watched:
            targets.write_text(json.dumps([{"targets": [watched.url.removeprefix("http://")]}]))
            eventually("failed notifications", 60,
                       lambda: watched.client.query("increase(prometheus_notifications_errors_total[15m]) > 0"))
            report = doctor(capsys, "--prometheus", watched.url, code=1)
        told = [one for one in report["findings"] if one["id"] == "alertmanager"]
        assert [(one["severity"], one["place"]) for one in told] == [("error", f"http://{dead}/api/v2/alerts")]
        assert "did not arrive" in told[0]["what"]
