"""Holds the backtest against promtool: random series, random rules, the same ALERTS at every evaluation time.

    python -m tests.evaluate.differential --cases 1000        (or: make differential)

A case is a set of series under a set of rules. promtool (`test rules`) is the oracle: its ALERTS are demanded to be
what we say at every evaluation. Ours comes about in three ways, which must agree: recording rules expanded into the
alerts (or what "auto" chooses), evaluated first, and a replay. The cases of one rule set lie one behind the other
on one time line with quiet between them, so that a private Prometheus and a few queries do for all of them.

What promtool 2.42 does in its own way, and what is done about it:

- it ignores a group's `interval`: its evaluation_interval is set to it, and ours is told another step;
- it evaluates groups in the order of file and name: rules read only what earlier groups, or their own, record;
- within a group it is exact, and so are we but for two things that give a warning, not diced here: a subquery over
  what a later rule of the group records, and a name that rules on both sides of its reader record;
- it does not always say the same of one file: of some, one run in ten has every rule see its input one evaluation late.
  A case that fails is run alone, again and again: it counts as a mismatch when no run has our states (each of them);
- a label whose template gives "" is not on the alert, but on its ALERTS series with the template's text (so it is in
  a server: rules/alerting.go, sample());
- it ends a test at the first evaluation that fails (two results with the same labels after the alert's own are put on,
  a limit): of such a case it must name the very rules and that very time, the states before must be ours, and those of
  the other alerts at every evaluation, asked without the alert that fails. What an alert does after an evaluation that
  failed, no promtool says: a real server does (``after_failures``), by the samples of ALERTS that it appended.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import re
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from obs.evaluate import backtest, narrow, ranges, replay
from obs.evaluate.ranges import Asker
from obs.evaluate.replay import Instance, Timeline
from obs.evaluate.rules import Rule, load_rule_files
from obs.prom import tools
from obs.prom.remote_write import STALE_NAN, Labels, Point, make_labels
from obs.prom.server import PrivatePrometheus

# A midnight: a multiple of every interval. Long past: Prometheus 3 takes no sample of more than ten minutes from now.
T0 = 1_700_000_000_000 // 86_400_000 * 86_400_000
STEPS = 36  # evaluations of a case
QUIET = 60  # evaluations of nothing behind it: more than any rule looks back, keeps or lingers
PER_SET = 40
RUNS = 12


@dataclass(frozen=True)
class Series:
    labels: Labels
    marks: tuple[str, ...]  # a number, "_" (no sample), "stale" or "NaN", one per sample interval


@dataclass
class Case:
    series: list[Series]


@dataclass
class RuleSet:
    """Rules, their evaluation interval and the sample interval (ms), and the cases under them."""

    interval: int
    sample: int
    groups: list[dict[str, Any]]
    cases: list[Case] = field(default_factory=list)

    @property
    def slot(self) -> int:
        return (STEPS + QUIET) * self.interval

    def start(self, number: int) -> int:
        return T0 + number * self.slot


@dataclass(frozen=True)
class Played:
    """What obs.evaluate.replay wants of a recording."""

    name: str
    all: Sequence[Point]
    start_ms: int
    end_ms: int
    interval_ms: int
    metric_names: frozenset[str]

    def points(self, *, end_ms: int | None = None, normalise_le: bool = False) -> Iterator[Point]:
        return iter(self.all)


# --- the dice ---------------------------------------------------------------------------------------------


def d(ms: int) -> str:
    return f"{ms // 1000}s" if ms % 1000 == 0 else f"{ms}ms"


def series(chance: random.Random, samples: int) -> list[Series]:
    found = []
    for i in chance.sample("abcd", chance.randint(2, 4)):
        job = chance.choice("pq")
        found.append(Series(labels("x", i=i, job=job), marks(chance, samples, lambda: str(chance.randint(0, 6)))))
        if chance.random() < 0.8:
            found.append(Series(labels("y", i=i), marks(chance, samples, lambda: str(chance.randint(0, 3)))))
        if chance.random() < 0.7:
            team = chance.choice(["red", "Blue-1"])
            found.append(Series(labels("info", i=i, team=team), marks(chance, samples, lambda: "1")))
        if chance.random() < 0.8:
            found.append(Series(labels("c", i=i, job=job), counter(chance, samples)))
    return found


def labels(name: str, **pairs: str) -> Labels:
    return make_labels([("__name__", name), *pairs.items()])


def marks(chance: random.Random, samples: int, value: Any) -> tuple[str, ...]:
    out: list[str] = []
    while len(out) < samples:
        kind = chance.choices(["value", "_", "stale", "NaN"], [10, 2, 1, 1])[0]
        longest = 12 if kind == "_" and chance.random() < 0.2 else 4
        out += [value() if kind == "value" else kind] * chance.randint(1, longest)
    return tuple(out[:samples])


def counter(chance: random.Random, samples: int) -> tuple[str, ...]:
    out: list[str] = []
    now = 0
    for _ in range(samples):
        roll = chance.random()
        now = chance.randint(0, 3) if roll < 0.07 else now + chance.choice([0, 0, 1, 5, 40])
        out.append("_" if 0.07 <= roll < 0.15 else "stale" if 0.15 <= roll < 0.18 else str(now))
    return tuple(out)


def recordings(chance: random.Random, step: int) -> list[dict[str, Any]]:
    return [
        {"record": "r:x2", "expr": "x * 2"},
        {"record": "r:avg", "expr": f"avg_over_time(x[{d(3 * step)}])"},
        {"record": "r:rate", "expr": f"rate(c[{d(chance.choice([2, 4, 5]) * step)}]) * 60"},
        {"record": "r:sum", "expr": "sum by (job) (x)", "labels": {"extra": "e"}},
        {"record": "r:one", "expr": "x > 2", "labels": {"src": "x"}},
        {"record": "r:one", "expr": "y > 1", "labels": {"src": "y"}},
        {"record": "r:nest", "expr": "r:x2 + on (i) group_left () y"},
        {"record": "r:max", "expr": f"max_over_time(r:x2[{d(3 * step)}])"},
        {"record": "r:old", "expr": f"r:avg offset {d(2 * step)}"},
    ]


def alert_exprs(chance: random.Random, step: int) -> list[str]:
    t, u, v = chance.randint(0, 5), chance.randint(0, 2), chance.choice([1.5, 3, 4, 7])
    n = chance.randint(2, 5)
    return [
        f"x > {t}",
        f"x > {t} and on (i) y > {u}",
        f"x > {t} unless on (i) y > {u}",
        f"x != {t}",
        f"rate(c[{d(n * step)}]) * 60 > {v}",
        f"increase(c[{d(n * step)}]) > {v}",
        f"x * on (i) group_left (team) info > {t}",
        f"count by (job) (x > {u}) > 1",
        f"resets(c[{d(5 * step)}]) > 0",
        f"x > {t} or y > {u}",
        f'label_replace(x, "z", "$1-z", "i", "(.*)") > {t}',
        f"r:x2 > {2 * t}",
        f"r:x2 offset {d(2 * step)} > {2 * t}",
        f"max_over_time(r:x2[{d(n * step)}]) > {2 * t}",
        f"changes(r:x2[{d(n * step)}]) > 1",
        f"avg_over_time(r:avg[{d(n * step)}:{d(step)}]) > {t}",
        f"sum_over_time(r:x2[{d(6 * step)}:{d(2 * step)}]) > {4 * t}",
        f"r:rate > {v} and on (i) r:nest > {t}",
        f"r:nest > {t}",
        f"r:max - on (i) r:x2 > {t}",
        f'r:one{{src="x"}} > {t}',
        f"count by (src) (r:one) > {u}",
        f'r:sum{{extra="e"}} > {t}',
        f"r:old > {t}",
        f"(r:x2 offset {d(step)}) unless r:x2",
        f"delta(r:rate[{d(4 * step)}]) > {u}",
        f"rate(r:nest[{d(n * step)}] offset {d(step)}) * 60 > {u}",
        f"max_over_time((r:x2 * on (i) group_left () y)[{d(4 * step)}:{d(step)}]) > {v}",
        f"count_over_time(x[{d(4 * step)}]) < 4",
    ]


def narrow_exprs(step: int) -> list[str]:
    """What is asked only at some times when it is evaluated first (obs.evaluate.narrow)."""
    return [
        "r:x2 > 4 and on (i) r:nest > 2",
        f"present_over_time(r:here[{d(4 * step)}]) unless on (i) r:here",
        f'avg_over_time(r:x2[{d(2 * step)}]) > 3 unless on (i) r:one{{src="x"}} and on (job) count by (job) (r:here) > 1',
        "max by (i) (r:x2 > 2 unless on (i) r:max > 9)",
        "count(r:here) > 2",
        f"sum by (job) (r:here offset {d(2 * step)}) > on (job) sum by (job) (r:here)",
        f"count_over_time(r:here[{d(5 * step)}]) < 4 and on (i, job) r:here",
        f"min_over_time(r:many[{d(3 * step)}]) == 1 unless r:many == 0",
    ]


TEMPLATES = [
    {"who": "{{ $labels.i }}-{{ $labels.job }}"},
    {"level": '{{ if gt $value 4.0 }}high{{ else if gt $value 2.0 }}middle{{ else }}low{{ end }}'},
    {"shown": "{{ $value | humanize }}"},
    {"shown": '{{ printf "%.1f" $value }} of {{ $labels.i | toUpper }}'},
    {"team": '{{ with $labels.team }}{{ reReplaceAll "-.*" "" . | toLower }}{{ else }}none{{ end }}'},
    {"name": "{{ $labels.__name__ }}", "i": "{{ $labels.i }}"},
    {"static": "yes", "missing": "{{ $labels.nothing }}"},
    {"job": ""},
]


def rule_set(chance: random.Random) -> RuleSet:
    step = chance.choice([15_000, 30_000, 60_000, 120_000])
    sample = chance.choice([step, step, step // 3, step * 2])
    records = recordings(chance, step)
    alerts = []
    for number, expr in enumerate(chance.sample(alert_exprs(chance, step), 14)):
        alert: dict[str, Any] = {"alert": f"A{number}", "expr": expr}
        hold = chance.choice([0, 0, step // 2, step, 2 * step, 5 * step // 2, 3 * step])
        keep = chance.choice([0, 0, step, 2 * step, 3 * step])
        alert |= {"for": d(hold)} if hold else {}
        alert |= {"keep_firing_for": d(keep)} if keep else {}
        given = chance.choice([{}, {}, *TEMPLATES])
        if not ("job" in given and "by (job)" in expr) and not ("job" in given and "r:sum" in expr):
            alert |= {"labels": given} if given else {}
        alerts.append(alert)
    shape = chance.choice(["apart", "together", "mixed"])
    if shape == "apart":
        groups = [{"name": "g0", "rules": records}, {"name": "g1", "rules": alerts}]
    elif shape == "together":
        groups = [{"name": "g0", "rules": [*records, *alerts]}]
    else:  # some rules stand before those that record what they read
        ones = [one for one in records if one["record"] == "r:one"]
        # not evaluated as a server does (there is a warning): a subquery over, or half of, what comes later
        last = [one for one in alerts if ":" in re.sub("r:", "", one["expr"])]
        mixed = [one for one in [*records, *alerts] if one not in ones[1:] and one not in last]
        chance.shuffle(mixed)
        at = mixed.index(ones[0])
        mixed[at + 1 : at + 1] = ones[1:]
        mixed += last
        groups = [{"name": "g0", "rules": mixed}]
    groups[0]["rules"] = [
        {"record": "r:here", "expr": "group by (i, job) (x)"},
        {"record": "r:many", "expr": "count by (job) (x > 1) > bool 1"},
        *groups[0]["rules"],
    ]
    narrowed: list[dict[str, Any]] = [{"alert": f"N{number}", "expr": expr} for number, expr in enumerate(narrow_exprs(step))]
    narrowed[0]["labels"] = {"shown": "{{ $value }}"}
    groups[-1]["rules"] = [*groups[-1]["rules"], *narrowed]
    for group in groups:
        group["interval"] = d(step)
    return RuleSet(step, sample, groups)


# --- both sides -------------------------------------------------------------------------------------------


def points(rules: RuleSet) -> list[Point]:
    out = []
    for number, case in enumerate(rules.cases):
        for one in case.series:
            for index, mark in enumerate(one.marks):
                if mark != "_":
                    value = STALE_NAN if mark == "stale" else NAN if mark == "NaN" else float(mark)
                    out.append(Point(rules.start(number) + index * rules.sample, one.labels, value))
    return sorted(out, key=lambda point: (point.time_ms, point.labels))


NAN: float = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))[0]  # as Prometheus parses "NaN"


@contextlib.contextmanager
def narrowing() -> Iterator[None]:
    """Whatever can be asked at some times only is, though it reads only a few series."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name, value in ((narrow, "_WORTH", 0), (narrow, "_SHARE", 1.0), (narrow, "_GROWTH", 0), (narrow, "GAP", 1),
                                    (ranges, "GAP", 1)):
            patch.setattr(module, name, value)
        yield


