"""Measures a live `obs eval` of the whole pack against prometheus-api-client on the same Prometheus and data.

    python tests/bench/eval.py [--pods 30] [--repeats 5] [--only deployed|undeployed] [--scrapes 40]

Data: both bundled recordings, moved to now, and a fleet of Triton and vLLM pods. Twice: with the pack's recording rules
deployed (their series are there), and without (their expressions are put in place). Peers, all through one
PrometheusConnect, one query after the other:

  alerts only   every alert's expression and nothing else: which alerts have a result. No state, no reason, no ok / no data
  same queries  what `obs eval` asks to tell all that, each question by itself, as one would without bundles
  by hand       the same answers asked for as a person would: every expression; the states of what has a result over the time
                that they need; of what has none, every condition and series in it

Ours: evaluate() in this process; and the whole command, its start included, beside a program of prometheus-api-client that
asks the same, its start included. With rules that are not deployed "same queries" are those with the rules put in, which is how
one asks without `obs eval`; the private Prometheus that it starts for them is in its processor time.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import bench

from obs.alerts.registry import all_groups
from obs.config import load_config, parse_config
from obs.evaluate import explain, live, questions, recording, replay
from obs.evaluate.ranges import Asker
from obs.evaluate.rules import Turns, from_groups
from obs.prom.client import Client
from obs.prom.server import PrivatePrometheus
from obs.render.prometheus import rule_files

RECORDINGS = bench.ROOT / "tests" / "data" / "recordings"


@contextmanager
def world(pods: int, *, deployed: bool, toy: bool = False) -> Iterator[PrivatePrometheus]:
    """A Prometheus with the data (``toy``: of the fleet only); ``deployed``: with the pack's rules loaded and their last ten
    minutes recorded."""
    with ExitStack() as stack:
        files = []
        if deployed:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            # loaded, and not evaluated meanwhile: that is not what is measured
            config = parse_config("interval: {evaluation: 1h}")
            for name, text in rule_files(all_groups(config), config).items():
                files.append(folder / Path(name).name)
                files[-1].write_text(text, encoding="utf-8")
        server = stack.enter_context(PrivatePrometheus(rule_files=files, evaluation_interval="1h"))
        now = int(time.time()) // 30 * 30_000
        points: list[Any] = list(bench.fleet(pods, now - (bench.SCRAPES - 1) * bench.SCRAPE_MS))
        for name in () if toy else ("triton-2.51-incident", "vllm-0.32-incident"):
            one = recording.read(RECORDINGS / f"{name}.tar.gz")
            points += [point._replace(time_ms=point.time_ms + now - one.end_ms) for point in one.points()]
        server.writer.write(sorted(points, key=lambda point: point.time_ms))
        if deployed:
            times = range(now - 600_000, now + 1, 30_000)
            names = server.client.label_values("__name__", start=(now - 86_400_000) / 1000, end=now / 1000)
            replay.record_in_order(Asker(server.client), server, pack(), Turns([]), names, lambda rule: times)
        yield server


def pack() -> list[live.Rule]:
    return from_groups(all_groups(load_config()))


def asked(client: Client) -> list[tuple[str, dict[str, str]]]:
    """Every question of one evaluation, none bundled and with rules put in that are not deployed: (query or query_range, its
    form)."""
    found: list[tuple[str, dict[str, str]]] = []
    fetch, histories = questions.Answers.fetch, live._Run._histories

    def recorded_fetch(self: questions.Answers) -> None:
        found.extend(("query", {"query": self.expand(query), "time": f"{self.at:.3f}"}) for query in self.wanted)
        fetch(self)

    def recorded_histories(self: Any, now: Any, loaded: Any, expand: Any, at: float, stand_in: Any) -> Any:
        jobs = histories(self, now, loaded, expand, at, stand_in)
        for place, job in jobs.items():
            history = job()
            assert not isinstance(history, str)
            end = at
            for count in self._counts(self.alerts[place], self.interval, at):
                start = at - count * self.interval
                if start >= history[1]:
                    form = {"query": expand(self.alerts[place].expr), "start": f"{start:.3f}", "end": f"{end:.3f}"}
                    found.append(("query_range", {**form, "step": f"{self.interval:g}"}))
                end = start - self.interval
        return jobs

    questions.Answers.fetch, live._Run._histories = recorded_fetch, recorded_histories  # type: ignore[method-assign]
    try:
        live.evaluate(client, pack())
    finally:
        questions.Answers.fetch, live._Run._histories = fetch, histories  # type: ignore[method-assign]
    return found


_PROGRAM = """
import json, sys
from prometheus_api_client import PrometheusConnect
peer = PrometheusConnect(url=sys.argv[1])
for path, form in json.load(open(sys.argv[2])):
    if path == "query":
        peer.custom_query(form["query"], params={"time": form["time"]})
    else:
        peer._session.get(peer.url + "/api/v1/query_range", params=form).json()
