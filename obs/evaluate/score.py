"""How good alerts were over a past: episodes, and, with incidents, true and false ones, recall and time to detect.

An *episode* is a run of firing of one alert instance. Firing spans less than ``merge_ms`` apart are one episode
(each such return is a *flap*), and so are spans with nothing but missing data between them: a target that was down,
or a Prometheus that was, resolves nothing.

With incidents, an episode is *true* when it began during an incident that names its alert and whose matchers agree
(or at most ``lead`` before it); such an episode detects every incident that it overlaps and that speaks of it. Any
other is *false*: an alert that fires always detects nothing. An incident is *missed* by an alert it expects when no
true episode of that alert overlaps it. Where there is nothing to divide, a figure is None, never 0.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from obs.evaluate import outages
from obs.evaluate.incidents import Incident, Incidents
from obs.evaluate.outages import Target
from obs.evaluate.replay import Instance, Timeline
from obs.prom.remote_write import Labels

MERGE_STEPS = 5
"""Default of ``merge_ms``: this many evaluation intervals (5 min at 1 m)."""
WEEK_MS = 604_800_000
SHORTEST_FOR_A_RATE_MS = 86_400_000
"""Pages a week are not extrapolated from less than a day."""

Kind = Literal["true", "false", "unjudged"]


@dataclass(frozen=True)
class Episode:
    """A run of firing of one alert instance, unix milliseconds. ``flaps``: how often it stopped and came back within.

    ``ends``: False when it still fires at the end of the history. ``began_before``: True when it fired at the very first
    evaluation, so that its beginning is not known. ``pending_ms``: since when its expression held. ``incidents``: the
    names of those it detects.
    """

    alert: str
    labels: Labels
    start_ms: int
    end_ms: int
    firing_ms: int
    flaps: int
    pending_ms: int
    ends: bool
    began_before: bool
    kind: Kind = "unjudged"
    incidents: tuple[str, ...] = ()


@dataclass(frozen=True)
class AlertScore:
    """One alert's figures. Durations in milliseconds. ``true``, ``false`` and ``missed`` are None without incidents.

    ``precision``: true episodes among all. ``recall``: incidents detected among those that expect it. ``detect_*``:
    from an incident's beginning to the first firing (0 when it fired before). ``resolve_*``: from an incident's end to
    the end of firing (0 when it ended before). ``pages_per_week``: beginnings of firing, flaps included, as a pager
    without grouping would count. ``firing_ms``: time in which at least one instance fires. ``blind``: metrics it
    reads that were never there.
    """

    alert: str
    episodes: int
    true: int | None
    false: int | None
    missed: int | None
    expected: int | None
    precision: float | None
    recall: float | None
    detect_median_ms: int | None
    detect_max_ms: int | None
    resolve_median_ms: int | None
    resolve_max_ms: int | None
    flaps: int
    pages_per_week: float | None
    firing_ms: int
    blind: tuple[str, ...] = ()


@dataclass(frozen=True)
class Detection:
    """Whether an expected alert detected an incident, and after how long (ms; None: not, or its beginning is unknown)."""

    alert: str
    found: bool
    after_ms: int | None


@dataclass(frozen=True)
class IncidentScore:
    """One incident: what each expected alert made of it; whether any alert it names detected it; and after how long the
    first did (ms): of the expected ones, of the acceptable when it expects none. None: not, or it cannot be told."""

    incident: Incident
    detections: tuple[Detection, ...]
    detected: bool
    first_ms: int | None


@dataclass(frozen=True)
class Score:
    """Everything: per alert (in the order of the timeline), in total, per incident (None without), per episode.

    ``outside``: names of incidents that lie outside the history and were not judged. ``total.firing_ms`` counts a time
    once, whichever alert fires; its time to detect is per incident, by the first alert that found it.
    """

    start_ms: int
    end_ms: int
    merge_ms: int
    alerts: tuple[AlertScore, ...]
    total: AlertScore
    incidents: tuple[IncidentScore, ...] | None
    episodes: tuple[Episode, ...]
    outside: tuple[str, ...] = ()

    def of(self, alert: str) -> AlertScore:
        """The score of one alert; KeyError when it was not evaluated."""
        found = next((one for one in self.alerts if one.alert == alert), None)
        if found is None:
            raise KeyError(alert)
        return found

    @property
    def missed(self) -> int:
        """How many incidents with an expected alert none of their expected alerts detected."""
        return sum(bool(one.detections) and not any(d.found for d in one.detections) for one in self.incidents or ())


def default_merge_ms(timeline: Timeline) -> int:
    """The gap below which two spans are one episode, unless told otherwise."""
    return MERGE_STEPS * timeline.interval_ms


def episodes(timeline: Timeline, *, merge_ms: int | None = None, targets: Sequence[Target] = ()) -> tuple[Episode, ...]:
    """The episodes of every instance, by time. ``targets``: see obs.evaluate.outages."""
    merge = default_merge_ms(timeline) if merge_ms is None else merge_ms
    found = [one for instance in timeline.instances for one in _episodes(instance, timeline, merge, targets)]
    return tuple(sorted(found, key=lambda one: (one.start_ms, one.alert, one.labels)))


def _episodes(instance: Instance, timeline: Timeline, merge_ms: int, targets: Sequence[Target]) -> list[Episode]:
    blind = outages.blind(instance.labels, targets)
    runs: list[tuple[list[tuple[int, int]], int]] = []  # firing spans, and how many returns among them are flaps
    for span in instance.firing():
        if runs:
            spans, flaps = runs[-1]
            gap = (spans[-1][1], span.start_ms)
            known = outages.without(*gap, blind)
            if known < merge_ms or known <= 0:
                interrupted = known < gap[1] - gap[0]
                spans.append((span.start_ms, span.end_ms))
                runs[-1] = (spans, flaps + (not interrupted))
                continue
        runs.append(([(span.start_ms, span.end_ms)], 0))
    made = []
    pending_until = {one.end_ms: one.start_ms for one in instance.spans if one.state == "pending"}
    for spans, flaps in runs:
        start, end = spans[0][0], spans[-1][1]
        pending = pending_until.get(start, start)
        made.append(
            Episode(
                instance.alert, instance.labels, start, end, sum(b - a for a, b in spans), flaps, pending,
                ends=end < timeline.end_ms, began_before=start <= timeline.start_ms,
            )
        )
    return made


def score(
    timeline: Timeline,
    incidents: Incidents | None = None,
    *,
    merge_ms: int | None = None,
    targets: Sequence[Target] = (),
) -> Score:
    """Score a timeline; without ``incidents`` only episodes, noise and flapping are told."""
    merge = default_merge_ms(timeline) if merge_ms is None else merge_ms
    found = episodes(timeline, merge_ms=merge, targets=targets)
    judged = None
    outside: tuple[str, ...] = ()
    if incidents is not None:
        judged = incidents.within(timeline.start_ms, timeline.end_ms)
        outside = tuple(one.name for one in incidents.incidents if one not in judged)
        found = tuple(_judge(one, judged, incidents.lead_ms) for one in found)
    per_incident = None if judged is None else tuple(_incident(one, found, timeline) for one in judged)
    dead = dict(timeline.dead)
    theirs: dict[str, list[Episode]] = {name: [] for name in timeline.alerts}
    for one in found:
        theirs[one.alert].append(one)
    spans: dict[str, list[Instance]] = {name: [] for name in timeline.alerts}
    for instance in timeline.instances:
        spans[instance.alert].append(instance)
    alerts = tuple(
        _alert(name, theirs[name], judged, timeline, firing_ms(timeline, spans[name]), dead.get(name, ()))
        for name in timeline.alerts
    )
    return Score(
        timeline.start_ms, timeline.end_ms, merge, alerts, _total(found, per_incident, timeline), per_incident,
        found, outside,
    )


def _judge(one: Episode, incidents: Sequence[Incident], lead_ms: int) -> Episode:
    theirs = [it for it in incidents if it.speaks_of(one.alert, one.labels)]
    began = [it for it in theirs if it.start_ms - lead_ms <= one.start_ms < it.end_ms]
    if not began:
        return replace(one, kind="false")
    names = tuple(it.name for it in theirs if it.start_ms < one.end_ms and one.start_ms < it.end_ms)
    return replace(one, kind="true", incidents=names)


def _incident(one: Incident, found: Sequence[Episode], timeline: Timeline) -> IncidentScore:
    detections = []
    for alert in one.expected:
        theirs = [episode for episode in found if episode.alert == alert and one.name in episode.incidents]
        detections.append(Detection(alert, bool(theirs), _after(one, theirs, timeline)))
    anyone = [episode for episode in found if one.name in episode.incidents]
    first = [episode for episode in anyone if episode.alert in one.expected or not one.expected]
    return IncidentScore(one, tuple(detections), bool(anyone), _after(one, first, timeline))


def _after(one: Incident, theirs: Sequence[Episode], timeline: Timeline) -> int | None:
    """From the incident's beginning to the first firing; None without one, or when it began before the history."""
    if not theirs or one.start_ms < timeline.start_ms:
        return None
    return max(0, min(episode.start_ms for episode in theirs) - one.start_ms)


