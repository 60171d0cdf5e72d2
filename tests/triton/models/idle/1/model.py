"""Loaded, never called."""


class TritonPythonModel:
    def execute(self, requests):
        raise AssertionError("the idle model was called")
