"""The HTTP server that every serving command stands on: standard library only, as the sidecar needs it."""

from __future__ import annotations

import logging
import socket
from http.server import ThreadingHTTPServer
from typing import Any

log = logging.getLogger(__name__)


class WebServer(ThreadingHTTPServer):
    """A thread per connection; looks up no name, and a client that goes away is no error.

    Binding raises OSError (address taken or not ours) or OverflowError (no port number).
    """

    daemon_threads = True

    def server_bind(self) -> None:
        """As the parent, but without looking up our name: that can hang for seconds."""
        if self.allow_reuse_address:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away, or that talks no TLS, is no error of ours: no traceback on the terminal."""
        log.debug("connection ended early", exc_info=True)
