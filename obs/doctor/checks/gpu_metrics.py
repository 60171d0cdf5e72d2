"""Models that run on a GPU have that GPU's metrics.

Triton reads them through DCGM. They are missing with --allow-gpu-metrics=false, without DCGM in the image, under MIG, and
where another agent holds DCGM; they stand at 0 while its polls fail (core:src/metrics.cc). GPUMemoryHigh is then silent.

Mend: --allow-gpu-metrics=true, or scrape dcgm-exporter (the pack reads both).
"""

from __future__ import annotations

from collections.abc import Iterator

from obs.doctor.facts import Facts
from obs.doctor.finding import Finding

ID = "gpu-metrics"

TOTAL = "nv_gpu_memory_total_bytes"


def zeroed(facts: Facts) -> bool:
    """Whether the GPU's series are there with no memory at all: DCGM's polls fail."""
    totals = [sample.value for sample in facts.page.of(TOTAL)] if facts.page is not None else []
    return bool(totals) and not any(totals)


def check(facts: Facts) -> Iterator[Finding]:
    page = facts.page
    if page is None or not any(name.startswith("nv_") for name in page.names):
        return
    dcgm = facts.prometheus is not None and any("dcgm" in engines for engines in facts.prometheus.engine_targets.values())
    if zeroed(facts):
        yield Finding(
            ID, "warning", f"{page.place} {TOTAL}", "the GPU's memory reads 0 of 0 bytes: DCGM's polls fail",
            "0 is no measurement: GPUMemoryHigh cannot fire, and Triton stops updating the values after three failed polls",
            "restart the server; under MIG, or beside another DCGM agent, scrape dcgm-exporter instead",
        )
    if any(name.startswith("nv_gpu_") for name in page.names):
        return
    on_gpu = sorted(config.model for config in facts.configs() if config.gpu_instances or config.vllm or config.trtllm)
    if facts.flag("allow-gpu-metrics") == "false":
        reason, mend = "the server runs with --allow-gpu-metrics=false", "start it with --allow-gpu-metrics=true"
    else:
        reason = "no GPU is visible, it is under MIG, or DCGM is not there"
        mend = "check nvidia-smi in the container and --allow-gpu-metrics=true; under MIG scrape dcgm-exporter instead"
    if on_gpu and not dcgm:
        yield Finding(
            ID, "warning", page.place, f"no nv_gpu_* series, though {', '.join(on_gpu[:3])} run on a GPU: {reason}",
            "GPUMemoryHigh and GPUMemoryDataMissing have nothing to read", mend,
        )
    else:
        told = "; dcgm-exporter is scraped, and the pack reads it" if dcgm else ""
        yield Finding(
            ID, "info", page.place, f"no nv_gpu_* series: {reason}{told}",
            "the GPU alerts have nothing to read here; right for a CPU server" if not dcgm else "nothing is lost",
            mend if not dcgm else "nothing to do",
        )
