"""Streams that may read memory of a device: they are waited for, and kept alive, for as long as they may."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from bowstring.columnar import Batch
from bowstring.errors import DeadlineExceeded, DeviceError
from bowstring.memory import NamedStream, Pool, Region, named_streams, on_streams
from bowstring.testing import FakeDevice, fake_device
from bowstring.testing.fake_driver import FakeDriver

MIB = 1 << 20
SIDE, BESIDE = 5, 9
REFUSED = DeviceError("cuEventRecord failed", found="CUDA_ERROR_OUT_OF_MEMORY (2)")
DESTROYED = DeviceError("cuEventRecord failed", found="CUDA_ERROR_INVALID_HANDLE (400)")
FAILED = DeviceError("cuEventQuery failed", found="CUDA_ERROR_ILLEGAL_ADDRESS (700)")


class Owner:
    """An object of another library that destroys its stream when it goes."""


@pytest.fixture
def device() -> Iterator[FakeDevice]:
    """Return a fake device that works on nothing when the test ends."""
    device = fake_device(0)
    device.sweep()
    device.rest(1.0)
    yield device
    for stream in (0, SIDE, BESIDE):
        device.driver.end_work(stream)
        device.driver.end_capture(stream)
    gc.collect()
    device.rest(1.0)


def is_read(device: FakeDevice) -> bool:
    """Return whether memory of the device must not be used again."""
    try:
        device.rest(0.0)
    except DeadlineExceeded:
        return True
    return False


def _with_event(batch: Batch) -> Any:
    return batch.__arrow_c_device_array__()


HAND_OUTS: dict[str, Callable[[Batch], Any]] = {
    "values": lambda batch: batch["n"].values,
    "validity": lambda batch: batch["n"].validity,
    "event": _with_event,
    "dlpack": lambda batch: batch["n"].__dlpack__(stream=SIDE, max_version=(1, 0)),
    "lease": lambda batch: batch.lease.read_on(batch.device.handed_out()),
}


@pytest.mark.parametrize("rests", [0, 1, 2])
@pytest.mark.parametrize("way", HAND_OUTS)
def test_a_stream_that_memory_was_handed_to_is_waited_for(device: FakeDevice, way: str, rests: int) -> None:
    """However memory is handed to a stream, whoever waited since, it is read until that is done."""
    batch = Batch.from_arrow({"n": [1, None, 3] if way == "validity" else np.arange(3)}).to_device(device)
    owner = Owner()
    alive = weakref.ref(owner)
    with device.on([NamedStream(BESIDE if way == "dlpack" else SIDE, owner)]):
        taken = HAND_OUTS[way](batch)
    for _ in range(rests):
        device.rest(1.0)
    device.driver.begin_work(SIDE)
    del owner, taken, batch
    gc.collect()
    assert alive() is not None or way == "dlpack"
    assert is_read(device)
    assert is_read(device)
    device.driver.end_work(SIDE)
    assert not is_read(device)
    assert alive() is None  # a stream that reads nothing is nobody's business


def test_copies_are_waited_for(device: FakeDevice) -> None:
    """Whoever waits for a stream of a copy that is queued keeps no stream, and misses none."""
    owner = Owner()
    alive = weakref.ref(owner)
    with device.on([NamedStream(SIDE, owner)]):
        device.current_stream()
        device.driver.begin_work(SIDE)
        del owner
        with pytest.raises(DeadlineExceeded):
            device.wait_stream(0.0)
    gc.collect()
    assert is_read(device)
    device.driver.end_work(SIDE)
    device.wait_streams([SIDE], 1.0)
    assert alive() is None


def test_streams_do_not_pile_up(device: FakeDevice) -> None:
    """A thousand streams that read memory of one batch, one after the other, are not all kept while it lives."""
    batch = Batch.from_arrow({"n": np.arange(3)}).to_device(device)
    owners = []
    device.driver.begin_work(BESIDE)
    device.note_stream(BESIDE, None)
    for number in range(1000):
        owner = Owner()
        owners.append(weakref.ref(owner))
        with device.on([NamedStream(100 + number, owner)]):
            assert len(batch["n"].values) == 3
        del owner
        if number % 10 == 0:
            device.sweep()
    assert sum(owner() is not None for owner in owners) < 50
    device.driver.end_work(BESIDE)


@pytest.mark.parametrize("call", ["stream_capturing", "event_create", "event_record", "event_done"])
def test_a_stream_that_cannot_be_waited_for_reads_still(call: str) -> None:
    """Whichever call fails once for its stream, memory stays as it is, and the stream is waited for afterwards."""
    device = FakeDevice(0, FakeDriver())
    device.note_stream(SIDE, None)
    device.driver.begin_work(SIDE)
    held = device.driver.held
    slab = device.make_slab(MIB)
    del slab
    device.driver.fail_next(call, REFUSED)
    with pytest.raises(DeviceError, match="OUT_OF_MEMORY"):
        device.drain(1.0)
    assert device.driver.held != held
    assert is_read(device)
    device.driver.end_work(SIDE)
    device.sweep()
    assert device.driver.held == held


def test_a_stream_that_was_destroyed_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that the driver does not know any more is forgotten, when all others are done."""
    device = FakeDevice(0, FakeDriver())
    record = device.driver.event_record
    asked: list[int] = []

    def refuses(ordinal: int, event: int, stream: int) -> None:
        asked.append(stream)
        if stream == SIDE:
            raise DESTROYED
        record(ordinal, event, stream)

    monkeypatch.setattr(device.driver, "event_record", refuses)
    device.note_stream(SIDE, None)
    device.note_stream(BESIDE, None)
    device.driver.begin_work(BESIDE)
    assert is_read(device)
    device.driver.end_work(BESIDE)
    assert not is_read(device)
    asked.clear()
    assert not is_read(device)
    assert asked == [1]


def test_a_device_that_failed_reads_nothing() -> None:
    """What the driver says of a context that does nothing any more is an end, and gives the memory back."""
    device = FakeDevice(0, FakeDriver())
    device.note_stream(SIDE, None)
    device.driver.begin_work(SIDE)
    held = device.driver.held
    slab = device.make_slab(MIB)
    del slab
    device.driver.fail_next("event_done", FAILED)
    with pytest.raises(DeviceError, match="700"):
        device.drain(1.0)
    assert device.driver.held == held


def test_a_capture_is_waited_out_where_there_is_no_room(device: FakeDevice) -> None:
    """A pool without room for fresh memory waits until no graph is captured on a stream that may read."""
    pool = Pool(device, budget=2 * MIB)
    pool.region(MIB)
    gc.collect()
    device.note_stream(SIDE, None)
    device.driver.begin_capture(SIDE)
    taken: list[Region] = []
    thread = threading.Thread(target=lambda: taken.append(pool.region(MIB)))
    thread.start()
    thread.join(0.3)
    assert thread.is_alive()
    assert device.driver.end_capture(SIDE)
    thread.join(10.0)
    assert (len(taken), pool.stats.reused) == (1, 1)
    taken.clear()
    pool.close()


@pytest.mark.parametrize("stream", [4096, 0, 1, 2])
def test_the_driver_says_where_a_stream_is(
    device: FakeDevice, monkeypatch: pytest.MonkeyPatch, stream: int
) -> None:
    """A stream whose object does not say its device is made current on its own; default ones are of the data's."""
    other = fake_device(1)
    monkeypatch.setattr(device.driver, "stream_devices", {4096: 1})
    with on_streams(device, named_streams(stream)):
        found = [each.current().address for each in (device, other)]
    assert found == ([0, 4096] if stream == 4096 else [stream, 0])
