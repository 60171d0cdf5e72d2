"""A private Prometheus that stands in for the recording rules that a server has not loaded.

In place of a recorded series one can put its rule's expression (explain.expand), at the price that the server evaluates the
same rule again for every alert, part and reason that reads it, and over a range at every step of it. Here each rule that is
needed is evaluated once: on the server, at the evaluations that its readers look at (``at``, ``at`` less the interval, …),
and what it gives is written into a private Prometheus as if the rule had been loaded all the time. What reads recorded
series is then asked there; what also reads the server's own has those parts of it evaluated on the server and written
beside, as obs.evaluate.first does. What cannot be divided so is asked of the server, with the rules put in.

It is used only where nothing can differ but the moments at which a range over a recorded series has its samples: here
those of an evaluation at ``at``, there the multiples of the interval. Everything else raises DiffersError: a server that
is no Prometheus or of another major version (ranges are open on the left from 3.0 on), an expression whose look back
cannot be told, a rule that fails or whose group sets a limit or an offset, a partial answer.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import TracebackType

from obs.errors import InputError, ObsError
from obs.evaluate import explain
from obs.evaluate import rules as rules_
from obs.evaluate.elements import Recorded
from obs.evaluate.explain import Part, take_apart
from obs.evaluate.questions import MARK, together
from obs.evaluate.ranges import Piece, merged
from obs.evaluate.rules import Rule, duration_ms
from obs.prom import metric_names
from obs.prom.client import Client
from obs.prom.packed import Packed
from obs.prom.remote_write import Labels
from obs.prom.server import PrivatePrometheus

_BUNDLE = 10_000  # characters
_POINTS = 10_000  # steps of one question
_SIZES = (12, 22, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768)
_TOGETHER = 1500  # steps of all questions of a bundle: `or` costs more with each step than a question by itself
_TAIL = re.compile(r"\[([^\]:]+)\]\s*(?:offset\s+(-?\s*\w+))?\s*$", re.IGNORECASE)
_OFFSET = re.compile(r"\boffset\s+(-?\s*\w+)\s*$", re.IGNORECASE)

Steps = tuple[tuple[int, int], ...]
"""Evaluations, counted back from ``at`` (0): runs of (first, behind the last)."""


_Written = tuple[Labels, Sequence[int], "array[float]"]


class DiffersError(Exception):
    """Asked here, the result could differ from that of the expression with the rules put in."""


class StandIn:
    """``rules``: by name, the recording rules to stand in for; ``names``: of the metrics that the server has itself.

    ``with StandIn(…) as it: it.record(…); it.client.ask(…)``: it starts at once, in the background.
    """

    def __init__(
        self,
        client: Client,
        rules: Mapping[str, Sequence[Rule]],
        names: frozenset[str],
        at: float,
        interval: float,
        parallel: int,
        binary: Path,
    ) -> None:
        self._source = client
        self._names = names
        self._at_ms = round(at * 1000)
        self._step_ms = round(interval * 1000)
        self._rules = rules
        self._pool = ThreadPoolExecutor(max_workers=max(2, parallel), thread_name_prefix="stand-in")
        self._passes = itertools.count(1)
        self._unions: explain.Unions = {}
        self._able: dict[str, bool] = {}
        self._levels: list[list[Rule]] = []
        self._part_names: dict[str, str] = {}
        self._parts: dict[str, Rule] = {}
        self._divided: dict[str, str | None] = {}
        self._prepared: set[str] = set()
        self._failed: set[str] = set()
        self._server = PrivatePrometheus(binary=binary)
        self._started: Future[PrivatePrometheus] = self._pool.submit(self._server.__enter__)

    def __enter__(self) -> StandIn:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(ObsError):
            self._started.result().__exit__(kind, error, trace)
        self._pool.shutdown()

    @property
    def names(self) -> Collection[str]:
        """The recorded series that it stands in for."""
        return self._rules.keys()

    @property
    def client(self) -> Client:
        """Of the private Prometheus. ToolError or ServerError when it did not start."""
        return self._started.result().client

    def settle(self, rules: Mapping[str, Sequence[Rule]]) -> None:
        """The rules as they are to be evaluated. DiffersError when this server's cannot be."""
        if any(rule.limit or rule.offset_ms for rule in itertools.chain.from_iterable(rules.values())):
            raise DiffersError("a limit or an offset of a group")
        major = self._source.version().partition(".")[0]
        if not major or major != self.client.version().partition(".")[0]:
            raise DiffersError("another version")
        self._rules = rules
        self._unions.clear()
        self._able.clear()
        try:
            self._levels = rules_.levels(itertools.chain.from_iterable(rules.values()))
        except InputError:
            raise DiffersError("a circle") from None

    def answers(self, expr: str) -> bool:
        """Whether an expression reads recorded series, none that the server has itself, and those only as they are here."""
        known = self._able.get(expr)
        if known is None:
            known = self._able[expr] = self._answers(expr)
        return known

    def _answers(self, expr: str) -> bool:
        read = metric_names.selectors(expr)
        if read is None or any(not one.name for one in read):
            return False
        names = {one.name for one in read}
        own = names - self._rules.keys() - self._parts.keys()
        if len(own) == len(names) or not own.isdisjoint(self._names):
            return False
        try:
            return all(low < high or low % self._step_ms == 0 for name, low, high in looks(expr) if name not in own)
        except DiffersError:
            return False

    def text(self, expr: str) -> str | None:
        """What to ask here for an expression; None when only the server can tell.

        Its parts that read only the server's own series are replaced by series that ``prepare`` or ``record`` make of them.
        """
        if self.answers(expr):
            return expr
        if expr not in self._divided:
            self._divided[expr] = self._divide(expr)
        text = self._divided[expr]
        return None if text is None or any(one.name in self._failed for one in metric_names.selectors(text) or ()) else text

    def _divide(self, expr: str) -> str | None:
        if "__name__" in expr or not self._reads(expr):
            return None

        def put(text: str) -> str:
            name = self._part_names.setdefault(text, f"obs_part_{len(self._part_names) + 1}")
            self._parts[name] = Rule("record", name, text)
            return name

        try:
            text = explain.divided(expr, self._reads, put)
        except ValueError:
            return None
        return text if self.answers(text) else None

    def _reads(self, expr: str) -> bool:
        read = metric_names.selectors(expr)
        return read is None or any(not one.name or one.name in self._rules for one in read)

    def prepare(self, exprs: Iterable[str]) -> None:
        """Evaluate the parts that are needed to ask for some expressions now; those that cannot be are asked of the server."""
        texts = [text for text in map(self.text, exprs) if text is not None]
        names = dict.fromkeys(one.name for text in texts for one in metric_names.selectors(text) or ())
        new = [self._parts[name] for name in names if name in self._parts and name not in self._prepared]
        if not new:
            return
        self._prepared.update(rule.name for rule in new)
        try:
            self._evaluate_all([(False, ((0, 1),), rule, rule.expr) for rule in new])
        except (DiffersError, ObsError):
            self._failed.update(rule.name for rule in new)

    def record(self, readers: Iterable[tuple[str, int, int]], *, again: bool = False) -> Callable[[str], str]:
        """Evaluate what some expressions (as ``text`` gives them) read that are to be asked at some evaluations: each with the
        first and behind the last, counted back from ``at`` (0).

        ``again``: beside what was recorded before. What is to be asked for an expression then: a function of it.
        DiffersError, and ServerError or ToolError when one of the two cannot answer.
        """
        prefix = f"obs{next(self._passes)}_" if again else ""
        wanted = self._steps(readers)
        names = self._rules.keys() | self._parts.keys()

        def named(expr: str) -> str:
            return explain.renamed(expr, names, prefix) if prefix else expr

        for level in [[*self._parts.values(), *self._levels[0]], *self._levels[1:]]:
            work = []
            for rule in level:
                if rule.name in wanted:
                    here = self.answers(rule.expr)
                    text = named(rule.expr) if here else self._put_in(rule.expr)
                    work.append((here, wanted[rule.name], replace(rule, name=prefix + rule.name), text))
            self._evaluate_all(work)
        return named

    def _put_in(self, expr: str) -> str:
        return explain.expand(expr, self._rules, f"{self._step_ms}ms", self._unions).text

    def _steps(self, readers: Iterable[tuple[str, int, int]]) -> dict[str, Steps]:
        """At which evaluations each recorded series is read."""
        found: dict[str, list[tuple[int, int]]] = {}

        def read(expr: str, steps: Sequence[tuple[int, int]]) -> None:
            for name, low, high in looks(expr):
                if name in self._rules or name in self._parts:
                    first, last = low // self._step_ms, -(-high // self._step_ms)
                    found.setdefault(name, []).extend((begin + first, end + last) for begin, end in steps)

        for expr, first, behind in readers:
            read(expr, [(first, behind)])
        for level in reversed(self._levels):
            for rule in level:
                if rule.name in found:
                    found[rule.name] = list(merged(found[rule.name]))
                    if self.answers(rule.expr):
                        read(rule.expr, found[rule.name])
        return {name: _rounded(merged(runs)) for name, runs in found.items()}

    def _evaluate_all(self, work: Iterable[tuple[bool, Steps, Rule, str]]) -> None:
        """Evaluate rules (by a text: here, or on the server) at some evaluations, and write what they record."""
        groups: dict[tuple[bool, Steps], list[tuple[Rule, str]]] = {}
        for here, steps, rule, text in work:
            groups.setdefault((here, steps), []).append((rule, text))
        asked = [
            self._pool.submit(self._evaluate, self.client if here else self._source, bundle, steps)
            for (here, steps), some in groups.items()
            for bundle in _bundles(some, sum(end - begin for begin, end in steps))
        ]
        written = [one for done in asked for one in done.result()]
        if written:
            self._started.result().writer.write_series(written)

    def _evaluate(self, client: Client, bundle: Sequence[tuple[Rule, str]], steps: Steps) -> list[_Written]:
        """Ask for some rules at some evaluations: what they record."""
        alone = len(bundle) == 1
        whole = bundle[0][1] if alone else together([text for _, text in bundle])
        times: list[int] = []
        pieces: list[list[Piece]] = [[] for _ in bundle]
        for first, behind in reversed(steps):
            for high in range(behind, first, -_POINTS):
                low = max(first, high - _POINTS)
                mine = range(self._at_ms - (high - 1) * self._step_ms, self._at_ms - low * self._step_ms + 1, self._step_ms)
                answer = client.ask_packed(whole, mine[0], mine[-1], self._step_ms)
                if answer.warnings:
                    raise DiffersError(answer.warnings[0])
                series: list[list[Packed]] = [[] for _ in bundle]
                for one in answer.series:
                    labels = one.labels if alone else tuple(pair for pair in one.labels if pair[0] != MARK)
                    place = 0 if alone else int(dict(one.labels)[MARK])
                    series[place].append(Packed(labels, one.runs, one.values))
                for place, some in enumerate(series):
                    pieces[place].append(Piece(len(times), len(mine), tuple(some)))
                times += mine
        every: Sequence[int] = range(times[0], times[-1] + 1, self._step_ms) if len(steps) == 1 else times
        written: list[_Written] = []
        for (rule, _), some_pieces in zip(bundle, pieces, strict=True):
            recorded = Recorded(rule)
            for piece in some_pieces:
                written += recorded.series(piece, every)
            if recorded.clashes:
                raise DiffersError(f"{rule.name} gives two results with the same labels")
        return written


