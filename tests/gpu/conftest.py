"""Fixtures of the tests on a device: the fake one in every run, a GPU where there is one."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Final

import pytest

from bowstring.benchmarks.processes.child import Child

# Kernels are compiled, 8 GiB moved, memory handed over 10,000 times: the limit of all other tests is too short.
_LONG_SECONDS: Final = 1800.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let libraries of a machine with a GPU warn of each other; skip what needs one where there is no driver."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        added = pytest.mark.skip(reason="there is no CUDA driver")
    else:
        added = pytest.mark.filterwarnings("default")
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(added)


@pytest.fixture(autouse=True)
def patience(request: pytest.FixtureRequest) -> None:
    """Give a test on a GPU, or a slow one, more time before all stacks are printed, and the run ends."""
    if request.node.get_closest_marker("gpu") or request.node.get_closest_marker("slow"):
        faulthandler.dump_traceback_later(_LONG_SECONDS, exit=True, file=sys.__stderr__ or 2)


@pytest.fixture(autouse=True)
def sound_context(request: pytest.FixtureRequest) -> Iterator[None]:
    """End a worker whose context a test has broken: every test after it would fail for that.

    Another worker takes its place. With ``BOWSTRING_TESTS_POOL=none``, CuPy allocates each array by itself.
    """
    if request.node.get_closest_marker("gpu") and os.environ.get("BOWSTRING_TESTS_POOL") == "none":
        _cupy().cuda.set_allocator(None)
    yield
    if "PYTEST_XDIST_WORKER" in os.environ and "cupy" in sys.modules:
        try:
            _cupy().cuda.runtime.deviceSynchronize()
        except Exception:  # noqa: BLE001  whatever CuPy calls it
            os._exit(1)  # the test is named as the one that crashed


def _cupy() -> Any:
    return pytest.importorskip("cupy")


@pytest.fixture(params=["fake:0", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    """Return the name of a device."""
    return str(request.param)


@pytest.fixture
def start(forked: None) -> Iterator[Callable[..., Child]]:
    """Return a function that starts a process, which ends with the test."""
    with ExitStack() as ends:
        yield lambda role, **arguments: ends.enter_context(Child(role, **arguments))
