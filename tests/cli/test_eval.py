"""`obs eval` as a user meets it: exit codes, text, JSON, bad input. Stub servers stand for faults only."""

from __future__ import annotations

import argparse
import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from obs.cli import eval as command
from obs.evaluate import live
from obs.prom.remote_write import Point, make_labels
from obs.prom.server import PrivatePrometheus, free_port
from tests.stubserver import StubServer

RECORDINGS = Path(__file__).parent.parent / "data" / "recordings"
TRITON = RECORDINGS / "triton-2.51-incident.tar.gz"
T0 = 1_796_022_960
RULES = """groups:
- name: g
  rules:
  - {alert: High, expr: x > 5, labels: {severity: warning}}
  - {alert: Slow, expr: x > 5, for: 10m}
  - {alert: Quiet, expr: x > 50}
  - {alert: Lost, expr: y > 50}
  - {alert: Never, expr: "vllm:num_requests_running > 5"}
"""


def obs_eval(*words: str) -> int:
    parser = argparse.ArgumentParser("obs eval")
    command.add_arguments(parser)
    return command.run(parser.parse_args([*map(str, words)]))


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("PROMETHEUS_URL", "OBS_PROMETHEUS_TOKEN", "OBS_PROMETHEUS_PASSWORD"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def rules(tmp_path: Path) -> str:
    (tmp_path / "rules.yaml").write_text(RULES)
    return str(tmp_path / "rules.yaml")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with PrivatePrometheus() as server:
        points = []
        for at in range(0, 301, 15):
            for name in ("x", "up"):
                labels = make_labels([("__name__", name), ("job", "j"), ("instance", "a")])
                points.append(Point((T0 + at) * 1000, labels, 9.0 if name == "x" else 1.0))
        server.writer.write(points)
        yield server.url


@contextmanager
def stub(status: int, body: str, **headers: str) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        do_POST = do_GET

        def log_message(self, *unused: object) -> None: ...

    server = StubServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.prometheus
def test_a_limit_that_is_passed_and_held_back_is_not_told_as_if_it_was_not(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "held.yaml"
    file.write_text("groups: [{name: g, rules: [{alert: Held, expr: 'x > 5 unless x'}]}]")
    obs_eval("--prometheus", url, "--rules", str(file), "--at", str(T0 + 300))
    assert '  Held  9 > 5  {instance="a", job="j"}, but held back by: unless x' in capsys.readouterr().out.splitlines()


@pytest.mark.prometheus
def test_text_by_state(url: str, rules: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = obs_eval("--prometheus", url, "--rules", rules, "--at", str(T0 + 300))
    out = capsys.readouterr().out
    assert code == 1
    assert "\x1b" not in out  # no terminal, no colour
    assert out.splitlines() == [
        "OK (1)",
        '  Quiet  9 not > 50  {instance="a", job="j"}',
        "",
        "DEAD (1)",
        "  Never  metric never existed: vllm:num_requests_running: this server has nothing of vLLM",
        "",
        "NO DATA (1)",
        "  Lost   metric never existed: y never existed here in 30d",
        "",
        "PENDING (1)",
        '  Slow   pending since 2026-11-30T07:16:00Z (5m)  9 > 5  {instance="a", job="j"}',
        "",
        "FIRING (1)",
        '  High   since 2026-11-30T07:16:00Z (5m)  9 > 5  {instance="a", job="j"}',
        "",
        f"{url} at 2026-11-30T07:21:00Z: 5 alerts: 1 firing, 1 pending, 1 no data, 1 dead, 1 ok",
    ]


@pytest.mark.prometheus
def test_exit_codes(url: str, rules: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ("--prometheus", url, "--rules", rules, "--at", str(T0 + 300))
    assert obs_eval(*common, "--alert", "High") == 1
    assert obs_eval(*common, "--alert", "Quiet", "--alert", "Slow", "--strict") == 0
    assert obs_eval(*common, "--alert", "Lost") == 0
    assert obs_eval(*common, "--alert", "Lost", "--strict") == 4
    assert obs_eval(*common, "--alert", "Never", "--strict") == 4
    assert obs_eval(*common, "--strict") == 1  # firing says more
    many = '{__name__=~"x|up"}'
    (tmp_path / "bad.yaml").write_text(
        f"groups: [{{name: g, rules: [{{alert: M, expr: 'x * on () group_left () {many}'}}]}}]"
    )
    assert obs_eval("--prometheus", url, "--rules", str(tmp_path / "bad.yaml"), "--at", str(T0 + 300)) == 2
    assert "ERROR (1)" in capsys.readouterr().out


@pytest.mark.prometheus
def test_json_and_only_and_verbose(url: str, rules: str, capsys: pytest.CaptureFixture[str]) -> None:
    common = ("--prometheus", url, "--rules", rules, "--at", "2026-11-30T07:21:00Z")
    assert obs_eval(*common, "--format", "json", "--only", "firing") == 1
    document = json.loads(capsys.readouterr().out)
    assert document["counts"] == {"firing": 1, "pending": 1, "error": 0, "no data": 1, "dead": 1, "ok": 1}
    (alert,) = document["alerts"]
    assert (alert["alert"], alert["value"], alert["op"], alert["threshold"]) == ("High", 9, ">", 5)
    assert alert["instances"][0]["since"] == "2026-11-30T07:16:00Z"
    obs_eval(*common, "--verbose", "--only", "ok")
    out = capsys.readouterr().out
    assert 'x is 9 at {instance="a", job="j"}, not > 50' in out
    assert "decides (left side): x > 50" in out or "decides: x > 50" in out
    assert "FIRING" not in out.replace("1 firing", "")


@pytest.mark.prometheus
def test_the_pack_on_a_recording(capsys: pytest.CaptureFixture[str]) -> None:
    config = str(RECORDINGS / "triton.obs.yaml")
    assert obs_eval("--recording", str(TRITON), "--config", config, "--at", "1796023200", "--only", "firing") == 1
    out = capsys.readouterr().out
    assert "FIRING (5)" in out
    assert "InferenceQueueTimeHigh" in out
    vllm = str(RECORDINGS / "vllm-0.32-incident.tar.gz")
    config = str(RECORDINGS / "vllm.obs.yaml")
    assert obs_eval("--recording", vllm, "--config", config, "--at", "+35s", "--format", "json", "--only", "firing") == 1
    assert [one["alert"] for one in json.loads(capsys.readouterr().out)["alerts"]] == ["InferenceTargetDown"]


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert obs_eval(*words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""  # nothing half-written
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("obs: ")
    return captured.err


@pytest.mark.parametrize(
    ("status", "body", "headers", "says"),
    [
        (503, "later", {}, "answered 503 with no Prometheus JSON: 'later'"),
        (302, "", {"Location": "https://login/?next=x"}, "redirects to https://login/ (a login page?)"),
        (200, "<html>Sign in</html>", {}, "a web page"),
        (401, "no org id", {}, "--header X-Scope-OrgID:TENANT"),
        (200, "", {}, "is that a Prometheus?"),
        (200, '{"status":"success","data":{"resultType":"scalar","result":[1,', {}, "is that a Prometheus?"),
    ],
)
def test_servers_that_cannot_be_used(
    rules: str, capsys: pytest.CaptureFixture[str], status: int, body: str, headers: dict[str, str], says: str
) -> None:
    with stub(status, body, **headers) as url:
        assert says in refused(capsys, "--prometheus", url, "--rules", rules, "--retries", "0")


def test_no_server_and_no_answer(rules: str, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    assert "cannot be reached" in refused(capsys, "--prometheus", url, "--rules", rules, "--retries", "1")
    import socket

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert "no whole answer within 0.3 s" in refused(capsys, "--prometheus", url, "--rules", rules, "--timeout", "300ms")


@pytest.mark.prometheus
def test_an_empty_history_or_wrong_tenant(rules: str, capsys: pytest.CaptureFixture[str]) -> None:
    with PrivatePrometheus() as empty:
        assert "holds no series in the last 30d" in refused(capsys, "--prometheus", empty.url, "--rules", rules)


def test_wrong_arguments(rules: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here = ("--prometheus", "http://127.0.0.1:1", "--rules", rules)
    assert "nothing to judge" in refused(capsys, "--rules", rules)
    assert "both given" in refused(capsys, *here, "--recording", str(TRITON))
    assert "did you mean 'High'" in refused(capsys, *here, "--alert", "Hihg")
    assert "is no time" in refused(capsys, *here, "--at", "noon")
    assert "'30' is not a duration" in refused(capsys, *here, "--deadline", "30")
    assert "no NAME:VALUE" in refused(capsys, *here, "--header", "X-Scope-OrgID")
    assert "--password-file without --user" in refused(capsys, *here, "--password-file", rules)
    assert "the X-Key header file cannot be read" in refused(capsys, *here, "--header", "X-Key:@none")
    assert "no such CA file" in refused(capsys, *here, "--ca-file", "none")
    assert "names no file" in refused(capsys, "--prometheus", "http://x", "--rules", str(tmp_path / "none.yaml"))


@pytest.mark.prometheus
def test_rules_with_a_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "r.yaml"
    for body, says in (
        ("groups: [{name: g, rules: [{alert: A, expr: 'x >'}]}]", "unexpected end of input"),
        ("groups: [{name: g, rules: [{alert: A, expr: x, fro: 5m}]}]", "fro"),
        ("groups: [", "is not valid YAML"),
        ("groups: [{name: g, rules: [{record: a, expr: x}]}]", "no alerting rule"),
    ):
        file.write_text(body)
        assert says in refused(capsys, "--prometheus", "http://127.0.0.1:1", "--rules", str(file))


@pytest.mark.prometheus
def test_recordings_that_cannot_be_used(tmp_path: Path, rules: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cut.tar.gz").write_bytes(TRITON.read_bytes()[: TRITON.stat().st_size // 2])
    assert "is cut off" in refused(capsys, "--recording", str(tmp_path / "cut.tar.gz"), "--rules", rules)
    assert "No such file" in refused(capsys, "--recording", str(tmp_path / "none"), "--rules", rules)
    shutil.copy(rules, tmp_path / "text.om")
    assert "not a metric line" in refused(capsys, "--recording", str(tmp_path / "text.om"), "--rules", rules)
    said = refused(capsys, "--recording", str(TRITON), "--rules", rules, "--at", "1700000000")
    assert "is before its first sample (2026-11-30T07:16:02Z)" in said


def test_secrets_are_never_shown(
    rules: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "secret").write_text("s3cret")
    monkeypatch.setenv("OBS_PROMETHEUS_TOKEN", "s3cret")
    monkeypatch.setenv("OBS_PROMETHEUS_PASSWORD", "s3cret")
    with stub(500, "you sent s3cret") as url:
        for more in (
            (), ("--user", "me"), ("--token-file", "secret"), ("--user", "me", "--password-file", "secret"),
            ("--header", "X-Api-Key:@secret"),
        ):
            assert "s3cret" not in refused(capsys, "--prometheus", url, "--rules", rules, "--retries", "0", *more)
        said = refused(capsys, "--prometheus", url.replace("//", "//me:s3cret@"), "--rules", rules, "--retries", "0")
        assert "s3cret" not in said


def test_a_bug_of_ours_is_3(rules: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(*unused: object, **unused_too: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(live, "evaluate", broken)
    assert obs_eval("--prometheus", "http://127.0.0.1:1", "--rules", rules) == 3
    assert "a bug of obs: ZeroDivisionError: oops" in capsys.readouterr().err


def test_tool_errors_are_2(rules: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PROMETHEUS", "/nowhere/prometheus")
    assert "is not an executable file" in refused(capsys, "--recording", str(TRITON), "--rules", rules)
