"""POST /control: one JSON object that sets loads and faults. Everything is checked before anything is done."""

from __future__ import annotations

import json
from typing import Any

from obs.errors import InputError
from obs.fake.load import Load
from obs.fake.world import FAULTS, World

_KEYS = ("clear", "fault", "load", "model", "seconds", "value")
_LOAD = ("peak", "period", "rate", "shape")


def apply(world: World, body: bytes) -> None:
    """``{"load": {"rate": 400}, "model": "bert"}``, ``{"fault": "kill", "seconds": 20}``, ``{"clear": true}``, or several.

    ``clear`` is true (all faults) or one fault's name, and comes first. InputError, in one line, when it cannot be done.
    """
    try:
        wanted = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the body is no JSON: {error}") from None
    if not isinstance(wanted, dict):
        raise InputError('the body is no JSON object; send one such as {"fault": "kill", "seconds": 20}')
    _known(wanted, _KEYS, "")
    if not wanted.keys() & {"clear", "fault", "load"}:
        raise InputError("nothing to do: give load, fault or clear")
    model = wanted.get("model", "")
    if not isinstance(model, str):
        raise InputError("model must be a name")
    load = None
    if "load" in wanted:
        if not isinstance(wanted["load"], dict):
            raise InputError('load must be an object such as {"shape": "steady", "rate": 30}')
        _known(wanted["load"], _LOAD, "load: ")
        load = Load(**wanted["load"])
    clear = wanted.get("clear")
    if "clear" in wanted and clear is not True and clear not in FAULTS:
        raise InputError(f"clear {clear!r} is neither true nor one of {', '.join(FAULTS)}")
    fault: dict[str, Any] = {"model": model, "seconds": _number(wanted, "seconds"), "value": _number(wanted, "value")}
    with world.lock:
        world.names(model)
        if "fault" in wanted:
            world.check_fault(str(wanted["fault"]), **fault)
        if clear is not None:
            world.clear("" if clear is True else str(clear), model)
        if "fault" in wanted:
            world.set_fault(str(wanted["fault"]), **fault)
        if load is not None:
            world.set_load(load, model)


def _known(given: dict[str, Any], keys: tuple[str, ...], where: str) -> None:
    for key in given:
        if key not in keys:
            raise InputError(f"{where}unknown key {key!r}; known: {', '.join(keys)}")


def _number(given: dict[str, Any], key: str) -> float:
    value = given.get(key, 0.0)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{key} must be a number")
    return float(value)
