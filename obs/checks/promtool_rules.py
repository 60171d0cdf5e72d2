"""promtool accepts the rule files, and finds something in them.

promtool has the last word on syntax. Beyond its own verdict, a file without a rule and a rule that is given twice (same
name and labels) are errors here, whatever the version of promtool does about them. Without promtool nothing is checked,
which is an error (exit code 3) unless you say `--no-promtool`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import yaml

from obs.checks.rulefiles import RuleFile
from obs.checks.world import World
from obs.model.problem import Problem

ID = "promtool-rules"


def check(world: World) -> Iterator[Problem]:
    from obs.prom import promtool, tools

    tools.version(tools.find("promtool"))  # a program that is no promtool finds no fault
    plain = [file.path for file in world.rule_files if not file.operator]
    if plain:
        yield from promtool.check_rules(plain)
    for file in world.rule_files:
        if file.operator:
            with tempfile.TemporaryDirectory(prefix="obs-check-") as folder:
                inner = Path(folder) / "rules.yaml"
                inner.write_text(_groups(file), encoding="utf-8")
                for problem in promtool.check_rules([inner]):
                    line = next((rule.line for rule in file.rules if rule.name == problem.subject), 0)
                    yield replace(problem, path=file.path, line=line, what=problem.what.replace(str(inner), file.path))


def _groups(file: RuleFile) -> str:
    """The groups of PrometheusRule objects as a plain rule file."""
    groups: list[object] = []
    for document in yaml.safe_load_all(file.text):
        if isinstance(document, dict):
            spec = document.get("spec")
            holder = document if "groups" in document else spec if isinstance(spec, dict) else {}
            groups += holder.get("groups") or []
    return str(yaml.safe_dump({"groups": groups}, sort_keys=False))
