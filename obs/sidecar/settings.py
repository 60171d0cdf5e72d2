"""What the signals need to be told: all with defaults, all in seconds and tokens."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from obs.errors import InputError

MIN_INTERVAL, MAX_INTERVAL = 0.2, 60.0


@dataclass(frozen=True)
class ModelSettings:
    """What the engine does not tell of a model. ``None`` is unknown, and then what needs it is withheld."""

    decode_capacity: float | None = None
    """Decode tokens per second at the SLO, from a load test. Learning it as "the most seen" overstates it 1.6 to 2 times."""
    decode_capacity_source: Literal["config", "profile"] = "config"
    itl_objective: float | None = None
    """Mean gap between tokens that is still good, seconds: without a decode capacity one is learnt for it."""
    kv_capacity_tokens: float | None = None
    """KV-cache capacity, for engines that do not export it."""
    slots: float | None = None
    """Most requests that run at once (vLLM's max_num_seqs)."""
    input_tokens: float | None = None
    """Mean prompt length to assume until 20 requests have shown it."""
    output_tokens: float | None = None
    """Mean answer length to assume until 20 requests have shown it."""


@dataclass(frozen=True)
class Settings:
    """See ``obs sidecar --help``; the numbers are those of the reference (autoscaling.md, sections 4 and 5)."""

    engine: str = "auto"
    model_name: str = ""
    """Name for a model that the engine does not name."""
    interval: float = 1.0
    max_age: float = 0.0
    """A signal older than this disappears; 0 means three intervals."""
    window: float = 15.0
    """Gauges are means, rates are differences over this."""
    finish_window: float = 60.0
    """The window for counters that move only when a request ends: at least a mean request's duration."""
    slope_window: float = 60.0
    """The window of the arrivals' growth, and of the KV cache's where the time until it is full is told."""
    level_window: float = 30.0
    """In the projected load, the window of the KV cache's growth, and of arrivals that do not surely grow."""
    backlog_seconds: float = 30.0
    """In this time the waiting requests should be done."""
    projection_seconds: float = 30.0
    """So far ahead the KV cache's growth is drawn."""
    start_up_seconds: float = 120.0
    """So far ahead the arrivals' growth is drawn: as long as a new pod takes to help."""
    stalled_samples: int = 30
    """So many samples without progress while requests are there: the numbers are suspect, and withheld."""
    target_kv: float = 0.8
    target_waiting: float = 5.0
    target_slots: float = 0.9
    max_models: int = 32
    models: Mapping[str, ModelSettings] = field(default_factory=dict)
    """By model name; ``*`` stands for all others."""

    def __post_init__(self) -> None:
        if not MIN_INTERVAL <= self.interval <= MAX_INTERVAL:
            raise InputError(f"interval {self.interval:g} s is not within {MIN_INTERVAL:g} to {MAX_INTERVAL:g} s")
        if self.max_age and self.max_age < self.interval:
            raise InputError(f"max age {self.max_age:g} s is below the interval of {self.interval:g} s")
        for name in ("target_kv", "target_waiting", "target_slots", "window", "stalled_samples"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name.replace('_', ' ')} must be above 0")

    @property
    def age_limit(self) -> float:
        """The max age in force."""
        return self.max_age or 3 * self.interval

    def model(self, name: str) -> ModelSettings:
        """The settings of one model: its own where it has some, else those of ``*``."""
        common = self.models.get("*", ModelSettings())
        own = self.models.get(name)
        if own is None:
            return common
        told = {one.name: getattr(own, one.name) for one in fields(own) if getattr(own, one.name) is not None}
        return replace(common, **told)


_NUMBERS = ("decode_capacity", "itl_objective", "kv_capacity_tokens", "slots", "input_tokens", "output_tokens")


def read_models(path: Path) -> dict[str, ModelSettings]:
    """Read the models file: JSON, ``{"<model or *>": {"decode_capacity": 890, …}}``; InputError when it is wrong."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as JSON: {error}") from None
    if not isinstance(content, dict):
        raise InputError(f"{path}: must be an object with a model's name, or *, as key")
    return {name: model_settings(f"{path}: {name}", given) for name, given in content.items()}


def model_settings(where: str, given: Any) -> ModelSettings:
    """One model's settings from JSON."""
    if not isinstance(given, dict):
        raise InputError(f"{where}: must be an object")
    known: dict[str, Any] = {}
    for key, value in given.items():
        if key == "decode_capacity_source" and value in ("config", "profile"):
            known[key] = value
        elif key in _NUMBERS and isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
            known[key] = float(value)
        elif key in _NUMBERS:
            raise InputError(f"{where}: {key} must be a number above 0")
        else:
            raise InputError(f"{where}: {key!r} is unknown; known are {', '.join(_NUMBERS)} and "
                             "decode_capacity_source (config or profile)")
    return ModelSettings(**known)
