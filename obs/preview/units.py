"""Values as Grafana writes them, for its commonest units (packages/grafana-data, valueFormats).

An unknown unit is a suffix, as there: ``tokens/s``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timezone

_SI = ("f", "p", "n", "µ", "m", "", "k", "M", "G", "T", "P", "E", "Z", "Y")
_SHORT = ("", " K", " Mil", " Bil", " Tri", " Quadr", " Quint")
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = ("", "k", "M", "G", "T", "P", "E")

_SUFFIXES = {
    "celsius": " °C", "fahrenheit": " °F", "percent": "%", "none": "", "string": "", "": "", "humidity": "%H",
    "rotrpm": " rpm", "degree": "°",
}
#: counts a second or minute: short numbers with this after them
_THROUGHPUT = {
    "reqps": "req/s", "ops": "ops/s", "rps": "rd/s", "wps": "wr/s", "iops": "io/s", "cps": "c/s", "eps": "evt/s",
    "mps": "msg/s", "reqpm": "req/m", "opm": "ops/m", "rpm": "rd/m", "wpm": "wr/m", "cpm": "c/m",
}
#: SI prefixes before this: (symbol, place of the unit itself among them)
_PREFIXED = {
    "watt": ("W", 0), "mwatt": ("W", -1), "kwatt": ("W", 1), "hertz": ("Hz", 0), "joule": ("J", 0), "volt": ("V", 0),
    "amp": ("A", 0), "mhertz": ("Hz", 2),
}
#: (symbol, names of the prefixes, base, place of the unit itself)
_BYTES = {
    "bytes": ("B", _BINARY, 1024, 0), "kbytes": ("B", _BINARY, 1024, 1), "mbytes": ("B", _BINARY, 1024, 2),
    "gbytes": ("B", _BINARY, 1024, 3), "decbytes": ("B", _DECIMAL, 1000, 0), "decmbytes": ("B", _DECIMAL, 1000, 2),
    "decgbytes": ("B", _DECIMAL, 1000, 3), "binBps": ("B/s", _BINARY, 1024, 0), "Bps": ("B/s", _DECIMAL, 1000, 0),
    "bits": ("b", _BINARY, 1024, 0), "decbits": ("b", _DECIMAL, 1000, 0), "bps": ("b/s", _DECIMAL, 1000, 0),
}
_SECONDS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_SPANS = (
    (31_536_000.0, " years"), (604_800.0, " weeks"), (86_400.0, " days"), (3600.0, " hours"), (60.0, " mins"), (1.0, " s"),
    (1e-3, " ms"), (1e-6, " µs"), (1e-9, " ns"),
)

BINARY_UNITS = frozenset(name for name, (_, _, base, _) in _BYTES.items() if base == 1024)
"""Units whose axis is divided by powers of two."""


def seconds_of(unit: str) -> float:
    """How many seconds the unit is; 0.0 for one that is no time."""
    return _SECONDS.get(unit, 0.0)


def known(unit: str) -> bool:
    """Whether the unit is written as Grafana does; another one is a suffix."""
    return (
        unit in _SUFFIXES or unit in _THROUGHPUT or unit in _PREFIXED or unit in _BYTES or unit in _SECONDS
        or unit in {"short", "percentunit", "dateTimeFromNow", "dateTimeAsIso", "dateTimeAsUS", "bool_yes_no", "bool_on_off",
                    "bool", "sci", "locale", "dtdurations", "dthms"}
        or unit.startswith(("suffix:", "prefix:", "si:", "count:"))
    )


def text(value: float, unit: str = "short", decimals: int | None = None, *, now: float = 0.0) -> str:
    """A value with its unit. ``now`` (unix seconds) is what "… ago" counts from. NaN is "NaN", never empty."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if unit in _SECONDS:
        return _span(value * _SECONDS[unit], decimals)
    if unit == "percentunit":
        return f"{number(100 * value, decimals)}%"
    if unit == "short":
        return _scaled(value, decimals, _SHORT, 1000, 0)
    if unit in _THROUGHPUT:
        return f"{_scaled(value, decimals, ('', 'K', 'Mil', 'Bil', 'Tri'), 1000, 0, gap='')} {_THROUGHPUT[unit]}"
    if unit in _PREFIXED:
        symbol, place = _PREFIXED[unit]
        return _si(value * 1000.0**place, decimals, symbol)
    if unit in _BYTES:
        symbol, names, base, place = _BYTES[unit]
        return _scaled(value, decimals, names, base, place, symbol=symbol)
    if unit == "dateTimeFromNow":
        return _ago(now - value / 1000)
    if unit in {"dateTimeAsIso", "dateTimeAsUS"}:
        return f"{datetime.fromtimestamp(value / 1000, timezone.utc):%Y-%m-%d %H:%M:%S}"
    if unit in {"bool", "bool_yes_no", "bool_on_off"}:
        words = {"bool": ("True", "False"), "bool_yes_no": ("Yes", "No"), "bool_on_off": ("On", "Off")}[unit]
        return words[0] if value else words[1]
    if unit.startswith("suffix:"):
        return number(value, decimals) + unit.removeprefix("suffix:")
    if unit.startswith("prefix:"):
        return unit.removeprefix("prefix:") + number(value, decimals)
    if unit.startswith("si:"):
        return _si(value, decimals, unit.removeprefix("si:"))
    return number(value, decimals) + _SUFFIXES.get(unit, f" {unit}")


