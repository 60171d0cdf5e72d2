"""House style: how a rate, a ratio, a latency looks on every dashboard, and what each is drawn with.

Panels read recorded series, so that they say the same as the alerts. Where no configured engine gives a series
there is no query, and where there is no query there is no panel. Two kinds of limits are drawn:

* one that holds for every series of a panel (``limits.*``) as a threshold;
* one that each model may set for itself (``slo.*``), or that moves with a baseline, as a dashed series whose legend
  begins with "limit": the same number that the alert compares with, for the models that it is compared for.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterable, Mapping
from functools import cache, cached_property
from typing import Any

from obs.config import ENGINE_NAMES, Config, parse_config
from obs.dashboards import variables
from obs.engines import BY_NAME as ENGINES
from obs.errors import DeclarationError
from obs.model.dashboard import Annotation, Panel, Query, Threshold, Variable
from obs.model.metric import Missing, Native
from obs.promql import block, by, duration, number, on, one_of, selector
from obs.recordings.names import labels, series
from obs.recordings.rules import EngineRules, groups, llm_engines, preallocating

#: What the pack's alerts are called; a test holds every name against it.
PACK = 'alertname=~"Inference.+|LLM.+|GPUMemory.+"'
NO_TRAFFIC = "no traffic"
NOT_EXPORTED = "not exported by this engine"
NO_CELL = "–"
"""A cell of a table that has no value; never 0."""

_RECORDED = re.compile(r"\b[a-z_]+:[a-z0-9_]+:[a-z0-9_]+\b")
#: Which variables narrow the series of each level.
_LEVELS = {
    "job_status": ("cluster", "namespace", "job"),
    "instance": ("cluster", "namespace", "job"),
    "model_name": ("cluster", "namespace", "job", "model"),
    "model": variables.NAMES,
    "model_reason": variables.NAMES,
    "instance_model": variables.NAMES,
    "rank": variables.NAMES,
    "gpu": ("cluster",),
}
_JOB = ("cluster", "namespace", "job")
_DASHED: Mapping[str, Any] = {
    "matcher": {"id": "byRegexp", "options": "/^limit\\b/"},
    "properties": [
        {"id": "color", "value": {"fixedColor": "red", "mode": "fixed"}},
        {"id": "custom.lineStyle", "value": {"dash": [8, 8], "fill": "dash"}},
        {"id": "custom.fillOpacity", "value": 0},
    ],
}


def natives(engine: str, signal: str) -> tuple[Native, ...]:
    """The engine's own series that give the signal as they are, newest name first."""
    sources = ENGINES[engine].signals[signal]
    return () if isinstance(sources, Missing) else tuple(s for s in sources if isinstance(s, Native))


def _recordings(config: Config) -> frozenset[str]:
    return frozenset(rule.record for group in groups(config) for rule in group.recordings)


@cache
def _recordable() -> frozenset[str]:
    """Every series that is recorded where all engines are configured."""
    text = f"engines: [{', '.join(ENGINE_NAMES)}]\nselectors: {{trtllm-serve: 'job=\"x\"'}}"
    return _recordings(parse_config(text, "all engines"))


