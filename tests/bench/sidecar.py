"""Measures the sidecar beside named peers in the same run, and prints one Markdown table. Takes about two minutes.

    python tests/bench/sidecar.py

1. CPU of reading the needed families of the recorded vLLM page, against prometheus_client's parser on the same bytes.
2. CPU and memory at one sample a second on that page (and at five), in a process of its own, beside vmagent (Debian's
   victoria-metrics) scraping the same page at the same time, where that is installed.
3. p50 and p99 of the sidecar's own /metrics while it samples, beside prometheus_client's idle server.
4. How long until a change at the engine is seen at the sidecar.
5. 24 h of samples, one a second, in accelerated time: what the process holds after each quarter of the day.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import http.client
import os
import random
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from obs.prom.server import free_port  # noqa: E402
from obs.sidecar import detect  # noqa: E402
from obs.sidecar.reader import Reader  # noqa: E402
from obs.sidecar.sampler import JITTER  # noqa: E402
from obs.sidecar.scrape import Page  # noqa: E402
from obs.sidecar.settings import ModelSettings, Settings  # noqa: E402
from obs.sidecar.signals import Signals  # noqa: E402
from tests.sidecar.engine import FakeEngine, scrape, vllm  # noqa: E402

PAGE = scrape("vllm-0.32-kv-saturated")
TICKS = os.sysconf("SC_CLK_TCK")


class Row(NamedTuple):
    """One line of the table; ``met`` is None where there is no goal."""

    what: str
    measured: str
    peer: str
    goal: str
    met: bool | None


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


def reading() -> Iterator[Row]:
    from prometheus_client.parser import text_string_to_metric_families

    text = PAGE.decode()
    peer = cpu_of(lambda: list(text_string_to_metric_families(text)), 5)
    for engine in ("vllm", "auto"):
        reader = Reader(detect.needed_names(engine))
        own = cpu_of(lambda reader=reader: reader.page(Page(PAGE, "", 0.0)), 100)
        yield Row(f"reading the page ({len(PAGE) / 1000:.0f} kB), engine {engine}", f"{own * 1e6:.0f} us CPU",
                  f"prometheus_client's parser {peer * 1e6:.0f} us: {peer / own:.0f} x", ">= 20 x less", peer / own >= 20)


def usage(pid: int) -> tuple[float, float]:
    """CPU seconds so far, resident megabytes."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    resident = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert resident is not None
    return (int(fields[11]) + int(fields[12])) / TICKS, int(resident[1]) / 1024


@contextlib.contextmanager
def process(*words: str) -> Iterator[subprocess.Popen[bytes]]:
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


def resources(seconds: float) -> Iterator[Row]:
    """The sidecar at 1 Hz and at 5 Hz and vmagent at 1 Hz, at the same time: CPU time is each process's own."""
    vmagent = shutil.which("vmagent") or shutil.which("victoria-metrics-vmagent")
    with contextlib.ExitStack() as stack:
        engines = [stack.enter_context(FakeEngine(PAGE)) for _ in range(3)]
        watched = {}
        for interval, engine in zip((1.0, 0.2), engines, strict=False):
            port = free_port()
            watched[interval] = stack.enter_context(process(*sidecar(engine.url, port, interval)))
            wait_for(port, "/metrics", "llm_scaling_load_ratio{")
        if vmagent is not None:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            config = Path(folder) / "scrape.yaml"
            config.write_text("scrape_configs: [{job_name: x, scrape_interval: 1s, static_configs: "
                              f"[{{targets: ['127.0.0.1:{engines[2].port}']}}]}}]\n")
            watched[0.0] = stack.enter_context(process(
                vmagent, f"-promscrape.config={config}", f"-httpListenAddr=127.0.0.1:{free_port()}",
                f"-remoteWrite.url=http://127.0.0.1:{free_port()}/", f"-remoteWrite.tmpDataPath={folder}"))
            deadline = time.monotonic() + 20
            while len(engines[2].requests) < 3 and time.monotonic() < deadline:
                time.sleep(0.1)
        begun, before = time.monotonic(), {key: usage(child.pid)[0] for key, child in watched.items()}
        time.sleep(seconds)
        took, after = time.monotonic() - begun, {key: usage(child.pid) for key, child in watched.items()}
    share = {key: (after[key][0] - before[key]) / took for key in watched}
    beside_cpu = beside_memory = "vmagent is not installed (apt-get install victoria-metrics)"
    if 0.0 in share:
        beside_cpu, beside_memory = f"vmagent {share[0.0]:.2%}", f"vmagent {after[0.0][1]:.0f} MB"
    yield Row("CPU at 1 Hz", f"{share[1.0]:.2%} of a core", beside_cpu, "<= 1 %", share[1.0] <= 0.01)
    yield Row("CPU at 5 Hz", f"{share[0.2]:.2%} of a core", "", "", None)
    yield Row("memory at 1 Hz", f"{after[1.0][1]:.0f} MB RSS", beside_memory, "<= 40 MB", after[1.0][1] <= 40)


