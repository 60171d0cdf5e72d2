"""What doctor says: findings with a mend, and how well each source could be looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")

State = Literal["ok", "partial", "failed"]


@dataclass(frozen=True)
class Finding:
    """One thing that keeps a part of the pack from working, or that is worth knowing.

    ``place`` is where to look: a URL, ``file:line:column``, a series or a scrape target. ``what`` is what was seen,
    ``why`` what follows from it, ``mend`` the flag, configuration lines or scrape settings that change it (several
    lines are kept as they are). ``id`` is the check's (``obs doctor --explain ID``).
    """

    id: str
    severity: Severity
    place: str
    what: str
    why: str
    mend: str

    @property
    def key(self) -> tuple[int, str, str, str]:
        """The order of a report: the worst first, then by check and place."""
        return SEVERITIES.index(self.severity), self.id, self.place, self.what


@dataclass(frozen=True)
class Source:
    """One of the places that were looked at. ``what`` says in a few words what it is.

    ``partial``: some of it could not be read; ``failed``: nothing of it could. ``lacking`` says what and why.
    """

    name: str
    place: str
    state: State
    what: str = ""
    lacking: tuple[str, ...] = ()
