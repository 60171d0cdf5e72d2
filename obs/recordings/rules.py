"""Recording rules, derived from engines × signals, so that alerts and panels never care which engine it is.

Every series carries ``engine`` (which engine it came from) and the labels of its level. Counters become rates,
gauges sums or maxima, distributions means and quantiles in base units. A quantile is taken from a histogram
where there is one, else from the worst replica's summary; it is never averaged or summed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from obs.catalog.signals import SIGNALS
from obs.config import Config
from obs.engines import BY_NAME as ENGINES
from obs.model.metric import Engine, Histogram, MeanOf, Missing, Native, Quotient, Signal, Source, Summary
from obs.model.rule import Group, Recording
from obs.promql import (
    block,
    by,
    call,
    duration,
    either,
    escape_regex,
    indent,
    number,
    on,
    one_of,
    quote,
    scaled,
    selector,
)
from obs.recordings.beside import sidecar_labels, stand_in
from obs.recordings.names import Labels, labels, series

#: Signals whose observations are also counted (``:rate``): the traffic floor of their quantiles (finished
#: requests would silence a P99 when all clients give up), the second opinion on Triton's request counters, and
#: the two ends of the balance that shows aborted requests.
COUNTED = (
    "request_latency_seconds", "queue_time_seconds", "time_to_first_token_seconds", "inter_token_latency_seconds",
    "kv_transfer_seconds",
)
#: Of these, the ones whose largest bucket real waits can exceed.
CAPPED = ("request_latency_seconds", "time_to_first_token_seconds")
#: Also recorded per target: one server's want of memory is judged by its own queue, not by another's.
PER_TARGET = ("requests_running", "requests_waiting", "requests_paused", "preemptions")
QUANTILES = (("p50", 0.5), ("p99", 0.99))
MIB = 1048576.0
#: A largest finite bucket bound (seconds) up to which real waits can be off the scale; vLLM's own reach 2560 s.
TOP_BOUND = 60.0


def spell(engine: Engine, metric: str, dialect: str) -> str:
    """The wire name of ``metric`` in a dialect of the engine's names."""
    for prefix, spelling in engine.dialects.get(dialect, {}).items():
        if metric.startswith(prefix):
            return spelling + metric[len(prefix) :]
    return metric


