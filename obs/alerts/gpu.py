"""GPU memory: once per physical GPU, and honest about engines that take it all at start."""

from __future__ import annotations

from obs.config import Config
from obs.engines import BY_NAME as ENGINES
from obs.model.rule import Alert, Group, NoData
from obs.promql import by, duration, indent, number, on, quote, selector
from obs.recordings.names import labels, series
from obs.recordings.rules import EngineRules, preallocating, recorded


def group(config: Config) -> Group | None:
    if not recorded(config, "gpu_memory_total_bytes"):
        return None
    L = labels(config)
    ratio, preallocated = series("gpu", "gpu_memory_usage", "ratio"), series("gpu", "preallocates", "present")
    usage = f"avg_over_time({ratio}[{duration(config.window('rate'))}])"
    limit = config.limit("gpu_memory")
    target, margin = config.limit("gpu_memory_preallocated"), config.limit("gpu_memory_margin")
    ceiling = min(round(target + margin, 6), 1.0)
    if preallocating(config):
        expr = (
            f"(\n  ({usage} unless {on(L.gpu)} {preallocated}) > {number(limit)}\n)\nor\n"
            f"(\n  ({usage} and {on(L.gpu)} {preallocated}) > {number(ceiling)}\n)"
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
            limits=("limits.gpu_memory", "limits.gpu_memory_preallocated", "limits.gpu_memory_margin"),
            blind_spots=(
                "vLLM, TensorRT-LLM and SGLang take their memory at start: the ratio says nothing about their load; "
                "LLMKVCacheSaturated does.",
            ),
            dashboard="obs-gpu",
        )
    ]
    used, total = series("gpu", "gpu_memory_used_bytes", "max"), series("gpu", "gpu_memory_total_bytes", "max")
    own = 'engine="triton"'
    arms = []
    if "triton" in config.engines:
        select = EngineRules(ENGINES["triton"], config).select
        raw, vanish = select("nv_gpu_memory_total_bytes"), duration(config.window("vanish"))
        arms += [
            # DCGM blanks: Triton zeroes the gauges for three polls and then leaves them.
            f"{selector(total, own)} == 0",
            f"({selector(used, own)} == 0 and {selector(total, own)} > 0)",
            f"({selector(total, own)} != {selector(total, own)})",
        ]
        lost = (
            f"(\n  group {by(L.instance)} (present_over_time({raw}[{vanish}]))\n"
            f"  unless {on(L.instance)}\n  group {by(L.instance)} ({raw})\n)\nand {on(L.instance)}\nup == 1"
        )
        text = "\nor\n".join(arms)
        if "dcgm" in config.engines:
            other = selector(ratio, 'engine="dcgm"')
            text = f"(\n{indent(text)}\n)\nunless {on(L.gpu)}\n{other}"
        text = f"(\n{indent(text)}\n)\nor\n(\n{indent(lost)}\n)"
        for job, count in sorted(config.expected_gpus.items()):
            here = select("nv_gpu_memory_total_bytes", f"job={quote(job)}")
            up = selector("up", f"job={quote(job)}")
            text += (
                f"\nor\n(\n  count {by(L.instance)} ({here}) < {count}\n)\nor\n(\n"
                f"  0 * ({up} == 1) unless {on(L.instance)} {here}\n)"
            )
        alerts.append(
            Alert(
                "GPUMemoryDataMissing", text, "10m", "warning",
                "GPU memory of {{ or $labels.gpu_uuid $labels.instance }} is missing or invalid",
                "Triton reports no valid memory for {{ or $labels.gpu_uuid $labels.instance }} (value "
                "{{ $value | humanize }}): total or used is 0 or NaN, the series vanished, or fewer GPUs are "
                "reported than expected. GPUMemoryHigh is blind here. Usual causes: MIG, another DCGM agent, "
                "DCGM losing the GPU.",
                NoData("fires", "Absence of GPU series that were there within the last "
                       f"{vanish} is what it reports; a CPU-only server never had any.", "InferenceTargetDown"),
                limits=("windows.vanish",),
                blind_spots=("A server that never reported GPUs is only caught with expected_gpus in obs.yaml.",),
                dashboard="obs-gpu",
            )
        )
    return Group("obs-gpu", "gpu", "GPU memory runs short, or nobody can tell.", tuple(alerts))
