"""The pack's dashboards for every configuration: sound as Grafana reads them, and of nothing that does not exist."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from obs.alerts.registry import alerts, all_groups
from obs.catalog.signals import BY_NAME
from obs.checks.dashboards import VARIABLE, check_dashboard, expressions, substitute_variables
from obs.config import ENGINE_NAMES, Config, parse_config
from obs.dashboards.panels import PACK, House
from obs.dashboards.registry import DASHBOARDS, all_dashboards
from obs.engines import metric_owners
from obs.errors import DeclarationError
from obs.model.dashboard import Dashboard, Panel
from obs.prom.metric_names import selectors
from obs.render.grafana import render_dashboard

promql_parser = pytest.importorskip("promql_parser")

CONFIGS = {
    "default": "",
    "triton": "engines: [triton]",
    "triton-vllm": "engines: [triton, triton-vllm]",
    "triton-vllm alone": "engines: [triton-vllm]",
    "triton-trtllm": "engines: [triton, triton-trtllm]",
    "vllm": "engines: [vllm]",
    "sglang and dcgm": "engines: [sglang, dcgm]",
    "dynamo": "engines: [dynamo]",
    "trtllm-serve": "engines: [trtllm-serve]\nselectors: {trtllm-serve: 'job=\"trtllm\"'}",
    "dcgm": "engines: [dcgm]",
    "sidecar": "engines: [sidecar]",
    "all engines": f"engines: [{', '.join(ENGINE_NAMES)}]\nselectors: {{trtllm-serve: 'job=\"trtllm\"'}}",
    "every dialect": "dialects: {vllm: [standard, ray, ray-colon, kserve]}",
    "other labels": "labels: {cluster: k8s_cluster, namespace: k8s_ns, pod: pod_name}",
    "objectives": "slo: {latency_p99: 100ms}\nmodels: {'/models/a.b': {latency_p99: 500ms, llm_latency_p99: 60s}, "
                  "c: {queue_time: 1s, llm_queue_time: 3s, itl_p99: 50ms, ttft_p99: 4s}}",
    "jobs": "jobs: [triton, vllm]\nselectors: {triton: 'job=\"triton\"'}",
    "aliases": "aliases: {/models/m: m}",
    "slow scrapes": "interval: {scrape: 2m, evaluation: 1m}",
}
EVERYWHERE = {"up", "ALERTS", "ALERTS_FOR_STATE"}
every_config = pytest.mark.parametrize("name", CONFIGS)


def config_of(name: str) -> Config:
    return parse_config(CONFIGS[name], f"{name}.yaml")


@cache
def rendered(name: str) -> dict[str, str]:
    found = all_dashboards(config_of(name))
    return {d.stem: render_dashboard(d, links=tuple(o for o in found if o is not d)) for d in found}


def queries(name: str) -> Iterator[tuple[str, str, str]]:
    """(dashboard and panel, PromQL as a parser takes it, as written)."""
    for stem, text in rendered(name).items():
        for title, _, expr in expressions(text):
            yield f"{stem}: {title}", substitute_variables(expr), expr


def panels(dashboard: Dashboard) -> Iterator[Panel]:
    for row in dashboard.rows:
        yield from row.panels


def titled(config: Config, stem: str, title: str) -> Panel:
    dashboard = next(d for d in all_dashboards(config) if d.stem == stem)
    return next(panel for panel in panels(dashboard) if panel.title.startswith(title))


def walk(expr: str, visit: Callable[[Any], None]) -> None:
    def one(node: Any) -> bool:
        visit(node)
        return True

    promql_parser.walk(promql_parser.parse(expr), one)


def bare(node: Any) -> Any:
    while isinstance(node, promql_parser.ParenExpr):
        node = node.expr
    return node


# --- as Grafana reads them --------------------------------------------------------------------------------


@every_config
def test_no_check_finds_anything(name: str) -> None:
    problems = [p for stem, text in rendered(name).items() for p in check_dashboard(f"{stem}.json", text)]
    assert problems == []


@every_config
def test_same_bytes_again(name: str) -> None:
    assert {d.stem: render_dashboard(d, links=all_dashboards(config_of(name))) for d in all_dashboards(
        parse_config(CONFIGS[name]))} == rendered(name)


def test_five_dashboards_with_stable_names_and_links() -> None:
    stems = ["obs-fleet", "obs-model", "obs-llm", "obs-gpu", "obs-alerts"]
    assert len(DASHBOARDS) == len(stems)
    assert list(rendered("default")) == stems
    for stem, text in rendered("default").items():
        data = json.loads(text)
        assert data["uid"] == stem
        assert [link["url"] for link in data["links"]] == [f"/d/{other}" for other in stems if other != stem]
        assert len(text) < 200_000


@every_config
def test_every_panel_says_what_it_means_when_it_is_empty(name: str) -> None:
    for dashboard in all_dashboards(config_of(name)):
        assert dashboard.rows
        for row in dashboard.rows:
            assert row.panels, row.title
        titles = [panel.title for panel in panels(dashboard)]
        assert len(set(titles)) == len(titles)
        for panel in panels(dashboard):
            assert len(panel.description) > 30, panel.title
            assert panel.no_value not in {"", "0", "no data"}, panel.title
            assert panel.unit


@every_config
def test_alerts_open_a_dashboard_that_is_there(name: str) -> None:
    if name in {"dcgm", "sidecar"}:
        pytest.skip("these alone serve no model: the alerts on models are as dead as their dashboard would be")
    config = config_of(name)
    assert {alert.dashboard for alert in alerts(config)} <= set(rendered(name))


def test_every_alert_is_among_those_that_are_shown() -> None:
    pattern = re.compile(PACK.split('"')[1])
    for name in CONFIGS:
        for alert in alerts(config_of(name)):
            assert pattern.fullmatch(alert.name), alert.name


# --- what they ask ----------------------------------------------------------------------------------------


@every_config
def test_every_metric_is_recorded_or_in_the_catalogue(name: str) -> None:
    config = config_of(name)
    recorded = {rule.record for group in all_groups(config) for rule in group.recordings}
    for place, expr, written in queries(name):
        found = selectors(expr)
        assert found, f"{place}: {written}"
        for one in found:
            assert not one.pattern, place
            owners = {owner.name for owner, _ in metric_owners(one.name)}
            known = one.name in recorded | EVERYWHERE or owners & set(config.engines)
            assert known, f"{place}: {one.name}"


@every_config
def test_no_panel_is_dead(name: str) -> None:
    """Each panel asks at least one series that a configured engine gives, not only one computed from nothing."""
    config = config_of(name)
    live = House(config).live
    for place, expr, _ in queries(name):
        if "variable" in place:
            continue
        names = {one.name for one in selectors(expr) or ()}
        assert all(":" not in n or n.count(":") == 1 or n in live or metric_owners(n) for n in names), f"{place}: {names}"
    # A series that no engine gives counts as dead, whatever is computed from it.
    assert "model:request_attempts:rate" not in House(config_of("sidecar")).live


def test_a_panel_of_a_series_that_nobody_records_is_an_error_and_not_left_out() -> None:
    """As it is for an alert; what only the engines in use lack stays optional."""
    h = House(config_of("triton"))
    assert h.series("model", "generation_tokens", "rate") == ""  # an LLM engine's
    assert h.query("model", "time_to_first_token_seconds", "p99", "x") is None
    for level, name, operation in (("model", "compute_infer_seconds", "p99"), ("rank", "requests", "rate"),
                                   ("model", "batch_size", "p99")):
        with pytest.raises(DeclarationError, match=f"{level}:{name}:{operation} is recorded for no engine"):
            h.series(level, name, operation)


@every_config
def test_no_query_asks_an_engine_for_what_it_does_not_give(name: str) -> None:
    """``engine=~"vllm"`` on a series that only Triton records is as dead as a name that nobody records."""
    by_record: dict[str, set[str]] = {}
    for group in all_groups(config_of(name)):
        for rule in group.recordings:
            by_record.setdefault(rule.record, set()).add(rule.labels.get("engine", ""))
    for place, _, expr in queries(name):
        for record, inside in re.findall(r"([a-z_]+:[a-z0-9_]+:[a-z0-9_]+)\{([^}]*)\}", expr):
            engines = by_record[record]
            for sign, value in re.findall(r'engine(=~|!~|!=|=)"([^"]*)"', inside):
                matched = {one for one in engines if bool(re.fullmatch(value, one)) != sign.startswith("!")}
                assert "" in engines or matched, f"{place}: {record}{{{inside}}}"


@every_config
def test_rates_are_of_counters(name: str) -> None:
    def visit(node: Any) -> None:
        if isinstance(node, promql_parser.Call) and node.func.name in {"rate", "irate", "increase", "resets"}:
            metric = node.args[0].vector_selector.name
            kinds = {metric_owner.kind for _, metric_owner in metric_owners(metric)}
            assert kinds, metric
            assert "gauge" not in kinds, metric
            assert "histogram" not in kinds or metric.endswith(("_sum", "_count", "_bucket"))

    for _, expr, _ in queries(name):
        walk(expr, visit)


@every_config
def test_no_division_by_what_may_be_zero(name: str) -> None:
    def visit(node: Any) -> None:
        if isinstance(node, promql_parser.BinaryExpr) and str(node.op) == "/":
            below = bare(node.rhs)
            guarded = isinstance(below, promql_parser.BinaryExpr) and str(below.op) == ">"
            counted = isinstance(below, promql_parser.AggregateExpr) and str(below.op) == "count"  # 1 at least
            assert guarded or counted or isinstance(below, promql_parser.NumberLiteral), str(node)

    for _, expr, _ in queries(name):
        walk(expr, visit)


@every_config
def test_quantiles_are_neither_averaged_nor_summed(name: str) -> None:
    def visit(node: Any) -> None:
        if isinstance(node, promql_parser.AggregateExpr) and str(node.op) not in {"max", "group", "count"}:
            for one in selectors(str(node.expr)) or ():
                assert not one.name.endswith((":p50", ":p99")), str(node)

    for _, expr, _ in queries(name):
        walk(expr, visit)


@every_config
def test_prompt_and_generated_tokens_are_never_in_one_query(name: str) -> None:
    for place, expr, _ in queries(name):
        assert not ("generation_tokens:rate" in expr and "prompt_tokens" in expr), place


@every_config
def test_every_query_obeys_the_variables(name: str) -> None:
    for place, _, expr in queries(name):
        if place.endswith("variable cluster"):
            continue
        assert "$cluster" in expr, f"{place}: {expr}"


@every_config
def test_no_two_engines_buckets_are_added(name: str) -> None:
    for place, expr, _ in queries(name):
        for one in selectors(expr) or ():
            if one.name.endswith(":bucket_rate"):
                assert dict(one.equal).get("engine"), place


# --- variables --------------------------------------------------------------------------------------------


def test_each_variable_narrows_the_next_and_asks_one_series_of_ours() -> None:
    data = json.loads(rendered("default")["obs-llm"])
    found = [v for v in data["templating"]["list"] if v["type"] == "query"]
    assert [v["name"] for v in found] == ["cluster", "namespace", "job", "model", "version"]
    for place, variable in enumerate(found):
        query = variable["query"]["query"]
        assert query.startswith("label_values(model:model_loaded:count")
        assert {m["plain"] for m in VARIABLE.finditer(query)} == {v["name"] for v in found[:place]}
        assert variable["allValue"] == ".*"  # matches a label that is not there: no version, no cluster


def test_the_model_dashboard_shows_one_model_and_all_its_versions() -> None:
    data = json.loads(rendered("default")["obs-model"])
    one, many = (next(v for v in data["templating"]["list"] if v["name"] == name) for name in ("model", "version"))
    assert not one["multi"]
    assert not one["includeAll"]
    assert many["multi"]
    assert many["includeAll"]


def test_label_names_are_the_configurations() -> None:
    for place, _, expr in queries("other labels"):
        outside = re.sub(r'"[^"]*"', '""', expr)
        found = set(re.findall(r"\b(?:cluster|namespace|pod)\b", outside))
        assert not found, f"{place}: {found} in {expr}"
        if "$cluster" in expr:
            assert re.search(r'k8s_cluster=~"\$cluster\|?"', expr)
    data = json.loads(rendered("other labels")["obs-fleet"])
    first = next(v for v in data["templating"]["list"] if v["name"] == "cluster")
    assert first["query"]["query"] == "label_values(instance:server:present, k8s_cluster)"


def test_an_alert_without_a_chosen_label_still_shows() -> None:
    """A GPU's alert has no job and no model: choosing a model must not hide it."""
    for _, _, expr in queries("default"):
        for matcher in re.findall(r"ALERTS\w*\{(.*?)\}", expr):
            for variable in re.findall(r'=~"(\$\w+\|?)"', matcher):
                assert variable.endswith("|")


