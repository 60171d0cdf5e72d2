"""Every model and server at a glance: where to look next."""

from __future__ import annotations

from obs.config import Config
from obs.dashboards import panels, variables
from obs.dashboards.panels import House
from obs.engines import BY_NAME as ENGINES
from obs.model.dashboard import Dashboard, Panel, Query, Row, Threshold
from obs.promql import by, indent, on, quote, selector
from obs.recordings.beside import vulnerable
from obs.recordings.names import series
from obs.recordings.rules import EngineRules

_FIRING, _OF_A_MODEL, _URGENT = 'alertstate="firing"', 'model!=""', 'severity!="info"'
_BLIND = (
    "Backend-reported failures only: a Python-backend model (Triton's vLLM and llmapi backends too) that answers with "
    "an error counts as a success."
)


def dashboard(config: Config) -> Dashboard:
    h = House(config)
    rows = (
        Row("Now", (*_stats(h), *_models(h))),
        Row("Models", (
            *panels.rate(
                "Requests by model", [h.query("model_name", "request_attempts", "rate", "{{model}} {{job}}")],
                "Requests answered or failed per second, the versions of a model together. Triton counts a request "
                "when its response is complete: one long generation shows no movement until it ends.",
            ),
            *panels.ratio(
                "Failed part of the requests",
                [h.query("model", "request_failures", "ratio", "{{model}} {{version}} {{job}}")],
                f"Failed requests among all, cancelled ones left out. {_BLIND}",
                thresholds=h.threshold("failure_ratio"),
            ),
            *panels.latency(
                "Mean queue time",
                [
                    h.query("model", "queue_time_seconds", "mean", "{{model}} {{version}} {{job}}"),
                    h.objective("model", "queue_time_seconds", "mean", "queue_time", "llm_queue_time"),
                ],
                "Time that a request waits before the model or engine starts on it, per finished request. Those that "
                "still wait are not in it. Dashed: the limit of the alert for each model. Triton's vLLM and "
                "TensorRT-LLM backends queue inside the engine and export no queue time.",
            ),
        )),
        Row("Servers", (*_targets(h), *_replicas(h), *panels.gpu_memory(h))),
        Row("Repository and versions (obs sidecar)", _sidecar(h)),
    )
    return Dashboard(
        "obs-fleet", "obs-fleet", "Inference / Fleet",
        "Every model and server at a glance.",
        tuple(row for row in rows if row.panels),
        h.variables(series("instance", "server", "present")), h.annotations(),
    )


def _stats(h: House) -> tuple[Panel, ...]:
    up, loaded = h.targets(), h.series("model", "model_loaded", "count")
    attempts = h.series("model_name", "request_attempts", "rate")

    def firing(severity: str) -> str:
        return f"count ({h.alerts(_FIRING, f'severity={quote(severity)}')})"

    none = {"no_value": "none"}
    return (
        *panels.stat(
            "Models loaded", f"count (count {by(h.labels.model_name)} ({loaded}))" if loaded else "",
            "Models that at least one server serves, versions together.", no_value="no model",
        ),
        *panels.stat(
            "Servers up", f"sum (({up}) == bool 1)", "Targets whose last scrape succeeded. A server that is up may "
            "still serve no model: see the timeline.", no_value="no target",
        ),
        *panels.stat(
            "Servers down", f"sum (({up}) == bool 0)",
            "Targets whose last scrape failed. A target that left service discovery is not counted: "
            "InferenceJobAbsent tells when a whole job is gone.",
            no_value="no target", thresholds=(Threshold(1.0),),
        ),
        *panels.stat(
            "Critical alerts firing", firing("critical"),
            "Firing now, of this pack. \"none\" is also shown where the rules are not loaded at all.",
            thresholds=(Threshold(1.0),), **none,
        ),
        *panels.stat(
            "Warnings firing", firing("warning"),
            "Firing now, of this pack. \"none\" is also shown where the rules are not loaded at all.",
            thresholds=(Threshold(1.0, "orange"),), **none,
        ),
        *panels.stat(
            "Requests", f"sum ({attempts})" if attempts else "",
            "Requests answered or failed per second, all models chosen above. A failed call of an ensemble counts "
            "twice, and the steps of an ensemble count beside it.",
            unit="reqps", no_value=panels.NO_TRAFFIC,
        ),
    )


