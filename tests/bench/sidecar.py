"""Measures the sidecar, as ratios against named peers in the same run.

1. CPU of reading the needed families of the recorded vLLM page, against prometheus_client's parser on the same bytes.
2. CPU and memory at one sample a second on that page, in a process of its own, beside vmagent (Debian's
   victoria-metrics) doing the same, where that is installed.
3. p99 of the sidecar's own /metrics while it samples.
4. How long until a change at the engine is seen at the sidecar.

    python tests/bench/sidecar.py [--seconds 60]
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from obs.prom.server import free_port  # noqa: E402
from obs.sidecar import detect  # noqa: E402
from obs.sidecar.reader import Reader  # noqa: E402
from obs.sidecar.scrape import Page  # noqa: E402
from tests.sidecar.engine import FakeEngine, scrape, vllm  # noqa: E402

PAGE = scrape("vllm-0.32-kv-saturated")
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_of(run: object, repeats: int) -> float:
    """CPU seconds of one run, the best of five rounds (other work on the machine only adds)."""
    assert callable(run)
    run()
    rounds = []
    for _ in range(5):
        begun = time.process_time()
        for _ in range(repeats):
            run()
        rounds.append((time.process_time() - begun) / repeats)
    return min(rounds)


def reading() -> None:
    from prometheus_client.parser import text_string_to_metric_families

    text = PAGE.decode()
    peer = cpu_of(lambda: list(text_string_to_metric_families(text)), 5)
    print(f"page: {len(PAGE)} bytes, {text.count(chr(10))} lines")
    print(f"prometheus_client's parser   {peer * 1e6:8.0f} us CPU")
    for engine in ("vllm", "auto"):
        reader = Reader(detect.needed_names(engine))
        own = cpu_of(lambda reader=reader: reader.page(Page(PAGE, "", 0.0)), 100)
        print(f"the sidecar's reader, {engine:<6} {own * 1e6:8.0f} us CPU   {peer / own:.0f} x less (goal 20)")


def usage(pid: int) -> tuple[float, float]:
    """CPU seconds so far, resident megabytes."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    resident = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert resident is not None
    return (int(fields[11]) + int(fields[12])) / TICKS, int(resident[1]) / 1024


@contextlib.contextmanager
def process(*words: str):  # type: ignore[no-untyped-def]
    """A child, ended by its id."""
    child = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                             env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        yield child
    finally:
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(10)
        child.kill()


def sidecar(url: str, port: int, interval: float) -> tuple[str, ...]:
    return (sys.executable, "-m", "obs.cli.sidecar", "--url", url, "--interval", str(interval), "--listen-address",
            "127.0.0.1", "--listen-port", str(port), "--probe", "none", "--decode-capacity", "900",
            "--stalled-samples", "1000000")


def get(port: int, path: str) -> str:
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    with contextlib.closing(link):
        link.request("GET", path)
        return link.getresponse().read().decode()


def wait_for(port: int, path: str, text: str, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if text in get(port, path):
                return
        time.sleep(0.02)
    raise SystemExit(f"port {port}: no {text!r} on {path} within {seconds:g} s")


def measured(pid: int, seconds: float) -> tuple[float, float]:
    """Share of one core over so many seconds, and resident megabytes at their end."""
    before, _ = usage(pid)
    begun = time.monotonic()
    time.sleep(seconds)
    after, resident = usage(pid)
    return (after - before) / (time.monotonic() - begun), resident


def resources(seconds: float) -> None:
    with FakeEngine(PAGE) as engine:
        port = free_port()
        with process(*sidecar(engine.url, port, 1.0)) as child:
            wait_for(port, "/metrics", "llm_scaling_load_ratio{")
            share, resident = measured(child.pid, seconds)
            print(f"sidecar at 1 Hz              {share:8.2%} of a core, {resident:.0f} MB RSS (goals 1 %, 40 MB)")
        vmagent = shutil.which("vmagent") or shutil.which("victoria-metrics-vmagent")
        if vmagent is None:
            print("vmagent                      not installed (apt-get install victoria-metrics)")
            return
        with tempfile.TemporaryDirectory() as folder:
            config = Path(folder) / "scrape.yaml"
            config.write_text("scrape_configs: [{job_name: x, scrape_interval: 1s, static_configs: "
                              f"[{{targets: ['127.0.0.1:{engine.port}']}}]}}]\n")
            own = free_port()
            seen = len(engine.requests)
            with process(vmagent, f"-promscrape.config={config}", f"-httpListenAddr=127.0.0.1:{own}",
                         f"-remoteWrite.url=http://127.0.0.1:{free_port()}/", f"-remoteWrite.tmpDataPath={folder}") as child:
                deadline = time.monotonic() + 20
                while len(engine.requests) < seen + 3 and time.monotonic() < deadline:
                    time.sleep(0.1)
                peer, memory = measured(child.pid, seconds)
                print(f"vmagent at 1 Hz              {peer:8.2%} of a core, {memory:.0f} MB RSS; sidecar: "
                      f"{share / peer if peer else float('nan'):.1f} x its CPU, {resident / memory:.2f} x its memory")


def asked(port: int, times: int = 500) -> tuple[float, float]:
    """p50 and p99 in milliseconds of /metrics over one connection."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    with contextlib.closing(link):
        took = []
        for _ in range(times):
            begun = time.perf_counter()
            link.request("GET", "/metrics")
            link.getresponse().read()
            took.append(time.perf_counter() - begun)
            time.sleep(0.005)
    took.sort()
    return took[times // 2] * 1e3, took[int(times * 0.99) - 1] * 1e3


PEER = "import sys, time, prometheus_client as p; p.start_http_server(int(sys.argv[1]), '127.0.0.1'); time.sleep(600)"


def serving() -> None:
    """Beside prometheus_client's own server with its default registry, which does nothing else."""
    with FakeEngine(PAGE) as engine:
        port, other = free_port(), free_port()
        with process(*sidecar(engine.url, port, 1.0)), process(sys.executable, "-c", PEER, str(other)):
            wait_for(port, "/metrics", "llm_scaling_load_ratio{")
            wait_for(other, "/metrics", "python_info")
            middle, high = asked(port)
            peer_middle, peer_high = asked(other)
            print(f"own /metrics, sampling at 1 Hz  p50 {middle:.2f} ms, p99 {high:.2f} ms (goal 5 ms); prometheus_client's "
                  f"idle server: p50 {peer_middle:.2f} ms, p99 {peer_high:.2f} ms")


def lag(interval: float = 0.5) -> None:
    with FakeEngine(vllm(waiting=0).encode()) as engine:
        port = free_port()
        with process(*sidecar(engine.url, port, interval)):
            wait_for(port, "/metrics", "llm_requests_waiting{")
            took = []
            for number in range(1, 15):
                time.sleep(random.uniform(0.3, 1.0))
                engine.body = vllm(waiting=number, generation=1000 + number).encode()
                begun = time.monotonic()
                while f'llm_requests_waiting{{engine="vllm",model_name="m"}} {number}.0\n' not in get(port, "/metrics"):
                    time.sleep(0.002)
                took.append(time.monotonic() - begun)
            print(f"change seen, interval {interval:g} s    median {statistics.median(took):.3f} s, most {max(took):.3f} s "
                  f"(goal {interval:g} s + 5 % jitter + 0.05 s)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30)
    args = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    reading()
    resources(args.seconds)
    serving()
    lag()


if __name__ == "__main__":
    main()
