"""Events of devices: made when nobody else's is idle, and given back at a quiet moment, never by a finalizer."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator

import pytest

from bowstring.errors import DeviceError, NotExportable, NotOnDevice
from bowstring.memory import cpu
from bowstring.testing import FakeDevice
from bowstring.testing.fake_driver import FakeDriver
from tests.device_events import wait_for_events


@pytest.fixture
def device() -> Iterator[FakeDevice]:
    """Return a device with a driver of its own, which must have all events back at the end."""
    device = FakeDevice(0, FakeDriver())
    yield device
    wait_for_events(device)


def test_an_event_is_destroyed_once_and_not_before_its_end(device: FakeDevice) -> None:
    """While somebody has it nothing sweeps an event; after that, the next sweep destroys it, and no other does."""
    driver = device.driver
    event = device.record()
    assert ctypes.c_uint64.from_address(event.address).value == event.handle
    device.sweep()
    assert driver.held_events == {event.handle}
    del event
    assert driver.calls["event_destroy"] == 0  # no finalizer calls a driver
    device.sweep()
    device.sweep()
    assert (driver.calls["event_destroy"], driver.held_events) == (1, set())


def test_idle_events_are_used_again(device: FakeDevice) -> None:
    """As many events are made as are alive at one time."""
    for _ in range(10):
        held = [device.record() for _ in range(3)]
        assert len({event.handle for event in held}) == 3
        del held
    assert (device.driver.calls["event_create"], device.driver.calls["event_record"]) == (3, 30)


@pytest.mark.parametrize("call", ["event_create", "event_record", "stream_wait_event"])
def test_a_driver_that_fails_keeps_no_event(device: FakeDevice, call: str) -> None:
    """Whichever call fails, the error names it, and no event stays with anybody."""
    device.driver.fail_next(call)
    with pytest.raises(DeviceError, match=call):
        device.order_for(5)


def test_threads_share_events(device: FakeDevice) -> None:
    """Threads that record and drop events at once never have the same one."""
    seen: list[bool] = []

    def work() -> None:
        for _ in range(200):
            mine = [device.record() for _ in range(2)]
            seen.append(mine[0].handle != mine[1].handle)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(seen) == 800
    assert all(seen)
    # Two are let go only when the next two are there.
    assert device.driver.calls["event_create"] <= 16


def test_streams_of_others_come_after_the_current_one(device: FakeDevice) -> None:
    """Numbers of streams are those of DLPack: none is the default stream, -1 is no wait, 0 nobody's."""
    for stream in (None, 1, 2, 77, -1):
        device.order_for(stream)
    assert [stream for stream, _ in device.driver.waits] == [1, 1, 2, 77]
    for wrong in (0, -2):
        with pytest.raises(NotExportable, match="no stream"):
            device.order_for(wrong)


def test_events_that_are_none_are_refused(device: FakeDevice) -> None:
    """A handle that the driver does not know is an error, not a wait for nothing."""
    with pytest.raises(DeviceError, match="stream_wait_event"):
        device.wait_event(12345)


def test_the_host_has_no_events() -> None:
    """On the host nothing is queued: there are no events, and no streams."""
    assert cpu().record() is None
    cpu().order_for(None)
    with pytest.raises(NotExportable, match="no streams"):
        cpu().order_for(1)
    with pytest.raises(NotOnDevice, match="no events"):
        cpu().wait_event(1)


def test_a_forked_child_is_refused(device: FakeDevice) -> None:
    """A child that was forked may neither record nor wait, nor destroy what its parent had."""
    kept = device.record()
    del kept
    child = os.fork()
    if not child:
        refused = 0
        for call in (device.record, lambda: device.wait_event(1), device.sweep):
            try:
                call()
            except RuntimeError:
                refused += 1
        os._exit(0 if refused == 3 and device.driver.calls["event_destroy"] == 0 else 1)
    assert os.waitpid(child, 0)[1] == 0
