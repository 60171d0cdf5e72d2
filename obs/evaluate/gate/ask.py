"""Asks a Prometheus about both sides of a canary and has them judged."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from obs.config import Config
from obs.engines import BY_NAME as ENGINES
from obs.errors import InputError, ServerError
from obs.evaluate import recording
from obs.evaluate.explain import matchers as parsed
from obs.evaluate.gate import formulas as text
from obs.evaluate.gate.judge import Gate, Measure, Side, inconclusive, judge
from obs.prom import tools
from obs.prom.client import Client, QueryError, Sample
from obs.prom.remote_write import Labels, make_labels
from obs.prom.server import PrivatePrometheus
from obs.recordings.rules import llm_engines

_WHO = ("baseline", "canary")


def gate(
    client: Client,
    baseline: str,
    canary: str,
    *,
    config: Config,
    span: float = 900.0,
    at: float | None = None,
    parallel: int = 8,
) -> Gate:
    """Judge a canary against its baseline by what a Prometheus holds of the last ``span`` seconds before ``at``.

    ``baseline`` and ``canary`` are PromQL matchers on the raw series (``version="2"``, ``pod=~"canary-.*"``), without
    braces; ``at`` in unix seconds (None = the server's now). InputError when matchers cannot be used or both pick the same
    series, ServerError when the server cannot be used.
    """
    for who, one in zip(_WHO, (baseline, canary), strict=True):
        if not one.strip() or not parsed(f"{{__name__=~\".+\",{one}}}"):
            raise InputError(f"--{who} {one!r}: is no list of matchers; write it like version=\"2\" or pod=~\"canary-.*\"")
    if span <= 0:
        raise InputError(f"a window of {span:g} s is none; give one like 15m")
    if at is None:
        at = math.floor(client.query("time()")[0].value)
    with ThreadPoolExecutor(max_workers=max(1, parallel)) as pool:
        return _Run(client, pool, config, (baseline.strip().rstrip(","), canary.strip().rstrip(",")), span, at).run()


def gate_recording(
    path: Path,
    baseline: str,
    canary: str,
    *,
    config: Config,
    span: float = 900.0,
    at: Callable[[int], int | None] | None = None,
    job: str = "",
    instance: str = "",
    parallel: int = 8,
) -> Gate:
    """``gate`` on a recording, at its end or the time (unix ms) that ``at`` makes of its end; any form of recording."""
    if path.is_dir() and recording.is_tsdb(path):
        with recording.Tsdb(path) as opened:
            when = _within(path, (at and at(opened.end_ms)) or opened.end_ms, opened.start_ms)
            return gate(opened.client, baseline, canary, config=config, span=span, at=when / 1000, parallel=parallel)
    one = recording.read(path, job=job, instance=instance)
    end = _within(path, (at and at(one.end_ms)) or one.end_ms, one.start_ms)
    binary = tools.find("prometheus")
    with PrivatePrometheus(binary=binary) as server:
        server.writer.write(one.points(end_ms=end, normalise_le=tools.version(binary) >= (3, 0, 0)))
        return gate(server.client, baseline, canary, config=config, span=span, at=end / 1000, parallel=parallel)


def _within(path: Path, at_ms: int, start_ms: int) -> int:
    if at_ms < start_ms:
        raise InputError(f"{path}: {at_ms / 1000:.0f} is before its first sample ({start_ms / 1000:.0f}); give a later time")
    return at_ms


def watch(
    look: Callable[[], Gate],
    *,
    every: float,
    until: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Gate | ServerError]:
    """Look again and again, ``every`` seconds: ends at once with a fail, else after ``until`` seconds with the last look.

    A server that cannot be reached is one lost look, given as the error; the caller decides what the last one means.
    """
    end = clock() + until
    while True:
        begun = clock()
        found: Gate | ServerError
        try:
            found = look()
        except QueryError:
            raise
        except ServerError as error:
            found = error
        yield found
        if isinstance(found, Gate) and found.verdict == "fail":
            return
        if clock() >= end:
            return
        sleep(max(0.0, min(end, begun + every) - clock()))


@dataclass
class _Run:
    client: Client
    pool: ThreadPoolExecutor
    config: Config
    matchers: tuple[str, str]
    span: float
    at: float
    warnings: dict[str, None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def run(self) -> Gate:
        engines, reasons, models = self._survey()
        sides = [
            Side(matchers, ", ".join(sorted(engines[number])), models[number][0] if len(models[number]) == 1 else ())
            for number, matchers in enumerate(self.matchers)
        ]
        if not reasons:
            reasons = self._comparable(sides)
        if reasons:
            reasons += [f"the server's answer is partial: {one}" for one in self.warnings]
            return inconclusive(self.at, self.span, sides[0], sides[1], reasons, self.notes, list(self.warnings))
        engine = ENGINES[sides[0].engine]
        asked = [text.formulas(engine, self.config, matchers, self.span) for matchers in self.matchers]
        questions = [(number, name, query) for number, one in enumerate(asked) for name, query in one.queries().items()]
        answers = self._ask([query for _, _, query in questions])
        found: tuple[dict[str, Sequence[Sample]], dict[str, Sequence[Sample]]] = ({}, {})
        for (number, name, _), samples in zip(questions, answers, strict=True):
            found[number][name] = samples
        measured = [
            _measure(side, asked[number], found[number], self.span) for number, side in enumerate(sides)
        ]
        measured = _same_source(measured, asked)
        for who, one in zip(_WHO, measured, strict=True):
            if one.resets:
                self.notes.append(f"the {who}'s counters restarted within the window ({one.resets:.0f} resets seen)")
        if text.giver(engine, "requests") is ENGINES["triton"]:
            self.notes.append("Triton counts an error that a Python-backend model answers (vLLM's too) as a success")
        return judge(
            measured[0], measured[1], self.config, at=self.at, span=self.span, llm=engine.name in llm_engines(self.config),
            notes=self.notes, warnings=list(self.warnings),
        )

    def _ask(self, queries: Sequence[str]) -> list[Sequence[Sample]]:
        jobs = [self.pool.submit(self.client.ask, query, self.at) for query in queries]
        answers = [job.result() for job in jobs]
        for one in answers:
            self.warnings.update(dict.fromkeys(one.warnings))
        return [one.samples for one in answers]

    def _survey(self) -> tuple[tuple[set[str], set[str]], list[str], tuple[list[Labels], list[Labels]]]:
        """Which engine serves which models on each side, and why the sides cannot be compared."""
        questions: list[tuple[str, int, str, str]] = []
        for name in self.config.engines:
            for number, matchers in enumerate(self.matchers):
                for what, query in (
                    ("now", text.presence(ENGINES[name], self.config, matchers, self.span, now=True)),
                    ("window", text.presence(ENGINES[name], self.config, matchers, self.span, now=False)),
                    ("down", text.down(ENGINES[name], self.config, matchers, self.span)),
                ):
                    if query and text.giver(ENGINES[name], "requests") is not None:
                        questions.append((what, number, name, query))
            both = text.presence(ENGINES[name], self.config, ",".join(self.matchers), self.span, now=False)
            if both and text.giver(ENGINES[name], "requests") is not None:
                questions.append(("both", 0, name, both))
        seen: dict[tuple[str, int], dict[str, Sequence[Sample]]] = {}
        for (what, number, name, _), samples in zip(questions, self._ask([one[3] for one in questions]), strict=True):
            if samples:
                seen.setdefault((what, number), {})[name] = samples
        if ("both", 0) in seen:
            ((_, samples), *_) = seen["both", 0].items()
            raise InputError(
                f"the same series are on both sides ({_labels(samples[0].labels)}); write matchers that exclude each other"
            )
        engines: tuple[set[str], set[str]] = (set(), set())
        models: tuple[list[Labels], list[Labels]] = ([], [])
        reasons: list[str] = []
        for number, who in enumerate(_WHO):
            window = seen.get(("window", number), {})
            now = seen.get(("now", number), {})
            window = _own(window)
            engines[number].update(window)
            for samples in seen.get(("down", number), {}).values():
                down = ", ".join(_labels(one.labels) for one in samples)
                reason = f"a target of the {who} is down: {down}"
                if reason not in reasons:
                    reasons.append(reason)
            if not window:
                reasons.append(f"the {who} has no data: nothing of a known engine matches {self.matchers[number]}")
                continue
            if len(engines[number]) > 1:
                many = "; ".join(f"{name} {_labels(window[name][0].labels)}" for name in sorted(engines[number]))
                reasons.append(f"the {who} picks several engines: {many}; add a matcher")
                continue
            (name,) = engines[number]
            models[number].extend(sorted({one.labels for one in now.get(name, ())}))
            gone = sorted({one.labels for one in window[name]} - set(models[number]))
            if not models[number]:
                reasons.append(f"the {who} vanished within the window: {_labels(gone[0])} is no longer served")
            elif len(models[number]) > 1:
                many = "; ".join(_differing(models[number]))
                reasons.append(f"the {who} picks several series where one is needed: {many}; add a matcher")
            elif gone:
                self.notes.append(f"the {who} also served {_labels(gone[0])} within the window, which is left out")
        return engines, reasons, models

    def _comparable(self, sides: Sequence[Side]) -> list[str]:
        one, two = sides
        if one.engine != two.engine:
            return [f"the sides run different engines, whose times begin and end elsewhere: {one.engine} and {two.engine}"]
        ours, theirs = dict(one.labels).get("model", ""), dict(two.labels).get("model", "")
        named = re.compile(rf"\b(model|{re.escape(ENGINES[one.engine].model_label)})\s*(=|!)")
        if ours != theirs and not all(named.search(side.matchers) for side in sides):
            return [f"the sides serve different models: {ours} and {theirs}; name the model in both matchers if that is meant"]
        return []


def _own(served: Mapping[str, Sequence[Sample]]) -> dict[str, Sequence[Sample]]:
    """What each engine serves; Triton without the models of an engine inside it."""
    inside = {
        one.labels
        for name, samples in served.items()
        if ENGINES[name].hides or ENGINES[name].inherits
        for one in samples
    }
    plain = {
        name: [one for one in samples if name != "triton" or one.labels not in inside] for name, samples in served.items()
    }
    return {name: samples for name, samples in plain.items() if samples}


def _measure(side: Side, asked: text.Formulas, found: Mapping[str, Sequence[Sample]], span: float) -> Side:
    """The side with its requests and measures; values of other models (served earlier in the window) are left out."""

    def of(name: str) -> list[Sample]:
        wanted = side.labels
        return [
            one for one in found.get(name, ())
            if tuple(pair for pair in one.labels if pair[0] not in {"reason", "le", "source"}) == wanted
        ]

    def value(name: str) -> float | None:
        samples = of(name)
        return samples[0].value if samples else None

    answered = (value("requests") or 0.0) * span
    failures = of("failures")
    failed = sum(one.value for one in failures if dict(one.labels).get("reason") != "CANCELED") * span
    attempts = answered + sum(one.value for one in failures) * span
    measures: dict[str, Measure] = {}
    if not asked.failures:
        measures["error_ratio"] = Measure(None, asked.missing.get("error_ratio", ""))
    elif not failures:
        measures["error_ratio"] = Measure(None, "it exports no count of failures")
    else:
        ratio = failed / attempts if attempts else math.nan
        measures["error_ratio"] = Measure(ratio, of=attempts, hits=failed)
    measures["queue_time"] = _plain(value("queue_time"), asked.queue_time, asked.missing.get("queue_time", ""))
    measures["throughput"] = _plain(value("throughput"), asked.throughput, "the engine counts no tokens or computing time")
    for criterion, ladder in asked.quantiles.items():
        for kind, one in ladder.items():
            key = f"{criterion}.{kind}"
            if not of(f"{key}.there"):
                continue
            buckets = tuple(sorted(
                (float(dict(bucket.labels)["le"]) * one.scale, bucket.value * span) for bucket in of(f"{key}.buckets")
            ))
            here = value(key)
            measures[key] = Measure(
                here, "" if here is not None else "NaN, no observations", buckets[-1][1] if buckets else None,
                buckets=buckets, mean=value(f"{key}.mean"), source=kind,
            )
    return Side(
        side.matchers, side.engine, side.labels, attempts, failed if failures else None, value("resets") or 0.0, measures
    )


def _plain(value: float | None, query: str, missing: str) -> Measure:
    if not query:
        return Measure(None, missing)
    return Measure(value, "" if value is not None else "no observations within the window")


def _same_source(sides: Sequence[Side], asked: Sequence[text.Formulas]) -> list[Side]:
    """Each P99 from the best source that both sides serve; where each has another one, that is said."""
    chosen: tuple[dict[str, Measure], dict[str, Measure]] = (dict(sides[0].measures), dict(sides[1].measures))
    for criterion in text.QUANTILES:
        theirs = [{kind for kind in text.LADDER if f"{criterion}.{kind}" in side.measures} for side in sides]
        common = next((kind for kind in text.LADDER if all(kind in one for one in theirs)), None)
        for number, side in enumerate(sides):
            if common is not None:
                measure = side.measures[f"{criterion}.{common}"]
            elif theirs[number] and theirs[1 - number]:
                mine, other = min(theirs[number]), min(theirs[1 - number])
                measure = Measure(None, f"it has a {mine}, the other side a {other}; they cannot be compared", source=mine)
            elif theirs[number]:
                kind = min(theirs[number])
                measure = side.measures[f"{criterion}.{kind}"]
            else:
                missing = asked[number].missing.get(criterion, "")
                can = bool(asked[number].quantiles[criterion])
                measure = Measure(None, _unserved(missing, bool(theirs[1 - number])) if can else missing)
            for kind in text.LADDER:
                chosen[number].pop(f"{criterion}.{kind}", None)
            chosen[number][criterion] = measure
    return [
        Side(side.matchers, side.engine, side.labels, side.requests, side.failed, side.resets, measures)
        for side, measures in zip(sides, chosen, strict=True)
    ]


def _unserved(missing: str, elsewhere: bool) -> str:
    what = "it exports no histogram or summary of it" if elsewhere else "neither side exports a histogram or summary of it"
    return f"{what}: {missing}" if missing else what


def _labels(labels: Labels) -> str:
    return "{" + ", ".join(f'{name}="{value}"' for name, value in labels if name != "__name__") + "}"


def _differing(many: Sequence[Labels]) -> list[str]:
    """Each set of labels by what tells it from the others."""
    dicts = [dict(one) for one in many]
    keys = sorted({key for one in dicts for key in one if len({other.get(key) for other in dicts}) > 1})
    return [_labels(make_labels((key, one.get(key, "")) for key in keys)) for one in dicts]
