"""``obs sidecar``: sample the engine beside us, serve its signals; ``--once`` prints them."""

from __future__ import annotations

import argparse
import getpass
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obs.errors import EXIT_COULD_NOT, EXIT_OK, InputError, ObsError

if TYPE_CHECKING:
    from obs.sidecar.sampler import Sampler
    from obs.sidecar.settings import Settings

HELP = "serve KV-cache, throughput and readiness signals of the engine beside it"
PREFIX = "OBS_SIDECAR_"
DEFAULT_PORT = 9105
_PROBES = ("auto", "triton", "openai", "none")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments; each has an environment variable, which the flag overrides."""

    def flag(name: str, text: str, default: Any = None, type: Callable[[str], Any] = str, **rest: Any) -> None:
        variable = PREFIX + name.lstrip("-").upper().replace("-", "_")
        given = os.environ.get(variable)
        if given is not None:
            try:
                default = type(given)
            except ValueError:
                raise InputError(f"{variable}={given!r} is no {getattr(type, '__name__', 'value')}") from None
            choices = rest.get("choices")
            if choices and default not in choices:
                raise InputError(f"{variable}={given!r} is none of {', '.join(choices)}")
        shown = "" if default in (None, "") or given is not None else f" (default: {default})"
        parser.add_argument(name, default=default, type=type, help=f"{text}{shown} [{variable}]", **rest)

    flag("--url", "the engine's metrics page: 8002/metrics for Triton, 8000/metrics for vLLM",
         "http://127.0.0.1:8002/metrics", metavar="URL")
    flag("--engine", "whose metrics these are; auto tells from the page", "auto", metavar="NAME")
    flag("--model-name", "name of a model that the engine does not name", "", metavar="NAME")
    flag("--interval", "seconds between two samples, 0.2 to 60", 1.0, float, metavar="SECONDS")
    flag("--timeout", "seconds for one sample in all; 0 is 0.8 intervals, at least 0.5", 0.0, float, metavar="SECONDS")
    flag("--max-age", "seconds after which a signal disappears; 0 is three intervals", 0.0, float, metavar="SECONDS")
    flag("--authorization-file", "file that holds the Authorization header for the engine", "", metavar="FILE")
    flag("--ca-file", "CA certificate of an https engine", "", metavar="FILE")
    flag("--probe", "readiness API to ask: Triton's, vLLM's (openai), none; auto goes by the engine", "auto",
         choices=_PROBES)
    flag("--probe-url", "the server's API for --probe: default port 8000 for Triton, else the engine's origin", "",
         metavar="URL")
    flag("--probe-interval", "seconds between two probes", 5.0, float, metavar="SECONDS")
    flag("--control-mode", "Triton's model control mode, which it does not tell: shown in triton_server_info", "",
         choices=("", "none", "poll", "explicit"))
    flag("--decode-capacity", "decode tokens per second at the SLO, from a load test", None, float, metavar="TOKENS")
    flag("--itl-objective", "without --decode-capacity: learn one that keeps this mean gap between tokens", None, float,
         metavar="SECONDS")
    flag("--kv-capacity-tokens", "KV-cache capacity, where the engine does not tell it", None, float, metavar="TOKENS")
    flag("--slots", "most requests that run at once, where the engine does not tell it", None, float, metavar="N")
    flag("--models-file", "JSON with these and more per model (see exporters/sidecar/README.md)", "", metavar="FILE")
    flag("--target-kv", "KV-cache usage that counts as saturated", 0.8, float, metavar="RATIO")
    flag("--target-waiting", "waiting requests that count as saturated", 5.0, float, metavar="N")
    flag("--target-slots", "share of slots that counts as saturated", 0.9, float, metavar="RATIO")
    flag("--stalled-samples", "samples without progress after which the engine's figures are suspect", 30, int,
         metavar="N")
    flag("--listen-address", "address to serve on", "0.0.0.0", metavar="ADDRESS")
    flag("--listen-port", "port to serve on; Triton's 8000 to 8002 are refused", DEFAULT_PORT, int, metavar="PORT")
    flag("--web-config", "JSON file for TLS and basic auth, keys as in Prometheus's web config", "", metavar="FILE")
    flag("--log-level", "least severe level to log", "info", choices=("debug", "info", "warning", "error"))
    parser.add_argument("--once", action="store_true", help="take two samples, print the signals, end; serve nothing")
    parser.add_argument("--format", choices=("table", "json"), default="table", help="output of --once")
    parser.add_argument("--hash-password", action="store_true",
                        help="read a password from standard input, print its hash for the web config, end")


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT; with ``--once`` 0 when the engine answered, 3 when not."""
    if args.hash_password:
        return _hash_password()
    logging.basicConfig(level=args.log_level.upper(), stream=sys.stderr,
                        format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    sampler = build(args)
    if args.once:
        return _once(args, sampler)
    return _serve(args, sampler)


def build(args: argparse.Namespace) -> Sampler:
    """The sampler that the arguments describe."""
    from obs.sidecar.detect import CHOICES, needed_names
    from obs.sidecar.reader import Reader
    from obs.sidecar.sampler import Sampler
    from obs.sidecar.scrape import Fetcher, Target
    from obs.sidecar.signals import Signals

    if args.engine not in CHOICES:
        raise InputError(f"--engine {args.engine!r} is none of {', '.join(CHOICES)}")
    if args.probe_interval <= 0 or args.timeout < 0 or args.max_age < 0:
        raise InputError("--probe-interval must be above 0, --timeout and --max-age must not be negative")
    settings = _settings(args)
    target = Target(args.url, authorization(args.authorization_file), args.ca_file)
    timeout = args.timeout or max(0.5, 0.8 * args.interval)
    return Sampler(
        Fetcher(target, timeout=timeout),
        Reader(needed_names(args.engine)),
        Signals(settings),
        _prober(args, target, timeout),
        probe_interval=args.probe_interval,
    )


def _settings(args: argparse.Namespace) -> Settings:
    from obs.sidecar.settings import ModelSettings, Settings, read_models

    models = read_models(Path(args.models_file)) if args.models_file else {}
    common = models.get("*", ModelSettings())
    for name in ("decode_capacity", "itl_objective", "kv_capacity_tokens", "slots"):
        value = getattr(args, name)
        if value is not None:
            if not value > 0:
                raise InputError(f"--{name.replace('_', '-')} must be above 0")
            common = replace(common, **{name: value})
    return Settings(
        engine=args.engine, model_name=args.model_name, interval=args.interval, max_age=args.max_age,
        stalled_samples=args.stalled_samples, target_kv=args.target_kv, target_waiting=args.target_waiting,
        target_slots=args.target_slots, models={**models, "*": common},
    )


def _prober(args: argparse.Namespace, target: Any, timeout: float) -> Any:
    from obs.sidecar.readiness import Prober
    from obs.sidecar.scrape import Fetcher, Target

    if args.probe == "none":
        return None
    kind = args.probe
    parts = target.split()
    if kind == "auto":
        triton = args.engine in ("triton", "triton_vllm", "triton_trtllm")
        kind = "triton" if triton or (args.engine == "auto" and parts.port == 8002) else "openai"
    if args.probe_url:
        url = args.probe_url
    elif kind == "triton":
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        url = f"{parts.scheme}://{host}:8000/"
    else:
        url = f"{parts.scheme}://{parts.netloc}/"
    probe_target = Target(url, target.authorization if not args.probe_url else "", args.ca_file)
    return Prober(Fetcher(probe_target, timeout=max(1.0, timeout)), kind, control_mode=args.control_mode)


def authorization(file: str) -> str:
    """The header's value that a file holds, "" of no file; InputError when it is no one line of text."""
    if not file:
        return ""
    try:
        text = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--authorization-file {file}: {getattr(error, 'strerror', None) or 'cannot be read'}") from None
    if not text or not text.isascii() or not text.isprintable():  # a line feed would be a header of its own
        raise InputError(f"--authorization-file {file}: must hold one line, like: Bearer <token>")
    return text


def _once(args: argparse.Namespace, sampler: Sampler) -> int:
    from obs.sidecar import view

    first = sampler.sample()
    sampler.probe()
    if first == "ok":
        time.sleep(args.interval)
        sampler.sample()
    snapshot = sampler.snapshot()
    if args.format == "json":
        print(json.dumps(view.as_json(snapshot, sampler.readiness), indent=2, allow_nan=False))
    else:
        for line in view.as_table(snapshot, sampler.readiness):
            print(line)
    return EXIT_OK if snapshot.up else EXIT_COULD_NOT


def _serve(args: argparse.Namespace, sampler: Sampler) -> int:
    from obs.sidecar import webconfig
    from obs.sidecar.scrape import shown
    from obs.sidecar.server import SidecarServer

    web = webconfig.read(Path(args.web_config)) if args.web_config else None
    server = SidecarServer(args.listen_address, args.listen_port, sampler, web)
    sys.setswitchinterval(0.001)  # a scrape of ours must not wait 5 ms for a sample to be parsed
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    log = logging.getLogger("obs.sidecar")
    sampler.start()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.2}, name="serve", daemon=True)
    thread.start()
    log.info("sampling %s every %g s, serving on %s port %d", shown(args.url), args.interval, args.listen_address,
             server.port)
    ended.wait()
    log.info("ending")
    server.shutdown()
    server.server_close()
    sampler.stop(2.0)
    return EXIT_OK


def _hash_password() -> int:
    from obs.sidecar.webconfig import hash_password

    password = getpass.getpass() if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    if not password:
        raise InputError("the password is empty")
    print(hash_password(password))
    return EXIT_OK


def main() -> int:
    """The command by itself, for an image that has nothing else: the exit code."""
    parser = argparse.ArgumentParser(prog="obs sidecar", description=HELP[0].upper() + HELP[1:] + ".",
                                     allow_abbrev=False)
    try:
        add_arguments(parser)
        return run(parser.parse_args())
    except ObsError as error:
        print(f"obs: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
