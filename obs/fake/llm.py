"""An LLM under vLLM or one of Triton's LLM backends: obs.simulate's replica in real time, told in the engine's words.

The replica is continuous batching over a paged KV cache (obs/simulate/engine.py). It is moved on in fixed ticks; what it
does not tell is derived: the time between tokens is the tick's mean, a request's queue time is its time to first token
less what its prompt costs to compute.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass

from obs.fake.ledger import Ledger
from obs.fake.load import Arrivals
from obs.fake.queueing import Done
from obs.simulate.arrivals import Lengths
from obs.simulate.engine import Record, Replica, Request
from obs.simulate.hardware import Engine as Hardware

HANDOFF_SECONDS = 0.0003
"""What Triton's own queue and request durations come to for its vLLM backend: the hand-over (seen in real use)."""


@dataclass(frozen=True)
class Size:
    """A request from outside: tokens of its prompt and its answer."""

    prompt: int
    output: int


class LlmModel:
    """One model. ``backend`` is what the engine tells of it; ``server`` what Triton's core tells (None under vLLM)."""

    def __init__(self, hardware: Hardware, lengths: Lengths, backend: Ledger, server: Ledger | None, http: Ledger | None,
                 arrivals: Arrivals, dice: random.Random, at: float) -> None:
        self.hardware = hardware
        self.lengths = lengths
        self.ledger = backend
        self.server = server
        self.http = http
        self.arrivals = arrivals
        self.error_ratio = 0.0
        self.slow = 1.0
        self.at = at
        self._own = at
        """The replica's own clock: it goes slower than ours by ``slow``."""
        self._dice = dice
        self._finished: list[Request] = []
        self.replica = Replica(hardware, at, on_finish=self._finished.append)
        self._last = self.replica.record(at)
        self._steps = 0
        self._before_first: deque[Request] = deque()
        """Those without a token yet; first come, first served."""
        self._callers: dict[Request, Done] = {}
        self._put()

    @property
    def busy_seconds(self) -> float:
        return self.replica.busy

    @property
    def stalled(self) -> bool:
        return self.replica.frozen

    @stalled.setter
    def stalled(self, value: bool) -> None:
        if value:
            self.replica.frozen = True
        elif self.replica.frozen:
            self.replica.thaw(self._own)

    @property
    def running(self) -> int:
        return self._last.running

    @property
    def waiting(self) -> int:
        return self._last.waiting

    def submit(self, size: Size | None = None, done: Done | None = None) -> None:
        """A request from outside arrives now."""
        self._submit(self._own, size, done)

    def advance(self, until: float) -> None:
        """On to ``until``, one tick: what is told is that of the tick's end."""
        scale = 1 / self.slow
        for arrival in self.arrivals.until(self.at, until):
            own = self._own + (arrival - self.at) * scale
            self.replica.advance(own)
            self._submit(own, None, None)
        self._own += (until - self.at) * scale
        self.replica.advance(self._own)
        self.at = until
        for ledger in (self.ledger, self.server, self.http):
            if ledger is not None:
                ledger.now = until
        self._tell()

    def drop_all(self, why: str) -> None:
        """The server dies, or the model is unloaded."""
        self.replica.drop_all(why)
        self._before_first.clear()
        callers, self._callers = self._callers, {}
        for done in callers.values():
            done(why)

    def _submit(self, own: float, size: Size | None, done: Done | None) -> None:
        prompt, output = (size.prompt, size.output) if size else self.lengths.draw(self._dice)
        request = Request(own, max(1, prompt), max(1, output))
        self.ledger.add("prefix_cache_queries", request.prompt)
        self._before_first.append(request)
        if done:
            self._callers[request] = done
        self.replica.submit(request)

    def _tell(self) -> None:
        ledger, last = self.ledger, self._last
        now = self._last = self.replica.record(self._own)
        generated, computed = now.generation - last.generation, now.computed - last.computed
        if ledger.engine.name != "triton-trtllm":  # there tokens are counted when a request ends
            ledger.add("generation_tokens", generated)
            ledger.add("prompt_tokens", now.prompt - last.prompt)
        ledger.add("preemptions", now.preemptions - last.preemptions)
        if count := now.itl_count - last.itl_count:
            ledger.observe("inter_token_latency_seconds", (now.itl_sum - last.itl_sum) / count * self.slow, count)
        while self._before_first and (self._before_first[0].first >= 0 or self._before_first[0].failed):
            request = self._before_first.popleft()
            if not request.failed:
                ledger.observe("time_to_first_token_seconds", request.ttft * self.slow)
        finished, self._finished[:] = self._finished[:], []
        for request in finished:
            self._ended(request)
        steps = max(1, round(generated / max(1, now.running, last.running))) if generated or computed else 0
        self._steps += steps
        if ledger.engine.name == "vllm":
            ledger.add_family("vllm:prompt_tokens_by_source_total", now.prompt - last.prompt, source="local_compute")
            if steps:
                ledger.observe_family("vllm:iteration_tokens_total", (generated + computed) / steps, steps)
        self._put(now)

    def _put(self, now: Record | None = None) -> None:
        now = now or self._last
        ledger = self.ledger
        ledger.put("requests_running", now.running)
        ledger.put("requests_waiting", now.waiting)
        ledger.put("kv_cache_usage", now.usage)
        if ledger.engine.name == "vllm":
            ledger.put("sleeping", 1)
            ledger.put_family("vllm:cache_config_info", 1, block_size=str(self.hardware.block), gpu_memory_utilization="0.92",
                              num_gpu_blocks=str(self.hardware.blocks), cache_dtype="auto", enable_prefix_caching="False",
                              kv_cache_size_tokens=str(self.hardware.blocks * self.hardware.block))
        elif ledger.engine.name == "triton-trtllm":
            self._put_trtllm(now)

    def _put_trtllm(self, now: Record) -> None:
        """What no signal covers: the bundled gauges' other parts."""
        ledger, hardware = self.ledger, self.hardware
        used = round(now.usage * hardware.blocks)
        for kind, value in (("active", now.running + now.waiting), ("max", hardware.max_sequences)):
            ledger.put_family("nv_trt_llm_request_metrics", value, request_type=kind)
        blocks = {"used": used, "max": hardware.blocks, "free": hardware.blocks - used, "tokens_per": hardware.block}
        for kind, value in blocks.items():
            ledger.put_family("nv_trt_llm_kv_cache_block_metrics", value, kv_cache_block_type=kind)
        ledger.put_family("nv_trt_llm_inflight_batcher_metrics", now.running,
                          inflight_batcher_specific_metric="generation_requests")
        ledger.put_family("nv_trt_llm_general_metrics", self._steps, general_type="iteration_counter")
        ledger.put_family("nv_trt_llm_general_metrics", self.at * 1e6, general_type="timestamp")

    def _ended(self, request: Request) -> None:
        failed = request.failed
        if not failed and self.error_ratio and self._dice.random() < self.error_ratio:
            failed = "the model failed (fault: errors)"
        ledger, engine = self.ledger, self.ledger.engine.name
        queue, prefill, decode, whole = self._phases(request)
        if failed:
            ledger.add("request_failures", 1)
        else:
            ledger.add("requests", 1)
            ledger.observe("request_latency_seconds", whole)
            ledger.observe("queue_time_seconds", queue)
        if engine == "vllm" and not failed:
            ledger.observe_family("vllm:request_prefill_time_seconds", prefill)
            ledger.observe_family("vllm:request_decode_time_seconds", decode)
            ledger.observe_family("vllm:request_inference_time_seconds", prefill + decode)
            ledger.observe_family("vllm:request_num_preemptions", request.preempted)
            ledger.observe_family("vllm:request_prefill_kv_computed_tokens", request.prompt)
            ledger.observe_family("vllm:request_max_num_generation_tokens", request.output)
            ledger.observe_family("vllm:request_params_max_tokens", request.output)
            if request.output > 1:
                ledger.observe_family("vllm:request_time_per_output_token_seconds", request.itl * self.slow)
        if engine in ("vllm", "triton-vllm") and not failed:
            ledger.observe_family("vllm:request_prompt_tokens", request.prompt)
            ledger.observe_family("vllm:request_generation_tokens", request.output)
            ledger.observe_family("vllm:request_params_n", 1)
        elif engine == "triton-trtllm":
            ledger.observe_family("nv_llm_input_token_len", request.prompt)
            ledger.observe_family("nv_llm_output_token_len", request.output)
        if self.server is not None:
            self._triton_tells(self.server, failed, whole)
        if self.http is not None:
            self._http_tells(self.http, failed, whole)
        if done := self._callers.pop(request, None):
            done(failed)

    def _phases(self, request: Request) -> tuple[float, float, float, float]:
        """Seconds of queue, prefill, decode, and all."""
        if request.failed:
            return 0.0, 0.0, 0.0, 0.0
        cost = self.hardware.cost
        prefill = min(request.ttft, cost.base + cost.prefill * request.prompt)
        return ((request.ttft - prefill) * self.slow, prefill * self.slow, (request.finish - request.first) * self.slow,
                (request.finish - request.arrival) * self.slow)

    def _triton_tells(self, server: Ledger, failed: str, whole: float) -> None:
        """Triton's core counts requests; its times end at the hand-over for vLLM and span all for TensorRT-LLM.

        vLLM's backend is a Python backend: its error answers count as success.
        """
        whole = HANDOFF_SECONDS if self.ledger.engine.name == "triton-vllm" else whole
        if failed and self.ledger.engine.name != "triton-vllm":
            server.add("request_failures", 1, reason="BACKEND")
            return
        for signal in ("requests", "inferences", "executions"):
            server.add(signal, 1)
        server.observe("queue_time_seconds", HANDOFF_SECONDS / 3)
        server.observe("compute_input_seconds", HANDOFF_SECONDS / 30)
        server.observe("compute_infer_seconds", max(0.0, whole - HANDOFF_SECONDS / 2))
        server.observe("compute_output_seconds", HANDOFF_SECONDS / 30)
        server.observe("request_latency_seconds", whole)

    def _http_tells(self, http: Ledger, failed: str, whole: float) -> None:
        http.add_family("http_requests_total", 1, status="5xx" if failed else "2xx")
        for name in ("http_request_duration_seconds", "http_request_duration_highr_seconds"):
            http.observe_family(name, whole)
        http.observe_family("http_request_size_bytes", 1000)
        http.observe_family("http_response_size_bytes", 1500)
