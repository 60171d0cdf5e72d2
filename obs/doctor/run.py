"""Looks at every source at once and puts together what was found; one that cannot be looked at takes no other down."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from obs.alerts.registry import all_groups
from obs.config import Config
from obs.doctor import flags, prometheus, repository, triton, vllm
from obs.doctor.checks import counters_frozen, registry
from obs.doctor.facts import Facts, Page, Sample
from obs.doctor.finding import SEVERITIES, Finding, Severity, Source
from obs.doctor.life import Alive, lives, of_verdict
from obs.doctor.web import LookedAtNothing, Site
from obs.errors import InputError, ServerError
from obs.evaluate import live, recording
from obs.evaluate.liveness import Verdict, clock
from obs.evaluate.rules import Rule, from_groups
from obs.prom.client import Client, Connection
from obs.prom.remote_write import is_stale
from obs.promql import duration
from obs.sidecar.scrape import shown

INTERRUPTED = "not looked at: interrupted"


@dataclass(frozen=True)
class Sources:
    """What to look at; None and "" for what was not named. ``triton_args`` is Triton's command line as text.

    ``metrics`` is taken to be the Triton host's port 8002 where only the Triton is named. ``timeout`` in seconds, of a page.
    """

    config: Config
    triton: str = ""
    metrics: str = ""
    vllm: str = ""
    prometheus: Connection | None = None
    repository: Path | None = None
    backends: Path | None = None
    recording: Path | None = None
    triton_args: str = ""
    authorization: str = ""
    ca_file: str = ""
    timeout: float = 10.0

    def site(self, url: str) -> Site:
        return Site(url, self.timeout, self.authorization, self.ca_file)


@dataclass(frozen=True)
class Report:
    """All findings (the worst first), how well each source could be looked at, and every alert per place.

    ``complete`` is False when any of it could not be had: such a report never says that all is well. ``ignored``
    counts the findings left out by the user's wish.
    """

    sources: tuple[Source, ...]
    findings: tuple[Finding, ...]
    alerts: Mapping[str, Sequence[Alive]] = field(default_factory=dict)
    interrupted: bool = False
    ignored: int = 0

    @property
    def complete(self) -> bool:
        return not self.interrupted and all(source.state == "ok" for source in self.sources)

    @property
    def looked(self) -> bool:
        """Whether anything could be looked at."""
        return any(source.state != "failed" for source in self.sources)

    def at_least(self, severity: Severity) -> tuple[Finding, ...]:
        """The findings of that severity and worse."""
        return tuple(one for one in self.findings if SEVERITIES.index(one.severity) <= SEVERITIES.index(severity))


def examine(given: Sources, ignore: Sequence[str] = ()) -> Report:
    """Look at all that is given. Raises InputError for what can be no source (a bad URL, no folder, no recording),
    ToolError when a package is missing; a server that cannot be looked at is a failed source instead."""
    if not (given.triton or given.metrics or given.vllm or given.prometheus or given.repository or given.recording):
        raise InputError(
            "nothing to look at; give --triton URL, --metrics, --vllm, --prometheus, --model-repository or --recording"
        )
    rules = from_groups(all_groups(given.config))
    for url in (given.triton, given.metrics, given.vllm):
        if url:
            given.site(url).fetcher()  # says what is wrong with a URL or a CA file
    known = flags.of_text(given.triton_args) if given.triton_args else flags.of_listener(given.triton) if given.triton else None
    work = _work(given, rules, known)
    done, interrupted = _together(work)
    facts = Facts(given.config, flags=known)
    sources = []
    for name, (place, _) in work.items():
        result = done.get(name)
        if result is None:
            sources.append(Source(name, place, "failed", lacking=(INTERRUPTED,)))
            continue
        sources.append(result.source)
        facts = replace(facts, **result.facts)
    facts = _judged(facts, rules)
    found = registry.run(facts)
    kept = [one for one in found if one.id not in ignore]
    return Report(tuple(sources), tuple(kept), facts.alerts, interrupted, len(found) - len(kept))


@dataclass(frozen=True)
class _Result:
    source: Source
    facts: Mapping[str, Any] = field(default_factory=dict)


#: What comes of an answer whose JSON has another shape than the API's.
_GARBLED = (AttributeError, IndexError, KeyError, TypeError, ValueError)
#: Reasons for no data that pass by themselves: traffic, or time.
_WAITS = frozenset(("traffic floor", "NaN only", "no history"))
_Flags = Mapping[str, tuple[str, ...]]
_Work = dict[str, tuple[str, Callable[[], _Result]]]


def _work(given: Sources, rules: Sequence[Rule], known: _Flags | None) -> _Work:
    """What is to be done, by the source's name: its place and the call."""
    work: _Work = {}
    page_url = given.metrics or (triton.metrics_url(given.triton, _last(known, "metrics-port")) if given.triton else "")
    if given.triton:
        work["Triton"] = (shown(given.triton), lambda: _triton(given, known))
    if page_url:
        work["metrics"] = (shown(page_url), lambda: _metrics(given, page_url))
    if given.vllm:
        work["vLLM"] = (shown(given.vllm), lambda: _vllm(given))
    if given.prometheus is not None:
        client = Client(given.prometheus)
        work["Prometheus"] = (client.url, lambda: _prometheus(client, given, rules))
    if given.repository is not None:
        path = given.repository
        work["repository"] = (str(path), lambda: _repository(path, given, known))
    if given.recording is not None:
        recorded = given.recording
        work["recording"] = (str(recorded), lambda: _recording(recorded))
    if known is not None and not given.triton:
        told = Source("flags", "--triton-args", "ok", flags.shown(known))
        work["flags"] = (told.place, lambda: _Result(told))
    return work


