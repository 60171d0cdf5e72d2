"""A typed client of Prometheus's HTTP API: query, query_range, rules, alerts, label values.

It stands on prometheus-api-client's ``PrometheusConnect`` (loaded when first needed: it is slow to import)
for the metadata calls, over one session that both share, and mends its faults (traps.md, 92 to 94):
expressions go in a form, so that a long one works; values come as floats, decoded by resultType (a scalar is
one sample without labels); a NaN stays a NaN; warnings and a partial answer are kept; a request is sent once
unless you ask for retries; the deadline is for the whole answer, not for a pause; a redirect to a login page
is an error; every failure is a ServerError with one line, in which no secret is ever shown.
"""

from __future__ import annotations

import ast
import base64
import ipaddress
import json
import random
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlencode, urlsplit, urlunsplit

from obs.errors import InputError, ServerError
from obs.prom import faults, packed
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
    """A rule as Prometheus has it: kind "alerting" or "recording", health "ok", "err" or "unknown".

    ``state`` and ``alerts`` are an alerting rule's own ("inactive", "pending" or "firing"); ``hold``, ``keep``
    and the group's ``interval`` are seconds; ``evaluated`` is the text of its last evaluation's time.
    """

    group: str
    file: str
    name: str
    kind: str
    expr: str
    health: str
    last_error: str
    state: str = ""
    hold: float = 0.0
    keep: float = 0.0
    interval: float = 0.0
    evaluated: str = ""
    labels: Labels = ()
    alerts: tuple[ActiveAlert, ...] = ()


