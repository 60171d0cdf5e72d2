"""Every query of every dashboard that ships, as Grafana sends it, on a real Prometheus: it gives data, or is listed here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from servers import World

from obs.preview import page, query, repeat
from obs.preview.load import Dashboard, parse
from obs.preview.query import Result, Value

ROOT = Path(__file__).parents[2]
FILES = sorted([*ROOT.glob("dashboards/*.json"), *ROOT.glob("examples/pack/dashboards/*.json")])
pytestmark = pytest.mark.prometheus

#: (dashboard, panel, query) that has no data in that world, and why. One that has data after all fails, too.
EXEMPT: dict[tuple[str, str, str], str] = {}


def board(path: Path) -> Dashboard:
    return parse(path.read_text(), str(path), path.stem)


def single(values: dict[str, Value]) -> Iterator[dict[str, list[str]]]:
    """Each choice of a variable that takes one value only."""
    found = [value for value in values.values() if value.single and len(value.options) > 1]
    yield from [{value.variable.name: [one]} for value in found for one in value.options] or [{}]


def ask(world: World, one: Dashboard, wanted: dict[str, list[str]]) -> dict[tuple[str, str, str], Result]:
    values = query.resolve(world.server.client, one, world.range, wanted)
    one = repeat.expand(one, values)
    shown = query.fill(world.server.client, one, world.range, values, page.widths(one))
    return {
        (one.stem, filled.panel.title, result.target.ref): result
        for filled in shown.panels.values() for result in filled.results
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_query_gives_data_or_is_listed(world: World, path: Path) -> None:
    one = board(path)
    values = query.resolve(world.server.client, one, world.range, {})
    assert [name for name, value in values.items() if not value.options] == ["cluster"]  # nothing there has that label
    known: set[tuple[str, str, str]] = set()
    full: set[tuple[str, str, str]] = set()
    for wanted in single(values):
        for key, result in ask(world, one, wanted).items():
            assert not result.error, (key, result.error)
            known.add(key)
            if result.series:
                full.add(key)
    listed = {key for key in EXEMPT if key[0] == one.stem and key in known}
    assert known - full == listed


def test_no_exemption_is_of_a_query_that_is_not_there() -> None:
    known = {
        (one.stem, panel.title, target.ref) for one in map(board, FILES) for panel in one.panels for target in panel.targets
    }
    assert set(EXEMPT) <= known
