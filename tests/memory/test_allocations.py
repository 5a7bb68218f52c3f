"""What CuPy and RMM allocate from a pool: in order with streams, within its budget, freed from anywhere."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import bowstring as bow
from bowstring.errors import ClosedError, DeviceError, ForkedError, NotOnDevice, OutOfBudget, UsageError
from bowstring.memory import NamedStream
from bowstring.testing import FakeDevice, fake_device

MIB = 1 << 20
STREAMS = (0, 5, 6, 7)


@pytest.fixture
def device() -> Iterator[FakeDevice]:
    """Return a fake device that works on nothing when the test begins and ends."""
    device = fake_device()
    device.sweep()
    yield device
    for stream in STREAMS:
        device.driver.end_work(stream)
        device.driver.end_capture(stream)
    gc.collect()
    device.rest(5.0)
    device.sweep()


class Stream:
    """A stream as RMM hands it to its callbacks: its address, by CUDA's protocol."""

    def __init__(self, address: int) -> None:
        self._address = address

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._address


def _rmm_stream(resource: Any, address: int) -> Any:
    """Return a stream that a resource takes: RMM's own takes its own alone."""
    if not type(resource).__module__.startswith("rmm."):
        return Stream(address)
    from rmm.pylibrmm.stream import Stream as RmmStream

    return RmmStream(Stream(address))


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30.0
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def _swept(device: FakeDevice) -> set[int]:
    gc.collect()
    device.sweep()
    return device.driver.held_ranges


@pytest.mark.parametrize("nbytes", [1, 511, 512, 513, MIB, MIB + 1, 2 * MIB, 5 * MIB, 70 * MIB])
def test_allocations_lie_apart_and_are_counted(device: FakeDevice, nbytes: int) -> None:
    """Whatever their size, allocations are aligned and share no byte, and their memory is the pool's again."""
    pool = bow.Pool(device, budget=512 * MIB)
    resource = pool.rmm()
    found = sorted(resource.allocate(nbytes) for _ in range(3))
    assert all(second - first >= nbytes for first, second in itertools.pairwise(found))
    assert not any(address % 256 for address in found)
    assert 3 * nbytes <= pool.stats.allocated == pool.stats.in_use
    for address in found:
        resource.deallocate(address, nbytes)
    assert pool.stats.allocated == pool.stats.in_use == 0
    before = pool.stats.made
    assert resource.allocate(nbytes)
    assert pool.stats.made == before


SIZES = st.sampled_from([1, 600, MIB // 2, MIB, 2 * MIB, 3 * MIB])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("allocate"), st.sampled_from(STREAMS), SIZES),
        st.tuples(st.just("free"), st.sampled_from(STREAMS), st.integers(0, 100)),
        st.tuples(st.just("work"), st.sampled_from(STREAMS), st.integers(0, 100)),
        st.tuples(st.just("end"), st.sampled_from(STREAMS), st.none()),
    ),
    max_size=40,
)


