"""``obs.yaml``: what may be configured, read, validated and explained.

Everything is optional. An unknown key, a value with the wrong unit or out of range is refused with one line
that names the file, the key path, the reason and, for a name, the nearest valid one.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from obs.catalog import scaling
from obs.catalog.endpoints import ENDPOINTS, EndpointName
from obs.catalog.limits import BURN_WINDOWS, BY_PATH, LIMITS, SEASONS, BurnWindow, Limit
from obs.engines import BY_NAME
from obs.errors import ConfigError, DeclarationError
from obs.promql import duration
from obs.schema import BeforeValidator, Refused, keys, validate
from obs.schema import Strict as _Strict

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

DEFAULT_RUNBOOKS = "https://github.com/obs-inference/obs/blob/main/alerts/runbooks"
DEFAULT_ENGINES: tuple[EngineName, ...] = ("triton", "triton-vllm", "triton-trtllm", "vllm", "dcgm", "sidecar")

_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d|w))+")
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
#: Labels that the rules themselves set, keep or match on; another meaning of one would merge or lose series.
_OWN_LABELS = frozenset({
    "alertname", "alertstate", "severity", "job", "instance", "model", "version", "engine", "le", "quantile", "source",
    "signal", "state", "reason", "status", "id", "gpu_uuid", "GPU_I_ID", "workload",
})


def seconds(value: object) -> float:
    """``"100ms"``, ``"5m"``, ``"1h30m"`` → seconds. Raises ``ValueError`` for anything without a unit."""
    if isinstance(value, bool) or not isinstance(value, str):
        raise ValueError(f"{value!r} has no unit; write a duration such as 100ms, 5m or 1h30m")
    text = value.strip()
    if not _DURATION.fullmatch(text):
        raise ValueError(f"{value!r} is not a duration; write one such as 100ms, 5m or 1h30m")
    return sum(float(count) * _SECONDS[unit] for count, unit in _PART.findall(text))


def ratio(value: object) -> float:
    """``0.9`` or ``"90%"`` → 0.9. Raises ``ValueError`` for a number that is not 0 to 1."""
    if isinstance(value, str) and re.fullmatch(r"\d+(?:\.\d+)?\s*%", value.strip()):
        return float(value.strip().rstrip("%")) / 100
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError(f"{value!r} is not a ratio; write 0 to 1 (such as 0.9) or a percentage (such as 90%)")
    return float(value)


def plain(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is not a number; write a plain number without a unit")
    return float(value)


_PARSERS: dict[str, Callable[[object], float]] = {
    "duration": seconds, "ratio": ratio, "number": plain, "factor": plain,
}


def show(value: float, quantity: str) -> str:
    """``value`` as it would be written in ``obs.yaml``."""
    return duration(value) if quantity == "duration" else f"{value:g}"


def _bounded(limit: Limit) -> Callable[[object], float]:
    parse = _PARSERS[limit.quantity]

    def check(value: object) -> float:
        parsed = parse(value)
        if not limit.low <= parsed <= limit.high:
            low, high = show(limit.low, limit.quantity), show(limit.high, limit.quantity)
            raise ValueError(f"{value!r} is out of range; write a value from {low} to {high}")
        return parsed

    return check


def _label_name(value: object) -> str:
    if not isinstance(value, str) or not _LABEL.fullmatch(value):
        raise ValueError(f"{value!r} is not a label name; use letters, digits and _")
    return value


def _free_label(value: object) -> str:
    name = _label_name(value)
    if name in _OWN_LABELS or name.startswith("__"):
        more = "; set it with alerts.<name>.severity" if name == "severity" else ""
        raise ValueError(f"{name!r} has a meaning of its own in the rules and may not be given another{more or '; rename it'}")
    return name


def _matchers(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f'{value!r} is not a list of matchers; write them as text, such as \'job="triton"\'')
    text = value.strip().strip("{}").strip()
    if not re.fullmatch(r'(?:[a-zA-Z_]\w*\s*(?:=|!=|=~|!~)\s*"(?:[^"\\]|\\.)*"\s*,?\s*)*', text):
        raise ValueError(f'{value!r} is not a list of matchers; write them such as job="triton",tier="prod"')
    text = _text(text).rstrip(", ")
    if text:
        import promql_parser

        try:
            promql_parser.parse(f"up{{{text}}}")
        except ValueError as error:
            raise ValueError(f"{value!r} is not a list of matchers: {str(error).splitlines()[0]}; mend it") from None
    return text


def _some(value: object) -> object:
    if value in ([], {}):
        raise ValueError("names nothing; write at least one, or leave the key out")
    return value


def _text(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{value!r} is not text")
    text = str(value)
    if re.search(r"[\x00-\x1f\x7f\ud800-\udfff]", text):
        raise ValueError(f"{value!r} holds a control character or half a character; write plain text on one line")
    return text


def _named(value: object) -> str:
    text = _text(value)
    if not text.strip():
        raise ValueError("is empty; write a name, or leave the key out")
    return text


def _template(value: object) -> str:
    """Text that Prometheus reads as a template."""
    text = _text(value)
    if re.sub(r"\{\{.*?\}\}", "", text).count("{{"):
        raise ValueError(f"{value!r} opens a template with {{{{ and does not close it; Prometheus refuses that; write }}}}")
    return text


Duration = Annotated[float, BeforeValidator(seconds)]
LabelName = Annotated[str, BeforeValidator(_label_name)]
Matchers = Annotated[str, BeforeValidator(_matchers)]
Text = Annotated[str, BeforeValidator(_text)]
Named = Annotated[str, BeforeValidator(_named)]
Template = Annotated[str, BeforeValidator(_template)]
FreeLabel = Annotated[str, BeforeValidator(_free_label)]
EngineName = Literal[
    "triton", "triton-vllm", "triton-trtllm", "vllm", "trtllm-serve", "dynamo", "sglang", "dcgm", "sidecar"
]
ENGINE_NAMES: tuple[str, ...] = get_args(EngineName)
Engines = Annotated[list[EngineName], BeforeValidator(_some)]
DialectName = Literal["standard", "ray", "ray-colon", "kserve"]


def _section(section: str) -> type[_Strict]:
    fields = {
        limit.key: Annotated[float | None, BeforeValidator(_bounded(limit))]
        for limit in LIMITS
        if limit.section == section
    }
    body = {"__module__": __name__, "__annotations__": fields, **dict.fromkeys(fields)}
    return type(f"_{section.title()}", (_Strict,), body)


_Slo = _section("slo")
_Limits = _section("limits")
_Windows = _section("windows")
GateCriterion = Literal["error_ratio", "queue_time", "latency_p99", "ttft_p99", "itl_p99", "throughput"]


class _Gate(_section("gate")):  # type: ignore[misc]
    require: list[GateCriterion] = field(default_factory=lambda: ["error_ratio"])


class _Labels(_Strict):
    cluster: FreeLabel = "cluster"
    namespace: FreeLabel = "namespace"
    pod: FreeLabel = "pod"


class _Interval(_Strict):
    scrape: Duration = 30.0
    evaluation: Duration = 30.0


class _Alert(_Strict):
    enabled: bool = True
    severity: Literal["critical", "warning", "info"] | None = None
    for_: Annotated[float | None, BeforeValidator(seconds)] = None
    keep_firing_for: Annotated[float | None, BeforeValidator(seconds)] = None
    labels: dict[FreeLabel, Template] = field(default_factory=dict)


class _Burn(_Strict):
    long: Duration
    short: Duration
    factor: Annotated[float, BeforeValidator(plain)]
    severity: Literal["critical", "warning"] = "critical"


def _kube_name(value: object) -> str:
    if not isinstance(value, str) or len(value) > 63 or not re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", value):
        raise ValueError(f"{value!r} is not a Kubernetes name; use at most 63 lower-case letters, digits and -")
    return value


def _replicas(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10_000:
        raise ValueError(
            f"{value!r} is not a number of replicas; write 1 or more: the signal lives in the pods, and from 0 nothing "
            "would wake them"
        )
    return value


def _signal_target(value: object) -> float:
    return ratio(value) if isinstance(value, str) else plain(value)


KubeName = Annotated[str, BeforeValidator(_kube_name)]
Replicas = Annotated[int, BeforeValidator(_replicas)]
WorkloadKind = Literal["Deployment", "StatefulSet", "InferenceService", "LLMInferenceService"]


class Workload(_Strict):
    """One LLM service that is scaled (``autoscaling.workloads``). Times in seconds; targets by ScalingSignal.key."""

    name: KubeName
    namespace: KubeName
    kind: WorkloadKind = "Deployment"
    engine: Literal["vllm", "triton-vllm", "triton-trtllm", "trtllm-serve", "sglang"]
    min_replicas: Replicas = scaling.MIN_REPLICAS
    max_replicas: Replicas
    targets: Annotated[dict[Text, Annotated[float, BeforeValidator(_signal_target)]], BeforeValidator(_some)] = field(
        default_factory=lambda: dict(scaling.TARGETS)
    )
    longest_generation: Duration = scaling.LONGEST_GENERATION
    scale_down_stabilization: Duration | None = None
    scale_up_stabilization: Duration = 0.0
    pod_labels: dict[Text, Text] = field(default_factory=dict)

    @property
    def signals(self) -> tuple[tuple[scaling.ScalingSignal, float], ...]:
        """The signals and their targets, the primary one first."""
        return tuple((scaling.BY_KEY[key], target) for key, target in self.targets.items())

    @property
    def stabilization(self) -> float:
        """Seconds of the scale-down window: HPA's default, or the longest generation if that is longer."""
        given = self.scale_down_stabilization
        return max(scaling.LONGEST_GENERATION, self.longest_generation) if given is None else given


