"""The flags that a Triton was started with: given by the user, or of the process that listens here.

Triton tells them nowhere over HTTP. On the machine (or in the pod) that runs the server, /proc does: the process that
listens at the port. Linux only; where it cannot be seen, the flags are unknown.
"""

from __future__ import annotations

import contextlib
import ipaddress
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from obs.errors import InputError

_LISTENS = "0A"
_BARE = frozenset(("true", "false"))


def parse(words: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """``--name=value``, ``--name value`` and ``--name`` (true) as name -> values in their order."""
    found: dict[str, tuple[str, ...]] = {}
    place = 0
    while place < len(words):
        word = words[place]
        place += 1
        if not word.startswith("--"):
            continue
        name, equals, value = word[2:].partition("=")
        if not equals:
            value = "true"
            if place < len(words) and not words[place].startswith("--"):
                value = words[place]
                place += 1
        found[name] = (*found.get(name, ()), value)
    return found


def of_text(text: str) -> dict[str, tuple[str, ...]]:
    """The flags of a command line as text; InputError when its quotes do not close."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InputError(f"--triton-args: {error}; give the server's command line as one argument") from None
    found = parse(words)
    if not found:
        raise InputError("--triton-args holds no --flag; write it like --triton-args='--model-control-mode=poll'")
    return found


def of_listener(url: str, proc: Path = Path("/proc")) -> dict[str, tuple[str, ...]] | None:
    """The flags of the local process that listens at the URL's port; None when it is not here or cannot be seen."""
    parts = urlsplit(url)
    if not _is_local(parts.hostname or ""):
        return None
    port = parts.port or (443 if parts.scheme == "https" else 80)
    sockets = {f"socket:[{inode}]" for inode in _inodes(port, proc)}
    if not sockets:
        return None
    for folder in proc.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
            if "tritonserver" not in Path(words[0]).name:
                continue
            if any(_target(one) in sockets for one in (folder / "fd").iterdir()):
                return parse(words[1:])
    return None


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""


def _inodes(port: int, proc: Path) -> set[str]:
    found = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in (proc / "net" / table).read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == _LISTENS and int(words[1].rpartition(":")[2], 16) == port:
                    found.add(words[9])
    return found


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def shown(flags: Mapping[str, tuple[str, ...]]) -> str:
    """For people: how many are known."""
    return f"{sum(len(values) for values in flags.values())} flags known"
