"""Arrival processes: their rates, spread and determinism; trace files, good and bad."""

from __future__ import annotations

import gzip
import itertools
import statistics
from pathlib import Path

import pytest

from obs.errors import InputError
from obs.simulate.arrivals import (
    Arrival,
    Lengths,
    burstgpt,
    bursts,
    constant,
    diurnal,
    read_trace,
    replay,
    synthetic,
)

DATA = Path(__file__).parents[1] / "data" / "traces"
LENGTHS = Lengths(prompt=500, prompt_sigma=0.8, output=280, output_sigma=0.7)


def gaps(arrivals: list[Arrival]) -> list[float]:
    return [later.at - earlier.at for earlier, later in itertools.pairwise(arrivals)]


@pytest.mark.parametrize("cv", [0.5, 1.0, 2.0])
def test_rate_and_variation(cv: float) -> None:
    arrivals = synthetic(constant(5.0), LENGTHS, 6000.0, 1, cv)
    assert len(arrivals) == pytest.approx(30_000, rel=0.04)
    between = gaps(arrivals)
    assert statistics.stdev(between) / statistics.mean(between) == pytest.approx(cv, rel=0.06)


def test_lengths() -> None:
    arrivals = synthetic(constant(5.0), LENGTHS, 6000.0, 1)
    assert statistics.median(one.prompt for one in arrivals) == pytest.approx(500, rel=0.04)
    assert statistics.mean(one.output for one in arrivals) == pytest.approx(LENGTHS.mean_output, rel=0.04)
    assert min(min(one.prompt, one.output) for one in arrivals) >= 1


def test_bursts_and_days_have_their_shape() -> None:
    ramp = bursts(3, 12)
    assert [ramp.rate(at) for at in (0, 960, 1050, 1140, 2339, 2640, 3600, 4560 + 180)] == pytest.approx(
        [3, 3, 7.5, 12, 12, 3, 3, 12], abs=0.01)
    day = diurnal(2, 10)
    assert (day.rate(0), day.rate(43_200), day.rate(21_600)) == pytest.approx((2, 10, 6))
    with pytest.raises(InputError, match="does not fit"):
        bursts(1, 2, hold=4000)


def test_every_process_is_its_seeds() -> None:
    for make in (lambda seed: synthetic(bursts(3, 12), LENGTHS, 900.0, seed, 2.0), lambda seed: burstgpt(1.0, 900.0, seed),
                 lambda seed: replay(read_trace(DATA / "azure-llm-2023-conv-excerpt.csv"), 2.5, seed)):
        assert make(1) == make(1)
        assert make(1) != make(2)


def test_burstgpt_is_bursty() -> None:
    between = gaps(burstgpt(20.0, 2000.0, 1))
    assert statistics.stdev(between) / statistics.mean(between) > 1.7


def test_the_azure_trace() -> None:
    trace = read_trace(DATA / "azure-llm-2023-conv-excerpt.csv")
    assert len(trace) == 200
    assert trace[0] == Arrival(0.0, 374, 44)
    # 18:15:46.6805900 to 18:15:50.9951690: all seven digits
    assert trace[1] == (pytest.approx(4.314579, abs=1e-6), 396, 109)


def test_replay_keeps_shape_and_multiplies() -> None:
    trace = read_trace(DATA / "azure-llm-2023-conv-excerpt.csv")
    assert replay(trace, 1, 7) == trace
    tripled = replay(trace, 3, 7)
    assert len(tripled) == 600
    assert sum(one.output for one in tripled) == 3 * sum(one.output for one in trace)
    assert [one.at for one in tripled] == sorted(one.at for one in tripled)
    assert len(replay(trace, 0.5, 7)) == pytest.approx(100, abs=25)


def test_other_headers_and_gzip(tmp_path: Path) -> None:
    file = tmp_path / "burstgpt.csv.gz"
    file.write_bytes(gzip.compress(
        b"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        b"5,ChatGPT,472,18,490,Conversation log\n45,ChatGPT,1087,0,1087,Conversation log\n118,GPT-4,417,276,693,API log\n"))
    assert read_trace(file) == [Arrival(0.0, 472, 18), Arrival(113.0, 417, 276)]  # the failure is left out


HEAD = "time,prompt_tokens,output_tokens\n"


@pytest.mark.parametrize(("text", "message"), [
    ("", ":1: no column time and no column prompt_tokens and no column output_tokens"),
    ("time,prompt_tokens\n1,2\n", ":1: no column output_tokens"),
    (HEAD, "no request in it"),
    (HEAD + "1,2\n", ":2: 2 columns where the header has 3"),
    (HEAD + "1,2,3\nsoon,2,3\n", ":3: time 'soon' is neither"),
    (HEAD + "1,2,3\nnan,2,3\n", ":3: time 'nan' is not finite"),
    (HEAD + "1,2,3\n0.5,2,3\n", ":3: earlier than the line before"),
    (HEAD + "1,-2,3\n", ":2: prompt tokens '-2' is not a whole number"),
    (HEAD + "1,2,3.5\n", ":2: output tokens '3.5' is not a whole number"),
    (HEAD + "1,2,inf\n", ":2: output tokens 'inf' is not a whole number"),
    (HEAD + "1,many,3\n", ":2: prompt tokens 'many' is no number"),
    (HEAD + "1,2,99999999999\n", ":2: output tokens '99999999999' is not"),
])
def test_bad_traces_name_the_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "trace.csv"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        read_trace(file)
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(file))
    assert "\n" not in str(caught.value)


def test_unreadable_traces(tmp_path: Path) -> None:
    for name, content in (("no.csv", None), ("bad.csv.gz", b"no gzip"), ("bin.csv", b"\xff\xfe\x00")):
        file = tmp_path / name
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(InputError, match="cannot be read"):
            read_trace(file)
