"""Models of the vLLM backend report vLLM's metrics.

Triton hands a request over to vLLM at once: its own queue and latency times end after a fraction of a millisecond, and only
vLLM's families tell tokens and latencies. They need REPORT_CUSTOM_METRICS in config.pbtxt, and model.json without
disable_log_stats. (It turns vLLM's frontend multiprocessing off: vllm_backend, src/model.py.)

Mend:
    parameters { key: "REPORT_CUSTOM_METRICS" value { string_value: "true" } }
"""

from __future__ import annotations

from collections.abc import Iterator

from obs.doctor.facts import Facts
from obs.doctor.finding import Finding
from obs.engines import BY_NAME

ID = "custom-metrics"

PARAMETER = "REPORT_CUSTOM_METRICS"
LINES = f'''parameters {{
  key: "{PARAMETER}"
  value {{ string_value: "true" }}
}}'''


def check(facts: Facts) -> Iterator[Finding]:
    served = {
        sample.labels.get("model", "") for sample in (facts.page.samples if facts.page is not None else ())
        if sample.name in _FAMILIES
    }
    ready = {one.name for one in (facts.triton.index or () if facts.triton else ()) if one.state == "READY"}
    for config in facts.configs():
        if not config.vllm:
            continue
        given = config.parameters.get(PARAMETER, "")
        why = "no token, latency or time-to-first-token series: the LLM alerts are blind to this model"
        if given.lower() != "true":  # the backend takes no other word (vllm_backend, src/model.py)
            yield Finding(
                ID, "warning", config.at(PARAMETER), f"vLLM model {config.model} "
                + (f"has {PARAMETER} {given!r}" if given else f"has no {PARAMETER}"), why, f"in its config.pbtxt:\n{LINES}",
            )
        elif facts.page is not None and config.model in ready and config.model not in served:
            yield Finding(
                ID, "warning", f"{facts.page.place} vllm:*{{model=\"{config.model}\"}}",
                f"vLLM model {config.model} has {PARAMETER}, and no vllm: series is on the metrics page", why,
                "remove disable_log_stats from its model.json; a model.py of your own must keep the backend's metrics",
            )


_FAMILIES = frozenset(name for metric in BY_NAME["triton-vllm"].metrics for name in metric.series_names())
