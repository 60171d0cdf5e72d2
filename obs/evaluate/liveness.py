"""Why an expression has no result: decidedly not, or no data and for what reason, or never on this server.

``judge`` goes through the parts of the author's expression and asks the server about each by an instant query.
It is three-valued: a part is there, or decidedly not (its input has data, which says no), or unknown. "Not
there" and "unknown" are never mixed up: a comparison is decided only when its input has a value that is not NaN.

Queries are gathered: ``judge`` asks a ``World``, which answers from what it has and notes what it lacks; the
caller fetches that in one go and judges again until nothing is lacking (obs.evaluate.live).
"""

from __future__ import annotations

import difflib
import itertools
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from obs.engines import metric_owners
from obs.evaluate.explain import Part, matchers, same, take_apart
from obs.evaluate.rules import Rule
from obs.model.metric import Engine, Metric
from obs.prom.client import Sample
from obs.prom.metric_names import agrees
from obs.prom.remote_write import Labels
from obs.promql import quote

Reason = Literal[
    "metric never existed",
    "vanished",
    "target down",
    "label missing",
    "NaN only",
    "traffic floor",
    "no history",
    "labels do not match",
    "cannot be told",
]
Finding = Literal["there", "not there", "unknown", "dead", "pending"]

#: The reasons from the one that tells most to the one that tells least, where parts joined by ``or`` have several.
_RANK: tuple[Reason, ...] = (
    "target down", "vanished", "NaN only", "traffic floor", "no history", "label missing", "labels do not match",
    "cannot be told", "metric never existed",
)
TESTS: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le, "==": operator.eq, "!=": operator.ne,
}
FLIPPED = {">": "<", "<": ">", ">=": "<=", "<=": ">=", "==": "==", "!=": "!="}
_ABSENT = frozenset(("absent", "absent_over_time", "vector"))
_RATE = re.compile(r"rate$|rps$|qps$|throughput$|per_second$")


@dataclass(frozen=True)
class Verdict:
    """What a part comes to, in one sentence (``why``), and the part that decided (``part``, the author's text).

    ``value`` is the nearest to the threshold, of the series ``labels``; None where there is none.
    """

    found: Finding
    why: str = ""
    part: str = ""
    reason: Reason | None = None
    value: float | None = None
    op: str = ""
    threshold: float | None = None
    labels: Labels = ()
    #: which side of the expression is empty or decides: "left", "right" or ""
    side: str = ""
    #: the recorded series that lead from the alert to what is missing, outermost first
    path: tuple[str, ...] = ()
    #: where no engine here serves them: the metrics, and the engines that would
    metrics: tuple[str, ...] = ()
    engines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Vanished:
    """When a series had its last sample (unix seconds; None = not within the look-back), and whose it was."""

    last: float | None
    targets: tuple[Labels, ...] = ()


class Answers(Protocol):
    """What the server said to some queries; None = not asked yet (and noted)."""

    def samples(self, query: str) -> Sequence[Sample] | None:
        """An instant query's result. QueryError's text becomes a "cannot be told"."""

    def failure(self, query: str) -> str:
        """Why a query has no result ("" = it has)."""

    def vanished(self, selector: str) -> Vanished | None:
        """When a selector's series were last there."""


