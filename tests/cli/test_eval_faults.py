"""`obs eval` when the connection or the input is at fault: always one clear line, its exit code, nothing half-written.

In front of a real Prometheus stands a guard: a proxy that asks for credentials, breaks off, delays or changes answers. What
the issue lists, and where it is held:

    form POST of a 9 kB expression        test_a_long_expression
    bearer, basic, headers, base path     test_credentials_reach_the_server
    client certificate and CA             test_our_certificate_and_the_servers
    certificates always checked           tests/prom/test_client.py
    secrets never printed                 test_wrong_credentials_show_no_secret, tests/cli/test_eval.py
    total deadline                        test_one_deadline_for_all
    partial response, style hints         test_partial_answers
    server down, hanging, 503, redirect, HTML instead of JSON, at the first question: tests/cli/test_eval.py;
    in the middle of the work             test_a_server_that_breaks_in_the_middle
    wrong tenant, empty history           test_tenants, tests/cli/test_eval.py
    too many samples                      test_too_many_samples
    clock skew                            test_clock_skew
    rules with a syntax error             tests/cli/test_eval.py
    recordings out of order, duplicated, truncated, mixed: test_recordings
"""

from __future__ import annotations

import argparse
import json
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from obs.cli import eval as command
from obs.cli import main
from obs.prom.remote_write import Point, make_labels
from obs.prom.server import PrivatePrometheus
from tests.stubserver import StubServer

T0 = 1_796_022_960
AT = ("--at", str(T0 + 300))
RULES = """groups:
- name: g
  rules:
  - {alert: High, expr: x > 5}
  - {alert: Quiet, expr: x > 50}
"""
pytestmark = pytest.mark.prometheus


def obs_eval(*words: object) -> int:
    parser = argparse.ArgumentParser("obs eval")
    command.add_arguments(parser)
    return command.run(parser.parse_args([*map(str, words)]))


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rules.yaml").write_text(RULES)
    for name in ("PROMETHEUS_URL", "OBS_PROMETHEUS_TOKEN", "OBS_PROMETHEUS_PASSWORD"):
        monkeypatch.delenv(name, raising=False)


def points(series: int = 1) -> list[Point]:
    return [
        Point((T0 + at) * 1000, make_labels([("__name__", name), ("job", "j"), ("instance", "a"), ("n", str(n))]), value)
        for at in range(0, 301, 15)
        for name, value in (("x", 9.0), ("up", 1.0))
        for n in range(series)
    ]


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    with PrivatePrometheus() as server:
        server.writer.write(points())
        yield server.url


Allow = Callable[[BaseHTTPRequestHandler], bool]
Change = Callable[[str, dict[str, Any]], None]


@contextmanager
def guard(
    upstream: str, allow: Allow | None = None, *, change: Change | None = None, base: str = "", wait: float = 0.0,
    tls: ssl.SSLContext | None = None,
) -> Iterator[str]:
    """A proxy: ``allow`` answers the request itself and says False to refuse it, ``change`` edits an answer's JSON."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            time.sleep(wait)
            if allow is not None and not allow(self):
                return
            assert self.path.startswith(base)
            request = urllib.request.Request(f"{upstream}{self.path[len(base):]}", data=body or None)
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    status, text = answer.status, answer.read()
            except urllib.error.HTTPError as error:
                status, text = error.code, error.read()
            if change is not None:
                document = json.loads(text)
                change(body.decode(), document)
                text = json.dumps(document).encode()
            send(self, status, text)

        do_POST = do_GET

        def log_message(self, *unused: object) -> None: ...

    server = StubServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http{'s' if tls else ''}://127.0.0.1:{server.server_port}{base}"
    finally:
        server.shutdown()
        server.server_close()


def send(handler: BaseHTTPRequestHandler, status: int, body: bytes, **headers: str) -> bool:
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)
    return False


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert obs_eval(*words, "--rules", "rules.yaml", "--retries", "0") == 2
    captured = capsys.readouterr()
    assert captured.out == ""  # nothing half-written
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("obs: ")
    return captured.err


def test_a_long_expression(upstream: str, tmp_path: Path) -> None:
    expr = " or ".join([f'x{{n="{number:05}"}} > 5' for number in range(1, 600)] + ["x > 5"])
    assert len(expr) > 9000
    (tmp_path / "rules.yaml").write_text(json.dumps({"groups": [{"name": "g", "rules": [{"alert": "Long", "expr": expr}]}]}))
    asked: list[str] = []

    def allow(handler: BaseHTTPRequestHandler) -> bool:
        asked.append(f"{handler.command} {handler.path}")
        return True

    with guard(upstream, allow) as url:
        assert obs_eval("--prometheus", url, "--rules", "rules.yaml", *AT) == 1
    assert len(asked) < 20  # it was once taken apart into hundreds of questions, which took minutes
    assert not [one for one in asked if "/query" in one and not one.startswith("POST")]


CREDENTIALS = [
    (("--token-file", "token"), "Authorization", "Bearer s3cret"),
    (("--user", "me", "--password-file", "password"), "Authorization", "Basic bWU6czNjcmV0"),
    (("--header", "X-Scope-OrgID:team-a"), "X-Scope-OrgID", "team-a"),
    (("--header", "X-Api-Key:@password"), "X-Api-Key", "s3cret"),
]


@pytest.mark.parametrize(("words", "name", "value"), CREDENTIALS)
def test_credentials_reach_the_server(
    upstream: str, tmp_path: Path, words: tuple[str, ...], name: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every request has them, the library's too."""
    for file in ("token", "password"):
        (tmp_path / file).write_text("s3cret\n")

    def allow(handler: BaseHTTPRequestHandler) -> bool:
        return handler.headers.get(name) == value or send(handler, 401, b"no")

    with guard(upstream, allow, base="/prometheus") as url:
        assert obs_eval("--prometheus", url, *words, "--rules", "rules.yaml", *AT) == 1
        capsys.readouterr()
        assert "refuses us (401)" in refused(capsys, "--prometheus", url, *AT)