def number(value: float, decimals: int | None = None) -> str:
    """A bare number with three significant digits, a whole one without decimals; or with so many ``decimals``."""
    if decimals is None:
        decimals = _decimals(value)
    factor = 10.0 ** max(0, decimals)
    # a half goes up, as in a browser; what is too large for that has no fraction
    near = math.floor(value * factor + 0.5) / factor if abs(value) < 1e15 else value
    rounded = f"{near:.{max(0, decimals)}f}"
    return rounded.removeprefix("-") if float(rounded) == 0 else rounded


def trimmed(value: float, unit: str, *, now: float = 0.0) -> str:
    """For an axis: at most four decimals, none that is 0."""
    whole = text(value, unit, 4, now=now)
    figure = whole[: len(whole) - len(whole.lstrip("-.0123456789"))]
    rest = whole[len(figure) :]
    return (figure.rstrip("0").rstrip(".") if "." in figure else figure) + rest


def _decimals(value: float) -> int:
    if value == 0 or value % 1 == 0:
        return 0
    return max(0, 2 - math.floor(math.log10(abs(value))))


def _scaled(
    value: float, decimals: int | None, names: Sequence[str], base: int, place: int, *, symbol: str = "", gap: str = " "
) -> str:
    """The value with the largest prefix that leaves it at 1 or more; ``place``: that of the value's own prefix."""
    step = place
    while abs(value) >= base and step + 1 < len(names):
        value /= base
        step += 1
    name = names[step] if step < len(names) else ""
    if symbol:
        return f"{number(value, decimals)} {name}{symbol}"
    return number(value, decimals) + (gap + name.strip() if name.strip() else "")


def _si(value: float, decimals: int | None, symbol: str) -> str:
    place = _SI.index("")
    while value and abs(value) >= 1000 and place + 1 < len(_SI):
        value, place = value / 1000, place + 1
    while value and abs(value) < 1 and place > 0:
        value, place = value * 1000, place - 1
    return f"{number(value, decimals)} {_SI[place]}{symbol}"


def _span(seconds: float, decimals: int | None) -> str:
    if seconds == 0:
        return "0 s"
    size, name = next((one for one in _SPANS if abs(seconds) >= one[0]), _SPANS[-1])
    return number(round(seconds / size, 9), decimals) + name


_STEPS = ((31_536_000, "year"), (2_592_000, "month"), (86_400, "day"), (3600, "hour"), (60, "minute"))


def _ago(seconds: float) -> str:
    size = abs(seconds)
    words = "a few seconds"
    if size >= 45:
        length, name = next((one for one in _STEPS if size >= one[0] * 0.75), _STEPS[-1])
        count = max(1, round(size / length))
        words = f"{count} {name}s" if count > 1 else f"{'an' if name == 'hour' else 'a'} {name}"
    return f"{words} ago" if seconds >= 0 else f"in {words}"
