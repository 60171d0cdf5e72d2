"""The Grafana provisioning folder: documented keys only, and the dashboards themselves."""

from __future__ import annotations

import json

import jsonschema
import pytest
import yaml

from obs.build import render_all
from obs.config import parse_config

ROOT = "deploy/grafana-provisioning/"


def closed(required: str, **properties: object) -> dict[str, object]:
    return {"type": "object", "properties": properties, "additionalProperties": False, "required": required.split()}


TEXT, FLAG, COUNT = {"type": "string", "minLength": 1}, {"type": "boolean"}, {"type": "integer", "minimum": 1}
#: grafana/grafana docs/sources/administration/provisioning/index.md, and datasources/prometheus/configure (13.x).
PROVIDERS = closed("apiVersion providers", apiVersion={"const": 1}, providers={"type": "array", "minItems": 1, "items": closed(
    "name type options", name=TEXT, orgId=COUNT, folder=TEXT, folderUid=TEXT, type={"const": "file"}, disableDeletion=FLAG,
    updateIntervalSeconds={"type": "integer", "minimum": 10}, allowUiUpdates=FLAG,
    options=closed("path", path={"type": "string", "pattern": "^/"}, foldersFromFilesStructure=FLAG))})
DATASOURCES = closed("apiVersion datasources", apiVersion={"const": 1}, datasources={"type": "array", "items": closed(
    "name type access url", name=TEXT, uid=TEXT, type={"const": "prometheus"}, access={"enum": ["proxy"]},
    url={"type": "string", "pattern": "^https?://"}, isDefault=FLAG, editable=FLAG, orgId=COUNT,
    jsonData=closed("httpMethod", httpMethod={"enum": ["POST", "GET"]}, timeInterval={"pattern": r"^\d+(ms|s|m|h)$"}))})


def test_it_has_documented_keys_only() -> None:
    files = render_all(parse_config(""), chosen=["grafana-provisioning"])
    providers = yaml.safe_load(files[ROOT + "dashboards/obs.yaml"])
    datasources = yaml.safe_load(files[ROOT + "datasources/obs.yaml"])
    jsonschema.validate(providers, PROVIDERS)
    jsonschema.validate(datasources, DATASOURCES)
    assert datasources["datasources"][0]["jsonData"]["timeInterval"] == "30s"
    providers["providers"][0]["pathh"] = "/"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(providers, PROVIDERS)


def test_the_folder_mounted_whole_finds_its_dashboards() -> None:
    """Mounted at /etc/grafana/provisioning, the provider's path is the folder that the dashboards lie in."""
    config = parse_config("deploy: {datasource: {url: 'http://prom:9090', uid: p}, grafana: {folder: GPUs}}")
    files = render_all(config, chosen=["dashboards", "grafana-provisioning"])
    (provider,) = yaml.safe_load(files[ROOT + "dashboards/obs.yaml"])["providers"]
    assert provider["folder"] == "GPUs"
    path = ROOT + provider["options"]["path"].removeprefix("/etc/grafana/provisioning/")
    copies = {name.rsplit("/", 1)[1]: text for name, text in files.items() if name.startswith(path + "/")}
    assert copies == {name.rsplit("/", 1)[1]: text for name, text in files.items() if name.startswith("dashboards/")}
    assert len({json.loads(text)["uid"] for text in copies.values()}) == len(copies) == 5
    assert "http://prom:9090" in files[ROOT + "datasources/obs.yaml"]
