"""Every check on facts made by hand or read from real files: it finds its fault, and is silent without it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from obs.alerts.registry import all_groups
from obs.config import parse_config
from obs.doctor.checks import registry
from obs.doctor.facts import Facts, Page, Prometheus, RuleGroup, ScrapeTarget, ServedModel, Triton, Vllm
from obs.doctor.finding import SEVERITIES, Finding
from obs.doctor.flags import parse
from obs.doctor.releases import Release, container
from obs.doctor.repository import look
from obs.doctor.repository import parse_config as read_config
from obs.doctor.run import _judged
from obs.doctor.triton import of_document, of_sample
from obs.errors import InputError
from obs.evaluate import exposition
from obs.evaluate.explain import same
from obs.evaluate.rules import from_groups
from obs.model.rule import Alert
from obs.prom.client import LoadedRule

from .stub import scrape

CONFIG = parse_config("")
URL = "http://triton:8000"
PAGE = "http://triton:8002/metrics"


def page(text: str) -> Page:
    return Page(PAGE, tuple(of_sample(one) for one in exposition.parse(text, "page").samples))


STEADY = page(scrape("triton-2.51-steady.prom"))


def without(one: Page, *prefixes: str) -> Page:
    return dataclasses.replace(one, samples=tuple(each for each in one.samples if not each.name.startswith(prefixes)))


def triton(version: str = "2.71.0", models: Mapping[str, Mapping[str, Any]] | None = None, **more: Any) -> Triton:
    configs = {name: of_document(config, f"{URL}/v2/models/{name}/config", name) for name, config in (models or {}).items()}
    index = tuple(ServedModel(name, "1", "READY", "") for name in models or {"m": {}})
    return Triton(URL, version, True, True, more.pop("index", index), configs, **more)


def facts(**given: Any) -> Facts:
    return Facts(CONFIG, **given)


def found(id_: str, given: Facts) -> list[Finding]:
    check = next(one for one in registry.CHECKS if id_ == one.ID)
    return list(check.check(given))


def one(id_: str, given: Facts) -> Finding:
    (finding,) = found(id_, given)
    return finding


def test_every_check_explains_itself() -> None:
    """Its first line says what holds; the rest says why, and there is a mend."""
    assert len(set(registry.IDS)) == len(registry.CHECKS)
    for check in registry.CHECKS:
        text = registry.explanation(check)
        assert text.splitlines()[0].endswith("."), check.ID
        assert "\nMend:" in text, check.ID
    folder = Path(registry.__file__).parent
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__", "registry"}
    assert modules == {check.__name__.rpartition(".")[2] for check in registry.CHECKS}  # type: ignore[attr-defined]


def test_nothing_is_found_in_nothing() -> None:
    assert registry.run(facts()) == []


# --- Triton --------------------------------------------------------------------------------------------


def test_containers() -> None:
    assert container("2.51.0") == Release(24, 10)
    assert container("2.59.0") == Release(25, 6)
    assert container("2.59.1") == Release(25, 7)
    assert container("2.60.0") == Release(25, 8)
    assert container("2.69.0") == Release(26, 5)
    assert container("2.70.0dev") == Release(26, 6)
    assert container("2.33.0") is None
    assert container("1.15.0") is None
    assert str(Release(26, 5)) == "26.05"


def test_vulnerable() -> None:
    bad = one("vulnerable", facts(triton=triton("2.69.0")))
    assert bad.severity == "error"
    assert "26.06-py3" in bad.mend
    assert one("vulnerable", facts(triton=triton("2.70.0dev"))).severity == "warning"
    assert not found("vulnerable", facts(triton=triton("2.70.0")))


def test_release() -> None:
    models = {"llm": {"backend": "tensorrtllm"}, "onnx": {"backend": "onnxruntime", "instance_group": [{"kind": "KIND_GPU"}]}}
    gone, cuda = found("release", facts(triton=triton("2.72.0", models)))
    assert (gone.severity, "no NGC image has from 26.08" in gone.what) == ("warning", True)
    assert (cuda.severity, "CUDA 13.4" in cuda.what) == ("info", True)
    assert not found("release", facts(triton=triton("2.71.0", models)))


def test_server_ready() -> None:
    index = (ServedModel("a", "1", "UNAVAILABLE", "no such backend"), ServedModel("b", "1", "READY", ""),
             ServedModel("c", "", "", ""), ServedModel("d", "1", "LOADING", ""),
             ServedModel("e", "1", "UNAVAILABLE", "unloaded"))
    severities = [each.severity for each in found("server-ready", facts(triton=triton(index=index)))]
    assert severities == ["error", "info", "info"]
    assert one("server-ready", facts(triton=dataclasses.replace(triton(), ready=False))).severity == "error"
    assert "not live" in one("server-ready", facts(triton=dataclasses.replace(triton(), live=False))).what
    assert one("server-ready", facts(triton=triton(index=()))).severity == "warning"
    assert not found("server-ready", facts(triton=triton()))


def test_blind_spots() -> None:
    models = {"py": {"backend": "python"}, "onnx": {"backend": "onnxruntime"},
              "stream": {"backend": "python", "model_transaction_policy": {"decoupled": True}}}
    errors, times = found("blind-spots", facts(triton=triton(models=models)))
    assert errors.what.endswith("count as successes: py, stream")
    assert times.what.endswith("until execute() returns: stream")
    assert not found("blind-spots", facts(triton=triton(models={"onnx": {"backend": "onnxruntime"}})))


def test_metrics_page() -> None:
    gone = facts(triton=triton(), metrics_url=PAGE, metrics_reason="connection refused")
    assert one("metrics-page", gone).severity == "error"
    off = dataclasses.replace(gone, flags=parse(["--allow-metrics=false"]))
    assert "--allow-metrics=true" in one("metrics-page", off).mend
    moved = dataclasses.replace(gone, flags=parse(["--metrics-port", "9002"]))
    assert "9002" in one("metrics-page", moved).mend
    assert not found("metrics-page", facts(triton=triton(), page=STEADY, metrics_url=PAGE))


def test_counters_frozen() -> None:
    frozen = page(scrape("triton-2.51-counter_latencies_false.prom"))
    assert one("counters-frozen", facts(page=frozen)).severity == "error"
    assert not found("counters-frozen", facts(page=STEADY))
    series = '{model="m",version="1"} 0\n'
    idle = page(f"nv_inference_request_success{series}nv_inference_request_duration_us{series}")
    assert not found("counters-frozen", facts(page=idle, triton=triton()))
    assert "counts 7 finished" in one("counters-frozen", facts(page=idle, triton=triton(counted={"m": 7}))).what
    assert one("counters-frozen", facts(page=idle, flags=parse(["--metrics-config=counter_latencies=false"])))


def test_latency_source() -> None:
    none = without(STEADY, "nv_inference_request_summary", "nv_inference_first_response")
    assert one("latency-source", facts(page=none, triton=triton("2.69.0"))).severity == "info"
    assert "histogram_latencies=true" in one("latency-source", facts(page=none, triton=triton())).mend
    wanted = Facts(parse_config("slo: {latency_p99: 200ms}"), page=none, triton=triton())
    assert one("latency-source", wanted).severity == "warning"
    flags = parse(["--metrics-config", "histogram_latencies=true"])
    accepted, nothing = found("latency-source", facts(page=none, triton=triton("2.51.0"), flags=flags))
    assert (accepted.severity, "accepted by Triton 2.51.0 (24.10)" in accepted.what) == ("warning", True)
    assert nothing.severity == "info"
    summaries = page('nv_inference_request_summary_us{model="m",version="1",quantile="0.99"} 1\n')
    assert "33 %" in one("latency-source", facts(page=summaries)).why


VLLM = {"backend": "vllm", "instance_group": [{"kind": "KIND_MODEL"}]}
REPORTING = {**VLLM, "parameters": {"REPORT_CUSTOM_METRICS": {"string_value": "true"}}}
TOKENS = 'vllm:generation_tokens_total{model="llm",version="1"} 5\nnv_inference_count{model="llm",version="1"} 5\n'


def test_custom_metrics() -> None:
    missing = one("custom-metrics", facts(triton=triton(models={"llm": VLLM}), page=page(TOKENS)))
    assert missing.severity == "warning"
    assert read_config(missing.mend.partition("\n")[2], "x", "x").parameters == {"REPORT_CUSTOM_METRICS": "true"}
    assert not found("custom-metrics", facts(triton=triton(models={"llm": REPORTING}), page=page(TOKENS)))
    yes = {**VLLM, "parameters": {"REPORT_CUSTOM_METRICS": {"string_value": "yes"}}}
    assert "has REPORT_CUSTOM_METRICS 'yes'" in one("custom-metrics", facts(triton=triton(models={"llm": yes}))).what
    silent = one("custom-metrics", facts(triton=triton(models={"llm": REPORTING}), page=STEADY))
    assert "disable_log_stats" in silent.mend


def test_gpu_metrics() -> None:
    gpu = {"backend": "onnxruntime", "instance_group": [{"kind": "KIND_GPU", "count": 1}]}
    none = without(STEADY, "nv_gpu_")
    assert one("gpu-metrics", facts(page=none, triton=triton())).severity == "info"
    assert one("gpu-metrics", facts(page=none, triton=triton(models={"m": gpu}))).severity == "warning"
    zero = page('nv_gpu_memory_total_bytes{gpu_uuid="g"} 0\nnv_gpu_memory_used_bytes{gpu_uuid="g"} 0\n')
    assert "0 of 0" in one("gpu-metrics", facts(page=zero)).what
    assert not found("gpu-metrics", facts(page=page('nv_gpu_memory_total_bytes{gpu_uuid="g"} 8e10\n')))
    dcgm = Prometheus("http://p", engine_targets={("dcgm", "g:9400"): frozenset(("dcgm",))})
    assert one("gpu-metrics", facts(page=none, triton=triton(models={"m": gpu}), prometheus=dcgm)).severity == "info"


def test_cache_metrics() -> None:
    cached = triton(models={"m": {"backend": "onnxruntime", "response_cache": {"enable": True}}})
    assert one("cache-metrics", facts(triton=cached, page=without(STEADY, "nv_cache_"))).severity == "warning"
    with_cache = page("nv_cache_num_hits 0\nnv_inference_request_summary_us{quantile=\"0.99\"} 1\n")
    assert one("cache-metrics", facts(triton=cached, page=with_cache)).severity == "info"
    assert not found("cache-metrics", facts(triton=triton(models={"m": {}}), page=with_cache))


def test_pinned_memory() -> None:
    text = "nv_pinned_memory_pool_total_bytes 100\nnv_pinned_memory_pool_used_bytes {}\n"
    assert "=200" in one("pinned-memory", facts(page=page(text.format(95)))).mend
    assert not found("pinned-memory", facts(page=page(text.format(50))))


def test_flags_of_the_server() -> None:
    assert one("metrics-interval", facts(flags=parse(["--metrics-interval-ms=60000"]))).severity == "warning"
    assert not found("metrics-interval", facts(flags=parse(["--metrics-interval-ms=2000"])))
    assert one("control-mode", facts(flags=parse(["--model-control-mode", "poll"]))).severity == "warning"
    assert one("control-mode", facts(flags={})).severity == "info"
    assert not found("control-mode", facts(flags=parse(["--model-control-mode=explicit"])))
    assert not found("control-mode", facts())


def test_rate_limiter() -> None:
    group = {"kind": "KIND_CPU", "rate_limiter": {"resources": [{"name": "R1", "count": 4}]}}
    limited = triton(models={"m": {"instance_group": [group]}})
    assert one("rate-limiter", facts(triton=limited)).severity == "info"
    assert one("rate-limiter", facts(triton=limited, flags={})).severity == "warning"
    on = ["--rate-limit=execution_count", "--rate-limit-resource"]
    assert one("rate-limiter", facts(triton=limited, flags=parse([*on, "R1:2"]))).severity == "error"
    assert not found("rate-limiter", facts(triton=limited, flags=parse([*on, "R1:4"])))


# --- alerts --------------------------------------------------------------------------------------------


def lives(text: str, **given: Any) -> dict[str, tuple[str, tuple[str, ...]]]:
    rules = from_groups(all_groups(CONFIG))
    judged = _judged(facts(page=page(text), **given), rules)
    return {alert.alert: (alert.life, alert.wakes) for alert in judged.alerts[PAGE]}


def test_alerts_of_a_plain_triton() -> None:
    plain = "\n".join(
        line for line in scrape("triton-2.51-steady.prom").splitlines() if "_summary_" not in line and "nv_cache" not in line
    ) + "\n"
    found_ = lives(plain)
    assert found_["InferenceTargetDown"][0] == found_["InferenceFailureRatioHigh"][0] == "live"
    assert found_["InferenceLatencyMeanHigh"][0] == "live"
    life, wakes = found_["InferenceLatencyP99High"]
    assert life == "dead"
    assert wakes == ("--metrics-config histogram_latencies=true", "--metrics-config summary_latencies=true")
    assert found_["LLMKVCacheSaturated"] == ("elsewhere", ())
    assert found_["InferenceModelLoadFailed"] == ("elsewhere", ())


def test_summaries_wake_the_p99() -> None:
    text = scrape("triton-2.51-steady.prom")
    assert "_summary_us" in text
    assert lives(text)["InferenceLatencyP99High"][0] == "live"


def test_frozen_counters_blind_what_reads_their_rate() -> None:
    found_ = lives(scrape("triton-2.51-counter_latencies_false.prom"))
    blind = {name for name, (life, _) in found_.items() if life == "blind"}
    assert {"InferenceFailureRatioHigh", "InferenceTrafficDrop"} <= blind
    assert "InferenceModelVanished" not in blind  # it reads their presence, which is true


def test_alerts_of_a_native_vllm() -> None:
    found_ = lives(scrape("vllm-0.32-light.prom"))
    assert found_["LLMKVCacheSaturated"][0] == found_["LLMTimeToFirstTokenP99High"][0] == "live"
    silent = lives(scrape("vllm-0.32-disable-log-stats.prom"))
    assert silent["LLMKVCacheSaturated"][0] == "dead"


def test_dead_alerts_name_a_flag_that_works_on_this_version() -> None:
    rules = from_groups(all_groups(CONFIG))
    none = without(STEADY, "nv_inference_request_summary", "nv_inference_queue_summary", "nv_inference_compute")
    mends = {
        version: {each.mend for each in found("dead-alerts", _judged(facts(page=none, triton=triton(version)), rules))
                  if "InferenceLatencyP99High" in each.what}
        for version in ("2.51.0", "2.71.0")
    }
    assert mends["2.51.0"] == {"--metrics-config summary_latencies=true"}
    assert mends["2.71.0"] == {"--metrics-config histogram_latencies=true or --metrics-config summary_latencies=true"}


# --- a repository on disk ------------------------------------------------------------------------------


def repository(folder: Path, models: Mapping[str, Mapping[str, str]], **given: Any) -> Facts:
    """Facts of a repository: model -> its files and their text (a file whose name ends with / is a folder)."""
    for model, files in models.items():
        for name, text in {**files}.items():
            path = folder / "models" / model / name
            if name.endswith("/"):
                path.mkdir(parents=True, exist_ok=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    read, lacking = look(folder / "models", given.pop("backends", None))
    assert not lacking
    return facts(repository=read, **given)


GOOD = {"config.pbtxt": 'backend: "python"\nmax_batch_size: 8\ndynamic_batching { }\n', "1/model.py": "import json\n"}


def test_a_good_repository(tmp_path: Path) -> None:
    vllm = {
        "config.pbtxt": 'backend: "vllm"\ninstance_group [ { kind: KIND_MODEL } ]\n'
        'parameters { key: "REPORT_CUSTOM_METRICS" value { string_value: "true" } }\n',
        "1/model.json": '{"model": "m", "gpu_memory_utilization": 0.9}',
    }
    ensemble = {"config.pbtxt": 'platform: "ensemble"\n', "1/": ""}
    assert registry.run(repository(tmp_path, {"good": GOOD, "llm": vllm, "both": ensemble})) == []


def test_llm_batching(tmp_path: Path) -> None:
    given = repository(tmp_path, {"llm": {
        "config.pbtxt": '# dynamic_batching is wrong here\nbackend: "vllm"\nmax_batch_size: 8\n\n  dynamic_batching { }\n',
        "1/model.json": "{}",
    }})
    places = {each.place.rpartition("/")[2] for each in found("llm-batching", given)}
    assert places == {"config.pbtxt:3:1", "config.pbtxt:5:3"}
    trt = {"backend": "tensorrtllm", "max_batch_size": 8, "dynamic_batching": {"max_queue_delay_microseconds": "5000"}}
    assert "5 ms" in one("llm-batching", facts(triton=triton(models={"t": trt}))).what
    api = {"config.pbtxt": 'backend: "python"\ndynamic_batching { max_queue_delay_microseconds: 100 }\n',
           "1/model.py": "from tensorrt_llm import LLM\n"}
    assert one("llm-batching", repository(tmp_path / "api", {"api": api})).place.endswith("config.pbtxt:2:20")
    api["config.pbtxt"] = 'backend: "python"\n\nmax_batch_size: 64\n'
    assert one("llm-batching", repository(tmp_path / "yaml", {"api": api})).place.endswith("config.pbtxt:3:1")
    trt["dynamic_batching"] = {"max_queue_delay_microseconds": 0}
    assert not found("llm-batching", facts(triton=triton(models={"t": trt})))


@pytest.mark.parametrize(
    ("parameter", "value", "severity"),
    [
        ("kv_cache_free_gpu_mem_fraction", "1.5", "error"),
        ("kv_cache_free_gpu_mem_fraction", "much", "error"),
        ("kv_cache_free_gpu_mem_fraction", "0.99", "warning"),
        ("kv_cache_free_gpu_mem_fraction", "0.9", ""),
        ("gpt_model_type", "V1", "warning"),
        ("gpt_model_type", "inflight_fused_batching", ""),
        ("max_beam_width", "4", "info"),
        ("max_beam_width", "1", ""),
        ("batch_scheduler_policy", "max_utilization", "info"),
        ("kv_cache_free_gpu_mem_fraction", "${kv_cache_free_gpu_mem_fraction}", "info"),
    ],
)
def test_trtllm_settings(tmp_path: Path, parameter: str, value: str, severity: str) -> None:
    text = f'backend: "tensorrtllm"\nparameters {{\n  key: "{parameter}"\n  value {{ string_value: "{value}" }}\n}}\n'
    given = repository(tmp_path, {"trt": {"config.pbtxt": text, "1/": ""}})
    findings = found("trtllm-settings", given)
    assert [each.severity for each in findings] == ([severity] if severity else [])
    assert all(each.place.endswith("config.pbtxt:3:8") for each in findings)


def vllm_model(share: object, group: str = "kind: KIND_MODEL", **more: object) -> dict[str, str]:
    import json

    return {"config.pbtxt": f'backend: "vllm"\ninstance_group [ {{ {group} }} ]\n',
            "1/model.json": json.dumps({"gpu_memory_utilization": share, **more})}


def test_vllm_gpu_memory_adds_up(tmp_path: Path) -> None:
    both = repository(tmp_path / "a", {"x": vllm_model(0.6), "y": vllm_model(0.5)})
    (too_much,) = found("vllm-arguments", both)
    assert too_much.severity == "error"
    assert "GPU 0: gpu_memory_utilization adds up to 1.1 (x 0.6 + y 0.5)" in too_much.what
    apart = {"x": vllm_model(0.6, "kind: KIND_GPU gpus: [ 0 ]"), "y": vllm_model(0.9, "kind: KIND_GPU gpus: [ 1 ]")}
    assert not found("vllm-arguments", repository(tmp_path / "b", apart))
    twice = repository(tmp_path / "c", {"x": vllm_model(0.6, "kind: KIND_GPU count: 2")})
    assert "1.2" in one("vllm-arguments", twice).what
    parameter = 'parameters { key: "GPU_DEVICE_IDS" value { string_value: "2, 3" } }'
    pinned = vllm_model(0.9, f"kind: KIND_MODEL }} ] {parameter} # [ {{", tensor_parallel_size=2)
    assert not found("vllm-arguments", repository(tmp_path / "e", {"x": vllm_model(0.9, tensor_parallel_size=2), "y": pinned}))
    split = {"x": vllm_model(0.9, "kind: KIND_GPU", pipeline_parallel_size=2)}
    assert "KIND_GPU with an engine over 2 GPUs" in one("vllm-arguments", repository(tmp_path / "f", split)).what
    assert not found("vllm-arguments", repository(tmp_path / "d", {"x": vllm_model(0.5), "y": vllm_model(0.5)}))


def test_vllm_arguments(tmp_path: Path) -> None:
    broken = {**vllm_model(0.9), "1/model.json": '{\n  "model": "m",,\n}'}
    assert one("vllm-arguments", repository(tmp_path / "a", {"m": broken})).place.endswith("1/model.json:2:16")
    assert one("vllm-arguments", repository(tmp_path / "b", {"m": vllm_model(1.4)})).severity == "error"
    silent = one("vllm-arguments", repository(tmp_path / "c", {"m": vllm_model(0.9, disable_log_stats=True)}))
    assert silent.severity == "warning"
    typo = one("vllm-arguments", repository(tmp_path / "d", {"m": vllm_model(0.9, max_model_length=4096)}))
    assert (typo.severity, "max_model_length looks like max_model_len" in typo.what) == ("warning", True)
    assert not found("vllm-arguments", repository(tmp_path / "e", {"m": vllm_model(0.9, kv_sharing_fast_prefill=True)}))


def test_versions(tmp_path: Path) -> None:
    def of(name: str, config: str, *files: str, **given: Any) -> list[tuple[str, str]]:
        texts = {"config.pbtxt": f'backend: "python"\n{config}', **dict.fromkeys(files, "")}
        return [(each.severity, each.what) for each in found("versions", repository(tmp_path / name, {"m": texts}, **given))]

    assert of("none", "")[0][0] == "error"
    assert of("one", "", "1/model.py") == []
    assert of("old", "", "1/model.py", "2/model.py")[0][0] == "info"
    assert of("all", "version_policy { all { } }", "1/model.py", "2/model.py") == []
    held = of("held", "version_policy { specific { versions: [ 1 ] } }", "1/model.py", "2/model.py")
    assert held == [("warning", "model m: version_policy leaves out the newest, 2")]
    gone = of("gone", "version_policy { specific { versions: [ 1, 7 ] } }", "1/model.py")
    assert gone == [("error", "model m: version_policy names version 7, and there is 1")]
    assert of("empty", "", "1/other.py") == [("error", "model m version 1 has no model.py")]
    assert of("case", "", "1/Model.py") == [("error", "model m version 1 has no model.py, but Model.py")]
    assert of("loose", "", "model.py") == [("error", "model m has no version folder: model.py lies beside config.pbtxt")]
    assert of("named", 'default_model_filename: "other.py"', "1/other.py") == []
    live = triton(index=(ServedModel("m", "1", "READY", ""),))
    late = of("late", "", "1/model.py", "2/model.py", triton=live)
    assert late == [("warning", "model m: version 2 is on disk and not loaded; the server has 1")]


@pytest.mark.parametrize(("folder", "number"), [("v1", 1), ("01", 1), ("version_3", 3), ("0", 1), ("V12", 12)])
def test_a_version_folder_that_triton_passes_over_is_named(tmp_path: Path, folder: str, number: int) -> None:
    given = repository(tmp_path, {"m": {"config.pbtxt": 'backend: "python"', f"{folder}/model.py": ""}})
    path = tmp_path / "models" / "m"
    assert one("versions", given).mend == f"mv {path / folder} {path / str(number)}"


@pytest.mark.parametrize(("config", "place", "meant"), [
    ("max_batchsize: 8", "1:1", "max_batch_size"),
    ("\ninstance_group [ { kind: CPU } ]", "2:26", "KIND_CPU"),
    ('input [ { name: "I" data_type: FP16 } ]', "1:32", "TYPE_FP16"),
    ("dynamic_batching { max_queue_delay_us: 1 }", "1:20", "max_queue_delay_microseconds"),
    ("zzz: 1", "1:1", ""),
])
def test_a_word_that_config_pbtxt_does_not_know(tmp_path: Path, config: str, place: str, meant: str) -> None:
    finding = one("config-readable", repository(tmp_path, {"m": {"config.pbtxt": config, "1/": ""}}))
    assert finding.place.endswith(f"config.pbtxt:{place}")
    assert finding.what.rpartition("Did you mean ")[2 if meant else 1] == (f"{meant}?" if meant else "")


@pytest.mark.parametrize("name", ["config.pbtx", "Config.pbtxt", "config.pbtxt.txt", "config.txt", "model_config.pbtxt"])
def test_a_misnamed_configuration(tmp_path: Path, name: str) -> None:
    given = repository(tmp_path, {"m": {name: "", "1/model.py": "", "configs/": ""}})
    assert one("config-readable", given).mend == f"mv {name} config.pbtxt"


BATCH = 'backend: "python"\nmax_batch_size: 8\n'


@pytest.mark.parametrize(("config", "place", "said"), [
    ('platform: "onnxruntime"', "1:1", 'platform: "onnxruntime_onnx"'),
    ('\nplatform: "python"', "2:1", 'backend: "python"'),
    (BATCH + "dynamic_batching { preferred_batch_size: [ 4, 16 ] }", "3:20", "max_batch_size: 16"),
    (BATCH + 'input [ { name: "I", data_type: TYPE_FP32 } ]', "3:17", "dims: [ -1 ]"),
    ('platform: "ensemble"\nensemble_scheduling { step [ { model_name: "gone" } ] }', "2:44", "correct model_name"),
    (BATCH + "instance_group [ { kind: KIND_GPU, gpus: [ 0, 7 ] } ]", "3:36", "leave gpus out"),
])
def test_config_refused(tmp_path: Path, config: str, place: str, said: str) -> None:
    """The first five as a real Triton 2.51 refused them; the GPUs by the page's."""
    gpus = page("".join(f'nv_gpu_memory_total_bytes{{gpu_uuid="{number}"}} 1e9\n' for number in range(2)))
    given = repository(tmp_path, {"m": {"config.pbtxt": config, "1/model.py": ""}}, page=gpus)
    finding = one("config-refused", given)
    assert finding.place.endswith(f"config.pbtxt:{place}")
    assert said in finding.mend
    served = dataclasses.replace(given, triton=triton(models={"m": {}}))
    assert not found("config-refused", served), "what the server has loaded it cannot have refused"


