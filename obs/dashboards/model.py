"""One model, its versions side by side: what a canary does to requests, failures and latency."""

from __future__ import annotations

from obs.config import Config
from obs.dashboards import panels
from obs.dashboards.panels import House
from obs.model.dashboard import Dashboard, Panel, Query, Row
from obs.promql import by, duration

_V = "{{version}} {{job}}"  # native vLLM has no version: its job is all there is
_PYTHON = (
    "Backend-reported only: a Python-backend model (Triton's vLLM and llmapi backends too) that answers with an error "
    "counts as a success."
)


def dashboard(config: Config) -> Dashboard | None:
    h = House(config, single=("model",))
    if not h.gives("model_loaded"):
        return None
    rows = (
        Row("Traffic", _traffic(h)),
        Row("Latency", _latency(h)),
        Row("Queue and batches", _work(h)),
        Row("Where the time goes", _phases(h), collapsed=True),
        Row("Server by server", _servers(h), collapsed=True),
    )
    return Dashboard(
        "obs-model", "obs-model", "Inference / Model",
        "One model, its versions side by side.",
        tuple(row for row in rows if row.panels),
        h.variables(),
        h.annotations(),
    )


def _traffic(h: House) -> tuple[Panel, ...]:
    c, drop = h.config, h.config.limit("traffic_drop")
    return (
        *panels.rate(
            "Requests answered", [h.query("model", "requests", "rate", _V)],
            "Requests that the server counts as answered, per version. They count when the response is complete: a long "
            "generation shows no movement until it ends. An error answered through Triton's Python backend is in here.",
        ),
        *panels.ratio(
            "Failed part of the requests",
            [h.query("model", "request_failures", "ratio", _V)],
            f"Failed requests among all, cancelled ones left out. {_PYTHON} A failed call of an ensemble counts twice.",
            thresholds=h.threshold("failure_ratio"),
        ),
        *panels.rate(
            "Failures by reason", [h.query("model_reason", "request_failures", "rate", "{{version}} {{reason}} {{job}}")],
            f"Failed requests by reason, where the server tells one (Triton since 24.08). {_PYTHON}",
            no_value="no failures, or not exported",
        ),
        *panels.rate(
            "Traffic against its baseline",
            [
                h.query("model_name", "requests", "rate", "{{model}} {{job}}"),
                h.baseline("model_name", "requests", "traffic_drop", "traffic_floor"),
            ],
            f"All versions together. Dashed: {drop:.0%} of the mean of the {duration(c.window('baseline'))} that ended "
            f"{duration(c.window('baseline_gap'))} ago, below which it counts as a drop (unless it was so at the same "
            "time before). No line: too little history, or too little traffic to compare.",
            width=12,
        ),
        *panels.ratio(
            "Cancelled part of the requests", [h.query("model", "request_cancellations", "ratio", _V)],
            "Requests that clients cancelled, among all: they give up when they wait too long. vLLM does not count them.",
            thresholds=h.threshold("cancel_ratio"), width=6, no_value="none, or not exported",
        ),
        *panels.count(
            "Replicas", [h.query("model", "model_loaded", "count", f"{_V} {{{{engine}}}}")],
            "Servers that serve the model now. A rollout shows here: a replaced pod is another server.",
            width=6, no_value="not loaded",
        ),
    )


def _latency(h: House) -> tuple[Panel, ...]:
    triton = " For decoupled Python models Triton's request time ends when execute() returns." if (
        "triton" in h.config.engines) else ""
    return (
        *panels.latency(
            "Request latency",
            [
                h.query("model", "request_latency_seconds", "p99", "P99 {{version}} {{job}} ({{source}})"),
                h.query("model", "request_latency_seconds", "p50", "P50 {{version}} {{job}} ({{source}})"),
                h.query("model", "request_latency_seconds", "mean", "mean {{version}} {{job}}"),
                h.objective("model", "request_latency_seconds", "mean", "latency_p99", "llm_latency_p99"),
            ],
            "From arrival to complete answer, of finished requests. Source: a histogram is that of all replicas, a "
            "summary that of the worst one (over 60 s). No P99: the server exports neither; the mean hides the tail. "
            f"Dashed: the P99 limit of the alert.{triton} Requests that hang or were aborted are not in it.",
            width=12,
        ),
        *panels.latency(
            "Queue time",
            [
                h.query("model", "queue_time_seconds", "p99", "P99 {{version}} {{job}} ({{source}})"),
                h.query("model", "queue_time_seconds", "mean", "mean {{version}} {{job}}"),
                h.objective("model", "queue_time_seconds", "mean", "queue_time", "llm_queue_time"),
            ],
            "Wait before the model or engine starts, per finished request. Dashed: the limit of the mean; that of the "
            f"P99 is {_p99_limits(h)}. Requests still waiting are not in it. A histogram reads the first bucket's bound "
            "when nothing waits (vLLM: 0.297 s at P99). Triton's vLLM and TensorRT-LLM backends export none.",
            width=12, no_value="no traffic, or not exported",
        ),
        *panels.latency(
            "First response",
            [
                h.query("model", "first_response_seconds", "p99", "P99 {{version}} {{job}}"),
                h.query("model", "first_response_seconds", "p50", "P50 {{version}} {{job}}"),
                h.query("model", "first_response_seconds", "mean", "mean {{version}} {{job}}"),
            ],
            "From arrival to the first response; the whole latency for a model that answers once. Errors count: fast "
            "failures lower it. Needs --metrics-config histogram_latencies=true; before 26.01 decoupled models only.",
            width=12, no_value="no traffic, or no histogram (histogram_latencies)",
        ),
        *panels.beyond_top(h, h.series("model", "beyond_top_bucket", "ratio"), width=12),
    )


