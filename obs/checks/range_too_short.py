"""Ranges of rate and its like span at least 4 scrapes.

`rate` needs two samples. A range of one or two scrape intervals has them by luck, and since Prometheus 3 (left-open
ranges) one fewer: the result is empty, and the alert silent. With four, two lost scrapes leave a result.
The intervals are `interval.scrape` of obs.yaml, and `interval.evaluation` for recorded series.

Bad, with scrapes every 30 s:
    expr: rate(nv_inference_request_success[1m])

Mend:
    expr: rate(nv_inference_request_success[2m])
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from obs.checks.syntax import Call, Selector
from obs.checks.world import BUILT_IN, World
from obs.engines import metric_owners
from obs.model.problem import Problem
from obs.promql import duration

ID = "range-too-short"

_FUNCTIONS = frozenset({
    "rate", "irate", "increase", "delta", "idelta", "deriv", "predict_linear", "holt_winters",
    "double_exponential_smoothing", "changes", "resets",
})  # fmt: skip
_VARIABLE_RANGE = re.compile(r"\[[^\]]*\$")


def check(world: World) -> Iterator[Problem]:
    for expression in world.expressions:
        if expression.dashboard is not None and _VARIABLE_RANGE.search(expression.text):
            continue  # dashboard-rate-interval looks at those
        for node in expression.nodes:
            if not isinstance(node, Call) or node.function not in _FUNCTIONS:
                continue
            inner = node.args[0] if node.args else None
            if not isinstance(inner, Selector) or inner.range is None:
                continue
            if inner.name in world.recorded:
                interval, what = world.config.evaluation_interval, "evaluations"
            elif inner.name in BUILT_IN or metric_owners(inner.name):
                interval, what = world.config.scrape_interval, "scrapes"
            else:
                continue
            if inner.range < 4 * interval:
                yield expression.problem(
                    node, f"its range spans {inner.range / interval:.3g} {what} of {duration(interval)}: "
                    f"{node.function}() is empty when one is lost",
                    f"use at least [{duration(4 * interval)}]", "warning",
                )