def asked(port: int, times: int = 500) -> tuple[float, float]:
    """p50 and p99 in milliseconds from the request's first byte to the page's last.

    By a bare socket: http.client alone would add 2 ms of Python to each page, on the core that the server needs. The
    connection is kept where the server keeps it (the peer's speaks HTTP/1.0), and made before the clock starts.
    """
    request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
    took: list[float] = []
    while len(took) < times:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as link:
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            kept = True
            while kept and len(took) < times:
                time.sleep(0.005)
                begun = time.perf_counter()
                link.sendall(request)
                page = b""
                while b"\r\n\r\n" not in page:
                    page += link.recv(65536)
                head, _, body = page.partition(b"\r\n\r\n")
                left = int(re.findall(rb"(?i)content-length: (\d+)", head)[0]) - len(body)
                while left > 0:
                    left -= len(link.recv(65536))
                took.append(time.perf_counter() - begun)
                kept = head.startswith(b"HTTP/1.1")
    took.sort()
    return took[times // 2] * 1e3, took[int(times * 0.99) - 1] * 1e3


PEER = "import sys, time, prometheus_client as p; p.start_http_server(int(sys.argv[1]), '127.0.0.1'); time.sleep(600)"


def serving(interval: float) -> Iterator[Row]:
    """Beside prometheus_client's own server with its default registry, which does nothing else."""
    with FakeEngine(PAGE) as engine:
        port, other = free_port(), free_port()
        with process(*sidecar(engine.url, port, interval)), process(sys.executable, "-c", PEER, str(other)):
            wait_for(port, "/metrics", "llm_scaling_load_ratio{")
            wait_for(other, "/metrics", "python_info")
            middle, high = asked(port)
            peer_middle, peer_high = asked(other)
    yield Row(f"own /metrics, sampling every {interval:g} s", f"p50 {middle:.2f} ms, p99 {high:.2f} ms",
              f"prometheus_client's idle server p50 {peer_middle:.2f} ms, p99 {peer_high:.2f} ms", "p99 < 5 ms", high < 5)


def lag(interval: float) -> Iterator[Row]:
    with FakeEngine(vllm(waiting=0).encode()) as engine:
        port = free_port()
        with process(*sidecar(engine.url, port, interval)):
            wait_for(port, "/metrics", "llm_requests_waiting{")
            took = []
            for number in range(1, 11):
                time.sleep(random.uniform(0.3, 1.0))
                engine.body = vllm(waiting=number, generation=1000 + number).encode()
                begun = time.monotonic()
                while f'llm_requests_waiting{{engine="vllm",model_name="m"}} {number}.0\n' not in get(port, "/metrics"):
                    time.sleep(0.002)
                took.append(time.monotonic() - begun)
    goal = interval * (1 + 2 * JITTER) + 0.05  # one sample may be early, the next one late
    yield Row(f"change seen, sampling every {interval:g} s", f"median {statistics.median(took):.3f} s, most {max(took):.3f} s",
              "", f"<= interval (+ jitter) + 50 ms = {goal:.3f} s", max(took) <= goal)


def day() -> Iterator[Row]:
    pages = [Reader(detect.needed_names("vllm")).page(Page(vllm(
        number % 30, number % 7, (number % 90) / 100, generation=100 * number, finished=number).encode(), "", 0.0))
        for number in range(300)]
    signals = Signals(Settings(models={"*": ModelSettings(decode_capacity=900)}))
    begun, held = time.process_time(), []
    for second in range(24 * 3600):
        signals.feed(float(second), pages[second % 300])
        if second % 21600 == 21599:
            signals.snapshot(float(second))
            held.append((len(gc.get_objects()), usage(os.getpid())[1]))
    cpu = time.process_time() - begun
    objects = [count for count, _ in held]
    yield Row("24 h at one sample a second, accelerated",
              f"{cpu:.0f} s CPU ({cpu / 86400 * 1e6:.0f} us a sample); objects after each quarter "
              f"{', '.join(f'{count:,}' for count in objects)}; RSS {held[0][1]:.0f} to {held[-1][1]:.0f} MB",
              "", "flat: < 2,000 objects apart", max(objects) - min(objects) < 2000)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30, help="how long CPU is counted (default: 30)")
    args = parser.parse_args()
    rows = []
    print(f"Load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores at the start.\n")
    print("| what | measured | peer in the same run | goal | met |\n|---|---|---|---|---|")
    for part in (reading(), resources(args.seconds), serving(1.0), serving(0.2), lag(1.0), lag(0.2), day()):
        for row in part:
            rows.append(row)
            met = "" if row.met is None else "yes" if row.met else "NO"
            print(f"| {row.what} | {row.measured} | {row.peer} | {row.goal} | {met} |", flush=True)
    return int(any(row.met is False for row in rows))


if __name__ == "__main__":
    sys.exit(main())
