"""The stand-in on real sockets: its API, faults, control endpoint, a played recording, the load generator, the webhook."""

from __future__ import annotations

import http.client
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from obs.cli.main import main
from obs.errors import InputError
from obs.fake.generator import Generator, inputs_of
from obs.fake.load import Load
from obs.fake.player import Player
from obs.fake.server import Site
from obs.fake.webhook import Webhook, lines
from obs.fake.world import Spec, World
from tests.waiting import eventually

RECORDINGS = Path(__file__).parents[1] / "data" / "recordings"


def call(site: Site, role: str, path: str, body: Any = None, method: str = "") -> tuple[int, Any]:
    port = site.ports[role].number  # type: ignore[index]
    data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=data, method=method or None)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            text = answer.read()
            return answer.status, json.loads(text) if text and path != "/metrics" else text.decode()
    except urllib.error.HTTPError as error:
        text = error.read()
        return error.code, json.loads(text) if text else ""


def site_of(source: World | Player, **ports: int) -> Site:
    return Site(source, "127.0.0.1", **{"port": 0, "metrics_port": 0, "control_port": 0, "dcgm_port": 0, **ports})


@pytest.fixture
def triton() -> Iterator[Site]:
    with site_of(World(Spec(models=("a", "b"), rate=20), time.time())) as site:
        yield site


def test_the_triton_api_is_what_probes_and_clients_ask(triton: Site) -> None:
    assert call(triton, "api", "/v2/health/ready") == (200, "")
    assert call(triton, "api", "/v2")[1]["version"] == "2.70.0"
    index = call(triton, "api", "/v2/repository/index", b"")
    assert index == (200, [{"name": "a", "version": "1", "state": "READY"}, {"name": "b", "version": "1", "state": "READY"}])
    status, metadata = call(triton, "api", "/v2/models/a")
    assert (status, metadata["inputs"][0]["name"]) == (200, "INPUT")
    assert call(triton, "api", "/v2/models/a/versions/1/ready")[0] == 200
    before = time.monotonic()
    assert call(triton, "api", "/v2/models/a/infer", inputs_of(metadata))[0] == 200
    assert time.monotonic() - before >= 0.01, "an answer takes the model's time"
    assert call(triton, "api", "/v2/models/nobody/infer", {})[0] == 404
    assert call(triton, "api", "/v2/repository/models/b/unload", b"")[0] == 200
    assert call(triton, "api", "/v2/repository/index", b"")[1][1]["state"] == "UNAVAILABLE"
    left = {line.partition("{")[0] for line in call(triton, "metrics", "/metrics")[1].splitlines() if 'model="b"' in line}
    assert left == {"nv_inference_request_failure"}, "as a real Triton: see tests/data/recordings/README.md"
    assert call(triton, "api", "/v2/repository/models/b/load", b"")[0] == 200
    assert 'nv_inference_request_success{model="b"' in call(triton, "metrics", "/metrics")[1]
    assert "DCGM_FI_DEV_FB_USED{" in call(triton, "dcgm", "/metrics")[1]


