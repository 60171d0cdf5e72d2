"""What an engine's page says about each of its models, in one vocabulary: page -> Readings.

The names are data. Most come from the engine's catalogue (``obs.engines``, where a signal lists its sources, newest
name first); what only the sidecar needs is in DIALECTS below, and a test holds every name there against the
catalogue too.

How several series of one model become one number, whatever their order in the page:

- ranks (data-parallel engines, versions of a Triton model): requests, tokens and capacities are added, KV-cache
  usage is kept as maximum and as mean;
- several processes of one rank (label ``pid``): the largest, for the others are leftovers;
- SGLang's tensor- and pipeline-parallel ranks repeat each other: only rank 0 counts;
- of a quantity's sources the first that the page has for the model counts: two spellings are never added up.
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from obs.engines import sglang, triton, triton_trtllm, triton_vllm, trtllm_serve, vllm
from obs.model.metric import Engine, Histogram, Native, Quotient, Source
from obs.sidecar.reader import Labels, Samples

RATIO_SLACK = 1.05
"""A ratio above this is garbage; up to here it is rounding, and reads 1."""

REASONS, REASON_LENGTH = 16, 64
"""Most reasons for waiting that are passed on, and their length: an engine has two or three words for it."""

Counts = Mapping[Hashable, float]
"""Raw counters, one for each series: resets are told apart per series."""


@dataclass(frozen=True)
class Reading:
    """What one page says of one model.

    ``gauges``: running, waiting, paused, slots, generating (requests in decode), kv_max, kv_mean, kv_capacity,
    kv_used (tokens), pending. ``counters``: see Dialect. ``invalid``: gauges whose value was NaN, infinite, negative
    or, for a ratio, above 1: they are left out of ``gauges``. ``at_finish``: tokens are counted when a request ends.
    """

    engine: str
    model: str
    version: str = ""
    gauges: Mapping[str, float] = field(default_factory=dict)
    counters: Mapping[str, Counts] = field(default_factory=dict)
    buckets: Mapping[float, float] = field(default_factory=dict)
    waiting_by_reason: Mapping[str, float] = field(default_factory=dict)
    invalid: frozenset[str] = frozenset()
    asleep: bool = False
    at_finish: bool = False


@dataclass(frozen=True)
class Mean:
    """A mean from two counters."""

    total: Native
    count: Native


@dataclass(frozen=True)
class Dialect:
    """One engine as the sidecar reads it.

    ``key`` is the value of the label ``engine``. ``signals`` maps our quantities to the catalogue's signals;
    ``extra`` gives natives that the catalogue has no signal for. A counter or histogram quantity ``q`` gives the
    counters ``q``, or ``q_sum`` and ``q_count``. ``at_finish`` names the natives that are counted when a request ends.
    """

    key: str
    engine: Engine
    extra: Mapping[str, tuple[Native | Quotient | Histogram | Mean, ...]] = field(default_factory=dict)
    at_finish: frozenset[str] = frozenset()
    same: Mapping[str, str] = field(default_factory=dict)
    """Only series whose label has this value (or lacks it) are read."""


_GAUGES = {"running": "requests_running", "waiting": "requests_waiting", "paused": "requests_paused"}
_COUNTERS = {"generation": "generation_tokens", "prompt": "prompt_tokens", "cached_prompt": "prefix_cache_hits",
             "preemptions": "preemptions"}
_TIMES = {"ttft": "time_to_first_token_seconds", "itl": "inter_token_latency_seconds",
          "e2e": "request_latency_seconds"}
_EXTRA_GAUGES = ("slots", "generating", "active")
_EXTRA_COUNTERS = ("finished", "arrivals", "computed_prompt", "iterations")
_LENGTHS = ("input_length", "output_length")


def _trt(label: str, value: str, metric: str) -> Native:
    return Native(metric, matchers=f'{label}="{value}"')


def _trt_requests(kind: str) -> Native:
    return _trt("request_type", kind, "nv_trt_llm_request_metrics")


def _trt_blocks(kind: str) -> Native:
    return _trt("kv_cache_block_type", kind, "nv_trt_llm_kv_cache_block_metrics")


VLLM = Dialect(
    "vllm", vllm.ENGINE,
    extra={
        "finished": (Native("vllm:request_success_total"),),
        "computed_prompt": (Native("vllm:prompt_tokens_by_source_total", matchers='source="local_compute"'),),
        "input_length": (Histogram("vllm:request_prompt_tokens"),),
        "output_length": (Histogram("vllm:request_generation_tokens"),),
    },
)
TRITON_VLLM = Dialect(
    "triton_vllm", triton_vllm.ENGINE,
    extra={
        # Triton counts a decoupled request when execute() returns: at the hand-over to vLLM.
        "arrivals": (Native("nv_inference_request_success"),),
        "finished": (Native("vllm:e2e_request_latency_seconds_count"),),
        "input_length": (Histogram("vllm:request_prompt_tokens"),),
        "output_length": (Histogram("vllm:request_generation_tokens"),),
    },
)
TRITON_TRTLLM = Dialect(
    "triton_trtllm", triton_trtllm.ENGINE,
    extra={
        "slots": (_trt_requests("max"),),
        "active": (_trt_requests("active"),),
        "generating": (_trt("inflight_batcher_specific_metric", "generation_requests",
                            "nv_trt_llm_inflight_batcher_metrics"),),
        "iterations": (_trt("general_type", "iteration_counter", "nv_trt_llm_general_metrics"),),
        "finished": (Native("nv_llm_output_token_len_count"),),
        "input_length": (Histogram("nv_llm_input_token_len"),),
        "output_length": (Histogram("nv_llm_output_token_len"),),
    },
    at_finish=frozenset({"nv_llm_output_token_len_sum", "nv_llm_input_token_len_sum"}),
)
TRTLLM_SERVE = Dialect(
    "trtllm_serve", trtllm_serve.ENGINE,
    extra={
        "slots": (Native("trtllm_max_num_active_requests"),),
        "finished": (Native("trtllm_request_success_total"), Native("request_success_total")),
        "input_length": (Mean(Native("trtllm_prompt_tokens_total"), Native("trtllm_request_success_total")),),
        "output_length": (Mean(Native("trtllm_generation_tokens_total"), Native("trtllm_request_success_total")),),
    },
    at_finish=frozenset({"trtllm_generation_tokens_total", "trtllm_prompt_tokens_total"}),
)
SGLANG = Dialect(
    "sglang", sglang.ENGINE,
    extra={
        "finished": (Native("sglang:num_requests_total"),),
        "computed_prompt": (Native("sglang:realtime_tokens_total", matchers='mode="prefill_compute"'),),
        "input_length": (Mean(Native("sglang:prompt_tokens_total"), Native("sglang:num_requests_total")),),
        "output_length": (Mean(Native("sglang:generation_tokens_total"), Native("sglang:num_requests_total")),),
    },
    at_finish=frozenset({"sglang:generation_tokens_total", "sglang:prompt_tokens_total"}),
    same={"tp_rank": "0", "pp_rank": "0"},
)
#: Plain Triton: no tokens, but requests that wait and batches. Not for models that another dialect has.
TRITON = Dialect("triton", triton.ENGINE)

DIALECTS: tuple[Dialect, ...] = (VLLM, TRITON_VLLM, TRITON_TRTLLM, TRTLLM_SERVE, SGLANG, TRITON)
BY_KEY = {dialect.key: dialect for dialect in DIALECTS}

#: Plain Triton's families, and the name that each has in a Reading.
TRITON_COUNTERS = {
    "success": "nv_inference_request_success",
    "queue_us": "nv_inference_queue_duration_us",
    "inferences": "nv_inference_count",
    "executions": "nv_inference_exec_count",
}
TRITON_PENDING = "nv_inference_pending_request_count"

PROCESS_START = "process_start_time_seconds"
_CACHE_CONFIG = "vllm:cache_config_info"
_BY_REASON = "vllm:num_requests_waiting_by_reason"
_SLEEP = "vllm:engine_sleep_state"
_CAPACITY_TOKENS = {"sglang": "sglang:max_total_num_tokens"}
_USED_TOKENS = {"sglang": "sglang:kv_used_tokens"}
#: Blocks in all, blocks used, tokens in a block.
_BLOCKS = {
    "triton_trtllm": (_trt_blocks("max"), _trt_blocks("used"), _trt_blocks("tokens_per")),
    "trtllm_serve": (Native("trtllm_kv_cache_max_blocks"), Native("trtllm_kv_cache_used_blocks"),
                     Native("trtllm_kv_cache_tokens_per_block")),
}

_MATCHER = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')


class Matchers:
    """A PromQL label matcher list, as the catalogue writes them."""

    def __init__(self, text: str) -> None:
        self._tests: list[tuple[str, str, str | re.Pattern[str]]] = []
        at = 0
        while at < len(text):
            match = _MATCHER.match(text, at)
            if match is None:
                raise ValueError(f"no matcher list: {text!r}")
            label, operator, value = match.groups()
            self._tests.append((label, operator, re.compile(value) if "~" in operator else value))
            at = match.end()

    def __call__(self, labels: Labels) -> bool:
        for label, operator, wanted in self._tests:
            value = labels.get(label, "")
            same = value == wanted if isinstance(wanted, str) else wanted.fullmatch(value) is not None
            if same == operator.startswith("!"):
                return False
        return True


def _names(source: Source | Mean) -> Iterator[str]:
    if isinstance(source, Native):
        yield source.metric
    elif isinstance(source, Histogram):
        yield from (f"{source.metric}_sum", f"{source.metric}_count")
    elif isinstance(source, Quotient):
        yield from (source.numerator.metric, source.denominator.metric)
    elif isinstance(source, Mean):
        yield from (source.total.metric, source.count.metric)


_SIGNALS = {**_GAUGES, **_COUNTERS, **_TIMES, "kv": "kv_cache_usage"}


def _sources(dialect: Dialect, quantity: str) -> tuple[Source | Mean, ...]:
    if quantity in dialect.extra:
        return dialect.extra[quantity]
    found = dialect.engine.signals.get(_SIGNALS[quantity], ()) if quantity in _SIGNALS else ()
    return found if isinstance(found, tuple) else ()


_QUANTITIES = (*_GAUGES, *_COUNTERS, *_TIMES, *_EXTRA_GAUGES, *_EXTRA_COUNTERS, *_LENGTHS, "kv")


def needed(dialect: Dialect) -> frozenset[str]:
    """The sample names that reading this engine takes."""
    names = {PROCESS_START}
    for quantity in _QUANTITIES:
        for source in _sources(dialect, quantity):
            names.update(_names(source))
            if quantity == "output_length" and isinstance(source, Histogram):
                names.add(f"{source.metric}_bucket")
    names.update(native.metric for native in _BLOCKS.get(dialect.key, ()))
    names.update(table[dialect.key] for table in (_CAPACITY_TOKENS, _USED_TOKENS) if dialect.key in table)
    if dialect is VLLM:
        names.update((_CACHE_CONFIG, _BY_REASON, _SLEEP))
    if dialect is TRITON:
        names.update((*TRITON_COUNTERS.values(), TRITON_PENDING))
    return frozenset(names)


#: One series of a model: its rank, a key for its remaining labels, and the value.
_Part = tuple[str, Hashable, float]


class _Page:
    """One page as one dialect sees it: series by model."""

    def __init__(self, dialect: Dialect, samples: Samples, model_name: str) -> None:
        self.dialect = dialect
        self.samples = samples
        self.model_name = model_name
        self.own = _matchers(dialect.engine.own)

    def model(self, labels: Labels) -> str:
        """The model's name: that of the label, or the configured one where the engine says nothing."""
        name = labels.get(self.dialect.engine.model_label, "")
        return self.model_name if self.model_name and name in ("", "undefined") else name

    def parts(self, native: Native) -> dict[str, list[_Part]]:
        """The series that a native selects, by model; of the processes of one rank only the largest."""
        if native.metric not in self.samples:
            return {}
        found: dict[str, dict[tuple[str, Hashable], float]] = {}
        matches = _matchers(native.matchers)
        engine, same = self.dialect.engine, self.dialect.same
        for labels, value in self.samples.get(native.metric, ()):
            if not self.own(labels) or not matches(labels):
                continue
            if same and any(labels.get(label, wanted) != wanted for label, wanted in same.items()):
                continue
            rank = "/".join((labels.get(engine.rank_label, ""), labels.get(engine.version_label, "")))
            key = tuple(sorted((name, text) for name, text in labels.items() if name != "pid"))
            mine = found.setdefault(self.model(labels), {})
            value *= native.scale
            mine[rank, key] = max(mine.get((rank, key), value), value)
        return {model: [(rank, key, value) for (rank, key), value in parts.items()]
                for model, parts in found.items()}


