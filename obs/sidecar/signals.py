"""All signals of a pod: ``feed`` it samples, ask it for a ``snapshot``. It has no clock, no thread and no socket.

The live sidecar drives it once a second; a simulator can drive it with virtual time. Times are seconds of any
monotonic clock. ``snapshot(now)`` applies the freshness rules: what is older than the max age is gone, whatever the
last sample said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from obs.sidecar import dialects
from obs.sidecar.detect import AUTO, detect
from obs.sidecar.dialects import Reading
from obs.sidecar.model import LOAD, TRITON_LOAD, Model, Signal
from obs.sidecar.reader import Samples
from obs.sidecar.scrape import REASONS
from obs.sidecar.settings import Settings

OK = "ok"
UNKNOWN = "unknown"
FORGET_SECONDS = 300.0
"""A model that good pages lack for so long is forgotten, its counters too."""
NAME_LENGTH = 256
"""A model with a longer name is not followed: the name would be in every one of its series."""

#: The pod's own composites: the highest of its models.
POD = {
    "llm_pod_load_ratio": "llm_scaling_load_ratio",
    "llm_pod_projected_load_ratio": "llm_scaling_projected_load_ratio",
    "llm_pod_saturation_ratio": "llm_scaling_saturation_ratio",
}


@dataclass(frozen=True)
class ModelState:
    """One model in a snapshot. ``counters`` go on being served when the signals are withheld."""

    engine: str
    name: str
    version: str
    signals: Mapping[str, Signal]
    counters: Mapping[str, float]
    waiting_by_reason: Mapping[str, float]
    suspect: bool
    decode_capacity: float | None
    decode_capacity_source: str


@dataclass(frozen=True)
class Snapshot:
    """What is known at one moment. ``reason`` says why ``up`` is False ("" when it is True)."""

    engine: str
    up: bool
    reason: str
    ready: bool
    age: float | None
    models: Sequence[ModelState]
    pod: Mapping[str, float]
    restarts: int
    outcomes: Mapping[str, int]
    dropped_models: int


@dataclass
class _Outcomes:
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys((OK, *REASONS), 0))


class Signals:
    """The signals of one target."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._models: dict[tuple[str, str, str], Model] = {}
        self._engine = UNKNOWN if settings.engine == AUTO else settings.engine
        self._last_good: float | None = None
        self._last_outcome = ""
        self._outcomes = _Outcomes().counts
        self._restarts = 0
        self._process_start: float | None = None
        self._samples_since_start = 0
        self._dropped: set[int] = set()
        self._ready: bool | None = None

    # --- what happened --------------------------------------------------------------------------

    def feed(self, at: float, samples: Samples) -> None:
        """A whole page of needed samples; ScrapeFailed when it is of no engine that we look for."""
        found = detect(self.settings.engine, samples)
        readings: dict[tuple[str, str, str], Reading] = {}
        backed: set[str] = set()
        for dialect in found:
            for reading in dialects.read(dialect, samples, self.settings.model_name):
                if dialect is dialects.TRITON and reading.model in backed:
                    continue  # Triton hands these over at once: its queue says nothing
                readings[reading.engine, reading.model, reading.version] = reading
                backed.add(reading.model)
        start = dialects.process_start(samples)
        restarted = None not in (start, self._process_start) and start != self._process_start
        self._process_start = start if start is not None else self._process_start
        if self._last_good is not None and at <= self._last_good:
            self._models.clear()  # the clock went back: nothing earlier compares with this
        reset = False
        for key, reading in readings.items():
            model = self._model(key, at)
            if model is not None:
                reset = model.feed(at, reading, restarted=restarted) or reset
        if restarted or reset:
            self._restarts += 1
            self._samples_since_start = 0
        self._engine = found[0].key
        self._last_good, self._last_outcome = at, OK
        self._outcomes[OK] += 1
        self._samples_since_start += 1
        self._forget(at)

    def fail(self, reason: str) -> None:
        """A sample failed; the signals stay until they are too old."""
        self._last_outcome = reason
        self._outcomes[reason] = self._outcomes.get(reason, 0) + 1

    def set_ready(self, ready: bool | None) -> None:
        """What the readiness probe says; None when nobody probes."""
        self._ready = ready

    def _model(self, key: tuple[str, str, str], at: float) -> Model | None:
        model = self._models.get(key)
        if model is None:
            if len(self._models) >= self.settings.max_models or max(map(len, key)) > NAME_LENGTH:
                if len(self._dropped) < self.settings.max_models * 32:
                    self._dropped.add(hash(key))
                return None
            model = self._models[key] = Model(*key, self.settings)
        elif at - model.last_seen > FORGET_SECONDS:
            model = self._models[key] = Model(*key, self.settings)
        return model

    def _forget(self, at: float) -> None:
        for key in [key for key, model in self._models.items() if at - model.last_seen > FORGET_SECONDS]:
            del self._models[key]
            self._dropped.clear()

    # --- what is known --------------------------------------------------------------------------

    def snapshot(self, now: float) -> Snapshot:
        """Everything that may be served at ``now``."""
        age = None if self._last_good is None else max(0.0, now - self._last_good)
        fresh = age is not None and age <= self.settings.age_limit
        failing = self._last_outcome not in (OK, "")
        reason = "" if fresh else self._last_outcome if failing else "stale" if age is not None else "starting"
        withheld = ""
        if not fresh:
            withheld = "down" if failing else "stale"
        elif self._ready is False:
            withheld = "not_ready"
        states = [self._state(model, withheld) for _, model in sorted(self._models.items())]
        pod = {}
        for name, of in POD.items():
            values = [state.signals[of].value for state in states if of in state.signals]
            known = [value for value in values if value is not None]
            if known:
                pod[name] = max(known)
        return Snapshot(
            engine=self._engine,
            up=fresh,
            reason=reason,
            ready=fresh and self._ready is not False and self._samples_since_start >= 2,
            age=age,
            models=states,
            pod=pod,
            restarts=self._restarts,
            outcomes=dict(self._outcomes),
            dropped_models=len(self._dropped),
        )

    def _state(self, model: Model, withheld: str) -> ModelState:
        gone = self._last_good is not None and model.last_seen < self._last_good
        if withheld or gone:
            signals: Sequence[Signal] = model.withhold(withheld or "missing_metric")
        else:
            signals = model.signals
        capacity, source, _ = model.decode_capacity()
        available = not withheld and not gone
        return ModelState(
            engine=model.engine,
            name=model.name,
            version=model.version,
            signals={signal.name: signal for signal in signals},
            counters=dict(model.counters),
            waiting_by_reason=dict(model.waiting_by_reason) if available and not model.suspect else {},
            suspect=model.suspect and available,
            decode_capacity=capacity,
            decode_capacity_source=source,
        )


__all__ = ["LOAD", "OK", "TRITON_LOAD", "ModelState", "Signals", "Snapshot"]
