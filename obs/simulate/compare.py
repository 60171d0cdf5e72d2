"""Policies × scenarios × seeds: every policy meets the same arrivals; figures are means with 95 % intervals."""

from __future__ import annotations

import itertools
import math
import multiprocessing
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from obs.errors import InputError
from obs.simulate import stats
from obs.simulate.arrivals import Arrival
from obs.simulate.fleet import Fleet, Result, Settings
from obs.simulate.policies import POLICIES, ScalePolicy
from obs.simulate.scenarios import Scenario, mean_output

GOAL = 0.95
"""Attainment that the recommendation must reach in every regime."""
STATIC, ORACLE = "static-best", "oracle"
STATIC_TRIALS = 4
"""Fleets that the search for the smallest one tries, of 2 to 12 replicas."""
ORACLE_HEADROOM = 0.9
"""The oracle plans replicas at this share of the decode capacity."""


@dataclass(frozen=True)
class Job:
    """One run: everything a worker process needs. ``policy`` None is a fixed fleet of ``fixed`` replicas, or the oracle."""

    scenario: Scenario
    settings: Settings
    seed: int
    policy: ScalePolicy | None
    fixed: int = 0
    traces: Path | None = None


@dataclass(frozen=True)
class Outcome:
    """The figures of one run."""

    attainment: float
    ttft: float
    itl: float
    replica_hours: float
    preemptions: float
    flaps: float
    blind: float
    peak: float
    ttft_p99: float
    enough: float | None
    """Mean seconds from a burst's begin until enough replicas were ready; None when there is no burst, inf for "never"."""
    lead: float | None
    """Mean seconds by which the first scale-up was ahead of the 20th violation in a burst; None where either is lacking."""
    path: tuple[tuple[float, int, int], ...] = ()
    first_up: float | None = None
    """Mean seconds from a burst's begin until the first scale-up, of the bursts that ``lead`` is of."""
    late: float | None = None
    """The same until the 20th violation: ``lead`` is the one less the other."""


@lru_cache(maxsize=4)
def _arrivals(scenario: Scenario, seed: int, traces: Path | None) -> list[Arrival]:
    return scenario.arrivals(seed, traces)


def need(scenario: Scenario, rate: float, output: float) -> int:
    """Replicas that a rate takes, by the profiled decode capacity, unless the scenario knows better."""
    if scenario.needed:
        return scenario.needed
    return max(scenario.low, math.ceil(rate * output / scenario.decode_capacity - 1e-9))


def run(job: Job) -> Outcome:
    """Play one job."""
    arrivals = _arrivals(job.scenario, job.seed, job.traces)
    schedule = None
    settings = job.settings
    if job.policy is None and job.fixed:
        settings = replace(settings, low=job.fixed, high=job.fixed)
    elif job.policy is None:
        schedule = _oracle(job.scenario, settings, arrivals)
        settings = replace(settings, start=min(settings.high, max(settings.low, schedule(0.0))))
    result = Fleet(settings, arrivals, job.policy, job.seed, schedule).run()
    return outcome(job.scenario, settings, result, mean_output(arrivals))


