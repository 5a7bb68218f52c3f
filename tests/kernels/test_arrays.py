"""`run_arrays` runs a body where its arrays are, and is the only thing that unwraps fake ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bowstring.errors import NotOnDevice, Unsupported
from bowstring.kernels.launch import run_arrays
from bowstring.testing import FakeArray, fake_device


def total(xp: Any, first: Any, second: Any, times: int) -> Any:
    """Return a body's result."""
    return (xp.asarray(first) + xp.asarray(second)) * times


def test_host_arrays_stay_on_the_host() -> None:
    """A body over NumPy arrays gets NumPy."""
    assert run_arrays(total, np.arange(3), np.arange(3), 2).tolist() == [0, 4, 8]


def test_fake_arrays_are_unwrapped_and_wrapped() -> None:
    """A body over fake arrays sees NumPy's, its result is a fake array, and the launch is counted."""
    fake = fake_device()
    fake.stats.reset()
    numbers = fake.xp.arange(3)
    result = run_arrays(total, numbers, numbers, 2)
    assert isinstance(result, FakeArray)
    assert (fake.stats.launches, fake.stats.host_reads) == (1, 0)
    assert fake.to_host(result).tolist() == [0, 4, 8]


def test_arrays_of_two_places_are_refused() -> None:
    """A kernel over arrays of two devices, or of a device and the host, does not run."""
    one, other = fake_device(0).xp.arange(3), fake_device(1).xp.arange(3)
    for mixed in ((one, other), (one, np.arange(3))):
        with pytest.raises(NotOnDevice):
            run_arrays(total, *mixed, 1)


def test_unknown_arrays_are_refused() -> None:
    """What is no array of a known device is refused by name."""
    with pytest.raises(Unsupported, match="list"):
        run_arrays(total, [1], [2], 1)
