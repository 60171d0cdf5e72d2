"""Queueing: requests wait before the model starts on them."""

from __future__ import annotations

from obs.alerts.texts import NUMBER
from obs.alerts.thresholds import above, any_of, has_traffic, limits_of
from obs.config import Config
from obs.model.rule import Alert, Group, NoData
from obs.promql import duration, number, on, one_of, selector
from obs.recordings.names import labels, series
from obs.recordings.rules import frozen_counters, llm_engines, recorded

_HOLDS_NOT = NoData(
    "silent",
    "Without finished requests there is no queue time to judge; a server that stops answering is another matter.",
    "InferenceTargetDown",
)


def group(config: Config) -> Group:
    L = labels(config)
    llm = llm_engines(config)
    floor = (L.model, has_traffic(config, series("model", "requests", "rate")))
    observed = ((*L.model, "engine"), has_traffic(config, series("model", "queue_time_seconds", "rate")))
    mean, p99 = series("model", "queue_time_seconds", "mean"), series("model", "queue_time_seconds", "p99")
    pending = series("model", "pending_requests", "sum")
    window, growth = duration(config.window("rate")), duration(config.window("growth"))
    replicas = series("model", "model_loaded", "count")
    plain = one_of("engine", llm, negate=True)
    alerts = [
        Alert(
            "InferenceQueueTimeHigh",
            above(config, mean, "queue_time", plain, and_on=floor),
            "5m", "warning",
            "{{ $labels.model }} queues requests for {{ $value | humanizeDuration }} on average",
            "Requests of model {{ $labels.model }} version {{ $labels.version }} wait {{ $value | humanizeDuration }} "
            "(mean per request) in Triton's queue before the backend takes them. Batches do not fill in time "
            "(max_queue_delay_microseconds), there are too few instances (instance_group), or the rate limiter "
            "holds them back.",
            _HOLDS_NOT,
            needs=("requests", "queue_time_seconds"),
            limits=("slo.queue_time", "limits.request_rate_floor"),
            blind_spots=(
                "Requests still in the queue are not counted until they are done; InferencePendingRequestsGrowing sees them.",
            ),
        ),
        Alert(
            "InferenceQueueTimeP99High",
            above(config, p99, "queue_time_p99", plain, and_on=observed),
            "5m", "warning",
            "{{ $labels.model }} queues 1 request in 100 for more than {{ $value | humanizeDuration }}",
            "P99 queue time of model {{ $labels.model }} version {{ $labels.version }} is "
            "{{ $value | humanizeDuration }} on the worst replica (from its {{ $labels.source }}).",
            NoData("silent", "Triton exports no queue quantile unless started with --metrics-config "
                   "summary_latencies=true; the mean is always there.", "InferenceQueueTimeHigh"),
            needs=("queue_time_seconds",),
            limits=("slo.queue_time_p99", "limits.request_rate_floor"),
            blind_spots=("A summary covers the last 60 s of one replica; it cannot be aggregated.",),
        ),
    ]
    if recorded(config, "pending_requests"):
        few = number(config.limit("pending_floor"))
        grows = (
            f"avg_over_time({pending}[{window}]) > {few}\n"
            # Per replica: a scale-out adds pending requests without adding to anyone's wait.
            f"and\navg_over_time({pending}[{window}]) / (avg_over_time({replicas}[{window}]) > 0)\n"
            f"  > {number(config.limit('pending_growth'))} *\n"
            f"    avg_over_time({pending}[{window}] offset {growth})"
            f" / (avg_over_time({replicas}[{window}] offset {growth}) > 0)"
        )
        # Frozen counters answer nothing, as a hang does: how fast such a queue moves is not known.
        unknown = f"\nunless {on(L.model)}\n{series('model', 'frozen_counters', 'rate')}" if frozen_counters(config) else ""
        # Little's law: a queue of N in front of R answers a second is a wait of N / R; written so that R may be 0.
        stays = [
            f"avg_over_time({selector(pending, models)}[{window}])\n"
            f"  > {number(limit)} * {selector(series('model', 'requests', 'rate'), models)}\n"
            f"and\nmin_over_time({pending}[{growth}]) > {few}{unknown}"
            for models, limit in limits_of(config, "queue_time")
        ]
        alerts.append(
            Alert(
                "InferencePendingRequestsGrowing", any_of([grows, *stays]), "5m", "warning",
                "{{ $labels.model }} has " + NUMBER + " pending requests and does not catch up",
                "Model {{ $labels.model }} version {{ $labels.version }} holds " + NUMBER + " requests before "
                f"the backend: over {number(config.limit('pending_growth'))} times as many a replica as {growth} ago, or "
                f"for {growth} more than it answers within the limit of its queue time. They arrive faster than they are "
                "answered.",
                NoData("silent", "Images before 23.09 lack the gauge, ensembles and LLM backends always read 0.",
                       "InferenceQueueTimeHigh"),
                limits=("limits.pending_floor", "limits.pending_growth", "slo.queue_time", "windows.growth"),
                blind_spots=("LLM backends take requests at once and queue inside; Triton's gauge stays near 0.",),
            )
        )
    if llm and recorded(config, "queue_time_seconds"):
        inside = one_of("engine", llm)
        alerts += [
            Alert(
                "LLMQueueTimeHigh",
                above(config, mean, "llm_queue_time", inside, and_on=observed),
                "5m", "warning",
                "{{ $labels.model }} keeps requests waiting {{ $value | humanizeDuration }} on average",
                "Requests of {{ $labels.model }} wait {{ $value | humanizeDuration }} (mean) inside the engine before "
                "they are scheduled: the KV cache or the batch slots are full, or prefill is the bottleneck.",
                NoData("silent", "vLLM observes the wait when a request finishes; Triton's vLLM backend not at all.",
                       "LLMStatsStuck"),
                limits=("slo.llm_queue_time", "limits.request_rate_floor"),
                blind_spots=("Aborted requests leave the queue histogram: it improves as users give up.",),
                dashboard="obs-llm",
            ),
            Alert(
                "LLMQueueTimeP99High",
                above(config, p99, "llm_queue_time_p99", inside, and_on=observed),
                "5m", "warning",
                "{{ $labels.model }} keeps 1 request in 100 waiting more than {{ $value | humanizeDuration }}",
                "P99 wait inside the engine for {{ $labels.model }} is {{ $value | humanizeDuration }}.",
                NoData("silent", "vLLM observes the wait when a request finishes; Triton's vLLM backend not at all.",
                       "LLMStatsStuck"),
                limits=("slo.llm_queue_time_p99", "limits.request_rate_floor"),
                blind_spots=("Aborted requests leave the queue histogram: it improves as users give up.",),
                dashboard="obs-llm",
            ),
        ]
    return Group("obs-queue", "queue", "Requests wait too long.", tuple(alerts))
