"""Servers that play a recording, and a clock on which five seconds take none."""

from __future__ import annotations

import http.server
import queue
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from obs.evaluate.record.capture import Captured, Clock, Inbox, capture
from obs.evaluate.record.scrub import Scrubber
from obs.evaluate.record.source import Source, arrange
from obs.evaluate.record.store import Store
from obs.sidecar.scrape import Target
from tests.stubserver import StubServer

START = 1_796_022_962.0
Page = bytes | None


class Server:
    """Serves one page after the other; None is an answer 503. The last page stays. A real HTTP server on loopback."""

    def __init__(self, pages: Sequence[Page], content_type: str = "text/plain; version=0.0.4") -> None:
        self.pages = list(pages)
        self.asked = 0
        self.headers: list[Mapping[str, str]] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page = outer.pages[min(outer.asked, len(outer.pages) - 1)]
                outer.asked += 1
                outer.headers.append(dict(self.headers))
                self.send_response(200 if page is not None else 503)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(page or b"")))
                self.end_headers()
                self.wfile.write(page or b"")

            def log_message(self, *_: object) -> None:
                pass

        self._server = StubServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/metrics"

    def __enter__(self) -> Server:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class FastClock(Clock):
    """Waits for nothing: its time is the one that is waited for."""

    def __init__(self) -> None:
        self.now = 0.0
        self.jump = 0.0

    def wall(self) -> float:
        return START + self.now + self.jump

    def monotonic(self) -> float:
        return self.now

    def wait(self, inbox: Inbox, until: float) -> bool:
        self.now = max(self.now, until)
        return False


def record(
    out: Path, urls: Sequence[str], rounds: int, *, interval: float = 5.0, scrubber: Scrubber | None = None,
    labels: Sequence[Mapping[str, str]] = (), keep_ms: int = 0, keep_bytes: int = 0, clock: Clock | None = None,
) -> tuple[Captured, Store]:
    """A recording of ``rounds`` rounds on a fast clock; the timeout is long, for a machine under load."""
    scrubber = scrubber or Scrubber()
    own = labels or [{"instance": f"t{number}:8002"} for number in range(len(urls))]
    sources = arrange([Source(Target(url), its) for url, its in zip(urls, own, strict=True)], scrubber)
    store = Store(out, sources, keep_ms=keep_ms, keep_bytes=keep_bytes)
    try:
        done = capture(
            sources, store, scrubber, queue.SimpleQueue(), interval=interval, timeout=20.0, duration=rounds * interval,
            clock=clock or FastClock(),
        )
    finally:
        store.close()
    return done, store
