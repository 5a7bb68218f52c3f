"""Fixtures of the tests on a device: the fake one in every run, a GPU where there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from bowstring.benchmarks.processes import Child


@pytest.fixture(params=["fake:0", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    """Return the name of a device."""
    return str(request.param)


@pytest.fixture
def start() -> Iterator[Callable[..., Child]]:
    """Return a function that starts a process, which ends with the test."""
    with ExitStack() as ends:
        yield lambda role, **arguments: ends.enter_context(Child(role, **arguments))