def ours(rules: RuleSet, loaded: Sequence[Rule]) -> dict[str, tuple[Timeline, tuple[str, ...]]]:
    """Our timelines by the way they came about, with warnings."""
    data = points(rules)
    end = rules.start(len(rules.cases)) - rules.interval
    found: dict[str, tuple[Timeline, tuple[str, ...]]] = {}
    with PrivatePrometheus() as server:
        server.writer.write(data)
        for how in ("auto", "first"):
            with narrowing():
                history = backtest.over_server(
                    server.client, loaded, start_ms=T0, end_ms=end, step_ms=5 * rules.interval, how=how  # type: ignore[arg-type]
                )
            found[how] = history.timeline, history.warnings
    names = frozenset(dict(point.labels)["__name__"] for point in data)
    played = Played("cases", data, T0, end, 5 * rules.interval, names)
    with replay.played([played], loaded) as done:  # type: ignore[list-item]
        found["replay"] = done.timeline, done.warnings
    return found


def states(instances: Sequence[Instance], rules: RuleSet) -> dict[tuple[int, int], list[tuple[str, Labels]]]:
    """Per (case, evaluation): the active alerts, as (state, labels)."""
    found: dict[tuple[int, int], list[tuple[str, Labels]]] = {}
    for one in instances:
        for span in one.spans:
            for at in range(span.start_ms, span.end_ms, rules.interval):
                case, index = divmod((at - T0) // rules.interval, STEPS + QUIET)
                if index < STEPS:
                    found.setdefault((case, index), []).append((span.state, as_series(one, rules)))
    return found


def as_series(one: Instance, rules: RuleSet) -> Labels:
    """An alert's labels as its ALERTS series has them: where a template gives nothing, the template's own text."""
    (rule,) = (rule for group in rules.groups for rule in group["rules"] if rule.get("alert") == one.alert)
    return make_labels({**rule.get("labels", {}), **dict(one.labels)}.items())


def written(labels_: Labels) -> str:
    return "{" + ",".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in labels_) + "}"


