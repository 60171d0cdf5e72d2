"""Small worlds for the checks: a few expressions, and what one check says of them."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from obs.checks import registry, rulefiles
from obs.checks.world import World, build
from obs.config import Config, parse_config
from obs.model.problem import Problem

Say = Callable[..., list[Problem]]


def rule_text(*exprs: str) -> str:
    """A rule file with one alert (A0, A1, …) per expression."""
    rules = ""
    for number, expr in enumerate(exprs):
        rules += f"  - alert: A{number}\n    expr: |\n{textwrap.indent(expr, '      ')}\n"
    return f"groups:\n- name: g\n  rules:\n{rules}"


def world_of(*exprs: str, config: Config | None = None, own: bool = False) -> World:
    file = rulefiles.parse("rules.yaml", rule_text(*exprs))
    assert file is not None
    return build(config or parse_config(""), [file], {}, own=own)


@pytest.fixture
def say() -> Say:
    """``say(check, expr, …)``: what the check with that id finds in alerts with these expressions."""

    def find(check: str, *exprs: str, config: str = "", own: bool = False) -> list[Problem]:
        world = world_of(*exprs, config=parse_config(config), own=own)
        chosen = [one for one in registry.STATIC if check == one.ID]
        assert chosen, f"no static check {check}"
        return list(registry.run(world, chosen))

    return find


@pytest.fixture
def root() -> Path:
    return Path(__file__).resolve().parents[2]
