"""Measures, as ratios against a named peer in the same run: `make bench`.

1. `obs build` and the static part of `obs check` against `promtool check rules` on the same files, and
   `obs --help` against `python -c pass`.
2. Evaluation time of each rule group on a private Prometheus that holds 100, 300 and 1,000 pods of 10 models, and
   how it grows: a group that is linear takes about 10 times as long for 1,000 pods as for 100.

    python tests/bench/bench.py [--pods 100,300,1000] [--only commands|groups]
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODELS = 10
SCRAPE_MS = 30_000
SCRAPES = 40
BUCKETS = ("0.3", "0.5", "0.8", "1.0", "1.5", "2.0", "2.5", "5.0", "10.0", "15.0", "20.0", "30.0", "40.0", "50.0", "60.0",
           "120.0", "240.0", "480.0", "960.0", "1920.0", "7680.0", "+Inf")


def timed(run: Callable[[], object], repeats: int) -> float:
    """Median seconds of ``repeats`` runs after one to warm up."""
    run()
    taken = []
    for _ in range(repeats):
        begun = time.perf_counter()
        run()
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken)


def compiled(folder: Path) -> dict[str, str]:
    """An environment in which Python keeps what it compiles (in ``folder``), as an installed package has it: where
    PYTHONDONTWRITEBYTECODE is set, each start of ours compiles all of it again, for about half a second."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": str(folder)}


def children() -> float:
    """Processor seconds of the programs that were run so far and of those that they ran."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def processor(pid: int) -> float:
    """Processor seconds that a running program has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def command(*words: str) -> Callable[[], object]:
    return lambda: subprocess.run(words, cwd=ROOT, check=False, capture_output=True)


def commands() -> None:
    python = sys.executable
    rules = sorted(str(path) for path in (ROOT / "alerts" / "rules").glob("*.yaml"))
    peers = {
        "python -c pass": timed(command(python, "-c", "pass"), 9),
        "promtool check rules": timed(command("promtool", "check", "rules", *rules), 9),
    }
    rows = (
        ("obs --help", command(python, "-m", "obs", "--help"), "python -c pass", 9),
        ("obs build", command(python, "-m", "obs", "build", "--check"), "promtool check rules", 5),
        ("obs check --static", command(python, "-m", "obs", "check", "--static"), "promtool check rules", 5),
    )
    print(f"{'command':<22} {'seconds':>8}   ratio to peer")
    for name, seconds in peers.items():
        print(f"{name:<22} {seconds:>8.3f}   (peer)")
    for name, run, peer, repeats in rows:
        seconds = timed(run, repeats)
        print(f"{name:<22} {seconds:>8.3f}   {seconds / peers[peer]:.1f} x {peer}")


def fleet_series(pods: int) -> list[tuple[tuple[tuple[str, str], ...], float]]:
    """Labels and usual increase per scrape of half Triton pods (MODELS models each) and half vLLM pods (one each)."""
    series: list[tuple[tuple[tuple[str, str], ...], float]] = []

    def add(name: str, step: float, **labels: str) -> None:
        series.append((tuple(sorted({"__name__": name, **labels}.items())), step))

    for pod in range(pods):
        target = {"namespace": "ml", "pod": f"pod-{pod}", "instance": f"10.0.{pod // 250}.{pod % 250}:8002"}
        if pod % 2 == 0:
            base = {**target, "job": "triton"}
            add("up", 0, **base)
            for name in ("nv_cpu_utilization", "nv_pinned_memory_pool_total_bytes"):
                add(name, 0, **base)
            for model in range(MODELS):
                own = {**base, "model": f"model-{model}", "version": "1"}
                for name in ("nv_inference_request_success", "nv_inference_count", "nv_inference_exec_count"):
                    add(name, 30, **own)
                for name in ("request", "queue", "compute_input", "compute_infer", "compute_output"):
                    add(f"nv_inference_{name}_duration_us", 3e5, **own)
                for reason in ("REJECTED", "CANCELED", "BACKEND", "OTHER"):
                    add("nv_inference_request_failure", 1, **own, reason=reason)
                add("nv_inference_pending_request_count", 0, **own)
                for quantile in ("0.5", "0.99"):
                    add("nv_inference_request_summary_us", 0, **own, quantile=quantile)
                    add("nv_inference_queue_summary_us", 0, **own, quantile=quantile)
        else:
            own = {**target, "job": "vllm", "model_name": f"llm-{pod % MODELS}", "engine": "0"}
            add("up", 0, **target, job="vllm")
            for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
                add(f"vllm:{name}", 0, **own)
            for name in ("generation_tokens", "prompt_tokens", "num_preemptions", "prefix_cache_queries",
                         "prefix_cache_hits"):
                add(f"vllm:{name}_total", 300, **own)
            for reason in ("stop", "length", "abort", "error"):
                add("vllm:request_success_total", 3, **own, finished_reason=reason)
            for name in ("e2e_request_latency", "request_queue_time", "time_to_first_token", "inter_token_latency"):
                for number, le in enumerate(BUCKETS):
                    add(f"vllm:{name}_seconds_bucket", number, **own, le=le)
                add(f"vllm:{name}_seconds_sum", 9, **own)
                add(f"vllm:{name}_seconds_count", 21, **own)
    return series


