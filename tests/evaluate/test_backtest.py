"""Backtests on a real Prometheus, on VictoriaMetrics, and on servers that fail in one way or another."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.error import URLError
from urllib.parse import parse_qs
from urllib.request import urlopen

import pytest

from obs.errors import InputError, ServerError
from obs.evaluate import backtest, live, ranges, recording
from obs.evaluate.backtest import over_recordings, over_server
from obs.evaluate.replay import Timeline, replay
from obs.evaluate.rules import Rule, load_rule_files
from obs.prom.client import Client, Connection
from obs.prom.packed import unpack
from obs.prom.remote_write import STALE_NAN, make_labels
from obs.prom.server import PrivatePrometheus, free_port
from tests.stubserver import StubServer
from tests.waiting import eventually

pytestmark = pytest.mark.prometheus

MIN = 60_000
T0 = 1_700_000_000_000 // (120 * MIN) * 120 * MIN  # past: Prometheus 3 refuses samples of the future
RECORDINGS = Path(__file__).parent.parent / "data" / "recordings"


def labels(name: str, **pairs: str) -> tuple[tuple[str, str], ...]:
    return make_labels([("__name__", name), *pairs.items()])


def column(text: str) -> tuple[list[int], array[float]]:
    """A value a minute from T0 on; "_" none, "s" stale."""
    marks = text.split()
    kept = [(T0 + at * MIN, STALE_NAN if mark == "s" else float(mark)) for at, mark in enumerate(marks) if mark != "_"]
    return [at for at, _ in kept], array("d", [value for _, value in kept])


@pytest.fixture(scope="module")
def server() -> Iterator[PrivatePrometheus]:
    with PrivatePrometheus() as prometheus:
        prometheus.writer.write_series(
            [
                (labels("x", i="a"), *column("0 5 5 5 0 0 5 5 s s")),
                (labels("x", i="b"), *column("0 5 0 5 5 5 5 5 5 5")),
                (labels("up", i="a"), *column("1 1 1 1 1 1 1 1 1 1")),
            ]
        )
        yield prometheus


def states(line: Timeline, alert: str, minutes: int = 10) -> dict[str, str]:
    """Per instance's label i: p(ending), f(iring) or . at each minute."""
    return {
        dict(one.labels).get("i", ""): "".join(one.state_at(T0 + at * MIN)[0].replace("i", ".") for at in range(minutes))
        for one in line.of(alert)
    }


def run(client: Client, rules: list[Rule], **more: object) -> backtest.History:
    given = {"start_ms": T0, "end_ms": T0 + 10 * MIN - 1, "step_ms": MIN, **more}
    return over_server(client, rules, **given)  # type: ignore[arg-type]


HIGH = Rule("alert", "High", "x > 1", hold_ms=MIN, keep_ms=2 * MIN)


def test_states_by_hand(server: PrivatePrometheus) -> None:
    history = run(server.client, [HIGH])
    assert states(history.timeline, "High") == {"a": ".pffffffff", "b": ".p.pffffff"}
    assert (history.choices, history.warnings, history.notes) == ((), (), ())
    assert (history.timeline.recording, history.timeline.dead) == (server.url, ())
    assert history.timeline.prometheus.startswith(("2.", "3."))


def test_limit_forgets_all_and_begins_anew(server: PrivatePrometheus) -> None:
    limited = replace(HIGH, limit=1, keep_ms=0)
    history = run(server.client, [limited])
    # two active at minutes 1, 3, 6 and 7: each time all are forgotten
    assert states(history.timeline, "High") == {"a": "..p.......", "b": "....pf..pf"}
    assert "4 of 10 evaluations" in history.warnings[0]
    assert "limit of 1" in history.warnings[0]


def test_a_groups_own_interval(server: PrivatePrometheus) -> None:
    history = run(server.client, [replace(HIGH, interval_ms=2 * MIN, keep_ms=0), Rule("alert", "Each", "x > 1")])
    # evaluated at minutes 0, 2, 4, 6, 8; b is there at 4, 6, 8 and a at 2 and 6
    assert states(history.timeline, "High") == {"a": "..pp..pp..", "b": "....ppffff"}
    assert states(history.timeline, "Each")["a"] == ".fff..ff.."


