"""The pages on signals, flags and upgrades say all that the catalogue knows, once, and right."""

from __future__ import annotations

from obs.alerts.registry import all_groups
from obs.catalog.signals import SIGNALS
from obs.config import load_config
from obs.engines import ENGINES
from obs.render.docs_engines import flags_page, signals_page, upgrades_page


def section(page: str, title: str) -> str:
    return page.split(f"(`{title}`)\n", 1)[1].split("\n## ", 1)[0]


def row(text: str, begin: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {begin} |")]
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def test_every_signal_has_a_row_with_its_recorded_series_and_engines() -> None:
    page = signals_page(all_groups(load_config(None)))
    for signal in SIGNALS:
        assert signal.help in row(page, f"`{signal.name}`")[1]
    assert "`model:kv_cache_usage:max`" in row(page, "`kv_cache_usage`")[3]
    # a signal that no engine of the default configuration records is not said to be recorded
    assert row(page, "`sleeping`")[4] == "vllm"


def test_flags_page_has_every_metric_that_needs_one_and_no_other() -> None:
    page = flags_page()
    for engine in ENGINES:
        text = section(page, engine.name)
        for metric in engine.metrics:
            assert (f"`{metric.name}`" in text) == bool(metric.enabled_by), f"{engine.name}: {metric.name}"


def test_a_signal_needs_a_flag_only_where_nothing_else_gives_it() -> None:
    page = flags_page()
    vllm_backend = section(page, "triton-vllm")
    assert "`time_to_first_token_seconds`" in vllm_backend
    # the queue time has the counters, the summaries and so on: no single flag decides
    assert "`queue_time_seconds`" not in section(page, "triton")


def test_upgrades_page_names_every_first_and_last_version_newest_first() -> None:
    page = upgrades_page()
    for engine in ENGINES:
        changes = [metric for metric in engine.metrics if metric.since or metric.until]
        if not changes:
            continue
        text = section(page, engine.name)
        for metric in changes:
            if metric.since:
                assert f"`{metric.name}`" in row(text, metric.since)[1]
            if metric.until:
                assert f"`{metric.name}`" in row(text, metric.until)[2]
    vllm = section(page, "vllm")
    assert "`vllm:gpu_cache_usage_perc` (now `vllm:kv_cache_usage_perc`)" in row(vllm, "0.10.2")[2]
    versions = [line.split(" | ")[0].strip("| ") for line in vllm.splitlines() if line.startswith("| 0.")]
    assert versions.index("0.32") < versions.index("0.10.2") < versions.index("0.9.2") < versions.index("0.8.5")