class House:
    """Writes queries for one configuration: only of what its engines give, narrowed by the variables.

    ``single``: the variables of which one value is chosen.
    """

    def __init__(self, config: Config, single: tuple[str, ...] = ()) -> None:
        self.config = config
        self.single = single
        self.labels = labels(config)
        self.llm = llm_engines(config)

    # -- what there is ----------------------------------------------------------------------------
    @cached_property
    def live(self) -> frozenset[str]:
        """The recorded series that can have samples: of engines, and computed from nothing but such."""
        found: set[str] = set()
        for group in groups(self.config):
            for rule in group.recordings:
                if "engine" in rule.labels or set(_RECORDED.findall(rule.expr)) <= found:
                    found.add(rule.record)
        return frozenset(found)

    def has(self, level: str, name: str, operation: str) -> bool:
        """Whether a configured engine gives the series. DeclarationError for one that is recorded of no engine at all:
        a panel of it would be left out everywhere, and nobody would see that it is missing."""
        text = series(level, name, operation)
        if text not in self.live and text not in _recordable() | _recordings(self.config):
            raise DeclarationError(
                f"obs/dashboards: {text} is recorded for no engine; take one of docs/recording-rules.md, or record it in "
                "obs/recordings/rules.py"
            )
        return text in self.live

    def gives(self, signal: str) -> tuple[str, ...]:
        """The configured engines that give the signal."""
        return tuple(name for name in self.config.engines if not isinstance(ENGINES[name].signals[signal], Missing))

    # -- text -------------------------------------------------------------------------------------
    def series(self, level: str, name: str, operation: str, *matchers: str) -> str:
        """A recorded series narrowed by the variables, "" where no configured engine gives it.

        DeclarationError as in ``has``.
        """
        if not self.has(level, name, operation):
            return ""
        chosen = variables.matchers(self.config, *_LEVELS[level], single=self.single)
        return selector(series(level, name, operation), chosen, *matchers)

    def query(self, level: str, name: str, operation: str, legend: str, *matchers: str) -> Query | None:
        text = self.series(level, name, operation, *matchers)
        return Query(text, legend) if text else None

    def by_labels(self, *more: str, of: tuple[str, ...] | None = None) -> str:
        return by((*(self.labels.model if of is None else of), *more))

    @property
    def inside(self) -> str:
        """A matcher for the engines that batch inside."""
        return one_of("engine", self.llm)

    def of_llm(self, text: str) -> str:
        """``text`` for the models of LLM engines, whichever engine measured it."""
        loaded = self.series("model", "model_loaded", "count", self.inside)
        return f"{text}\nand {on(self.labels.model)}\n{loaded}" if text and loaded else text

    def targets(self) -> str:
        """``up`` of the targets that the availability alerts watch."""
        here = variables.matchers(self.config, *_JOB)
        if self.config.jobs:
            return selector("up", here, one_of("job", self.config.jobs))
        return f"{selector('up', here)}\nand {on(self.labels.job)}\n{self._known_jobs(here)}"

    def _known_jobs(self, here: str) -> str:
        server = selector(series("instance", "server", "present"), here)
        known = duration(self.config.window("known"))
        return f"group {by(self.labels.job)} (present_over_time({server}[{known}]))"

    def alerts(self, *matchers: str, name: str = "ALERTS") -> str:
        """The pack's alerts. One that lacks a label (a GPU has no model) passes whatever is chosen for it."""
        names = [one for one in (variables.NAMES if self._models else _JOB) if one not in self.single]
        chosen = variables.matchers(self.config, *names, absent=True)
        labels = [(variables.label_of(self.config, one), one) for one in self.single]
        # the chosen value or none: with = that takes a selector for each
        each = itertools.product(*((variables.matcher(label, one, single=(one,)), f'{label}=""') for label, one in labels))
        return "\nor\n".join(selector(name, PACK, *matchers, chosen, *some) for some in each)

    def raw_rate(self, engine: str, native: Native, keep: Iterable[str]) -> str:
        """The rate of an engine's own counter, for detail that is not recorded."""
        rules = EngineRules(ENGINES[engine], self.config)
        rules.window = "$__rate_interval"
        here = ",".join(part for part in (native.matchers, variables.matchers(self.config, *_JOB)) if part)
        return self._chosen(rules.rate(tuple(keep), dataclasses.replace(native, matchers=here)))

    def beside(self, metric: str, *matchers: str, more: tuple[str, ...] = ()) -> str:
        """A series of the sidecar per pod, model and kind of engine, "" where none is configured.

        Not narrowed by the chosen job, for the sidecar's may be another one than its engine's, nor by a model's alias.
        """
        if "sidecar" not in self.config.engines:
            return ""
        rules = EngineRules(ENGINES["sidecar"], self.config)
        here, keep = variables.matchers(self.config, "cluster", "namespace"), self.labels.instance
        if "model_name" in rules.engine.metric(metric).labels:
            keep = (*keep, "model")
            here += "" if self.config.aliases else "," + variables.matcher("model_name", "model", single=self.single)
        return rules.aggregate("max", (*keep, "engine", *more), rules.select(metric, *matchers, here))

    def _chosen(self, text: str) -> str:
        """Raw series narrowed by the variables: their own labels may be called otherwise."""
        return f"{block(text)}\nand {on(self.labels.model)}\n{self.series('model', 'model_loaded', 'count')}"

    # -- limits -----------------------------------------------------------------------------------
    def threshold(self, key: str, color: str = "red") -> tuple[Threshold, ...]:
        """The line of ``limits.<key>``."""
        return (Threshold(self.config.limit(key), color),)

    def objective(self, level: str, name: str, operation: str, plain: str, llm: str, what: str = "") -> Query | None:
        """The P99 or queue objective of each model that has the series, as its alert would compare it.

        ``plain`` and ``llm`` are the keys under ``slo`` for the two kinds of engine ("" = not drawn); ``what``
        tells two limits of one panel apart.
        """
        arms: list[str] = []
        engines = self.gives(name)
        for key, engine, wanted in (
            (plain, one_of("engine", self.llm, negate=True), any(e not in self.llm for e in engines)),
            (llm, self.inside, any(e in self.llm for e in engines)),
        ):
            if not key or not wanted:
                continue
            own = self.config.model_slos(key)
            default = self.config.slo(key)
            by_limit: dict[float, list[str]] = {}
            for model, limit in own.items():
                by_limit.setdefault(limit, []).append(model)
            cases = [(limit, one_of("model", models)) for limit, models in sorted(by_limit.items())]
            if default is not None:
                cases.insert(0, (default, one_of("model", own, negate=True)))
            for limit, models in cases:
                text = self.series(level, name, operation, engine, models)
                if text:
                    arms.append(f"{number(limit)} * group by (model) ({text})")
        return Query("\nor\n".join(arms), f"limit {what}{{{{model}}}}") if arms else None

    def baseline(self, level: str, name: str, part: str, floor: str) -> Query | None:
        """The value below which an alert fires: part of a baseline that is above its floor."""
        text = self.series(level, name, "baseline")
        if not text:
            return None
        limit, least = number(self.config.limit(part)), number(self.config.limit(floor))
        return Query(f"{limit} * ({text} > {least})", "limit {{model}} {{job}}")

    @property
    def gpu_ceiling(self) -> float:
        """Used part of a GPU above which only something beside the engine that took it at start can have grown."""
        target, margin = self.config.limit("gpu_memory_preallocated"), self.config.limit("gpu_memory_margin")
        return min(round(target + margin, 6), 1.0)

    # -- variables and annotations ----------------------------------------------------------------
    def variables(self, metric: str = "") -> tuple[Variable, ...]:
        """cluster → namespace → job → model → version. ``metric`` gives the first three (default: loaded models).

        With GPUs only there are no models to choose from.
        """
        models = self._models
        first = variables.chain(self.config, metric or models or series("instance", "server", "present"), *_JOB)
        if not models:
            return first
        return (*first, *variables.chain(self.config, models, "model", "version", above=_JOB, single=self.single))

    @cached_property
    def _models(self) -> str:
        """The series that names the models, "" where no configured engine has any."""
        of = (series("model", "model_loaded", "count"), series("model", "generation_tokens", "rate"))
        return next((one for one in of if one in self.live), "")

    def annotations(self) -> tuple[Annotation, ...]:
        return (
            Annotation(
                "Alerts firing", self.alerts('alertstate="firing"', 'severity!="info"'),
                "{{alertname}} {{model}}", "red", "severity",
            ),
            Annotation("Restarts and reloads", self._restarts(), "{{job}} {{instance}}", "orange", "job"),
        )

    def _restarts(self) -> str:
        """A target's counters that began again (a restarted server, a reloaded model), or its ``up`` that changed.

        Triton has no process_start_time_seconds, and vLLM loses it with several API servers. A pod that is
        replaced comes back under another instance: the replicas show it.
        """
        here = variables.matchers(self.config, *_JOB)
        of = by(("job", "instance"))
        arms: list[str] = []
        for name in self.config.engines:
            rules = EngineRules(ENGINES[name], self.config)
            counters = (*natives(name, "generation_tokens"), *natives(name, "requests"))
            if not counters or name == "sidecar":  # the sidecar's counters outlive restarts on purpose
                continue
            for dialect in self.config.dialects(name):
                counter = rules.select(counters[0].metric, counters[0].matchers, here, dialect=dialect)
                arms.append(f"sum {of} (resets({counter}[$__rate_interval])) > 0")
        if self.config.jobs:
            changed = f"changes({selector('up', here, one_of('job', self.config.jobs))}[$__rate_interval])"
        else:
            known = self._known_jobs(here)
            changed = f"changes({selector('up', here)}[$__rate_interval])\nand {on(self.labels.job)}\n{known}"
        arms.append(f"sum {of} {block(changed)} > 0")
        return "\nor\n".join(arms)


