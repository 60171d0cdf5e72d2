"""Prometheus scrapes this server, and the scrape succeeds.

A target that no job selects has no series at all: every alert on it is silent, also InferenceTargetDown. The metrics
address is looked for among the targets; behind a port-forward or a service it may have another.

Mend:
    scrape_configs:
      - job_name: triton
        static_configs: [ { targets: [ "HOST:8002" ] } ]
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from obs.doctor.facts import Facts, ScrapeTarget
from obs.doctor.finding import Finding

ID = "scrape-target"

_LOCAL = frozenset(("localhost", "127.0.0.1", "[::1]", "::1"))


def check(facts: Facts) -> Iterator[Finding]:
    prometheus = facts.prometheus
    if prometheus is None or prometheus.targets is None:
        return
    for target in ours(facts):
        if target.health == "down":
            yield _down(target)
    for what, url in _looked_at(facts):
        if any(_same(url, target) for target in prometheus.targets):
            continue
        seen = sorted({target.instance for target in ours(facts)})
        place = address(url)
        if seen:
            yield Finding(
                ID, "info" if place.rpartition(":")[0] in _LOCAL else "warning", prometheus.url,
                f"no target is {place}, where {what} answers us; engines are scraped at {', '.join(seen[:3])}",
                "if this server is none of those, no alert watches it", _scrape(what, place),
            )
        else:
            yield Finding(
                ID, "error", prometheus.url,
                f"{what} at {place} is not scraped: no target has its address, and none serves an engine",
                "no series, so every alert on it is silent", _scrape(what, place),
            )
    if not facts.metrics_url and facts.vllm_page is None and not prometheus.engine_targets:
        yield Finding(
            ID, "error", prometheus.url, "no series of any engine that we know",
            "the whole pack has nothing to read", _scrape("Triton", "HOST:8002"),
        )


def ours(facts: Facts) -> list[ScrapeTarget]:
    """The targets that serve an engine or should: of jobs with an engine or named in obs.yaml, and of pages we look at."""
    prometheus = facts.prometheus
    if prometheus is None:
        return []
    jobs = {job for job, _ in prometheus.engine_targets} | set(facts.config.jobs)
    return [one for one in prometheus.targets or () if one.job in jobs or any(_same(url, one) for _, url in _looked_at(facts))]


def _looked_at(facts: Facts) -> list[tuple[str, str]]:
    """The metrics pages of servers that we ask as well: what, URL."""
    found = []
    if facts.metrics_url:
        found.append(("Triton", facts.metrics_url))
    if facts.vllm_page is not None:
        found.append(("vLLM", facts.vllm_page.place))
    return found


def address(url: str) -> str:
    """host:port of a URL."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
    return f"{host}:{parts.port or (443 if parts.scheme == 'https' else 80)}"


def _same(url: str, target: ScrapeTarget) -> bool:
    wanted = address(url)
    host, _, port = wanted.rpartition(":")
    found = {target.instance, address(target.url) if target.url else ""}
    return wanted in found or (host in _LOCAL and any(f"{other}:{port}" in found for other in _LOCAL))


def _down(target: ScrapeTarget) -> Finding:
    limited = "sample limit" in target.last_error or "sample_limit" in target.last_error
    return Finding(
        ID, "error", f"{target.job}/{target.instance}", f"the target is down: {target.last_error or 'no reason given'}",
        "all of the page is thrown away at once: every alert but InferenceTargetDown is blind to it" if limited
        else "every alert but InferenceTargetDown is blind to it",
        f"raise sample_limit of job {target.pool}" if limited
        else f"fetch {target.url} from the pod of Prometheus and mend what it says",
    )


def _scrape(what: str, place: str) -> str:
    job = what.lower()
    return f"scrape_configs:\n  - job_name: {job}\n    static_configs: [ {{ targets: [ \"{place}\" ] }} ]"
