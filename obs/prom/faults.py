"""What went wrong with a connection, in the system's words and not in those of the HTTP library around it."""

from __future__ import annotations

import http.client
import socket

from obs.prom.remote_write import one_line


def reason(error: BaseException) -> str:
    """The innermost cause that says something: "connection refused", "no such host", …; else the error's own text."""
    waiting: list[BaseException] = [error]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, socket.gaierror):
            return "no such host"
        if isinstance(one, http.client.HTTPException):
            return "the connection was closed without an answer"
        if isinstance(one, OSError) and one.strerror:
            return one.strerror[:1].lower() + one.strerror[1:]
        waiting += [
            it for it in (getattr(one, "reason", None), one.__cause__, one.__context__, *one.args)
            if isinstance(it, BaseException)
        ]
    return one_line(str(error), 160)
