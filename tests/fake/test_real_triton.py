"""The stand-in's API beside a real Triton's: the same questions, the same statuses, fields and words."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from obs.fake.server import Site
from obs.fake.world import Spec, World
from tests.triton import server
from tests.triton.load import request_body
from tests.triton.server import TritonServer
from tests.waiting import eventually

pytestmark = [
    pytest.mark.triton,
    pytest.mark.skipif(server.why_not() is not None, reason=str(server.why_not())),
]

MODELS = ("doubler", "flaky", "idle", "tokens")
ASKED = (
    ("GET", "/v2/health/ready"), ("GET", "/v2/health/live"), ("GET", "/v2"),
    ("POST", "/v2/repository/index"), ("GET", "/v2/repository/index"),
    ("GET", "/v2/models/doubler"), ("GET", "/v2/models/doubler/config"), ("GET", "/v2/models/doubler/ready"),
    ("GET", "/v2/models/doubler/versions/1/ready"), ("GET", "/v2/models/doubler/versions/7/ready"),
    ("GET", "/v2/models/nobody"), ("GET", "/v2/models/nobody/ready"),
    ("POST", "/v2/models/doubler/infer"), ("POST", "/v2/models/nobody/infer"),
    ("POST", "/v2/repository/models/nobody/load"), ("POST", "/v2/repository/models/nobody/unload"),
    ("GET", "/nowhere"), ("GET", "/metrics"),
)
UNLOADED = (
    ("POST", "/v2/repository/index"), ("GET", "/v2/models/idle/ready"), ("POST", "/v2/models/idle/infer"),
    ("POST", "/v2/repository/models/idle/load"), ("GET", "/v2/models/idle/ready"),
)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    """The API ports of the real one and of the stand-in."""
    world = World(Spec(models=MODELS, release="24.10", rate=0), time.time())
    folder = tmp_path_factory.mktemp("triton")
    with (
        TritonServer(folder, "--model-control-mode=explicit", "--load-model=*") as triton,
        Site(world, "127.0.0.1", port=0, metrics_port=0, control_port=0) as site,
    ):
        yield triton.http_port, site.ports["api"].number


def ask(port: int, method: str, path: str) -> tuple[int, Any]:
    body = request_body(1.0, 1) if path.endswith("/infer") else b"" if method == "POST" else None
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, method=method)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            status, text = answer.status, answer.read()
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read()
    return status, json.loads(text) if text else None


def same(real: Any, fake: Any) -> None:
    """Every field of the stand-in's is the real one's; errors and indexes word by word."""
    if isinstance(real, dict) and "error" not in real:
        assert isinstance(fake, dict)
        assert fake.keys() <= real.keys()
    else:
        assert fake == real


def test_the_same_questions_have_the_same_answers(both: tuple[int, int]) -> None:
    for method, path in ASKED:
        real, fake = (ask(port, method, path) for port in both)
        assert fake[0] == real[0], f"{method} {path}: {fake} is not {real}"
        same(real[1], fake[1])
    assert ask(both[1], "GET", "/v2")[1]["version"] == ask(both[0], "GET", "/v2")[1]["version"]


def test_an_unloaded_model_is_told_as_the_real_one_tells_it(both: tuple[int, int]) -> None:
    for port in both:
        assert ask(port, "POST", "/v2/repository/models/idle/unload") == (200, None)
    eventually("unloaded", 30,  # it answers before it is done
               lambda: ask(both[0], "POST", "/v2/repository/index")[1][2]["state"] == "UNAVAILABLE", 0.1)
    for method, path in UNLOADED:
        real, fake = (ask(port, method, path) for port in both)
        assert fake[0] == real[0], f"{method} {path}: {fake} is not {real}"
        same(real[1], fake[1])
