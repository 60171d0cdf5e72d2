"""A typed client of Prometheus's HTTP API: query, query_range, rules, alerts, label values.

It stands on prometheus-api-client's ``PrometheusConnect`` (loaded when first needed: it is slow to import)
for the metadata calls, over one session that both share, and mends its faults (traps.md, 92 to 94):
values come as floats, decoded by resultType (a scalar is one sample without labels); a NaN stays a NaN;
a request is sent once, never retried behind your back; the deadline is for the whole answer, not for a
pause; a redirect to a login page is an error; and every failure is a ServerError with one line.
"""

from __future__ import annotations

import ipaddress
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from obs.errors import InputError, ServerError
from obs.prom.remote_write import Labels, make_labels, one_line

if TYPE_CHECKING:
    import requests

_T = TypeVar("_T")
MAX_POINTS = 11_000  # Prometheus refuses a range query with more steps than this (web/api/v1/api.go)


@dataclass(frozen=True)
class Sample:
    """One value at one time (unix seconds)."""

    labels: Labels
    time: float
    value: float


@dataclass(frozen=True)
class Series:
    """A series' points: (unix seconds, value), in order of time."""

    labels: Labels
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class ActiveAlert:
    """An alert that Prometheus itself holds active: state "pending" or "firing", since unix text time."""

    labels: Labels
    state: str
    active_at: str
    value: float


@dataclass(frozen=True)
class LoadedRule:
    """A rule as Prometheus has it: kind "alerting" or "recording", health "ok", "err" or "unknown"."""

    group: str
    file: str
    name: str
    kind: str
    expr: str
    health: str
    last_error: str


class QueryError(ServerError):
    """Prometheus understood the request and says that the expression cannot be evaluated."""


class Client:
    """One Prometheus. ``deadline`` (seconds) bounds each call as a whole.

    ``token_file`` holds a bearer token; ``ca_file`` the certificate authority of the server.
    """

    def __init__(
        self, url: str, *, deadline: float = 30.0, token_file: Path | None = None, ca_file: Path | None = None
    ) -> None:
        import requests

        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise InputError(f"{url!r} is no Prometheus address; write it like http://127.0.0.1:9090")
        self.url = url.rstrip("/")
        self.deadline = deadline
        self._session = requests.Session()
        self._session.trust_env = not _is_loopback(parts.hostname)
        if token_file is not None:
            self._session.headers["Authorization"] = f"Bearer {_token(token_file)}"
        if ca_file is not None:
            if not ca_file.is_file():
                raise InputError(f"{ca_file}: no such CA file; give the PEM file of the server's authority")
            self._session.verify = str(ca_file)
        self._connect: Any = None

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def query(self, expr: str, at: float | None = None) -> list[Sample]:
        """The expression's value at a time (unix seconds; None = the server's now).

        A scalar gives one sample without labels; a string or a range selector is refused with QueryError.
        """
        form = {"query": expr} if at is None else {"query": expr, "time": f"{at:.3f}"}
        data = self._call("/api/v1/query", form)
        kind = data.get("resultType")
        with _Decoding(self.url, "query"):
            result = data["result"]
            if kind == "scalar":
                when, value = result
                return [Sample((), float(when), float(value))]
            if kind == "vector":
                return [
                    Sample(make_labels(item["metric"].items()), float(item["value"][0]), float(item["value"][1]))
                    for item in result
                    if "value" in item
                ]
        raise QueryError(f"{self.url}: the expression gives a {kind}, not a vector: {one_line(expr)}; correct it")

    def query_range(self, expr: str, start: float, end: float, step: float) -> list[Series]:
        """The expression at ``start``, ``start + step``, … up to ``end`` (unix seconds), series sorted by labels.

        Longer ranges than Prometheus allows are asked in pieces that do not overlap. A scalar gives one series
        without labels.
        """
        if step <= 0 or end < start:
            raise InputError(f"a range from {start} to {end} by {step} s is empty; give start <= end and a step over 0")
        start_ms, end_ms, step_ms = round(start * 1000), round(end * 1000), round(step * 1000)
        found: dict[Labels, list[tuple[float, float]]] = {}
        piece = step_ms * (MAX_POINTS - 1000)
        for low in range(start_ms, end_ms + 1, piece):
            high = min(end_ms, low + piece - step_ms)
            form = {
                "query": expr,
                "start": f"{low / 1000:.3f}",
                "end": f"{high / 1000:.3f}",
                "step": f"{step_ms / 1000:.3f}",
            }
            data = self._call("/api/v1/query_range", form)
            with _Decoding(self.url, "query_range"):
                for item in data["result"]:
                    points = found.setdefault(make_labels(item["metric"].items()), [])
                    points += [(float(when), float(value)) for when, value in item.get("values", ())]
        return [Series(labels, tuple(points)) for labels, points in sorted(found.items())]

    def rules(self) -> list[LoadedRule]:
        """The rules that the server has loaded, in its order."""
        data = self._call("/api/v1/rules", None)
        with _Decoding(self.url, "rules"):
            return [
                LoadedRule(
                    group["name"],
                    group["file"],
                    rule["name"],
                    rule["type"],
                    rule["query"],
                    rule["health"],
                    rule.get("lastError", ""),
                )
                for group in data["groups"]
                for rule in group["rules"]
            ]
        raise AssertionError("unreachable")

    def alerts(self) -> list[ActiveAlert]:
        """The alerts that the server holds active, sorted by labels."""
        data = self._call("/api/v1/alerts", None)
        with _Decoding(self.url, "alerts"):
            found = [
                ActiveAlert(
                    make_labels(item["labels"].items()), item["state"], item.get("activeAt", ""), float(item["value"])
                )
                for item in data["alerts"]
            ]
            return sorted(found, key=lambda alert: (alert.labels, alert.state))
        raise AssertionError("unreachable")

    def label_values(self, name: str) -> list[str]:
        """All values of a label (``__name__``: all metric names), sorted."""
        found: list[str] = self._library(lambda connect: connect.get_label_values(label_name=name))
        return sorted(found)

    def metadata(self, metric: str) -> list[Mapping[str, str]]:
        """What the server knows of a metric: type, help, unit; [] when nothing."""
        found: Mapping[str, list[Mapping[str, str]]] = self._library(
            lambda connect: connect.get_metric_metadata(metric=metric) or {}
        )
        if isinstance(found, Mapping):
            return list(found.get(metric, []))
        return list(found)

    def _library(self, call: Callable[[Any], _T]) -> _T:
        """A call of prometheus-api-client, its many exceptions turned into one."""
        import requests
        from prometheus_api_client import PrometheusConnect
        from prometheus_api_client.exceptions import PrometheusApiClientException
        from urllib3.util.retry import Retry

        if self._connect is None:
            self._connect = PrometheusConnect(
                url=self.url, session=self._session, retry=Retry(total=0, redirect=0), timeout=self.deadline
            )
        try:
            return call(self._connect)
        except (PrometheusApiClientException, requests.RequestException, ValueError, KeyError) as error:
            raise ServerError(f"{self.url}: {one_line(str(error), 200)}; check the address and the server") from error

    def _call(self, path: str, form: Mapping[str, str] | None) -> Mapping[str, Any]:
        """One request, and the ``data`` of its answer: POST with a form, GET without."""
        import requests

        address = self.url + path
        limit = time.monotonic() + self.deadline
        try:
            with self._session.request(
                "GET" if form is None else "POST",
                address,
                data=form,
                timeout=self.deadline,
                stream=True,
                allow_redirects=False,
            ) as answer:
                body = _read(answer, limit)
        except requests.exceptions.SSLError as error:
            raise ServerError(
                f"{address}: its certificate is not trusted: {one_line(str(error), 160)}; give its authority's CA file"
            ) from error
        except (requests.Timeout, TimeoutError) as error:
            raise ServerError(
                f"{address} gave no whole answer within {self.deadline:g} s; raise the deadline or ask for less"
            ) from error
        except requests.RequestException as error:
            raise ServerError(
                f"{address} cannot be reached: {one_line(str(error), 160)}; check the address, and that it runs"
            ) from error
        return _data(address, answer, body, "" if form is None else form["query"])


