"""Every dashboard of the pack: one line per file, in the order of their links."""

from __future__ import annotations

from collections.abc import Callable

from obs.config import Config
from obs.dashboards import alerts, fleet, gpu, llm, model
from obs.model.dashboard import Dashboard

#: Each gives its dashboard, or ``None`` where no configured engine gives what it shows.
DASHBOARDS: tuple[Callable[[Config], Dashboard | None], ...] = (
    fleet.dashboard,
    model.dashboard,
    llm.dashboard,
    gpu.dashboard,
    alerts.dashboard,
)


def all_dashboards(config: Config) -> tuple[Dashboard, ...]:
    """The dashboards for a configuration."""
    found = (make(config) for make in DASHBOARDS)
    return tuple(dashboard for dashboard in found if dashboard is not None)
