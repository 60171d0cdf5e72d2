"""GPU memory: once per physical GPU, and honest about engines that take it all at start."""

from __future__ import annotations

from obs.config import Config
from obs.engines import BY_NAME as ENGINES
from obs.model.rule import Alert, Group, NoData
from obs.promql import block, by, duration, number, on, quote, selector
from obs.recordings.names import labels, series
from obs.recordings.rules import EngineRules, memory_sources, preallocating, recorded


def group(config: Config) -> Group | None:
    if not recorded(config, "gpu_memory_total_bytes"):
        return None
    L = labels(config)
    ratio = series("gpu", "gpu_memory_usage", "ratio")
    window, vanish = duration(config.window("rate")), duration(config.window("vanish"))
    sources = [
        f"avg_over_time({selector(ratio, f'engine={quote(name)}')}[{window}])"
        for name in memory_sources(config)
    ]
    # One result per GPU: when one source loses a scrape, the other one stands in for it in the recorded ratio.
    preferred = f"\nor {on(L.gpu)}\n".join(sources)
    usage = f"max {by(L.gpu)} {block(preferred)}"
    limit = config.limit("gpu_memory")
    target, margin = config.limit("gpu_memory_preallocated"), config.limit("gpu_memory_margin")
    ceiling = min(round(target + margin, 6), 1.0)
    if preallocating(config):
        # An engine that is down, or that lost a scrape, may still hold its memory.
        preallocated = f"present_over_time({series('gpu', 'preallocates', 'present')}[{vanish}])"
        taken = f"{on(L.gpu)}\n{preallocated}"
        expr = (
            f"{block(f'{usage} > {number(limit)}')}\nunless {taken}\nor\n"
            f"{block(f'{usage} > {number(ceiling)}')}\nand {taken}"
        )
    else:
        expr = f"{usage} > {number(limit)}"
    alerts = [
        Alert(
            "GPUMemoryHigh", expr, "10m", "warning",
            "GPU {{ $labels.gpu_uuid }} has {{ $value | humanizePercentage }} of its memory in use",
            f"GPU {{{{ $labels.gpu_uuid }}}} uses {{{{ $value | humanizePercentage }}}} of its memory (limit "
            f"{limit:.0%}; {ceiling:.0%} where an LLM engine preallocates). The next larger batch, model or instance "
            "may not fit.",
            NoData("silent", "0 of 0 bytes and a missing GPU give no ratio.", "GPUMemoryDataMissing"),
            keep_firing_for="5m",
            limits=("limits.gpu_memory", "limits.gpu_memory_preallocated", "limits.gpu_memory_margin", "windows.vanish"),
            blind_spots=(
                "vLLM, TensorRT-LLM and SGLang take their memory at start: the ratio says nothing about their load; "
                "LLMKVCacheSaturated does.",
                "Where dcgm-exporter names no pod of such an engine, every GPU of its cluster that no Triton reports "
                f"is held to {ceiling:.0%}.",
            ),
            dashboard="obs-gpu",
        )
    ]
    if "triton" in config.engines:
        alerts.append(_data_missing(config))
    return Group("obs-gpu", "gpu", "GPU memory runs short, or nobody can tell.", tuple(alerts))


def _data_missing(config: Config) -> Alert:
    L = labels(config)
    select = EngineRules(ENGINES["triton"], config).select
    # Neither a lost scrape nor one late evaluation may end the alert's `for`.
    hold = duration(max(config.hold, 2 * config.evaluation_interval))
    vanish = duration(config.window("vanish"))
    own = 'engine="triton"'
    used = f"last_over_time({selector(series('gpu', 'gpu_memory_used_bytes', 'max'), own)}[{hold}])"
    total = f"last_over_time({selector(series('gpu', 'gpu_memory_total_bytes', 'max'), own)}[{hold}])"
    # DCGM blanks: Triton zeroes the gauges for three polls and then leaves them. NaN is not above 0 either.
    text = f"\nor {on(L.gpu)}\n".join(
        f"({left} unless {on(L.gpu)} {right})"
        for left, right in ((total, f"{total} > 0"), (used, f"{used} > 0"), (total, used), (used, total))
    )
    if "dcgm" in config.engines:
        # Without GPU_I_ID: of a GPU in MIG mode Triton shows 0 of 0, and dcgm-exporter only the slices.
        other = selector(series("gpu", "gpu_memory_usage", "ratio"), 'engine="dcgm"')
        text = f"{block(text)}\nunless {on((config.cluster, 'gpu_uuid'))}\npresent_over_time({other}[{hold}])"
    counted = [f"job!={quote(job)}" for job in sorted(config.expected_gpus)]
    raw, count = select("nv_gpu_memory_total_bytes", *counted), selector(series("instance", "gpus", "count"), *counted)
    gpu = (*L.instance, "gpu_uuid")
    lost = (
        f"max {by(gpu)} (last_over_time({raw}[{vanish}]))\nunless {on(gpu)}\npresent_over_time({raw}[{hold}])\n"
        f"and {on(L.instance)}\nmax_over_time(up[{hold}]) == 1\n"
        # A server that came back with other GPUs has lost none.
        f"unless {on(L.instance)}\n(max_over_time({count}[{hold}]) >= max_over_time({count}[{vanish}]))"
    )
    arms = [text, lost]
    for job, expected in sorted(config.expected_gpus.items()):
        here = selector(series("instance", "gpus", "count"), f"job={quote(job)}")
        up = f"max_over_time({select('up', f'job={quote(job)}')}[{hold}]) == 1"
        arms += [
            f"max_over_time({here}[{hold}]) < {expected}",
            f"0 * group {by(L.instance)} ({up})\nunless {on(L.instance)}\npresent_over_time({here}[{hold}])",
        ]
    return Alert(
        "GPUMemoryDataMissing", "\nor\n".join(block(arm) for arm in arms), "10m", "warning",
        "GPU memory of {{ or $labels.gpu_uuid $labels.instance }} is missing or invalid",
        "Triton reports no valid memory for {{ or $labels.gpu_uuid $labels.instance }} (last value "
        "{{ $value | humanize }}): total or used is 0, NaN or absent, the GPU's series vanished, or fewer GPUs are "
        "reported than expected. GPUMemoryHigh is blind here. Usual causes: MIG, another DCGM agent, "
        "DCGM losing the GPU.",
        NoData("fires", "Absence of GPU series that were there within the last "
               f"{vanish} is what it reports; a CPU-only server never had any.", "InferenceTargetDown"),
        limits=("windows.vanish",),
        blind_spots=("A server that never reported GPUs is only caught with expected_gpus in obs.yaml.",),
        dashboard="obs-gpu",
    )