@pytest.mark.parametrize("config", [
    'platform: "onnxruntime_onnx"', 'platform: "mine"\nbackend: "mine"',
    BATCH + "dynamic_batching { preferred_batch_size: [ 4, 8 ] }",
    BATCH + 'input [ { name: "I", data_type: TYPE_FP32, dims: [ -1 ] } ]',
    'backend: "tensorrt"\ninput [ { name: "I", data_type: TYPE_FP32 } ]',
    'platform: "ensemble"\nensemble_scheduling { step [ { model_name: "other" } ] }',
    BATCH + "instance_group [ { kind: KIND_GPU, gpus: [ 7 ] } ]",
])
def test_config_not_refused(tmp_path: Path, config: str) -> None:
    given = repository(tmp_path, {"m": {"config.pbtxt": config, "1/": ""}, "other": GOOD})
    assert not found("config-refused", given)


def test_a_model_that_completes_its_own_configuration(tmp_path: Path) -> None:
    given = repository(tmp_path, {"m": {
        "config.pbtxt": BATCH + 'input [ { name: "I", data_type: TYPE_FP32 } ]',
        "1/model.py": "class TritonPythonModel:\n    def auto_complete_config(config):\n        return config\n",
    }})
    assert not found("config-refused", given)


def test_models_that_were_passed_over() -> None:
    index = (ServedModel("m", "1", "READY", ""), ServedModel("typo", "", "", ""))
    said = {mode: one("server-ready", facts(triton=triton(index=index), flags=flags)).severity for mode, flags in (
        ("unknown", None), ("default", {"http-port": ("8000",)}), ("explicit", {"model-control-mode": ("explicit",)}),
    )}
    assert said == {"unknown": "info", "default": "warning", "explicit": "info"}