@dataclass
class World:
    """What is known of the server: all metric names of the look-back, the recording rules, its targets."""

    answers: Answers
    names: frozenset[str]
    recorded: Mapping[str, Sequence[Rule]]
    ups: Sequence[Sample]
    at: float
    lookback: float
    #: names that recording rules on the server make; None = the server does not tell
    loaded: frozenset[str] | None = None
    #: recorded names that the server has not: their rules stand for them
    in_place: frozenset[str] = frozenset()
    #: selectors (without range or shift) that are known to have no series now
    empty: frozenset[str] = frozenset()
    #: whether judge asks about both sides of an operator at once: more questions, fewer rounds
    eager: bool = False
    #: what ``judge`` came to: by part, direction and the recorded series it came by
    verdicts: dict[tuple[str, str, tuple[str, ...]], Verdict] = field(default_factory=dict, repr=False)
    _engines: frozenset[str] | None = field(default=None, repr=False)
    _empty: dict[str, bool] = field(default_factory=dict, repr=False)

    @property
    def engines(self) -> frozenset[str]:
        """The engines whose own metrics (those of no other engine) the server has."""
        if self._engines is None:
            found = set()
            for name in self.names:
                owners = {engine.name for engine, _ in metric_owners(name)}
                if len(owners) == 1:
                    found |= owners
            self._engines = frozenset(found)
        return self._engines

    def surely_empty(self, part: Part) -> bool:
        """Whether a part has no series whatever the values: what it must read was never on the server. Asks nothing."""
        known = self._empty.get(part.text)
        if known is None:
            self._empty[part.text] = False  # for recording rules that read each other
            known = self._empty[part.text] = self._surely_empty(part)
        return known

    def _surely_empty(self, part: Part) -> bool:
        if part.kind in {"selector", "range"} and part.name:
            if part.name in self.in_place:
                return all(self.surely_empty(take_apart(rule.expr)) for rule in self.makers(part))
            return part.name not in self.names or (
                part.kind == "selector" and not part.shifted and part.bare in self.empty
            )
        vectors = [one for one in part.parts if not one.scalar]
        if part.kind == "call":
            return part.op not in _ABSENT and bool(vectors) and self.surely_empty(vectors[0])
        if part.kind == "range":
            return bool(vectors) and self.surely_empty(vectors[0])
        if part.kind == "or":
            return all(self.surely_empty(one) for one in vectors)
        if part.kind == "unless":
            return self.surely_empty(part.parts[0])
        return any(self.surely_empty(one) for one in vectors)

    def learn(self, empty: Iterable[str]) -> None:
        """Selectors that have no series now."""
        more = frozenset(empty) - self.empty
        if more:
            self.empty |= more
            self._empty.clear()

    def again(self) -> None:
        """There are more answers: what is pending is to be judged again."""
        self.verdicts = {key: one for key, one in self.verdicts.items() if one.found != "pending"}

    def makers(self, part: Part) -> list[Rule]:
        """The recording rules whose series a selector can read; one that the server has loaded too is not there twice."""
        found: list[Rule] = []
        for rule in self.recorded.get(part.name, ()):
            if _may_make(rule, part) and not any(one.labels == rule.labels and same(one.expr, rule.expr) for one in found):
                found.append(rule)
        return found

    @property
    def all_down(self) -> bool:
        return bool(self.ups) and all(one.value == 0 for one in self.ups)


def judge(part: Part, world: World, direction: str = "top", seen: tuple[str, ...] = ()) -> Verdict:
    """What a part comes to now. ``direction``: "top" or "bottom", which value is the nearest to a threshold."""
    key = (part.text, direction, seen)
    known = world.verdicts.get(key)
    if known is None:
        known = world.verdicts[key] = _judge(part, world, direction, seen)
    return known


def _judge(part: Part, world: World, direction: str, seen: tuple[str, ...]) -> Verdict:
    if part.kind == "compare":
        return _compare(part, world, seen)
    if part.scalar:
        return Verdict("there", part=part.text)
    if world.surely_empty(part):
        return _empty(part, world, seen)
    if part.kind in {"and", "unless"}:  # from the left on: as a rule the first condition decides, and costs the least
        left = judge(part.parts[0], world, seen=seen)
        if left.found == "pending":
            if world.eager:
                judge(part.parts[1], world, seen=seen)
            return left
        if left.found != "there" and left.reason != "NaN only":
            return _empty(part, world, seen)
    asked = world.answers.samples(nearest_query(part.text, direction))
    if asked is None:
        return Verdict("pending", part=part.text)
    failed = world.answers.failure(nearest_query(part.text, direction))
    if failed:
        return Verdict("unknown", failed, part.text, "cannot be told")
    if asked:
        return _value(part, asked[0])
    return _empty(part, world, seen)