def _is_ordered(device: FakeDevice, steps: list[tuple[str, int, Any]], budget: int) -> bool:
    """Take the steps of a user of RMM; return whether each allocation was behind what read its memory before."""
    pool = bow.Pool(device, budget=budget)
    resource, driver, page = pool.rmm(), device.driver, 512
    streams = {each: _rmm_stream(resource, each) for each in STREAMS}
    live: list[tuple[int, int, int]] = []
    read: dict[int, list[object]] = {}  # what was queued, by the pages that it reads
    works: dict[int, list[object]] = {each: [] for each in STREAMS}
    ordered = True
    for kind, stream, number in steps:
        if kind == "allocate":
            with contextlib.suppress(MemoryError, OutOfBudget):
                address = resource.allocate(number, streams[stream])
                live.append((address, number, stream))
                for at in range(address // page, -(-(address + number) // page)):
                    ordered &= all(driver.is_behind(stream, work) for work in read.pop(at, ()))
        elif kind == "end":
            driver.end_work(stream)
        elif live and kind == "work":  # on the stream of the allocation, as RMM's users do
            user = live[number % len(live)][2]
            works[user].append(driver.begin_work(user))
        elif live:
            address, nbytes, first = live.pop(number % len(live))
            for at in range(address // page, -(-(address + nbytes) // page)):
                read[at] = [*works[first], *works[stream]]
            resource.deallocate(address, nbytes, streams[stream])
    for stream in STREAMS:
        driver.end_work(stream)
    for address, nbytes, stream in live:
        resource.deallocate(address, nbytes, streams[stream])
    assert pool.stats.in_use == 0
    pool.close()
    return ordered


# Two streams share a region that was used before, which one of them took.
_HALVES: list[tuple[str, int, Any]] = [
    *[("allocate", 5, MIB)] * 2, ("work", 5, 0), *[("free", 5, 0)] * 2, ("allocate", 6, MIB), ("allocate", 7, MIB)
]  # fmt: skip


@given(steps=STEPS, budget=st.sampled_from([4 * MIB, 64 * MIB]))
@example(steps=_HALVES, budget=64 * MIB)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_memory_is_used_again_behind_all_that_read_it(
    device: FakeDevice, steps: list[tuple[str, int, Any]], budget: int
) -> None:
    """On whatever streams memory is allocated, used and freed, whoever gets it next waits; the host need not."""
    # Where the pool is full, the host waits for work, which here nobody would end.
    with _work_that_ends_when_it_is_asked_for(device):
        assert _is_ordered(device, steps, budget)


@contextlib.contextmanager
def _work_that_ends_when_it_is_asked_for(device: FakeDevice) -> Iterator[None]:
    ask = device.driver.event_done

    def event_done(ordinal: int, event: int) -> bool:
        for stream in () if ask(ordinal, event) else STREAMS:
            device.driver.end_work(stream)
            if ask(ordinal, event):
                break
        return ask(ordinal, event)

    device.driver.event_done = event_done  # type: ignore[method-assign]
    try:
        yield
    finally:
        del device.driver.event_done


def test_a_missing_wait_would_be_found(device: FakeDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a driver whose streams do not wait for events, the property above does not hold."""
    monkeypatch.setattr(device.driver, "stream_wait_event", lambda *_: None)
    steps: list[tuple[str, int, Any]] = [
        ("allocate", 5, 2 * MIB),
        ("work", 5, 0),
        ("free", 5, 0),
        ("allocate", 6, 2 * MIB),
    ]
    with _work_that_ends_when_it_is_asked_for(device):
        assert not _is_ordered(device, steps, 64 * MIB)


@pytest.mark.parametrize("nbytes", [1000, 3 * MIB])
@pytest.mark.parametrize("stream", [5, 6])
def test_the_host_does_not_wait_for_what_was_freed(device: FakeDevice, nbytes: int, stream: int) -> None:
    """A stream that gets memory which others read still waits for them itself, and the host does not."""
    pool = bow.Pool(device, budget=2 * MIB * (1 + (nbytes > MIB)))
    resource = pool.rmm()
    first = resource.allocate(nbytes, _rmm_stream(resource, 5))
    device.driver.begin_work(5)
    resource.deallocate(first, nbytes, _rmm_stream(resource, 5))
    assert resource.allocate(nbytes, _rmm_stream(resource, stream)) == first
    assert not device.driver.is_idle(stream)
    device.driver.end_work(5)
    assert device.driver.is_idle(stream)


def test_what_is_published_waits_for_freed_memory(device: FakeDevice) -> None:
    """The pool itself uses what a library freed when the streams are done, and takes fresh memory until then."""
    pool = bow.Pool(device, budget=8 * MIB)
    resource = pool.rmm()
    freed = resource.allocate(2 * MIB, _rmm_stream(resource, 5))
    device.driver.begin_work(5)
    resource.deallocate(freed, 2 * MIB, _rmm_stream(resource, 5))
    assert pool.region(2 * MIB).address != freed
    device.driver.end_work(5)
    assert pool.region(2 * MIB).address == freed


@pytest.mark.parametrize("how", ["trim", "close", "close later"])
def test_freed_memory_is_unmapped_when_streams_are_done(device: FakeDevice, how: str) -> None:
    """A pool that gives memory back leaves it mapped as long as a stream reads what a library freed there."""
    pool = bow.Pool(device, budget=64 * MIB)
    resource = pool.rmm()
    freed = resource.allocate(2 * MIB, _rmm_stream(resource, 5))
    device.driver.begin_work(5)
    if how == "close":
        pool.close()
    resource.deallocate(freed, 2 * MIB, _rmm_stream(resource, 5))
    assert how == "close" or pool.stats.idle
    gives_back = threading.Thread(target=pool.trim if how == "trim" else pool.close)
    gives_back.start()
    del pool, resource
    for _ in range(10):
        gc.collect()
        device.sweep(0.005)
        assert freed in device.driver.held_ranges
    device.driver.end_work(5)
    gives_back.join(30.0)
    del gives_back
    _until(lambda: freed not in _swept(device))


def test_frees_come_from_anywhere(device: FakeDevice) -> None:
    """A free in a collection that begins in the midst of an allocation, in any thread, is one like others."""
    pool = bow.Pool(device, budget=64 * MIB)
    before = gc.get_threshold()
    failures: list[BaseException] = []

    def use() -> None:
        try:
            with pool.cupy():
                for number in range(100):
                    try:
                        cycle: list[Any] = [device.xp.full(100 + 200_000 * (number % 3), number)]
                    except OutOfBudget:  # by cycles that were not looked at yet
                        gc.collect()
                    else:
                        cycle.append(cycle)
        except BaseException as error:  # noqa: BLE001  raised below
            failures.append(error)

    threads = [threading.Thread(target=use) for _ in range(3)]
    gc.collect()
    gc.freeze()  # else each collection looks at all that the tests have
    gc.set_threshold(1)
    try:
        for each in threads:
            each.start()
        for each in threads:
            each.join(200.0)
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
    assert not failures
    del threads
    gc.collect()
    assert pool.stats.in_use == pool.stats.allocated == 0


def test_the_allocator_is_that_of_a_thread(device: FakeDevice) -> None:
    """CuPy allocates from the pool in the block and its thread, and nowhere else; arrays outlive the block."""
    pool = bow.Pool(device, budget=64 * MIB)
    elsewhere: list[Any] = []
    with pool.cupy():
        inside = device.xp.arange(10)
        thread = threading.Thread(target=lambda: elsewhere.append(device.xp.arange(10)))
        thread.start()
        thread.join(30.0)
        in_use = pool.stats.in_use
        sums = inside + inside
    outside = device.xp.arange(10)
    assert pool.stats.in_use == in_use == 2 * MIB
    assert device.to_host(sums).tolist() == list(range(0, 20, 2))
    del inside, sums
    assert pool.stats.in_use == 0
    assert len(elsewhere) == 1
    assert len(outside) == 10


def test_a_full_pool_refuses(device: FakeDevice) -> None:
    """Neither library gets more than the budget; what is freed can be allocated again."""
    pool = bow.Pool(device, budget=8 * MIB)
    with pool.cupy():
        held = device.xp.zeros(5 * MIB, np.uint8)
        with pytest.raises(OutOfBudget, match="no room"):
            device.xp.zeros(5 * MIB, np.uint8)
        with pytest.raises(MemoryError):
            pool.rmm().allocate(5 * MIB)
        del held
        assert len(device.xp.zeros(5 * MIB, np.uint8)) == 5 * MIB


def test_wrong_pools_and_devices_are_refused(device: FakeDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool of the host, of a GPU that exports nothing, and CuPy on another GPU are refused."""
    for call in ("cupy", "rmm"):
        with pytest.raises(UsageError, match="pool of the host"):
            getattr(bow.Pool(), call)()
    pool = bow.Pool(device, budget=8 * MIB)
    with fake_device(1).use(), pool.cupy(), pytest.raises(NotOnDevice, match="another GPU"):
        fake_device(1).xp.arange(3)
    monkeypatch.setattr(device, "exports", False)
    with pytest.raises(bow.errors.NotExportable):
        pool.cupy()


def test_a_pool_that_is_closed(device: FakeDevice) -> None:
    """Arrays stay valid after the pool is closed, and their memory goes with the last of them."""
    pool = bow.Pool(device, budget=8 * MIB)
    with pool.cupy():
        array = device.xp.full(1_000_000, 7)
        pool.close()
        with pytest.raises(ClosedError):
            device.xp.arange(3)
    address = array.data.ptr
    assert set(device.to_host(array).tolist()) == {7}
    del pool, array
    _until(lambda: address not in _swept(device))


def test_what_was_freed_is_given_back_when_the_pool_is_closed(device: FakeDevice) -> None:
    """Memory that was freed just before goes at once, though nobody asks the pool again."""
    pool = bow.Pool(device, budget=8 * MIB)
    resource = pool.rmm()
    addresses = [resource.allocate(nbytes) for nbytes in (1000, 3 * MIB)]
    for address, nbytes in zip(addresses, (1000, 3 * MIB), strict=True):
        resource.deallocate(address, nbytes)
    pool.close()
    _until(lambda: _swept(device).isdisjoint(addresses))


def test_a_free_that_no_event_can_follow(device: FakeDevice) -> None:
    """Memory that is freed inside the capture of a graph is not used again, and unmapped after it."""
    pool = bow.Pool(device, budget=64 * MIB)
    resource = pool.rmm()
    for nbytes in (1000, 3 * MIB):
        freed = resource.allocate(nbytes, _rmm_stream(resource, 5))
        device.driver.begin_capture(5)
        resource.deallocate(freed, nbytes, _rmm_stream(resource, 5))
        again = resource.allocate(nbytes, _rmm_stream(resource, 6))
        assert again != freed
        assert device.driver.end_capture(5)  # nothing has ended it
        resource.deallocate(again, nbytes, _rmm_stream(resource, 6))
    assert pool.stats.retired == 2
    assert pool.stats.in_use == 0


def test_a_driver_that_fails_at_a_free(device: FakeDevice) -> None:
    """A free never raises, whatever the driver says."""
    pool = bow.Pool(device, budget=64 * MIB)
    resource = pool.rmm()
    for call in ("event_create", "event_record", "stream_capturing"):
        address = resource.allocate(3 * MIB)
        device.sweep()  # else an event that is idle is taken
        device.driver.fail_next(call, DeviceError(f"{call} failed", found="CUDA_ERROR_UNKNOWN (999)"))
        resource.deallocate(address, 3 * MIB)
        assert pool.stats.in_use == 0
        device.driver._failures.pop(call, None)


def test_a_child_that_was_forked_frees_nothing(device: FakeDevice) -> None:
    """In the child arrays go without a call of the driver, and nothing is allocated."""
    pool = bow.Pool(device, budget=64 * MIB)
    resource = pool.rmm()
    with pool.cupy():
        arrays = [device.xp.arange(10), device.xp.arange(1_000_000)]
    device.sweep()
    before = device.driver.held
    pid = os.fork()
    if not pid:
        code = 1
        try:
            del arrays
            gc.collect()
            resource.deallocate(1, 1)
            with contextlib.suppress(ForkedError, MemoryError, RuntimeError):  # the last two are RMM's
                resource.allocate(100)
                os._exit(2)
            code = 0 if device.driver.held == before else 3
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert len(arrays[0]) == 10


def test_arrays_that_live_until_the_interpreter_ends() -> None:
    """Arrays of globals, of cycles and of threads are freed at the end of the interpreter without a word."""
    script = """
import threading, bowstring as bow
from bowstring.testing import fake_device
device = fake_device()
pool = bow.Pool(device, budget=64 << 20)
resource = pool.rmm()
with pool.cupy():
    kept = [device.xp.arange(1_000_000), device.xp.arange(10)]
    kept.append(kept)
address = resource.allocate(3 << 20)
class Late:
    def __del__(self, free=resource.deallocate):
        free(address, 3 << 20)
late = Late()
server = bow.Server(pool=pool)
server.publish("t", {"a": kept[0]}, share="in_place")
pool.close()
"""
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_streams_of_cupy(device: FakeDevice) -> None:
    """CuPy names no stream: memory is free behind the one that was current for its allocation, and for its end."""
    pool = bow.Pool(device, budget=64 * MIB)
    with pool.cupy():
        with device.on([NamedStream(5, None)]):
            array = device.xp.zeros(3 * MIB, np.uint8)
        address = array.data.ptr
        works = [device.driver.begin_work(5), device.driver.begin_work(6)]
        with device.on([NamedStream(6, None)]):
            del array
        with device.on([NamedStream(7, None)]):
            array = device.xp.zeros(3 * MIB, np.uint8)
    assert array.data.ptr == address
    assert all(device.driver.is_behind(7, work) for work in works)