class EngineRules:
    """Writes the recording rules of one engine.

    ``recorded_as`` names another engine that inherits the signals: its label is written, for its models only.
    """

    def __init__(self, engine: Engine, config: Config, recorded_as: Engine | None = None) -> None:
        self.engine = engine
        self.name = recorded_as.name if recorded_as else engine.name
        self.config = config
        self.labels: Labels = sidecar_labels(config) if engine.name == "sidecar" else labels(config)
        self.signal: Signal | None = None
        self.window = duration(config.window("rate"))
        self.rules: list[Recording] = []

    # -- text -------------------------------------------------------------------------------------
    def select(self, metric: str, *matchers: str, dialect: str = "standard") -> str:
        """The engine's own series of ``metric``."""
        own = self.engine.own
        return selector(
            spell(self.engine, metric, dialect), own, self.config.selector(self.engine.name), *matchers
        )

    def aggregate(self, operator: str, keep: Sequence[str], inner: str) -> str:
        """``operator by (keep) (inner)``, with the engine's labels renamed to ours where ``keep`` needs them."""
        engine = self.engine
        if "model" in keep and engine.model_label not in ("model", ""):
            inner = call("label_replace", inner, '"model"', '"$1"', quote(engine.model_label), '"(.+)"')
        if "model" in keep:
            if self.config.aliases and engine.model_label == "model":
                # Two names of one model must not become one series before they are aggregated.
                inner = call("label_replace", inner, '"served_as"', '"$1"', '"model"', '"(.+)"')
            for served, alias in sorted(self.config.aliases.items()):
                inner = call("label_replace", inner, '"model"', quote(alias.replace("$", "$$")), '"model"',
                             quote(escape_regex(served)))
        if engine.name == "sidecar" and self.signal is not None:
            inner = stand_in(self.config, self.signal, inner)
        if "rank" in keep and engine.rank_label:
            inner = call("label_replace", inner, '"rank"', '"$1"', quote(engine.rank_label), '"(.+)"')
        if "gpu_uuid" in keep and engine.name == "dcgm":
            inner = call("label_replace", inner, '"gpu_uuid"', '"$1"', '"UUID"', '"(.+)"')
        return f"{operator} {by(keep)} {block(inner)}"

    def every_spelling(self, make: Callable[[str], str]) -> str:
        """``make(dialect)`` for each configured dialect; what the first gives, the others do not add."""
        return either(*(make(dialect) for dialect in self.config.dialects(self.engine.name)))

    @property
    def identity(self) -> tuple[str, ...]:
        """The labels that tell one target's model (and rank) from another's, under the engine's own names."""
        engine = self.engine
        own = (engine.model_label, engine.version_label, engine.rank_label)
        return (*self.labels.instance, *(label for label in own if label))

    def gauge(self, operator: str, keep: Sequence[str], *natives: Native) -> str:
        """``natives`` are one gauge under its newest name and older ones; each target's newest counts."""
        return self._aggregated(operator, keep, natives, "{}")

    def rate(self, keep: Sequence[str], *natives: Native) -> str:
        """The summed per-second increase of a counter, in the signal's unit."""
        return self._aggregated("sum", keep, natives, f"rate({{}}[{self.window}])")

    def _aggregated(self, operator: str, keep: Sequence[str], natives: Sequence[Native], form: str) -> str:
        # A rolling upgrade has targets of both names at once: the older name stands in per target, not per model.
        def merged(dialect: str) -> str:
            parts = [
                form.format(self.select(native.metric, native.matchers, dialect=dialect)) for native in natives
            ]
            inner = f"\nor {on(self.identity)}\n".join(parts)
            return scaled(self.aggregate(operator, keep, inner), natives[0].scale)

        return self.every_spelling(merged)

    def own(self, level: str, name: str, operation: str, *matchers: str) -> str:
        """A series recorded for this engine."""
        return selector(series(level, name, operation), f"engine={quote(self.name)}", *matchers)

    # -- rules ------------------------------------------------------------------------------------
    def record(self, level: str, name: str, operation: str, expr: str, help_text: str) -> None:
        others = [engine for engine in ENGINES.values() if engine.name in self.config.engines]
        loaded, same = series("model", "model_loaded", "count"), on(self.labels.model)
        if self.name != self.engine.name:
            expr = f"{block(expr)}\nand {same}\n{selector(loaded, f'engine={quote(self.name)}')}"
        elif self.engine.name == "triton":
            elsewhere = [engine.name for engine in others if name in (*engine.hides, *engine.inherits)]
            if elsewhere:
                # Over the rate window: a rate outlives its target's last scrape that long.
                there = f"present_over_time({selector(loaded, one_of('engine', elsewhere))}[{self.window}])"
                expr = f"{block(expr)}\nunless {same}\n{there}"
        self.rules.append(Recording(series(level, name, operation), expr, help_text, {"engine": self.name}))

    def write(self) -> tuple[Recording, ...]:
        for signal in SIGNALS:
            self.signal = signal
            sources = self.engine.signals[signal.name]
            if isinstance(sources, Missing):
                if signal.name in self.engine.inherits:
                    triton = EngineRules(ENGINES["triton"], self.config, recorded_as=self.engine)
                    triton.write_distribution(signal, sources_of(self.engine, signal.name))
                    self.rules += triton.rules
                continue
            if signal.name.startswith("gpu_"):
                self.write_gpu(signal, sources)
            elif signal.shape == "presence":
                self.write_presence(signal, sources)
            elif signal.shape == "counter":
                self.write_counter(signal, sources)
            elif signal.shape == "gauge":
                self.write_gauge(signal, sources)
            else:
                self.write_distribution(signal, sources)
        return tuple(self.rules)

    def write_presence(self, signal: Signal, sources: tuple[Source, ...]) -> None:
        keep = self.labels.instance if signal.name == "server" else self.labels.instance_model
        level = "instance" if signal.name == "server" else "instance_model"
        natives = [source for source in sources if isinstance(source, Native)]
        if signal.name == "sleeping":
            asleep = self.gauge("max", keep, natives[0])
            self.record(level, signal.name, "present", f"1 - ({asleep} == 0)", signal.help)
            return
        self.record(
            level, signal.name, "present",
            either(*(self.gauge("group", keep, native) for native in natives)), signal.help,
        )
        if signal.name == "model_loaded":
            self.record(
                "model", signal.name, "count",
                f"count {by(self.labels.model)} ({self.own(level, signal.name, 'present')})",
                "Replicas that serve the model.",
            )

    def write_counter(self, signal: Signal, sources: tuple[Source, ...]) -> None:
        level = "model_" + "_".join(signal.by) if signal.by else "model"
        keep = (*self.labels.model, *signal.by)
        natives = [source for source in sources if isinstance(source, Native)]
        if signal.name == "engine_steps":
            # changes() and not rate(): one engine's counter of steps is a gauge.
            self.record(
                "instance_model", signal.name, "changes",
                self._aggregated("sum", self.labels.instance_model, natives, f"changes({{}}[{self.window}])"),
                f"{signal.help} Scrapes in the rate window at which the count had moved; 0 = it stands still.",
            )
            return
        if signal.name in PER_TARGET:
            self.record(
                "instance_model", signal.name, "rate", self.rate(self.labels.instance_model, *natives),
                f"{signal.help} Per second, per target.",
            )
        self.record(
            level, signal.name, "rate",
            self.rate(keep, *natives), f"{signal.help} Per second.",
        )

    def write_gauge(self, signal: Signal, sources: tuple[Source, ...]) -> None:
        if signal.unit == "ratio":
            keep = (*self.labels.instance_model, "rank")
            self.record(
                "rank", signal.name, "max",
                either(*(self.ratio_source(keep, source) for source in sources)),
                f"{signal.help} Per data-parallel rank.",
            )
            for operator, operation in (("max", "max"), ("avg", "mean")):
                self.record(
                    "model", signal.name, operation,
                    f"{operator} {by(self.labels.model)} ({self.own('rank', signal.name, 'max')})",
                    f"{signal.help} {operation.title()} over replicas and ranks.",
                )
            return
        natives = [source for source in sources if isinstance(source, Native)]
        if signal.name in PER_TARGET:
            self.record(
                "instance_model", signal.name, "sum", self.gauge("sum", self.labels.instance_model, *natives),
                f"{signal.help} Per target.",
            )
        self.record(
            "model", signal.name, "sum",
            self.gauge("sum", self.labels.model, *natives),
            f"{signal.help} Sum over replicas.",
        )

    def ratio_source(self, keep: Sequence[str], source: Source) -> str:
        if isinstance(source, Quotient):
            # Only engines without dialects have quotients: no `or` to bind looser than `/`.
            return (
                f"{self.gauge('max', keep, source.numerator)}\n/\n"
                f"({self.gauge('max', keep, source.denominator)} > 0)"
            )
        assert isinstance(source, Native)
        return self.gauge("max", keep, source)

    def write_distribution(self, signal: Signal, sources: tuple[Source, ...]) -> None:
        keep = self.labels.model
        histograms = [source for source in sources if isinstance(source, Histogram)]
        summaries = [source for source in sources if isinstance(source, Summary)]
        means = [source for source in sources if isinstance(source, MeanOf)]
        if histograms:
            self.record("model", signal.name, "bucket_rate", self.buckets(histograms),
                        f"{signal.help} Observations per second by bucket; `le` keeps the engine's unit.")
        for operation, quantile in () if signal.name.startswith("compute_") else QUANTILES:
            ladder = []
            if histograms:
                value = scaled(
                    f"histogram_quantile({number(quantile)}, {self.own('model', signal.name, 'bucket_rate')})",
                    histograms[0].scale,
                )
                # NaN (no observation in the window) is not a value: the comparison drops it.
                ladder.append(call("label_replace", f"{value} >= 0", '"source"', '"histogram"', '""', '""'))
            matcher, hold = f"quantile={quote(number(quantile))}", duration(self.config.hold)
            for summary in summaries:
                worst = scaled(
                    self.aggregate(
                        "max", keep,
                        # Neither a lost scrape nor a minute without requests (NaN) may end an alert's `for`.
                        f"max_over_time({self.select(summary.metric, summary.matchers, matcher)}[{hold}]) >= 0",
                    ),
                    summary.scale,
                )
                ladder.append(call("label_replace", worst, '"source"', '"summary"', '""', '""'))
            if ladder:
                text = ladder[0]
                for lower in ladder[1:]:
                    text += f"\nor {on(keep)}\n{lower}"
                what = "over all replicas" if histograms else "of the worst replica (a summary cannot be aggregated)"
                self.record("model", signal.name, operation, text,
                            f"{signal.help} P{round(quantile * 100)} {what}, in seconds.")
        if means:
            text = self.mean([means[0].total], [means[0].count])
            self.record("model", signal.name, "mean", text, f"{signal.help} Mean, in seconds.")
        elif histograms:
            totals = [Native(f"{one.metric}_sum", one.matchers, one.scale) for one in histograms]
            counts = [Native(f"{one.metric}_count", one.matchers) for one in histograms]
            self.record("model", signal.name, "mean", self.mean(totals, counts), f"{signal.help} Mean, in seconds.")
        if signal.name in COUNTED and (histograms or summaries):
            observed: list[Histogram | Summary] = [*histograms, *summaries]
            counts = [Native(f"{source.metric}_count", source.matchers) for source in observed]
            self.record(
                "model", signal.name, "rate", self.rate(keep, *counts),
                f"{signal.title}: observations per second.",
            )

    def buckets(self, histograms: Sequence[Histogram]) -> str:
        """Bucket rates of each target's newest name: where it serves that, its older name is left out."""

        def merged(dialect: str) -> str:
            parts = []
            for number_, histogram in enumerate(histograms):
                part = self.select(f"{histogram.metric}_bucket", histogram.matchers, dialect=dialect)
                text = f"rate({part}[{self.window}])"
                for newer in histograms[:number_]:
                    known = self.select(f"{newer.metric}_count", newer.matchers, dialect=dialect)
                    text = block(f"{text}\nunless {on(self.identity)}\n{known}")
                parts.append(text)
            return self.aggregate("sum", ("le", *self.labels.model), "\nor\n".join(parts))

        return self.every_spelling(merged)

    def mean(self, totals: Sequence[Native], counts: Sequence[Native]) -> str:
        keep = self.labels.model
        total, count = self.rate(keep, *totals), self.rate(keep, *counts)
        if len(self.config.dialects(self.engine.name)) > 1:  # `or` binds looser than `/` and `>`
            total, count = block(total), block(count)
        return f"{total}\n/\n({count} > 0)"

    def write_gpu(self, signal: Signal, sources: tuple[Source, ...]) -> None:
        native = sources[0]
        assert isinstance(native, Native)
        expr = self.gauge("max", self.labels.gpu, native)
        if self.engine.name == "dcgm" and signal.name == "gpu_memory_total_bytes":
            # FB_TOTAL is not among dcgm-exporter's default counters, RESERVED only since 4.3.1.
            parts = {part: self.select(f"DCGM_FI_DEV_FB_{part}") for part in ("USED", "FREE", "RESERVED")}
            total = (
                f"{parts['USED']} + {parts['FREE']} + ({parts['RESERVED']} or 0 * {parts['USED']})"
            )
            expr = scaled(self.aggregate("max", self.labels.gpu, total), MIB)
        self.record("gpu", signal.name, "max", expr,
                    f"{signal.help} Once per physical GPU, however many servers report it.")


