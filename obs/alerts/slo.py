"""Error budgets: multi-window burn-rate alerts for models that declare an objective.

Method: Google SRE Workbook, chapter 5, "Multiwindow, multi-burn-rate alerts". Errors and requests are summed
over the window before they are divided, so busy minutes weigh more than quiet ones. The versions of a model are
judged together: the objective is the model's, and a new version would have only minutes in a window of days.
"""

from __future__ import annotations

from obs.config import Config
from obs.engines import BY_NAME as ENGINES
from obs.errors import ConfigError
from obs.model.metric import Engine, Histogram
from obs.model.rule import Alert, Group, NoData, Recording
from obs.promql import block, by, duration, number, on, one_of, quote, selector
from obs.recordings.names import labels, series
from obs.recordings.rules import EngineRules, bucket_bounds, le, llm_engines, owner_of, scale_of, sources_of

_YOUNG = "A model younger than the long window is judged by the history that it has."


def groups(config: Config) -> tuple[Group, ...]:
    """The recording and alerting groups; none when no model declares an objective."""
    rules: list[Recording] = []
    alerts: list[Alert] = []
    available = _objectives(config, "availability")
    if available:
        alerts += _burn(
            config, "InferenceAvailabilityBudgetBurn", "availability", available,
            series("model", "request_failures", "rate"), series("model", "request_attempts", "rate"),
            "fails requests", "slo.availability",
            (
                "An error answered through Triton's Python backend counts as a success and burns no budget.",
                "vLLM's HTTP 5xx are no failures of its engine and burn nothing: InferenceHTTPErrorRatioHigh sees them. "
                "Before 0.16 its engine counts no failures at all.",
                "Triton's counter_latencies=false freezes the counters at 0: no budget burns.",
                _YOUNG,
            ),
        )
    quick = _objectives(config, "latency_objective")
    if quick:
        rules += _slow_requests(config, quick)
        alerts += _burn(
            config, "InferenceLatencyBudgetBurn", "latency", quick,
            series("model", "latency_errors", "rate"), series("model", "latency_judged", "rate"),
            "answers slowly", "slo.latency_objective",
            (
                "Only engines with a request-latency histogram are judged: a summary counts no slow requests.",
                "A replica whose histogram has no bucket at the limit is not judged.",
                _YOUNG,
            ),
        )
    found = []
    if rules:
        found.append(Group("obs-record-slo", "slo", "Slow requests, for latency budgets.", tuple(rules)))
    if alerts:
        found.append(Group("obs-slo", "slo", "Error budgets burn too fast.", tuple(alerts)))
    return tuple(found)


def _objectives(config: Config, key: str) -> dict[str, float]:
    """model → objective; the model "" stands for all that declare none of their own."""
    found = config.model_slos(key)
    default = config.slo(key)
    return found if default is None else {"": default, **found}


def _matcher(model: str, objectives: dict[str, float]) -> str:
    return one_of("model", [model]) if model else one_of("model", [name for name in objectives if name], negate=True)