def test_names_and_folders(tmp_path: Path) -> None:
    given = repository(tmp_path, {
        "a": {"config.pbtxt": 'name: "b"\n', "1/": ""}, "docs": {"readme.md": ""}, "auto": {"1/model.onnx": ""},
    })
    assert one("model-name", given).place.endswith("a/config.pbtxt:1:1")
    assert sorted(each.severity for each in found("config-readable", given)) == ["info", "warning"]


def test_backend_library(tmp_path: Path) -> None:
    backends = tmp_path / "backends"
    for name in ("python/libtriton_python.so", "vllm/model.py"):
        (backends / name).parent.mkdir(parents=True)
        (backends / name).write_text("")
    onnx = {"config.pbtxt": '\nbackend: "onnxruntime"', "1/model.onnx": ""}
    given = repository(tmp_path, {"py": GOOD, "v": vllm_model(0.9), "onnx": onnx}, backends=backends)
    missing = one("backend-library", given)
    assert missing.place.endswith("onnx/config.pbtxt:2:1")


@pytest.mark.parametrize(("name", "mend"), [
    ("pyton", 'backend: "python"'), ("onnx", 'backend: "onnxruntime"'), ("tensorrt_llm", 'backend: "tensorrtllm"'),
    ("my_own", "use the image tag"), ("tensorrtllm", "use the image tag -trtllm"),
])
def test_a_backend_that_is_not_there(tmp_path: Path, name: str, mend: str) -> None:
    (tmp_path / "backends").mkdir()
    given = repository(tmp_path, {"m": {"config.pbtxt": f'backend: "{name}"', "1/": ""}}, backends=tmp_path / "backends")
    assert one("backend-library", given).mend.startswith(mend)


