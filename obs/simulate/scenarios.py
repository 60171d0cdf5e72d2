"""The regimes that policies are compared in: data, and the arrivals of each for a seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from obs.errors import InputError
from obs.simulate.arrivals import (
    Arrival,
    Lengths,
    Ramp,
    Sizes,
    bursts,
    constant,
    diurnal,
    read_trace,
    replay,
    seen,
    synthetic,
)
from obs.simulate.fleet import Settings, Slo
from obs.simulate.hardware import ENGINES, Engine

CHAT = Lengths(prompt=500, prompt_sigma=0.8, output=280, output_sigma=0.7)
LONG_PROMPTS = Lengths(prompt=3000, prompt_sigma=0.5, output=30, output_sigma=0.6)
REASONING = Lengths(prompt=600, prompt_sigma=0.8, output=1100, output_sigma=0.6)
AZURE_CONVERSATION = "azure-llm-2023-conv.csv.gz"
AZURE_CODE = "azure-llm-2023-code.csv.gz"


@dataclass(frozen=True)
class Scenario:
    """A workload on an engine. ``decode_capacity`` is profiled: ``obs simulate --profile`` prints it again. (The day's is
    set 20 % lower, so that it keeps 20 replicas busy.)"""

    name: str
    title: str
    engine: Engine
    seconds: float
    decode_capacity: float
    lengths: Lengths | None = None
    ramp: Ramp | None = None
    cv: float = 1.0
    trace: str = ""
    copies: float = 1.0
    prompt_factor: Callable[[float], float] | None = None
    bursts: tuple[tuple[float, float], ...] = ()
    """(when a rise begins, the rate it leads to)."""
    capacities: tuple[tuple[float, float], ...] = ()
    """(when the mix changes, the decode capacity profiled for it): what the policy ``informed`` is told."""
    needed: int = 0
    """Replicas that a burst takes where the decode capacity does not tell: another mix."""
    low: int = 2
    high: int = 12
    slo: Slo = field(default_factory=Slo)
    scrape: float = 15.0
    control: bool = False
    """A case that no reactive scaler wins; shown, not counted."""

    def arrivals(self, seed: int, traces: Path | None = None) -> list[Arrival]:
        """The requests of a seed; InputError when the trace is not there."""
        if self.trace:
            return replay(self._trace(traces), self.copies, seed)
        assert self.ramp is not None
        assert self.lengths is not None
        return synthetic(self.ramp, self.lengths, self.seconds, seed, self.cv, self.prompt_factor)

    def sizes(self, traces: Path | None) -> Sizes:
        """The lengths of its requests, for a load test: those of the trace where it plays one. Raises as ``arrivals``.

        A distribution fitted to a trace will not do: the lognormal with the Azure conversations' moments has twice their
        longest answers, and with it a replica takes an eighth less.
        """
        if self.trace:
            return seen(self._trace(traces))
        assert self.lengths is not None
        return self.lengths

    def _trace(self, traces: Path | None) -> list[Arrival]:
        if traces is None:
            raise InputError(f"scenario {self.name}: needs {self.trace}; give its folder with --traces")
        return read_trace(traces / self.trace)

    def settings(self) -> Settings:
        """The run's settings."""
        return Settings(self.engine, self.seconds, self.decode_capacity, self.low, self.high, slo=self.slo,
                        scrape=self.scrape, capacities=self.capacities)


def _shift(at: float) -> float:
    return 4.0 if 2100 <= at < 4200 else 1.0


def _engine(name: str) -> Engine:
    return replace(ENGINES[name], load=110.0)


SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Scenario("kv", "KV-bound: small cache, 3 to 12 requests/s in bursts", _engine("reference-40k"), 7200.0, 1020.0,
                 CHAT, bursts(3, 12), cv=2.0, bursts=((960.0, 12.0), (4560.0, 12.0))),
        Scenario("decode", "decode-bound: large cache, 6 to 24 requests/s in bursts", _engine("reference-400k"), 7200.0,
                 1788.0, CHAT, bursts(6, 24), cv=2.0, bursts=((960.0, 24.0), (4560.0, 24.0))),
        Scenario("conversation", "Azure conversation trace, 3 times its rate", _engine("reference-60k"), 3480.0, 758.0,
                 trace=AZURE_CONVERSATION, copies=3.0),
        Scenario("shift", "4 requests/s, prompts 4 times as long for 35 minutes", _engine("reference-40k"), 6300.0, 1020.0,
                 CHAT, constant(4.0), cv=2.0, prompt_factor=_shift, bursts=((2100.0, 4.0),), needed=7,
                 capacities=((2100.0, 257.0), (4200.0, 1020.0))),
        Scenario("prefill", "prefill-bound: 3,000-token prompts, short answers, 1 to 4 requests/s in bursts",
                 _engine("reference-200k"), 7200.0, 39.0, LONG_PROMPTS, bursts(1, 4), cv=2.0,
                 bursts=((960.0, 4.0), (4560.0, 4.0))),
        Scenario("code", "Azure code trace: bursts shorter than any start-up (negative control)", _engine("reference-60k"),
                 3480.0, 42.0, trace=AZURE_CODE, control=True),
        Scenario("day", "a day of chat: up to 20 replicas of Llama 3.1 8B on L4, Prometheus every 30 s",
                 ENGINES["llama-3.1-8b@L4"], 86_400.0, 180.0, CHAT, diurnal(0.6, 6.0), low=2, high=20,
                 slo=Slo(ttft=4.0, itl=0.15), scrape=30.0),
    )
}
REGIMES = ("kv", "decode", "conversation", "shift", "prefill")
"""Those that the recommendation must hold in."""


def scenario(name: str) -> Scenario:
    """By name; InputError for an unknown one."""
    if name not in SCENARIOS:
        raise InputError(f"unknown scenario {name!r}; one of {', '.join(SCENARIOS)}")
    return SCENARIOS[name]


def mean_output(arrivals: Sequence[Arrival]) -> float:
    """Mean answer length of some requests."""
    return sum(one.output for one in arrivals) / len(arrivals) if arrivals else math.nan
