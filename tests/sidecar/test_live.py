"""The whole sidecar on real sockets: good engines, bad engines, and what is served meanwhile."""

from __future__ import annotations

import argparse
import base64
import contextlib
import gzip
import http.client
import itertools
import json
import os
import random
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from obs.alerts.registry import all_groups
from obs.cli import sidecar
from obs.config import parse_config
from obs.engines.sidecar import ENGINE
from obs.errors import InputError
from obs.prom.server import PrivatePrometheus, free_port
from obs.render.prometheus import rule_files
from obs.sidecar import detect, scrape, webconfig
from obs.sidecar import sampler as sampler_module
from obs.sidecar import server as server_module
from obs.sidecar.reader import Reader
from obs.sidecar.readiness import STATUSES, Prober, known_vulnerabilities
from obs.sidecar.sampler import Sampler
from obs.sidecar.scrape import Fetcher, ScrapeFailed, Target
from obs.sidecar.server import SidecarServer
from obs.sidecar.settings import ModelSettings, Settings, read_models
from obs.sidecar.signals import Signals
from tests.waiting import eventually

from .engine import FakeEngine, drips, hangs, recording, respond, sends, vllm
from .engine import scrape as page

ROOT = Path(__file__).parents[2]


def fetcher(url: str, timeout: float = 0.5, limit: int = scrape.BODY_LIMIT, authorization: str = "") -> Fetcher:
    return Fetcher(Target(url, authorization), timeout=timeout, limit=limit)


def sampler(url: str, interval: float = 0.2, **settings: object) -> Sampler:
    settings.setdefault("models", {"*": ModelSettings(decode_capacity=1500)})
    given = Settings(interval=interval, **settings)  # type: ignore[arg-type]
    return Sampler(fetcher(url), Reader(detect.needed_names("auto")), Signals(given))


@contextlib.contextmanager
def serving(engine_url: str, interval: float = 0.2, web: webconfig.WebConfig | None = None,
            **settings: object) -> Iterator[SidecarServer]:
    settings.setdefault("stalled_samples", 10**6)  # most pages here stand still, and would be suspect after a while
    one = sampler(engine_url, interval, **settings)
    server = SidecarServer("127.0.0.1", 0, one, web)
    one.start()
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        one.stop()


