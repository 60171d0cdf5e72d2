"""What one model (or one GPU, or the server) has to tell, written as its engine would write it.

The live model speaks in the catalogue's signals and units (``observe("queue_time_seconds", 0.2)``); names, labels, label
values, units and buckets are the engine's, taken from obs.engines. What no signal covers is told by family; a family
that the catalogue has not is refused at once.
"""

from __future__ import annotations

import itertools
import math
import re
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from prometheus_client import utils

from obs.engines import created_metrics
from obs.engines.vllm import LENGTH_BOUNDS
from obs.errors import DeclarationError
from obs.model.metric import Engine, Histogram, MeanOf, Metric, Missing, Native, Quotient, Summary

QUANTILES = (0.5, 0.9, 0.95, 0.99, 0.999)
"""Triton's default summary_quantiles (core:src/metrics.cc, as in shared metric notes)."""
SUMMARY_SECONDS = 60.0
"""Triton's summaries look back so far, and tell Nan when they see nothing."""
SUMMARY_SAMPLES = 4000
_MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"([^"]*)"')

Extra = tuple[tuple[str, str], ...]
_python_float: Callable[[float], str] = utils.floatToGoString  # the library declares no types here


class Sample(NamedTuple):
    """One line of a page: what follows the family's name, labels in their order, value."""

    suffix: str
    labels: Mapping[str, str]
    value: float


def release(text: str) -> tuple[int, ...]:
    """``"26.06"`` → (26, 6), for comparison."""
    return tuple(int(part) for part in re.findall(r"\d+", text))


def served(engine: Engine, version: str, flags: Sequence[str] = ()) -> tuple[Metric, ...]:
    """The families that this release of the engine serves, with these flags on.

    ``version`` "" takes every family that has not ended. A family is on by default, or by a flag of which its
    ``enabled_by`` begins with the text.
    """
    now = release(version)

    def on(metric: Metric) -> bool:
        if now and metric.since and release(metric.since) > now:
            return False
        if metric.until and (not now or release(metric.until) < now):
            return False
        how = metric.enabled_by
        return not how or "the default)" in how or "0 without it" in how or how.startswith(tuple(flags) or "\0")

    return tuple(metric for metric in engine.metrics if on(metric))