def _burn(config: Config, name: str, what: str, objectives: dict[str, float], bad: str, total: str, verb: str,
          limit: str, blind: tuple[str, ...]) -> list[Alert]:
    keep = by((*labels(config).model_name, "engine"))
    floor, step = number(config.limit("burn_errors")), number(config.evaluation_interval)
    alerts = []
    for window in config.burn_windows:
        arms = []
        for model, objective in objectives.items():
            match = _matcher(model, objectives)
            budget = number(round(1 - objective, 9))

            def over(of: str, span: float, match: str = match) -> str:
                return f"sum {keep} (sum_over_time({selector(of, match)}[{duration(span)}]))"

            threshold = f"{number(window.factor)} * {budget}"
            burns = [
                f"{over(bad, span)}\n  / ({over(total, span)} > 0)\n  > {threshold}"
                for span in (window.long, window.short)
            ]
            # A rate per second, recorded every `step` seconds, sums up to the number of requests.
            arms.append("\nand\n".join([*burns, f"{over(bad, window.long)} * {step} >= {floor}"]))
        expr = arms[0] if len(arms) == 1 else "\nor\n".join(
            "(\n" + "\n".join(f"  {line}" for line in arm.splitlines()) + "\n)" for arm in arms
        )
        alerts.append(
            Alert(
                name, expr, "2m" if window.severity == "critical" else "15m", window.severity,
                f"{{{{ $labels.model }}}} {verb} and burns its {what} budget",
                f"{{{{ $value | humanizePercentage }}}} of the requests to {{{{ $labels.model }}}} in "
                f"{duration(window.long)} miss its {what} objective: more than {window.factor:g} × the rate that the "
                f"objective allows, over {duration(window.long)} and over {duration(window.short)}.",
                NoData("silent", "Without requests no budget burns.", "InferenceTrafficDrop"),
                labels={"long": duration(window.long), "short": duration(window.short)},
                limits=(limit, "limits.burn_errors"), blind_spots=blind,
            )
        )
    return alerts


def _slow_requests(config: Config, objectives: dict[str, float]) -> list[Recording]:
    """Requests per second over each model's P99 limit, and those judged, from the bucket at that limit."""
    L = labels(config)
    llm = set(llm_engines(config))
    rules = []
    for engine_name in config.engines:
        engine = ENGINES[engine_name]
        bounds = bucket_bounds(engine, "request_latency_seconds")
        if not bounds:
            continue
        key = "llm_latency_p99" if engine_name in llm else "latency_p99"
        scale = scale_of(engine, "request_latency_seconds")
        own = f"engine={quote(engine_name)}"
        for model in objectives:
            limit = config.model_slos(key).get(model, config.slo(key)) if model else config.slo(key)
            assert limit is not None
            bound = next((b for b in bounds if abs(b - limit) < 1e-9), None)
            if bound is None and "request_latency_seconds" in engine.inherits:
                continue  # Triton's histogram of this backend ends far below a generation's objective
            if bound is None:
                near = min(bounds, key=lambda b: abs(b - limit))
                raise ConfigError(
                    f"{config.path}: models.{model or '*'}.{key}: {limit:g}s is no bucket bound of {engine_name}'s "
                    f"latency histogram, so latency_objective cannot be counted; use {near:g}s"
                )
            # These models, and only where they are recorded as this engine's.
            judged = selector(series("model", "request_latency_seconds", "rate"), own, _matcher(model, objectives))
            for name, operator, what in (
                ("latency_errors", "-", f"Requests slower than {limit:g} s"),
                ("latency_judged", "and", f"Requests of replicas whose histogram has the bucket {limit:g} s"),
            ):
                rules.append(
                    Recording(
                        series("model", name, "rate"),
                        f"{_beside_bucket(config, engine, operator, bound / scale)}\nand {on(L.model)}\n{judged}",
                        f"{what}. Per second.", {"engine": engine_name},
                    )
                )
    return rules


def _beside_bucket(config: Config, engine: Engine, operator: str, bound: float) -> str:
    """All requests per second of a model ``-`` or ``and`` those in the bucket ``bound``.

    Target by target: one whose histogram lacks that bucket must not count all its requests as slow.
    """
    writer = EngineRules(owner_of(engine, "request_latency_seconds"), config)
    of = tuple(dict.fromkeys((*writer.identity, "version")))  # a target's own label, where the engine has none
    histogram = next(one for one in sources_of(engine, "request_latency_seconds") if isinstance(one, Histogram))

    def text(dialect: str) -> str:
        every, inside = (
            f"sum {by(of)} (rate("
            f"{writer.select(f'{histogram.metric}_bucket', histogram.matchers, matcher, dialect=dialect)}"
            f"[{writer.window}]))"
            for matcher in ('le="+Inf"', le(bound))
        )
        return writer.aggregate("sum", labels(config).model, f"{every}\n{operator}\n{inside}")

    return block(writer.every_spelling(text))
