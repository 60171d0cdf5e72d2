"""The five dashboards from both recordings, by the command, looked at with a headless Chromium."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from servers import World

from obs.cli.main import main

RECORDINGS = Path(__file__).parents[1] / "data" / "recordings"
STEMS = ("obs-fleet", "obs-model", "obs-llm", "obs-gpu", "obs-alerts")
pytestmark = pytest.mark.prometheus
Dump = Callable[..., tuple[str, str]]

#: Measures every panel of every page, each in a frame of its own, and leaves the result in the document.
_PROBE = """
<script>
window.addEventListener("load", () => {
  const found = {};
  for (const frame of document.querySelectorAll("iframe")) {
    const page = frame.contentDocument, view = frame.contentWindow;
    const box = (one) => { const r = one.getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom]; };
    found[frame.id] = [...page.querySelectorAll("section")].map((one) => ({
      title: one.dataset.title, state: one.dataset.state, type: one.dataset.type, count: +one.dataset.count, box: box(one),
      shapes: one.querySelectorAll("svg path.line, svg circle, svg rect, svg path.heat, tbody tr, .bar, .tile b").length,
      outside: [...one.querySelectorAll("svg text")].filter((text) => {
        const a = text.getBoundingClientRect(), b = text.ownerSVGElement.getBoundingClientRect();
        return a.width && (a.left < b.left - 1 || a.right > b.right + 1 || a.top < b.top - 2 || a.bottom > b.bottom + 2);
      }).map((text) => text.textContent),
      inside: [...one.querySelectorAll(".body > *")].every((child) => {
        const a = child.getBoundingClientRect(), b = one.getBoundingClientRect();
        return a.bottom <= b.bottom + 1 && a.right <= b.right + 1;
      }),
    }));
    found[frame.id + " width"] = [view.innerWidth, page.documentElement.scrollWidth];
  }
  document.body.textContent = JSON.stringify(found);
});
</script>
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """"triton obs-fleet" and so on → the page."""
    found: dict[str, Path] = {}
    for name, until in (("triton", []), ("vllm", ["--to", "+35s"])):
        out = tmp_path_factory.mktemp(name)
        recording = next(RECORDINGS.glob(f"{name}*.tar.gz"))
        code = main(["preview", "--all", "--recording", str(recording), "--config", str(RECORDINGS / f"{name}.obs.yaml"),
                     "--out", str(out), *until])
        assert code == 0
        assert sorted(path.name for path in out.iterdir()) == sorted(f"{stem}.html" for stem in STEMS)
        found.update({f"{name} {stem}": out / f"{stem}.html" for stem in STEMS})
    return found


@pytest.fixture(scope="module")
def measured(pages: dict[str, Path], dump: Dump, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the browser makes of each page: a list of panels by name, and of the widths."""
    frames = "".join(
        f'<iframe id="{name}" width="1472" height="2000" srcdoc="{html.escape(path.read_text())}"></iframe>'
        for name, path in pages.items()
    )
    probe = tmp_path_factory.mktemp("probe") / "probe.html"
    probe.write_text(f'<!DOCTYPE html><meta charset="utf-8"><body>{frames}{_PROBE}</body>')
    dom, log = dump(probe)
    assert "CONSOLE" not in log, log
    body = re.search(r"<body[^>]*>(.*?)</body>", dom, re.DOTALL)
    assert body is not None
    found: dict[str, Any] = json.loads(html.unescape(body[1]))
    return found


def states(measured: dict[str, Any], name: str) -> dict[str, str]:
    return {panel["title"]: panel["state"] for panel in measured[name]}


@pytest.mark.parametrize("name", [f"{recording} {stem}" for recording in ("triton", "vllm") for stem in STEMS])
def test_panels_are_there_none_overlaps_and_none_fails(measured: dict[str, Any], name: str) -> None:
    panels = measured[name]
    assert len(panels) >= 4
    for place, one in enumerate(panels):
        left, top, right, bottom = one["box"]
        assert right - left > 50, one["title"]
        assert bottom - top > 50, one["title"]
        for other in panels[place + 1 :]:
            l2, t2, r2, b2 = other["box"]
            apart = right <= l2 + 0.5 or r2 <= left + 0.5 or bottom <= t2 + 0.5 or b2 <= top + 0.5
            assert apart, (one["title"], other["title"])
        assert one["state"] in {"data", "empty"}, one
        assert (one["shapes"] > 0) == (one["state"] == "data" or one["type"] == "stat"), one
        assert one["outside"] == [], one["title"]  # no label that is cut off
        assert one["inside"], one["title"]
    inner, scrolled = measured[f"{name} width"]
    assert scrolled <= inner


def test_what_has_data_draws_it(measured: dict[str, Any]) -> None:
    assert {title for title, state in states(measured, "triton obs-fleet").items() if state == "empty"} == {
        "Critical alerts firing", "Warnings firing",  # none: it has recovered
        "GPU memory used",
    }
    assert {title for title, state in states(measured, "vllm obs-llm").items() if state == "data"} >= {
        "KV cache in use (blocks)", "Requests running and waiting", "Preemptions", "Time to first token",
        "Wait inside the engine", "Tokens generated (decode)", "Time to first token, vLLM", "Time between tokens, vLLM",
        "HTTP requests by status",
    }
    assert set(states(measured, "triton obs-gpu").values()) == {"empty"}  # recorded on a CPU
    for name in ("triton", "vllm"):
        assert set(states(measured, f"{name} obs-alerts").values()) <= {"data"}


def test_the_down_server_is_seen(pages: dict[str, Path]) -> None:
    text = pages["vllm obs-fleet"].read_text()
    tiles = dict(re.findall(r'data-title="([^"]*)".*?<b[^>]*>([^<]*)</b>', text)[:6])
    assert tiles == {"Models loaded": "no model", "Servers up": "0", "Servers down": "1", "Critical alerts firing": "1",
                     "Warnings firing": "none", "Requests": "no traffic"}


def test_pages_are_whole_and_the_same_again(pages: dict[str, Path], world: World, tmp_path: Path) -> None:
    for path in pages.values():
        text = path.read_text()
        assert text.endswith("</html>\n")
        assert not re.search(r'<script|src="http|url\(|@import', text)
    args = ["preview", "fleet", "alerts", "--prometheus", world.server.url, "--from", "1796022962", "--to", "1796023557"]
    for out in ("a", "b"):
        assert main([*args, "--out", str(tmp_path / out)]) == 0
    for stem in ("obs-fleet", "obs-alerts"):
        assert (tmp_path / "a" / f"{stem}.html").read_bytes() == (tmp_path / "b" / f"{stem}.html").read_bytes()


def test_no_page_complains_and_a_phone_can_read_it(pages: dict[str, Path], dump: Dump) -> None:
    dom, log = dump(pages["vllm obs-llm"], width=500)
    assert "CONSOLE" not in log, log
    assert dom.count("<section") == 25


def test_a_picture_of_a_page(world: World, chromium: Path, tmp_path: Path) -> None:
    out = tmp_path / "gpu.html"
    args = ["preview", "gpu", "--prometheus", world.server.url, "--from", "1796022962", "--to", "1796023557"]
    assert main([*args, "--out", str(out), "--png"]) == 0
    picture = (tmp_path / "gpu.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    width, height = (int.from_bytes(picture[place : place + 4], "big") for place in (16, 20))
    assert width == 1472
    assert 1200 < height < 2000
    assert len(picture) > 40_000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gpu.html", "gpu.png"]
