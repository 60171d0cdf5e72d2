"""Scrubbing: chosen label values are gone everywhere, all other text stays, and equal series are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from obs.errors import InputError
from obs.evaluate import exposition, recording
from obs.evaluate.record.scrub import Scrubber
from tests.sidecar.engine import scrape

from .world import Server, record

KEY = b"k" * 32


def scrubbed(text: str, drop: tuple[str, ...] = (), hashed: tuple[str, ...] = ()) -> str:
    heads: exposition.Heads = {}
    exposition.parse(text, "page", heads)
    return Scrubber(drop, hashed, KEY).body(text.encode(), text, heads, "page").decode()


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ('x{pod="a",model="m"} 1', 'x{model="m"} 1'),
        ('x{model="m",pod="a"} 1', 'x{model="m"} 1'),
        ('x{pod="a"} 1 1796022962000', "x 1 1796022962000"),
        ('x{ pod = "a" , model = "m" , } 1', 'x{ model = "m" } 1'),
        ('x{model="pod=\\"a\\",}",pod="a}"}  1', 'x{model="pod=\\"a\\",}"}  1'),
        ('x{pod="a\\\\"} 1', "x 1"),
        ('{"x.y",pod="a"} 1', '{"x.y"} 1'),
        ('x{"pod"="a",b="c"} 1', 'x{b="c"} 1'),
        ('x_bucket{le="1",pod="a"} 3 # {pod="a",trace="t"} 0.5 1.0', 'x_bucket{le="1"} 3 # {trace="t"} 0.5 1.0'),
        ('x_bucket{le="1"} 3 # {pod="a"} 0.5', 'x_bucket{le="1"} 3'),
        ('x{pods="a",model="pod"} 1', 'x{pods="a",model="pod"} 1'),
        ('\tx{pod="a"}\t1\r', "\tx\t1\r"),
        ("x 1", "x 1"),
        ('# HELP x of pod="a"', '# HELP x of pod="a"'),
        ('x{pod=""} 1', 'x{pod=""} 1'),
    ],
)
def test_only_the_label_goes(line: str, left: str) -> None:
    assert scrubbed(f"{line}\n", drop=("pod",)) == f"{left}\n"
    exposition.parse(f"{left}\n", "page")


def test_a_hash_is_stable_and_differs_between_values_and_keys() -> None:
    text = 'x{pod="a",m="1"} 1\nx{pod="b",m="1"} 2\ny{pod="a"} 3\n'
    labels = [dict(one.labels)["pod"] for one in exposition.parse(scrubbed(text, hashed=("pod",)), "page").samples]
    assert labels[0] == labels[2] != labels[1]
    assert all(len(one) == 12 and one not in ("a", "b") for one in labels)
    assert Scrubber((), ("pod",), b"other").labels({"pod": "a"}) != Scrubber((), ("pod",), KEY).labels({"pod": "a"})
    assert Scrubber((), ("pod",)).labels({"pod": "a"}) != Scrubber((), ("pod",)).labels({"pod": "a"})


@pytest.mark.parametrize("name", ["triton-2.51-steady", "vllm-0.32-kv-saturated"])
def test_a_real_page_keeps_everything_else(name: str) -> None:
    body = scrape(name)
    text = body.decode()
    heads: exposition.Heads = {}
    before = exposition.parse(text, "page", heads)
    assert Scrubber().body(body, text, heads, "page") is body
    label = "model" if name.startswith("triton") else "model_name"
    after_text = scrubbed(text, hashed=(label,))
    after = exposition.parse(after_text, "page")
    assert (after.helps, after.types) == (before.helps, before.types)
    change = Scrubber((), (label,), KEY).labels
    assert [(one.name, dict(one.labels), str(one.value)) for one in after.samples] == [
        (one.name, change(dict(one.labels)), str(one.value)) for one in before.samples
    ]
    lines = zip(text.split("\n"), after_text.split("\n"), strict=True)
    assert all(one == two for one, two in lines if f'{label}="' not in one)


def test_text_behind_the_end_is_not_kept() -> None:
    assert scrubbed('x{pod="a"} 1\n# EOF\nsecret{pod="a"} 1\n', drop=("pod",)) == "x 1\n# EOF\n"


def test_series_that_become_equal_are_refused_by_name() -> None:
    with pytest.raises(InputError, match=r"page: two series of x differ in nothing but label pod, which is scrubbed") as caught:
        scrubbed('x{pod="a",m="1"} 1\nx{pod="b",m="1"} 2\n', drop=("pod", "zone"))
    assert "\n" not in str(caught.value)
    scrubbed('x{pod="a"} 1\nx{pod="a"} 1\n', drop=("pod",))  # equal as served: the first counts, as ever


def test_a_page_that_becomes_equal_ends_the_recording_with_what_there_is(tmp_path: Path) -> None:
    good = b'x{pod="a"} 1\n'
    with Server([good, good, good + b'x{pod="b"} 1\n']) as server, pytest.raises(InputError, match="label pod"):
        record(tmp_path / "r", [server.url], 5, scrubber=Scrubber(("pod",)))
    assert len(recording.read(tmp_path / "r").targets[0].scrapes) == 2
    with Server([good + b'x{pod="b"} 1\n']) as server, pytest.raises(InputError, match="label pod"):
        record(tmp_path / "s", [server.url], 5, scrubber=Scrubber(("pod",)))
    assert not (tmp_path / "s").exists()


def test_targets_are_scrubbed_too_and_so_are_their_folders(tmp_path: Path) -> None:
    page = b'x{pod="secret-pod"} 1\n'
    labels = [{"instance": f"secret-{n}:8002", "pod": "secret-pod", "replica": str(n)} for n in range(2)]
    with Server([page]) as one, Server([page]) as two:
        record(tmp_path / "r", [one.url, two.url], 3, labels=labels, scrubber=Scrubber(("instance",), ("pod",), KEY))
    everything = [(path.as_posix(), path.read_bytes()) for path in (tmp_path / "r").rglob("*") if path.is_file()]
    assert not [name for name, body in everything if "secret" in name.removeprefix(tmp_path.as_posix()) or b"secret" in body]
    document = yaml.safe_load((tmp_path / "r" / "targets.yaml").read_text())
    pod = Scrubber((), ("pod",), KEY).labels({"pod": "secret-pod"})["pod"]
    assert document == {f"target-{n + 1}": {"pod": pod, "replica": str(n)} for n in range(2)}
    assert len(recording.read(tmp_path / "r").targets) == 2


def test_targets_that_become_equal_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="without label instance it has the labels of another target"):
        record(tmp_path / "r", ["http://a/", "http://b/"], 3, scrubber=Scrubber(("instance",)))
    assert not (tmp_path / "r").exists()
