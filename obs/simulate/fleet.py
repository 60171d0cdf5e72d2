"""The event loop: requests to replicas, scrapes to the store, the autoscaler at its syncs, pods that come and go.

What waits for what, in this order: the sidecar samples its engine each second; Prometheus scrapes each pod at a phase of
its own; the controller asks Prometheus at its sync. Each stage sees only what the one before it had by then.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from obs.errors import InputError
from obs.simulate import hpa, keda, observe
from obs.simulate.arrivals import Arrival
from obs.simulate.engine import Record, Replica, Request
from obs.simulate.hardware import Engine
from obs.simulate.policies import EPP, GPU, KV, RUNNING, WAITING, ScalePolicy
from obs.simulate.router import router
from obs.simulate.store import Store

FAULTS = {
    "prometheus": "Prometheus answers nothing",
    "exporter": "the scrapes of some pods fail",
    "signals": "all pods are scraped, but serve none of the policy's series (a renamed metric)",
    "hang": "some engines stand still, their metrics page with them",
    "kill": "some engines die: their requests fail, and they load again",
}
FALLBACK = keda.Fallback(3, 2, "currentReplicasIfHigher")
FLAP_SECONDS = 600.0
"""A change of direction within so long counts as a flap."""


@dataclass(frozen=True)
class Fault:
    """Something goes wrong at ``start`` for ``seconds``; ``pods`` of the oldest ready pods are hit."""

    kind: Literal["prometheus", "exporter", "signals", "hang", "kill"]
    start: float
    seconds: float
    pods: int = 1


@dataclass(frozen=True)
class Slo:
    """A request is well served when its first token comes within ``ttft`` and the others ``itl`` apart on average."""

    ttft: float = 2.0
    itl: float = 0.06


@dataclass(frozen=True)
class Settings:
    """Everything about a run but its arrivals and its policy. Seconds."""

    engine: Engine
    seconds: float
    decode_capacity: float | None = None
    """Tokens per second of one replica at the SLO: what the sidecar is told."""
    low: int = 2
    high: int = 12
    start: int | None = None
    """Replicas at the beginning, ready; the minimum when None."""
    router: str = "least-requests"
    controller: Literal["hpa", "keda"] = "hpa"
    fallback: keda.Fallback | None = FALLBACK
    ignore_null: bool = False
    scrape: float = 15.0
    sample: float = 1.0
    """The sidecar's interval."""
    schedule: float = 10.0
    """From a pod's creation to its start: Pending."""
    grace: float = 300.0
    """terminationGracePeriodSeconds: what is unanswered then is lost."""
    slo: Slo = field(default_factory=Slo)
    faults: tuple[Fault, ...] = ()
    tail: float = 600.0
    """After the end: so long may requests still finish. Not counted in the replica-hours."""
    wire: bool = False
    """The sidecar with its text; slow, the same figures."""
    capacities: tuple[tuple[float, float], ...] = ()
    """(when, the decode capacity from then on), for a policy that is told."""

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.high:
            raise InputError(f"replicas: the minimum {self.low} must be at least 1 and not above the maximum {self.high}")
        if self.seconds <= 0 or self.scrape <= 0:
            raise InputError("the duration and the scrape interval must be above 0")
        if any(at < 0 or not capacity > 0 for at, capacity in self.capacities):
            raise InputError("capacities: a time must be at least 0, a decode capacity above 0")
        for fault in self.faults:
            if fault.start < 0 or fault.seconds <= 0 or fault.pods < 1:
                raise InputError(f"fault {fault.kind}: the start must be at least 0, the duration above 0, pods at least 1")


@dataclass
class Result:
    """What came of a run. Times in seconds; SLO shares are of all requests, failed ones count as violations."""

    requests: int = 0
    good: int = 0
    ttft_good: int = 0
    itl_good: int = 0
    failed: int = 0
    tokens: int = 0
    replica_seconds: float = 0.0
    preemptions: int = 0
    scale_ups: int = 0
    scale_downs: int = 0
    flaps: int = 0
    blind_scale_ins: int = 0
    """Replicas taken away at a sync at which a pod had no data: one that has been ready for two scrapes or more."""
    peak: int = 0
    replicas: list[tuple[float, int, int]] = field(default_factory=list)
    """(time, wanted, ready) at each change."""
    violations: list[float] = field(default_factory=list)
    """When requests arrived that were not well served."""
    ttfts: list[float] = field(default_factory=list)
    itls: list[float] = field(default_factory=list)
    syncs: list[tuple[float, int, float | None]] = field(default_factory=list)
    """(time, wanted, the first metric's mean over pods or None) at each sync."""

    @property
    def attainment(self) -> float:
        """Share of requests that met both objectives; 1 without requests."""
        return self.good / self.requests if self.requests else 1.0

    @property
    def replica_hours(self) -> float:
        """GPU time held, loading and draining included."""
        return self.replica_seconds / 3600


