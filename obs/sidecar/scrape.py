"""Fetch one page from the one target we are told of: bounded in time and size, and clear about why it failed.

A fetch has one deadline for everything, so that a server that drips a byte a second costs no more than one that
hangs. Redirects are followed only on the same scheme, host and port. The body limit holds before and after
decompression. Nothing here writes the target's credentials anywhere.
"""

from __future__ import annotations

import http.client
import io
import re
import socket
import ssl
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, urljoin, urlsplit

from obs.errors import InputError

BODY_LIMIT = 16 * 1024 * 1024
REDIRECTS = 3
_CHUNK = 64 * 1024

#: Why a sample failed, and what it means. These are the values of ``llm_sidecar_scrapes_total{outcome}``, beside "ok".
REASONS: dict[str, str] = {
    "refused": "nobody listens at the target's port",
    "timeout": "no complete answer within the deadline",
    "network": "the connection failed or was reset",
    "tls": "the TLS handshake or the certificate failed",
    "redirect": "a redirect to another host, or too many of them",
    "http_status": "an HTTP status other than 200",
    "too_large": "the body is larger than the limit, compressed or not",
    "bad_encoding": "a content encoding that is not gzip, or garbled gzip",
    "truncated": "the body ends before its end",
    "empty": "status 200 with nothing in it",
    "html": "an HTML page instead of metrics",
    "json": "JSON instead of metrics text",
    "garbled": "a line that is no metric line, or text that is no UTF-8",
    "unknown_engine": "metrics, but of no engine that we know",
    "missing_family": "metrics, but without the families of the engine that was configured",
}


class ScrapeFailed(Exception):
    """A page could not be had; ``reason`` is a key of REASONS, ``detail`` is for the log."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True)
class Page:
    """One body as served, and when it had arrived (``clock``'s seconds)."""

    body: bytes
    content_type: str
    at: float

    def text(self) -> str:
        """The body as text; ScrapeFailed when there is nothing in it or it is no UTF-8."""
        if not self.body.strip():
            raise ScrapeFailed("empty", f"{len(self.body)} bytes")
        try:
            return self.body.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ScrapeFailed("garbled", f"no UTF-8 at byte {error.start}") from None

    def refuse_cut(self, text: str) -> None:
        """ScrapeFailed when OpenMetrics text lacks the end that tells it from a page cut off between two lines."""
        if self.content_type.startswith("application/openmetrics-text") and text.rstrip().rpartition("\n")[2] != "# EOF":
            raise ScrapeFailed("truncated", "OpenMetrics text without # EOF")


@dataclass(frozen=True)
class Target:
    """Where to fetch from. ``authorization`` is the header's value; it is kept out of ``repr``."""

    url: str
    authorization: str = field(default="", repr=False)
    ca_file: str = ""

    def split(self) -> SplitResult:
        """The URL's parts; InputError when it is not one that we would fetch."""
        parts = _parts(self.url)
        if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"{shown(self.url)!r} is no http(s) URL; write it like http://127.0.0.1:8000/metrics")
        if parts.username or parts.password:
            raise InputError("the URL must not hold credentials; put them in a file for --authorization-file")
        if re.search(r"[\x00-\x20\x7f]", self.url):
            raise InputError("the URL holds a blank or a control character; remove it")
        return parts


def shown(url: str) -> str:
    """The URL without user, password and query: what may be logged.

    Also of one that is no URL: whatever stands before an @ may be a password, so nothing of that is shown.
    """
    bare = re.split(r"[?#]", url, maxsplit=1)[0]
    scheme, mark, rest = bare.partition("://")
    if "@" in bare:
        return (f"{scheme}://" if mark and "@" not in scheme else "") + bare.rpartition("@")[2]
    return scheme + mark + rest