def _together(work: _Work) -> tuple[dict[str, _Result], bool]:
    """All calls at once, in threads that do not keep the program from ending; what is done when Ctrl-C comes is kept."""
    answers: queue.Queue[tuple[str, _Result | BaseException]] = queue.Queue()

    def one(name: str, call: Callable[[], _Result]) -> None:
        try:
            answers.put((name, call()))
        except BaseException as error:
            answers.put((name, error))

    for name, (_, call) in work.items():
        threading.Thread(target=one, args=(name, call), daemon=True).start()
    done: dict[str, _Result] = {}
    try:
        while len(done) < len(work):
            name, result = answers.get()
            if isinstance(result, BaseException):
                raise result
            done[name] = result
    except KeyboardInterrupt:
        return done, True
    return done, False


def _last(known: _Flags | None, name: str) -> str:
    return (known or {}).get(name, ("",))[-1]


def _state(lacking: Sequence[str]) -> Any:
    return "partial" if lacking else "ok"


def _triton(given: Sources, known: _Flags | None) -> _Result:
    place = shown(given.triton)
    try:
        found, lacking = triton.look(given.site(given.triton))
    except LookedAtNothing as error:
        return _Result(Source("Triton", place, "failed", lacking=(str(error),)))
    release = found.release
    ready = [one for one in found.index or () if one.state == "READY"]
    what = [f"Triton {found.version}" + (f" (container {release})" if release else "")]
    what.append({True: "ready", False: "NOT ready", None: "readiness unknown"}[found.ready])
    if found.index is not None:
        what.append(f"{len(ready)} of {len(found.index)} model versions ready")
    what.append(flags.shown(known) if known is not None else "flags unknown (give --triton-args)")
    return _Result(Source("Triton", place, _state(lacking), ", ".join(what), tuple(lacking)), {"triton": found})


def _metrics(given: Sources, url: str) -> _Result:
    place = shown(url)
    try:
        page = triton.page(given.site(url))
    except LookedAtNothing as error:
        return _Result(
            Source("metrics", place, "failed", lacking=(str(error),)), {"metrics_url": place, "metrics_reason": str(error)}
        )
    return _Result(Source("metrics", place, "ok", _size(page)), {"metrics_url": place, "page": page})


def _size(page: Page) -> str:
    return f"{len(page.samples)} series of {len(page.names)} names"


def _vllm(given: Sources) -> _Result:
    place = shown(given.vllm)
    try:
        found, page, lacking = vllm.look(given.site(given.vllm))
    except LookedAtNothing as error:
        return _Result(Source("vLLM", place, "failed", lacking=(str(error),)))
    what = [f"vLLM {found.version or 'of an unknown version'}", ", ".join(found.models) or "no model"]
    if page is not None:
        what.append(_size(page))
    return _Result(Source("vLLM", place, _state(lacking), ", ".join(what), tuple(lacking)), {"vllm": found, "vllm_page": page})


