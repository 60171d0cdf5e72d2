"""A Triton's HTTP API and metrics page, read only: nothing is ever loaded or unloaded.

``/v2`` and ``/v2/health``, the repository index (POST, as Triton wants it), every model's configuration, and the
statistics extension, which counts requests whatever the metrics say.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote, urlsplit

from obs.doctor.facts import InstanceGroup, ModelConfig, Page, Sample, ServedModel, Triton
from obs.doctor.web import LookedAtNothing, Reply, Site, get
from obs.errors import InputError
from obs.evaluate import exposition
from obs.sidecar.scrape import Fetcher, shown

MOST_MODELS = 200
METRICS_PORT = 8002
_ONE_LINE = 300
_PATIENCE = 3
#: Backends by the platforms that name them in older configurations (docs/model_repository of the server).
_PLATFORMS = {"tensorrt_plan": "tensorrt", "onnxruntime_onnx": "onnxruntime", "pytorch_libtorch": "pytorch"}


def look(site: Site) -> tuple[Triton, list[str]]:
    """The server, and what of it could not be read. Raises LookedAtNothing when it cannot be reached or is no Triton."""
    fetcher = site.fetcher()
    url = site.url.rstrip("/")
    about = get(fetcher, url, "/v2")
    document = about.json()
    if not isinstance(document, dict) or not isinstance(document.get("extensions"), list) or "version" not in document:
        raise LookedAtNothing(f"{about.url}: no Triton answers here, but {about.what}; {_other(about)}")
    lacking: list[str] = []
    ready, live = (_healthy(fetcher, url, word, lacking) for word in ("ready", "live"))
    index = _index(fetcher, url, lacking)
    names = list(dict.fromkeys(one.name for one in index or () if one.state == "READY"))
    configs: dict[str, ModelConfig] = {}
    if len(names) > MOST_MODELS:
        lacking.append(f"{url}: the configurations of {len(names) - MOST_MODELS} of {len(names)} models were not read")
    silent: list[str] = []  # a server that stops answering is not asked for every model in turn

    def read(name: str) -> tuple[str, ModelConfig | str | None]:
        if len(silent) >= _PATIENCE:
            return name, None
        found = _config(fetcher, url, name)
        if isinstance(found, str):
            silent.append(name)
        return name, found

    with ThreadPoolExecutor(max_workers=8) as pool:
        for name, config in pool.map(read, names[:MOST_MODELS]):
            if isinstance(config, ModelConfig):
                configs[name] = config
            else:
                why = f" ({config})" if config else ""
                lacking.append(f"{url}: the configuration of model {name} could not be read{why}")
    return Triton(
        url, str(document["version"]), ready, live, index, configs, _counted(fetcher, url)
    ), lacking


def _other(reply: Reply) -> str:
    if reply.what == "a metrics page":
        return "is this the metrics port? Give it with --metrics"
    if reply.status == 200 and not reply.text.strip():
        return "is this the metrics port (8002)? Give Triton's HTTP port (8000)"
    return "give Triton's HTTP port (8000), or --vllm for a vLLM server"


def _healthy(fetcher: Fetcher, url: str, word: str, lacking: list[str]) -> bool | None:
    try:
        return get(fetcher, url, f"/v2/health/{word}").status == 200
    except LookedAtNothing as error:
        lacking.append(str(error))
        return None


def _index(fetcher: Fetcher, url: str, lacking: list[str]) -> tuple[ServedModel, ...] | None:
    try:
        reply = get(fetcher, url, "/v2/repository/index", method="POST")
    except LookedAtNothing as error:
        lacking.append(str(error))
        return None
    found = reply.json()
    if reply.status != 200 or not isinstance(found, list):
        lacking.append(f"{reply.url}: HTTP {reply.status} instead of the repository index (a restricted API?)")
        return None
    return tuple(
        ServedModel(one["name"], str(one.get("version", "")), str(one.get("state", "")), _reason(one.get("reason", "")))
        for one in found if isinstance(one, dict) and isinstance(one.get("name"), str)
    )


def _config(fetcher: Fetcher, url: str, name: str) -> ModelConfig | str:
    """A model's configuration, or why it cannot be had."""
    path = f"/v2/models/{quote(name, safe='')}/config"
    try:
        reply = get(fetcher, url, path)
    except LookedAtNothing as error:
        return str(error)
    document = reply.json()
    if reply.status != 200 or not isinstance(document, dict):
        return f"HTTP {reply.status}"
    return of_document(document, f"{shown(url)}{path}", name)


