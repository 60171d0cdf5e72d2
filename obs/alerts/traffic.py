"""Traffic: a model that loses its requests, and one that vanishes."""

from __future__ import annotations

from obs.alerts.texts import NUMBER
from obs.alerts.thresholds import known_servers
from obs.config import Config
from obs.model.rule import Alert, Group, NoData
from obs.promql import by, duration, number, on, one_of, selector
from obs.recordings.names import labels, series


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
    if "vllm" in config.engines:
        # Only where every replica sleeps: one that was put to sleep must not mute the others.
        quiet += (
            f"\nunless {on(L.model_name)}\n(\n  count {by(L.model_name)} ({asleep})\n  >= {on(L.model_name)}\n"
            f"  count {by(L.model_name)} ({loaded})\n)"
        )
    drop = f"{rate} < {part} * ({baseline} > {floor})\n{quiet}"
    for season in config.seasons:
        drop += (
            f"\nunless {on(keep)}\n(\n  {rate} >= {part} * ({rate} offset {duration(season)})\n)"
        )
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
            limits=("limits.traffic_drop", "limits.traffic_floor", "windows.baseline", "windows.baseline_gap"),
            blind_spots=("An error answered through Triton's Python backend counts as answered traffic.",),
        ),
    ]
    if config.seasons:
        arms = [
            f"{rate} < {part} * ({rate} offset {duration(season)} > {floor})" for season in config.seasons
        ]
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
                limits=("limits.traffic_drop", "limits.traffic_floor"),
            )
        )
    # Also when its servers were replaced by new ones that are all up and lack it; a native vLLM server is its
    # model, and a replacement that serves another is no loss.
    replaced = selector(loaded, one_of("engine", ["vllm"], negate=True))
    alerts.append(
        Alert(
            "InferenceModelVanished",
            f"group {by(L.model_name)} (\n  present_over_time({loaded}[{vanish}])\n"
            f"  and {on(L.instance)}\n  up == 1\n  or\n  present_over_time({replaced}[{vanish}])\n"
            f"  unless {on(L.instance)}\n  up\n  and {on(L.job)}\n  min {by(L.job)} (up) == 1\n)\n"
            f"unless {on(L.model_name)}\n{loaded}",
            "2m", "critical",
            "{{ $labels.model }} is gone from servers that are up",
            f"Model {{{{ $labels.model }}}} was served within the last {vanish} and no server of job "
            "{{ $labels.job }} serves it now, though its servers are up: it was unloaded, failed to load again, or "
            "its engine died behind a live endpoint (value {{ $value }}: the model's absence).",
            NoData("fires", "The absence of the model's series is what it reports. A target that is down or gone is "
                   "another alert's.", "InferenceTargetDown"),
            limits=("windows.vanish",),
            blind_spots=(f"An intended unload fires too, and stops after {vanish}.",),
        )
    )
    return Group("obs-traffic", "traffic", "Requests or whole models go missing.", tuple(alerts))


