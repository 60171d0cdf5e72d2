"""Measures a backtest of the whole pack against `vmalert -replay`, on the same rules, Prometheus and data.

    python tests/bench/backtest.py [--days 1] [--pods 10] [--models 2]

A private Prometheus is given a fleet (half Triton pods, half vLLM pods) with incidents, one sample a minute. Ours is
asked first, in a process of its own whose peak memory is measured; then vmalert replays, writing recorded series and
ALERTS back into the same Prometheus, as it must for rules that read recorded series. Where the two differ is printed
per alert. vmalert's flush interval and its delay between rules are set to the least that chained rules allow (1 s).
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

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
STEP_MS = 60_000
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


def cpu(pid: int) -> float:
    """Processor seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ours(url: str, start_ms: int, rules: list[str]) -> None:
    """The child process: a backtest, and what it took, as JSON."""
    from obs.evaluate import backtest
    from obs.evaluate.rules import load_rule_files
    from obs.prom.client import Client

    loaded = load_rule_files(rules)
    begun = time.perf_counter()
    with Client(url, deadline=300.0) as client:
        history = backtest.over_server(client, loaded, start_ms=start_ms, end_ms=END_MS, step_ms=STEP_MS)
    took = time.perf_counter() - begun
    usage = resource.getrusage(resource.RUSAGE_SELF)
    firing = [[one.labels, span.start_ms, span.end_ms] for one in history.timeline.instances for span in one.firing()]
    print(json.dumps({
        "seconds": took, "cpu": usage.ru_utime + usage.ru_stime, "rss": usage.ru_maxrss / 1024, "firing": firing,
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
    parser.add_argument("--no-peer", action="store_true", help="ours only")
    parser.add_argument("--child", metavar="URL", help=argparse.SUPPRESS)
    args = parser.parse_args()
    start_ms = END_MS - round(args.days * 86_400_000) + STEP_MS
    if args.child:
        ours(args.child, start_ms, args.rules)
        return
    with PrivatePrometheus(arguments=["--query.max-samples=100000000"]) as server:
        begun = time.perf_counter()
        samples = server.writer.write_series(series(args.days, args.pods, args.models))
        print(f"{args.days:g} days, {args.pods} pods: {samples:,} samples written in {time.perf_counter() - begun:.0f} s")
        begun_cpu = cpu(server.pid)
        words = [sys.executable, __file__, "--child", server.url, "--days", str(args.days), "--rules", *args.rules]
        mine = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
        server_cpu = cpu(server.pid) - begun_cpu
        print(
            f"ours: {mine['seconds']:.1f} s (the server's processor {server_cpu:.1f} s, ours {mine['cpu']:.1f} s), "
            f"peak memory of our process {mine['rss']:.0f} MiB, {mine['how']}, warnings {mine['warnings']}"
        )
        if args.no_peer:
            return
        if shutil.which("vmalert") is None:
            sys.exit("vmalert is not on PATH (Debian: victoria-metrics)")
        begun, begun_cpu = time.perf_counter(), cpu(server.pid)
        _replay(server.url, start_ms, args.rules)
        took = time.perf_counter() - begun
        print(f"vmalert: {took:.1f} s (the server's processor {cpu(server.pid) - begun_cpu:.1f} s)")
        whole = cpu(server.pid) - begun_cpu
        print(f"ratio: {took / mine['seconds']:.1f} x in time, {whole / server_cpu:.1f} x in the server's processor time")
        _differences(server.client, start_ms, mine["firing"], {rule.name: rule for rule in load_rule_files(args.rules)})


def _replay(url: str, start_ms: int, rules: list[str]) -> None:
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
                f"-replay.timeFrom={clock(start_ms)}", f"-replay.timeTo={clock(END_MS)}", "-evaluationInterval=1m",
                "-replay.disableProgressBar", "-replay.rulesDelay=1s", "-remoteWrite.flushInterval=1s",
                "-datasource.queryStep=1m", "-httpListenAddr=127.0.0.1:0",
            ],
            stdout=log, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
        if done.returncode:
            log.seek(0)
            sys.exit("vmalert failed: " + log.read()[-2000:].decode(errors="replace"))


def _differences(client: object, start_ms: int, firing: list[list[object]], rules: dict[str, object]) -> None:
    """Per alert: evaluations at which an instance fires for us only, for vmalert only, for both."""
    theirs: set[tuple[object, int]] = set()
    for one in client.query_range('ALERTS{alertstate="firing"}', start_ms / 1000, END_MS / 1000, STEP_MS / 1000):  # type: ignore[attr-defined]
        labels = tuple((name, value) for name, value in one.labels if name not in {"__name__", "alertstate", "alertgroup"})
        theirs |= {(labels, round(at * 1000)) for at, _ in one.points}
    mine = {
        (tuple(map(tuple, labels)), at)  # type: ignore[call-overload]
        for labels, low, high in firing
        for at in range(low, high, STEP_MS)  # type: ignore[call-overload]
    }
    table: dict[str, Counter[str]] = {}
    for where, some in (("both", mine & theirs), ("ours", mine - theirs), ("vmalert", theirs - mine)):
        for labels, _ in some:
            table.setdefault(dict(labels)["alertname"], Counter())[where] += 1  # type: ignore[call-overload]
    print("\nfiring evaluations           both   only ours   only vmalert")
    for name, counts in sorted(table.items()):
        keep = getattr(rules.get(name), "keep_ms", 0)
        note = f"   keep_firing_for {keep / 1000:g} s, which this vmalert does not know (taken out for it)" if keep and counts["ours"] else ""
        print(f"{name:<26}{counts['both']:>7}{counts['ours']:>12}{counts['vmalert']:>15}{note}")


if __name__ == "__main__":
    main()