class Histo:
    """Observations in buckets; cumulative only on the page."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    @property
    def count(self) -> int:
        return sum(self.counts)

    def lines(self) -> Iterable[tuple[str, str | None, float]]:
        """(suffix, le, value), the last bucket equal to the count by construction."""
        for bound, total in zip((*self.bounds, math.inf), itertools.accumulate(self.counts), strict=True):
            yield "_bucket", _python_float(bound), total
        yield "_count", None, self.count
        yield "_sum", None, self.sum


class Window:
    """A summary: quantiles of the last minute, count and sum of all time."""

    def __init__(self) -> None:
        self.recent: deque[tuple[float, float]] = deque(maxlen=SUMMARY_SAMPLES)
        self.count = 0
        self.sum = 0.0

    def observe(self, at: float, value: float, times: int) -> None:
        self.recent.append((at, value))
        self.count += times
        self.sum += value * times

    def quantiles(self, now: float) -> list[float]:
        values = sorted(value for at, value in self.recent if at >= now - SUMMARY_SECONDS)
        if not values:
            return [math.nan] * len(QUANTILES)
        return [values[min(len(values) - 1, int(quantile * len(values)))] for quantile in QUANTILES]


class Ledger:
    """One subject's figures. ``labels`` are those of every series of it; ``metrics`` the families it may tell.

    ``start`` (unix seconds) is what ``_created`` says. ``longest`` cuts vLLM's series of length bounds, as the server does
    at its max_model_len.
    """

    def __init__(self, engine: Engine, metrics: Sequence[Metric], labels: Mapping[str, str], *, start: float = 0.0,
                 longest: float = math.inf) -> None:
        self.engine = engine
        self.labels = dict(labels)
        self.start = start
        self.now = start
        self.longest = longest
        self.frozen = False
        """While true, nothing more is counted (gauges still move)."""
        self.metrics = {metric.name: metric for metric in metrics}
        self.scalars: dict[str, dict[Extra, float]] = {}
        self.histos: dict[str, dict[Extra, Histo]] = {}
        self.windows: dict[str, Window] = {}
        for metric in metrics:
            for extra in self._combinations(metric):
                if metric.kind == "histogram":
                    self.histos.setdefault(metric.name, {})[extra] = Histo(self._bounds(metric))
                elif metric.kind == "summary":
                    self.windows[metric.name] = Window()
                elif metric.kind != "info":
                    self.scalars.setdefault(metric.name, {})[extra] = 0.0
        self._targets: dict[str, list[tuple[Metric, Extra, float]]] = {}
        self._observed: dict[str, list[tuple[Metric, Extra, float]]] = {}

    # --- by signal ------------------------------------------------------------------------------

    def add(self, signal: str, amount: float, **extra: str) -> None:
        """A counter's signal grows by ``amount``, in the signal's unit."""
        for metric, key, scale in self._natives(signal):
            if extra:
                self._scalar(metric, {**dict(key), **extra}, amount / scale, add=True)
            elif not (self.frozen and metric.kind == "counter"):
                own = self.scalars[metric.name]
                own[key] = own.get(key, 0.0) + amount / scale

    def put(self, signal: str, value: float, **extra: str) -> None:
        """A gauge's signal is ``value`` now."""
        for metric, key, scale in self._natives(signal):
            self._scalar(metric, {**dict(key), **extra}, value / scale, add=False)

    def observe(self, signal: str, value: float, times: int = 1) -> None:
        """A distribution's signal saw ``value`` (so many times): into histograms, summaries and cumulative counters."""
        if self.frozen:
            return
        for metric, key, scale in self._observers(signal):
            told = _whole(metric, value / scale)
            if metric.kind == "histogram":
                self.histos[metric.name][key].observe(told, times)
            elif metric.kind == "summary":
                self.windows[metric.name].observe(self.now, told, times)
            else:
                self.scalars[metric.name][key] += told * times

    # --- by family ------------------------------------------------------------------------------

    def add_family(self, name: str, amount: float, **extra: str) -> None:
        """A family grows, in its wire unit. Nothing when this release does not serve it."""
        if metric := self._family(name):
            self._scalar(metric, extra, amount, add=True)

    def put_family(self, name: str, value: float, **extra: str) -> None:
        """A family's gauge is so much, in its wire unit."""
        if metric := self._family(name):
            self._scalar(metric, extra, value, add=False)

    def observe_family(self, name: str, value: float, times: int = 1, **extra: str) -> None:
        """A histogram's or summary's family saw a value, in its wire unit."""
        metric = self._family(name)
        if metric is None or self.frozen:
            return
        if metric.kind == "summary":
            self.windows.setdefault(name, Window()).observe(self.now, value, times)
            return
        own = self.histos.setdefault(name, {})
        key = tuple(sorted(extra.items())) if extra else next(iter(own), ())
        if key not in own:
            own[key] = Histo(self._bounds(metric))
        own[key].observe(value, times)

    def keep(self, names: Collection[str]) -> None:
        """Tell these families only, from now on."""
        self.metrics = {name: metric for name, metric in self.metrics.items() if name in names}

    # --- the page -------------------------------------------------------------------------------

    def samples(self, metric: Metric) -> list[Sample]:
        """This subject's lines of a family, empty when it has none."""
        if metric.name not in self.metrics:
            return []
        base = {name: value for name, value in self.labels.items() if name in (*metric.labels, *metric.optional_labels)}
        if metric.kind == "histogram":
            return [Sample(suffix, {**base, **dict(extra), **({"le": le} if le else {})}, value)
                    for extra, histo in self.histos.get(metric.name, {}).items() for suffix, le, value in histo.lines()]
        if metric.kind == "summary":
            window = self.windows.get(metric.name)
            if window is None:
                return []
            told = [Sample("_count", base, window.count), Sample("_sum", base, window.sum)]
            if self.engine.name == "triton":  # Python's client serves count and sum only
                told += [Sample("", {**base, "quantile": f"{quantile:g}"}, value)
                         for quantile, value in zip(QUANTILES, window.quantiles(self.now), strict=True)]
            return told
        return [Sample("", {**base, **dict(extra)}, value) for extra, value in self.scalars.get(metric.name, {}).items()]

    def created(self, metric: Metric) -> list[Sample]:
        """The lines of a family's ``_created``."""
        labels: dict[Extra, Mapping[str, str]] = {}
        for sample in self.samples(metric):
            kept = {name: value for name, value in sample.labels.items() if name != "le"}
            labels[tuple(sorted(kept.items()))] = kept
        return [Sample("", kept, self.start) for kept in labels.values()]

    # --- inside ---------------------------------------------------------------------------------

    def _family(self, name: str) -> Metric | None:
        if found := self.metrics.get(name):
            return found
        try:
            self.engine.metric(name)
        except KeyError:
            raise DeclarationError(f"obs/fake tells {name}, which obs/engines lacks for {self.engine.name}; add it") from None
        return None

    def _scalar(self, metric: Metric, extra: Mapping[str, str], value: float, *, add: bool) -> None:
        if self.frozen and metric.kind == "counter":
            return
        own = self.scalars.setdefault(metric.name, {})
        key = tuple(sorted(extra.items())) if len(extra) > 1 else tuple(extra.items())
        own[key] = own.get(key, 0.0) + value if add else value

    def _natives(self, signal: str) -> list[tuple[Metric, Extra, float]]:
        if signal not in self._targets:
            sources = self.engine.signals[signal]
            found = []
            for source in () if isinstance(sources, Missing) else sources:
                parts = (source.numerator,) if isinstance(source, Quotient) else (source,)
                for native in parts:
                    if not isinstance(source, Quotient) and isinstance(native, Native) and native.metric in self.metrics:
                        metric = self.metrics[native.metric]
                        found.append((metric, self._resolve(metric, native.matchers), native.scale))
            self._targets[signal] = found
        return self._targets[signal]

    def _observers(self, signal: str) -> list[tuple[Metric, Extra, float]]:
        """Where a distribution's values go: histograms, summaries, and the totals of means."""
        found = self._observed.get(signal)
        if found is None:
            sources = self.engine.signals[signal]
            found = self._observed[signal] = []
            for source in () if isinstance(sources, Missing) else sources:
                one = source.total if isinstance(source, MeanOf) else source
                if isinstance(one, Histogram | Summary) or (isinstance(source, MeanOf) and isinstance(one, Native)):
                    metric = self.metrics.get(one.metric)
                    if metric is not None:
                        found.append((metric, self._resolve(metric, one.matchers), one.scale))
        return found

    def _resolve(self, metric: Metric, matchers: str) -> Extra:
        """The labels that matchers ask for: of a label's closed values, the first that they admit."""
        extra = {}
        for label, operator, text in _MATCHER.findall(matchers):
            if operator == "=":
                extra[label] = text
            elif operator == "!~":
                extra[label] = next(value for value in metric.values[label] if not re.fullmatch(text, value))
        return tuple(sorted(extra.items()))

    def _combinations(self, metric: Metric) -> list[Extra]:
        """The series that exist from the start, at 0; none where a label's values are open."""
        own = [label for label in metric.labels if label not in self.labels]
        if any(label not in metric.values for label in own) or metric.name.startswith("http_requests"):
            return []
        products = itertools.product(*(metric.values[one] for one in own))
        return [tuple(sorted(zip(own, values, strict=True))) for values in products]

    def _bounds(self, metric: Metric) -> tuple[float, ...]:
        if metric.buckets == LENGTH_BOUNDS:
            return tuple(bound for bound in metric.buckets if bound <= self.longest)
        return metric.buckets


