"""``obs simulate``: replicas under an autoscaler, simulated; ``--compare``, ``--sweep``, ``--recommend``, ``--profile``."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obs.errors import EXIT_FINDINGS, EXIT_OK, InputError, OutputError

if TYPE_CHECKING:
    from obs.simulate.compare import Row
    from obs.simulate.fleet import Fault, Settings
    from obs.simulate.policies import ScalePolicy
    from obs.simulate.scenarios import Scenario

DEFAULT_SEEDS = 5
RECOMMEND_SEEDS = 10
"""Two halves: a target must hold in each."""
RECOMMENDED_FOR = "projected"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--compare", action="store_true", help="several policies on the same arrivals, with several seeds")
    what.add_argument("--sweep", action="store_true", help="each policy at many targets")
    what.add_argument("--recommend", action="store_true",
                      help=f"the highest target that holds in every regime, in each half of the seeds (policy "
                           f"{RECOMMENDED_FOR} unless given); exit code 1 when there is none")
    what.add_argument("--profile", action="store_true", help="what one replica can take: its decode capacity")
    what.add_argument("--list", action="store_true", help="scenarios, policies, engines, routers, faults, the model's limits")
    work = parser.add_argument_group("workload")
    work.add_argument("--scenario", action="append", default=[], metavar="NAME",
                      help="a regime (repeatable; default: kv for a single run, else all five regimes)")
    work.add_argument("--trace", type=Path, metavar="FILE", help="CSV: time, prompt_tokens, output_tokens (also .gz)")
    work.add_argument("--copies", type=_positive, default=1.0, metavar="N", help="play --trace at N times its rate")
    work.add_argument("--arrivals", metavar="KIND:…",
                      help="poisson:RATE, bursts:LOW:HIGH, diurnal:LOW:HIGH or burstgpt:RATE, in requests per second")
    work.add_argument("--duration", type=_positive, metavar="SECONDS", help="how long (default: the scenario's, or 7200)")
    work.add_argument("--traces", type=Path, metavar="DIR", help="folder of the Azure LLM 2023 traces (conversation, code)")
    model = parser.add_argument_group("service")
    model.add_argument("--engine", metavar="NAME", help="engine preset (see --list)")
    model.add_argument("--kv-tokens", type=int, metavar="N", help="KV-cache capacity in tokens")
    model.add_argument("--start-up", type=_positive, metavar="SECONDS", help="from a pod's start to ready")
    model.add_argument("--decode-capacity", type=_positive, metavar="TOKENS", help="what the sidecar is told, tokens/s")
    model.add_argument("--slo-ttft", type=_positive, metavar="SECONDS", help="time to first token (default 2)")
    model.add_argument("--slo-itl", type=_positive, metavar="SECONDS", help="mean gap between tokens (default 0.06)")
    model.add_argument("--router", metavar="NAME", help="how requests reach replicas (default least-requests)")
    scaling = parser.add_argument_group("autoscaler")
    scaling.add_argument("--policy", action="append", default=[], metavar="NAME[=TARGET]", help="repeatable (see --list)")
    scaling.add_argument("--controller", choices=("hpa", "keda"), help="HPA with Pods metrics, or KEDA (default hpa)")
    scaling.add_argument("--min", type=int, metavar="N", help="least replicas")
    scaling.add_argument("--max", type=int, metavar="N", help="most replicas")
    scaling.add_argument("--scrape", type=_positive, metavar="SECONDS", help="Prometheus' interval (default 15)")
    scaling.add_argument("--sample", type=_positive, metavar="SECONDS", help="the sidecar's interval (default 1)")
    scaling.add_argument("--fault", action="append", default=[], metavar="KIND:START:SECONDS[:PODS]",
                         help="prometheus, exporter, signals, hang or kill (repeatable)")
    run_ = parser.add_argument_group("run and output")
    run_.add_argument("--seed", type=int, default=1, metavar="N", help="the first seed (default 1)")
    run_.add_argument("--seeds", metavar="N|A-B", help="how many seeds, or which: 6-10, or 1,3,8 (default "
                      f"{DEFAULT_SEEDS}, --recommend {RECOMMEND_SEEDS}; a single run has one)")
    run_.add_argument("--targets", metavar="T,T,…", help="targets of --sweep and --recommend")
    run_.add_argument("--against", metavar="NAME[=TARGET]",
                      help="with --sweep: what each policy costs where it reaches the attainment of this one")
    run_.add_argument("--jobs", type=int, default=1, metavar="N", help="processes (the result is the same)")
    run_.add_argument("--format", choices=("table", "json"), default="table", help="output form (default: %(default)s)")
    run_.add_argument("--html", type=Path, metavar="FILE", help="write the comparison or the sweep as an HTML page too")


def run(args: argparse.Namespace) -> int:
    """The exit code: 0, or 1 when --recommend finds no target."""
    if args.list:
        return _list()
    args.seeds = _seeds_given(args)
    if args.jobs < 1:
        raise InputError(f"--jobs {args.jobs}: at least one")
    if args.html is not None and not (args.compare or args.sweep):
        raise InputError("--html goes with --compare or --sweep")
    if args.html is not None and not args.html.parent.is_dir():
        raise InputError(f"--html {args.html}: there is no folder {args.html.parent}")
    if args.targets is not None and not (args.sweep or args.recommend):
        raise InputError("--targets goes with --sweep or --recommend; for a single run write --policy NAME=TARGET")
    if args.against is not None and not args.sweep:
        raise InputError("--against goes with --sweep")
    if args.traces is not None and not args.traces.is_dir():
        raise InputError(f"--traces {args.traces}: no such folder")
    if args.profile:
        return _profile(args)
    if args.compare:
        return _compare(args)
    if args.recommend:
        return _recommend(args)
    if args.sweep:
        return _sweep(args)
    return _single(args)


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


# --- what is simulated -------------------------------------------------------------------------------


def _scenarios(args: argparse.Namespace, many: bool) -> list[Scenario]:
    from obs.simulate import scenarios

    if args.trace is not None and args.arrivals is not None:
        raise InputError("--trace and --arrivals exclude each other")
    if args.trace is not None or args.arrivals is not None:
        if args.scenario:
            raise InputError("--scenario and --trace or --arrivals exclude each other")
        return [_own(args)]
    names = args.scenario or (list(scenarios.REGIMES) if many else ["kv"])
    found = [scenarios.scenario(name) for name in dict.fromkeys(names)]
    lacking = [one for one in found if one.trace and args.traces is None]
    if lacking:
        raise InputError(f"scenario {lacking[0].name}: needs {lacking[0].trace}; give its folder with --traces DIR, "
                         "or name other scenarios with --scenario")
    return found


def _own(args: argparse.Namespace) -> Scenario:
    from obs.simulate.arrivals import BURSTGPT_LENGTHS, bursts, constant, diurnal, read_trace
    from obs.simulate.hardware import ENGINES
    from obs.simulate.scenarios import CHAT, Scenario

    engine = ENGINES["reference-40k"]
    if args.trace is not None:
        seconds = read_trace(args.trace)[-1].at + 1.0
        return Scenario("trace", f"{args.trace.name}, {args.copies:g} times its rate", engine, seconds, 890.0,
                        trace=str(args.trace.resolve()), copies=args.copies)
    kind, *numbers = args.arrivals.split(":")
    try:
        rates = [_positive(number) for number in numbers]
    except (ValueError, argparse.ArgumentTypeError):
        raise InputError(f"--arrivals {args.arrivals}: rates must be numbers above 0") from None
    counts = {"poisson": 1, "bursts": 2, "diurnal": 2, "burstgpt": 1}
    if kind not in counts or len(rates) != counts[kind]:
        raise InputError(f"--arrivals {args.arrivals}: write poisson:RATE, bursts:LOW:HIGH, diurnal:LOW:HIGH or burstgpt:RATE")
    if len(rates) == 2 and rates[0] > rates[1]:
        raise InputError(f"--arrivals {args.arrivals}: the low rate is above the high one")
    if max(rates) > 10_000:
        raise InputError(f"--arrivals {args.arrivals}: more than 10,000 requests per second")
    if kind == "burstgpt":
        return Scenario("burstgpt", f"BurstGPT's shape at {rates[0]:g} requests/s", engine, 86_400.0, 890.0, BURSTGPT_LENGTHS,
                        diurnal(0.4 * rates[0], 1.6 * rates[0]), cv=2.0)
    ramp = {"poisson": lambda: constant(rates[0]), "bursts": lambda: bursts(*rates),
            "diurnal": lambda: diurnal(*rates)}[kind]()
    marks = ((960.0, rates[1]), (4560.0, rates[1])) if kind == "bursts" else ()
    return Scenario(kind, args.arrivals, engine, 86_400.0 if kind == "diurnal" else 7200.0, 890.0, CHAT, ramp,
                    cv=2.0 if kind == "bursts" else 1.0, bursts=marks)


def _adjusted(args: argparse.Namespace, scenario: Scenario) -> Scenario:
    """The scenario with the engine, objectives and times that the arguments give."""
    from obs.simulate.hardware import ENGINES

    engine = scenario.engine
    if args.engine is not None:
        if args.engine not in ENGINES:
            raise InputError(f"unknown engine {args.engine!r}; one of {', '.join(ENGINES)}")
        engine = ENGINES[args.engine]
        if args.decode_capacity is None and not args.profile:
            raise InputError(f"--engine {args.engine}: say its --decode-capacity too; "
                             "obs simulate --profile with the same arguments finds it")
    if args.kv_tokens is not None:
        engine = replace(engine, kv_tokens=args.kv_tokens)
    if args.start_up is not None:
        engine = replace(engine, load=args.start_up)
    slo = replace(scenario.slo, ttft=args.slo_ttft or scenario.slo.ttft, itl=args.slo_itl or scenario.slo.itl)
    if scenario.trace and args.duration is not None and args.duration > scenario.seconds:
        raise InputError(f"--duration {args.duration:g}: the trace has {scenario.seconds:.0f} s")
    return replace(
        scenario, engine=engine, slo=slo, seconds=args.duration or scenario.seconds,
        decode_capacity=args.decode_capacity or scenario.decode_capacity,
        low=scenario.low if args.min is None else args.min, high=scenario.high if args.max is None else args.max,
    )


class _Given:
    """The settings of a scenario, as the arguments say; a class, so that a process can be given it."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.changes: dict[str, Any] = {
            name: value for name, value in (
                ("router", args.router), ("controller", args.controller), ("scrape", args.scrape), ("sample", args.sample),
            ) if value is not None
        }
        self.changes["faults"] = tuple(_fault(text) for text in args.fault)

    def __call__(self, scenario: Scenario) -> Settings:
        return replace(scenario.settings(), **self.changes)


