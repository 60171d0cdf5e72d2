"""A plain model under Triton: one queue, some instances, dynamic batching. Times are unix seconds."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from obs.fake.ledger import Ledger
from obs.fake.load import Arrivals, lognormal

Done = Callable[[str], None]
"""Told when a request from outside ends: "" or why it failed."""


_Batch = tuple[float, int, float, list[tuple[float, Done | None]]]
"""End, serial number, start, and the requests (arrival, whom to tell)."""


@dataclass(frozen=True)
class Service:
    """What a model costs: ``instances`` batches at a time, each of up to ``batch`` requests, ``base + each × n`` seconds."""

    instances: int = 1
    batch: int = 8
    base: float = 0.010
    each: float = 0.002
    spread: float = 0.15
    queue: int = 20_000
    """A request that finds the queue this long is refused."""

    @property
    def capacity(self) -> float:
        """Requests per second at full batches."""
        return self.instances * self.batch / (self.base + self.each * self.batch)


class QueueModel:
    """Event by event; the result does not depend on how the time is cut into calls of ``advance``."""

    def __init__(self, ledger: Ledger, service: Service, arrivals: Arrivals, dice: random.Random, at: float) -> None:
        self.ledger = ledger
        self.service = service
        self.arrivals = arrivals
        self.error_ratio = 0.0
        self.slow = 1.0
        self._stalled = False
        self.queue: deque[tuple[float, Done | None]] = deque()
        self.busy_seconds = 0.0
        """Of all instances together, so far."""
        self._dice = dice
        self._running: list[_Batch] = []
        self._serial = 0
        self.at = at

    @property
    def stalled(self) -> bool:
        """While true, nothing starts and nothing ends."""
        return self._stalled

    @stalled.setter
    def stalled(self, value: bool) -> None:
        if self._stalled and not value:
            self._running = [(max(end, self.at), serial, start, batch) for end, serial, start, batch in self._running]
            heapq.heapify(self._running)
        self._stalled = value

    @property
    def running(self) -> int:
        return sum(len(batch) for _, _, _, batch in self._running)

    def submit(self, at: float, done: Done | None = None) -> None:
        """A request arrives."""
        if len(self.queue) >= self.service.queue:
            self.ledger.add("request_failures", 1, reason="REJECTED")
            if done:
                done("queue is full")
            return
        self.queue.append((at, done))

    def advance(self, until: float) -> None:
        """Everything that happens before ``until``."""
        for arrival in self.arrivals.until(self.at, until):
            self._finish_before(arrival)
            self.submit(arrival)
            self._start(arrival)
        self._finish_before(until)
        self._start(until)
        self.at = until
        self.ledger.now = until
        self.ledger.put("pending_requests", len(self.queue))

    def drop_all(self, why: str) -> None:
        """The server dies, or the model is unloaded: every request here fails."""
        waiting = [*self.queue, *(one for _, _, _, batch in self._running for one in batch)]
        self.queue.clear()
        self._running.clear()
        for _, done in waiting:
            if done:
                done(why)

    def _start(self, at: float) -> None:
        while self.queue and not self.stalled and len(self._running) < self.service.instances:
            batch = [self.queue.popleft() for _ in range(min(len(self.queue), self.service.batch))]
            usual = (self.service.base + self.service.each * len(batch)) * self.slow
            seconds = usual * lognormal(self._dice, 1.0, self.service.spread)
            self._serial += 1
            heapq.heappush(self._running, (at + seconds, self._serial, at, batch))
            self.busy_seconds += seconds

    def _finish_before(self, until: float) -> None:
        while self._running and self._running[0][0] <= until and not self.stalled:
            end, _, start, batch = heapq.heappop(self._running)
            self._finished(start, end, batch)
            self._start(end)

    def _finished(self, start: float, end: float, batch: list[tuple[float, Done | None]]) -> None:
        ledger = self.ledger
        ledger.now = end
        compute = end - start
        ledger.add("executions", 1)
        for arrival, done in batch:
            if self.error_ratio and self._dice.random() < self.error_ratio:
                ledger.add("request_failures", 1, reason="BACKEND")
                if done:
                    done("the model failed (fault: errors)")
                continue
            ledger.add("requests", 1)
            ledger.add("inferences", 1)
            ledger.observe("queue_time_seconds", max(0.0, start - arrival))
            ledger.observe("compute_input_seconds", compute * 0.02)
            ledger.observe("compute_infer_seconds", compute * 0.95)
            ledger.observe("compute_output_seconds", compute * 0.03)
            ledger.observe("request_latency_seconds", end - arrival)
            if done:
                done("")