def sources_of(engine: Engine, signal: str) -> tuple[Source, ...]:
    """How the engine gives the signal, by itself or through Triton; empty when it does not."""
    sources = ENGINES["triton"].signals[signal] if signal in engine.inherits else engine.signals[signal]
    return () if isinstance(sources, Missing) else sources


def engine_groups(config: Config) -> tuple[Group, ...]:
    """One group of recording rules per configured engine."""
    groups = []
    for name in config.engines:
        rules = EngineRules(ENGINES[name], config).write()
        if rules:
            groups.append(
                Group(f"obs-record-{name}", f"recordings-{name}", f"Signals of {ENGINES[name].title}, normalised.", rules)
            )
    return tuple(groups)


def llm_engines(config: Config) -> tuple[str, ...]:
    """The configured engines that batch inside: those that count generated tokens."""
    return tuple(
        name for name in config.engines if sources_of(ENGINES[name], "generation_tokens")
    )


def preallocating(config: Config) -> tuple[str, ...]:
    return tuple(name for name in config.engines if ENGINES[name].preallocates_gpu_memory)


def recorded(config: Config, name: str) -> bool:
    """Whether any configured engine gives the signal: a rule on another would be dead from birth."""
    return any(sources_of(ENGINES[engine], name) for engine in config.engines)