def as_test(
    rules: RuleSet, number: int, expected: dict[tuple[int, int], list[tuple[str, Labels]]], steps: int
) -> dict[str, Any]:
    """A case as promtool's test: ALERTS at each evaluation."""
    checks = []
    for index in range(steps):
        samples = [
            {"labels": f"ALERTS{written(make_labels([*labels_, ('alertstate', state)]))}", "value": 1}
            for state, labels_ in expected.get((number, index), ())
        ]
        checks.append({"expr": "ALERTS", "eval_time": d(index * rules.interval), "exp_samples": samples})
    inputs = [
        {"series": dict(one.labels)["__name__"] + written(one.labels[1:]), "values": " ".join(one.marks)}
        for one in rules.cases[number].series
    ]
    return {"name": f"case {number}", "interval": d(rules.sample), "input_series": inputs, "promql_expr_test": checks}


def promtool(folder: Path, rules: RuleSet, tests: list[dict[str, Any]], name: str = "test") -> str:
    """What promtool says of tests; "" when all hold."""
    path = folder / f"{name}.yaml"
    document = {"rule_files": ["rules.yaml"], "evaluation_interval": d(rules.interval), "tests": tests}
    path.write_text(json.dumps(document), encoding="utf-8")
    done = tools.run([tools.find("promtool"), "test", "rules", str(path)])
    return "" if done.code == 0 and "SUCCESS" in done.output else done.output


