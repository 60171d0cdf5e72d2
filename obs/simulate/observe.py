"""The replica's metrics page and the sidecar beside it: the signals are those of ``obs.sidecar``, computed by its code.

Two ways, with equal results (a test holds them together):

- ``WireSidecar`` is the sidecar as it runs: each second it renders the vLLM metrics page, reads it with
  ``obs.sidecar.reader``, feeds ``obs.sidecar.signals.Signals``, and at a scrape takes its snapshot. A millisecond a sample.
- ``FastSidecar`` skips the text: the same samples become the same points of ``obs.sidecar.model.Model``, which computes
  the same signals, but only when Prometheus scrapes. That is what makes a simulated day affordable.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Protocol

from obs.sidecar.counters import Total
from obs.sidecar.detect import needed_names
from obs.sidecar.dialects import VLLM, Reading
from obs.sidecar.model import BESIDE, LOAD, Model
from obs.sidecar.reader import Reader
from obs.sidecar.settings import ModelSettings, Settings
from obs.sidecar.signals import Signals
from obs.sidecar.window import Point
from obs.simulate.engine import Record

MODEL = "simulated"
_LABELS = f'{{engine="0",model_name="{MODEL}"}}'

#: The families of a page: vLLM's names, and the field of a Record that each has.
_FAMILIES = {
    "vllm:num_requests_running": "running",
    "vllm:num_requests_waiting": "waiting",
    "vllm:kv_cache_usage_perc": "usage",
    "vllm:generation_tokens_total": "generation",
    "vllm:prompt_tokens_total": "prompt",
    "vllm:num_preemptions_total": "preemptions",
    "vllm:time_to_first_token_seconds_sum": "ttft_sum",
    "vllm:time_to_first_token_seconds_count": "ttft_count",
    "vllm:inter_token_latency_seconds_sum": "itl_sum",
    "vllm:inter_token_latency_seconds_count": "itl_count",
    "vllm:e2e_request_latency_seconds_sum": "e2e_sum",
    "vllm:e2e_request_latency_seconds_count": "finished",
    "vllm:request_prompt_tokens_sum": "input_sum",
    "vllm:request_prompt_tokens_count": "finished",
    "vllm:request_generation_tokens_sum": "output_sum",
    "vllm:request_generation_tokens_count": "finished",
}
#: The sidecar's name of a counter -> the Record's field: what the page above comes to once it is read.
_TOTALS = (
    ("generation", "generation"), ("prompt", "prompt"), ("computed_prompt", "computed"), ("finished", "finished"),
    ("preemptions", "preemptions"), ("ttft_sum", "ttft_sum"), ("ttft_count", "ttft_count"), ("itl_sum", "itl_sum"),
    ("itl_count", "itl_count"), ("e2e_sum", "e2e_sum"), ("e2e_count", "finished"), ("input_length_sum", "input_sum"),
    ("input_length_count", "finished"), ("output_length_sum", "output_sum"), ("output_length_count", "finished"),
)
_TOTAL_NAMES = tuple(name for name, _ in _TOTALS)
_LENGTH_STEP = 5.0
"""The sidecar's own step of its length history; a test holds both sidecars together."""
_new = tuple.__new__


def _picked(*fields: str) -> Callable[[Record], tuple[float, ...]]:
    return itemgetter(*map(Record._fields.index, fields))


_at = itemgetter(0)
_progress = _picked("generation", "prompt", "computed")
_totals_of = _picked(*(field for _, field in _TOTALS))
_load_of = _picked("at", "running", "waiting", "usage", "finished", "input_sum", "output_sum")
"""All that the load signals take."""


def page(record: Record, capacity: int, started: float) -> str:
    """The vLLM metrics page of a Record, in the text format. ``capacity`` is the KV cache in tokens."""
    lines = [f"{name}{_LABELS} {getattr(record, field)!r}" for name, field in _FAMILIES.items()]
    lines += [
        f'vllm:request_success_total{{engine="0",finished_reason="stop",model_name="{MODEL}"}} {record.finished}',
        f'vllm:prompt_tokens_by_source_total{{engine="0",model_name="{MODEL}",source="local_compute"}} {record.computed}',
        f'vllm:cache_config_info{{engine="0",kv_cache_size_tokens="{capacity}"}} 1.0',
        f"process_start_time_seconds {started + 1.0!r}",
    ]
    return "\n".join(lines) + "\n"


def settings(decode_capacity: float | None, interval: float, *, projected: bool = True,
             itl_objective: float | None = None) -> Settings:
    """The sidecar's settings. Without ``projected`` it keeps no more history than its window takes: it only costs time."""
    given = Settings(engine="vllm", interval=interval,
                     models={"*": ModelSettings(decode_capacity=decode_capacity, itl_objective=itl_objective)})
    return given if projected else replace(given, slope_window=given.window, finish_window=given.window)


class Sidecar(Protocol):
    """Follows one replica."""

    def feed(self, records: Sequence[Record]) -> None:
        """Take the samples since the last call."""

    def signals(self, now: float) -> Mapping[str, float]:
        """What it serves at a scrape: name -> value, without what is withheld."""


