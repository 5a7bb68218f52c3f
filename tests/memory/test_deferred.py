"""Waits for a device end, whatever the device does."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

import numpy as np
import pytest

import bowstring as bow
from bowstring.errors import DeadlineExceeded, DeviceError, ForkedError
from bowstring.memory import Pool, cpu, lendable, settle_devices
from bowstring.memory.cuda.deferred import DeferredCalls
from bowstring.testing import FakeDevice, fake_device
from bowstring.testing.fake_device import FakeDevice as _Device  # a device of the test's own
from bowstring.testing.fake_driver import FakeDriver
from tests.memory.conftest import until

MIB = 1 << 20
SOON: Final = 5.0


class Blocking(FakeDriver):
    """A driver whose device is at work until it is told to end."""

    def __init__(self) -> None:
        super().__init__()
        self.over = threading.Event()
        self.over.set()
        self.entered = threading.Event()

    def event_done(self, ordinal: int, event: int) -> bool:
        """Say whether the work is over."""
        super().event_done(ordinal, event)
        self.entered.set()
        return self.over.is_set()


@pytest.fixture
def driver() -> Iterator[Blocking]:
    """Return a driver that can be blocked."""
    driver = Blocking()
    yield driver
    driver.over.set()


@pytest.fixture
def device(driver: Blocking) -> _Device:
    """Return a device of that driver."""
    return _Device(0, driver)


@pytest.mark.usefixtures("no_leaks")
def test_a_wait_is_given_up(driver: Blocking, device: _Device) -> None:
    """Whoever waits for a device that is at work for long gives up in time; later waits see its work done."""
    driver.over.clear()
    with pytest.raises(DeadlineExceeded, match="still at work"):
        device.drain(0.05)
    with pytest.raises(DeadlineExceeded):
        settle_devices((device,), 0.05)
    driver.over.set()
    device.drain(10.0)


@pytest.mark.usefixtures("no_leaks")
def test_one_thread_waits_for_all(driver: Blocking, device: _Device) -> None:
    """However many wait, one thread is in the driver, and what they asked for while it was is one more call."""
    driver.over.clear()
    driver.calls.clear()
    waiting = [threading.Thread(target=device.drain, args=(20.0,)) for _ in range(10)]
    for thread in waiting:
        thread.start()
    assert driver.entered.wait(10.0)
    names = [thread.name for thread in threading.enumerate() if thread.name == "bowstring-device-0"]
    assert len(names) == 1
    driver.over.set()
    for thread in waiting:
        thread.join(20.0)
    assert 1 <= driver.calls["event_record"] <= 10
    device.drain(10.0)


@pytest.mark.usefixtures("no_leaks")
def test_memory_is_unmapped_when_the_device_is_done(
    driver: Blocking, device: _Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pool that closes, or is trimmed, does not wait for ever; its memory is given back when the work is over."""
    pool = Pool(device, budget=8 * MIB)
    pool.region(2 * MIB)
    gc.collect()
    driver.over.clear()
    assert pool.stats.idle == 2 * MIB
    sweep = device.sweep
    monkeypatch.setattr(device, "sweep", lambda *_: sweep(0.05))  # a patient one takes 5 s
    pool.trim()
    pool.close()
    assert driver.held != (0, 0, 0)
    driver.over.set()
    until(lambda: driver.held == (0, 0, 0))


@pytest.mark.usefixtures("no_leaks")
def test_nothing_is_published_that_may_be_written_still(driver: Blocking, device: _Device) -> None:
    """Publishing from a device that does not come to an end is refused after a while, and nothing is offered."""
    pool = Pool(device, budget=64 * MIB)
    batch = bow.Batch.from_arrow({"n": np.arange(10)}).to_device(device, pool)
    limits = bow.Limits(device_timeout=0.05)
    with bow.Server("inproc:", pool=pool, limits=limits) as server:
        driver.over.clear()
        with pytest.raises(DeadlineExceeded):
            server.publish("t", batch)
        assert not server.endpoints
        driver.over.set()
        server.publish("t", batch)
    del batch
    pool.close()


def test_what_a_round_raises_is_raised() -> None:
    """An error of the work reaches all whom that round served, and no later one."""
    errors: list[BaseException] = [DeviceError("broken"), KeyboardInterrupt()]

    def work() -> None:
        if errors:
            raise errors.pop(0)

    rounds = DeferredCalls(work, "a test")
    with pytest.raises(DeviceError, match="broken"):
        rounds.wait(10.0)
    with pytest.raises(KeyboardInterrupt):
        rounds.wait(10.0)
    rounds.wait(10.0)