# --- engines ----------------------------------------------------------------------------------------------


def test_vllm_alone_gets_nothing_of_triton() -> None:
    assert list(rendered("vllm")) == ["obs-fleet", "obs-model", "obs-llm", "obs-alerts"]
    for place, expr, _ in queries("vllm"):
        assert "nv_" not in expr, place
        assert "triton" not in expr, place
    titles = {panel.title for d in all_dashboards(config_of("vllm")) for panel in panels(d)}
    assert not titles & {"Pending requests", "Batch size", "Response cache hits", "Execution time, mean",
                         "First response"}


def test_triton_alone_gets_nothing_of_llm_engines() -> None:
    assert list(rendered("triton")) == ["obs-fleet", "obs-model", "obs-gpu", "obs-alerts"]
    for place, expr, _ in queries("triton"):
        assert "vllm" not in expr, place
        assert "DCGM" not in expr, place


def test_panels_follow_the_signals() -> None:
    """The TensorRT-LLM backend has no preemptions and no time between tokens, but paused requests."""
    llm = next(d for d in all_dashboards(config_of("triton-trtllm")) if d.stem == "obs-llm")
    titles = {panel.title for panel in panels(llm)}
    assert not titles & {"Preemptions", "Time between tokens", "Prefix-cache hits", "Asleep"}
    waiting = titled(config_of("triton-trtllm"), "obs-llm", "Requests running")
    assert any("requests_paused" in query.expr for query in waiting.queries)
    assert {"Whole request", "Time to first token"} <= titles  # timed by Triton: request and first response


