"""Every rule group of the pack for a configuration: one line per subject, in the order they are shown."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from obs.alerts import autoscaling, availability, errors, gpu, idle, latency, llm, queue, sidecar, slo, traffic
from obs.config import Config, nearest
from obs.errors import ConfigError
from obs.model.rule import Alert, Group
from obs.promql import duration
from obs.recordings.rules import groups as recording_groups
from obs.recordings.rules import recorded

Subject = Callable[[Config], "Group | None"]

SUBJECTS: tuple[Subject, ...] = (
    availability.group,
    traffic.group,
    errors.group,
    latency.group,
    queue.group,
    gpu.group,
    idle.group,
    llm.group,
    sidecar.group,
)

#: Alerts that exist only for some of what ``obs.yaml`` may hold, and for what.
CONDITIONAL = {
    **dict.fromkeys(
        ("InferenceLatencySourceMissing", "InferenceAvailabilityBudgetBurn", "InferenceLatencyBudgetBurn"),
        "it exists only for models that declare an objective",
    ),
    **dict.fromkeys(autoscaling.NAMES, "it exists only for workloads under autoscaling"),
}


def all_groups(config: Config) -> tuple[Group, ...]:
    """Recording groups first, then alerting groups, with ``alerts.*`` of the configuration applied.

    Raises ``ConfigError`` when the configuration names an alert that the pack does not have.
    """
    optional = (*slo.groups(config), *autoscaling.groups(config))
    written = [*recording_groups(config), *(group for group in optional if group.recordings)]
    found = [group for group in (subject(config) for subject in SUBJECTS) if group is not None]
    found += [group for group in optional if group.alerts]
    found = [_alive(group, config) for group in found]
    known = {alert.name for group in found for alert in group.alerts}
    for name in config.alert_names:
        if name not in known | {"*"}:
            hint = CONDITIONAL.get(name) or nearest(name, known)
            raise ConfigError(f"{config.path}: alerts.{name}: no such alert with this configuration; {hint}")
    for group in found:
        changed = [rule for rule in (_override(alert, config) for alert in group.alerts) if rule is not None]
        if changed:
            written.append(dataclasses.replace(group, rules=tuple(changed)))
    return tuple(written)


def alerts(config: Config) -> tuple[Alert, ...]:
    """Every alert of the pack, in the order of its groups."""
    return tuple(alert for group in all_groups(config) for alert in group.alerts)


def _alive(group: Group, config: Config) -> Group:
    """Without the alerts that need a signal which no configured engine gives."""
    return dataclasses.replace(
        group, rules=tuple(alert for alert in group.alerts if all(recorded(config, signal) for signal in alert.needs))
    )


def _override(alert: Alert, config: Config) -> Alert | None:
    """``alert`` as configured; ``None`` when it is switched off."""
    change = config.override(alert.name)
    if not change.enabled:
        return None
    return dataclasses.replace(
        alert,
        severity=change.severity or alert.severity,
        for_=alert.for_ if change.for_ is None else duration(change.for_),
        keep_firing_for=(
            alert.keep_firing_for if change.keep_firing_for is None else duration(change.keep_firing_for)
        ),
        labels={**alert.labels, **config.extra_labels, **(change.labels or {})},
    )