def test_wrong_credentials_show_no_secret(upstream: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for file in ("token", "password"):
        (tmp_path / file).write_text("s3cret\n")

    def echo(handler: BaseHTTPRequestHandler) -> bool:
        return send(handler, 403, " ".join(f"{name}={value}" for name, value in handler.headers.items()).encode())

    with guard(upstream, echo) as url:
        for words, _, value in CREDENTIALS:
            said = refused(capsys, "--prometheus", url, *words, *AT)
            assert "s3cret" not in said
            assert value.split()[-1] not in said or value == "team-a"


def test_our_certificate_and_the_servers(upstream: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, more in (("server", ("-addext", "subjectAltName=IP:127.0.0.1")), ("client", ())):
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.pem",
             "-subj", f"/CN={name}", *more],
            check=True, capture_output=True, cwd=tmp_path,
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    context.load_verify_locations(tmp_path / "client.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    with guard(upstream, tls=context) as url:
        ours = ("--cert-file", "client.pem", "--key-file", "client.key")
        common = ("--prometheus", url, "--rules", "rules.yaml", *AT)
        assert obs_eval(*common, *ours, "--ca-file", "server.pem") == 1
        capsys.readouterr()
        assert "no trusted connection" in refused(capsys, "--prometheus", url, *AT, *ours)


def test_one_deadline_for_all(upstream: str, capsys: pytest.CaptureFixture[str]) -> None:
    begun = time.monotonic()
    with guard(upstream, wait=0.4) as url:
        said = refused(capsys, "--prometheus", url, *AT, "--deadline", "600ms", "--timeout", "30s")
    assert "not done within 0.6 s" in said or "no whole answer within" in said
    assert time.monotonic() - begun < 10


def test_partial_answers(upstream: str, capsys: pytest.CaptureFixture[str]) -> None:
    def says(warning: str) -> Change:
        return lambda body, document: document.update(warnings=[warning])

    quiet = ("--rules", "rules.yaml", *AT, "--alert", "Quiet")
    with guard(upstream, change=says("store b is away")) as url:
        assert obs_eval("--prometheus", url, *quiet) == 2
        out = capsys.readouterr().out
        assert "ERROR (1)" in out
        assert "warning: store b is away" in out
    with guard(upstream, change=says("PromQL info: metric might not be a counter")) as url:
        assert obs_eval("--prometheus", url, *quiet) == 0
        assert "OK (1)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("status", "body", "headers", "says"),
    [
        (503, b"later", {}, "answered 503"),
        (302, b"", {"Location": "https://login/"}, "redirects to https://login/"),
        (200, b"<html>Sign in</html>", {}, "a web page"),
        (200, b'{"status":"success","data":{"resultType":"vector","resu', {}, "is that a Prometheus?"),
        (401, b"expired", {}, "refuses us (401)"),
    ],
)
@pytest.mark.parametrize("healthy", [1, 2, 4])
def test_a_server_that_breaks_in_the_middle(
    upstream: str, capsys: pytest.CaptureFixture[str], healthy: int, status: int, body: bytes, headers: dict[str, str],
    says: str,
) -> None:
    left = iter(range(healthy))

    def allow(handler: BaseHTTPRequestHandler) -> bool:
        return next(left, None) is not None or send(handler, status, body, **headers)

    with guard(upstream, allow) as url:
        # the library words what it is told in its own way
        said = refused(capsys, "--prometheus", url, *AT)
        assert says in said or "check the address and the server" in said


def test_a_server_that_stalls_within_an_answer(upstream: str, capsys: pytest.CaptureFixture[str]) -> None:
    over = threading.Event()

    def stall(handler: BaseHTTPRequestHandler) -> bool:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        handler.wfile.write(b'{"status":')
        handler.wfile.flush()
        over.wait(30)
        return False

    with guard(upstream, stall) as url:
        assert "no whole answer within 0.5 s" in refused(capsys, "--prometheus", url, *AT, "--timeout", "500ms")
        over.set()


def test_tenants(upstream: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As Mimir: without a tenant 401, with another one an empty history."""

    def allow(handler: BaseHTTPRequestHandler) -> bool:
        return bool(handler.headers.get("X-Scope-OrgID")) or send(handler, 401, b"no org id\n")

    with guard(upstream, allow) as url:
        assert "give the tenant: --header X-Scope-OrgID:TENANT" in refused(capsys, "--prometheus", url, *AT)
    with PrivatePrometheus() as empty, guard(empty.url, allow) as url:
        said = refused(capsys, "--prometheus", url, *AT, "--header", "X-Scope-OrgID:other")
        assert "holds no series" in said
        assert "tenant" in said


def test_a_backtest_on_a_tenant_below_a_path(upstream: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As Mimir: the API below /prometheus, each request with its tenant, no word on what it is, no rules."""
    asked: list[str] = []

    def allow(handler: BaseHTTPRequestHandler) -> bool:
        asked.append(handler.path)
        if handler.headers.get("X-Scope-OrgID") != "team-a":
            return send(handler, 401, b"no org id\n")
        return not handler.path.endswith(("buildinfo", "rules")) or send(handler, 404, b"404 page not found")

    with guard(upstream, allow, base="/prometheus") as url:
        words = ["--prometheus", f"{url}/", "--rules", "rules.yaml", "--from", str(T0), "--to", str(T0 + 300), "--step", "15s"]
        assert main.main(["backtest", *words, "--header", "X-Scope-OrgID:team-a"]) == 1
        assert "firing: High" in capsys.readouterr().out
        assert main.main(["backtest", *words]) == 2
        assert "give the tenant: --header X-Scope-OrgID:TENANT" in capsys.readouterr().err
    assert all(path.startswith("/prometheus/api/v1/") for path in asked)


def test_too_many_samples(capsys: pytest.CaptureFixture[str]) -> None:
    with PrivatePrometheus(arguments=("--query.max-samples=200",)) as small:
        small.writer.write(points(series=20))
        assert obs_eval("--prometheus", small.url, "--rules", "rules.yaml", *AT, "--alert", "Quiet") == 0
        wide = "groups: [{name: g, rules: [{alert: Wide, expr: 'max_over_time(x[5m:1s]) > 50'}, {alert: Quiet, expr: x > 50}]}]"
        Path("wide.yaml").write_text(wide)
        capsys.readouterr()
        assert obs_eval("--prometheus", small.url, "--rules", "wide.yaml", *AT) == 2
        out = capsys.readouterr().out
        assert "ERROR (1)" in out  # that alert only
        assert "too many samples" in out
        assert "OK (1)" in out


def test_clock_skew(upstream: str, capsys: pytest.CaptureFixture[str]) -> None:
    def ahead(body: str, document: dict[str, Any]) -> None:
        if body == "query=time%28%29":
            document["data"]["result"][1] = str(time.time() + 3600)

    with guard(upstream, change=ahead) as url:
        obs_eval("--prometheus", url, "--rules", "rules.yaml")
    out = capsys.readouterr().out
    assert "the server's clock is 60m ahead of this machine's; its own time is used" in out


def test_recordings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def text(name: str, body: str) -> str:
        (tmp_path / name).write_text(body)
        return str(tmp_path / name)

    def folder(name: str, scrapes: dict[str, str]) -> str:
        for file, body in scrapes.items():
            path = tmp_path / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(body)
        return str(tmp_path / name)

    both = "a_total 1\nb_total 900\n"
    for path, says in (
        (text("order.om", "x 2 1796022975\nx 1 1796022960\n# EOF\n"), "is older than the one before it; sort the file"),
        (text("twice.om", "x 2 1796022975\nx 1 1796022975\n# EOF\n"), "comes twice"),
        (text("cut.om", "x 2 1796022960\nx 2 17960"), "1796"),
        (folder("mixed", {f"{(T0 + n * 5) * 1000}.prom": f"a_total {900 if n % 2 else n}\n" for n in range(8)}), "are mixed"),
        (folder("targets", {"a/1796022960000.prom": both, "b/1796022965000.prom": both}), "targets.yaml"),
        (folder("empty", {f"{T0 * 1000}.prom": both, f"{(T0 + 5) * 1000}.prom": ""}), "is empty"),
    ):
        said = refused(capsys, "--recording", path)
        assert says in said, (path, said)
        assert path in said
