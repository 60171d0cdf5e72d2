"""Pages of a server, bounded in size and time, and in clear words why one could not be had."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from obs.sidecar.scrape import Fetcher, Page, ScrapeFailed, Target, shown

_MENDS = {
    "refused": "start the server, or correct the port",
    "timeout": "check the address and the network (a firewall drops packets silently), or raise --timeout",
    "tls": "give its authority with --ca-file PEM, or write http:// when the server speaks no TLS",
    "network": "check host and port: this is what the gRPC port (8001) answers to HTTP",
    "redirect": "give the final address",
    "too_large": "this is not a metrics page or an API of a server that we know; check the port",
}


class LookedAtNothing(Exception):
    """A source could not be looked at; the text is one line: what, why and the mend."""


@dataclass(frozen=True)
class Reply:
    """A status and a body."""

    url: str
    status: int
    page: Page

    @property
    def text(self) -> str:
        return self.page.body.decode("utf-8", errors="replace")

    def json(self) -> Any:
        """The body as JSON; None when it is none."""
        try:
            return json.loads(self.page.body)
        except (ValueError, RecursionError):
            return None

    @property
    def what(self) -> str:
        """What kind of page this is, for people."""
        text = self.text.lstrip()
        if not text:
            return f"nothing (HTTP {self.status}, no body)"
        if text.startswith("<"):
            return "a web page (HTML)"
        if self.json() is not None:
            return "JSON of another program"
        return "text that is neither JSON nor metrics" if not text.startswith("# HELP") else "a metrics page"


@dataclass(frozen=True)
class Site:
    """One origin and how we reach it. InputError for a URL that is none, or a CA file that cannot be used."""

    url: str
    timeout: float
    authorization: str = ""
    ca_file: str = ""

    def fetcher(self) -> Fetcher:
        return Fetcher(Target(self.url, self.authorization, self.ca_file), timeout=self.timeout)


def get(fetcher: Fetcher, url: str, path: str | None = None, *, method: str = "GET") -> Reply:
    """A page of whatever status but 401 and 403. Raises LookedAtNothing with one line that names the URL."""
    where = shown(url if path is None else url.rstrip("/") + path)
    try:
        status, page = fetcher.fetch(path, any_status=True, method=method)
    except ScrapeFailed as error:
        raise LookedAtNothing(f"{where}: {_said(error)}; {_MENDS.get(error.reason, 'check the address')}") from None
    if status in (401, 403):
        raise LookedAtNothing(
            f"{where} refuses us (HTTP {status}); give the Authorization header's value with --authorization-file FILE"
        )
    return Reply(where, status, page)


def _said(error: ScrapeFailed) -> str:
    detail = error.detail
    if error.reason == "tls":
        low = detail.lower().replace("_", " ")
        if "certificate verify" in low:
            return "its certificate is not trusted here (self-signed, or of an authority that we do not know)"
        if "wrong version" in low or "record layer" in low:
            return "it does not speak TLS"
        return f"no TLS connection ({detail})"
    if error.reason == "network":
        known = {
            "gaierror": "its host name cannot be resolved",
            "BadStatusLine": "it does not speak HTTP/1.1 (a gRPC port?)",
            "RemoteDisconnected": "it closed the connection without an answer",
            "ConnectionResetError": "it reset the connection",
        }
        return known.get(detail, f"no HTTP connection ({detail})")
    return detail
