"""Triton's counters count.

--metrics-config counter_latencies=false stops more than latencies: success, failure and inference counts stay at 0
while the series exist, so that nothing looks absent (seen on Triton 2.51: IncrementCounter returns early). Traffic, error,
latency and idle alerts then see a server without requests.

Mend: start Triton with --metrics-config=counter_latencies=true (the default).
"""

from __future__ import annotations

from collections.abc import Iterator

from obs.doctor.facts import Facts, Page
from obs.doctor.finding import Finding

ID = "counters-frozen"

SUCCESS = "nv_inference_request_success"
DURATION = "nv_inference_request_duration_us"
FROZEN = (SUCCESS, "nv_inference_request_failure", "nv_inference_count", "nv_inference_exec_count")
WHY = "counter_latencies=false freezes the counters at 0"


def frozen(page: Page, counted: int, setting: str = "") -> str:
    """How it is known that the counters do not count ("" = they do, or it cannot be told)."""
    if SUCCESS not in page.names:
        return ""
    total = sum(sample.value for sample in page.of(SUCCESS))
    if DURATION not in page.names and total == 0:
        return "the duration counters are absent and the request counters at 0"
    if setting == "false":
        return "the server runs with counter_latencies=false"
    if total == 0 and counted > 0:
        return f"the statistics API counts {counted} finished requests, the metrics page 0"
    return ""


def check(facts: Facts) -> Iterator[Finding]:
    if facts.page is None:
        return
    counted = sum(facts.triton.counted.values()) if facts.triton is not None else 0
    how = frozen(facts.page, counted, facts.metrics_setting("counter_latencies"))
    if how:
        yield Finding(
            ID, "error", f"{facts.page.place} {SUCCESS}", f"Triton's counters are frozen: {how}",
            "requests and failures stay at 0 while the series exist: traffic, error and latency alerts see an idle server",
            "start Triton with --metrics-config=counter_latencies=true (the default)",
        )