def _p99_limits(h: House) -> str:
    keys = [key for key, mine in (
        ("queue_time_p99", any(e not in h.llm for e in h.gives("queue_time_seconds"))),
        ("llm_queue_time_p99", any(e in h.llm for e in h.gives("queue_time_seconds"))),
    ) if mine]
    return " and ".join(
        f"{duration(h.config.slo(key) or 0.0)} {'inside LLM engines' if key.startswith('llm') else 'before a backend'}"
        for key in keys
    ) + ", where a model declares no other"


def _work(h: House) -> tuple[Panel, ...]:
    hits, misses = h.series("model", "cache_hits", "rate"), h.series("model", "cache_misses", "rate")
    cache = Query(f"{hits} / ({hits} + {misses} > 0)", _V) if hits and misses else None
    return (
        *panels.count(
            "Pending requests", [h.query("model", "pending_requests", "sum", _V)],
            "Requests that the server holds before the backend takes them, replicas together. Above "
            f"{h.config.limit('pending_floor'):g} and growing, requests arrive faster than they are answered. Always 0 "
            "for ensembles; about 0 for LLM backends, which queue inside and are left out here.",
            thresholds=h.threshold("pending_floor", "orange"), no_value="not exported (Triton before 23.09, LLM backends)",
        ),
        *panels.count(
            "Batch size", [h.query("model", "batch_size", "mean", _V)],
            "Inferences per execution, mean. 1 under load: batches do not form (max_queue_delay_microseconds, "
            "preferred sizes). Answers from the response cache are left out.",
            no_value=panels.NO_TRAFFIC,
        ),
        *panels.ratio(
            "Response cache hits", [cache],
            "Requests answered from Triton's response cache, among those looked up. Models with a cache export no "
            "latency summary.",
            max=1.0, no_value="no traffic, or no response cache",
        ),
    )


def _phases(h: House) -> tuple[Panel, ...]:
    return tuple(
        one
        for name, title, what in (
            ("compute_input_seconds", "Input", "preparing input tensors"),
            ("compute_infer_seconds", "Execution", "executing the model"),
            ("compute_output_seconds", "Output", "copying output tensors"),
        )
        for one in panels.latency(
            f"{title} time, mean", [h.query("model", name, "mean", _V)],
            f"Time spent {what}, per successful request; answers from the response cache took none and lower it. Not "
            "shown for Triton's vLLM backend, whose time ends when the request is handed over.",
        )
    )


def _servers(h: House) -> tuple[Panel, ...]:
    loaded = h.series("instance_model", "model_loaded", "present")
    of = by(h.labels.instance_model)
    found = panels.states(
        "Loaded on", [Query(f"max {of} ({loaded})", "{{instance}} {{version}}")] if loaded else [],
        "Servers that serve the model. A bar that ends: the model was unloaded there, or the server is gone.",
        {1: ("loaded", "green")}, width=24, no_value="not loaded",
    )
    for signal, title, what in (
        ("requests", "Requests answered, by server", "One server far below its peers gets no requests or hangs."),
        ("request_failures", "Requests failed, by server", f"Whether one server or all fail. {_PYTHON}"),
    ):
        queries = [
            Query(h.raw_rate(name, counter, h.labels.instance_model), f"{{{{instance}}}} {{{{version}}}} {name}")
            for name in h.gives(signal)
            for counter in panels.natives(name, signal)[:1]
        ]
        found += panels.rate(title, queries, f"Per second, from the servers' own counters. {what}", width=12)
    return found
