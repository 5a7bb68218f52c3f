"""Lent memory: what its handles name, who can open them, how often, and what wrong ones do."""

from __future__ import annotations

import dataclasses
import gc
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bowstring.benchmarks.processes.child import Child
from bowstring.errors import (
    BowstringError,
    DeviceError,
    ForkedError,
    InvalidRegion,
    UsageError,
)
from bowstring.memory import (
    Handle,
    LentHandle,
    MappingCache,
    Pool,
    Region,
    Stretch,
    carry,
    cpu,
    handle_of,
    lend,
    lendable,
    this_process,
    unpack_handle,
)
from bowstring.testing import FakeDevice, fake_device
from tests.memory.exporter import Exporter

pytestmark = pytest.mark.usefixtures("forked")

NUMBERS = st.integers(0, 2**64 - 1)
PIDS = st.integers(0, 2**32 - 1)
IDS = st.binary(min_size=16, max_size=16)
PROCESSES = st.builds(type(this_process()), IDS, NUMBERS, NUMBERS, PIDS)


@pytest.fixture(scope="module")
def exporter() -> Iterator[Child]:
    """Return a process that lends memory."""
    with Child(Exporter) as child:
        yield child


@pytest.fixture(scope="module")
def honest(exporter: Child) -> LentHandle:
    """Return a handle of memory that is lent."""
    return lent_by(exporter, 4)[1]


def swept() -> None:
    """Give back what nobody refers to, on both devices, which have one driver."""
    gc.collect()
    for number in (0, 1):
        fake_device(number).sweep()


@pytest.fixture
def device() -> Iterator[FakeDevice]:
    """Return a device that holds no more when the test ends than when it began."""
    device = fake_device()
    swept()
    held = device.driver.held
    yield device
    swept()
    assert device.driver.held == held
    assert not device.openings


@pytest.fixture
def cache(device: FakeDevice) -> Iterator[MappingCache]:
    """Return a cache that ends with the test."""
    cache = MappingCache()
    yield cache
    gc.collect()
    cache.clear()


def lent_by(exporter: Child, value: int, nbytes: int = 1000) -> tuple[int, LentHandle]:
    """Return the address over there, and the handle, of new memory of one value."""
    address, packed = exporter.call("allocate", value=value, nbytes=nbytes)
    handle = unpack_handle(bytes.fromhex(packed))
    assert isinstance(handle, LentHandle)
    return address, handle


def value_of(region: Region) -> int:
    """Return the one value of all bytes."""
    [value] = set(region.device.to_host(region.array(0, region.nbytes)).tolist())
    return value


# What can be lent.


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("async", "stream-ordered memory (cudaMallocAsync)"),
        ("managed", "managed memory"),
        ("vmm", "memory without a handle (cuMemMap)"),
    ],
)
def test_memory_without_a_handle_is_recognised(device: FakeDevice, kind: str, reason: str) -> None:
    """Memory of other kinds than cudaMalloc's is told by its attributes, and no handle is asked for."""
    array = device.allocate(100, kind)  # type: ignore[arg-type]
    device.driver.calls.clear()
    assert lendable(device, array.data.ptr) == reason
    assert device.driver.calls == {"pointer_attributes": 1}


def test_memory_of_others_is_recognised(device: FakeDevice) -> None:
    """Memory of the host, of another device, what the driver does not know, and regions of ours are not lent."""
    assert lendable(cpu(), 4096) == "memory of the host"
    other = fake_device(1).allocate(100)
    assert lendable(device, other.data.ptr) == "memory of another device"
    assert lendable(device, device.xp.zeros(10).data.ptr) == "memory that is not the device's"
    pool = Pool(device, budget=1 << 24)
    region = pool.region(100)
    assert lendable(device, region.address) == "memory without a handle (cuMemMap)"
    del region
    pool.close()


def test_an_allocation_has_one_handle(device: FakeDevice) -> None:
    """All addresses of an allocation have the same handle, of all of it; the next allocation has another."""
    array = device.allocate(1000)
    start = array.data.ptr
    first, last = lendable(device, start), lendable(device, start + 999)
    assert isinstance(first, LentHandle)
    assert first == last
    assert (first.address, first.nbytes, first.exporter) == (start, 1000, this_process())
    del array
    again = device.allocate(1000)
    assert again.data.ptr == start
    second = lendable(device, start)
    assert isinstance(second, LentHandle)
    assert second.uuid != first.uuid


