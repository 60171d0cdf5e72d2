"""LLM engines: what saturates, how fast tokens come, and what is wasted."""

from __future__ import annotations

from obs.catalog.scaling import PRIMARY, TARGETS
from obs.config import Config
from obs.dashboards import panels
from obs.dashboards.panels import House
from obs.engines import BY_NAME as ENGINES
from obs.model.dashboard import Dashboard, Panel, Query, Row, Threshold
from obs.model.metric import Histogram, Missing, Native
from obs.promql import block, by, duration, number, on, quote

_M = "{{model}} {{version}} {{job}}"
#: "estimate" where the sidecar computes what the engine hides, else nothing.
_SOURCE = "{{source}}"
_NONE = "not exported by this engine (Triton's vLLM backend exports none; an obs sidecar estimates it)"


def dashboard(config: Config) -> Dashboard | None:
    h = House(config)
    if not h.llm:
        return None
    rows = (
        Row("Saturation", _saturation(h)),
        Row("Latency", _latency(h)),
        Row("Tokens", _tokens(h)),
        Row("Distributions", _heatmaps(h)),
        Row("Ranks, transfers and sleep", _details(h), collapsed=True),
        Row("How requests end", _endings(h), collapsed=True),
        Row("Beside the engine (obs sidecar)", _sidecar(h), collapsed=True),
    )
    return Dashboard(
        "obs-llm", "obs-llm", "Inference / LLM engines",
        "What saturates, how fast tokens come, and what is wasted.",
        tuple(row for row in rows if row.panels), h.variables(), h.annotations(),
    )


def _saturation(h: House) -> tuple[Panel, ...]:
    return (
        *panels.ratio(
            "KV cache in use (blocks)",
            [
                h.query("model", "kv_cache_usage", "max", f"{_M} fullest rank {_SOURCE}"),
                h.query("model", "kv_cache_usage", "mean", f"{_M} mean {_SOURCE}"),
            ],
            f"Used part of the KV cache, by blocks: not tokens held. Above {h.config.limit('kv_usage'):.0%} it is "
            "saturation only while requests wait or are preempted: a full batch runs at 98 % in good health. The mean "
            "far below the fullest rank: requests are spread unevenly. Frozen while an engine hangs. \"estimate\": the obs "
            "sidecar computes it for an engine that hides it.",
            thresholds=h.threshold("kv_usage", "orange"), max=1.0, no_value=_NONE,
        ),
        *panels.count(
            "Requests running and waiting",
            [
                h.query("model", "requests_running", "sum", f"{_M} running {_SOURCE}"),
                h.query("model", "requests_waiting", "sum", f"{_M} waiting {_SOURCE}"),
                h.query("model", "requests_paused", "sum", f"{_M} paused"),
            ],
            "Replicas and ranks together. Waiting that grows with a full KV cache: memory is the limit; with room in "
            "the cache: prefill or slots. Line: waiting requests below which growth is jitter. TensorRT-LLM's waiting "
            "leaves out the executor's own queue. Frozen numbers without tokens: the engine hangs.",
            thresholds=h.threshold("waiting_floor", "orange"), no_value=_NONE,
        ),
        *panels.rate(
            "Preemptions", [h.query("model", "preemptions", "rate", _M)],
            "Running requests pushed out because the KV cache was full; their prompts are computed again. TensorRT-LLM "
            "with guaranteed_no_evict queues instead.",
            unit="ops", thresholds=h.threshold("preemption_rate"), no_value=_NONE,
        ),
    )