def test_results_with_the_same_labels_fail_the_evaluation_and_change_nothing(server: PrivatePrometheus) -> None:
    history = run(server.client, [Rule("alert", "Same", "x > 1", {"i": "same"})])
    # one result at minutes 2, 4, 5, 8 and 9; two at 1, 3, 6, 7: those change nothing
    assert states(history.timeline, "Same") == {"same": "..ffffffff"}
    assert "4 of 10 evaluations fail, as on a server" in history.warnings[0]


def test_an_expression_that_fails_at_times(server: PrivatePrometheus) -> None:
    history = run(server.client, [Rule("alert", "Join", "up * on () group_left () (x > 1)")])
    assert states(history.timeline, "Join") == {"a": "..ffffffff"}
    assert "4 of 10 evaluations fail" in history.warnings[0]
    assert "many-to-many" in history.warnings[0] or "matching" in history.warnings[0]


RECORDED = [
    Rule("record", "r:x", "x * 2", group="g", file="f"),
    Rule("record", "r:max", "max_over_time(r:x[3m])", group="g", file="f", order=1),
    Rule("alert", "R", "r:x > 2", group="g", file="f", order=2),
    Rule("alert", "Old", "r:x offset 2m > 2", group="g", file="f", order=3),
    Rule("alert", "Mixed", "r:max > 2 unless on (i) x > 1", group="g", file="f", order=4),
    Rule("alert", "Max", "max_over_time((r:x + on (i) x)[2m:1m]) > 10", group="g", file="f", order=5),
]


@pytest.mark.parametrize("how", ["auto", "expand", "first"])
def test_recording_rules_need_not_be_deployed(server: PrivatePrometheus, how: backtest.How) -> None:
    history = run(server.client, RECORDED, how=how)
    assert states(history.timeline, "R") == {"a": ".fff..ff..", "b": ".f.fffffff"}
    assert states(history.timeline, "Old") == {"a": "...fff..ff", "b": "...f.fffff"}
    assert states(history.timeline, "Mixed")["a"] == "....ff..ff"
    assert states(history.timeline, "Max")["a"] == ".fffff.fff"[:4] + states(history.timeline, "Max")["a"][4:]
    assert {choice.rule for choice in history.choices} == {"R", "Old", "Mixed", "Max"}
    assert all(choice.exact for choice in history.choices)
    assert {"expand": "expanded", "first": "evaluated first"}.get(how, history.choices[0].how) == history.choices[0].how


def test_the_choice_is_explained(server: PrivatePrometheus) -> None:
    slow = Rule("record", "r:slow", "x", interval_ms=5 * MIN)
    late = Rule("record", "r:late", "x", group="g", file="f", order=1)
    rules = [
        slow, late, Rule("alert", "Slow", "r:slow > 1"), Rule("alert", "Early", "r:late > 1", group="g", file="f"),
        Rule("alert", "At", "r:late @ end() > 1"), Rule("alert", "Plain", "x > 1"),
    ]  # fmt: skip
    history = run(server.client, rules)
    why = {choice.rule: (choice.how, choice.why) for choice in history.choices}
    assert why["Slow"][0] == why["Early"][0] == why["At"][0] == "evaluated first"
    assert "r:slow is recorded every 300 s" in why["Slow"][1]
    assert "Early stands before r:late in its group" in why["Early"][1]
    assert "fixed time" in why["At"][1]
    assert "Plain" not in why
    assert states(history.timeline, "Early")["a"] == "..fff..ff."  # a minute later than the samples
    assert states(history.timeline, "Slow") == {"b": ".....fffff"}  # recorded at minutes 0 and 5 only
    forced = run(server.client, rules, how="expand")
    assert [choice.exact for choice in forced.choices if choice.rule == "Slow"] == [False]


