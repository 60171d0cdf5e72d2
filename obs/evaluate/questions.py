"""Questions to a server, asked in few requests: bundles whose elements are marked with the query that they belong to.

A request costs a Prometheus and us some milliseconds, whatever it asks: so all that is wanted at a time goes into about as
many bundles as are asked at a time, the same question about several metrics is one question, and so are several range
queries.
"""

from __future__ import annotations

import contextlib
import math
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from obs.errors import ServerError
from obs.evaluate.explain import take_apart
from obs.evaluate.liveness import Vanished
from obs.prom.client import Client, QueryError, Sample, Series, TooMuchError

if TYPE_CHECKING:
    from obs.evaluate.standin import StandIn

MARK = "obs_query"
_BUNDLE = 12_000  # characters: VictoriaMetrics refuses queries over 16 KiB
_LEAST = 8000  # characters: to spread less than this over several requests costs more than it saves


def together(texts: Sequence[str]) -> str:
    """Some questions as one; each element has the label MARK, the number of its question."""
    marked = [f'label_replace((\n{text}\n), "{MARK}", "{number}", "", "")' for number, text in enumerate(texts)]
    while len(marked) > 1:  # in pairs, for each `or` goes through all that stands before it
        pairs = [marked[place : place + 2] for place in range(0, len(marked), 2)]
        marked = [pair[0] if len(pair) == 1 else f"({pair[0]}\nor\n{pair[1]})" for pair in pairs]
    return marked[0]


@dataclass(frozen=True)
class Question:
    """A text to ask, and the queries that its answer answers: by the metric's name ("": all of it). ``alone``: where it
    stands for several questions, these."""

    text: str
    queries: Mapping[str, str]
    alone: tuple[Question, ...] = ()


_OF_A_SELECTOR = re.compile(r"(count)\((.+)\)|(topk|bottomk)\(1, \(\n(.+)\n\)\)", re.DOTALL)


def _by_name(pairs: Sequence[tuple[str, str]], *, alone: bool = False) -> list[Question]:
    """Queries, each with its text, as questions: the same of several metrics, with the same matchers, is one question.
    ``alone``: it is not."""
    if alone:
        return [Question(text, {"": query}) for query, text in pairs]
    groups: dict[tuple[str, str], dict[str, Question]] = {}
    found = []
    for query, text in pairs:
        question = Question(text, {"": query})
        match = _OF_A_SELECTOR.fullmatch(text)
        inner = (match[2] or match[4]).strip() if match else ""
        part = take_apart(inner)
        if match is None or part.kind != "selector" or part.bare != inner or not inner.startswith(part.name) or not part.name:
            found.append(question)
            continue
        matchers = inner[len(part.name) :].strip().strip("{}").strip().rstrip(",")
        groups.setdefault((match[1] or match[3], matchers), {})[part.name] = question
    for (what, matchers), each in groups.items():
        several = tuple(each.values())
        if len(several) == 1:
            found += several
            continue
        names = f'{{__name__=~"{"|".join(each)}"{"," if matchers else ""}{matchers}}}'
        queries = {name: one.queries[""] for name, one in each.items()}
        found.append(Question(f"{what} by (__name__) ({'' if what == 'count' else '1, '}{names})", queries, several))
    return found


def _differently_named(selectors: Sequence[str]) -> list[list[str]]:
    """Selectors in lists in each of which no two are of the same metric."""
    found: list[dict[str, str]] = []
    for selector in selectors:
        name = take_apart(selector).name
        free = next((one for one in found if name not in one), None)
        if free is None:
            found.append({name: selector})
        else:
            free[name] = selector
    return [list(one.values()) for one in found]


