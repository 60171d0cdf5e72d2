"""A load generator for a fake engine and the real one alike: requests at a steady rate, so many at once at most.

Open loop: a request is sent when its time has come whatever became of the others, until the bound is reached; what the
bound keeps back is counted. Triton's inputs come from the model's own metadata.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import threading
import time
from collections import Counter
from typing import Any
from urllib.parse import quote, urlsplit

from obs.errors import InputError, ServerError

TIMEOUT = 60.0


class Generator:
    """``api``: "triton" or "openai". ``models`` empty: all that the server lists. Rates are per model and second."""

    def __init__(self, url: str, api: str, models: tuple[str, ...], *, rate: float, concurrency: int, seed: int,
                 max_tokens: int = 64) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname or not _port_ok(url):
            raise InputError(f"--url {url!r} is no http address; give one such as http://127.0.0.1:8000")
        if not 0 < rate <= 500 or not 0 < concurrency <= 256:
            raise InputError("--rate must be above 0, at most 500; --concurrency 1 to 256")
        self._host, self._port = parts.hostname, parts.port or 80
        self.api = api
        self.models = models
        self.rate = rate
        self.max_tokens = max_tokens
        self.outcomes: Counter[str] = Counter()
        self.held_back = 0
        self._dice = random.Random(seed)
        self._slots = threading.BoundedSemaphore(concurrency)
        self._lock = threading.Lock()
        self._bodies: dict[str, bytes] = {}

    def run(self, ended: threading.Event) -> None:
        """Until told to end. A server that is away is asked again every second."""
        next_at = time.monotonic()
        while not ended.is_set():
            models = self._known(ended)
            for model in models:
                if self._slots.acquire(blocking=False):
                    threading.Thread(target=self._one, args=(model,), daemon=True).start()
                else:
                    self.held_back += 1
            next_at = max(next_at + self._dice.expovariate(self.rate), time.monotonic() - 1.0)
            ended.wait(max(0.0, next_at - time.monotonic()))

    def take(self) -> tuple[dict[str, int], int]:
        """Outcomes by HTTP status or error, and how many were held back, since the last call."""
        with self._lock:
            outcomes, self.outcomes = dict(sorted(self.outcomes.items())), Counter()
            held, self.held_back = self.held_back, 0
        return outcomes, held

    def _known(self, ended: threading.Event) -> tuple[str, ...]:
        while not self.models and not ended.is_set():
            with contextlib.suppress(ServerError, OSError, http.client.HTTPException):
                self.models = self._listed()
            if not self.models:
                ended.wait(1.0)
        return self.models

    def _listed(self) -> tuple[str, ...]:
        if self.api == "openai":
            listed = self._json("GET", "/v1/models")
            return tuple(str(one["id"]) for one in listed.get("data", ())) if isinstance(listed, dict) else ()
        listed = self._json("POST", "/v2/repository/index")
        return tuple(str(one["name"]) for one in listed if one.get("state") == "READY") if isinstance(listed, list) else ()

    def _one(self, model: str) -> None:
        try:
            outcome = str(self._request(*self._call(model))[0])
        except (OSError, http.client.HTTPException, ServerError) as error:
            outcome = type(error).__name__
            self._bodies.pop(model, None)
        finally:
            self._slots.release()
        with self._lock:
            self.outcomes[outcome] += 1
            if outcome == "501":  # a decoupled model: Triton's /infer cannot serve it
                self.models = tuple(one for one in self.models if one != model)

    def _call(self, model: str) -> tuple[str, str, bytes]:
        if self.api == "openai":
            asked = {"model": model, "prompt": "word " * 100, "max_tokens": self.max_tokens}
            return "POST", "/v1/completions", json.dumps(asked).encode()
        path = f"/v2/models/{quote(model, safe='')}"
        if model not in self._bodies:
            self._bodies[model] = json.dumps(inputs_of(self._json("GET", path))).encode()
        return "POST", f"{path}/infer", self._bodies[model]

    def _json(self, method: str, path: str) -> Any:
        status, body = self._request(method, path, b"")
        if status != 200:
            raise ServerError(f"{path} answered {status}")
        try:
            return json.loads(body)
        except ValueError:
            raise ServerError(f"{path} answers no JSON") from None

    def _request(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        with contextlib.closing(http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT)) as connection:
            connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
            answer = connection.getresponse()
            return answer.status, answer.read()


def inputs_of(metadata: Any) -> dict[str, object]:
    """A request of one row for a model, from Triton's metadata of it: zeros, or empty text."""
    tensors = []
    for one in metadata.get("inputs", ()) if isinstance(metadata, dict) else ():
        shape = [1 if size < 0 else size for size in one["shape"]]
        count = 1
        for size in shape:
            count *= size
        zero: object = "" if one["datatype"] == "BYTES" else False if one["datatype"] == "BOOL" else 0
        tensors.append({"name": one["name"], "datatype": one["datatype"], "shape": shape, "data": [zero] * count})
    return {"inputs": tensors}


def _port_ok(url: str) -> bool:
    try:
        return urlsplit(url).port != 0
    except ValueError:
        return False
