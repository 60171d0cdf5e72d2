"""Our own port: /metrics, /signals, /healthz, /readyz. GET only, bounded in connections and in time."""

from __future__ import annotations

import contextlib
import io
import json
import socket
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from obs.errors import InputError
from obs.sidecar import view
from obs.sidecar.collector import registry
from obs.sidecar.pages import Pages
from obs.sidecar.sampler import Sampler
from obs.sidecar.webconfig import WebConfig
from obs.webserver import WebServer

TRITON_PORTS = (8000, 8001, 8002)
CONNECTIONS = 32
REQUEST_SECONDS = 10.0
"""Between two requests of a connection, the second one's head included; and for the client to take an answer."""
HEAD_BYTES = 32 * 1024
"""Of one request's head. http.server alone would take 100 lines of 64 kB, on each connection."""

EVICTION_SECONDS = 0.5

_PAGE = """<!doctype html><title>obs sidecar</title><h1>obs sidecar</h1>
<ul><li><a href="/metrics">/metrics</a><li><a href="/signals">/signals</a>
<li><a href="/healthz">/healthz</a><li><a href="/readyz">/readyz</a></ul>
"""


class SidecarServer(WebServer):
    """Serves one sampler. Binding fails with a line that names the port and the flag."""

    block_on_close = False
    request_queue_size = 64

    def __init__(self, host: str, port: int, sampler: Sampler, web: WebConfig | None = None) -> None:
        if port in TRITON_PORTS:
            raise InputError(f"port {port} is Triton's: a sidecar that shares the pod's network would keep Triton from "
                             "starting; choose another with --listen-port (default 9105)")
        self.sampler = sampler
        self.web = web or WebConfig()
        self.registry: CollectorRegistry = registry(sampler)
        self.pages = Pages()
        self._slots = threading.BoundedSemaphore(CONNECTIONS)
        self.waiting: dict[socket.socket, None] = {}
        """Connections without a request under way, the longest waiting first."""
        if ":" in host:
            self.address_family = socket.AF_INET6
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            raise InputError(f"cannot listen on {host} port {port}: {error.strerror or error}; choose another with "
                             "--listen-port (OBS_SIDECAR_LISTEN_PORT) or --listen-address") from None
        except OverflowError:
            raise InputError(f"port {port} is no port; give --listen-port 1 to 65535") from None

    @property
    def port(self) -> int:
        """The port in fact bound (0 was asked for in tests)."""
        return int(self.server_address[1])

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept; the TLS handshake is left to the connection's own thread."""
        connection, address = super().get_request()
        connection.settimeout(REQUEST_SECONDS)
        context = self.web.context()
        if context is not None:
            connection = context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, address

    def process_request(self, request: Any, client_address: Any) -> None:
        """A thread per connection, of which there are only so many: the longest idle one makes place for a new one."""
        if not self._slots.acquire(blocking=False):
            with contextlib.suppress(StopIteration, RuntimeError, OSError):
                next(iter(self.waiting)).shutdown(socket.SHUT_RDWR)
            if not self._slots.acquire(timeout=EVICTION_SECONDS):
                self.shutdown_request(request)
                return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._slots.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve, then give the place back."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()


class _Head(io.RawIOBase):
    """What a client sends, so much and so long for each request in all: a byte now and then does not count as alive."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._left = 0
        self._deadline = 0.0
        self.begin()

    def begin(self) -> None:
        """The next request's time begins."""
        self._left = HEAD_BYTES
        self._deadline = time.monotonic() + REQUEST_SECONDS

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._deadline - time.monotonic()
        if left <= 0 or self._left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        try:
            got = self._connection.recv_into(buffer)
        finally:
            self._connection.settimeout(REQUEST_SECONDS)
        self._left -= got
        return got


class _Handler(BaseHTTPRequestHandler):
    server: SidecarServer
    protocol_version = "HTTP/1.1"
    timeout = REQUEST_SECONDS
    # head and body in one segment: sent apart, the second waits 40 ms for the first one's acknowledgement
    disable_nagle_algorithm = True
    wbufsize = 64 * 1024
    server_version = "obs-sidecar"
    sys_version = ""

    def setup(self) -> None:
        """As the parent, but with a bounded reader."""
        super().setup()
        self._head = _Head(self.connection)
        self.rfile = io.BufferedReader(self._head, 8192)

    def handle_one_request(self) -> None:
        """As the parent; between two requests the connection may be closed for another one's sake."""
        self._head.begin()
        self.server.waiting[self.connection] = None
        try:
            super().handle_one_request()
        finally:
            self.server.waiting.pop(self.connection, None)

    def parse_request(self) -> bool:
        """As the parent; a body is not read, so nothing may follow it."""
        understood = super().parse_request()
        self.server.waiting.pop(self.connection, None)
        if understood and (self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers):
            self.close_connection = True
        return understood

    def do_GET(self) -> None:
        """The four pages and an index."""
        path = self.path.partition("?")[0]
        if path == "/healthz":
            # the kubelet asks without credentials; the answer tells nothing
            alive = self.server.sampler.alive
            self._send(200 if alive else 500, "text/plain; charset=utf-8", b"ok\n" if alive else b"sampler ended\n")
            return
        if path == "/readyz":
            snapshot = self.server.sampler.snapshot()
            self._send(200 if snapshot.up else 503, "text/plain; charset=utf-8",
                       b"ok\n" if snapshot.up else f"{snapshot.reason}\n".encode())
            return
        users = self.server.web.users
        if users is not None and not users.allow(self.headers.get("Authorization")):
            self._send(401, "text/plain; charset=utf-8", b"unauthorized\n",
                       {"WWW-Authenticate": 'Basic realm="obs sidecar", charset="UTF-8"'})
        elif path == "/metrics":
            encode, content_type = choose_encoder(self.headers.get("Accept") or "")
            self._send(200, content_type, self.server.pages.page(self.server.registry.collect(), encode, content_type))
        elif path == "/signals":
            found = view.as_json(self.server.sampler.snapshot(), self.server.sampler.readiness)
            body = json.dumps(found, indent=2, allow_nan=False).encode() + b"\n"
            self._send(200, "application/json", body)
        elif path == "/":
            self._send(200, "text/html; charset=utf-8", _PAGE.encode())
        else:
            self._send(404, "text/plain; charset=utf-8", b"not found\n")

    def _refuse(self) -> None:
        self.close_connection = True
        self._send(405, "text/plain; charset=utf-8", b"GET only\n", {"Allow": "GET", "Connection": "close"})

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_TRACE = do_CONNECT = _refuse

    def _send(self, status: int, content_type: str, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Silent: a line per scrape says nothing, and a header may hold a password."""

    def handle(self) -> None:
        """As the parent; a client that is slow or goes away ends quietly."""
        with contextlib.suppress(ConnectionError, TimeoutError, ssl.SSLError):
            super().handle()
