"""Columns of a CUDA device, with a driver and a CuPy that are fakes: what other libraries are told of them."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from bowstring.columnar import Batch
from bowstring.columnar.interchange.capsule import device_in, event_in
from bowstring.columnar.interchange.to_array import warn_once
from bowstring.columnar.layout import Layout
from bowstring.columnar.parts import batch_parts, make_batch
from bowstring.columnar.spans import Spans
from bowstring.errors import DeadlineExceeded, NotExportable, ViewsAlive
from bowstring.memory import Region, Slab, foreign_region, named_streams
from bowstring.memory.arrays import device_array
from bowstring.memory.cuda import device as cuda
from bowstring.memory.cuda.device import CudaDevice
from bowstring.memory.devices import with_current_streams
from bowstring.memory.dlpack import address_in
from bowstring.testing.fake_array import ADDRESS_SHIFT
from bowstring.testing.fake_driver import FakeDriver
from tests.columnar.fake_cupy import STREAM, Tensor, make_cupy
from tests.device_events import wait_for_events

VALUES = np.arange(10, dtype=np.float32)


class Driver(FakeDriver):
    """A fake driver that remembers on which streams events were recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.recorded: list[int] = []

    def event_record(self, ordinal: int, event: int, stream: int) -> None:
        """Record, and remember."""
        super().event_record(ordinal, event, stream)
        self.recorded.append(stream)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[CudaDevice]:
    """Return a CUDA device whose driver and arrays are fakes."""
    monkeypatch.setitem(sys.modules, "cupy", make_cupy())
    device = CudaDevice(Driver(), 0)
    yield device
    wait_for_events(device)


def batch_on(device: CudaDevice, nulls: int = 0) -> Batch:
    """Return a batch of one column, which lies in memory of the host as a device would name it."""
    values = VALUES.copy()
    region: Region = foreign_region(values.ctypes.data + ADDRESS_SHIFT, values.nbytes, values, device)
    table = np.array([[0, 0, 2 if nulls else 0], [0, 0, values.nbytes]], np.int64)
    return make_batch(
        Batch,
        Layout.of(pa.schema([("a", pa.float32())])),
        10,
        np.array([[10, nulls]], np.int64),
        spans=Spans(table, [region]).table,
        regions=[region],
        device=device,
    )


def test_the_array_interface_is_version_3_and_read_only(device: CudaDevice) -> None:
    """Address, type and stream are CuPy's; the data are read-only; there never is a mask."""
    column = batch_on(device)["a"]
    said = column.__cuda_array_interface__
    assert said["data"] == (column.raw_values.data.ptr, True)
    assert (said["shape"], said["typestr"], said["version"], said["stream"]) == ((10,), "<f4", 3, STREAM)
    assert "mask" not in said
    assert np.array_equal(column.raw_values.on_host(), VALUES)


def test_nulls_are_an_error_and_no_mask(device: CudaDevice) -> None:
    """A column with nulls is refused, by its name."""
    with pytest.raises(NotExportable, match=r"nulls.*at a"):
        assert batch_on(device, nulls=1)["a"].__cuda_array_interface__


def test_a_consumer_that_holds_the_column_holds_the_batch(device: CudaDevice) -> None:
    """Libraries keep the object that said where it lies: while they do, the batch cannot be released."""
    batch = batch_on(device)
    column = batch["a"]
    region = weakref.ref(batch_parts(batch).spans.regions[0])
    assert column.__cuda_array_interface__
    with pytest.raises(ViewsAlive):
        batch.release()
    del batch
    gc.collect()
    assert region() is not None
    del column
    gc.collect()
    assert region() is None


def test_events_are_of_the_current_stream(device: CudaDevice) -> None:
    """The event in a struct is recorded on CuPy's current stream, and consumers' streams wait for that one."""
    batch = batch_on(device)
    driver = device.driver
    assert isinstance(driver, Driver)
    capsule = batch.__arrow_c_device_array__()[1]
    address = address_in(capsule, b"arrow_device_array")
    assert device_in(address) == (2, 0)
    assert event_in(address) in driver.held_events
    batch["a"].__dlpack__(stream=9, max_version=(1, 0))
    assert driver.recorded == [STREAM, STREAM]
    assert [stream for stream, _ in driver.waits] == [9]
    device.wait_event(event_in(address) or 0)
    assert driver.waits[-1][0] == STREAM