def _url(value: object) -> str:
    """An http(s) URL with a host, or "" for none."""
    if value == "" or (isinstance(value, str) and re.fullmatch(r"https?://[^\s/?#]+[^\s]*", value)):
        return str(value)
    raise ValueError(f"{value!r} is not a URL; write one such as http://prometheus:9090")


def _object_name(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[a-zA-Z0-9]([-._a-zA-Z0-9]*[a-zA-Z0-9])?", value):
        raise ValueError(f"{value!r} is not a name; use letters, digits, -, _ and .")
    return value


def _kube_label(value: object) -> str:
    """Kubernetes' own form of a label's key: an optional prefix with a slash, and a name of at most 63 characters."""
    form = r"([a-z0-9][-.a-z0-9]*/)?[a-zA-Z0-9]([-._a-zA-Z0-9]{0,61}[a-zA-Z0-9])?"
    if not isinstance(value, str) or not re.fullmatch(form, value):
        raise ValueError(f"{value!r} is not a Kubernetes label or annotation; write one such as release or example.org/team")
    return value


def _kube_value(value: object) -> str:
    text = _text(value)
    if not re.fullmatch(r"([a-zA-Z0-9]([-._a-zA-Z0-9]{0,61}[a-zA-Z0-9])?)?", text):
        raise ValueError(f"{value!r} is not a Kubernetes label's value; use at most 63 letters, digits, -, _ and .")
    return text


def _address(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"(\[[0-9a-fA-F:]+\]|[^\s/:]+):\d{1,5}", value):
        raise ValueError(f"{value!r} is not host:port; write a target such as triton-0:8002, without http://")
    return value


Url = Annotated[str, BeforeValidator(_url)]
ObjectName = Annotated[str, BeforeValidator(_object_name)]
KubeLabels = dict[Annotated[str, BeforeValidator(_kube_label)], Annotated[str, BeforeValidator(_kube_value)]]


def _stack() -> dict[str, str]:
    return {"release": "kube-prometheus-stack"}


class _Autoscaling(_Strict):
    workloads: Annotated[list[Workload], BeforeValidator(_some)]
    prometheus: Url = "http://prometheus-operated.monitoring.svc:9090"
    kserve_mode: Literal["Standard", "RawDeployment"] = "Standard"
    rule_labels: KubeLabels = field(default_factory=lambda: {"release": "kube-prometheus-stack"})


class Target(_Strict):
    """How one kind of server is found (``deploy.targets``); what is left out is the endpoint's own default."""

    job: Named | None = None
    labels: KubeLabels | None = None
    port: ObjectName | None = None
    path: Named | None = None
    namespaces: list[KubeName] = field(default_factory=list)
    interval: Duration | None = None
    timeout: Duration | None = None
    static: list[Annotated[str, BeforeValidator(_address)]] = field(default_factory=list)


class Datasource(_Strict):
    name: Named = "Prometheus"
    uid: ObjectName = "prometheus"
    url: Url = "http://prometheus-operated.monitoring.svc:9090"


class Grafana(_Strict):
    folder: Text = "Inference"
    folder_annotation: Annotated[str, BeforeValidator(_kube_label)] = "grafana_folder"
    dashboard_labels: KubeLabels = field(default_factory=lambda: {"grafana_dashboard": "1"})
    instance_labels: KubeLabels = field(default_factory=lambda: {"dashboards": "grafana"})
    dashboards_path: Named = "/etc/grafana/provisioning/dashboards/obs"


class Receivers(_Strict):
    """Alertmanager, and where it sends the pack's alerts, by severity: webhooks; "" sends nothing."""

    critical: Url = "http://127.0.0.1:5001/critical"
    warning: Url = "http://127.0.0.1:5001/warning"
    info: Url = ""
    address: Annotated[str, BeforeValidator(_address)] = "127.0.0.1:9093"
    group_wait: Duration = 30.0
    group_interval: Duration = 300.0
    gpu_inhibits_latency: bool = False


class Deploy(_Strict):
    """Where the pack goes (``obs build --format``). The defaults are those of kube-prometheus-stack."""

    namespace: KubeName = "monitoring"
    prometheus_rule_labels: KubeLabels = field(default_factory=_stack)
    monitor_labels: KubeLabels = field(default_factory=_stack)
    targets: dict[EndpointName, Target] = field(default_factory=dict)
    datasource: Datasource = field(default_factory=Datasource)
    grafana: Grafana = field(default_factory=Grafana)
    alertmanager: Receivers = field(default_factory=Receivers)
    ruler_namespace: ObjectName = "obs-inference"


class _File(_Strict):
    engines: Engines = field(default_factory=lambda: list(DEFAULT_ENGINES))
    dialects: dict[EngineName, list[DialectName]] = field(default_factory=dict)
    selectors: dict[EngineName, Matchers] = field(default_factory=dict)
    jobs: list[Named] = field(default_factory=list)
    labels: _Labels = field(default_factory=_Labels)
    interval: _Interval = field(default_factory=_Interval)
    slo: _Slo = field(default_factory=_Slo)  # type: ignore[valid-type]
    models: dict[Named, _Slo] = field(default_factory=dict)  # type: ignore[valid-type]
    limits: _Limits = field(default_factory=_Limits)  # type: ignore[valid-type]
    windows: _Windows = field(default_factory=_Windows)  # type: ignore[valid-type]
    gate: _Gate = field(default_factory=_Gate)
    seasons: list[Duration] = field(default_factory=lambda: list(SEASONS))
    burn_windows: list[_Burn] = field(default_factory=list)
    alerts: dict[Text, _Alert] = field(default_factory=dict)
    extra_labels: dict[FreeLabel, Template] = field(default_factory=dict)
    runbook_base_url: Template = DEFAULT_RUNBOOKS
    ensembles: dict[Named, list[Named]] = field(default_factory=dict)
    idle_exclude: list[Named] = field(default_factory=list)
    expected_gpus: dict[Named, int] = field(default_factory=dict)
    aliases: dict[Named, Named] = field(default_factory=dict)
    autoscaling: _Autoscaling | None = None
    deploy: Deploy = field(default_factory=Deploy)


@dataclass(frozen=True)
class AlertOverride:
    """What ``alerts.<name>`` (or ``alerts."*"``) changes; ``None`` leaves the pack's own value."""

    enabled: bool = True
    severity: Literal["critical", "warning", "info"] | None = None
    for_: float | None = None
    keep_firing_for: float | None = None
    labels: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Setting:
    """One line of ``obs config --show``: key path, value as written, where it comes from and why."""

    path: str
    value: str
    origin: str
    why: str


class Config:
    """The effective configuration: the defaults with ``obs.yaml`` laid over them."""

    def __init__(self, given: _File, path: str = "defaults") -> None:
        self._given = given
        self.path = path

    # -- plain parts ------------------------------------------------------------------------------
    @cached_property
    def engines(self) -> tuple[str, ...]:
        """In the catalogue's order. A backend's models live in Triton, whose own series tell of their loading and requests."""
        given = set(self._given.engines)
        if any(BY_NAME[name].hides or BY_NAME[name].inherits for name in given):
            given.add("triton")
        return tuple(name for name in ENGINE_NAMES if name in given)

    def dialects(self, engine: str) -> tuple[str, ...]:
        return tuple(self._given.dialects.get(engine, ("standard",)))  # type: ignore[call-overload]

    def selector(self, engine: str) -> str:
        """Matchers that every series of this engine must satisfy ("" = any)."""
        return str(self._given.selectors.get(engine, ""))  # type: ignore[call-overload]

    @property
    def jobs(self) -> tuple[str, ...]:
        return tuple(self._given.jobs)

    @property
    def cluster(self) -> str:
        return self._given.labels.cluster

    @property
    def namespace(self) -> str:
        return self._given.labels.namespace

    @property
    def pod(self) -> str:
        return self._given.labels.pod

    @property
    def scrape_interval(self) -> float:
        return self._given.interval.scrape

    @property
    def evaluation_interval(self) -> float:
        return self._given.interval.evaluation

    @property
    def extra_labels(self) -> Mapping[str, str]:
        return self._given.extra_labels

    @property
    def runbook_base_url(self) -> str:
        return self._given.runbook_base_url.rstrip("/")

    @property
    def ensembles(self) -> Mapping[str, list[str]]:
        return self._given.ensembles

    @property
    def idle_exclude(self) -> tuple[str, ...]:
        return tuple(self._given.idle_exclude)

    @property
    def expected_gpus(self) -> Mapping[str, int]:
        """job → number of GPUs that each of its servers must report."""
        return self._given.expected_gpus

    @property
    def aliases(self) -> Mapping[str, str]:
        return self._given.aliases

    @property
    def seasons(self) -> tuple[float, ...]:
        return tuple(self._given.seasons)

    def changed(self, path: str, value: float) -> Config:
        """This configuration with the number at ``path`` (``slo.queue_time``) replaced; an objective also for every
        model that declares its own. ``ConfigError`` when the path is none or the value is out of range."""
        limit = BY_PATH.get(path)
        if limit is None:
            raise ConfigError(f"{self.path}: {path}: no such number; {nearest(path, BY_PATH)}")
        if not limit.low <= value <= limit.high:
            low, high = show(limit.low, limit.quantity), show(limit.high, limit.quantity)
            shown = show(value, limit.quantity)
            raise ConfigError(f"{self.path}: {path}: {shown} is out of range; write a value from {low} to {high}")
        section = getattr(self._given, limit.section)
        update: dict[str, Any] = {limit.section: _with(section, limit.key, value)}
        if limit.section == "slo":
            update["models"] = {
                name: own if getattr(own, limit.key) is None else _with(own, limit.key, value)
                for name, own in self._given.models.items()
            }
        return Config(self._given.model_copy(update=update), self.path)

    @property
    def burn_windows(self) -> tuple[BurnWindow, ...]:
        given = self._given.burn_windows
        return tuple(BurnWindow(b.long, b.short, b.factor, b.severity) for b in given) or BURN_WINDOWS

    # -- autoscaling ------------------------------------------------------------------------------
    @property
    def workloads(self) -> tuple[Workload, ...]:
        """The LLM services that are scaled; none without the section ``autoscaling``."""
        return tuple(self._given.autoscaling.workloads) if self._given.autoscaling else ()

    @property
    def scaler_prometheus(self) -> str:
        """Prometheus' address as KEDA reaches it."""
        return self._given.autoscaling.prometheus.rstrip("/") if self._given.autoscaling else ""

    @property
    def kserve_mode(self) -> str:
        return self._given.autoscaling.kserve_mode if self._given.autoscaling else "Standard"

    @property
    def rule_labels(self) -> Mapping[str, str]:
        """The labels of a PrometheusRule, which Prometheus' ``ruleSelector`` asks for."""
        return self._given.autoscaling.rule_labels if self._given.autoscaling else {}

    @property
    def deploy(self) -> Deploy:
        """Where the pack goes: names, labels and selectors of ``obs build --format``."""
        return self._given.deploy

    # -- numbers ----------------------------------------------------------------------------------
    def limit(self, key: str) -> float:
        """The threshold ``limits.<key>``. ``KeyError`` for an unknown key."""
        return self._number("limits", key)

    def window(self, key: str) -> float:
        """The window ``windows.<key>`` in seconds; ``rate`` is at least 4 scrapes."""
        value = self._number("windows", key)
        return max(value, 4 * self.scrape_interval) if key == "rate" else value

    @property
    def hold(self) -> float:
        """Seconds for which the last sample of a gauge stands in for lost ones: 4 scrapes."""
        return 4 * self.scrape_interval

    def gate(self, key: str) -> float | None:
        """The number ``gate.<key>`` of the canary gate; None where nothing is declared. ``KeyError`` for another key."""
        given: float | None = getattr(self._given.gate, key)
        return BY_PATH[f"gate.{key}"].default if given is None else given

    @property
    def gate_require(self) -> tuple[GateCriterion, ...]:
        """The criteria without which a canary does not pass."""
        return tuple(self._given.gate.require)

    def slo(self, key: str) -> float | None:
        """The objective ``slo.<key>`` for models that declare none of their own."""
        given: float | None = getattr(self._given.slo, key)
        return self._default(BY_PATH[f"slo.{key}"]) if given is None else given

    def _default(self, limit: Limit) -> float | None:
        """The limit's default with the configured engines: see ``Limit.alone``."""
        llm = [name for name in self.engines if BY_NAME[name].preallocates_gpu_memory]
        return limit.alone.get(llm[0], limit.default) if len(llm) == 1 else limit.default

    def slo_given(self, key: str) -> bool:
        """Whether the user set ``slo.<key>``."""
        return getattr(self._given.slo, key) is not None

    def model_slos(self, key: str) -> dict[str, float]:
        """model → its own objective ``models.<model>.<key>``, for the models that declare it; sorted."""
        found = {name: getattr(slo, key) for name, slo in sorted(self._given.models.items())}
        return {name: value for name, value in found.items() if value is not None}

    def _number(self, section: str, key: str) -> float:
        limit = BY_PATH.get(f"{section}.{key}")
        if limit is None:
            raise DeclarationError(
                f"obs/catalog/limits.py: {section}.{key}: no such limit; declare it there, with its reason "
                f"({nearest(f'{section}.{key}', BY_PATH)})"
            )
        given = getattr(getattr(self._given, section), key)
        value = limit.default if given is None else given
        assert value is not None
        return float(value)

    # -- alerts -----------------------------------------------------------------------------------
    @cached_property
    def alert_names(self) -> tuple[str, ...]:
        return tuple(self._given.alerts)

    def override(self, alert: str) -> AlertOverride:
        """``alerts.<alert>`` over ``alerts."*"``."""
        every, own = self._given.alerts.get("*", _Alert()), self._given.alerts.get(alert, _Alert())

        def pick(key: str) -> Any:
            value = getattr(own, key)
            return getattr(every, key) if value is None else value

        return AlertOverride(
            enabled=own.enabled if "enabled" in own.model_fields_set else every.enabled,
            severity=pick("severity"),
            for_=pick("for_"),
            keep_firing_for=pick("keep_firing_for"),
            labels={**every.labels, **own.labels},
        )

    # -- explanation ------------------------------------------------------------------------------
    def settings(self) -> list[Setting]:
        """Every effective value with its origin and reason, in the order of the file format."""
        g = self._given
        rows: list[Setting] = []

        def add(path: str, value: object, is_given: bool, why: str) -> None:
            rows.append(Setting(path, str(value), self.path if is_given else "default", why))

        top = g.model_fields_set
        add("engines", ", ".join(self.engines), "engines" in top, "servers whose rules and panels are built")
        for engine in self.engines:
            if engine in g.dialects:
                add(f"dialects.{engine}", ", ".join(self.dialects(engine)), True, "spellings of its metric names")
            add(f"selectors.{engine}", self.selector(engine) or "(any)", engine in g.selectors,
                "matchers that its series must satisfy")
        add("jobs", ", ".join(self.jobs) or "(any that served an engine's metrics)", "jobs" in top,
            "scrape jobs watched for being down")
        for key, what in (("cluster", "cluster"), ("namespace", "namespace"), ("pod", "pod")):
            add(f"labels.{key}", getattr(g.labels, key), key in g.labels.model_fields_set,
                f"target label that names the {what}")
        add("interval.scrape", duration(self.scrape_interval), "scrape" in g.interval.model_fields_set,
            "scrape interval of the servers; every range is at least 4 of it")
        add("interval.evaluation", duration(self.evaluation_interval), "evaluation" in g.interval.model_fields_set,
            "evaluation interval of the rule groups")
        for limit in LIMITS:
            given = getattr(getattr(g, limit.section), limit.key)
            if limit.section == "windows":
                value: float | None = self.window(limit.key)
            else:
                value = self._default(limit) if given is None else given
            why = limit.why
            if given is None and value != limit.default and limit.default is not None and limit.alone:
                usual = show(limit.default, limit.quantity)
                why = f"{usual} in other packs, which is no bucket bound of the only LLM engine here"
            if limit.path == "windows.rate" and value != (limit.default if given is None else given):
                why += f"; raised to 4 x interval.scrape = {duration(4 * self.scrape_interval)}"
            add(limit.path, "(not declared)" if value is None else show(value, limit.quantity), given is not None, why)
        add("gate.require", ", ".join(self.gate_require) or "(none)", "require" in g.gate.model_fields_set,
            "criteria that must be measured for a pass; of the times at least one must be, whichever")
        add("seasons", ", ".join(duration(s) for s in self.seasons) or "(none)", "seasons" in top,
            "'the same time before' that traffic is compared with")
        for window in self.burn_windows:
            add(f"burn_windows.{duration(window.long)}/{duration(window.short)}", f"{window.factor:g}",
                bool(g.burn_windows), f"burn-rate factor, severity {window.severity}")
        for model, slo in sorted(g.models.items()):
            for limit in LIMITS:
                if limit.section == "slo" and getattr(slo, limit.key) is not None:
                    add(f"models.{model}.{limit.key}", show(getattr(slo, limit.key), limit.quantity), True, limit.why)
        for name in self.alert_names:
            add(f"alerts.{name}", g.alerts[name].written(), True,
                "changes to this alert" if name != "*" else "changes to every alert")
        add("extra_labels", dict(self.extra_labels), "extra_labels" in top, "labels added to every alert")
        add("runbook_base_url", self.runbook_base_url, "runbook_base_url" in top, "start of every runbook_url")
        add("ensembles", dict(self.ensembles), "ensembles" in top, "ensemble: its steps, which are not idle by themselves")
        add("idle_exclude", ", ".join(self.idle_exclude) or "(none)", "idle_exclude" in top, "models never called idle")
        add("expected_gpus", dict(self.expected_gpus), "expected_gpus" in top, "GPUs each server of a job must report")
        add("aliases", dict(self.aliases), "aliases" in top, "served model name: the name to record it under")
        rows += _deploy_rows(g.deploy, self.path)
        if g.autoscaling is None:
            add("autoscaling", "(none)", False, "LLM services to scale: without it no autoscaler is written")
            return rows
        given = g.autoscaling.model_fields_set
        add("autoscaling.prometheus", self.scaler_prometheus, "prometheus" in given, "Prometheus as KEDA reaches it")
        add("autoscaling.kserve_mode", self.kserve_mode, "kserve_mode" in given,
            "KServe's deployment mode with autoscalers of its own choice; called RawDeployment before 0.16")
        add("autoscaling.rule_labels", dict(self.rule_labels), "rule_labels" in given,
            "labels that your Prometheus' ruleSelector asks for; without them the rules are ignored")
        for workload in self.workloads:
            for key, text, why in _workload_rows(workload):
                add(f"autoscaling.{workload.namespace}/{workload.name}.{key}", text,
                    key.split(".")[0] in workload.model_fields_set, why)
        return rows


def _with(section: _Strict, key: str, value: float) -> _Strict:
    return section.model_copy(update={key: value})


_DEPLOY_WHY = {
    "namespace": "namespace of the objects",
    "prometheus_rule_labels": "labels that your Prometheus' ruleSelector asks for; without them the rules are ignored",
    "monitor_labels": "labels that its podMonitorSelector and serviceMonitorSelector ask for",
    "ruler_namespace": "namespace of the rules in Mimir's or Cortex' ruler",
    "datasource.name": "Grafana's data source, as provisioned",
    "datasource.uid": "its uid",
    "datasource.url": "Prometheus as Grafana reaches it",
    "grafana.folder": "Grafana folder of the dashboards",
    "grafana.folder_annotation": "annotation that Grafana's sidecar reads the folder from (its folderAnnotation)",
    "grafana.dashboard_labels": "labels by which Grafana's sidecar finds the ConfigMaps",
    "grafana.instance_labels": "labels of the Grafana that grafana-operator gives the dashboards to",
    "grafana.dashboards_path": "folder of the dashboards as Grafana sees it",
    "alertmanager.critical": "webhook that pages",
    "alertmanager.warning": "webhook that makes a ticket",
    "alertmanager.info": "webhook for what is only to be seen; without one Alertmanager shows it and sends nothing",
    "alertmanager.address": "Alertmanager as Prometheus reaches it",
    "alertmanager.group_wait": "a group waits so long for what fails together",
    "alertmanager.group_interval": "and so long before it tells of what joined it, or ended",
    "alertmanager.gpu_inhibits_latency": "GPUMemoryHigh silences latency of its whole cluster: a GPU's series name no model",
}


def _deploy_rows(deploy: Deploy, path: str) -> list[Setting]:
    """Each setting of ``deploy``, with what the file gives of ``targets``."""
    rows = []
    for key, why in _DEPLOY_WHY.items():
        holder: _Strict = deploy
        *outer, name = key.split(".")
        for part in outer:
            holder = getattr(holder, part)
        value = getattr(holder, name)
        text = str(value).lower() if isinstance(value, bool) else str(value) if value else "(none)"
        rows.append(Setting(f"deploy.{key}", text, path if name in holder.model_fields_set else "default", why))
    for endpoint in ENDPOINTS:
        if endpoint.name in deploy.targets:
            rows.append(Setting(f"deploy.targets.{endpoint.name}", str(deploy.targets[endpoint.name].written()), path,
                                "how its servers are found and scraped"))
    return rows


def _workload_rows(workload: Workload) -> list[tuple[str, str, str]]:
    """(key, value as written, reason) of each setting of a workload."""
    rows = [
        ("kind", workload.kind, "what is scaled"),
        ("engine", workload.engine, "whose signals its sidecars serve"),
        ("min_replicas", str(workload.min_replicas),
         "resident: a pod needs minutes to load its model; 2 keep serving when one dies"),
        ("max_replicas", str(workload.max_replicas), "what the GPUs and the budget allow"),
    ]
    for signal, target in workload.signals:
        rows.append((f"targets.{signal.key}", f"{target:g}", signal.why))
    rows += [
        ("longest_generation", duration(workload.longest_generation),
         f"the longest answer: a pod is given this and {scaling.DRAIN:g} s to end"),
        ("scale_down_stabilization", duration(workload.stabilization),
         "how long the load must be low before a pod goes; at least the longest generation, or answers are cut off"),
        ("scale_up_stabilization", duration(workload.scale_up_stabilization),
         "how long the load must be high before a pod comes; each second adds to the minutes of its start"),
        ("pod_labels", str(dict(workload.pod_labels) or "(by kind)"), "labels that select its pods"),
    ]
    return rows


def load_config(path: Path | None = None) -> Config:
    """Read ``path``; without one, ``obs.yaml`` in the working directory if it is there, else the defaults.

    Raises ``ConfigError`` whose text has one line per fault.
    """
    if path is None:
        path = Path("obs.yaml")
        if not path.exists():
            return Config(_File())
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}; give a readable YAML file with --config") from error
    return parse_config(text, str(path))