def test_python_environment(tmp_path: Path) -> None:
    def of(name: str, path: str, *files: str) -> list[Finding]:
        parameter = f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{path}" }} }}\n' if path else ""
        texts = {"config.pbtxt": f'backend: "python"\n{parameter}', "1/model.py": "import torch\nimport json, beside\n",
                 "1/beside.py": "", **dict.fromkeys(files, "")}
        return found("python-environment", repository(tmp_path / name, {"m": texts}))

    (nothing,) = of("a", "$$TRITON_MODEL_DIRECTORY/env.tar.gz")
    assert (nothing.severity, nothing.place.endswith("config.pbtxt:2:19")) == ("error", True)
    assert of("b", "$$TRITON_MODEL_DIRECTORY/env.tar.gz", "env.tar.gz") == []
    assert of("c", "/opt/envs/no-such-env")[0].severity == "warning"
    (imports,) = of("d", "")
    assert (imports.severity, "imports torch and" in imports.what) == ("info", True)
    wrong = one("python-environment", repository(tmp_path / "e", {"m": {
        "config.pbtxt": 'backend: "python"', "1/model.py": "import json\ndef x(:\n",
    }}))
    assert (wrong.severity, wrong.place.endswith("1/model.py:2:7")) == ("warning", True)


def test_instance_memory(tmp_path: Path) -> None:
    config = 'backend: "onnxruntime"\ninstance_group [\n  { kind: KIND_GPU\n    count: 3 }\n]\n'
    model = {"config.pbtxt": config, "1/model.onnx": "x" * 1000}
    small = page('nv_gpu_memory_total_bytes{gpu_uuid="g"} 2500\n')
    large = page('nv_gpu_memory_total_bytes{gpu_uuid="g"} 3500\n')
    finding = one("instance-memory", repository(tmp_path, {"m": model}, page=small))
    assert finding.place.endswith("config.pbtxt:4:5")
    assert "count: 2" in finding.mend
    assert not found("instance-memory", repository(tmp_path, {"m": model}, page=large))