def _fault(text: str) -> Fault:
    from obs.simulate.fleet import FAULTS, Fault

    kind, *numbers = text.split(":")
    if kind not in FAULTS:
        raise InputError(f"--fault {text}: unknown kind {kind!r}; one of {', '.join(FAULTS)}")
    try:
        start, seconds = float(numbers[0]), float(numbers[1])
        pods = int(numbers[2]) if len(numbers) > 2 else 1
        if len(numbers) > 3:
            raise ValueError
    except (ValueError, IndexError):
        raise InputError(f"--fault {text}: write KIND:START:SECONDS or KIND:START:SECONDS:PODS") from None
    return Fault(kind, start, seconds, pods)  # type: ignore[arg-type]


def _policies(args: argparse.Namespace, default: Sequence[str]) -> list[ScalePolicy]:
    from obs.simulate.policies import policy

    return [policy(text) for text in dict.fromkeys(args.policy or default)]


def _checked(args: argparse.Namespace, many: bool) -> tuple[list[Scenario], _Given]:
    from obs.simulate.router import router

    given = _Given(args)
    found = [_adjusted(args, one) for one in _scenarios(args, many)]
    for one in found:
        router(given(one).router, 0)
        _checked_sample(given(one))
    return found, given


def _checked_sample(settings: Settings) -> None:
    from obs.simulate import observe

    observe.settings(settings.decode_capacity, settings.sample)


