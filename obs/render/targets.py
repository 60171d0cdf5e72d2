"""The servers that are scraped for the pack: the endpoints of the catalogue as ``deploy.targets`` changes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from obs.catalog.endpoints import ENDPOINTS, Endpoint
from obs.config import Config, Target
from obs.promql import duration


@dataclass(frozen=True)
class Scraped:
    """One kind of server: how it is found and how often it is scraped. ``interval`` and ``timeout`` are durations as
    Prometheus writes them; ``namespaces`` () means all; ``static`` are host:port."""

    name: str
    job: str
    labels: Mapping[str, str]
    port: str
    path: str
    by: str
    namespaces: tuple[str, ...]
    interval: str
    timeout: str
    static: tuple[str, ...]


def scraped(config: Config) -> tuple[Scraped, ...]:
    """The servers of the configured engines, in the catalogue's order."""
    return tuple(_scraped(one, config) for one in ENDPOINTS if set(one.engines) & set(config.engines))


def _scraped(endpoint: Endpoint, config: Config) -> Scraped:
    given = config.deploy.targets.get(endpoint.name, Target())
    interval = config.scrape_interval if given.interval is None else given.interval
    return Scraped(
        name=endpoint.name,
        job=given.job or endpoint.job,
        labels=dict(endpoint.labels) if given.labels is None else dict(given.labels),
        port=given.port or endpoint.port_name,
        path=given.path or endpoint.path,
        by=endpoint.by,
        namespaces=tuple(given.namespaces),
        interval=duration(interval),
        timeout=duration(min(endpoint.timeout, interval) if given.timeout is None else given.timeout),
        static=tuple(given.static) or (f"localhost:{endpoint.port}",),
    )
