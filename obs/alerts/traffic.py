"""Traffic: a model that loses its requests, and one that vanishes."""

from __future__ import annotations

from obs.alerts.texts import NUMBER
from obs.alerts.thresholds import known_servers
from obs.config import Config
from obs.model.rule import Alert, Group, NoData
from obs.promql import by, duration, number, on, one_of, selector
from obs.recordings.names import labels, series
from obs.recordings.rules import frozen_counters


def group(config: Config) -> Group:
    L = labels(config)
    keep = (*L.model_name, "engine")
    rate, baseline = series("model_name", "requests", "rate"), series("model_name", "requests", "baseline")
    asleep = series("instance_model", "sleeping", "present")
    loaded, vanish = series("instance_model", "model_loaded", "present"), duration(config.window("vanish"))
    part, floor = number(config.limit("traffic_drop")), number(config.limit("traffic_floor"))
    window = duration(config.window("rate"))
    # A drop because the servers are down is InferenceTargetDown's: one page, not one per model.
    known = known_servers(config)
    down = f"avg {by(L.job)} (avg_over_time(up[{window}]) and {on(L.instance)} {known}) < 0.5"
    quiet = f"unless {on(L.job)}\n(\n  {down}\n)"
    # Counters that stand still are InferenceCountersFrozen's to tell.
    if frozen_counters(config):
        quiet += f"\nunless {on(L.model_name)}\n{series('model', 'frozen_counters', 'rate')}"
    if "vllm" in config.engines:
        # Only where every replica sleeps: one that was put to sleep must not mute the others.
        quiet += (
            f"\nunless {on(L.model_name)}\n(\n  count {by(L.model_name)} ({asleep})\n  >= {on(L.model_name)}\n"
            f"  count {by(L.model_name)} ({loaded})\n)"
        )
    drop = f"{rate} < {part} * ({baseline} > {floor})\n{quiet}"
    seasonal = [_before(config, rate, season) for season in config.seasons]
    for before in seasonal:
        drop += f"\nunless {on(keep)}\n(\n  {rate} >= {part} * {before}\n)"
    alerts = [
        Alert(
            "InferenceTrafficDrop", drop, "10m", "warning",
            "{{ $labels.model }} gets only " + NUMBER + " requests/s",
            "Model {{ $labels.model }} answers " + NUMBER + " requests/s, less than "
            f"{config.limit('traffic_drop'):.0%} of its mean in the {duration(config.window('baseline'))} before "
            "(and less than that part of the same time yesterday and last week, where that is known). Its servers are "
            "up: look at the gateway's weights, at clients, and at failures of the model.",
            NoData("silent", "A model without the history of a baseline has nothing to drop from; a model whose series "
                   "vanish is reported by another alert.", "InferenceModelVanished"),
            needs=("requests",),
            limits=("limits.traffic_drop", "limits.traffic_floor", "windows.baseline", "windows.baseline_gap"),
            blind_spots=(
                "An error answered through Triton's Python backend counts as answered traffic.",
                "A lasting drop becomes its own baseline and the alert ends; InferenceTrafficBelowSeasonal goes on.",
                "An outage longer than half of windows.season at the same time yesterday hides today's.",
            ),
        ),
    ]
    if config.seasons:
        arms = [f"{rate} < {part} * ({before} > {floor})" for before in seasonal]
        alerts.append(
            Alert(
                "InferenceTrafficBelowSeasonal", "\nand\n".join(arms) + f"\n{quiet}", "30m", "warning",
                "{{ $labels.model }} gets " + NUMBER + " requests/s, far less than at this time before",
                "Model {{ $labels.model }} answers " + NUMBER + " requests/s, less than "
                f"{config.limit('traffic_drop'):.0%} of the same time "
                f"{' and '.join(duration(season) for season in config.seasons)} ago. A slow loss that the recent "
                "past hides.",
                NoData("silent", "Needs the history of every season; a younger model is not judged.",
                       "InferenceTrafficDrop"),
                needs=("requests",),
                limits=("limits.traffic_drop", "limits.traffic_floor", "windows.season"),
                blind_spots=(
                    "Every season must be missed: an outage longer than half of windows.season at the same time yesterday "
                    "hides today's.",
                ),
            )
        )
    # Also when its servers were replaced by new ones that are all up and lack it; a native vLLM server is its
    # model, and a replacement that serves another is no loss.
    replaced = selector(loaded, one_of("engine", ["vllm"], negate=True))
    alerts.append(
        Alert(
            "InferenceModelVanished",
            # A server that serves no engine's metrics at all is InferenceMetricsEmpty's: what it serves is not known.
            f"group {by(L.model_name)} (\n  present_over_time({loaded}[{vanish}])\n"
            f"  and {on(L.instance)}\n  {series('instance', 'server', 'present')}\n  or\n"
            f"  present_over_time({replaced}[{vanish}])\n"
            f"  unless {on(L.instance)}\n  up\n  and {on(L.job)}\n  min {by(L.job)} (up) == 1\n)\n"
            f"unless {on(L.model_name)}\n{loaded}",
            "2m", "critical",
            "{{ $labels.model }} is gone from servers that are up",
            f"Model {{{{ $labels.model }}}} was served within the last {vanish} and no server of job "
            "{{ $labels.job }} serves it now, though its servers are up: it was unloaded or failed to load "
            "again (value {{ $value }}: the model's absence).",
            NoData("fires", "The absence of the model's series is what it reports. A target that is down, gone or "
                   "without any series of an engine is another alert's.", "InferenceMetricsEmpty"),
            needs=("model_loaded",),
            limits=("windows.vanish",),
            blind_spots=(f"An intended unload fires too, and stops after {vanish}.",),
        )
    )
    return Group("obs-traffic", "traffic", "Requests or whole models go missing.", tuple(alerts))


def _before(config: Config, rate: str, season: float) -> str:
    """The traffic at this time a season ago: the median around it, which an outage or a peak of then does not move."""
    half = min(config.window("season") / 2, season)
    return f"quantile_over_time(0.5, {rate}[{duration(2 * half)}] offset {duration(season - half)})"


