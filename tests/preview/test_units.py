"""Values as Grafana writes them."""

from __future__ import annotations

import math

import pytest

from obs.preview import calcs, units


@pytest.mark.parametrize(("value", "unit", "text"), [
    (0.0, "s", "0 s"), (0.0000131, "s", "13.1 µs"), (0.216, "s", "216 ms"), (1.5, "s", "1.50 s"), (95.0, "s", "1.58 mins"),
    (7680.0, "s", "2.13 hours"), (172_800.0, "s", "2 days"), (250.0, "ms", "250 ms"), (1500.0, "ms", "1.50 s"),
    (0.05, "percentunit", "5%"), (0.997, "percentunit", "99.7%"), (1.0, "percentunit", "100%"), (12.5, "percent", "12.5%"),
    (1024.0, "bytes", "1 KiB"), (85_899_345_920.0, "bytes", "80 GiB"), (75_776.0, "mbytes", "74 GiB"),
    (1e9, "decbytes", "1 GB"),
    (1234.0, "short", "1.23 K"), (2_500_000.0, "short", "2.50 Mil"), (44.0, "short", "44"), (0.5, "short", "0.500"),
    (380.0, "reqps", "380 req/s"), (1160.0, "reqps", "1.16K req/s"), (2.4, "ops", "2.40 ops/s"), (325.0, "watt", "325 W"),
    (1234.0, "watt", "1.23 kW"), (1.4e9, "hertz", "1.40 GHz"), (62.5, "celsius", "62.5 °C"), (3.0, "none", "3"),
    (1172.5, "tokens/s", "1173 tokens/s"), (-0.256, "percentunit", "-25.6%"), (-0.0, "short", "0"),
])
def test_text(value: float, unit: str, text: str) -> None:
    assert units.text(value, unit) == text


def test_what_is_no_number_is_never_a_zero() -> None:
    assert units.text(math.nan, "s") == "NaN"
    assert units.text(math.inf, "short") == "∞"
    assert units.text(-math.inf, "short") == "-∞"


@pytest.mark.parametrize(("ago", "text"), [
    (10, "a few seconds ago"), (60, "a minute ago"), (480, "8 minutes ago"), (3600, "an hour ago"), (7200, "2 hours ago"),
    (86_400, "a day ago"), (-300, "in 5 minutes"),
])
def test_time_from_now_counts_from_the_end_of_the_range(ago: float, text: str) -> None:
    assert units.text(1000 * (1_796_023_557 - ago), "dateTimeFromNow", now=1_796_023_557) == text


@pytest.mark.parametrize(("value", "unit", "text"), [
    (0.05, "s", "50 ms"), (0.25, "s", "250 ms"), (2.5, "s", "2.5 s"), (0.1, "percentunit", "10%"), (1000.0, "short", "1 K"),
    (0.0, "reqps", "0 req/s"), (-0.2, "percentunit", "-20%"), (2_097_152.0, "bytes", "2 MiB"),
])
def test_marks_of_an_axis_have_no_needless_digits(value: float, unit: str, text: str) -> None:
    assert units.trimmed(value, unit) == text


def test_decimals_that_are_asked_for() -> None:
    assert units.text(0.123456, "percentunit", 1) == "12.3%"
    assert units.text(3.0, "short", 2) == "3.00"


def test_calculations_leave_nan_out_and_tell_nothing_from_zero() -> None:
    assert calcs.reduce("lastNotNull", [1.0, 2.0, math.nan]) == 2.0
    assert math.isnan(calcs.reduce("last", [1.0, math.nan]) or 0.0)
    assert calcs.reduce("max", []) is None
    assert math.isnan(calcs.reduce("max", [math.nan]) or 0.0)
    assert calcs.reduce("mean", [1.0, 3.0]) == 2.0
    assert calcs.reduce("delta", [5.0, 8.0, 1.0]) == 4.0  # a counter that began again
    with pytest.raises(KeyError):
        calcs.reduce("stdDev", [1.0])