# --- panels ---------------------------------------------------------------------------------------------


def panel(title: str, queries: Iterable[Query | None], description: str, **settings: Any) -> tuple[Panel, ...]:
    """The panel with the queries that there are; none without a query. Limits among them are dashed.

    Without a query that is not a limit there is no panel either.
    """
    found = tuple(query for query in queries if query is not None)
    if all(query.legend.startswith("limit") for query in found):
        return ()
    if settings.get("type", "timeseries") == "timeseries" and any(q.legend.startswith("limit") for q in found):
        settings["overrides"] = (*settings.get("overrides", ()), _DASHED)
    return (Panel(title, found, description=description, **settings),)


def rate(title: str, queries: Iterable[Query | None], description: str, unit: str = "reqps",
         **settings: Any) -> tuple[Panel, ...]:
    return panel(title, queries, description, **{"unit": unit, "min": 0.0, "no_value": NO_TRAFFIC, **settings})


def ratio(title: str, queries: Iterable[Query | None], description: str, **settings: Any) -> tuple[Panel, ...]:
    return panel(title, queries, description, **{"unit": "percentunit", "min": 0.0, "no_value": NO_TRAFFIC, **settings})


def latency(title: str, queries: Iterable[Query | None], description: str, **settings: Any) -> tuple[Panel, ...]:
    return panel(title, queries, description, **{"unit": "s", "min": 0.0, "no_value": NO_TRAFFIC, **settings})