def patiently(folder: Path, rules: RuleSet, tests: list[dict[str, Any]], tally: Tally) -> Iterator[str]:
    """What promtool says of each test that never holds in a number of runs: it does not always say the same."""
    if not promtool(folder, rules, tests):
        return
    for one in tests:
        said = promtool(folder, rules, [one], "one")
        for _ in range(RUNS):
            if not said:
                break
            tally.again += 1
            said = promtool(folder, rules, [one], "one")
        if said:
            yield said


def differing(said: str) -> str:
    """promtool's complaint, each wrong time with only the samples that differ."""
    lines = []
    for match in re.finditer(r"time: (\S+),\s+exp: (.*)\n\s+got: (.*)", said):
        wanted, got = (set(re.findall(r"\{[^}]*\}", text)) for text in match.group(2, 3))
        lines.append(f"at {match[1]} we have {sorted(wanted - got)}, promtool {sorted(got - wanted)}")
    return "\n".join(lines) or said[:3000]


@dataclass
class Tally:
    cases: int = 0
    evaluations: int = 0
    mismatches: int = 0
    again: int = 0  # promtool's runs that said otherwise than another run on the same file
    states: Counter[str] = field(default_factory=Counter)
    said: list[str] = field(default_factory=list)

    def wrong(self, count: int, text: str) -> None:
        self.mismatches += count
        self.said.append(text[:6000])