def _seeds_given(args: argparse.Namespace) -> list[int] | None:
    """The seeds of --seeds (a number counts from --seed on), or None."""
    text: str | None = args.seeds
    if text is None:
        return None
    try:
        if "," in text:
            found = [int(one) for one in text.split(",")]
        elif "-" in text[1:]:
            low, high = (int(one) for one in text.split("-"))
            found = list(range(low, high + 1))
        else:
            found = list(range(args.seed, args.seed + int(text)))
    except ValueError:
        raise InputError(f"--seeds {text}: write a number, a range as 6-10, or a list as 1,3,8") from None
    if not found:
        raise InputError(f"--seeds {text}: at least one")
    if args.seed != 1 and ("," in text or "-" in text[1:]):
        raise InputError(f"--seeds {text}: names the seeds; --seed goes with a number of them")
    if len(set(found)) < len(found):
        raise InputError(f"--seeds {text}: a seed is there twice")
    return found


def _seeds(args: argparse.Namespace, count: int = DEFAULT_SEEDS) -> list[int]:
    return args.seeds or list(range(args.seed, args.seed + count))


# --- what is done -------------------------------------------------------------------------------------


def _single(args: argparse.Namespace) -> int:
    from obs.simulate import report
    from obs.simulate.fleet import Fleet

    if len(args.policy) > 1 or len(args.scenario) > 1 or len(args.seeds or [1]) > 1:
        raise InputError("a single run takes one scenario, one policy and one seed; several go with --compare")
    (scenario,), given = _checked(args, False)
    (policy,) = _policies(args, [RECOMMENDED_FOR])
    settings = given(scenario)
    (seed,) = args.seeds or [args.seed]
    arrivals = scenario.arrivals(seed, args.traces or Path("."))
    with _progress() as show:
        result = Fleet(settings, arrivals, policy, seed).run(
            (lambda at: show(int(at), int(settings.seconds))) if show is not None else None)
    title = f"{scenario.name}: {scenario.title}; policy {policy.name} at {policy.target:g}, seed {seed}"
    if args.format == "json":
        requests = max(1, result.requests)
        print(json.dumps({
            "scenario": scenario.name, "policy": policy.name, "target": policy.target, "seed": seed,
            "requests": result.requests, "failed": result.failed, "attainment": round(result.attainment, 6),
            "ttft": round(result.ttft_good / requests, 6), "itl": round(result.itl_good / requests, 6),
            "replica_hours": round(result.replica_hours, 6), "preemptions": result.preemptions,
            "scale_ups": result.scale_ups, "scale_downs": result.scale_downs, "flaps": result.flaps,
            "blind_scale_ins": result.blind_scale_ins, "peak": result.peak,
            "replicas": [[round(at, 3), wanted, ready] for at, wanted, ready in result.replicas],
        }, indent=2, allow_nan=False))
    else:
        print("\n".join(report.single(settings, result, title)))
    return EXIT_OK


