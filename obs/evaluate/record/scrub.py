"""Takes chosen labels out of what is recorded, or their values: for a recording that is given to others.

A hashed value is HMAC-SHA-256 under a key that is made for each recording and kept nowhere: equal values stay
equal within the recording, and nobody can try out names against it afterwards. Names of metrics and all other
text stay as served.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Collection, Mapping

from obs.errors import InputError
from obs.evaluate import exposition

_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_NEEDED = {"le": "a bucket's bound", "quantile": "a summary's quantile", "__name__": "the metric's name"}
_DIGITS = 12  # 48 bits: among 1,000,000 values two are equal with a chance of 0.2 %, and then that is said


class Scrubber:
    """Drops some labels, hashes the values of others. InputError for a label that a page cannot do without."""

    def __init__(self, drop: Collection[str] = (), hashed: Collection[str] = (), key: bytes | None = None) -> None:
        for flag, names in (("--drop-label", drop), ("--hash-label", hashed)):
            for name in names:
                if name in _NEEDED:
                    raise InputError(f"{flag} {name}: holds {_NEEDED[name]}, without which nothing can be judged; leave it out")
                if not _LABEL.fullmatch(name):
                    raise InputError(f"{flag} {name!r}: is no label's name; give one such as pod")
        if both := sorted(set(drop) & set(hashed)):
            raise InputError(f"--drop-label {both[0]} and --hash-label {both[0]}: choose one")
        self._drop = frozenset(drop)
        self._names = frozenset(drop) | frozenset(hashed)
        self._key = secrets.token_bytes(32) if key is None else key

    def labels(self, labels: Mapping[str, str]) -> dict[str, str]:
        """A target's labels, scrubbed."""
        changed = {name: self._change(name, value) for name, value in labels.items()}
        return {name: value for name, value in changed.items() if value is not None}

    def apart(self, one: Mapping[str, str], two: Mapping[str, str]) -> str:
        """The scrubbed labels in which two sets of labels differ, for a message; "" for none."""
        return ", ".join(name for name in sorted(self._names) if one.get(name) != two.get(name))

    def body(self, body: bytes, text: str, heads: exposition.Heads, source: str) -> bytes:
        """A body that ``exposition.parse`` has read into ``heads``; the very bytes served when nothing is to be scrubbed.

        InputError when two series of it become equal, naming the label.
        """
        if not self._names:
            return body
        lines = []
        seen: dict[tuple[str, exposition.Pairs], exposition.Pairs] = {}
        for line in text.split("\n"):
            head = exposition.head_of(line)
            if not head:
                lines.append(line)
                if line.strip() == "# EOF":
                    lines.append("")  # what follows it nobody reads, so nobody scrubs it
                    break
                continue
            name, pairs = heads[head]
            left = tuple(sorted(self.labels(dict(pairs)).items()))
            before = seen.setdefault((name, left), pairs)
            if before != pairs:
                names = self.apart(dict(before), dict(pairs))
                raise InputError(
                    f"{source}: two series of {name} differ in nothing but label {names}, which is scrubbed; "
                    "hash it with --hash-label instead of dropping it, or leave it in"
                )
            lines.append(self._line(line))
        return "\n".join(lines).encode()

    def _line(self, line: str) -> str:
        lead = line[: len(line) - len(line.lstrip(" \t\r"))]
        sample = exposition.relabel(line[len(lead) :], self._change)
        start = len(exposition.head_of(sample))
        value, mark, exemplar = sample[start:].partition("#")
        if mark:
            exemplar = exposition.relabel(exemplar, self._change)
            if "{" not in exemplar:  # an exemplar without labels is no exemplar
                return lead + sample[:start] + value.rstrip(" \t")
        return lead + sample[:start] + value + mark + exemplar

    def _change(self, name: str, value: str) -> str | None:
        if name not in self._names or not value:
            return value
        if name in self._drop:
            return None
        return hmac.new(self._key, value.encode(), hashlib.sha256).hexdigest()[:_DIGITS]
