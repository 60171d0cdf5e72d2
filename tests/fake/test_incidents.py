"""The committed rules, unmodified, on recorded pages of a stand-in: each planted fault is seen, and nothing before it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from obs.evaluate import recording, rules
from obs.evaluate.replay import Timeline, replay
from obs.fake.load import Load
from obs.fake.world import Spec, World

pytestmark = pytest.mark.prometheus

RULES = Path(__file__).parents[2] / "alerts" / "rules"
START = 1_796_000_000
#: Those that these faults are for, with what they read. All files would take three times as long.
FILES = ("recordings-triton", "recordings-vllm", "recordings-derived", "queue", "traffic", "errors", "llm", "availability")
HEALTHY = 6 * 60
AFTER = 12 * 60
STEP = 30


class Case(NamedTuple):
    """A stand-in, what is done to it, and the alerts that must fire: name, and the model that they name (if they do)."""

    spec: Spec
    plant: Callable[[World], None]
    fires: frozenset[tuple[str, str]]


def break_triton(world: World) -> None:
    world.set_load(Load(rate=350), "busy")
    world.set_fault("unload", model="gone")
    world.set_fault("errors", model="fails", value=0.3)


def break_vllm(world: World) -> None:
    world.set_load(Load(rate=18))


CASES = {
    "triton": Case(Spec(engine="triton", models=("busy", "calm", "fails", "gone"), rate=10), break_triton, frozenset({
        ("InferenceQueueTimeHigh", "busy"), ("InferenceModelVanished", "gone"), ("InferenceFailureRatioHigh", "fails"),
    })),
    "vllm": Case(Spec(engine="vllm", models=("llama",), rate=3), break_vllm, frozenset({
        ("LLMKVCacheSaturated", "llama"), ("LLMPreempting", "llama"), ("LLMQueueTimeHigh", "llama"),
    })),
}


def record(folder: Path, case: Case) -> None:
    folder.mkdir()
    world = World(case.spec, START)
    for second in range(0, HEALTHY + AFTER + 1, STEP):
        if second == HEALTHY:
            case.plant(world)
        world.advance(START + second)
        (folder / f"{(START + second) * 1000}.prom").write_text(world.page())


@pytest.fixture(scope="module")
def timeline(tmp_path_factory: pytest.TempPathFactory) -> Timeline:
    folder = tmp_path_factory.mktemp("planted")
    for name, case in CASES.items():
        record(folder / name, case)
    played = [recording.read(folder / name, job=name, instance=f"{name}:8002") for name in CASES]
    return replay(played, rules.load_rule_files(str(RULES / f"{name}.yaml") for name in FILES))


def test_planted_faults_are_seen_by_the_packs_own_rules_and_nothing_is_before(timeline: Timeline) -> None:
    planted = (START + HEALTHY) * 1000
    fired = {(one.alert, dict(one.labels).get("model", "")): (min(span.start_ms for span in one.firing()) - planted) / 1000
             for one in timeline.instances if one.firing()}
    assert not {alert: at for alert, at in fired.items() if at < 0}, "fired before the fault"
    wanted = frozenset().union(*(case.fires for case in CASES.values()))
    assert wanted <= fired.keys(), fired
    assert not [alert for alert in fired if alert[1] == "calm"], "a model that nothing was done to"
