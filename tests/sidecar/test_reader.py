"""The fast reader against prometheus_client's parser, and against what that parser gets wrong."""

from __future__ import annotations

import contextlib
import math
import random
import re
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from obs.sidecar.reader import Reader
from obs.sidecar.scrape import Page, ScrapeFailed

from .engine import SCRAPES

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def everything(_: str) -> bool:
    return True


def read(text: str, reader: Reader | None = None) -> Series:
    found = (reader or Reader(everything)).text(text)
    return {(name, tuple(sorted(one.labels.items()))): one.value for name, series in found.items() for one in series}


def peer(text: str) -> Series:
    """What prometheus_client says, with the names that it makes up mapped back to the wire's; the first one counts."""
    wire = {re.split(r"[{ \t]", line.strip(), maxsplit=1)[0] for line in text.splitlines()}
    found: Series = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name = sample.name if sample.name in wire else sample.name.removesuffix("_total")
            found.setdefault((name, tuple(sorted(sample.labels.items()))), sample.value)
    return found


def same(left: Series, right: Series) -> bool:
    return left.keys() == right.keys() and all(
        value == right[key] or (math.isnan(value) and math.isnan(right[key])) for key, value in left.items()
    )


@pytest.mark.parametrize("path", sorted(SCRAPES.glob("*.prom")), ids=lambda path: path.stem)
def test_real_pages(path: object) -> None:
    text = path.read_text()  # type: ignore[attr-defined]
    reader = Reader(everything)
    wire = {line.split("{")[0].split(" ")[0] for line in text.splitlines() if line and line[0] != "#"}
    for _ in range(3):  # the first reading fills the cache, the others use it
        mine = read(text, reader)
        assert {name for name, _ in mine} == wire
        assert same(mine, peer(text))


_VALUES = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(["0", "-1", "+1", "1e3", "1E-3", "NaN", "Nan", "nan", "+Inf", "-Inf", "Inf", "inf", "1.", ".5"]),
)
_TEXT = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\r"), max_size=12)
_LABELS = st.dictionaries(st.sampled_from(["a", "le", "model_name", "b_1"]), _TEXT, max_size=3)
_NAMES = st.sampled_from(["m", "nv_x", "vllm:y_total", "z_bucket", "z_sum", "_u", "a:b"])


def escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


@st.composite
def _lines(draw: st.DrawFn) -> str:
    name, labels, value = draw(_NAMES), draw(_LABELS), draw(_VALUES)
    braces = ",".join(f'{key}="{escape(text)}"' for key, text in labels.items())
    inside = f"{{{braces}{draw(st.sampled_from(['', ',']))}}}" if labels else draw(st.sampled_from(["", "{}"]))
    gap = draw(st.sampled_from([" ", "  ", "\t", " \t "]))
    stamp = draw(st.sampled_from(["", " 1796023946191", "  5"]))
    return f"{name}{inside}{gap}{value}{stamp}"


_PAGES = st.lists(
    st.one_of(_lines(), st.sampled_from(["", "# a comment", "#", "# HELP m A help with 5", "# TYPE nv_x counter"])),
    min_size=1, max_size=12,
).map(lambda lines: "\n".join(lines) + "\n")


@settings(max_examples=120, deadline=None)
@given(pages=st.lists(_PAGES, min_size=1, max_size=3), order=st.randoms(use_true_random=False))
@example(pages=["m 5 5\n", "m 5 6\n"], order=random.Random(0))
@example(pages=['m{a="x y"} 1\n', 'm{a="x y"} 2 7\n'], order=random.Random(0))
def test_any_page_reads_as_the_peer_reads_it(pages: list[str], order: random.Random) -> None:
    """One reader over several pages: what it remembers of one must not colour the next."""
    reader = Reader(everything, heads=order.choice([2, 8, 1000]))
    for page in pages:
        try:
            wanted = peer(page)
        except ValueError:
            continue  # the peer refuses more; what we must refuse is tested below
        assert same(read(page, reader), wanted), page


@settings(max_examples=300, deadline=None)
@given(_TEXT.map(lambda text: text + "\n"), st.integers(0, 3))
def test_no_text_breaks_it(text: str, times: int) -> None:
    reader = Reader(everything)
    for _ in range(times):
        with contextlib.suppress(ScrapeFailed):  # and nothing else
            reader.text(text)


def test_wire_names_stay() -> None:
    text = "# TYPE nv_inference_request_success counter\nnv_inference_request_success{model=\"m\"} 7\n"
    assert read(text) == {("nv_inference_request_success", (("model", "m"),)): 7}


