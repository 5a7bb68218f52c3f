"""The pool: warm slabs within a budget, never used again while anybody may look at them."""

from __future__ import annotations

import collections
import gc
import itertools
import os
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from bowstring import memory
from bowstring.errors import ClosedError, ForkedError, OutOfBudget, UsageError
from bowstring.memory import Buffer, Device, Lease, Pool, cpu, default_pool
from bowstring.testing import fake_device
from tests.faults.interrupting import interrupted

MIB = 1 << 20


def test_slabs_come_back_warm(pool: Pool) -> None:
    """A region that nobody uses any more serves the next need of its size, and nothing new is made."""
    region = pool.region(100)
    uuid = region.uuid
    del region
    gc.collect()
    again = pool.region(50)
    assert again.uuid == uuid
    found = pool.stats
    assert (found.made, found.reused, found.in_use, found.idle) == (1, 1, again.nbytes, 0)


def test_size_classes_waste_little() -> None:
    """A slab is at least as large as asked for, and at most twice, from a MiB up."""
    pool = Pool(budget=2048 * MIB)
    for nbytes in (0, 1, MIB - 1, MIB, MIB + 1, 3 * MIB, 64 * MIB, 64 * MIB + 1, 1000 * MIB):
        size = pool.region(nbytes).nbytes
        assert size >= max(nbytes, 1)
        assert size <= max(MIB, 2 * nbytes)
        pool.trim()


def test_the_budget_holds_before_anything_is_allocated(device: Device) -> None:
    """A need beyond the budget raises OutOfBudget and makes nothing; idle slabs give way to new ones."""
    pool = Pool(device, budget=4 * MIB)
    kept = pool.region(2 * MIB)
    made = pool.stats.made
    for nbytes in (3 * MIB, 1 << 40, 1 << 62):
        with pytest.raises(OutOfBudget, match="budget"):
            pool.region(nbytes)
    assert pool.stats.made == made
    del kept
    gc.collect()
    whole = pool.region(4 * MIB)
    found = pool.stats
    assert (found.in_use, found.idle) == (4 * MIB, 0)
    del whole
    with pytest.raises(UsageError):
        pool.region(-1)
    with pytest.raises(UsageError):
        Pool(device, budget=0)


def test_a_slab_that_cannot_be_made_is_not_counted() -> None:
    """When the device fails, the budget is as before, and idle memory dropped to make room stays dropped."""
    fake = fake_device()
    pool = Pool(fake, budget=2 * MIB)
    fake.fail_next("allocate")
    with pytest.raises(OutOfBudget):
        pool.region(MIB)
    found = pool.stats
    assert (found.in_use, found.made) == (0, 0)
    assert pool.region(2 * MIB).nbytes == 2 * MIB


def test_allocators_share_with_no_one(pool: Pool) -> None:
    """What one allocator cuts lies in regions of its own, one behind the other, without overlap."""
    first, second = pool.allocator(1000), pool.allocator(1000)
    ours = [first.allocate(100) for _ in range(3)]
    theirs = [second.allocate(100) for _ in range(3)]
    assert {each.region.uuid for each in ours}.isdisjoint(each.region.uuid for each in theirs)
    assert len({each.region.uuid for each in ours}) == 1
    starts = [each.address for each in ours]
    assert all(after - before >= 100 for before, after in itertools.pairwise(starts))
    with pytest.raises(UsageError):
        first.allocate(-1)


def test_many_sizes_never_overlap(pool: Pool) -> None:
    """Buffers of any size, empty ones and ones larger than a slab among them, lie apart from each other."""
    rng = np.random.default_rng(0)
    buffers = [pool.allocate(int(size)) for size in rng.integers(0, 200_000, 60)]
    spans = sorted((each.address, each.address + each.nbytes) for each in buffers)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
    for each in buffers:
        assert each.region.address <= each.address
        assert each.address + each.nbytes <= each.region.address + each.region.nbytes


def test_a_window_of_buffers_holds_little_more_than_itself() -> None:
    """Where buffers are made and dropped in order, used and idle memory are less than twice what is alive."""
    pool, alive = Pool(budget=512 * MIB), 64
    allocator = pool.allocator()
    window: collections.deque[Buffer] = collections.deque(maxlen=alive)
    for _ in range(10 * alive):
        window.append(allocator.allocate(MIB))
        found = pool.stats
        assert found.in_use + found.idle <= 1.75 * alive * MIB


def test_a_retired_slab_is_never_used_again(pool: Pool) -> None:
    """When a region was retired its slab goes back to the system, not to the pool."""
    region = pool.region(1)
    uuid = region.uuid
    region.retire()
    del region
    gc.collect()
    assert pool.region(1).uuid != uuid
    assert pool.stats.retired == 1


