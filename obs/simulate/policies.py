"""Candidate policies: which signal, at which target, and who recommends it. Data only."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from obs.catalog.scaling import PRIMARY, TARGETS
from obs.errors import InputError
from obs.simulate.hpa import Behavior, Policy, Rules

GPU = "gpu_utilisation_ratio"
WAITING = "vllm:num_requests_waiting"
KV = "vllm:kv_cache_usage_perc"
RUNNING = "vllm:num_requests_running"
EPP = "epp_saturation_ratio"
LOAD = "llm_scaling_load_ratio"
PROJECTED = PRIMARY.metric
TARGET = TARGETS[PRIMARY.key]
"""What our manifests ask for."""
THROUGHPUT = "llm_decode_throughput_ratio"
KV_DEMAND = "llm_scaling_kv_demand_ratio"

BEHAVIOR = Behavior(down=Rules(300.0, (Policy("Pods", 1, 60),)))
"""Scale-up at once with the HPA's default policies, scale-down one pod a minute after five quiet minutes."""


@dataclass(frozen=True)
class Metric:
    """One metric of the autoscaler: the mean over the pods is held at the target."""

    signal: str
    target: float


@dataclass(frozen=True)
class ScalePolicy:
    """One candidate. ``scale(t)`` gives the same one with its targets moved to ``t`` (the first) in proportion."""

    name: str
    title: str
    metrics: tuple[Metric, ...]
    source: str
    grid: tuple[float, ...] = ()
    """Targets of a sweep, of the first metric."""
    behavior: Behavior = field(default=BEHAVIOR)
    learns: bool = False
    """The sidecar is not told the decode capacity but learns it, for the ITL objective."""
    informed: bool = False
    """The sidecar is told a new decode capacity when the mix of requests changes (Settings.capacities): nobody could."""

    def scaled(self, target: float) -> ScalePolicy:
        """The policy at another target."""
        first, *others = self.metrics
        factor = target / first.target
        moved = (Metric(one.signal, one.target * factor) for one in others)
        return replace(self, metrics=(Metric(first.signal, target), *moved))

    @property
    def target(self) -> float:
        """The first metric's target."""
        return self.metrics[0].target

    @property
    def needs_sidecar(self) -> bool:
        """Whether a signal comes from the sidecar."""
        return any(one.signal.startswith("llm_") for one in self.metrics)

    @property
    def needs_history(self) -> bool:
        """Whether a signal takes more than the sidecar's window."""
        return any(one.signal == PROJECTED for one in self.metrics)


_RATIOS = (0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9)
_PROJECTED = (0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)

POLICIES: dict[str, ScalePolicy] = {
    policy.name: policy
    for policy in (
        ScalePolicy("gpu", "GPU utilisation 0.8", (Metric(GPU, 0.8),), "the usual HPA recipe; GKE advises against it",
                    (0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.87, 0.89, 0.9)),
        ScalePolicy("queue", "requests waiting 5", (Metric(WAITING, 5),),
                    "vLLM production-stack: helm/values.yaml, KEDA threshold 5",
                    (0.1, 0.2, 0.35, 0.5, 0.75, 1, 1.5, 2, 3, 4, 5, 8)),
        ScalePolicy("kv-0.8", "KV usage 0.8", (Metric(KV, 0.8),), "a common threshold; bounded by 1, see traps",
                    (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)),
        ScalePolicy("kv-0.5", "KV usage 0.5", (Metric(KV, 0.5),), "AIBrix: gpu_cache_usage_perc 0.5"),
        ScalePolicy("llm-d", "max(KV/0.8, queue/5) at 1", (Metric(EPP, 1.0),),
                    "llm-d: thresholds kv 0.80 and queue 5 of its saturation detector and workload-variant-autoscaler",
                    (0.1, 0.2, 0.3, 0.4, 0.5, 0.55, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2)),
        ScalePolicy("load", "load ratio 0.75", (Metric(LOAD, 0.75),), "obs sidecar: max(KV usage, decode demand)", _RATIOS),
        ScalePolicy("load+decode", "load 0.75, decode throughput 0.75", (Metric(LOAD, 0.75), Metric(THROUGHPUT, 0.75)),
                    "obs sidecar, two metrics: the larger proposal", _RATIOS),
        ScalePolicy("projected", f"projected load {TARGET:g}", (Metric(PROJECTED, TARGET),),
                    "obs sidecar: the load with its growth until a new pod could help", _PROJECTED),
        ScalePolicy("learnt", f"projected load {TARGET:g}, capacity learnt", (Metric(PROJECTED, TARGET),),
                    "obs sidecar: the same, told only the ITL objective", _PROJECTED, learns=True),
        ScalePolicy("informed", f"projected load {TARGET:g}, capacity of each mix", (Metric(PROJECTED, TARGET),),
                    "a yardstick for learnt: told the capacity profiled for the mix at the moment it changes", _PROJECTED,
                    informed=True),
        ScalePolicy("kv-demand", "KV demand 0.8", (Metric(KV_DEMAND, 0.8),),
                    "obs sidecar: KV usage plus what the queue will take (where the decode capacity is unknown)",
                    (0.1, 0.2, 0.3, 0.4, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.9)),
        ScalePolicy("running", "running requests 32", (Metric(RUNNING, 32),), "concurrency, as in Ray Serve or Knative",
                    (8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80)),
    )
}
COMPARED = ("gpu", "queue", "kv-0.8", "kv-0.5", "llm-d", "load", "load+decode", "projected", "learnt")
"""Those that ``--compare`` runs unless told otherwise."""


def policy(text: str) -> ScalePolicy:
    """``name`` or ``name=target``; InputError when there is no such policy or the target is unreachable."""
    name, given, value = text.partition("=")
    if name not in POLICIES:
        raise InputError(f"unknown policy {name!r}; one of {', '.join(POLICIES)}")
    found = POLICIES[name]
    if not given:
        return found
    try:
        target = float(value)
    except ValueError:
        raise InputError(f"--policy {text}: {value!r} is no number") from None
    if not 0 < target < float("inf"):
        raise InputError(f"--policy {text}: the target must be above 0")
    if found.metrics[0].signal in (KV, GPU) and target > 1:
        raise InputError(f"--policy {text}: a ratio of at most 1 never reaches {target:g}; take a target up to 0.9")
    return found.scaled(target)
