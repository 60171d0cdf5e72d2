"""Measures a backtest of the whole pack against `vmalert -replay`, on the same rules, Prometheus and data.

    python tests/bench/backtest.py [--days 1] [--pods 10] [--models 2]

A private Prometheus is given a fleet (half Triton pods, half vLLM pods) with incidents, one sample a minute. One day (or
less) is written; each other day is a copy of its block at another time (tests/tsdb_blocks.py), so counters begin anew at
midnight, as after a restart of all servers. 30 days of 200 pods are 630 M samples and 1.6 GB of disk. Ours is
asked first, in a process of its own whose peak memory is measured; then vmalert replays, writing recorded series and
ALERTS back into the same Prometheus, as it must for rules that read recorded series. Where the two differ is printed
per alert. vmalert's flush interval and its delay between rules are set to the least that chained rules allow (1 s).

vmalert asks in pieces that share the time where they meet, and writes that twice. Prometheus adds in another order each time,
so the two values can differ in the last bit; it refuses the second (400, duplicate sample for timestamp), and vmalert drops
all that it sent with it, up to 1,000 series: rules that read them then find nothing. So each of its runs here is one piece, of
as many steps as Prometheus allows; 30 days take four runs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from array import array
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from obs.evaluate import backtest
    from obs.evaluate.rules import Rule
    from obs.prom.client import Client
    from obs.prom.server import PrivatePrometheus

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
STEP_MS, DAY_MS = 60_000, 86_400_000
PIECE = 10_900  # steps of one question: Prometheus allows 11,000
ARGUMENTS = ("--query.max-samples=100000000", "--web.enable-admin-api")
END_MS = 1_796_000_400_000 // STEP_MS * STEP_MS


def series(days: float, pods: int, models: int) -> Iterator[tuple[tuple[tuple[str, str], ...], range, array[float]]]:
    """The fleet's series: every tenth pod has a bad hour once a day, in another hour each."""
    from tests.bench import bench

    bench.MODELS = models
    steps = round(days * 86_400_000) // STEP_MS
    times = range(END_MS - (steps - 1) * STEP_MS, END_MS + 1, STEP_MS)
    made: dict[tuple[str, float, int], array[float]] = {}
    for labels, step in bench.fleet_series(pods):
        name = dict(labels)["__name__"]
        pod = int(dict(labels)["pod"].split("-")[1])
        bad = pod // 10 % 24 if pod % 10 in {3, 4} else -1
        key = (name, step, bad)
        if key not in made:
            made[key] = _values(name, step, bad, steps)
        yield labels, times, made[key]


def fill(server: PrivatePrometheus, days: float, pods: int, models: int) -> int:
    """Give a server the fleet's samples; how many there are."""
    if days <= 1:
        return server.writer.write_series(series(days, pods, models))
    if days != int(days):
        sys.exit("--days: more than one day must be whole days")
    from tests.tsdb_blocks import Block, snapshot

    samples = server.writer.write_series(series(1, pods, models))
    block = Block(snapshot(server))
    for day in range(1, int(days)):
        block.write(server.data, -day * DAY_MS)
    shutil.rmtree(server.data / "snapshots")
    first = END_MS / 1000 - (days - 1) * 86_400  # the server looks for new blocks once a minute
    while not server.client.query("count(up)", first):
        time.sleep(1)
    return samples * int(days)


def _values(name: str, step: float, bad: int, steps: int) -> array[float]:
    out = array("d")
    value = 1.0
    for index in range(steps):
        trouble = index // 60 % 24 == bad
        if name == "up":
            value = 0.0 if trouble and index % 60 > 50 else 1.0
        elif "waiting" in name or "pending" in name:
            value = 40.0 if trouble else float(index % 3)
        elif "kv_cache" in name:
            value = 0.98 if trouble else 0.4 + index % 7 / 50
        elif step == 0:
            value = 1.0 + index % 5
        else:
            slow = any(part in name for part in ("duration", "_sum", "failure", "preempt"))
            value += step * 2 * (40.0 if trouble and slow else 1.0) * (1 + index % 4)
        out.append(value)
    return out


