"""There is a source for the P99 that an objective asks for.

Triton exports no quantile by itself. Summaries (--metrics-config summary_latencies=true) give a P99 per replica, NaN
after 60 s without a request, none for models with a response cache, and cost throughput: a user measured 33 %
(triton-inference-server/server#8561); measure yours with perf_analyzer before and after. Histograms
(histogram_latencies=true) give a P99 that adds up over replicas, for every model since 26.01, and for decoupled models
since 24.11; older versions take the flag and export nothing. Without either the pack judges the mean.

Mend: --metrics-config histogram_latencies=true from 26.01 on, summary_latencies=true before.
"""

from __future__ import annotations

from collections.abc import Iterator

from obs.doctor.facts import Facts
from obs.doctor.finding import Finding
from obs.doctor.releases import Release

ID = "latency-source"

HISTOGRAM = "nv_inference_first_response_histogram_ms_bucket"
SUMMARY = "nv_inference_request_summary_us"
DURATION = "nv_inference_request_duration_us"
DECOUPLED_ONLY, ALL_MODELS = Release(24, 11), Release(26, 1)


def check(facts: Facts) -> Iterator[Finding]:
    page = facts.page
    if page is None or not any(name.startswith("nv_inference_") for name in page.names):
        return
    names = page.names
    release = facts.triton.release if facts.triton is not None else None
    histograms, summaries = HISTOGRAM in names, SUMMARY in names
    if facts.metrics_setting("histogram_latencies") == "true" and not histograms:
        about = f" by Triton {facts.triton.version} ({release})" if facts.triton is not None and release else ""
        decoupled = release is not None and DECOUPLED_ONLY <= release < ALL_MODELS
        yield Finding(
            ID, "warning", page.place,
            f"histogram_latencies=true is accepted{about} and exports no histogram",
            "the flag looks set and there is still no P99: "
            + ("this version has histograms for decoupled models only" if decoupled
               else f"histograms exist since {DECOUPLED_ONLY} for decoupled models, since {ALL_MODELS} for all"),
            f"upgrade to {ALL_MODELS} or later, or add --metrics-config=summary_latencies=true",
        )
    source = "histogram" if histograms else "summary" if summaries else ""
    wanted = facts.config.slo_given("latency_p99") or bool(facts.config.model_slos("latency_p99"))
    flag = "histogram_latencies=true" if release is not None and release >= ALL_MODELS else "summary_latencies=true"
    if not source:
        yield Finding(
            ID, "warning" if wanted else "info", page.place,
            "no latency quantile: neither summaries nor histograms are on"
            + ("" if DURATION in names else ", and no durations either"),
            ("obs.yaml declares slo.latency_p99, and nothing here can tell a P99: " if wanted else "")
            + "InferenceLatencyMeanHigh judges the mean instead, which hides the slowest requests",
            f"start Triton with --metrics-config={flag}"
            + ("" if flag.startswith("histogram") else " (costs throughput: measure before and after)"),
        )
    if summaries:
        yield Finding(
            ID, "info", page.place, "summaries are on" + (", and histograms too" if histograms else ""),
            "they cost throughput (a user measured 33 %: server#8561), are per replica, and NaN after 60 s without requests",
            "turn them off with --metrics-config=summary_latencies=false: the histograms give the P99" if histograms
            else "keep them while they are your only P99; from 26.01 on use --metrics-config=histogram_latencies=true instead",
        )
