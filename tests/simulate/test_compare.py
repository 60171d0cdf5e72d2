"""Statistics, the comparison and the recommendation; and the command."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import pty
import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from obs.cli.main import main
from obs.errors import InputError
from obs.simulate import compare, observe, report, stats
from obs.simulate.arrivals import constant, synthetic
from obs.simulate.compare import Job, Outcome, Row
from obs.simulate.engine import Replica, Request
from obs.simulate.policies import POLICIES, policy
from obs.simulate.profile import WANTED, load_test
from obs.simulate.scenarios import CHAT, REGIMES, SCENARIOS

TRACE = Path(__file__).parents[1] / "data" / "traces" / "azure-llm-2023-conv-excerpt.csv"


# --- statistics --------------------------------------------------------------------------------------


def test_students_t_by_hand() -> None:
    found = stats.mean([1.0, 2.0, 3.0, 4.0, 5.0])
    # s = sqrt(2.5), t(4) = 2.776: 2.776 × 1.5811 / sqrt(5)
    assert (found.value, found.half) == (3.0, pytest.approx(1.963, abs=0.001))
    assert stats.mean([7.0]).half is None
    assert stats.mean([2.0, 2.0]).half == 0.0
    with pytest.raises(ValueError, match="no values"):
        stats.mean([])


def test_quantiles() -> None:
    assert [stats.quantile([4, 1, 3, 2], share) for share in (0.25, 0.5, 0.99, 1.0)] == [1, 2, 4, 4]


# --- what a comparison makes of runs -------------------------------------------------------------------


def row(scenario: str, target: float, *attained: float, name: str = "load") -> Row:
    return Row(scenario, name, name, target, tuple(
        Outcome(one, one, one, 10.0, 0, 0, 0, 5, 1.0, None, None) for one in attained))


def test_recommendation_is_the_highest_target_good_everywhere() -> None:
    rows = [row("a", 0.5, 0.99), row("a", 0.6, 0.97), row("a", 0.7, 0.96),
            row("b", 0.5, 0.98), row("b", 0.6, 0.94, 0.97), row("b", 0.7, 0.90)]
    assert compare.highest_regime_targets(rows, "load") == {"a": 0.7, "b": 0.6}      # in b the mean over the seeds is 0.955


def test_recommendation_is_the_highest_target_good_everywhere_in_each_half_of_the_seeds() -> None:
    runs: list[tuple[float, str, int]] = []
    attained = {  # target and scenario -> by seed
        (0.9, "kv"): {1: 0.97, 2: 0.94, 3: 0.98}, (0.9, "shift"): {1: 0.96, 2: 0.93, 3: 0.99},
        (0.8, "kv"): {1: 0.97, 2: 0.95, 3: 0.98}, (0.8, "shift"): {1: 0.99, 2: 0.98, 3: 0.94},
        (0.7, "kv"): {1: 0.97, 2: 0.95, 3: 0.98}, (0.7, "shift"): {1: 0.96, 2: 0.94, 3: 0.95},
    }

    def played(jobs: Sequence[Job], workers: int, progress: object) -> list[Outcome]:
        assert workers == 1
        keys = [(job.policy.target, job.scenario.name, job.seed) for job in jobs if job.policy is not None]
        runs.extend(keys)
        return [row("", 0, attained[target, name][seed]).outcomes[0] for target, name, seed in keys]

    scenarios = [SCENARIOS["kv"], SCENARIOS["shift"]]
    found = compare.recommend(scenarios, policy("load"), [1, 2, 3], targets=[0.7, 0.9, 0.8], played=played)
    assert found.target == 0.7
    assert runs == [
        (0.9, "kv", 1), (0.9, "kv", 2), (0.9, "kv", 3), (0.9, "shift", 1), (0.9, "shift", 2),    # 0.945 of the first two
        (0.8, "shift", 1), (0.8, "shift", 2), (0.8, "shift", 3),          # that failed first; 0.97 of all, 0.94 of the rest
        (0.7, "shift", 1), (0.7, "shift", 2), (0.7, "shift", 3), (0.7, "kv", 1), (0.7, "kv", 2), (0.7, "kv", 3),
    ]
    shown = report.recommendation(found, ["kv", "shift"], [1, 2, 3])
    assert [line.split()[1:] for line in shown[1:4]] == [
        ["0.9", "95.5,", "98.0", "/", "10.0", "94.5", "/", "10.0", "no"],
        ["0.8", "not", "run", "98.5,", "94.0", "/", "10.0", "no"],
        ["0.7", "96.0,", "98.0", "/", "10.0", "95.0,", "95.0", "/", "10.0", "yes"],
    ]
    assert "target 0.7" in shown[-1]
    none = compare.recommend(scenarios, policy("load"), [1, 2, 3], targets=[0.9, 0.8], played=played)
    assert none.target is None
    assert json.loads(json.dumps(compare.recommended_json([none], [1, 2, 3])))["recommended"] == {"load": None}


def costly(scenario: str, name: str, *points: tuple[float, float]) -> list[Row]:
    return [Row(scenario, name, name, float(target), (Outcome(share, share, share, hours, 0, 0, 0, 5, 1.0, None, None),))
            for target, (share, hours) in enumerate(points)]


def test_the_frontier_is_a_line_between_the_cheapest_targets() -> None:
    rows = costly("kv", "queue", (0.90, 8.0), (0.98, 12.0), (0.89, 11.0), (0.94, 9.0))  # 0.89 for 11 is on no frontier
    assert compare.cost_at(rows, 0.96) == pytest.approx(10.5)
    assert compare.cost_at(rows, 0.92) == pytest.approx(8.5)
    assert compare.cost_at(rows, 0.5) == 8.0, "the cheapest that was swept, no line beyond it"
    assert compare.cost_at(rows, 0.99) is None
    own = costly("kv", "projected", (0.96, 7.0)) + costly("shift", "projected", (0.99, 5.0))
    shown = report.frontier(rows + costly("shift", "queue", (0.97, 5.0)), own)
    assert [line.split() for line in shown[1:3]] == [
        ["projected", "0", "96.0", "/", "7.0", "99.0", "/", "5.0"],
        ["queue", "any", "10.5", "(1.50", "x)", "never", "(97.0)"],
    ]


def test_an_error_in_a_worker_ends_the_others() -> None:
    steady = replace(SCENARIOS["shift"], seconds=2000.0)
    lost = SCENARIOS["conversation"]  # no traces: InputError
    jobs = [Job(one, one.settings(), 1, policy("load")) for one in (lost, *[steady] * 20)]
    with pytest.raises(InputError, match="give its folder"):
        compare.play(jobs, workers=2)
    assert not multiprocessing.active_children()


def test_ctrl_c_ends_a_comparison_at_once_and_leaves_the_line_clean() -> None:
    child, terminal = pty.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, "-m", "obs", "simulate", "--compare", "--scenario", "kv", "--jobs", "2"])
    said = b""
    while b"simulating" not in said:
        said += os.read(terminal, 1024)
    os.write(terminal, b"\x03")
    with contextlib.suppress(OSError):  # at its end
        while more := os.read(terminal, 1024):
            said += more
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 130
    assert said.decode().splitlines()[-1].rpartition("\r")[2] == "obs: interrupted"
    assert b"Traceback" not in said


def test_tiny_comparison_is_reproducible_and_whole(tmp_path: Path) -> None:
    tiny = replace(SCENARIOS["shift"], seconds=100.0, high=3)
    policies = [policy("queue"), policy("load")]
    seen: list[tuple[int, int]] = []
    one = compare.compare([tiny], policies, [1, 2], progress=lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert {total for _, total in seen} == {3 * 2 + compare.STATIC_TRIALS * 2}
    two = compare.compare([tiny], policies, [1, 2], workers=2)
    assert one == two
    assert [row.policy for row in one] == ["queue", "load", compare.ORACLE, compare.STATIC]
    assert all(len(row.outcomes) == 2 for row in one)
    document = json.loads(json.dumps(compare.as_json(one, [1, 2]), allow_nan=False))
    assert document["rows"][1]["attainment"]["seeds"] == 2
    lines = report.comparison(one, {"shift": tiny.title}, [1, 2])
    assert sum(line.startswith("load ") for line in lines) == 1
    page, _ = report.page(one, {"shift": "<title>"}, [1, 2], "obs simulate & more")
    assert "<title>" not in page.replace("<title>obs simulate: comparison</title>", "")
    assert page == report.page(one, {"shift": "<title>"}, [1, 2], "obs simulate & more")[0]


def test_static_best_is_the_smallest_that_will_do() -> None:
    steady = replace(SCENARIOS["shift"], seconds=400.0, high=6, prompt_factor=None)  # 4 requests/s, 2.4 a replica
    found = compare.static_best(steady, steady.settings(), [1], None, 1)
    assert found.target == 2.0
    hours = found.mean("replica_hours")
    assert hours is not None
    assert hours.value == pytest.approx(2 * 400 / 3600)


def test_decode_capacities_are_as_profiled() -> None:
    scenario = SCENARIOS["prefill"]
    assert scenario.lengths is not None
    rate = scenario.decode_capacity / scenario.lengths.mean_output
    at_it, above = (load_test(scenario.engine, scenario.lengths, share * rate, scenario.slo, 1) for share in (0.95, 1.3))
    assert at_it.attainment > WANTED - 0.015 > above.attainment
    assert at_it.tokens == pytest.approx(0.95 * scenario.decode_capacity, rel=0.03)


def test_a_trace_is_profiled_with_its_own_lengths(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("time,prompt_tokens,output_tokens\n0,10,20\n1,3000,40\n")
    own = replace(SCENARIOS["conversation"], trace="own.csv")
    dice = random.Random(1)
    assert {own.sizes(tmp_path).draw(dice) for _ in range(50)} == {(10, 20), (3000, 40)}
    assert SCENARIOS["kv"].sizes(None) is SCENARIOS["kv"].lengths
    with pytest.raises(InputError, match="needs own"):
        own.sizes(None)


@pytest.mark.parametrize("name", ["kv", "decode", "prefill"])
def test_the_learnt_capacity_is_near_the_profiled(name: str) -> None:
    """A sidecar beside one replica at half its load, told the ITL objective only."""
    scenario = SCENARIOS[name]
    assert scenario.lengths is not None
    rate = scenario.decode_capacity / scenario.lengths.mean_output / 2
    replica = Replica(scenario.engine, sample_interval=1.0)
    for arrival in synthetic(constant(rate), scenario.lengths, 900.0, 1, cv=2.0):
        replica.advance(arrival.at)
        replica.submit(Request(*arrival))
    sidecar = observe.FastSidecar(observe.settings(None, 1.0, itl_objective=scenario.slo.itl), scenario.engine.kv_tokens)
    replica.advance(900.0)
    for begin in range(0, 900, 15):
        sidecar.feed([one for one in replica.samples if begin <= one.at < begin + 15])
    found, source, _ = sidecar.decode_capacity
    assert source == "calibrated"
    assert found == pytest.approx(scenario.decode_capacity, rel=0.2)


def test_the_data_is_whole() -> None:
    assert set(REGIMES) <= SCENARIOS.keys()
    for one in POLICIES.values():
        assert one.source
        assert one.target > 0
        assert all(target > 0 for target in one.grid)
    assert CHAT.mean_output == pytest.approx(357.7, abs=0.5)


# --- the command ---------------------------------------------------------------------------------------


def test_single_run_with_a_trace(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["simulate", "--trace", str(TRACE), "--policy", "load=0.7", "--format", "json"]
    assert main(arguments) == 0
    first = capsys.readouterr().out
    document = json.loads(first)
    assert document["requests"] == 200
    assert document["policy"] == "load"
    assert document["target"] == 0.7
    assert main(arguments) == 0
    assert capsys.readouterr().out == first
    assert main(arguments[:-2]) == 0
    assert "SLO            " in capsys.readouterr().out


def test_compare_sweep_and_recommend(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    common = ["--scenario", "kv", "--duration", "60", "--seeds", "2", "--max", "3"]
    page = tmp_path / "compare.html"
    assert main(["simulate", "--compare", "--policy", "queue", "--policy", "load", *common, "--html", str(page)]) == 0
    assert "95 % confidence interval" in capsys.readouterr().out
    assert page.read_text().startswith("<!doctype html>")
    assert list(tmp_path.iterdir()) == [page]
    assert main(["simulate", "--recommend", "--targets", "0.6,0.7", *common]) == 0
    assert "projected: target 0.7" in capsys.readouterr().out
    assert main(["simulate", "--recommend", "--targets", "0.7", *common, "--slo-ttft", "0.001"]) == 1
    assert "no target reaches" in capsys.readouterr().out
    sweep = ["simulate", "--sweep", "--policy", "queue", "--targets", "1,5", "--against", "load", *common]
    assert main([*sweep, "--html", str(page)]) == 0
    assert "queue   any" in capsys.readouterr().out
    assert "load 0.75" in page.read_text()
    assert main([*sweep, "--format", "json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["against"]
    assert found["cost"] <= found["replica_hours"]


def test_list_and_profile(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--list"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in [*SCENARIOS, *POLICIES, "round-robin", "prometheus"])
    assert main(["simulate", "--profile", "--scenario", "prefill", "--seeds", "1", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["decode_tokens_per_second"] > 0


@pytest.mark.parametrize(("arguments", "message"), [
    (["--scenario", "vk"], "unknown scenario 'vk'"),
    (["--scenario", "conversation"], "give its folder with --traces"),
    (["--compare"], "give its folder with --traces"),
    (["--policy", "lod"], "unknown policy 'lod'"),
    (["--policy", "kv-0.8=1.2"], "never reaches 1.2"),
    (["--policy", "load=x"], "is no number"),
    (["--policy", "load=-1"], "above 0"),
    (["--policy", "load", "--policy", "gpu"], "several go with --compare"),
    (["--min", "5", "--max", "3"], "the minimum 5"),
    (["--min", "0"], "the minimum 0"),
    (["--kv-tokens", "3"], "holds no block"),
    (["--engine", "tpu"], "unknown engine 'tpu'"),
    (["--engine", "qwen2.5-7b@A10"], "say its --decode-capacity too"),
    (["--router", "sticky"], "unknown router 'sticky'"),
    (["--fault", "flood:1:2"], "unknown kind 'flood'"),
    (["--fault", "hang:1"], "write KIND:START:SECONDS"),
    (["--fault", "hang:1:-2"], "the duration above 0"),
    (["--arrivals", "poisson"], "write poisson:RATE"),
    (["--arrivals", "poisson:-3"], "must be numbers above 0"),
    (["--arrivals", "bursts:9:3"], "the low rate is above the high one"),
    (["--arrivals", "poisson:3", "--scenario", "kv"], "exclude each other"),
    (["--trace", "/nowhere.csv"], "cannot be read"),
    (["--traces", "/nowhere"], "no such folder"),
    (["--sample", "0.01"], "interval 0.01 s is not within"),
    (["--seeds", "0"], "at least one"),
    (["--seeds", "9-6"], "at least one"),
    (["--seeds", "1,1"], "there twice"),
    (["--seeds", "1-x"], "write a number, a range as 6-10"),
    (["--seeds", "6-7", "--seed", "2"], "names the seeds"),
    (["--jobs", "0"], "at least one"),
    (["--targets", "0.5"], "goes with --sweep"),
    (["--html", "x.html"], "goes with --compare or --sweep"),
    (["--against", "load"], "goes with --sweep"),
    (["--compare", "--scenario", "kv", "--html", "/nowhere/x.html"], "there is no folder"),
    (["--sweep", "--scenario", "kv", "--targets", "0.5,y"], "write numbers above 0"),
])
def test_bad_input_is_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", *arguments]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""