def count(title: str, queries: Iterable[Query | None], description: str, **settings: Any) -> tuple[Panel, ...]:
    return panel(title, queries, description, **{"unit": "short", "min": 0.0, "no_value": NOT_EXPORTED, **settings})


def stat(title: str, expr: str, description: str, **settings: Any) -> tuple[Panel, ...]:
    """One number, now. ``expr`` "" gives no panel."""
    queries = (Query(expr, instant=True),) if expr else ()
    options = {"graphMode": "none", "colorMode": "background"} if settings.get("thresholds") else {"graphMode": "none"}
    return panel(title, queries, description,
                 **{"type": "stat", "unit": "short", "width": 4, "height": 4, "options": options, **settings})


def states(title: str, queries: Iterable[Query | None], description: str,
           names: Mapping[int, tuple[str, str]], **settings: Any) -> tuple[Panel, ...]:
    """A state timeline; ``names`` gives each value its text and colour."""
    mapped = {str(value): {"text": text, "color": color, "index": value} for value, (text, color) in names.items()}
    # The unit is that of a state: none.
    return panel(title, queries, description, **{
        "type": "state-timeline", "unit": "none",
        "field_defaults": {"mappings": [{"type": "value", "options": mapped}], "custom": {"fillOpacity": 80}},
        "options": {"showValue": "never"}, **settings,
    })


def column(name: str, **properties: Any) -> Mapping[str, Any]:
    """An override of one table column; ``custom_width`` stands for ``custom.width``."""
    return {
        "matcher": {"id": "byName", "options": name},
        "properties": [{"id": key.replace("custom_", "custom."), "value": value} for key, value in properties.items()],
    }


