"""Takes a picture of a page with a headless Chromium."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from obs.errors import ToolError
from obs.preview.page import WIDTH
from obs.prom.remote_write import one_line
from obs.prom.tools import run

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless", "--no-sandbox",  # the page is ours and may run no script
    "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--disable-extensions", "--hide-scrollbars",
)  # fmt: skip


def find() -> Path:
    """The browser: ``CHROMIUM`` first, then PATH. ToolError when there is none."""
    wanted = os.environ.get("CHROMIUM", "")
    for name in (wanted,) if wanted else NAMES:
        found = shutil.which(name)
        if found:
            return Path(found)
    if wanted:
        raise ToolError(f"CHROMIUM={wanted} is not an executable file; point it at a Chromium, or unset it")
    raise ToolError("--png needs a Chromium, and none is on PATH; install it (`apt-get install chromium`) or set CHROMIUM")


def picture(html: Path, png: Path, height: int, *, timeout: float = 120.0) -> None:
    """A picture of the page, ``height`` pixels high. ToolError when the browser makes none."""
    browser = find()
    with tempfile.TemporaryDirectory(prefix="obs-browser-") as profile:
        done = run([
            browser, *FLAGS, f"--user-data-dir={profile}", f"--window-size={WIDTH + 32},{min(height, 16_000)}",
            f"--screenshot={png.resolve()}", html.resolve().as_uri(),
        ], timeout=timeout)  # fmt: skip
    if not png.is_file():
        said = one_line(done.stderr or done.stdout or "it said nothing", 200)
        raise ToolError(f"{browser} made no picture of {html.name}: {said}; run it by hand to see why")
