"""Triton's metrics page is there, where Prometheus can fetch it.

Everything in the pack for Triton reads it. It is off with --allow-metrics=false, elsewhere with --metrics-port, and in
some embeddings of Triton it is never opened.

Mend: --allow-metrics=true --metrics-port=8002, and give doctor its address with --metrics.
"""

from __future__ import annotations

from collections.abc import Iterator

from obs.doctor.facts import Facts
from obs.doctor.finding import Finding

ID = "metrics-page"


def check(facts: Facts) -> Iterator[Finding]:
    triton = facts.triton
    if triton is None or facts.page is not None or not facts.metrics_reason:
        return
    port = facts.flag("metrics-port")
    if facts.flag("allow-metrics") == "false":
        what, mend = "metrics are off: the server runs with --allow-metrics=false", "start it with --allow-metrics=true"
    else:
        what = f"the server answers, and its metrics page does not: {facts.metrics_reason}"
        mend = (
            f"it runs with --metrics-port={port}: give --metrics http://HOST:{port}/metrics"
            if port else "give its address with --metrics, or start Triton with --allow-metrics=true --metrics-port=8002"
        )
    yield Finding(ID, "error", facts.metrics_url, what, "every alert and panel for Triton reads this page", mend)
