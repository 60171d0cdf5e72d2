"""Comparisons with a limit that each model may set for itself."""

from __future__ import annotations

from collections.abc import Iterable

from obs.config import Config
from obs.promql import by, duration, number, on, one_of, selector
from obs.recordings import names


def above(config: Config, series: str, key: str, *matchers: str, and_on: tuple[Iterable[str], str] | None = None) -> str:
    """``series > limit`` where models with their own ``models.<model>.<key>`` are compared with that.

    ``matchers`` narrow the series. ``and_on=(labels, condition)`` is required beside each comparison.
    """
    tail = f"\nand {on(tuple(and_on[0]))}\n{and_on[1]}" if and_on else ""
    return any_of(
        f"{selector(series, *matchers, models)} > {number(limit)}{tail}" for models, limit in limits_of(config, key)
    )


def limits_of(config: Config, key: str) -> list[tuple[str, float]]:
    """(matcher of models, their ``slo.<key>``): those without a limit of their own first, if there is a default."""
    own, default = config.model_slos(key), config.slo(key)
    by_limit: dict[float, list[str]] = {}
    for model, limit in own.items():
        by_limit.setdefault(limit, []).append(model)
    found = [] if default is None else [(one_of("model", own, negate=True), default)]
    return found + [(one_of("model", models), limit) for limit, models in sorted(by_limit.items())]


def any_of(arms: Iterable[str]) -> str:
    """``(arm) or (arm)``; one arm as it is."""
    arms = list(arms)
    return "\nor\n".join(f"({arm})" for arm in arms) if len(arms) > 1 else arms[0]


def has_traffic(config: Config, rate_series: str) -> str:
    """The floor under which a mean, a quantile or a ratio says nothing."""
    return f"{rate_series} > {number(config.limit('request_rate_floor'))}"


def known_servers(config: Config) -> str:
    """The targets that served an engine's metrics within ``windows.known``, whether or not they still answer."""
    server = names.series("instance", "server", "present")
    return f"group {by(names.labels(config).instance)} (present_over_time({server}[{duration(config.window('known'))}]))"
