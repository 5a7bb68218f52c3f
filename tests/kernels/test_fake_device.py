"""The fake device behaves like a GPU: nobody reads it by accident, and what is done to it is counted."""

from __future__ import annotations

import ctypes
import gc
import operator
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bowstring.errors import BowstringError, InvalidRegion, NotOnDevice, OutOfBudget
from bowstring.memory import Handle, MappingCache, Pool, find_device
from bowstring.testing import FakeDevice, FakeDriverError, fake_device

READS: dict[str, Callable[[Any], object]] = {
    "asarray": np.asarray,
    "array": np.array,
    "frombuffer": np.frombuffer,
    "memoryview": memoryview,
    "bytes": bytes,
    "iter": iter,
    "list": list,
    "int": int,
    "float": float,
    "bool": bool,
    "index": operator.index,
    "in": lambda array: 1 in array,
    "tolist": lambda array: array.tolist(),
    "item": lambda array: array.item(),
    "format": lambda array: f"{array:.1f}",
    "numpy add": lambda array: np.arange(1) + array,
    "numpy ufunc": np.negative,
    "pyarrow": pa.array,
    "py_buffer": pa.py_buffer,
    "dlpack": np.from_dlpack,
}


@pytest.fixture
def fake() -> FakeDevice:
    """Return the fake device with its counters at zero, and nothing left to unmap, for which it would be waited."""
    device = fake_device()
    gc.collect()
    device.sweep()
    device.stats.reset()
    return device


@pytest.mark.parametrize("read", READS)
def test_fake_arrays_refuse_to_be_read(fake: FakeDevice, read: str) -> None:
    """Every way to read an array as host memory raises, and none is counted as a read."""
    with pytest.raises((NotOnDevice, TypeError, BufferError, AttributeError, pa.ArrowInvalid)):
        READS[read](fake.xp.ones(1, np.int64))
    assert fake.stats.host_reads == 0


def test_what_a_gpu_array_can_do(fake: FakeDevice) -> None:
    """Shapes, slices, views, arithmetic and reductions stay on the device and agree with NumPy."""
    xp = fake.xp
    plain = np.arange(12, dtype=np.int32)
    array = xp.asarray(plain)
    assert (len(array), array.dtype, array.shape, array.nbytes, array.size) == (12, np.int32, (12,), 48, 12)
    works: tuple[Callable[[Any], Any], ...] = (
        lambda a: a[2:9:3],
        lambda a: a[-1:],
        lambda a: a.reshape(3, 4)[:, 1],
        lambda a: a.view(np.uint8)[:5],
        lambda a: a.astype(np.float64) / 2 + 1,
        lambda a: 5 - a * a,
        lambda a: (a & 3) << 1,
        lambda a: ~(a >= 6),
        lambda a: a.sum(keepdims=True),
        lambda a: a[a > 7],
        lambda a: abs(-a),
    )
    for work in works:
        assert np.array_equal(fake.to_host(work(array)), work(plain))
    assert fake.to_host(xp.concatenate([array, xp.zeros(1, np.int32)])).tolist()[-1] == 0
    assert fake.to_host(xp.searchsorted(array, xp.asarray(np.array([5])), side="right")).tolist() == [6]
    assert fake.to_host(xp.where(array > 3, array, 0)).tolist() == np.where(plain > 3, plain, 0).tolist()
    array[2:4] = 7
    array[0:1] |= 64
    assert fake.to_host(array).tolist()[:4] == [64, 1, 7, 7]


@pytest.mark.parametrize("dtype", ["U3", "S3", "O", "M8[s]", "m8[ns]", ">i4", "g", [("a", "O")]])
def test_dtypes_that_cupy_refuses(fake: FakeDevice, dtype: Any) -> None:
    """Elements that CuPy has no kernels for get onto the fake device by no way either; those of structures do."""
    array = np.zeros(2, dtype)
    for way in (fake.xp.asarray, fake.from_host, lambda each: fake.xp.zeros(2, each.dtype)):
        with pytest.raises(ValueError, match="Unsupported dtype"):
            way(array)
    with pytest.raises(ValueError, match="Unsupported dtype"):
        fake.xp.zeros(2, np.int64).astype(dtype)
    pairs = np.zeros(2, [("a", "i4"), ("b", "f8")])
    assert np.array_equal(fake.to_host(fake.xp.asarray(pairs)), pairs)


