"""A private Prometheus on loopback, with its data in a temporary folder: started, waited for, killed.

It takes samples of any age in one order or two: its head block is made so wide that nothing is ever "too
old" (``--storage.tsdb.min-block-duration``: the head refuses samples older than half of it), which lets
recording rules be written back over the whole recording after the raw samples. Retention is 100 years.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from obs.errors import ToolError
from obs.prom import tools
from obs.prom.client import Client, Connection
from obs.prom.remote_write import Writer, one_line

_HEAD = "10y"
_ATTEMPTS = 3  # another process may take the free port between our look and Prometheus's


class PrivatePrometheus:
    """Context manager: ``with PrivatePrometheus() as server: server.client.query(...)``.

    ``rule_files`` and ``scrape_configs`` (as in prometheus.yml) are optional; ``evaluation_interval`` and
    ``scrape_interval`` are Prometheus durations. ``deadline`` (seconds) bounds the start. ``binary`` overrides
    what obs.prom.tools finds. Works with Prometheus 2.33 and later, 3.x too. ToolError, with the end of its
    log, when it does not come up.
    """

    def __init__(
        self,
        *,
        rule_files: Sequence[Path] = (),
        scrape_configs: Sequence[Mapping[str, Any]] = (),
        alertmanagers: Sequence[str] = (),
        evaluation_interval: str = "1m",
        scrape_interval: str = "1m",
        arguments: Sequence[str] = (),
        deadline: float = 60.0,
        binary: Path | None = None,
    ) -> None:
        self._binary = binary
        self._config = {
            "global": {"evaluation_interval": evaluation_interval, "scrape_interval": scrape_interval},
            "rule_files": [str(Path(path).resolve()) for path in rule_files],
            "scrape_configs": [dict(config) for config in scrape_configs],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [one]}]} for one in alertmanagers]},
        }
        self._arguments = tuple(arguments)
        self._deadline = deadline
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: Path | None = None
        self.url = ""

    def __enter__(self) -> PrivatePrometheus:
        binary = self._binary or tools.find("prometheus")
        self._folder = Path(tempfile.mkdtemp(prefix="obs-prometheus-"))
        try:
            for attempt in range(1, _ATTEMPTS + 1):
                if self._start(binary, last=attempt == _ATTEMPTS):
                    break
            # not compressed: that costs a server half as much again as to make the answer (a header of Connection's)
            self.client = Client(Connection(self.url, timeout=120.0, headers={"Accept-Encoding": "identity"}))
            self.writer = Writer(self.url).__enter__()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.close()
        self.writer.__exit__(kind, error, trace)
        self.close()

    @property
    def pid(self) -> int:
        """The process id (0 when it is not running)."""
        return self._process.pid if self._process is not None and self._process.poll() is None else 0

    @property
    def data(self) -> Path:
        """Its data folder, while it runs."""
        assert self._folder is not None
        return self._folder / "data"

    @property
    def log(self) -> str:
        """What it has logged so far."""
        if self._folder is None:
            return ""
        with contextlib.suppress(OSError):
            return (self._folder / "log").read_text(encoding="utf-8", errors="replace")
        return ""

    def close(self) -> None:
        """Stop it and remove its data; safe to call twice."""
        if self._process is not None and self._process.poll() is None:
            # nothing in its data folder outlives it, so there is nothing to save
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _start(self, binary: Path, *, last: bool) -> bool:
        """Whether it came up; False when its port was taken meanwhile and there are attempts left."""
        assert self._folder is not None
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        config = self._folder / "prometheus.yml"
        config.write_text(json.dumps(self._config), encoding="utf-8")  # JSON is YAML
        argv = [
            str(binary),
            f"--config.file={config}",
            f"--storage.tsdb.path={self._folder / 'data'}",
            "--storage.tsdb.retention.time=100y",
            f"--storage.tsdb.min-block-duration={_HEAD}",
            f"--storage.tsdb.max-block-duration={_HEAD}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--web.enable-remote-write-receiver",
            *self._arguments,
        ]
        with (self._folder / "log").open("wb") as log:
            try:
                self._process = subprocess.Popen(
                    argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
                )
            except OSError as error:
                raise ToolError(
                    f"{binary} cannot be started: {error.strerror or error}; point PROMETHEUS at a working binary"
                ) from error
        limit = time.monotonic() + self._deadline
        while time.monotonic() < limit:
            code = self._process.poll()
            if code is not None:
                if "address already in use" in self.log and not last:
                    return False
                raise ToolError(f"{binary} ended with exit code {code} before it was ready: {self._said()}")
            if _ready(port):
                return True
            time.sleep(0.05)
        raise ToolError(f"{binary} was not ready within {self._deadline:g} s: {self._said()}")

    def _said(self) -> str:
        lines = [line for line in self.log.splitlines() if line.strip()]
        # the last lines are those of an orderly shutdown; what stopped it is above (lower case in 2.x)
        lines = [line for line in lines if "level=error" in line.lower()] or lines
        return (one_line(" | ".join(lines[-3:]), 600) if lines else "it logged nothing") + (
            "; mend what it says, or point PROMETHEUS at another binary"
        )


def free_port() -> int:
    """A TCP port of 127.0.0.1 that was free just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _ready(port: int) -> bool:
    """Whether /-/ready says 200, asked with nothing but a socket (no proxy can interfere)."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0) as link:
            link.sendall(b"GET /-/ready HTTP/1.0\r\nHost: localhost\r\n\r\n")
            return link.recv(64).split(b" ")[1:2] == [b"200"]
    except OSError:
        return False
