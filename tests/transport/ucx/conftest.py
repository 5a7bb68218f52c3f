"""Fixtures for UCX: each test runs over each set of its transports that has ways of its own."""

from __future__ import annotations

import pytest

from bowstring.errors import MissingDependency
from bowstring.transport.ucx.library import library

WAYS = ("tcp", "tcp,posix,cma", "all")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs libucp where it is not installed."""
    try:
        library()
    except MissingDependency as error:
        for item in items:
            if "/transport/ucx/" in str(item.path):
                item.add_marker(pytest.mark.skip(reason=str(error)))
