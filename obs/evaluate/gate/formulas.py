"""The pack's own formulas on the raw series that a matcher picks, over one window: no recording rule is needed.

A matcher such as ``version="2"`` or ``pod=~"canary-.*"`` must meet the series as the server exposes them: a recorded
series may have lost the label. So the rules' text is written again by the same code with the matcher in every selector,
the gate's window in place of the rate window, and what a rule would read from another rule put in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from obs.catalog.signals import BY_NAME as SIGNALS
from obs.config import Config
from obs.engines import BY_NAME as ENGINES
from obs.model.metric import Engine, Histogram, MeanOf, Missing, Native, Source, Summary
from obs.promql import block, by, duration, on
from obs.recordings.rules import EngineRules

Kind = Literal["histogram", "summary"]
LADDER: tuple[Kind, ...] = ("histogram", "summary")

#: The criterion → the signal whose P99 it is.
QUANTILES: Mapping[str, str] = {
    "latency_p99": "request_latency_seconds",
    "ttft_p99": "time_to_first_token_seconds",
    "itl_p99": "inter_token_latency_seconds",
}


class _Windowed(Config):
    """A configuration in which rates, and the last values of summaries, look at one given window (seconds)."""

    def __init__(self, of: Config, span: float) -> None:
        super().__init__(of._given, of.path)
        self._span = span

    def window(self, key: str) -> float:
        return self._span if key == "rate" else super().window(key)

    @property
    def hold(self) -> float:
        return self._span


class _Writer(EngineRules):
    """Writes the rules of one engine for one side; ``found`` is (signal, operation) → the rule's expression."""

    def __init__(self, engine: Engine, config: Config, matchers: str) -> None:
        super().__init__(engine, config)
        self.matchers = matchers
        self.found: dict[tuple[str, str], str] = {}

    def select(self, metric: str, *matchers: str, dialect: str = "standard") -> str:
        return super().select(metric, *matchers, self.matchers, dialect=dialect)

    def record(self, level: str, name: str, operation: str, expr: str, help_text: str) -> None:
        self.found[name, operation] = expr

    def own(self, level: str, name: str, operation: str, *matchers: str) -> str:
        return block(self.found[name, operation])


@dataclass(frozen=True)
class Quantile:
    """A P99 from one kind of source. ``there`` says whether the source is served, with observations or not.

    Of histograms only: ``mean``, and ``buckets``: observations per second by ``le``, whose bounds are in ``scale`` seconds.
    """

    p99: str
    there: str
    buckets: str = ""
    mean: str = ""
    scale: float = 1.0


@dataclass(frozen=True)
class Formulas:
    """PromQL for one side of one engine; every result is by model and version. "" = the engine cannot give it.

    ``missing``: criterion → why the engine cannot give it, or which flag it takes.
    """

    requests: str
    failures: str
    resets: str
    queue_time: str
    throughput: str
    quantiles: Mapping[str, Mapping[Kind, Quantile]]
    missing: Mapping[str, str] = field(default_factory=dict)

    def queries(self) -> dict[str, str]:
        """All that is to be asked, by name."""
        found = {
            name: getattr(self, name) for name in ("requests", "failures", "resets", "queue_time", "throughput")
        }
        for criterion, ladder in self.quantiles.items():
            for kind, one in ladder.items():
                found[f"{criterion}.{kind}"] = one.p99
                found[f"{criterion}.{kind}.there"] = one.there
                found[f"{criterion}.{kind}.buckets"] = one.buckets
                found[f"{criterion}.{kind}.mean"] = one.mean
        return {name: text for name, text in found.items() if text}


def presence(engine: Engine, config: Config, matchers: str, span: float, *, now: bool) -> str:
    """The models that an engine serves on a side, one element each by model and version; "" when it tells none."""
    sources = engine.signals["model_loaded"]
    if isinstance(sources, Missing):
        return ""
    writer = _Writer(engine, config, matchers)
    natives = [source for source in sources if isinstance(source, Native)]
    form = "{}" if now else f"present_over_time({{}}[{duration(span)}])"
    return "\nor\n".join(writer._aggregated("group", writer.labels.model, [native], form) for native in natives)


def down(engine: Engine, config: Config, matchers: str, span: float) -> str:
    """The targets (job, instance) that served a side within the window and are down now."""
    sources = engine.signals["model_loaded"]
    if isinstance(sources, Missing):
        return ""
    writer = _Writer(engine, config, matchers)
    target = ("job", "instance")
    natives = [source for source in sources if isinstance(source, Native)]
    theirs = "\nor\n".join(
        writer._aggregated("group", target, [native], f"present_over_time({{}}[{duration(span)}])") for native in natives
    )
    return f"max {by(target)} (up) == 0\nand {on(target)}\n{block(theirs)}"


def giver(engine: Engine, signal: str) -> Engine | None:
    """The engine whose series give a signal for this engine's models: itself, or the Triton around it; None = none."""
    if not isinstance(engine.signals[signal], Missing):
        return engine
    # only an engine inside Triton hides or inherits what Triton says
    inside_triton = bool(engine.hides or engine.inherits)
    triton = ENGINES["triton"]
    if not inside_triton or signal in engine.hides or isinstance(triton.signals[signal], Missing):
        return None
    return triton