# --- Prometheus ----------------------------------------------------------------------------------------


def target(job: str = "triton", instance: str = "triton:8002", **given: Any) -> ScrapeTarget:
    url = f"http://{instance}/metrics"
    fields: dict[str, Any] = {"pool": job, "url": url, "health": "up", "last_error": "", "interval": 30.0}
    return ScrapeTarget(job, instance, **{**fields, **given})


def prometheus(*targets: ScrapeTarget, **given: Any) -> Facts:
    engines = {(each.job, each.instance): frozenset(("triton",)) for each in targets if each.health == "up"}
    return facts(
        prometheus=Prometheus("http://prometheus:9090", "2.42.0", targets, given.pop("engines", engines), **given),
        page=STEADY, metrics_url=PAGE, triton=triton(),
    )


def test_scrape_target() -> None:
    assert not found("scrape-target", prometheus(target()))
    assert one("scrape-target", prometheus(target(instance="other:8002"))).severity == "warning"
    assert one("scrape-target", prometheus()).severity == "error"
    watched = facts(
        prometheus=Prometheus("http://p", targets=(target("sidecar", "s:1", health="down", last_error="refused"),))
    )
    assert not [each for each in found("scrape-target", watched) if "down" in each.what]
    named = dataclasses.replace(watched, config=parse_config("jobs: [sidecar]"))
    assert [each.place for each in found("scrape-target", named) if "down" in each.what] == ["sidecar/s:1"]
    down = one("scrape-target", prometheus(target(health="down", last_error="sample limit exceeded")))
    assert "raise sample_limit of job triton" in down.mend