class WireSidecar:
    """The sidecar as it runs, text and all."""

    def __init__(self, given: Settings, capacity: int, started: float) -> None:
        self._signals = Signals(given)
        self._reader = Reader(needed_names("vllm"))
        self._capacity = capacity
        self._started = started

    def feed(self, records: Sequence[Record]) -> None:
        for record in records:
            self._signals.feed(record.at, self._reader.text(page(record, self._capacity, self._started)))

    def signals(self, now: float) -> Mapping[str, float]:
        snapshot = self._signals.snapshot(now)
        return {name: signal.value for model in snapshot.models for name, signal in model.signals.items()
                if signal.value is not None}


class _FastModel(Model):
    """A Model that takes many samples and computes once."""

    def __init__(self, given: Settings, capacity: int, wanted: Sequence[str]) -> None:
        super().__init__("vllm", MODEL, "", given)
        self.wanted = wanted
        self._capacity = capacity
        self._all_totals = self._calibration is not None or not BESIDE.isdisjoint(wanted)
        self._keep = max(given.slope_window, given.finish_window, given.window) + given.interval

    def take(self, records: Sequence[Record]) -> None:
        """The samples of one scrape interval, in order of time."""
        if not records:
            return
        points, lengths, capacity, load_of = self._points, self._lengths, self._capacity, _load_of
        last = records[-1]
        oldest = last.at - self._keep
        learning = self._calibration
        self._drop(oldest)
        # the samples before this one are dropped: no window reaches back to them
        needed = 0 if learning is not None else max(0, bisect_left(records, oldest, key=_at) - 1)
        mark = lengths[-1][0] if lengths else -math.inf
        for index, record in enumerate(records):
            at, running, waiting, usage, finished, inputs, outputs = load_of(record)
            step = at - mark >= _LENGTH_STEP
            if index < needed and not step:
                continue
            # Totals and gauges have no name in common: one dictionary is both. The engine's own sums will do where the sidecar
            # counts from its first sample: signals are differences.
            values = {
                "running": running, "waiting": waiting, "kv_max": usage, "kv_mean": usage, "kv_capacity": capacity,
                "finished": finished, "input_length_sum": inputs, "input_length_count": finished,
                "output_length_sum": outputs, "output_length_count": finished}
            if self._all_totals:
                values.update(zip(_TOTAL_NAMES, _totals_of(record), strict=True))
            point = _new(Point, (at, values, values))
            if learning is not None and points:
                learning.feed(points[-1], point)
            if step:
                self._append(point)
                self._last = _READING
                mark = lengths[-1][0] if lengths else -math.inf
            else:
                points.append(point)  # what _append would do, but for throwing away what is too old
        if not self._totals:
            self._totals.update((name, Total()) for name in _TOTAL_NAMES)
        for total, raw in zip(self._totals.values(), _totals_of(last), strict=True):
            total.raw = raw
        self._notice(records)
        self.last_seen = last.at
        self._drop(oldest)
        self.signals = tuple(self._compute(_READING))

    def tell(self, decode_capacity: float) -> None:
        """The configuration says another decode capacity from now on."""
        self._given = replace(self._given, decode_capacity=decode_capacity)

    def _drop(self, oldest: float) -> None:
        """Throw away what no window reaches, but for the last two points."""
        points = self._points
        while len(points) > 2 and points[1][0] < oldest:
            points.popleft()

    def _notice(self, records: Sequence[Record]) -> None:
        """Whether requests make progress: as the sidecar watches it, for each sample. From the last one back to the first
        that did, which is the last one as a rule.
        """
        still = 0
        for index in range(len(records) - 1, -1, -1):
            record = records[index]
            before = _progress(records[index - 1]) if index else self._progress
            if record.running + record.waiting == 0 or _progress(record) != before:
                break
            still += 1
        else:
            still += self._still
        self._progress, self._still = _progress(records[-1]), still
        self.suspect = self._still >= self._settings.stalled_samples


_READING = Reading("vllm", MODEL, counters={"generation": {}})


class FastSidecar:
    """The same signals without text, computed at a scrape only."""

    def __init__(self, given: Settings, capacity: int, wanted: Sequence[str] = LOAD) -> None:
        """``wanted`` are the signals that somebody reads: what the others alone take is not computed."""
        self._model = _FastModel(given, capacity, wanted)
        self._age = given.age_limit

    @property
    def decode_capacity(self) -> tuple[float | None, str, str]:
        """Tokens per second as told or learnt, where from, and why it is not known."""
        return self._model.decode_capacity()

    def tell(self, decode_capacity: float) -> None:
        """The configuration says another decode capacity from now on."""
        self._model.tell(decode_capacity)

    def feed(self, records: Sequence[Record]) -> None:
        self._model.take(records)

    def signals(self, now: float) -> Mapping[str, float]:
        if now - self._model.last_seen > self._age:
            return {}
        return {signal.name: signal.value for signal in self._model.signals if signal.value is not None}


assert VLLM.key == "vllm"
