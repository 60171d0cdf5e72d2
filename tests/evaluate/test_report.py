"""Every form of a report of one small hand-made history."""

from __future__ import annotations

import builtins
import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from obs.errors import ToolError
from obs.evaluate.chart import Band, Phase, bands, states, strip_by_alert
from obs.evaluate.compare import compare
from obs.evaluate.history import Choice, Curve, History
from obs.evaluate.incidents import parse_incidents
from obs.evaluate.replay import Instance, Timeline
from obs.evaluate.report import Report, drawing, html, junit, machine, markdown, terminal, words
from obs.evaluate.rules import Rule
from obs.evaluate.score import score
from obs.evaluate.state import Span
from obs.evaluate.sweep import Point, Spec, Sweep
from obs.prom.remote_write import Labels, make_labels

START = 1_796_022_000_000


def labels(alert: str, model: str) -> Labels:
    return make_labels({"alertname": alert, "model": model}.items())


def instance(alert: str, model: str, *spans: tuple[int, int, str]) -> Instance:
    return Instance(
        alert, labels(alert, model), tuple(Span(START + a * 1000, START + b * 1000, s) for a, b, s in spans)  # type: ignore[arg-type]
    )


LINE = Timeline(
    "r", "2.42.0", START, START + 600_000, 10_000, ("Hot", "Slow", "Quiet", "Blind"),
    (
        instance("Hot", "a<b>|`x`", (90, 120, "pending"), (120, 200, "firing"), (400, 420, "firing")),
        instance("Hot", "b", (500, 600, "firing")),
        instance("Slow", "b", (300, 310, "pending")),
    ),
    (("Blind", ("gone_metric",)),),
)  # fmt: skip
CURVE = Curve(
    "Hot", LINE.instances[0].labels, ">",
    tuple((START + at * 1000, at / 100) for at in range(0, 600, 10) if not 220 < at < 300),
    ((START, 1.0), (START + 590_000, 1.0)),
)
INCIDENTS = parse_incidents(
    "lead: 0s\nincidents:\n  - {name: overload, from: +100s, to: +300s, expected: [Hot, Slow]}\n"
    "  - {name: outage, from: +310s, to: +350s, expected: [Slow]}\n",
    start_ms=START,
)
NEW = replace(LINE, instances=(instance("Hot", "b", (500, 600, "firing")),))


def sweep() -> Sweep:
    one = score(LINE, INCIDENTS).of("Hot")
    return Sweep(Spec("Hot", "threshold", "1", "9", 3), "a > 2", (
        Point(1.0, "1", False, one), Point(2.0, "2", True, one),
        Point(9.0, "9", False, replace(one, false=0, episodes=0, recall=0.0, detect_median_ms=None)),
    ), ("a note",))


def report(*, judged: bool = True, whole: bool = False) -> Report:
    incidents = INCIDENTS if judged else None
    history = History(
        LINE, (Choice("Hot", "expanded", "a reason", exact=False), Choice("Slow", "stored", "fine")), ("partial answer",),
        (CURVE,), ("a server note",),
    )
    found = Report(
        "some past", "old.yaml", history, score(LINE, incidents), (Phase(START, "calm"), Phase(START + 100_000, "storm")),
        policies=("false", "missed"), broken=("missed: outage",), alerts=(Rule("alert", "Hot", "a > 2", hold_ms=30_000),),
    )
    if not whole:
        return found
    return replace(
        found, comparison=compare(found.score, score(NEW, incidents)), against=History(NEW), against_rules="new.yaml",
        against_alerts=(Rule("alert", "Hot", "a > 3"),),
        sweeps=(sweep(),),
    )


# --- the strip ---------------------------------------------------------------------------------------------


def test_states_of_slices() -> None:
    assert states(LINE.instances[:1], START, START + 600_000, 6) == [
        "pending", "firing", "inactive", "inactive", "firing", "inactive",
    ]
    short = [instance("Hot", "a", (599, 600, "firing"))]
    assert states(short, START, START + 600_000, 3) == ["inactive", "inactive", "firing"]
    assert states(short, START, START + 600_000, 1) == ["firing"]


