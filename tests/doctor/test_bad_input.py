"""What goes wrong on the way to a server or a file: one clear line, the right exit code, never a traceback."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from obs.cli.main import main

from .stub import as_json, closed_port, saying, serving, text, triton

GRPC = b"\x00\x00\x18\x04\x00\x00\x00\x00\x00\x00\x04\x00\x3f\xff\xff\x00\x05\x00\x3f\xff\xff\x00\x06\x00\x00\x20\x00"
"""What a gRPC server says to whoever connects: an HTTP/2 SETTINGS frame."""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)  # no obs.yaml of the repository
    monkeypatch.delenv("PROMETHEUS_URL", raising=False)
    return tmp_path


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate, and is not installed")
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-keyout", "k.pem", "-out", "c.pem", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"],
        cwd=folder, check=True, capture_output=True,
    )
    both = folder / "both.pem"
    both.write_text((folder / "k.pem").read_text() + (folder / "c.pem").read_text())
    return both


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Exit code and all that was printed on one line of blanks; no traceback in it."""
    code = main(["doctor", *words])
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    return code, " ".join((out + err).split())


# --- servers that cannot be looked at ------------------------------------------------------------------


def test_nobody_listens(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = told(capsys, "--triton", closed_port(), "--metrics", closed_port() + "/metrics")
    assert code == 3
    assert "/v2: connection refused; start the server, or correct the port" in said
    assert "PARTIAL" in said
    assert "healthy" not in said


def test_no_such_host(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = told(capsys, "--metrics", "http://no-such-host.invalid:8002/metrics")
    assert (code, "its host name cannot be resolved" in said) == (3, True)


def test_the_grpc_port_for_http(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with saying(GRPC) as url:
        code, said = told(capsys, "--triton", url, "--metrics", closed_port())
    assert code == 3
    assert "does not speak HTTP/1.1 (a gRPC port?)" in said


def test_the_http_port_for_metrics(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    routes = triton()
    del routes["/metrics"]
    with serving(routes) as url:
        code, said = told(capsys, "--triton", url, "--metrics", f"{url}/metrics")
    assert code == 1  # the server is there, and its metrics are not where they were said to be: a finding
    assert "HTTP 404 (Triton's HTTP port?); give the metrics page, such as http://host:8002/metrics" in said
    assert "[metrics-page]" in said
    assert "PARTIAL" in said


def test_the_metrics_port_for_http(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Triton's metrics port answers 200 with an empty body to any other path (seen on 2.51)."""
    with serving({"/metrics": triton()["/metrics"]}, default=text("")) as url:
        code, said = told(capsys, "--triton", url, "--metrics", f"{url}/metrics")
    assert code == 3
    assert "no Triton answers here, but nothing (HTTP 200, no body); is this the metrics port (8002)?" in said


def test_metrics_without_their_path(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving({"/metrics": triton()["/metrics"]}, default=text("")) as url:
        code, said = told(capsys, "--metrics", url)
    assert (code, "HTTP 200 with no metrics in it; the page is /metrics" in said) == (3, True)


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        ((200, "text/html", "<!doctype html><title>Sign in</title>"), "a web page (HTML)"),
        (as_json({"hello": "world"}), "JSON of another program"),
        (as_json([]), "JSON of another program"),
        (text("pong"), "text that is neither JSON nor metrics"),
        (as_json({"name": "openvino", "version": "1"}), "JSON of another program"),
    ],
)
def test_another_program(here: Path, capsys: pytest.CaptureFixture[str], answer: tuple[int, str, str], what: str) -> None:
    with serving({}, default=answer) as url:
        code, said = told(capsys, "--triton", url, "--metrics", closed_port())
        assert code == 3
        assert f"no Triton answers here, but {what}; give Triton's HTTP port (8000)" in said
        code, said = told(capsys, "--vllm", url)
        assert (code, "no vLLM answers here" in said) == (3, True)


def test_a_page_that_is_no_metrics_page(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving({"/html": (200, "text/html", "<html>"), "/json": as_json([{"iter": 9}]), "/cut": text("a 1\nb 2")}) as url:
        assert "a web page (HTML) instead of metrics" in told(capsys, "--metrics", f"{url}/html")[1]
        assert "JSON of another program instead of metrics" in told(capsys, "--metrics", f"{url}/json")[1]
        code, said = told(capsys, "--metrics", f"{url}/cut")
    assert (code, "/cut:2: the last line has no line feed" in said) == (3, True)


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal(here: Path, capsys: pytest.CaptureFixture[str], status: int) -> None:
    with serving({}, default=text("no", status)) as url:
        code, said = told(capsys, "--triton", url, "--metrics", f"{url}/metrics")
    assert code == 3
    assert f"/v2 refuses us (HTTP {status}); give the Authorization header's value with --authorization-file FILE" in said


def test_a_part_that_is_restricted_is_partial(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As with Triton's --http-restricted-api: the rest is looked at, and the report says so."""
    with serving({**triton(), "/v2/repository/index": text("no", 403)}) as url:
        code, said = told(capsys, "--triton", url, "--metrics", f"{url}/metrics")
    assert code == 3
    assert "partial Triton 2.71.0" in said
    assert "/v2/repository/index refuses us (HTTP 403)" in said
    assert "PARTIAL: Triton not wholly looked at" in said


def test_tls(here: Path, capsys: pytest.CaptureFixture[str], certificate: Path) -> None:
    with serving(triton(), pem=certificate) as url:
        code, said = told(capsys, "--triton", url, "--metrics", f"{url}/metrics")
        assert code == 3
        assert "its certificate is not trusted here (self-signed, or of an authority that we do not know)" in said
        assert "--ca-file PEM" in said
        code, said = told(capsys, "--triton", url, "--metrics", f"{url}/metrics", "--ca-file", str(certificate))
        assert (code, "healthy" in said) == (0, True)
        code, said = told(capsys, "--triton", url.replace("https", "http"), "--metrics", closed_port())
        assert code == 3
    with serving(triton()) as url:
        code, said = told(capsys, "--triton", url.replace("http", "https"), "--metrics", closed_port())
    assert (code, "it does not speak TLS" in said) == (3, True)


def test_authorization(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret = here / "header"
    secret.write_text("Bearer s3cret\n")
    with serving(triton()) as url:
        code, said = told(capsys, "--triton", url, "--metrics", f"{url}/metrics", "--authorization-file", str(secret))
    assert code == 0
    assert "s3cret" not in said


def test_a_hanging_server_costs_the_timeout(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with saying(b"") as url:
        code, said = told(capsys, "--triton", url, "--metrics", closed_port(), "--timeout", "300ms")
    assert (code, "no complete answer within 0.3 s" in said) == (3, True)


def test_prometheus_that_is_none(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving({}, default=(200, "text/html", "<html>login")) as url:
        code, said = told(capsys, "--prometheus", url)
        assert (code, "is that a Prometheus?" in said) == (3, True)
    code, said = told(capsys, "--prometheus", closed_port())
    assert (code, "cannot be reached" in said) == (3, True)


def test_a_server_without_a_part_of_the_api(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Thanos and Mimir tell neither targets nor configuration: that is no failure. An error of theirs is one."""
    vector = as_json({"status": "success", "data": {"resultType": "vector", "result": []}})
    routes = {"/api/v1/query": vector, "/api/v1/rules": as_json({"status": "success", "data": {"groups": []}}),
              "/api/v1/status/buildinfo": as_json({"status": "success", "data": {"version": "0.37", "revision": "x"}})}
    with serving(routes, default=text("404 page not found\n", 404)) as url:
        said = told(capsys, "--prometheus", url)[1]
        assert "does not tell its targets and configuration" in said
        assert "targets: http" not in said
    with serving({**routes, "/api/v1/targets": text("oops", 500)}, default=text("404 page not found\n", 404)) as url:
        assert "answered 500 with" in told(capsys, "--prometheus", url)[1]


def test_one_of_two_is_marked_and_never_healthy(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(triton()) as url:
        code = main(["doctor", "--triton", url, "--metrics", f"{url}/metrics", "--vllm", closed_port(), "--format", "json"])
    found = json.loads(capsys.readouterr().out)
    assert code == 3
    assert found["complete"] is False
    assert {one["name"]: one["state"] for one in found["sources"]} == {"Triton": "ok", "metrics": "ok", "vLLM": "failed"}
    assert not [one for one in found["findings"] if one["severity"] != "info"]


# --- arguments and files -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "nothing to look at; give --triton URL"),
        (["--triton", "localhost:8000"], "is no http(s) URL; write it like http://127.0.0.1:8000/metrics"),
        (["--triton", "http://127.0.0.1:http"], "is no http(s) URL"),
        (["--metrics", "http://me:pw@127.0.0.1/"], "must not hold credentials"),
        (["--model-repository", "nowhere"], "nowhere: is no folder; give the folder that Triton gets as --model-repository"),
        (["--model-repository", "file"], "file: is no folder"),
        (["--model-repository", "empty"], "empty: holds no model folder"),
        (["--model-repository", "one"], "one: is a model's folder, not a repository"),
        (["--backend-directory", "empty"], "--backend-directory without --model-repository"),
        (["--model-repository", "empty", "--backend-directory", "nowhere"], "nowhere: is no folder"),
        (["--recording", "nowhere"], "nowhere"),
        (["--recording", "empty"], "empty"),
        (["--triton-args", "'open"], "--triton-args: No closing quotation"),
        (["--triton-args", "tritonserver"], "--triton-args holds no --flag"),
        (["--metrics", "https://127.0.0.1", "--ca-file", "nowhere"], "nowhere: cannot be used as CA file"),
        (["--explain", "vulnerabel"], "no such check; did you mean vulnerable?"),
        (["--metrics", "http://127.0.0.1:1", "--ignore", "nothing-like-it"], "no such check; see obs doctor --list"),
        (["--metrics", "http://127.0.0.1:1", "--timeout", "soon"], "--timeout"),
    ],
)
def test_wrong_input(here: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    (here / "empty").mkdir()
    (here / "file").write_text("")
    (here / "one").mkdir()
    (here / "one" / "config.pbtxt").write_text("")
    (here / "one" / "1").mkdir()
    if "--triton-args" in words:
        words = [*words, "--triton", "http://127.0.0.1:1"]
    code, all_said = told(capsys, *words)
    assert code == 2
    assert said in all_said
    assert len(all_said) < 300


def test_config_pbtxt_that_cannot_be_read(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A finding with line and column; the other models are looked at all the same."""
    for name, config in {
        "broken": 'name: "broken"\nbackend: "python"\nmax_batch_sise: 8\n',
        "open": 'name: "open"\ninstance_group [ { count: 2 }\n',
        "bytes": b'name: "bytes"\nbackend: "\xff"\n',
        "template": 'name: "template"\nmax_batch_size: ${triton_max_batch_size}\n',
        "good": 'name: "good"\nbackend: "python"\n',
    }.items():
        (here / "models" / name / "1").mkdir(parents=True)
        (here / "models" / name / "1" / "model.py").write_text("")
        (here / "models" / name / "config.pbtxt").write_bytes(config if isinstance(config, bytes) else config.encode())
    code = main(["doctor", "--model-repository", str(here / "models"), "--format", "json"])
    found = json.loads(capsys.readouterr().out)
    assert code == 1
    ours = [one for one in found["findings"] if one["id"] == "config-readable"]
    broken = {one["place"].rpartition("/models/")[2]: one["what"] for one in ours}
    assert broken["broken/config.pbtxt:3:1"].endswith('has no field named "max_batch_sise". Did you mean max_batch_size?')
    assert "bytes/config.pbtxt:2:11" in broken
    assert [place for place in broken if place.startswith("open/config.pbtxt:")]
    assert "a template that was not filled in" in broken["template/config.pbtxt:2:17"]
    assert len(broken) == 4


def test_without_tritonclient(here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tritonclient.grpc", None)
    monkeypatch.setitem(sys.modules, "tritonclient", None)
    (here / "models" / "a").mkdir(parents=True)
    (here / "models" / "a" / "config.pbtxt").write_text("")
    code, said = told(capsys, "--model-repository", "models")
    assert code == 3
    assert "pip install 'obs-inference[doctor]'" in said


# --- Ctrl-C --------------------------------------------------------------------------------------------


@pytest.fixture
def slow() -> Iterator[tuple[str, threading.Event]]:
    """A vLLM that never answers, and an event that says when it was asked."""
    asked, done = threading.Event(), threading.Event()

    def hold(_: str) -> None:
        asked.set()
        done.wait(120)

    with serving({}, before=hold) as url:
        yield url, asked
        done.set()


def test_ctrl_c_reports_what_there_is(here: Path, slow: tuple[str, threading.Event]) -> None:
    url, asked = slow
    looked = threading.Event()
    with serving(triton(), before=lambda path: looked.set() if path == "/metrics" else None) as good:
        process = subprocess.Popen(
            [sys.executable, "-m", "obs", "doctor", "--metrics", f"{good}/metrics", "--vllm", url,
             "--timeout", "100s", "--deadline", "100s"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=here,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )
        assert asked.wait(60)
        assert looked.wait(60)
        # its answer is on the way: what decides is that the report comes without waiting for the other
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)  # far less than the 100 s that the other would take
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "not looked at: interrupted" in out
    assert "PARTIAL: interrupted" in out
    assert "healthy" not in out


# --- answers of another shape --------------------------------------------------------------------------

STRANGE: tuple[Any, ...] = (None, True, -1, 1e400, "", "x", [], {}, [{}], {"name": []}, "999999999999999999999")
FULL = {
    "name": "m", "backend": "vllm", "max_batch_size": 4, "dynamic_batching": {"max_queue_delay_microseconds": 5},
    "instance_group": [
        {"kind": "KIND_GPU", "count": 2, "gpus": [0], "rate_limiter": {"resources": [{"name": "R", "count": 3}]}}
    ],
    "parameters": {"a": {"string_value": "b"}}, "version_policy": {"specific": {"versions": [1]}},
    "response_cache": {"enable": True},
}


def _garbled(value: Any, chance: random.Random) -> Any:
    if chance.random() < 0.15:
        return chance.choice(STRANGE)
    if isinstance(value, dict):
        return {key: _garbled(one, chance) for key, one in value.items()}
    return [_garbled(one, chance) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("seed", range(8))
def test_answers_of_another_shape(here: Path, capsys: pytest.CaptureFixture[str], seed: int) -> None:
    """Whatever JSON comes, it ends in a report or in one line."""
    chance = random.Random(seed)
    prometheus = {
        "/api/v1/query": {"status": "success", "data": {"resultType": "vector", "result": [
            {"metric": {"__name__": "nv_inference_count", "job": "j", "instance": "i"}, "value": [1, "1"]}]}},
        "/api/v1/targets": {"status": "success", "data": {"activeTargets": [
            {"labels": {"job": "j", "instance": "i"}, "scrapeUrl": "http://i/", "scrapePool": "j", "health": "up"}]}},
        "/api/v1/status/config": {"status": "success", "data": {"yaml": "scrape_configs: [{job_name: j, honor_labels: true}]"}},
        "/api/v1/rules": {"status": "success", "data": {"groups": [{"name": "g", "file": "f", "interval": 30, "rules": [
            {"name": "r", "type": "recording", "query": "rate(nv_inference_count[5m])", "health": "err", "lastError": "x"}]}]}},
    }
    routes = triton(models={"m": FULL}, counted={"m": 1}) | {path: as_json(one) for path, one in prometheus.items()}
    for path, (status, kind, body) in routes.items():
        if kind == "application/json":
            routes[path] = status, kind, json.dumps(_garbled(json.loads(body), chance))
    with serving(routes) as url:
        code, said = told(capsys, "--triton", url, "--metrics", f"{url}/metrics", "--prometheus", url, "-v")
    assert code in {1, 3}
    assert "Triton" in said