def test_scrape_interval() -> None:
    assert not found("scrape-interval", prometheus(target()))
    assert one("scrape-interval", prometheus(target(interval=120.0))).severity == "warning"
    assert one("scrape-interval", prometheus(target(interval=300.0))).severity == "error"


def test_double_scrape() -> None:
    assert "pods, triton" in one("double-scrape", prometheus(target(), target("pods"))).what
    assert not found("double-scrape", prometheus(target(), target(instance="other:8002")))


def test_labels() -> None:
    lost = one("labels", prometheus(target(), exported={"exported_model": ("triton",)}))
    assert (lost.severity, "labeldrop" in lost.mend) == ("warning", True)
    assert "honor_labels: false" in one("labels", prometheus(target(), jobs={"triton": {"honor_labels": True}})).mend
    gpu = prometheus(engines={("dcgm", "g"): frozenset(("dcgm",))}, exported={"exported_pod": ("dcgm",)})
    assert one("labels", gpu).severity == "info"
    assert not found("labels", prometheus(target(), jobs={"triton": {"honor_labels": False}}))


@pytest.mark.parametrize(
    ("rule", "lost"),
    [
        ({"action": "drop", "regex": "nv_inference_queue.*"}, True),
        ({"action": "keep", "regex": "up|nv_.*"}, False),
        ({"action": "keep", "regex": "nv_gpu.*"}, True),
        ({"action": "drop", "regex": "go_.*"}, False),
        ({"action": "drop", "regex": "nv_.*", "source_labels": ["model"]}, False),
        ({"action": "drop", "regex": "("}, False),
    ],
)
def test_dropped_metrics(rule: Mapping[str, Any], lost: bool) -> None:
    jobs = {"triton": {"metric_relabel_configs": [{"source_labels": ["__name__"], **rule}]}}
    assert bool(found("dropped-metrics", prometheus(target(), jobs=jobs))) == lost