_MATCHERS: dict[str, Matchers] = {}


def _matchers(text: str) -> Matchers:
    if text not in _MATCHERS:
        _MATCHERS[text] = Matchers(text)
    return _MATCHERS[text]


class _Builder:
    """One Reading while it is put together."""

    def __init__(self) -> None:
        self.gauges: dict[str, float] = {}
        self.counters: dict[str, dict[Hashable, float]] = {}
        self.buckets: dict[float, float] = {}
        self.by_reason: dict[str, float] = {}
        self.invalid: set[str] = set()
        self.asleep = False
        self.at_finish = False


def read(dialect: Dialect, samples: Samples, model_name: str = "") -> list[Reading]:
    """What the page says about each model of this engine; ``model_name`` names a model that the page does not name."""
    if dialect is TRITON:
        return _read_triton(samples)
    page = _Page(dialect, samples, model_name)
    models: dict[str, _Builder] = {}

    def of(model: str) -> _Builder:
        return models.setdefault(model, _Builder())

    for quantity in (*_GAUGES, *_EXTRA_GAUGES):
        for model, parts in _first(page, quantity):
            _add_gauge(of(model), quantity, [value for _, _, value in parts])
    for quantity in (*_COUNTERS, *_EXTRA_COUNTERS):
        for model, parts, native in _first_native(page, quantity):
            of(model).counters[quantity] = _counts(parts)
            if quantity == "generation":
                of(model).at_finish = native.metric in dialect.at_finish
    for quantity in (*_TIMES, *_LENGTHS):
        _read_mean(page, quantity, models)
    _read_kv(page, models)
    _read_capacity(page, models)
    if dialect is VLLM:
        _read_vllm(page, models)
    if dialect is TRITON_TRTLLM:
        for one in models.values():
            if "waiting" not in one.gauges and {"active", "running"} <= one.gauges.keys():  # before 0.18
                one.gauges["waiting"] = max(0.0, one.gauges["active"] - one.gauges["running"])
    # A model is one that runs here: nv_inference_* alone may be any model's.
    core = {"running", "waiting", "kv_max", "slots", "generation", "iterations"}
    return [
        Reading(dialect.key, model, gauges=one.gauges, counters=one.counters, buckets=one.buckets,
                waiting_by_reason=one.by_reason, invalid=frozenset(one.invalid), asleep=one.asleep,
                at_finish=one.at_finish)
        for model, one in sorted(models.items())
        if core & (one.gauges.keys() | one.counters.keys() | one.invalid)
    ]