def _compare(args: argparse.Namespace) -> int:
    from obs.simulate import compare, report
    from obs.simulate.policies import COMPARED

    scenarios, given = _checked(args, True)
    seeds, policies = _seeds(args), _policies(args, COMPARED)
    with _progress() as show:
        rows = compare.compare(scenarios, policies, seeds, traces=_traces(args), settings=given, workers=args.jobs,
                               progress=show)
    titles = {one.name: one.title for one in scenarios}
    if args.html is not None:
        _page(args.html, *report.page(rows, titles, seeds, _command()))
    if args.format == "json":
        print(json.dumps(compare.as_json(rows, seeds), indent=2, allow_nan=False))
    else:
        print("\n".join(report.comparison(rows, titles, seeds)))
    return EXIT_OK


def _sweep(args: argparse.Namespace) -> int:
    from obs.simulate import compare, report
    from obs.simulate.policies import COMPARED, policy

    scenarios, given = _checked(args, True)
    seeds = _seeds(args)
    policies = _policies(args, COMPARED)
    targets = _targets(args.targets)
    rival = policy(args.against) if args.against is not None else None
    rows: list[Row] = []
    for one in policies:
        with _progress(f"{one.name} ") as show:
            rows += compare.sweep(scenarios, one, seeds, traces=_traces(args), settings=given, targets=targets,
                                  workers=args.jobs, progress=show)
    own: list[Row] = []
    if rival is not None:
        with _progress(f"{rival.name} ") as show:
            own = compare.compare(scenarios, [rival], seeds, traces=_traces(args), settings=given, bounds=False,
                                  workers=args.jobs, progress=show)
    if args.html is not None:
        _page(args.html, *report.sweep_page(rows, own, {one.name: one.title for one in scenarios}, seeds, _command()))
    if args.format == "json":
        found = compare.as_json(rows, seeds)
        if own:
            found["against"] = compare.frontier_json(rows, own)
        print(json.dumps(found, indent=2, allow_nan=False))
    else:
        print("\n".join([*report.sweep(rows), *(report.frontier(rows, own) if own else [])]).rstrip())
    return EXIT_OK


