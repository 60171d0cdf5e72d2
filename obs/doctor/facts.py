"""What is known of the servers, in one value: the checks read it and nothing else.

None or empty where it could not be had: a check says nothing about what is not known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from obs.config import Config
from obs.doctor.life import Alive
from obs.doctor.releases import Release, container
from obs.prom.client import LoadedRule


class Sample(NamedTuple):
    """One series of a metrics page."""

    name: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True)
class Page:
    """A metrics page as served, or all pages of a recording (each series with its last value)."""

    place: str
    samples: tuple[Sample, ...]

    @property
    def names(self) -> frozenset[str]:
        return frozenset(sample.name for sample in self.samples)

    def of(self, name: str) -> Iterator[Sample]:
        return (sample for sample in self.samples if sample.name == name)


@dataclass(frozen=True)
class InstanceGroup:
    """One instance_group of a configuration. ``resources`` are the rate limiter's: name -> (count, global)."""

    kind: str = "KIND_AUTO"
    count: int = 1
    gpus: tuple[int, ...] = ()
    resources: Mapping[str, tuple[int, bool]] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelConfig:
    """A model's configuration, from its config.pbtxt or from the server. ``place`` is the file or the URL.

    ``dynamic_batching`` is None without one. ``version_policy`` has one key: latest, all or specific.
    """

    place: str
    model: str
    name: str = ""
    backend: str = ""
    platform: str = ""
    max_batch_size: int = 0
    dynamic_batching: Mapping[str, Any] | None = None
    instances: tuple[InstanceGroup, ...] = ()
    parameters: Mapping[str, str] = field(default_factory=dict)
    version_policy: Mapping[str, Any] = field(default_factory=dict)
    response_cache: bool = False
    decoupled: bool = False
    default_model_filename: str = ""
    without_dims: tuple[str, ...] = ()
    """Inputs and outputs that say no dims."""
    steps: tuple[str, ...] = ()
    """The models of an ensemble."""
    text: str = ""

    @property
    def ensemble(self) -> bool:
        return self.platform == "ensemble"

    @property
    def vllm(self) -> bool:
        return self.backend == "vllm"

    @property
    def trtllm(self) -> bool:
        """The C++ backend, or the Python one that reads the same parameters (the template's triton_backend)."""
        return self.backend == "tensorrtllm" or (self.backend == "python" and "gpt_model_path" in self.parameters)

    @property
    def gpu_instances(self) -> int:
        return sum(group.count for group in self.instances if group.kind == "KIND_GPU")

    def at(self, key: str, after: str = "") -> str:
        """``file:line:column`` of a key in the file (the first one behind ``after``); the place alone when not there.

        Comments are passed over; a key of parameters is found by its quoted text.
        """
        if not self.text:
            return self.place
        start = _find(self.text, after, 0) if after else 0
        found = _find(self.text, key, max(start, 0))
        if found < 0:
            return self.place
        line = self.text.count("\n", 0, found) + 1
        return f"{self.place}:{line}:{found - self.text.rfind(chr(10), 0, found)}"


def _find(text: str, key: str, start: int) -> int:
    word = re.compile(rf'"{re.escape(key)}"|(?<![\w"]){re.escape(key)}(?![\w"])')
    for match in word.finditer(text, start):
        line = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
        if "#" not in line:
            return match.start()
    return -1


@dataclass(frozen=True)
class ServedModel:
    """One line of Triton's repository index; ``state`` is "" for one that was never loaded."""

    name: str
    version: str
    state: str
    reason: str


@dataclass(frozen=True)
class Triton:
    """A Triton as its HTTP API tells it. ``counted``: finished requests per model, of the statistics extension.

    ``index`` and ``configs`` are None and short where the server would not tell.
    """

    url: str
    version: str = ""
    ready: bool | None = None
    live: bool | None = None
    index: tuple[ServedModel, ...] | None = None
    configs: Mapping[str, ModelConfig] = field(default_factory=dict)
    counted: Mapping[str, int] = field(default_factory=dict)

    @property
    def release(self) -> Release | None:
        return container(self.version)


@dataclass(frozen=True)
class Vllm:
    """A native vLLM server; ``models`` as /v1/models names them."""

    url: str
    version: str = ""
    models: tuple[str, ...] = ()


@dataclass(frozen=True)
class DiskVersion:
    """A version folder: its number and the files (relative) in it; ``size`` in bytes."""

    number: int
    files: tuple[str, ...]
    size: int


