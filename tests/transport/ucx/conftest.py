"""Fixtures for UCX: each test runs over each set of its transports that has ways of its own."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from bowstring.transport.ucx import listening
from bowstring.transport.ucx.attendant import all_ended
from bowstring.transport.ucx.context import Context
from tests.ucx import needs_ucx

# What Bowstring chooses is fast, other sets of transports are slow.
WAYS = ("", *(pytest.param(each, marks=pytest.mark.slow) for each in ("tcp", "tcp,posix,cma", "all")))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs libucp where it is not installed."""
    for item in items:
        if "/transport/ucx/" in str(item.path):
            item.add_marker(needs_ucx)


@pytest.fixture
def ucx_over(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Return a function that has ``ucx:`` use these transports of UCX for the length of a test (``UCX_TLS``)."""
    contexts: dict[tuple[int, bool, bool], Context] = {}

    def use(tls: str) -> None:
        if tls:
            monkeypatch.setenv("UCX_TLS", tls)
        else:
            monkeypatch.delenv("UCX_TLS", raising=False)
        monkeypatch.setattr(listening, "_contexts", contexts)
        listening.shared_context(loopback=True)

    yield use
    gc.collect()
    # Threads that receive let go of their connections themselves, and a context must outlive its workers.
    until = time.monotonic() + 10.0
    while any(
        each.name.startswith(("bowstring-client", "bowstring-server")) for each in threading.enumerate()
    ):
        assert time.monotonic() < until
        time.sleep(0.001)
    assert all_ended(10.0)
    for context in contexts.values():
        context.close()