class _Pod:
    """One pod: Pending, loading, ready, terminating."""

    def __init__(self, number: int, created: float, engine: Engine) -> None:
        self.name = f"pod-{number}"
        self.created = created
        self.engine = engine
        self.running = False
        """The container runs."""
        self.ready = False
        self.ready_at = created
        self.deleted = False
        self.gone = False
        self.unreachable = False
        self.replica: Replica | None = None
        self.sidecar: observe.Sidecar | None = None
        self.last: Record | None = None


class Fleet:
    """One run. ``run()`` may be called once."""

    def __init__(self, settings: Settings, arrivals: Sequence[Arrival], policy: ScalePolicy | None, seed: int,
                 schedule: Callable[[float], int] | None = None) -> None:
        """``policy`` None keeps the replicas as they are, or as ``schedule`` (time -> replicas) says: an oracle."""
        self.settings = settings
        self.policy = policy
        self.result = Result()
        self._schedule = schedule
        self._arrivals = arrivals
        self._dice = random.Random(f"fleet/{seed}")
        self._router = router(settings.router, seed)
        self._store = Store()
        self._pods: list[_Pod] = []
        self._targets: list[_Pod] = []
        self._replicas: list[Replica] = []
        self._held: list[Request] = []
        self._unanswered: set[Request] = set()
        self._numbers = itertools.count()
        self._order = itertools.count()
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._wanted = settings.low if settings.start is None else settings.start
        self._asked_down = False
        self._blind_names: frozenset[str] = frozenset()
        self._last_change: tuple[float, int] | None = None
        behavior = policy.behavior if policy is not None else hpa.Behavior()
        self._controller = hpa.Controller(settings.low, settings.high, behavior)
        self._triggers = [keda.Trigger(one.target, settings.ignore_null, settings.fallback)
                          for one in (policy.metrics if policy is not None else ())]
        self._signals_gone = False
        self._capacity = settings.decode_capacity
        """What a sidecar is told at its start."""

    # --- the loop -------------------------------------------------------------------------------

    def run(self, progress: Callable[[float], None] | None = None) -> Result:
        """Play it to the end."""
        settings = self.settings
        for _ in range(self._wanted):
            self._create(0.0, ready=True)
        self._note(0.0)
        self._at(hpa.SYNC_SECONDS * self._dice.random(), self._sync)
        if self.policy is not None and self.policy.informed:
            for at, told in settings.capacities:
                self._at(at, lambda now, told=told: self._tell(told))  # type: ignore[misc]
        for fault in settings.faults:
            self._at(fault.start, lambda now, fault=fault: self._break(now, fault))  # type: ignore[misc]
        events = self._events
        end = settings.seconds
        for at, prompt, output in self._arrivals:
            if at > end:
                break
            while events[0][0] <= at:
                now, _, do = heapq.heappop(events)
                do(now)
            self._arrive(Request(at, prompt, output))
            if progress is not None:
                progress(at)
        while events and events[0][0] <= end:
            now, _, do = heapq.heappop(events)
            do(now)
        self._note(end)
        self._finish(end)
        return self.result

    def _at(self, time: float, do: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (time, next(self._order), do))

    def _finish(self, end: float) -> None:
        for pod in self._pods:
            if not pod.gone:
                self.result.replica_seconds += end - pod.created
            if pod.replica is not None and not pod.gone:
                if pod.replica.frozen:
                    pod.replica.thaw(end)
                pod.replica.advance(end + self.settings.tail)
                self.result.preemptions += pod.replica.preemptions
                self.result.tokens += pod.replica.generation
        for request in sorted(self._unanswered, key=lambda one: one.arrival):
            request.failed = request.failed or "unanswered at the end"
            self._account(request)
        self._unanswered.clear()

    # --- requests -------------------------------------------------------------------------------

    def _arrive(self, request: Request) -> None:
        self.result.requests += 1
        self._unanswered.add(request)
        self._route(request.arrival, request)

    def _route(self, now: float, request: Request) -> None:
        if not self._replicas:
            self._held.append(request)
            return
        replica = self._replicas[self._router(now, self._replicas)]
        replica.advance(now)
        replica.submit(request)

    def _answered(self, request: Request) -> None:
        self._unanswered.discard(request)
        self._account(request)

    def _account(self, request: Request) -> None:
        result, slo = self.result, self.settings.slo
        if request.failed:
            result.failed += 1
            result.violations.append(request.arrival)
            return
        ttft, itl = request.ttft, request.itl
        result.ttfts.append(ttft)
        result.itls.append(itl)
        prompt, smooth = ttft <= slo.ttft, itl <= slo.itl
        result.ttft_good += prompt
        result.itl_good += smooth
        if prompt and smooth:
            result.good += 1
        else:
            result.violations.append(request.arrival)

    # --- pods -----------------------------------------------------------------------------------

    def _create(self, now: float, *, ready: bool = False) -> None:
        pod = _Pod(next(self._numbers), now, self.settings.engine)
        self._pods.append(pod)
        self._targets.append(pod)
        if ready:
            pod.running = True
            self._become_ready(now, pod)
        else:
            self._at(now + self.settings.schedule, lambda at: self._start(at, pod))
        if self.policy is not None:
            self._at(now + self.settings.scrape * self._dice.random(), lambda at: self._scrape(at, pod))

    def _start(self, now: float, pod: _Pod) -> None:
        if not pod.deleted:
            pod.running = True
            self._at(now + pod.engine.load, lambda at: self._become_ready(at, pod))

    def _become_ready(self, now: float, pod: _Pod) -> None:
        if pod.deleted:
            return
        settings = self.settings
        sampled = self.policy is not None and self.policy.needs_sidecar
        pod.replica = Replica(pod.engine, now, on_finish=self._answered,
                              sample_interval=settings.sample if sampled else 0.0,
                              sample_phase=settings.sample * self._dice.random())
        if sampled:
            assert self.policy is not None
            learns = self.policy.learns
            given = observe.settings(None if learns else self._capacity, settings.sample,
                                     projected=self.policy.needs_history,
                                     itl_objective=settings.slo.itl if learns else None)
            capacity = pod.engine.blocks * pod.engine.block
            pod.sidecar = (observe.WireSidecar(given, capacity, now) if settings.wire
                           else observe.FastSidecar(given, capacity, [one.signal for one in self.policy.metrics
                                                                    if one.signal.startswith("llm_")]))
        pod.last = pod.replica.record(now)
        pod.ready, pod.ready_at = True, now
        self._replicas.append(pod.replica)
        held, self._held = self._held, []
        for request in held:
            self._route(now, request)
        self._note(now)

    def _tell(self, decode_capacity: float) -> None:
        self._capacity = decode_capacity
        for pod in self._pods:
            if isinstance(pod.sidecar, observe.FastSidecar):
                pod.sidecar.tell(decode_capacity)

    def _delete(self, now: float) -> None:
        """Take away one pod, as a ReplicaSet chooses: not ready before ready, then the newest."""
        pod = min((pod for pod in self._pods if not pod.deleted and not pod.gone),
                  key=lambda one: (one.ready, one.running, -one.created, one.name))
        pod.deleted = True
        self._targets.remove(pod)
        if pod.replica is None:
            self._remove(now, pod)
            return
        if pod.ready:
            self._replicas.remove(pod.replica)
        deadline = now + self.settings.grace
        self._at(now, lambda at: self._drain(at, pod, deadline))

    def _drain(self, now: float, pod: _Pod, deadline: float) -> None:
        assert pod.replica is not None
        pod.replica.advance(now)
        if pod.replica.requests and now < deadline:
            self._at(min(deadline, now + 1.0), lambda at: self._drain(at, pod, deadline))
            return
        for request in pod.replica.drop_all("killed at the end of the grace period"):
            self._answered(request)
        self._remove(now, pod)

    def _remove(self, now: float, pod: _Pod) -> None:
        pod.gone = True
        pod.ready = False
        self._store.forget(pod.name)
        self.result.replica_seconds += now - pod.created
        if pod.replica is not None:
            self.result.preemptions += pod.replica.preemptions
            self.result.tokens += pod.replica.generation
            pod.replica = None
        self._pods.remove(pod)

    def _note(self, now: float) -> None:
        ready = len(self._replicas)
        self.result.peak = max(self.result.peak, self._wanted)
        self.result.replicas.append((now, self._wanted, ready))

    # --- metrics --------------------------------------------------------------------------------

    def _scrape(self, now: float, pod: _Pod) -> None:
        if pod.gone:
            return
        self._at(now + self.settings.scrape, lambda at: self._scrape(at, pod))
        replica = pod.replica
        if replica is None or not (pod.ready or pod.deleted):
            self._store.forget(pod.name)
            return
        replica.advance(now)
        record = replica.record(now)
        before, pod.last = pod.last, record
        if pod.sidecar is not None:
            pod.sidecar.feed(replica.samples)
            replica.samples = []
        if pod.unreachable:
            self._store.forget(pod.name)
        elif self._signals_gone:
            self._store.scrape(pod.name, now, {})
        else:
            self._store.scrape(pod.name, now, self._values(now, pod, record, before))

    def _values(self, now: float, pod: _Pod, record: Record, before: Record | None) -> dict[str, float | None]:
        assert self.policy is not None
        served = pod.sidecar.signals(now) if pod.sidecar is not None else {}
        values: dict[str, float | None] = {}
        for metric in self.policy.metrics:
            name = metric.signal
            if name.startswith("llm_"):
                values[name] = served.get(name)
            elif name == GPU:  # the duty cycle since the last scrape: kinder to it than the last second's
                span = record.at - before.at if before is not None else 0.0
                values[name] = min(1.0, (record.busy - before.busy) / span) if before is not None and span > 0 else None
            elif name == EPP:
                values[name] = max(record.usage / 0.8, record.waiting / 5)
            else:
                values[name] = {WAITING: record.waiting, KV: record.usage, RUNNING: record.running}[name]
        return values

    # --- the autoscaler -------------------------------------------------------------------------

    def _sync(self, now: float) -> None:
        self._at(now + hpa.SYNC_SECONDS, self._sync)
        current = self._wanted
        seen: float | None = None
        if self._schedule is not None:
            wanted = min(self.settings.high, max(self.settings.low, self._schedule(now)))
        elif self.policy is None:
            return
        else:
            proposals: list[int | None] = []
            for metric, trigger in zip(self.policy.metrics, self._triggers, strict=True):
                names = [pod.name for pod in self._targets if pod.running]
                values = {} if self._store.down else self._store.values(metric.signal, now, names)
                if values and seen is None:
                    seen = sum(values.values()) / len(values)
                try:
                    proposals.append(self._propose(now, metric.target, values, trigger))
                except hpa.NoMetric:
                    proposals.append(None)
            wanted = self._controller.decide(now, current, hpa.combine(current, proposals))
            if wanted < current and self._blind(now):
                self.result.blind_scale_ins += current - wanted
        self.result.syncs.append((now, wanted, seen))
        if wanted != current:
            self._resize(now, current, wanted)

    def _propose(self, now: float, target: float, values: dict[str, float], trigger: keda.Trigger) -> int:
        if self.settings.controller == "hpa":
            pods = [hpa.PodState(pod.name, "Running" if pod.running else "Pending", pod.ready) for pod in self._targets]
            return hpa.pods_metric(self._wanted, target, values, pods)
        # our trigger's query: the mean of the pods that tell, times the ready pods
        answer = sum(values.values()) / len(values) * len(self._replicas) if values else None
        value = trigger.metric(answer, self._wanted, failed=self._store.down)
        return hpa.external_average(self._wanted, target, value)

    def _blind(self, now: float) -> bool:
        assert self.policy is not None
        names = [pod.name for pod in self._targets if pod.ready and now - pod.ready_at > self.settings.scrape * 2]
        return self._store.down or any(
            len(self._store.values(metric.signal, now, names)) < len(names) for metric in self.policy.metrics)

    def _resize(self, now: float, current: int, wanted: int) -> None:
        self._wanted = wanted
        sign = 1 if wanted > current else -1
        if sign > 0:
            self.result.scale_ups += 1
        else:
            self.result.scale_downs += 1
        if self._last_change is not None and self._last_change[1] != sign and now - self._last_change[0] < FLAP_SECONDS:
            self.result.flaps += 1
        self._last_change = (now, sign)
        for _ in range(abs(wanted - current)):
            if sign > 0:
                self._create(now)
            else:
                self._delete(now)
        self._note(now)

    # --- faults ---------------------------------------------------------------------------------

    def _break(self, now: float, fault: Fault) -> None:
        hit = [pod for pod in self._targets if pod.ready][: fault.pods]
        if fault.kind == "prometheus":
            self._store.down = True
        elif fault.kind == "signals":
            self._signals_gone = True
        for pod in hit:
            assert pod.replica is not None
            if fault.kind == "exporter":
                pod.unreachable = True
            elif fault.kind == "hang":
                pod.replica.advance(now)
                pod.replica.frozen = True
            elif fault.kind == "kill":
                pod.replica.advance(now)
                for request in pod.replica.drop_all("the engine died"):
                    self._answered(request)
                self._replicas.remove(pod.replica)
                self.result.preemptions += pod.replica.preemptions
                self.result.tokens += pod.replica.generation
                pod.replica, pod.ready = None, False
                self._at(now + pod.engine.load, lambda at, pod=pod: self._become_ready(at, pod))  # type: ignore[misc]
                self._note(now)
        self._at(now + fault.seconds, lambda at: self._mend(at, fault, hit))

    def _mend(self, now: float, fault: Fault, hit: Sequence[_Pod]) -> None:
        if fault.kind == "prometheus":
            self._store.down = False
        elif fault.kind == "signals":
            self._signals_gone = False
        for pod in hit:
            pod.unreachable = False
            if pod.replica is not None and fault.kind == "hang":
                pod.replica.thaw(now)
