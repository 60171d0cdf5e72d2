"""Requests: when they arrive, how long prompt and answer are. Every process is a pure function of its seed.

Arrival processes give times; ``Lengths`` gives token counts; ``read_trace`` reads both from a file.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import random
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, Protocol

from obs.errors import InputError

DAY = 86_400.0
MAX_REQUESTS = 5_000_000
MAX_TOKENS = 10_000_000


class Arrival(NamedTuple):
    """Seconds from the start, tokens of the prompt, tokens of the answer (at least 1 each)."""

    at: float
    prompt: int
    output: int


class Sizes(Protocol):
    """Where token counts come from."""

    def draw(self, dice: random.Random) -> tuple[int, int]:
        """Prompt and answer of one request."""


@dataclass(frozen=True)
class Sampled:
    """The token counts of requests that were seen, drawn from them by chance: prompt and answer of one belong together."""

    pairs: tuple[tuple[int, int], ...]

    def draw(self, dice: random.Random) -> tuple[int, int]:
        """Prompt and answer of one request."""
        return self.pairs[int(dice.random() * len(self.pairs))]


def seen(trace: Sequence[Arrival]) -> Sampled:
    """The token counts of a trace."""
    return Sampled(tuple((arrival.prompt, arrival.output) for arrival in trace))


@dataclass(frozen=True)
class Lengths:
    """Lognormal token counts, by median and sigma of the logarithm, cut to 1 … ``longest``."""

    prompt: float
    prompt_sigma: float
    output: float
    output_sigma: float
    longest_prompt: int = 16_000
    longest_output: int = 4_000

    def draw(self, dice: random.Random) -> tuple[int, int]:
        """Prompt and answer of one request."""
        prompt = dice.lognormvariate(math.log(self.prompt), self.prompt_sigma)
        output = dice.lognormvariate(math.log(self.output), self.output_sigma)
        return min(max(1, round(prompt)), self.longest_prompt), min(max(1, round(output)), self.longest_output)

    @property
    def mean_output(self) -> float:
        """The mean answer, ignoring the cut."""
        return self.output * math.exp(self.output_sigma**2 / 2)

    @property
    def mean_prompt(self) -> float:
        """The mean prompt, ignoring the cut."""
        return self.prompt * math.exp(self.prompt_sigma**2 / 2)


@dataclass(frozen=True)
class Ramp:
    """A rate over time, requests per second: straight lines between the points, repeated after the last one."""

    points: tuple[tuple[float, float], ...]

    def rate(self, at: float) -> float:
        """The rate at a time."""
        span = self.points[-1][0]
        at = at % span if span > 0 else 0.0
        index = bisect_right([point[0] for point in self.points], at)
        if index >= len(self.points):
            return self.points[-1][1]
        (left, low), (right, high) = self.points[index - 1], self.points[index]
        return low + (high - low) * (at - left) / (right - left) if right > left else high

    @property
    def peak(self) -> float:
        """The highest rate."""
        return max(rate for _, rate in self.points)


def constant(rate: float) -> Ramp:
    """Always the same rate."""
    return Ramp(((0.0, rate), (DAY, rate)))


def bursts(low: float, high: float, *, rise: float = 180.0, hold: float = 1200.0, fall: float = 300.0,
           period: float = 3600.0) -> Ramp:
    """On/off: low, a rise to high, hold, fall, low for the rest of the period. The first rise is a quarter in."""
    lead = (period - rise - hold - fall) / 2
    if lead < 0:
        raise InputError(f"a burst of {rise + hold + fall:g} s does not fit into its period of {period:g} s")
    return Ramp(((0.0, low), (lead, low), (lead + rise, high), (lead + rise + hold, high),
                 (lead + rise + hold + fall, low), (period, low)))


def diurnal(low: float, high: float, period: float = DAY) -> Ramp:
    """A day: a sine from low (at 0) to high (half-way) and back, in 96 straight pieces."""
    return Ramp(tuple(
        (period * i / 96, low + (high - low) * (1 - math.cos(2 * math.pi * i / 96)) / 2) for i in range(97)
    ))


def renewal(ramp: Ramp, seconds: float, dice: random.Random, cv: float = 1.0) -> Iterator[float]:
    """Times of a renewal process with Gamma gaps of this coefficient of variation, its clock sped up by the rate.

    ``cv`` 1 is Poisson. The rate is integrated in steps of a second, so that it may be any function of time.
    """
    shape = 1 / cv**2
    ahead = dice.gammavariate(shape, 1 / shape)
    for second in range(math.ceil(seconds)):
        rate = ramp.rate(second + 0.5)
        offset = 0.0
        if rate <= 0:
            continue
        while ahead <= (1 - offset) * rate:
            offset += ahead / rate
            if second + offset >= seconds:
                return
            yield second + offset
            ahead = dice.gammavariate(shape, 1 / shape)
        ahead -= (1 - offset) * rate


def synthetic(ramp: Ramp, lengths: Sizes, seconds: float, seed: int, cv: float = 1.0,
              prompt_factor: Callable[[float], float] | None = None) -> list[Arrival]:
    """Arrivals of a rate and lengths; ``prompt_factor`` multiplies prompts at a time. Deterministic by seed.

    Times and lengths have generators of their own, so that a change of one leaves the other alone.
    """
    times, sizes = random.Random(f"times/{seed}"), random.Random(f"sizes/{seed}")
    found = []
    for at in renewal(ramp, seconds, times, cv):
        prompt, output = lengths.draw(sizes)
        if prompt_factor is not None:
            prompt = max(1, round(prompt * prompt_factor(at)))
        found.append(Arrival(at, prompt, output))
        if len(found) > MAX_REQUESTS:
            raise InputError(f"more than {MAX_REQUESTS:,} requests; take a lower rate or a shorter time")
    return found


BURSTGPT_LENGTHS = Lengths(prompt=300, prompt_sigma=1.2, output=150, output_sigma=1.1, longest_prompt=8_000,
                           longest_output=2_000)
"""Heavy-tailed, after the published shape; BurstGPT's CSV was not at hand, so these medians are assumptions."""