def _models(h: House) -> tuple[Panel, ...]:
    of = by(h.labels.model)

    def best(level: str, name: str, operation: str, *more: str) -> str:
        """The value per model and version, whichever engine gives it (no two give one for the same model)."""
        text = h.series(level, name, operation)
        return f"max {by((*h.labels.model, *more))} ({text})" if text else ""

    loaded = h.series("model", "model_loaded", "count")
    firing = (
        f"group {of} ({loaded})\n* {on(h.labels.model_name)} group_left ()\n"
        f"count {by(h.labels.model_name)} ({h.alerts(_FIRING, _OF_A_MODEL, _URGENT)})"
        if loaded else ""
    )
    link = (
        "/d/obs-model?${__url_time_range}&${datasource:queryparam}&${cluster:queryparam}&${namespace:queryparam}"
        "&var-job=${__data.fields.Job:percentencode}&var-model=${__value.raw:percentencode}"
    )
    shown = {h.config.cluster: "Cluster", h.config.namespace: "Namespace", "job": "Job", "model": "Model",
             "version": "Version", "source": "P99 from"}
    return panels.table(
        "Models",
        (
            ("Replicas", "short", best("model", "model_loaded", "count")),
            ("Requests", "reqps", best("model", "request_attempts", "rate")),
            ("Failed", "percentunit", best("model", "request_failures", "ratio")),
            ("Queue, mean", "s", best("model", "queue_time_seconds", "mean")),
            ("Latency P99", "s", best("model", "request_latency_seconds", "p99", "source")),
            ("Latency, mean", "s", best("model", "request_latency_seconds", "mean")),
            ("Alerts firing", "short", firing),
        ),
        "One row per model and version that a server serves now. P99 from a histogram is that of all replicas, from "
        "a summary that of the worst one; empty: the server exports neither, or had no request. Queue and latency have "
        "a limit per kind of engine: their alerts count under \"Alerts firing\" (critical and warning, per model, all "
        f"versions). A model that vanished has no row: see the alerts. {_BLIND}",
        names=shown, after={"source": "Latency P99"}, height=10, no_value="no model",
        overrides=(
            panels.column("Failed", thresholds=panels.steps(*h.threshold("failure_ratio")),
                          custom_cellOptions={"type": "color-text"}),
            panels.column("Alerts firing", thresholds=panels.steps(Threshold(1.0)),
                          custom_cellOptions={"type": "color-background"}, noValue="none"),
            panels.column("Model", links=[{"title": "Open ${__value.raw}", "url": link}]),
        ),
        options={"sortBy": [{"displayName": "Alerts firing", "desc": True}]},
    )


def _targets(h: House) -> tuple[Panel, ...]:
    up, instance = h.targets(), on(h.labels.instance)
    server = series("instance", "server", "present")
    # Both arms are sums, without a name: else one target has two bars, `up` and the nameless one.
    state = f"2 * (\n  (\n{indent(up, 4)}\n  ) == 1\n  unless {instance}\n  {server}\n)\nor\n1 * (\n{indent(up)}\n)"
    return panels.states(
        "Targets", [Query(state, "{{job}} {{instance}}")],
        "Scrape targets of servers and GPU exporters: up, down, or up without any series of an engine (metrics switched "
        "off, or something else answers on the port). A target that is not listed has left service discovery.",
        {0: ("down", "red"), 1: ("up", "green"), 2: ("up, no engine metrics", "orange")}, no_value="no target",
    )


def _replicas(h: House) -> tuple[Panel, ...]:
    if not h.has("instance_model", "model_loaded", "present"):
        return ()
    loaded = h.series("instance_model", "model_loaded", "present")
    server = selector(series("instance", "server", "present"), 'engine!="sidecar"')
    share = (
        f"count {by(h.labels.model_name)} (count {by((*h.labels.instance, 'model'))} ({loaded}))\n"
        f"/ {on(h.labels.job)} group_left ()\n"
        f"count {by(h.labels.job)} (count {by(h.labels.instance)} ({server}))"
    )
    return panels.ratio(
        "Servers that hold the model", [Query(share, "{{model}} {{job}}")],
        f"Part of a job's servers that serve the model. From {h.config.limit('replica_majority'):.0%} up to all of them "
        "the others are expected to as well (InferenceModelMissingOnReplica); below that it is taken as meant so. "
        "Servers that are down are left out.",
        max=1.0, no_value="no model",
    )


def _sidecar(h: House) -> tuple[Panel, ...]:
    """What Triton's own API tells its sidecar, and Prometheus nobody else."""
    if "sidecar" not in h.config.engines:
        return ()
    own, here = EngineRules(ENGINES["sidecar"], h.config), variables.matchers(h.config, "cluster", "namespace")
    place = {h.config.cluster: "Cluster", h.config.namespace: "Namespace", "job": "Job"}
    missing = own.select("triton_model_info", 'state!="READY"', here)
    return (
        *panels.table(
            "Models that are not ready",
            (("Servers", "short", f"count {by((*h.labels.model, 'state', 'reason'))} ({missing})"),),
            "From Triton's repository index. UNAVAILABLE with a reason failed to load, \"unloaded\" was meant so, UNKNOWN "
            "was never loaded. A new version directory shows only once Triton looks for it.",
            names={**place, "model": "Model", "version": "Version", "state": "State", "reason": "Triton's reason"},
            width=14, height=8, no_value="none, or no sidecar",
        ),
        *panels.table(
            "Servers with a known vulnerability",
            (("Servers", "short", vulnerable(h.config, here)),),
            "By the server's version and a small table in the sidecar; \"unknown\" is a version that cannot rule it out. An "
            "empty table is no proof of safety: a server without a sidecar is not in it.",
            names={**place, "version": "Version", "id": "Vulnerability", "status": "Status"},
            width=10, height=8, no_value="none known, or no sidecar",
        ),
    )