class _Wanted(NamedTuple):
    """An incident that should be told: whether it was, how long after its beginning, and the episodes that told."""

    incident: Incident
    hit: bool
    after: int | None
    episodes: Sequence[Episode]


def _alert(
    name: str,
    found: Sequence[Episode],
    incidents: Sequence[Incident] | None,
    timeline: Timeline,
    firing: int,
    blind: tuple[str, ...],
) -> AlertScore:
    if incidents is None:
        return _scored(name, found, None, timeline, firing, blind)
    wanted = []
    for one in incidents:
        if name in one.expected:
            theirs = [episode for episode in found if one.name in episode.incidents]
            wanted.append(_Wanted(one, bool(theirs), _after(one, theirs, timeline), theirs))
    return _scored(name, found, wanted, timeline, firing, blind)


def _total(
    found: Sequence[Episode], incidents: Sequence[IncidentScore] | None, timeline: Timeline
) -> AlertScore:
    firing = firing_ms(timeline, timeline.instances)
    if incidents is None:
        return _scored("total", found, None, timeline, firing)
    wanted = []
    for one in incidents:
        if one.detections:
            after = min((it.after_ms for it in one.detections if it.after_ms is not None), default=None)
            theirs = [episode for episode in found if one.incident.name in episode.incidents]
            wanted.append(_Wanted(one.incident, any(it.found for it in one.detections), after, theirs))
    return _scored("total", found, wanted, timeline, firing)


