"""What a step of an engine costs: GPUs and models as data, each number with its source.

A step takes ``base + prefill × prompt tokens + sequence × sequences in decode + resident × tokens in the KV cache``
seconds. That is linear: its shape is a roofline (weights and KV cache are read once a step, prompts are arithmetic).
What it leaves out is listed in LIMITS; ``obs simulate --list`` prints it.
"""

from __future__ import annotations

from dataclasses import dataclass

from obs.errors import InputError

LIMITS = (
    "attention over long prompts is linear here (it is quadratic), so prompts above about 16k tokens come out too cheap",
    "weights, KV cache and arithmetic are added up; a real GPU overlaps them in part",
    "no prefix caching, no speculative decoding, no LoRA, no swapping, no disaggregated prefill",
    "a prompt's blocks are taken at admission, not chunk by chunk",
    "tensor parallelism costs a fixed efficiency, not a network",
    "the efficiencies are assumptions: calibrate absolute numbers with a load test of your own",
)


@dataclass(frozen=True)
class Cost:
    """Seconds of one engine step."""

    base: float
    """A step with nothing in it: launch, sampling, and reading the weights."""
    prefill: float
    """For each prompt token."""
    sequence: float
    """For each sequence in decode."""
    resident: float
    """For each token in the KV cache of the sequences in decode."""


@dataclass(frozen=True)
class Engine:
    """One replica: cost, KV cache and scheduler. ``kv_tokens`` is the capacity, ``load`` the start-up in seconds."""

    name: str
    cost: Cost
    kv_tokens: int
    load: float = 120.0
    block: int = 16
    batch_tokens: int = 2048
    """Tokens of one step at most: vLLM's max_num_batched_tokens for online serving."""
    max_sequences: int = 256
    watermark: float = 0.0
    """Share of blocks that admission leaves free, against preemption at once. vLLM V1 keeps none: with 0 the recording of a
    real vLLM comes out (2.2 of its 2.4 preemptions a second), with the 0.01 of older releases fewer (1.8)."""
    source: str = ""

    def __post_init__(self) -> None:
        if self.block < 1 or self.kv_tokens < self.block:
            raise InputError(f"{self.name}: a KV cache of {self.kv_tokens} tokens holds no block of {self.block} tokens; "
                             "give at least one block")
        if self.batch_tokens < 1 or self.max_sequences < 1:
            raise InputError(f"{self.name}: batch tokens and sequences must be at least 1")
        if not 0 <= self.watermark < 1:
            raise InputError(f"{self.name}: watermark {self.watermark:g} is not within 0 to 1")
        if min(self.cost.base, self.cost.prefill, self.cost.sequence, self.cost.resident) < 0 or not self.cost.base > 0:
            raise InputError(f"{self.name}: costs must not be negative, and a step must take time")
        if self.load < 0:
            raise InputError(f"{self.name}: the load time must not be negative")

    @property
    def blocks(self) -> int:
        """Blocks of the KV cache."""
        return self.kv_tokens // self.block


@dataclass(frozen=True)
class Gpu:
    """Bytes of memory, bytes per second from it, dense 16-bit FLOP/s."""

    memory: float
    bandwidth: float
    flops: float
    source: str


@dataclass(frozen=True)
class Weights:
    """Parameters, and the KV cache's bytes per token (2 × layers × KV heads × head size × 2 bytes)."""

    parameters: float
    kv_bytes: int
    source: str


GPUS = {
    "A100-80G": Gpu(80e9, 2.039e12, 312e12, "NVIDIA A100 data sheet (SXM, 80 GB)"),
    "H100-80G": Gpu(80e9, 3.35e12, 989e12, "NVIDIA H100 data sheet (SXM, dense)"),
    "L4": Gpu(24e9, 0.300e12, 121e12, "NVIDIA L4 data sheet (dense)"),
    "A10": Gpu(24e9, 0.600e12, 125e12, "NVIDIA A10 data sheet (dense)"),
}
MODELS = {
    "llama-3.1-8b": Weights(8.03e9, 2 * 32 * 8 * 128 * 2, "config.json: 32 layers, 8 KV heads, head size 128"),
    "llama-3.1-70b": Weights(70.6e9, 2 * 80 * 8 * 128 * 2, "config.json: 80 layers, 8 KV heads, head size 128"),
    "qwen2.5-7b": Weights(7.62e9, 2 * 28 * 4 * 128 * 2, "config.json: 28 layers, 4 KV heads, head size 128"),
}

PREFILL_EFFICIENCY = 0.5
"""Share of the data sheet's FLOP/s that a prefill reaches: an assumption."""
READ_EFFICIENCY = 0.75
"""Share of the memory bandwidth that decode reaches: an assumption."""
PARALLEL_EFFICIENCY = 0.85
"""What tensor parallelism leaves of both: an assumption."""
STEP_OVERHEAD = 0.004
"""Scheduler, launches and sampling, seconds a step: an assumption."""
SEQUENCE_OVERHEAD = 20e-6
"""Sampling and detokenising one token, seconds: an assumption."""
MEMORY_SHARE = 0.92
"""vLLM's default gpu_memory_utilization in the recorded release (0.32)."""
ACTIVATION_BYTES = 2e9
"""Left for activations and graphs on each GPU: an assumption."""
READ_RATE = 1e9
"""Bytes of weights per second from a network disk: an assumption."""
START_SECONDS = 45.0
"""Process start, compilation and graph capture: an assumption."""


def roofline(gpu: str, model: str, count: int = 1) -> Engine:
    """An engine of ``count`` GPUs from the data sheets; InputError when the weights do not fit."""
    chip, weights = GPUS[gpu], MODELS[model]
    share = PARALLEL_EFFICIENCY if count > 1 else 1.0
    bytes_ = 2 * weights.parameters
    read = chip.bandwidth * count * READ_EFFICIENCY * share
    free = chip.memory * MEMORY_SHARE * count - bytes_ - ACTIVATION_BYTES * count
    name = f"{model}@{f'{count}x' if count > 1 else ''}{gpu}"
    if free <= 0:
        raise InputError(f"{name}: {bytes_ / 1e9:.0f} GB of weights leave no room for a KV cache; take more GPUs")
    return Engine(
        name,
        Cost(
            base=STEP_OVERHEAD + bytes_ / read,
            prefill=2 * weights.parameters / (chip.flops * count * PREFILL_EFFICIENCY * share),
            sequence=SEQUENCE_OVERHEAD,
            resident=weights.kv_bytes / read,
        ),
        kv_tokens=int(free / weights.kv_bytes),
        load=START_SECONDS + bytes_ / READ_RATE,
        source=f"{chip.source}; {weights.source}; roofline with stated efficiencies",
    )


def reference(kv_tokens: int, **rest: float) -> Engine:
    """The engine of the reference's regimes: invented numbers, of the order of a 13B model on one A100."""
    return Engine(f"reference-{kv_tokens // 1000}k", Cost(0.020, 0.1e-3, 0.05e-3, 0.1e-6), kv_tokens,
                  load=rest.get("load", 120.0), source="reference regimes: invented, of the order of a 13B model on an A100")


ENGINES: dict[str, Engine] = {
    engine.name: engine
    for engine in (
        reference(40_000), reference(60_000), reference(200_000), reference(400_000),
        roofline("A100-80G", "llama-3.1-8b"), roofline("H100-80G", "llama-3.1-8b"), roofline("L4", "llama-3.1-8b"),
        roofline("A10", "qwen2.5-7b"),
        roofline("A100-80G", "llama-3.1-70b", 4), roofline("H100-80G", "llama-3.1-70b", 4),
    )
}