def test_every_signal_of_the_default_engines_is_on_some_panel() -> None:
    shown = {one.name for _, expr, _ in queries("default") for one in selectors(expr) or ()}
    signals = {name.split(":")[1] for name in shown if name.count(":") == 2}
    # Seen through what is computed of them.
    through = {"inferences", "executions", "prefix_cache_queries", "prefix_cache_hits"}
    assert set(BY_NAME) - signals == through


# --- limits -----------------------------------------------------------------------------------------------

THRESHOLDS = (
    ("obs-fleet", "Failed part", "failure_ratio", "20%", 0.2),
    ("obs-model", "Failed part", "failure_ratio", "20%", 0.2),
    ("obs-model", "Cancelled part", "cancel_ratio", "40%", 0.4),
    ("obs-model", "Share beyond", "beyond_buckets", "3%", 0.03),
    ("obs-model", "Pending requests", "pending_floor", "77", 77.0),
    ("obs-llm", "KV cache in use (blocks)", "kv_usage", "80%", 0.8),
    ("obs-llm", "KV cache in use, by rank", "kv_usage", "80%", 0.8),
    ("obs-llm", "Requests running", "waiting_floor", "33", 33.0),
    ("obs-llm", "Preemptions", "preemption_rate", "0.7", 0.7),
    ("obs-llm", "Gap between ranks", "rank_imbalance", "0.3", 0.3),
    ("obs-llm", "KV transfer between", "kv_transfer_time", "300ms", 0.3),
    ("obs-llm", "Share beyond", "beyond_buckets", "3%", 0.03),
    ("obs-llm", "Started and never", "aborted_ratio", "30%", 0.3),
    ("obs-llm", "HTTP requests that end", "failure_ratio", "20%", 0.2),
    ("obs-gpu", "GPU memory used", "gpu_memory", "70%", 0.7),
    ("obs-fleet", "GPU memory used", "gpu_memory", "70%", 0.7),
)