@dataclass
class Answers:
    """Answers by query; what is asked and not known is noted in ``wanted`` and fetched by ``fetch``."""

    client: Client
    pool: ThreadPoolExecutor
    at: float
    lookback: float
    parallel: int
    expand: Callable[[str], str]
    stand_in: StandIn | None = None
    known: dict[str, tuple[Sample, ...]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    warned: dict[str, tuple[str, ...]] = field(default_factory=dict)
    gone: dict[str, Vanished] = field(default_factory=dict)
    wanted: dict[str, None] = field(default_factory=dict)
    wanted_gone: dict[str, None] = field(default_factory=dict)

    def samples(self, query: str) -> Sequence[Sample] | None:
        found = self.known.get(query)
        if found is None:
            self.wanted[query] = None
        return found

    def failure(self, query: str) -> str:
        return self.failed.get(query, "")

    def vanished(self, selector: str) -> Vanished | None:
        found = self.gone.get(selector)
        if found is None:
            self.wanted_gone[selector] = None
        return found

    @property
    def lacking(self) -> bool:
        return bool(self.wanted or self.wanted_gone)

    def fetch(self) -> None:
        """Ask for all that is wanted."""
        queries, selectors = list(self.wanted), list(self.wanted_gone)
        self.wanted.clear()
        self.wanted_gone.clear()
        asked: list[tuple[Client, list[tuple[str, str]]]] = []
        if self.stand_in is not None:
            self.stand_in.prepare(queries)
            texts = {query: self.stand_in.text(query) for query in queries}
            asked.append((self.stand_in.client, [(query, text) for query, text in texts.items() if text is not None]))
            queries = [query for query in queries if texts[query] is None]
        asked.append((self.client, [(query, self.expand(query)) for query in queries]))
        work: list[Callable[[], None]] = [
            partial(self._ask, bundle, client)
            for client, pairs in asked
            for bundle in self._bundles(_by_name(pairs, alone=self.client.is_victoria_metrics))
        ]
        work += [partial(self._look_back, some) for some in _differently_named(selectors)]
        for done in [self.pool.submit(one) for one in work]:
            done.result()

    def _bundles(self, questions: Sequence[Question]) -> list[list[Question]]:
        """Questions in about as many bundles as can be asked at a time, none too long."""
        total = sum(len(one.text) + 40 for one in questions)
        room = min(_BUNDLE, max(_LEAST, math.ceil(total / self.parallel)))
        bundles: list[list[Question]] = []
        size = 0
        for one in questions:
            if not bundles or size + len(one.text) > room:
                bundles.append([])
                size = 0
            bundles[-1].append(one)
            size += len(one.text) + 40
        return bundles

    def _ask(self, bundle: Sequence[Question], client: Client) -> None:
        try:
            answer = client.ask(together([one.text for one in bundle]) if len(bundle) > 1 else bundle[0].text, self.at)
        except QueryError as error:
            if len(bundle) > 1:  # one of them: find out which
                middle = len(bundle) // 2
                self._ask(bundle[:middle], client)
                self._ask(bundle[middle:], client)
            elif bundle[0].alone:
                for question in bundle[0].alone:
                    self._ask([question], client)
            else:
                query = bundle[0].queries[""]
                if client is not self.client:  # the server may know better, and says it of the whole
                    self._ask([Question(self.expand(query), {"": query})], self.client)
                    return
                self.failed[query] = str(error)
                self.known[query] = ()
            return
        if len(bundle) == 1:
            self._keep(bundle[0], answer.samples, answer.warnings)
            return
        found: dict[str, list[Sample]] = {}
        for one in answer.samples:
            mark = dict(one.labels)[MARK]
            labels = tuple(pair for pair in one.labels if pair[0] != MARK)
            found.setdefault(mark, []).append(Sample(labels, one.time, one.value))
        for number, question in enumerate(bundle):
            self._keep(question, found.get(str(number), ()), answer.warnings)

    def _keep(self, question: Question, samples: Sequence[Sample], warnings: tuple[str, ...]) -> None:
        for name, query in question.queries.items():
            mine = [one for one in samples if not name or dict(one.labels).get("__name__") == name]
            self.known[query] = tuple(mine)
            if warnings:
                self.warned[query] = warnings

    def _look_back(self, selectors: Sequence[str]) -> None:
        """When some selectors' series had their last samples; each of another name."""
        waiting = list(selectors)
        with contextlib.suppress(ServerError):  # a question to the index alone, where the server takes it
            names = self.client.label_values("__name__", start=self.at - self.lookback, end=self.at, match=waiting)
            for selector in selectors:
                if take_apart(selector).name not in names:
                    self.gone[selector] = Vanished(None)
                    waiting.remove(selector)
        for selector in waiting:
            self.gone[selector] = self._last(selector)

    def _last(self, selector: str) -> Vanished:
        """When a selector's series had their last sample: near first, then far, then to the second."""
        latest = f"max(timestamp({selector}))"
        for span, step in ((3600.0, 15.0), (86_400.0, 60.0), (self.lookback, 300.0)):
            span = min(span, self.lookback)
            try:
                series = self.client.query_range(latest, self.at - span, self.at, step)
            except TooMuchError:
                break
            points = [point for one in series for point in one.points]
            if points:
                found, last = max(points)
                fine = self.client.query_range(latest, found, min(self.at, found + step), 1.0)
                last = max([last, *(value for one in fine for _, value in one.points)])
                who = self.client.query(f"topk(5, count by (job, instance) ({selector}))", found)
                return Vanished(last, tuple(one.labels for one in who))
        return Vanished(None)


class Ranges:
    """Range queries of which the first of each is asked together with the others'."""

    def __init__(self, client: Client, texts: Sequence[str]) -> None:
        self._client = client
        self._texts = texts
        self._lock = threading.Lock()
        self._when: tuple[float, float, float] | None = None
        self._found: dict[int, list[Series]] | None = None

    def ask(self, number: int, start: float, end: float, step: float) -> list[Series]:
        """Errors as Client.query_range."""
        if len(self._texts) > 1 and sum(map(len, self._texts)) < _BUNDLE:
            with self._lock:
                if self._when is None:
                    self._when = (start, end, step)
                    with contextlib.suppress(QueryError):  # then each is asked by itself
                        self._found = self._together(start, end, step)
            if self._found is not None and self._when == (start, end, step):
                return self._found.get(number, [])
        return self._client.query_range(self._texts[number], start, end, step)

    def _together(self, start: float, end: float, step: float) -> dict[int, list[Series]]:
        found: dict[int, list[Series]] = {}
        for one in self._client.query_range(together(self._texts), start, end, step):
            labels = tuple(pair for pair in one.labels if pair[0] != MARK)
            found.setdefault(int(dict(one.labels)[MARK]), []).append(Series(labels, one.points))
        return found
