"""A page put together from kept texts is the page that prometheus_client writes."""

from __future__ import annotations

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from obs.sidecar.pages import KINDS, Pages

ACCEPTED = ("", "text/plain; version=1.0.0; escaping=allow-utf-8", "application/openmetrics-text; version=1.0.0")


class Given(Collector):
    def __init__(self, families: list[Metric]) -> None:
        self.families = families

    def collect(self) -> list[Metric]:
        return self.families


def families(value: float, *models: str) -> list[Metric]:
    gauge = GaugeMetricFamily("llm_requests_running", 'Running, "quoted" \\ and\nbroken.', labels=["model_name"])
    for model in models:
        gauge.add_metric([model], value)
    counter = CounterMetricFamily("llm_preemptions", "Preemptions.", labels=["engine"])
    counter.add_metric(["vllm"], 7)
    return [gauge, counter, GaugeMetricFamily("llm_engine_up", "Up.", value=1)]


def test_pages_are_prometheus_client_s_whatever_came_before() -> None:
    pages = Pages()
    for value, models in ((1, "ab"), (1, "ab"), (2, "ab"), (2, "b"), (float("nan"), "b"), (2, "bc"), (2, "")):
        for accept in ACCEPTED:
            encode, content_type = choose_encoder(accept)
            given = families(value, *models)
            assert pages.page(given, encode, content_type) == encode(Given(given))


def test_nothing_is_a_page_too() -> None:
    for accept in ACCEPTED:
        encode, content_type = choose_encoder(accept)
        assert Pages().page([], encode, content_type) == encode(Given([]))


def test_unchanged_families_are_not_encoded_again() -> None:
    encode, content_type = choose_encoder("")
    asked: list[str] = []

    def counting(registry: Collector) -> bytes:
        asked.extend(family.name for family in registry.collect())
        return encode(registry)

    pages = Pages()
    pages.page(families(1, "a"), counting, content_type)
    asked.clear()
    pages.page(families(2, "a"), counting, content_type)
    assert asked == ["llm_requests_running"]


def test_a_client_cannot_make_it_keep_any_number_of_pages() -> None:
    encode, _ = choose_encoder("")
    pages = Pages()
    for number in range(10 * KINDS):
        pages.page(families(1, "a"), encode, f"text/plain; version={number}")
    assert len(pages._kept) <= KINDS
