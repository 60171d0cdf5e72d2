"""Whether the server and its models are ready, as the server's own HTTP API says; slower than the samples, optional.

Triton: ``/v2/health/ready``, ``/v2`` (version), ``/v2/repository/index``, and ``/v2/models/<m>/versions/<v>/ready``
for what the index calls READY. vLLM and others: ``/health`` and ``/version``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from obs.sidecar.scrape import Fetcher, ScrapeFailed

MAX_MODELS = 64
MAX_READY_CALLS = 32
REASON_LENGTH = 200
PATIENCE = 3
"""A server that does not answer so many probes in a row is not ready; one that answers "no" is not ready at once."""

_NO_SUCH_PAGE = (404, 405, 501)
_VERSION = re.compile(r"([0-9]{1,6})\.([0-9]{1,6})(?:\.[0-9]{1,6})?(?P<rest>.*)", re.DOTALL)

STATES = ("READY", "LOADING", "UNLOADING", "UNAVAILABLE", "UNKNOWN")


@dataclass(frozen=True)
class Vulnerability:
    """A known hole: releases of ``product`` below ``fixed_in`` (major, minor) have it, releases from there on do not."""

    id: str
    product: str
    fixed_in: tuple[int, int]
    source: str


#: Small on purpose: what the version alone can tell, each line with where it is from.
VULNERABILITIES: tuple[Vulnerability, ...] = (
    Vulnerability(
        "CVE-2026-47627", "triton", (2, 70),
        "Containers up to 26.05 are affected (NVIDIA's bulletin, as this project's issue 4 gives it). Container to "
        "version by TRITON_VERSION on triton-inference-server/server's branches: r26.05 has 2.69.0, r26.06 has 2.70.0.",
    ),
)

#: ``affected``: the version is below the first release without the hole. ``unknown``: the version cannot tell, because
#: it cannot be read, or is a build from between two releases. Unknown is not safe, so it is reported too.
STATUSES = ("affected", "unknown")


@dataclass(frozen=True)
class Finding:
    """A vulnerability that this server has or may have. ``status`` is one of STATUSES."""

    hole: Vulnerability
    status: str


@dataclass(frozen=True)
class RepositoryModel:
    """One line of Triton's repository index. ``ready`` is None where nobody asked."""

    name: str
    version: str
    state: str
    reason: str
    ready: bool | None = None


@dataclass(frozen=True)
class Readiness:
    """One probe's result. ``kind``: triton or openai (vLLM and its like). None is "not known"."""

    kind: str
    ready: bool | None = None
    live: bool | None = None
    version: str = ""
    models: Sequence[RepositoryModel] = ()
    vulnerabilities: Sequence[Finding] = ()
    control_mode: str = ""
    index: bool = False
    dropped_models: int = 0


class Prober:
    """Probes one server. Keeps the count of unanswered probes, nothing else."""

    def __init__(self, fetcher: Fetcher, kind: str, *, models: bool = True, control_mode: str = "") -> None:
        self._fetcher = fetcher
        self._kind = kind
        self._models = models
        self._control_mode = control_mode
        self._silent = 0
        self._answered = False

    def probe(self) -> Readiness:
        """Ask once. Never raises: what cannot be had is not known."""
        if self._kind == "triton":
            return self._triton()
        status = self._status("/health")
        version = self._json("/version") if status is not None else None
        told = version.get("version", "") if isinstance(version, dict) else ""
        return Readiness("openai", ready=self._ready(status), version=_short(told))

    def _triton(self) -> Readiness:
        status = self._status("/v2/health/ready")
        ready = self._ready(status)
        if status is None:
            return Readiness("triton", ready=ready, control_mode=self._control_mode)
        live = self._status("/v2/health/live")
        about = self._json("/v2")
        version = _short(about.get("version", "")) if isinstance(about, dict) else ""
        index = self._index() if self._models else None
        return Readiness(
            "triton",
            ready=ready,
            live=None if live is None else live == 200,
            version=version,
            models=(index or ())[:MAX_MODELS],
            vulnerabilities=known_vulnerabilities("triton", version),
            control_mode=self._control_mode,
            index=index is not None,
            dropped_models=max(0, len(index or ()) - MAX_MODELS),
        )

    def _ready(self, status: int | None) -> bool | None:
        """Silence counts only of an API that was there: a wrong --probe-url must not withhold the signals."""
        if status in _NO_SUCH_PAGE:
            return None
        if status is not None:
            self._silent = 0
            self._answered = True
            return status == 200
        self._silent += 1
        return False if self._answered and self._silent >= PATIENCE else None

    def _index(self) -> Sequence[RepositoryModel] | None:
        found = self._json("/v2/repository/index", method="POST")
        if not isinstance(found, list):
            return None
        models, asked = [], 0
        for one in found:
            if not isinstance(one, dict) or not isinstance(one.get("name"), str):
                continue
            name, version = _short(one["name"]), _short(one.get("version", ""))
            state = one.get("state") or "UNKNOWN"  # present, and never loaded
            ready: bool | None = None
            if state == "READY" and asked < MAX_READY_CALLS:
                asked += 1
                path = f"/v2/models/{quote(name, safe='')}"
                status = self._status(f"{path}/versions/{quote(version, safe='')}/ready" if version else f"{path}/ready")
                ready = None if status is None else status == 200
            elif state != "READY":
                ready = False
            models.append(RepositoryModel(name, version, state if state in STATES else "UNKNOWN",
                                          _short(one.get("reason", "")), ready))
        return models

    def _status(self, path: str) -> int | None:
        try:
            return self._fetcher.fetch(path, any_status=True)[0]
        except ScrapeFailed:
            return None

    def _json(self, path: str, method: str = "GET") -> Any:
        try:
            status, page = self._fetcher.fetch(path, any_status=True, method=method)
            return json.loads(page.body) if status == 200 else None
        except (ScrapeFailed, ValueError, RecursionError):
            return None


def known_vulnerabilities(product: str, version: str) -> tuple[Finding, ...]:
    """Those of the table that this version has or may have; a release that has none of them gives ()."""
    match = _VERSION.fullmatch(version)
    found = []
    for hole in VULNERABILITIES:
        if hole.product != product:
            continue
        own = (int(match[1]), int(match[2])) if match is not None else None
        # "2.70.0dev" was built some time between the releases 2.69 and 2.70: with or without the mend.
        if own is None or (own == hole.fixed_in and match is not None and match["rest"]):
            found.append(Finding(hole, "unknown"))
        elif own < hole.fixed_in:
            found.append(Finding(hole, "affected"))
    return tuple(found)


def summary(found: Readiness) -> Mapping[str, object]:
    """For /signals."""
    return {
        "ready": found.ready,
        "version": found.version,
        "vulnerabilities": [
            {"id": one.hole.id, "status": one.status, "source": one.hole.source} for one in found.vulnerabilities
        ],
        "models": [
            {"name": one.name, "version": one.version, "state": one.state, "reason": one.reason, "ready": one.ready}
            for one in found.models
        ],
    }


def _short(text: object) -> str:
    """A label value from the wire: one line, bounded."""
    words = " ".join(text.split()) if isinstance(text, str) else ""
    return words if len(words) <= REASON_LENGTH else words[: REASON_LENGTH - 1] + "…"