def _whole(metric: Metric, value: float) -> float:
    """Triton counts whole microseconds."""
    return round(value) if metric.unit == "us" else value


def page(engine: Engine, metrics: Sequence[Metric], ledgers: Sequence[Ledger], *, python: bool = False) -> str:
    """The text of an engine's families, in the catalogue's order, each with the lines of all ledgers.

    ``python``: as Python's prometheus_client writes (floats, labels in alphabetical order, ``_created``); otherwise as
    prometheus-cpp does (whole numbers plain, ``Nan``, ``le`` and ``quantile`` last).
    """
    created = {metric.name.removesuffix("_created"): metric for metric in created_metrics(engine)} if python else {}
    text: list[str] = []
    for metric in metrics:
        samples = [sample for ledger in ledgers for sample in ledger.samples(metric)]
        if not samples:
            continue
        kind = "gauge" if metric.kind == "info" else metric.kind
        _family(text, metric.name, metric.help, kind, samples, python)
        stem = metric.name.removesuffix("_total") if metric.kind == "counter" else metric.name
        if stem in created and metric.kind in ("counter", "histogram", "summary"):
            _family(text, f"{stem}_created", metric.help, "gauge",
                    [sample for ledger in ledgers for sample in ledger.created(metric)], python)
    return "".join(text)


def _family(text: list[str], name: str, about: str, kind: str, samples: Sequence[Sample], python: bool) -> None:
    about = about.replace("\\", "\\\\").replace("\n", "\\n")
    text.append(f"# HELP {name} {about}\n# TYPE {name} {kind}\n")
    for sample in samples:
        labels = dict(sample.labels)
        if python:
            labels = dict(sorted(labels.items()))
            value = _python_float(sample.value)
        else:
            last: dict[str, str] = {
                label: labels.pop(label).removesuffix(".0") for label in ("le", "quantile") if label in labels
            }
            labels = {**dict(sorted(labels.items())), **last}
            value = _cpp(sample.value)
        inside = ",".join(f'{label}="{_escape(value_)}"' for label, value_ in labels.items())
        text.append(f"{name}{sample.suffix}{{{inside}}} {value}\n" if inside else f"{name}{sample.suffix} {value}\n")


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _cpp(value: float) -> str:
    if math.isnan(value):
        return "Nan"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)
