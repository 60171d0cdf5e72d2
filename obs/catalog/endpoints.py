"""What Prometheus scrapes for the pack: one line per kind of server, with where its metrics page is by default.

A path or port that is an engine's own default has its source in the engine's module of ``obs/engines``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

EndpointName = Literal["triton", "vllm", "trtllm-serve", "dynamo", "sglang", "dcgm", "sidecar"]


@dataclass(frozen=True)
class Endpoint:
    """``engines`` are the engines of the catalogue whose metrics the page serves; ``port_name`` is the port's name in a
    pod or service, ``port`` its default number, ``timeout`` of a scrape is in seconds. ``by`` is the object that finds it in
    Kubernetes: engines are scraped pod by pod, dcgm-exporter's chart brings a service. ``labels`` select either."""

    name: EndpointName
    engines: tuple[str, ...]
    job: str
    port: int
    port_name: str
    labels: tuple[tuple[str, str], ...]
    path: str = "/metrics"
    by: Literal["pod", "service"] = "pod"
    timeout: float = 10.0


#: The labels and ports of triton, vllm and sidecar are those of the manifests in exporters/sidecar.
ENDPOINTS = (
    Endpoint("triton", ("triton", "triton-vllm", "triton-trtllm"), "triton", 8002, "metrics", (("app", "triton"),)),
    Endpoint("vllm", ("vllm",), "vllm", 8000, "metrics", (("app", "vllm"),)),
    Endpoint("trtllm-serve", ("trtllm-serve",), "trtllm", 8000, "http", (("app", "trtllm-serve"),),
             path="/prometheus/metrics"),
    Endpoint("dynamo", ("dynamo",), "dynamo", 8000, "http", (("app", "dynamo-frontend"),)),
    Endpoint("sglang", ("sglang",), "sglang", 30000, "http", (("app", "sglang"),)),
    # dcgm-exporter's chart: service label app.kubernetes.io/name, port name metrics, 9400.
    Endpoint("dcgm", ("dcgm",), "dcgm-exporter", 9400, "metrics", (("app.kubernetes.io/name", "dcgm-exporter"),),
             by="service"),
    Endpoint("sidecar", ("sidecar",), "obs-sidecar", 9105, "signals", (("obs-sidecar", "true"),), timeout=5.0),
)

BY_NAME = {endpoint.name: endpoint for endpoint in ENDPOINTS}
