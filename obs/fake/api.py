"""The server's API as far as probes, the sidecar and a load generator ask: Triton's HTTP API, vLLM's OpenAI one.

Statuses and error texts are those of a real Triton 2.51 and held against one (tests/fake/test_real_triton.py).
"""

from __future__ import annotations

import json
import re
import threading

from obs.fake.llm import Size
from obs.fake.world import World

ANSWER_SECONDS = 120.0
"""A request that is not done by then is given up."""

Answer = tuple[int, object]
_MODEL = re.compile(r"/v2/models/(?P<model>[^/]+)(?:/versions/(?P<version>[^/]+))?(?P<what>/ready|/config|/infer|/generate|)")
_REPOSITORY = re.compile(r"/v2/repository/models/(?P<model>[^/]+)/(?P<what>load|unload)")
_BACKENDS = {"triton": "python", "triton-vllm": "vllm", "triton-trtllm": "tensorrtllm"}
_NOT_FOUND: Answer = (404, {"error": "Not Found"})


def answer(world: World | None, method: str, path: str, body: bytes) -> Answer:
    """Status and JSON (None: no body). Without a world (a recording is played) only health is answered."""
    if world is None:
        healthy = path in ("/health", "/v2/health/ready", "/v2/health/live")
        return (200, None) if healthy and method == "GET" else _NOT_FOUND
    return _triton(world, method, path, body) if world.spec.triton else _vllm(world, method, path, body)


def _triton(world: World, method: str, path: str, body: bytes) -> Answer:
    if path in ("/v2/health/ready", "/v2/health/live"):
        return 200, None
    if path in ("/v2", "/v2/"):
        return 200, {"name": "triton", "version": world.version, "extensions": ["model_repository", "statistics"]}
    if path == "/v2/repository/index":
        if method != "POST":
            return 405, {"error": "Method Not Allowed"}
        return 200, [
            {"name": name, "version": "1", "state": "READY"} if name in world.models
            else {"name": name, "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"}
            for name in world.spec.models
        ]
    if (match := _REPOSITORY.fullmatch(path)) and method == "POST":
        if match["model"] not in world.spec.models:
            if match["what"] == "load":
                return 500, {"error": f"failed to load '{match['model']}', failed to poll from model repository"}
        elif match["what"] == "unload":
            world.set_fault("unload", model=match["model"])
        else:
            world.clear("unload", match["model"])
        return 200, None
    match = _MODEL.fullmatch(path)
    if match is None:
        return _NOT_FOUND
    name, what = match["model"], match["what"]
    there = name in world.models and match["version"] in (None, "1")
    if what == "/ready":
        return (200, None) if there else (400, {"error": "Model version not ready"})
    if not there:
        why = "has no available versions" if name in world.spec.models and name not in world.models else "is not found"
        return 404, {"error": f"Request for unknown model: '{name}' {why}"}
    if method == "GET":
        tells = {"": _metadata, "/config": _config}.get(what)
        return (200, tells(world, name)) if tells else _NOT_FOUND
    if what not in ("/infer", "/generate"):
        return _NOT_FOUND
    try:
        json.loads(body)
    except (ValueError, RecursionError) as error:
        return 500, {"error": f"failed to parse the request JSON buffer: {error}"}
    failed = _run(world, name, None)
    if failed:
        return 500, {"error": failed}
    if what == "/generate":
        return 200, {"model_name": name, "model_version": "1", "text_output": "fake"}
    output = {"name": "OUTPUT", "datatype": "FP32", "shape": [1, 1], "data": [0.0]}
    return 200, {"model_name": name, "model_version": "1", "outputs": [output]}


def _config(world: World, name: str) -> object:
    """The parts of a configuration that matter to whoever checks it."""
    plain = world.spec.engine == "triton"
    tensor = {"data_type": "TYPE_FP32", "dims": [1]}
    return {
        "name": name,
        "platform": "",
        "backend": _BACKENDS[world.spec.engine],
        "max_batch_size": world.spec.service.batch if plain else 0,
        "input": [{"name": "INPUT", **tensor}],
        "output": [{"name": "OUTPUT", **tensor}],
        "instance_group": [{"name": name, "kind": "KIND_MODEL", "count": world.spec.service.instances if plain else 1}],
        **({"dynamic_batching": {}} if plain else {"model_transaction_policy": {"decoupled": True}}),
        # without it the backend would not serve the vllm: families that the page has
        **({"parameters": {"REPORT_CUSTOM_METRICS": {"string_value": "true"}}} if world.spec.engine == "triton-vllm" else {}),
    }


def _metadata(world: World, name: str) -> object:
    platform = _BACKENDS[world.spec.engine]
    tensor = {"datatype": "FP32", "shape": [-1, 1]}
    return {"name": name, "versions": ["1"], "platform": platform, "inputs": [{"name": "INPUT", **tensor}],
            "outputs": [{"name": "OUTPUT", **tensor}]}


def _vllm(world: World, method: str, path: str, body: bytes) -> Answer:
    if path in ("/health", "/ping") and method == "GET":
        return 200, None
    if path == "/version":
        return 200, {"version": world.version}
    if path == "/v1/models":
        return 200, {"object": "list", "data": [
            {"id": name, "object": "model", "owned_by": "vllm", "max_model_len": world.spec.max_model_len}
            for name in world.models
        ]}
    if path not in ("/v1/completions", "/v1/chat/completions") or method != "POST":
        return 404, {"detail": "Not Found"}
    try:
        asked = json.loads(body)
        name = str(asked["model"])
        text = asked.get("prompt") or " ".join(str(one.get("content", "")) for one in asked.get("messages", ()))
        wanted = int(asked.get("max_tokens") or 16)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return 400, {"error": {"message": "the body must be JSON with model, and prompt or messages", "code": 400}}
    size = Size(max(1, len(str(text)) // 4), max(1, wanted))
    if size.prompt + size.output > world.spec.max_model_len:
        message = f"This model's maximum context length is {world.spec.max_model_len} tokens"
        return 400, {"error": {"message": message, "code": 400}}
    if name not in world.models:
        return 404, {"error": {"message": f"The model `{name}` does not exist.", "code": 404}}
    failed = _run(world, name, size)
    if failed:
        return 500, {"error": {"message": failed, "code": 500}}
    usage = {"prompt_tokens": size.prompt, "completion_tokens": size.output, "total_tokens": size.prompt + size.output}
    return 200, {"object": "text_completion", "model": name, "usage": usage,
                 "choices": [{"index": 0, "text": "fake " * size.output, "finish_reason": "length"}]}


def _run(world: World, model: str, size: Size | None) -> str:
    """Put a request in and wait for its end; "" or why it failed."""
    ended = threading.Event()
    outcome: list[str] = []

    def done(failed: str) -> None:
        outcome.append(failed)
        ended.set()

    if not world.submit(model, done, size):
        return "the model was unloaded"
    if not ended.wait(ANSWER_SECONDS):
        return f"no answer within {ANSWER_SECONDS:g} s"
    return outcome[0]
