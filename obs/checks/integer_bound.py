"""Matchers for whole bucket bounds and quantiles hold on Prometheus 2 and 3.

Prometheus 3 stores `le="1"` as `le="1.0"`, and likewise `quantile="1"`. An exact matcher for the one spelling matches
nothing on the other version, so a budget or a share computed with it is silently gone after the upgrade.

Bad:
    expr: rate(vllm:e2e_request_latency_seconds_bucket{le="30"}[5m])

Mend:
    expr: rate(vllm:e2e_request_latency_seconds_bucket{le=~"30|30[.]0"}[5m])
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from obs.checks.syntax import Selector
from obs.checks.world import World
from obs.model.problem import Problem

ID = "integer-bound"

_WHOLE = re.compile(r"(\d+)(?:\.0)?")


def check(world: World) -> Iterator[Problem]:
    for expression in world.expressions:
        for node in expression.nodes:
            for matcher in node.matchers if isinstance(node, Selector) else ():
                if matcher.name not in ("le", "quantile"):
                    continue
                if matcher.op in ("=", "!="):
                    alone = [matcher.value] if _WHOLE.fullmatch(matcher.value) else []
                else:
                    parts = [part for part in matcher.value.split("|") if part]
                    alone = [p for p in parts if _WHOLE.fullmatch(p) and not _both(p, matcher.accepts, matcher.op)]
                for value in alone[:1]:
                    whole = value.removesuffix(".0")
                    op = "=~" if matcher.op in ("=", "=~") else "!~"
                    new = matcher.value.replace(value, f"{whole}|{whole}[.]0", 1)
                    yield expression.problem(
                        str(matcher),
                        f'Prometheus 2 stores "{whole}" and Prometheus 3 "{whole}.0": this matches on one of them only',
                        f'write {matcher.name}{op}"{new}"', "warning",
                    )


def _both(value: str, accepts: Callable[[str], bool], op: str) -> bool:
    whole = value.removesuffix(".0")
    return accepts(whole) == accepts(f"{whole}.0") == (op == "=~")
