"""The stand-in's sockets: the engine's API, its metrics page, dcgm-exporter's, and the control endpoint on a port of its own.

While the server is down nothing listens on the engine's ports: a connection is refused, as after a crash.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any, Literal, Protocol
from urllib.parse import unquote

from obs.errors import InputError
from obs.fake import api
from obs.fake.control import apply
from obs.fake.world import World
from obs.webserver import WebServer

Role = Literal["api", "metrics", "dcgm", "control"]
PAGE_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BODY_BYTES = 4 * 1024 * 1024
REQUEST_SECONDS = 30.0
STEP_SECONDS = 0.02
"""Between two looks at the clock."""


class Source(Protocol):
    """What is served: a World, or a Player (which is not imported here: it needs more than the bare install)."""

    @property
    def down(self) -> bool: ...
    def advance(self, until: float) -> None: ...
    def page(self) -> str: ...
    def state(self) -> Mapping[str, object]: ...


class _Server(WebServer):
    block_on_close = False
    request_queue_size = 256

    def __init__(self, address: tuple[str, int], roles: frozenset[Role], source: Source) -> None:
        self.roles = roles
        self.source = source
        self.open: set[socket.socket] = set()
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.open.discard(request)
        super().shutdown_request(request)


class Port:
    """One listening port that can close and open again at the same number."""

    def __init__(self, host: str, port: int, roles: frozenset[Role], source: Source, flag: str) -> None:
        self._host, self._roles, self._source = host, roles, source
        self._server: _Server | None = None
        self.number = port
        try:
            self.open()
        except OSError as error:
            raise InputError(f"cannot listen on {host} port {port}: {error.strerror or error}; "
                             f"choose another with {flag}") from None
        except OverflowError:
            raise InputError(f"port {port} is no port; give {flag} 1 to 65535") from None

    def open(self) -> None:
        """Listen; nothing when it does already."""
        if self._server is None:
            self._server = _Server((self._host, self.number), self._roles, self._source)
            self.number = int(self._server.server_address[1])
            threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self) -> None:
        """Listen no more, and cut what is open."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()
            for connection in list(server.open):
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


class Site:
    """All ports of one stand-in, and the thread that moves its time on. ``with Site(...) as site: site.ports["api"]``."""

    def __init__(self, source: Source, host: str, *, port: int, metrics_port: int, control_port: int,
                 dcgm_port: int | None = None, clock: Callable[[], float] = time.time) -> None:
        self.source = source
        self._clock = clock
        self._ended = threading.Event()
        self.ports: dict[Role, Port] = {}
        try:
            together = port == metrics_port and port != 0
            self.ports["api"] = Port(host, port, frozenset(("api", "metrics") if together else ("api",)), source, "--port")
            self.ports["metrics"] = self.ports["api"] if together else Port(
                host, metrics_port, frozenset(("metrics",)), source, "--metrics-port")
            self.ports["control"] = Port(host, control_port, frozenset(("control",)), source, "--control-port")
            if dcgm_port is not None:
                self.ports["dcgm"] = Port(host, dcgm_port, frozenset(("dcgm",)), source, "--dcgm-port")
        except BaseException:
            self._close()
            raise
        self._thread = threading.Thread(target=self._run, name="time", daemon=True)

    def __enter__(self) -> Site:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._close()

    @property
    def alive(self) -> bool:
        """Whether time goes on; a fault of ours ends it."""
        return self._thread.is_alive()

    def _run(self) -> None:
        while not self._ended.wait(STEP_SECONDS):
            self.source.advance(self._clock())
            for port in (self.ports["api"], self.ports["metrics"]):
                if self.source.down:
                    port.close()
                else:
                    with contextlib.suppress(OSError):  # somebody else took it meanwhile: the next round tries again
                        port.open()

    def _close(self) -> None:
        for port in self.ports.values():
            port.close()


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    timeout = REQUEST_SECONDS
    disable_nagle_algorithm = True
    wbufsize = 64 * 1024
    server_version = "obs-fake-engine"
    sys_version = ""

    def do_GET(self) -> None:
        self._answer("GET", None)

    def do_POST(self) -> None:
        try:
            length = int(self.headers.get("Content-Length") or 0)
        except ValueError:
            length = -1
        if not 0 <= length <= BODY_BYTES:
            self.close_connection = True
            self._json(413 if length > 0 else 400, {"error": "bad Content-Length"})
            return
        self._answer("POST", self.rfile.read(length))

    def _answer(self, method: str, body: bytes | None) -> None:
        path = unquote(self.path.partition("?")[0])
        source, roles = self.server.source, self.server.roles
        if "control" in roles:
            self._control(path, body)
            return
        if isinstance(source, World):
            if source.fault("hang"):
                self._hang(source)
                return
            if source.fault("503"):
                self._json(503, {"error": "unavailable (fault: 503)"})
                return
        if path == "/metrics" and method == "GET" and roles & {"metrics", "dcgm"}:
            page = source.dcgm_page() if "dcgm" in roles and isinstance(source, World) else source.page()
            self._send(200, PAGE_TYPE, page.encode())
        elif "api" in roles:
            status, answer = api.answer(source if isinstance(source, World) else None, method, path, body or b"")
            self._json(status, answer)
        else:
            self._json(404, {"error": "not found"})

    def _hang(self, source: World) -> None:
        """Say nothing while the fault holds, then break off."""
        while source.fault("hang") and not source.down:
            time.sleep(0.1)
        self.close_connection = True

    def _control(self, path: str, body: bytes | None) -> None:
        source = self.server.source
        if path not in ("/", "/control", "/healthz"):
            self._json(404, {"error": "not found; use /control"})
            return
        if body is not None:
            if self.headers.get("Origin") is not None or self.headers.get("Sec-Fetch-Site", "none") != "none":
                # Any page that is open in a browser on this machine could send one, without being asked (text/plain).
                self._json(403, {"error": "not from a web page; use curl"})
                return
            if not isinstance(source, World):
                self._json(400, {"error": "a recording is played: there is nothing to set"})
                return
            try:
                apply(source, body)
            except InputError as error:
                self._json(400, {"error": str(error)})
                return
        self._json(200, source.state())

    def _json(self, status: int, answer: object) -> None:
        body = b"" if answer is None else json.dumps(answer).encode() + b"\n"
        self._send(status, "application/json", body)

    def _send(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""

    def handle(self) -> None:
        """As the parent; a client that is slow or goes away ends quietly."""
        with contextlib.suppress(ConnectionError, TimeoutError, ValueError):
            super().handle()
