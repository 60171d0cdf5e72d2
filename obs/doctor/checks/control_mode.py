"""The server does not poll its repository in production.

With --model-control-mode=poll a half-copied model is loaded as it is, and a deleted folder unloads a model in use (Triton's
own documentation says not to). Explicit control loads what is asked for, when it is asked for, and tells whether it worked.

Mend: --model-control-mode=explicit --load-model=NAME
"""

from __future__ import annotations

from collections.abc import Iterator

from obs.doctor.facts import Facts
from obs.doctor.finding import Finding

ID = "control-mode"


def check(facts: Facts) -> Iterator[Finding]:
    if facts.flags is None:
        return
    mode = facts.flag("model-control-mode") or "none"
    place = facts.triton.url if facts.triton is not None else "command line"
    mend = "--model-control-mode=explicit --load-model=NAME (repeatable)"
    if mode == "poll":
        seconds = facts.flag("repository-poll-secs") or "15"
        yield Finding(
            ID, "warning", place, f"--model-control-mode=poll: the repository is read every {seconds} s",
            "a half-copied model is loaded as it is, and a folder that goes away unloads a model in use", mend,
        )
    elif mode == "none":
        yield Finding(
            ID, "info", place, "models are loaded once, at the start (--model-control-mode=none)",
            "a new version needs a restart; explicit control loads it without one, and says when it failed", mend,
        )