def test_a_lent_region_goes_by_its_handle(device: FakeDevice) -> None:
    """A region over an allocation has its handle, and its owner lives as long as the region."""
    array = device.allocate(1000)
    handle = lendable(device, array.data.ptr)
    assert isinstance(handle, LentHandle)
    region = lend(device, handle, array)
    assert (handle_of(region), region.uuid, region.lent, region.shareable) == (
        handle,
        handle.uuid,
        True,
        True,
    )
    with pytest.raises(UsageError):
        Handle.of(region)
    before = device.driver.allocated
    del array
    assert device.driver.allocated == before
    del region
    assert device.driver.allocated == before - 1


# Opening.


@pytest.mark.usefixtures("no_leaks")
def test_what_is_lent_is_read_where_it_lies(exporter: Child, cache: MappingCache) -> None:
    """Memory of another process is opened once for all that use it, and what is written there is seen."""
    _, handle = lent_by(exporter, 7)
    region = cache.open_lent(handle)
    again = cache.open_lent(handle)
    assert again is region
    assert (value_of(region), region.nbytes, region.shareable) == (7, 1000, False)
    assert (cache.stats.misses, cache.stats.hits) == (1, 1)


def test_a_handle_of_a_part_reaches_to_the_end_of_its_granule(
    exporter: Child, device: FakeDevice, cache: MappingCache
) -> None:
    """Where a bare handle opens in the middle of an allocation, what lies before it is not counted as behind it."""
    tokens = [bytes.fromhex(each) for each in exporter.call("small", sizes=[600, 600, 600])]
    regions = [cache.open_token(each, device) for each in tokens]
    assert [region.nbytes for region in regions] == [4096, 4096 - 1024, 4096 - 2048]
    seen = [device.to_host(region.array(0, 600)) for region in regions]
    assert [set(each.tolist()) for each in seen] == [{0}, {1}, {2}]
    regions.clear()
    gc.collect()
    cache.trim()