def nearest_query(text: str, direction: str) -> str:
    """The one element of a vector that is highest (or lowest); NaN only when all are NaN."""
    return f"{'bottomk' if direction == 'bottom' else 'topk'}(1, (\n{text}\n))"


def _value(part: Part, sample: Sample) -> Verdict:
    labels = tuple((name, value) for name, value in sample.labels if name != "__name__")
    if math.isnan(sample.value):
        why = f"{short(part.text)} is NaN only: it has no observations"
        return Verdict("unknown", why, part.text, "NaN only", labels=labels)
    return Verdict("there", f"{short(part.text)} is there", part.text, value=sample.value, labels=labels)


def _compare(part: Part, world: World, seen: tuple[str, ...]) -> Verdict:
    left, right = part.parts
    if left.scalar or right.scalar:
        side, other = (right, left) if left.scalar else (left, right)
        op = FLIPPED[part.op] if left.scalar else part.op
        threshold = scalar(other, world)
        if threshold is None:
            return Verdict("pending", part=part.text)
        if op in {"==", "!="}:
            hit = world.answers.samples(nearest_query(part.text, "top"))
            if hit is None:
                return Verdict("pending", part=part.text)
            if hit:
                found = _value(part, hit[0])
                return replace(found, found="there", op=op, threshold=threshold)
        inner = judge(side, world, "bottom" if op in {"<", "<="} else "top", seen)
        if inner.found != "there":
            return inner
        assert inner.value is not None or side.scalar
        value = inner.value if inner.value is not None else math.nan
        told = f"{short(side.text)} is {number(value)}{_of(inner.labels)}"
        if TESTS[op](value, threshold) and op not in {"==", "!="}:
            return Verdict("there", f"{told}, {op} {number(threshold)}", part.text, None, value, op, threshold, inner.labels)
        why = f"{told}, not {op} {number(threshold)}"
        return Verdict("not there", why, part.text, None, value, op, threshold, inner.labels)
    if not world.surely_empty(part):
        whole = world.answers.samples(nearest_query(part.text, "bottom" if part.op in {"<", "<="} else "top"))
        if whole is None:
            if world.eager:
                _sides(part, world, seen)
            return Verdict("pending", part=part.text)
        if whole:
            return replace(_value(part, whole[0]), op=part.op)
    one, two = _sides(part, world, seen, "bottom" if part.op in {"<", "<="} else "top")
    bad = _worst((one, "left"), (two, "right"))
    if bad is not None:
        return bad
    distance = f"(\n{left.text}\n)\n- {part.modifier}\n(\n{right.text}\n)"
    near = world.answers.samples(nearest_query(distance, "bottom" if part.op in {"<", "<="} else "top"))
    if near is None:
        return Verdict("pending", part=part.text)
    if not near:
        return _unmatched(part)
    if math.isnan(near[0].value):
        return Verdict("unknown", f"{short(part.text)}: one side is NaN only", part.text, "NaN only")
    labels = tuple((name, value) for name, value in near[0].labels if name != "__name__")
    told = f"{short(left.text)} is {number(abs(near[0].value))} {'under' if near[0].value < 0 else 'over'} {short(right.text)}"
    return Verdict("not there", f"{told}{_of(labels)}, not {part.op}", part.text, None, one.value, part.op, two.value, labels)


def _sides(part: Part, world: World, seen: tuple[str, ...], direction: str = "top") -> tuple[Verdict, Verdict]:
    """Both sides; the right one is asked about only where it matters: the left is there, or the right never can be."""
    left, right = part.parts
    one = judge(left, world, direction, seen)
    if one.found == "pending" and world.eager:
        judge(right, world, seen=seen)
    if one.found == "there" or (part.kind != "unless" and world.surely_empty(right)):
        return one, judge(right, world, seen=seen)
    return one, Verdict("there", part=right.text)


def _unmatched(part: Part) -> Verdict:
    left, right = part.parts
    why = f"both sides of {part.op!r} have series, but no pair has equal labels{f' {part.modifier}' if part.modifier else ''}"
    return Verdict("unknown", f"{why}: {short(left.text)} and {short(right.text)}", part.text, "labels do not match")


