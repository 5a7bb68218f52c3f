"""The mapping cache: each region of a peer is mapped once, and not for longer than it is of use."""

from __future__ import annotations

import concurrent.futures
import contextlib
import gc
import os
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bowstring.errors import ForkedError, InvalidRegion
from bowstring.memory import Handle, MappingCache, Pool, Region, mappings


def offered(pool: Pool, value: int = 1) -> tuple[Region, Handle]:
    """Return a region of a producer, full of one value, and its handle."""
    buffer = pool.allocator(1 << 20).allocate(1 << 20)
    with buffer.writable() as array:
        array[:] = value
    return buffer.region, Handle.of(buffer.region)


def sent(region: Region) -> int:
    """Return a descriptor as it arrives at a reader."""
    assert region.slab is not None
    return os.dup(region.slab.fd)


def maps() -> int:
    """Count the mappings of regions in this process."""
    return Path("/proc/self/maps").read_text().count("memfd:bowstring")


def test_a_region_is_mapped_once(pool: Pool) -> None:
    """While it is used, and for a while after, the same region is not mapped again; its bytes are right."""
    cache = MappingCache()
    region, handle = offered(pool, 5)
    first = cache.open(handle, sent(region))
    before = maps()
    second = cache.open(handle, sent(region))
    assert second is first
    assert pool.device.to_host(second.array(0, 3)).tolist() == [5, 5, 5]
    del first, second
    gc.collect()
    third = cache.open(handle, sent(region))
    assert maps() == before
    found = cache.stats
    assert (found.hits, found.misses, found.in_use, found.idle) == (2, 1, 1, 0)
    del third
    gc.collect()
    found = cache.stats
    assert (found.in_use, found.idle, found.idle_bytes) == (0, 1, region.nbytes)
    cache.clear()
    assert maps() == before - 1