def test_tensors_say_cuda(device: CudaDevice) -> None:
    """DLPack is told a CUDA device and its number."""
    column = batch_on(device)["a"]
    assert column.__dlpack_device__() == (2, 0)
    with pytest.raises((BufferError, RuntimeError)):
        np.from_dlpack(column)


SIDE = 41


@pytest.fixture
def tensor(device: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> Tensor:
    """Return a tensor of torch's with work on a side stream."""
    monkeypatch.setattr(cuda, "cuda_device", lambda _ordinal: device)
    driver = device.driver
    assert isinstance(driver, Driver)
    driver.begin_work(SIDE)
    return Tensor(batch_on(device)["a"].raw_values, driver, SIDE)


def test_a_tensor_on_a_side_stream_is_read_behind_its_work(device: CudaDevice, tensor: Tensor) -> None:
    """The current stream waits for the stream that torch works on, which its array interface does not name."""
    found = device_array(tensor)
    assert found is not None
    assert (found[0], found[1].data.ptr) == (device, tensor._array.data.ptr)
    driver = device.driver
    assert isinstance(driver, Driver)
    assert (driver.recorded, [stream for stream, _ in driver.waits]) == ([SIDE], [STREAM])
    assert not driver.is_idle(STREAM)
    with device.on(named_streams(SIDE)):  # as publish(cuda_stream=...) has it: nobody needs to wait
        driver.recorded.clear()
        assert device.current_stream() == SIDE
        assert device_array(tensor) is not None
        assert not driver.recorded
    driver.end_work(SIDE)


def test_work_for_a_user_goes_to_the_stream_that_was_current(
    device: CudaDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another thread does later is queued there, on a stream whose owner lives as long as it is known of."""
    monkeypatch.setattr(cuda, "_devices", {0: device})
    owner = cuda.load_cupy().cuda.ExternalStream(SIDE)
    gone = weakref.ref(owner)
    with device.on(named_streams(owner)):
        later = with_current_streams(device.current)
    del owner
    assert device.current().address == STREAM
    found = later()
    del later
    gc.collect()
    assert found.address == SIDE
    assert gone() is not None
    del found
    device.rest(1.0)  # which what was queued on it may need until then
    gc.collect()
    assert gone() is None


def test_what_torch_refuses_is_an_error_of_ours(tensor: Tensor) -> None:
    """A tensor that needs a gradient is refused with torch's reason, and one on the host is none of a device."""
    tensor.requires_grad = True
    with pytest.raises(NotExportable, match="detach"):
        device_array(tensor)
    assert device_array(np.arange(3)) is None


def test_a_stream_lives_as_long_as_what_was_handed_out_on_it(device: CudaDevice) -> None:
    """The object that a user named is kept, and not only its address, until its stream reads nothing."""

    class Owner:
        ptr = SIDE

    driver = device.driver
    assert isinstance(driver, Driver)
    stream = Owner()
    alive = weakref.ref(stream)
    with device.on(named_streams(stream)):
        array = batch_on(device).to_cupy()
    del stream
    device.rest(1.0)
    gc.collect()
    assert alive() is not None
    del array
    gc.collect()
    driver.begin_work(SIDE)
    with pytest.raises(DeadlineExceeded):
        device.rest(0.0)
    driver.end_work(SIDE)
    assert alive() is not None
    device.rest(1.0)
    gc.collect()
    assert alive() is None


def test_arrays_of_mapped_memory_warn_once(device: CudaDevice) -> None:
    """Whoever is handed GPU memory of another process as an array is told, once, that it must not be written."""
    warn_once.cache_clear()
    batch = batch_on(device)
    batch.to_cupy()  # memory of this process
    [region] = batch_parts(batch).spans.regions
    region.slab = Slab(device, None, 0, 1, bytes(16))
    with pytest.warns(UserWarning, match="must not be written"):
        batch.to_cupy()
    batch.to_cupy()
    batch["a"].__dlpack__(stream=9, max_version=(1, 0))
    region.slab = None
