"""The server says that it is ready, and so is every model that it tried to load.

A model that failed to load answers no request and has no series: alerts on it are silent, and only the sidecar's
InferenceModelLoadFailed (triton_model_info) or this check tells. The reason is the server's own.

Mend: what the reason says; then load it again (explicit control: POST /v2/repository/models/NAME/load) or restart.
"""

from __future__ import annotations

from collections.abc import Iterator

from obs.doctor.facts import Facts
from obs.doctor.finding import Finding

ID = "server-ready"


def check(facts: Facts) -> Iterator[Finding]:
    triton = facts.triton
    if triton is None:
        return
    broken = [one for one in triton.index or () if one.state == "UNAVAILABLE" and one.reason != "unloaded"]
    for model in broken:
        yield Finding(
            ID, "error", triton.url,
            f"model {model.name} version {model.version or '?'} failed to load: {model.reason or 'no reason given'}",
            "it serves nothing and has no series, so every alert on it is silent",
            "mend what the reason says, then load it again: restart the server, or with explicit control "
            f"POST /v2/repository/models/{model.name}/load",
        )
    if triton.ready is False and not broken:
        yield Finding(
            ID, "error", f"{triton.url}/v2/health/ready", "the server says that it is not ready",
            "Kubernetes sends it no traffic, and models that are still loading have no series",
            "wait for the models to load; see the server's log for the one that does not",
        )
    if triton.live is False:
        yield Finding(
            ID, "error", f"{triton.url}/v2/health/live", "the server says that it is not live",
            "Kubernetes restarts it by its liveness probe", "see the server's log",
        )
    loading = sorted({one.name for one in triton.index or () if one.state in {"LOADING", "UNLOADING"}})
    if loading:
        yield Finding(
            ID, "info", triton.url, f"still loading or unloading: {', '.join(loading)}",
            "a model has no series before it is loaded", "look again when it is done",
        )
    idle = sorted({one.name for one in triton.index or () if not one.state})
    if idle and facts.flags is not None and facts.flag("model-control-mode") != "explicit":
        yield Finding(
            ID, "warning", triton.url, f"in the repository and never loaded: {', '.join(idle)}",
            "this server loads all that it finds, so it refused their config.pbtxt; the index gives no reason",
            "look at the repository with --model-repository DIR: the line is named; or see \"Poll failed\" in the server's log",
        )
    elif idle:
        yield Finding(
            ID, "info", triton.url, f"in the repository and not loaded: {', '.join(idle)}",
            "with explicit control a model serves nothing before it is asked for",
            f"POST /v2/repository/models/{idle[0]}/load, or start the server with --load-model={idle[0]}",
        )
    if triton.index is not None and not triton.index:
        yield Finding(
            ID, "warning", triton.url, "the server has no model",
            "without a model it serves no nv_inference_* series: nearly every alert is dead",
            "give it a repository with a model (--model-repository), or load one",
        )