def parse_config(text: str, path: str = "obs.yaml") -> Config:
    """Parse and validate the text of ``obs.yaml``; ``path`` is named in errors."""
    import yaml  # not needed by a command that runs on the defaults

    from obs.uniquekeys import UniqueKeyLoader

    try:
        data = yaml.load(text, Loader=UniqueKeyLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else path
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise ConfigError(f"{where}: not valid YAML: {problem}; mend the line") from error
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: holds a {type(data).__name__}; write a mapping of keys such as 'engines: [vllm]'")
    try:
        given = validate(_File, data)
    except Refused as error:
        raise ConfigError("\n".join(_line(path, detail) for detail in error.details)) from None
    _cross_check(given, path)
    return Config(given, path)


def nearest(name: str, valid: Iterable[str]) -> str:
    """``"; did you mean 'x'?"`` or, with nothing near, the list of valid names."""
    names = sorted(valid)
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean '{close[0]}'?" if close else f"valid: {', '.join(names)}"


def _line(path: str, detail: ErrorDetails) -> str:
    location = [part for part in detail["loc"] if part != "[key]"]
    key = ".".join(str(part) for part in location)
    kind = detail["type"]
    if kind == "unexpected_keyword_argument":
        return f"{path}: {key}: unknown key; {nearest(str(location[-1]), _keys_at(location[:-1]))}"
    if kind == "literal_error":
        expected = re.findall(r"'([^']*)'", str(detail.get("ctx", {}).get("expected", "")))
        value = str(detail["input"])
        return f"{path}: {key}: {value!r} is not one of its values; {nearest(value, expected)}"
    message = detail["msg"].removeprefix("Value error, ")
    if kind in ("dataclass_type", "dict_type"):
        message = f"{detail['input']!r} is not a mapping of keys; write 'key: value' lines under it"
    elif kind != "value_error":
        message = f"{message[0].lower()}{message[1:]}; got {detail['input']!r}"
    return f"{path}: {key or '(top)'}: {message}"


def _keys_at(location: list[Any]) -> list[str]:
    """The valid keys of the mapping at ``location``."""
    model: Any = _File
    for part in location:
        if model is _File and part == "models":
            model = _Slo
        elif model is _File and part == "alerts":
            model = _Alert
        elif model is _File and part == "burn_windows":
            model = _Burn
        elif isinstance(model, type) and issubclass(model, _Strict) and part in keys(model):
            model = _model_of(keys(model)[part]) or model
    return list(keys(model))


def _model_of(annotation: Any) -> type[_Strict] | None:
    """The model in ``Model``, ``Model | None`` or ``list[Model]``."""
    if isinstance(annotation, type) and issubclass(annotation, _Strict):
        return annotation
    return next((found for found in map(_model_of, get_args(annotation)) if found), None)


def _cross_check(given: _File, path: str) -> None:
    """What no single value shows."""

    def refuse(key: str, reason: str) -> None:
        raise ConfigError(f"{path}: {key}: {reason}")

    if given.interval.scrape <= 0 or given.interval.evaluation <= 0:
        refuse("interval", "an interval must be above 0; write one such as 30s")
    for limit in LIMITS:
        key = limit.key
        window = getattr(given.windows, key) if limit.section == "windows" else None
        if key != "baseline_gap" and window is not None and window < 4 * given.interval.scrape:
            need = duration(4 * given.interval.scrape)
            refuse(f"windows.{key}", f"{duration(window)} is shorter than 4 scrapes; write at least {need} or leave it out")
    for engine in given.dialects:
        if engine != "vllm" and set(given.dialects[engine]) != {"standard"}:
            refuse(f"dialects.{engine}", "only vllm has other spellings; leave it out")
    if "trtllm-serve" in given.engines and not given.selectors.get("trtllm-serve"):
        refuse("selectors.trtllm-serve", "its metric names have no prefix and clash with other programs'; "
               "name its job, such as 'job=\"trtllm\"'")
    for index, burn in enumerate(given.burn_windows):
        if burn.short >= burn.long or burn.factor <= 0:
            refuse(f"burn_windows.{index}", "short must be below long, and factor above 0")
    for job, count in given.expected_gpus.items():
        if count < 1:
            refuse(f"expected_gpus.{job}", f"{count} is not a number of GPUs; write 1 or more")
    for ensemble, steps in given.ensembles.items():
        if ensemble in steps:
            refuse(f"ensembles.{ensemble}", "an ensemble cannot be its own step; list only its steps")
    labels = [given.labels.cluster, given.labels.namespace, given.labels.pod]
    if len(set(labels)) != 3:
        refuse("labels", "cluster, namespace and pod must be three different labels")
    for name, target in given.deploy.targets.items():
        interval = given.interval.scrape if target.interval is None else target.interval
        if interval <= 0 or (target.interval is not None and target.interval > given.interval.scrape):
            refuse(f"deploy.targets.{name}.interval", f"{duration(interval)} is not above 0s and at most interval.scrape "
                   f"{duration(given.interval.scrape)}, which the ranges of the rules are made for")
        if target.timeout is not None and not 0 < target.timeout <= interval:
            refuse(f"deploy.targets.{name}.timeout", f"{duration(target.timeout)} is not above 0s and at most the interval "
                   f"{duration(interval)}; Prometheus refuses that")
    if given.deploy.alertmanager.group_interval <= 0:
        refuse("deploy.alertmanager.group_interval", "0s is no interval, Alertmanager refuses it; write one such as 5m")
    _check_jobs(given, refuse)
    if given.autoscaling is not None:
        _check_workloads(given.autoscaling.workloads, refuse)


def _check_jobs(given: _File, refuse: Callable[[str, str], None]) -> None:
    """One job for one kind of server: Prometheus refuses a second scrape configuration of the same name."""
    seen: dict[str, EndpointName] = {}
    for endpoint in ENDPOINTS:
        if endpoint.name not in given.deploy.targets and not set(endpoint.engines) & set(given.engines):
            continue
        target = given.deploy.targets.get(endpoint.name, Target())
        job = target.job or endpoint.job
        if job in seen:
            key = next(name for name in (endpoint.name, seen[job]) if given.deploy.targets.get(name, Target()).job)
            refuse(f"deploy.targets.{key}.job", f"{job!r} is the job of {seen[job]} and of {endpoint.name}; give each its own")
        seen[job] = endpoint.name


def _check_workloads(workloads: list[Workload], refuse: Callable[[str, str], None]) -> None:
    seen: set[tuple[str, str]] = set()
    for index, one in enumerate(workloads):
        key = f"autoscaling.workloads.{index}"
        if (one.namespace, one.name) in seen:
            refuse(f"{key}.name", f"{one.namespace}/{one.name} is given twice; one autoscaler owns one workload")
        seen.add((one.namespace, one.name))
        if one.min_replicas > one.max_replicas:
            refuse(f"{key}.min_replicas", f"{one.min_replicas} is above max_replicas {one.max_replicas}; swap them")
        if len(one.name) > scaling.POD_NAME_MAX - len("-predictor"):
            refuse(f"{key}.name", f"{one.name!r} has {len(one.name)} letters; with more than "
                   f"{scaling.POD_NAME_MAX - len('-predictor')} Kubernetes cuts its pods' names and no query finds them")
        for name, target in one.targets.items():
            signal = scaling.BY_KEY.get(name)
            if signal is None:
                refuse(f"{key}.targets.{name}", f"unknown signal; {nearest(name, scaling.BY_KEY)}")
            elif not 0 < target <= signal.high:
                more = f"; write it as a fraction, such as {target / 100:g}" if signal.ratio and 2 <= target <= 100 else ""
                refuse(f"{key}.targets.{name}", f"{target:g} is not above 0 and at most {signal.high:g} ({signal.why}){more}")
        if not any(signal.busy for signal, _ in one.signals):
            refuse(f"{key}.targets", "waiting requests alone invite a scale-in while others still run; add load_ratio")
        if one.stabilization < one.longest_generation:
            refuse(f"{key}.scale_down_stabilization", f"{duration(one.stabilization)} is shorter than longest_generation "
                   f"{duration(one.longest_generation)}; write at least that")
        for name in ("longest_generation", "scale_down_stabilization", "scale_up_stabilization"):
            value = getattr(one, name)
            if value is not None and value > scaling.STABILIZATION_MAX:
                refuse(f"{key}.{name}", f"{duration(value)} is longer than 1h, the longest window that Kubernetes takes")
        if one.longest_generation <= 0:
            refuse(f"{key}.longest_generation", "0s is no answer; write the longest that you allow, such as 5m")
