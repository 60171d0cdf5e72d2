"""The rate limiter's resources count, and are there.

rate_limiter in instance_group does nothing unless the server runs with --rate-limit=execution_count; then an instance waits
for its resources, and one that asks for more than there are stops the model from loading.

Mend: --rate-limit=execution_count --rate-limit-resource=NAME:COUNT, or remove rate_limiter.
"""

from __future__ import annotations

from collections.abc import Iterator

from obs.doctor.facts import Facts
from obs.doctor.finding import Finding

ID = "rate-limiter"


def check(facts: Facts) -> Iterator[Finding]:
    on = facts.flag("rate-limit")
    offered: dict[str, int] = {}
    for text in (facts.flags or {}).get("rate-limit-resource", ()):
        name, _, rest = text.partition(":")
        amount = rest.split(":")[0]
        if amount.isdigit():
            offered[name] = max(offered.get(name, 0), int(amount))
    for config in facts.configs():
        wanted = {name: count for group in config.instances for name, (count, _) in group.resources.items()}
        if not wanted:
            continue
        place = config.at("rate_limiter")
        if facts.flags is not None and on != "execution_count":
            yield Finding(
                ID, "warning", place, f"model {config.model} has rate_limiter resources, and the server's rate limiter is off",
                "they hold nothing back: instances run whenever they like, also when they do not fit together",
                "start Triton with --rate-limit=execution_count, or remove rate_limiter",
            )
        elif facts.flags is None:
            yield Finding(
                ID, "info", place, f"model {config.model} has rate_limiter resources",
                "they count only when the server runs with --rate-limit=execution_count (its flags are not known here)",
                "check the server's command line, or give it with --triton-args",
            )
        for name, number in sorted(wanted.items()):
            if on == "execution_count" and number > offered.get(name, number):
                yield Finding(
                    ID, "error", place,
                    f"model {config.model} wants {number} of resource {name}, and the server has {offered[name]}",
                    "no instance can ever get them: the model does not load",
                    f"--rate-limit-resource={name}:{number}",
                )
