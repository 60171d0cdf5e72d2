"""compose/compose.yaml started as processes on loopback: the same commands, the same mounted files.

What is changed, and nothing else: the names of the compose network and its ports become loopback addresses, the
container's paths of mounted files become those of the host, volumes become temporary folders, an image becomes the
program that it holds. A name that is found by DNS and runs here becomes a static target.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.triton.process import ServerFailed, ServingProcess, free_ports

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "compose" / "compose.yaml"
READY_SECONDS = 60
#: Image (without registry and tag) -> the programs that it can be here.
PROGRAMS = {"prom/prometheus": ("prometheus",), "prom/alertmanager": ("alertmanager", "prometheus-alertmanager")}
#: The ports on which a service's command listens by its own default.
_PORT_FLAG = re.compile(r"^(--(?:[a-z]+-)?port=)(\d+)$")


def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE.read_text())["services"]
    return found


def interpolated(text: str) -> str:
    """``${NAME:-default}`` with nothing set."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


def mounts(service: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(host path or volume name, container path)."""
    for one in service.get("volumes", ()):
        source, target = interpolated(one).split(":")[:2]
        yield source, target


def program(image: str) -> str | None:
    """The program on PATH that an image stands for."""
    name = re.sub(r"^docker\.io/|:[^:]*$", "", image)
    return next((path for one in PROGRAMS.get(name, ()) if (path := shutil.which(one))), None)


def ports_of(name: str, service: Mapping[str, Any]) -> set[int]:
    """Every port that a service listens on or that the files of the stack call it by."""
    text = COMPOSE.read_text() + "".join(path.read_text() for path in sorted((ROOT / "compose").rglob("*.y*ml")))
    called = {int(port) for port in re.findall(rf"\b{re.escape(name)}:(\d{{4,5}})\b", text)}
    own = {int(match[2]) for word in service["command"] if (match := _PORT_FLAG.match(word))}
    own |= {int(port) for word in service["command"] for port in re.findall(r"--web\.listen-address=[^:]*:(\d+)", word)}
    return called | own


class Stack:
    """``with Stack(folder, names) as stack``: the services started in the order of depends_on, each when it is healthy.

    ``replaced`` puts other folders in the place of mounted ones (host path as in the file -> path); ``elsewhere`` tells
    where services are that somebody else runs: (name, port) -> loopback port.
    """

    def __init__(self, folder: Path, names: Sequence[str], *, replaced: Mapping[str, Path] | None = None,
                 elsewhere: Mapping[tuple[str, int], int] | None = None) -> None:
        self.folder = folder
        self.replaced = dict(replaced or {})
        self.services = {name: service for name, service in services().items() if name in names}
        wanted = [(name, port) for name, service in self.services.items() for port in sorted(ports_of(name, service))]
        self.ports = {**dict(zip(wanted, free_ports(len(wanted)), strict=True)), **(elsewhere or {})}
        self.processes: dict[str, ServingProcess] = {}

    def __enter__(self) -> Stack:
        try:
            for name in self.order():
                self.start(name)
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        for process in self.processes.values():  # all at once: each may take its time
            process.process.terminate()
        for process in self.processes.values():
            process.end()

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def order(self) -> list[str]:
        done: list[str] = []
        while len(done) < len(self.services):
            ready = [name for name, service in self.services.items() if name not in done
                     and all(one in done or one not in self.services for one in service.get("depends_on", {}))]
            assert ready, "depends_on goes in a circle"
            done += ready
        return done

    def start(self, name: str) -> None:
        service = self.services[name]
        own = self.paths(name, service)
        words = [self.rewritten(name, word, own) for word in service["command"]]
        if "entrypoint" in service:
            assert service["entrypoint"][1:] == ["-m", "obs"]
            command = [sys.executable, "-m", "obs", *words]
        else:
            binary = program(service["image"])
            if binary is None:
                raise ServerFailed(f"no program here for {service['image']}")
            command = [binary, *words]
        process = self.processes[name] = ServingProcess(command, self.folder / f"{name}.log")
        if check := service.get("healthcheck"):
            address = re.search(r"http://127\.0\.0\.1:(\d+)(/[^'\"]*)", " ".join(check["test"]))
            assert address is not None
            process.wait_ready(self.ports[name, int(address[1])], address[2], READY_SECONDS)

    def paths(self, name: str, service: Mapping[str, Any]) -> dict[str, str]:
        """Container path -> host path. A configuration file is copied with its addresses rewritten."""
        found: dict[str, str] = {}
        configs: list[tuple[str, Path]] = []
        for source, target in mounts(service):
            if not source.startswith("."):
                place = self.folder / "volumes" / name
                place.mkdir(parents=True)
            else:
                place = self.replaced.get(source) or (COMPOSE.parent / source).resolve()
                if place.is_file():
                    configs.append((target, place))
                    place = self.folder / f"{name}.{place.name}"
            found[target] = str(place)
        for target, source_file in configs:
            text = self.discovered(self.addressed(source_file.read_text()))
            for inside, outside in found.items():
                text = text.replace(inside, outside)
            Path(found[target]).write_text(text)
        return found

    def rewritten(self, name: str, word: str, paths: Mapping[str, str]) -> str:
        word = self.addressed(interpolated(word))
        if match := _PORT_FLAG.match(word):
            return f"{match[1]}{self.ports[name, int(match[2])]}"
        if match := re.match(r"(--web\.listen-address=)0\.0\.0\.0:(\d+)$", word):
            return f"{match[1]}127.0.0.1:{self.ports[name, int(match[2])]}"
        word = word.replace("--listen-address=0.0.0.0", "--listen-address=127.0.0.1")
        for inside, outside in paths.items():
            if word.partition("=")[2] == inside:
                return f"{word.partition('=')[0]}={outside}"
        return word

    def addressed(self, text: str) -> str:
        """``fake-triton:8002`` as the loopback address at which that runs."""
        for (name, port), here in self.ports.items():
            text = re.sub(rf"(?<![\w-]){re.escape(name)}:{port}\b", f"127.0.0.1:{here}", text)
        return text

    def discovered(self, text: str) -> str:
        """Prometheus's targets by DNS as static ones, for the names that run."""
        if "dns_sd_configs" not in text:
            return text
        config = yaml.safe_load(text)
        for job in config["scrape_configs"]:
            for dns in job.get("dns_sd_configs", ()):
                here = [self.ports[name, dns["port"]] for name in dns["names"] if (name, dns["port"]) in self.ports]
                if here:
                    del job["dns_sd_configs"], job["relabel_configs"]
                    job["static_configs"] = [{"targets": [f"127.0.0.1:{port}" for port in here]}]
                    break
        return yaml.safe_dump(config, sort_keys=False)
