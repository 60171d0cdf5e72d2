"""Every query of every dashboard on a real Prometheus that holds a recording and what the rules record of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from obs.alerts.registry import all_groups
from obs.checks.dashboards import expressions
from obs.config import Config, load_config
from obs.dashboards.registry import all_dashboards
from obs.evaluate.recording import read
from obs.evaluate.replay import played
from obs.prom.remote_write import Labels, Point, make_labels
from obs.prom.server import PrivatePrometheus
from obs.render.grafana import render_dashboard

RECORDINGS = Path(__file__).parents[1] / "data" / "recordings"
pytestmark = pytest.mark.prometheus

#: What Grafana sends in place of its own variables at a scrape interval of 5 s.
GRAFANA = {"$__rate_interval": "20s", "$__range": "10m"}


@dataclass(frozen=True)
class World:
    config: Config
    server: PrivatePrometheus
    start: float
    end: float

    def ask(self, expr: str, **chosen: str) -> set[Labels]:
        """The series that a panel gets; ``chosen`` are the values of the dashboard's variables (else All)."""
        for name, value in GRAFANA.items():
            expr = expr.replace(name, value)
        expr = re.sub(r"\$([a-z]+)", lambda match: chosen.get(match[1], ".*"), expr)
        return {one.labels for one in self.server.client.query_range(expr, self.start, self.end, 5)}

    def panels(self, stem: str, **chosen: str) -> dict[str, list[set[Labels]]]:
        """The answers to each panel's queries, by its title."""
        dashboard = next(d for d in all_dashboards(self.config) if d.stem == stem)
        found: dict[str, list[set[Labels]]] = {}
        for title, _, expr in expressions(render_dashboard(dashboard)):
            found.setdefault(title, []).append(self.ask(expr, **chosen))
        return found

    def empty(self, stem: str, **chosen: str) -> set[str]:
        """The titles of panels without any data; of variables and annotations too."""
        return {title for title, answers in self.panels(stem, **chosen).items() if not any(answers)}


def world(name: str, config: str, after_ms: int = 0) -> Iterator[World]:
    """``after_ms``: how long to go on after the last scrape, with the server down."""
    recording = read(RECORDINGS / f"{name}.tar.gz")
    settings = load_config(RECORDINGS / f"{config}.obs.yaml")
    step = recording.interval_ms
    end = recording.end_ms + after_ms
    times = range(recording.start_ms, end + 1, step)
    with played(recording, all_groups(settings), interval_ms=step, end_ms=end) as replayed:
        server = replayed.server
        # One alert of a model and one of a GPU, as Prometheus would store them; a replay makes none.
        model = next(iter(server.client.query_range("model:model_loaded:count", times[0] / 1000, times[-1] / 1000, 5)))
        of_model = [pair for pair in model.labels if pair[0] in ("job", "model", "version")]
        for names in ([("alertname", "InferenceQueueTimeHigh"), ("severity", "warning"), *of_model],
                      [("alertname", "GPUMemoryHigh"), ("severity", "critical"), ("gpu_uuid", "g0")]):
            labels = make_labels([("__name__", "ALERTS"), ("alertstate", "firing"), *names])
            since = make_labels([("__name__", "ALERTS_FOR_STATE"), *names])
            server.writer.write(Point(at, series, value) for at in times
                                for series, value in ((labels, 1.0), (since, times[0] / 1000)))
        yield World(settings, server, times[0] / 1000, times[-1] / 1000)


@pytest.fixture(scope="module")
def triton() -> Iterator[World]:
    yield from world("triton-2.51-incident", "triton")


@pytest.fixture(scope="module")
def vllm() -> Iterator[World]:
    yield from world("vllm-0.32-incident", "vllm", after_ms=35_000)


# A panel without data there, and why. All others have some.
NO_GPU = "GPU memory used"  # recorded on CPUs


def test_fleet_of_triton(triton: World) -> None:
    assert triton.empty("obs-fleet") == {NO_GPU}


def test_fleet_of_vllm(vllm: World) -> None:
    assert vllm.empty("obs-fleet") == {NO_GPU}


def test_model_on_triton(triton: World) -> None:
    assert triton.empty("obs-model", model="doubler") == {
        "First response",  # 2.51 has no such histogram
        "Share beyond the top bucket",
        "Response cache hits",  # no cache
    }


def test_model_on_vllm(vllm: World) -> None:
    assert vllm.empty("obs-model", model="tiny") == {
        # Triton's
        "First response", "Share beyond the top bucket", "Pending requests", "Batch size", "Response cache hits",
        "Input time, mean", "Execution time, mean", "Output time, mean",
        "Cancelled part of the requests",  # vLLM does not count them
    }