def _parts(url: str) -> SplitResult | None:
    """The URL's parts; None where it has none, or a port that is no port."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    return parts


class Fetcher:
    """Fetches pages of one origin. ``timeout`` bounds a whole fetch, redirects included."""

    def __init__(
        self,
        target: Target,
        *,
        timeout: float,
        limit: int = BODY_LIMIT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._target = target
        #: the address, as it may be logged
        self.shown = shown(target.url)
        self._origin = target.split()
        self._timeout = timeout
        self._limit = limit
        self._clock = clock
        self._tls: ssl.SSLContext | None = None
        if self._origin.scheme == "https":
            try:
                self._tls = ssl.create_default_context(cafile=target.ca_file or None)
            except (OSError, ssl.SSLError) as error:
                raise InputError(f"{target.ca_file}: cannot be used as CA file: {error}") from None

    def fetch(self, path: str | None = None, *, any_status: bool = False, method: str = "GET") -> tuple[int, Page]:
        """The target's page, or that of another ``path`` of its origin; ScrapeFailed when it cannot be had.

        ``any_status``: a status other than 200 is an answer too (health endpoints). ``method`` is GET, but for
        Triton's repository index, which only answers to POST.
        """
        deadline = time.monotonic() + self._timeout
        url = self._target.url if path is None else urljoin(self._target.url, path)
        for _ in range(REDIRECTS + 1):
            parts = _parts(url)
            if parts is None or (parts.scheme, parts.hostname, _port(parts)) != (
                self._origin.scheme, self._origin.hostname, _port(self._origin),
            ):
                raise ScrapeFailed("redirect", f"to another host: {shown(url)}")
            status, location, page = self._once(parts, deadline, any_status, method)
            if location is None:
                return status, page
            try:
                url = urljoin(url, location)
            except ValueError:
                raise ScrapeFailed("redirect", "to something that is no URL") from None
        raise ScrapeFailed("redirect", f"more than {REDIRECTS} redirects")

    def _once(
        self, parts: SplitResult, deadline: float, any_status: bool, method: str
    ) -> tuple[int, str | None, Page]:
        headers = {"Accept": "text/plain;version=0.0.4, */*;q=0.1", "Accept-Encoding": "identity",
                   "Connection": "close", "User-Agent": "obs-sidecar"}
        if self._target.authorization:
            headers["Authorization"] = self._target.authorization
        connection = http.client.HTTPConnection(parts.hostname or "", _port(parts))
        raw: socket.socket | None = None
        try:
            raw = self._connect(parts, deadline)
            connection.sock = _Bounded(raw, deadline)
            connection.request(method, (parts.path or "/") + (f"?{parts.query}" if parts.query else ""),
                               body=b"" if method == "POST" else None, headers=headers)
            response = connection.getresponse()
            location = response.getheader("Location")
            if location is not None and response.status in (301, 302, 303, 307, 308):
                return response.status, location, Page(b"", "", 0.0)
            if response.status != 200 and not any_status:
                raise ScrapeFailed("http_status", f"HTTP {response.status}")
            body = self._read(response)
            encoding = (response.getheader("Content-Encoding") or "identity").strip().lower()
            content_type = response.getheader("Content-Type") or ""
            at = self._clock()
            return response.status, None, Page(self._decode(body, encoding), content_type, at)
        except TimeoutError:
            raise ScrapeFailed("timeout", f"no complete answer within {self._timeout:g} s") from None
        except http.client.IncompleteRead as error:
            raise ScrapeFailed("truncated", f"{error.expected or 'more'} bytes missing") from None
        except ConnectionRefusedError:
            raise ScrapeFailed("refused", "connection refused") from None
        except ssl.SSLError as error:
            raise ScrapeFailed("tls", error.reason or type(error).__name__) from None
        except (OSError, http.client.HTTPException) as error:
            raise ScrapeFailed("network", type(error).__name__) from None
        except ValueError:  # http.client on a chunk size that is no number
            raise ScrapeFailed("network", "garbled HTTP") from None
        finally:
            connection.close()
            if raw is not None:
                raw.close()

    def _connect(self, parts: SplitResult, deadline: float) -> socket.socket:
        raw = socket.create_connection((parts.hostname or "", _port(parts)), timeout=_left(deadline))
        if self._tls is None:
            return raw
        try:
            raw.settimeout(_left(deadline))
            return self._tls.wrap_socket(raw, server_hostname=parts.hostname)
        except BaseException:
            raw.close()
            raise

    def _read(self, response: http.client.HTTPResponse) -> bytes:
        if response.length is not None and response.length > self._limit:
            raise ScrapeFailed("too_large", f"Content-Length {response.length}, at most {self._limit} is read")
        parts, size = [], 0
        while chunk := response.read(_CHUNK):
            parts.append(chunk)
            size += len(chunk)
            if size > self._limit:
                raise ScrapeFailed("too_large", f"more than {self._limit} bytes")
        if response.length:  # read(n) on a short body ends without an error
            raise ScrapeFailed("truncated", f"{response.length} bytes missing")
        return b"".join(parts)

    def _decode(self, body: bytes, encoding: str) -> bytes:
        if encoding == "identity":
            return body
        if encoding not in ("gzip", "x-gzip"):
            raise ScrapeFailed("bad_encoding", f"Content-Encoding {encoding[:40]!r}, we asked for identity")
        inflate = zlib.decompressobj(wbits=31)
        try:
            text = inflate.decompress(body, self._limit + 1)
        except zlib.error:
            raise ScrapeFailed("bad_encoding", "garbled gzip") from None
        if len(text) > self._limit:
            raise ScrapeFailed("too_large", f"more than {self._limit} bytes after decompression")
        if not inflate.eof:
            raise ScrapeFailed("truncated", "the gzip stream has no end")
        if inflate.unused_data:  # reading only the first of several would publish half a page
            raise ScrapeFailed("bad_encoding", "more than one gzip stream")
        return text


class _Bounded:
    """A socket that http.client can use, on which everything together ends at one deadline."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._deadline = deadline

    def sendall(self, data: bytes) -> None:
        self._sock.settimeout(_left(self._deadline))
        self._sock.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        assert mode == "rb"
        return io.BufferedReader(_Raw(self._sock, self._deadline), 64 * 1024)

    def close(self) -> None:
        """Nothing yet: http.client calls it at the head of an answer, before it reads the body."""


class _Raw(io.RawIOBase):
    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._sock.settimeout(_left(self._deadline))
        return self._sock.recv_into(buffer)


def _port(parts: SplitResult) -> int:
    return parts.port or (443 if parts.scheme == "https" else 80)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
