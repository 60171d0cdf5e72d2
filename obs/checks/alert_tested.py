"""Every alert of the pack is shown firing, quiet and without data by a promtool test. (The pack only.)

A threshold that is tested on one side only can be off by any amount, and what an alert does without data is the most
common way to be silent in an outage. The tests are alerts/tests/*.yaml; a test about missing data says "no data" in its
name. A test that could not fail (its rule file or alert does not exist, it asserts nothing) does not count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from obs.checks.world import World
from obs.model.problem import Problem

ID = "alert-tested"


def check(world: World) -> Iterator[Problem]:
    from obs.errors import InputError
    from obs.prom import promtool_tests

    folder = world.root / "alerts" / "tests"
    sound = []
    for path in sorted(folder.glob("*.yaml")):
        try:
            file = promtool_tests.read(path)
        except InputError as error:
            what = str(error).removeprefix(f"{path}: ")
            yield Problem(str(path), 0, ID, path.name, what, "mend the file")
            continue
        yield from (replace(problem, check=ID) for problem in promtool_tests.vacuous(file))
        sound.append(path)
    rules = sorted({rule.path for rule in world.alerts})
    lines = {rule.name: (rule.path, rule.line) for rule in world.alerts}
    shown = promtool_tests.coverage(sound, [Path(path) for path in rules])
    for problem in promtool_tests.missing_cases(shown, str(folder)):
        path_line = lines.get(problem.subject, (problem.path, 0))
        yield replace(problem, check=ID, path=path_line[0], line=path_line[1])