def frozen_counters(config: Config) -> str:
    """Triton models that observe latencies while their request counters stand at 0; "" without Triton.

    That is --metrics-config counter_latencies=false. Frozen is exactly 0: a long stream is observed at its first
    response and counted at its last. The value is the latencies observed per second.
    """
    triton = [name for name in config.engines if name.startswith("triton")]
    if not triton:
        return ""
    model = labels(config).model
    observed = selector(series("model", "request_latency_seconds", "rate"), one_of("engine", triton))
    counted = EngineRules(ENGINES["triton"], config).select("nv_inference_request_success")
    return (
        f"{observed} > 0\nunless {on(model)}\n  {series('model', 'request_attempts', 'rate')} > 0\n"
        f"unless {on(model)}\n  sum {by(model)} ({counted}) > 0"
    )


def _traffic(config: Config, baseline: Callable[[str], str]) -> list[Recording]:
    """Requests, failures and their ratios; each is recorded only where an engine counts its parts."""
    L = labels(config)
    keep, names = (*L.model, "engine"), (*L.model_name, "engine")
    rules: list[Recording] = []

    def record(level: str, name: str, operation: str, expr: str, help_text: str) -> None:
        rules.append(Recording(series(level, name, operation), expr, help_text))

    requests, failures = series("model", "requests", "rate"), series("model_reason", "request_failures", "rate")
    attempts = series("model", "request_attempts", "rate")
    failed, cancelled = (selector(failures, f"reason{sign}{quote('CANCELED')}") for sign in ("!=", "="))
    counted = recorded(config, "request_failures")
    record("model", "request_attempts", "rate",
           f"{requests} + {on(keep)} sum {by(keep)} ({failures})\nor\n{requests}" if counted else requests,
           "Requests answered or failed, whatever the reason. Per second.")
    if counted:
        record("model", "request_failures", "rate",
               f"sum {by(keep)} ({failed})",
               "Requests that the server counts as failed, cancelled ones left out. Per second.")
        record("model", "request_failures", "ratio",
               f"{series('model', 'request_failures', 'rate')} / ({attempts} > 0)",
               "Failed part of all requests; absent without traffic.")
        record("model_reason", "request_failures", "ratio",
               f"{failures} / {on(keep)} group_left () ({attempts} > 0)",
               "Failed part of all requests by reason; absent without traffic.")
        record("model", "request_cancellations", "ratio",
               f"sum {by(keep)} ({cancelled}) / ({attempts} > 0)",
               "Cancelled part of all requests; absent without traffic.")
    record("model_name", "requests", "rate", f"sum {by(names)} ({requests})",
           "Requests answered, the versions of a model together. Per second.")
    record("model_name", "request_attempts", "rate", f"sum {by(names)} ({attempts})",
           "Requests answered or failed, the versions of a model together. Per second.")
    record("model_name", "requests", "baseline", baseline(series("model_name", "requests", "rate")),
           f"Mean request rate of the {duration(config.window('baseline'))} that ended "
           f"{duration(config.window('baseline_gap'))} ago; absent without that history.")
    return rules


