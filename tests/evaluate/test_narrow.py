"""At which times an expression is asked, and that nothing is lost by it; tests/evaluate/differential.py holds the results
against promtool."""

from __future__ import annotations

import threading
from array import array
from pathlib import Path

import pytest

from obs.evaluate import narrow
from obs.evaluate.elements import Made, Recorded
from obs.evaluate.explain import take_apart
from obs.evaluate.narrow import There, conditions, soundness, where
from obs.evaluate.ranges import Piece, in_parallel
from obs.evaluate.rules import Rule, load_rule_files
from obs.prom.packed import Packed
from obs.prom.remote_write import STALE_BITS, make_labels

RULES = Path(__file__).parents[2] / "alerts" / "rules"
GRID = range(0, 600_000, 60_000)


@pytest.mark.parametrize(
    "expr",
    [
        "a", "a > 1", "a and b", "a or b", "a unless on (i) {job=\"j\"}", "rate(a[5m]) * 2", "sum(a) / sum(b)", "a / b",
        "sum by (i) (a) / on (i, j) sum by (i) (b)", "a / on (i) group_left () sum by (i) (b)",
        "a > on (i) group_left sum by (i) (b)",
        "quantile_over_time(0.5, a[1h] offset 1d)", "max_over_time((a > 1)[1h:1m])", "sum without (i) ({job=\"j\"})", "-a",
        "{job=\"j\"} > 1", "clamp_min(a or b, 0)",
    ],
)  # fmt: skip
def test_what_cannot_fail(expr: str) -> None:
    assert soundness(take_apart(expr)) is not None


@pytest.mark.parametrize(
    "expr",
    [
        "a / on (i) b", "a / on (i) sum by (i) (b)", "a / on (i) group_left () b", "a / on (i) group_left () sum by (i, j) (b)",
        "a / on (i) group_left (k) sum by (i) (b)", "a / ignoring (i) b", "a * on (i) group_right () b",
        "label_replace(a, \"x\", \"1\", \"\", \"\")", "{job=\"j\"} * 2", "rate({job=\"j\"}[5m])", "a / {job=\"j\"}",
        "topk(scalar(a), b)", "a > scalar(b / on (i) c)", "-{job=\"j\"}", "a and b / on (i) c",
        "sum(label_join(a, \"x\", \"\", \"i\"))",
        "count_values(\"v\", a)", "max_over_time(({job=\"j\"} * 2)[1h:1m])",
        "sum by (i) (a) / on (i) sum without (j) (b)",
    ],
)  # fmt: skip
def test_what_may_fail(expr: str) -> None:
    assert soundness(take_apart(expr)) is None


def test_most_alerts_of_the_pack_cannot_fail() -> None:
    alerts = [rule for rule in load_rule_files([str(RULES / "*.yaml")]) if rule.kind == "alert"]
    assert sum(soundness(take_apart(rule.expr)) is not None for rule in alerts) > 0.8 * len(alerts)


def test_the_beginnings_that_are_worth_asking() -> None:
    sizes = {"few": 2, "some": 40, "many": 200}
    for expr, wanted in {
        "few > 1 and many": ["few > 1"],
        "few > 1 and on (i) some unless on (i) many": ["few > 1", "few > 1 and on (i) some"],
        "max by (i) (few > 1 unless many)": ["few > 1"],
        "many unless few": [],  # it reads most of all
        "few > 1 or many": [],
        "many and few > 1": [],
        "sum by (i) (few and many) > 1": [],
    }.items():
        assert conditions(take_apart(expr), sizes) == wanted, expr
    there = {name: There(Made(size, None), GRID) for name, size in sizes.items()}
    assert where("few > 1 and many", GRID, there, values=False).conditions == ("few > 1",)
    assert where("few > 1 and many", GRID, there, values=True) == narrow.EVERYWHERE  # a recording rule
    assert where("few > 1 and many / on (i) some", GRID, there, values=False) == narrow.EVERYWHERE  # it may fail
    assert where("few > 1 and few", GRID, there, values=False) == narrow.EVERYWHERE  # not worth it


def asked_at(expr: str, *changes: int, times: range = range(0, 6_000_000, 60_000)) -> list[tuple[int, int]] | None:
    there = {"a": There(Made(50, frozenset(60_000 * one for one in changes)), range(-600_000, 6_000_000, 60_000))}
    runs = where(expr, times, {**there, "v": There(Made(50, None), times)}, values=True).runs
    return None if runs is None else list(runs)


