"""It is known what Triton counts rightly and what it does not.

A Python-backend model that answers with an error (HTTP 500 for its client) counts as a success, and a decoupled one is timed
only until execute() returns: a stream of one second reads about a millisecond (both seen on Triton 2.51; issues 8521 and 8463
of triton-inference-server/server). The alerts on failures and latency cannot see those, whatever the flags.

Mend: count errors at the gateway too; time decoupled models by first response (histogram_latencies=true, from 24.11 on).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from obs.doctor.facts import Facts
from obs.doctor.finding import Finding

ID = "blind-spots"


def check(facts: Facts) -> Iterator[Finding]:
    if facts.triton is None:
        return
    python = sorted(config.model for config in facts.configs() if config.backend == "python")
    if python:
        yield Finding(
            ID, "info", facts.triton.url, f"errors that these Python models answer with count as successes: {_some(python)}",
            "InferenceFailureRatioHigh sees only what execute() raises, and what Triton itself refuses",
            "raise TritonModelException in execute() where the whole request failed, and watch 5xx at the gateway",
        )
    decoupled = sorted(config.model for config in facts.configs() if config.backend == "python" and config.decoupled)
    if decoupled:
        yield Finding(
            ID, "info", facts.triton.url, f"these decoupled models are timed only until execute() returns: {_some(decoupled)}",
            "InferenceLatencyMeanHigh and the summaries read a millisecond for a stream of seconds",
            "--metrics-config=histogram_latencies=true (24.11 or later) times their first response",
        )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
