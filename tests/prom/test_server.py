"""A real private Prometheus: samples in, exact staleness, clear errors when it cannot start."""

from __future__ import annotations

import math
import os
import struct
from pathlib import Path

import pytest

from obs.errors import ServerError, ToolError
from obs.prom.remote_write import STALE_BITS, STALE_NAN, Point, Writer, encode, is_stale, make_labels
from obs.prom.server import PrivatePrometheus, free_port
from tests.waiting import eventually

pytestmark = pytest.mark.prometheus

T0 = 1_700_000_002_344  # unix ms; past: Prometheus 3 refuses samples of the future


def labels(name: str, **more: str) -> tuple[tuple[str, str], ...]:
    return make_labels([("__name__", name), *more.items()])


def test_stale_nan_keeps_its_bits() -> None:
    assert struct.pack("<Q", STALE_BITS) in encode([Point(1, labels("x"), STALE_NAN)])
    assert is_stale(STALE_NAN)
    assert not is_stale(math.nan)
    assert not is_stale(0.0)


def test_encoding_byte_for_byte() -> None:
    # by hand, from prompb's field numbers
    label = b"\x0a\x0d" + b"\x0a\x08__name__" + b"\x12\x01x"
    sample = b"\x12\x0c" + b"\x09" + struct.pack("<d", 1.5) + b"\x10\xac\x02"  # 300 ms
    body = label + sample
    assert encode([Point(300, labels("x"), 1.5)]) == b"\x0a" + bytes([len(body)]) + body


def test_empty_labels_are_dropped_and_names_sorted() -> None:
    assert make_labels([("b", "1"), ("a", ""), ("A", "2")]) == (("A", "2"), ("b", "1"))


def test_stale_marker_ends_a_series_at_once_and_nan_does_not(server: PrivatePrometheus) -> None:
    gone, kept, nan = labels("st_gone"), labels("st_kept"), labels("st_nan")
    server.writer.write([Point(T0, one, 1.0) for one in (gone, kept, nan)])
    server.writer.write([Point(T0 + 5000, gone, STALE_NAN), Point(T0 + 5000, nan, math.nan)])
    just_before, at = (T0 + 4999) / 1000, (T0 + 5000) / 1000
    assert [one.value for one in server.client.query("st_gone", just_before)] == [1.0]
    assert server.client.query("st_gone", at) == []
    assert [one.value for one in server.client.query("st_kept", at + 290)] == [1.0]  # lingers
    (sample,) = server.client.query("st_nan", at)
    assert math.isnan(sample.value)


def test_second_pass_over_two_days_is_not_too_old(server: PrivatePrometheus) -> None:
    """A Prometheus with default blocks refuses samples over an hour older than the newest."""
    raw, recorded = labels("pass_raw"), labels("pass_recorded")
    times = [T0 + step * 60_000 for step in range(2 * 24 * 60)]
    assert server.writer.write(Point(at, raw, 1.0) for at in times) == len(times)
    server.writer.write(Point(at, recorded, 2.0) for at in times)
    (sample,) = server.client.query("count_over_time(pass_recorded[3d])", times[-1] / 1000)
    assert sample.value == len(times)


def test_samples_of_long_ago() -> None:
    with PrivatePrometheus() as own:
        own.writer.write([Point(1_000_000_000_000, labels("old"), 7.0)])  # 2001
        assert [one.value for one in own.client.query("old", 1_000_000_000)] == [7.0]


def test_batches_arrive_whole(server: PrivatePrometheus) -> None:
    with Writer(server.url, batch=7) as writer:
        writer.write(Point(T0 + step, labels("batched", n=str(step % 3)), float(step)) for step in range(100))
    (sample,) = server.client.query("sum(count_over_time(batched[1m]))", (T0 + 200) / 1000)
    assert sample.value == 100


def test_out_of_order_is_refused(server: PrivatePrometheus) -> None:
    with pytest.raises(ToolError, match="out of order: 1 ms after 2 ms"):
        server.writer.write([Point(2, labels("o"), 1.0), Point(1, labels("o"), 1.0)])
    server.writer.write([Point(T0, labels("refused"), 1.0)])
    with pytest.raises(ServerError, match=r"refused 1 samples .* 400 out of order sample"):
        server.writer.write([Point(T0 - 1, labels("refused"), 1.0)])


def test_nobody_there_to_write_to() -> None:
    with Writer(f"http://127.0.0.1:{free_port()}") as writer, pytest.raises(ServerError, match="cannot be reached"):
        writer.write([Point(1, labels("x"), 1.0)])


def test_rules_and_alerts_of_a_running_server(tmp_path: Path) -> None:
    rules = tmp_path / "r.yaml"
    rules.write_text("groups: [{name: g, rules: [{alert: Always, expr: vector(3), labels: {a: b}}]}]")
    with PrivatePrometheus(rule_files=[rules], evaluation_interval="1s") as own:
        (alert,) = eventually("an alert", 20, own.client.alerts)
        (rule,) = own.client.rules()
        assert (rule.group, rule.name, rule.kind, rule.expr) == ("g", "Always", "alerting", "vector(3)")
        assert (alert.state, alert.value) == ("firing", 3.0)
        assert alert.labels == (("a", "b"), ("alertname", "Always"))


def test_it_scrapes_itself() -> None:
    port = free_port()
    scrape = {"job_name": "dead", "scrape_interval": "1s", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
    with PrivatePrometheus(scrape_configs=[scrape]) as own:
        up = eventually("a scrape", 20, lambda: own.client.query('up{job="dead"}'))
        assert [one.value for one in up] == [0.0]


def test_it_is_gone_afterwards() -> None:
    with PrivatePrometheus() as own:
        pid, folder = own.pid, own._folder
        assert pid
        assert folder is not None
    assert not folder.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_it_is_gone_after_an_error_too() -> None:
    own = PrivatePrometheus()
    own.__enter__()
    pid = own.pid
    own.__exit__(RuntimeError, RuntimeError(), None)
    own.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_bad_rules_are_told_with_its_log(tmp_path: Path) -> None:
    rules = tmp_path / "r.yaml"
    rules.write_text("groups: [{name: g, rules: [{alert: A, expr: 'x >>'}]}]")
    with pytest.raises(ToolError, match=r"before it was ready: .*could not parse expression") as caught:
        PrivatePrometheus(rule_files=[rules]).__enter__()
    assert "\n" not in str(caught.value)


def test_bad_binaries(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"exit code 1 .*it logged nothing"):
        PrivatePrometheus(binary=Path("/bin/false")).__enter__()
    with pytest.raises(ToolError, match="cannot be started: No such file"):
        PrivatePrometheus(binary=Path("/nope")).__enter__()
    hangs = tmp_path / "prometheus"
    hangs.write_text("#!/bin/sh\necho thinking\nexec sleep 60\n")
    hangs.chmod(0o755)
    with pytest.raises(ToolError, match=r"was not ready within 0\.5 s: thinking"):
        PrivatePrometheus(binary=hangs, deadline=0.5).__enter__()