def _worst(*sides: tuple[Verdict, str]) -> Verdict | None:
    """The verdict of the side that keeps the whole from having a result; None when both are there."""
    for finding in ("pending", "dead", "unknown", "not there"):
        for verdict, side in sides:
            if verdict.found == finding:
                return replace(verdict, side=verdict.side or side)
    return None


def _empty(part: Part, world: World, seen: tuple[str, ...]) -> Verdict:
    """Why a part has no series."""
    if part.kind in {"and", "unless"}:
        return _and(part, world, seen)
    if part.kind == "or":
        return best([judge(one, world, seen=seen) for one in part.parts])
    if part.kind == "arithmetic":
        return _arithmetic(part, world, seen)
    if part.kind == "call":
        return _call(part, world, seen)
    if part.kind == "range":
        return _range(part, part.parts[0], world, seen)
    if part.kind == "selector":
        return _selector(part, world, seen)
    return Verdict("unknown", f"{short(part.text)} has no series", part.text, "cannot be told")


def _and(part: Part, world: World, seen: tuple[str, ...]) -> Verdict:
    left, right = _sides(part, world, seen)
    if "pending" in {left.found, right.found}:
        return Verdict("pending", part=part.text)
    if part.kind == "and" and right.found == "dead" and left.found != "dead":
        return replace(right, side="right")
    if left.found != "there":
        return replace(left, side=left.side or "left")
    if part.kind == "unless":
        return replace(left, found="not there", side="right", part=part.parts[1].text,
                       why=f"{left.why}, but held back by: unless {short(part.parts[1].text)}")
    if right.found == "unknown":
        return replace(right, side="right")
    if right.found == "not there":
        if _is_floor(part.parts[1]):
            why = f"{left.why}, but too little traffic to judge: {right.why}"
            return replace(right, found="unknown", reason="traffic floor", side="right", why=why)
        return replace(right, side="right", why=f"{left.why}; but {right.why}")
    why = f"both sides of 'and' have series, but not the same: {short(part.parts[0].text)} and {short(part.parts[1].text)}"
    return Verdict("not there", why, part.text, None, left.value, left.op, left.threshold, left.labels)


def _is_floor(part: Part) -> bool:
    """Whether a condition only says "enough requests to judge": a rate above a number."""
    if part.kind != "compare" or part.op not in {">", ">="} or not part.parts[1].scalar:
        return False
    inner = part.parts[0]
    while inner.kind == "call" and inner.parts and inner.op not in {"rate", "increase", "irate"}:
        if inner.op.endswith("_over_time") and inner.op not in {"avg_over_time", "sum_over_time"}:
            return False
        inner = next((one for one in inner.parts if not one.scalar), inner.parts[0])
        if inner.kind == "range" and inner.parts:
            inner = inner.parts[0]
    if inner.kind == "call":
        return inner.op in {"rate", "increase", "irate"}
    return inner.kind == "selector" and _RATE.search(inner.name) is not None


def _arithmetic(part: Part, world: World, seen: tuple[str, ...]) -> Verdict:
    left, right = _sides(part, world, seen)
    bad = _worst((left, "left"), (right, "right"))
    if bad is None:
        return _unmatched(part)
    filter_ = part.parts[0 if bad.side == "left" else 1]
    lower = bad.op in {">", ">="} or (bad.op == "!=" and bad.threshold == 0)
    if bad.found == "not there" and lower and (part.op in "*%^" or bad.side == "right") and filter_.kind == "compare":
        return replace(bad, found="unknown", reason="traffic floor", why=f"nothing to judge by: {bad.why}")
    return bad


