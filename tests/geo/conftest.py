"""Every test that takes a column takes one on the CPU and one on the fake device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.testing import fake_device

Move = Callable[[Any], bow.Column]


@pytest.fixture(params=["cpu", "fake"])
def on_device(request: pytest.FixtureRequest) -> Move:
    """Return what makes an array or a table of one column a column of the device."""

    def move(source: Any) -> bow.Column:
        data = pa.table({"where": source}) if isinstance(source, pa.Array) else source
        batch = bow.Batch.from_arrow(data)
        return batch[0] if request.param == "cpu" else batch.to_device(fake_device())[0]

    return move
