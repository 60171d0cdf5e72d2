"""What scales what: HPA, KEDA's ScaledObject and KServe's services seen as one thing, a ``Scaler`` with triggers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import yaml

from obs.checks.manifests.objects import Keys, Manifest, number, quantity, text
from obs.checks.rulefiles import Text
from obs.checks.syntax import Node, Selector, parse

CLASS = "serving.kserve.io/autoscalerClass"
MODE = "serving.kserve.io/deploymentMode"


@dataclass(frozen=True, eq=False)
class Trigger:
    """One metric that a scaler follows.

    ``type`` is KEDA's (``prometheus``, ``metrics-api``, ``cpu``, …) or HPA's (``Pods``, ``External``, …). ``metric`` is
    the name where there is no query. ``metric_type`` is as it takes effect. ``at`` are places of fields.
    """

    manifest: Manifest
    at: Keys
    type: str
    metric_type: str
    query: Text | None = None
    query_at: Keys = ()
    metric: str = ""
    metric_at: Keys = ()
    target: float | None = None
    target_at: Keys = ()

    @cached_property
    def tree(self) -> Node | None:
        """The query; ``None`` when there is none or it cannot be parsed."""
        if self.query is None:
            return None
        try:
            return parse(self.query.value)
        except ValueError:
            return None

    @property
    def of_keda(self) -> bool:
        return self.type[:1].islower()


@dataclass(frozen=True, eq=False)
class Scaler:
    """``form``: ``hpa``, ``keda``, ``kserve`` (InferenceService) or ``llmisvc``. ``target``: (namespace, kind, name) of
    the Deployment or StatefulSet."""

    manifest: Manifest
    form: str
    target: tuple[str, str, str]
    least: int
    least_at: Keys
    most: int | None
    most_at: Keys
    behavior_at: Keys
    triggers: tuple[Trigger, ...]
    keda_at: Keys = ()
    """Where KEDA's own fields (fallback, pollingInterval) stand."""

    def window(self, direction: str) -> tuple[float | None, Keys]:
        """The stabilisation window in seconds (``None``: not given) of ``scaleUp`` or ``scaleDown``."""
        at = (*self.behavior_at, direction, "stabilizationWindowSeconds")
        return number(self.manifest.get(*at)), at


@dataclass(frozen=True, eq=False)
class AdapterRule:
    """A rule of prometheus-adapter. ``series`` and ``served`` are the names of the series and in the API."""

    manifest: Manifest
    at: Keys
    data: dict[str, Any]
    external: bool

    @property
    def query(self) -> str:
        return text(self.data.get("metricsQuery"))

    @cached_property
    def selectors(self) -> tuple[str, ...]:
        """The names that its seriesQuery asks for; "" among them when it is a pattern."""
        try:
            tree = parse(text(self.data.get("seriesQuery")))
        except ValueError:
            return ("",)
        return tuple(name for part in tree.walk() if isinstance(part, Selector) for name in _names(part)) or ("",)

    def serves(self, metric: str) -> bool:
        """Whether it may serve a metric of that name."""
        naming = self.data.get("name")
        named = text(naming.get("as")) if isinstance(naming, dict) else ""
        matches = text(naming.get("matches")) if isinstance(naming, dict) else ""
        if named and "$" not in named:
            return named == metric
        for name in self.selectors:
            if not name:
                return True  # a pattern: it cannot be said
            try:
                pattern = re.compile(matches or ".*")
                template = named or ("$1" if pattern.groups else "$0")
                if pattern.sub(re.sub(r"\$\{?(\d)\}?", r"\\g<\1>", template), name, count=1) == metric:
                    return True
            except (re.error, IndexError):
                return True
        return False