def test_threads_that_open_a_region_together_map_it_once(
    pool: Pool, no_leaks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of threads that open one region at the same moment one maps it, and all get that mapping."""
    cache = MappingCache()
    region, handle = offered(pool, 5)
    together = threading.Barrier(2)
    device = region.device
    map_slab, calls = device.map_slab, []

    def mapped(*given: Any) -> Any:
        calls.append(given)
        with contextlib.suppress(threading.BrokenBarrierError):
            together.wait(1.0)  # for another thread that maps, which must not come
        return map_slab(*given)

    monkeypatch.setattr(type(device), "map_slab", staticmethod(mapped))
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        opened = [threads.submit(cache.open, handle, sent(region)) for _ in range(2)]
        first, second = (each.result(20.0) for each in opened)
    assert (len(calls), first is second) == (1, True)
    assert (cache.stats.hits, cache.stats.misses) == (1, 1)
    del first, second, opened


def test_a_name_is_not_enough(pool: Pool, no_leaks: None) -> None:
    """A region under the name of another one that is mapped is refused, whether that is used or idle."""
    cache = MappingCache()
    honest, handle = offered(pool, 1)
    other, _ = offered(pool, 2)
    false = Handle(handle.uuid, handle.device_uuid, other.nbytes, handle.arrow_device_type)
    used: Region | None = cache.open(handle, sent(honest))
    for _ in range(2):
        fd = sent(other)
        with pytest.raises(InvalidRegion, match="name of another"):
            cache.open(false, fd)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)
        used = None
        gc.collect()
    assert used is None
    again = cache.open(handle, sent(honest))
    assert pool.device.to_host(again.array(0, 1)).tolist() == [1]


def test_a_false_size_of_a_mapped_region_is_refused(pool: Pool) -> None:
    """A handle that gives a mapped region another size is refused."""
    cache = MappingCache()
    region, handle = offered(pool)
    kept = cache.open(handle, sent(region))
    wrong = Handle(handle.uuid, handle.device_uuid, 2 * handle.nbytes, handle.arrow_device_type)
    with pytest.raises(InvalidRegion):
        cache.open(wrong, sent(region))
    assert kept.nbytes == region.nbytes


def test_idle_mappings_are_bounded(pool: Pool) -> None:
    """No more idle mappings stay than allowed, by number and by bytes, the oldest going first."""
    for cache in (MappingCache(idle_regions=2), MappingCache(idle_bytes=2 * pool.device.smallest_region)):
        offers = [offered(pool) for _ in range(5)]
        opened = [cache.open(handle, sent(region)) for region, handle in offers]
        mapped = maps()
        while opened:
            opened.pop(0)
        assert cache.stats.idle == 2
        assert maps() == mapped - 3
        cache.open(offers[-1][1], sent(offers[-1][0]))
        assert cache.stats.hits == 1
        cache.clear()
        del offers
        gc.collect()
        pool.trim()


def test_idle_mappings_grow_old(pool: Pool) -> None:
    """A mapping that was idle for longer than allowed goes with the next look at the cache."""
    cache = MappingCache(idle_seconds=0.0)
    region, handle = offered(pool)
    cache.open(handle, sent(region))
    gc.collect()
    cache.trim()
    cache.trim()
    assert cache.stats.idle == 0


def test_idle_mappings_go_without_another_look(pool: Pool) -> None:
    """After its last stream a process gives back what it had mapped, also what a view held for longer."""
    cache = MappingCache(idle_seconds=0.1)
    region, handle = offered(pool)
    view: Region | None = cache.open(handle, sent(region))
    mapped = maps()
    cache.trim()  # a stream ends, and is the last one
    time.sleep(0.3)
    assert view is not None
    assert maps() == mapped
    view = None
    end = time.monotonic() + 10.0
    while maps() == mapped and time.monotonic() < end:
        time.sleep(0.01)
    assert maps() == mapped - 1


def test_a_watched_cache_is_collected(pool: Pool) -> None:
    """The thread that looks at a cache does not keep it."""
    cache = MappingCache()
    region, handle = offered(pool)
    cache.open(handle, sent(region))
    cache.trim()
    gone = weakref.ref(cache)
    del cache
    end = time.monotonic() + 10.0
    while gone() is not None and time.monotonic() < end:
        time.sleep(0.01)
    assert gone() is None


def test_a_mapping_outlives_its_producer(pool: Pool) -> None:
    """The bytes of a mapped region stay when the producer's slab is gone."""
    cache = MappingCache()
    region, handle = offered(pool, 9)
    mapped = cache.open(handle, sent(region))
    del region
    gc.collect()
    pool.trim()
    assert pool.device.to_host(mapped.array(0, 2)).tolist() == [9, 9]


def test_readers_cannot_write_through_bowstring(pool: Pool) -> None:
    """Arrays over a mapped region are read-only, and no buffer of it can be written."""
    region, handle = offered(pool)
    mapped = MappingCache().open(handle, sent(region))
    with pytest.raises(ValueError, match="read-only"):
        mapped.array(0, 1)[:] = 3
    assert mapped.slab is not None
    assert not mapped.slab.writable


def test_many_threads_open_one_region(pool: Pool) -> None:
    """Threads that open one region at once all see it, and the cache is left in order."""
    cache = MappingCache()
    region, handle = offered(pool, 3)
    seen: list[int] = []

    def look() -> None:
        for _ in range(50):
            mapped = cache.open(handle, sent(region))
            seen.append(int(pool.device.to_host(mapped.array(0, 1))[0]))

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert seen == [3] * 200
    gc.collect()
    cache.clear()
    assert cache.stats.in_use == 0


def test_a_child_has_a_cache_of_its_own(pool: Pool, in_child: Callable[[Callable[[], bool]], bool]) -> None:
    """After a fork the child starts with an empty cache, and can use it, where there is no driver."""
    region, handle = offered(pool)
    opened = [mappings().open(handle, sent(region))]
    parents = mappings()

    def check() -> bool:
        try:
            mapped = mappings().open(handle, sent(region))
        except ForkedError:
            return not pool.device.is_host
        return mappings() is not parents and mappings().stats.misses == 1 and mapped is not opened[0]

    assert in_child(check)
    assert mappings() is parents
    opened.clear()
    gc.collect()
    mappings().clear()
