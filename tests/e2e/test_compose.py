"""compose/ as files: valid, pinned, on loopback only, and each command accepted by its program."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from obs.cli.main import parser_for
from obs.prom import tools

from .stack import COMPOSE, ROOT, Stack, interpolated, mounts, services

FOLDER = COMPOSE.parent
SERVICES = services()


def test_it_is_valid_by_the_compose_specification() -> None:
    check = shutil.which("check-jsonschema")
    if check is None:
        pytest.skip("check-jsonschema is not installed (it is in the dev extra)")
    command = [check, "--builtin-schema", "vendor.compose-spec", str(COMPOSE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_pinned_bounded_and_on_loopback(name: str) -> None:
    service = SERVICES[name]
    assert re.fullmatch(r"[\w.\-/]+:v?\d[\w.\-]*", interpolated(service["image"])), "an image without a version"
    for port in service.get("ports", ()):
        assert port.startswith("127.0.0.1:"), port
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "memory" in service["deploy"]["resources"]["limits"]
    assert "privileged" not in service
    assert "network_mode" not in service
    if "gpu" not in service.get("profiles", ()) or "entrypoint" in service:
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
    if name.startswith("load-"):
        assert "ports" not in service, "a load generator serves nothing"
    else:
        assert service["healthcheck"]["test"][0] == "CMD"
    for one, how in service.get("depends_on", {}).items():
        assert one in SERVICES
        assert how == {"condition": "service_healthy"}
        assert "healthcheck" in SERVICES[one]
        assert not SERVICES[one].get("profiles") or service.get("profiles"), "always on, and needs what is not"


def test_everything_mounted_is_there_and_read_only() -> None:
    declared = set(yaml.safe_load(COMPOSE.read_text())["volumes"])
    for name, service in SERVICES.items():
        for text in service.get("volumes", ()):
            source, target = interpolated(text).split(":")[:2]
            if source.startswith("."):
                assert (FOLDER / source).resolve().exists(), f"{name}: {source}"
                assert text.endswith(":ro"), f"{name}: {text}"
            else:
                assert source in declared
            assert target.startswith("/")


def test_what_may_be_set_is_in_the_example() -> None:
    example = dict(re.findall(r"^#(\w+)=(.+)$", (FOLDER / ".env.example").read_text(), re.MULTILINE))
    used = dict(re.findall(r"\$\{(\w+):-([^}]*)\}", COMPOSE.read_text()))
    assert example.keys() == used.keys() | {"COMPOSE_PROFILES"}
    for name in used.keys() - {"TRITON_MODELS"}:  # there the example is another folder than the default
        assert example[name] == used[name]


def test_published_ports_do_not_collide() -> None:
    published = [interpolated(port).rsplit(":", 1)[0] for service in SERVICES.values() for port in service.get("ports", ())]
    assert len(published) == len(set(published))


@pytest.mark.parametrize("name", [name for name, service in SERVICES.items() if "entrypoint" in service])
def test_our_commands_are_accepted_by_our_parser(name: str) -> None:
    command, *rest = SERVICES[name]["command"]
    parser_for(command).parse_args([command, *rest])  # SystemExit otherwise


def test_the_tools_image_has_what_its_commands_need() -> None:
    """The sidecar's image installs prometheus-client alone: the services it runs must not need more."""
    for service in SERVICES.values():
        if "entrypoint" in service:
            assert service["command"][0] in ("fake-engine", "sidecar")
            assert not [word for word in service["command"] if word.startswith("--recording")]
            assert (FOLDER / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
    lacks = ("cramjam", "grafanalib", "prometheus_api_client", "promql_parser", "pydantic", "requests", "rich", "yaml")
    program = f"""
import sys
sys.modules.update(dict.fromkeys({lacks}))
import obs.cli.main, obs.cli.fake_engine, obs.cli.sidecar
import obs.fake.generator, obs.fake.server, obs.fake.webhook, obs.fake.world, obs.sidecar.server
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.prometheus
def test_promtool_accepts_the_prometheus_configuration(tmp_path: Path) -> None:
    stack = Stack(tmp_path, ["prometheus"])
    found = stack.paths("prometheus", SERVICES["prometheus"])
    done = tools.run([tools.find("promtool"), "check", "config", found["/etc/prometheus/prometheus.yml"]])
    assert done.code == 0, done.output
    assert "rules found" in done.output


def test_amtool_accepts_the_routes_and_they_lead_to_the_webhook() -> None:
    amtool = shutil.which("amtool")
    if amtool is None:
        pytest.skip("amtool is not installed (make test-tools)")
    config = str(FOLDER / "deploy" / "alertmanager" / "alertmanager.yml")
    done = subprocess.run([amtool, "check-config", config], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for severity in ("critical", "warning", "info"):
        routed = subprocess.run([amtool, "config", "routes", "test", f"--config.file={config}",
                                 "alertname=InferenceTargetDown", f"severity={severity}"],
                                capture_output=True, text=True, check=True)
        assert routed.stdout.strip() == f"inference-{severity}"
    receivers = yaml.safe_load(Path(config).read_text(encoding="utf-8"))["receivers"]
    assert {one["webhook_configs"][0]["url"] for one in receivers} == {
        f"http://webhook:9902/{severity}" for severity in ("critical", "warning", "info")
    }


def test_grafana_finds_its_datasource_and_the_dashboards() -> None:
    grafana = SERVICES["grafana"]
    targets = {target: source for source, target in mounts(grafana)}
    provisioning = FOLDER / targets["/etc/grafana/provisioning"]
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "obs.yaml").read_text())["providers"]
    assert (FOLDER / targets[provider["options"]["path"]]).resolve() == ROOT / "dashboards"
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yaml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert re.fullmatch(r"[\w-]{1,40}", source["uid"])
    scraped = yaml.safe_load((FOLDER / "prometheus" / "prometheus.yml").read_text())["global"]["scrape_interval"]
    assert source["jsonData"]["timeInterval"] == scraped
    environment = grafana["environment"]
    assert environment["GF_AUTH_DISABLE_LOGIN_FORM"] == environment["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"
    assert environment["GF_AUTH_BASIC_ENABLED"] == "false"