@dataclass(frozen=True)
class DiskModel:
    """One model folder of a repository. ``config`` is None without a readable config.pbtxt.

    ``broken`` is set when config.pbtxt cannot be read: (place with line and column, what the parser says).
    ``engine_args`` is vLLM's model.json of the newest version; ``engine_args_broken`` like ``broken``.
    ``imports`` are the top-level modules that model.py imports and that are neither Python's own nor beside it.
    """

    folder: str
    path: str
    config: ModelConfig | None = None
    broken: tuple[str, str] | None = None
    versions: tuple[DiskVersion, ...] = ()
    engine_args: Mapping[str, Any] | None = None
    engine_args_place: str = ""
    engine_args_broken: tuple[str, str] | None = None
    imports: tuple[str, ...] = ()
    source_broken: tuple[str, str] | None = None
    """model.py is no Python to this Python: like ``broken``."""
    completes: bool = False
    """model.py defines auto_complete_config."""
    beside: tuple[str, ...] = ()
    """What else lies in the model's folder: neither config.pbtxt nor a version that counts; folders end with "/"."""
    environment: tuple[str, bool] | None = None
    """EXECUTION_ENV_PATH with $$TRITON_MODEL_DIRECTORY put in, and whether it is there."""


@dataclass(frozen=True)
class Repository:
    """A model repository on disk. ``backends`` maps a backend's name to whether its library is there.

    ``backend_folder`` is "" when no folder of backends is known, and then ``backends`` is empty.
    """

    path: str
    models: tuple[DiskModel, ...]
    backend_folder: str = ""
    backends: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True)
class ScrapeTarget:
    """An active target of Prometheus. ``health``: up, down or unknown; ``interval`` in seconds (0 = not told)."""

    job: str
    instance: str
    pool: str
    url: str
    health: str
    last_error: str
    interval: float
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RuleGroup:
    """A loaded group; times in seconds."""

    name: str
    file: str
    interval: float
    evaluation: float


@dataclass(frozen=True)
class Prometheus:
    """A Prometheus and its like. What it would not tell is None.

    ``engine_targets``: (job, instance) of the series of engines that we know, and the engines' names.
    ``jobs``: the scrape_configs entry by job name. ``exported``: label -> jobs whose series carry it.
    ``skew``: its clock minus ours in seconds, at least that far from 0. ``untold``: the parts of the API that a server of
    its kind has not (Thanos, Mimir, VictoriaMetrics); ``victoria``: it is the last of these. ``alertmanagers``: the URLs of
    those that it has found; ``undelivered``: URL and notifications of the last 15 minutes that it could not send there.
    """

    url: str
    version: str = ""
    targets: tuple[ScrapeTarget, ...] | None = None
    engine_targets: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    jobs: Mapping[str, Mapping[str, Any]] | None = None
    groups: tuple[RuleGroup, ...] | None = None
    rules: tuple[LoadedRule, ...] | None = None
    exported: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    skew: float | None = None
    untold: tuple[str, ...] = ()
    victoria: bool = False
    alertmanagers: tuple[str, ...] | None = None
    undelivered: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Facts:
    """All that was found out. ``flags`` are the Triton's command line, None when it is not known.

    ``page`` is Triton's metrics page (or the recording's), ``vllm_page`` that of vLLM. ``alerts`` says of every alert,
    per source, whether it can work. ``metrics_url`` is where Triton's page was looked for; ``metrics_reason`` why it
    could not be had ("" = it could).
    """

    config: Config
    triton: Triton | None = None
    flags: Mapping[str, tuple[str, ...]] | None = None
    metrics_url: str = ""
    metrics_reason: str = ""
    page: Page | None = None
    vllm: Vllm | None = None
    vllm_page: Page | None = None
    repository: Repository | None = None
    prometheus: Prometheus | None = None
    recording: bool = False
    alerts: Mapping[str, Sequence[Alive]] = field(default_factory=dict)

    def configs(self) -> Iterator[ModelConfig]:
        """Every model's configuration once: from disk, where lines can be named, else from the server."""
        seen = set()
        for model in self.repository.models if self.repository else ():
            if model.config is not None:
                seen.add(model.folder)
                yield model.config
        for name, config in sorted(self.triton.configs.items() if self.triton else ()):
            if name not in seen:
                yield config

    def flag(self, name: str) -> str:
        """The last value of a flag of Triton's command line; "" when not given or not known."""
        return (self.flags or {}).get(name, ("",))[-1]

    def metrics_setting(self, name: str) -> str:
        """A ``--metrics-config name=value``; "" when not given or not known."""
        given = [one.partition("=")[2] for one in (self.flags or {}).get("metrics-config", ()) if one.partition("=")[0] == name]
        return given[-1] if given else ""