def _first(page: _Page, quantity: str) -> Iterator[tuple[str, list[_Part]]]:
    for model, parts, _ in _first_native(page, quantity):
        yield model, parts


def _first_native(page: _Page, quantity: str) -> Iterator[tuple[str, list[_Part], Native]]:
    """For each model the series of the first source that the page has for it."""
    done: set[str] = set()
    for source in _sources(page.dialect, quantity):
        if not isinstance(source, Native):
            continue
        found = page.parts(source)
        for model, parts in found.items():
            if model not in done:
                yield model, parts, source
        done.update(found)


def _add_gauge(one: _Builder, quantity: str, values: Sequence[float]) -> None:
    if all(0 <= value < math.inf for value in values):  # false for NaN
        one.gauges[quantity] = sum(values)
    else:
        one.invalid.add(quantity)


def _counts(parts: Sequence[_Part]) -> dict[Hashable, float]:
    return {key: value for _, key, value in parts if 0 <= value < math.inf}


def _read_mean(page: _Page, quantity: str, models: dict[str, _Builder]) -> None:
    done: set[str] = set()
    for source in _sources(page.dialect, quantity):
        if isinstance(source, Histogram):
            total = Native(f"{source.metric}_sum", source.matchers, source.scale)
            count = Native(f"{source.metric}_count", source.matchers)
        elif isinstance(source, Mean):
            total, count = source.total, source.count
        else:
            continue
        totals, counts = page.parts(total), page.parts(count)
        for model in (totals.keys() & counts.keys()) - done:
            one = models.setdefault(model, _Builder())
            one.counters[f"{quantity}_sum"] = _counts(totals[model])
            one.counters[f"{quantity}_count"] = _counts(counts[model])
            if quantity == "output_length" and isinstance(source, Histogram):
                one.buckets = _buckets(page, source, model)
        done.update(totals)