def _call(part: Part, world: World, seen: tuple[str, ...]) -> Verdict:
    inner = [one for one in part.parts if not one.scalar]
    if part.op in {"absent", "absent_over_time"}:
        return Verdict("not there", f"{short(inner[0].text if inner else part.text)} is present", part.text)
    if not inner:
        return Verdict("unknown", f"{short(part.text)} has no series", part.text, "cannot be told")
    if inner[0].kind == "range":
        return _range(part, inner[0].parts[0], world, seen)
    verdict = judge(inner[0], world, seen=seen)
    if verdict.found == "there":
        return Verdict("unknown", f"{short(part.text)} makes nothing of the series it reads", part.text, "cannot be told")
    return verdict


def _range(part: Part, inner: Part, world: World, seen: tuple[str, ...]) -> Verdict:
    """Something over time is empty: because what it reads is not there, or not yet often enough."""
    if inner.shifted:
        return _selector(inner, world, seen)
    verdict = judge(inner, world, seen=seen)
    if verdict.found == "there":
        why = f"{short(inner.text)} has too few samples yet for {short(part.text)}"
        return Verdict("unknown", why, part.text, "no history")
    return verdict


def _selector(part: Part, world: World, seen: tuple[str, ...]) -> Verdict:
    if part.shifted and part.bare:
        now = world.answers.samples(nearest_query(part.bare, "top"))
        if now is None:
            return Verdict("pending", part=part.text)
        if now:
            return Verdict("unknown", f"{part.bare} has no samples that old yet: {short(part.text)}", part.text, "no history")
    if part.name in world.recorded and part.name not in seen:
        return _recorded(part, world, (*seen, part.name))
    if not part.name:
        return Verdict("unknown", f"no series matches {part.text}", part.text, "cannot be told")
    if part.name not in world.names:
        return never(part, world)
    gone = world.answers.vanished(part.bare)
    if gone is None:
        if world.eager:
            _label_missing(part, world)  # most likely to be asked next
        return Verdict("pending", part=part.text)
    if gone.last is not None:
        return _vanished(part, gone, world)
    return _label_missing(part, world)


def _recorded(part: Part, world: World, seen: tuple[str, ...]) -> Verdict:
    """A recorded series that is not there, by the rules that should make it."""
    mine = world.makers(part)
    if not mine:
        return Verdict("dead", f"no recording rule makes {part.bare}", part.text, "metric never existed")
    verdicts = [judge(take_apart(rule.expr), world, seen=seen) for rule in mine]
    if any(one.found == "there" for one in verdicts):
        if world.loaded is not None and part.name not in world.loaded and part.name in world.names:
            why = f"{part.name}: its rule would have data, but the server has the series no more"
            return Verdict("unknown", why, part.text, "vanished")
        return Verdict("unknown", f"{part.name} has no series with these labels: {part.bare}", part.text, "label missing")
    verdict = best(verdicts)
    return replace(verdict, path=(part.name, *verdict.path))


def _may_make(rule: Rule, part: Part) -> bool:
    """Whether a rule's own labels agree with the matchers of a selector."""
    return all(
        agrees(rule.labels[label], op, wanted) for label, op, wanted in matchers(part.bare) if label in rule.labels
    )


def best(verdicts: Sequence[Verdict]) -> Verdict:
    """What parts joined by ``or`` come to, none of them there: decided if one is; else the reason that tells most."""
    if any(one.found == "pending" for one in verdicts):
        return Verdict("pending")
    decided = [one for one in verdicts if one.found in {"there", "not there"}]
    if decided:
        return decided[0]
    unknown = [one for one in verdicts if one.found == "unknown"]
    if unknown:
        return min(unknown, key=lambda one: _RANK.index(one.reason) if one.reason else len(_RANK))
    told = [one for one in verdicts if not one.engines]
    if told:  # an engine is here and lacks it: that tells more than the engines that are not
        whys = list(dict.fromkeys(one.why for one in told))
        return replace(told[0], why="; ".join(whys[:2]) + (f"; and {len(whys) - 2} more" if len(whys) > 2 else ""))
    metrics = tuple(dict.fromkeys(itertools.chain.from_iterable(one.metrics for one in verdicts)))
    engines = tuple(dict.fromkeys(itertools.chain.from_iterable(one.engines for one in verdicts)))
    merged = _nobody(Part(verdicts[0].part, "opaque"), metrics, engines)
    return replace(merged, side=verdicts[0].side, path=verdicts[0].path)