def burstgpt(rate: float, seconds: float, seed: int) -> list[Arrival]:
    """BurstGPT's published shape: Gamma arrivals (CV above 1; 2 here), heavy-tailed lengths, a daily cycle.

    Source: Wang et al., "BurstGPT", arXiv 2401.17644: arrivals Gamma, lengths Zipf-like. The fitted parameters are not at
    hand, so CV 2 and lognormal tails stand for them; give the CSV itself as a trace for the real thing.
    """
    return synthetic(diurnal(0.4 * rate, 1.6 * rate), BURSTGPT_LENGTHS, seconds, seed, cv=2.0)


def replay(trace: Sequence[Arrival], copies: float, seed: int, jitter: float = 2.0) -> list[Arrival]:
    """A trace at ``copies`` times its rate, its shape over time kept: each request comes that many times, shifted by
    up to ``jitter`` seconds; a fraction is by chance. One copy is the trace itself, whatever the seed.
    """
    if copies == 1:
        return list(trace)
    dice = random.Random(f"replay/{seed}")
    end = trace[-1].at if trace else 0.0
    found = []
    for arrival in trace:
        for copy in range(math.floor(copies) + (dice.random() < copies % 1)):
            shift = dice.uniform(-jitter, jitter) if copy else 0.0
            found.append(arrival._replace(at=min(end, max(0.0, arrival.at + shift))))
    return sorted(found)


# --- trace files ----------------------------------------------------------------------------------

#: Column names in lower case -> what they are: ours, the Azure traces', BurstGPT's.
_COLUMNS = {
    "time": "at", "timestamp": "at", "at": "at", "arrived_at": "at",
    "prompt_tokens": "prompt", "contexttokens": "prompt", "request tokens": "prompt", "prompt tokens": "prompt",
    "output_tokens": "output", "generatedtokens": "output", "response tokens": "output", "output tokens": "output",
}


def read_trace(path: Path) -> list[Arrival]:
    """Read a CSV (also .gz) with a header: time, prompt tokens, output tokens; InputError names the bad line.

    Times are seconds, or dates as in the Azure traces; the first is 0. Rows without an answer (0 output tokens: failures
    in BurstGPT) are left out. Lines must be in order of time.
    """
    try:
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)
        text = data.decode("utf-8-sig")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}; check it") from None
    rows = csv.reader(io.StringIO(text))
    header = next(rows, [])
    places: dict[str, int] = {}
    for index, name in enumerate(header):
        known = _COLUMNS.get(name.strip().lower())
        if known is not None:
            places.setdefault(known, index)
    lacking = [name for name, key in (("time", "at"), ("prompt_tokens", "prompt"), ("output_tokens", "output"))
               if key not in places]
    if lacking:
        raise InputError(f"{path}:1: no column {' and no column '.join(lacking)}; "
                         "the header must be time,prompt_tokens,output_tokens (or the Azure traces', or BurstGPT's)")
    found: list[Arrival] = []
    first: float | None = None
    for row in rows:
        if not row:
            continue
        where = f"{path}:{rows.line_num}"
        if len(row) < len(header):
            raise InputError(f"{where}: {len(row)} columns where the header has {len(header)}; mend or drop the line")
        at = _time(row[places["at"]], where)
        prompt, output = (_tokens(row[places[key]], where, key) for key in ("prompt", "output"))
        first = at if first is None else first
        at -= first
        if found and at < found[-1].at:
            raise InputError(f"{where}: earlier than the line before; sort the trace by time")
        if output == 0:
            continue
        found.append(Arrival(at, max(1, prompt), output))
        if len(found) > MAX_REQUESTS:
            raise InputError(f"{where}: more than {MAX_REQUESTS:,} requests; cut the trace")
    if not found:
        raise InputError(f"{path}: no request in it; give at least one line below the header")
    return found


def _time(text: str, where: str) -> float:
    text = text.strip()
    try:
        value = float(text)
    except ValueError:
        head, _, fraction = text.partition(".")  # the Azure traces have seven digits, one more than Python reads
        digits = fraction.rstrip("Z")
        try:
            moment = datetime.fromisoformat(head.rstrip("Z"))
            value = (moment - datetime(1970, 1, 1)).total_seconds() + (float(f"0.{digits}") if digits else 0.0)
        except (ValueError, TypeError):
            raise InputError(f"{where}: time {text[:40]!r} is neither seconds nor a date like "
                             "2023-11-16 18:15:46.68") from None
    if not math.isfinite(value):
        raise InputError(f"{where}: time {text[:40]!r} is not finite")
    return value


def _tokens(text: str, where: str, key: str) -> int:
    name = "prompt tokens" if key == "prompt" else "output tokens"
    try:
        value = float(text)
    except ValueError:
        raise InputError(f"{where}: {name} {text[:40]!r} is no number") from None
    if not 0 <= value <= MAX_TOKENS or value != int(value):
        raise InputError(f"{where}: {name} {text[:40]!r} is not a whole number from 0 to {MAX_TOKENS:,}")
    return int(value)
