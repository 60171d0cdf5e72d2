"""Measures a live `obs eval` of the whole pack against prometheus-api-client on the same Prometheus and data.

    python tests/bench/eval.py [--pods 30] [--repeats 5] [--only deployed|undeployed]

Data: both bundled recordings, moved to now, and a fleet of Triton and vLLM pods. Twice: with the pack's recording rules
deployed (their series are there), and without (their expressions are put in place). Peers, all through one
PrometheusConnect, one query after the other:

  alerts only   every alert's expression and nothing else: which alerts have a result. No state, no reason, no ok / no data
  same queries  what `obs eval` asks to tell all that, each question by itself, as one would without bundles
  by hand       the same answers asked for as a person would: every expression; the states of what has a result over the time
                that they need; of what has none, every condition and series in it

Ours: evaluate() in this process, and the whole command, its start included.
"""

from __future__ import annotations

import argparse
import itertools
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
    """Every question of one evaluation, none bundled: (query or query_range, its form)."""
    found: list[tuple[str, dict[str, str]]] = []
    fetch, call = questions.Answers.fetch, Client._call

    def recorded_fetch(self: questions.Answers) -> None:
        found.extend(("query", {"query": self.expand(query), "time": f"{self.at:.3f}"}) for query in self.wanted)
        fetch(self)

    def recorded_call(self: Client, path: str, form: Any) -> Any:
        if path.endswith("query_range"):
            found.append(("query_range", dict(form)))
        return call(self, path, form)

    questions.Answers.fetch, Client._call = recorded_fetch, recorded_call  # type: ignore[method-assign]
    try:
        live.evaluate(client, pack())
    finally:
        questions.Answers.fetch, Client._call = fetch, call  # type: ignore[method-assign]
    return found


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
    """Median and least seconds, and least processor seconds of ours and of the server, after one run to warm up."""
    run()
    taken, ours, theirs = [], [], []
    for _ in range(repeats):
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
        questions = asked(server.client)
        hand = by_hand(server.client, [rule for rule in rules if rule.kind == "alert"], by_name)

        def ask(ones: list[tuple[str, dict[str, str]]]) -> None:
            for path, form in ones:
                if path == "query":
                    peer.custom_query(form["query"], params={"time": form["time"]})
                else:
                    params = {key: form[key] for key in ("query", "start", "end", "step")}
                    peer._session.get(f"{peer.url}/api/v1/query_range", params=params).json()

        words = [sys.executable, "-m", "obs", "eval", "--prometheus", server.url]
        environment = bench.compiled(folder)
        runs: dict[str, Callable[[], object]] = {
            f"prometheus-api-client: alerts only ({len(texts)})": lambda: [peer.custom_query(text) for text in texts],
            f"prometheus-api-client: same queries ({len(questions)})": lambda: ask(questions),
            f"prometheus-api-client: by hand ({len(hand)})": lambda: ask(hand),
            "evaluate()": lambda: live.evaluate(server.client, rules),
            "python -m obs eval": lambda: subprocess.run(
                words, check=False, capture_output=True, cwd=bench.ROOT, env=environment
            ),
        }
        rows = {name: timed(run, repeats, server) for name, run in runs.items()}
        peers = list(rows.values())[:3]
        print(f"\n{'rules deployed' if deployed else 'rules not deployed'}, {pods} pods, load {os.getloadavg()[0]:.1f} "
              f"on {os.cpu_count()} CPUs")
        print(f"{'':<48}{'median':>9}{'least':>9}{'processor':>11}{'server':>9}   times faster (least; in processor time, both "
              "sides) than: alerts only, same queries, by hand")
        for what, (median, least, cpu, its) in rows.items():
            ratios = [f"{other / least:.2f} x; {(one + two) / (cpu + its):.2f} x" for _, other, one, two in peers]
            ours = "   ".join(["", *ratios])
            print(f"{what:<48}{median:>8.3f}s{least:>8.3f}s{cpu:>10.2f}s{its:>8.2f}s{'' if what.startswith('prom') else ours}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pods", type=int, default=30)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=("deployed", "undeployed"))
    parser.add_argument("--toy", action="store_true", help="without the recordings: to see that it runs")
    args = parser.parse_args()
    for deployed in (True, False):
        if args.only in (None, "deployed" if deployed else "undeployed"):
            measure(args.pods, args.repeats, deployed=deployed, toy=args.toy)


if __name__ == "__main__":
    main()