def _read(answer: requests.Response, limit: float) -> bytes:
    chunks = []
    for chunk in answer.iter_content(1 << 16):
        chunks.append(chunk)
        if time.monotonic() > limit:
            raise TimeoutError
    return b"".join(chunks)


def _data(address: str, answer: requests.Response, body: bytes, expr: str) -> Mapping[str, Any]:
    if 300 <= answer.status_code < 400:
        where = answer.headers.get("Location", "somewhere else")
        raise ServerError(f"{address} redirects to {where} (a login page?); give the final address, or a token")
    if answer.status_code in {401, 403}:
        raise ServerError(f"{address} refuses us ({answer.status_code}); give a token file that it accepts")
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    if not isinstance(document, dict) or document.get("status") not in {"success", "error"}:
        raise ServerError(
            f"{address} answered {answer.status_code} with no Prometheus JSON: "
            f"{one_line(body[:200].decode(errors='replace'), 80)!r}; is that a Prometheus?"
        )
    if document["status"] == "error":
        kind, said = document.get("errorType", "error"), one_line(str(document.get("error", "")))
        if kind in {"bad_data", "execution"}:
            raise QueryError(f"{address}: {said}; correct the expression: {one_line(expr)}")
        raise ServerError(f"{address}: {kind}: {said}; see the server's log")
    data = document.get("data")
    if not isinstance(data, dict):
        raise ServerError(f"{address} answered without `data`; is that a Prometheus?")
    return data


class _Decoding:
    """Turns the exceptions of decoding an unexpected answer into a ServerError."""

    def __init__(self, url: str, call: str) -> None:
        self.what = f"{url}: the answer to {call} has an unknown shape"

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, (KeyError, TypeError, ValueError, AttributeError, IndexError)):
            raise ServerError(f"{self.what} ({error!r}); is that a Prometheus?") from error


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _token(path: Path) -> str:
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: the token file cannot be read: {error}; check the path") from error
    if not token or any(mark.isspace() for mark in token):
        raise InputError(f"{path}: holds no bearer token; write the token alone in the file")
    return token


def names(series: Iterable[Series]) -> list[str]:
    """The metric names of some series, sorted, each once."""
    return sorted({dict(one.labels).get("__name__", "") for one in series})