@pytest.mark.parametrize(("text", "wanted"), [
    ("m 1\r\n", {("m", ()): 1}),
    ('m{a="b\\\\n\\"\\n"} 1\n', {("m", (("a", 'b\\n"\n'),)): 1}),
    ('h_bucket{le="1"} 3 # {trace_id="t"} 0.5 1.1\n', {("h_bucket", (("le", "1"),)): 3}),
    ('{"my.metric","a.b"="c"} 4\n', {("my.metric", (("a.b", "c"),)): 4}),
    ('{"my.metric"} 4\n', {("my.metric", ()): 4}),
    ("m 1\nn 2\nm 3\n", {("m", ()): 1, ("n", ()): 2}),
    ('m{a="1",b="2"} 1\nm{b="2",a="1"} 9\n', {("m", (("a", "1"), ("b", "2"))): 1}),
    ("m 1\n# EOF", {("m", ()): 1}),
    ('m{a="}"} 1\n', {("m", (("a", "}"),)): 1}),
    ('m{a="#"}2\n', {("m", (("a", "#"),)): 2}),
])
def test_forms(text: str, wanted: Series) -> None:
    reader = Reader(everything)
    assert read(text, reader) == read(text, reader) == wanted


def test_families_that_come_back_are_one() -> None:
    found = Reader({"m"}).text('m{a="1"} 1\nn 5\nm{a="2"} 2\n')
    assert [one.value for one in found["m"]] == [1, 2]
    assert "n" not in found


def page(body: bytes, content_type: str = "text/plain") -> str:
    with pytest.raises(ScrapeFailed) as failed:
        Reader(everything).page(Page(body, content_type, 0))
    return failed.value.reason


def test_reasons() -> None:
    assert page(b"") == page(b" \n\n") == "empty"
    assert page(b"<!DOCTYPE html><html></html>\n") == page(b"\n<html>") == "html"
    assert page(b"[]") == page(b'{"iter": 1}\n', "application/json") == page(b'{"a": [1]}') == page(b"{}") == "json"
    assert page(b"m 1\nvllm:gen") == page(b"m 1", "text/plain") == "truncated"
    assert page(b"m 1\n", "application/openmetrics-text; version=1.0.0") == "truncated"
    assert page(b"\x00\xff\xfe") == page(b"hello world\n") == page(b"m 1_0\n") == page(b'm{a="1} 2\n') == "garbled"
    assert page(b'm{a="1",a="2"} 2\n') == page(b"m\n") == page(b"m 1 x y z\n") == page(b'{"a"="b"} 1\n') == "garbled"


def test_a_number_that_turns_bad_is_seen_where_it_counts() -> None:
    reader = Reader({"m"})
    assert reader.text("m 1\n")
    with pytest.raises(ScrapeFailed):
        reader.text("m x\n")


def test_hostile_lines_cost_no_more_than_their_length() -> None:
    for line in ('m{' + 'a="' * 20000, 'm{' + '"' * 60001, "m " + "1 " * 30000, "m{" + 'a="b",' * 10000):
        begun = time.perf_counter()
        with pytest.raises(ScrapeFailed):
            Reader(everything).text(line + "\n")
        assert time.perf_counter() - begun < 1


def test_long_labels_and_many_labels_cost_no_more_than_their_length() -> None:
    for labels in ('a="' + "x" * 2_000_000 + '"', ",".join(f'a{number}="b"' for number in range(100_000))):
        begun = time.process_time()
        assert len(Reader(everything).text(f"m{{{labels}}} 1\n")["m"]) == 1
        assert time.process_time() - begun < 2


def test_five_megabytes_and_bounded_memory() -> None:
    lines = "".join(f'other_bucket{{model="m{number}",le="0.5"}} {number}\n' for number in range(110_000))
    assert len(lines) > 4.5e6
    reader = Reader({"m"})
    for _ in range(2):
        assert read(lines + "m 3\n", reader) == {("m", ()): 3}
    assert len(reader._heads) <= 20_000


def test_memory_is_bounded_by_bytes_too() -> None:
    """Heads that are long and never come again: a page of 2 MB in 20 lines, again and again."""
    reader = Reader({"m"})
    for page in range(12):
        lines = "".join(f'other{{a="{page}-{number}-{"x" * 100_000}"}} 1\n' for number in range(20))
        assert read(lines + "m 3\n", reader) == {("m", ()): 3}
        assert sum(map(len, reader._heads)) <= 8 * 1024 * 1024
    assert read("m 4\n", reader) == {("m", ()): 4}


def test_more_series_than_any_engine_has_are_refused() -> None:
    page = "".join(f'm{{a="{number}"}} 1\n' for number in range(20_002))
    with pytest.raises(ScrapeFailed) as failed:
        Reader({"m"}).text(page)
    assert failed.value.reason == "too_large"
