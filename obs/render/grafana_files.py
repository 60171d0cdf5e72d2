"""A Grafana provisioning folder: the whole of it is mounted at /etc/grafana/provisioning.

Keys by Grafana's documentation, "Provision Grafana" (13.x); read at start, dashboards also every 30 s.
"""

from __future__ import annotations

from obs.promql import duration
from obs.render.pack import Pack, header
from obs.render.prometheus import dump


def provisioning(pack: Pack) -> dict[str, str]:
    """Path below the folder → text. Grafana reads only *.yaml there; the dashboards lie one folder deeper."""
    config, deploy = pack.config, pack.config.deploy
    path = deploy.grafana.dashboards_path
    provider = {
        "name": "obs",
        "orgId": 1,
        "folder": deploy.grafana.folder,
        "type": "file",
        "disableDeletion": False,
        "allowUiUpdates": False,
        "updateIntervalSeconds": 30,
        "options": {"path": path, "foldersFromFilesStructure": False},
    }
    datasource = {
        "name": deploy.datasource.name,
        "uid": deploy.datasource.uid,
        "type": "prometheus",
        "access": "proxy",
        "url": deploy.datasource.url,
        "isDefault": True,
        "editable": False,
        # $__rate_interval of the panels is at least four of these
        "jsonData": {"httpMethod": "POST", "timeInterval": duration(config.scrape_interval)},
    }
    mounted = header("#", f"The dashboards are those of the folder obs beside it: {path} in Grafana.")
    example = header("#", "An example: leave it out where Grafana has a Prometheus already; the dashboards let one choose.")
    return {
        "dashboards/obs.yaml": mounted + dump({"apiVersion": 1, "providers": [provider]}),
        "datasources/obs.yaml": example + dump({"apiVersion": 1, "datasources": [datasource]}),
        **{f"dashboards/obs/{name}": text for name, text in pack.dashboard_texts.items()},
    }
