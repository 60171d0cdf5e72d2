"""A private Prometheus on loopback that scrapes one target every second and evaluates the given rule files."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .process import ServerFailed, ServingProcess, free_ports, get

READY_SECONDS = 20
INTERVAL = "1s"


def why_not() -> str | None:
    return None if shutil.which("prometheus") else "prometheus is not on PATH"


class Prometheus:
    def __init__(self, folder: Path, target: str, rule_files: Sequence[Path] = ()) -> None:
        self.folder = folder
        self.target = target
        self.rule_files = rule_files
        (self.port,) = free_ports(1)
        self.process: ServingProcess | None = None

    def __enter__(self) -> "Prometheus":
        config = {  # JSON is YAML.
            "global": {"scrape_interval": INTERVAL, "scrape_timeout": INTERVAL, "evaluation_interval": INTERVAL},
            "rule_files": [str(path) for path in self.rule_files],
            "scrape_configs": [{"job_name": "triton", "static_configs": [{"targets": [self.target]}]}],
        }
        config_file = self.folder / "prometheus.yml"
        config_file.write_text(json.dumps(config))
        command = [
            "prometheus",
            f"--config.file={config_file}",
            f"--storage.tsdb.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]
        self.process = ServingProcess(command, self.folder / "prometheus.log")
        try:
            self.process.wait_ready(self.port, "/-/ready", READY_SECONDS)
        except BaseException:
            self.process.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.process.end()

    def api(self, path: str) -> Any:
        status, body = get(self.port, f"/api/v1/{path}")
        if status != 200:
            raise ServerFailed(f"/api/v1/{path} answered {status}: {body.decode(errors='replace')}")
        return json.loads(body)["data"]

    def rules(self) -> list[dict[str, Any]]:
        return [rule for group in self.api("rules")["groups"] for rule in group["rules"]]

    def alerts(self, name: str) -> list[dict[str, Any]]:
        return [alert for alert in self.api("alerts")["alerts"] if alert["labels"]["alertname"] == name]