def derived_group(config: Config) -> Group:
    """What several users need and is computed from the engines' series."""
    L = labels(config)
    span, gap = config.window("baseline"), config.window("baseline_gap")
    rules: list[Recording] = []

    def record(level: str, name: str, operation: str, expr: str, help_text: str) -> None:
        rules.append(Recording(series(level, name, operation), expr, help_text))

    def baseline(of: str) -> str:
        """The mean over the baseline window, only for series that are older than it.

        Asked of a whole window before its beginning: an outage at that time must not make the series look young.
        """
        return (
            f"avg_over_time({of}[{duration(span)}] offset {duration(gap)})\n"
            f"and\npresent_over_time({of}[{duration(span)}] offset {duration(span + gap - config.window('rate'))})"
        )

    target = (config.cluster, "job", "instance")
    record("job", "server", "present",
           f"group {by(L.job)} (\n  up\n  and {on(target)}\n  {series('instance', 'server', 'present')}\n)",
           # Under the target's own namespace: an exporter that honours labels serves its series under others.
           "The job has a target that serves an engine's metrics.")
    if recorded(config, "requests"):
        rules += _traffic(config, baseline)
    frozen = frozen_counters(config)
    if frozen:
        record("model", "frozen_counters", "rate", frozen,
               "Latencies observed per second by models whose request counters stand at 0; absent for all others.")
    if recorded(config, "executions"):
        record("model", "batch_size", "mean",
               f"{series('model', 'inferences', 'rate')} / ({series('model', 'executions', 'rate')} > 0)",
               "Inferences per execution; absent without traffic.")
    if recorded(config, "prefix_cache_queries"):
        hit = series("model", "prefix_cache_hit", "ratio")
        record("model", "prefix_cache_hit", "ratio",
               f"{series('model', 'prefix_cache_hits', 'rate')} / "
               f"({series('model', 'prefix_cache_queries', 'rate')} > 0)",
               "Part of the looked-up prompt tokens found in the prefix cache; absent without traffic.")
        record("model", "prefix_cache_hit", "baseline", baseline(hit), "The same, over the baseline window.")
    if llm_engines(config):
        tokens, running = series("model", "generation_tokens", "rate"), series("model", "requests_running", "sum")
        record("model", "generation_tokens", "baseline", baseline(tokens),
               "Mean decode throughput (tokens/s) over the baseline window; absent without that history.")
        if recorded(config, "requests_running"):
            record("model", "requests_running", "baseline", baseline(running),
                   "Mean number of running requests over the baseline window; absent without that history.")
    if "triton-vllm" in config.engines:
        own = 'engine="triton-vllm"'
        # Little's law on outputs: each running request gives one per inter-token latency.
        record("model", "requests_running_estimate", "mean",
               f"{selector(series('model', 'generation_tokens', 'rate'), own)}\n* "
               f"{selector(series('model', 'inter_token_latency_seconds', 'mean'), own)}",
               "Requests running, for an engine that does not count them: tokens/s times mean inter-token latency. Reads "
               "high with speculative decoding.")
    if recorded(config, "kv_transfer_failures"):
        failed = series("model", "kv_transfer_failures", "rate")
        record("model", "kv_transfer_failures", "ratio",
               f"{failed} / (({failed} + {series('model', 'kv_transfer_seconds', 'rate')}) > 0)",
               "Failed part of all KV transfers; absent without transfers.")
    if recorded(config, "kv_cache_usage"):
        ranks, of = series("rank", "kv_cache_usage", "max"), by((*L.instance_model, "engine"))
        record("instance_model", "rank_imbalance", "range", f"max {of} ({ranks}) - min {of} ({ranks})",
               "Gap in KV use between the fullest and the emptiest data-parallel rank of one server.")
    for engine in config.engines:
        for signal in CAPPED:
            top = top_bound(ENGINES[engine], signal)
            if top is not None and top <= TOP_BOUND:
                buckets = series("model", signal, "bucket_rate")
                own = f"engine={quote(engine)}"
                below = selector(buckets, own, le(top / scale_of(ENGINES[engine], signal)))
                every = selector(buckets, own, 'le="+Inf"')
                # `le` may be stored in two forms at once, after an upgrade to Prometheus 3.
                expr = f"1 -\n  sum without (le) ({below})\n/ ignoring (le)\n  ({every} > 0)"
                if owner_of(ENGINES[engine], signal).name == "triton":
                    # Triton's buckets can be configured: with others than the known ones the top is not known.
                    bounds = bucket_bounds(ENGINES[engine], signal)
                    scale = scale_of(ENGINES[engine], signal)
                    known = "|".join(number(round(bound / scale, 9)) for bound in bounds)
                    other = selector(buckets, own, f'le!~"({known})([.]0)?|[+]Inf"')
                    expr = f"({indent(expr).strip()})\nunless {on(L.model)}\n{other}"
                rules.append(
                    Recording(
                        series("model", "beyond_top_bucket", "ratio"),
                        expr,
                        "Share of observations above the largest finite bucket bound, where a quantile is cut off.",
                        {"engine": engine, "signal": signal},
                    )
                )
    sources = []
    for engine in config.engines:
        writer = EngineRules(ENGINES[engine], config)
        given = ENGINES[engine].signals["request_latency_seconds"]
        for source in () if isinstance(given, Missing) else given:
            if isinstance(source, Histogram | Summary):
                sources.append(writer.aggregate("group", L.model, writer.select(f"{source.metric}_count")))
    if sources:
        record("model", "latency_source", "present", either(*sources),
               "The server exports a histogram or summary of the request latency, observations or not.")
    if "vllm" in config.engines:
        rules_vllm = EngineRules(ENGINES["vllm"], config)
        http = selector("http_requests_total", config.selector("vllm"), 'handler=~"/v1/.*"')
        # Over the rate window: a rate outlives a lost scrape, and the target that it came from must as well.
        server = selector(series("instance", "server", "present"), f"engine={quote('vllm')}")
        served = f"present_over_time({server}[{rules_vllm.window}])"
        record("job_status", "http_requests", "rate",
               f"sum {by((*L.job, 'status'))} (\n  rate({http}[{rules_vllm.window}])\n  and {on(L.instance)}\n"
               f"  {served}\n)",
               "HTTP requests to the API by status class. Per second. A stream's status is fixed at its headers.")
    return Group("obs-record-derived", "recordings-derived", "Quantities computed from the engines' signals.", tuple(rules))


