"""Engine-neutral quantities. Each engine says in ``obs/engines/<engine>.py`` how it gives them.

The recorded series of a signal are named ``<level>:<signal>:<operation>``; see ``obs/recordings``.
"""

from __future__ import annotations

from obs.model.metric import Signal

SIGNALS: tuple[Signal, ...] = (
    # --- presence -----------------------------------------------------------------------------
    Signal("server", "presence", "1", "Server present",
           "The target serves this engine's metrics, whether or not a model is loaded."),
    Signal("model_loaded", "presence", "1", "Model loaded",
           "The target serves this model's series: the model is loaded."),
    Signal("sleeping", "presence", "1", "Engine asleep",
           "The engine was put to sleep on purpose: no capacity, no traffic, and no alert for that."),
    # --- traffic ------------------------------------------------------------------------------
    Signal("requests", "counter", "requests", "Requests answered",
           "Requests that the server counts as answered successfully."),
    Signal("request_failures", "counter", "requests", "Requests failed",
           "Requests that the server counts as failed, by reason where it tells one.", by=("reason",)),
    Signal("inferences", "counter", "inferences", "Inferences",
           "Inferences performed: batch elements, cached answers left out."),
    Signal("executions", "counter", "batches", "Model executions",
           "Batches executed, cached answers left out."),
    Signal("cache_hits", "counter", "requests", "Response cache hits", "Requests answered from the response cache."),
    Signal("cache_misses", "counter", "requests", "Response cache misses",
           "Requests looked up in the response cache in vain."),
    # --- latency ------------------------------------------------------------------------------
    Signal("request_latency_seconds", "distribution", "s", "Request latency",
           "Time from a request's arrival to its complete answer."),
    Signal("first_response_seconds", "distribution", "s", "First response latency",
           "Time from a request's arrival to its first response; the whole latency for a model that answers once."),
    Signal("queue_time_seconds", "distribution", "s", "Queue time",
           "Time that a request waits before the model or engine starts on it."),
    Signal("compute_input_seconds", "distribution", "s", "Compute input time", "Time spent preparing input tensors."),
    Signal("compute_infer_seconds", "distribution", "s", "Compute time", "Time spent executing the model."),
    Signal("compute_output_seconds", "distribution", "s", "Compute output time", "Time spent copying output tensors."),
    Signal("time_to_first_token_seconds", "distribution", "s", "Time to first token (TTFT)",
           "Time from a request's arrival to its first generated token."),
    Signal("inter_token_latency_seconds", "distribution", "s", "Inter-token latency (ITL)",
           "Time between two outputs of one request. With speculative decoding one output holds several tokens."),
    # --- queueing -----------------------------------------------------------------------------
    Signal("pending_requests", "gauge", "requests", "Pending requests",
           "Requests that the server holds before the backend takes them."),
    Signal("requests_running", "gauge", "requests", "Requests running", "Requests in the engine's running batch."),
    Signal("requests_waiting", "gauge", "requests", "Requests waiting", "Requests waiting in the engine for a place."),
    Signal("requests_paused", "gauge", "requests", "Requests paused",
           "Requests paused because the KV cache has no room for them."),
    # --- LLM ----------------------------------------------------------------------------------
    Signal("kv_cache_usage", "gauge", "ratio", "KV-cache usage", "Used part of the KV cache, 0 to 1, by blocks."),
    Signal("generation_tokens", "counter", "tokens", "Generated tokens", "Tokens generated (decode)."),
    Signal("engine_steps", "counter", "steps", "Engine steps",
           "Steps of the engine's loop: they stop when it hangs, whatever its gauges say, and when it is idle."),
    Signal("prompt_tokens", "counter", "tokens", "Prompt tokens",
           "Prompt tokens taken in, those found in the prefix cache included."),
    Signal("preemptions", "counter", "preemptions", "Preemptions",
           "Running requests pushed out because the KV cache was full; their work is done again."),
    Signal("prefix_cache_queries", "counter", "tokens", "Prefix-cache queries", "Prompt tokens looked up."),
    Signal("prefix_cache_hits", "counter", "tokens", "Prefix-cache hits", "Prompt tokens found in the prefix cache."),
    Signal("kv_transfer_seconds", "distribution", "s", "KV transfer time",
           "Time to move one request's KV cache between disaggregated prefill and decode servers."),
    Signal("kv_transfer_failures", "counter", "transfers", "KV transfer failures", "KV-cache transfers that failed."),
    # --- GPU ----------------------------------------------------------------------------------
    Signal("gpu_memory_used_bytes", "gauge", "bytes", "GPU memory used", "Framebuffer memory in use."),
    Signal("gpu_memory_total_bytes", "gauge", "bytes", "GPU memory total",
           "Framebuffer memory of the GPU, as far as the source tells it."),
    Signal("gpu_utilization", "gauge", "ratio", "GPU utilisation",
           "Share of time in which a kernel ran: not a measure of load for LLM engines."),
    Signal("gpu_power_watts", "gauge", "W", "GPU power", "Power drawn."),
)

BY_NAME = {signal.name: signal for signal in SIGNALS}
