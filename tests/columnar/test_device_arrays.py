"""Batches of arrays that lie on a device."""

from __future__ import annotations

import gc
import sys
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.columnar.batch import Batch
from bowstring.errors import MissingDependency, Unsupported, UsageError
from bowstring.testing import FakeDevice, fake_device

ARRAYS: dict[str, np.ndarray] = {
    "i": np.arange(-3, 5, dtype=np.int16),
    "f": np.linspace(0, 1, 8, dtype=np.float32),
    "h": np.linspace(0, 1, 8, dtype=np.float16),
    "u": np.arange(8, dtype=np.uint64),
    "b": np.array([True, False, True, True, False, False, False, True]),
}


@pytest.fixture
def device() -> FakeDevice:
    """Return a fake device."""
    return fake_device(1)


def there(device: FakeDevice, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return arrays on the device."""
    return {name: device.from_host(array) for name, array in arrays.items()}


def test_columns_are_the_arrays(device: FakeDevice) -> None:
    """Every type that CuPy and Arrow share is taken where it lies, with its values; only Booleans are copied."""
    arrays = there(device, ARRAYS)
    device.stats.reset()
    batch = Batch.from_arrow(arrays)
    assert (device.stats.host_reads, device.stats.host_writes) == (0, 0)
    assert batch.device is device
    assert batch["i"].raw_values.data.ptr == arrays["i"].data.ptr
    assert batch.to_arrow().equals(pa.record_batch(ARRAYS))
    batch.validate(full=True)


def test_steps_and_nothing(device: FakeDevice) -> None:
    """Every second element, backwards, and arrays of no elements, are columns too, of Booleans as of numbers."""
    numbers = device.from_host(np.arange(10))
    assert Batch.from_arrow({"a": numbers[::2]}).to_arrow().to_pydict() == {"a": [0, 2, 4, 6, 8]}
    flags = np.arange(200) % 3 == 0
    for step in (2, -1):
        taken = Batch.from_arrow({"b": device.from_host(flags)[::step]})
        assert taken.to_arrow()["b"].to_pylist() == flags[::step].tolist()
    empty = Batch.from_arrow({"a": numbers[:0]})
    assert (empty.num_rows, empty.device) == (0, device)
    assert empty.to_arrow().to_pydict() == {"a": []}


def test_the_arrays_live_as_long_as_the_batch(device: FakeDevice) -> None:
    """A batch keeps its arrays, and lets them go with its last view."""
    gc.collect()
    before = device.driver.allocated
    array = device.allocate(80)
    batch = Batch.from_arrow({"a": array.view(np.int64)})
    del array
    gc.collect()
    assert device.driver.allocated == before + 1
    del batch
    gc.collect()
    assert device.driver.allocated == before


def test_they_are_published_without_passing_the_host(device: FakeDevice) -> None:
    """A server on the device copies arrays there."""
    pool = bow.Pool(device, budget=64 << 20)
    arrays = there(device, ARRAYS)
    device.stats.reset()
    with bow.Server(pool=pool) as server, bow.connect(server.publish("t", arrays)) as stream:
        [got] = stream
        assert device.stats.host_reads == 0
        assert got.to_arrow().equals(pa.record_batch(ARRAYS))
        del got
        gc.collect()
    pool.close()


def test_arrays_of_a_gpu_need_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without CuPy, an array of another library that is on a GPU is refused with the name of what is missing."""
    monkeypatch.setitem(sys.modules, "cupy", None)

    class Tensor:
        __cuda_array_interface__: ClassVar[dict[str, Any]] = {}

    with pytest.raises(MissingDependency, match="CuPy"):
        Batch.from_arrow({"a": Tensor()})


@pytest.mark.parametrize(
    ("others", "error"),
    [
        ({"b": np.arange(4)}, "several places"),
        ({"b": fake_device(0).from_host(np.arange(4))}, "several places"),
        ({"b": fake_device(1).from_host(np.arange(3))}, "one length.* at column 'b'"),
        ({"b": fake_device(1).from_host(np.zeros((4, 1)))}, "one dimension.* at column 'b'"),
        ({"b": fake_device(1).from_host(np.zeros(4, np.complex64))}, "no such type.* at column 'b'"),
    ],
)
def test_arrays_that_make_no_batch(device: FakeDevice, others: dict[str, Any], error: str) -> None:
    """Arrays of several places, lengths or dimensions, or of a type of NumPy's own, are refused."""
    with pytest.raises((UsageError, Unsupported), match=error):
        Batch.from_arrow({"a": device.from_host(np.arange(4)), **others})
