"""Requests that fail, are cancelled, or end where no counter sees it."""

from __future__ import annotations

from obs.alerts.thresholds import has_traffic
from obs.config import Config
from obs.model.rule import Alert, Group, NoData
from obs.promql import block, by, duration, either, number, on, quote, selector
from obs.recordings.names import labels, series
from obs.recordings.rules import recorded

_PYTHON = (
    "A Python-backend model (Triton's vLLM and llmapi backends too) that answers with an error raises the success "
    "counter: this ratio then reads 0 in an outage."
)


def group(config: Config) -> Group:
    L = labels(config)
    keep = (*L.model, "engine")
    floor = has_traffic(config, series("model", "request_attempts", "rate"))
    by_reason = selector(series("model_reason", "request_failures", "ratio"), 'reason!="CANCELED"')
    silent = NoData("silent", "Without requests there is no ratio.", "InferenceTrafficDrop")
    alerts = [
        Alert(
            "InferenceFailureRatioHigh",
            f"{by_reason} > 0\nand {on(keep)}\n"
            f"{series('model', 'request_failures', 'ratio')} > {number(config.limit('failure_ratio'))}\n"
            f"and {on(keep)}\n{floor}",
            "5m", "critical",
            "{{ $labels.model }} fails {{ $value | humanizePercentage }} of its requests"
            "{{ with $labels.reason }} ({{ . }}){{ end }}",
            "{{ $value | humanizePercentage }} of the requests to model {{ $labels.model }} version "
            "{{ $labels.version }} fail{{ with $labels.reason }} with reason {{ . }}{{ end }}; all reasons together "
            f"are above {config.limit('failure_ratio'):.0%}. These are backend-reported failures only.",
            silent, keep_firing_for="5m",
            needs=("requests", "request_failures"),
            limits=("limits.failure_ratio", "limits.request_rate_floor"),
            blind_spots=(
                _PYTHON,
                "One failed call of an ensemble counts twice, on the ensemble: its ratio reads high.",
                "Requests refused before the server (gateway, HTTP parsing) are not counted.",
                "Triton's counter_latencies=false freezes successes and failures at 0: no ratio at all. "
                "InferenceCountersFrozen reports it where a histogram or summary still counts.",
                "vLLM before 0.16 has no finished_reason=\"error\": a failed request is counted nowhere in the engine.",
            ),
        ),
        Alert(
            "InferenceCancelRatioHigh",
            f"{series('model', 'request_cancellations', 'ratio')} > {number(config.limit('cancel_ratio'))}\n"
            f"and {on(keep)}\n{floor}",
            "10m", "warning",
            "Clients cancel {{ $value | humanizePercentage }} of the requests to {{ $labels.model }}",
            "{{ $value | humanizePercentage }} of the requests to model {{ $labels.model }} version "
            "{{ $labels.version }} are cancelled: clients give up, usually because answers take too long.",
            silent,
            needs=("requests", "request_failures"),
            limits=("limits.cancel_ratio", "limits.request_rate_floor"),
        ),
    ]
    if "vllm" in config.engines:
        http = series("job_status", "http_requests", "rate")
        errors = selector(http, 'status="5xx"')
        alerts += [
            Alert(
                "InferenceHTTPErrorRatioHigh",
                f"sum {by(L.job)} ({errors})\n/\n(sum {by(L.job)} ({http}) > "
                f"{number(config.limit('request_rate_floor'))})\n> {number(config.limit('failure_ratio'))}",
                "5m", "critical",
                "{{ $labels.job }} answers {{ $value | humanizePercentage }} of its HTTP requests with 5xx",
                "{{ $value | humanizePercentage }} of the HTTP requests to the API servers of job {{ $labels.job }} "
                "end in a server error. The engine's own counters may show none of them.",
                silent, limits=("limits.failure_ratio", "limits.request_rate_floor"),
                blind_spots=(
                    "A stream that breaks after its headers keeps its 200.",
                    "With --disable-log-stats vLLM serves only http_*, process_* and python_* series: nothing tells that "
                    "it is vLLM, so it is not judged.",
                    "The first 5xx of a server is lost: its series is born at 1.",
                ),
                dashboard="obs-llm",
            ),
        ]
    if {"vllm", "triton-vllm"} & set(config.engines):
        alerts.append(_aborted(config))
    return Group("obs-errors", "errors", "Requests fail or disappear.", tuple(alerts))


def _aborted(config: Config) -> Alert:
    first = series("model", "time_to_first_token_seconds", "rate")
    finished = series("model", "request_latency_seconds", "rate")
    span, limit = duration(config.window("aborts")), config.limit("aborted_ratio")
    started = f"avg_over_time({first}[{span}])"
    # Requests that are still running have not been lost.
    running = [series("model", "requests_running", "sum")] if recorded(config, "requests_running") else []
    if "triton-vllm" in config.engines:
        running.append(series("model", "requests_running_estimate", "mean"))
    growth = [f"clamp_min(deriv({one}[{span}]), 0)" for one in running]
    if "triton-vllm" in config.engines:
        # No inter-token latency, no estimate: answers of one token. They are done at once.
        growth.append(f"0 * avg_over_time({selector(first, 'engine=' + quote('triton-vllm'))}[{span}])")
    lost = f"{started}\n- avg_over_time({finished}[{span}])\n- {block(either(*growth))}"
    return Alert(
        "LLMAbortedRequestsHidden",
        f"{block(lost)}\n/\n({started} > {number(config.limit('request_rate_floor'))})\n> {number(limit)}\n"
        f"and\npresent_over_time({first}[{duration(config.window('rate'))}] offset {span})",
        "10m", "warning",
        "{{ $value | humanizePercentage }} of {{ $labels.model }}'s requests start and never finish",
        "{{ $value | humanizePercentage }} of the requests to {{ $labels.model }} got a first token and were "
        "never counted as finished: clients disconnect. They are missing from the latency and queue "
        "histograms, whose P99 improves as users give up.",
        NoData("silent", "Needs both histograms; without requests there is nothing to balance.", "InferenceTrafficDrop"),
        limits=("limits.aborted_ratio", "limits.request_rate_floor", "windows.aborts"),
        blind_spots=(
            "Requests aborted before their first token are in no histogram at all.",
            "Triton's vLLM backend counts no running requests: they are estimated from tokens/s and inter-token "
            "latency, so a change of the load can look like aborts for a while, or hide some.",
        ),
        dashboard="obs-llm",
    )