def gpu_group(config: Config) -> Group | None:
    """GPU memory once per physical GPU, from Triton or else from dcgm-exporter."""
    sources = memory_sources(config)
    if not sources:
        return None
    L = labels(config)
    rules: list[Recording] = []
    engines = preallocating(config)
    present = series("instance", "preallocates", "present")
    if engines:
        loaded = selector(series("instance_model", "model_loaded", "present"), one_of("engine", engines))
        rules.append(Recording(present, f"group {by(L.instance)} ({loaded})",
                               "The server runs an engine that takes its GPU memory at start."))
        marks = []
        if "triton" in sources:
            total = EngineRules(ENGINES["triton"], config).select("nv_gpu_memory_total_bytes")
            marks.append(f"group {by(L.gpu)} ({total} and {on(L.instance)} {present})")
        if "dcgm" in sources:
            marks += _dcgm_marks(config, present)
        rules.append(Recording(series("gpu", "preallocates", "present"), either(*marks),
                               "An engine that takes its memory at start uses this GPU: its memory says nothing of load."))
    if "triton" in sources:
        total = EngineRules(ENGINES["triton"], config).select("nv_gpu_memory_total_bytes")
        of = by((*L.instance, "gpu_uuid"))
        rules.append(Recording(series("instance", "gpus", "count"),
                               f"count {by(L.instance)} (group {of} ({total}))", "GPUs that the Triton server reports."))
    used, total = series("gpu", "gpu_memory_used_bytes", "max"), series("gpu", "gpu_memory_total_bytes", "max")
    ratios = []
    for name in sources:
        own = f"engine={quote(name)}"
        ratios.append(f"{selector(used, own)} / ({selector(total, own)} > 0)")
    text = ratios[0]
    for other in ratios[1:]:
        text += f"\nor {on(L.gpu)}\n{other}"
    rules.append(Recording(series("gpu", "gpu_memory_usage", "ratio"), text,
                           "Used part of a GPU's memory; absent when the total is 0 or unknown."))
    return Group("obs-record-gpu", "recordings-gpu", "GPU memory, once per physical GPU.", tuple(rules))