def scalers(manifests: Sequence[Manifest]) -> Iterator[Scaler]:
    """Everything that scales, in the order of the files."""
    for one in manifests:
        if one.kind == "HorizontalPodAutoscaler" and one.api == "autoscaling":
            yield _hpa(one)
        elif one.kind == "ScaledObject" and one.api == "keda.sh":
            yield _scaled_object(one)
        elif one.kind == "InferenceService" and one.api == "serving.kserve.io":
            scaler = _inference_service(one)
            if scaler is not None:
                yield scaler
        elif one.kind == "LLMInferenceService" and one.api == "serving.kserve.io":
            for at in (("spec", "scaling"), ("spec", "prefill", "scaling")):
                if isinstance(one.get(*at), dict):
                    yield _llm_inference_service(one, at)


def adapter_rules(manifests: Sequence[Manifest]) -> Iterator[AdapterRule]:
    """The rules of prometheus-adapter: of its configuration file, of a ConfigMap that holds it, of its chart's values."""
    for one in manifests:
        if one.kind == "ConfigMap":
            for key, content in one.mapping("data").items():
                if "seriesQuery" in text(content):
                    try:
                        data = yaml.safe_load(content)
                    except yaml.YAMLError:
                        continue
                    yield from _rules(one, data, ("data", key))
        elif not one.kind:
            yield from _rules(one, one.data, ())


def _rules(manifest: Manifest, data: Any, at: Keys) -> Iterator[AdapterRule]:
    if not isinstance(data, dict):
        return
    lists: list[tuple[Keys, Any, bool]] = [(("rules",), data.get("rules"), False),
                                          (("externalRules",), data.get("externalRules"), True)]
    if isinstance(data.get("rules"), dict):  # the chart's values
        chart = data["rules"]
        lists = [(("rules", "custom"), chart.get("custom"), False), (("rules", "external"), chart.get("external"), True)]
    for keys, rules, external in lists:
        for index, rule in enumerate(rules if isinstance(rules, list) else ()):
            if isinstance(rule, dict) and "seriesQuery" in rule:
                place = at if manifest.kind else (*at, *keys, index)
                yield AdapterRule(manifest, place, rule, external)


def _names(part: Selector) -> list[str]:
    """Its name, or those of a plain alternation of names."""
    for matcher in part.matchers:
        if matcher.name == "__name__" and matcher.op == "=~":
            found = matcher.value.removeprefix("^").removesuffix("$")
            return re.split(r"[|()]+", found.strip("()")) if re.fullmatch(r"[\w:|()]+", found) else [""]
    return [part.name]


# --- each form ------------------------------------------------------------------------------------------------


def _whole(value: Any, default: int) -> int:
    found = number(value)
    return default if found is None else int(found)


def _most(value: Any) -> int | None:
    found = number(value)
    return None if found is None else int(found)


def _hpa(one: Manifest) -> Scaler:
    triggers = []
    for at, metric in one.items("spec", "metrics"):
        kind = text(metric.get("type"))
        field = kind[:1].lower() + kind[1:]
        inner = (*at, field)
        named = (*inner, "name") if kind in ("Resource", "ContainerResource") else (*inner, "metric", "name")
        goal = one.mapping(*inner, "target")
        key = {"AverageValue": "averageValue", "Value": "value", "Utilization": "averageUtilization"}.get(
            text(goal.get("type")), "averageValue")
        triggers.append(Trigger(
            one, at, kind, text(goal.get("type")), metric=text(one.get(*named)), metric_at=named,
            target=quantity(goal.get(key)), target_at=(*inner, "target", key),
        ))
    reference = one.mapping("spec", "scaleTargetRef")
    target = (one.namespace, text(reference.get("kind")), text(reference.get("name")))
    return Scaler(
        one, "hpa", target, _whole(one.get("spec", "minReplicas"), 1), ("spec", "minReplicas"),
        _most(one.get("spec", "maxReplicas")), ("spec", "maxReplicas"), ("spec", "behavior"), tuple(triggers),
    )


