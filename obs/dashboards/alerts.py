"""The pack's own alerts: what fires, since when, and what fires too often."""

from __future__ import annotations

from obs.config import Config
from obs.dashboards import panels
from obs.dashboards.panels import House
from obs.model.dashboard import Dashboard, Query, Row
from obs.promql import by, number
from obs.recordings.names import series

_FIRING, _PENDING = 'alertstate="firing"', 'alertstate="pending"'
_COLOURS = {"critical": "red", "warning": "orange", "info": "blue"}


def dashboard(config: Config) -> Dashboard:
    h = House(config)
    firing = h.alerts(_FIRING)
    since = f"1000 * ({h.alerts(name='ALERTS_FOR_STATE')} and ignoring (alertstate) {firing})"
    state = f"max {by(('alertname', 'job', 'model'))} (\n  {h.alerts(_PENDING)}\n  or\n  2 * {firing}\n)"
    severities = tuple(
        panels.column(name, color={"mode": "fixed", "fixedColor": color}) for name, color in _COLOURS.items()
    )
    runbook = f"{config.runbook_base_url}/${{__value.raw}}.md"
    names = {
        "alertname": "Alert", "severity": "Severity", config.cluster: "Cluster", config.namespace: "Namespace",
        "job": "Job", "model": "Model", "version": "Version", "instance": "Instance", config.pod: "Pod",
        "gpu_uuid": "GPU", "reason": "Reason", "engine": "Engine",
    }
    rows = (
        Row("Now", (
            *panels.table(
                "Firing alerts", (("Since", "dateTimeFromNow", since),),
                "Alerts of this pack that fire now; an alert's name opens its runbook. Empty is not proof of health: "
                "rules that are not loaded, and rules whose metrics are missing, are silent too (obs doctor).",
                names=names, hidden=("__name__",), no_value="none firing",
                overrides=(
                    panels.column("Alert", links=[{"title": "Runbook", "url": runbook, "targetBlank": True}]),
                ),
            ),
        )),
        Row("Over time", (
            *panels.states(
                "Alerts", [Query(state, "{{alertname}} {{model}} {{job}}")],
                "Pending (its condition holds, its waiting time does not) and firing. Alerts of one name, model and job "
                "are one bar: the worst of them.",
                {1: ("pending", "yellow"), 2: ("firing", "red")}, width=24, height=12,
                no_value="none pending or firing",
            ),
            *panels.count(
                "Firing by severity", [Query(f"count by (severity) ({firing})", "{{severity}}")],
                "Number of alerts that fire. Alertmanager may group or silence them.",
                stack=True, width=12, no_value="none firing", overrides=severities,
                field_defaults={"custom": {"lineInterpolation": "stepAfter"}},
            ),
            *panels.panel(
                "Time spent firing",
                [Query(
                    f"sort_desc(sum by (alertname) (count_over_time({firing}[$__range])) * "
                    f"{number(config.evaluation_interval)})",
                    "{{alertname}}", instant=True,
                )],
                "Over the time shown, every instance of an alert added up: the ones to tune or to mend first. Assumes "
                "the evaluation interval of obs.yaml.",
                type="bargauge", unit="s", min=0.0, width=12, no_value="none fired",
                field_defaults={"color": {"mode": "fixed", "fixedColor": "orange"}},
            ),
        )),
    )
    return Dashboard(
        "obs-alerts", "obs-alerts", "Inference / Alerts",
        "What fires, since when, and what fires too often.",
        rows, h.variables(series("instance", "server", "present")), h.annotations()[1:],
    )
