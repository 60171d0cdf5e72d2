"""What a change of rules changes: the same past under the old rules and the new ones.

Episodes of the old and the new rules are the same when their alert and labels agree (on the labels that both have;
``severity`` aside, which rules may change) and they overlap or lie less than the merge gap apart. What is left is
gained or lost; of the rest, what begins at another evaluation moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from obs.errors import InputError
from obs.evaluate.score import AlertScore, Episode, Score

POLICIES: Mapping[str, str] = {
    "lost-incident": "an incident that the old rules detected and the new do not (needs --incidents)",
    "later": "an incident that the new rules detect later by more than one evaluation (needs --incidents)",
    "more-noise": "more false episodes than before; without --incidents more episodes or flaps",
    "lost-alert": "an alert that fired under the old rules and is gone or silent under the new",
    "blind": "an alert that could see under the old rules and now reads a metric that was never there",
    "any-change": "any episode gained, lost or moved",
}
"""What ``--fail-on`` knows of a comparison."""
_EXAMPLES = 3


@dataclass(frozen=True)
class Moved:
    """One episode under both rules; ``by_ms`` is over 0 when it begins later under the new."""

    old: Episode
    new: Episode

    @property
    def by_ms(self) -> int:
        return self.new.start_ms - self.old.start_ms


@dataclass(frozen=True)
class AlertChange:
    """What changed for one alert. ``presence``: "both", "added" or "removed" among the rules. ``blind``: metrics that
    it misses only under the new rules."""

    alert: str
    presence: str
    same: int
    gained: tuple[Episode, ...]
    lost: tuple[Episode, ...]
    earlier: tuple[Moved, ...]
    later: tuple[Moved, ...]
    firing_ms: tuple[int, int]
    blind: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        return bool(
            self.gained or self.lost or self.earlier or self.later or self.blind or self.presence != "both"
            or self.firing_ms[0] != self.firing_ms[1]
        )


@dataclass(frozen=True)
class IncidentChange:
    """One incident: whether, and after how long (ms), the old and the new rules detected it by an expected alert."""

    name: str
    old: bool
    new: bool
    old_ms: int | None
    new_ms: int | None


@dataclass(frozen=True)
class Comparison:
    """Both scores, what changed per alert (sorted by name), and per incident (None without incidents)."""

    old: Score
    new: Score
    alerts: tuple[AlertChange, ...]
    incidents: tuple[IncidentChange, ...] | None

    @property
    def changed(self) -> tuple[AlertChange, ...]:
        return tuple(one for one in self.alerts if one.changed)

    def broken(self, policies: Iterable[str], *, step_ms: int) -> tuple[str, ...]:
        """A line for each policy that the new rules break; InputError when one cannot be judged.

        ``step_ms``: the evaluation interval, less than which nothing is "later".
        """
        return tuple(line for policy in policies for line in self._broken(policy, step_ms))

    def _broken(self, policy: str, step_ms: int) -> list[str]:
        if policy in {"lost-incident", "later"} and self.incidents is None:
            raise InputError(f"--fail-on {policy} speaks of incidents, and none are given; give --incidents FILE")
        if policy == "lost-incident":
            lost = [one.name for one in self.incidents or () if one.old and not one.new]
            return [f"lost-incident: {', '.join(lost)}: the old rules detected it, the new do not"] if lost else []
        if policy == "later":
            late = [
                f"{one.name} (+{(one.new_ms - one.old_ms) / 1000:g}s)"
                for one in self.incidents or ()
                if one.old_ms is not None and one.new_ms is not None and one.new_ms - one.old_ms > step_ms
            ]
            return [f"later: {', '.join(late)}"] if late else []
        if policy == "more-noise":
            old, new, what = noise(self.old), noise(self.new), "false episodes"
            if self.incidents is None:
                what = "episodes and flaps"
            return [f"more-noise: {new} {what}, {old} before"] if new > old else []
        if policy == "lost-alert":
            gone = [
                one.alert for one in self.alerts
                if one.lost and not (one.gained or one.same or one.earlier or one.later)
            ]
            return [f"lost-alert: {', '.join(gone)}: fired under the old rules and never under the new"] if gone else []
        if policy == "blind":
            dark = [f"{one.alert} ({', '.join(one.blind)})" for one in self.alerts if one.blind]
            return [f"blind: {'; '.join(dark)}"] if dark else []
        if policy == "any-change":
            names = [one.alert for one in self.changed]
            return [f"any-change: {', '.join(names)}"] if names else []
        raise AssertionError(policy)


def noise(score: Score) -> int:
    """False episodes; without incidents all episodes and flaps."""
    return score.total.episodes + score.total.flaps if score.total.false is None else score.total.false


def compare(old: Score, new: Score) -> Comparison:
    """Compare two scores of the same past (with the same incidents and merge gap)."""
    names = [{one.alert: one for one in score.alerts} for score in (old, new)]
    grouped = [_grouped(score.episodes) for score in (old, new)]
    alerts = [
        _alert(
            name, names[0].get(name), names[1].get(name), grouped[0].get(name, []), grouped[1].get(name, []), old.merge_ms
        )
        for name in sorted(names[0].keys() | names[1].keys())
    ]
    incidents = None
    if old.incidents is not None and new.incidents is not None:
        incidents = tuple(
            IncidentChange(
                a.incident.name, _found(a.detections), _found(b.detections), _first(a.detections), _first(b.detections)
            )
            for a, b in zip(old.incidents, new.incidents, strict=True)
        )
    return Comparison(old, new, tuple(alerts), incidents)


def _found(detections: Iterable[Any]) -> bool:
    return any(one.found for one in detections)


def _first(detections: Iterable[Any]) -> int | None:
    return min((one.after_ms for one in detections if one.after_ms is not None), default=None)


def _grouped(episodes: Iterable[Episode]) -> dict[str, list[Episode]]:
    found: dict[str, list[Episode]] = {}
    for one in episodes:
        found.setdefault(one.alert, []).append(one)
    return found


def _alert(
    name: str, old: AlertScore | None, new: AlertScore | None, olds: list[Episode], rest: list[Episode], gap_ms: int
) -> AlertChange:
    lost: list[Episode] = []
    earlier: list[Moved] = []
    later: list[Moved] = []
    same = 0
    for one in olds:
        fitting = [other for other in rest if _same_labels(one, other) and _near(one, other, gap_ms)]
        if not fitting:
            lost.append(one)
            continue
        other = min(fitting, key=lambda it: (abs(it.start_ms - one.start_ms), it.start_ms))
        rest.remove(other)
        moved = Moved(one, other)
        if moved.by_ms == 0:
            same += 1
        else:
            (later if moved.by_ms > 0 else earlier).append(moved)
    presence = "added" if old is None else "removed" if new is None else "both"
    dark: tuple[str, ...] = ()
    if old is not None and new is not None:
        dark = tuple(metric for metric in new.blind if metric not in old.blind)
    firing = (old.firing_ms if old else 0, new.firing_ms if new else 0)
    return AlertChange(
        name, presence, same, tuple(rest), tuple(lost), tuple(earlier), tuple(later), firing, dark
    )


def _same_labels(one: Episode, other: Episode) -> bool:
    a, b = dict(one.labels), dict(other.labels)
    return all(a[name] == b[name] for name in a.keys() & b.keys() if name != "severity")


def _near(one: Episode, other: Episode, gap_ms: int) -> bool:
    return one.start_ms < other.end_ms + gap_ms and other.start_ms < one.end_ms + gap_ms


def examples(change: AlertChange) -> list[tuple[str, Episode, int]]:
    """Some of what changed, by kind: (gained, lost, earlier or later; the episode; by how many ms it moved)."""
    found: list[tuple[str, Episode, int]] = []
    found += [("gained", one, 0) for one in change.gained[:_EXAMPLES]]
    found += [("lost", one, 0) for one in change.lost[:_EXAMPLES]]
    for kind, many in (("earlier", change.earlier), ("later", change.later)):
        found += [(kind, one.new, one.by_ms) for one in sorted(many, key=lambda it: -abs(it.by_ms))[:_EXAMPLES]]
    return found


def as_json(found: Comparison, broken: Sequence[str] = ()) -> dict[str, Any]:
    """The comparison for machines: times in unix seconds, durations in seconds."""
    return {
        "alerts": [
            {
                "alert": one.alert, "presence": one.presence, "same": one.same, "gained": len(one.gained),
                "lost": len(one.lost), "earlier": len(one.earlier), "later": len(one.later),
                "hours_firing": [ms / 3_600_000 for ms in one.firing_ms], "newly_blind": list(one.blind),
                "examples": [
                    {
                        "kind": kind, "labels": dict(episode.labels), "from": episode.start_ms / 1000,
                        "to": episode.end_ms / 1000, "by": by / 1000,
                    }
                    for kind, episode, by in examples(one)
                ],
            }
            for one in found.changed
        ],
        "unchanged": [one.alert for one in found.alerts if not one.changed],
        "incidents": None if found.incidents is None else [
            {
                "name": one.name, "old": one.old, "new": one.new,
                "old_after": None if one.old_ms is None else one.old_ms / 1000,
                "new_after": None if one.new_ms is None else one.new_ms / 1000,
            }
            for one in found.incidents
        ],
        "noise": {"old": noise(found.old), "new": noise(found.new)},
        "broken": list(broken),
    }