def _counted(fetcher: Fetcher, url: str) -> Mapping[str, int]:
    try:
        document = get(fetcher, url, "/v2/models/stats").json()
    except LookedAtNothing:
        return {}
    found: dict[str, int] = {}
    for one in _list(_map(document).get("model_stats")):
        try:
            count = int(one["inference_stats"]["success"]["count"])
            found[one["name"]] = found.get(one["name"], 0) + count
        except (KeyError, TypeError, ValueError):
            continue
    return found


def of_document(document: Mapping[str, Any], place: str, model: str, text: str = "") -> ModelConfig:
    """A configuration from its JSON form (field names of model_config.proto)."""
    batching = document.get("dynamic_batching")
    return ModelConfig(
        place=place,
        model=model,
        name=str(document.get("name", "")),
        backend=str(document.get("backend") or _PLATFORMS.get(str(document.get("platform", "")), "")),
        platform=str(document.get("platform", "")),
        max_batch_size=_whole(document.get("max_batch_size")),
        dynamic_batching=batching if isinstance(batching, Mapping) else None,
        instances=tuple(_instance(one) for one in _list(document.get("instance_group"))),
        parameters={
            str(key): str(value.get("string_value", ""))
            for key, value in _map(document.get("parameters")).items() if isinstance(value, Mapping)
        },
        version_policy=_map(document.get("version_policy")),
        response_cache=_map(document.get("response_cache")).get("enable") is True,
        decoupled=_map(document.get("model_transaction_policy")).get("decoupled") is True,
        default_model_filename=str(document.get("default_model_filename", "")),
        without_dims=tuple(
            str(_map(one).get("name", "")) for key in ("input", "output") for one in _list(document.get(key))
            if not _map(one).get("dims")
        ),
        steps=tuple(
            str(_map(one).get("model_name", "")) for one in _list(_map(document.get("ensemble_scheduling")).get("step"))
        ),
        text=text,
    )


def _instance(group: Any) -> InstanceGroup:
    group = _map(group)
    limiter = _map(group.get("rate_limiter"))
    return InstanceGroup(
        str(group.get("kind", "KIND_AUTO")),
        _whole(group.get("count")) or 1,
        tuple(_whole(one) for one in _list(group.get("gpus"))),
        {
            str(_map(one).get("name", "")): (_whole(_map(one).get("count")), _map(one).get("global") is True)
            for one in _list(limiter.get("resources"))
        },
    )


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list) else ()


def _whole(value: Any) -> int:
    try:
        return int(value or 0)
    except (TypeError, ValueError, OverflowError):
        return 0


def metrics_url(url: str, port: str = "") -> str:
    """Where a Triton's metrics are: at its host's port 8002, or the one that its flags tell."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}:{port if port.isdigit() else METRICS_PORT}/metrics"


def page(site: Site) -> Page:
    """A metrics page. Raises LookedAtNothing with what answers there instead."""
    reply = get(site.fetcher(), site.url)
    if reply.status != 200:
        known = "Triton's HTTP port?" if reply.json() is not None else "no metrics page"
        raise LookedAtNothing(f"{reply.url}: HTTP {reply.status} ({known}); give the metrics page, such as http://host:8002/metrics")
    text = reply.text
    if not text.strip():
        raise LookedAtNothing(f"{reply.url}: HTTP 200 with no metrics in it; the page is /metrics, at the metrics port")
    if text.lstrip()[0] in "<{[":
        raise LookedAtNothing(f"{reply.url}: {reply.what} instead of metrics; give the metrics page, such as http://host:8002/metrics")
    if "\0" in text:
        raise LookedAtNothing(f"{reply.url}: binary data instead of metrics; give the metrics page, such as http://host:8002/metrics")
    try:
        return Page(reply.url, tuple(of_sample(one) for one in exposition.parse(text, reply.url).samples))
    except InputError as error:
        raise LookedAtNothing(f"{error}") from None


def of_sample(one: exposition.Sample) -> Sample:
    return Sample(one.name, dict(one.labels), one.value)


def labelled(samples: Iterable[Sample]) -> dict[str, tuple[Mapping[str, str], ...]]:
    """Sample name -> the labels of its series."""
    ordered = sorted(samples, key=lambda one: one.name)
    return {name: tuple(one.labels for one in group) for name, group in itertools.groupby(ordered, lambda one: one.name)}


def _reason(text: object) -> str:
    """Why a model failed to load, without the Python backend's list of frames."""
    return _line(text.partition("\n\nAt:\n")[0] if isinstance(text, str) else "")


def _line(text: object) -> str:
    words = " ".join(text.split()) if isinstance(text, str) else ""
    return words if len(words) <= _ONE_LINE else words[: _ONE_LINE - 1] + "…"
