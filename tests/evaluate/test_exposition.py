"""The reader keeps wire names, and tells what is garbled and where."""

from __future__ import annotations

import io
import math
import re
import tarfile
from pathlib import Path

import pytest

from obs.errors import InputError
from obs.evaluate.exposition import Sample, parse

RECORDINGS = Path(__file__).parent.parent / "data" / "recordings"


def one(line: str) -> Sample:
    (sample,) = parse(line + "\n", "f").samples
    return sample


def test_triton_counters_keep_their_names() -> None:
    body = "# HELP nv_inference_request_success Number\n# TYPE nv_inference_request_success counter\n"
    found = parse(body + 'nv_inference_request_success{model="m",version="1"} 644\n', "f")
    assert found.samples == [Sample("nv_inference_request_success", (("model", "m"), ("version", "1")), 644.0)]
    assert found.types == {"nv_inference_request_success": "counter"}
    assert found.helps == {"nv_inference_request_success": "Number"}


@pytest.mark.parametrize("name", ["triton-2.51-incident", "vllm-0.32-incident"])
def test_every_name_of_a_real_body_survives(name: str) -> None:
    with tarfile.open(RECORDINGS / f"{name}.tar.gz") as archive:
        members = [member for member in archive if member.name.endswith(".prom")]
        file = archive.extractfile(members[9])
        assert file is not None
        text = io.TextIOWrapper(file, "utf-8").read()
    wire = [re.split(r"[{ ]", line)[0] for line in text.splitlines() if line and line[0] != "#"]
    assert len(wire) > 100
    assert [sample.name for sample in parse(text, "f").samples] == wire


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1.0),
        ("-1.5e3", -1500.0),
        ("+Inf", math.inf),
        ("-Inf", -math.inf),
        ("0x1p3", 8.0),
        (".5", 0.5),
        ("2.", 2.0),
    ],
)
def test_numbers(text: str, value: float) -> None:
    assert one(f"x {text}").value == value


@pytest.mark.parametrize("text", ["NaN", "Nan", "nan"])
def test_nan_as_triton_and_others_write_it(text: str) -> None:
    assert math.isnan(one(f"x {text}").value)


def test_labels() -> None:
    assert one(r'x{a="q\"\\\n}",b="é, {b}" , } 1').labels == (("a", 'q"\\\n}'), ("b", "é, {b}"))
    assert one(r'x{a="\d"} 1').labels == (("a", r"\d"),)
    assert one("x{} 1").labels == ()
    assert one('x {b="2",a="1"}\t1').labels == (("a", "1"), ("b", "2"))
    assert one('{"a.utf8.name",a="1"} 1') == Sample("a.utf8.name", (("a", "1"),), 1.0)


def test_timestamps_exemplars_and_the_end_are_read_over() -> None:
    body = (
        'a 5 1796022962344\nh_bucket{le="1"} 3 # {trace_id="t"} 0.5\nb 2 1.5e9 # {} 1 2\n# EOF\ngarbage after the end\n'
    )
    assert [(sample.name, sample.value) for sample in parse(body, "f").samples] == [("a", 5), ("h_bucket", 3), ("b", 2)]


def test_line_ends_blanks_and_comments() -> None:
    body = "# TYPE x gauge\r\n\r\nx 1\r\n# just a remark\n#\n  y 2  \n"
    found = parse(body, "f")
    assert [sample.name for sample in found.samples] == ["x", "y"]
    assert found.types == {"x": "gauge"}


def test_end_mark_needs_no_line_feed() -> None:
    assert len(parse("x 1\n# EOF", "f").samples) == 1


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("x", "no value follows"),
        ("x 1_000", "'1_000' is no number"),
        ("x one", "'one' is no number"),
        ("x 1 2 3", "no value follows"),
        ('x{a="b" 1', "no closing brace"),
        ('x{a="b} 1', "no closing brace"),
        ("x{a=b} 1", "label 'a' has no quoted value"),
        ("x{é=b} 1", "is not name="),
        ('x{a="b" c="d"} 1', "a comma is missing"),
        ('x{a="b",a="c"} 1', "label 'a' comes twice"),
        ('{a="b"} 1', "no metric name"),
        ("<html> 1", "starts with no metric name"),
        ("# TYPE x count", "'count' is no metric type"),
    ],
)
def test_garbled(line: str, why: str) -> None:
    with pytest.raises(InputError, match=re.escape(why)) as caught:
        parse(f"ok 1\n{line}\nok 2\n", "dir/7.prom")
    said = str(caught.value)
    assert said.startswith("dir/7.prom:2: not a metric line: ")
    assert "\n" not in said
    assert repr(line) in said
    assert said.endswith("; record it again or remove the file")


def test_a_body_that_was_cut_off_inside_a_number() -> None:
    with pytest.raises(InputError, match=r"^f:2: the last line has no line feed: 'y 12'; the body was cut off"):
        parse("x 1\ny 12", "f")