def _rounded(steps: Steps) -> Steps:
    """A few steps more, where that lets more rules be asked for together."""
    if len(steps) > 1 or steps[0][0] or steps[0][1] == 1:
        return steps
    return ((0, next(size for size in itertools.chain(_SIZES, itertools.count(1024, 256)) if size >= steps[0][1])),)


def _bundles(some: Sequence[tuple[Rule, str]], steps: int) -> list[list[tuple[Rule, str]]]:
    found: list[list[tuple[Rule, str]]] = []
    size = 0
    for one in some:
        if not found or size + len(one[1]) > _BUNDLE or len(found[-1]) * steps >= _TOGETHER:
            found.append([])
            size = 0
        found[-1].append(one)
        size += len(one[1])
    return found


@lru_cache(maxsize=4096)
def looks(expr: str) -> tuple[tuple[str, int, int], ...]:
    """What an expression reads, and from how long before to how long before (least, most milliseconds): (name, least, most).

    DiffersError where it cannot be told.
    """
    return tuple(dict.fromkeys(_looks(take_apart(expr))))


def _looks(part: Part) -> Iterable[tuple[str, int, int]]:
    if part.kind in {"selector", "range"} and "@" in _behind(part):
        raise DiffersError(f"{part.text} reads at a fixed time")
    if part.kind == "selector":
        if not part.name:
            raise DiffersError(f"{part.text} has no name")
        shift = _OFFSET.search(_behind(part))
        yield part.name, *(2 * (_shift_ms(shift[1]) if shift else 0,))
    elif part.kind == "range":
        tail = _TAIL.search(_behind(part))
        if tail is None or not part.bare:
            raise DiffersError(f"{part.text} is a subquery: its times are not those of evaluations")
        shift_ms = _shift_ms(tail[2]) if tail[2] else 0
        yield part.name, shift_ms, shift_ms + duration_ms(tail[1].strip(), "range")
    elif part.kind == "opaque" or (part.scalar and not part.parts and metric_names.selectors(part.text) != ()):
        raise DiffersError(f"{part.text} cannot be taken apart")
    else:
        for one in part.parts:
            yield from _looks(one)


def _behind(part: Part) -> str:
    """What stands behind a selector's name and matchers."""
    return part.text[len(part.bare) :] if part.bare and part.text.startswith(part.bare) else part.text


def _shift_ms(text: str) -> int:
    if text.startswith("-"):
        raise DiffersError("it looks ahead")
    return duration_ms(text, "offset")