def _prometheus(client: Client, given: Sources, rules: Sequence[Rule]) -> _Result:
    with client:
        try:
            found, lacking = prometheus.look(client)
        except ServerError as error:
            return _Result(Source("Prometheus", client.url, "failed", lacking=(str(error),)))
        except _GARBLED as error:
            said = f"{client.url} answers in an unknown shape ({type(error).__name__}); is that a Prometheus?"
            return _Result(Source("Prometheus", client.url, "failed", lacking=(said,)))
        alerts: dict[str, Sequence[Alive]] = {}
        try:
            judged = live.evaluate(client, rules, interval=given.config.evaluation_interval)
            alerts[client.url] = [_of_result(one) for one in judged.results]
            lacking += [f"alerts: {one}" for one in judged.warnings]
        except ServerError as error:
            lacking.append(f"alerts: {error}")
        except _GARBLED as error:
            lacking.append(f"alerts: could not be judged by what it answers ({type(error).__name__}: {error})")
    name = "VictoriaMetrics" if found.victoria else "Prometheus"
    what = [f"{name} {found.version}".strip()]
    if found.targets is not None:
        what.append(f"{len(found.targets)} targets")
    if found.engine_targets:
        what.append(f"{len(found.engine_targets)} of engines")
    if found.rules is not None:
        what.append(f"{len(found.rules)} rules")
    if found.untold:
        what.append(f"does not tell its {' and '.join(found.untold)}")
    source = Source("Prometheus", client.url, _state(lacking), ", ".join(what), tuple(lacking))
    return _Result(source, {"prometheus": found, "alerts": alerts})


def _of_result(one: live.Result) -> Alive:
    """An alert as ``obs eval`` judges it now: it can work when it has an answer, whatever that is."""
    if one.state in {"firing", "pending", "ok"} or one.reason in _WAITS:
        return Alive(one.alert, "live", one.why)
    if one.state == "dead":
        engines = ("?",) if "this server has nothing of" in one.why else ()
        return of_verdict(one.alert, Verdict("dead", one.why, one.part, engines=engines))
    return Alive(one.alert, "blind", one.why)


def _repository(path: Path, given: Sources, known: _Flags | None) -> _Result:
    of_server = Path(_last(known, "backend-directory"))
    found, lacking = repository.look(path, given.backends or (of_server if of_server.name and of_server.is_dir() else None))
    readable = sum(model.config is not None for model in found.models)
    what = f"{len(found.models)} model folders, {readable} configurations read"
    what += f", backends of {found.backend_folder}" if found.backend_folder else ", backends unknown (give --backend-directory)"
    return _Result(Source("repository", str(path), _state(lacking), what, tuple(lacking)), {"repository": found})


def _recording(path: Path) -> _Result:
    if path.is_dir() and recording.is_tsdb(path):
        raise InputError(
            f"{path}: is a Prometheus data directory; doctor reads scrapes or text. Ask obs eval --recording {path} instead"
        )
    one = recording.read(path)
    last: dict[Any, float] = {}
    for point in one.points():
        if not is_stale(point.value):
            last[point.labels] = point.value
    samples = []
    for labels, value in last.items():
        named = dict(labels)
        name = named.pop("__name__", "")
        if name not in recording.SCRAPE_METRICS:
            samples.append(Sample(name, named, value))
    page = Page(str(path), tuple(samples))
    span = (one.end_ms - one.start_ms) / 1000
    what = f"{_size(page)}, {duration(max(1, round(span)))} from {clock(one.start_ms / 1000)}"
    return _Result(Source("recording", str(path), "ok", what), {"page": page, "recording": True})


def _judged(facts: Facts, rules: Sequence[Rule]) -> Facts:
    """With the alerts judged on the pages, all together: they are of one deployment."""
    pages = [page for page in (facts.page, facts.vllm_page) if page is not None]
    if not pages:
        return facts
    mutes = {}
    if facts.page is not None:
        counted = sum(facts.triton.counted.values()) if facts.triton is not None else 0
        if counters_frozen.frozen(facts.page, counted, facts.metrics_setting("counter_latencies")):
            mutes = dict.fromkeys(counters_frozen.FROZEN, counters_frozen.WHY)
    labelled = triton.labelled(sample for page in pages for sample in page.samples)
    place = " + ".join(page.place for page in pages)
    return replace(facts, alerts={place: lives(rules, labelled, mutes), **facts.alerts})