def test_bands_of_phases() -> None:
    assert bands((Phase(1, "a"), Phase(5, "b")), 9) == (Band(1, 5, "a"), Band(5, 9, "b"))
    assert bands((), 9) == ()


def test_a_line_per_alert_with_incidents_above() -> None:
    line = replace(LINE, end_ms=START + 599_999)
    lines = strip_by_alert(
        line, (Band(START + 100_000, START + 300_000, "overload"), Band(START + 550_000, START + 700_000, "x")), (),
        width=70, colour=False, unicode=False,
    )
    assert lines == [
        "                    |- overload -------|",
        "                                                               x |---|",
        "Hot x2    .........---########....................##........##########",
        "Slow      ..............................-.............................",
        "          . inactive  - pending  # firing",
    ]


def test_many_incidents_share_a_line() -> None:
    many = tuple(Band(START + at * 1000, START + at * 1000 + 20_000, f"n{at}") for at in range(0, 600, 40))
    lines = strip_by_alert(LINE, many, (), width=70, colour=False, unicode=True)
    assert lines[0] == ("          " + "──  " * 15).rstrip()
    assert lines[1] == "          15 incidents"
    assert drawing.lanes(LINE, many, "x").count(">n40<") == 0
    assert drawing.lanes(LINE, many[:3], "x").count(">n40<") == 1


def test_without_incidents_the_phases_stand_above() -> None:
    lines = strip_by_alert(LINE, (), (Phase(START, "calm"),), width=70, colour=False, unicode=True)
    assert lines[0] == "          ▼ calm"
    assert lines[1].startswith("Hot ×2    ·········░░░████████···")


# --- forms -------------------------------------------------------------------------------------------------


def test_terminal() -> None:
    text = terminal.render(report(whole=True), width=100)
    assert "\x1b" not in text
    assert "1 of 2 incidents detected, the slowest after 20s; 3 episodes: 1 true, 2 false" in text
    rows = {line.split()[0]: line.split() for line in text.splitlines() if line}
    assert rows["Hot"][:1] == ["Hot"]
    assert re.search(r"^Hot +3 +1 +2 +0 +33.3% +100% +20s +20s +0s +0 +3m20s$", text, re.MULTILINE)
    assert re.search(r"^outage +\+5m10s +\+5m50s +missed +Slow missed$", text, re.MULTILINE)
    assert re.search(r"^\+6m40s +20s  Hot\{model=", text, re.MULTILINE)
    assert "blind (they read series that were never there; -v names them): Blind" in text
    assert "never active: Quiet" in text
    assert "Hot: 2 lost" in text
    assert re.search(r"^overload +20s +missed +LOST$", text, re.MULTILINE)
    assert re.search(r"^    2  in use +3 +2 +100% +20s +0 +3m20s   █+   █+$", text, re.MULTILINE)
    assert "note: a note" in text
    assert "note: a server note" in text
    assert "Hot was expanded: a reason" in text
    assert "Slow was stored" not in text
    assert "warning: partial answer" in text
    assert text.endswith("broken: missed: outage\n")
    verbose = terminal.render(report(), width=100, verbose=True)
    assert "  Blind reads gone_metric" in verbose
    assert "Slow was stored: fine" in verbose


def test_terminal_without_unicode_and_with_colour() -> None:
    assert terminal.render(report(whole=True), unicode=False).isascii()
    coloured = terminal.render(report(), colour=True)
    assert "\x1b[31m1 of 2 incidents" in coloured
    assert re.sub(r"\x1b\[\d+m", "", coloured) == terminal.render(report())


def test_without_incidents_nothing_is_judged() -> None:
    text = terminal.render(report(judged=False))
    assert "3 episodes; 3m20s firing (no incidents given: not judged)" in text
    assert "precision" not in text
    assert "▼ storm" in text