@pytest.mark.usefixtures("no_leaks")
def test_a_finalizer_in_the_thread_that_waits(device: _Device, driver: Blocking) -> None:
    """What the collector runs in the thread of the rounds can wait for the device, and does not wait for itself."""
    done: list[str] = []

    def finalizer() -> None:
        slab = device.make_slab(MIB)
        del slab
        device.drain(600.0)
        done.append("settled")

    device.later(finalizer)
    device.drain(10.0)
    assert done == ["settled"]
    assert driver.held == (0, 0, 0)


def test_later_is_when_the_device_is_done(driver: Blocking, device: _Device) -> None:
    """What is done later is done when all that is queued is, though nobody waits; on the host at once."""
    driver.over.clear()
    done: list[str] = []
    device.later(lambda: done.append("device"))
    cpu().later(lambda: done.append("host"))
    assert driver.entered.wait(10.0)
    assert done == ["host"]
    driver.over.set()
    until(lambda: done == ["host", "device"])
    device.drain(10.0)
    assert done == ["host", "device"]


def test_nobody_waits_while_the_interpreter_ends() -> None:
    """The last objects of a program that wait for a device, whose thread is no more, are refused at once."""
    program = """
import sys
from bowstring.errors import DeviceError
from bowstring.testing import fake_device

class Last:
    def __del__(self, device=fake_device(), refused=DeviceError, finalizing=sys.is_finalizing, write=print):
        try:
            device.drain(600.0)
        except refused as error:
            write(finalizing(), error.found, flush=True)

fake_device().drain(10.0)
last = Last()
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60.0, check=True
    )
    assert ended.stdout == "True the interpreter ends\n"


def test_no_thread_can_be_started(device: _Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no thread can be had the wait is refused; memory that ended is given back later."""
    slab = device.make_slab(MIB)
    del slab

    def refuses(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuses)
        with pytest.raises(DeviceError, match="cannot be waited for"):
            device.drain(1.0)
        device.sweep(1.0)
    assert device.driver.held != (0, 0, 0)
    device.sweep(10.0)
    assert device.driver.held == (0, 0, 0)


def test_a_child_waits_for_nothing(in_child: Callable[[Callable[[], bool]], bool]) -> None:
    """A child that was forked is refused on every road: waiting, asking, and copying."""
    device: FakeDevice = fake_device(0)
    batch = bow.Batch.from_arrow({"n": np.arange(10)}).to_device(device)
    refused: list[Callable[[], object]] = [
        lambda: device.drain(1.0),
        device.synchronize,
        device.memory_info,
        lambda: device.wait_stream(1.0),
        lambda: batch.to_device(fake_device(1), Pool(fake_device(1), budget=2 * MIB)),
        lambda: batch.to_device("cpu"),
        lambda: lendable(device, 1 << 40),
    ]

    def all_refused() -> bool:
        for call in refused:
            try:
                call()
            except ForkedError:
                continue
            return False
        return True

    assert in_child(all_refused)


def test_a_pool_knows_its_device(driver: Blocking, device: _Device) -> None:
    """The budget that nobody names is half of the device's memory, not of the host's."""
    driver.memory = 6 << 30
    assert device.memory_info() == (6 << 30, 6 << 30)
    assert Pool(device).budget == 3 << 30
    assert Pool(device, budget=MIB).budget == MIB


def test_what_is_noted_at_any_line_of_the_devices_thread_is_done_at_once() -> None:
    """A finalizer that the collector runs in that thread need not wait until the thread would end."""
    left = [0]
    noted = threading.Event()

    def trace(frame: types.FrameType, event: str, _: object) -> Any:
        if event == "line" and threading.current_thread().name.endswith("device-of-lines"):
            left[0] -= 1
            if left[0] == 0:
                deferred.add(noted.set)
                deferred.begin()
        return trace

    deferred = DeferredCalls(lambda: None, "device-of-lines")
    threading.settrace(trace)
    try:
        deferred.wait(SOON)
    finally:
        threading.settrace(cast("Any", None))
    for line in range(1, 200):
        noted.clear()
        left[0] = line
        deferred.wait(SOON)
        end = time.monotonic() + 0.05
        while left[0] > 0 and time.monotonic() < end:
            time.sleep(0.001)
        if left[0] > 0:  # there are no more lines
            break
        assert noted.wait(SOON), line
    assert 10 < line < 199


@pytest.mark.usefixtures("no_leaks")
def test_what_a_refusal_held_up_is_done_when_it_is_over(
    driver: Blocking, device: _Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a device holds up that cannot be waited for, as during a capture, is tried again without being asked."""
    done: list[str] = []
    refused: list[str] = []
    rest = device.rest

    def refuses(seconds: float) -> None:
        if len(refused) < 2:
            refused.append("a capture")
            raise DeviceError("a CUDA graph is being captured")
        rest(seconds)

    monkeypatch.setattr(device, "rest", refuses)
    device.later(lambda: done.append("later"))
    until(lambda: bool(done))
    assert len(refused) == 2
