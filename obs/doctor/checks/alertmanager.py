"""Prometheus sends its alerts to an Alertmanager, and they arrive.

Without one, alerts fire on the server's own page and nobody is told. Prometheus tells which Alertmanagers it has found; that
one does not answer shows only in its own metrics, where it scrapes itself (prometheus_notifications_errors_total).

Mend: alerting.alertmanagers in prometheus.yml, or spec.alerting of the operator's Prometheus object; and that its address,
path_prefix and api_version are right and the network lets the server through.
"""

from __future__ import annotations

from collections.abc import Iterator

from obs.doctor.facts import Facts
from obs.doctor.finding import Finding

ID = "alertmanager"


def check(facts: Facts) -> Iterator[Finding]:
    prometheus = facts.prometheus
    if prometheus is None or not any(rule.kind == "alerting" for rule in prometheus.rules or ()):
        return
    if prometheus.alertmanagers == ():
        yield Finding(
            ID, "warning", prometheus.url, "knows no Alertmanager", "alerts fire and nobody is told",
            "alerting: { alertmanagers: [ { static_configs: [ { targets: [ HOST:9093 ] } ] } ] }; for the operator: "
            "spec.alerting.alertmanagers (an Alertmanager beside Grafana's own alerting is needed for these rules)",
        )
    for url, count in prometheus.undelivered:
        yield Finding(
            ID, "error", url or prometheus.url, f"about {count:.0f} notifications in the last 15 minutes did not arrive",
            "alerts that fire reach nobody through it",
            "look at the address, path_prefix and api_version in alerting.alertmanagers, and at the network between",
        )