def test_the_sidecar_reads_it_as_the_engine_it_stands_in_for(triton: Site, capsys: pytest.CaptureFixture[str]) -> None:
    def once(url: str, *more: str) -> dict[str, Any]:
        assert main(["sidecar", "--once", "--format", "json", "--interval", "0.3", "--url", url, *more]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    api, metrics = triton.ports["api"].number, triton.ports["metrics"].number
    told = once(f"http://127.0.0.1:{metrics}/metrics", "--probe", "triton", "--probe-url", f"http://127.0.0.1:{api}/")
    assert told["server"]["version"] == "2.70.0"
    assert told["server"]["vulnerabilities"] == []
    assert '"triton"' in json.dumps(told)
    for engine in ("triton-vllm", "triton-trtllm", "vllm"):
        world = World(Spec(engine=engine, models=("llm",), rate=3), time.time() - 5)
        with site_of(world) as site:
            told = once(f"http://127.0.0.1:{site.ports['metrics'].number}/metrics", "--probe", "none")
            assert f'"{engine.replace("-", "_")}"' in json.dumps(told), told


def test_killed_it_refuses_connections_and_comes_back_with_counters_from_zero(triton: Site) -> None:
    world = triton.source
    assert isinstance(world, World)
    eventually("some requests", 20, lambda: world.now > world.booted + 1)
    assert call(triton, "control", "/control", {"fault": "kill", "seconds": 1})[1]["down"] is True

    def refused() -> bool:
        try:
            call(triton, "metrics", "/metrics")
        except urllib.error.URLError as error:
            return isinstance(error.reason, ConnectionRefusedError)
        except (ConnectionError, http.client.HTTPException):
            return False
        return False

    eventually("refused", 20, refused)
    assert call(triton, "control", "/control")[1]["down"] is True, "the control endpoint stays"
    eventually("back", 20, lambda: not refused())
    state = call(triton, "control", "/control")[1]
    assert (state["restarts"], state["faults"]) == (1, [])


def test_faults_of_the_server_come_and_go(triton: Site) -> None:
    call(triton, "control", "/control", {"fault": "503"})
    assert call(triton, "metrics", "/metrics", method="GET")[0] == 503
    assert call(triton, "api", "/v2/health/ready")[0] == 503
    call(triton, "control", "/control", {"clear": "503"})
    assert call(triton, "api", "/v2/health/ready")[0] == 200
    call(triton, "control", "/control", {"fault": "freeze-metrics"})
    page = call(triton, "metrics", "/metrics")[1]
    world = triton.source
    assert isinstance(world, World)
    then = world.now
    eventually("time goes on", 20, lambda: world.now > then + 0.5)
    assert call(triton, "metrics", "/metrics")[1] == page
    call(triton, "control", "/control", {"clear": True})
    assert call(triton, "metrics", "/metrics")[1] != page
    call(triton, "control", "/control", {"fault": "hang", "seconds": 0.5})
    with pytest.raises((OSError, http.client.HTTPException)):
        call(triton, "metrics", "/metrics")
    call(triton, "control", "/control", {"fault": "errors", "value": 1.0, "model": "a"})
    assert call(triton, "api", "/v2/models/a/infer", {}) == (500, {"error": "the model failed (fault: errors)"})


@pytest.mark.parametrize(("body", "message"), [
    (b"{", "no JSON"),
    (b"[" * 100_000, "no JSON"),
    ({"clear": "kil"}, "'kil' is neither true nor one of kill, restart"),
    ({"clear": 0}, "0 is neither true"),
    ([], "no JSON object"),
    ({}, "nothing to do"),
    ({"falt": "kill"}, "unknown key 'falt'"),
    ({"fault": "kil", "seconds": 3}, "'kil' is none of kill, restart"),
    ({"fault": "kill"}, "for how many seconds"),
    ({"fault": "slow", "value": 0}, "give the factor"),
    ({"fault": "stall", "model": "c"}, "'c' is none of a, b"),
    ({"load": {"rate": -1}}, "rate -1 is no number"),
    ({"load": {"rate": 5, "shape": "flat"}}, "'flat' is none of steady"),
    ({"load": 5}, "load must be an object"),
])
def test_the_control_endpoint_refuses_in_one_line_and_changes_nothing(triton: Site, body: Any, message: str) -> None:
    status, answer = call(triton, "control", "/control", body)
    assert status == 400
    assert message in answer["error"]
    assert call(triton, "control", "/control")[1]["faults"] == []


def test_what_cannot_be_done_wholly_is_not_done_in_part(triton: Site) -> None:
    call(triton, "control", "/control", {"fault": "stall"})
    assert call(triton, "control", "/control", {"clear": True, "fault": "kil"})[0] == 400
    assert call(triton, "control", "/control", {"clear": True, "fault": "slow", "value": 0})[0] == 400
    assert [one["fault"] for one in call(triton, "control", "/control")[1]["faults"]] == ["stall"]


@pytest.mark.parametrize("header", ["Origin: null", "Origin: http://127.0.0.1:9901", "Sec-Fetch-Site: cross-site"])
def test_a_web_page_orders_no_incident(triton: Site, header: str) -> None:
    """What a browser sends for ``fetch(…, {method: "POST", mode: "no-cors"})`` from any page that is open in it."""
    connection = http.client.HTTPConnection("127.0.0.1", triton.ports["control"].number, timeout=10)
    name, _, value = header.partition(": ")
    connection.request("POST", "/control", b'{"fault": "stall"}', {name: value, "Content-Type": "text/plain"})
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())) == (403, {"error": "not from a web page; use curl"})
    connection.close()
    assert call(triton, "control", "/control")[1]["faults"] == []


def test_slow_and_stalled_models() -> None:
    for engine in ("triton", "vllm"):
        world = World(Spec(engine=engine, models=("a",), rate=10 if engine == "triton" else 3), 0.0)
        world.advance(30)
        world.set_fault("stall", seconds=10)
        before = world.state()["models"]["a"]  # type: ignore[index]
        world.advance(39)
        assert world.models["a"].running + world.state()["models"]["a"]["waiting"] > before["running"]  # type: ignore[index]
        world.advance(60)
        assert world.state()["faults"] == []
        running = world.models["a"].running
        world.set_fault("slow", value=100)
        world.advance(90)
        assert world.models["a"].running + world.state()["models"]["a"]["waiting"] > running  # type: ignore[index]


@pytest.mark.parametrize(("load", "at", "rate"), [
    (Load("steady", 5), 100, 5), (Load("burst", 2, 50, 100), 10, 2), (Load("burst", 2, 50, 100), 50, 50),
    (Load("ramp", 0, 10, 100), 50, 5), (Load("ramp", 0, 10, 100), 500, 10), (Load("diurnal", 2, 8, 100), 50, 8),
])
def test_shapes_of_load(load: Load, at: float, rate: float) -> None:
    assert load.ramp().rate(at) == pytest.approx(rate)


