"""Which engines a page belongs to, told from what it serves."""

from __future__ import annotations

from collections.abc import Sequence

from obs.errors import InputError
from obs.sidecar.dialects import (
    BY_KEY,
    SGLANG,
    TRITON,
    TRITON_TRTLLM,
    TRITON_VLLM,
    TRTLLM_SERVE,
    VLLM,
    Dialect,
    needed,
)
from obs.sidecar.reader import Samples
from obs.sidecar.scrape import ScrapeFailed

AUTO = "auto"
CHOICES = (AUTO, *BY_KEY)

#: Any of these shows that the engine is there, in this order of preference for the pod's own label ``engine``.
_ORDER: tuple[Dialect, ...] = (TRITON_VLLM, TRITON_TRTLLM, VLLM, TRTLLM_SERVE, SGLANG, TRITON)
#: On Triton's port: one page can hold all of these, each with models of its own.
_TRITON_FAMILY = (TRITON_VLLM, TRITON_TRTLLM, TRITON)
#: Triton without a model serves only these.
_TRITON_SIGNS = frozenset({"nv_cpu_utilization", "nv_pinned_memory_pool_total_bytes", "nv_gpu_utilization",
                           "nv_cache_num_lookups", "nv_gpu_memory_total_bytes"})


def chosen(name: str) -> tuple[Dialect, ...]:
    """The dialects that a page is read with, for a configured engine or for ``auto``."""
    if name == AUTO:
        return _ORDER
    if name not in BY_KEY:
        raise InputError(f"unknown engine {name!r}; one of {', '.join(CHOICES)}")
    dialect = BY_KEY[name]
    return _TRITON_FAMILY if dialect in _TRITON_FAMILY else (dialect,)


def needed_names(name: str) -> frozenset[str]:
    """All sample names that the reader must keep."""
    return frozenset[str]().union(*(needed(dialect) for dialect in chosen(name)), _TRITON_SIGNS)


def detect(name: str, samples: Samples) -> Sequence[Dialect]:
    """The dialects that this page really has, the pod's own first; ScrapeFailed when it has none."""
    present = [dialect for dialect in chosen(name) if _present(dialect, samples)]
    if name == AUTO:
        if not present:
            raise ScrapeFailed("unknown_engine", "no family of an engine that we know")
        return present
    if BY_KEY[name] not in present:
        raise ScrapeFailed("missing_family", f"no family of {name}")
    return sorted(present, key=lambda dialect: dialect.key != name)


def _present(dialect: Dialect, samples: Samples) -> bool:
    if dialect is TRITON:
        return not _TRITON_SIGNS.isdisjoint(samples) or any(name.startswith("nv_inference_") for name in samples)
    if dialect in (VLLM, TRITON_VLLM):
        label = dialect.engine.version_label or dialect.engine.model_label
        return any(name.startswith("vllm:") and any(label in sample.labels for sample in series)
                   for name, series in samples.items())
    if dialect is TRITON_TRTLLM:
        return any(name.startswith(("nv_trt_llm_", "nv_llm_")) for name in samples)
    if dialect is SGLANG:
        return any(name.startswith("sglang:") for name in samples)
    # trtllm-serve; in its 1.1 line the names have no prefix, so the label has to tell
    return any(name.startswith("trtllm_") or "engine_type" in series[0].labels
               for name, series in samples.items() if series and not name.startswith("sglang:"))
