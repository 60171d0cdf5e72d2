"""A snapshot for people and webhooks: JSON, and a table. What is unknown is not there; nothing is null or NaN."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from obs.sidecar.readiness import Readiness, summary
from obs.sidecar.signals import Snapshot


def as_json(snapshot: Snapshot, readiness: Readiness | None) -> dict[str, Any]:
    """Keys are metric names, so that ``pod.llm_pod_load_ratio`` is a path for KEDA's metrics-api scaler.

    An LLM model is under ``models``, a plain Triton model under ``triton``.
    """
    models: dict[str, Any] = {}
    triton: dict[str, Any] = {}
    for model in snapshot.models:
        values: dict[str, Any] = {name: one.value for name, one in model.signals.items() if one.value is not None}
        withheld = {name: one.reason for name, one in model.signals.items() if one.value is None}
        if model.engine == "triton":
            triton.setdefault(model.name, {})[model.version] = {**values, "withheld": withheld}
            continue
        sources = {name: one.source for name, one in model.signals.items() if one.value is not None}
        models[model.name] = {
            "engine": model.engine,
            **values,
            **model.counters,
            **({"llm_requests_waiting_by_reason": dict(model.waiting_by_reason)} if model.waiting_by_reason else {}),
            "suspect": model.suspect,
            "sources": sources,
            "withheld": withheld,
        }
    found: dict[str, Any] = {
        "engine": snapshot.engine,
        "up": snapshot.up,
        "ready": snapshot.ready,
        "reason": snapshot.reason,
        "pod": dict(snapshot.pod),
        "models": models,
        "restarts": snapshot.restarts,
        "scrapes": {outcome: count for outcome, count in snapshot.outcomes.items() if count},
    }
    if snapshot.age is not None:
        found["age_seconds"] = round(snapshot.age, 3)
    if triton:
        found["triton"] = triton
    if readiness is not None:
        found["server"] = {key: value for key, value in summary(readiness).items() if value is not None}
    return found


def as_table(snapshot: Snapshot, readiness: Readiness | None) -> Iterator[str]:
    """Lines for a terminal."""
    state = "up" if snapshot.up else f"down ({snapshot.reason})"
    version = f" {readiness.version}" if readiness is not None and readiness.version else ""
    yield f"{snapshot.engine}{version}: {state}, {'ready' if snapshot.ready else 'not ready'}"
    if readiness is not None:
        for found in readiness.vulnerabilities:
            doubt = " (its version cannot tell)" if found.status == "unknown" else ""
            yield f"known vulnerability: {found.hole.id}{doubt}"
        for one in readiness.models:
            if one.state != "READY":
                yield f"model {one.name}{f' version {one.version}' if one.version else ''}: {one.state} {one.reason}".rstrip()
    for model in snapshot.models:
        yield ""
        yield f"{model.name}{f' version {model.version}' if model.engine == 'triton' else ''} ({model.engine})"
        width = max(map(len, [*model.signals, *model.counters]), default=0)
        for name, signal in model.signals.items():
            if signal.value is None:
                yield f"  {name:<{width}}  {'-':>12}  {signal.reason}"
            else:
                yield f"  {name:<{width}}  {number(signal.value):>12}  {signal.source}"
        for name, value in model.counters.items():
            yield f"  {name:<{width}}  {number(value):>12}  since the start"


def number(value: float) -> str:
    """Four significant digits, and whole numbers from a thousand on: no exponent for what people read."""
    if abs(value) >= 1000 or value == int(value):
        return str(round(value)) if abs(value) < 1e9 else f"{value:.4g}"
    return f"{value:.4g}"
