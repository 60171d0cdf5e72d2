"""The catalogue against itself, and against what real servers put on the wire.

The scrapes are read with a small reader of our own, because prometheus_client's parser renames Triton's counters.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

from obs.catalog.signals import SIGNALS
from obs.engines import BY_NAME, ENGINES, created_metrics, engine, metric_owners
from obs.engines.vllm import LENGTH_BOUNDS
from obs.errors import InputError
from obs.model.metric import Engine, Histogram, MeanOf, Metric, Missing, Native, Quotient, Source, Summary

SCRAPES = Path(__file__).parents[1] / "data" / "scrapes"
#: Whose families a file holds. Only these files prove anything "captured".
CAPTURED = {"triton": "triton-2.51-*.prom", "vllm": "vllm-0.32-*.prom"}
DOCUMENTED = {"triton-trtllm": "documented-triton-trtllm.prom"}

_SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
#: The labels of these belong to the kind and not to the engine.
_OF_THE_KIND = {"le", "quantile"}


@dataclass
class Family:
    """One family of one scrape, under its wire name."""

    name: str
    type: str
    samples: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    def bounds(self) -> tuple[float, ...]:
        found = {labels["le"] for _, labels in self.samples if "le" in labels} - {"+Inf"}
        return tuple(sorted(float(bound) for bound in found))


@cache
def families(path: Path) -> tuple[Family, ...]:
    found: dict[str, Family] = {}
    for line in path.read_text().splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            found[name] = Family(name, kind)
        elif line and not line.startswith("#"):
            match = _SAMPLE.match(line)
            assert match is not None, f"{path.name}: cannot read {line!r}"
            series = match[1]
            family = found.get(series) or found[re.sub(r"_(bucket|sum|count)$", "", series)]
            family.samples.append((series, dict(_LABEL.findall(match[2] or ""))))
    # process_* and python_* come from the client library and say nothing about the engine.
    return tuple(f for f in found.values() if not f.name.startswith(("process_", "python_")))


def scraped() -> Iterator[tuple[str, Path]]:
    for name, pattern in {**CAPTURED, **DOCUMENTED}.items():
        for path in sorted(SCRAPES.glob(pattern)):
            yield name, path


def catalogued(of: Engine, name: str) -> Metric | None:
    return {metric.name: metric for metric in (*of.metrics, *created_metrics(of))}.get(name)


def parts(source: Source) -> list[Native | Histogram | Summary]:
    if isinstance(source, Quotient):
        return [source.numerator, source.denominator]
    if isinstance(source, MeanOf):
        return [source.total, source.count]
    return [source]


def sources(of: Engine) -> Iterator[tuple[str, Source]]:
    for signal, how in of.signals.items():
        if not isinstance(how, Missing):
            for source in how:
                yield signal, source


def resolve(of: Engine, part: Native | Histogram | Summary) -> Metric | None:
    """The family that a part of a source reads, with the right name for its kind; None when there is none."""
    if isinstance(part, Native):
        for metric in of.metrics:
            if part.metric in metric.series_names():
                return metric
        return None
    wanted = "histogram" if isinstance(part, Histogram) else "summary"
    return next((m for m in of.metrics if m.name == part.metric and m.kind == wanted), None)


by_engine = pytest.mark.parametrize("of", ENGINES, ids=lambda of: of.name)
by_scrape = pytest.mark.parametrize(("name", "path"), list(scraped()), ids=lambda value: getattr(value, "name", value))


# --- the catalogue against itself ------------------------------------------------------------------


@by_engine
def test_every_signal_has_sources_or_a_reason(of: Engine) -> None:
    assert set(of.signals) == {signal.name for signal in SIGNALS}
    for signal, how in of.signals.items():
        if isinstance(how, Missing):
            assert re.fullmatch(r"[^\n]{15,}\.", how.why), (signal, how.why)
        else:
            assert how, f"{signal}: neither sources nor Missing"


@by_engine
def test_every_source_reads_a_metric_of_the_engine(of: Engine) -> None:
    dead = [(signal, part) for signal, source in sources(of) for part in parts(source) if resolve(of, part) is None]
    assert dead == []


@by_engine
def test_matchers_use_labels_and_values_that_the_metric_has(of: Engine) -> None:
    for signal, source in sources(of):
        for part in parts(source):
            metric = resolve(of, part)
            assert metric is not None
            matchers = re.findall(r'(\w+)(=~|!~|!=|=)"([^"]*)"', part.matchers)
            assert ",".join("".join((label, op, f'"{value}"')) for label, op, value in matchers) == part.matchers
            for label, op, value in matchers:
                assert label in (*metric.labels, *metric.optional_labels), (signal, label)
                for alternative in value.split("|") if "~" in op else [value]:
                    assert alternative in metric.values[label], (signal, label, alternative)


@by_engine
def test_counter_signals_read_series_that_only_grow(of: Engine) -> None:
    shapes = {signal.name: signal.shape for signal in SIGNALS}
    for signal, source in sources(of):
        shape = shapes[signal]
        if shape == "presence":
            continue
        for part in parts(source):
            metric = resolve(of, part)
            assert metric is not None
            if isinstance(part, Native):
                grows = metric.kind in ("counter", "histogram", "summary")
                if signal == "engine_steps":
                    continue  # recorded by changes(), since TensorRT-LLM serves its counter as a gauge
                assert grows == (shape in ("counter", "distribution")), (signal, part.metric)
            else:
                assert shape == "distribution", signal


def unit_of(of: Engine, part: Native | Histogram | Summary) -> str:
    metric = resolve(of, part)
    assert metric is not None
    return metric.unit


@by_engine
def test_scales_bring_the_wire_unit_to_the_signals_unit(of: Engine) -> None:
    factor = {("us", "s"): 1e-6, ("ms", "s"): 1e-3, ("MiB", "bytes"): 1048576.0, ("percent", "ratio"): 0.01}
    units = {signal.name: signal.unit for signal in SIGNALS}
    for signal, source in sources(of):
        measured = parts(source)[0]
        unit = unit_of(of, measured)
        if unit == "mixed" or isinstance(source, Quotient) or units[signal] == "1":
            continue  # several units behind one label, units that cancel, or nothing measured
        assert measured.scale == factor.get((unit, units[signal]), 1.0), signal
        if (unit, units[signal]) not in factor and units[signal] in ("s", "bytes", "ratio", "W"):
            # blocks: TensorRT-LLM's fraction shares a family with block counts
            assert unit == units[signal] or (unit == "blocks" and "fraction" in measured.matchers), (signal, unit)


@by_engine
def test_names_are_unique(of: Engine) -> None:
    series = [name for metric in (*of.metrics, *created_metrics(of)) for name in metric.series_names()]
    assert sorted(series) == sorted(set(series))


def test_engines_are_unique_and_found_by_name() -> None:
    assert len(BY_NAME) == len(ENGINES) == 9
    for of in ENGINES:
        assert engine(of.name) is of


def test_an_unknown_engine_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InputError, match="did you mean triton-vllm"):
        engine("triton_vlm")
    with pytest.raises(InputError, match="known: triton,"):
        engine("%%")


@by_engine
def test_a_renamed_metric_leads_to_one_that_exists(of: Engine) -> None:
    names = {metric.name for metric in of.metrics}
    assert [m.name for m in of.metrics if m.renamed_to and m.renamed_to not in names - {m.name}] == []


@by_engine
def test_buckets_belong_to_histograms_and_increase(of: Engine) -> None:
    for metric in of.metrics:
        assert not metric.buckets or metric.kind == "histogram", metric.name
        assert all(low < high for low, high in zip(metric.buckets, metric.buckets[1:], strict=False)), metric.name


@by_engine
def test_every_metric_is_told_in_full(of: Engine) -> None:
    for metric in of.metrics:
        assert metric.unit, metric.name
        assert metric.source, metric.name
        assert metric.help.endswith("."), metric.name
        assert not set(metric.labels) & set(metric.optional_labels), metric.name
        assert set(metric.values) <= {*metric.labels, *metric.optional_labels}, metric.name
        assert not _OF_THE_KIND & {*metric.labels, *metric.optional_labels}, metric.name


# --- the catalogue against the wire ----------------------------------------------------------------


def test_every_scrape_is_tested() -> None:
    assert {path for _, path in scraped()} == set(SCRAPES.glob("*.prom"))


@by_scrape
def test_the_scrape_is_catalogued_with_its_types(name: str, path: Path) -> None:
    wrong = []
    for family in families(path):
        # Triton's backends serve on Triton's own port, beside its metrics.
        metric = catalogued(BY_NAME[name], family.name) or catalogued(BY_NAME["triton"], family.name)
        if metric is None:
            wrong.append(f"{family.name}: not catalogued")
        elif family.type != ("gauge" if metric.kind == "info" else metric.kind):
            wrong.append(f"{family.name}: {family.type} on the wire, {metric.kind} in the catalogue")
        else:
            wrong += [f"{series}: not among series_names()" for series, _ in family.samples
                      if series not in metric.series_names()]
    assert wrong == []


@by_scrape
def test_the_scrape_has_the_catalogued_labels(name: str, path: Path) -> None:
    wrong = []
    for family in families(path):
        metric = catalogued(BY_NAME[name], family.name) or catalogued(BY_NAME["triton"], family.name)
        assert metric is not None, family.name
        for series, labels in family.samples:
            served = set(labels) - _OF_THE_KIND
            if not set(metric.labels) <= served <= {*metric.labels, *metric.optional_labels}:
                wrong.append(f"{series}: labels {sorted(served)}")
            wrong += [f"{series}: {label}={labels[label]!r}" for label, values in metric.values.items()
                      if label in labels and labels[label] not in values]
    assert wrong == []


@by_scrape
def test_the_scrape_has_the_catalogued_bounds(name: str, path: Path) -> None:
    for family in families(path):
        if family.type == "histogram" and family.samples:
            bounds = BY_NAME[name].metric(family.name).buckets
            if bounds == LENGTH_BOUNDS:  # the server cuts these at its max_model_len
                bounds = bounds[: len(family.bounds())]
            assert family.bounds() == bounds, family.name
            assert bounds, family.name


@by_engine
def test_captured_means_that_a_real_scrape_holds_it(of: Engine) -> None:
    pattern = CAPTURED.get(of.name)
    assert of.captured == (pattern is not None)
    held = {f.name for path in SCRAPES.glob(pattern or "") for f in families(path)} if pattern else set()
    claimed = {metric.name for metric in of.metrics if metric.evidence == "captured"}
    assert claimed - held == set()
    unclaimed = {metric.name for metric in of.metrics if metric.evidence != "captured"} & held
    assert unclaimed == set(), "a real scrape holds these: mark them captured"


def test_wire_names_are_kept() -> None:
    assert [m.name for m in BY_NAME["triton"].metrics if m.name.endswith("_total")] == []
    assert BY_NAME["vllm"].metric("vllm:iteration_tokens_total").kind == "histogram"
    for of in ("vllm", "trtllm-serve", "sglang", "dynamo", "sidecar"):
        counters = [m.name for m in BY_NAME[of].metrics if m.kind == "counter"]
        assert [name for name in counters if not name.endswith("_total")] == []


# --- whose a name is -------------------------------------------------------------------------------


def owners(name: str) -> dict[str, str]:
    return {of.name: metric.name for of, metric in metric_owners(name)}


@pytest.mark.parametrize(("name", "expected"), [
    ("nv_inference_queue_summary_us", {"triton": "nv_inference_queue_summary_us"}),
    ("nv_inference_queue_summary_us_count", {"triton": "nv_inference_queue_summary_us"}),
    ("nv_llm_output_token_len_sum", {"triton-trtllm": "nv_llm_output_token_len"}),
    ("vllm:generation_tokens_total",
     {"vllm": "vllm:generation_tokens_total", "triton-vllm": "vllm:generation_tokens_total"}),
    ("vllm:num_requests_running", {"vllm": "vllm:num_requests_running"}),
    ("ray_vllm_num_requests_running", {"vllm": "vllm:num_requests_running"}),
    ("ray_vllm:num_requests_running", {"vllm": "vllm:num_requests_running"}),
    ("kserve_vllm:num_requests_running", {"vllm": "vllm:num_requests_running"}),
    ("kserve_vllm:time_to_first_token_seconds_bucket", {"vllm": "vllm:time_to_first_token_seconds"}),
    ("vllm:generation_tokens_created", {"vllm": "vllm:generation_tokens_created"}),
    ("vllm:iteration_tokens_total_created", {"vllm": "vllm:iteration_tokens_total_created"}),
    ("http_request_size_bytes_created", {"vllm": "http_request_size_bytes_created"}),
    ("request_success_total", {"trtllm-serve": "request_success_total"}),
    # The names that public rules get wrong.
    ("nv_inference_request_duration_us_bucket", {}),
    ("nv_inference_request_success_total", {}),
    ("nv_inference_request_success_created", {}),
    ("vllm:iteration_tokens_total", {}),
    ("nv_inference_first_response_histogram_ms", {}),
    ("kserve_http_requests_total", {}),
])
def test_owners_of_a_sample_name(name: str, expected: dict[str, str]) -> None:
    assert owners(name) == expected


def test_created_gauges_are_gauges() -> None:
    kinds = {metric.kind for of in ENGINES for metric in created_metrics(of)}
    assert kinds == {"gauge"}


def test_names_that_two_engines_share_are_told_apart_by_their_matchers() -> None:
    shared: defaultdict[str, set[str]] = defaultdict(set)
    for of in ENGINES:
        for metric in of.metrics:
            shared[metric.name].add(of.name)
    for name, who in shared.items():
        if len(who) > 1:
            assert len({BY_NAME[of].own for of in who}) == len(who), name
            assert all(BY_NAME[of].own for of in who), name
