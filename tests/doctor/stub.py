"""Small servers on loopback that answer as Triton, vLLM, or something else does; with TLS where asked for."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from tests.stubserver import StubServer

SCRAPES = Path(__file__).parents[1] / "data" / "scrapes"
Answer = tuple[int, str, str]
"""Status, content type, body."""

NOT_FOUND: Answer = (404, "application/json", '{"error":"Not Found"}')


def text(body: str, status: int = 200) -> Answer:
    return status, "text/plain; charset=utf-8", body


def as_json(body: Any, status: int = 200) -> Answer:
    return status, "application/json", json.dumps(body)


def scrape(name: str) -> str:
    return (SCRAPES / name).read_text()


def triton(
    version: str = "2.71.0",
    models: Mapping[str, Mapping[str, Any]] | None = None,
    index: list[dict[str, str]] | None = None,
    page: str | None = None,
    counted: Mapping[str, int] | None = None,
    ready: int = 200,
) -> dict[str, Answer]:
    """Triton's answers by path; its metrics are under /metrics of the same port, for the test's ease."""
    models = models if models is not None else {"plain": {"name": "plain", "backend": "onnxruntime", "max_batch_size": 8}}
    lines = [{"name": name, "version": "1", "state": "READY"} for name in models]
    stats = [
        {"name": name, "version": "1", "inference_stats": {"success": {"count": count}}}
        for name, count in (counted or {}).items()
    ]
    routes = {
        "/v2": as_json({"name": "triton", "version": version, "extensions": ["model_repository", "statistics"]}),
        "/v2/health/ready": text("", ready),
        "/v2/health/live": text(""),
        "/v2/repository/index": as_json(lines if index is None else index),
        "/v2/models/stats": as_json({"model_stats": stats}),
        "/metrics": text(scrape("triton-2.51-steady.prom") if page is None else page),
    }
    for name, config in models.items():
        routes[f"/v2/models/{name}/config"] = as_json(config)
    return routes


@contextmanager
def serving(
    routes: Mapping[str, Answer], default: Answer = NOT_FOUND, *, pem: Path | None = None,
    before: Callable[[str], None] | None = None,
) -> Iterator[str]:
    """The base URL of a server with these answers. ``before`` is called with each path, before the answer."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            path = self.path.split("?", 1)[0]
            if before is not None:
                before(path)
            status, kind, body = routes.get(path, default)
            data = body.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = answer

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    server = StubServer(("127.0.0.1", 0), Handler)
    if pem is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http{'s' if pem is not None else ''}://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def saying(data: bytes) -> Iterator[str]:
    """A port that says ``data`` to whoever connects, as a gRPC server says its HTTP/2 settings."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()

    def serve() -> None:
        while True:
            try:
                link, _ = listener.accept()
            except OSError:
                return
            with link:
                link.settimeout(5)
                try:
                    link.sendall(data)
                    while link.recv(4096) and not data:
                        pass  # with nothing to say, hold the line until the other side gives up
                except OSError:
                    continue

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.close()


def closed_port() -> str:
    """The URL of a port at which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"