def test_a_closed_pool_says_so(device: Device) -> None:
    """A closed pool gives nothing more; what is in use stays true until it goes."""
    pool = Pool(device, budget=4 * MIB)
    buffer = pool.allocator(1).allocate(8)
    with buffer.writable() as array:
        array[:] = 5
    del array
    pool.close()
    pool.close()
    for call in (lambda: pool.allocate(1), lambda: pool.region(1), lambda: pool.warm(1)):
        with pytest.raises(ClosedError):
            call()
    assert buffer.to_host().tolist() == [5] * 8
    del buffer
    gc.collect()
    found = pool.stats
    assert (found.in_use, found.idle) == (0, 0)


def test_warming_makes_idle_memory(pool: Pool) -> None:
    """Warm memory is idle memory of that size, and the next need takes it."""
    pool.warm(3 * MIB)
    assert pool.stats.idle == 4 * MIB
    region = pool.region(3 * MIB)
    assert pool.stats.reused == 1
    assert region.nbytes == 4 * MIB


def test_what_comes_home_to_a_closed_pool_is_given_back(device: Device, no_leaks: None) -> None:
    """After closing, the memory of a region that goes is unmapped, though nobody calls the pool again."""
    pool = Pool(device, budget=4 * MIB)
    region = pool.region(1)
    assert region.slab is not None
    slab = weakref.ref(region.slab)
    pool.close()
    assert slab() is not None
    del region
    gc.collect()
    assert slab() is None
    assert repr(pool)


