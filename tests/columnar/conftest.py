"""The devices that every test of a batch runs on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bowstring.memory import Device, Pool, cpu
from bowstring.testing import fake_device


@pytest.fixture(scope="session", params=["cpu", "fake"])
def device(request: pytest.FixtureRequest) -> Device:
    """Return the host, then the fake device."""
    return cpu() if request.param == "cpu" else fake_device()


@pytest.fixture
def pool(device: Device) -> Iterator[Pool]:
    """Return a pool of the device's."""
    pool = Pool(device, budget=512 << 20)
    yield pool
    pool.close()
