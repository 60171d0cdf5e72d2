"""A model with a response cache has its metrics, and its price is known.

response_cache in a model's configuration does nothing without --cache-config on the server; and a cached model has no
request summary, so that its P99 is missing even with summaries on (core:src/metric_model_reporter.cc).

Mend: start Triton with --cache-config=local,size=104857600; or remove response_cache from the model.
"""

from __future__ import annotations

from collections.abc import Iterator

from obs.doctor.facts import Facts
from obs.doctor.finding import Finding

ID = "cache-metrics"


def check(facts: Facts) -> Iterator[Finding]:
    page = facts.page
    for config in facts.configs():
        if not config.response_cache or page is None:
            continue
        if not any(name.startswith("nv_cache_") for name in page.names):
            yield Finding(
                ID, "warning", config.at("response_cache"),
                f"model {config.model} enables response_cache, and the server has no cache",
                "nothing is cached and the panels on hits stay empty",
                "start Triton with --cache-config=local,size=104857600, or remove response_cache",
            )
        elif "nv_inference_request_summary_us" in page.names:
            yield Finding(
                ID, "info", config.at("response_cache"), f"model {config.model} is cached: it has no request summary",
                "InferenceLatencyP99High cannot judge it; its queue and compute summaries are there",
                "use --metrics-config=histogram_latencies=true (26.01 or later) for its P99",
            )
