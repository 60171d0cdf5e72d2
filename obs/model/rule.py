"""Alerts, recording rules and their groups, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["critical", "warning", "info"]


@dataclass(frozen=True)
class NoData:
    """What an alert does when its input is not there, and why that is right.

    ``fires``: the alert itself covers the absence. ``silent``: it says nothing, and ``companion``
    names the alert that speaks instead. ``holds``: it keeps its state for ``keep_firing_for``.
    """

    policy: Literal["fires", "holds", "silent"]
    why: str
    companion: str = ""


@dataclass(frozen=True)
class Alert:
    """One alerting rule. ``name`` is public API.

    ``expr`` is PromQL text. ``for_`` and ``keep_firing_for`` are Prometheus durations ("" = none).
    ``limits`` names the limits (catalog.limits) that the expression compares with. ``blind_spots`` says
    what it cannot see. ``dashboard`` is the stem of the dashboard to open. ``needs`` names the signals that it
    cannot do without: where no configured engine gives one of them, the alert would be dead and is left out.
    """

    name: str
    expr: str
    for_: str
    severity: Severity
    summary: str
    description: str
    no_data: NoData
    keep_firing_for: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    limits: tuple[str, ...] = ()
    blind_spots: tuple[str, ...] = ()
    dashboard: str = "obs-model"
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Recording:
    """One recording rule; ``labels`` are added to its series. ``help`` says what it is, with its unit."""

    record: str
    expr: str
    help: str
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Group:
    """A rule group; ``stem`` is the rule file it is written to. Its rules evaluate one after the other."""

    name: str
    stem: str
    help: str
    rules: tuple[Alert | Recording, ...]

    @property
    def alerts(self) -> tuple[Alert, ...]:
        return tuple(rule for rule in self.rules if isinstance(rule, Alert))

    @property
    def recordings(self) -> tuple[Recording, ...]:
        return tuple(rule for rule in self.rules if isinstance(rule, Recording))