def test_it_is_closed_when_the_device_is_done(
    exporter: Child, device: FakeDevice, cache: MappingCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No finalizer closes it; the sweep does, once the device has done what was queued, and nothing stays idle."""
    _, handle = lent_by(exporter, 7)
    region = cache.open_lent(handle)
    order: list[str] = []
    for name in ("event_done", "close_ipc_handle"):
        call = getattr(device.driver, name)
        monkeypatch.setattr(device.driver, name, _noting(call, name, order))
    del region
    gc.collect()
    assert not order
    cache.trim()
    assert order == ["event_done", "close_ipc_handle"]
    assert cache.stats.idle == 0


def _noting(call: Callable[..., Any], name: str, order: list[str]) -> Callable[..., Any]:
    def noted(*arguments: Any) -> Any:
        order.append(name)
        return call(*arguments)

    return noted


def test_opened_and_closed_again_and_again(exporter: Child, device: FakeDevice) -> None:
    """Two caches, as two threads that come together, each open and close for themselves."""
    _, handle = lent_by(exporter, 5)
    one, other = MappingCache(), MappingCache()
    first, second = one.open_lent(handle), other.open_lent(handle)
    assert first.address == second.address
    del first
    one.trim()
    assert value_of(second) == 5
    assert device.is_borrowed(second.address + 999)
    assert not device.is_borrowed(second.address + 1000)
    del second
    other.trim()


def test_an_address_that_is_used_again(exporter: Child, cache: MappingCache) -> None:
    """While old memory is still open, new memory at its address over there is opened for itself."""
    address, handle = lent_by(exporter, 1)
    old = cache.open_lent(handle)
    exporter.call("free", address=address)
    address_again, handle_again = lent_by(exporter, 2)
    assert address_again == address
    new = cache.open_lent(handle_again)
    assert (value_of(new), value_of(old)) == (2, 1)
    exporter.call("free", address=address)


def test_the_lending_process_opens_nothing(device: FakeDevice, cache: MappingCache) -> None:
    """A reader in the process that lends gets the memory where it lies, without the driver, which would refuse."""
    array = device.allocate(100)
    handle = lendable(device, array.data.ptr)
    assert isinstance(handle, LentHandle)
    with pytest.raises(DeviceError, match="INVALID_CONTEXT"):
        device.driver.open_ipc_handle(0, handle.token)
    with pytest.raises(InvalidRegion, match="lends no such memory"):
        cache.open_lent(handle)
    lent = lend(device, handle, array)
    device.driver.calls.clear()
    region = cache.open_lent(handle)
    assert (region.address, region.shareable) == (array.data.ptr, False)
    assert not device.driver.calls
    del lent, region
    with pytest.raises(InvalidRegion, match="lends no such memory"):
        cache.open_lent(dataclasses.replace(handle, address=4096))


def test_allocations_that_are_not_where_they_are_said_to_be(
    exporter: Child, device: FakeDevice, cache: MappingCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is opened must lie in the allocation from its first byte on; what is open is all that anybody opened."""
    _, handle = lent_by(exporter, 4)
    whole = cache.open_lent(handle)
    part = cache.open_lent(dataclasses.replace(handle, nbytes=10))
    assert whole.address == part.address
    assert device.is_borrowed(whole.address + 999)
    with monkeypatch.context() as patched:
        patched.setattr(device.driver, "address_range", lambda _, address: (address + 1, 1 << 20))
        with pytest.raises(InvalidRegion, match="smaller"):
            MappingCache().open_lent(handle)


def test_memory_is_not_lent_on(exporter: Child, device: FakeDevice, cache: MappingCache) -> None:
    """What another process lends is not lent on, also not by somebody's view of it."""
    _, handle = lent_by(exporter, 1)
    region = cache.open_lent(handle)
    assert lendable(device, region.address + 10) == "memory of another producer"


@pytest.mark.usefixtures("no_leaks")
@pytest.mark.parametrize("call", ["open_ipc_handle", "address_range"])
def test_a_driver_that_fails_while_memory_is_opened(
    exporter: Child, device: FakeDevice, cache: MappingCache, call: str
) -> None:
    """Whichever call fails, the region is refused, nothing stays open, and the next one is opened."""
    _, handle = lent_by(exporter, 4)
    held = device.driver.held
    device.driver.fail_next(call)
    with pytest.raises(InvalidRegion, match="cannot be opened"):
        cache.open_lent(handle)
    assert device.driver.held == held
    assert value_of(cache.open_lent(handle)) == 4


def test_more_than_there_is(exporter: Child, device: FakeDevice, cache: MappingCache) -> None:
    """A handle that announces more than the allocation has is refused before anybody looks at it, and closed."""
    _, handle = lent_by(exporter, 4, nbytes=5000)
    held = device.driver.held
    for nbytes in (5001, 2**63, 0):
        with pytest.raises(InvalidRegion):
            cache.open_lent(dataclasses.replace(handle, nbytes=nbytes))
    assert device.driver.held == held
    assert cache.open_lent(dataclasses.replace(handle, nbytes=4999)).nbytes == 4999


@pytest.mark.parametrize("whose", ["another process", "this process"])
def test_lent_memory_goes_to_a_peer(
    exporter: Child, device: FakeDevice, cache: MappingCache, whose: str
) -> None:
    """Another device copies it directly; who may read is only asked of memory that the driver mapped for us."""
    if whose == "another process":
        region = cache.open_lent(lent_by(exporter, 6)[1])
    else:
        array = device.allocate(1000)
        array[:] = 6
        handle = lendable(device, array.data.ptr)
        assert isinstance(handle, LentHandle)
        region = lend(device, handle, array)
    into = Pool(fake_device(1), budget=1 << 24).allocate(1000)
    device.driver.calls.clear()
    stretch = Stretch(0, 1000, region.address)
    road = carry(lambda: [stretch], device, into, [region])
    assert (road.name, device.driver.calls["set_access"]) == ("peer copy", 0)
    assert set(into.to_host().tolist()) == {6}
    del region, into


def test_memory_that_was_freed(exporter: Child, cache: MappingCache) -> None:
    """A handle of memory that its process has freed meanwhile is refused, with what can be done."""
    address, handle = lent_by(exporter, 4)
    exporter.call("free", address=address)
    with pytest.raises(InvalidRegion, match="was freed"):
        cache.open_lent(handle)


def test_a_process_that_has_ended(device: FakeDevice, cache: MappingCache) -> None:
    """What a process lent cannot be opened when it has ended; the driver is not asked."""
    with Child(Exporter) as child:
        _, handle = lent_by(child, 4)
        os.kill(child.pid, signal.SIGKILL)
    device.driver.calls.clear()
    with pytest.raises(InvalidRegion, match=r"has ended.*in_place"):
        cache.open_lent(handle)
    assert not device.driver.calls


def test_a_process_of_another_place(exporter: Child, device: FakeDevice, cache: MappingCache) -> None:
    """A handle of another machine or PID namespace is refused without the driver: its PID is another's here."""
    _, handle = lent_by(exporter, 4)
    device.driver.calls.clear()
    for change in ({"namespace": 5}, {"boot_id": bytes(16)}):
        elsewhere = dataclasses.replace(handle.exporter, **change)
        with pytest.raises(InvalidRegion, match="PID namespace"):
            cache.open_lent(dataclasses.replace(handle, exporter=elsewhere))
    assert not device.driver.calls


def test_devices_that_are_none(exporter: Child, cache: MappingCache) -> None:
    """Lent memory of the host, or of a device that is not here, is refused."""
    _, handle = lent_by(exporter, 4)
    with pytest.raises(InvalidRegion, match="host"):
        cache.open_lent(dataclasses.replace(handle, arrow_device_type=1))
    with pytest.raises(BowstringError):
        cache.open_lent(dataclasses.replace(handle, device_uuid=bytes(16)))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(change=st.data())
def test_hostile_handles_are_harmless(honest: LentHandle, device: FakeDevice, change: st.DataObject) -> None:
    """Whatever a handle says that its sender may have made up, it is refused, or memory of the size it says."""
    handle = honest
    parts: dict[str, st.SearchStrategy[Any]] = {
        "token": st.binary(min_size=64, max_size=64) | st.just(handle.token),
        "nbytes": NUMBERS | st.integers(0, 2000),
        "buffer_id": NUMBERS,
        "address": NUMBERS,
        "exporter": PROCESSES | st.sampled_from([handle.exporter, this_process()]),
        "device_uuid": st.sampled_from([handle.device_uuid, bytes(16)]),
        "arrow_device_type": st.sampled_from([handle.arrow_device_type, 1, 99]),
    }
    made: dict[str, Any] = {name: change.draw(values, label=name) for name, values in parts.items()}
    hostile = unpack_handle(dataclasses.replace(handle, **made).pack())
    assert isinstance(hostile, LentHandle)
    cache = MappingCache()
    try:
        region = cache.open_lent(hostile)
    except BowstringError:
        pass
    else:
        assert region.nbytes == hostile.nbytes <= 1000
        assert value_of(region) == 4
        del region
    cache.clear()


def test_names_of_both_kinds_do_not_meet(exporter: Child, device: FakeDevice, cache: MappingCache) -> None:
    """A descriptor under the name of lent memory is never taken for it, whichever came first."""
    _, handle = lent_by(exporter, 4)
    pool = Pool(device, budget=1 << 24)
    region = pool.region(1000)
    assert region.slab is not None
    false = Handle(handle.uuid, device.uuid, region.slab.nbytes, device.arrow_device_type)
    lent = cache.open_lent(handle)
    with pytest.raises(InvalidRegion, match="name of another"):
        cache.open(false, os.dup(region.slab.fd))
    del lent
    gc.collect()  # of the frames of what was raised
    cache.trim()
    mapped = cache.open(false, os.dup(region.slab.fd))
    with pytest.raises(InvalidRegion, match="name of another"):
        cache.open_lent(handle)
    del mapped
    gc.collect()
    # Idle under that name: what is opened beside it is the lent memory.
    assert value_of(cache.open_lent(handle)) == 4
    gc.collect()
    cache.clear()
    del region
    pool.close()


def test_a_forked_child_is_refused(
    exporter: Child, device: FakeDevice, cache: MappingCache, in_child: Callable[[Callable[[], bool]], bool]
) -> None:
    """A child that was forked cannot open lent memory, and is another process to those that lend."""
    _, handle = lent_by(exporter, 4)
    here = this_process()

    def refused() -> bool:
        try:
            device.open_lent(handle)
        except ForkedError:
            return this_process() != here and this_process().pid == os.getpid()
        return False

    assert in_child(refused)


def test_a_device_that_disappears(exporter: Child, device: FakeDevice, cache: MappingCache) -> None:
    """When the device is gone nothing can be lent or opened, and giving back says nothing."""
    array = device.allocate(8)
    _, handle = lent_by(exporter, 4)
    region = cache.open_lent(handle)
    device.driver.disappear()
    with pytest.raises(DeviceError, match="UNAVAILABLE"):
        lendable(device, array.data.ptr)
    with pytest.raises(InvalidRegion, match="UNAVAILABLE"):
        MappingCache().open_lent(handle)
    address = region.address
    del region
    cache.trim()
    device.driver.come_back()
    device.driver.close_ipc_handle(0, address)  # lost with the device: the test gives it back


def test_arrays_of_other_libraries(device: FakeDevice) -> None:
    """The fake's allocations can be written, and are freed with the last array over them, once."""
    before = device.driver.allocated
    array = device.allocate(800)
    view = array.view("<i8")[10:20]
    view[:] = device.from_host(np.arange(10))
    del array
    assert device.driver.allocated == before + 1
    assert device.to_host(view).tolist() == list(range(10))
    address = view.data.ptr - 80
    del view
    assert device.driver.allocated == before
    with pytest.raises(DeviceError, match="free"):
        device.driver.free(address)
