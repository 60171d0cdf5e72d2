"""What an LLM service may be scaled on, and how long its pods need to end: the numbers, once, with their reasons.

The signals are gauges of the sidecar, one per pod (``obs/engines/sidecar.py``). A target is the value that one pod
should have; the autoscaler makes ``ceil(sum of all pods / target)`` replicas.
"""

from __future__ import annotations

from dataclasses import dataclass

TOLERANCE = 0.1
"""HPA changes nothing while value / target is within 1 ± this (kube-controller-manager's default)."""


@dataclass(frozen=True)
class ScalingSignal:
    """``key`` is its name in ``obs.yaml`` and in recorded series, ``metric`` the sidecar's gauge.

    ``pod`` is the pod's own value in the sidecar's /signals ("" where it has none). ``high`` is the highest target that
    makes sense. ``ratio``: 1 is full (0.75 is written 75 % for KEDA), and ``ends``: more is not possible. ``busy``: it
    stays above 0 while requests run, so that low values allow a scale-in.
    """

    key: str
    metric: str
    high: float
    why: str
    pod: str = ""
    ratio: bool = True
    ends: bool = False
    busy: bool = True


SIGNALS: tuple[ScalingSignal, ...] = (
    ScalingSignal("load_ratio", "llm_scaling_load_ratio", 1.0,
                  "load over capacity at the SLO; 1 is full, so a higher target plans for broken objectives",
                  pod="llm_pod_load_ratio"),
    ScalingSignal("projected_load_ratio", "llm_scaling_projected_load_ratio", 1.0,
                  "the load with its growth until a new pod could help; 1 is full", pod="llm_pod_projected_load_ratio"),
    ScalingSignal("saturation_ratio", "llm_scaling_saturation_ratio", 1.0,
                  "the fullest of KV cache, queue and slots over its own target; 1 is that target",
                  pod="llm_pod_saturation_ratio"),
    ScalingSignal("decode_demand_ratio", "llm_scaling_decode_demand_ratio", 1.0,
                  "token demand over decode capacity; 1 is full. KV cache is not in it"),
    ScalingSignal("kv_demand_ratio", "llm_scaling_kv_demand_ratio", 1.0,
                  "KV cache in use plus what waits for it, over its capacity"),
    # a gauge that ends at 1 must be able to pass target x 1.1, or it never scales up
    ScalingSignal("kv_usage_ratio", "llm_kv_cache_usage_ratio", 0.9,
                  "a fraction that ends at 1: HPA acts only above target x 1.1, so a target over 0.9 never scales up",
                  ends=True),
    ScalingSignal("requests_running", "llm_requests_running", 100_000.0,
                  "requests that run in one pod", ratio=False),
    ScalingSignal("requests_waiting", "llm_requests_waiting", 100_000.0,
                  "requests that wait in one pod; 0 as soon as all run, so never alone", ratio=False, busy=False),
)

BY_KEY = {signal.key: signal for signal in SIGNALS}

#: Ratios of load to capacity, which exceed 1 when too much is asked for.
UNBOUNDED = frozenset(
    name for signal in SIGNALS if signal.ratio and not signal.ends for name in (signal.metric, signal.pod) if name
)

PRIMARY = BY_KEY["projected_load_ratio"]
"""What we scale on unless told otherwise: of the signals compared, the one that holds the objectives for the fewest
replicas with one target everywhere (docs/simulate.md)."""

TARGETS: dict[str, float] = {PRIMARY.key: 0.95}
"""Where nothing is configured. It holds 95 % in all five regimes, in each half of ten seeds and in the mean of twenty
(docs/simulate.md); `obs simulate --recommend --traces DIR` looks for the highest that does."""

MIN_REPLICAS = 2
"""Resident: a pod needs minutes to load its model, and one alone has no spare."""

LONGEST_GENERATION = 300.0
"""Seconds that the longest answer takes; HPA's own default for the scale-down window."""

STABILIZATION_MAX = 3600.0
"""autoscaling/v2 takes a window of at most one hour."""

DRAIN = 30.0
"""Seconds beside the longest answer for a pod to leave the endpoints and end (Kubernetes' default grace)."""

SIGNALS_PORT = 9105
"""The sidecar's port."""

POD_NAME_MAX = 46
"""Letters of a Deployment's name whose pods keep it whole: apimachinery cuts a generated name's base at 58, of which
the pod-template hash and two dashes take 12."""