def test_what_is_steady_is_asked_where_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(narrow, "GAP", 0)
    assert asked_at("count(a) > 1", 50) == [(0, 1), (50, 52)]
    assert asked_at("count(a) > 1", -5) == [(0, 1)]
    assert asked_at("count(present_over_time(a[5m])) > 1", 50) == [(0, 1), (50, 57)]
    assert asked_at("count(present_over_time(a[5m])) > 1", -4) == [(0, 3)]
    assert asked_at("a unless a offset 10m", 50) == [(0, 1), (50, 62)]
    assert asked_at("a unless a offset 1ms", 99) == [(0, 1), (99, 100)]
    assert asked_at("a unless v", 50) is None  # v has other values all the time
    assert asked_at("a unless a @ 5", 50) is None
    assert asked_at("a unless a offset -5m", 50) is None
    assert asked_at("max_over_time(count(a)[5m:1m])", 50) is None
    assert asked_at("rate(a[5m])", 50) is None  # it looks at the clock
    assert asked_at("a > time()", 50) is None
    assert asked_at("count(a) > 1", *range(10, 70)) is None  # most of all
    assert asked_at("count(a) > 1", 50, times=range(0, 6_000_000, 120_000)) is None  # another interval


def packed(value: float | None, *runs: tuple[int, int], i: str = "a") -> Packed:
    values = array("d", [float(value if value is not None else at) for begin, end in runs for at in range(begin, end)])
    return Packed(make_labels([("i", i)]), runs, values)


def recorded(*pieces: Piece) -> tuple[Recorded, list[tuple[int, str]]]:
    one = Recorded(Rule("record", "r", "x"))
    times = range(0, 60_000 * sum(piece.count for piece in pieces), 60_000)
    out = [
        (at // 60_000, "s" if bits == STALE_BITS else f"{value:g}")
        for piece in pieces
        for _, ats, values in one.series(piece, times)
        for at, value, bits in zip(ats, values, array("Q", values.tobytes()), strict=True)
    ]
    return one, out


def test_the_changes_of_what_is_recorded() -> None:
    one, out = recorded(
        Piece(0, 5, (packed(1, (0, 5)),)),
        Piece(5, 5, (packed(1, (0, 2), (4, 5)),)),
        Piece(10, 5, (packed(2, (0, 3)),)),
        Piece(15, 5, ()),
    )
    assert out == [(at, "1") for at in range(7)] + [(7, "s"), (9, "1"), (10, "2"), (11, "2"), (12, "2"), (13, "s")]
    assert one.made == Made(1, frozenset(60_000 * at for at in (0, 7, 9, 10, 13)))
    stops, out = recorded(Piece(0, 2, (packed(1, (0, 2)),)), Piece(2, 2, ()))
    assert out == [(0, "1"), (1, "1"), (2, "s")]
    assert stops.made.changes == {0, 120_000}
    assert recorded(Piece(0, 9, (packed(None, (0, 9)),)))[0].made == Made(1, None)  # a value of its own each time
    assert recorded(Piece(0, 3, (packed(1, (0, 2)),), (2,)))[0].made.changes is None  # it failed: nothing was recorded
    flaps, out = recorded(Piece(0, 90, (packed(1, *((at, at + 1) for at in range(0, 90, 3))),)))
    assert out == [pair for at in range(0, 90, 3) for pair in ((at, "1"), (at + 1, "s"))]
    assert flaps.made.changes == {60_000 * at for at in range(90) if at % 3 != 2}
    signs, _ = recorded(Piece(0, 2, (packed(0.0, (0, 2)),)), Piece(2, 2, (packed(-0.0, (0, 2)),)))
    assert signs.made.changes == {0, 120_000}


def test_works_wait_for_what_they_need() -> None:
    done: list[int] = []
    lock = threading.Lock()

    def work(number: int) -> None:
        with lock:
            done.append(number)

    needs = {3: {0}, 5: {3, 4}, 6: {5}, 7: set(range(7))}
    in_parallel([lambda number=number: work(number) for number in range(8)], threading.Event(), needs)  # type: ignore[misc]
    assert sorted(done) == list(range(8))
    for later, before in needs.items():
        assert all(done.index(one) < done.index(later) for one in before)
    done.clear()
    stop = threading.Event()

    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        in_parallel([fail, lambda: work(1)], stop, {1: {0}})
    assert stop.is_set()
    assert done == []