def _keda_trigger(one: Manifest, at: Keys) -> Trigger:
    kind = text(one.get(*at, "type"))
    metadata = (*at, "metadata")
    metric_type = text(one.get(*at, "metricType")) or ("Utilization" if kind in ("cpu", "memory") else "AverageValue")
    key = {"prometheus": "threshold", "metrics-api": "targetValue"}.get(kind, "value")
    query_at = (*metadata, "query") if kind == "prometheus" else ()
    where = text(one.get(*metadata, "valueLocation"))
    if text(one.get(*metadata, "format")) != "prometheus":
        where = where.rpartition(".")[2]
    metric = where.partition("{")[0] if kind == "metrics-api" else kind
    return Trigger(
        one, at, kind, metric_type, one.text_at(*query_at) if query_at else None, query_at, metric,
        (*metadata, "valueLocation") if kind == "metrics-api" else (*at, "type"),
        number(one.get(*metadata, key)), (*metadata, key),
    )


def _scaled_object(one: Manifest) -> Scaler:
    reference = one.mapping("spec", "scaleTargetRef")
    target = (one.namespace, text(reference.get("kind")) or "Deployment", text(reference.get("name")))
    triggers = tuple(_keda_trigger(one, at) for at, _ in one.items("spec", "triggers"))
    return Scaler(
        one, "keda", target, _whole(one.get("spec", "minReplicaCount"), 0), ("spec", "minReplicaCount"),
        _whole(one.get("spec", "maxReplicaCount"), 100), ("spec", "maxReplicaCount"),
        ("spec", "advanced", "horizontalPodAutoscalerConfig", "behavior"), triggers, ("spec",),
    )


def _inference_service(one: Manifest) -> Scaler | None:
    """KServe's own autoscaler of the predictor; ``None`` when it is left to others or is KServe's default."""
    autoscaler = text(one.get("metadata", "annotations", CLASS))
    predictor: Keys = ("spec", "predictor")
    scaling = (*predictor, "autoScaling")
    least_at = (*predictor, "minReplicas")
    if autoscaler in ("external", "none") or (
        not autoscaler and one.get(*scaling) is None and one.get(*least_at) != 0
    ):
        return None
    triggers = []
    for at, metric in one.items(*scaling, "metrics"):
        kind = text(metric.get("type"))
        inner = (*at, kind[:1].lower() + kind[1:]) if kind != "PodMetric" else (*at, "podmetric")
        if kind == "External" and text(one.get(*inner, "metric", "backend")) == "prometheus":
            query_at = (*inner, "metric", "query")
            triggers.append(Trigger(
                one, at, "prometheus", "AverageValue", one.text_at(*query_at), query_at, "prometheus",
                (*inner, "metric", "backend"), quantity(one.get(*inner, "target", "value")), (*inner, "target", "value"),
            ))
        else:
            triggers.append(Trigger(one, at, kind, text(one.get(*inner, "target", "type")),
                                    metric=text(one.get(*inner, "name")), metric_at=(*inner, "name")))
    return Scaler(
        one, "kserve", (one.namespace, "Deployment", f"{one.name}-predictor"), _whole(one.get(*least_at), 1), least_at,
        _most(one.get(*predictor, "maxReplicas")), (*predictor, "maxReplicas"), (*scaling, "behavior"), tuple(triggers),
    )


def _llm_inference_service(one: Manifest, at: Keys) -> Scaler:
    keda = (*at, "keda")
    suffix = "-kserve-prefill" if "prefill" in at else "-kserve"
    triggers = tuple(_keda_trigger(one, place) for place, _ in one.items(*keda, "triggers"))
    return Scaler(
        one, "llmisvc", (one.namespace, "Deployment", one.name + suffix), _whole(one.get(*at, "minReplicas"), 1),
        (*at, "minReplicas"), _most(one.get(*at, "maxReplicas")), (*at, "maxReplicas"),
        (*keda, "advanced", "horizontalPodAutoscalerConfig", "behavior"), triggers, keda,
    )
