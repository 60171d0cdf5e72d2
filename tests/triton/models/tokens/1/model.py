"""Decoupled: five responses per request, 5 ms apart, as a token-streaming model would send."""

import time

import numpy as np
import triton_python_backend_utils as pb_utils

RESPONSES = 5
SECONDS_PER_RESPONSE = 0.005


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            self.stream(request.get_response_sender())

    def stream(self, sender):
        for token in range(RESPONSES):
            time.sleep(SECONDS_PER_RESPONSE)
            output = pb_utils.Tensor("OUTPUT", np.array([token], dtype=np.float32))
            sender.send(pb_utils.InferenceResponse([output]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
