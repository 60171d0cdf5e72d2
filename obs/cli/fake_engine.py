"""``obs fake-engine``: a stand-in for an inference server; ``load`` sends it requests, ``webhook`` logs notifications."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obs.errors import EXIT_COULD_NOT, EXIT_OK, InputError

if TYPE_CHECKING:
    from obs.fake.server import Source

HELP = "stand in for an inference server: real metrics pages from a live model or a recording, with faults to order"
CONTROL_PORT = 9901
DCGM_PORT = 9400
WEBHOOK_PORT = 9902


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments, by mode."""
    parser.add_argument("mode", nargs="?", default="serve", choices=("serve", "load", "webhook"),
                        help="serve (the default); load: send requests; webhook: print Alertmanager's notifications")
    parser.add_argument("--listen-address", default="127.0.0.1", metavar="ADDRESS",
                        help="address of every port, the control endpoint's too (default: %(default)s)")
    parser.add_argument("--port", type=int, metavar="PORT",
                        help=f"the server's API: 8000 (webhook: {WEBHOOK_PORT})")
    parser.add_argument("--model", action="append", metavar="NAME", help="a model's name; repeatable (load: default all)")
    parser.add_argument("--rate", type=float, metavar="N",
                        help="requests per second and model: simulated (default 20, LLM engines 3), or to send (default 5)")
    parser.add_argument("--seed", type=int, default=1, help="of all draws (default: %(default)s)")

    serve = parser.add_argument_group("serve")
    serve.add_argument("--engine", default="triton", metavar="NAME",
                       help="triton, triton-vllm, triton-trtllm or vllm (default: %(default)s)")
    serve.add_argument("--recording", type=Path, metavar="PATH", help="play this recording instead of a live model")
    serve.add_argument("--target", default="", metavar="NAME", help="which target of a recording of several")
    serve.add_argument("--once", action="store_true", help="play the recording once; then the server is gone")
    serve.add_argument("--metrics-port", type=int, metavar="PORT", help="default 8002 for Triton, the API's port for vLLM")
    serve.add_argument("--control-port", type=int, default=CONTROL_PORT, metavar="PORT",
                       help="loads and faults: GET and POST /control (default: %(default)s)")
    serve.add_argument("--dcgm-port", type=int, metavar="PORT", help=f"also a dcgm-exporter's page, as at {DCGM_PORT}")
    serve.add_argument("--gpus", type=int, default=1, metavar="N", help="GPUs to tell of, 0 to 16 (default: %(default)s)")
    serve.add_argument("--metrics-config", action="append", default=[], metavar="KEY=true",
                       help="Triton's flag for families that are off by default: summary_latencies=true or "
                            "histogram_latencies=true")
    serve.add_argument("--release", default="", metavar="YY.MM", help="Triton's container release: 24.10, 26.05 or 26.06")
    serve.add_argument("--hardware", default="reference-40k", metavar="NAME",
                       help="LLM engines: cost and KV cache, a name of obs simulate --list (default: %(default)s)")

    load = parser.add_argument_group("load")
    load.add_argument("--url", default="http://127.0.0.1:8000", help="the server's API (default: %(default)s)")
    load.add_argument("--api", choices=("triton", "openai"), default="triton", help="which API (default: %(default)s)")
    load.add_argument("--concurrency", type=int, default=32, metavar="N", help="most requests at once (default: %(default)s)")
    load.add_argument("--report", type=float, default=10.0, metavar="SECONDS",
                      help="a line about the answers so often; 0: none (default: %(default)s)")


def run(args: argparse.Namespace) -> int:
    """Until SIGTERM or SIGINT."""
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    if args.mode == "webhook":
        return _webhook(args, ended)
    if args.mode == "load":
        return _load(args, ended)
    return _serve(args, ended)


def _serve(args: argparse.Namespace, ended: threading.Event) -> int:
    from obs.fake.server import Site

    source = _source(args)
    port = 8000 if args.port is None else args.port
    metrics_port = args.metrics_port if args.metrics_port is not None else port if args.engine == "vllm" else 8002
    with Site(source, args.listen_address, port=port, metrics_port=metrics_port, control_port=args.control_port,
              dcgm_port=args.dcgm_port) as site:
        ports = ", ".join(f"{role} {one.number}" for role, one in site.ports.items())
        print(f"obs fake-engine: {args.recording or args.engine} on {args.listen_address}: {ports}", flush=True)
        while not ended.wait(0.5):
            if not site.alive:
                print("obs: the stand-in's time stands still, a bug of obs; see above", file=sys.stderr)
                return EXIT_COULD_NOT
    return EXIT_OK


def _source(args: argparse.Namespace) -> Source:
    now = time.time()
    if args.recording is not None:
        if args.model or args.rate is not None or args.metrics_config or args.release:
            raise InputError("--model, --rate, --metrics-config and --release are for a live model: a recording tells its own")
        from obs.fake.player import Player

        return Player(args.recording, now, target=args.target, loop=not args.once)
    if args.once or args.target:
        raise InputError("--once and --target are for a --recording")
    from obs.fake.world import Spec, World

    known = ("summary_latencies=true", "histogram_latencies=true")
    for flag in args.metrics_config:
        if flag not in known:
            raise InputError(f"--metrics-config {flag} is none of {', '.join(known)}")
    models: dict[str, Any] = {"models": tuple(args.model)} if args.model else {}
    if not models and args.engine != "triton":
        models = {"models": ("llama",)}
    rate = args.rate if args.rate is not None else 20.0 if args.engine == "triton" else 3.0
    spec = Spec(engine=args.engine, rate=rate, seed=args.seed, gpus=args.gpus, release=args.release, hardware=args.hardware,
                flags=tuple(f"--metrics-config {flag}" for flag in args.metrics_config), **models)
    return World(spec, now)


def _load(args: argparse.Namespace, ended: threading.Event) -> int:
    from obs.fake.generator import Generator

    if not 0 <= args.report <= 86_400:
        raise InputError(f"--report {args.report:g} is no number of seconds from 0 to 86400")
    generator = Generator(args.url, args.api, tuple(args.model or ()), rate=5.0 if args.rate is None else args.rate,
                          concurrency=args.concurrency, seed=args.seed)
    thread = threading.Thread(target=generator.run, args=(ended,), name="generator", daemon=True)
    thread.start()
    while not ended.wait(args.report or 1.0):
        outcomes, held = generator.take()
        if args.report:
            told = ", ".join(f"{outcome}: {count}" for outcome, count in outcomes.items()) or "no answer"
            print(f"obs fake-engine load: {told}{f', held back: {held}' if held else ''}", flush=True)
    return EXIT_OK


def _webhook(args: argparse.Namespace, ended: threading.Event) -> int:
    from obs.fake.webhook import Webhook

    server = Webhook(args.listen_address, WEBHOOK_PORT if args.port is None else args.port,
                     lambda line: print(line, flush=True))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.2}, daemon=True)
    thread.start()
    print(f"obs fake-engine webhook: listening on {args.listen_address} port {server.server_port}", flush=True)
    ended.wait()
    server.shutdown()
    server.server_close()
    return EXIT_OK
