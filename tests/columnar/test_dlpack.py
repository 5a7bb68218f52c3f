"""Columns as DLPack tensors: read-only, on their device, and true for as long as their consumer has them."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
import threading
import weakref
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from bowstring.columnar import Batch, Column
from bowstring.columnar.parts import batch_parts
from bowstring.errors import NotExportable, ViewsAlive
from bowstring.memory import Device
from bowstring.memory.dlpack import _Tensor, _Versioned
from bowstring.testing import FakeDevice, OnlyCurrent, fake_device
from tests.columnar.capsules import address_in

NUMBERS = arrays.arrays(
    st.sampled_from([f"{kind}{width}" for kind in "iu" for width in (1, 2, 4, 8)] + ["f2", "f4", "f8"]),
    st.integers(0, 40),
)
READ_ONLY, IS_COPIED = 1, 2


@pytest.fixture
def fake() -> FakeDevice:
    """Return the second fake device, so that numbers show."""
    return fake_device(1)


def column_of(values: Any, device: Device | str = "cpu") -> Column:
    """Return a column on a device."""
    return Batch.from_arrow({"a": values}).to_device(device)["a"]


def versioned(capsule: Any) -> _Versioned:
    """Return a view of the struct in a capsule of DLPack 1.0."""
    return _Versioned.from_address(address_in(capsule, b"dltensor_versioned"))


def shape_of(tensor: _Tensor) -> list[int]:
    """Return the extent of each dimension."""
    return list((ctypes.c_int64 * tensor.ndim).from_address(tensor.shape))


@given(values=NUMBERS)
def test_numpy_takes_numbers_where_they_lie(values: np.ndarray[Any, Any]) -> None:
    """NumPy's arrays have the values, the type and the address of the column, and cannot be written."""
    column = column_of(values)
    taken = np.from_dlpack(column)
    assert taken.dtype == values.dtype
    assert np.array_equal(taken, values, equal_nan=values.dtype.kind == "f")
    if len(values):
        assert taken.ctypes.data == column.values.ctypes.data
        assert not taken.flags.writeable


@given(values=NUMBERS)
def test_a_device_is_named_in_the_tensor(values: np.ndarray[Any, Any]) -> None:
    """A tensor of a device says its type, number and address, that it is read-only, and no byte is copied."""
    device = fake_device(1)
    column = column_of(values, device)
    device.stats.reset()
    capsule = column.__dlpack__(max_version=(1, 3))
    struct = versioned(capsule)
    tensor = struct.tensor
    assert (tensor.device_type, tensor.device_id) == column.__dlpack_device__() == (12, 1)
    assert struct.major == 1
    assert shape_of(tensor) == [len(values)]
    codes = {"i": 0, "u": 1, "f": 2}
    assert (tensor.code, tensor.bits, tensor.lanes) == (codes[values.dtype.kind], values.itemsize * 8, 1)
    if len(values):
        assert struct.flags == READ_ONLY
        assert tensor.data + tensor.byte_offset == column.raw_values.data.ptr
    else:
        assert tensor.data is None
    assert device.stats.host_reads == device.stats.host_writes == 0


def test_lists_of_one_size_are_matrices(device: Device) -> None:
    """Embeddings, lists of numbers of one size, are tensors of two dimensions; lists of such have three."""
    flat = np.arange(24, dtype=np.float32)
    inner = pa.FixedSizeListArray.from_arrays(pa.array(flat), 3)
    column = column_of(pa.FixedSizeListArray.from_arrays(inner, 4), device)
    taken = np.from_dlpack(column, device="cpu")
    assert np.array_equal(taken, flat.reshape(2, 4, 3))
    part = column.batch.slice(1, 1)["a"]
    assert np.array_equal(np.from_dlpack(part, device="cpu"), flat.reshape(2, 4, 3)[1:])


@pytest.mark.parametrize("max_version", [None, (0, 8)])
def test_old_consumers_are_refused(device: Device, max_version: tuple[int, int] | None) -> None:
    """Who does not know DLPack 1.0 could write what is published, and is refused; a copy it may have."""
    column = column_of(np.arange(3), device)
    with pytest.raises(BufferError, match="read-only"):
        column.__dlpack__(max_version=max_version)
    capsule = column.__dlpack__(max_version=max_version, copy=True)
    tensor = _Tensor.from_address(address_in(capsule, b"dltensor"))
    assert (tensor.device_type, tensor.device_id) == column.__dlpack_device__()
    assert shape_of(tensor) == [3]


def test_copies_are_said_and_may_be_written(device: Device) -> None:
    """A copy is on the device, is marked as one, is not read-only, and keeps nothing of the batch."""
    column = column_of(np.arange(5), device)
    with OnlyCurrent():  # which the device is not, before it is asked
        capsule = column.__dlpack__(max_version=(1, 0), copy=True)
    struct = versioned(capsule)
    assert struct.flags == IS_COPIED
    assert (struct.tensor.device_type, struct.tensor.device_id) == column.__dlpack_device__()
    column.batch.release()