def test_the_generator_loads_it_and_tells_what_came_back(triton: Site) -> None:
    ended = threading.Event()
    generator = Generator(f"http://127.0.0.1:{triton.ports['api'].number}", "triton", (), rate=50, concurrency=16, seed=1)
    thread = threading.Thread(target=generator.run, args=(ended,))
    thread.start()
    eventually("answers", 20, lambda: generator.outcomes["200"] > 20)
    ended.set()
    thread.join()
    assert generator.models == ("a", "b")
    assert generator.take()[0].keys() == {"200"}


def test_vllm_answers_completions_on_the_port_of_its_metrics() -> None:
    port = 0
    with site_of(World(Spec(engine="vllm", models=("m",), rate=0), time.time()), port=port) as site:
        asked = {"model": "m", "prompt": "hello", "max_tokens": 3}
        status, answer = call(site, "api", "/v1/completions", asked)
        assert (status, answer["usage"]["completion_tokens"]) == (200, 3)
        assert call(site, "api", "/v1/models")[1]["data"][0]["id"] == "m"
        assert call(site, "api", "/version")[1] == {"version": "0.32.0"}
        assert call(site, "api", "/v1/completions", {**asked, "model": "n"})[0] == 404
        assert call(site, "api", "/v1/completions", {**asked, "max_tokens": 10**6})[0] == 400
        assert 'vllm:generation_tokens_total{engine="0",model_name="m"} 3.0' in call(site, "metrics", "/metrics")[1]


def test_a_recording_is_played_moved_to_now_with_its_gap_and_its_restart() -> None:
    player = Player(RECORDINGS / "triton-2.51-incident.tar.gz", 5000.0)
    first = player.page()
    assert not player.down
    gap = next(at for at, (one, two) in enumerate(zip(player.times, player.times[1:], strict=False)) if two - one > 20)
    player.advance(5000.0 + player.times[gap] - player.times[0] + 12)
    assert player.down, "the recorded server was killed"
    player.advance(5000.0 + player.length + 0.1)
    assert not player.down
    assert player.page() == first, "the loop begins as the recording did: a restart"
    once = Player(RECORDINGS / "triton-2.51-incident.tar.gz", 5000.0, loop=False)
    once.advance(5000.0 + once.length + 60)
    assert once.down


def test_times_that_a_recorded_page_tells_are_moved_too() -> None:
    player = Player(RECORDINGS / "vllm-0.32-incident.tar.gz", 3e9)
    line = next(line for line in player.page().splitlines() if line.startswith("process_start_time_seconds"))
    assert 3e9 - 3600 < float(line.rpartition(" ")[2]) < 3e9


def test_of_several_recorded_targets_one_is_chosen(tmp_path: Path) -> None:
    for name, value in (("a", 1), ("b", 2)):
        (tmp_path / name).mkdir()
        for at in (1_796_000_000_000, 1_796_000_005_000):
            (tmp_path / name / f"{at}.prom").write_text(f"m {value}\n")
    (tmp_path / "targets.yaml").write_text('{a: {job: j, instance: "a:1"}, b: {job: j, instance: "b:1"}}')
    assert Player(tmp_path, 0, target="b").page() == "m 2\n"
    with pytest.raises(InputError, match="choose one with --target: a, b"):
        Player(tmp_path, 0)
    with pytest.raises(InputError, match="no target 'x'; it has: a, b"):
        Player(tmp_path, 0, target="x")


@pytest.mark.parametrize(("arguments", "message"), [
    (["--engine", "tritn"], "'tritn' is none of triton"),
    (["--engine", "vllm", "--model", "a", "--model", "b"], "vLLM serves one model"),
    (["--recording", "nowhere"], "nowhere"),
    (["--once"], "are for a --recording"),
    (["--recording", str(RECORDINGS), "--model", "a"], "a recording tells its own"),
    (["load", "--report", "-1"], "--report -1 is no number"),
    (["--rate", "nan"], "rate nan is no number"),
    (["--metrics-config", "summary=true"], "is none of summary_latencies=true"),
    (["load", "--url", "https://x"], "is no http address"),
    (["--port", "70000"], "port 70000 is no port"),
])
def test_bad_arguments_are_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fake-engine", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_the_webhook_prints_a_line_for_each_alert() -> None:
    alert = {"status": "firing", "startsAt": "2026-11-30T15:00:00.123Z", "endsAt": "0001-01-01T00:00:00Z",
             "labels": {"alertname": "InferenceTargetDown", "instance": "i:1", "severity": "critical"},
             "annotations": {"summary": "a\nb"}}
    said: list[str] = []
    server = Webhook("127.0.0.1", 0, said.append)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        for body, status in ((json.dumps({"alerts": [alert]}).encode(), 200), (b"{}", 400), (b"nonsense", 400),
                             (b"[" * 100_000, 400)):
            connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
            connection.request("POST", "/", body)
            assert connection.getresponse().status == status
            connection.close()
    finally:
        server.shutdown()
        server.server_close()
    assert said == ['2026-11-30T15:00:00Z firing   InferenceTargetDown severity=critical instance=i:1 "a\\nb"']
    assert list(lines({"alerts": []})) == []
