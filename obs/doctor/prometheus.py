"""What a Prometheus says about itself: targets, scrape configuration, rules, clock, and the engines in its series."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import yaml

from obs.config import seconds
from obs.doctor.facts import Prometheus, RuleGroup, ScrapeTarget
from obs.engines import ENGINES, metric_owners
from obs.errors import ServerError
from obs.model.metric import Native
from obs.prom.client import Client, LoadedRule

#: Labels that engines or exporters set themselves, and that a target may have as well.
CLASHING = ("exported_job", "exported_instance", "exported_namespace", "exported_pod", "exported_model", "exported_version",
            "exported_service", "exported_container")
_NO_SUCH_PAGE = re.compile(r"answered (?:404|405|501) with|404 page not found")
_T = TypeVar("_T")


def signatures() -> tuple[str, ...]:
    """Metric names that show an engine: the natives of its ``server`` signal (obs.engines)."""
    found: dict[str, None] = {}
    for engine in ENGINES:
        sources = engine.signals["server"]
        for source in sources if isinstance(sources, tuple) else ():
            if isinstance(source, Native):
                found[source.metric] = None
    return tuple(found)


def look(client: Client) -> tuple[Prometheus, list[str]]:
    """The server and what of it could not be had. ServerError when it cannot be reached or is none."""
    before = time.time()
    clock = client.query("time()")
    after = time.time()
    skew = _skew(clock[0].value, before, after) if clock else None
    lacking: list[str] = []
    untold: list[str] = []
    names = "|".join(map(re.escape, signatures()))
    known = f'{{__name__=~"{names}"}}'
    with ThreadPoolExecutor(max_workers=8) as pool:

        def ask(what: str, call: Callable[[], _T]) -> Callable[[], _T | None]:
            future = pool.submit(call)

            def done() -> _T | None:
                try:
                    return future.result()
                except ServerError as error:
                    if _NO_SUCH_PAGE.search(str(error)):
                        untold.append(what)  # a part of the API that this kind of server has not: nothing failed
                    else:
                        lacking.append(f"{what}: {error}")
                except (AttributeError, KeyError, TypeError, ValueError) as error:
                    lacking.append(f"{what}: {client.url} answers in an unknown shape ({type(error).__name__})")
                return None

            return done

        version = ask("version", client.version)
        victoria = ask("version", lambda: client.is_victoria_metrics)
        targets = targets_ = ask("targets", lambda: _targets(client.get("/api/v1/targets?state=active")))
        config = ask("configuration", lambda: _jobs(client.get("/api/v1/status/config")))
        groups = ask("rules", lambda: _groups(client.get("/api/v1/rules")))
        rules = ask("rules", lambda: _checked(client.rules()))
        found_by = ask("Alertmanagers", lambda: _alertmanagers(client.get("/api/v1/alertmanagers")))
        undelivered = ask("series", lambda: _undelivered(client))
        engines = ask("series", lambda: _engines(client, known))
        exported = {label: ask("series", lambda label=label: _exported(client, names, label)) for label in CLASHING}  # type: ignore[misc]
        if victoria():  # it answers with nothing: rules are vmalert's, and targets vmagent's where it has none
            untold += ["rules", "configuration"]
            targets, config, groups, rules, found_by = (lambda: targets_() or None), _none, _none, _none, _none
        found = Prometheus(
            client.url,
            version() or "",
            targets(),
            engines() or {},
            config(),
            groups(),
            rules(),
            {label: jobs for label, answer in exported.items() if (jobs := answer())},
            skew,
            tuple(dict.fromkeys(untold)),
            bool(victoria()),
            found_by(),
            undelivered() or (),
        )
    return found, list(dict.fromkeys(lacking))


def _none() -> None:
    return None


def _checked(rules: Sequence[LoadedRule]) -> tuple[LoadedRule, ...]:
    """The rules; TypeError when one is not what the API says."""
    for one in rules:
        if not all(isinstance(text, str) for text in (one.group, one.file, one.name, one.expr, one.health, one.last_error)):
            raise TypeError
    return tuple(rules)


def _skew(told: float, before: float, after: float) -> float:
    """Its clock minus ours, at least: 0 where the answer lies between question and answer."""
    if told < before:
        return told - before
    return max(0.0, told - after)


def _engines(client: Client, known: str) -> dict[tuple[str, str], frozenset[str]]:
    found: dict[tuple[str, str], set[str]] = {}
    for one in client.query(f"count by (__name__, job, instance) ({known})"):
        labels = {name: str(value) for name, value in one.labels}
        owners = {engine.name for engine, _ in metric_owners(labels.get("__name__", ""))}
        found.setdefault((labels.get("job", ""), labels.get("instance", "")), set()).update(owners)
    return {key: frozenset(engines) for key, engines in sorted(found.items())}


def _exported(client: Client, names: str, label: str) -> tuple[str, ...]:
    found = client.query(f'count by (job) ({{__name__=~"{names}|DCGM_FI_DEV_.*", {label}!=""}})')
    return tuple(sorted(str(dict(one.labels).get("job", "")) for one in found))


def _alertmanagers(data: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(one.get("url", "")) for one in _maps(data["activeAlertmanagers"]))


def _undelivered(client: Client) -> tuple[tuple[str, float], ...]:
    """Of a server that scrapes itself: notifications that were not sent, by Alertmanager."""
    found = client.query("sum by (alertmanager) (increase(prometheus_notifications_errors_total[15m])) > 0")
    return tuple(sorted((str(dict(one.labels).get("alertmanager", "")), one.value) for one in found))


def _targets(data: Mapping[str, Any]) -> tuple[ScrapeTarget, ...]:
    found = []
    for one in _maps(data.get("activeTargets")):
        labels = {str(key): str(value) for key, value in (one.get("labels") or {}).items()}
        found.append(
            ScrapeTarget(
                labels.get("job", ""), labels.get("instance", ""), str(one.get("scrapePool", "")),
                str(one.get("scrapeUrl", "")), str(one.get("health", "unknown")), str(one.get("lastError", "")),
                _seconds(one.get("scrapeInterval")), labels,
            )
        )
    return tuple(found)


def _jobs(data: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    try:
        loaded = yaml.load(data.get("yaml") or "{}", Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError:
        raise ServerError("its configuration is no YAML") from None
    entries = _maps(loaded.get("scrape_configs") if isinstance(loaded, dict) else ())
    return {str(one["job_name"]): one for one in entries if "job_name" in one}


def _groups(data: Mapping[str, Any]) -> tuple[RuleGroup, ...]:
    return tuple(
        RuleGroup(str(one.get("name", "")), str(one.get("file", "")), float(one.get("interval") or 0),
                  float(one.get("evaluationTime") or 0))
        for one in _maps(data.get("groups"))
    )


def _maps(value: Any) -> Sequence[Mapping[str, Any]]:
    items: Iterable[Any] = value if isinstance(value, list) else ()
    return [one for one in items if isinstance(one, Mapping)]


def _seconds(text: Any) -> float:
    try:
        return seconds(text) if text else 0.0
    except ValueError:
        return 0.0
