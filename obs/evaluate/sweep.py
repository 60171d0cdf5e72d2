"""What another threshold or ``for`` would have meant: noise against detection for each value.

For an alert of the pack a threshold is a limit of ``obs.yaml`` (its ``limits`` name them) and the rules are rendered
again by the pack's own code; a model's own objective is swept with the default. For a rule file, the number on the
right of the comparison that gives the alert its value is replaced in the text. All values are evaluated in one go, as
alerts of different names side by side, so that the recording rules they share are evaluated once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from obs.catalog.limits import BY_PATH
from obs.config import Config, nearest, ratio, seconds, show
from obs.errors import InputError
from obs.evaluate.explain import Part, deciding, take_apart
from obs.evaluate.history import History
from obs.evaluate.incidents import Incidents
from obs.evaluate.outages import Target
from obs.evaluate.rules import Rule, from_groups, needed
from obs.evaluate.score import AlertScore, score
from obs.model.rule import Alert
from obs.prom.remote_write import make_labels
from obs.promql import duration, number

STEPS = 8
_MARK = "_obs_sweep_"
_SPEC = re.compile(r"(?P<alert>\w+)\.(?P<key>[\w.]+)=(?P<low>[^/]+?)\.\.(?P<high>[^/]+?)(?:/(?P<steps>\d+))?")
_BLANK = r"(?:\s|#[^\n]*(?:\n|$))*"
_LITERAL = re.compile(rf"{_BLANK}(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?){_BLANK}")  # comments aside
_FORM = "write Alert.threshold=50ms..500ms, Alert.for=1m..15m or Alert.limits.pending_floor=5..50/10"

Run = Callable[[Sequence[Rule]], "tuple[History, Sequence[Target]]"]
"""Evaluates rules over the past that is looked at: its history, and the targets whose absence splits no episode."""


@dataclass(frozen=True)
class Spec:
    """What to sweep: an alert's ``for``, ``threshold`` or a number of obs.yaml by its path; from, to and how many values
    (texts as given)."""

    alert: str
    key: str
    low: str
    high: str
    steps: int

    @property
    def text(self) -> str:
        return f"{self.alert}.{self.key}"


@dataclass(frozen=True)
class Point:
    """One value: as a number (seconds for a duration), as text, whether it is the one in use, and the alert's score."""

    value: float
    text: str
    current: bool
    score: AlertScore


@dataclass(frozen=True)
class Sweep:
    """A sweep: its points in order of value; ``of``: what the value is (``slo.queue_time``, or the comparison's text);
    ``notes``: lines for people."""

    spec: Spec
    of: str
    points: tuple[Point, ...]
    notes: tuple[str, ...] = ()


def parse_spec(text: str) -> Spec:
    """``Alert.threshold=50ms..500ms`` (or ``.for``, or a path of obs.yaml; ``/10`` asks for 10 values); InputError else."""
    match = _SPEC.fullmatch(text.strip())
    if match is None:
        raise InputError(f"--sweep {text!r}: is no sweep; {_FORM}")
    steps = int(match["steps"] or STEPS)
    if not 2 <= steps <= 50:
        raise InputError(f"--sweep {text!r}: {steps} values; ask for 2 to 50")
    return Spec(match["alert"], match["key"], match["low"].strip(), match["high"].strip(), steps)


def values(spec: Spec, quantity: str) -> list[float]:
    """The values of a sweep, ascending: geometric for durations and for positive ranges of a decade or more, else even;
    rounded to three digits. ``quantity``: of obs.catalog.limits, or "any" (a number, a duration or a percentage)."""
    low, high = (_value(spec, one, quantity) for one in (spec.low, spec.high))
    if not low < high:
        raise InputError(f"--sweep {spec.text}: {spec.low} is not below {spec.high}; write the lower value first")
    geometric = low > 0 and (high / low >= 10 or quantity == "duration" or _is_duration(spec.low))
    steps = spec.steps - 1
    found = [
        low * (high / low) ** (place / steps) if geometric else low + (high - low) * place / steps
        for place in range(spec.steps)
    ]
    rounded = [low, *(_rounded(one) for one in found[1:-1]), high]
    if quantity == "duration":
        rounded = [low, *(round(one, 3 if one < 1 else 1 if one < 5 else 0) for one in rounded[1:-1]), high]
    return sorted(set(rounded))


def check(spec: Spec, rules: Sequence[Rule], config: Config | None = None) -> None:
    """Raise what ``sweep`` would raise before it evaluates anything."""
    _prepared(spec, rules, config)


def sweep(
    spec: Spec,
    rules: Sequence[Rule],
    run: Run,
    *,
    config: Config | None = None,
    incidents: Incidents | None = None,
    merge_ms: int | None = None,
) -> Sweep:
    """Evaluate an alert of ``rules`` for each value of a sweep.

    ``config``: the one that the pack's rules are rendered from; None when ``rules`` come from files. InputError when
    the alert is unknown or has no such number, ConfigError when a value is out of range.
    """
    quantity, of, current, made, notes = _prepared(spec, rules, config)
    wanted = list(made)
    scores = _scores(spec.alert, made, run, incidents, merge_ms)
    points = tuple(
        Point(
            value, _text(value, quantity, spec),
            current is not None and math.isclose(current, value, rel_tol=1e-6, abs_tol=1e-9), scores[value],
        )
        for value in wanted
    )
    return Sweep(spec, of, points, tuple(notes))


