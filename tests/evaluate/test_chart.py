from __future__ import annotations

from pathlib import Path

import pytest

from obs.errors import InputError
from obs.evaluate.chart import Phase, offset, phase_at, read_phases, strip, table
from obs.evaluate.replay import Instance, Timeline
from obs.evaluate.state import Span

RECORDINGS = Path(__file__).parent.parent / "data" / "recordings"
LABELS = (("alertname", "Hot"), ("job", "j"), ("m", "a"))
TIMELINE = Timeline(
    "r", "2.42.0", 0, 19_999, 1000, ("Hot",),
    (
        Instance("Hot", LABELS, (Span(5000, 10_000, "pending"), Span(10_000, 15_000, "firing"))),
        Instance("Hot", (*LABELS[:2], ("m", "b")), (Span(0, 1000, "firing"),)),
    ),
    (),
)  # fmt: skip
PHASES = (Phase(0, "calm"), Phase(10_000, "storm"))


@pytest.mark.parametrize(
    ("ms", "text"), [(0, "+0s"), (95_000, "+1m35s"), (1500, "+1.5s"), (65_250, "+1m05.25s"), (3_605_000, "+1h00m05s")]
)
def test_offset(ms: int, text: str) -> None:
    assert offset(ms) == text


def test_strip() -> None:
    lines = strip(TIMELINE, PHASES, width=30, colour=False, unicode=True)
    assert lines == [
        "          ▼ calm",
        "                    ▼ storm",
        "Hot a     ·····░░░░░█████·····",
        "Hot b     █···················",
        "          · inactive  ░ pending  █ firing",
    ]


def test_strip_without_unicode_and_with_colour() -> None:
    plain = strip(TIMELINE, PHASES, width=30, colour=False, unicode=False)
    assert plain[2] == "Hot a     .....-----#####....."
    assert all(line.isascii() for line in plain)
    coloured = strip(TIMELINE, (), width=30, colour=True, unicode=True)
    assert coloured[0] == "Hot a     ·····\x1b[33m░░░░░\x1b[31m█████\x1b[0m·····"


def test_a_short_firing_is_never_drawn_away() -> None:
    one = Instance("Hot", LABELS, (Span(999_000, 1_000_000, "firing"),))
    long = Timeline("r", "", 0, 3_600_000, 1000, ("Hot",), (one,), ())
    assert strip(long, (), width=40, colour=False, unicode=True)[0].count("█") == 1


def test_table() -> None:
    assert table(TIMELINE, PHASES) == [
        "from    to  state    began in  alert",
        ' +5s  +10s  pending  calm      Hot{job="j", m="a"}',
        '+10s  +15s  firing   storm     Hot{job="j", m="a"}',
        ' +0s   +1s  firing   calm      Hot{job="j", m="b"}',
    ]
    assert table(TIMELINE, ())[0] == "from    to  state    alert"


def test_phases_of_the_recordings() -> None:
    for name, first in (("triton-2.51-incident", "steady"), ("vllm-0.32-incident", "light")):
        phases = read_phases(RECORDINGS / f"{name}.phases.yaml")
        assert phases[0].name == first
        assert phase_at(phases, phases[0].from_ms - 1) == ""
        assert phase_at(phases, phases[1].from_ms - 1) == first


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: b", "is no list of phases"),
        ("- {from: x, name: y}", "phase 1 is not"),
        ("- {from: 5}", "phase 1 is not"),
        ("- {from: 5, name: b}\n- {from: 4, name: a}", "not in order of time"),
        ("- {", "is no YAML"),
    ],
)
def test_wrong_phases(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "p.yaml").write_text(text)
    with pytest.raises(InputError, match=said) as caught:
        read_phases(tmp_path / "p.yaml")
    assert "\n" not in str(caught.value)
