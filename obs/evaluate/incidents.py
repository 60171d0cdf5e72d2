"""``incidents.yaml``: what really happened, and which alerts should have spoken of it.

    lead: 5m                            # how long before `from` an alert may begin and still count (default: 5m)
    incidents:
      - name: queue overload
        from: 2026-11-30T08:11:22Z      # RFC 3339 with its zone, unix seconds, or an offset from the start: +2m
        to: 2026-11-30T08:14:22Z
        matchers: {model: doubler}      # value, "=~regex", "!=value" or "!~regex"
        expected: [InferenceQueueTimeHigh]
        acceptable: [InferencePendingRequestsGrowing]

An incident speaks of an alert instance when it names the alert and no matcher contradicts the instance's labels; a
matcher on a label that the instance does not have says nothing about it (``InferenceTargetDown`` has no ``model``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from obs.config import nearest, seconds
from obs.errors import InputError
from obs.prom.metric_names import agrees
from obs.prom.remote_write import Labels
from obs.uniquekeys import UniqueKeyLoader

LEAD_MS = 300_000
_ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}[T ]")
_MEND_TIME = "write 2026-11-30T09:00:00Z, unix seconds, or an offset from the start such as +35s"


@dataclass(frozen=True)
class Incident:
    """What happened from ``start_ms`` (inclusive) to ``end_ms`` (exclusive), unix milliseconds.

    ``expected``: alerts that must fire; ``acceptable``: those that may. ``matchers``: (label, operator, value).
    """

    name: str
    start_ms: int
    end_ms: int
    matchers: tuple[tuple[str, str, str], ...] = ()
    expected: tuple[str, ...] = ()
    acceptable: tuple[str, ...] = ()

    @property
    def alerts(self) -> tuple[str, ...]:
        return (*self.expected, *self.acceptable)

    def speaks_of(self, alert: str, labels: Labels) -> bool:
        """Whether an instance of an alert belongs to it, as far as name and labels tell."""
        own = dict(labels)
        return alert in self.alerts and all(
            agrees(own[label], op, value) for label, op, value in self.matchers if label in own
        )


@dataclass(frozen=True)
class Incidents:
    """The incidents of a file, in its order. ``lead_ms``: how long before its beginning an alert may fire for one."""

    incidents: tuple[Incident, ...]
    lead_ms: int = LEAD_MS
    path: str = "incidents"

    def within(self, start_ms: int, end_ms: int) -> tuple[Incident, ...]:
        """Those that overlap [start, end]: no other can be judged."""
        return tuple(one for one in self.incidents if one.start_ms <= end_ms and one.end_ms > start_ms)

    def check_alerts(self, known: Iterable[str]) -> None:
        """InputError when an incident names an alert that is not among ``known``."""
        names = set(known)
        for number, one in enumerate(self.incidents):
            for key in ("expected", "acceptable"):
                for place, name in enumerate(getattr(one, key)):
                    if name not in names:
                        raise InputError(
                            f"{self.path}: incidents.{number}.{key}.{place}: no such alert {name!r} among these rules; "
                            f"{nearest(name, names)}"
                        )


# --- reading ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _When:
    ms: int
    offset: bool


def _when(value: object) -> _When:
    if isinstance(value, str) and value.strip().startswith("+"):
        return _When(round(seconds(value.strip()[1:].strip()) * 1000), True)
    if isinstance(value, str) and _ISO_DATE.match(value.strip()):
        try:
            value = datetime.fromisoformat(value.strip().replace("Z", "+00:00"))
        except ValueError:
            raise ValueError(f"{value!r} is no time; {_MEND_TIME}") from None
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError(f"{value.isoformat()} has no zone; write it with Z (UTC) or +01:00")
        return _When(round(value.timestamp() * 1000), False)
    if not isinstance(value, bool) and isinstance(value, int | float) and 1e8 <= value < 1e11:
        return _When(round(value * 1000), False)
    raise ValueError(f"{value!r} is no time; {_MEND_TIME}")


def _matcher(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f'{value!r} is no value of a label; write text, or "=~regex"')
    text = str(value)
    if text.startswith(("=~", "!~")):
        try:
            re.compile(text[2:])
        except re.error as error:
            raise ValueError(f"{text!r} is no regular expression ({error}); mend it") from None
    return text


def _name(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{value!r} is no name; write some text")
    return value.strip()


def _alert(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"\w+", value):
        raise ValueError(f"{value!r} is no name of an alert; write one such as InferenceQueueTimeHigh")
    return value


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


_Time = Annotated[_When, BeforeValidator(_when)]
_AlertName = Annotated[str, BeforeValidator(_alert)]


class _Incident(_Strict):
    name: Annotated[str, BeforeValidator(_name)]
    from_: _Time = Field(alias="from")
    to: _Time
    matchers: dict[str, Annotated[str, BeforeValidator(_matcher)]] = Field(default_factory=dict)
    expected: list[_AlertName] = Field(default_factory=list)
    acceptable: list[_AlertName] = Field(default_factory=list)


class _File(_Strict):
    lead: Annotated[float, BeforeValidator(seconds)] = LEAD_MS / 1000
    incidents: list[_Incident]


def read_incidents(path: Path, *, start_ms: int = 0) -> Incidents:
    """The incidents of a file; offsets count from ``start_ms`` (unix milliseconds, the start of what is judged).

    InputError, one line per fault, naming the file, the key path and the mend.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: cannot be read: {why}; write one with `obs incidents init`") from error
    return parse_incidents(text, str(path), start_ms=start_ms)