def by_the_minute(rules: list[str], folder: Path) -> list[str]:
    """Copies of rule files whose groups are evaluated every minute, for both sides."""
    made = []
    for path in rules:
        copy = folder / Path(path).name
        copy.write_text(re.sub(r"^( *interval:) .*$", r"\1 1m", Path(path).read_text(), flags=re.MULTILINE))
        made.append(str(copy))
    return made


def cpu(pid: int) -> float:
    """Processor seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ours(url: str, start_ms: int, rules: list[str], how: backtest.How) -> None:
    """The child process: a backtest, and what it took, as JSON."""
    from obs.evaluate import backtest
    from obs.evaluate.rules import load_rule_files
    from obs.prom.client import Client

    loaded = load_rule_files(rules)
    begun = time.perf_counter()
    with Client(url, deadline=300.0) as client:
        history = backtest.over_server(client, loaded, start_ms=start_ms, end_ms=END_MS, step_ms=STEP_MS, how=how)
    took = time.perf_counter() - begun
    usage, private = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    firing = [
        [one.labels, span.start_ms, span.end_ms, span.state] for one in history.timeline.instances for span in one.spans
    ]
    print(json.dumps({
        "seconds": took, "cpu": usage.ru_utime + usage.ru_stime, "rss": usage.ru_maxrss / 1024, "firing": firing,
        "private": private.ru_utime + private.ru_stime,
        "how": dict(Counter(choice.how for choice in history.choices)), "warnings": history.warnings,
    }))  # fmt: skip


def main() -> None:
    from obs.evaluate.rules import load_rule_files
    from obs.prom.server import PrivatePrometheus

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--days", type=float, default=1.0)
    parser.add_argument("--pods", type=int, default=10)
    parser.add_argument("--models", type=int, default=2, help="models of each Triton pod")
    parser.add_argument("--rules", nargs="+", default=[str(path) for path in sorted((ROOT / "alerts/rules").glob("*.yaml"))])
    parser.add_argument("--how", choices=("auto", "expand", "first"), default="auto")
    parser.add_argument("--no-peer", action="store_true", help="ours only")
    parser.add_argument("--child", metavar="URL", help=argparse.SUPPRESS)
    args = parser.parse_args()
    start_ms = END_MS - round(args.days * 86_400_000) + STEP_MS
    if args.child:
        ours(args.child, start_ms, args.rules, args.how)
        return
    with tempfile.TemporaryDirectory() as folder, PrivatePrometheus(arguments=ARGUMENTS) as server:
        args.rules = by_the_minute(args.rules, Path(folder))
        begun = time.perf_counter()
        samples = fill(server, args.days, args.pods, args.models)
        print(f"{args.days:g} days, {args.pods} pods: {samples:,} samples written in {time.perf_counter() - begun:.0f} s; "
              f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs", flush=True)
        begun_cpu = cpu(server.pid)
        words = [sys.executable, __file__, "--child", server.url, "--days", str(args.days), "--how", args.how, "--rules",
                 *args.rules]
        mine = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
        server_cpu = cpu(server.pid) - begun_cpu
        print(
            f"ours: {mine['seconds']:.1f} s (the server's processor {server_cpu:.1f} s, ours {mine['cpu']:.1f} s, "
            f"that of the private Prometheus {mine['private']:.1f} s), "
            f"peak memory of our process {mine['rss']:.0f} MiB, {mine['how']}, warnings {mine['warnings']}", flush=True,
        )
        if args.no_peer:
            return
        if shutil.which("vmalert") is None:
            sys.exit("vmalert is not on PATH (Debian: victoria-metrics)")
        begun, begun_cpu = time.perf_counter(), cpu(server.pid)
        starts = range(start_ms, END_MS + 1, PIECE * STEP_MS)
        for at in starts:
            _replay(server.url, at, min(END_MS, at + (PIECE - 1) * STEP_MS), args.rules)
        took = time.perf_counter() - begun
        whole = cpu(server.pid) - begun_cpu
        slept = len(load_rule_files(args.rules)) * len(starts)
        print(f"vmalert: {took:.1f} s, {slept} s of it asleep, 1 s after each rule (the server's processor {whole:.1f} s)")
        print(
            f"ratio: {took / mine['seconds']:.1f} x in time ({(took - slept) / mine['seconds']:.1f} x without its sleep), "
            f"{whole / server_cpu:.1f} x in the server's processor time"
        )
        _differences(server.client, start_ms, mine["firing"], {rule.name: rule for rule in load_rule_files(args.rules)})


def _replay(url: str, start_ms: int, end_ms: int, rules: list[str]) -> None:
    """vmalert over the same time; files of recording rules first, for it goes through groups in the given order."""
    ordered = sorted(rules, key=lambda path: (not Path(path).name.startswith("recordings-"), "derived" in path, path))

    def clock(at_ms: int) -> str:
        return f"{datetime.fromtimestamp(at_ms / 1000, timezone.utc):%Y-%m-%dT%H:%M:%SZ}"

    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as log:
        paths = []
        for path in ordered:  # it refuses files with keep_firing_for
            text = re.sub(r"^ *keep_firing_for:.*\n", "", Path(path).read_text(), flags=re.MULTILINE)
            paths.append(Path(folder) / Path(path).name)
            paths[-1].write_text(text)
        done = subprocess.run(
            [
                "vmalert", *(f"-rule={path}" for path in paths), f"-datasource.url={url}", f"-remoteWrite.url={url}",
                f"-replay.timeFrom={clock(start_ms)}", f"-replay.timeTo={clock(end_ms)}", "-evaluationInterval=1m",
                f"-replay.maxDatapointsPerQuery={PIECE}", "-replay.disableProgressBar", "-replay.rulesDelay=1s",
                "-remoteWrite.flushInterval=1s", "-remoteWrite.maxQueueSize=5000000",
                "-datasource.queryStep=1m", "-httpListenAddr=127.0.0.1:0",
            ],
            stdout=log, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
        log.seek(0)
        said = log.read().decode(errors="replace")
        if done.returncode:
            sys.exit("vmalert failed: " + said[-2000:])
        lost = re.findall(r"dropping (\d+) time series", said)
        if lost:  # what was recorded in these is missing from then on, for it and for the rules that read it
            why = re.findall(r"attempt \d+ to send request failed: (.*)", said)
            print(f"vmalert lost {sum(map(int, lost))} of its series' pieces: {why[0][:400] if why else said[-400:]}")


def _differences(client: Client, start_ms: int, found: list[list[Any]], rules: dict[str, Rule]) -> None:
    """Per alert: evaluations at which an instance is pending or firing, and is firing, for both, for one only."""
    theirs: dict[str, set[tuple[Any, int]]] = {"pending": set(), "firing": set()}
    written = "last_over_time(ALERTS[59s])"  # it marks no end: a plain look would find what it wrote five minutes ago
    asked = [(at / 1000, min(END_MS, at + DAY_MS - STEP_MS) / 1000) for at in range(start_ms, END_MS + 1, DAY_MS)]
    for one in (one for low, high in asked for one in client.query_range(written, low, high, STEP_MS / 1000)):
        labels = tuple(pair for pair in one.labels if pair[0] not in {"__name__", "alertstate", "alertgroup"})
        theirs[dict(one.labels)["alertstate"]] |= {(labels, round(at * 1000)) for at, _ in one.points}
    mine: dict[str, set[tuple[Any, int]]] = {"pending": set(), "firing": set()}
    for labels, low, high, state in found:
        mine[state] |= {(tuple(map(tuple, labels)), at) for at in range(low, high, STEP_MS)}
    for side in (mine, theirs):
        side["active"] = side["pending"] | side["firing"]
    print(f"\n{'':<34}active: both   only ours   only vmalert   firing: both   only ours   only vmalert")
    names = {dict(labels)["alertname"] for labels, _ in mine["active"] | theirs["active"]}
    for name in sorted(names):
        counts = []
        for state in ("active", "firing"):
            one, two = ({item for item in side[state] if ("alertname", name) in item[0]} for side in (mine, theirs))
            counts += [len(one & two), len(one - two), len(two - one)]
        keep = rules[name].keep_ms
        note = f"   keep_firing_for {keep / 1000:g} s: taken out for vmalert" if keep else ""
        print(f"{name:<34}{counts[0]:>14}{counts[1]:>12}{counts[2]:>15}{counts[3]:>15}{counts[4]:>12}{counts[5]:>15}{note}")


if __name__ == "__main__":
    main()