def compare(chance: random.Random, cases: int, tally: Tally) -> None:
    """One rule set with some cases, ours against promtool's."""
    rules = rule_set(chance)
    samples = STEPS * rules.interval // rules.sample
    rules.cases = [Case(series(chance, samples)) for _ in range(cases)]
    with tempfile.TemporaryDirectory(prefix="obs-differential-") as name:
        folder = Path(name)
        (folder / "rules.yaml").write_text(json.dumps({"groups": rules.groups}), encoding="utf-8")
        found = ours(rules, load_rule_files([folder / "rules.yaml"]))
        base, warnings = found["auto"]
        failed = dict(base.failed)
        for how, (line, _) in found.items():
            for one in set(line.instances) ^ set(base.instances):
                tally.wrong(1, f"{how} and auto differ: {one}\n{json.dumps(rules.groups)}")
            if line.failed != base.failed:
                tally.wrong(1, f"{how} and auto fail at different times: {line.failed}, {base.failed}")
        warnings = tuple(one for one in warnings if not (_FAILS.match(one) and one.split(":")[0] in failed))
        if warnings:
            tally.wrong(len(warnings), f"a warning: {warnings}")
        expected = states(base.instances, rules)
        for active in expected.values():
            tally.states.update(state for state, _ in active)
        fails = failures(base, rules)
        steps = [min((index for case, index in fails if case == number), default=STEPS) for number in range(cases)]
        tests = [as_test(rules, number, expected, steps[number]) for number in range(cases) if steps[number]]
        for said in patiently(folder, rules, tests, tally):
            tally.wrong(max(1, said.count("expr: ")), f"{json.dumps(rules.groups)}\npromtool: {differing(said)}")
        for number, first in enumerate(steps):
            if first < STEPS:
                tally.states["failing"] += 1
                wanted = [(alert, first * rules.interval) for alert in fails[number, first]]
                said = failing(folder, rules, as_test(rules, number, {}, first + 1), wanted, tally)
                if said:
                    tally.wrong(1, f"we fail at {wanted}, promtool: {said[:600]}\n{json.dumps(rules.groups)}")
        if failed:  # the rest of those cases, for the alerts that do not fail
            for group in rules.groups:
                group["rules"] = [rule for rule in group["rules"] if rule.get("alert") not in failed]
            (folder / "rules.yaml").write_text(json.dumps({"groups": rules.groups}), encoding="utf-8")
            expected = states([one for one in base.instances if one.alert not in failed], rules)
            tests = [as_test(rules, number, expected, STEPS) for number in range(cases) if steps[number] < STEPS]
            for said in patiently(folder, rules, tests, tally):
                tally.wrong(max(1, said.count("expr: ")), f"{json.dumps(rules.groups)}\npromtool: {differing(said)}")
    tally.cases += cases
    tally.evaluations += cases * STEPS


