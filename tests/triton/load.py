"""Closed-loop load on one model over Triton's HTTP API: so many clients, each with one request under way.

Bounded three ways: loopback only, a cap on clients, and a time after which it ends by itself.
"""

import contextlib
import http.client
import json
import threading
import time
from collections import Counter

MAX_CLIENTS = 300
MAX_SECONDS = 120
REQUEST_SECONDS = 10


def request_body(value: float, rows: int) -> bytes:
    tensor = {"name": "INPUT", "shape": [rows, 1], "datatype": "FP32", "data": [value] * rows}
    return json.dumps({"inputs": [tensor]}).encode()


def post(connection: http.client.HTTPConnection, path: str, body: bytes) -> tuple[int, bytes]:
    connection.request("POST", path, body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    return response.status, response.read()


def connect(port: int) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", port, timeout=REQUEST_SECONDS)


def infer(port: int, model: str, value: float, rows: int = 1) -> tuple[int, bytes]:
    """One request; the HTTP status and the body."""
    with contextlib.closing(connect(port)) as connection:
        return post(connection, f"/v2/models/{model}/infer", request_body(value, rows))


def stream(port: int, model: str, value: float) -> tuple[int, bytes]:
    """One request to a decoupled model, which /infer refuses; the body holds one `data:` line a response."""
    with contextlib.closing(connect(port)) as connection:
        return post(connection, f"/v2/models/{model}/generate_stream", json.dumps({"INPUT": value}).encode())


class Load:
    """`with Load(port, "doubler", clients=64, rows=8, seconds=40) as load:`; `load.statuses` counts the answers.

    `rows` is the batch of one request: large requests fill a model's batches with few clients, so that a queue
    grows at the server and not at this process, whose threads share one interpreter lock.
    """

    def __init__(self, port: int, model: str, *, clients: int, seconds: float, rows: int = 1) -> None:
        if not (0 < clients <= MAX_CLIENTS and 0 < seconds <= MAX_SECONDS):
            raise ValueError(f"at most {MAX_CLIENTS} clients and {MAX_SECONDS} s")
        self.port = port
        self.path = f"/v2/models/{model}/infer"
        self.body = request_body(1.0, rows)
        self.seconds = seconds
        self.statuses: Counter[int | str] = Counter()
        self.lock = threading.Lock()
        self.stopped = threading.Event()
        self.threads = [threading.Thread(target=self.client, daemon=True) for _ in range(clients)]

    def __enter__(self) -> "Load":
        self.stop_at = time.monotonic() + self.seconds
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        for thread in self.threads:
            thread.join(REQUEST_SECONDS)

    def client(self) -> None:
        with contextlib.closing(connect(self.port)) as connection:
            while not self.stopped.is_set() and time.monotonic() < self.stop_at:
                outcome = self.one_request(connection)
                with self.lock:
                    self.statuses[outcome] += 1

    def one_request(self, connection: http.client.HTTPConnection) -> int | str:
        try:
            return post(connection, self.path, self.body)[0]
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            self.stopped.wait(0.1)  # A server that is gone must not turn the clients into busy loops.
            return type(error).__name__
