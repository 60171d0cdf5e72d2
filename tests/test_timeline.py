"""The generated rules judge real recordings: what fires in which phase, and that nothing else does.

A real Prometheus evaluates every expression; the recordings are those of tests/data/recordings/README.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from obs.alerts.registry import all_groups
from obs.config import load_config
from obs.evaluate.recording import read
from obs.evaluate.replay import Timeline, replay

RECORDINGS = Path(__file__).parent / "data" / "recordings"

pytestmark = pytest.mark.prometheus


@dataclass(frozen=True)
class Fires:
    """One alert instance fires once: it starts ``after`` the unix second and within ``within`` seconds of it,
    and is over ``until`` at the latest (``None``: it fires to the end)."""

    alert: str
    labels: dict[str, str]
    after: int
    within: int
    until: int | None


TRITON = 1796022962
OVERLOAD, DROP, STOP, UNLOAD, KILL, RESTART = (
    1796023082, 1796023262, 1796023352, 1796023412, 1796023457, 1796023484,
)

TRITON_TIMELINE = (
    # Over 100 ms in queue on average within two evaluations of the phase, plus `for`.
    Fires("InferenceQueueTimeHigh", {"model": "doubler", "version": "1"}, OVERLOAD, 20, DROP + 20),
    # The summary covers the last 60 s: its P99 stays high that long after the overload.
    Fires("InferenceQueueTimeP99High", {"model": "doubler", "source": "summary"}, OVERLOAD, 25, DROP + 75),
    Fires("InferenceLatencyP99High", {"model": "doubler", "source": "summary"}, OVERLOAD, 25, DROP + 75),
    # The queue stops growing after two minutes and stays: over with the overload.
    Fires("InferencePendingRequestsGrowing", {"model": "doubler"}, OVERLOAD, 25, DROP + 20),
    # Through the slow client and the full stop; over when the target goes down, and not again after the reset.
    Fires("InferenceTrafficDrop", {"model": "doubler"}, DROP, 40, KILL + 20),
    Fires("InferenceModelIdle", {"model": "doubler"}, STOP + 60, 45, KILL + 25),
    Fires("InferenceModelVanished", {"model": "tokens"}, UNLOAD, 20, KILL + 10),
    Fires("InferenceTargetDown", {"instance": "recording:0"}, KILL, 20, RESTART + 10),
)

LIGHT = 1796023701
FULL, LIGHT_AGAIN, QUIET, MEDIUM, DEAD = 1796023791, 1796023971, 1796024031, 1796024091, 1796024142

VLLM_TIMELINE = (
    Fires("LLMKVCacheSaturated", {"model": "tiny"}, FULL, 40, LIGHT_AGAIN + 40),
    Fires("LLMPreempting", {"model": "tiny"}, FULL, 20, LIGHT_AGAIN + 40),
    Fires("LLMQueueTimeHigh", {"model": "tiny"}, FULL, 35, LIGHT_AGAIN + 40),
    Fires("LLMQueueTimeP99High", {"model": "tiny", "source": "histogram"}, FULL, 35, LIGHT_AGAIN + 45),
    Fires("LLMTimeToFirstTokenP99High", {"model": "tiny", "source": "histogram"}, FULL, 25, LIGHT_AGAIN + 40),
    Fires("InferenceTrafficDrop", {"model": "tiny"}, QUIET, 40, MEDIUM + 15),
    Fires("InferenceModelIdle", {"model": "tiny"}, QUIET + 25, 35, MEDIUM + 15),
    Fires("InferenceTargetDown", {"instance": "recording:0"}, DEAD, 20, None),
)


def timeline(name: str, config: str, end_after_ms: int = 0) -> Timeline:
    recording = read(RECORDINGS / f"{name}.tar.gz")
    groups = all_groups(load_config(RECORDINGS / f"{config}.obs.yaml"))
    return replay(recording, groups, end_ms=recording.end_ms + end_after_ms)


@pytest.fixture(scope="module")
def triton() -> Timeline:
    return timeline("triton-2.51-incident", "triton")


@pytest.fixture(scope="module")
def vllm() -> Timeline:
    return timeline("vllm-0.32-incident", "vllm", 35_000)


def check(found: Timeline, expected: tuple[Fires, ...]) -> None:
    unmet = []
    matched = set()
    for fires in expected:
        spans = [
            span
            for instance in found.of(fires.alert)
            if fires.labels.items() <= dict(instance.labels).items()
            for span in instance.firing()
        ]
        matched |= {(fires.alert, span) for span in spans}
        if len(spans) != 1:
            unmet.append(f"{fires.alert} {fires.labels}: fired {len(spans)} times")
            continue
        start, end = spans[0].start_ms / 1000, spans[0].end_ms / 1000
        if not fires.after <= start <= fires.after + fires.within:
            unmet.append(f"{fires.alert}: began {start - fires.after:+.0f} s after its cause")
        if fires.until is not None and end > fires.until:
            unmet.append(f"{fires.alert}: was still firing {end - fires.until:.0f} s too long")
        if fires.until is None and spans[0].end_ms < found.end_ms:
            unmet.append(f"{fires.alert}: ended before the recording did")
    assert unmet == []


def fired(found: Timeline) -> set[tuple[str, str]]:
    """(alert, model or instance) of everything that ever fired."""
    out = set()
    for instance in found.instances:
        if instance.firing():
            labels = dict(instance.labels)
            out.add((instance.alert, labels.get("model") or labels["instance"]))
    return out


def test_triton_incident(triton: Timeline) -> None:
    check(triton, TRITON_TIMELINE)


def test_triton_idle_model_is_idle_from_start_to_end_except_while_the_server_is_down(triton: Timeline) -> None:
    (idle,) = [one for one in triton.of("InferenceModelIdle") if dict(one.labels)["model"] == "idle"]
    first, second = idle.firing()
    assert 60 <= first.start_ms / 1000 - TRITON <= 80
    assert KILL <= first.end_ms / 1000 <= KILL + 25
    assert second.start_ms / 1000 >= RESTART
    assert second.end_ms >= triton.end_ms


def test_nothing_else_fires_on_triton(triton: Timeline) -> None:
    """Above all: nothing on `flaky`, whose errors the server counts as successes; nothing from the reset."""
    expected = {(one.alert, one.labels.get("model", "recording:0")) for one in TRITON_TIMELINE}
    assert fired(triton) == expected | {("InferenceModelIdle", "idle")}


def test_nothing_fires_on_the_restarted_triton_but_the_idle_model(triton: Timeline) -> None:
    late = {
        (one.alert, dict(one.labels).get("model"))
        for one in triton.instances
        for span in one.firing()
        if span.end_ms / 1000 > RESTART + 10
    }
    assert late == {("InferenceModelIdle", "idle")}


def test_vllm_incident(vllm: Timeline) -> None:
    check(vllm, VLLM_TIMELINE)


def test_nothing_else_fires_on_vllm(vllm: Timeline) -> None:
    assert fired(vllm) == {(one.alert, one.labels.get("model", "recording:0")) for one in VLLM_TIMELINE}


def test_blind_alerts_are_reported_as_blind_not_as_quiet(triton: Timeline, vllm: Timeline) -> None:
    blind = dict(triton.dead)
    assert "GPUMemoryHigh" in blind  # a CPU-only server
    assert "LLMKVCacheSaturated" in blind  # no LLM engine
    assert "InferenceQueueTimeHigh" not in blind
    assert "InferencePendingRequestsGrowing" in dict(vllm.dead)