def test_markdown() -> None:
    text = markdown.render(report(whole=True))
    assert text.startswith("## obs backtest: rules compared\n\n**BROKEN**: 1 of 4 alerts changed: ")
    assert "- :x: missed: outage" in text
    assert "| overload | 20s | missed | LOST |" in text
    assert "| Hot | 0 | 2 | 0 | 0 | 3m20s | 1m40s | 2 lost |" in text
    assert text.count("<details>") == text.count("</details>") == 3
    assert "``" in text  # a label value with a backtick is fenced by two
    for line in text.splitlines():
        if line.startswith("|"):
            assert line.endswith("|")
            assert line.replace("\\|", "").count("|") in {4, 5, 6, 8, 9, 12, 13}
    alone = markdown.render(report())
    assert "Hot{model=\"a\\<b\\>\\|\\`x\\`\"}" in alone  # others' text is no markup


def test_markdown_fits_a_comment() -> None:
    many = replace(LINE, instances=tuple(
        instance("Hot", f"model-{place}", (120, 200, "firing")) for place in range(600)
    ), alerts=(*(f"An_alert_with_a_name_of_many_characters_{place:060}" for place in range(600)), "Hot"))
    new = score(replace(many, instances=tuple(
        instance(name, "m", (120, 200, "firing")) for name in many.alerts[:600]
    )), INCIDENTS)
    found = replace(report(), score=score(many, INCIDENTS), comparison=compare(score(many, INCIDENTS), new))
    text = markdown.render(found)
    assert len(text) < 65_536
    assert text.endswith("(cut: too long for a comment; the HTML report has all of it)\n")
    assert text.count("<details>") == text.count("</details>")


def test_json_is_strict_and_whole() -> None:
    text = machine.render(report(whole=True))
    document = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert document["score"]["total"]["false"] == 2
    assert document["history"]["phases"][1] == {"from": (START + 100_000) / 1000, "name": "storm"}
    assert document["comparison"]["incidents"][0]["new"] is False
    assert document["sweeps"][0]["points"][1]["current"] is True
    assert document["choices"][0] == {"rule": "Hot", "how": "expanded", "why": "a reason", "exact": False}
    assert (document["warnings"], document["broken"]) == (["partial answer"], ["missed: outage"])
    assert json.loads(machine.render(report(judged=False)))["score"]["total"]["false"] is None


def test_junit() -> None:
    root = ET.fromstring(junit.render(report()))
    cases = {(one.get("classname"), one.get("name")): one for one in root.iter("testcase")}
    hot = cases["obs.alerts", "Hot"].find("failure")
    assert hot is not None
    assert hot.get("message") == "2 false episodes"
    assert 'Hot{model="a<b>|`x`"}' in (hot.text or "")
    assert cases["obs.alerts", "Quiet"].find("failure") is None
    skipped = cases["obs.alerts", "Blind"].find("skipped")
    assert skipped is not None
    assert skipped.get("message") == "blind: gone_metric was never there"
    assert cases["obs.incidents", "overload: Hot"].find("failure") is None
    assert cases["obs.incidents", "overload: Slow"].find("failure") is not None
    assert cases["obs.policies", "missed"].find("failure") is not None
    assert cases["obs.policies", "false"].find("failure") is None
    assert (root.get("tests"), root.get("failures"), root.get("skipped")) == ("9", "4", "1")
    odd = replace(report(), title="bad \x00 \x1b & <title>")
    assert ET.fromstring(junit.render(odd)).get("name") == "obs backtest bad ? ? & <title>"
    fired = ET.fromstring(junit.render(report(judged=False)))
    assert [one.get("name") for one in fired.iter("testcase") if one.find("failure") is not None] == ["Hot", "missed"]


