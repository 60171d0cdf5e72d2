"""What tests of several folders share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import servers

from obs.alerts.registry import all_groups
from obs.preview.query import Range
from obs.preview.source import filled


@pytest.fixture(scope="session")
def world() -> Iterator[servers.World]:
    """Both recordings and the made-up servers (tests/servers.py) through all rules: once, about 7 s."""
    import servers


    config = servers.short_times()
    recordings = servers.everything(config)
    with filled(recordings, all_groups(config), interval_ms=round(config.evaluation_interval * 1000)) as server:
        yield servers.World(config, server, Range(recordings[0].start_ms / 1000, recordings[0].end_ms / 1000))
