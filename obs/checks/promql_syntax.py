"""Every expression can be read as PromQL.

An expression that does not parse is looked at by no other check, so it must not pass in silence. promtool has the
last word: where it accepts a function that is newer than our parser, say so with `# obs:ignore promql-syntax reason`.

Bad:
    expr: rate(nv_inference_request_success) > 0

`rate` needs a range. Mend:
    expr: rate(nv_inference_request_success[5m]) > 0
"""

from __future__ import annotations

from collections.abc import Iterator

from obs.checks.world import World
from obs.model.problem import Problem

ID = "promql-syntax"


def check(world: World) -> Iterator[Problem]:
    for expression in world.expressions:
        if expression.tree is None:
            board = expression.dashboard is not None
            yield expression.problem(
                "",
                f"cannot be read as PromQL{' with stand-ins for its variables' if board else ''}: {expression.error}; "
                "no other check looked at it",
                "mend the expression",
                "warning" if board else "error",
            )
