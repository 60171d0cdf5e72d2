"""Moves the vLLM backend's eight families as a continuous batcher would, and tells the truth beside them.

Every STEP each running request gets a token; at most SLOTS run, the others wait. `execute` hands a request over and
returns, as the vLLM backend's does. The families, labels and bounds are those of vllm_backend's metrics.py; the
`truth_*` gauges are what that backend does not export.
"""

import threading
import time
from collections import deque

import numpy as np
import triton_python_backend_utils as pb_utils

STEP = 0.04
SLOTS = 12
TTFT = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0]
TPOT = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5]
E2E = [1.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0]
LENGTHS = [step * 10.0**power for power in range(4) for step in (1, 2, 5)]


class Request:
    def __init__(self, prompt, output, sender):
        self.prompt, self.output, self.sender = prompt, output, sender
        self.arrived = self.last = time.monotonic()
        self.generated = 0


class TritonPythonModel:
    def initialize(self, args):
        labels = {"model": args["model_name"], "version": args["model_version"]}
        self.families = []

        def metric(name, kind, **more):
            family = pb_utils.MetricFamily(name=name, description=name, kind=kind)
            self.families.append(family)
            return family.Metric(labels=labels, **more)

        counter, gauge, histogram = (getattr(pb_utils.MetricFamily, kind) for kind in ("COUNTER", "GAUGE", "HISTOGRAM"))
        self.prompt_tokens = metric("vllm:prompt_tokens_total", counter)
        self.generation_tokens = metric("vllm:generation_tokens_total", counter)
        self.ttft = metric("vllm:time_to_first_token_seconds", histogram, buckets=TTFT)
        self.tpot = metric("vllm:time_per_output_token_seconds", histogram, buckets=TPOT)
        self.e2e = metric("vllm:e2e_request_latency_seconds", histogram, buckets=E2E)
        self.request_prompt = metric("vllm:request_prompt_tokens", histogram, buckets=LENGTHS)
        self.request_generation = metric("vllm:request_generation_tokens", histogram, buckets=LENGTHS)
        self.params_n = metric("vllm:request_params_n", histogram, buckets=[1.0, 2.0, 5.0, 10.0, 20.0])
        self.truth = {name: metric(f"truth_{name}", gauge) for name in ("kv_tokens", "running", "waiting")}
        self.lock = threading.Lock()
        self.waiting, self.running = deque(), []
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.loop, daemon=True)
        self.thread.start()

    def execute(self, requests):
        for request in requests:
            numbers = [int(pb_utils.get_input_tensor_by_name(request, name).as_numpy().ravel()[0])
                       for name in ("PROMPT_TOKENS", "OUTPUT_TOKENS")]
            with self.lock:
                self.waiting.append(Request(*numbers, request.get_response_sender()))

    def finalize(self):
        self.ended.set()
        self.thread.join()

    def loop(self):
        while not self.ended.wait(STEP):
            self.step()

    def step(self):
        with self.lock:
            while self.waiting and len(self.running) < SLOTS:
                self.running.append(self.waiting.popleft())
            waiting = len(self.waiting)
        now = time.monotonic()
        generated = 0
        for request in self.running:
            request.generated += 1
            generated += 1
            if request.generated == 1:
                self.ttft.observe(now - request.arrived)
                self.prompt_tokens.increment(request.prompt)
            else:
                self.tpot.observe(now - request.last)
            request.last = now
        if generated:
            self.generation_tokens.increment(generated)
        self.truth["kv_tokens"].set(sum(request.prompt + request.generated for request in self.running))
        self.truth["running"].set(len(self.running))
        self.truth["waiting"].set(waiting)
        for request in [one for one in self.running if one.generated >= one.output]:
            self.running.remove(request)
            self.e2e.observe(now - request.arrived)
            self.request_prompt.observe(request.prompt)
            self.request_generation.observe(request.generated)
            self.params_n.observe(1)
            tokens = pb_utils.Tensor("TOKENS", np.array([request.generated], dtype=np.int32))
            request.sender.send(pb_utils.InferenceResponse([tokens]))
            request.sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