def _latency(h: House) -> tuple[Panel, ...]:
    ttft = h.series("model", "time_to_first_token_seconds", "p99")
    first = h.series("model", "first_response_seconds", "p99")
    fallback = None
    if first and h.has("model", "model_loaded", "count"):
        text = block(h.of_llm(first))
        fallback = Query(
            f"{text}\nunless {on(h.labels.model)}\n{ttft}" if ttft else text, f"P99 {_M} first response"
        )

    def quantile(name: str, operation: str, *, joined: bool = False) -> Query | None:
        label = operation.upper()
        if joined:  # TensorRT-LLM's whole requests are timed by Triton
            text = h.of_llm(h.series("model", name, operation))
            return Query(text, f"{label} {_M}") if text else None
        return h.query("model", name, operation, f"{label} {_M}")

    return (
        *panels.latency(
            "Time to first token",
            [
                quantile("time_to_first_token_seconds", "p99"), quantile("time_to_first_token_seconds", "p50"), fallback,
                h.objective("model", "time_to_first_token_seconds", "mean", "", "ttft_p99"),
            ],
            "From arrival to the first generated token, over all replicas: queue and prefill. Dashed: the P99 limit of "
            "the alert. Triton's vLLM backend has no bucket above 10 s: longer waits read 10 s. \"first response\" is "
            "Triton's own, for models whose engine gives no first token.",
            width=6,
        ),
        *panels.latency(
            "Time between tokens",
            [
                quantile("inter_token_latency_seconds", "p99"), quantile("inter_token_latency_seconds", "p50"),
                h.objective("model", "inter_token_latency_seconds", "mean", "", "itl_p99"),
            ],
            "Between two outputs of one request. With speculative decoding one output holds several tokens: it is not "
            "per token, and its inverse is not the throughput. Dashed: the P99 limit. Triton's vLLM backend reads 2.5 s "
            "at most.",
            width=6, no_value="no traffic, or not exported (TensorRT-LLM)",
        ),
        *panels.latency(
            "Whole request",
            [
                quantile("request_latency_seconds", "p99", joined=True),
                quantile("request_latency_seconds", "p50", joined=True),
                h.objective("model", "request_latency_seconds", "mean", "", "llm_latency_p99"),
            ],
            "From arrival to the last token, of finished requests: nothing while one hangs, and aborted ones never "
            "count. Dashed: the P99 limit. For TensorRT-LLM it is Triton's own measure, a summary that of the worst "
            "replica.",
            width=6,
        ),
        *panels.latency(
            "Wait inside the engine",
            [
                h.query("model", "queue_time_seconds", "p99", f"P99 {_M}", h.inside),
                h.query("model", "queue_time_seconds", "mean", f"mean {_M}", h.inside),
                h.objective("model", "queue_time_seconds", "mean", "", "llm_queue_time_p99", "of P99 "),
                h.objective("model", "queue_time_seconds", "mean", "", "llm_queue_time", "of mean "),
            ] if any(name in h.llm for name in h.gives("queue_time_seconds")) else [],
            "Before the engine schedules a request, told when it finishes. Dashed: the limits of the mean and of the "
            "P99. vLLM's first bucket ends at 0.3 s: its P99 reads 0.297 s when nothing waits. Aborted requests are "
            "not in it.",
            width=6, no_value="no traffic, or not exported",
        ),
    )


def _tokens(h: House) -> tuple[Panel, ...]:
    part = h.config.limit("decode_collapse")
    return (
        *panels.rate(
            "Tokens generated (decode)",
            [
                h.query("model", "generation_tokens", "rate", _M),
                h.baseline("model", "generation_tokens", "decode_collapse", "decode_floor"),
            ],
            f"Output tokens per second, replicas together. Dashed: {part:.0%} of the recent mean, below which decoding "
            "has collapsed if as many requests run. TensorRT-LLM counts when a request ends: it comes in bursts.",
            unit="tokens/s",
        ),
        *panels.rate(
            "Prompt tokens taken in", [h.query("model", "prompt_tokens", "rate", _M)],
            "Prompt tokens per second, those found in the prefix cache included: they cost no work. Never add them to "
            "generated tokens.",
            unit="tokens/s",
        ),
        *panels.ratio(
            "Prefix-cache hits",
            [
                h.query("model", "prefix_cache_hit", "ratio", _M),
                h.baseline("model", "prefix_cache_hit", "prefix_hit_drop", "prefix_hit_floor"),
            ],
            "Looked-up prompt tokens that were in the prefix cache. Dashed: part of its recent value below which it "
            "has fallen (lost affinity of the router, another system prompt, eviction). Prompts computed again after "
            "a preemption can count as hits.",
            max=1.0, no_value="no traffic, or no prefix cache",
        ),
    )


def _heatmaps(h: House) -> tuple[Panel, ...]:
    """One per engine: two engines' buckets have different bounds and cannot be added."""
    found: list[Panel] = []
    for signal, title in (("time_to_first_token_seconds", "Time to first token"),
                          ("inter_token_latency_seconds", "Time between tokens")):
        for name in h.gives(signal):
            sources = ENGINES[name].signals[signal]
            if isinstance(sources, Missing) or not any(isinstance(source, Histogram) for source in sources):
                continue
            buckets = h.series("model", signal, "bucket_rate", f"engine={quote(name)}")
            found += panels.panel(
                f"{title}, {ENGINES[name].title}",
                [Query(f"sum {by(('le',))} ({buckets})", "{{le}}", format="heatmap")],
                "Observations per second by bucket, the chosen models together. Choose one model: a mixture of slow and "
                "fast models shows two bands. Servers whose buckets were changed by a flag distort it.",
                type="heatmap", unit="s", width=12, no_value=panels.NO_TRAFFIC,
            )
    return tuple(found)


