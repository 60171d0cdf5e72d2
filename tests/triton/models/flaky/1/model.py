"""Answers a negative input with an error response, below -100 by raising: the caller decides, so a test can count."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        rows = pb_utils.get_input_tensor_by_name(request, "INPUT").as_numpy()
        if rows.min() < -100:
            raise ValueError("flaky raised, as the input asked")
        if rows.min() < 0:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("flaky failed, as the input asked"))
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", rows)])
