"""GPUs: memory, use, power and what the driver complains of, once per physical GPU."""

from __future__ import annotations

from obs.config import Config
from obs.dashboards import panels, variables
from obs.dashboards.panels import House
from obs.engines import BY_NAME as ENGINES
from obs.model.dashboard import Annotation, Dashboard, Panel, Query, Row
from obs.promql import by, call, quote, selector
from obs.recordings.names import series
from obs.recordings.rules import EngineRules

_GPU = "{{gpu_uuid}} {{GPU_I_ID}}"


def dashboard(config: Config) -> Dashboard | None:
    h = House(config)
    total = series("gpu", "gpu_memory_total_bytes", "max")
    if not h.gives("gpu_memory_total_bytes"):
        return None
    chosen = variables.matchers(config, "gpu")
    rows = (
        Row("Memory", (*panels.gpu_memory(h, chosen, width=12), *_bytes(h, chosen))),
        Row("Work", _work(h, chosen)),
        Row("Trouble", _trouble(h)),
        Row("Who uses which", _users(h)),
    )
    return Dashboard(
        "obs-gpu", "obs-gpu", "Inference / GPUs",
        "Memory, use, power and faults of each GPU.",
        tuple(row for row in rows if row.panels),
        (
            # A GPU has no namespace and no job of its own: these choose among the servers that report it.
            *variables.chain(config, series("instance", "server", "present"), "cluster", "namespace", "job"),
            *variables.chain(config, total, "gpu", above=("cluster",)),
        ),
        _annotations(h),
    )


def _annotations(h: House) -> tuple[Annotation, ...]:
    firing = selector(
        "ALERTS", 'alertname=~"GPUMemory.+"', 'alertstate="firing"', variables.matchers(h.config, "cluster", absent=True)
    )
    return (Annotation("Alerts firing", firing, "{{alertname}} {{gpu_uuid}}", "red", "severity"),)


def _bytes(h: House, chosen: str) -> tuple[Panel, ...]:
    legend = f"{_GPU} {{{{engine}}}}"
    return panels.panel(
        "GPU memory in bytes",
        [
            h.query("gpu", "gpu_memory_used_bytes", "max", f"used {legend}", chosen),
            h.query("gpu", "gpu_memory_total_bytes", "max", f"total {legend}", chosen),
        ],
        "Framebuffer used and in all, by each source that tells it. Triton's total holds the part the driver reserves. "
        "0 of 0, or a line that stands still at 0: DCGM lost the GPU under Triton, and the ratio is gone.",
        unit="bytes", min=0.0, width=12, no_value="no GPU reported",
    )