def _prepared(
    spec: Spec, rules: Sequence[Rule], config: Config | None
) -> tuple[str, str, float | None, dict[float, list[Rule]], list[str]]:
    """Quantity, what the value is, the one in use, the rules for each value in order, notes."""
    alerts = [rule for rule in rules if rule.kind == "alert" and rule.name == spec.alert]
    if not alerts:
        known = {rule.name for rule in rules if rule.kind == "alert"}
        raise InputError(f"--sweep {spec.text}: no such alert among these rules; {nearest(spec.alert, known)}")
    quantity, of, current, make, notes = _making(spec, rules, alerts, config)
    wanted = values(spec, quantity)
    if current is not None and not any(math.isclose(current, one, rel_tol=1e-6, abs_tol=1e-9) for one in wanted):
        wanted = sorted([*wanted, current])
    made = {value: list(make(value)) for value in wanted}
    return quantity, of, current, made, notes


# --- what a value makes of the rules ---------------------------------------------------------------------

_Making = tuple[str, str, "float | None", Callable[[float], Sequence[Rule]], list[str]]
"""Quantity, what the value is, the one in use, the rules for a value, notes."""


def _making(spec: Spec, rules: Sequence[Rule], alerts: Sequence[Rule], config: Config | None) -> _Making:
    if spec.key == "for":
        holds = {rule.hold_ms for rule in alerts}
        current = holds.pop() / 1000 if len(holds) == 1 else None

        def held(value: float) -> list[Rule]:
            return [
                replace(rule, hold_ms=round(value * 1000)) if rule.kind == "alert" and rule.name == spec.alert else rule
                for rule in rules
            ]

        return "duration", "for", current, held, []
    if config is not None:
        return _of_pack(spec, config)
    if spec.key != "threshold":
        raise InputError(
            f"--sweep {spec.text}: a rule file has no {spec.key!r}; sweep {spec.alert}.threshold or {spec.alert}.for"
        )
    return _of_text(spec, rules, alerts)


def _of_pack(spec: Spec, config: Config) -> _Making:
    from obs.alerts.registry import all_groups

    alert: Alert = next(one for group in all_groups(config) for one in group.alerts if one.name == spec.alert)
    paths = [path for path in alert.limits if path in BY_PATH]
    if not paths:
        raise InputError(f"--sweep {spec.text}: {spec.alert} compares with no number of obs.yaml; sweep {spec.alert}.for")
    if spec.key == "threshold":
        path = paths[0]
    else:
        fitting = [one for one in paths if spec.key in {one, one.split(".", 1)[1]}]
        if not fitting:
            raise InputError(
                f"--sweep {spec.text}: {spec.alert} has no such number; "
                f"{nearest(spec.key, ['threshold', 'for', *paths])}"
            )
        path = fitting[0]
    limit = BY_PATH[path]
    own: dict[str, float] = {}
    if limit.section == "slo":
        own = config.model_slos(limit.key)
        current = config.slo(limit.key)
    else:
        current = config.window(limit.key) if limit.section == "windows" else config.limit(limit.key)
    notes = []
    if own:
        theirs = ", ".join(f"{name} {show(value, limit.quantity)}" for name, value in own.items())
        notes.append(f"models with an objective of their own ({theirs}) are swept with the others")
        if set(own.values()) != {current}:
            current = None
    if len(paths) > 1 and spec.key == "threshold":
        notes.append(f"{spec.alert} also compares with {', '.join(paths[1:])}: name one to sweep it instead")

    def rendered(value: float) -> list[Rule]:
        return from_groups(all_groups(config.changed(path, value)))

    return limit.quantity, path, current, rendered, notes


def _of_text(spec: Spec, rules: Sequence[Rule], alerts: Sequence[Rule]) -> _Making:
    found = {_threshold(rule) for rule in alerts}
    if len(found) > 1:
        shown = ", ".join(sorted(number(value) for _, value in found))
        raise InputError(
            f"--sweep {spec.text}: {len(alerts)} rules of that name have different thresholds ({shown}); "
            "name a file with one of them"
        )
    text, current = found.pop()

    def replaced(value: float) -> list[Rule]:
        made = []
        for rule in rules:
            if rule.kind == "alert" and rule.name == spec.alert:
                try:
                    rule = replace(rule, expr=with_threshold(rule.expr, value))
                except ValueError as error:
                    raise InputError(f"{rule.where or rule.name}: {error}; sweep {spec.alert}.for instead") from None
            made.append(rule)
        return made

    return "any", " ".join(text.split()), current, replaced, []


