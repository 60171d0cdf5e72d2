"""Which alerts can work on what a server serves: live, dead, blind, or at home on another server.

The judgement is that of ``obs.evaluate.liveness``, on the names and labels of a metrics page instead of a Prometheus:
a recorded series stands for the expressions of its rules. What the page has but never moves (a *mute* metric) makes
an alert that only reads its rates blind.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from obs.engines import metric_owners
from obs.evaluate import explain
from obs.evaluate.explain import Part, matchers, take_apart, walk
from obs.evaluate.liveness import Vanished, Verdict, World, judge
from obs.evaluate.rules import Rule
from obs.prom.client import Sample
from obs.prom.metric_names import agrees

Life = Literal["live", "dead", "blind", "elsewhere"]

#: What Prometheus itself adds to every target.
_OF_PROMETHEUS = frozenset(("up", "ALERTS", "ALERTS_FOR_STATE", "scrape_duration_seconds", "scrape_samples_scraped"))
_RATES = frozenset(("rate", "increase", "irate", "delta", "changes"))
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LOOKED_BACK = re.compile(r"never existed here in \w+")


@dataclass(frozen=True)
class Alive:
    """One alert. ``live``: all that it reads is there. ``dead``: it reads what this server cannot have as it is set up.
    ``blind``: its series are there, or may come, and tell nothing. ``elsewhere``: it reads another server's metrics.

    ``metric`` is the one that decides ("" = none), ``wakes`` the flags that would bring it or one that serves as well.
    """

    alert: str
    life: Life
    why: str = ""
    metric: str = ""
    wakes: tuple[str, ...] = ()


@dataclass
class _PageWorld(World):
    """A world of one page: it has no past, so a range of what is not there is as empty as the series itself.

    Rates of ``muted`` metrics tell nothing.
    """

    muted: frozenset[str] = field(default_factory=frozenset)

    def _surely_empty(self, part: Part) -> bool:
        if part.kind == "range" and part.name and part.bare in self.empty:
            return True
        if part.kind == "call" and part.op in _RATES and any(one.name in self.muted for one in walk(part)):
            return True
        return super()._surely_empty(part)


@dataclass(frozen=True)
class _FromPage:
    """Answers to the few questions of ``liveness`` about what is not there, from a page."""

    labelled: Mapping[str, Sequence[Mapping[str, str]]]

    def samples(self, query: str) -> Sequence[Sample] | None:
        """For a selector in ``topk(1, (…))`` or a count by one label; anything else has no samples."""
        count = re.fullmatch(r"topk\(4, count by \((\w+)\) \((.*)\)\)", query, re.DOTALL)
        if count is not None:
            values = {one.get(count[1], "") for one in self.labelled.get(count[2], ())}
            return [Sample(((count[1], value),) if value else (), 0.0, 1.0) for value in sorted(values)]
        inner = re.fullmatch(r"(?:topk|bottomk)\(1, \((.*)\)\)", query, re.DOTALL)
        text = inner[1].strip() if inner else ""
        name = re.match(r"[a-zA-Z_:][a-zA-Z0-9_:]*", text)
        if name is None or name[0] not in self.labelled or take_apart(text).kind != "selector":
            return ()
        return [Sample(tuple(sorted(one.items())), 0.0, 1.0) for one in self.matching(name[0], text)][:1]

    def matching(self, name: str, selector: str) -> list[Mapping[str, str]]:
        wanted = [one for one in matchers(selector) if one[0] != "__name__"]
        return [
            one for one in self.labelled.get(name, ())
            if all(agrees(one.get(label, ""), op, value) for label, op, value in wanted)
        ]

    def failure(self, query: str) -> str:
        return ""

    def vanished(self, selector: str) -> Vanished | None:
        return Vanished(None)


def lives(
    rules: Sequence[Rule], labelled: Mapping[str, Sequence[Mapping[str, str]]], mutes: Mapping[str, str]
) -> tuple[Alive, ...]:
    """Every alert among ``rules``, in their order, on a page: sample name -> the labels of each of its series.

    ``mutes``: metrics that are there and never move, with the reason.
    """
    labelled = {**{name: ({},) for name in _OF_PROMETHEUS}, **labelled}
    page = _FromPage(labelled)
    recorded = explain.by_name(rules)
    empty = _empty(rules, page)

    def world(muted: frozenset[str]) -> World:
        made = _PageWorld(
            page, frozenset(labelled), recorded, (), 0.0, 0.0, in_place=frozenset(recorded), muted=muted
        )
        made.learn(empty)
        return made

    whole, muted = world(frozenset()), world(frozenset(mutes))
    found = []
    for rule in rules:
        if rule.kind != "alert":
            continue
        part = take_apart(rule.expr)
        if whole.surely_empty(part):
            found.append(of_verdict(rule.name, judge(part, whole)))
        elif mutes and muted.surely_empty(part):
            found.append(Alive(rule.name, "blind", next(iter(mutes.values())), next(iter(mutes))))
        else:
            found.append(Alive(rule.name, "live"))
    return tuple(found)


def of_verdict(alert: str, verdict: Verdict) -> Alive:
    """An alert that has nothing to read, by the verdict on it."""
    why = _LOOKED_BACK.sub("is not on its page", verdict.why)
    if verdict.engines:
        return Alive(alert, "elsewhere", why, verdict.metrics[0] if verdict.metrics else "")
    metric = take_apart(verdict.part).name if verdict.part else ""
    return Alive(alert, "dead", why, metric, wakes(metric, why))


def wakes(metric: str, why: str) -> tuple[str, ...]:
    """What turns a metric on, or one of those that ``why`` names beside it, by the catalogue; () when nothing does."""
    names = dict.fromkeys((metric, *_NAME.findall(why)))
    flags = [family.enabled_by for name in names for _, family in metric_owners(name) if family.enabled_by]
    return tuple(dict.fromkeys(flags))


def _empty(rules: Iterable[Rule], page: _FromPage) -> set[str]:
    """The selectors of the rules that have a metric of the page, and no series on it with their labels."""
    found, seen = set(), set()
    for rule in rules:
        for part in walk(take_apart(rule.expr)):
            if part.kind not in {"selector", "range"} or part.name not in page.labelled or part.bare in seen:
                continue
            seen.add(part.bare)
            if part.bare and not page.matching(part.name, part.bare):
                found.add(part.bare)
    return found
