"""Devices with a driver: what they hold, in which order they give it back, and what failures leave behind."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from bowstring.errors import DeviceError, ForkedError, InvalidRegion, NotOnDevice, OutOfBudget
from bowstring.memory import Handle, MappingCache, Pool, Region, device_by_name
from bowstring.memory.cuda.driver import Capturing
from bowstring.testing import fake_device
from bowstring.testing.fake_device import FakeDevice
from bowstring.testing.fake_driver import FakeDriver

MIB = 1 << 20
MAKING = ("create", "reserve", "map", "set_access", "export", "release")
IMPORTING = ("import_", "reserve", "map", "set_access", "release")


@pytest.fixture
def device() -> Iterator[FakeDevice]:
    """Return a device that holds no more when the test ends than when it began."""
    device = fake_device()
    device.sweep()
    held, device.maps_read_only = device.driver.held, None
    yield device
    gc.collect()
    device.sweep()
    assert device.driver.held == held


@pytest.fixture
def driver(device: FakeDevice) -> FakeDriver:
    """Return the driver of the device."""
    return device.driver


def filled(pool: Pool, value: int, nbytes: int = 2 * MIB) -> Region:
    """Return a region whose bytes all have one value."""
    region = pool.region(nbytes)
    region.array(0, nbytes, writable=True)[:] = region.device.from_host(np.full(nbytes, value, np.uint8))
    return region


def opened(cache: MappingCache, region: Region) -> Region:
    """Return a region as another process would open it."""
    return cache.open(Handle.of(region), sent(region))


def sent(region: Region) -> int:
    """Return a descriptor as it comes out of a socket."""
    assert region.slab is not None
    return os.dup(region.slab.fd)


def value_of(region: Region) -> int:
    """Return the one value of all bytes."""
    [value] = set(region.device.to_host(region.array(0, region.nbytes)).tolist())
    return value


@pytest.mark.usefixtures("no_leaks")
def test_memory_goes_the_road_of_memfds(device: FakeDevice) -> None:
    """What one process writes, another one that gets the descriptor reads; it cannot write it."""
    pool, cache = Pool(device, budget=8 * MIB), MappingCache()
    region = filled(pool, 7)
    view = opened(cache, region)
    assert value_of(view) == 7
    assert device.maps_read_only
    region.array(0, 1, writable=True)[:] = device.from_host(np.array([9], np.uint8))
    assert device.to_host(view.array(0, 2)).tolist() == [9, 7]
    del view, region
    cache.clear()
    pool.close()


@pytest.mark.usefixtures("no_leaks")
def test_a_reader_outlives_the_producer(device: FakeDevice) -> None:
    """A mapping keeps its memory when the producer has given up everything: mapping, handle and descriptor."""
    pool, cache = Pool(device, budget=8 * MIB), MappingCache()
    region = filled(pool, 5)
    view = opened(cache, region)
    del region
    pool.close()
    device.sweep()
    assert value_of(view) == 5
    del view
    cache.clear()


def test_a_descriptor_alone_keeps_memory(device: FakeDevice) -> None:
    """Memory lives while a descriptor of it does, also where nobody has it mapped."""
    pool, cache = Pool(device, budget=8 * MIB), MappingCache()
    region = filled(pool, 3)
    handle, fd = Handle.of(region), sent(region)
    del region
    pool.close()
    device.sweep()
    assert value_of(cache.open(handle, fd)) == 3
    cache.clear()


def test_nothing_is_unmapped_before_the_device_is_done(
    device: FakeDevice, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unmapping waits for what was queued, and no finalizer calls the driver."""
    slab = device.make_slab(MIB)
    driver.calls.clear()
    del slab
    gc.collect()
    assert not driver.calls
    order: list[str] = []
    for name in ("event_done", "unmap", "free_address"):
        monkeypatch.setattr(driver, name, _noting(getattr(driver, name), name, order))
    device.sweep()
    assert order == ["event_done", "unmap", "free_address"]
    device.sweep()
    assert driver.calls["event_done"] == 1


def test_what_comes_back_to_life_stays_mapped(device: FakeDevice, driver: FakeDriver) -> None:
    """A collection that finds a dead cycle, of which somebody's finalizer keeps a view, unmaps nothing."""
    kept: list[Region] = []

    class Lazarus:
        def __init__(self, view: Region) -> None:
            self.view, self.itself = view, self

        def __del__(self) -> None:
            kept.append(self.view)

    slab = device.make_slab(MIB)
    address = slab.address
    Lazarus(Region.of_slab(slab))
    del slab
    gc.collect()
    assert len(kept) == 1
    device.sweep()
    assert address in driver.held_ranges
    kept.clear()
    device.sweep()
    assert address not in driver.held_ranges


