"""One model: its history, and from that its signals, or for each the reason why there is none."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from obs.sidecar import estimate, window
from obs.sidecar.calibrate import Calibration
from obs.sidecar.counters import Total
from obs.sidecar.dialects import Reading
from obs.sidecar.estimate import Lengths
from obs.sidecar.settings import Settings
from obs.sidecar.window import Point

ENOUGH_REQUESTS = 20
"""From so many finished requests on a mean length is believed."""
LENGTH_SECONDS = 300.0
"""Lengths are taken from the last five minutes, in steps of five seconds."""
_LENGTH_STEP = 5.0
_LENGTH_TOTALS = ("input_length_sum", "input_length_count", "output_length_sum", "output_length_count")
ESTIMATE_SECONDS = 5.0
"""The window of the estimators: the window of the signals smooths what they give."""
LEAK_SECONDS = 300.0
"""Requests that an estimator believes to be under way without any progress for so long were aborted unseen."""
INVALID_SAMPLES = 3
MIN_SLOPE = 0.0005
MAX_EXHAUSTION = 3600.0
GROWTH_DOUBT = 1.0
"""Standard errors that are taken off the growth of arrivals before it is believed."""
_GROWTH_STEP = 5.0
_FINISH_PATIENCE = 10
JITTER_SLACK = 0.25
"""A window reaches back this share of an interval further, so that jitter does not change how many samples it has."""

LEARNT = "calibrated"
"""The source of a decode capacity that was learnt: see obs/sidecar/calibrate.py."""

#: Why a signal is withheld: the values of ``llm_signal_info{reason}``.
WITHHELD: dict[str, str] = {
    "down": "the engine does not answer",
    "stale": "the last good sample is older than the max age",
    "not_ready": "the engine says that it is not ready",
    "sleeping": "the engine was put to sleep",
    "stalled": "requests are there, and nothing has moved for many samples: the numbers are frozen",
    "warming": "fewer than two samples since the start",
    "missing_metric": "the engine does not serve what it takes",
    "invalid": "the engine served NaN, infinity, or a number out of range, several times in a row",
    "no_capacity": "a capacity is needed that neither the engine nor the configuration gives",
    "calibrating": "the decode capacity is being learnt: more samples with tokens are needed",
    "no_history": "more samples or more finished requests are needed",
    "no_observations": "nothing was observed in the window",
    "not_growing": "the KV cache does not fill up",
}

#: Where a value comes from: the values of ``llm_signal_info{source}``.
SOURCES: dict[str, str] = {
    "engine": "the engine's own figure",
    "engine_at_finish": "the engine's own counter, which moves only when a request ends",
    "iterations": "iteration counter times requests in decode, added up sample by sample",
    "estimate": "derived: see obs/sidecar/estimate.py",
    "config": "the configuration takes part in it",
}


class Signal(NamedTuple):
    """A value, or the reason why there is none; ``source`` is where it comes, or would come, from."""

    name: str
    value: float | None
    source: str = "engine"
    reason: str = ""


LOAD = (
    "llm_scaling_load_ratio", "llm_scaling_saturation_ratio", "llm_scaling_decode_demand_ratio",
    "llm_scaling_kv_demand_ratio", "llm_scaling_projected_load_ratio",
    "llm_kv_cache_usage_ratio", "llm_kv_cache_usage_mean_ratio", "llm_kv_cache_used_tokens",
    "llm_kv_cache_capacity_tokens", "llm_kv_cache_exhaustion_seconds",
    "llm_requests_running", "llm_requests_waiting", "llm_request_slots", "llm_request_arrivals_per_second",
    "llm_decode_throughput_tokens_per_second", "llm_decode_throughput_instant_tokens_per_second",
    "llm_decode_throughput_ratio", "llm_prefill_throughput_tokens_per_second",
    "llm_time_to_first_token_mean_seconds", "llm_inter_token_latency_mean_seconds",
    "llm_request_latency_mean_seconds",
)
_EXHAUSTION = "llm_kv_cache_exhaustion_seconds"
BESIDE = frozenset((_EXHAUSTION, *(name for name in LOAD if "throughput" in name or name.endswith("_mean_seconds"))))
"""Those that no other signal is made of."""
TRITON_LOAD = ("triton_model_pending_requests", "triton_model_queue_time_mean_seconds", "triton_model_batch_size_mean")

_COUNTER_SIGNALS = {
    "llm_generation_tokens_total": ("generation", "iteration_tokens"),
    "llm_prompt_tokens_total": ("prompt",),
    "llm_preemptions_total": ("preemptions",),
}


class Model:
    """Follows one model through the samples; ``signals`` says what can be said after the last one."""

    def __init__(self, engine: str, name: str, version: str, settings: Settings) -> None:
        self.engine = engine
        self.name = name
        self.version = version
        self.wanted: Sequence[str] = LOAD
        """Which signals of an LLM are computed."""
        self.last_seen = -math.inf
        self.signals: tuple[Signal, ...] = ()
        self.counters: dict[str, float] = {}
        self.waiting_by_reason: Mapping[str, float] = {}
        self.suspect = False
        self._settings = settings
        self._given = settings.model(name)
        self._totals: dict[str, Total] = {}
        self._points: deque[Point] = deque()
        self._lengths: deque[tuple[float, Mapping[str, float], Mapping[float, float]]] = deque()
        self._invalid: dict[str, int] = {}
        self._progress: object = None
        self._still = 0
        self._still_since = 0.0
        self._last: Reading | None = None
        self._in_flight_base: float | None = None
        self._waiting_base: float | None = None
        self._iteration_tokens = 0.0
        self._generating_before: float | None = None
        self._calibration: Calibration | None = None
        if self._given.decode_capacity is None and self._given.itl_objective is not None and engine != "triton":
            self._calibration = Calibration()

    # --- feeding --------------------------------------------------------------------------------

    def feed(self, at: float, reading: Reading, *, restarted: bool = False) -> bool:
        """Take one sample; whether it shows that the engine was restarted."""
        totals, reset = self._count(reading, restarted)
        if restarted or reset or (self._points and at <= self._points[-1].at):
            self._forget()
        gauges = dict(reading.gauges)
        if self.engine == "triton_vllm":
            self._estimate(at, reading, totals, gauges)
        if self._given.slots is not None:
            gauges["slots"] = self._given.slots
        if self._given.kv_capacity_tokens is not None:
            gauges["kv_capacity"] = self._given.kv_capacity_tokens
        if self._calibration is not None and self._points and not reading.at_finish:
            self._calibration.feed(self._points[-1], Point(at, totals, gauges))
        self._append(Point(at, totals, gauges))
        for name in ("kv_max", "running", "waiting"):
            self._invalid[name] = self._invalid.get(name, 0) + 1 if name in reading.invalid else 0
        self._watch(at, reading, gauges)
        self.last_seen = at
        self._last = reading
        self.waiting_by_reason = reading.waiting_by_reason
        for name, quantities in _COUNTER_SIGNALS.items():
            for quantity in quantities:
                if quantity in totals:
                    self.counters[name] = totals[quantity]
                    break
        self.signals = tuple(self._compute(reading))
        return reset

    def withhold(self, reason: str) -> tuple[Signal, ...]:
        """All load signals, withheld for one reason."""
        names = TRITON_LOAD if self.engine == "triton" else LOAD
        return tuple(Signal(name, None, reason=reason) for name in names)

    def _count(self, reading: Reading, restarted: bool) -> tuple[dict[str, float], bool]:
        reset = False
        totals: dict[str, float] = {}
        before = self._totals["iterations"].value if "iterations" in self._totals else None
        for quantity, counts in reading.counters.items():
            total = self._totals.setdefault(quantity, Total())
            reset = total.feed(counts, restarted=restarted) or reset
            totals[quantity] = total.value
        generating = reading.gauges.get("generating")
        if "iterations" in totals and generating is not None:
            if before is not None:
                level = generating if self._generating_before is None else (generating + self._generating_before) / 2
                self._iteration_tokens += (totals["iterations"] - before) * level
            totals["iteration_tokens"] = self._iteration_tokens
        self._generating_before = generating
        return totals, reset

    def _forget(self) -> None:
        self._points.clear()
        self._lengths.clear()
        self._progress = None
        self._still = 0
        self._in_flight_base = self._waiting_base = None

    def _append(self, point: Point) -> None:
        self._points.append(point)
        keep = max(self._settings.slope_window, self._settings.finish_window, self._settings.window)
        while len(self._points) > 2 and self._points[1].at < point.at - keep - self._settings.interval:
            self._points.popleft()
        if self._last is not None and (not self._lengths or point.at - self._lengths[-1][0] >= _LENGTH_STEP):
            self._lengths.append((point.at, point.totals, self._last.buckets))
            while point.at - self._lengths[0][0] > LENGTH_SECONDS:
                self._lengths.popleft()

    def _watch(self, at: float, reading: Reading, gauges: Mapping[str, float]) -> None:
        """Notice an engine whose requests make no progress: its gauges are frozen, whatever they say."""
        streams = "generation" in reading.counters and not reading.at_finish
        if streams or "iterations" in reading.counters:
            moving = ("generation", "prompt", "computed_prompt", "iterations")
            progress: object = tuple(self._totals[one].raw for one in moving if one in self._totals)
            patience = self._settings.stalled_samples
        else:  # nothing moves for as long as a long answer takes
            progress = (dict(reading.gauges), {one: total.raw for one, total in self._totals.items()})
            patience = self._settings.stalled_samples * _FINISH_PATIENCE
        busy = gauges.get("running", 0.0) + gauges.get("waiting", 0.0) > 0.5
        if busy and progress == self._progress:
            self._still += 1
        else:
            self._still, self._still_since = 0, at
        self._progress = progress
        self.suspect = self.engine != "triton" and self._still >= patience

    def _estimate(self, at: float, reading: Reading, totals: Mapping[str, float], gauges: dict[str, float]) -> None:
        """Running, waiting and KV cache of an engine that shows only its tokens."""
        raw = {name: total.raw for name, total in self._totals.items()}
        under_way = raw.get("ttft_count", 0.0) - raw.get("e2e_count", 0.0)
        handed_over = raw["arrivals"] - raw["ttft_count"] if {"arrivals", "ttft_count"} <= raw.keys() else None
        if under_way == 0 and not handed_over:
            self._in_flight_base = 0.0
            self._waiting_base = 0.0 if handed_over is not None else None
        points = [*window.tail(list(self._points), ESTIMATE_SECONDS), Point(at, totals, {})]
        token_rate = window.rate(points, "generation")
        latency = window.quotient(points, "itl_sum", "itl_count")
        if token_rate is None or "ttft_count" not in raw or "e2e_count" not in raw:
            return
        if self._still and at - self._still_since >= LEAK_SECONDS:  # aborted requests leak out of both counts
            self._in_flight_base, self._waiting_base = under_way, handed_over
        in_flight = max(0.0, under_way - (self._in_flight_base or 0.0))
        if token_rate > 0 and latency is not None:
            gauges["running"] = estimate.running(token_rate, latency)
        else:
            gauges["running"] = in_flight
        if handed_over is not None and self._waiting_base is not None:
            gauges["waiting"] = max(0.0, handed_over - self._waiting_base)
        held = estimate.tokens_held(gauges["running"], self.lengths())
        if gauges["running"] == 0:
            held = 0.0
        if held is not None:
            gauges["kv_used"] = held
            if self._given.kv_capacity_tokens:
                gauges["kv_max"] = gauges["kv_mean"] = min(1.0, held / self._given.kv_capacity_tokens)

    def lengths(self) -> Lengths:
        """Mean lengths: of the last minutes, else of the engine's life, else as configured."""
        if self._lengths and self._points and self._last is not None:
            _, then, buckets_then = self._lengths[0]
            now, buckets = self._points[-1].totals, self._last.buckets
            count = now.get("output_length_count", 0.0) - then.get("output_length_count", 0.0)
            if count >= ENOUGH_REQUESTS and all(buckets.get(le, 0.0) >= n for le, n in buckets_then.items()):
                grown = {le: n - buckets_then.get(le, 0.0) for le, n in buckets.items()}
                return self._lengths_of({key: now[key] - then.get(key, 0.0) for key in _LENGTH_TOTALS if key in now}, grown)
        raw = {name: total.raw for name, total in self._totals.items()}
        if raw.get("output_length_count", 0.0) >= ENOUGH_REQUESTS:
            return self._lengths_of(raw, self._last.buckets if self._last is not None else {})
        return Lengths(self._given.input_tokens, self._given.output_tokens)

    def decode_capacity(self) -> tuple[float | None, str, str]:
        """Decode tokens per second at the SLO, where from, and why it is not known."""
        given = self._given
        if given.decode_capacity is not None:
            return given.decode_capacity, given.decode_capacity_source, ""
        if self._calibration is None or given.itl_objective is None or not self._points:
            return None, "", "no_capacity"
        lengths, gauges = self.lengths(), self._points[-1].gauges
        found = self._calibration.capacity(given.itl_objective, lengths.input, lengths.output,
                                           gauges.get("kv_capacity"), gauges.get("slots"))
        return found, LEARNT, "calibrating"

    def _lengths_of(self, totals: Mapping[str, float], buckets: Mapping[float, float]) -> Lengths:
        outputs = totals.get("output_length_count", 0.0)
        inputs = totals.get("input_length_count", 0.0)
        output = totals["output_length_sum"] / outputs if outputs > 0 else self._given.output_tokens
        return Lengths(
            totals["input_length_sum"] / inputs if inputs > 0 else self._given.input_tokens,
            output,
            estimate.second_moment(buckets, output) if output and buckets else None,
        )

    # --- computing ------------------------------------------------------------------------------

    def _compute(self, reading: Reading) -> Sequence[Signal]:
        if len(self._points) < 2:
            return self.withhold("warming")
        if self.engine == "triton":
            return self._compute_triton()
        if reading.asleep:
            return self.withhold("sleeping")
        if self.suspect:
            return self.withhold("stalled")
        return _Computation(self, self._points, self._settings, reading, self._invalid).all(self.wanted)

    def _compute_triton(self) -> Sequence[Signal]:
        points = window.tail(list(self._points), self._settings.window)
        pending = self._points[-1].gauges.get("pending")
        found = [Signal("triton_model_pending_requests", pending, reason="" if pending is not None else "missing_metric")]
        last = window.tail(points, 0)  # the last interval
        for name, above, below, scale in (
            ("triton_model_queue_time_mean_seconds", "queue_us", "success", 1e-6),
            ("triton_model_batch_size_mean", "inferences", "executions", 1.0),
        ):
            value = window.quotient(last, above, below)
            served = above in self._points[-1].totals and below in self._points[-1].totals
            reason = "no_observations" if served else "missing_metric"
            found.append(Signal(name, None, reason=reason) if value is None else Signal(name, value * scale))
        return found


