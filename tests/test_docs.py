"""The pages for people: links lead somewhere, both READMEs show the same commands, and every command is named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from obs.cli.main import COMMANDS

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    path for pattern in ("*.md", "docs/*.md", "alerts/runbooks/*.md", "compose/*.md", "exporters/**/*.md", "examples/**/*.md")
    for path in ROOT.glob(pattern)
)
FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings: lower case, punctuation away, spaces to hyphens."""
    heads = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", head).lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"`[^`\n]*`", "", FENCE.sub("", page.read_text(encoding="utf-8")))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        if page.is_relative_to(ROOT / "examples" / "pack" / "docs") and path.startswith("../alerts/runbooks"):
            continue  # an example pack has no runbooks of its own: its rules point to runbook_base_url
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"{page.relative_to(ROOT)}: {target}"
        if anchor and found.suffix == ".md":
            assert anchor in anchors(found), f"{page.relative_to(ROOT)}: {target}: {sorted(anchors(found))}"


def test_both_readmes_show_the_same_commands_and_outputs() -> None:
    english, chinese = (FENCE.findall((ROOT / name).read_text(encoding="utf-8")) for name in ("README.md", "README.zh-CN.md"))
    assert english == chinese


@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md"])
def test_every_command_is_in_the_readme_and_every_named_one_exists(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    named = set(re.findall(r"(?:`|^\$ )obs ([a-z]+(?:-[a-z]+)?)", text, re.MULTILINE))
    assert named == set(COMMANDS)
