"""What tests of memory share: the devices, a pool of the test's own, and a count of open descriptors."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Iterator

import pytest

from bowstring.memory import Device, Pool, cpu
from bowstring.testing import fake_device


@pytest.fixture(scope="session", params=["cpu", "fake"])
def device(request: pytest.FixtureRequest) -> Device:
    """Return the host, then the fake device."""
    return cpu() if request.param == "cpu" else fake_device()


@pytest.fixture
def pool(no_leaks: None, device: Device) -> Iterator[Pool]:
    """Return a pool that ends with the test."""
    pool = Pool(device, budget=256 << 20)
    yield pool
    gc.collect()
    pool.close()


@pytest.fixture
def in_child() -> Callable[[Callable[[], bool]], bool]:
    """Return a function that runs another one in a forked child, and says whether it returned true."""

    def run(check: Callable[[], bool]) -> bool:
        pid = os.fork()
        if not pid:
            status = 1
            try:
                status = 0 if check() else 2
            finally:
                os._exit(status)
        return os.waitpid(pid, 0)[1] == 0

    return run


def until(condition: Callable[[], bool]) -> None:
    """Wait for what another thread does."""
    for _ in range(2000):
        if condition():
            return
        threading.Event().wait(0.005)
    raise AssertionError("it does not happen")