def _vanished(part: Part, gone: Vanished, world: World) -> Verdict:
    assert gone.last is not None
    when = f"{clock(gone.last)} ({ago(world.at - gone.last)} ago)"
    down, lost = [], []
    for target in gone.targets:
        now = [one.value for one in world.ups if set(target) <= set(one.labels)]
        name = dict(target).get("instance") or dict(target).get("job") or "?"
        if now and all(value == 0 for value in now):
            down.append(name)
        elif not now and dict(target).get("instance"):
            lost.append(name)
    if down and len(down) == len(gone.targets):
        why = f"{part.bare}: its target {_list(down)} is down since its last sample at {when}"
        return Verdict("unknown", why, part.text, "target down")
    why = f"{part.bare} vanished: its last sample is of {when}"
    if lost and len(lost) == len(gone.targets):
        why += f"; its target {_list(lost)} is no longer scraped"
    elif gone.targets and not down and not lost:
        why += f"; its target {_list([dict(one).get('instance', '?') for one in gone.targets])} is up"
    return Verdict("unknown", why, part.text, "vanished")


def _label_missing(part: Part, world: World) -> Verdict:
    for label, op, wanted in matchers(part.bare):
        if label == "__name__":
            continue
        alone = f"{label}{op}{quote(wanted)}"
        hit = world.answers.samples(nearest_query(f"{part.name}{{{alone}}}", "top"))
        values = world.answers.samples(f"topk(4, count by ({label}) ({part.name}))")
        if hit is None or values is None:
            return Verdict("pending", part=part.text)
        if not hit and values:
            owners = [engine for engine, _ in metric_owners(part.name) if alone in engine.own]
            if owners:  # another engine serves a metric of the same name
                return _nobody(part, (part.name,), tuple(engine.title for engine in owners))
            has = sorted({dict(one.labels).get(label, "") for one in values} - {""})
            if has:
                why = f"no series of {part.name} has {alone}; it has {_list(has)}"
            else:
                why = f"no series of {part.name} has the label {label} (looked for {alone})"
            return Verdict("unknown", why, part.text, "label missing")
    whole = world.answers.samples(nearest_query(part.name, "top"))
    if whole is None:
        return Verdict("pending", part=part.text)
    if whole:
        return Verdict("unknown", f"no series of {part.name} has all of these labels: {part.bare}", part.text, "label missing")
    why = f"{part.name} was here within the last {ago(world.lookback)} and is not now"
    return Verdict("unknown", why, part.text, "vanished")


def never(part: Part, world: World) -> Verdict:
    """A metric that the server never had: dead when it can never be there, and the reason."""
    name = part.name
    since = f"in {ago(world.lookback)}"

    def says(finding: Finding, why: str, reason: Reason = "metric never existed") -> Verdict:
        return Verdict(finding, why, part.text, reason)

    owners = metric_owners(name)
    if world.all_down and (owners or not _known_prefix(name)):
        return says("unknown", f"all targets are down, and {name} was never here {since}", "target down")
    if not owners:
        return _unknown_name(part, world, since)
    present = [(engine, metric) for engine, metric in owners if engine.name in world.engines]
    if not present:
        return _nobody(part, (name,), tuple(sorted({engine.title for engine, _ in owners})))
    engine, metric = present[0]
    if metric.renamed_to and _has(engine, metric.renamed_to, world):
        return says("dead", f"{name} is called {metric.renamed_to} on this server ({engine.title})")
    for older in engine.metrics:
        if older.renamed_to == metric.name and _has(engine, older.name, world):
            return says("dead", f"{name}: this server is older and serves {older.name} ({engine.title}{_since(metric)})")
    if metric.enabled_by and "(the default)" not in metric.enabled_by:
        return says("dead", f"{name} is served only with {metric.enabled_by} ({engine.title}{_since(metric)})")
    if metric.until:
        return says("dead", f"{name} is served until {engine.title} {metric.until}: this server is newer")
    if metric.since:
        why = f"{name} is served since {engine.title} {metric.since}: this server is older, or does not serve it"
        return says("dead", why)
    why = f"; it needs {metric.enabled_by}" if metric.enabled_by else ""
    return says("unknown", f"{name} never existed here {since}, though {engine.title} serves it{why}")


