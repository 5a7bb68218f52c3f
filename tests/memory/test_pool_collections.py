"""Whoever is collected in the midst of the pool's counting may use the pool: the counts stay true."""

from __future__ import annotations

import contextlib
import gc
import os
import queue
import random
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

import pytest

import bowstring.memory.pool as pool_module
from bowstring.errors import OutOfBudget
from bowstring.memory import Handle, Lease, MappingCache, Pool, Region

MIB = 1 << 20
BUDGET = 8 * MIB
DEADLINE = 30.0


class Garbage:
    """A dead cycle: does something when it is collected, and leaves the next one."""

    def __init__(self, act: Callable[[], object], left: list[int]) -> None:
        self.itself = self
        self.act = act
        self.left = left

    def __del__(self) -> None:
        if self.left[0]:
            self.left[0] -= 1
            with contextlib.suppress(OutOfBudget):
                self.act()
            Garbage(self.act, self.left)


class Cycle:
    """Garbage that only the collector finds."""

    def __init__(self, held: object) -> None:
        self.itself = self
        self.held = held


class CollectingLock:
    """A lock that runs the garbage collector whenever it is held, on garbage made for it."""

    def __init__(self, litter: Callable[[], object]) -> None:
        self._lock = threading.Lock()
        self._litter = litter
        self.collections = 0

    def acquire(self, *arguments: Any) -> bool:
        taken = self._lock.acquire(*arguments)
        Cycle(self._litter())
        gc.collect()
        self.collections += 1
        return taken

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        gc.collect()
        self.release()


def within_deadline(work: Callable[[], None]) -> None:
    """Run something that might hang, and fail instead."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  handed to the test
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(DEADLINE)
    assert not thread.is_alive(), "a deadlock"
    if errors:
        raise errors[0]


@pytest.fixture
def collecting() -> Iterator[Callable[[Callable[[], object]], list[int]]]:
    """Return what makes garbage that is collected again and again, wherever anything is allocated."""
    threshold = gc.get_threshold()
    left = [0]

    def begin(act: Callable[[], object]) -> list[int]:
        gc.collect()
        left[0] = 4000
        Garbage(act, left)
        gc.set_threshold(1)
        return left

    try:
        yield begin
    finally:
        left[0] = 0
        gc.set_threshold(*threshold)
        gc.collect()


@pytest.mark.parametrize("seed", range(8))
def test_counts_are_true_whenever_somebody_is_collected(
    collecting: Callable[[Callable[[], object]], list[int]], seed: int
) -> None:
    """Finalizers that take regions, give them back and trim in the midst of anything break nothing and no sum."""
    rng = random.Random(seed)
    pool = Pool(budget=BUDGET)
    theirs: list[Region] = []

    def act() -> None:
        match rng.randrange(4):
            case 0 | 1:
                theirs.append(pool.region(rng.choice((MIB, 2 * MIB))))
            case 2:
                theirs.clear()
            case _:
                pool.trim()

    left = collecting(act)
    ours: list[Region] = []
    for _ in range(600):
        if rng.random() < 0.6:
            with contextlib.suppress(OutOfBudget):
                ours.append(pool.region(rng.choice((MIB, 3 * MIB))))
        elif ours:
            ours.pop(rng.randrange(len(ours)))
        found = pool.stats
        assert found.in_use >= 0
        assert found.idle >= 0
        assert found.in_use + found.idle <= BUDGET
    assert left[0] < 3900, "nobody was collected"
    left[0] = 0
    assert pool.stats.in_use == sum(region.nbytes for region in (*ours, *theirs))
    ours.clear()
    theirs.clear()
    assert pool.stats.in_use == 0


def test_what_is_counted_is_what_was_there_at_one_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slab that leaves while idle ones are summed is counted once, and as what it is then."""
    pool = Pool(budget=BUDGET)
    for size in (1, 2, 4):
        pool.warm(size * MIB)
    held: list[Region] = []

    def interrupted(sizes: Iterator[int]) -> int:
        total = next(sizes)
        if not held:
            held.append(pool.region(MIB))  # as a finalizer does that runs now
        return total + sum(sizes)

    monkeypatch.setattr(pool_module, "sum", interrupted, raising=False)
    for _ in range(2):
        found = pool.stats
        assert (found.in_use, found.idle) == (MIB, 6 * MIB)


def test_a_fork_retires_all_slabs_though_somebody_takes_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A finalizer that takes a region while slabs are noted for a fork stops nothing, nor is its slab missed."""
    pool = Pool(budget=BUDGET)
    held: list[Any] = [pool.region(MIB) for _ in range(3)]
    used = pool._used
    wanted = iter([MIB])

    class Interrupted(type(used)):  # type: ignore[misc]  # mypy cannot follow
        def __iter__(self) -> Iterator[Any]:
            for slab in super().__iter__():
                yield slab
                held.extend(pool.region(size) for size in wanted)

    monkeypatch.setattr(pool, "_used", Interrupted(used))
    pool.before_fork()
    try:
        assert len(held) == 4
        assert all(use.slab.retired for use in list(pool._used) if use.slab is not None)
    finally:
        pool.after_fork()


def test_collection_inside_every_lock_of_a_pool(pool: Pool) -> None:
    """Regions and leases of a pool that are collected while its locks are held come home without a deadlock."""
    ended: queue.SimpleQueue[object] = queue.SimpleQueue()
    allocate = pool.region

    spare = [allocate(1) for _ in range(8)]

    def litter() -> object:
        region = spare.pop() if spare else None
        return region, Lease([region] if region else [], ended, "littered")

    pool._lock = CollectingLock(litter)  # type: ignore[assignment]
    pool._allocator._lock = CollectingLock(litter)  # type: ignore[assignment]

    def work() -> None:
        for size in (1, 100, 1 << 20, 5):
            pool.allocate(size)
            pool.region(1)
            assert pool.stats.budget
        pool.trim()
        pool.warm(1)

    within_deadline(work)
    assert pool._lock.collections > 8  # type: ignore[attr-defined]
    assert ended.qsize() > 8
    gc.collect()
    pool._allocator.reset()
    gc.collect()
    assert pool.stats.in_use == 0


def test_collection_inside_the_lock_of_a_mapping_cache(pool: Pool) -> None:
    """Mapped regions that are collected while the cache's lock is held come home without a deadlock."""
    cache = MappingCache(idle_regions=1)
    offers = [pool.region(1) for _ in range(6)]
    spare = [cache.open(Handle.of(each), os.dup(each.slab.fd)) for each in offers if each.slab is not None]

    def litter() -> object:
        return spare.pop() if spare else None

    cache._lock = CollectingLock(litter)  # type: ignore[assignment]

    def work() -> None:
        for region in offers * 2:
            assert region.slab is not None
            cache.open(Handle.of(region), os.dup(region.slab.fd))
            cache.trim()
        cache.clear()

    within_deadline(work)
    gc.collect()
    cache.clear()
    assert cache.stats.in_use == 0
    assert cache.stats.idle == 0


def test_collection_inside_the_lock_of_the_default_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default pool is made under a lock during which anything may be collected."""
    monkeypatch.setattr(pool_module, "_default_pools", {})
    monkeypatch.setattr(pool_module, "_default_lock", CollectingLock(lambda: Pool(budget=1 << 20).region(1)))

    def work() -> None:
        pool_module.default_pool().allocator(1).allocate(1)

    within_deadline(work)
    pool_module.default_pool().close()