@pytest.mark.parametrize("error", [Capturing("cuEventQuery failed"), KeyboardInterrupt()])
def test_a_sweep_that_cannot_wait_unmaps_later(
    device: FakeDevice, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """Where the device cannot be waited for, or whoever waits is interrupted, memory stays mapped until it can."""

    def fails(_ordinal: int, _event: int) -> bool:
        raise error

    slab = device.make_slab(MIB)
    address = slab.address
    del slab
    monkeypatch.setattr(driver, "event_done", fails)
    with contextlib.suppress(KeyboardInterrupt):
        device.sweep()
    assert address in driver.held_ranges
    monkeypatch.undo()
    device.sweep()
    assert address not in driver.held_ranges


def test_an_interrupt_leaves_the_books_of_a_pool_right(
    device: FakeDevice, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pool that is interrupted while it waits for the device takes nothing for memory in use."""

    def interrupted(_ordinal: int, _event: int) -> bool:
        raise KeyboardInterrupt

    pool = Pool(device, budget=4 * MIB)
    pool.region(2 * MIB)
    monkeypatch.setattr(driver, "event_done", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pool.region(4 * MIB)
    monkeypatch.undo()
    assert pool.stats.in_use == 0
    pool.close()


def test_opening_waits_for_no_work(
    device: FakeDevice, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regions are opened by the thread that answers the producer, so that waits for no kernel, whatever ended."""
    pool, cache = Pool(device, budget=8 * MIB), MappingCache(idle_regions=0)
    regions = [filled(pool, 1), filled(pool, 2)]
    opened(cache, regions[0])
    driver.calls.clear()
    view = opened(cache, regions[1])
    assert not driver.calls["event_record"]
    del view, regions
    cache.clear()
    assert driver.calls["event_record"]
    pool.close()


def _noting(call: Callable[..., Any], name: str, order: list[str]) -> Callable[..., Any]:
    def noted(*arguments: Any) -> Any:
        order.append(name)
        return call(*arguments)

    return noted


@pytest.mark.usefixtures("no_leaks")
@pytest.mark.parametrize("call", MAKING)
def test_a_driver_that_fails_while_memory_is_made(device: FakeDevice, driver: FakeDriver, call: str) -> None:
    """Whichever call fails, its error is raised, nothing more is held, and the device goes on."""
    pool = Pool(device, budget=4 * MIB)
    driver.fail_next(call)
    with pytest.raises(OutOfBudget if call == "create" else DeviceError, match="failed"):
        pool.region(MIB)
    assert pool.stats.in_use == 0
    if call == "release":
        os.close(driver._handles.popitem()[1])
    region = filled(pool, 1)
    assert value_of(region) == 1
    del region
    pool.close()


@pytest.mark.usefixtures("no_leaks")
@pytest.mark.parametrize("before", [1, 0])
@pytest.mark.parametrize("call", IMPORTING)
def test_a_driver_that_fails_while_memory_is_mapped(
    device: FakeDevice, driver: FakeDriver, call: str, before: int
) -> None:
    """Whichever call fails, the region is refused, its descriptor closed, and the next one is mapped, read-only."""
    if call == "set_access" and not before:
        pytest.skip("a refusal of the first one says that the driver has no read-only mappings")
    pool, cache = Pool(device, budget=4 * MIB), MappingCache()
    region = filled(pool, 2)
    for _ in range(before):
        opened(cache, region)
    cache.clear()
    driver.fail_next(call)
    with pytest.raises(InvalidRegion, match="cannot be mapped"):
        opened(cache, region)
    if call == "release":
        os.close(driver._handles.popitem()[1])
    view = opened(cache, region)
    assert (value_of(view), device.maps_read_only) == (2, True)
    del view, region
    cache.clear()
    pool.close()


@pytest.mark.usefixtures("no_leaks")
def test_a_driver_without_read_only_mappings(
    device: FakeDevice, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the driver maps nothing read-only, memory is mapped all the same, and the device says so."""
    set_access: Callable[..., None] = driver.set_access

    def refuses(address: int, nbytes: int, ordinal: int, *, writable: bool) -> None:
        if not writable:
            raise DeviceError("cuMemSetAccess failed", found="CUDA_ERROR_NOT_SUPPORTED (801)")
        set_access(address, nbytes, ordinal, writable=writable)

    pool, cache = Pool(device, budget=4 * MIB), MappingCache()
    region = filled(pool, 4)
    monkeypatch.setattr(driver, "set_access", refuses)
    view = opened(cache, region)
    assert value_of(view) == 4
    assert device.maps_read_only is False
    del view, region
    cache.clear()
    pool.close()


@pytest.mark.usefixtures("no_leaks")
def test_regions_that_are_none(device: FakeDevice) -> None:
    """What is no memory, smaller than announced, or of no bytes is refused, and its descriptor closed."""
    slab = device.make_slab(MIB)
    with open(os.devnull, "rb") as file, pytest.raises(InvalidRegion, match="cannot be mapped"):
        device.map_slab(os.dup(file.fileno()), MIB, bytes(16))
    with pytest.raises(InvalidRegion, match="cannot be mapped"):
        device.map_slab(os.dup(slab.fd), 5 * MIB, bytes(16))
    with pytest.raises(InvalidRegion, match="no bytes"):
        device.map_slab(os.dup(slab.fd), 0, bytes(16))
    del slab


@pytest.mark.usefixtures("no_leaks")
def test_a_device_that_disappears(device: FakeDevice, driver: FakeDriver) -> None:
    """Every call says that the device is gone; giving memory back says nothing, and does not hang."""
    before = driver.held_ranges
    pool = Pool(device, budget=8 * MIB)
    region = filled(pool, 1)
    driver.disappear()
    with pytest.raises(DeviceError, match="UNAVAILABLE"):
        pool.region(2 * MIB)
    with pytest.raises(DeviceError, match="UNAVAILABLE"):
        device.synchronize()
    del region
    pool.close()
    driver.come_back()
    for address in driver.held_ranges - before:  # lost with the device: the test gives it back
        driver.unmap(address, 2 * MIB)
        driver.free_address(address, 2 * MIB)


@pytest.mark.usefixtures("no_leaks")
def test_addresses_are_used_again(device: FakeDevice) -> None:
    """New memory at an address of old memory is not taken for it: regions are known by their names."""
    cache = MappingCache()
    addresses = set()
    for value in range(8):
        pool = Pool(device, budget=4 * MIB)
        region = filled(pool, value)
        view = opened(cache, region)
        addresses |= {region.address, view.address}
        assert value_of(view) == value
        del view, region
        pool.close()
        cache.clear()
    assert len(addresses) < 16


def test_a_forked_child_is_refused(
    device: FakeDevice, in_child: Callable[[Callable[[], bool]], bool]
) -> None:
    """A child that was forked is told that it cannot use the device; its parent goes on."""
    slab = device.make_slab(MIB)
    fd = os.dup(slab.fd)
    del slab

    def refused() -> bool:
        try:
            device.make_slab(MIB)
        except ForkedError:
            pass
        else:
            return False
        try:
            device.map_slab(fd, MIB, bytes(16))
        except ForkedError:
            return True
        return False

    assert in_child(refused)
    os.close(fd)


def test_a_thousand_regions_leave_nothing(device: FakeDevice) -> None:
    """Handing memory over again and again holds no more handles, mappings or ranges than one time does."""
    pool, cache = Pool(device, budget=4 * MIB), MappingCache(idle_regions=0)
    for _ in range(1000):
        region = pool.region(MIB)
        opened(cache, region)
        cache.trim()
        del region
    pool.close()


def test_devices_have_names() -> None:
    """A device is found by its name; one that is not there, and what is no name, is refused."""
    assert device_by_name("fake:1") is fake_device(1)
    assert device_by_name("fake") is fake_device(0)
    for name in ("fake:7", "fake:", "fake:x", "tpu:0", ""):
        with pytest.raises(NotOnDevice):
            device_by_name(name)


@pytest.mark.usefixtures("no_leaks")
def test_what_ended_is_given_up_with_a_device_that_failed(device: FakeDevice, driver: FakeDriver) -> None:
    """A device that failed reads nothing any more: its memory is unmapped in the same sweep, not kept for good."""
    held = driver.held
    slab = device.make_slab(MIB)
    del slab
    driver.fail_next("event_done", DeviceError("failed", found="CUDA_ERROR_ILLEGAL_ADDRESS (700)"))
    device.sweep()
    assert driver.held == held


def test_one_that_cannot_be_unmapped_keeps_no_other(device: FakeDevice, driver: FakeDriver) -> None:
    """Where the driver refuses to give one back, the others are given back all the same."""
    held, ranges = driver.held, driver.held_ranges
    slabs = [device.make_slab(MIB) for _ in range(3)]
    slabs.clear()
    driver.fail_next("unmap")
    device.sweep()
    assert driver.held == (held[0], held[1] + 1, held[2] + 1)
    [lost] = driver.held_ranges - ranges
    driver.unmap(lost, 2 * MIB)  # refused to the device: the test gives it back
    driver.free_address(lost, 2 * MIB)