def _scored(
    name: str,
    found: Sequence[Episode],
    wanted: Sequence[_Wanted] | None,
    timeline: Timeline,
    firing: int,
    blind: tuple[str, ...] = (),
) -> AlertScore:
    """The score of some episodes; ``wanted`` is None without incidents."""
    flaps = sum(one.flaps for one in found)
    true = false = missed = expected = None
    precision = recall = None
    detect: list[int] = []
    resolve: list[int] = []
    if wanted is not None:
        true = sum(one.kind == "true" for one in found)
        false = len(found) - true
        expected = len(wanted)
        missed = sum(not one.hit for one in wanted)
        detect = [one.after for one in wanted if one.after is not None]
        for one in wanted:
            ended = bool(one.episodes) and all(episode.ends for episode in one.episodes)
            if ended and one.incident.end_ms <= timeline.end_ms:
                resolve.append(max(0, max(episode.end_ms for episode in one.episodes) - one.incident.end_ms))
        precision = true / len(found) if found else None
        recall = (expected - missed) / expected if expected else None
    return AlertScore(
        name, len(found), true, false, missed, expected, precision, recall, _median(detect), max(detect, default=None),
        _median(resolve), max(resolve, default=None), flaps, _pages(len(found) + flaps, timeline), firing, blind,
    )


def firing_ms(timeline: Timeline, instances: Sequence[Instance]) -> int:
    """How long at least one of some instances fires, milliseconds."""
    spans = sorted((span.start_ms, span.end_ms) for instance in instances for span in instance.firing())
    total, reached = 0, timeline.start_ms
    for start, end in spans:
        start = max(start, reached)
        if end > start:
            total += end - start
            reached = end
    return total


def _pages(count: int, timeline: Timeline) -> float | None:
    length = timeline.end_ms - timeline.start_ms
    return count * WEEK_MS / length if length >= SHORTEST_FOR_A_RATE_MS else None


def _median(values: Sequence[int]) -> int | None:
    return round(statistics.median(values)) if values else None


# --- for machines ----------------------------------------------------------------------------------------


def as_json(found: Score) -> dict[str, Any]:
    """The score for machines: times in unix seconds, durations in seconds; null where nothing can be told."""
    return {
        "merge": found.merge_ms / 1000,
        "alerts": [_alert_json(one) for one in found.alerts],
        "total": _alert_json(found.total),
        "incidents": None if found.incidents is None else [_incident_json(one) for one in found.incidents],
        "outside": list(found.outside),
        "episodes": [
            {
                "alert": one.alert, "labels": dict(one.labels), "from": one.start_ms / 1000, "to": one.end_ms / 1000,
                "firing": one.firing_ms / 1000, "flaps": one.flaps, "ended": one.ends,
                "kind": None if one.kind == "unjudged" else one.kind, "incidents": list(one.incidents),
            }
            for one in found.episodes
        ],
    }


def _alert_json(one: AlertScore) -> dict[str, Any]:
    return {
        "alert": one.alert, "episodes": one.episodes, "true": one.true, "false": one.false, "missed": one.missed,
        "expected": one.expected, "precision": one.precision, "recall": one.recall,
        "time_to_detect": {"median": _seconds(one.detect_median_ms), "max": _seconds(one.detect_max_ms)},
        "time_to_resolve": {"median": _seconds(one.resolve_median_ms), "max": _seconds(one.resolve_max_ms)},
        "flaps": one.flaps, "pages_per_week": one.pages_per_week, "hours_firing": one.firing_ms / 3_600_000,
        "blind": list(one.blind),
    }


def _incident_json(one: IncidentScore) -> dict[str, Any]:
    return {
        "name": one.incident.name, "from": one.incident.start_ms / 1000, "to": one.incident.end_ms / 1000,
        "detected": one.detected, "first": _seconds(one.first_ms),
        "expected": [
            {"alert": it.alert, "detected": it.found, "after": _seconds(it.after_ms)} for it in one.detections
        ],
        "acceptable": list(one.incident.acceptable),
    }


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000