def _dcgm_marks(config: Config, present: str) -> tuple[str, str]:
    """The GPUs of preallocating engines as dcgm-exporter tells them: by the GPU's pod, else by elimination.

    ``present`` is the series that marks the engines' targets.
    """
    L = labels(config)
    dcgm = EngineRules(ENGINES["dcgm"], config)
    used = dcgm.select("DCGM_FI_DEV_FB_USED")
    # Unless honor_labels is set, Prometheus renames the GPU user's labels to exported_*.
    for label in (config.namespace, config.pod):
        native = "namespace" if label == config.namespace else "pod"
        used = call("label_replace", used, quote(label), '"$1"', quote(f"exported_{native}"), '"(.+)"')
    named = selector(present, f'{config.pod}!=""')
    mapped = f"{used}\nand {on((config.namespace, config.pod))}\n{named}"
    # A GPU whose pod label is that of the exporter's own target (or none) belongs to nobody we know. If no GPU of
    # the cluster is mapped to such an engine, it may be the engine's: it gets the limit that cannot be wrong for it.
    own = dcgm.select("DCGM_FI_DEV_FB_USED", 'exported_pod=""')
    nobody = f"{own}\nand {on(L.instance)}\nup"
    engines, of = present, on((config.cluster,))
    if "triton" in config.engines:
        triton = selector(series("instance", "server", "present"), 'engine="triton"')
        engines += f"\nunless {on(L.instance)}\n{triton}"
    unmapped = f"{nobody}\nand {of}\n{block(engines)}\nunless {of}\n{block(mapped)}"
    rest = dcgm.aggregate("group", L.gpu, unmapped)
    if "triton" in config.engines:
        total = EngineRules(ENGINES["triton"], config).select("nv_gpu_memory_total_bytes")
        rest = block(f"{rest}\nunless {on((config.cluster, 'gpu_uuid'))}\n{total}")
    return dcgm.aggregate("group", L.gpu, mapped), rest


