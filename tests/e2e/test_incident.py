"""Incidents from load or fault to Alertmanager's notification at the webhook and back, on the stack of compose/.

Two stacks run side by side, because an alert's ``for`` is minutes: one with the rules as they are committed, whose
server is killed at the start and is looked at in the end; and one with rules of the same pack built for short times.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from obs.cli.main import main
from tests.triton import server as triton_server
from tests.triton.load import Load
from tests.triton.server import TritonServer
from tests.waiting import eventually

from .stack import Stack, program, services

pytestmark = [
    pytest.mark.prometheus,
    pytest.mark.skipif(program(services()["alertmanager"]["image"]) is None,
                       reason="Alertmanager is not installed (make test-tools)"),
]

DEFAULT = [name for name, service in services().items() if not service.get("profiles") and name != "grafana"]
CONFIG = Path(__file__).parent / "obs.yaml"
QUEUE = "InferenceQueueTimeHigh"
DOWN = "InferenceTargetDown"
FLAPPING = "InferenceTargetFlapping"
SECONDS = 120
"""For one step, on a loaded machine."""


def ask(port: int, path: str, body: Any = None) -> Any:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=None if body is None else json.dumps(body).encode(),
                                     headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def query(stack: Stack, promql: str) -> list[Any]:
    found = ask(stack.ports["prometheus", 9090], f"/api/v1/query?query={urllib.parse.quote(promql)}")
    result: list[Any] = found["data"]["result"]
    return result


def notified(stack: Stack, status: str, alert: str, **labels: str) -> list[str]:
    """The webhook's lines of this kind."""
    wanted = [f" {name}={value} " for name, value in labels.items()]
    return [line for line in stack.log("webhook").splitlines()
            if f" {status.ljust(8)} {alert} " in line and all(one in f"{line} " for one in wanted)]


def control(stack: Stack, service: str, body: Any) -> None:
    ask(stack.ports[service, 9901], "/control", body)


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The stack as it is, its fake Triton killed once the pack knows it."""
    with Stack(tmp_path_factory.mktemp("committed"), DEFAULT) as stack:
        eventually("the server is known to the pack", SECONDS, lambda: query(stack, 'instance:server:present{job="triton"}'))
        control(stack, "fake-triton", {"fault": "kill", "seconds": 1800})
        yield stack


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stack, TritonServer | None]]:
    """The stack with rules built for short times, and with the real Triton of ``--profile gpu`` where it can run."""
    folder = tmp_path_factory.mktemp("short")
    assert main(["build", "--config", str(CONFIG), "--out", str(folder / "pack")]) == 0
    with contextlib.ExitStack() as running:
        triton, elsewhere, more = None, {}, []
        if triton_server.why_not() is None:
            kept = ("--model-control", "--load", "--metrics-config")
            flags = [word for word in services()["triton"]["command"] if word.startswith(kept)]
            place = folder / "triton"
            place.mkdir()
            triton = running.enter_context(TritonServer(place, *flags))
            elsewhere = {("triton", 8000): triton.http_port, ("triton", 8002): triton.metrics_port}
            more = ["triton-sidecar", "load-gpu"]
        replaced = {"../alerts/rules": folder / "pack" / "alerts" / "rules"}
        yield running.enter_context(Stack(folder, [*DEFAULT, *more], replaced=replaced, elsewhere=elsewhere)), triton


@pytest.mark.usefixtures("committed")
def test_load_makes_a_queue_that_is_notified_and_resolved(short: tuple[Stack, TritonServer | None]) -> None:
    """From too many requests to the webhook's line, on the fake Triton and a real one, and back."""
    stack, triton = short
    jobs = 4 + (2 if triton else 0)
    eventually("every target is up", SECONDS, lambda: len(query(stack, "up == 1")) == jobs)
    rate = 'rate(nv_inference_request_success{job=~"triton|triton-gpu"}[30s]) > 0'
    # the real Triton's only requests so far are the load generator's
    eventually("requests are answered", SECONDS,
               lambda: len({one["metric"]["job"] for one in query(stack, rate)}) == 1 + bool(triton))
    assert not notified(stack, "firing", QUEUE)
    control(stack, "fake-triton", {"load": {"shape": "steady", "rate": 600}, "model": "bert"})
    with contextlib.ExitStack() as heavy:
        if triton:  # 64 requests of 8 rows under way, 2 to a batch of 10 ms: about 330 ms in the queue
            heavy.enter_context(Load(triton.http_port, "doubler", clients=64, rows=8, seconds=110))
            eventually("the real Triton's queue is notified",
                       SECONDS, lambda: notified(stack, "firing", QUEUE, model="doubler", job="triton-gpu"))
        eventually("the fake one's queue is notified", SECONDS,
                   lambda: notified(stack, "firing", QUEUE, model="bert", job="triton"))
    control(stack, "fake-triton", {"load": {"rate": 0}, "model": "bert"})
    control(stack, "fake-triton", {"fault": "restart"})  # the backlog is minutes long
    eventually("back", SECONDS, lambda: not ask(stack.ports["fake-triton", 9901], "/control")["down"])
    control(stack, "fake-triton", {"load": {"rate": 20}, "model": "bert"})
    eventually("the fake one is resolved", SECONDS, lambda: notified(stack, "resolved", QUEUE, model="bert", job="triton"))
    if triton:
        eventually("the real one is resolved", SECONDS,
                   lambda: notified(stack, "resolved", QUEUE, model="doubler", job="triton-gpu"))
    assert not notified(stack, "firing", QUEUE, model="resnet50"), "nothing was done to it"


def test_a_killed_server_is_notified_by_the_committed_rules_and_silences_its_own(committed: Stack) -> None:
    """for: 2m as shipped. While it fires, what else is told of the same target is suppressed, of another it is not."""
    stack = committed
    instance = f"127.0.0.1:{stack.ports['fake-triton', 8002]}"
    other = f"127.0.0.1:{stack.ports['fake-vllm', 8000]}"
    eventually("the dead server is notified", 240, lambda: notified(stack, "firing", DOWN, instance=instance, job="triton"))
    assert not notified(stack, "firing", DOWN, instance=other)
    alerts = stack.ports["alertmanager", 9093]
    # alerts of the pack by name, sent by hand: the same of the dead target and of a living one
    for where, job in ((instance, "triton"), (other, "vllm")):
        labels = {"alertname": FLAPPING, "severity": "warning", "job": job, "instance": where}
        ask(alerts, "/api/v2/alerts", [{"labels": labels}])
    eventually("another target's alert is notified", SECONDS, lambda: notified(stack, "firing", FLAPPING, instance=other))
    (suppressed,) = [one for one in ask(alerts, "/api/v2/alerts")
                     if one["labels"]["alertname"] == FLAPPING and one["labels"]["instance"] == instance]
    (cause,) = suppressed["status"]["inhibitedBy"]
    assert suppressed["status"]["state"] == "suppressed"
    assert not notified(stack, "firing", FLAPPING, instance=instance)
    assert cause in {one["fingerprint"] for one in ask(alerts, "/api/v2/alerts") if one["labels"]["alertname"] == DOWN}
    control(stack, "fake-triton", {"clear": "kill"})
    eventually("it is resolved", SECONDS, lambda: notified(stack, "resolved", DOWN, instance=instance, job="triton"))
    if amtool := shutil.which("amtool"):
        url = f"--alertmanager.url=http://127.0.0.1:{alerts}"
        command = [amtool, "alert", "query", url, f"alertname={DOWN}"]
        listed = subprocess.run(command, capture_output=True, text=True, check=True)
        assert instance not in listed.stdout