class Recycling(RuleBasedStateMachine):
    """Whatever happens to a pool, the bytes under a live view never change, and the budget holds."""

    device: Device = cpu()
    buffers = Bundle("buffers")
    views = Bundle("views")

    def __init__(self) -> None:
        super().__init__()
        self.pool = Pool(self.device, budget=6 * MIB)
        self.written = 0
        self.live: dict[int, tuple[Any, int]] = {}
        self.retired: set[bytes] = set()

    @rule(target=buffers, size=st.integers(1, 3 * MIB))
    def allocate(self, size: int) -> Any:
        """Take a buffer, fill it with a value of its own, and freeze it."""
        try:
            buffer = self.pool.allocator(size).allocate(size)
        except OutOfBudget:
            return multiple()
        assert buffer.region.uuid not in self.retired
        self.written = self.written % 250 + 1
        with buffer.writable() as array:
            array[:] = self.written
        del array
        buffer.freeze()
        self.watch(buffer, self.written)
        return buffer, self.written

    def watch(self, thing: Any, value: int) -> None:
        """Note what a live thing must show."""
        self.live[id(thing)] = (thing, value)

    @rule(target=views, pair=buffers, kind=st.sampled_from(["array", "slice", "leased", "arrow"]))
    def view(self, pair: tuple[Buffer, int], kind: str) -> Any:
        """Look at a buffer in some way."""
        buffer, value = pair
        thing: Any = buffer.array()[3:] if kind == "array" else buffer.slice(0, buffer.nbytes // 2)
        if kind == "leased":
            lease = Lease([buffer.region])
            thing = Buffer(buffer.region, buffer.offset, buffer.nbytes, lease).array()
        if kind == "arrow" and self.device.is_host:
            thing = buffer.to_arrow()
        self.watch(thing, value)
        return thing, value

    @rule(pair=consumes(buffers))
    def drop_buffer(self, pair: tuple[Buffer, int]) -> None:
        """Let a buffer go; its views stay."""
        del self.live[id(pair[0])]

    @rule(pair=consumes(views))
    def drop_view(self, pair: tuple[Any, int]) -> None:
        """Let a view go."""
        self.live.pop(id(pair[0]), None)

    @rule(pair=buffers)
    def retire(self, pair: tuple[Buffer, int]) -> None:
        """A reader of this region was lost."""
        pair[0].region.retire()
        self.retired.add(pair[0].region.uuid)

    @rule()
    def trim(self) -> None:
        """Give idle memory back."""
        self.pool.trim()

    @rule()
    def fork(self) -> None:
        """What a fork does to the parent's pool."""
        self.pool.before_fork()
        self.pool.after_fork()

    @invariant()
    def views_show_what_was_written(self) -> None:
        """Every live thing shows the value that was written for it."""
        for thing, value in self.live.values():
            if isinstance(thing, Buffer):
                shown = thing.to_host()
            elif hasattr(thing, "to_pybytes"):
                shown = np.frombuffer(thing, np.uint8)
            else:
                shown = self.device.to_host(thing)
            assert not len(shown) or (shown[0], shown[-1]) == (value, value)

    @invariant()
    def the_budget_holds(self) -> None:
        """Used and idle memory together stay within the budget."""
        found = self.pool.stats
        assert found.in_use + found.idle <= found.budget

    def teardown(self) -> None:
        """Check that all memory comes home."""
        self.live.clear()
        self.pool.close()


class RecyclingOnADevice(Recycling):
    """The same on the fake device."""

    device = fake_device()


TestRecycling = Recycling.TestCase
TestRecyclingOnADevice = RecyclingOnADevice.TestCase
TestRecycling.settings = TestRecyclingOnADevice.settings = settings(max_examples=30, stateful_step_count=30)


def test_threads_share_a_pool(device: Device) -> None:
    """Threads that allocate, write, look and drop at once see their own bytes, and all memory comes home."""
    pool = Pool(device, budget=256 * MIB)
    errors: list[str] = []

    def work(number: int) -> None:
        for turn in range(40):
            buffer = pool.allocator(1000).allocate(1000) if turn % 2 else pool.allocate(1000)
            with buffer.writable() as array:
                array[:] = number
            view = buffer.array()
            del buffer, array
            if set(device.to_host(view).tolist()) != {number}:
                errors.append(f"thread {number}, turn {turn}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    pool.close()
    gc.collect()
    assert pool.stats.in_use == 0


def test_a_child_cannot_use_the_pool(pool: Pool, in_child: Callable[[Callable[[], bool]], bool]) -> None:
    """In a forked child the parent's pool raises ForkedError; one of its own works, but on a driver's device."""

    def check() -> bool:
        for call in (lambda: pool.allocate(1), lambda: pool.region(1), lambda: pool.warm(1)):
            try:
                call()
            except ForkedError:
                continue
            return False
        own = Pool(pool.device, budget=2 * MIB)
        works = own.allocate(8).nbytes == 8 if own.device.is_host else _raises_forked(lambda: own.allocate(8))
        return works and default_pool().budget > 0

    allocator = pool.allocator()
    allocator.allocate(1)
    assert in_child(check)
    assert in_child(lambda: _raises_forked(lambda: allocator.allocate(1)))


def _raises_forked(call: Callable[[], object]) -> bool:
    try:
        call()
    except ForkedError:
        return True
    return False


def test_what_a_child_may_see_is_never_used_again(
    pool: Pool, in_child: Callable[[Callable[[], bool]], bool]
) -> None:
    """A region in use at a fork is retired: the child's view of it stays true whatever the parent does."""
    buffer = pool.allocator(8).allocate(8)
    with buffer.writable() as array:
        array[:] = 1
    del array
    ready, go = os.pipe(), os.pipe()
    pid = os.fork()
    if not pid:
        status = 1
        try:
            os.write(ready[1], b"x")
            os.read(go[0], 1)
            status = 0 if buffer.to_host().tolist() == [1] * 8 else 2
        finally:
            os._exit(status)
    os.read(ready[0], 1)
    uuid = buffer.region.uuid
    del buffer
    gc.collect()
    for _ in range(20):
        fresh = pool.allocator(8).allocate(8)
        assert fresh.region.uuid != uuid
        with fresh.writable() as array:
            array[:] = 2
        del array, fresh
    os.write(go[1], b"x")
    assert os.waitpid(pid, 0)[1] == 0
    for fd in (*ready, *go):
        os.close(fd)


def test_a_child_that_ends_frees_nothing_of_the_parents(
    pool: Pool, in_child: Callable[[Callable[[], bool]], bool]
) -> None:
    """Objects of the parent that a child collects stay alive in the parent, with their descriptors."""
    held = [pool.allocate(8)]
    slab = held[0].region.slab
    assert slab is not None

    def check() -> bool:
        held.clear()
        gc.collect()
        return True

    assert in_child(check)
    assert os.fstat(slab.fd).st_size >= slab.nbytes
    assert len(held[0].to_host()) == 8


def test_the_default_pool_is_one_a_process(in_child: Callable[[Callable[[], bool]], bool]) -> None:
    """There is one default pool, and another one in a child."""
    parents = default_pool()
    assert default_pool() is parents
    assert in_child(lambda: default_pool() is not parents)


@pytest.mark.parametrize("file", ["pool.py", "region.py", "lease.py"])
@pytest.mark.parametrize("idle", [(), (MIB,), (MIB,) * 4], ids=["fresh", "warm", "dropped"])
@pytest.mark.parametrize("closes", [False, True])
def test_an_interrupt_before_any_line_leaves_nothing_in_use(
    file: str, idle: tuple[int, ...], closes: bool
) -> None:
    """A region that is taken and ends is counted, or not, wherever an interrupt comes; its pool is whole again."""
    size = 4 * MIB if len(idle) > 1 else MIB

    def take() -> None:
        region = pool.region(size)
        if closes:
            pool.close()
        del region
        assert pool.stats.in_use == 0

    for line in itertools.count():
        pool = Pool(budget=4 * MIB)
        held = [pool.region(nbytes) for nbytes in idle]
        del held
        _, lines = interrupted(take, line, str(Path(memory.__file__).parent / file))
        assert pool.stats.in_use == 0, line
        assert closes or pool.region(4 * MIB).nbytes == 4 * MIB
        if lines <= line:
            break
