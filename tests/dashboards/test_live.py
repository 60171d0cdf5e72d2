"""What panels answer on a real Prometheus that holds recordings, made-up servers and what the rules make of them.

That every query gives data is held by tests/preview/test_panels.py; here it is what they say.
"""

from __future__ import annotations

from functools import cache

import pytest
from servers import World

from obs.preview import page, query
from obs.preview.load import Dashboard, parse
from obs.preview.pack import of_pack
from obs.preview.query import Shown

pytestmark = pytest.mark.prometheus

TRITON, VLLM = "triton-2.51-incident", "vllm-0.32-incident"


@cache
def board(world: World, stem: str) -> Dashboard:
    """A dashboard as the world's configuration has it: its limits and windows are those of the rules there."""
    return parse(of_pack(world.config)[stem], stem, stem)


@cache
def _shown(world: World, stem: str, chosen: tuple[tuple[str, str], ...]) -> Shown:
    one = board(world, stem)
    wanted = {name: value.split("+") for name, value in chosen}
    values = query.resolve(world.server.client, one, world.range, wanted)
    return query.fill(world.server.client, one, world.range, values, page.widths(one))


def shown(world: World, stem: str, **chosen: str) -> Shown:
    return _shown(world, stem, tuple(sorted(chosen.items())))


def answers(world: World, stem: str, title: str, **chosen: str) -> list[list[dict[str, str]]]:
    """The labels of the series that each query of a panel gives."""
    filled = next(one for one in shown(world, stem, **chosen).panels.values() if one.panel.title == title)
    return [[dict(series.labels) for series in result.series] for result in filled.results]


def with_data(world: World, stem: str, **chosen: str) -> set[str]:
    return {one.panel.title for one in shown(world, stem, **chosen).panels.values() if one.series}


def every(world: World, stem: str, **chosen: str) -> set[str]:
    return {one.panel.title for one in shown(world, stem, **chosen).panels.values()}


# A panel without data on a CPU-only server of one engine, and why. All others have some.


def test_model_on_triton(world: World) -> None:
    assert every(world, "obs-model") - with_data(world, "obs-model", model="doubler") == {
        "First response",  # 2.51 has no such histogram
        "Share beyond the top bucket",
        "Response cache hits",  # no cache
    }


def test_model_on_vllm(world: World) -> None:
    assert every(world, "obs-model") - with_data(world, "obs-model", model="tiny") == {
        # Triton's
        "First response", "Share beyond the top bucket", "Pending requests", "Batch size", "Response cache hits",
        "Input time, mean", "Execution time, mean", "Output time, mean",
        "Cancelled part of the requests",  # vLLM does not count them
    }


def test_llm_on_vllm(world: World) -> None:
    found = with_data(world, "obs-llm", job=VLLM, model="tiny")
    assert found >= {"KV cache in use (blocks)", "Preemptions", "Whole request", "Prefix-cache hits", "HTTP requests by status"}
    assert not found & {
        "Time to first token, Triton with the vLLM backend", "Time between tokens, Triton with the vLLM backend",
        "KV transfer between servers", "KV transfers that failed",  # not disaggregated
        "Share beyond the top bucket",  # vLLM's buckets reach 2560 s
        "Asleep",
        "HTTP requests that end in 5xx",  # none did
    }


def test_llm_shows_nothing_of_plain_models(world: World) -> None:
    assert with_data(world, "obs-llm", job=TRITON) - {
        # Beside the engine: of the pods that have a sidecar, whichever job is chosen
        "Load to scale on", "Saturation", "Time until the KV cache is full", "Decode throughput, by pod",
        "Engines as their sidecar sees them", "Signals: served or withheld",
    } == set()


def test_a_model_that_is_chosen_is_the_only_one_shown(world: World) -> None:
    for filled in shown(world, "obs-model", model="doubler").panels.values():
        for series in filled.series:
            assert dict(series.labels).get("model", "doubler") == "doubler", filled.panel.title


def test_several_models_chosen_are_the_only_ones_shown(world: World) -> None:
    found = answers(world, "obs-fleet", "Requests by model", model="doubler+tiny")
    assert sorted(labels["model"] for labels in found[0]) == ["doubler", "tiny"]


def test_a_version_that_is_not_there_hides_the_model_but_not_its_alerts(world: World) -> None:
    def without(stem: str) -> dict[str, query.Filled]:
        one, values = board(world, stem), dict(shown(world, stem, model="doubler").values)
        values["version"] = query.Value(values["version"].variable, ("9",), ("9",))
        found = query.fill(world.server.client, one, world.range, values, page.widths(one))
        return {filled.panel.title: filled for filled in found.panels.values()}

    model = without("obs-model")
    assert not model["Requests answered"].series
    assert not model["Request latency"].series
    alerts = {dict(series.labels)["alertname"] for series in without("obs-alerts")["Alerts"].series}
    assert "InferenceTargetDown" in alerts  # it has no version


def test_native_vllm_has_no_version_and_is_shown_all_the_same(world: World) -> None:
    found = answers(world, "obs-model", "Requests answered", model="tiny")
    assert [labels.get("version") for labels in found[0]] == [None]


def test_the_fleets_table_has_one_row_per_model_and_version(world: World) -> None:
    rows: set[tuple[str, ...]] = set()
    filled = next(f for f in shown(world, "obs-fleet", job=TRITON).panels.values()
                  if f.panel.title == "Models" and f.panel.type == "table")
    for result in filled.results:
        keys = [tuple(dict(series.labels).get(name, "") for name in ("job", "model", "version")) for series in result.series]
        assert len(keys) == len(set(keys)), result.expr  # two would make two rows of one model
        rows |= set(keys)
    assert rows == {(TRITON, model, "1") for model in ("doubler", "tokens", "flaky", "idle")}


def test_a_target_has_one_bar(world: World) -> None:
    found = answers(world, "obs-fleet", "Targets")[0]
    keys = [(labels["job"], labels["instance"]) for labels in found]
    assert len(keys) == len(set(keys)) == 9


def test_the_restart_of_triton_is_marked(world: World) -> None:
    marks = [one for one in shown(world, "obs-fleet", job=TRITON).marks if one.text.startswith("Restarts")]
    killed, back = 1796023457, 1796023484
    assert marks
    assert {one.text for one in marks} == {f"Restarts and reloads: {TRITON} recording:0"}
    assert all(killed <= at <= back + 30 for one in marks for at in (one.start, one.end))


def test_the_drawn_limit_stands_beside_the_series_it_bounds(world: World) -> None:
    values: dict[str, set[float]] = {}
    for model in ("doubler", "tokens", "flaky"):
        found = shown(world, "obs-model", model=model)
        panel = next(f for f in found.panels.values() if f.panel.title == "Request latency")
        for series in panel.series:
            if series.name.startswith("limit"):
                values.setdefault(dict(series.labels)["model"], set()).update(series.numbers)
    # doubler declares 200 ms in triton.obs.yaml, the others have the pack's objective.
    assert values == {"doubler": {0.2}, "tokens": {0.5}, "flaky": {0.5}}