def _details(h: House) -> tuple[Panel, ...]:
    sleeping = h.series("instance_model", "sleeping", "present")
    sleep = [Query(sleeping, "{{instance}} {{model}}")] if sleeping else []
    return (
        *panels.ratio(
            "KV cache in use, by rank (blocks)",
            [h.query("rank", "kv_cache_usage", "max", "{{model}} {{instance}} rank {{rank}}")],
            "Each data-parallel rank of each server. One rank full beside idle ones: requests queue there for nothing.",
            thresholds=h.threshold("kv_usage", "orange"), max=1.0, width=12, no_value=_NONE,
        ),
        *panels.ratio(
            "Gap between ranks",
            [h.query("instance_model", "rank_imbalance", "range", "{{model}} {{instance}}")],
            "Difference in KV use between the fullest and the emptiest rank of one server; 0 with one rank.",
            thresholds=h.threshold("rank_imbalance"), max=1.0, width=12, no_value=_NONE,
        ),
        *panels.latency(
            "KV transfer between servers",
            [
                h.query("model", "kv_transfer_seconds", "p99", f"P99 {_M}"),
                h.query("model", "kv_transfer_seconds", "mean", f"mean {_M}"),
            ],
            "Time to move one request's KV cache from a prefill to a decode server: part of every time to first token. "
            "Line: the limit of the mean.",
            thresholds=h.threshold("kv_transfer_time"), width=6, no_value="no transfers (not disaggregated)",
        ),
        *panels.rate(
            "KV transfers that failed", [h.query("model", "kv_transfer_failures", "rate", _M)],
            "Transfers per second that failed; any is one too many: the request is computed again or lost.",
            unit="ops", width=6, no_value="no transfers (not disaggregated)",
        ),
        *panels.beyond_top(h, h.of_llm(h.series("model", "beyond_top_bucket", "ratio")), width=6),
        *panels.count(
            "Engine at work", [h.query("instance_model", "engine_steps", "changes", "{{instance}} {{model}}")],
            "Scrapes in the rate window at which the engine's count of steps had moved. 0 with requests running is a hang, "
            "0 without is an idle engine.",
            width=6, no_value="not exported by this engine",
        ),
        *panels.states(
            "Asleep", sleep,
            "Engines put to sleep on purpose: no capacity, no traffic, and no alert for that. Only servers that are "
            "asleep are listed; vLLM before 0.11.1 does not tell.",
            {1: ("asleep", "blue")}, width=24, height=5, no_value="none asleep, or not exported",
        ),
    )


