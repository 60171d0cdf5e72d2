"""Latency against objectives, from the best source the server has: histogram, else summary, else the mean."""

from __future__ import annotations

import math

from obs.alerts.thresholds import above, has_traffic
from obs.config import Config
from obs.engines import BY_NAME as ENGINES
from obs.model.rule import Alert, Group, NoData
from obs.promql import duration, indent, number, on, one_of, quote, selector
from obs.recordings.names import labels, series
from obs.recordings.rules import CAPPED, TOP_BOUND, llm_engines, top_bound

_IDLE = "A quantile of no observations is NaN and is dropped: no traffic is not fast."


def group(config: Config) -> Group:
    L = labels(config)
    llm = llm_engines(config)
    plain, inside = one_of("engine", llm, negate=True), one_of("engine", llm)
    keep = (*L.model, "engine")
    floor = (L.model, has_traffic(config, series("model", "requests", "rate")))

    def observed(signal: str) -> tuple[tuple[str, ...], str]:
        """The floor of a quantile: its own observations, which aborted requests or frozen counters do not hide."""
        return keep, has_traffic(config, series("model", signal, "rate"))

    p99, mean = series("model", "request_latency_seconds", "p99"), series("model", "request_latency_seconds", "mean")
    source = series("model", "latency_source", "present")
    slow = above(config, mean, "latency_p99", plain, and_on=floor)
    if llm:
        generations = above(config, mean, "llm_latency_p99", inside, and_on=floor)
        slow = f"(\n{indent(slow)}\n)\nor\n(\n{indent(generations)}\n)"
    alerts = [
        Alert(
            "InferenceLatencyP99High",
            above(config, p99, "latency_p99", plain, and_on=observed("request_latency_seconds")),
            "5m", "warning",
            "{{ $labels.model }} answers 1 request in 100 slower than {{ $value | humanizeDuration }}",
            "P99 request latency of model {{ $labels.model }} version {{ $labels.version }} is "
            "{{ $value | humanizeDuration }} (source: {{ $labels.source }}; a summary is that of the worst replica).",
            NoData("silent", f"{_IDLE} A server without a source is reported where an objective is declared.",
                   "InferenceLatencySourceMissing"),
            needs=("request_latency_seconds",),
            limits=("slo.latency_p99", "limits.request_rate_floor"),
            blind_spots=(
                "An error answered through Triton's Python backend counts as a success, and fast failures lower the P99.",
                "For decoupled Python models Triton's request time ends when execute() returns.",
                "An ensemble around an LLM is held against this limit: give it a latency_p99 of its own under models.",
            ),
        ),
        Alert(
            "InferenceLatencyMeanHigh",
            f"(\n{indent(slow)}\n)\nunless {on(L.model)}\n{source}",
            "5m", "warning",
            "{{ $labels.model }} answers in {{ $value | humanizeDuration }} on average",
            "The mean (not a P99: the server exports no quantile here) request latency of model {{ $labels.model }} "
            "version {{ $labels.version }} is {{ $value | humanizeDuration }}, above the P99 objective: the P99 is "
            "worse still.",
            NoData("silent", "No finished request, no mean.", "InferenceTrafficDrop"),
            needs=("requests", "request_latency_seconds"),
            limits=("slo.latency_p99", "slo.llm_latency_p99", "limits.request_rate_floor"),
            blind_spots=(
                "A mean hides a slow tail: it fires later than a P99 would.",
                "One replica with a quantile source silences it for the others of the model.",
            ),
        ),
    ]
    if any(
        (top_bound(ENGINES[engine], signal) or math.inf) <= TOP_BOUND for engine in config.engines for signal in CAPPED
    ):
        alerts.append(
            Alert(
                "InferenceLatencyBeyondBuckets",
                "\nor\n".join(
                    f"(\n  {beyond} > {number(config.limit('beyond_buckets'))}\n  and {on(observed(signal)[0])}\n"
                    f"  {observed(signal)[1]}\n)"
                    for signal, beyond in (
                        (signal, selector(series("model", "beyond_top_bucket", "ratio"), f"signal={quote(signal)}"))
                        for signal in CAPPED
                        if any((top_bound(ENGINES[engine], signal) or math.inf) <= TOP_BOUND for engine in config.engines)
                    )
                ),
                "10m", "warning",
                "{{ $labels.model }}: {{ $value | humanizePercentage }} of {{ $labels.signal }} is above the top bucket",
                "{{ $value | humanizePercentage }} of the observations of {{ $labels.signal }} for model "
                "{{ $labels.model }} lie above the largest finite bucket: the P99 shown is only that bound.",
                NoData("silent", "Engines with wide buckets (native vLLM) need none; without traffic there is no share.",
                       "InferenceTrafficDrop"),
                limits=("limits.beyond_buckets", "limits.request_rate_floor"),
            )
        )
    declared, hold = config.model_slos("latency_p99"), duration(config.hold)
    if declared or config.slo_given("latency_p99"):
        watched = "" if config.slo_given("latency_p99") else one_of("model", declared)
        alerts.append(
            Alert(
                "InferenceLatencySourceMissing",
                f"last_over_time({selector(series('model', 'model_loaded', 'count'), watched)}[{hold}])\n"
                f"unless {on(L.model)}\nlast_over_time({source}[{hold}])",
                "15m", "info",
                "The P99 objective of {{ $labels.model }} cannot be judged",
                "Model {{ $labels.model }} version {{ $labels.version }} (replicas: {{ $value }}) has a P99 objective, "
                "but its server exports neither a latency histogram nor a summary: only the mean is watched. Start "
                "Triton with --metrics-config histogram_latencies=true (from 26.01) or summary_latencies=true (costs "
                "throughput: measure it; not for models with a response cache).",
                NoData("fires", "The absence of a latency source is what it reports.", "InferenceModelVanished"),
                needs=("model_loaded", "request_latency_seconds"),
                limits=("slo.latency_p99",),
            )
        )
    if llm:
        capped = (
            "Of Triton's TensorRT-LLM backend only Triton's own latencies are known: its histogram times the first "
            "response of a streaming model and ends at 5 s (see InferenceLatencyBeyondBuckets); its summary has no end.",
        ) if "triton-trtllm" in llm else ()
        engine_histograms = NoData("silent", f"{_IDLE} vLLM with --disable-log-stats, or Triton without "
                                   "REPORT_CUSTOM_METRICS, exports none.", "InferenceMetricsEmpty")
        alerts += [
            Alert(
                "LLMTimeToFirstTokenP99High",
                above(config, series("model", "time_to_first_token_seconds", "p99"), "ttft_p99", inside,
                      and_on=observed("time_to_first_token_seconds")),
                "5m", "warning",
                "{{ $labels.model }} lets 1 user in 100 wait {{ $value | humanizeDuration }} for the first token",
                "P99 time to first token of {{ $labels.model }} is {{ $value | humanizeDuration }}: requests queue for "
                "the KV cache or a slot, or prefill is slow (long prompts, prefix cache misses).",
                engine_histograms,
                needs=("time_to_first_token_seconds",),
                limits=("slo.ttft_p99", "limits.request_rate_floor"),
                blind_spots=("Triton's vLLM backend has no bucket above 10 s: longer waits read 10 s.",),
                dashboard="obs-llm",
            ),
            Alert(
                "LLMInterTokenLatencyP99High",
                above(config, series("model", "inter_token_latency_seconds", "p99"), "itl_p99", inside,
                      and_on=observed("inter_token_latency_seconds")),
                "5m", "warning",
                "{{ $labels.model }} pauses {{ $value | humanizeDuration }} between tokens (P99)",
                "P99 time between two outputs of one request of {{ $labels.model }} is {{ $value | humanizeDuration }}: "
                "the batch is too large, prefills interrupt decoding, or the GPU throttles.",
                engine_histograms,
                needs=("inter_token_latency_seconds",),
                limits=("slo.itl_p99", "limits.request_rate_floor"),
                blind_spots=("With speculative decoding one output holds several tokens: this is not per token.",),
                dashboard="obs-llm",
            ),
            Alert(
                "LLMRequestLatencyP99High",
                above(config, p99, "llm_latency_p99", inside, and_on=observed("request_latency_seconds")),
                "5m", "warning",
                "{{ $labels.model }} takes {{ $value | humanizeDuration }} for a generation (P99)",
                "P99 time from request to last token of {{ $labels.model }} is {{ $value | humanizeDuration }}.",
                engine_histograms,
                needs=("request_latency_seconds",),
                limits=("slo.llm_latency_p99", "limits.request_rate_floor"),
                blind_spots=(
                    "Observed when a request finishes: nothing while it hangs. Aborted requests are never observed.",
                    *capped,
                ),
                dashboard="obs-llm",
            ),
        ]
    return Group("obs-latency", "latency", "Requests are answered too slowly.", tuple(alerts))
