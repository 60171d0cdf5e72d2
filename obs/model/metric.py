"""What an engine exposes, and what we make of it: metrics, signals and how the one gives the other.

Standard library only: the sidecar imports this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["counter", "gauge", "histogram", "summary", "info"]

#: How we know a metric. ``captured``: a test holds it against a real scrape in tests/data.
#: ``source``: read in the engine's source or released package. ``documented``: documentation only.
Evidence = Literal["captured", "source", "documented"]


@dataclass(frozen=True)
class Metric:
    """One metric family exactly as an engine serves it.

    ``name`` is the wire name of the family: Triton's counters have no ``_total``, vLLM's do;
    a histogram's name is without ``_bucket``/``_sum``/``_count``.
    ``unit`` is the wire unit ("us", "ms", "s", "bytes", "MiB", "ratio", "percent", "requests", "tokens", …).
    ``labels`` are those the engine itself sets (not the target labels Prometheus adds); ``values``
    gives the closed set of a label's values where there is one.
    ``since``/``until`` are the first and last version of the engine that serves it ("" = unknown or always);
    ``renamed_to`` names its successor. ``enabled_by`` is the flag or setting that turns it on
    ("" = on by default). ``buckets`` are the finite upper bounds in the wire unit.
    """

    name: str
    kind: Kind
    unit: str
    help: str
    labels: tuple[str, ...] = ()
    optional_labels: tuple[str, ...] = ()
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    since: str = ""
    until: str = ""
    renamed_to: str = ""
    enabled_by: str = ""
    buckets: tuple[float, ...] = ()
    evidence: Evidence = "source"
    source: str = ""

    def series_names(self) -> tuple[str, ...]:
        """The sample names that this family puts on the wire."""
        if self.kind == "histogram":
            return (f"{self.name}_bucket", f"{self.name}_sum", f"{self.name}_count")
        if self.kind == "summary":
            return (self.name, f"{self.name}_sum", f"{self.name}_count")
        return (self.name,)


@dataclass(frozen=True)
class Signal:
    """An engine-neutral quantity.

    ``name`` is in base units and is the middle part of the recorded series (``model:<name>:<operation>``).
    ``shape``: ``counter`` (recorded as ``:rate``), ``gauge`` (recorded as ``:sum``, or ``:max`` and ``:mean``
    when ``unit`` is "ratio"), ``distribution`` (recorded as ``:mean`` and ``:p99``), ``presence`` (recorded
    as ``:present``, value 1).
    """

    name: str
    shape: Literal["counter", "gauge", "distribution", "presence"]
    unit: str
    title: str
    help: str
    by: tuple[str, ...] = ()
    """Labels kept beside the level's own ones (for example ``reason``)."""


@dataclass(frozen=True)
class Native:
    """A selector of one metric: its name, extra matchers, and the factor to the signal's unit."""

    metric: str
    matchers: str = ""
    scale: float = 1.0
    note: str = ""


@dataclass(frozen=True)
class Quotient:
    """A gauge that the engine gives as two: ``numerator / denominator``, where the denominator is above 0."""

    numerator: Native
    denominator: Native
    note: str = ""


@dataclass(frozen=True)
class Histogram:
    """A distribution from a histogram family: gives quantiles that aggregate, and a mean."""

    metric: str
    scale: float = 1.0
    matchers: str = ""
    note: str = ""


@dataclass(frozen=True)
class Summary:
    """Quantiles computed by one replica: never averaged or summed, only the worst replica (``max``)."""

    metric: str
    scale: float = 1.0
    matchers: str = ""
    note: str = ""


@dataclass(frozen=True)
class MeanOf:
    """A mean from two counters: ``rate(total) / rate(count)``."""

    total: Native
    count: Native
    note: str = ""


Source = Native | Quotient | Histogram | Summary | MeanOf


@dataclass(frozen=True)
class Missing:
    """This engine does not expose the signal, and why: shown in docs and by ``obs doctor``."""

    why: str


@dataclass(frozen=True)
class Engine:
    """One kind of server (or exporter) as data.

    ``model_label`` is the label that holds the model's name (normalised to ``model`` when recorded);
    ``version_label`` likewise ("" = none); ``rank_label`` the label of a data-parallel rank.
    ``own`` are matchers that tell this engine's series from another's with the same names.
    ``dialects`` are spellings of the names in other deployments: dialect -> {native prefix: its spelling}.
    ``hides`` names the signals that Triton itself reports wrongly for this backend's models (it hands the
    request over at once); they are not recorded for those models. ``inherits`` names the signals that Triton
    reports rightly for them: recorded from Triton's series, but as this engine's, whose limits apply.
    ``signals`` gives for each signal either its sources, best or newest first, or ``Missing``.
    """

    name: str
    title: str
    versions: str
    metrics: tuple[Metric, ...]
    signals: Mapping[str, tuple[Source, ...] | Missing]
    model_label: str = "model"
    version_label: str = ""
    rank_label: str = ""
    own: str = ""
    dialects: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    hides: tuple[str, ...] = ()
    inherits: tuple[str, ...] = ()
    captured: bool = True
    preallocates_gpu_memory: bool = False
    notes: str = ""

    def metric(self, name: str) -> Metric:
        """The family called ``name``; ``KeyError`` when the engine has none."""
        for metric in self.metrics:
            if metric.name == name:
                return metric
        raise KeyError(f"engine {self.name} has no metric {name}")