def _oracle(scenario: Scenario, settings: Settings, arrivals: Sequence[Arrival]) -> Callable[[float], int]:
    """Perfect foresight of the tokens asked for: enough replicas for every minute that comes before one more could start.

    Longer prompts than profiled count in proportion: where the KV cache binds they hold so much more of it.
    """
    minutes = [0.0] * (int(settings.seconds // 60) + 1)
    for arrival in arrivals:
        if arrival.at < settings.seconds:
            weight = scenario.prompt_factor(arrival.at) if scenario.prompt_factor is not None else 1.0
            minutes[int(arrival.at // 60)] += arrival.output * weight
    start_up = settings.engine.load + settings.schedule + 15.0
    per_minute = scenario.decode_capacity * 60 * ORACLE_HEADROOM

    def wanted(now: float) -> int:
        first, last = max(0, int(now // 60) - 1), int((now + start_up) // 60)
        return math.ceil(max(minutes[first: last + 1], default=0.0) / per_minute)

    return wanted


def outcome(scenario: Scenario, settings: Settings, result: Result, output: float) -> Outcome:
    """The figures of a result."""
    requests = max(1, result.requests)
    enough, ups_after, late_after = [], [], []
    for begin, rate in scenario.bursts:
        wanted = need(scenario, rate, output)
        end = begin + 1800.0
        ready = next((at for at, _, ready in result.replicas if ready >= wanted and begin <= at < end), math.inf)
        if any(count >= wanted for at, _, count in result.replicas[:_before(result, begin)][-1:]):
            ready = begin
        enough.append(ready - begin)
        ups = [at for (_, before, _), (at, after, _) in itertools.pairwise(result.replicas)
               if after > before and begin <= at < end]
        late = sorted(at for at in result.violations if begin <= at < end)
        if ups and len(late) >= 20:
            ups_after.append(ups[0] - begin)
            late_after.append(late[19] - begin)
    return Outcome(
        attainment=result.attainment, ttft=result.ttft_good / requests, itl=result.itl_good / requests,
        replica_hours=result.replica_hours, preemptions=result.preemptions, flaps=result.flaps,
        blind=result.blind_scale_ins, peak=result.peak,
        ttft_p99=stats.quantile(result.ttfts, 0.99) if result.ttfts else math.inf,
        enough=sum(enough) / len(enough) if enough else None,
        lead=_middle([late - up for up, late in zip(ups_after, late_after, strict=True)]),
        path=tuple(result.replicas), first_up=_middle(ups_after), late=_middle(late_after),
    )


def _middle(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _before(result: Result, at: float) -> int:
    return sum(1 for time, _, _ in result.replicas if time <= at)


@dataclass(frozen=True)
class Row:
    """One policy in one scenario, over the seeds."""

    scenario: str
    policy: str
    title: str
    target: float | None
    outcomes: tuple[Outcome, ...]

    def mean(self, figure: str) -> stats.Mean | None:
        """A figure's mean over the seeds that have it; None when none has."""
        values = [value for value in (getattr(one, figure) for one in self.outcomes) if value is not None]
        if not values or any(math.isinf(value) for value in values):
            return None
        return stats.mean(values)

    @property
    def never(self) -> int:
        """In how many seeds there were never enough replicas after a burst."""
        return sum(1 for one in self.outcomes if one.enough is not None and math.isinf(one.enough))


Progress = Callable[[int, int], None]


def play(jobs: Sequence[Job], workers: int = 1, progress: Progress | None = None) -> list[Outcome]:
    """All jobs, in order, on so many processes. The result does not depend on ``workers``."""
    found: list[Outcome] = []

    def take(outcomes: Iterable[Outcome]) -> None:
        for done in outcomes:
            found.append(done)
            if progress is not None:
                progress(len(found), len(jobs))

    if workers <= 1:
        take(map(run, jobs))
        return found
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(workers, initializer=_heed)
    try:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # for the workers, from their first moment on
        try:
            results = pool.map(run, jobs)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        take(results)
    except BaseException:
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()  # an interrupt does not wait for runs whose results nobody will see
        raise
    finally:
        pool.shutdown(cancel_futures=True)
    return found


_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def _heed() -> None:
    """A worker leaves Ctrl-C, which the whole group is sent, to its parent (it stays blocked), and ends at a SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])


def compare(scenarios: Sequence[Scenario], policies: Sequence[ScalePolicy], seeds: Sequence[int], *,
            traces: Path | None = None, settings: Callable[[Scenario], Settings] = Scenario.settings,
            bounds: bool = True, workers: int = 1, progress: Progress | None = None) -> list[Row]:
    """A row for each policy in each scenario; with ``bounds`` the static-best and the oracle too."""
    jobs: list[Job] = []
    for scenario in scenarios:
        given = settings(scenario)
        for seed in seeds:  # a seed's arrivals are made once for all its policies
            jobs += [Job(scenario, given, seed, policy, 0, traces) for policy in policies]
            if bounds:
                jobs.append(Job(scenario, given, seed, None, 0, traces))
    trials = STATIC_TRIALS * len(seeds)  # of a fixed fleet, for each scenario: what its search takes at most, or nearly so
    total = len(jobs) + (trials * len(scenarios) if bounds else 0)
    outcomes = iter(play(jobs, workers, _part(progress, 0, total)))
    rows = []
    for number, scenario in enumerate(scenarios):
        by_policy: dict[str, list[Outcome]] = {}
        for _ in seeds:
            for policy in policies:
                by_policy.setdefault(f"{policy.name}={policy.target:g}", []).append(next(outcomes))
            if bounds:
                by_policy.setdefault(ORACLE, []).append(next(outcomes))
        for policy in policies:
            found = by_policy[f"{policy.name}={policy.target:g}"]
            rows.append(Row(scenario.name, policy.name, policy.title, policy.target, tuple(found)))
        if bounds:
            rows.append(Row(scenario.name, ORACLE, "perfect foresight", None, tuple(by_policy[ORACLE])))
            shown = _part(progress, len(jobs) + number * trials, total, trials)
            rows.append(static_best(scenario, settings(scenario), seeds, traces, workers, shown))
    return rows


def _part(progress: Progress | None, begin: int, total: int, size: int = 0) -> Progress | None:
    """The progress of what is a part of the whole: ``begin`` of ``total`` were done before, ``size`` are in the part."""
    if progress is None:
        return None
    return lambda done, _: progress(begin + (min(done, size) if size else done), total)


def static_best(scenario: Scenario, given: Settings, seeds: Sequence[int], traces: Path | None, workers: int,
                progress: Progress | None = None) -> Row:
    """The smallest fixed fleet that reaches the goal on average, by bisection; the largest allowed when none does."""
    tried: dict[int, list[Outcome]] = {}

    def attainment(count: int) -> float:
        if count not in tried:
            jobs = [Job(scenario, given, seed, None, count, traces) for seed in seeds]
            tried[count] = play(jobs, workers, _part(progress, len(tried) * len(seeds), 0))
        return sum(one.attainment for one in tried[count]) / len(seeds)

    low, high = given.low - 1, given.high
    while high - low > 1:
        middle = (low + high) // 2
        if attainment(middle) >= GOAL:
            high = middle
        else:
            low = middle
    attainment(high)
    return Row(scenario.name, STATIC, f"{high} replicas, always", float(high), tuple(tried[high]))


@dataclass(frozen=True)
class Trial:
    """One target of one policy in one scenario: a row for each half of the seeds that was run."""

    target: float
    scenario: str
    halves: tuple[Row, ...]
    holds: bool
    """The goal was reached on average in each half."""


@dataclass(frozen=True)
class Recommendation:
    """The highest target of a policy that holds in all scenarios, None when none does; and what was tried for it."""

    policy: str
    target: float | None
    trials: tuple[Trial, ...]


def sweep(scenarios: Sequence[Scenario], policy: ScalePolicy, seeds: Sequence[int], *, traces: Path | None = None,
          settings: Callable[[Scenario], Settings] = Scenario.settings, targets: Sequence[float] = (), workers: int = 1,
          progress: Progress | None = None) -> list[Row]:
    """A row for each target of a policy in each scenario."""
    grid = tuple(targets) or policy.grid or (policy.target,)
    return compare(scenarios, [policy.scaled(target) for target in grid], seeds, traces=traces, settings=settings,
                   bounds=False, workers=workers, progress=progress)


def halves(seeds: Sequence[int]) -> list[Sequence[int]]:
    """The seeds in two halves (the first has the odd one), or the one seed."""
    middle = (len(seeds) + 1) // 2
    return [part for part in (seeds[:middle], seeds[middle:]) if part]


def recommend(scenarios: Sequence[Scenario], policy: ScalePolicy, seeds: Sequence[int], *, traces: Path | None = None,
              settings: Callable[[Scenario], Settings] = Scenario.settings, targets: Sequence[float] = (),
              workers: int = 1, progress: Progress | None = None, played: Callable[..., list[Outcome]] = play,
              ) -> Recommendation:
    """The highest target that reaches the goal on average in every scenario, in each half of the seeds by itself.

    Targets are tried from the highest down, and a target is given up at the first miss: in which scenario it comes is of no
    matter, so the one that failed the target before goes first. What holds is run whole. ``played`` is for tests.
    """
    order = list(scenarios)
    trials: list[Trial] = []
    grid = sorted(set(targets or policy.grid or (policy.target,)), reverse=True)
    total = len(grid) * len(order) * len(seeds)  # if none were given up
    for number, target in enumerate(grid):
        moved = policy.scaled(target)
        failed: Scenario | None = None
        for place, scenario in enumerate(order):
            rows = []
            begin = (number * len(order) + place) * len(seeds)
            for part in halves(seeds):
                jobs = [Job(scenario, settings(scenario), seed, moved, 0, traces) for seed in part]
                rows.append(Row(scenario.name, moved.name, moved.title, target,
                                tuple(played(jobs, workers, _part(progress, begin, total)))))
                begin += len(part)
                if _attained(rows[-1]) < GOAL:
                    failed = scenario
                    break
            trials.append(Trial(target, scenario.name, tuple(rows), failed is None))
            if failed is not None:
                break
        if failed is None:
            return Recommendation(policy.name, target, tuple(trials))
        order.sort(key=lambda one: one is not failed)
    return Recommendation(policy.name, None, tuple(trials))


def _attained(row: Row) -> float:
    found = row.mean("attainment")
    return found.value if found is not None else 0.0


def highest_regime_targets(rows: Sequence[Row], policy: str) -> Mapping[str, float | None]:
    """From a sweep: for each scenario by itself the highest target at the goal. Their spread is what a move costs."""
    found: dict[str, float | None] = {}
    for name in dict.fromkeys(row.scenario for row in rows):
        good = [row.target for row in rows if row.policy == policy and row.scenario == name
                and row.target is not None and _attained(row) >= GOAL]
        found[name] = max(good, default=None)
    return found


def cost_at(rows: Sequence[Row], attainment: float) -> float | None:
    """From a sweep of one policy in one scenario: the fewest replica-hours that reach an attainment, in a straight line
    between two neighbours of the cheapest points for what they attain; None when no target reaches it.
    """
    points: list[tuple[float, float]] = []
    for row in rows:
        cost = row.mean("replica_hours")
        if cost is not None:
            points.append((cost.value, _attained(row)))
    best: list[tuple[float, float]] = []  # each dearer than the one before, and better
    for cost_, share in sorted(points, key=lambda one: (one[0], -one[1])):
        if not best or share > best[-1][1]:
            best.append((cost_, share))
    before: tuple[float, float] | None = None
    for cost_, share in best:
        if share >= attainment:
            if before is None:
                return cost_
            return before[0] + (cost_ - before[0]) * (attainment - before[1]) / (share - before[1])
        before = cost_, share
    return None


@dataclass(frozen=True)
class Frontier:
    """What a swept policy costs in a scenario where it attains what another one does."""

    scenario: str
    policy: str
    attainment: float
    """The other one's."""
    own: float
    """Its replica-hours."""
    cost: float | None
    """The swept policy's replica-hours for that attainment; None when no target that was swept reaches it."""
    best: float
    """The most that the swept policy attains."""


def frontier(swept: Sequence[Row], own: Sequence[Row]) -> list[Frontier]:
    """The swept policies against ``own``, a row of one policy for each scenario."""
    found = []
    for name in dict.fromkeys(row.policy for row in swept):
        for other in own:
            mine = [row for row in swept if row.policy == name and row.scenario == other.scenario]
            cost = other.mean("replica_hours")
            if cost is not None and mine:
                found.append(Frontier(other.scenario, name, _attained(other), cost.value, cost_at(mine, _attained(other)),
                                      max(_attained(row) for row in mine)))
    return found


def frontier_json(swept: Sequence[Row], own: Sequence[Row]) -> list[dict[str, Any]]:
    """The same as JSON."""
    return [{"scenario": one.scenario, "policy": one.policy, "attainment": round(one.attainment, 6),
             "replica_hours": round(one.own, 6), "cost": None if one.cost is None else round(one.cost, 6),
             "best_attainment": round(one.best, 6)} for one in frontier(swept, own)]


FIGURES: tuple[tuple[str, str], ...] = (
    ("attainment", "both"), ("ttft", "ttft"), ("itl", "itl"), ("replica_hours", "replica-hours"),
    ("preemptions", "preemptions"), ("flaps", "flaps"), ("enough", "enough"), ("lead", "lead"),
    ("first_up", "first scale-up"), ("late", "20th violation"), ("peak", "peak"), ("blind", "blind scale-ins"),
    ("ttft_p99", "ttft p99"),
)


def as_json(rows: Sequence[Row], seeds: Sequence[int]) -> dict[str, Any]:
    """The rows as a JSON document; what is not there is null."""
    return {"seeds": list(seeds), "goal": GOAL, "rows": [_row_json(row) for row in rows]}


def _row_json(row: Row) -> dict[str, Any]:
    def figure(name: str) -> dict[str, float | int | None] | None:
        found = row.mean(name)
        return found.as_json() if found is not None else None

    return {"scenario": row.scenario, "policy": row.policy, "title": row.title, "target": row.target,
            **{name: figure(name) for name, _ in FIGURES}, "never_enough_seeds": row.never}


def recommended_json(found: Sequence[Recommendation], seeds: Sequence[int]) -> dict[str, Any]:
    """Recommendations as a JSON document: the targets, and each trial with the halves of the seeds that were run."""
    parts = halves(seeds)
    return {
        "seeds": list(seeds),
        "goal": GOAL,
        "recommended": {one.policy: one.target for one in found},
        "trials": [
            {"policy": one.policy, "target": trial.target, "scenario": trial.scenario, "holds": trial.holds,
             "halves": [{"seeds": list(part), **_row_json(row)} for part, row in zip(parts, trial.halves, strict=False)]}
            for one in found for trial in one.trials
        ],
    }


def checked(names: Sequence[str]) -> list[str]:
    """Policy names without repetition; InputError for an unknown one."""
    unknown = [name for name in names if name.partition("=")[0] not in POLICIES]
    if unknown:
        raise InputError(f"unknown policy {unknown[0]!r}; one of {', '.join(POLICIES)}")
    return list(dict.fromkeys(names))