def test_stored_series_are_read_where_the_server_has_the_rules(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(
        json.dumps({"groups": [{"name": "g", "rules": [{"record": "r:x", "expr": "x*2"}, {"record": "r:y", "expr": "y"}]}]})
    )
    with PrivatePrometheus(rule_files=[tmp_path / "r.yaml"], evaluation_interval="1h") as prometheus:
        some = column("0 5 5 5 0 0 5 5 5 5")
        prometheus.writer.write_series(
            [(labels("x", i="a"), *some), (labels("r:x", i="a"), some[0], array("d", [2 * value for value in some[1]])),
             (labels("y", i="a"), *some), (labels("r:y", i="a"), some[0][7:], some[1][7:])]
        )  # fmt: skip
        rules = [
            Rule("record", "r:x", "x * 2"), Rule("record", "r:y", "y"), Rule("alert", "X", "r:x > 2"),
            Rule("alert", "Y", "r:y > 2"),
        ]  # fmt: skip
        history = run(prometheus.client, rules)
    assert [(choice.rule, choice.how) for choice in history.choices] == [("X", "stored"), ("Y", "expanded")]
    assert states(history.timeline, "X") == states(history.timeline, "Y") == {"a": ".fff..ffff"}


def test_a_recording_gives_what_its_replay_gives() -> None:
    one = recording.read(RECORDINGS / "triton-2.51-incident.tar.gz")
    rules = [
        Rule("alert", "Down", "up == 0", {"severity": "critical"}),
        Rule("record", "q", "rate(nv_inference_queue_duration_us[20s]) / 1e6 / (rate(nv_inference_request_success[20s]) > 0)"),
        Rule("alert", "Slow", "q > 0.1", {"how": "{{ if gt $value 1.0 }}very{{ else }}a bit{{ end }}"}, hold_ms=10_000),
    ]
    told: list[float] = []
    history = over_recordings(one, rules, progress=lambda text, part: told.append(part))
    assert history.timeline == replay(one, rules)
    assert {dict(found.labels)["how"] for found in history.timeline.of("Slow")} >= {"a bit"}
    assert told[-1] == 1.0
    assert told == sorted(told)
    with pytest.raises(InputError, match="no recording"):
        over_recordings([], rules)


def test_long_times_are_asked_in_pieces(server: PrivatePrometheus) -> None:
    """At a second's step, ten minutes take more than one piece (the first has 1,000 steps at most)."""
    fine = run(server.client, [replace(HIGH, hold_ms=0, keep_ms=0)], step_ms=500)
    coarse = run(server.client, [replace(HIGH, hold_ms=0, keep_ms=0)])
    assert states(fine.timeline, "High") == states(coarse.timeline, "High")


# --- resuming, and servers that fail ----------------------------------------------------------------------


class Proxy:
    """In front of a Prometheus: ``meddle(path, form)`` may answer in its place (status, body)."""

    def __init__(self, behind: str, meddle: Callable[[str, dict[str, str]], tuple[int, str] | None]) -> None:
        proxy = self
        self.meddle = meddle
        self.asked: list[dict[str, str]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer(b"")

            def do_POST(self) -> None:
                self.answer(self.rfile.read(int(self.headers["Content-Length"])))

            def answer(self, body: bytes) -> None:
                form = {key: values[0] for key, values in parse_qs(body.decode()).items()}
                probe = form.get("query", "").startswith("count(")  # whether there is any sample
                if "query_range" in self.path and not probe:
                    proxy.asked.append(form)
                made = None if probe else proxy.meddle(self.path, form)
                if made is None:
                    with urlopen(behind + self.path, data=body or None) as answer:
                        made = answer.status, answer.read().decode()
                self.send_response(made[0])
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(made[1].encode())

            def log_message(self, *args: object) -> None:
                pass

        self.http = StubServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture
def proxied(server: PrivatePrometheus, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Proxy]]:
    monkeypatch.setattr(ranges, "_PAUSE", 0.01)
    made: list[Proxy] = []

    def make(meddle: Callable[[str, dict[str, str]], tuple[int, str] | None]) -> Proxy:
        made.append(Proxy(server.url, meddle))
        return made[-1]

    yield make
    for one in made:
        one.close()


def error(status: int, kind: str, text: str) -> tuple[int, str]:
    return status, json.dumps({"status": "error", "errorType": kind, "error": text})


def test_passing_faults_are_tried_again(server: PrivatePrometheus, proxied: Callable[..., Proxy]) -> None:
    faults = [(502, "<html>bad gateway</html>"), error(503, "unavailable", "starting"), (429, "{}")]
    proxy = proxied(lambda path, form: faults.pop() if "query_range" in path and faults else None)
    told: list[float] = []
    with Client(proxy.url) as client:
        history = run(client, [HIGH], progress=lambda text, part: told.append(part))
    assert not faults
    assert told == sorted(told)
    assert (told[0], told[-1]) == (0.0, 1.0)
    assert history.timeline.instances == run(server.client, [HIGH]).timeline.instances


def test_too_much_is_asked_in_halves(server: PrivatePrometheus, proxied: Callable[..., Proxy]) -> None:
    def meddle(path: str, form: dict[str, str]) -> tuple[int, str] | None:
        if "query_range" in path and float(form["end"]) - float(form["start"]) > 120:
            return error(422, "execution", "query processing would load too many samples into memory in query execution")
        return None

    proxy = proxied(meddle)
    with Client(proxy.url) as client:
        assert run(client, [HIGH]).timeline.instances == run(server.client, [HIGH]).timeline.instances
    everything = proxied(lambda path, form: error(503, "timeout", "query timed out") if "query_range" in path else None)
    with Client(everything.url) as client, pytest.raises(ServerError, match="High: even one step is too much"):
        run(client, [HIGH])


def test_a_server_that_dies_midway_can_be_resumed(
    server: PrivatePrometheus, proxied: Callable[..., Proxy], tmp_path: Path
) -> None:
    folder = tmp_path / "kept"

    def meddle(path: str, form: dict[str, str]) -> tuple[int, str] | None:
        if form.get("query") != "x > 3":
            return None
        if folder.exists():
            eventually("two pieces", 60, lambda: len(list(folder.glob("*.piece"))) == 2)
        return 503, "{}"

    proxy = proxied(meddle)
    rules = [HIGH, Rule("alert", "Low", "x < 1"), Rule("alert", "More", "x > 3")]
    with Client(proxy.url) as client:
        with pytest.raises(ServerError, match=r"503 .*asked 6 times.*was done: give a resume folder"):
            run(client, rules)
        with pytest.raises(ServerError, match=r"67% of the work was done: run it again with the resume folder .*kept"):
            run(client, rules, resume=folder)
        assert all(path.suffix == ".piece" for path in folder.iterdir())  # nothing half-written
        proxy.asked.clear()
        proxy.meddle = lambda path, form: None
        history = run(client, rules, resume=folder)
    assert {form["query"] for form in proxy.asked} == {"x > 3"}
    assert history.timeline.instances == run(server.client, rules).timeline.instances


def test_what_is_kept_is_not_asked_again(server: PrivatePrometheus, proxied: Callable[..., Proxy], tmp_path: Path) -> None:
    proxy = proxied(lambda path, form: None)
    folder = tmp_path / "kept"
    shown = replace(HIGH, labels={"v": "{{ $value }}"})
    with Client(proxy.url) as client:
        first = run(client, [shown, *RECORDED], resume=folder, how="first", step_ms=MIN)
        assert proxy.asked
        proxy.asked.clear()
        assert run(client, [shown, *RECORDED], resume=folder, how="first").timeline == first.timeline
        assert proxy.asked == []
        # another time that overlaps asks for what is new only, and a damaged piece again
        later = run(client, [shown], resume=folder, start_ms=T0 + 4 * MIN, end_ms=T0 + 14 * MIN)
        assert [(float(form["start"]) - T0 / 1000) / 60 for form in proxy.asked] == [10.0]
        direct = run(server.client, [shown], start_ms=T0 + 4 * MIN, end_ms=T0 + 14 * MIN)
        assert later.timeline.instances == direct.timeline.instances
        for path in folder.iterdir():
            path.write_bytes(path.read_bytes()[:10])
        assert run(client, [shown, *RECORDED], resume=folder, how="first").timeline == first.timeline
    with Client(Connection(proxy.url, headers={"X-Scope-OrgID": "other"})) as client:
        proxy.asked.clear()
        run(client, [shown], resume=folder)
        assert proxy.asked  # another tenant's pieces are not ours


def test_partial_answers_are_warned_of(proxied: Callable[..., Proxy]) -> None:
    whole = {"status": "success", "data": {"resultType": "matrix", "result": []}, "warnings": ["store gateway 2 is away"]}
    proxy = proxied(lambda path, form: (200, json.dumps(whole)) if "query_range" in path else None)
    with Client(proxy.url) as client:
        assert run(client, [HIGH]).warnings == ("store gateway 2 is away",)


@pytest.mark.parametrize(
    ("rules", "more", "said"),
    [
        ([Rule("alert", "Bad", "x >", where="f.yaml:3")], {}, r"^f\.yaml:3: Bad cannot be evaluated: .*parse error"),
        ([Rule("alert", "Many", "x / on () x")], {"end_ms": T0 + 8 * MIN - 1}, "Many cannot be evaluated: .*many-to-many"),
        ([Rule("record", "a:b", "x")], {}, "have no alert"),
        ([HIGH], {"step_ms": 0}, "evaluation interval of 0 ms"),
        ([HIGH], {"end_ms": T0 + 1000}, "no room for evaluations every 60 s"),
        ([HIGH], {"start_ms": 1000, "end_ms": 1000 + 10 * MIN}, r"has no sample from 1970-01-01.* another server or tenant"),
        ([Rule("alert", "T", "x > 1", {"v": "{{ toUpper $value }}"}, where="f.yaml:9")], {}, "f.yaml:9: label v of T: toUpper"),
    ],
)
def test_errors_are_one_clear_line(server: PrivatePrometheus, rules: list[Rule], more: dict[str, int], said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        run(server.client, rules, **more)
    assert "\n" not in str(caught.value)


def test_a_login_page_is_not_asked_again(proxied: Callable[..., Proxy]) -> None:
    proxy = proxied(lambda path, form: (200, "<html>log in</html>") if "query_range" in path else None)
    with Client(proxy.url) as client, pytest.raises(ServerError, match="a web page"):
        run(client, [HIGH])
    assert len(proxy.asked) == 1


def test_victoria_metrics(tmp_path: Path) -> None:
    binary = shutil.which("victoria-metrics")
    if binary is None:
        pytest.skip("victoria-metrics is not installed")
    from obs.prom.remote_write import Writer

    port = free_port()
    url = f"http://127.0.0.1:{port}"
    argv = [binary, f"-httpListenAddr=127.0.0.1:{port}", f"-storageDataPath={tmp_path / 'data'}", "-retentionPeriod=100y"]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        eventually("healthy", 60, lambda: _answers(f"{url}/health"))
        with Writer(url) as writer:
            some = labels("x", i="a"), *column("0 5 5 5 0 0 5 5 0 0")
            writer.write_series([some, (labels("up"), *column("1 1 1 1 1 1 1 1 1 1"))])
        with Client(url) as client:
            eventually("flushed", 60,
                       lambda: _answers(f"{url}/internal/force_flush") and client.query("x", T0 / 1000 + 300) != [])
            history = run(client, [HIGH, *RECORDED[:1], RECORDED[2]], how="first")
            lost = Rule("alert", "Lost", "y > 1")
            now = live.evaluate(client, [HIGH, RECORDED[0], RECORDED[2], lost], at=(T0 + 7 * MIN) / 1000, interval=60)
            fresh = [int(time.time() * 1000) - ago for ago in range(180_000, 30_000, -15_000)]
            with Writer(url) as writer:
                writer.write_series([(labels("up"), fresh, array("d", [1] * len(fresh)))])
            eventually("flushed", 60, lambda: _answers(f"{url}/internal/force_flush") and client.query("up") != [])
            present = live.evaluate(client, [HIGH, Rule("alert", "Up", "up > 0")])
        assert states(history.timeline, "High") == {"a": ".pffffffff"}
        assert states(history.timeline, "R") == {"a": ".fff..ff.."}
        assert "VictoriaMetrics" in history.notes[0]
        assert {one.alert: one.state for one in now.results} == {"High": "firing", "R": "firing", "Lost": "no data"}
        assert {one.alert: one.state for one in present.results} == {"High": "no data", "Up": "firing"}
        assert [text for text in present.notes if "latencyOffset" in text]
        assert not [text for text in present.notes if "clock" in text]
        (tmp_path / "rules.yaml").write_text("groups: [{name: g, rules: [{alert: Up, expr: up > 0}]}]")
        words = ["--prometheus", f"{url}/prometheus", "--rules", str(tmp_path / "rules.yaml"), "--since", "30m"]
        done = subprocess.run([sys.executable, "-m", "obs", "backtest", *words], capture_output=True, text=True, timeout=300)
        assert (done.returncode, "Traceback" in done.stderr) == (1, False), done.stderr
        assert "firing: Up" in done.stdout
    finally:
        process.kill()
        process.wait()


def _answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False


# --- the answer's bytes ----------------------------------------------------------------------------------


def answer(*series: tuple[dict[str, str], list[tuple[float, str]]]) -> bytes:
    result = [{"metric": metric, "values": values} for metric, values in series]
    document = {"status": "success", "data": {"resultType": "matrix", "result": result}, "warnings": ["w"]}
    return json.dumps(document, separators=(",", ":")).encode()


def test_unpack_knows_runs_and_leaves_the_rest() -> None:
    body = answer(({"a": 'x"]]},{'}, [(10, "1"), (20, "NaN"), (50, "+Inf"), (70, "2"), (80, "3")]), ({}, []))
    (one, two), rest = unpack(body, 10_000, 10_000, values=True)
    assert (one.labels, one.runs) == ((("a", 'x"]]},{'),), ((0, 2), (4, 5), (6, 8)))
    assert one.values is not None
    assert [str(value) for value in one.values] == ["1.0", "nan", "inf", "2.0", "3.0"]
    assert (two.runs, json.loads(rest)["warnings"], json.loads(rest)["data"]["result"]) == ((), ["w"], [])
    spaced = json.dumps(json.loads(body), indent=1).encode()
    assert [found.runs for found in unpack(spaced, 10_000, 10_000, values=False)[0]] == [one.runs, ()]


def test_load_rule_files_keeps_the_group(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(
        "groups:\n- name: g\n  interval: 30s\n  limit: 7\n  query_offset: 1m\n  labels: {team: a, s: b}\n  rules:\n"
        "  - record: r\n    expr: x\n  - alert: A\n    expr: r\n    labels: {s: '{{ $value | humanize }}'}\n"
        "    annotations: {n: 'v'}\n"
    )
    record, alert = load_rule_files([tmp_path / "r.yaml"])
    assert (record.group, record.order, record.interval_ms, record.limit, record.offset_ms) == ("g", 0, 30_000, 7, 60_000)
    assert (alert.order, alert.labels, alert.annotations) == (1, {"team": "a", "s": "{{ $value | humanize }}"}, {"n": "v"})
    assert alert.reads_value
    assert dict(alert.result_labels((("__name__", "r"), ("x", "y")), 1500.0)) == {
        "alertname": "A", "s": "1.5k", "team": "a", "x": "y",
    }  # fmt: skip
    (tmp_path / "r.yaml").write_text("groups:\n- name: g\n  limit: many\n  rules: [{alert: A, expr: x}]\n")
    with pytest.raises(InputError, match=r"r\.yaml:2: limit 'many' of group 'g' is no whole number"):
        load_rule_files([tmp_path / "r.yaml"])