def _work(h: House, chosen: str) -> tuple[Panel, ...]:
    limit = None
    if "triton" in h.config.engines:
        raw = EngineRules(ENGINES["triton"], h.config)
        narrowed = raw.select("nv_gpu_power_limit", variables.matchers(h.config, "cluster"), chosen)
        # Its legend begins with "limit": drawn dashed, as every limit is.
        limit = Query(raw.aggregate("max", h.labels.gpu, narrowed), f"limit {_GPU}")
    dcgm = _dcgm(h, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE")
    return (
        *panels.ratio(
            "GPU utilisation (not load)",
            [h.query("gpu", "gpu_utilization", "max", f"{_GPU} {{{{engine}}}}", chosen)],
            "Share of time in which at least one kernel ran. Not a measure of load: one small kernel at a time reads "
            "100 %, and LLM engines decode at 100 % with one request. Use it to see an idle GPU.",
            max=1.0, no_value="no GPU reported",
        ),
        *panels.panel(
            "Power", [h.query("gpu", "gpu_power_watts", "max", f"{_GPU} {{{{engine}}}}", chosen), limit],
            "Power drawn, and (dashed, from Triton) the limit at which the GPU lowers its clock.",
            unit="watt", min=0.0, no_value="no GPU reported",
        ),
        *panels.ratio(
            "Tensor cores active", [dcgm],
            "Share of cycles in which the tensor cores worked: closer to load than utilisation. From dcgm-exporter, on "
            "GPUs with profiling metrics.",
            max=1.0, no_value="not exported (needs DCGM profiling)",
        ),
    )


def _dcgm(h: House, metric: str, legend: str = _GPU, *, suffix: str = "", scale: str = "") -> Query | None:
    """dcgm-exporter's own series of the GPUs chosen."""
    if "dcgm" not in h.config.engines:
        return None
    rules = EngineRules(ENGINES["dcgm"], h.config)
    ENGINES["dcgm"].metric(metric)  # KeyError for a name that is not in the catalogue
    raw = rules.select(metric, variables.matchers(h.config, "cluster"), 'UUID=~"$gpu"')
    return Query(scale + rules.aggregate("max", h.labels.gpu, raw + suffix), legend)


def _trouble(h: House) -> tuple[Panel, ...]:
    xid = _dcgm(h, "DCGM_FI_DEV_XID_ERRORS", suffix=" != 0")
    return (
        *panels.panel(
            "Last XID error", [xid],
            "The code of the last XID error that the driver reported; the value stays until the driver is loaded "
            "again: its start tells when. 13, 31, 43 and 45 usually come from the program; 48, 63, 64, 74, 79, 94 and "
            "95 from the hardware. From dcgm-exporter.",
            type="state-timeline", unit="none", no_value="no XID error, or not exported",
            field_defaults={"color": {"mode": "fixed", "fixedColor": "red"}, "custom": {"fillOpacity": 80}},
            options={"showValue": "always"},
        ),
        *panels.panel(
            "Temperature",
            [_dcgm(h, "DCGM_FI_DEV_GPU_TEMP", f"GPU {_GPU}"), _dcgm(h, "DCGM_FI_DEV_MEMORY_TEMP", f"memory {_GPU}")],
            "Of the chip and of its memory. The limit depends on the GPU: a clock that falls while this is at its top "
            "tells that it was reached. From dcgm-exporter.",
            unit="celsius", no_value="not exported",
        ),
        *panels.panel(
            "SM clock", [_dcgm(h, "DCGM_FI_DEV_SM_CLOCK", scale="1e6 * ")],
            "Clock of the streaming multiprocessors. A clock that falls under load: the GPU throttles, for heat or for "
            "power. An idle GPU lowers it too. From dcgm-exporter.",
            unit="hertz", min=0.0, no_value="not exported",
        ),
    )


def _users(h: House) -> tuple[Panel, ...]:
    c = h.config
    found: tuple[Panel, ...] = ()
    here = variables.matchers(c, "cluster", "namespace", "job")
    if "triton" in c.engines:
        raw = EngineRules(ENGINES["triton"], c).select("nv_gpu_memory_total_bytes", here)
        found += panels.count(
            "GPUs that each server reports", [Query(f"count {by(h.labels.instance)} ({raw})", "{{instance}} {{job}}")],
            "Triton servers of the chosen jobs. Fewer than the pod asked for: MIG, or another DCGM agent beside Triton. "
            "A server that reports none has no line; expected_gpus in obs.yaml makes that an alert.",
            no_value="no GPU reported by Triton",
        )
    if "dcgm" in c.engines:
        used = EngineRules(ENGINES["dcgm"], c).select(
            "DCGM_FI_DEV_FB_USED", variables.matchers(c, "cluster"), 'UUID=~"$gpu"'
        )
        # Unless honor_labels is set, Prometheus renames the GPU user's labels to exported_*.
        for label, native in ((c.namespace, "namespace"), (c.pod, "pod")):
            used = call("label_replace", used, quote(label), '"$1"', quote(f"exported_{native}"), '"(.+)"')
        keep = (c.cluster, "Hostname", "gpu", "UUID", "GPU_I_ID", "modelName", c.namespace, c.pod)
        found += panels.table(
            "Pods by GPU", (("Memory used", "mbytes", f"max {by(keep)} ({used})"),),
            "Which pod holds which GPU, as Kubernetes told dcgm-exporter. Without honor_labels and a mapping of pods "
            "the pod is the exporter's own.",
            names={c.cluster: "Cluster", "Hostname": "Host", "gpu": "GPU", "UUID": "UUID", "GPU_I_ID": "MIG",
                   "modelName": "Type", c.namespace: "Namespace", c.pod: "Pod"},
            width=16, height=8, no_value="no GPU reported by dcgm-exporter",
        )
    return found
