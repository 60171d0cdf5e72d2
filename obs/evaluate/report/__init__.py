"""A backtest as text, JSON, Markdown, JUnit XML or one HTML page: each form renders the same ``Report``.

Every renderer is a pure function from a Report to text; the same Report gives the same bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from obs.evaluate.chart import Band, Phase, bands
from obs.evaluate.compare import Comparison
from obs.evaluate.history import Choice, History
from obs.evaluate.rules import Rule
from obs.evaluate.score import Score
from obs.evaluate.sweep import Sweep


@dataclass(frozen=True)
class Report:
    """What a backtest came to, whole. ``title`` names the past that was judged, ``rules`` the rules in words.

    ``comparison`` and ``against`` (the history under the new rules, and their name) when two rule sets were compared;
    then ``history`` and ``score`` are those of the old. ``broken``: a line per policy that is broken; ``policies`` those
    that were asked. ``alerts``, ``against_alerts``: the alerting rules, whose expressions the HTML
    report shows.
    """

    title: str
    rules: str
    history: History
    score: Score
    phases: tuple[Phase, ...] = ()
    comparison: Comparison | None = None
    against: History | None = None
    against_rules: str = ""
    sweeps: tuple[Sweep, ...] = ()
    policies: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    alerts: tuple[Rule, ...] = ()
    against_alerts: tuple[Rule, ...] = ()

    @property
    def incident_bands(self) -> tuple[Band, ...]:
        """The incidents as bands to draw."""
        return tuple(
            Band(one.incident.start_ms, one.incident.end_ms, one.incident.name) for one in self.score.incidents or ()
        )

    @property
    def background(self) -> tuple[Band, ...]:
        """What is shaded behind the curves: incidents, else phases."""
        return self.incident_bands or bands(self.phases, self.history.timeline.end_ms)

    def about(self, alert: str) -> tuple[Band, ...]:
        """What is shaded behind one alert: the incidents that name it, else the phases."""
        if self.score.incidents is None:
            return self.background
        return tuple(
            Band(one.incident.start_ms, one.incident.end_ms, one.incident.name)
            for one in self.score.incidents
            if alert in one.incident.alerts
        )

    @property
    def active(self) -> tuple[str, ...]:
        """The alerts that were ever pending or firing."""
        seen = {one.alert for one in self.history.timeline.instances}
        return tuple(name for name in self.history.timeline.alerts if name in seen)

    @property
    def quiet(self) -> tuple[str, ...]:
        """The alerts that were never active and could see."""
        seen, dead = set(self.active), dict(self.history.timeline.dead)
        return tuple(name for name in self.history.timeline.alerts if name not in seen and name not in dead)

    @property
    def blind(self) -> tuple[str, ...]:
        """The alerts that were never active and read metrics that were never there."""
        seen, dead = set(self.active), dict(self.history.timeline.dead)
        return tuple(name for name in self.history.timeline.alerts if name not in seen and name in dead)

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know when reading it."""
        return tuple(dict.fromkeys((*self.history.notes, *(self.against.notes if self.against else ()))))

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the server warned of: with any, data may be missing and nothing is proven."""
        return tuple(dict.fromkeys((*self.history.warnings, *(self.against.warnings if self.against else ()))))


def ordered(score: Score) -> Sequence[str]:
    """The alerts worth a line of a table: those that had an episode or were expected; the noisiest first."""
    worth = [one for one in score.alerts if one.episodes or one.expected]
    worth.sort(key=lambda one: (-(one.false or 0), -(one.missed or 0), -one.episodes, one.alert))
    return [one.alert for one in worth]


def inexact(history: History) -> Sequence[Choice]:
    """The alerts whose result can differ from that of a server with the rules loaded, with the reason."""
    return [one for one in history.choices if not one.exact]


def ways(history: History) -> str:
    """How many alerts that read recorded series were evaluated in which way; "" without any."""
    count = Counter(one.how for one in history.choices)
    return f"alerts on recorded series: {', '.join(f'{many} {how}' for how, many in sorted(count.items()))}" if count else ""