def _threshold(rule: Rule) -> tuple[str, float]:
    """The deciding comparison of a rule and the number in it."""
    parts = deciding(take_apart(rule.expr))
    numbers = {part.text: _number(part) for part in parts}
    where = rule.where or rule.name
    if not parts or None in numbers.values():
        raise InputError(
            f"{where}: {rule.name} compares its value with no number, so there is no threshold to sweep; sweep {rule.name}.for"
        )
    if len(set(numbers.values())) > 1:
        shown = ", ".join(number(value) for value in numbers.values() if value is not None)
        raise InputError(f"{where}: {rule.name} has several thresholds ({shown}); split it, or sweep {rule.name}.for")
    value = numbers[parts[0].text]
    assert value is not None
    return parts[0].text, value


def _number(part: Part) -> float | None:
    side = part.parts[1] if part.parts[1].scalar else part.parts[0]
    match = _LITERAL.fullmatch(side.text)
    return float(match["number"]) if match else None


def with_threshold(expr: str, value: float) -> str:
    """The author's expression with the number of its deciding comparison (of each, when an ``or`` has several) replaced.

    ValueError when it has none, or when the result does not read as meant.
    """
    expr = expr.strip()
    before = deciding(take_apart(expr))
    out, at = [], 0
    for part in before:
        right = part.parts[1].scalar
        side = part.parts[1] if right else part.parts[0]
        start = expr.find(part.text, at)
        if _number(part) is None or start < 0:
            raise ValueError("it compares its value with no number")
        literal = _LITERAL.fullmatch(side.text)
        assert literal is not None
        inside = start + (part.text.rfind(side.text) if right else part.text.find(side.text))
        out += [expr[at : inside + literal.start("number")], number(value)]
        at = inside + literal.end("number")
        if not right:
            out.append(expr[at : start + len(part.text)])
            at = start + len(part.text)
    made = "".join([*out, expr[at:]])
    after = deciding(take_apart(made))
    if not before or len(after) != len(before) or any(_number(part) != float(number(value)) for part in after):
        raise ValueError("its threshold cannot be told apart in the text")
    return made


# --- evaluating ------------------------------------------------------------------------------------------


def _scores(
    alert: str, made: Mapping[float, Sequence[Rule]], run: Run, incidents: Incidents | None, merge_ms: int | None
) -> dict[float, AlertScore]:
    """Values whose recording rules are the same are evaluated together, as alerts of different names."""
    batches: list[tuple[list[Rule], list[float]]] = []
    for value, rules in made.items():
        mine = [rule for rule in rules if rule.kind == "alert" and rule.name == alert]
        records = needed(mine, [rule for rule in rules if rule.kind == "record"])
        for theirs, members in batches:
            if theirs == records:
                members.append(value)
                break
        else:
            batches.append((records, [value]))
    scores: dict[float, AlertScore] = {}
    for records, members in batches:
        marked = [
            replace(rule, name=f"{rule.name}{_MARK}{place}")
            for place, value in enumerate(members)
            for rule in made[value]
            if rule.kind == "alert" and rule.name == alert
        ]
        history, targets = run([*records, *marked])
        for place, value in enumerate(members):
            timeline = _only(history, alert, f"{alert}{_MARK}{place}").timeline
            scores[value] = score(timeline, incidents, merge_ms=merge_ms, targets=targets).of(alert)
    return scores


def _only(history: History, alert: str, marked: str) -> History:
    """The history of one marked alert, under its own name."""
    timeline = history.timeline
    instances = tuple(
        replace(one, alert=alert, labels=make_labels({**dict(one.labels), "alertname": alert}.items()))
        for one in timeline.of(marked)
    )
    dead = tuple((alert, metrics) for name, metrics in timeline.dead if name == marked)
    return replace(history, timeline=replace(timeline, alerts=(alert,), instances=instances, dead=dead))


# --- values ----------------------------------------------------------------------------------------------


def _is_duration(text: str) -> bool:
    try:
        seconds(text)
    except ValueError:
        return False
    return True


def _value(spec: Spec, text: str, quantity: str) -> float:
    try:
        if quantity == "duration" or (quantity == "any" and _is_duration(text)):
            return seconds(text)
        if text.endswith("%"):
            return ratio(text)
        found = float(text)
        if math.isfinite(found):
            return found
        raise ValueError(f"{text!r} is not a number")
    except ValueError as error:
        words = str(error) if "write" in str(error) else f"{text!r} is not a number; {_FORM}"
        raise InputError(f"--sweep {spec.text}: {words}") from None


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


def _text(value: float, quantity: str, spec: Spec) -> str:
    if quantity == "duration" or (quantity == "any" and _is_duration(spec.low)):
        return duration(value)
    return f"{value:g}"


def as_json(found: Sweep) -> dict[str, Any]:
    """The sweep for machines; durations in seconds, null where nothing can be told."""
    return {
        "sweep": found.spec.text,
        "of": found.of,
        "notes": list(found.notes),
        "points": [
            {
                "value": point.value, "text": point.text, "current": point.current,
                "episodes": point.score.episodes, "false": point.score.false, "flaps": point.score.flaps,
                "hours_firing": point.score.firing_ms / 3_600_000, "recall": point.score.recall,
                "precision": point.score.precision,
                "time_to_detect": None if point.score.detect_median_ms is None else point.score.detect_median_ms / 1000,
            }
            for point in found.points
        ],
    }