@dataclass(frozen=True)
class Answer:
    """What a query came to. ``warnings``: the server's own words; when there are any, data may be missing."""

    samples: tuple[Sample, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class RangeAnswer:
    """What a range query came to; ``warnings`` as in ``Answer``."""

    series: tuple[Series, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Connection:
    """How to reach a Prometheus: where, as whom, with which certificates. Nothing secret is in its repr.

    ``url`` may have a path (``https://host/prometheus``) and ``user:password@``. ``token_file`` or ``token``: a
    bearer token. ``user`` with ``password_file`` or ``password``: basic auth. ``cert_file`` (and ``key_file``): our
    own certificate; ``ca_file``: the authority of the server's. ``headers`` go with every request, such as
    ``X-Scope-OrgID``. ``timeout`` (seconds) bounds each request, its retries included; ``deadline`` everything
    asked through one Client (None = no limit). ``retries``: how often a request is sent again when the server
    cannot be reached or says 429, 502, 503 or 504; they wait 0.2 s, 0.4 s, … or what Retry-After says.
    """

    url: str
    token_file: Path | None = None
    token: str = field(default="", repr=False)
    user: str = ""
    password_file: Path | None = None
    password: str = field(default="", repr=False)
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout: float = 30.0
    deadline: float | None = None
    retries: int = 0
    parallel: int = 8


class QueryError(ServerError):
    """Prometheus understood the request and says that the expression cannot be evaluated."""


class PassingError(ServerError):
    """The server could not be reached or could not answer this time; asked again, it may."""


class SlowError(PassingError):
    """No whole answer in the time allowed, ours or the server's: asked for less, it may give one."""


class TooMuchError(QueryError):
    """The expression is right, and asks for more samples than the server's limits allow."""


class QueryTimeoutError(SlowError, TooMuchError):
    """The server gave the query up, by its own limit of time."""


class Client:
    """One Prometheus, safe to use from several threads. ``deadline`` (seconds) bounds each call as a whole.

    ``Client(url, …)`` is short for ``Client(Connection(url, timeout=deadline, …))``; see Connection for the rest.
    ``warnings`` gathers what the server warned of in any call.
    """

    def __init__(
        self,
        to: str | Connection,
        *,
        deadline: float = 30.0,
        token_file: Path | None = None,
        ca_file: Path | None = None,
    ) -> None:
        import requests
        from requests.adapters import HTTPAdapter

        if isinstance(to, str):
            to = Connection(to, timeout=deadline, token_file=token_file, ca_file=ca_file)
        self.url, user, password = _address(to)
        self.deadline = to.timeout
        self.retries = to.retries
        self.warnings: list[str] = []
        self._builds: list[Mapping[str, Any] | None] = []
        self._limit = None if to.deadline is None else time.monotonic() + to.deadline
        self._total = to.deadline
        self._lock = threading.Lock()
        self._session = requests.Session()
        # a redirect is never followed: what is meant for this server goes to no other
        self._session.get_redirect_target = lambda resp: None  # type: ignore[method-assign]
        adapter = HTTPAdapter(pool_connections=2, pool_maxsize=max(1, to.parallel), max_retries=0)
        self._session.mount("http://", adapter)
        self._session.mount("https://", adapter)
        self._session.trust_env = not _is_loopback(urlsplit(self.url).hostname or "")
        if not self._session.trust_env:  # to pack an answer costs a Prometheus more than a small question does
            self._session.headers["Accept-Encoding"] = "identity"
        secrets = [_secret(name, value) for name, value in to.headers.items()]
        for name, value in to.headers.items():
            self._session.headers[_header_name(name)] = _header_value(name, value)
        token = _token(to.token_file) if to.token_file is not None else to.token
        if token:
            if user:
                raise InputError("a bearer token and a user name are both given; give one of them")
            secrets.append(token)
            self._session.auth = _Authorization(f"Bearer {_header_value('the token', token)}")
        elif user:
            if to.password_file is not None:
                password = read_secret(to.password_file, "password")
            basic = base64.b64encode(f"{user}:{password}".encode()).decode()
            secrets += [password, basic]
            self._session.auth = _Authorization(f"Basic {basic}")
        elif any(name.lower() == "authorization" for name in to.headers):
            # else requests would put what ~/.netrc says in its place
            self._session.auth = _Authorization(str(self._session.headers["Authorization"]))
        self._secrets = tuple(sorted({one for one in secrets if one}, key=len, reverse=True))
        if to.ca_file is not None:
            if not to.ca_file.is_file():
                raise InputError(f"{to.ca_file}: no such CA file; give the PEM file of the server's authority")
            self._session.verify = str(to.ca_file)
        if to.key_file is not None and to.cert_file is None:
            raise InputError(f"{to.key_file}: a key without its certificate is no use; give the certificate too")
        for file in (to.cert_file, to.key_file):
            if file is not None and not file.is_file():
                raise InputError(f"{file}: no such file; give our certificate and its key in PEM form")
        if to.cert_file is not None:
            self._session.cert = (str(to.cert_file), str(to.key_file)) if to.key_file else str(to.cert_file)
        self._settings: dict[str, Any] = {}
        self._forms: dict[str, requests.PreparedRequest] = {}
        self._connect: Any = None
        tenant = sorted((name.lower(), value) for name, value in to.headers.items() if not _SECRET_HEADER.search(name))
        self._identity = json.dumps([self.url, user, tenant])

    @property
    def identity(self) -> str:
        """Which server and tenant this is, without secrets: two clients of the same data have the same."""
        return self._identity

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
        Warnings go to ``self.warnings``; where they matter, use ``ask``.
        """
        return list(self.ask(expr, at).samples)

    def ask(self, expr: str, at: float | None = None) -> Answer:
        """``query`` with the server's warnings."""
        form = {"query": expr} if at is None else {"query": expr, "time": f"{at:.3f}"}
        data, warnings = self._call("/api/v1/query", form)
        kind = data.get("resultType")
        with self._decoding("query"):
            result = data["result"]
            if kind == "scalar":
                when, value = result
                return Answer((Sample((), float(when), float(value)),), warnings)
            if kind == "vector":
                samples = tuple(
                    Sample(make_labels(item["metric"].items()), float(item["value"][0]), float(item["value"][1]))
                    for item in result
                    if "value" in item
                )
                return Answer(samples, warnings)
        raise QueryError(f"{self.url}: the expression gives a {kind}, not a vector: {one_line(expr)}; correct it")

    def query_range(self, expr: str, start: float, end: float, step: float) -> list[Series]:
        """The expression at ``start``, ``start + step``, … up to ``end`` (unix seconds), series sorted by labels.

        Longer ranges than Prometheus allows are asked in pieces that do not overlap. A scalar gives one series
        without labels. Warnings go to ``self.warnings``; where they matter, use ``ask_range``.
        """
        return list(self.ask_range(expr, start, end, step).series)

    def ask_range(self, expr: str, start: float, end: float, step: float) -> RangeAnswer:
        """``query_range`` with the server's warnings."""
        if step <= 0 or end < start:
            raise InputError(f"a range from {start} to {end} by {step} s is empty; give start <= end and a step over 0")
        start_ms, end_ms, step_ms = round(start * 1000), round(end * 1000), round(step * 1000)
        found: dict[Labels, list[tuple[float, float]]] = {}
        said: dict[str, None] = {}
        piece = step_ms * (MAX_POINTS - 1000)
        for low in range(start_ms, end_ms + 1, piece):
            high = min(end_ms, low + piece - step_ms)
            form = {
                "query": expr,
                "start": f"{low / 1000:.3f}",
                "end": f"{high / 1000:.3f}",
                "step": f"{step_ms / 1000:.3f}",
            }
            data, warnings = self._call("/api/v1/query_range", form)
            said.update(dict.fromkeys(warnings))
            with self._decoding("query_range"):
                for item in data["result"]:
                    points = found.setdefault(make_labels(item["metric"].items()), [])
                    points += [(float(when), float(value)) for when, value in item.get("values", ())]
        series = tuple(Series(labels, tuple(points)) for labels, points in sorted(found.items()))
        return RangeAnswer(series, tuple(said))

    def ask_packed(
        self, expr: str, start_ms: int, end_ms: int, step_ms: int, *, values: bool = True
    ) -> packed.PackedAnswer:
        """One range query (at most MAX_POINTS steps; times in unix milliseconds), its answer kept small.

        The index of a run is that of the step, from 0 at ``start_ms``. ``values`` False: only where there are any.
        VictoriaMetrics is told not to round the times (``nocache``); other servers do not know that word.
        """
        form = {
            "query": expr,
            "start": f"{start_ms / 1000:.3f}",
            "end": f"{end_ms / 1000:.3f}",
            "step": f"{step_ms / 1000:.3f}",
            "nocache": "1",
        }
        path = "/api/v1/query_range"
        status, headers, body = self._exchange(path, form)
        series: tuple[packed.Packed, ...] = ()
        size = len(body)
        if status == 200:
            with self._decoding("query_range"):
                try:
                    series, body = packed.unpack(body, start_ms, step_ms, values=values)
                except packed.OffGridError as error:
                    raise ServerError(
                        f"{self.url} answers with other times than asked ({error}); ask the storage itself, without a cache"
                    ) from None
                except ValueError:
                    series = ()  # what is wrong with it is said below
        _, warnings = self._judged(path, form, status, headers, body)
        return packed.PackedAnswer(series, warnings, size)

    def get(self, path: str) -> Mapping[str, Any]:
        """The ``data`` of another page of the API, such as ``/api/v1/targets``."""
        data, _ = self._call(path, None)
        return data

    def rules(self) -> list[LoadedRule]:
        """The rules that the server has loaded, in its order."""
        data, _ = self._call("/api/v1/rules", None)
        with self._decoding("rules"):
            return [
                LoadedRule(
                    group["name"],
                    group.get("file", ""),
                    rule["name"],
                    rule["type"],
                    rule["query"],
                    rule.get("health", "unknown"),
                    rule.get("lastError", ""),
                    rule.get("state", ""),
                    float(rule.get("duration", 0)),
                    float(rule.get("keepFiringFor", 0)),
                    float(group.get("interval", 0)),
                    rule.get("lastEvaluation", ""),
                    make_labels((rule.get("labels") or {}).items()),
                    _active(rule.get("alerts") or ()),
                )
                for group in data["groups"]
                for rule in group["rules"]
            ]
        raise AssertionError("unreachable")

    def alerts(self) -> list[ActiveAlert]:
        """The alerts that the server holds active, sorted by labels."""
        data, _ = self._call("/api/v1/alerts", None)
        with self._decoding("alerts"):
            return list(_active(data["alerts"]))
        raise AssertionError("unreachable")

    def label_values(
        self, name: str, *, start: float | None = None, end: float | None = None, match: str | Sequence[str] = ""
    ) -> list[str]:
        """All values of a label (``__name__``: all metric names), sorted; of the blocks from ``start`` to ``end``
        (unix seconds) where the server looks at times; ``match``: of the series that a selector picks, or one of several."""
        limits = {"start": start, "end": end}
        params: dict[str, Any] = {key: f"{value:.3f}" for key, value in limits.items() if value is not None}
        if match:
            params["match[]"] = match if isinstance(match, str) else list(match)
        found: list[str] = self._library(lambda connect: connect.get_label_values(label_name=name, params=params))
        return sorted(found)

    def series(self, match: str, *, start: float, end: float) -> list[Labels]:
        """The labels of all series that a selector picks, of the blocks from ``start`` to ``end`` (unix seconds)."""
        path = f"/api/v1/series?{urlencode({'match[]': match, 'start': f'{start:.3f}', 'end': f'{end:.3f}'})}"
        status, headers, body = self._exchange(path, None)
        with self._decoding("series"):
            data = json.loads(body).get("data") if status == 200 else None
            if isinstance(data, list):
                return [make_labels(one.items()) for one in data]
        self._judged(path, None, status, headers, body)
        raise ServerError(f"{self.url} answered without series; is that a Prometheus?")

    def status_tsdb(self) -> tuple[int, int] | None:
        """The first and last time (unix milliseconds) of the samples in the server's head block; None when empty."""
        data, _ = self._call("/api/v1/status/tsdb", None)
        with self._decoding("status/tsdb"):
            head = data["headStats"]
            low, high = int(head["minTime"]), int(head["maxTime"])
            return (low, high) if head["numSeries"] and low <= high else None
        raise AssertionError("unreachable")

    def metadata(self, metric: str) -> list[Mapping[str, str]]:
        """What the server knows of a metric: type, help, unit; [] when nothing."""
        found: Mapping[str, list[Mapping[str, str]]] = self._library(
            lambda connect: connect.get_metric_metadata(metric=metric) or {}
        )
        if isinstance(found, Mapping):
            return list(found.get(metric, []))
        return list(found)

    def version(self) -> str:
        """The server's version as it tells it ("2.42.0"); "" when it tells none. Fits ``is_victoria_metrics``."""
        return str((self._build() or {}).get("version", ""))

    @property
    def is_victoria_metrics(self) -> bool:
        """Whether the server is VictoriaMetrics: to what it is, it answers nothing, or a version and no more."""
        build = self._build()
        return build is not None and not {"goVersion", "application", "revision"} & build.keys()

    def _build(self) -> Mapping[str, Any] | None:
        """What the server says of itself, asked once; None when it says nothing."""
        if not self._builds:
            try:
                self._builds.append(self._call("/api/v1/status/buildinfo", None)[0])
            except PassingError:
                raise
            except ServerError:
                self._builds.append(None)
        return self._builds[0]

    def clean(self, text: str) -> str:
        """``text`` without our secrets: a server may send them back."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    def _library(self, call: Callable[[Any], _T]) -> _T:
        """A call of prometheus-api-client, its many exceptions turned into one."""
        import requests
        from prometheus_api_client import PrometheusConnect
        from prometheus_api_client.exceptions import PrometheusApiClientException
        from urllib3.util.retry import Retry

        limit = self._until()
        for attempt in range(self.retries + 1):
            try:
                with self._lock:
                    if self._connect is None:
                        self._connect = PrometheusConnect(
                            url=self.url, session=self._session, retry=Retry(total=0, redirect=0), timeout=self.deadline
                        )
                return call(self._connect)
            except (PrometheusApiClientException, requests.RequestException, ValueError, KeyError, TypeError) as error:
                lost = isinstance(error, requests.ConnectionError)
                passing = isinstance(error, requests.RequestException) or re.search(r"\b(429|50[234])\b", str(error))
                if attempt < self.retries and passing and self._pause(attempt, "", limit):
                    continue
                told = re.fullmatch(r"HTTP Status Code (400|422) \(b'(\{.*\})'\)", str(error), re.DOTALL)
                if told is not None:  # the library keeps Prometheus' own words, as the repr of bytes
                    said = one_line(self.clean(_own_words(told[2])), 200)
                    raise QueryError(f"{self.url}: {said}; correct the expression") from None
                refused = re.search(r"HTTP Status Code (40[13]) \((b.*)\)", str(error), re.DOTALL)
                if refused:  # said as of our own requests, with what to give
                    _data(self.url, int(refused[1]), {}, ast.literal_eval(refused[2]), "", self.clean)
                said = one_line(self.clean(faults.reason(error) if lost else str(error)), 200)
                if lost:
                    raise ServerError(f"{self.url} cannot be reached: {said}; check the address, and that it runs") from None
                raise ServerError(f"{self.url}: {said}; check the address and the server") from None
        raise AssertionError("unreachable")

    def _until(self) -> float:
        """When (monotonic seconds) a call that starts now must be done; ServerError when there is no time left."""
        now = time.monotonic()
        if self._limit is not None and now >= self._limit:
            raise ServerError(f"{self.url}: not done within {self._total:g} s; raise the deadline or ask for less")
        return now + self.deadline if self._limit is None else min(now + self.deadline, self._limit)

    def _pause(self, attempt: int, wanted: str, limit: float) -> bool:
        """Wait before the next try; False when that would be too late."""
        wait = float(wanted) if wanted.isdigit() else 0.2 * 2**attempt * (1 + random.random() / 4)
        if time.monotonic() + wait >= limit:
            return False
        time.sleep(wait)
        return True

    def _call(self, path: str, form: Mapping[str, str] | None) -> tuple[Mapping[str, Any], tuple[str, ...]]:
        """One request, and the ``data`` and warnings of its answer: POST with a form, GET without."""
        return self._judged(path, form, *self._exchange(path, form))

    def _exchange(self, path: str, form: Mapping[str, str] | None) -> tuple[int, Mapping[str, str], bytes]:
        """One request, tried as often as allowed: status, headers and body."""
        limit = self._until()
        for attempt in range(self.retries + 1):
            last = attempt == self.retries
            try:
                status, headers, body = self._send(path, form, limit)
            except _UnreachableError as error:
                if last or not self._pause(attempt, "", limit):
                    raise PassingError(str(error)) from None
                continue
            passing = status in _PASSING and not _TIMED_OUT.search(body[:400])
            if passing and not last and self._pause(attempt, headers.get("Retry-After", ""), limit):
                continue
            return status, headers, body
        raise AssertionError("unreachable")

    def _judged(
        self, path: str, form: Mapping[str, str] | None, status: int, headers: Mapping[str, str], body: bytes
    ) -> tuple[Mapping[str, Any], tuple[str, ...]]:
        expr = "" if form is None else form["query"]
        data, warnings = _data(self.url + path, status, headers, body, expr, self.clean)
        if warnings:
            with self._lock:
                self.warnings += [one for one in warnings if one not in self.warnings]
        return data, warnings

    def _send(self, path: str, form: Mapping[str, str] | None, limit: float) -> tuple[int, Mapping[str, str], bytes]:
        import requests
        import urllib3

        address = self.url + path
        left = limit - time.monotonic()
        allowed = min(self.deadline, left)
        try:
            if left <= 0:
                raise TimeoutError
            request, settings = self._prepared(address, form)
            with self._session.send(request, timeout=allowed, allow_redirects=False, **settings) as answer:
                return answer.status_code, answer.headers, _read(answer, limit)
        except requests.exceptions.SSLError as error:
            said = one_line(self.clean(str(error)), 160)
            raise ServerError(
                f"{address}: no trusted connection: {said}; give its authority's CA file, and our certificate if it "
                "asks for one"
            ) from None
        except (requests.Timeout, TimeoutError, urllib3.exceptions.ReadTimeoutError):
            raise SlowError(
                f"{address} gave no whole answer within {max(allowed, 0.0):.3g} s; raise the deadline "
                "or ask for less"
            ) from None
        except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
            said = one_line(self.clean(faults.reason(error)), 160)
            raise _UnreachableError(
                f"{address} cannot be reached: {said}; check the address, and that it runs"
            ) from None
        except OSError as error:  # a certificate or key that cannot be read
            raise InputError(f"{one_line(self.clean(str(error)), 160)}; check the certificate files") from None

    def _prepared(
        self, address: str, form: Mapping[str, str] | None
    ) -> tuple[requests.PreparedRequest, Mapping[str, Any]]:
        """A request as the session prepares it, and how to send it. Forms of one address differ by nothing but the form,
        as long as the server sets no cookies: they are prepared once."""
        import requests

        settings = self._settings.get(address)
        if settings is None:
            settings = self._settings[address] = self._session.merge_environment_settings(address, {}, True, None, None)
        if form is None or len(self._session.cookies):
            method = "GET" if form is None else "POST"
            return self._session.prepare_request(requests.Request(method, address, data=form or ())), settings
        known = self._forms.get(address)
        if known is None:
            known = self._forms[address] = self._session.prepare_request(requests.Request("POST", address, data=form))
        request = known.copy()
        request.body = urlencode(form)
        request.headers["Content-Length"] = str(len(request.body))
        return request, settings

    def _decoding(self, call: str) -> _Decoding:
        return _Decoding(self.url, call)


_PASSING = frozenset((429, 502, 503, 504))
_TIMED_OUT = re.compile(rb'"errorType"\s*:\s*"timeout"')  # Prometheus says 503 for a query that takes too long
_SECRET_HEADER = re.compile(r"auth|token|secret|cookie|passw|key|credential|signature", re.IGNORECASE)


class _UnreachableError(Exception):
    """The server could not be reached this time."""


class _Authorization:
    """Sets the header itself, so that neither ~/.netrc nor a user name in the address can take its place."""

    def __init__(self, value: str) -> None:
        self._value = value

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = self._value
        return request


def _address(to: Connection) -> tuple[str, str, str]:
    """The address without credentials, the user and the password."""
    try:
        parts = urlsplit(to.url)
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = urlsplit(""), None, None
    if parts.scheme not in {"http", "https"} or not host:
        shown = re.sub(r"//[^/@]*@", "//***@", to.url)
        raise InputError(f"{shown!r} is no Prometheus address; write it like http://127.0.0.1:9090")
    if parts.query or parts.fragment:
        raise InputError(f"{host}: the address has a query (?…); give the address alone, and headers with --header")
    place = f"[{host}]" if ":" in host else host
    url = urlunsplit((parts.scheme, f"{place}:{port}" if port else place, parts.path.rstrip("/"), "", ""))
    for tail in ("/api/v1", "/graph"):
        url = url.removesuffix(tail)
    if to.user:
        return url, to.user, to.password
    return url, unquote(parts.username or ""), to.password or unquote(parts.password or "")


def _secret(name: str, value: str) -> str:
    if not _SECRET_HEADER.search(name):
        return ""
    return value.split(" ", 1)[1] if name.lower() == "authorization" and " " in value else value


def _header_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name):
        raise InputError(f"{name!r} is no header name; write headers like X-Scope-OrgID:tenant")
    return name


def _header_value(name: str, value: str) -> str:
    if not value.isascii() or any(ord(mark) < 32 for mark in value):
        raise InputError(f"the value of {name} has characters that no header can carry; correct it")
    return value


def _active(items: Iterable[Mapping[str, Any]]) -> tuple[ActiveAlert, ...]:
    found = [
        ActiveAlert(make_labels(item["labels"].items()), item["state"], item.get("activeAt", ""), float(item["value"]))
        for item in items
    ]
    return tuple(sorted(found, key=lambda alert: (alert.labels, alert.state)))


def _read(answer: requests.Response, limit: float) -> bytes:
    """The body; TimeoutError when it is not there in time, however steadily it drips."""
    chunks: list[bytes] = []
    read = getattr(answer.raw, "read1", None)  # what is there, without waiting for a whole block
    while True:
        chunk = read(1 << 16, decode_content=True) if read else answer.raw.read(1 << 12, decode_content=True)
        if not chunk:
            return b"".join(chunks)
        chunks.append(chunk)
        if time.monotonic() > limit:
            raise TimeoutError


def _own_words(text: str) -> str:
    """What Prometheus says in its JSON of an error; the text as it is where it is none."""
    try:
        return str(json.loads(ast.literal_eval(f"b'{text}'"))["error"])
    except (ValueError, SyntaxError, KeyError, TypeError):
        return text


def _data(
    address: str, status: int, headers: Mapping[str, str], body: bytes, expr: str, clean: Callable[[str], str]
) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    text = one_line(clean(body[:4000].decode(errors="replace")), 80)
    if 300 <= status < 400:
        where = headers.get("Location", "somewhere else").split("?", 1)[0]
        where = re.sub(r"//[^/@]*@", "//***@", clean(where))
        raise ServerError(f"{address} redirects to {where} (a login page?); give the final address, or a token")
    if status in {401, 403}:
        said = f": {text}" if text and not text.startswith(("{", "<")) else ""
        mend = (
            "give the tenant: --header X-Scope-OrgID:TENANT"
            if "org id" in text.lower()
            else "give a token file or user that it accepts, and the right tenant"
        )
        raise ServerError(f"{address} refuses us ({status}){said}; {mend}")
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    if not isinstance(document, dict) or document.get("status") not in ("success", "error"):
        what = "a web page" if body.lstrip()[:1] == b"<" else "no Prometheus JSON"
        why = "a login page or a proxy's error; " if what == "a web page" else ""
        kind_ = PassingError if status in _PASSING else ServerError
        raise kind_(f"{address} answered {status} with {what}: {text!r}; {why}is that a Prometheus?")
    if document["status"] == "error":
        kind, said = document.get("errorType", "error"), one_line(clean(str(document.get("error", ""))))
        if re.search(r"too many samples|exceeded maximum resolution|max(imum)? .*(samples|series|points)", said):
            raise TooMuchError(f"{address}: {said}; ask for less (a shorter range, fewer series): {one_line(expr, 120)}")
        if kind == "timeout" or re.search(r"timed out|timeout exceeded|deadline exceeded", said):
            raise QueryTimeoutError(f"{address}: {kind}: {said}; ask for less, or raise the server's query timeout")
        if kind in {"bad_data", "execution", "422", "400"}:
            raise QueryError(f"{address}: {said}; correct the expression: {one_line(expr)}")
        if status in _PASSING:
            raise PassingError(f"{address}: {kind}: {said}; see the server's log")
        raise ServerError(f"{address}: {kind}: {said}; see the server's log")
    data = document.get("data")
    if not isinstance(data, dict):
        raise ServerError(f"{address} answered without `data`; is that a Prometheus?")
    # Prometheus 2.48 to 2.55 puts its hints about style here as well ("metric might not be a counter, name does not end in
    # _total": every rate() of Triton's counters); from 3.0 on they are `infos`. They say nothing of missing data.
    told = [str(one) for one in document.get("warnings") or () if not str(one).startswith("PromQL info:")]
    warnings = [one_line(clean(one)) for one in told]
    if document.get("isPartial"):
        warnings.append("the answer is partial: some of the storage did not answer")
    return data, tuple(dict.fromkeys(warnings))


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


def read_secret(path: Path, what: str) -> str:
    """The secret that a file holds alone (a last line feed is not part of it); InputError without its content."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{path}: the {what} file is not UTF-8 text; write the {what} alone in it") from None
    except OSError as error:
        why = error.strerror or error
        raise InputError(f"{path}: the {what} file cannot be read: {why}; check the path") from error
    text = text.removesuffix("\n").removesuffix("\r")
    if not text:
        raise InputError(f"{path}: the {what} file is empty; write the {what} alone in it")
    return text


def _token(path: Path) -> str:
    token = read_secret(path, "token").strip()
    if not token or any(mark.isspace() for mark in token):
        raise InputError(f"{path}: holds no bearer token; write the token alone in the file")
    return token


def names(series: Iterable[Series]) -> list[str]:
    """The metric names of some series, sorted, each once."""
    return sorted({dict(one.labels).get("__name__", "") for one in series})