def _recommend(args: argparse.Namespace) -> int:
    from obs.simulate import compare, report

    scenarios, given = _checked(args, True)
    seeds, targets = _seeds(args, RECOMMEND_SEEDS), _targets(args.targets)
    with _progress() as show:
        found = [compare.recommend(scenarios, policy, seeds, traces=_traces(args), settings=given, targets=targets,
                                   workers=args.jobs, progress=show) for policy in _policies(args, [RECOMMENDED_FOR])]
    if args.format == "json":
        print(json.dumps(compare.recommended_json(found, seeds), indent=2, allow_nan=False))
    else:
        names = [one.name for one in scenarios]
        print("\n\n".join("\n".join(report.recommendation(one, names, seeds)) for one in found))
    return EXIT_FINDINGS if any(one.target is None for one in found) else EXIT_OK


def _profile(args: argparse.Namespace) -> int:
    from obs.simulate import report
    from obs.simulate.profile import WANTED, capacity

    scenarios, _ = _checked(args, False)
    rows, document = [], []
    for one in scenarios:
        found = capacity(one.engine, one.sizes(_traces(args)), one.slo, len(args.seeds or [1, 2, 3]))
        rows.append([one.name, one.engine.name, f"{found.rate:.2f}", f"{found.tokens:.0f}", f"{100 * found.attainment:.1f}"])
        document.append({"scenario": one.name, "engine": one.engine.name, "requests_per_second": round(found.rate, 4),
                         "decode_tokens_per_second": round(found.tokens, 2), "attainment": round(found.attainment, 4)})
    if args.format == "json":
        print(json.dumps(document, indent=2, allow_nan=False))
    else:
        print("\n".join(report.table(("scenario", "engine", "requests/s", "decode tokens/s", "SLO %"), rows)))
        print(f"the highest rate of one replica at which {WANTED:.0%} of requests meet both objectives")
    return EXIT_OK


def _list() -> int:
    from obs.simulate.fleet import FAULTS
    from obs.simulate.hardware import ENGINES, LIMITS
    from obs.simulate.policies import POLICIES
    from obs.simulate.report import table
    from obs.simulate.router import ROUTERS
    from obs.simulate.scenarios import SCENARIOS

    tables = (
        table(("scenario", "what"), [[one.name, one.title] for one in SCENARIOS.values()]),
        table(("policy", "signal and target", "source"), [[one.name, one.title, one.source] for one in POLICIES.values()]),
        table(("engine", "source", "KV tokens", "step ms", "prefill µs/token", "start-up s"), [
            [one.name, one.source.partition(";")[0], str(one.kv_tokens), f"{1000 * one.cost.base:.1f}",
             f"{1e6 * one.cost.prefill:.0f}", f"{one.load:.0f}"] for one in ENGINES.values()]),
        table(("router", "which replica"), [[name, text] for name, (text, _) in ROUTERS.items()]),
        table(("fault", "what happens"), [[name, text] for name, text in FAULTS.items()]),
        ["what the cost model leaves out:", *(f"- {text}" for text in LIMITS)],
    )
    print("\n\n".join("\n".join(lines) for lines in tables))
    return EXIT_OK


# --- small things -------------------------------------------------------------------------------------


def _targets(text: str | None) -> list[float]:
    if text is None:
        return []
    try:
        return [_positive(one) for one in text.split(",")]
    except (ValueError, argparse.ArgumentTypeError):
        raise InputError(f"--targets {text}: write numbers above 0, with commas") from None


def _traces(args: argparse.Namespace) -> Path:
    return args.traces if args.traces is not None else Path(".")


def _command() -> str:
    return "obs " + " ".join(sys.argv[1:])


@contextmanager
def _progress(what: str = "") -> Iterator[Callable[[int, int], None] | None]:
    """A percentage on the terminal while it goes on; the line is empty again afterwards, also after an interrupt."""
    if not sys.stderr.isatty():
        yield None
        return
    shown = -1

    def show(done: int, total: int) -> None:
        nonlocal shown
        percent = 100 * done // max(1, total)
        if percent != shown:
            shown = percent
            print(f"\rsimulating {what}{percent} %", end="", file=sys.stderr, flush=True)

    try:
        show(0, 1)
        yield show
    finally:
        print(f"\r{'':{len(what) + 20}}\r", end="", file=sys.stderr, flush=True)


def _page(path: Path, text: str, charts: bool) -> None:
    _write(path, text)
    if not charts:
        print(f"obs: {path}: has no charts; pip install 'obs-inference[report]' brings matplotlib", file=sys.stderr)


def _write(path: Path, text: str) -> None:
    """All or nothing."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(name, 0o644)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise OutputError(f"--html {path}: {error.strerror}") from None