def _buckets(page: _Page, source: Histogram, model: str) -> dict[float, float]:
    """Cumulative counts by upper bound, ranks added."""
    found: dict[float, float] = {}
    for _, key, value in page.parts(Native(f"{source.metric}_bucket", source.matchers)).get(model, ()):
        assert isinstance(key, tuple)
        try:
            bound = float(dict(key).get("le", ""))
        except ValueError:
            continue
        if 0 <= value < math.inf:
            found[bound] = found.get(bound, 0.0) + value
    return found


def _read_kv(page: _Page, models: dict[str, _Builder]) -> None:
    done: set[str] = set()
    for source in _sources(page.dialect, "kv"):
        for model, by_rank in _ratios(page, source).items():
            if model in done:
                continue
            done.add(model)
            one = models.setdefault(model, _Builder())
            if all(0 <= value <= RATIO_SLACK for value in by_rank.values()):
                values = [min(1.0, value) for value in by_rank.values()]
                one.gauges["kv_max"] = max(values)
                one.gauges["kv_mean"] = sum(values) / len(values)
            else:
                one.invalid.add("kv_max")


def _ratios(page: _Page, source: Source | Mean) -> dict[str, dict[str, float]]:
    """A ratio by model and rank."""
    if isinstance(source, Native):
        return {model: _by_rank(parts, max) for model, parts in page.parts(source).items()}
    if not isinstance(source, Quotient):
        return {}
    above, below = page.parts(source.numerator), page.parts(source.denominator)
    found: dict[str, dict[str, float]] = {}
    for model in above.keys() & below.keys():
        upper, lower = _by_rank(above[model], _plus), _by_rank(below[model], _plus)
        ratios = {rank: upper[rank] / lower[rank] for rank in upper.keys() & lower.keys() if lower[rank] > 0}
        if ratios:
            found[model] = ratios
    return found