def test_the_host_can_be_asked_for(fake: FakeDevice) -> None:
    """A consumer on the host gets a copy from a device, by one read; not where it forbids copies, nor elsewhere."""
    column = column_of(np.arange(5), fake)
    fake.stats.reset()
    taken = np.from_dlpack(column, device="cpu")
    assert taken.tolist() == [0, 1, 2, 3, 4]
    assert fake.stats.host_reads == 1
    column.batch.release()  # the copy is its own
    column = column_of(np.arange(5), fake)
    with pytest.raises(BufferError, match="another device"):
        np.from_dlpack(column, device="cpu", copy=False)
    with pytest.raises(BufferError, match="another device"):
        column.__dlpack__(max_version=(1, 0), dl_device=(12, 0))
    same = column.__dlpack__(max_version=(1, 0), dl_device=(12, 1), copy=False)
    assert versioned(same).tensor.data == column.raw_values.data.ptr


def test_numpy_does_not_read_a_device(fake: FakeDevice) -> None:
    """NumPy refuses a tensor of a device, and gives it back."""
    column = column_of(np.arange(5), fake)
    with pytest.raises((BufferError, RuntimeError)):
        np.from_dlpack(column)
    column.batch.release()


def test_streams_of_consumers_wait(fake: FakeDevice) -> None:
    """A consumer's stream waits for what is queued here, unless it says that nobody shall; the host knows none.

    A copy to the host is there when it is handed out, so any stream of the consumer's comes after it.
    """
    column = column_of(np.arange(5), fake)
    fake.driver.waits.clear()
    for stream in (None, 9, -1):
        column.__dlpack__(stream=stream, max_version=(1, 0))
    assert [stream for stream, _ in fake.driver.waits] == [1, 9]
    with pytest.raises(BufferError, match="no stream"):
        column.__dlpack__(stream=0, max_version=(1, 0))
    with pytest.raises(BufferError, match="the host has no streams"):
        column_of(np.arange(5)).__dlpack__(stream=1, max_version=(1, 0), dl_device=(1, 0))
    fake.driver.waits.clear()
    copy = column.__dlpack__(stream=9, max_version=(1, 0), dl_device=(1, 0))
    assert versioned(copy).flags & IS_COPIED
    assert not fake.driver.waits


OTHERS = {
    "nulls": pa.array([1, None]),
    "bools": pa.array([True, False]),
    "text": pa.array(["x"]),
    "dates": pa.array([1], pa.date32()),
    "times": pa.array([1], pa.timestamp("us")),
    "decimals": pa.array([1], pa.decimal64(3, 0)),
    "bytes": pa.array([b"ab"], pa.binary(2)),
    "words": pa.array(["x"]).dictionary_encode(),
    "struct": pa.array([{"a": 1}]),
    "list": pa.array([[1]]),
    "null": pa.nulls(2),
    "list with a null": pa.array([[1, 2], None], pa.list_(pa.int8(), 2)),
    "list of nulls": pa.array([[1, None]], pa.list_(pa.int8(), 2)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_plain_number_is_refused_by_name(device: Device, name: str) -> None:
    """What a tensor cannot say is refused, the column named, with an error that consumers know."""
    column = Batch.from_arrow(pa.record_batch({name: OTHERS[name]})).to_device(device)[name]
    with pytest.raises(NotExportable, match="item" if name == "list of nulls" else name) as caught:
        column.__dlpack__(max_version=(1, 0))
    assert isinstance(caught.value, BufferError)


def test_the_batch_lives_as_long_as_the_tensor(device: Device) -> None:
    """While a capsule or what was made of it is alive, the memory stays, and the batch cannot be released."""
    batch = Batch.from_arrow({"a": np.arange(5)}).to_device(fake_device()).to_device(device)
    region = weakref.ref(batch_parts(batch).spans.regions[0])
    capsule = batch["a"].__dlpack__(max_version=(1, 0))
    with pytest.raises(ViewsAlive):
        batch.release()
    del batch
    gc.collect()
    assert region() is not None
    del capsule
    gc.collect()
    assert region() is None


def test_arrays_of_numpy_outlive_everything() -> None:
    """What NumPy took stays true after column, batch and capsule are gone, and is let go by any thread."""
    batch = Batch.from_arrow({"a": np.arange(5)}).to_device(fake_device()).to_device("cpu")
    region = weakref.ref(batch_parts(batch).spans.regions[0])
    held = [np.from_dlpack(batch["a"]) for _ in range(4)]
    del batch
    gc.collect()
    assert all(array.tolist() == [0, 1, 2, 3, 4] for array in held)
    assert region() is not None
    threads = [threading.Thread(target=held.pop) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    gc.collect()
    assert region() is None


def test_a_tensor_outlives_the_interpreter() -> None:
    """A tensor that is released while the interpreter ends does no harm."""
    code = (
        "import sys, builtins, numpy as np\n"
        "from bowstring.columnar import Batch\n"
        "from bowstring.testing import fake_device\n"
        "batch = Batch.from_arrow({'a': np.arange(5)})\n"
        "other = batch.to_device(fake_device())\n"
        "sys.kept = [np.from_dlpack(batch['a']), batch['a'].__dlpack__(max_version=(1, 0))]\n"
        "builtins.kept = [other['a'].__dlpack__(max_version=(1, 0)), other, other.__arrow_c_device_array__()]\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert (result.returncode, result.stderr) == (0, b"")


def test_only_columns_of_a_gpu_have_an_array_interface(device: Device) -> None:
    """No library may think that a column of the host, or of another device, is on a GPU."""
    assert not hasattr(column_of(np.arange(3), device), "__cuda_array_interface__")