def steps(*found: Threshold, base: str = "green") -> dict[str, Any]:
    """The thresholds of one table column."""
    rest = [{"color": step.color, "value": step.value} for step in found]
    return {"mode": "absolute", "steps": [{"color": base, "value": None}, *rest]}


def table(title: str, columns: Iterable[tuple[str, str, str]], description: str, *, hidden: Iterable[str] = (),
          names: Mapping[str, str] | None = None, after: Mapping[str, str] | None = None,
          **settings: Any) -> tuple[Panel, ...]:
    """Instant queries side by side, a row per set of labels. ``columns`` are (title, unit, expression or "").

    ``names``: label → title, in order, before the values. ``after``: label → the value's title that it stands behind.
    ``no_value`` is said where there is no row; a cell without a value is a dash.
    """
    found = [(name, unit, expr) for name, unit, expr in columns if expr]
    if not found:
        return ()
    fields = {f"Value #{chr(65 + place)}" if len(found) > 1 else "Value": name
              for place, (name, _, _) in enumerate(found)}
    places = after or {}
    order = [label for label in names or {} if label not in places]
    for field, name in fields.items():
        order += [field, *(label for label, value in places.items() if value == name)]
    transformations = (
        {"id": "merge", "options": {}},
        {"id": "organize", "options": {
            "excludeByName": {"Time": True, **dict.fromkeys(hidden, True)},
            "indexByName": {field: place for place, field in enumerate(order)},
            "renameByName": {**(names or {}), **fields},
        }},
    )
    every = {"matcher": {"id": "byRegexp", "options": "/.*/"}, "properties": [{"id": "noValue", "value": NO_CELL}]}
    units = tuple(column(name, unit=unit) for name, unit, _ in found)
    overrides = (every, *units, *settings.pop("overrides", ()))
    return (
        Panel(title, tuple(Query(expr, instant=True, format="table") for _, _, expr in found), "table",
              description=description, transformations=transformations, overrides=overrides,
              **{"width": 24, "height": 9, **settings}),
    )


# --- shared by several dashboards -------------------------------------------------------------------------


def gpu_memory(h: House, *matchers: str, **settings: Any) -> tuple[Panel, ...]:
    """The used part of each GPU, with the limit of its kind."""
    ratio_ = h.series("gpu", "gpu_memory_usage", "ratio", *matchers)
    if not ratio_:
        return ()
    legend, marked = "{{gpu_uuid}} {{GPU_I_ID}}", h.series("gpu", "preallocates", "present")
    queries = [Query(ratio_, legend)]
    thresholds = [Threshold(h.config.limit("gpu_memory"), "orange" if preallocating(h.config) else "red")]
    what = f"Above {h.config.limit('gpu_memory'):.0%} the next large batch, model or instance may not fit."
    if preallocating(h.config):
        queries = [
            Query(f"{ratio_} unless {on(h.labels.gpu)} {marked}", legend),
            Query(f"{ratio_} and {on(h.labels.gpu)} {marked}", f"{legend} (taken at start)"),
        ]
        thresholds.append(Threshold(h.gpu_ceiling, "red"))
        what += (
            " A GPU marked \"taken at start\" belongs to an engine that reserves its memory when it starts: there the "
            f"ratio says nothing of load, and only above {h.gpu_ceiling:.0%} (upper line) has something else grown."
        )
    return ratio(
        "GPU memory used", queries,
        f"Used part of each GPU's memory, once per GPU however many servers report it. {what} A GPU that reports 0 of "
        "0 bytes has no line here: see GPUMemoryDataMissing.",
        thresholds=tuple(thresholds), max=1.0, no_value="no GPU reported", **settings,
    )


def beyond_top(h: House, share: str, **settings: Any) -> tuple[Panel, ...]:
    """How much of a histogram no quantile can tell."""
    return ratio(
        "Share beyond the top bucket",
        [Query(share, "{{model}} {{version}} {{signal}}")] if share else [],
        "Share of the observations above the largest finite bucket bound. More than "
        f"{h.config.limit('beyond_buckets'):.0%} and the P99 drawn is only that bound: the truth is worse.",
        thresholds=h.threshold("beyond_buckets"), **settings,
    )