class _Computation:
    """The signals of one LLM model after one sample: section 5 of the reference, line by line."""

    def __init__(
        self, model: Model, points: Sequence[Point], settings: Settings, reading: Reading, invalid: Mapping[str, int]
    ) -> None:
        self.settings = settings
        self.given = settings.model(model.name)
        self.reading = reading
        self.invalid = invalid
        self.history = list(points)
        self.slack = settings.interval * JITTER_SLACK
        self.recent = window.tail(self.history, settings.window, self.slack)
        self.slope_points = window.tail(self.history, settings.slope_window)
        self.latest = self.history[-1]
        self.lengths = model.lengths()
        self.capacity, self.capacity_source, self.no_capacity = model.decode_capacity()
        self.estimated = model.engine == "triton_vllm"
        self.state = "estimate" if self.estimated else "engine"
        self.demand_source = "estimate" if self.capacity_source == LEARNT else "config"
        self.found: dict[str, Signal] = {}

    def all(self, wanted: Sequence[str] = LOAD) -> Sequence[Signal]:
        """The signals of these names, in this order; parts that none of them takes are left out."""
        self.requests()
        self.kv_cache()
        if not BESIDE.isdisjoint(wanted):
            self.exhaustion()
            self.throughput()
            self.latencies()
        self.demand()
        self.composites()
        return [self.found[name] for name in wanted]

    def put(self, name: str, value: float | None, reason: str, source: str = "engine") -> None:
        """A value, or (when it is None) the reason why there is none."""
        if value is None or not math.isfinite(value):
            self.found[name] = Signal(name, None, source, reason)
        else:
            self.found[name] = Signal(name, value, source)

    def value(self, name: str) -> float | None:
        return self.found[name].value

    def window_of(self, at_finish: bool) -> Sequence[Point]:
        return window.tail(self.history, self.settings.finish_window, self.slack) if at_finish else self.recent

    def gauge(self, name: str, points: Sequence[Point] | None = None) -> tuple[float | None, str]:
        """A gauge's mean, and why there is none. A few samples may lack it; its absence from the page counts at once."""
        if self.invalid.get(name, 0) > INVALID_SAMPLES:
            return None, "invalid"
        if name not in self.latest.gauges and not self.invalid.get(name, 0):
            return None, "missing_metric"
        return window.mean(self.recent if points is None else points, name), "missing_metric"

    def requests(self) -> None:
        for name, gauge in (("llm_requests_running", "running"), ("llm_requests_waiting", "waiting")):
            _, reason = self.gauge(gauge)
            if gauge == "waiting" and self.estimated and reason == "missing_metric":
                reason = "no_history"
            self.put(name, self.latest.gauges.get(gauge), reason, self.state)
        self.waiting, _ = self.gauge("waiting")
        self.put("llm_request_slots", self.latest.gauges.get("slots"), "no_capacity",
                 "config" if self.given.slots is not None else "engine")
        arrivals = self.arrivals(self.recent)
        counted = "arrivals" in self.latest.totals or "finished" not in self.latest.totals
        self.put("llm_request_arrivals_per_second", arrivals, "missing_metric", "engine" if counted else "estimate")

    def arrivals(self, points: Sequence[Point]) -> float | None:
        """Requests per second: counted, or from what finished and what was added to the running and waiting requests."""
        first = next((one for one in points if self.counts(one)), None)
        last = next((one for one in reversed(points) if self.counts(one)), None)
        if first is None or last is None or first is last:
            return None
        return max(0.0, self.arrived(first, last) / (last.at - first.at))

    def counts(self, point: Point) -> bool:
        """Whether arrivals can be told at a point."""
        if "arrivals" in self.latest.totals:
            return "arrivals" in point.totals
        return "finished" in point.totals and "running" in point.gauges and (self.estimated or "waiting" in point.gauges)

    def arrived(self, first: Point, last: Point) -> float:
        """Requests that came between two such points: counted, or what finished plus what running and waiting grew."""
        if "arrivals" in self.latest.totals:
            return last.totals["arrivals"] - first.totals["arrivals"]
        now, then = last.gauges, first.gauges
        grown = now.get("running", 0.0) - then.get("running", 0.0) + (now.get("waiting", 0.0) - then.get("waiting", 0.0))
        return last.totals["finished"] - first.totals["finished"] + grown

    def kv_cache(self) -> None:
        lacking = "no_capacity" if self.estimated and self.given.kv_capacity_tokens is None else "missing_metric"
        self.kv, reason = self.gauge("kv_max")
        reason = lacking if reason == "missing_metric" else reason
        if self.estimated and self.given.kv_capacity_tokens and self.kv is None:
            reason = "no_history"
        self.put("llm_kv_cache_usage_ratio", self.kv, reason, self.state)
        mean = window.mean(self.recent, "kv_mean") if self.kv is not None else None
        self.put("llm_kv_cache_usage_mean_ratio", mean, reason, self.state)
        capacity = self.latest.gauges.get("kv_capacity")
        told = self.given.kv_capacity_tokens is not None
        self.put("llm_kv_cache_capacity_tokens", capacity, "no_capacity", "config" if told else "engine")
        used, source = self.latest.gauges.get("kv_used"), self.state
        if used is None and capacity and self.latest.gauges.get("kv_mean") is not None:
            used = self.latest.gauges["kv_mean"] * capacity
        self.put("llm_kv_cache_used_tokens", used, "no_capacity" if capacity is None else "missing_metric", source)

    def exhaustion(self) -> None:
        slope = window.slope(self.slope_points, "kv_max")
        if self.kv is None:
            self.put(_EXHAUSTION, None, self.found["llm_kv_cache_usage_ratio"].reason, self.state)
        elif slope is None:
            self.put(_EXHAUSTION, None, "no_history", self.state)
        elif slope <= MIN_SLOPE:
            self.put(_EXHAUSTION, None, "not_growing", self.state)
        else:
            seconds = (1 - self.latest.gauges.get("kv_max", self.kv)) / slope
            self.put(_EXHAUSTION, min(MAX_EXHAUSTION, seconds), "", self.state)

    def throughput(self) -> None:
        totals = self.latest.totals
        finish = self.reading.at_finish
        if "generation" in totals:
            decode = window.rate(self.window_of(finish), "generation")
            source = "engine_at_finish" if finish else "engine"
        else:
            decode, source = window.rate(self.recent, "iteration_tokens"), "iterations"
        self.put("llm_decode_throughput_tokens_per_second", decode, "missing_metric", source)
        last = self.history[-2:]
        if "generation" in totals and not finish:
            self.put("llm_decode_throughput_instant_tokens_per_second", window.rate(last, "generation"), "no_history")
        else:
            self.put("llm_decode_throughput_instant_tokens_per_second", window.rate(last, "iteration_tokens"),
                     "missing_metric", "iterations")
        capacity = self.capacity
        self.put("llm_decode_throughput_ratio", decode / capacity if capacity and decode is not None else None,
                 "missing_metric" if capacity else self.no_capacity, self.demand_source)
        prefill, source = window.rate(self.recent, "computed_prompt"), "engine"
        if prefill is None:
            # at finish, prompt and cached tokens are counted together too
            points = self.window_of(finish)
            prompt, cached = window.rate(points, "prompt"), window.rate(points, "cached_prompt")
            prefill = max(0.0, prompt - cached) if prompt is not None and cached is not None else None
            source = "engine_at_finish" if finish else "engine"
        self.put("llm_prefill_throughput_tokens_per_second", prefill, "missing_metric", source)

    def latencies(self) -> None:
        for name, quantity in (
            ("llm_time_to_first_token_mean_seconds", "ttft"),
            ("llm_inter_token_latency_mean_seconds", "itl"),
            ("llm_request_latency_mean_seconds", "e2e"),
        ):
            served = f"{quantity}_count" in self.latest.totals
            value = window.quotient(self.recent, f"{quantity}_sum", f"{quantity}_count")
            self.put(name, value, "no_observations" if served else "missing_metric")

    def demand(self) -> None:
        capacity, output = self.capacity, self.lengths.output
        demand = self.demanded(self.value("llm_request_arrivals_per_second"))
        reason = self.no_capacity if not capacity else "no_history" if output is None else "missing_metric"
        self.put("llm_scaling_decode_demand_ratio", demand, reason, self.demand_source)
        size = self.latest.gauges.get("kv_capacity")
        kv_demand: float | None = None
        if self.kv is None:
            reason = self.found["llm_kv_cache_usage_ratio"].reason
        elif not size:
            reason = "no_capacity"
        elif self.lengths.input is None or output is None:
            reason = "no_history"
        elif self.waiting is None:
            reason = self.found["llm_requests_waiting"].reason or "missing_metric"
        else:
            kv_demand = self.kv + self.waiting * (self.lengths.input + output / 2) / size
        self.put("llm_scaling_kv_demand_ratio", kv_demand, reason, self.state)

    def demanded(self, arrivals: float | None) -> float | None:
        """The share of the decode capacity that so many requests per second take, and what waits."""
        capacity, output = self.capacity, self.lengths.output
        if not capacity or output is None or arrivals is None:
            return None
        backlog = (self.waiting or 0.0) * output / self.settings.backlog_seconds
        return (arrivals * output + backlog) / capacity

    def composites(self) -> None:
        demand = self.value("llm_scaling_decode_demand_ratio")
        axes = [axis for axis in (self.kv, demand) if axis is not None]
        reason = self.found["llm_kv_cache_usage_ratio"].reason or "missing_metric"
        source = self.demand_source if demand is not None and demand == max(axes) else self.state
        self.put("llm_scaling_load_ratio", max(axes, default=None), reason, source)
        self.put("llm_scaling_projected_load_ratio", self.projected(), "missing_metric", source)
        slots = self.latest.gauges.get("slots")
        running, _ = self.gauge("running")
        parts = [
            self.kv / self.settings.target_kv if self.kv is not None else None,
            self.waiting / self.settings.target_waiting if self.waiting is not None else None,
            running / slots / self.settings.target_slots if slots and running is not None else None,
        ]
        known = [part for part in parts if part is not None]
        self.put("llm_scaling_saturation_ratio", max(known, default=None), reason, self.state)

    def projected(self) -> float | None:
        """The load with its growth until a new pod could help; in a history shorter than its window nothing grows yet.

        Arrivals come in bunches: while they do not surely grow, their rate is that of a longer window.
        """
        settings = self.settings
        axes: list[float | None] = []
        if self.kv is not None:
            slope = window.slope(window.tail(self.history, settings.level_window), "kv_max")
            growth = max(0.0, slope or 0.0) if self.reaches(settings.level_window) else 0.0
            axes.append(self.kv + growth * settings.projection_seconds)
        if self.value("llm_scaling_decode_demand_ratio") is not None:
            growth = self.arrivals_growth(self.slope_points) if self.reaches(settings.slope_window) else 0.0
            longer = window.tail(self.history, settings.level_window, self.slack)
            arrivals = self.arrivals(self.recent if growth > 0 else longer)
            if arrivals is not None:
                axes.append(self.demanded(arrivals + growth * settings.start_up_seconds))
        return max((axis for axis in axes if axis is not None), default=None)

    def reaches(self, seconds: float) -> bool:
        """Whether the history is as long as a window, but for a sample."""
        return self.latest.at - self.history[0].at >= seconds - 1.5 * self.settings.interval

    def arrivals_growth(self, points: Sequence[Point]) -> float:
        """By how much the arrival rate surely grows, per second: the slope less its standard error; never below 0.

        Arrivals come in bunches. Drawn on for a start-up time their chance alone would double the load; a ramp stands out.
        """
        rates = []
        begin: Point | None = None
        for point in points:
            if begin is not None and point.at - begin.at < _GROWTH_STEP - window.EPSILON:
                continue
            if not self.counts(point):
                continue
            if begin is None:
                begin = point
            else:
                rates.append(((begin.at + point.at) / 2, self.arrived(begin, point) / (point.at - begin.at)))
                begin = point
        slope, error = window.line(rates)
        return max(0.0, slope - GROWTH_DOUBT * error)