_FAILS = re.compile(r"\w+: \d+ of \d+ evaluations fail, as on a server, the first at .*: two results have the same labels")


def failures(line: Timeline, rules: RuleSet) -> dict[tuple[int, int], list[str]]:
    """Per (case, evaluation) that fails: the alerts that do."""
    found: dict[tuple[int, int], list[str]] = {}
    for alert, times in line.failed:
        for at in times:
            case, index = divmod((at - T0) // rules.interval, STEPS + QUIET)
            if index < STEPS:
                found.setdefault((case, index), []).append(alert)
    return found


def failing(folder: Path, rules: RuleSet, test: dict[str, Any], wanted: list[tuple[str, int]], tally: Tally) -> str:
    """What promtool says of a test where the rules ``wanted`` must fail, at those times (ms); "" when they do."""
    said = ""
    for attempt in range(RUNS):
        tally.again += attempt > 0
        said = promtool(folder, rules, [test], "failing")
        theirs = re.findall(r"rule: (\w+), time: (\S+), err: (.*)", said)
        if sorted((name, _go_ms(at)) for name, at, _ in theirs) == sorted(wanted) and all(
            "same labelset" in why for *_, why in theirs
        ):
            return ""
    return said or "all evaluations work"


def compare_failing(chance: random.Random, tally: Tally) -> None:
    """A case whose evaluation fails once: promtool must name the same time, and have the same states before it."""
    rules = rule_set(chance)
    limit = chance.randint(1, 3)
    clash = chance.random() < 0.4
    alert: dict[str, Any] = {"alert": "F", "expr": f"x > {chance.randint(0, 3)}"}
    alert["for"] = d(chance.choice([0, 2]) * rules.interval)
    alert["keep_firing_for"] = d(chance.choice([0, 2]) * rules.interval)
    if clash:
        alert["labels"] = {"i": "{{ if gt $value 4.0 }}many{{ else }}{{ $labels.i }}{{ end }}", "job": ""}
    rules.groups = [{"name": "g", "rules": [alert]} if clash else {"name": "g", "limit": limit, "rules": [alert]}]
    samples = STEPS * rules.interval // rules.sample
    rules.cases = [Case(series(chance, samples))]
    with tempfile.TemporaryDirectory(prefix="obs-differential-") as name:
        folder = Path(name)
        (folder / "rules.yaml").write_text(json.dumps({"groups": rules.groups}), encoding="utf-8")
        (loaded,) = load_rule_files([folder / "rules.yaml"])
        data = points(rules)
        with PrivatePrometheus() as server:
            server.writer.write(data)
            history = backtest.over_server(
                server.client, [replace(loaded, interval_ms=0)], start_ms=T0, end_ms=T0 + STEPS * rules.interval - 1,
                step_ms=rules.interval,
            )  # fmt: skip
        first = STEPS
        why = ""
        for warning in history.warnings:
            match = re.search(r"the first at (.+?)Z", warning)
            if match:
                at = int(time.mktime(time.strptime(match[1] + " UTC", "%Y-%m-%d %H:%M:%S %Z")) - time.timezone) * 1000
                if (at - T0) // rules.interval < first:
                    first, why = (at - T0) // rules.interval, warning
        said = promtool(folder, rules, [as_test(rules, 0, {}, STEPS)])
        theirs = re.search(r"rule: F, time: (\S+), err: (.*)", said)
        if why:
            reason = "exceeded limit" if "limit" in why else "same labelset"
            wanted = first * rules.interval
            if theirs is None or _go_ms(theirs[1]) != wanted or reason not in theirs[2]:
                tally.wrong(1, f"we fail at {wanted} ms ({why}), promtool: {said[:300]}\n{json.dumps(rules.groups)}")
            tally.states["failing"] += 1
        elif theirs is not None:
            tally.wrong(1, f"promtool fails ({theirs[0]}), we do not\n{json.dumps(rules.groups)}")
        expected = states(history.timeline.instances, rules)
        if first:
            for said in patiently(folder, rules, [as_test(rules, 0, expected, first)], tally):
                tally.wrong(max(1, said.count("expr: ")), f"{json.dumps(rules.groups)}\npromtool: {differing(said)}")
    tally.cases += 1
    tally.evaluations += first


BEAT = 400  # ms between evaluations of a real server
SPAN = 30  # evaluations watched


def after_failures(chance: random.Random, tally: Tally, alerts: int = 40) -> None:
    """What alerts do when evaluations fail now and then, and after: a real server evaluates rules made of time alone,
    and the samples of ALERTS that it appended at each evaluation are held against our spans.

    An evaluation that fails appends nothing, and the next that works goes on from the state before. Evaluations that
    the server did not make in time (this machine was busy) end what is compared.
    """
    rules = [_clashing(chance, number) for number in range(alerts)]
    groups = [{"name": f"g{number}", "limit": rule.pop("limit"), "rules": [rule]} for number, rule in enumerate(rules)]
    for number, group in enumerate(groups):
        group["rules"] = [{"record": f"beat{number}", "expr": "vector(time())"}, *group["rules"]]  # when it evaluates
    with tempfile.TemporaryDirectory(prefix="obs-differential-") as name:
        path = Path(name) / "rules.yaml"
        path.write_text(json.dumps({"groups": groups}), encoding="utf-8")
        loaded = [rule for rule in load_rule_files([path]) if rule.kind == "alert"]
        with PrivatePrometheus(rule_files=[path], evaluation_interval=f"{BEAT}ms") as server:
            deadline = time.monotonic() + 60 + SPAN * BEAT / 1000
            last = f'count_over_time({{__name__="beat{alerts - 1}"}}[10m])'
            while time.monotonic() < deadline:
                counted = server.client.query(last)
                if counted and counted[0].value >= SPAN:
                    break
                time.sleep(BEAT / 1000)
            shown: dict[str, dict[int, list[tuple[str, Labels]]]] = {}
            data = server.client.get('/api/v1/query?query={__name__=~"beat.*|ALERTS"}[10m]')
            beats: dict[str, list[int]] = {}
            for one in data["result"]:
                labels_ = dict(one["metric"])
                times = [round(at * 1000) for at, _ in one["values"]]
                if labels_.pop("__name__") != "ALERTS":
                    beats[one["metric"]["__name__"]] = times
                    continue
                state, alert = labels_.pop("alertstate"), labels_["alertname"]
                for at in times:
                    shown.setdefault(alert, {}).setdefault(at, []).append((state, make_labels(labels_.items())))
            for number, rule in enumerate(loaded):
                mine = beats.get(f"beat{number}", [])[:-1]  # of the last, ALERTS may not be there yet
                until = next((at for at in range(1, len(mine)) if mine[at] - mine[at - 1] != BEAT), len(mine))
                if until < 3:
                    continue
                times_ = range(mine[0], mine[until - 1] + 1, BEAT)
                asker = Asker(server.client)
                found = replay.instances_of(asker, replace(rule, interval_ms=0), rule.expr, times_, times_.stop)
                bad = asker.failed.get(rule.name, set())
                tally.states["failed on a server"] += len(bad)
                for at in times_[2:]:  # a server that starts does not show the first two: it first restores states
                    theirs = sorted(shown.get(rule.name, {}).get(at, []))
                    ours_ = sorted(
                        (span.state, one.labels) for one in found for span in one.spans if span.start_ms <= at < span.end_ms
                    )
                    tally.evaluations += 1
                    if theirs != ([] if at in bad else ours_):
                        tally.wrong(1, f"at {at - times_.start} ms (fails: {at in bad}) ours {ours_}, server {theirs}: {rule}")
                        break
    tally.cases += alerts


def _clashing(chance: random.Random, number: int) -> dict[str, Any]:
    """An alert on time alone: a few series, each there at some evaluations, two of which now and then look the same."""
    parts = []
    for name in "abc":
        period, shift = chance.randint(3, 9), chance.randint(0, 8)
        there = f"floor(vector(time() * 1000 / {BEAT})) % {period + 2} < {chance.randint(period // 2 + 1, period + 1)}"
        value = f"floor(vector(time() * 1000 / {BEAT} + {shift})) % {chance.randint(5, 9)}"
        parts.append(f'label_replace({value} and ({there}), "i", "{name}", "", "")')
    alert: dict[str, Any] = {"alert": f"F{number}", "expr": " or ".join(parts), "limit": chance.choice([0, 0, 0, 2])}
    alert["for"] = d(chance.choice([0, 1, 2, 3]) * BEAT)
    alert["keep_firing_for"] = d(chance.choice([0, 0, 1, 2, 4]) * BEAT)
    if chance.random() < 0.8:
        high = f"{chance.randint(2, 6)}.0"
        alert["labels"] = {"i": "{{ if gt $value " + high + " }}many{{ else }}{{ $labels.i }}{{ end }}"}
    return alert


def _go_ms(text: str) -> int:
    units = {"h": 3_600_000, "m": 60_000, "s": 1000}
    return round(sum(float(part) * units[unit] for part, unit in re.findall(r"([\d.]+)([hms])", text)))


def run(cases: int, seed: int, per_set: int = PER_SET, failing: int | None = None, show: bool = False) -> Tally:
    """So many cases (and beyond them ``failing`` ones, default a twentieth, and those of a real server)."""
    tally = Tally()
    number = told = 0
    while tally.cases < cases:
        compare(random.Random(f"{seed}/{number}"), min(per_set, cases - tally.cases), tally)
        number += 1
        if show:
            print(f"{tally.cases} cases, {tally.evaluations} evaluations, {tally.mismatches} mismatches", file=sys.stderr)
            for text in tally.said[told:]:
                print(text, file=sys.stderr)
            told = len(tally.said)
    for index in range(cases // 20 if failing is None else failing):
        compare_failing(random.Random(f"{seed}/failing/{index}"), tally)
    if failing is None:
        after_failures(random.Random(f"{seed}/after"), tally)
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(description="hold the backtest against promtool on random cases")
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=20261130)
    args = parser.parse_args()
    began = time.monotonic()
    tally = run(args.cases, args.seed, show=True)
    for text in tally.said[:5]:
        print(text)
    print(
        f"{tally.cases} cases, {tally.evaluations} evaluations, {dict(tally.states)} states, "
        f"{tally.mismatches} mismatches (promtool was asked again {tally.again} times), {time.monotonic() - began:.0f} s"
    )
    return 1 if tally.mismatches else 0


if __name__ == "__main__":
    sys.exit(main())