class _Page(HTMLParser):
    """Notes ids, links, sources and whether tags are balanced."""

    _VOID = frozenset(("meta", "br", "img", "link", "use", "path", "i"))

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.fetched: list[str] = []
        self.open: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if given.get("id"):
            self.ids.append(str(given["id"]))
        self.fetched += [str(value) for name, value in attrs if name in {"src", "data", "srcset", "poster"}]
        if tag in {"link", "script", "iframe", "object"}:
            self.fetched.append(tag)
        for name in ("href", "xlink:href"):
            if given.get(name):
                self.links.append(str(given[name]))
        if tag not in {"meta", "br", "img", "link"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in {"meta", "br", "img", "link"}:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def page() -> str:
    return html.render(report(whole=True))


def test_html_is_one_file_that_needs_no_network(page: str) -> None:
    seen = _Page()
    seen.feed(page)
    assert seen.open == []
    assert seen.fetched == []
    assert len(seen.ids) == len(set(seen.ids))
    assert all(link.startswith("#") for link in seen.links)
    assert {link[1:] for link in seen.links} <= set(seen.ids)
    assert "url(http" not in page
    assert "@import" not in page
    # two timelines, a sweep, Hot under both rules, Slow under the old (under the new it was never active)
    assert page.count("<svg") == 6


def test_html_has_what_the_report_has(page: str) -> None:
    assert "a&lt;b&gt;|`x`" in page
    assert "a<b>" not in page
    assert "<pre>a &gt; 2\nfor: 30s</pre>" in page
    for words_ in ("1 of 2 incidents detected", "warning, data may be missing: partial answer", "broken: missed: outage",
                   "gone_metric", "Old rules and new", "Hot.threshold", "in use", "new.yaml", "Never fired.",
                   "<pre>a &gt; 3</pre>"):
        assert words_ in page
    assert 'class="r bad">2</td>' in page


def test_html_follows_the_readers_colours(page: str) -> None:
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page
    drawn = "".join(re.findall(r"<svg.*?</svg>", page, re.DOTALL))
    assert set(re.findall(r"#[0-9a-f]{6}", drawn)) == set()
    assert set(re.findall(r"var\((--\w+)\)", drawn)) <= set(drawing.COLOURS.values())
    for variable in drawing.COLOURS.values():
        assert page.count(f"{variable}:") >= 2  # light and dark


def test_html_is_the_same_bytes_each_time_whatever_the_users_settings(page: str, tmp_path: Path) -> None:
    (tmp_path / "matplotlibrc").write_text("font.size: 30\nsvg.fonttype: path\naxes.facecolor: red\n")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from tests.evaluate.test_report import html, report; "
        "sys.stdout.write(html.render(report(whole=True)))"
    )
    root = Path(__file__).parents[2]
    again = subprocess.run(
        [sys.executable, "-c", code, str(root)], cwd=tmp_path, capture_output=True, text=True, check=True,
    )
    assert again.stdout == page
    assert again.stderr == ""


def test_html_without_anything_that_fired() -> None:
    empty = replace(LINE, instances=())
    text = html.render(Report("p", "r", History(empty), score(empty)))
    assert "No alert was ever pending or firing." in text
    assert "<svg" not in text


def test_a_missing_library_is_one_line_with_the_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **more: Any) -> Any:
        if name.split(".")[0] == "matplotlib":
            raise ImportError("No module named 'matplotlib'", name="matplotlib")
        return real(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    said = r"--html needs the Python package matplotlib; .* pip install 'obs-inference\[report\]'"
    with pytest.raises(ToolError, match=said):
        drawing.ready()


def test_words() -> None:
    assert [words.span(ms) for ms in (None, 0, 1, 344, 5_344, 15_344, 95_000, 3_605_000)] == [
        "–", "0s", "0.1s", "0.3s", "5.3s", "15s", "1m35s", "1h00m05s",
    ]
    assert [words.share(one) for one in (None, 0.0, 1.0, 0.999, 1 / 3)] == ["–", "0%", "100%", "99.9%", "33.3%"]
    table = words.Table((("a", "left"), ("b", "right"), ("c", "left")), (("x", "1", "one two three four five six"),))
    assert list(words.lines(table)) == ["a  b  c", "x  1  one two three four five six"]
    assert list(words.lines(table, width=30)) == ["a  b  c", "x  1  one two three four five", "      six"]
