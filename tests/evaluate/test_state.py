"""The alert state machine, by hand and against promtool as the oracle."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from obs.evaluate.state import Span, spans, spans_of_runs
from obs.prom import tools

A = (("alertname", "A"),)
MIN = 60_000


def states(presence: str, **holds: int) -> str:
    """One letter per minute: p(ending), f(iring), . (inactive), for a presence like "xx.x"."""
    evaluations = [(minute * MIN, [A] if mark == "x" else []) for minute, mark in enumerate(presence)]
    found = spans(evaluations, end_ms=len(presence) * MIN, **holds).get(A, ())
    return "".join(
        next((span.state[0] for span in found if span.start_ms <= minute * MIN < span.end_ms), ".")
        for minute in range(len(presence))
    )


@pytest.mark.parametrize(
    ("presence", "hold", "keep", "expected"),
    [
        (".xx.", 0, 0, ".ff."),  # without `for` the first evaluation fires
        (".xxxx.", 2, 0, ".ppff."),  # `for: 2m` fires at the evaluation two minutes after the first
        ("xx.xxx", 2, 0, "pp.ppf"),  # one evaluation without it starts `for` anew
        ("x...", 0, 2, "fff."),  # kept while less than keep_firing_for passed since the first absence
        ("x.x..", 0, 1, "fffff"[:4] + "."),  # coming back resets what was kept
        ("xxx.x.", 2, 2, "ppffff"),  # kept firing, not pending again
        ("x.", 2, 5, "p."),  # a pending alert is never kept
        ("....", 0, 0, "...."),
    ],
)
def test_by_hand(presence: str, hold: int, keep: int, expected: str) -> None:
    assert states(presence, hold_ms=hold * MIN, keep_ms=keep * MIN) == expected


def test_spans_touch_and_instances_are_apart() -> None:
    b = (("alertname", "A"), ("m", "b"))
    found = spans([(0, [A]), (10, [A, b]), (20, [A, b]), (30, [b])], end_ms=40, hold_ms=20)
    assert found == {
        A: (Span(0, 20, "pending"), Span(20, 30, "firing")),
        b: (Span(10, 30, "pending"), Span(30, 40, "firing")),
    }
    assert spans([], end_ms=0) == {}


def test_limit_forgets_all_and_begins_anew() -> None:
    b = (("alertname", "A"), ("m", "b"))
    exceeded: list[int] = []
    every = [(0, [A]), (10, [A, b]), (20, [A]), (30, [A]), (40, [])]
    found = spans(every, end_ms=50, hold_ms=10, keep_ms=20, limit=1, exceeded=exceeded)
    # A fires at 10, but two are active then: both are forgotten; A is pending anew at 20, fires at 30, is kept at 40
    assert found == {A: (Span(0, 10, "pending"), Span(20, 30, "pending"), Span(30, 50, "firing"))}
    assert exceeded == [10]


def test_runs_give_what_every_evaluation_gives() -> None:
    for seed in range(400):
        chance = random.Random(seed)
        count = chance.randint(1, 25)
        times = [0]
        while len(times) < count:
            times.append(times[-1] + chance.choice([10, 10, 10, 30]))
        present = {(("n", str(n)),): [chance.random() < 0.6 for _ in times] for n in range(chance.randint(1, 3))}
        runs = {}
        for labels, there in present.items():
            edges = [at for at in range(count + 1) if (at < count and there[at]) != (at > 0 and there[at - 1])]
            runs[labels] = tuple(zip(edges[::2], edges[1::2], strict=True))
        end = times[-1] + chance.choice([0, 5])
        hold, keep, limit = chance.choice([0, 5, 10, 25, 30]), chance.choice([0, 5, 10, 20, 35]), chance.choice([0, 0, 1, 2])
        one: list[int] = []
        two: list[int] = []
        evaluations = [(at, [labels for labels in present if present[labels][index]]) for index, at in enumerate(times)]
        slow = spans(evaluations, end_ms=end, hold_ms=hold, keep_ms=keep, limit=limit, exceeded=one)
        fast = spans_of_runs(runs, times, end_ms=end, hold_ms=hold, keep_ms=keep, limit=limit, exceeded=two)
        assert (slow, one) == (fast, two), seed


HOLDS = [(hold, keep) for hold in (0, 1, 3) for keep in (0, 1, 2)]
CASES, MINUTES = 50, 16


def _presence(marks: list[str]) -> str:
    """What `x > 1` has at each minute: the last sample counts until the next (gaps here are below the look-back)."""
    now, out = "none", ""
    for mark in marks:
        now = now if mark == "_" else mark
        out += "x" if now == "5" else "."
    return out


def _case(chance: random.Random) -> list[str]:
    marks: list[str] = []
    while len(marks) < MINUTES:
        mark = chance.choice(["5", "5", "5", "0", "stale", "_"])
        length = chance.randint(1, 3 if mark == "_" else 4)
        if not (mark == "_" and marks and marks[-1] == "_"):
            marks += [mark] * length
    return marks[:MINUTES]


@pytest.mark.prometheus
def test_like_promtool_on_random_cases(tmp_path: Path) -> None:
    """Every minute of 50 random series under 9 pairs of for and keep_firing_for: who is pending, who fires."""
    rules = [
        {"alert": f"F{hold}K{keep}", "expr": "x > 1", "for": f"{hold}m", "keep_firing_for": f"{keep}m"}
        for hold, keep in HOLDS
    ]
    (tmp_path / "rules.yaml").write_text(json.dumps({"groups": [{"name": "g", "rules": rules}]}))
    chance = random.Random(20261130)
    tests: list[dict[str, Any]] = []
    letters = ""
    for _ in range(CASES):
        marks = _case(chance)
        checks = []
        for hold, keep in HOLDS:
            ours = states(_presence(marks), hold_ms=hold * MIN, keep_ms=keep * MIN)
            letters += ours
            for minute, letter in enumerate(ours):
                state = {"p": "pending", "f": "firing"}.get(letter)
                name = f"F{hold}K{keep}"
                alert = f'ALERTS{{alertname="{name}",alertstate="{state}"}}'
                checks.append(
                    {
                        "expr": f'ALERTS{{alertname="{name}"}}',
                        "eval_time": f"{minute}m",
                        "exp_samples": [{"labels": alert, "value": 1}] if state else [],
                    }
                )
        series = [{"series": "x", "values": " ".join(marks)}]
        tests.append({"interval": "1m", "input_series": series, "promql_expr_test": checks})
    assert min(letters.count(letter) for letter in "pf.") > 500  # the cases are worth something
    document = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "test.yaml").write_text(json.dumps(document))
    done = tools.run([tools.find("promtool"), "test", "rules", str(tmp_path / "test.yaml")])
    assert done.code == 0, done.output[:3000]
    assert "SUCCESS" in done.output.split()  # promtool 2 names the file before it
