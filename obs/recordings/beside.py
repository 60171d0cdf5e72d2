"""The sidecar's share of the recorded signals: it stands in where an engine itself is silent, and nowhere else.

The sidecar reads the engine that Prometheus may read too. What both tell is recorded once, from the engine: the
sidecar's series of a signal is left out for each model whose own engine gave the signal within the rate window. Engine
and sidecar are two targets, often of two jobs; what they share is cluster, namespace, the model's name and the kind of
engine, which the sidecar tells in its label ``engine``. So a model of Triton's vLLM backend keeps the sidecar's KV cache
also where a native vLLM serves a model of that name.

``source="estimate"`` marks what is computed from other figures and not the engine's own (``obs.engines.sidecar``).
"""

from __future__ import annotations

from obs.config import Config
from obs.engines import BY_NAME as ENGINES
from obs.engines.sidecar import ENGINE, ESTIMATED
from obs.model.metric import Missing, Signal
from obs.promql import by, call, duration, on, one_of, quote, selector
from obs.recordings.names import Labels, labels, series

SOURCE = "source"


class _Sourced(Labels):
    """The label sets of the sidecar's series: where a figure comes from is one more label, absent where it is the engine's."""

    @property
    def instance_model(self) -> tuple[str, ...]:
        return (*super().instance_model, SOURCE)


def sidecar_labels(config: Config) -> Labels:
    """The labels that the sidecar's recorded series keep at each level."""
    plain = labels(config)
    return _Sourced(plain.job, plain.instance, (*plain.model, SOURCE), plain.model_name, plain.gpu)


def stand_in(config: Config, signal: Signal, inner: str) -> str:
    """``inner`` (the sidecar's series of the signal, already with the label ``model``) where no engine gives it."""
    if signal.shape == "presence":
        return inner
    if kinds := ESTIMATED.get(signal.name):
        inner = call("label_replace", inner, quote(SOURCE), '"estimate"', '"engine"', quote("|".join(kinds)))
    others = [
        name for name in config.engines if name != ENGINE.name and not isinstance(ENGINES[name].signals[signal.name], Missing)
    ]
    if not others:
        return inner
    operation = "rate" if signal.shape == "counter" else "max" if signal.unit == "ratio" else "sum"
    theirs = selector(series("model", signal.name, operation), one_of("engine", others))
    # The sidecar writes triton_vllm where the pack's engine is called triton-vllm. Over a window, for one lost scrape
    # of the engine must not let the sidecar in.
    named = call("label_replace", inner, '"engine"', '"$1-$2"', '"engine"', '"(.+)_(.+)"')
    same = on((config.cluster, config.namespace, "model", "engine"))
    return f"{named}\nunless {same}\npresent_over_time({theirs}[{duration(config.window('rate'))}])"


def suspect(config: Config) -> str:
    """1 for each model whose sidecar sees requests and no progress: its figures are frozen."""
    frozen = selector("llm_engine_suspect", config.selector(ENGINE.name))
    return call("label_replace", f"{frozen} == 1", '"model"', '"$1"', '"model_name"', '"(.+)"')


def vulnerable(config: Config, *matchers: str) -> str:
    """Servers by job, hole, status and version; a version that cannot be read is absent."""
    hole, info = (selector(name, config.selector(ENGINE.name), *matchers)
                  for name in ("llm_engine_vulnerable_info", "llm_engine_info"))
    L = labels(config)
    return (
        f"count {by((*L.job, 'id', 'status', 'version'))} (\n  {hole}\n  * {on(L.instance)} group_left (version)\n"
        f"  {info}\n  or\n  {hole}\n  unless {on(L.instance)}\n  {info}\n)"
    )