def parse_incidents(text: str, path: str = "incidents.yaml", *, start_ms: int = 0) -> Incidents:
    """``read_incidents`` of a text; ``path`` is named in errors."""
    try:
        document: Any = yaml.load(text, Loader=UniqueKeyLoader)
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that is none
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else path
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise InputError(f"{where}: not valid YAML: {problem}; mend the line") from error
    if not isinstance(document, dict):
        raise InputError(f"{path}: is no mapping with a list `incidents`; see `obs incidents init`")
    try:
        given = _File.model_validate(document)
    except ValidationError as error:
        raise InputError("\n".join(_line(path, dict(detail)) for detail in error.errors())) from None
    found = []
    names: set[str] = set()
    for number, one in enumerate(given.incidents):
        key = f"{path}: incidents.{number}"
        if one.name in names:
            raise InputError(f"{key}.name: {one.name!r} is there twice; give each incident its own name")
        names.add(one.name)
        if one.from_.offset != one.to.offset:
            raise InputError(f"{key}.to: is {'an offset' if one.to.offset else 'a time'} and `from` is not; write both alike")
        if one.to.ms <= one.from_.ms:
            raise InputError(f"{key}.to: is not after `from`; an incident ends after it begins")
        if not one.expected and not one.acceptable:
            raise InputError(f"{key}: names no alert; list some under expected or acceptable")
        both = sorted(set(one.expected) & set(one.acceptable))
        if both:
            raise InputError(f"{key}.acceptable: {both[0]} is also expected; list it once")
        base = start_ms if one.from_.offset else 0
        found.append(
            Incident(
                one.name, base + one.from_.ms, base + one.to.ms,
                tuple((label, *_split(value)) for label, value in one.matchers.items()),
                tuple(dict.fromkeys(one.expected)), tuple(dict.fromkeys(one.acceptable)),
            )
        )
    return Incidents(tuple(found), round(given.lead * 1000), path)


def _split(value: str) -> tuple[str, str]:
    return (value[:2], value[2:]) if value[:2] in {"=~", "!=", "!~"} else ("=", value)


_KEYS = {"": tuple(_File.model_fields), "incidents": ("name", "from", "to", "matchers", "expected", "acceptable")}


def _line(path: str, detail: Mapping[str, Any]) -> str:
    key = ".".join(str(part) for part in detail["loc"])
    kind = detail["type"]
    if kind == "extra_forbidden":
        valid = _KEYS["incidents"] if len(detail["loc"]) > 1 else _KEYS[""]
        return f"{path}: {key}: unknown key; {nearest(str(detail['loc'][-1]), valid)}"
    if kind == "missing":
        return f"{path}: {key}: is missing; add it"
    if kind == "value_error":
        return f"{path}: {key}: {str(detail['msg']).removeprefix('Value error, ')}"
    wanted = {"list_type": "a list", "dict_type": "a mapping", "model_type": "a mapping"}.get(kind, "of the right kind")
    return f"{path}: {key or '(top)'}: {detail['input']!r} is not {wanted}; see `obs incidents init` for the form"


# --- a draft ---------------------------------------------------------------------------------------------


def clock(ms: int) -> str:
    """Unix milliseconds as RFC 3339 in UTC, with milliseconds only where there are some."""
    when = datetime.fromtimestamp(ms / 1000, timezone.utc)
    return when.strftime("%Y-%m-%dT%H:%M:%S") + (f".{ms % 1000:03d}" if ms % 1000 else "") + "Z"


@dataclass(frozen=True)
class Seen:
    """An episode as a draft needs it: the alert, its labels, from when its cause was there, until when it fired."""

    alert: str
    labels: Labels
    start_ms: int
    end_ms: int


_SUBJECT = ("model", "model_name", "gpu", "pod", "instance", "job")


def draft(seen: Sequence[Seen], *, gap_ms: int, source: str) -> str:
    """A first incidents file from what fired: episodes of one subject (model, else instance, …) that follow each
    other within ``gap_ms`` are one incident. What fired is not what should have: the reader strikes out the noise."""
    clusters: list[tuple[tuple[str, str], list[Seen]]] = []
    last: dict[tuple[str, str], list[Seen]] = {}
    for one in sorted(seen, key=lambda one: (one.start_ms, one.alert, one.labels)):
        own = dict(one.labels)
        subject = next(((label, own[label]) for label in _SUBJECT if own.get(label)), ("", ""))
        theirs = last.get(subject)
        if theirs and one.start_ms <= max(its.end_ms for its in theirs) + gap_ms:
            theirs.append(one)
        else:
            last[subject] = [one]
            clusters.append((subject, last[subject]))
    lines = [
        f"# Draft by `obs incidents init` from what fired in {source}: what fired is not what should have fired.",
        "# Strike out the noise, add what was missed, set `from` to when the cause began, and give honest names.",
        f"# lead: how long before `from` an alert may begin and still count (default: {LEAD_MS // 60_000}m).",
        "incidents:" if clusters else "incidents: []",
    ]
    names: dict[str, int] = {}
    for (label, value), episodes in clusters:
        start, end = min(one.start_ms for one in episodes), max(one.end_ms for one in episodes)
        name = f"{label} {value}".strip() or "everything"
        names[name] = names.get(name, 0) + 1
        shown = name if names[name] == 1 else f"{name} ({names[name]})"
        alerts = ", ".join(sorted({one.alert for one in episodes}))
        lines += [
            f"  - name: {_quoted(shown)}",
            f"    from: {clock(start)}",
            f"    to: {clock(end)}",
            *([f"    matchers: {{{label}: {_quoted(value)}}}"] if label else []),
            f"    expected: [{alerts}]",
            "    acceptable: []",
        ]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
