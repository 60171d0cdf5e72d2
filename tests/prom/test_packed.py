"""Answers cut out of the text, and series written in few bytes, against what a plain reading of them gives."""

from __future__ import annotations

import json
from array import array

import pytest

from obs.prom import remote_write
from obs.prom.packed import unpack
from obs.prom.remote_write import Point, encode, make_labels


@pytest.mark.parametrize(
    "values",
    [["1", "1", "1"], ["1", "1", "11"], ["11", "1", "1"], ["NaN", "NaN", "NaN"], ["+Inf"], ["0", "-0", "0"], ["1e+06"] * 2],
)
def test_values_all_the_same_or_not(values: list[str]) -> None:
    points = [[60 * index, value] for index, value in enumerate(values)]
    result = [{"metric": {"le": ',"1"]'}, "values": points}, {"metric": {"i": "b"}, "values": [[0, "1"], [120, "1"]]}]
    body = json.dumps({"status": "success", "data": {"result": result}}, separators=(",", ":")).encode()
    (one, two), _ = unpack(body, 0, 60_000, values=True)
    assert one.runs == ((0, len(values)),)
    assert list(map(repr, one.values or ())) == [repr(float(value)) for value in values]
    assert (two.runs, list(two.values or ())) == (((0, 1), (2, 3)), [1.0, 1.0])


def test_parts_of_a_grid_are_written_as_samples_one_by_one() -> None:
    labels = make_labels([("__name__", "x")])
    grid = range(1_700_000_000_000, 1_700_000_600_000, 60_000)
    moulds: dict[range, tuple[bytes, int]] = {}
    for times in (grid, grid[2:5], grid[9:10], range(grid[1], grid[3] + 1, 120_000), range(grid[0] + 1, grid[3], 60_000)):
        values = array("d", (float(at % 7) for at in times))
        points = [Point(at, labels, value) for at, value in zip(times, values, strict=True)]
        assert remote_write._column(labels, times, values.tobytes(), {}, moulds) == encode(points)