@pytest.mark.parametrize(("stem", "title", "key", "text", "value"), THRESHOLDS)
def test_a_threshold_is_the_limit_of_the_alert(stem: str, title: str, key: str, text: str, value: float) -> None:
    default = config_of("default")
    drawn = {threshold.value for threshold in titled(default, stem, title).thresholds}
    assert default.limit(key) in drawn
    moved = {t.value for t in titled(parse_config(f"limits: {{{key}: {text}}}"), stem, title).thresholds}
    assert moved == drawn - {default.limit(key)} | {value}


LINES = (
    ("obs-fleet", "Mean queue time", "queue_time"),
    ("obs-fleet", "Mean queue time", "llm_queue_time"),
    ("obs-model", "Request latency", "latency_p99"),
    ("obs-model", "Request latency", "llm_latency_p99"),
    ("obs-model", "Queue time", "queue_time"),
    ("obs-model", "Queue time", "llm_queue_time"),
    ("obs-llm", "Time to first token", "ttft_p99"),
    ("obs-llm", "Time between tokens", "itl_p99"),
    ("obs-llm", "Whole request", "llm_latency_p99"),
    ("obs-llm", "Wait inside", "llm_queue_time"),
    ("obs-llm", "Wait inside", "llm_queue_time_p99"),
)


