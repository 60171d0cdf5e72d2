from __future__ import annotations

from collections.abc import Iterator

import pytest

from obs.prom.server import PrivatePrometheus


@pytest.fixture(scope="session")
def server() -> Iterator[PrivatePrometheus]:
    """One private Prometheus for tests that use metric names of their own."""
    with PrivatePrometheus() as running:
        yield running
