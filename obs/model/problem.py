"""A finding of a check: a value with a place and a mend. Printing is elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["error", "warning", "info"]


@dataclass(frozen=True, order=True)
class Problem:
    """What is wrong, where, why it matters, and how to mend it.

    ``check`` is the id of the check (``obs check --explain ID``). ``path`` is the file, ``line`` its
    1-based line (0 = the whole file), ``subject`` the rule, panel or test, ``place`` the part of its
    expression (may be empty).
    """

    path: str
    line: int
    check: str
    subject: str
    what: str
    mend: str
    level: Level = "error"
    place: str = ""

    def __str__(self) -> str:
        where = f"{self.path}:{self.line}" if self.line else self.path
        at = f" `{self.place}`" if self.place else ""
        return f"{where}: {self.level}: {self.subject}:{at} {self.what}; {self.mend} [{self.check}]"
