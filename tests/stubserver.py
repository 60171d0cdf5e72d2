"""The server under every HTTP stub of the tests."""

from __future__ import annotations

import sys
from http.server import ThreadingHTTPServer
from typing import Any


class StubServer(ThreadingHTTPServer):
    """A thread per connection. A client that goes away prints nothing; a stub's own mistake still does."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)
