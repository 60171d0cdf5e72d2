"""A block laid down at another time answers there as the first does at its own."""

from __future__ import annotations

import math
import random
import subprocess
from array import array
from pathlib import Path

import pytest

from obs.evaluate.recording import Tsdb
from obs.prom import tools
from obs.prom.remote_write import STALE_NAN, make_labels
from obs.prom.server import PrivatePrometheus
from tests.tsdb_blocks import Block, snapshot

pytestmark = pytest.mark.prometheus
DAY = 86_400_000
T0 = 1_700_000_000_000 // DAY * DAY
MINUTES = 400
QUESTIONS = ("x", "sum by (i) (rate(x[5m]))", "count(x)", "max_over_time(x[20m])")


def test_a_day_laid_down_at_others(tmp_path: Path) -> None:
    chance = random.Random(1)
    with PrivatePrometheus(arguments=["--web.enable-admin-api"]) as server:
        for number in range(3):
            times = [T0 + minute * 60_000 + number for minute in range(MINUTES) if chance.random() > 0.1 or minute < 3]
            values = [chance.choice((float(at % 1000), 1.0, math.nan, STALE_NAN)) for at in times]
            server.writer.write_series([(make_labels([("__name__", "x"), ("i", str(number))]), times, array("d", values))])
        block = Block(snapshot(server))
        wanted = {expr: answer(server, expr, T0) for expr in QUESTIONS}
    assert all(wanted.values())
    for days in (0, 1, 2):
        block.write(tmp_path, -days * DAY)
    with Tsdb(tmp_path) as laid:
        assert laid.start_ms < T0 - 2 * DAY + 5
        for days in (0, 1, 2):
            assert {expr: answer(laid, expr, T0 - days * DAY) for expr in QUESTIONS} == wanted
    listed = subprocess.run(
        [str(tools.find("promtool")), "tsdb", "list", str(tmp_path)], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    assert [line.split()[1:3] for line in listed[1:]] == [
        [str(block.meta[key] - days * DAY) for key in ("minTime", "maxTime")] for days in (2, 1, 0)
    ]
    with pytest.raises(ValueError, match="length"):
        block.write(tmp_path, -T0 + 5)


def answer(server: PrivatePrometheus, expr: str, start_ms: int) -> list[object]:
    """Values by their text (a NaN is not itself), and their times from the start."""
    found = server.client.query_range(expr, start_ms / 1000, start_ms / 1000 + MINUTES * 60, 60)
    return [(one.labels, [(round(at - start_ms / 1000), repr(value)) for at, value in one.points]) for one in found]