def loaded(leave_out: Sequence[str] = (), change: str = "", health: str = "ok") -> tuple[LoadedRule, ...]:
    rules = []
    for group in all_groups(CONFIG):
        for rule in group.rules if group.name not in leave_out else ():
            name = rule.name if isinstance(rule, Alert) else rule.record
            expr = f"({rule.expr}) * 2" if name == change else rule.expr
            kind = "alerting" if isinstance(rule, Alert) else "recording"
            rules.append(LoadedRule(group.name, "r.yaml", name, kind, expr, health, "many-to-many" if health == "err" else ""))
    return tuple(rules)


def test_rules_loaded() -> None:
    assert not found("rules-loaded", prometheus(target(), rules=loaded()))
    assert one("rules-loaded", prometheus(target(), rules=())).severity == "error"
    assert "group obs-gpu" in one("rules-loaded", prometheus(target(), rules=loaded(["obs-gpu"]))).what
    recordings = one("rules-loaded", prometheus(target(), rules=loaded(["obs-record-triton"])))
    assert (recordings.severity, "recordings-triton.yaml" in recordings.mend) == ("error", True)
    changed = one("rules-loaded", prometheus(target(), rules=loaded(change="GPUMemoryHigh")))
    assert changed.what == "1 rules are not as obs.yaml builds them now: GPUMemoryHigh"
    assert not found("rules-loaded", prometheus(target()))  # a server that does not tell its rules


