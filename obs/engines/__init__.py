"""Every engine we know, as data, and whose a metric name is.

One module per engine exports ``ENGINE``; to add an engine, add a module and a line below. Nothing is looked up by
scanning or by suffix: a name belongs to an engine because the engine's catalogue says so.
"""

from __future__ import annotations

import difflib
from collections import defaultdict
from functools import cache

from obs.catalog.signals import SIGNALS
from obs.engines import dcgm, dynamo, sglang, sidecar, triton, triton_trtllm, triton_vllm, trtllm_serve, vllm
from obs.errors import DeclarationError, InputError
from obs.model.metric import Engine, Metric

ENGINES: tuple[Engine, ...] = (
    triton.ENGINE,
    triton_vllm.ENGINE,
    triton_trtllm.ENGINE,
    vllm.ENGINE,
    trtllm_serve.ENGINE,
    dynamo.ENGINE,
    sglang.ENGINE,
    dcgm.ENGINE,
    sidecar.ENGINE,
)

for _engine in ENGINES:
    _silent = [signal.name for signal in SIGNALS if signal.name not in _engine.signals]
    if _silent:
        raise DeclarationError(
            f"obs/engines/{_engine.name.replace('-', '_')}.py: signal {', '.join(map(repr, _silent))} has neither a source nor "
            'Missing("why"); add one'
        )

BY_NAME: dict[str, Engine] = {engine.name: engine for engine in ENGINES}

#: These serve through Python's prometheus_client, which adds ``_created`` gauges (not in multiprocess mode).
_PYTHON_CLIENT = frozenset({"vllm", "trtllm-serve", "sglang"})


def engine(name: str) -> Engine:
    """The engine called ``name``; ``InputError`` with the nearest name when there is none."""
    found = BY_NAME.get(name)
    if found is not None:
        return found
    near = difflib.get_close_matches(name, BY_NAME, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(BY_NAME)}"
    raise InputError(f"unknown engine {name!r}; {hint}")


def created_metrics(of: Engine) -> tuple[Metric, ...]:
    """The ``_created`` gauges that prometheus_client adds to an engine's counters, histograms and summaries.

    A counter's loses ``_total`` (``vllm:generation_tokens_created``); a histogram's keeps its whole name, also where
    that ends in ``_total`` (``vllm:iteration_tokens_total_created``).
    """
    if of.name not in _PYTHON_CLIENT:
        return ()
    return tuple(
        Metric(
            name=f"{metric.name.removesuffix('_total') if metric.kind == 'counter' else metric.name}_created",
            kind="gauge",
            unit="s",
            help=f"Unix time at which {metric.name} began.",
            labels=metric.labels,
            optional_labels=metric.optional_labels,
            values=metric.values,
            since=metric.since,
            until=metric.until,
            enabled_by=metric.enabled_by,
            evidence=metric.evidence,
            source=metric.source,
        )
        for metric in of.metrics
        if metric.kind in ("counter", "histogram", "summary")
    )


def metric_owners(name: str) -> tuple[tuple[Engine, Metric], ...]:
    """The (engine, family) pairs whose wire has a sample called ``name``, in any dialect; empty when none has.

    Two engines can own one name: Triton's vLLM backend and vLLM itself share eight, told apart by ``Engine.own``.
    A histogram's bare name is nobody's: no sample is called that.
    """
    return _owners().get(name, ())


@cache
def _owners() -> dict[str, tuple[tuple[Engine, Metric], ...]]:
    owners: defaultdict[str, list[tuple[Engine, Metric]]] = defaultdict(list)
    for owner in ENGINES:
        for metric in (*owner.metrics, *created_metrics(owner)):
            for series in metric.series_names():
                for spelling in _spellings(owner, series):
                    owners[spelling].append((owner, metric))
    return {name: tuple(pairs) for name, pairs in owners.items()}


def _spellings(owner: Engine, series: str) -> set[str]:
    """``series`` as each of the engine's dialects writes it."""
    spellings = {series}
    for dialect in owner.dialects.values():
        for native, foreign in dialect.items():
            if series.startswith(native):
                spellings.add(foreign + series.removeprefix(native))
    return spellings
