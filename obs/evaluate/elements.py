"""From a rule's raw result to what a server makes of it: labels put on, clashes found, samples recorded.

An evaluation in which two elements come to have the same labels fails, for alerting and recording rules alike, as does
a recording rule's with more series than its group's ``limit`` (rules/alerting.go, rules/recording.go). A failed
evaluation changes no state and records nothing, not even a stale marker.
"""

from __future__ import annotations

import itertools
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from obs.errors import InputError
from obs.evaluate.ranges import Piece, merged
from obs.evaluate.rules import Rule
from obs.prom.packed import Packed
from obs.prom.remote_write import STALE_NAN, Labels

_MANY = 20  # runs of a series in a piece, from which on it is written sample by sample
_STALE = array("d", [STALE_NAN])


@dataclass
class Elements:
    """When each of an alert's instances is in the result; pieces are added in order of time."""

    rule: Rule
    runs: dict[Labels, list[tuple[int, int]]] = field(default_factory=dict)
    failed: list[int] = field(default_factory=list)
    clashes: int = 0
    example: Labels = ()
    _names: dict[Labels, Labels] = field(default_factory=dict)

    def add(self, piece: Piece) -> None:
        """Take a piece in. InputError when a label's template cannot be expanded."""
        found: dict[Labels, list[tuple[int, int]]] = {}
        for series in piece.series:
            for labels, run in self._named(series):
                found.setdefault(labels, []).append(run)
        failed = set(piece.failed)
        for labels, runs in found.items():
            clashing = _overlaps(runs)
            if clashing:
                self.example = self.example or labels
                self.clashes += len(clashing - failed)
                failed |= clashing
        self.failed += sorted(piece.first + index for index in failed)
        for labels, runs in found.items():
            mine = self.runs.setdefault(labels, [])
            for begin, end in merged(runs):
                if mine and mine[-1][1] == begin + piece.first:
                    mine[-1] = (mine[-1][0], end + piece.first)
                else:
                    mine.append((begin + piece.first, end + piece.first))

    def _named(self, series: Packed) -> Iterator[tuple[Labels, tuple[int, int]]]:
        if self.rule.reads_value and series.values is not None:
            at = 0
            for begin, end in series.runs:
                for index in range(begin, end):
                    yield self.rule.result_labels(series.labels, series.values[at]), (index, index + 1)
                    at += 1
            return
        labels = self._names.get(series.labels)
        if labels is None:
            labels = self._names[series.labels] = self.rule.result_labels(series.labels)
        for run in series.runs:
            yield labels, run

    def settled(self, times: range) -> tuple[dict[Labels, tuple[tuple[int, int], ...]], Sequence[int]]:
        """The runs over the evaluations that did not fail, and their times.

        InputError when all of them fail because elements have the same labels.
        """
        if self.clashes and len(self.failed) == len(times):
            raise InputError(
                f"{self.rule.where or self.rule.name}: {self.rule.name} gives two results with the same labels "
                f"{dict(self.example)}; keep the label that tells them apart"
            )
        if not self.failed:
            return {labels: tuple(runs) for labels, runs in self.runs.items()}, times
        gone = set(self.failed)
        left = [at for index, at in enumerate(times) if index not in gone]
        moved = {}
        for labels, runs in self.runs.items():
            shifted = [tuple(index - bisect_left(self.failed, index) for index in run) for run in runs]
            kept = merged([(begin, end) for begin, end in shifted if begin < end])
            if kept:
                moved[labels] = kept
        return moved, left


_CHANGES, _VALUES = 5_000, 4


class Made(NamedTuple):
    """Of what recording rules made under one name: how many series at once, and the times at which one of them began, ended
    or had another value than before; None: too many, or unknown."""

    series: int
    changes: frozenset[int] | None

    def beside(self, other: Made) -> Made:
        """Of the series of both."""
        changes = None if self.changes is None or other.changes is None else self.changes | other.changes
        return Made(self.series + other.series, changes)