def formulas(engine: Engine, config: Config, matchers: str, span: float) -> Formulas:
    """The formulas of one side; ``span``: the window in seconds."""
    config = _Windowed(config, span)
    missing: dict[str, str] = {}

    def sources(signal: str) -> tuple[_Writer, tuple[Source, ...]] | None:
        by_whom = giver(engine, signal)
        if by_whom is None:
            return None
        given = by_whom.signals[signal]
        assert not isinstance(given, Missing)
        return _Writer(by_whom, config, matchers), given

    def why(signal: str) -> str:
        said = engine.signals[signal]
        return said.why if isinstance(said, Missing) else ""

    def counter(signal: str) -> str:
        found = sources(signal)
        if found is None:
            return ""
        writer, given = found
        natives = [one for one in given if isinstance(one, Native)]
        return writer.rate((*writer.labels.model, *SIGNALS[signal].by), *natives)

    def resets() -> str:
        found = sources("requests")
        if found is None:
            return ""
        writer, given = found
        natives = [one for one in given if isinstance(one, Native)]
        return writer._aggregated("sum", writer.labels.model, natives, f"resets({{}}[{duration(span)}])")

    def mean(signal: str) -> str:
        found = sources(signal)
        if found is None:
            return ""
        writer, given = found
        writer.write_distribution(SIGNALS[signal], given)
        return writer.found.get((signal, "mean"), "")

    if not counter("request_failures"):
        missing["error_ratio"] = why("request_failures")
    queue_time = mean("queue_time_seconds")
    if not queue_time:
        missing["queue_time"] = why("queue_time_seconds")
    quantiles = {}
    for criterion, signal in QUANTILES.items():
        found = sources(signal)
        quantiles[criterion] = {} if found is None else _ladder(signal, *found)
        if not quantiles[criterion]:
            missing[criterion] = why(signal)
        else:
            missing[criterion] = "; ".join(_needs(giver(engine, signal), signal))
    return Formulas(
        counter("requests"), counter("request_failures"), resets(), queue_time, _throughput(sources), quantiles, missing
    )


def _ladder(signal: str, writer: _Writer, given: tuple[Source, ...]) -> dict[Kind, Quantile]:
    """The P99 by each kind of source alone, so that both sides can be asked for the same one."""
    ladder: dict[Kind, Quantile] = {}
    kinds: tuple[tuple[Kind, type[Histogram] | type[Summary]], ...] = (("histogram", Histogram), ("summary", Summary))
    for kind, of in kinds:
        ours = tuple(one for one in given if isinstance(one, of))
        if not ours:
            continue
        writer.found.clear()
        writer.write_distribution(SIGNALS[signal], ours)
        natives = [Native(f"{one.metric}_count", one.matchers) for one in ours if isinstance(one, Histogram | Summary)]
        form = f"present_over_time({{}}[{writer.window}])"
        there = writer._aggregated("group", writer.labels.model, natives, form)
        buckets = writer.found.get((signal, "bucket_rate"), "")
        first = ours[0]
        scale = first.scale if isinstance(first, Histogram) else 1.0
        average = writer.found.get((signal, "mean"), "")
        ladder[kind] = Quantile(writer.found[signal, "p99"], there, buckets, average, scale)
    return ladder


def _needs(engine: Engine | None, signal: str) -> list[str]:
    """What turns the sources of a quantile on, for people."""
    if engine is None:
        return []
    said = []
    given = engine.signals[signal]
    for one in () if isinstance(given, Missing) else given:
        if isinstance(one, Histogram | Summary):
            metric = engine.metric(one.metric)
            if metric.enabled_by or metric.since:
                since = f" (since {metric.since})" if metric.since else ""
                said.append(f"{metric.name}{since} takes {metric.enabled_by}" if metric.enabled_by else metric.name + since)
    return said


def _throughput(sources: Callable[[str], tuple[_Writer, tuple[Source, ...]] | None]) -> str:
    """Tokens per second that one request in the server gets; of a plain model, inferences per second of computing.

    Tokens divided by the summed time of requests: by Little's law that time per second is the number of requests in the
    server, so this is tokens per second per request in it. Both are counters over the same window, so it holds for a
    canary that is younger than the window, and whatever share of the traffic it has.
    """
    tokens = sources("generation_tokens")
    above = tokens or sources("inferences")
    below = sources("request_latency_seconds" if tokens else "compute_infer_seconds")
    if above is None or below is None:
        return ""
    total = next((one.total for one in below[1] if isinstance(one, MeanOf)), None)
    if total is None:
        histograms = [one for one in below[1] if isinstance(one, Histogram)]
        if not histograms:
            return ""
        total = Native(f"{histograms[0].metric}_sum", histograms[0].matchers, histograms[0].scale)
    natives = [one for one in above[1] if isinstance(one, Native)]
    upper = above[0].rate(above[0].labels.model, *natives)
    lower = below[0].rate(below[0].labels.model, total)
    return f"{block(upper)}\n/\n({block(lower)} > 0)"


__all__ = ["LADDER", "QUANTILES", "Formulas", "Kind", "Quantile", "down", "formulas", "giver", "presence"]
