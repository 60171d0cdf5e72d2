"""A real Triton, recorded while it dies."""

from __future__ import annotations

import queue
from pathlib import Path

import pytest

from obs.evaluate import recording
from obs.evaluate.record.capture import Captured, Inbox, capture
from obs.evaluate.record.scrub import Scrubber
from obs.evaluate.record.source import Source, arrange
from obs.evaluate.record.store import Store
from obs.sidecar.scrape import Target
from tests.triton import server
from tests.triton.server import TritonServer

pytestmark = [
    pytest.mark.triton,
    pytest.mark.skipif(server.why_not() is not None, reason=str(server.why_not())),
]


def test_a_real_triton_is_recorded_until_it_dies(tmp_path: Path) -> None:
    inbox: Inbox = queue.SimpleQueue()
    (tmp_path / "server").mkdir()
    killed: list[int] = []
    with TritonServer(tmp_path / "server", "--metrics-config=summary_latencies=true") as triton:
        source = Source(Target(f"http://{triton.metrics_target}/metrics"), {"job": "triton", "instance": "a"})
        sources = arrange([source], Scrubber())
        store = Store(tmp_path / "r", sources)

        def after(done: Captured) -> None:
            if done.tallies[0].ok >= 3 and not killed:
                killed.append(done.end_ms)
                triton.end()
            elif killed and done.tallies[0].now:
                inbox.put(None)

        done = capture(sources, store, Scrubber(), inbox, interval=0.5, timeout=0.5, duration=120, after_round=after)
    assert store.close()
    read = recording.read(tmp_path / "r")
    assert set(done.tallies[0].failures) <= {"refused", "network", "timeout"}
    assert "nv_inference_request_success" in read.metric_names
    ups = [point.value for point in read.points(end_ms=done.end_ms) if dict(point.labels)["__name__"] == "up"]
    assert (ups[0], ups[-1]) == (1, 0)