def test_llm_on_vllm(vllm: World) -> None:
    assert vllm.empty("obs-llm") == {
        "Time to first token, Triton with the vLLM backend", "Time between tokens, Triton with the vLLM backend",
        "KV transfer between servers", "KV transfers that failed",  # not disaggregated
        "Share beyond the top bucket",  # vLLM's buckets reach 2560 s
        "Asleep",
        "HTTP requests that end in 5xx",  # none did
    }


def test_llm_on_triton_shows_nothing_of_plain_models(triton: World) -> None:
    """Only what is not of a model: the alerts and restarts drawn over the panels, and the variables."""
    titles = set(triton.panels("obs-llm"))
    shown = titles - triton.empty("obs-llm")
    assert {title for title in shown if not title.startswith(("annotation", "variable"))} == set()


@pytest.mark.parametrize("stem", ["obs-gpu", "obs-alerts"])
def test_the_others_are_understood(triton: World, vllm: World, stem: str) -> None:
    for one in (triton, vllm):
        one.panels(stem)
    assert triton.empty("obs-alerts") == set()


def test_a_model_that_is_chosen_is_the_only_one_shown(triton: World) -> None:
    for title, answers in triton.panels("obs-model", model="doubler").items():
        if title.startswith("variable"):
            continue
        for labels in set().union(*answers):
            assert dict(labels).get("model", "doubler") == "doubler", title


def test_a_version_that_is_not_there_hides_the_model_but_not_its_alerts(triton: World) -> None:
    answers = triton.panels("obs-model", model="doubler", version="9")
    assert not any(answers["Requests answered"])
    assert not any(answers["Request latency"])
    fleet = triton.panels("obs-alerts", model="doubler", version="9")
    shown = {dict(labels)["alertname"] for labels in fleet["Firing alerts"][0]}
    assert "GPUMemoryHigh" in shown


def test_native_vllm_has_no_version_and_is_shown_all_the_same(vllm: World) -> None:
    answers = vllm.panels("obs-model", model="tiny")["Requests answered"]
    assert {dict(labels).get("version") for labels in answers[0]} == {None}


def test_the_fleets_table_has_one_row_per_model_and_version(triton: World) -> None:
    dashboard = next(d for d in all_dashboards(triton.config) if d.stem == "obs-fleet")
    table = next(panel for row in dashboard.rows for panel in row.panels if panel.type == "table")
    rows: set[tuple[str, ...]] = set()
    for query in table.queries:
        keys = [tuple(dict(labels).get(name, "") for name in ("job", "model", "version"))
                for labels in triton.ask(query.expr)]
        assert len(keys) == len(set(keys)), query.expr  # two would make two rows of one model
        rows |= set(keys)
    assert {model for _, model, _ in rows} == {"doubler", "tokens", "flaky", "idle"}
    assert len(rows) == 4


def test_the_restart_of_triton_is_marked(triton: World) -> None:
    found = triton.panels("obs-fleet")["annotation Restarts and reloads"]
    assert {dict(labels)["instance"] for labels in found[0]} == {"recording:0"}
    dashboard = next(d for d in all_dashboards(triton.config) if d.stem == "obs-fleet")
    expr = next(a.expr for a in dashboard.annotations if a.name.startswith("Restarts"))
    for name, value in GRAFANA.items():
        expr = expr.replace(name, value)
    marks = [at for one in triton.server.client.query_range(re.sub(r"\$[a-z]+", ".*", expr), triton.start, triton.end, 5)
             for at, _ in one.points]
    killed, back = 1796023457, 1796023484
    assert all(killed <= at <= back + 30 for at in marks)


def test_the_drawn_limit_stands_beside_the_series_it_bounds(triton: World) -> None:
    dashboard = next(d for d in all_dashboards(triton.config) if d.stem == "obs-model")
    panel = next(p for row in dashboard.rows for p in row.panels if p.title == "Request latency")
    line = next(query.expr for query in panel.queries if query.legend.startswith("limit"))
    values = {
        dict(one.labels)["model"]: {value for _, value in one.points}
        for one in triton.server.client.query_range(re.sub(r"\$[a-z]+", ".*", line), triton.start, triton.end, 5)
    }
    # doubler declares 200 ms in triton.obs.yaml, the others have the pack's objective.
    assert values == {"doubler": {0.2}, "tokens": {0.5}, "flaky": {0.5}}