def fleet(pods: int, start_ms: int) -> Iterator[object]:
    """Samples of a fleet (fleet_series), in order of time."""
    from obs.prom.remote_write import Point

    series = fleet_series(pods)
    for scrape in range(SCRAPES):
        at = start_ms + scrape * SCRAPE_MS
        for labels, step in series:
            yield Point(at, labels, 1 + step * scrape)


def groups(sizes: list[int]) -> None:
    """Ask every rule of every group on each size of fleet, results of recording rules written back in between."""
    from obs.alerts.registry import all_groups
    from obs.config import load_config
    from obs.evaluate import rules as plain
    from obs.prom.remote_write import Point
    from obs.prom.server import PrivatePrometheus

    start_ms = 1_790_000_000_000
    now_ms = start_ms + (SCRAPES - 1) * SCRAPE_MS
    pack = all_groups(load_config())
    took: dict[str, list[float]] = {group.name: [] for group in pack}
    for pods in sizes:
        with PrivatePrometheus() as server:
            begun = time.perf_counter()
            server.writer.write(fleet(pods, start_ms))
            print(f"{pods} pods written in {time.perf_counter() - begun:.0f} s", file=sys.stderr)
            for group in pack:
                total = 0.0
                for rule in plain.from_groups([group]):
                    seconds = []
                    for _ in range(3):
                        begun = time.perf_counter()
                        found = server.client.query(rule.expr, now_ms / 1000)
                        seconds.append(time.perf_counter() - begun)
                    total += min(seconds)
                    if rule.kind == "record":
                        server.writer.write(
                            Point(now_ms, rule.result_labels(sample.labels), sample.value) for sample in found
                        )
                took[group.name].append(total)
    print(f"\n{'rule group':<24}" + "".join(f"{size:>9} pods" for size in sizes) + "   growth (linear = 1)")
    for name, seconds in took.items():
        growth = (seconds[-1] / seconds[0]) / (sizes[-1] / sizes[0])
        print(f"{name:<24}" + "".join(f"{value * 1000:>11.0f} ms" for value in seconds) + f"   {growth:.2f}")
    totals = [sum(seconds[index] for seconds in took.values()) for index in range(len(sizes))]
    print(f"{'all groups':<24}" + "".join(f"{value * 1000:>11.0f} ms" for value in totals)
          + f"   {(totals[-1] / totals[0]) / (sizes[-1] / sizes[0]):.2f}")
    print(f"peer: the evaluation interval, 30 s; all groups of {sizes[-1]} pods take {totals[-1] / 30:.1%} of it")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pods", default="100,300,1000")
    parser.add_argument("--only", choices=("commands", "groups"))
    args = parser.parse_args()
    if args.only != "groups":
        commands()
    if args.only != "commands":
        groups([int(size) for size in args.pods.split(",")])


if __name__ == "__main__":
    main()
