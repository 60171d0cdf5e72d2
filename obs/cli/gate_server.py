"""``obs gate --serve``: the verdict over HTTP, for controllers that ask instead of running a Job.

    /verdict   200 and the JSON of `obs gate --format json` (Argo Rollouts' web metric)
    /pass      200 when the verdict is pass, else 409 (Flagger's rollout and confirm-promotion hooks)
    /fail      200 when the verdict is fail, else 409 (Flagger's rollback hook)

What is compared is fixed by the command line: nothing of a request is used but its path, so nobody can ask our Prometheus
through it. One look at a time, and none oftener than ``--every``: however many ask, the server is asked once. 503 when the
Prometheus cannot be used, with the error's one line.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING

from obs.errors import InputError, ObsError
from obs.webserver import WebServer

if TYPE_CHECKING:
    from obs.evaluate.gate import Gate

_PATHS = ("/verdict", "/pass", "/fail")


class Verdicts:
    """The last look, taken again when it is older than ``every`` seconds."""

    def __init__(self, look: Callable[[], Gate], every: float) -> None:
        self._look, self._every = look, every
        self._lock = threading.Lock()
        self._last: Gate | None = None
        self._taken = 0.0

    def get(self) -> Gate:
        """ObsError when the server cannot be used; an error is not kept."""
        with self._lock:
            if self._last is None or time.monotonic() - self._taken >= self._every:
                self._last = None
                self._last = self._look()
                self._taken = time.monotonic()
            return self._last


def make_server(address: str, look: Callable[[], Gate], every: float) -> WebServer:
    """A server bound to ``HOST:PORT``, not serving yet. InputError when the address cannot be bound."""
    match = re.fullmatch(r"\[?([^\[\]]*)\]?:(\d{1,5})", address)
    if match is None or int(match[2]) > 65535:
        raise InputError(f"--serve {address!r}: is no HOST:PORT; write it like 127.0.0.1:9099 or 0.0.0.0:9099")
    verdicts = Verdicts(look, every)

    class Handler(BaseHTTPRequestHandler):
        timeout = 10.0  # a client that sends nothing holds a thread no longer

        def do_GET(self) -> None:
            path = self.path.split("?", 1)[0]
            if path not in _PATHS:
                self._answer(404, {"error": f"no such path; ask one of {', '.join(_PATHS)}"})
                return
            from obs.cli.gate import as_json

            try:
                found = verdicts.get()
            except ObsError as error:
                self._answer(503, {"error": str(error)})
                return
            except Exception as error:
                self._answer(500, {"error": f"a bug of obs: {type(error).__name__}: {error}"})
                return
            wanted = path.removeprefix("/")
            self._answer(200 if wanted in {"verdict", found.verdict} else 409, as_json(found))

        do_POST = do_GET  # Flagger posts; what it posts is not read

        def _answer(self, status: int, document: dict[str, object]) -> None:
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *unused: object) -> None: ...

    try:
        server = WebServer((match[1] or "0.0.0.0", int(match[2])), Handler)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(f"--serve {address}: cannot be bound: {why}; choose another address or port") from None
    return server


def serve(address: str, look: Callable[[], Gate], every: float) -> int:
    """Serve until interrupted."""
    with make_server(address, look, every) as server:
        host, port = server.server_address[:2]
        print(f"serving {', '.join(_PATHS)} on http://{host!s}:{port}", file=sys.stderr, flush=True)
        server.serve_forever()
    return 0
