"""A browser for the tests that look at pages."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from obs.errors import ToolError
from obs.preview import browser


@pytest.fixture(scope="session")
def chromium() -> Path:
    try:
        return browser.find()
    except ToolError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def dump(chromium: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], tuple[str, str]]:
    """Opens a page; gives its DOM once it is loaded, and what the browser logged."""

    def one(page: Path, width: int = 1472) -> tuple[str, str]:
        profile = tmp_path_factory.mktemp("profile")
        done = subprocess.run(
            [chromium, *browser.FLAGS, f"--user-data-dir={profile}", f"--window-size={width},2000", "--enable-logging=stderr",
             "--virtual-time-budget=5000", "--dump-dom", page.resolve().as_uri()],
            capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
        return done.stdout, done.stderr

    return one
