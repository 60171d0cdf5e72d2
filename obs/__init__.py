"""obs: observability pack and alert evaluator for model and LLM inference servers."""

__version__ = "0.1.0"