def memory_sources(config: Config) -> tuple[str, ...]:
    """The configured engines that report GPU memory, the preferred one first."""
    return tuple(
        name for name in config.engines
        if not isinstance(ENGINES[name].signals["gpu_memory_total_bytes"], Missing)
    )


def top_bound(engine: Engine, signal: str) -> float | None:
    """The largest finite bucket bound, in seconds, of the histogram that gives ``signal``; ``None`` without one."""
    bounds = bucket_bounds(engine, signal)
    return bounds[-1] if bounds else None


def bucket_bounds(engine: Engine, signal: str) -> tuple[float, ...]:
    """The finite bucket bounds, in seconds, of the newest histogram that gives ``signal``; empty without one."""
    for source in sources_of(engine, signal):
        if isinstance(source, Histogram):
            return tuple(bound * source.scale for bound in owner_of(engine, signal).metric(source.metric).buckets)
    return ()


def owner_of(engine: Engine, signal: str) -> Engine:
    """The engine whose metrics give the signal."""
    return ENGINES["triton"] if signal in engine.inherits else engine


def scale_of(engine: Engine, signal: str) -> float:
    """Seconds per wire unit of the histogram that gives ``signal``."""
    return next(source.scale for source in sources_of(engine, signal) if isinstance(source, Histogram))


def le(bound: float) -> str:
    """A matcher for a bucket bound as Prometheus 2 (``le="60"``) and 3 (``le="60.0"``) store it."""
    bound = round(bound, 9)
    if bound == int(bound):
        return f'le=~"{int(bound)}|{int(bound)}[.]0"'
    return f'le="{bound!r}"'


@lru_cache(maxsize=4)  # each dashboard asks for them too
def groups(config: Config) -> tuple[Group, ...]:
    """All groups of recording rules, those that others read first."""
    found: Iterable[Group | None] = (*engine_groups(config), derived_group(config), gpu_group(config))
    return tuple(group for group in found if group is not None and group.rules)
