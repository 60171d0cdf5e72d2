"""A native vLLM serves its metrics, under the names of its version.

--disable-log-stats removes every vllm: series and leaves http_* and process_*: up is 1, and every LLM alert is dead.
Names changed (gpu_cache_usage_perc to kv_cache_usage_perc in 0.9.2, gone in 0.12; time_per_output_token_seconds to
inter_token_latency_seconds in 0.10.2, gone in 0.15): the pack reads both, your own rules may not.

Mend: start vLLM without --disable-log-stats.
"""

from __future__ import annotations

from collections.abc import Iterator

from obs.doctor.facts import Facts
from obs.doctor.finding import Finding
from obs.engines import BY_NAME

ID = "vllm-server"


def check(facts: Facts) -> Iterator[Finding]:
    vllm, page = facts.vllm, facts.vllm_page
    if vllm is None or page is None:
        return
    names = page.names
    if not any(name.startswith("vllm:") for name in names):
        yield Finding(
            ID, "error", page.place, "the page has no vllm: series", "every LLM alert is dead, while up is 1",
            "start vLLM without --disable-log-stats",
        )
        return
    for metric in BY_NAME["vllm"].metrics:
        if metric.renamed_to and set(metric.series_names()) & names:
            newer = BY_NAME["vllm"].metric(metric.renamed_to)
            if not set(newer.series_names()) & names:
                yield Finding(
                    ID, "info", f"{page.place} {metric.name}", f"this vLLM {vllm.version} serves {metric.name}",
                    f"newer versions call it {metric.renamed_to}: the pack reads both, rules of your own may not",
                    f"in rules of your own write {metric.renamed_to} or {metric.name}",
                )