def get(server: SidecarServer, path: str, headers: dict[str, str] | None = None, method: str = "GET",
        ) -> tuple[int, http.client.HTTPMessage, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    with contextlib.closing(connection):
        connection.request(method, path, headers=headers or {})
        response = connection.getresponse()
        return response.status, response.headers, response.read().decode()


def metric(server: SidecarServer, name: str) -> dict[str, float]:
    """Of each series of a family, its labels as served and its value."""
    found = re.findall(rf"^{name}(\{{.*\}})? (\S+)$", get(server, "/metrics")[2], re.MULTILINE)
    return {labels: float(value) for labels, value in found}


# --- fetching: every fault has its reason ----------------------------------------------------------------------


def failure(answer: object, **given: object) -> str:
    with FakeEngine(answer=answer) as engine:  # type: ignore[arg-type]
        one = Sampler(fetcher(engine.url, **given), Reader(detect.needed_names("auto")),  # type: ignore[arg-type]
                      Signals(Settings()))
        return one.sample()


HALF = page("vllm-0.32-light")[:20000]


@pytest.mark.parametrize(("reason", "answer"), [
    ("timeout", hangs),
    ("timeout", drips),
    ("network", sends(b"")),
    ("network", sends(b"what is this\r\n\r\n")),
    ("truncated", sends(respond(HALF, length=50000))),
    ("truncated", sends(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\nvllm:x 1\n")),
    ("truncated", sends(b"HTTP/1.0 200 OK\r\n\r\n" + HALF[: HALF.rindex(b"\n") - 5])),
    ("too_large", sends(respond(b"", length=100_000_000))),
    ("bad_encoding", sends(respond(b"x", headers="Content-Encoding: br\r\n"))),
    ("bad_encoding", sends(respond(b"not gzip", headers="Content-Encoding: gzip\r\n"))),
    ("truncated", sends(respond(gzip.compress(HALF)[:-10], headers="Content-Encoding: gzip\r\n"))),
    ("bad_encoding", sends(respond(gzip.compress(b"vllm:x 1\n") * 2, headers="Content-Encoding: gzip\r\n"))),
    ("http_status", sends(respond(b"no", status="500 Oh"))),
    ("redirect", sends(respond(b"", status="302 Found", headers="Location: http://192.0.2.1/metrics\r\n"))),
    ("redirect", sends(respond(b"", status="302 Found", headers="Location: https://127.0.0.1/metrics\r\n"))),
    ("redirect", sends(respond(b"", status="307 Found", headers="Location: /metrics\r\n"))),
    *(("redirect", sends(respond(b"", status="302 Found", headers=f"Location: {where}\r\n")))
      for where in ("http://[", "//[::1", "http://127.0.0.1:99999/", "http://127.0.0.1:1@127.0.0.1/", "file:///etc/passwd")),
    ("empty", sends(respond(b""))),
    ("html", sends(respond(b"<html><body>Login</body></html>"))),
    ("json", sends(respond(b"[]"))),
    ("garbled", sends(respond(random.Random(7).randbytes(2000)))),
])
def test_reasons(reason: str, answer: object) -> None:
    if reason != "timeout":  # a loaded machine must not turn another reason into this one
        assert failure(answer, timeout=20) == reason
        return
    begun = time.monotonic()
    assert failure(answer) == reason
    assert time.monotonic() - begun < 1.5


def test_endless_body_and_gzip_bomb_are_cut() -> None:
    def endless(connection: socket.socket, _: str) -> None:
        connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n")
        for _ in range(2000):
            connection.sendall(b"vllm:x 1\n" * 10000)

    assert failure(endless, timeout=5, limit=1_000_000) == "too_large"
    bomb = respond(gzip.compress(b"0" * 200_000_000, 9), headers="Content-Encoding: gzip\r\n")
    begun = time.monotonic()
    assert failure(sends(bomb), timeout=5) == "too_large"
    assert time.monotonic() - begun < 3


def test_refused_and_tls() -> None:
    port = free_port()
    for url, reason in ((f"http://127.0.0.1:{port}/metrics", "refused"),):
        with pytest.raises(ScrapeFailed) as failed:
            fetcher(url).fetch()
        assert failed.value.reason == reason
    with FakeEngine(b"x 1\n") as engine, pytest.raises(ScrapeFailed) as failed:
        fetcher(engine.url.replace("http:", "https:")).fetch()
    assert failed.value.reason in {"tls", "network", "timeout"}


def test_a_redirect_on_the_same_server_is_followed_and_gzip_read() -> None:
    def answer(connection: socket.socket, request: str) -> None:
        if request.startswith("GET /metrics/ "):
            connection.sendall(respond(gzip.compress(b"vllm:x 1\n"), headers="Content-Encoding: gzip\r\n"))
        else:
            connection.sendall(respond(b"", status="307 T", headers=f"Location: {engine.url}/\r\n"))

    with FakeEngine(answer=answer) as engine:
        assert fetcher(engine.url).fetch()[1].body == b"vllm:x 1\n"


def test_credentials_go_to_the_target_only_and_into_no_text(caplog: pytest.LogCaptureFixture) -> None:
    with FakeEngine(answer=sends(respond(b"", status="302 F", headers="Location: http://other.invalid/\r\n"))) as engine:
        target = Target(engine.url, "Bearer s3cret")
        with pytest.raises(ScrapeFailed) as failed:
            Fetcher(target, timeout=0.5).fetch()
        assert "Authorization: Bearer s3cret" in engine.requests[0]
    assert "s3cret" not in repr(target) + str(failed.value) + caplog.text


@pytest.mark.parametrize("url", ["ftp://h/", "file:///etc/passwd", "http://u:p@h/", "http://h:99999/", "nonsense",
                                 "http://h/a b", "http:/u:p@h/", "x:u:p@h", "//u:p@h/", "http://[::1", "http://u:p@[::1/",
                                 "http://h:u:p@", "http://h/?u:p#u:p ", "u:p@x://h"])
def test_bad_urls_are_refused_and_their_credentials_not_shown(url: str) -> None:
    with pytest.raises(InputError) as bad:
        fetcher(url)
    assert "u:p" not in str(bad.value)
    assert "u:p" not in scrape.shown(url)


@pytest.mark.parametrize("seed", range(3))
def test_garbage_after_any_status_line_has_a_reason(seed: int) -> None:
    source = random.Random(seed)
    heads = (b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n",
             b"HTTP/1.1 200 OK\r\nContent-Length: ", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
             b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n",
             b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n", b"HTTP/1.1 302 F\r\nLocation: ")
    for _ in range(12):
        tail = bytes(source.choices(b"0123456789abcdef\r\n:; -{}\"=vllm_", k=source.randint(0, 600)))
        garbage = source.choice(heads) + source.choice((source.randbytes(source.randint(0, 2000)), tail))
        assert failure(sends(garbage), timeout=0.3) in scrape.REASONS, garbage


# --- replay at speed -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("speed", "seconds"), [(25.0, 151), (1.0, 11)], ids=["25 x", "as recorded"])
def test_replay_of_the_saturated_phase_through_http(speed: float, seconds: int) -> None:
    """A faster replay scales rates with the speed, ratios not."""
    phase = [(at, body) for at, body in recording("vllm-0.32-incident") if 1796023816 <= at < 1796023816 + seconds]
    with FakeEngine(phase[0][1]) as engine:
        one = Sampler(fetcher(engine.url), Reader(detect.needed_names("auto")),
                      Signals(Settings(interval=0.2, window=60.0)))
        start, usage, tokens, taken = time.monotonic(), [], [], []
        for at, body in phase:
            engine.body = body
            time.sleep(max(0.0, start + (at - phase[0][0]) / speed - time.monotonic()))
            taken.append(time.monotonic())
            assert one.sample() == "ok"
            usage.append(float(re.search(rb"^vllm:kv_cache_usage_perc\S* (\S+)$", body, re.M)[1]))  # type: ignore[index]
            tokens.append(float(re.search(rb"^vllm:generation_tokens_total\S* (\S+)$", body, re.M)[1]))  # type: ignore[index]
        model = one.snapshot().models[0]
    assert model.counters["llm_generation_tokens_total"] == tokens[-1] - tokens[0]
    rate = model.signals["llm_decode_throughput_tokens_per_second"].value
    assert rate is not None
    speed = (phase[-1][0] - phase[0][0]) / (taken[-1] - taken[0])  # a loaded machine plays it more slowly than asked
    assert rate / speed == pytest.approx((tokens[-1] - tokens[0]) / (phase[-1][0] - phase[0][0]), rel=0.02)
    if seconds == 151:  # the whole phase: the figure of the recordings' README
        assert tokens[-1] - tokens[0] == 281_058 - 105_176
        assert rate / speed == pytest.approx(1172.5, rel=0.02)
    assert model.signals["llm_kv_cache_usage_ratio"].value == pytest.approx(sum(usage) / len(usage))


def test_replay_of_triton_s_overload_through_http() -> None:
    """Fifty times faster: pending requests are the page's, the queue time is a quotient of counters and has no clock."""
    def doubler(body: bytes, name: str) -> float:
        return float(re.search(rf'^nv_inference_{name}{{model="doubler"\S* (\S+)$'.encode(), body, re.M)[1])  # type: ignore[index]

    phase = [(at, body) for at, body in recording("triton-2.51-incident") if 1796023120 < at < 1796023260]
    with FakeEngine(phase[0][1]) as engine:
        one = Sampler(fetcher(engine.url), Reader(detect.needed_names("auto")), Signals(Settings(interval=0.2)))
        assert one.sample() == "ok"
        for (_, before), (_, body) in itertools.pairwise(phase):
            engine.body = body
            time.sleep(0.1)
            assert one.sample() == "ok"
            found = next(model for model in one.snapshot().models if model.name == "doubler").signals
            assert found["triton_model_pending_requests"].value == doubler(body, "pending_request_count")
            waited, answered = (doubler(body, name) - doubler(before, name) for name in
                                ("queue_duration_us", "request_success"))
            assert found["triton_model_queue_time_mean_seconds"].value == pytest.approx(waited / answered / 1e6)


def test_samples_keep_their_plan_with_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is up to 5 % of an interval early or late, and that never adds up."""
    now = [0.0]
    waits: list[float] = []

    class Stop:
        def is_set(self) -> bool:
            return len(waits) >= 200

        def wait(self, seconds: float) -> None:
            waits.append(seconds)
            now[0] += seconds

    monkeypatch.setattr(sampler_module, "time", argparse.Namespace(monotonic=lambda: now[0], perf_counter=time.perf_counter))
    taken: list[float] = []
    one = Sampler(fetcher("http://127.0.0.1:1/"), Reader(()), Signals(Settings(interval=2.0)), rng=random.Random(3))
    monkeypatch.setattr(one, "sample", lambda: taken.append(now[0]))
    monkeypatch.setattr(one, "_stop", Stop())
    one._sample_loop()
    late = [at - 2.0 * number for number, at in enumerate(taken)]
    assert len(taken) == 200
    assert all(abs(one) <= 0.1 + 1e-9 for one in late)
    assert max(late) > 0.05
    assert min(late) < -0.05


def test_change_is_visible_within_an_interval() -> None:
    with FakeEngine(vllm(waiting=0).encode()) as engine, serving(engine.url, 0.2, max_age=10.0) as server:
        eventually("served", 5, lambda: metric(server, "llm_requests_waiting"))
        took = []
        for number in range(1, 8):
            engine.body = vllm(waiting=number, generation=1000 + number).encode()
            begun = time.monotonic()
            while server.sampler.snapshot().models[0].signals["llm_requests_waiting"].value != number:
                assert time.monotonic() - begun < 5
                time.sleep(0.002)
            took.append(time.monotonic() - begun)
        # the median, for a busy machine delays any one sample
        assert sorted(took)[3] < 0.2 * 1.05 + 0.05


# --- an engine's life ------------------------------------------------------------------------------------------


def test_killed_and_restarted() -> None:
    tokens = itertools.count(90_000, 100)

    def body() -> bytes:
        return vllm(generation=next(tokens)).encode()

    def moving(connection: socket.socket, _: str) -> None:
        connection.sendall(respond(body()))

    with FakeEngine(answer=moving) as engine, serving(engine.url) as server:
        eventually("up", 3, lambda: metric(server, "llm_scaling_load_ratio"))
        assert get(server, "/readyz")[0] == 200
        assert metric(server, "llm_engine_up") == {'{engine="vllm"}': 1}
        before = metric(server, "llm_generation_tokens_total")
        engine.close()
        eventually("down", 3, lambda: 0.0 in metric(server, "llm_engine_up").values())
        assert metric(server, "llm_engine_up") == {'{engine="vllm",reason="refused"}': 0}
        assert get(server, "/readyz")[::2] == (503, "refused\n")
        assert get(server, "/healthz")[0] == 200
        text = get(server, "/metrics")[2]
        assert not re.search(r"^llm_(scaling|kv|requests|decode_throughput|pod)", text, re.MULTILINE)
        assert metric(server, "llm_generation_tokens_total").keys() == before.keys()
        tokens = itertools.count(10, 100)
        with FakeEngine(answer=moving, port=engine.port):
            eventually("up again", 3, lambda: metric(server, "llm_scaling_load_ratio"))
            eventually("restart seen", 2,
                       lambda: metric(server, "llm_engine_restarts_total") == {'{engine="vllm"}': 1})
            after = metric(server, "llm_generation_tokens_total")
            assert all(after[key] >= before[key] for key in before)
            rates = metric(server, "llm_decode_throughput_tokens_per_second").values()
            assert all(0 <= rate < 5000 for rate in rates)


@pytest.mark.parametrize(("reason", "answer"), [
    ("timeout", hangs), ("garbled", sends(respond(b"\x00\x01\n"))), ("truncated", sends(respond(HALF, length=50000))),
    ("unknown_engine", sends(respond(b"node_load1 1\n"))), ("empty", sends(respond(b""))),
])
def test_fault_withdraws_the_signals_and_is_counted(reason: str, answer: object) -> None:
    with FakeEngine(vllm().encode()) as engine, serving(engine.url) as server:
        eventually("up", 3, lambda: metric(server, "llm_kv_cache_usage_ratio"))
        engine.answer = answer  # type: ignore[assignment]
        down = {f'{{engine="vllm",reason="{reason}"}}': 0}
        eventually("down", 4, lambda: metric(server, "llm_engine_up") == down)
        assert metric(server, "llm_kv_cache_usage_ratio") == {}
        assert metric(server, "llm_sidecar_scrapes_total")[f'{{outcome="{reason}"}}'] >= 1


def test_nothing_of_a_half_page_is_published() -> None:
    """The half that came says 0.9; it must not be seen."""
    with FakeEngine(vllm(kv=0.5).encode()) as engine, serving(engine.url) as server:
        eventually("up", 3, lambda: metric(server, "llm_kv_cache_usage_ratio"))
        engine.answer = sends(respond(vllm(kv=0.9).encode(), length=5000))
        for _ in range(20):
            assert set(metric(server, "llm_kv_cache_usage_ratio").values()) <= {0.5}
            time.sleep(0.05)


def test_samples_never_overlap() -> None:
    running = threading.Lock()
    overlaps = []

    def slow(connection: socket.socket, _: str) -> None:
        if not running.acquire(blocking=False):
            overlaps.append(1)
            return
        time.sleep(0.45)
        running.release()
        connection.sendall(respond(vllm().encode()))

    with FakeEngine(answer=slow) as engine, serving(engine.url) as server:
        eventually("three samples", 5, lambda: server.sampler.snapshot().outcomes["ok"] >= 3)
        assert not overlaps
        assert metric(server, "llm_sidecar_skipped_scrapes_total")[""] >= 2


def test_wall_clock_jump_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeEngine(vllm().encode()) as engine, serving(engine.url) as server:
        eventually("up", 3, lambda: metric(server, "llm_kv_cache_usage_ratio"))
        monkeypatch.setattr(time, "time", lambda: 0.0)
        time.sleep(0.5)
        assert metric(server, "llm_kv_cache_usage_ratio")
        assert metric(server, "llm_engine_restarts_total") == {'{engine="vllm"}': 0}


# --- serving ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def served() -> Iterator[SidecarServer]:
    with FakeEngine(page("vllm-0.32-kv-saturated")) as engine, serving(engine.url, max_age=10.0) as server:
        eventually("up", 3, lambda: metric(server, "llm_scaling_load_ratio"))
        yield server


@pytest.mark.parametrize(("accept", "content_type", "parse"), [
    ("", "text/plain; version=0.0.4; charset=utf-8", text_string_to_metric_families),
    ("*/*", "text/plain; version=0.0.4; charset=utf-8", text_string_to_metric_families),
    ("application/openmetrics-text;version=1.0.0;q=0.9,*/*;q=0.1", "application/openmetrics-text; version=1.0.0",
     openmetrics),
])
def test_negotiation(served: SidecarServer, accept: str, content_type: str, parse: object) -> None:
    status, headers, text = get(served, "/metrics", {"Accept": accept} if accept else {})
    assert status == 200
    assert headers["Content-Type"].startswith(content_type)
    names = {sample.name for family in parse(text) for sample in family.samples}  # type: ignore[operator]
    assert "llm_scaling_load_ratio" in names
    assert not [name for name in names if name.startswith(("python_", "process_"))]


def test_served_names_are_declared_with_their_help(served: SidecarServer) -> None:
    text = get(served, "/metrics")[2]
    declared = {one.name: one for one in ENGINE.metrics}
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    helps = dict(re.findall(r"^# HELP (\S+) (.+)$", text, re.MULTILINE))
    assert types.keys() <= declared.keys()
    for name, kind in types.items():
        assert kind == ("counter" if declared[name].kind == "counter" else "gauge"), name
        assert helps[name] == declared[name].help
    lines = [line.rsplit(" ", 1)[0] for line in text.splitlines() if line and line[0] != "#"]
    assert len(lines) == len(set(lines))


def test_promtool_finds_nothing(served: SidecarServer) -> None:
    result = subprocess.run(["promtool", "check", "metrics"], input=get(served, "/metrics")[2], text=True,
                            capture_output=True, check=False, timeout=20)
    assert (result.returncode, result.stdout + result.stderr) == (0, "")


def gjson(document: object, path: str) -> object:
    """KEDA's valueLocation, as far as plain keys go."""
    for key in path.split("."):
        assert isinstance(document, dict)
        document = document[key]
    return document


def test_signals_json_for_keda(served: SidecarServer) -> None:
    status, headers, text = get(served, "/signals")
    assert (status, headers["Content-Type"]) == (200, "application/json")
    found = json.loads(text, parse_constant=lambda name: pytest.fail(name))
    manifest = (ROOT / "exporters" / "sidecar" / "keda-metrics-api.yaml").read_text()
    path = re.search(r"valueLocation: (\S+)", manifest)[1].strip('"')  # type: ignore[index]
    assert gjson(found, path) == pytest.approx(0.992, abs=0.001)
    assert gjson(found, "models.tiny.llm_requests_waiting") == 30
    assert found["models"]["tiny"]["sources"]["llm_kv_cache_usage_ratio"] == "engine"
    assert found["models"]["tiny"]["withheld"]["llm_request_slots"] == "no_capacity"


def test_signals_json_of_a_dead_engine_has_no_value() -> None:
    """KEDA fails on a missing path, and then holds or falls back; a 0 would scale in."""
    with serving(f"http://127.0.0.1:{free_port()}/metrics") as server:
        eventually("tried", 3, lambda: server.sampler.snapshot().reason == "refused")
        found = json.loads(get(server, "/signals")[2])
        assert (found["up"], found["pod"], found["models"]) == (False, {}, {})
        assert metric(server, "llm_engine_up") == {'{engine="unknown",reason="refused"}': 0}
        assert get(server, "/readyz")[0] == 503


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"])
def test_get_only(served: SidecarServer, method: str) -> None:
    status, headers, _ = get(served, "/metrics", method=method)
    assert (status, headers["Allow"]) == (405, "GET")


def test_unknown_path_and_bad_method(served: SidecarServer) -> None:
    assert get(served, "/etc/passwd")[0] == get(served, "/metrics/../x")[0] == 404
    assert get(served, "/metrics", method="BREW")[0] == 501


def test_many_and_idle_connections_do_not_stop_it(served: SidecarServer) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(socket.create_connection(("127.0.0.1", served.port), timeout=5))
        assert get(served, "/metrics")[0] == 200


def closed_by_server(link: socket.socket, seconds: float) -> float:
    """Seconds until the server ends the connection; what it says before is read."""
    begun = time.monotonic()
    link.settimeout(seconds)
    with contextlib.suppress(ConnectionError):
        while link.recv(65536):
            pass
    return time.monotonic() - begun


def test_a_client_that_drips_its_request_is_cut_off(served: SidecarServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then does not keep a connection: the whole head has one deadline."""
    monkeypatch.setattr(server_module, "REQUEST_SECONDS", 0.5)
    with socket.create_connection(("127.0.0.1", served.port), timeout=5) as link:
        ended = threading.Event()

        def drip() -> None:
            with contextlib.suppress(OSError):
                link.sendall(b"GET /metrics HTTP/1.1\r\n")
                while not ended.is_set():
                    link.sendall(b"X")
                    time.sleep(0.05)

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        assert closed_by_server(link, 5) < 4
        ended.set()
        thread.join(5)
    assert get(served, "/healthz")[0] == 200


def test_a_head_of_many_kilobytes_is_cut_off(served: SidecarServer) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=5) as link:
        with contextlib.suppress(ConnectionError):
            link.sendall(b"GET /metrics HTTP/1.1\r\n" + b"".join(b"X-%d: %s\r\n" % (n, b"y" * 8000) for n in range(90)))
        assert closed_by_server(link, 5) < 4


def test_idle_connections_give_way(served: SidecarServer) -> None:
    """More of them than there are places, and Prometheus is still served."""
    with contextlib.ExitStack() as stack:
        for _ in range(3 * server_module.CONNECTIONS):
            stack.enter_context(socket.create_connection(("127.0.0.1", served.port), timeout=5))
        begun = time.monotonic()
        assert get(served, "/metrics")[0] == 200
        assert time.monotonic() - begun < 4
    eventually("all places free", 5, lambda: len(served.waiting) == 0)


def test_a_request_with_a_body_ends_the_connection(served: SidecarServer) -> None:
    """The body is not read: were the connection kept, it would be taken for the next request."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=5) as link:
        link.sendall(b"GET /healthz HTTP/1.1\r\nContent-Length: 40\r\n\r\nGET /signals HTTP/1.1\r\nHost: smuggled\r\n\r\n")
        found = b""
        with contextlib.suppress(ConnectionError):
            while chunk := link.recv(65536):
                found += chunk
    assert found.count(b"HTTP/1.1 ") == 1
    assert b"llm_" not in found


def test_many_at_once(served: SidecarServer) -> None:
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(get(served, "/metrics")[0])) for _ in range(48)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert found == [200] * 48


def test_garbage_from_clients_is_answered_or_dropped(served: SidecarServer) -> None:
    source = random.Random(7)
    for start in (b"", b"GET ", b"GET /metrics HTTP/9.9\r\n", b"GET /metrics HTTP/1.1\r\nAccept: ",
                  b"GET /metrics HTTP/1.1\r\nAuthorization: Basic ", b"GET //x HTTP/1.1\r\nHost: a\r\nHost: b\r\n"):
        for _ in range(5):
            with socket.create_connection(("127.0.0.1", served.port), timeout=5) as link, \
                    contextlib.suppress(ConnectionError):
                link.sendall(start + source.randbytes(200) + b"\r\n\r\n")
                link.shutdown(socket.SHUT_WR)
                closed_by_server(link, 5)
    status, headers, text = get(served, "/metrics", {"Accept": "application/openmetrics-text;version=;q=x,;,a/b;c"})
    assert status == 200
    assert "llm_scaling_load_ratio" in text
    # nothing of a request comes back in a header of the answer
    status, headers, _ = get(served, "/metrics%0d%0aX-Evil:%201?a%0d%0ab")
    assert status == 404
    assert "X-Evil" not in headers


def test_two_headers_in_an_authorization_file_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    for text in ("Bearer s3cret\nX-Evil: 1", "Bearer s3cret\x0bx", "", "Bearer s3crét"):
        file.write_text(text)
        with pytest.raises(InputError) as bad:
            sidecar.authorization(str(file))
        assert "s3cr" not in str(bad.value)


def basic(name: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


def test_basic_auth(tmp_path: Path) -> None:
    file = tmp_path / "web.json"
    file.write_text(json.dumps({"basic_auth_users": {"prom": webconfig.hash_password("pässword", iterations=2000)}}))
    with FakeEngine(vllm().encode()) as engine, serving(engine.url, web=webconfig.read(file)) as server:
        assert get(server, "/metrics")[0] == get(server, "/signals")[0] == 401
        assert get(server, "/metrics", basic("prom", "wrong"))[0] == 401
        assert get(server, "/metrics", basic("other", "pässword"))[0] == 401
        assert get(server, "/metrics", {"Authorization": "Basic ???"})[0] == 401
        assert get(server, "/metrics", basic("prom", "pässword"))[0] == 200
        assert get(server, "/metrics", basic("prom", "pässword"))[0] == 200
        assert get(server, "/healthz")[0] == 200


def test_guesses_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webconfig, "GUESS_SECONDS", 0.2)
    users = webconfig.Users({"prom": webconfig.hash_password("right", iterations=2000)})
    assert users.allow(basic("prom", "right")["Authorization"])
    begun = time.monotonic()
    threads = [threading.Thread(target=users.allow, args=(basic("prom", str(guess))["Authorization"],)) for guess in range(4)]
    for thread in threads:
        thread.start()
    assert users.allow(basic("prom", "right")["Authorization"])  # who is known does not wait
    for thread in threads:
        thread.join(10)
    assert time.monotonic() - begun >= 4 * 0.2


def test_tls(tmp_path: Path) -> None:
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                    "-keyout", tmp_path / "key.pem", "-out", tmp_path / "cert.pem", "-days", "1", "-subj",
                    "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
                   check=True, capture_output=True)
    file = tmp_path / "web.json"
    file.write_text(json.dumps({"tls_server_config": {"cert_file": "cert.pem", "key_file": "key.pem"}}))
    with FakeEngine(vllm().encode()) as engine, serving(engine.url, web=webconfig.read(file)) as server:
        context = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
        with contextlib.closing(http.client.HTTPSConnection("127.0.0.1", server.port, context=context)) as link:
            link.request("GET", "/healthz")
            assert link.getresponse().status == 200
        # one that says nothing must not keep others out
        with socket.create_connection(("127.0.0.1", server.port)), \
                contextlib.closing(http.client.HTTPSConnection("127.0.0.1", server.port, context=context)) as link:
            link.request("GET", "/healthz")
            assert link.getresponse().status == 200
        # and a sidecar's own fetcher can read it
        target = Target(f"https://localhost:{server.port}/healthz", ca_file=str(tmp_path / "cert.pem"))
        assert Fetcher(target, timeout=2).fetch()[1].body == b"ok\n"
        with pytest.raises(ScrapeFailed) as failed:
            fetcher(f"https://localhost:{server.port}/healthz").fetch()
        assert failed.value.reason == "tls"


@pytest.mark.parametrize(("content", "complaint"), [
    ("tls_server_config: {}", "JSON"),
    ('{"basic_auth_users": {"a": "$2y$10$abcdefghijklmnopqrstuv"}}', "pbkdf2"),
    ('{"tls_server_config": {"cert_file": "c"}}', "key_file"),
    ('{"tls_server_config": {"cert_file": "c", "key_file": "k"}}', "cannot be used"),
    ('{"users": {}}', "unknown key 'users'"),
    ('[]', "object"),
])
def test_bad_web_config(tmp_path: Path, content: str, complaint: str) -> None:
    (tmp_path / "web.json").write_text(content)
    with pytest.raises(InputError, match=re.escape(complaint)) as bad:
        webconfig.read(tmp_path / "web.json")
    assert "abcdefghij" not in str(bad.value)


def test_models_file(tmp_path: Path) -> None:
    file = tmp_path / "models.json"
    file.write_text('{"*": {"slots": 32}, "a": {"decode_capacity": 890, "decode_capacity_source": "profile"}}')
    settings = Settings(models=read_models(file))
    assert (settings.model("a").decode_capacity, settings.model("a").slots) == (890, 32)
    assert settings.model("b").decode_capacity is None
    for bad in ('{"a": {"slots": 0}}', '{"a": {"slotz": 1}}', '{"a": 1}', "[]", "{"):
        file.write_text(bad)
        with pytest.raises(InputError):
            read_models(file)


# --- the command -----------------------------------------------------------------------------------------------

COMMAND = [sys.executable, "-c", "import sys; from obs.cli import sidecar; sys.exit(sidecar.main())"]


def command(*words: str, env: dict[str, str] | None = None, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *words], capture_output=True, text=True, check=False, timeout=30, cwd=ROOT,
                          input=text, env={**os.environ, **(env or {})})


@pytest.mark.parametrize("port", [8000, 8001, 8002])
def test_triton_s_ports_are_refused(port: int) -> None:
    result = command("--listen-port", str(port))
    assert result.returncode == 2
    assert f"port {port} is Triton's" in result.stderr
    assert "--listen-port" in result.stderr


def test_bind_failure_names_port_and_flag() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = command("--listen-address", "127.0.0.1", "--listen-port", str(port))
    assert result.returncode == 2
    assert f"port {port}" in result.stderr
    assert "--listen-port" in result.stderr


def test_once() -> None:
    with FakeEngine(page("vllm-0.32-kv-saturated")) as engine:
        words = ("--once", "--url", engine.url, "--interval", "0.2", "--probe", "none")
        table = command(*words)
        assert table.returncode == 0, table.stderr
        assert re.search(r"llm_requests_waiting +30 +engine", table.stdout)
        assert re.search(r"llm_scaling_decode_demand_ratio +- +no_capacity", table.stdout)
        found = json.loads(command(*words, "--format", "json").stdout)
        assert found["models"]["tiny"]["llm_kv_cache_usage_ratio"] == pytest.approx(0.992, abs=0.001)
    dead = command(*words)
    assert dead.returncode == 3
    assert "down (refused)" in dead.stdout


def test_environment_mirrors_flags() -> None:
    with FakeEngine(vllm().encode()) as engine:
        env = {"OBS_SIDECAR_URL": engine.url, "OBS_SIDECAR_INTERVAL": "0.2", "OBS_SIDECAR_PROBE": "none",
               "OBS_SIDECAR_DECODE_CAPACITY": "77"}
        result = command("--once", "--format", "json", env=env)
        assert json.loads(result.stdout)["engine"] == "vllm"
        assert command("--once", "--engine", "sglang", env=env).returncode == 3
    bad = command("--once", env={"OBS_SIDECAR_INTERVAL": "often"})
    assert bad.returncode == 2
    assert "OBS_SIDECAR_INTERVAL" in bad.stderr
    names = set(re.findall(r"OBS_SIDECAR_[A-Z_]+", re.sub(r"\s+", "", command("--help").stdout)))
    assert len(names) >= 24


@pytest.mark.parametrize("words", [
    ("--interval", "0.1"), ("--interval", "61"), ("--url", "ftp://x/"), ("--engine", "vlm"), ("--max-age", "0.5"),
    ("--decode-capacity", "-1"), ("--authorization-file", "/nonexistent"), ("--models-file", "/nonexistent"),
    ("--web-config", "/nonexistent"), ("--timeout", "-1"), ("--listen-port", "70000"), ("--stalled-samples", "0"),
], ids=" ".join)
def test_arguments_are_checked(words: tuple[str, str]) -> None:
    parser = argparse.ArgumentParser()
    sidecar.add_arguments(parser)
    with pytest.raises(InputError):
        sidecar.run(parser.parse_args(["--listen-port", "0", "--listen-address", "127.0.0.1", *words]))


def test_hash_password() -> None:
    result = command("--hash-password", text="secret\n")
    assert webconfig.Users({"u": result.stdout.strip()}).allow(basic("u", "secret")["Authorization"])
    assert "secret" not in result.stdout


def test_sigterm_ends_it_gracefully_without_writing(tmp_path: Path) -> None:
    """As a container would run it: no writable working directory, no bytecode."""
    port = free_port()
    with FakeEngine(vllm().encode()) as engine:
        process = subprocess.Popen(
            [*COMMAND, "--url", engine.url, "--interval", "0.2", "--listen-address", "127.0.0.1", "--listen-port",
             str(port), "--probe", "none"],
            stderr=subprocess.PIPE, text=True, cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"})
        try:
            def ready() -> bool:
                with contextlib.suppress(OSError):
                    return Fetcher(Target(f"http://127.0.0.1:{port}/readyz"), timeout=1).fetch(any_status=True)[0] == 200
                return False

            def ready_or_not_yet() -> bool:
                with contextlib.suppress(ScrapeFailed):
                    return ready()
                return False

            eventually("ready", 10, ready_or_not_yet)
            process.send_signal(signal.SIGTERM)
            assert process.wait(5) == 0
        finally:
            process.kill()
            log = process.stderr.read() if process.stderr else ""
    assert "ending" in log
    assert list(tmp_path.iterdir()) == []


def test_imports_only_what_the_bare_install_has() -> None:
    code = ("import sys; from obs.cli import sidecar; import obs.sidecar.server, obs.sidecar.detect;"
            "print(sorted({name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names)))")
    found = subprocess.run([sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}; {code}"],
                           capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert set(re.findall(r"'(\w+)'", found)) <= {"obs", "prometheus_client", "_distutils_hack", "pytest", "__main__"}
    heavy = {"yaml", "requests", "pydantic", "grafanalib"}
    assert not heavy & set(re.findall(r"'(\w+)'", found))


# --- readiness -------------------------------------------------------------------------------------------------


def test_vllm_health_and_version() -> None:
    state = {"health": "200 OK"}

    def answer(connection: socket.socket, request: str) -> None:
        if request.startswith("GET /version"):
            connection.sendall(respond(b'{"version": "0.32.0"}'))
        else:
            connection.sendall(respond(b"", status=state["health"]))

    with FakeEngine(answer=answer) as engine:
        prober = Prober(fetcher(engine.url.removesuffix("metrics")), "openai")
        found = prober.probe()
        assert (found.ready, found.version) == (True, "0.32.0")
        state["health"] = "503 No"
        assert prober.probe().ready is False
        engine.close()
        assert [prober.probe().ready for _ in range(3)] == [None, None, False]
        # one that was never there, or has no such page, is not known
        assert [Prober(fetcher(engine.url), "openai").probe().ready for _ in range(4)] == [None] * 4
    with FakeEngine(answer=sends(respond(b"", status="404 Not Found"))) as engine:
        never = Prober(fetcher(engine.url), "openai")
        assert [never.probe().ready for _ in range(4)] == [None] * 4


@pytest.mark.parametrize(("version", "status"), [
    ("2.51.0", "affected"), ("2.69.0", "affected"), ("2.69.1", "affected"), ("2.69.0dev", "affected"), ("1.15.0", "affected"),
    ("2.70.0", ""), ("2.70", ""), ("2.71.0", ""), ("2.71.0dev", ""), ("3.0", ""),
    # between the two releases, or not to be read: not known, and that is not "safe"
    ("2.70.0dev", "unknown"), ("2.70.0-rc1", "unknown"), ("", "unknown"), ("dev", "unknown"),
])
def test_vulnerability_table(version: str, status: str) -> None:
    found = known_vulnerabilities("triton", version)
    assert [(one.hole.id, one.status) for one in found] == ([("CVE-2026-47627", status)] if status else [])
    assert all(one.hole.source for one in found)
    assert known_vulnerabilities("openai", version) == ()


def test_vulnerability_statuses_are_the_catalogue_s() -> None:
    assert ENGINE.metric("llm_engine_vulnerable_info").values["status"] == STATUSES


# --- Prometheus scrapes it -------------------------------------------------------------------------------------


@pytest.mark.prometheus
def test_prometheus_sees_signals_come_and_go(tmp_path: Path) -> None:
    """In a real Prometheus a withheld signal is gone at the next scrape, not five minutes later; the pack's rules use it."""
    pack = parse_config("engines: [sidecar]\ninterval: {scrape: 1s, evaluation: 1s}\nwindows: {rate: 10s}\n")
    rules = []
    for name, text in rule_files(all_groups(pack), pack).items():
        rules.append(tmp_path / name)
        rules[-1].write_text(text)
    with FakeEngine(page("vllm-0.32-kv-saturated")) as engine, serving(engine.url, max_age=3.0) as server:
        config = {"job_name": "sidecar", "static_configs": [{"targets": [f"127.0.0.1:{server.port}"]}]}
        with PrivatePrometheus(
            rule_files=rules, scrape_configs=[config], scrape_interval="1s", evaluation_interval="1s"
        ) as watched:
            def value(promql: str) -> float | None:
                found = watched.client.query(promql)
                return found[0].value if found else None

            eventually("scraped", 20, lambda: value("llm_scaling_load_ratio"))
            assert value("llm_scaling_load_ratio") == pytest.approx(0.992, abs=0.001)
            assert value("up") == 1
            eventually("recorded", 20, lambda: value('model:requests_waiting:sum{model="tiny"}') == 30)
            assert value('model:kv_cache_usage:max{model="tiny"}') == pytest.approx(0.992, abs=0.001)
            assert value('llm_signal_available{signal="llm_requests_waiting"}') == 1
            engine.close()
            begun = time.monotonic()
            eventually("gone", 20, lambda: value("llm_scaling_load_ratio") is None)
            assert time.monotonic() - begun < 15  # the look-back is 300 s
            eventually("down", 5, lambda: value('llm_engine_up{reason="refused"}') == 0)
            eventually("unavailable", 5, lambda: value('llm_signal_available{signal="llm_requests_waiting"}') == 0)


def triton_vllm(at: float) -> bytes:
    """Triton's vLLM backend at work since ``at`` seconds: its eight families, 20 requests in decode, 30 waiting."""
    tokens, labels = int(1000 * at), 'model="llama",version="1"'
    done = tokens // 100
    answers = "".join(f'vllm:request_generation_tokens_bucket{{{labels},le="{le}"}} {done if le >= 100 else 0}\n'
                      for le in (50, 100, 200))
    return (
        f"nv_inference_request_success{{{labels}}} {done + (50 if at > 0 else 0)}\n"
        f"vllm:generation_tokens_total{{{labels}}} {tokens}\nvllm:prompt_tokens_total{{{labels}}} {3 * tokens}\n"
        f"vllm:time_to_first_token_seconds_count{{{labels}}} {done + (20 if at > 0 else 0)}\n"
        f"vllm:time_to_first_token_seconds_sum{{{labels}}} {done}\n"
        f"vllm:time_per_output_token_seconds_count{{{labels}}} {tokens}\n"
        f"vllm:time_per_output_token_seconds_sum{{{labels}}} {tokens * 0.02}\n"
        f"vllm:e2e_request_latency_seconds_count{{{labels}}} {done}\n"
        f"vllm:e2e_request_latency_seconds_sum{{{labels}}} {done * 2}\n"
        f"vllm:request_prompt_tokens_count{{{labels}}} {done}\nvllm:request_prompt_tokens_sum{{{labels}}} {done * 300}\n"
        f"vllm:request_generation_tokens_count{{{labels}}} {done}\n"
        f'vllm:request_generation_tokens_sum{{{labels}}} {done * 100}\n{answers}'
        f'vllm:request_generation_tokens_bucket{{{labels},le="+Inf"}} {done}\n'
    ).encode()


@pytest.mark.prometheus
def test_the_pack_s_rules_on_engines_and_their_sidecars(tmp_path: Path) -> None:
    """Prometheus scrapes a vLLM (its recording, replayed), a Triton with vLLM, and a sidecar beside each: one alert each."""
    pack = parse_config(
        "engines: [triton, triton-vllm, vllm, sidecar]\ninterval: {scrape: 1s, evaluation: 1s}\n"
        "windows: {rate: 5s, growth: 10s}\nalerts: {'*': {for: 1s, keep_firing_for: 0s}}\n")
    rules = []
    for name, text in rule_files(all_groups(pack), pack).items():
        rules.append(tmp_path / name)
        rules[-1].write_text(text)
    # The saturated phase, five times faster than life, and then its last page.
    phase = [body for at, body in recording("vllm-0.32-incident") if 1796023836 <= at < 1796023967]
    begun = time.monotonic()

    def native(connection: socket.socket, _: str) -> None:
        connection.sendall(respond(phase[min(int(time.monotonic() - begun), len(phase) - 1)]))

    def hiding(connection: socket.socket, _: str) -> None:
        connection.sendall(respond(triton_vllm(max(0.0, time.monotonic() - begun - 1.5))))

    with FakeEngine(answer=native) as vllm_engine, FakeEngine(answer=hiding) as triton, contextlib.ExitStack() as stack:
        mine = stack.enter_context(serving(vllm_engine.url, 0.5, max_age=5.0))
        # of 7,200 tokens 20 x (300 + about 50) are held
        beside = stack.enter_context(
            serving(triton.url, 0.5, max_age=5.0, models={"*": ModelSettings(kv_capacity_tokens=7200)}))
        targets = {"vllm": (vllm_engine.port, mine.port), "triton": (triton.port, beside.port)}
        configs = [
            {"job_name": f"{pod}-{number}", "static_configs": [{"targets": [f"127.0.0.1:{port}"], "labels": {
                "namespace": "llm", "pod": pod}}]}
            for pod, ports in targets.items() for number, port in enumerate(ports)
        ]
        with PrivatePrometheus(
            rule_files=rules, scrape_configs=configs, scrape_interval="1s", evaluation_interval="1s"
        ) as watched:
            def found(promql: str) -> list[dict[str, str]]:
                return [dict(one.labels) for one in watched.client.query(promql)]

            firing = 'ALERTS{alertname="LLMKVCacheSaturated",alertstate="firing"}'
            eventually("both fire", 60, lambda: len({one["model"] for one in found(firing)}) == 2, 0.25)
            told = {one["model"]: one for one in found(firing)}
            assert len(found(firing)) == 2
            assert (told["tiny"]["engine"], told["tiny"].get("source", "")) == ("vllm", "")
            assert (told["llama"]["engine"], told["llama"]["source"]) == ("sidecar", "estimate")
            for series in ("kv_cache_usage:max", "requests_waiting:sum", "requests_running:sum", "generation_tokens:rate"):
                assert sorted(one["model"] for one in found(f"model:{series}")) == ["llama", "tiny"], series
            assert {one["engine"] for one in found("model:generation_tokens:rate")} == {"vllm", "triton-vllm"}
            assert watched.client.query('llm_scaling_load_ratio{model_name="llama"}')[0].value == pytest.approx(0.97, abs=0.04)
            assert not found('ALERTS{alertname=~"InferenceEngineDown|LLMEngineStalled|InferenceSidecarStale|LLMStatsStuck"}')
            triton.close()
            eventually("no sidecar, no estimate", 30, lambda: not found('model:kv_cache_usage:max{model="llama"}'), 0.25)
            eventually("told once", 30, lambda: [one["alertname"] for one in found(
                'ALERTS{alertstate="firing",alertname=~"InferenceTargetDown|InferenceEngineDown",pod="triton"}')]
                == ["InferenceTargetDown"], 0.25)
