"""Receives Alertmanager's webhook and prints one line for each alert of a notification. Its format is version 4's.

Source: Alertmanager's webhook payload (notify/webhook), fields receiver, status, groupLabels, alerts[].status/labels/….
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any

from obs.errors import InputError
from obs.webserver import WebServer

BODY_BYTES = 4 * 1024 * 1024
_FIRST = ("severity", "model", "job", "instance", "namespace", "pod")


def lines(payload: Mapping[str, Any]) -> Iterator[str]:
    """``2026-11-30T15:00:00Z firing InferenceTargetDown severity=critical … "summary"``, in the payload's order."""
    for alert in payload["alerts"]:
        labels, status = dict(alert["labels"]), str(alert["status"])
        name = labels.pop("alertname", "?")
        order = [*(one for one in _FIRST if one in labels), *sorted(labels.keys() - set(_FIRST))]
        at = alert["endsAt"] if status == "resolved" else alert["startsAt"]
        pairs = " ".join(f"{label}={labels[label]}" for label in order)
        text = f"{str(at)[:19]}Z {status:8} {name} {pairs} {json.dumps(alert.get('annotations', {}).get('summary', ''))}"
        yield "".join(letter if letter.isprintable() else " " for letter in text)


class Webhook(WebServer):
    """POST / takes a notification; GET /healthz answers ok."""

    def __init__(self, host: str, port: int, say: Callable[[str], None]) -> None:
        self.say = say
        self.lock = threading.Lock()
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError) as error:
            raise InputError(f"cannot listen on {host} port {port}: {error}; choose another with --port") from None


class _Handler(BaseHTTPRequestHandler):
    server: Webhook
    timeout = 10.0

    def do_GET(self) -> None:
        self._send(200 if self.path == "/healthz" else 404)

    def do_POST(self) -> None:
        try:
            length = int(self.headers.get("Content-Length") or 0)
            if not 0 < length <= BODY_BYTES:
                raise ValueError
            found = list(lines(json.loads(self.rfile.read(length))))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            self._send(400)
            return
        with self.server.lock:
            for line in found:
                self.server.say(line)
        self._send(200)

    def _send(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Silent: the notifications are the log."""