def _nobody(part: Part, metrics: tuple[str, ...], engines: tuple[str, ...]) -> Verdict:
    """No engine on the server serves some metrics."""
    why = f"{_list(metrics)}: this server has nothing of {_list(engines, 6)}"
    return Verdict("dead", why, part.text, "metric never existed", metrics=metrics, engines=engines)


def _known_prefix(name: str) -> bool:
    return re.match(r"nv_|vllm:|vllm_|sglang:|trtllm_|dynamo_|DCGM_FI_", name) is not None


def _unknown_name(part: Part, world: World, since: str) -> Verdict:
    name = part.name
    near = difflib.get_close_matches(name, world.names, n=1, cutoff=0.75)
    hint = f"; did you mean {near[0]}?" if near else ""
    dead = ""
    if _known_prefix(name):
        dead = "no engine that we know serves a metric of that name"
    elif ":" in name and world.loaded is not None and name not in world.loaded:
        dead = "no recording rule makes it, neither on this server nor among these rules"
    if dead:
        return Verdict("dead", f"{name}: {dead}{hint}", part.text, "metric never existed")
    return Verdict("unknown", f"{name} never existed here {since}{hint}", part.text, "metric never existed")


def _has(engine: Engine, name: str, world: World) -> bool:
    try:
        metric = engine.metric(name)
    except KeyError:
        return name in world.names
    return any(series in world.names for series in metric.series_names())


def _since(metric: Metric) -> str:
    return f", since {metric.since}" if metric.since else ""


def scalar(part: Part, world: World) -> float | None:
    """The value of a scalar part; None = not asked yet. NaN when it cannot be told."""
    try:
        return float(part.text)
    except ValueError:
        pass
    asked = world.answers.samples(f"vector(\n{part.text}\n)")
    if asked is None:
        return None
    return asked[0].value if asked else math.nan


# --- words -------------------------------------------------------------------------------------------


def short(text: str, limit: int = 90) -> str:
    """An expression on one line, cut in its middle."""
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else f"{flat[: limit * 2 // 3]} … {flat[-(limit // 3 - 3):]}"


def number(value: float) -> str:
    """A value for people: four significant digits, whole numbers whole."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return f"{value:.0f}" if value == int(value) and abs(value) < 1e9 else f"{value:.4g}"


def ago(seconds: float) -> str:
    """A distance in time: 45s, 12m, 3h20m, 9d."""
    whole = max(0, round(seconds))
    if whole < 120:
        return f"{whole}s"
    if whole < 7200:
        return f"{whole // 60}m" + (f"{whole % 60}s" if whole < 600 and whole % 60 else "")
    if whole < 172_800:
        return f"{whole // 3600}h" + (f"{whole % 3600 // 60}m" if whole % 3600 >= 60 else "")
    return f"{whole // 86_400}d"


def clock(at: float) -> str:
    """A unix time in UTC, to the second."""
    from datetime import datetime, timezone

    return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _of(labels: Labels) -> str:
    inner = label_text(labels)
    return f" at {inner}" if inner else ""


def label_text(labels: Labels, skip: Iterable[str] = ("alertname", "severity", "__name__")) -> str:
    """Labels as in PromQL; "" when there are none to show."""
    left_out = set(skip)
    pairs = [f'{name}="{value}"' for name, value in labels if name not in left_out]
    return "{" + ", ".join(pairs) + "}" if pairs else ""


def _list(items: Sequence[str], limit: int = 3) -> str:
    shown = ", ".join(items[:limit])
    return f"{shown} and {len(items) - limit} more" if len(items) > limit else shown
