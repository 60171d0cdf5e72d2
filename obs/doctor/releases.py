"""Triton's version (2.x) and the NGC container (YY.MM) that ships it.

One release a month since 23.05 = 2.34, but for 25.07 = 2.59.1. Sources: TRITON_VERSION on the branches rYY.MM of
triton-inference-server/server (r26.05 has 2.69.0, r26.06 has 2.70.0: obs.sidecar.readiness), and the captured 24.10 =
2.51. A version after the last one that was read is counted on by the month.
"""

from __future__ import annotations

import re
from functools import total_ordering
from typing import NamedTuple

_FIRST, _FIRST_MONTH = 34, 23 * 12 + 4
_SHIFTED, _SHIFTED_MONTH = 60, 25 * 12 + 7
_VERSION = re.compile(r"2\.(\d{1,3})(?:\.(\d{1,3}))?.*", re.DOTALL)
_RELEASE = re.compile(r"(\d\d)\.(\d\d)")


@total_ordering
class Release(NamedTuple):
    """A container release: 26.05 is ``Release(26, 5)``."""

    year: int
    month: int

    def __str__(self) -> str:
        return f"{self.year}.{self.month:02d}"


def container(version: str) -> Release | None:
    """The container of a Triton version such as "2.51.0"; None when it is no 2.x, or from before 23.05."""
    match = _VERSION.fullmatch(version)
    if match is None or int(match[1]) < _FIRST:
        return None
    minor = int(match[1])
    if (minor, int(match[2] or 0)) == (_SHIFTED - 1, 1):
        months = _SHIFTED_MONTH - 1
    elif minor >= _SHIFTED:
        months = _SHIFTED_MONTH + minor - _SHIFTED
    else:
        months = _FIRST_MONTH + minor - _FIRST
    return Release(months // 12, months % 12 + 1)


def release(text: str) -> Release | None:
    """"26.05" as a release; None when it is none."""
    match = _RELEASE.fullmatch(text)
    return Release(int(match[1]), int(match[2])) if match else None
