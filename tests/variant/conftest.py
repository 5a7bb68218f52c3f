"""Every test that takes a column takes one on the CPU and one on the fake device."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bowstring.columnar.batch import Column
from bowstring.testing import fake_device

Move = Callable[[Column], Column]


@pytest.fixture(params=["cpu", "fake"])
def on_device(request: pytest.FixtureRequest) -> Move:
    """Return what moves a column to the device."""
    if request.param == "cpu":
        return lambda column: column
    return lambda column: column.as_batch().to_device(fake_device())[0]