def test_host_arrays_do_not_slip_in(fake: FakeDevice) -> None:
    """Functions of the namespace take no host arrays, and no functions that a GPU would not have."""
    array = fake.xp.arange(3)
    mixes: tuple[Callable[[], Any], ...] = (
        lambda: fake.xp.add(array, np.arange(3)),
        lambda: array + np.arange(3),
        lambda: array.__setitem__(slice(None), np.arange(3)),
        lambda: fake.xp.concatenate([array, np.arange(3)]),
        lambda: array[np.array([0, 1])],
        lambda: fake_device(1).xp.add(array, 1),
    )
    for mix in mixes:
        with pytest.raises(NotOnDevice):
            mix()
    with pytest.raises(AttributeError, match="fromstring"):
        fake.xp.fromstring  # noqa: B018  it raises


def test_traffic_is_counted(fake: FakeDevice) -> None:
    """Copies in both directions are counted with their bytes, and so are waits and allocations."""
    array = fake.xp.asarray(np.arange(10, dtype=np.int64))
    array + 1
    fake.to_host(array[:2])
    fake.synchronize()
    Pool(fake, budget=2 << 20).allocate(1)
    found = fake.stats
    assert (found.host_writes, found.host_written_bytes) == (1, 80)
    assert (found.host_reads, found.host_read_bytes) == (1, 16)
    assert (found.synchronizations, found.allocations) == (1, 1)


def test_failures_come_once(fake: FakeDevice) -> None:
    """A failure that a test asks for comes with the next call of its kind, and only then."""
    pool = Pool(fake, budget=1 << 22)
    fake.fail_next("allocate")
    with pytest.raises(OutOfBudget):
        pool.allocate(1)
    assert pool.stats.in_use == 0
    region = pool.allocate(1).region
    assert region.slab is not None
    fake.fail_next("map")
    with pytest.raises(InvalidRegion):
        fake.map_slab(os.dup(region.slab.fd), region.nbytes, region.uuid)
    fake.fail_next("copy")
    with pytest.raises(FakeDriverError):
        fake.xp.asarray(np.arange(3))
    fake.fail_next("copy", BowstringError("the bus is gone"))
    with pytest.raises(BowstringError, match="bus"):
        fake.to_host(fake.xp.zeros(1))
    assert fake.to_host(fake.xp.zeros(1)).tolist() == [0.0]


def test_memory_is_found_by_the_uuid_of_its_device(fake: FakeDevice) -> None:
    """A region of the fake device is mapped on the device of the same UUID, through a handle and a descriptor."""
    assert find_device(12, fake.uuid) is fake
    assert find_device(12, fake_device(1).uuid) is fake_device(1)
    assert fake.uuid != fake_device(1).uuid
    with pytest.raises(NotOnDevice):
        find_device(12, bytes(16))
    with pytest.raises(NotOnDevice):
        fake_device(2)
    buffer = Pool(fake, budget=2 << 20).allocate(8)
    with buffer.writable(np.int64) as array:
        array[:] = 7
    assert buffer.region.slab is not None
    mapped = MappingCache().open(Handle.of(buffer.region), os.dup(buffer.region.slab.fd))
    assert mapped.device is fake
    assert mapped.address != buffer.region.address
    assert fake.to_host(mapped.array(0, 8).view(np.int64)).tolist() == [7]
    with pytest.raises(ValueError, match="read-only"):
        mapped.array(0, 8)[:] = 0


def test_the_device_is_one_in_every_process(fake: FakeDevice) -> None:
    """A pickled device is the same device, and its UUID does not depend on the process."""
    assert pickle.loads(pickle.dumps(fake)) is fake
    code = "from bowstring.testing import fake_device; print(fake_device().uuid.hex())"
    assert (
        subprocess.check_output([sys.executable, "-c", code], text=True, timeout=60).strip()
        == fake.uuid.hex()
    )


def test_device_addresses_are_no_host_addresses(fake: FakeDevice) -> None:
    """Reading a device address on the host ends the process; using a host address on the device raises."""
    buffer = Pool(fake, budget=2 << 20).allocate(8)
    code = (
        "import ctypes; from bowstring.memory import Pool; from bowstring.testing import fake_device\n"
        "ctypes.string_at(Pool(fake_device(), 2 << 20).allocate(8).address, 8)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, capture_output=True).returncode < 0
    host = ctypes.create_string_buffer(8)
    with pytest.raises(NotOnDevice, match="host memory"):
        fake.array(ctypes.addressof(host), 8, host)
    with pytest.raises(NotOnDevice):
        buffer.to_arrow()