def test_rules_failing_and_slow() -> None:
    assert not found("rules-failing", prometheus(target(), rules=loaded()))
    assert {each.severity for each in found("rules-failing", prometheus(target(), rules=loaded(health="err")))} == {"error"}
    groups = tuple(RuleGroup("g", "f", 30.0, seconds) for seconds in (0.1, 20.0, 40.0))
    assert [each.severity for each in found("rules-slow", prometheus(target(), groups=groups))] == ["warning", "error"]


def test_alertmanager() -> None:
    assert not found("alertmanager", prometheus(target(), rules=loaded()))  # a server that does not tell
    assert not found("alertmanager", prometheus(target(), rules=loaded(), alertmanagers=("http://a:9093/api/v2/alerts",)))
    assert not found("alertmanager", prometheus(target(), rules=(), alertmanagers=())), "no rule, nothing to send"
    assert one("alertmanager", prometheus(target(), rules=loaded(), alertmanagers=())).what == "knows no Alertmanager"
    lost = prometheus(target(), rules=loaded(), alertmanagers=("http://a/",), undelivered=(("http://a/", 12.4),))
    assert (one("alertmanager", lost).severity, one("alertmanager", lost).place) == ("error", "http://a/")


def test_clock() -> None:
    assert "2m ahead" in one("clock", prometheus(target(), skew=120.0)).what
    assert not found("clock", prometheus(target(), skew=-5.0))


def test_sidecar() -> None:
    assert one("sidecar", prometheus(target())).severity == "info"
    engines = {("triton", "triton:8002"): frozenset(("triton",)), ("sidecar", "s"): frozenset(("sidecar",))}
    assert not found("sidecar", prometheus(target(), engines=engines))


# --- vLLM, order ---------------------------------------------------------------------------------------


def test_vllm_server() -> None:
    def of(name: str) -> list[Finding]:
        return found("vllm-server", facts(vllm=Vllm("http://v", "0.32.0"), vllm_page=page(scrape(name))))

    assert of("vllm-0.32-disable-log-stats.prom")[0].severity == "error"
    assert of("vllm-0.32-light.prom") == []
    old = facts(vllm=Vllm("http://v", "0.8.5"), vllm_page=page('vllm:gpu_cache_usage_perc{model_name="m"} 0.9\n'))
    assert one("vllm-server", old).severity == "info"


def test_the_worst_comes_first() -> None:
    index = (ServedModel("a", "1", "UNAVAILABLE", "x"), ServedModel("c", "", "", ""))
    findings = registry.run(facts(triton=triton("2.70.0dev", index=index)))
    ranks = [SEVERITIES.index(each.severity) for each in findings]
    assert ranks == sorted(ranks)
    assert set(ranks) == {0, 1, 2}


def test_an_unknown_file_is_no_repository(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no folder"):
        look(tmp_path / "x")


def test_rules_are_the_same_in_whatever_order_a_server_prints_matchers() -> None:
    assert same('sum(x{b="1, {2}",a!="y"}) > 1', 'sum(x{a!="y",b="1, {2}"}) > 1')
    assert not same('sum(x{b="1",a="2"})', 'sum(x{b="2",a="1"})')
