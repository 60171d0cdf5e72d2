"""The pack itself passes, whatever it is configured for; and what public rules do wrong is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from obs.alerts.registry import all_groups
from obs.build import render_all
from obs.checks import registry, rulefiles, suppression
from obs.checks.world import build
from obs.config import ENGINE_NAMES, parse_config
from obs.render.prometheus import rule_files

CONFIGS = {
    "defaults": "",
    "triton": "engines: [triton]",
    "vllm": "engines: [vllm]\ndialects: {vllm: [standard, ray, kserve]}",
    "all": "engines: [triton, triton-vllm, triton-trtllm, vllm, trtllm-serve, dynamo, sglang, dcgm, sidecar]\n"
           "selectors: {trtllm-serve: 'job=\"trtllm\"'}\naliases: {/models/llama: llama}\nexpected_gpus: {triton: 4}\n"
           "ensembles: {whole: [pre, post]}\nidle_exclude: [spare]\njobs: [triton, vllm]\n",
    "slow scrapes": "interval: {scrape: 2m, evaluation: 1m}\nlabels: {namespace: ns, pod: pod_name}",
    "objectives": "slo: {availability: 0.999, latency_objective: 0.99}\n"
                  "models: {llama: {ttft_p99: 1s, availability: 0.99}, bert: {latency_p99: 2s}}",
    "autoscaling": "labels: {pod: pod_name}\nautoscaling: {workloads: [{name: a, namespace: x, engine: vllm, max_replicas: 3}, "
                   "{name: b, namespace: x, kind: StatefulSet, engine: sglang, max_replicas: 3, "
                   "targets: {saturation_ratio: 1, requests_waiting: 5}}]}",
}  # fmt: skip




@pytest.mark.parametrize(
    "name", list(CONFIGS)
)
def test_the_pack_passes_every_static_check(name: str) -> None:
    config = parse_config(CONFIGS[name])
    files = [rulefiles.parse(path, text) for path, text in rule_files(all_groups(config), config).items()]
    world = build(config, [file for file in files if file is not None], {}, own=True)
    assert len(world.alerts) > 10
    found = list(registry.run(world, registry.STATIC))
    if name == "objectives":  # a limit that is no bucket bound of an engine is worth a word, and no more
        found = [problem for problem in found if problem.check != "threshold-bucket"]
    assert [str(problem) for problem in found] == []


@pytest.mark.parametrize("engine", ["", *ENGINE_NAMES])
def test_rules_and_dashboards_pass_with_one_engine_alone(engine: str) -> None:
    selectors = "\nselectors: {trtllm-serve: 'job=\"trtllm\"'}" if engine == "trtllm-serve" else ""
    config = parse_config(f"engines: [{engine}]{selectors}" if engine else "")
    texts = render_all(config, chosen=["rules", "dashboards"])
    rules = [rulefiles.parse(path, text) for path, text in texts.items() if path.startswith("alerts/rules/")]
    boards = {path: text for path, text in texts.items() if path.startswith("dashboards/")}
    world = build(config, [file for file in rules if file is not None], boards, own=True)
    assert len(world.expressions) > len(world.rules) > 0
    found = [*registry.run(world, registry.STATIC), *registry.run_dashboards(world)]
    assert [str(problem) for problem in found if problem.level != "info"] == []


def test_the_pack_as_a_users_file_passes_too() -> None:
    config = parse_config("")
    texts = rule_files(all_groups(config), config)
    files = [rulefiles.parse(path, text) for path, text in texts.items() if path != "recordings.yaml"]
    world = build(config, [file for file in files if file is not None], {})
    assert list(registry.run(world, registry.STATIC)) == []


def test_classic_faults_of_public_rules() -> None:
    path = Path(__file__).parent / "data" / "classic.yaml"
    world = build(parse_config(""), [rulefiles.load(path)], {})
    found: dict[str, set[str]] = {rule.name: set() for rule in world.rules}
    for problem in registry.run(world, registry.STATIC):
        found[problem.subject].add(problem.check)
    assert found == {
        "TritonQueueTooLong": {"counter-raw"},
        "TritonP99TooHigh": {"unknown-metric"},
        "TritonFleetP99": {"quantile-aggregated"},
        "TritonMeanPerBatch": {"mean-divisor", "division-unguarded", "threshold-unit"},
        "TritonErrors": {"unknown-metric"},
        "GpuMemoryFull": {"division-unguarded", "threshold-unit"},
        "GpuMemoryFullDcgm": {"threshold-unit"},
        "GpuBusy": {"threshold-unit"},
        "KvCacheFull": {"renamed-metric", "threshold-unit"},
        "KvCacheEitherName": {"or-unfiltered"},
        "KvCacheFullUnderscore": {"unknown-metric"},
        "TtftSlow": {"quantile-without-le"},
        "E2eSlow": {"threshold-bucket", "value-in-labels"},
        "Waiting": {"metric-type"},
        "TokensDropped": {"metric-type"},
        "FewUnderThirty": {"integer-bound"},
    }


def test_every_check_is_explained_and_listed_once() -> None:
    entries = registry.entries()
    ids = [entry.id for entry in entries]
    assert len(ids) == len(set(ids))
    assert suppression.ID in ids
    for entry in entries:
        assert entry.summary.endswith((".", ")")), entry.id
    for check in registry.STATIC:
        explanation = next(entry.explanation for entry in entries if entry.id == check.ID)
        assert "Bad" in explanation, check.ID
        assert "Mend" in explanation or "CANCELED" in explanation, check.ID


def test_every_check_module_is_registered() -> None:
    folder = Path(registry.__file__).parent
    helpers = {"__init__", "registry", "world", "facts", "syntax", "rulefiles", "suppression", "dashboards"}
    modules = {path.stem for path in folder.glob("*.py")} - helpers
    entered = (*registry.STATIC, *registry.PACK, *registry.PACK_DEEP, *registry.EXTERNAL)
    assert {check.ID.replace("-", "_") for check in entered} == modules
