"""A model that is loaded and does nothing, and counters that only look like it."""

from __future__ import annotations

import math

from obs.alerts.texts import NUMBER
from obs.config import Config
from obs.model.rule import Alert, Group, NoData
from obs.promql import duration, number, on, one_of, selector
from obs.recordings.names import labels, series
from obs.recordings.rules import frozen_counters, recorded


def group(config: Config) -> Group:
    L = labels(config)
    idle = duration(config.window("idle"))
    seen = float(math.ceil(config.window("idle") / config.evaluation_interval / 2))
    attempts = series("model_name", "request_attempts", "rate")
    steps = {step for members in config.ensembles.values() for step in members}
    # A step of an ensemble is not called by clients; its ensemble is judged instead.
    spared = one_of("model", steps | set(config.idle_exclude), negate=True)
    mine = selector(attempts, spared)
    busy = []
    for name, operation, level in (
        ("pending_requests", "sum", "model"), ("requests_running", "sum", "model"),
        ("requests_waiting", "sum", "model"), ("kv_cache_usage", "max", "model"),
        ("generation_tokens", "rate", "model"),
    ):
        if recorded(config, name):
            # One completion makes a whole window busy, one generation of many minutes must too.
            threshold = "0.01" if name == "kv_cache_usage" else "0"
            busy.append(f"max_over_time({series(level, name, operation)}[{idle}]) > {threshold}")
    observed = series("model", "request_latency_seconds", "rate")
    if recorded(config, "request_latency_seconds"):
        busy.append(f"max_over_time({observed}[{idle}]) > 0")
    asleep = series("instance_model", "sleeping", "present")
    expr = (
        f"max_over_time({mine}[{idle}]) == 0\nand\n{attempts}\n"
        # Old enough, and seen for at least half of the window: a young pod or one just back is not idle yet.
        f"and\npresent_over_time({mine}[{idle}] offset {idle})\n"
        f"and\ncount_over_time({mine}[{idle}]) >= {number(seen)}\n"
        + "\n".join(f"unless {on(L.model_name)}\n  {part}" for part in busy)
    )
    if "vllm" in config.engines:
        expr += f"\nunless {on(L.model_name)}\n  {asleep}"
    alerts = [
        Alert(
            "InferenceModelIdle", expr, "5m", "info",
            f"{{{{ $labels.model }}}} has had no request for {idle}",
            f"Model {{{{ $labels.model }}}} is loaded in job {{{{ $labels.job }}}} and has answered or failed "
            f"{{{{ $value }}}} requests/s for {idle}. It holds memory that another model could use; or requests do not "
            "reach it (gateway weights, a new version that is not loaded).",
            NoData("silent", "A model that is not loaded has no series and is not idle.", "InferenceModelVanished"),
            needs=("requests",),
            limits=("windows.idle",),
            blind_spots=(
                "With --metrics-config counter_latencies=false Triton freezes its counts at 0 and every model looks "
                "idle; InferenceCountersFrozen tells where a second signal shows it.",
                "Steps of an ensemble that obs.yaml does not name may count 0 while they work.",
                "vLLM's gauges stay at their last value after every client aborted: such a model never looks idle.",
            ),
        )
    ]
    frozen = frozen_counters(config)
    if not frozen:
        return Group("obs-idle", "idle", "Loaded and unused.", tuple(alerts))
    alerts.append(
        Alert(
            "InferenceCountersFrozen", frozen, "5m", "warning",
            "{{ $labels.model }} works but its request counters stand still",
            "Model {{ $labels.model }} version {{ $labels.version }} observes " + NUMBER + " request "
            "latencies/s while its success and failure counters do not move: Triton runs with --metrics-config "
            "counter_latencies=false, which freezes the counts too. Queue, traffic, failure and idle alerts are blind.",
            NoData("silent", "Needs a second signal (latency summaries or histograms); without one nothing shows it.",
                   "InferenceLatencySourceMissing"),
            blind_spots=(
                "Without summary or histogram latencies frozen counters cannot be told from no traffic.",
                "One replica that counts hides a frozen one of the same model.",
            ),
        )
    )
    return Group("obs-idle", "idle", "Loaded and unused, or seemingly so.", tuple(alerts))
