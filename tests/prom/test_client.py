"""The typed client: against a real Prometheus, and against servers that misbehave."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from obs.errors import InputError, ServerError
from obs.prom.client import Client, QueryError, Sample
from obs.prom.remote_write import Point, make_labels
from obs.prom.server import PrivatePrometheus, free_port

T0 = 1_796_022_962_344


@contextmanager
def answering(reply: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[tuple[str, list[str]]]:
    """A server that answers everything with ``reply``; yields its address and the paths asked so far."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            reply(self)

        do_POST = do_GET

        def log_message(self, *unused: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()


def text(status: int, body: str, **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
    def reply(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body.encode())

    return reply


@pytest.mark.prometheus
def test_values_are_floats_whatever_the_type(server: PrivatePrometheus) -> None:
    series = make_labels([("__name__", "cl_x"), ("m", 'it\'s "quoted"')])
    server.writer.write([Point(T0, series, math.nan), Point(T0 + 1000, series, math.inf)])
    client, at = server.client, (T0 + 1000) / 1000
    assert client.query("1.5", at) == [Sample((), at, 1.5)]
    assert client.query("cl_x", at) == [Sample(series, at, math.inf)]
    (sample,) = client.query("cl_x", T0 / 1000)
    assert math.isnan(sample.value)
    (one,) = client.query_range("cl_x", T0 / 1000, at, 1)
    assert one.labels == series
    assert [when for when, _ in one.points] == [T0 / 1000, at]
    assert math.isnan(one.points[0][1])
    assert client.query("cl_nothing", at) == []
    (scalar,) = client.query_range("2", at, at + 2, 1)
    assert [value for _, value in scalar.points] == [2.0, 2.0, 2.0]


@pytest.mark.prometheus
def test_long_ranges_come_in_pieces_without_overlap(server: PrivatePrometheus) -> None:
    series = make_labels([("__name__", "cl_long")])
    server.writer.write(Point(T0 + step * 1000, series, float(step)) for step in range(25_000))
    (one,) = server.client.query_range("cl_long", T0 / 1000, T0 / 1000 + 24_999, 1)
    assert [value for _, value in one.points] == [float(step) for step in range(25_000)]


@pytest.mark.prometheus
def test_wrong_expressions_are_told_apart_from_wrong_servers(server: PrivatePrometheus) -> None:
    with pytest.raises(QueryError, match="unexpected end of input; correct the expression: x >"):
        server.client.query("x >")
    with pytest.raises(QueryError, match="gives a matrix, not a vector"):
        server.client.query("cl_x[5m]", T0 / 1000)


@pytest.mark.prometheus
def test_label_values_through_the_library(server: PrivatePrometheus) -> None:
    server.writer.write([Point(T0, make_labels([("__name__", "cl_named")]), 1.0)])
    assert "cl_named" in server.client.label_values("__name__")
    assert server.client.metadata("cl_named") == []


def test_one_request_for_a_503_and_no_waiting() -> None:
    begun = time.monotonic()
    with answering(text(503, "try later")) as (url, asked), Client(url) as client:
        with pytest.raises(ServerError, match="answered 503 with no Prometheus JSON: 'try later'"):
            client.query("x")
        with pytest.raises(ServerError):
            client.label_values("job")
    assert len(asked) == 2
    assert time.monotonic() - begun < 2


def test_redirect_to_a_login_page() -> None:
    with (
        answering(text(302, "", Location="https://login.example/")) as (url, _),
        Client(url) as client,
        pytest.raises(ServerError, match=r"redirects to https://login.example/ .a login page"),
    ):
        client.query("x")


def test_no_access() -> None:
    with (
        answering(text(401, "no")) as (url, _),
        Client(url) as client,
        pytest.raises(ServerError, match=r"refuses us .401.: no; give a token file"),
    ):
        client.query("x")


@pytest.mark.parametrize(
    "body",
    ["<html>", "[]", '{"status":"success"}', '{"status":"success","data":{"resultType":"vector","result":[{}, 3]}}'],
)
def test_nonsense(body: str) -> None:
    with answering(text(200, body)) as (url, _), Client(url) as client:
        with pytest.raises(ServerError, match="is that a Prometheus") as caught:
            client.query("x")
        assert "\n" not in str(caught.value)


def test_the_deadline_is_for_the_whole_answer() -> None:
    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        try:
            for _ in range(100):
                handler.wfile.write(b" " * 70_000)
                time.sleep(0.1)
        except OSError:
            pass

    begun = time.monotonic()
    with (
        answering(drip) as (url, _),
        Client(url, deadline=0.5) as client,
        pytest.raises(ServerError, match=r"no whole answer within 0\.5 s"),
    ):
        client.query("x")
    assert time.monotonic() - begun < 3


def test_silent_and_absent_servers() -> None:
    with (
        answering(lambda handler: time.sleep(2)) as (url, _),
        Client(url, deadline=0.3) as client,
        pytest.raises(ServerError, match=r"no whole answer within 0\.3 s"),
    ):
        client.query("x")
    with Client(f"http://127.0.0.1:{free_port()}") as client, pytest.raises(ServerError, match="cannot be reached"):
        client.rules()


def test_token_is_sent(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    got = []

    def reply(handler: BaseHTTPRequestHandler) -> None:
        got.append(handler.headers["Authorization"])
        text(200, '{"status":"success","data":{"resultType":"vector","result":[]}}')(handler)

    with answering(reply) as (url, _), Client(url, token_file=token) as client:
        assert client.query("x") == []
    assert got == ["Bearer s3cret"]


def test_wrong_arguments(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no Prometheus address"):
        Client("localhost:9090")
    with pytest.raises(InputError, match="token file cannot be read"):
        Client("http://x", token_file=tmp_path / "none")
    with pytest.raises(InputError, match="no such CA file"):
        Client("http://x", ca_file=tmp_path / "none")
    with Client("http://127.0.0.1:1") as client, pytest.raises(InputError, match="is empty"):
        client.query_range("x", 2, 1, 1)
