"""A KEDA trigger's metadata are all text.

The API server refuses numbers and booleans there (`metadata` maps text to text), with the whole object: `threshold: 75`
and `ignoreNullValues: false` never arrive. A KServe External target must be a plain number too: it is handed to KEDA as
it is written, which cannot read `750m`.

Bad:
    metadata: {threshold: 75, ignoreNullValues: false}

Mend:
    metadata: {threshold: "75", ignoreNullValues: "false"}
"""

from __future__ import annotations

from collections.abc import Iterator

from obs.checks.manifests.objects import number, text
from obs.checks.manifests.world import ManifestWorld
from obs.model.problem import Problem

ID = "scaler-strings"


def check(world: ManifestWorld) -> Iterator[Problem]:
    for scaler, trigger in world.triggers():
        one = trigger.manifest
        if scaler.form == "kserve":
            given = one.get(*trigger.target_at) if trigger.type == "prometheus" else None
            if isinstance(given, float) or (text(given) and number(given) is None):
                yield one.problem(trigger.target_at, f"{given} reaches KEDA as it is written, where it is no number",
                                  f'write it as text: "{trigger.target:g}"' if trigger.target else "write a plain number")
            continue
        if not trigger.of_keda:
            continue
        for key, value in one.mapping(*trigger.at, "metadata").items():
            if not isinstance(value, str):
                shown = {True: "true", False: "false"}.get(value, value) if isinstance(value, bool) else value
                yield one.problem((*trigger.at, "metadata", key),
                                  f"is no text ({shown}): the API server refuses the object", f'write {key}: "{shown}"')