def _plus(left: float, right: float) -> float:
    return left + right


def _by_rank(parts: Sequence[_Part], join: object) -> dict[str, float]:
    assert callable(join)
    found: dict[str, float] = {}
    for rank, _, value in parts:
        found[rank] = join(found[rank], value) if rank in found else value
    return found


def _read_capacity(page: _Page, models: dict[str, _Builder]) -> None:
    """KV-cache capacity and use in tokens, where the engine tells them."""
    key = page.dialect.key
    for quantity, table in (("kv_capacity", _CAPACITY_TOKENS), ("kv_used", _USED_TOKENS)):
        if key in table:
            for model, parts in page.parts(Native(table[key])).items():
                _add_gauge(models.setdefault(model, _Builder()), quantity, [value for _, _, value in parts])
    if key in _BLOCKS:
        blocks, used, per = (page.parts(native) for native in _BLOCKS[key])
        for quantity, counted in (("kv_capacity", blocks), ("kv_used", used)):
            for model in counted.keys() & per.keys():
                size = _by_rank(per[model], max)
                tokens = [value * size[rank] for rank, _, value in counted[model] if rank in size]
                _add_gauge(models.setdefault(model, _Builder()), quantity, tokens)


def _read_vllm(page: _Page, models: dict[str, _Builder]) -> None:
    for labels, value in page.samples.get(_BY_REASON, ()):
        model, reason = page.model(labels), labels.get("reason", "")
        told = models[model].by_reason if model in models else {}
        bounded = len(reason) <= REASON_LENGTH and (reason in told or len(told) < REASONS)
        if model in models and bounded and 0 <= value < math.inf:
            models[model].by_reason[reason] = models[model].by_reason.get(reason, 0.0) + value
    for labels, value in page.samples.get(_SLEEP, ()):
        model = page.model(labels)
        if model in models and labels.get("sleep_state") == "awake" and value == 0:
            models[model].asleep = True
    # Blocks times block size is not the capacity of a hybrid model: only the label in tokens counts. The family has
    # no model_name; a vLLM server has one model.
    sizes = []
    for labels, _ in page.samples.get(_CACHE_CONFIG, ()):
        try:
            sizes.append(float(labels.get("kv_cache_size_tokens", "")))
        except ValueError:
            return
    if sizes and len(models) == 1 and all(0 < size < math.inf for size in sizes):
        next(iter(models.values())).gauges["kv_capacity"] = sum(sizes)


def _read_triton(samples: Samples) -> list[Reading]:
    """One Reading per model and version; ``gpu_uuid`` splits a model's series and is added up."""
    gauges: dict[tuple[str, str], float] = {}
    counters: dict[tuple[str, str], dict[str, dict[Hashable, float]]] = {}
    for labels, value in samples.get(TRITON_PENDING, ()):
        if 0 <= value < math.inf:
            key = labels.get("model", ""), labels.get("version", "")
            gauges[key] = gauges.get(key, 0.0) + value
    for quantity, name in TRITON_COUNTERS.items():
        for labels, value in samples.get(name, ()):
            if 0 <= value < math.inf:
                key = labels.get("model", ""), labels.get("version", "")
                series = tuple(sorted(labels.items()))
                counters.setdefault(key, {}).setdefault(quantity, {})[series] = value
    return [
        Reading("triton", model, version,
                gauges={"pending": gauges[model, version]} if (model, version) in gauges else {},
                counters=counters.get((model, version), {}))
        for model, version in sorted(gauges.keys() | counters.keys())
    ]


def process_start(samples: Samples) -> float | None:
    """When the engine's process began, where it says so."""
    found = samples.get(PROCESS_START, ())
    return found[0].value if len(found) == 1 and 0 < found[0].value < math.inf else None
