"""A child process that serves on loopback: started, waited for until it answers, ended; its log kept for errors."""

import contextlib
import http.client
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

POLL_SECONDS = 0.1
END_SECONDS = 15
LOG_LINES = 20
COMPLAINT = re.compile(r"^E\d{4} |^error|level=error|unrecognized option")


class ServerFailed(RuntimeError):
    pass


def free_ports(count: int) -> list[int]:
    """Distinct free loopback ports: all are held open until the last one is known."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def get(port: int, path: str, seconds: float = 5) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)
    with contextlib.closing(connection):
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()


class ServingProcess:
    def __init__(self, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        self.name = Path(command[0]).name
        self.log = log
        with log.open("wb") as out:
            # Its own session: the servers' children (Triton's model stubs) end with it.
            self.process = subprocess.Popen(
                command, stdout=out, stderr=subprocess.STDOUT, env=env, cwd=log.parent, start_new_session=True
            )

    def wait_ready(self, port: int, path: str, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise ServerFailed(f"{self.name} ended with code {self.process.returncode}:\n{self.log_tail()}")
            with contextlib.suppress(OSError, http.client.HTTPException):
                if get(port, path)[0] == 200:
                    return
            time.sleep(POLL_SECONDS)
        raise ServerFailed(f"{self.name} was not ready within {seconds:g} s:\n{self.log_tail()}")

    def end(self) -> None:
        """Terminate, then kill whatever of its session is left."""
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(END_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def log_tail(self) -> str:
        """The last lines, after those above them that complain."""
        lines = self.log.read_text(errors="replace").splitlines()
        complaints = [line for line in lines[:-LOG_LINES] if COMPLAINT.search(line)]
        return "\n".join([*complaints[:LOG_LINES], *lines[-LOG_LINES:]])