@pytest.mark.parametrize(("stem", "title", "key"), LINES)
def test_a_line_is_the_objective_of_each_model(stem: str, title: str, key: str) -> None:
    def lines(text: str) -> set[str]:
        panel = titled(parse_config(text), stem, title)
        found = [q.expr for q in panel.queries if q.legend.startswith("limit")]
        assert panel.overrides, "limits are drawn dashed"
        return set(re.findall(r"(?m)^([\d.]+) \* group by", "\n".join(found)))

    default = f"{config_of('default').slo(key):g}"
    assert default in lines("")
    assert "7.25" not in lines("")
    moved = lines(f"slo: {{{key}: 7250ms}}")
    assert "7.25" in moved
    own = lines(f"models: {{m: {{{key}: 7250ms}}}}")
    assert own == lines("") | {"7.25"}


def test_a_models_own_objective_is_drawn_for_it_alone() -> None:
    panel = titled(parse_config("models: {'/m/a.b': {ttft_p99: 4s}}"), "obs-llm", "Time to first token")
    line = next(query.expr for query in panel.queries if query.legend.startswith("limit"))
    default, own = line.split("\nor\n")
    assert default.startswith("2.5 *")
    assert 'model!="/m/a.b"' in default
    assert own.startswith("4 *")
    assert 'model="/m/a.b"' in own


def test_objectives_are_drawn_for_the_engines_that_their_alert_judges() -> None:
    def matchers(expr: str) -> list[str]:
        return re.findall(r'engine(?:=~|!~|=|!=)"[^"]*"', expr)

    config = config_of("default")
    panel = titled(config, "obs-model", "Request latency")
    line = next(query.expr for query in panel.queries if query.legend.startswith("limit"))
    judged = [matchers(a.expr)[0] for a in alerts(config) if a.name in {"InferenceLatencyP99High",
                                                                      "LLMRequestLatencyP99High"}]
    assert matchers(line) == judged


@pytest.mark.parametrize(("stem", "title", "key", "series"), [
    ("obs-model", "Traffic against", "traffic_drop", "model_name:requests:baseline"),
    ("obs-llm", "Tokens generated", "decode_collapse", "model:generation_tokens:baseline"),
    ("obs-llm", "Prefix-cache hits", "prefix_hit_drop", "model:prefix_cache_hit:baseline"),
])
def test_a_baseline_is_drawn_where_its_alert_would_fire(stem: str, title: str, key: str, series: str) -> None:
    def line(text: str) -> str:
        panel = titled(parse_config(text), stem, title)
        return next(query.expr for query in panel.queries if query.legend.startswith("limit"))

    assert line("").startswith(f"{config_of('default').limit(key):g} * ({series}")
    assert line(f"limits: {{{key}: 0.35}}").startswith(f"0.35 * ({series}")