@dataclass
class Recorded:
    """A recording rule's samples; pieces are given in order of time. ``over``: evaluations beyond the limit."""

    rule: Rule
    clashes: int = 0
    over: int = 0
    most: int = 0  # series in one piece
    example: Labels = ()
    changes: set[int] | None = field(default_factory=set)
    _open: dict[Labels, float] = field(default_factory=dict)

    @property
    def made(self) -> Made:
        return Made(self.most, None if self.changes is None else frozenset(self.changes))

    def series(self, piece: Piece, times: Sequence[int]) -> list[tuple[Labels, Sequence[int], array[float]]]:
        """What the piece's evaluations record: per series, times (each evaluation's, less the offset) and values."""
        found: dict[Labels, list[tuple[int, int, array[float]]]] = {}
        for series in piece.series:
            assert series.values is not None
            labels = self.rule.result_labels(series.labels)
            at = 0
            for begin, end in series.runs:
                found.setdefault(labels, []).append((begin, end, series.values[at : at + end - begin]))
                at += end - begin
        failed = set(piece.failed)
        clashing: set[int] = set()
        for labels, runs in found.items():
            here = _overlaps([run[:2] for run in runs])
            if here:
                self.example = self.example or labels
                clashing |= here
        self.clashes += len(clashing - failed)
        failed |= clashing
        if self.rule.limit:
            over = self._over(found, piece.count) - failed
            self.over += len(over)
            failed |= over
        good = [index for index in range(piece.count) if index not in failed] if failed else range(piece.count)
        if not good:
            return []
        self.most = max(self.most, len(found))
        mine = times[piece.first : piece.first + piece.count]
        out: list[tuple[Labels, Sequence[int], array[float]]] = []
        last: dict[Labels, float] = {}
        if failed or self.rule.offset_ms:
            self.changes = None
        for labels in sorted(found.keys() | self._open.keys()):
            runs = sorted(found.get(labels, ()), key=lambda run: run[0])
            if self.changes is not None:
                self._note(self.changes, labels, runs, mine)
            if len(runs) == 1 and runs[0][:2] == (0, piece.count) and not failed:
                out.append((labels, mine, runs[0][2]))
                last[labels] = runs[0][2][-1]
                continue
            if not failed and len(runs) <= _MANY:
                open_ = labels in self._open
                at = 0
                for begin, end, values in runs:
                    if open_ and at < begin:
                        out.append((labels, mine[at : at + 1], _STALE))
                    out.append((labels, mine[begin:end], values))
                    open_, at = True, end
                if open_ and at < piece.count:
                    out.append((labels, mine[at : at + 1], _STALE))
                elif open_:
                    last[labels] = runs[-1][2][-1]
                continue
            present: dict[int, float] = {}
            for begin, end, values in runs:
                present.update(zip(range(begin, end), values, strict=True))
            there = labels in self._open
            at_, value_ = list[int](), array("d")
            for index in good:
                if index in present:
                    at_.append(mine[index])
                    value_.append(present[index])
                elif there:
                    at_.append(mine[index])
                    value_.append(STALE_NAN)
                there = index in present
            if at_:
                out.append((labels, _as_range(at_, mine), value_))
            if there:
                last[labels] = present[good[-1]]
        self._open = last
        return out

    def _note(
        self, changes: set[int], labels: Labels, runs: Sequence[tuple[int, int, array[float]]], times: Sequence[int]
    ) -> None:
        """Add the times at which a series changes, within a piece at these times or from the one before."""
        before = None if labels not in self._open else _bits(array("d", [self._open[labels]]))[0]
        at = 0
        for begin, end, values in runs:
            if before is not None and at < begin:
                changes.add(times[at])
                before = None
            bits = _bits(values)
            if len(set(bits)) > _VALUES:
                self.changes = None
                return
            index = begin
            for bit, same in itertools.groupby(bits):
                if bit != before:
                    changes.add(times[index])
                before = bit
                index += sum(1 for _ in same)
            at = end
        if before is not None and at < len(times):
            changes.add(times[at])
        if len(changes) > _CHANGES:
            self.changes = None

    def _over(self, found: dict[Labels, list[tuple[int, int, array[float]]]], count: int) -> set[int]:
        changes = [0] * (count + 1)
        for runs in found.values():
            for begin, end, _ in runs:
                changes[begin] += 1
                changes[end] -= 1
        return {index for index, now in enumerate(itertools.accumulate(changes)) if now > self.rule.limit}


def _bits(values: array[float]) -> array[int]:
    """Values as bits: a NaN is not equal to itself, and 0 is equal to -0."""
    return array("Q", values.tobytes())


def _as_range(at: list[int], grid: Sequence[int]) -> Sequence[int]:
    """Some of a grid's times, as a range where they follow each other: that is written faster."""
    if not isinstance(grid, range) or at[-1] - at[0] != (len(at) - 1) * grid.step:
        return at
    return range(at[0], at[-1] + 1, grid.step)


def _overlaps(runs: Sequence[tuple[int, int]]) -> set[int]:
    """The indexes that lie in more than one of some runs."""
    if len(runs) < 2:
        return set()
    found: set[int] = set()
    until = -1
    for begin, end in sorted(runs):
        if begin < until:
            found.update(range(begin, min(until, end)))
        until = max(until, end)
    return found
