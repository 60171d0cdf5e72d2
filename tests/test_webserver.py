"""The server under the commands that serve: what a client does never shows as a traceback."""

from __future__ import annotations

import socket
import struct
import threading
from http.server import BaseHTTPRequestHandler

import pytest

from obs.webserver import WebServer
from tests.stubserver import StubServer


@pytest.mark.parametrize("kind", [WebServer, StubServer])
def test_a_client_that_goes_away_prints_nothing(
    kind: type[WebServer] | type[StubServer], capsys: pytest.CaptureFixture[str]
) -> None:
    failed: list[BaseException] = []
    gone, ended = threading.Event(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert gone.wait(10)
            try:
                for _ in range(1000):
                    self.wfile.write(b"x" * 65536)
            except OSError as error:
                failed.append(error)
                raise

    class Told(kind):  # type: ignore[misc,valid-type]
        def shutdown_request(self, request: socket.socket) -> None:
            super().shutdown_request(request)
            ended.set()

    with Told(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        client = socket.create_connection(("127.0.0.1", server.server_port))
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close with a reset
        client.close()
        gone.set()
        assert ended.wait(10)
        server.shutdown()
    assert failed, "the handler was to meet the closed connection"
    assert capsys.readouterr() == ("", "")


def test_a_mistake_of_a_stub_is_still_told(capsys: pytest.CaptureFixture[str]) -> None:
    ended = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            raise LookupError("mine")

        def log_message(self, *unused: object) -> None: ...

    class Told(StubServer):
        def shutdown_request(self, request: object) -> None:
            super().shutdown_request(request)  # type: ignore[arg-type]
            ended.set()

    with Told(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        with socket.create_connection(("127.0.0.1", server.server_port)) as client:
            client.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert ended.wait(10)
        server.shutdown()
    assert "LookupError: mine" in capsys.readouterr().err