def _sidecar(h: House) -> tuple[Panel, ...]:
    """What the sidecar says, pod by pod: also of engines that hide it."""
    if "sidecar" not in h.config.engines:
        return ()
    pod = f"{{{{model}}}} {{{{{h.config.pod}}}}} {{{{instance}}}}"
    gone = "no sidecar, or withheld: see the table of signals"

    def query(metric: str, what: str) -> Query:
        return Query(h.beside(metric), f"{pod} {what}")

    suspect, up = h.beside("llm_engine_suspect"), h.beside("llm_engine_up")
    named = ("model", "signal", "source", "reason")
    told = h.beside("llm_signal_info", more=("signal", "source", "reason"))
    return (
        *panels.ratio(
            "Load to scale on",
            [query("llm_scaling_load_ratio", "now"), query("llm_scaling_projected_load_ratio", "projected")],
            "llm_scaling_load_ratio of each pod, the larger of KV-cache usage and decode demand: 100 % (line) is full at the "
            f"SLO, more is possible. Autoscalers hold the projected one at {TARGETS[PRIMARY.key]:.0%}. Without a decode "
            "capacity (configured or learnt) it is the KV cache alone and misses decode-bound load.",
            thresholds=(Threshold(1.0),), no_value=gone,
        ),
        *panels.ratio(
            "Saturation",
            [query("llm_scaling_saturation_ratio", "saturation"), query("llm_scaling_decode_demand_ratio", "decode demand"),
             query("llm_decode_throughput_ratio", "decode throughput")],
            "The fullest of KV cache, waiting requests and slots over their targets; demand and throughput over the decode "
            "capacity. Demand above a throughput that no longer grows: the engine is full. The last two need a "
            "configured capacity.",
            thresholds=(Threshold(1.0),), no_value=gone,
        ),
        *panels.latency(
            "Time until the KV cache is full", [query("llm_kv_cache_exhaustion_seconds", "")],
            "At the growth of the last 60 s; an hour at most. No line while the cache does not grow: that is the usual "
            "case. Noisy by nature: to look at, not to scale on.",
            no_value="not filling up, or no sidecar",
        ),
        *panels.rate(
            "Decode throughput, by pod",
            [query("llm_decode_throughput_tokens_per_second", "15 s"),
             query("llm_decode_throughput_instant_tokens_per_second", "last sample")],
            "Generated tokens per second at the sidecar's own sampling, finer than a scrape sees. Where the engine counts a "
            "request's tokens at its end the mean is of 60 s, and the table of signals says engine_at_finish.",
            unit="tokens/s", width=12, no_value=gone,
        ),
        *panels.states(
            "Engines as their sidecar sees them",
            [Query(f"2 * ({suspect} == 1)", f"{pod} suspect"), Query(up, f"{{{{{h.config.pod}}}}} {{{{instance}}}}")],
            "Each sidecar's last good sample of its engine, and whether its figures are frozen while requests are there "
            "(suspect: LLMEngineStalled). A sidecar that is down has no line.",
            {0: ("down", "red"), 1: ("up", "green"), 2: ("suspect", "orange")}, width=12, no_value="no sidecar",
        ),
        *panels.table(
            "Signals: served or withheld",
            (("Pods", "short", f"count {by((*h.labels.model_name, 'engine', *named[1:]))} ({told})" if told else ""),),
            "Each signal by how it is derived and, where it is withheld, why: \"estimate\" is computed from other figures "
            "(Triton's vLLM backend hides its gauges), \"config\" needs a figure from the configuration. Not growing, no "
            "observations and asleep are no faults.",
            names={h.config.cluster: "Cluster", h.config.namespace: "Namespace", "job": "Job", "model": "Model",
                   "engine": "Engine", "signal": "Signal", "source": "Source", "reason": "Withheld because"},
            no_value="no sidecar",
            overrides=(panels.column("Withheld because", noValue="served"),),
            options={"sortBy": [{"displayName": "Withheld because", "desc": True}]},
        ),
    )


def _endings(h: House) -> tuple[Panel, ...]:
    if "vllm" not in h.config.engines:
        return ()
    c = h.config
    http = h.series("job_status", "http_requests", "rate")
    errors = h.series("job_status", "http_requests", "rate", 'status="5xx"')
    job = by(h.labels.job)
    first = h.series("model", "time_to_first_token_seconds", "rate", 'engine="vllm"')
    finished = h.series("model", "request_latency_seconds", "rate", 'engine="vllm"')
    running = h.series("model", "requests_running", "sum", 'engine="vllm"')
    span = duration(c.window("aborts"))
    lost = (
        f"(\n  avg_over_time({first}[{span}])\n  - avg_over_time({finished}[{span}])\n"
        f"  - clamp_min(deriv({running}[{span}]), 0)\n)\n/\n"
        f"(avg_over_time({first}[{span}]) > {number(c.limit('request_rate_floor'))})"
    )
    reasons = h.raw_rate("vllm", Native("vllm:request_success_total"), (*h.labels.model, "finished_reason"))
    return (
        *panels.rate(
            "Finished requests by reason", [Query(reasons, "{{model}} {{finished_reason}}")],
            "vLLM's own counter. Requests whose client disconnects are in none of these; refusals and bad requests "
            "show in the HTTP panels only.",
            width=6,
        ),
        *panels.ratio(
            f"Started and never finished, over {span}", [Query(lost, "{{model}}")],
            "Requests that got a first token and were not counted as finished, among those started: clients "
            "disconnect. They are missing from the latency and queue histograms, whose P99 improves as users give up. "
            "Around 0 (also a little below) is healthy.",
            thresholds=h.threshold("aborted_ratio"), width=6, min=None,
        ),
        *panels.rate(
            "HTTP requests by status", [Query(http, "{{job}} {{status}}")],
            "Requests to the API servers by status class, all their models together. The status of a stream is fixed "
            "at its headers: one that breaks later stays 2xx.",
            width=6,
        ),
        *panels.ratio(
            "HTTP requests that end in 5xx",
            [Query(f"sum {job} ({errors})\n/\n(sum {job} ({http}) > 0)", "{{job}}")],
            "Server errors among all requests of a job. The engine's own counters may show none of them.",
            thresholds=h.threshold("failure_ratio"), width=6, no_value="no 5xx, or no traffic",
        ),
    )


