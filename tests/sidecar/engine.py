"""A small real HTTP server in an engine's place: serves what a test says, well or badly. Loopback only."""

from __future__ import annotations

import contextlib
import functools
import socket
import tarfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from obs.sidecar import detect
from obs.sidecar.reader import Reader, Samples
from obs.sidecar.scrape import Page

DATA = Path(__file__).parents[1] / "data"
SCRAPES = DATA / "scrapes"

Answer = Callable[[socket.socket, str], None]


def scrape(name: str) -> bytes:
    return (SCRAPES / f"{name}.prom").read_bytes()


def recording(name: str) -> list[tuple[float, bytes]]:
    """(unix seconds, body) of each scrape."""
    with tarfile.open(DATA / "recordings" / f"{name}.tar.gz") as archive:
        found = [
            (int(Path(member.name).stem) / 1000, archive.extractfile(member).read())  # type: ignore[union-attr]
            for member in archive
            if member.name.endswith(".prom")
        ]
    return sorted(found)


def samples(text: str | bytes, engine: str = "auto") -> Samples:
    body = text.encode() if isinstance(text, str) else text
    return _reader(engine).page(Page(body, "", 0.0))


@functools.cache
def _reader(engine: str) -> Reader:
    return Reader(detect.needed_names(engine))


def respond(body: bytes, *, status: str = "200 OK", headers: str = "", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return (f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {size}\r\n"
            f"Connection: close\r\n{headers}\r\n").encode() + body


class FakeEngine:
    """`with FakeEngine(body) as engine:`; set `engine.body`, or `engine.answer` for whatever is not a good answer."""

    def __init__(self, body: bytes = b"", answer: Answer | None = None, port: int = 0) -> None:
        self.body = body
        self.answer: Answer | None = answer
        self.requests: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", port), backlog=64)
        self.port = self._listener.getsockname()[1]
        self._closing = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/metrics"

    def __enter__(self) -> FakeEngine:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._closing = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while not self._closing:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            connection.settimeout(5)
            request = b""
            while b"\r\n\r\n" not in request:
                chunk = connection.recv(65536)
                if not chunk:
                    return
                request += chunk
            text = request.decode("latin-1")
            self.requests.append(text)
            if self.answer is not None:
                self.answer(connection, text)
            else:
                connection.sendall(respond(self.body))


def sends(data: bytes) -> Answer:
    return lambda connection, _: connection.sendall(data)


def hangs(connection: socket.socket, _: str) -> None:
    time.sleep(4)


def drips(connection: socket.socket, _: str) -> None:
    for byte in respond(b"vllm:x 1\n" * 100):
        connection.sendall(bytes([byte]))
        time.sleep(0.05)


def vllm(
    running: float = 3, waiting: float = 0, kv: float = 0.5, generation: float = 1000, *, engine: str = "0",
    model: str = "m", finished: float = 10, extra: str = "",
) -> str:
    labels = f'model_name="{model}",engine="{engine}"'
    return (
        f"vllm:num_requests_running{{{labels}}} {running}\n"
        f"vllm:num_requests_waiting{{{labels}}} {waiting}\n"
        f"vllm:kv_cache_usage_perc{{{labels}}} {kv}\n"
        f"vllm:generation_tokens_total{{{labels}}} {generation}\n"
        f'vllm:request_success_total{{{labels},finished_reason="stop"}} {finished}\n{extra}'
    )