"""


def by_hand(client: Client, alerts: list[live.Rule], by_name: Any) -> list[tuple[str, dict[str, str]]]:
    """The questions of one who has no evaluator: (query or query_range, its form)."""
    at = time.time()
    unions: explain.Unions = {}
    found: list[tuple[str, dict[str, str]]] = []

    def text_of(expr: str) -> str:
        return explain.expand(expr, by_name, "30s", unions).text

    for rule in alerts:
        text = text_of(rule.expr)
        found.append(("query", {"query": text, "time": f"{at:.3f}"}))
        if client.query(text, at):
            start = at - max(2 * rule.hold_ms / 1000, 900.0) - rule.keep_ms / 1000
            found.append(("query_range", {"query": text, "start": f"{start:.3f}", "end": f"{at:.3f}", "step": "30"}))
            continue
        for part in itertools.islice(explain.walk(explain.take_apart(rule.expr)), 1, None):
            if part.kind not in {"scalar", "range"}:
                found.append(("query", {"query": text_of(part.text), "time": f"{at:.3f}"}))
    return found


def timed(run: Callable[[], object], repeats: int, server: PrivatePrometheus) -> tuple[float, float, float, float]:
    """Median and least seconds, and least processor seconds of ours (with the programs that it starts) and of the server,
    after one run to warm up. What takes long is not repeated as often."""
    begun = time.perf_counter()
    run()
    taken, ours, theirs = [], [], []
    for _ in range(repeats if time.perf_counter() - begun < 3 else min(repeats, 2)):
        begun, mine, its = time.perf_counter(), time.process_time() + bench.children(), bench.processor(server.pid)
        run()
        taken.append(time.perf_counter() - begun)
        ours.append(time.process_time() + bench.children() - mine)
        theirs.append(bench.processor(server.pid) - its)
    return statistics.median(taken), min(taken), min(ours), min(theirs)


def measure(pods: int, repeats: int, *, deployed: bool, toy: bool) -> None:
    from prometheus_api_client import PrometheusConnect

    with world(pods, deployed=deployed, toy=toy) as server, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rules = pack()
        by_name = {} if deployed else explain.by_name(rules)
        unions: explain.Unions = {}
        texts = [explain.expand(rule.expr, by_name, "30s", unions).text for rule in rules if rule.kind == "alert"]
        peer = PrometheusConnect(url=server.url)
        same = asked(server.client)
        hand = by_hand(server.client, [rule for rule in rules if rule.kind == "alert"], by_name)
        environment = bench.compiled(folder)

        def ask(ones: list[tuple[str, dict[str, str]]]) -> None:
            for path, form in ones:
                if path == "query":
                    peer.custom_query(form["query"], params={"time": form["time"]})
                else:
                    peer._session.get(f"{peer.url}/api/v1/query_range", params=form).json()

        def command(*words: str) -> Callable[[], object]:
            return lambda: subprocess.run(words, check=False, capture_output=True, cwd=bench.ROOT, env=environment)

        def program(ones: list[tuple[str, dict[str, str]]], stem: str) -> Callable[[], object]:
            file = folder / f"{stem}.json"
            file.write_text(json.dumps(ones), encoding="utf-8")
            return command(sys.executable, "-c", _PROGRAM, server.url, str(file))

        inside: dict[str, Callable[[], object]] = {
            f"prometheus-api-client: alerts only ({len(texts)})": lambda: [peer.custom_query(text) for text in texts],
            f"prometheus-api-client: same queries ({len(same)})": lambda: ask(same),
            f"prometheus-api-client: by hand ({len(hand)})": lambda: ask(hand),
            "evaluate()": lambda: live.evaluate(server.client, rules),
        }
        whole = {
            "a program that asks the same queries": program(same, "same"),
            "a program that asks by hand": program(hand, "hand"),
            "python -m obs eval": command(sys.executable, "-m", "obs", "eval", "--prometheus", server.url),
        }
        print(f"\n{'rules deployed' if deployed else 'rules not deployed'}, {pods} pods, load {os.getloadavg()[0]:.1f} "
              f"on {os.cpu_count()} CPUs\n{'':<46}{'median':>9}{'least':>9}{'processor':>11}{'server':>9}   "
              "times faster than each row above (least time; processor time of both sides)")
        for runs in (inside, whole):
            peers: list[tuple[float, float]] = []
            for what, run in runs.items():
                median, least, cpu, its = timed(run, repeats, server)
                last = what == [*runs][-1]
                ratios = [f"{other / least:.2f} x; {both / (cpu + its):.2f} x" for other, both in peers] if last else []
                row = f"{what:<46}{median:>8.3f}s{least:>8.3f}s{cpu:>10.2f}s{its:>8.2f}s"
                print("   ".join([row, *ratios]), flush=True)
                peers.append((least, cpu + its))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pods", type=int, default=30)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=("deployed", "undeployed"))
    parser.add_argument("--scrapes", type=int, default=bench.SCRAPES, help="of the fleet, every 30 s; 40 are twenty minutes")
    parser.add_argument("--toy", action="store_true", help="without the recordings: to see that it runs")
    args = parser.parse_args()
    bench.SCRAPES = args.scrapes
    for deployed in (True, False):
        if args.only in (None, "deployed" if deployed else "undeployed"):
            measure(args.pods, args.repeats, deployed=deployed, toy=args.toy)


if __name__ == "__main__":
    main()
