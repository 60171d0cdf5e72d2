"""Prometheus' own configuration of the scrapes: addresses by hand, or found by Kubernetes; each whole and as a part.

``obs.yaml`` in each folder is what ``scrape_config_files`` (Prometheus 2.43 and later) takes; ``prometheus.yml`` is a
whole configuration, which older ones take too.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from obs.config import Config
from obs.promql import duration, escape_regex
from obs.render.pack import Pack, header
from obs.render.prometheus import dump
from obs.render.targets import Scraped, scraped

#: From deploy/scrape/<variant>/ to the rule files of the same output.
RULES = "../../../alerts/rules/*.yaml"


def _common(one: Scraped) -> dict[str, Any]:
    return {
        "job_name": one.job,
        "scrape_interval": one.interval,
        "scrape_timeout": one.timeout,
        "metrics_path": one.path,
        # What a server says of pod and namespace goes to exported_*, which the rules read: the target's own stay.
        "honor_labels": False,
    }


def static(one: Scraped, config: Config) -> dict[str, Any]:
    return {**_common(one), "static_configs": [{"targets": list(one.static)}]}


def kubernetes(one: Scraped, config: Config) -> dict[str, Any]:
    """Pods by their labels and the name of the port; finished pods are left out."""
    discovery: dict[str, Any] = {"role": "pod"}
    if one.namespaces:
        discovery["namespaces"] = {"names": list(one.namespaces)}
    keep: list[dict[str, Any]] = [
        {"source_labels": [f"__meta_kubernetes_pod_label_{re.sub('[^a-zA-Z0-9_]', '_', label)}"],
         "regex": escape_regex(value), "action": "keep"}
        for label, value in one.labels.items()
    ]
    keep += [
        {"source_labels": ["__meta_kubernetes_pod_container_port_name"], "regex": escape_regex(one.port), "action": "keep"},
        {"source_labels": ["__meta_kubernetes_pod_phase"], "regex": "Succeeded|Failed", "action": "drop"},
    ]
    named = [
        {"source_labels": [f"__meta_kubernetes_{meta}"], "target_label": label}
        for label, meta in ((config.namespace, "namespace"), (config.pod, "pod_name"), ("container", "pod_container_name"))
    ]
    return {**_common(one), "kubernetes_sd_configs": [discovery], "relabel_configs": keep + named}


VARIANTS: dict[str, tuple[Callable[[Scraped, Config], dict[str, Any]], str]] = {
    "static": (static, "Addresses by hand: obs.yaml, deploy.targets.<server>.static."),
    "kubernetes": (kubernetes, "Pods found by their labels and port names: obs.yaml, deploy.targets."),
}


def files(pack: Pack) -> dict[str, str]:
    config = pack.config
    found = {}
    for variant, (make, about) in VARIANTS.items():
        jobs = [make(one, config) for one in scraped(config)]
        part = ("scrape_config_files of prometheus.yml takes this file (Prometheus 2.43 and later).", about)
        found[f"{variant}/obs.yaml"] = header("#", *part) + dump({"scrape_configs": jobs})
        whole = {
            "global": {"scrape_interval": duration(config.scrape_interval),
                       "evaluation_interval": duration(config.evaluation_interval)},
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [config.deploy.alertmanager.address]}]}]},
            "rule_files": [RULES],
            "scrape_configs": jobs,
        }
        notes = (about, "The rule files are those of `obs build` in the same output; a pattern that finds none is no error.")
        found[f"{variant}/prometheus.yml"] = header("#", *notes) + dump(whole)
    return found