def test_gpu_memory_shows_both_limits_only_where_an_engine_takes_memory_at_start() -> None:
    for name, values in (("default", [0.9, 0.97]), ("triton", [0.9]), ("dcgm", [0.9])):
        config = config_of(name)
        for stem in ("obs-gpu", "obs-fleet"):
            assert [t.value for t in titled(config, stem, "GPU memory used").thresholds] == values
        high = next(alert.expr for alert in alerts(config) if alert.name == "GPUMemoryHigh")
        assert all(f"> {value:g}" in high for value in values)
    moved = parse_config("limits: {gpu_memory_preallocated: 80%, gpu_memory_margin: 10%}")
    assert [t.value for t in titled(moved, "obs-gpu", "GPU memory used").thresholds] == [0.9, 0.9]


def test_table_columns_are_coloured_at_the_limits() -> None:
    data = json.loads(render_dashboard(all_dashboards(parse_config("limits: {failure_ratio: 20%}"))[0]))
    models = next(p for p in data["panels"] if p["title"] == "Models" and p["type"] == "table")
    failed = next(o for o in models["fieldConfig"]["overrides"]
                  if o["matcher"]["options"] == "Failed" and o["properties"][0]["id"] == "thresholds")
    assert failed["properties"][0]["value"]["steps"][1] == {"color": "red", "value": 0.2}


def test_table_columns_are_named_after_their_queries() -> None:
    """``Value #B`` is the second query's: a column that vanishes with its engine must not shift the others' names."""
    for name in CONFIGS:
        for text in rendered(name).values():
            for panel in json.loads(text)["panels"]:
                if panel["type"] != "table":
                    continue
                organize = next(t for t in panel["transformations"] if t["id"] == "organize")["options"]
                values = [field for field in organize["renameByName"] if field.startswith("Value")]
                count = len(panel["targets"])
                assert values == (["Value"] if count == 1 else [f"Value #{t['refId']}" for t in panel["targets"]])
                assert organize["excludeByName"]["Time"]


def test_descriptions_name_the_limits_in_force() -> None:
    panel = titled(parse_config("limits: {kv_usage: 75%}"), "obs-llm", "KV cache in use (blocks)")
    assert "75%" in panel.description


def test_legends_name_labels_that_the_series_have() -> None:
    """A legend that asks for a label which an aggregation dropped shows nothing there."""
    def kept(expr: str) -> set[str] | None:
        node = bare(promql_parser.parse(expr))
        while isinstance(node, promql_parser.BinaryExpr):
            node = bare(node.rhs if isinstance(bare(node.lhs), promql_parser.NumberLiteral) else node.lhs)
        if isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None:
            return set(node.modifier.labels)
        return None

    checked = 0
    for name in ("default", "all engines"):
        for dashboard, query in itertools.chain.from_iterable(
            ((d, q) for panel in panels(d) for q in panel.queries) for d in all_dashboards(config_of(name))
        ):
            labels = kept(substitute_variables(query.expr))
            if labels is not None and query.format != "table":
                checked += 1
                assert set(re.findall(r"\{\{(\w+)\}\}", query.legend)) <= labels, (dashboard.stem, query)
    assert checked > 30


def test_grafanas_own_schema_takes_them() -> None:
    """A second opinion: Grafana's published model reads every dashboard and writes the same panels back."""
    plugins = pytest.importorskip("grafana_foundation_sdk.cog.plugins")
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.models.dashboard import Dashboard as Theirs

    def every(data: dict[str, Any]) -> list[tuple[Any, ...]]:
        inner = itertools.chain.from_iterable([p, *(p.get("panels") or [])] for p in data["panels"])
        return [(p["id"], p["type"], p["title"], p["gridPos"], len(p.get("targets") or [])) for p in inner]

    plugins.register_default_plugins()
    for text in rendered("all engines").values():
        ours = json.loads(text)
        assert every(json.loads(json.dumps(Theirs.from_json(ours), cls=JSONEncoder))) == every(ours)
