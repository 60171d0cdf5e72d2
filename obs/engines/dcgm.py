"""DCGM exporter: the GPU as the driver sees it, whatever serves on it.

Sources: dcgm-exporter:etc/default-counters.csv and internal/pkg/rendermetrics, tag 4.5.3-4.8.2. Memory is in MiB,
utilisation in percent, energy in millijoules: the scales below turn them into base units.
"""

from __future__ import annotations

from functools import partial

from obs.catalog.signals import SIGNALS
from obs.engines._missing import missing
from obs.model.metric import Engine, Metric, Native

_MIB = 1048576.0
_CSV = "a counters file that lists it (it is not in the default one)"
_DCP = "a GPU with profiling metrics (DCP)"

_metric = partial(
    Metric,
    labels=("gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname"),
    # MIG adds the profile, Kubernetes the pod, and main (PR #655, after 4.8.2) writes hostname for Hostname.
    optional_labels=("GPU_I_PROFILE", "GPU_I_ID", "namespace", "pod", "container", "hostname"),
    evidence="source", source="dcgm-exporter:etc/default-counters.csv",
)

_GPU_SIGNALS = ("gpu_memory_used_bytes", "gpu_memory_total_bytes", "gpu_utilization", "gpu_power_watts")

ENGINE = Engine(
    name="dcgm",
    title="DCGM exporter",
    versions="dcgm-exporter 4.x read, not run; since/until are its tags",
    model_label="",
    captured=False,
    metrics=(
        _metric("DCGM_FI_DEV_FB_USED", "gauge", "MiB", "Framebuffer in use."),
        _metric("DCGM_FI_DEV_FB_FREE", "gauge", "MiB", "Framebuffer free."),
        _metric("DCGM_FI_DEV_FB_RESERVED", "gauge", "MiB", "Framebuffer reserved by the driver.",
                since="4.3.1-4.4.0"),
        _metric("DCGM_FI_DEV_FB_TOTAL", "gauge", "MiB", "Framebuffer, reserved memory included.", enabled_by=_CSV),
        _metric("DCGM_FI_DEV_FB_USED_PERCENT", "gauge", "ratio",
                "used/(total-reserved), 0 to 1 despite the name.", enabled_by=_CSV),
        _metric("DCGM_FI_DEV_GPU_UTIL", "gauge", "percent", "Share of time in which a kernel ran."),
        _metric("DCGM_FI_DEV_MEM_COPY_UTIL", "gauge", "percent",
                "Share of time in which memory was read or written: not how full it is."),
        _metric("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gauge", "ratio", "Graphics or compute engine active, 0 to 1.",
                enabled_by=_DCP),
        _metric("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "gauge", "ratio", "Tensor cores active, 0 to 1.",
                enabled_by=_DCP),
        _metric("DCGM_FI_PROF_DRAM_ACTIVE", "gauge", "ratio", "Memory interface active, 0 to 1.", enabled_by=_DCP),
        _metric("DCGM_FI_DEV_GPU_TEMP", "gauge", "celsius", "GPU temperature."),
        _metric("DCGM_FI_DEV_MEMORY_TEMP", "gauge", "celsius", "Memory temperature."),
        _metric("DCGM_FI_DEV_POWER_USAGE", "gauge", "W", "Power drawn."),
        _metric("DCGM_FI_DEV_SM_CLOCK", "gauge", "MHz", "SM clock."),
        _metric("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "counter", "mJ", "Energy used since boot."),
        _metric("DCGM_FI_DEV_XID_ERRORS", "gauge", "1", "The last XID error's code: not a count, use changes()."),
        _metric("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "counter", "rows",
                "Rows remapped for uncorrectable errors."),
        _metric("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "counter", "rows", "Rows remapped for correctable errors."),
        _metric("DCGM_FI_DEV_ROW_REMAP_FAILURE", "gauge", "1", "Whether remapping a row failed."),
        _metric("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "counter", "retries", "PCIe retries."),
        _metric("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "counter", "1", "NVLink bandwidth counters of all lanes."),
        *(_metric(f"DCGM_FI_DEV_{name}_VIOLATION", "counter", "us", f"Time throttled: {text}.", enabled_by=_CSV)
          for name, text in (
              ("POWER", "power"), ("THERMAL", "heat"), ("SYNC_BOOST", "sync boost"),
              ("BOARD_LIMIT", "board limit"), ("LOW_UTIL", "low utilisation"), ("RELIABILITY", "reliability"),
          )),
        *(_metric(f"DCGM_FI_DEV_ECC_{name}_TOTAL", "counter", "errors", f"{text} ECC errors.", enabled_by=_CSV)
          for name, text in (
              ("SBE_VOL", "Single-bit volatile"), ("DBE_VOL", "Double-bit volatile"),
              ("SBE_AGG", "Single-bit persistent"), ("DBE_AGG", "Double-bit persistent"),
          )),
    ),
    signals={
        **missing("It knows GPUs, not engines.", "engine_steps"),
        "server": (Native("DCGM_FI_DEV_FB_USED"), Native("DCGM_FI_DEV_GPU_UTIL")),
        "gpu_memory_used_bytes": (Native("DCGM_FI_DEV_FB_USED", scale=_MIB),),
        "gpu_memory_total_bytes": (
            Native("DCGM_FI_DEV_FB_TOTAL", scale=_MIB,
                   note="Not in the default counters; the rule sums USED, FREE and RESERVED."),
        ),
        "gpu_utilization": (
            Native("DCGM_FI_DEV_GPU_UTIL", scale=0.01),
            Native("DCGM_FI_PROF_GR_ENGINE_ACTIVE", note="MIG instances have no GPU_UTIL."),
        ),
        "gpu_power_watts": (Native("DCGM_FI_DEV_POWER_USAGE"),),
        **missing("DCGM sees GPUs, not models or requests.",
                  *(signal.name for signal in SIGNALS if signal.name not in ("server", *_GPU_SIGNALS))),
    },
    notes=(
        "USED plus FREE is less than TOTAL: the driver reserves the rest. In a cluster the exporter's pod label "
        "becomes exported_pod unless honor_labels is set."
    ),
)
