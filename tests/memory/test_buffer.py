"""Buffers: slices of a region that are written once, frozen, and then only read."""

from __future__ import annotations

import gc
import os
import pickle
import sys
import weakref
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring.errors import ClosedError, InvalidBody, NotOnDevice, NotPicklable, UsageError, ViewsAlive
from bowstring.memory import (
    Buffer,
    Device,
    Handle,
    Lease,
    MappingCache,
    Pool,
    Region,
    cpu,
    foreign_region,
    owned_regions,
    wrap,
)
from bowstring.memory.region import register_region
from bowstring.testing import fake_device


def filled(pool: Pool, nbytes: int = 64) -> Buffer:
    """Return a frozen buffer with the bytes 0, 1, 2 …"""
    buffer = pool.allocator(nbytes).allocate(nbytes)
    with buffer.writable() as array:
        array[:] = pool.device.xp.asarray(np.arange(nbytes).astype(np.uint8))
    del array
    buffer.freeze()
    return buffer


def test_what_is_written_is_read(pool: Pool) -> None:
    """A fresh buffer is aligned, takes what is written, and gives it back in any dtype."""
    buffer = filled(pool)
    assert buffer.address % pool.device.alignment == 0
    assert buffer.to_host("<u4").tolist() == np.arange(64).astype(np.uint8).view("<u4").tolist()
    assert len(buffer) == buffer.nbytes == 64


def test_frozen_buffers_stay_as_they_are(pool: Pool) -> None:
    """After freezing nothing is writable any more: buffer, slices, arrays, or arrays from before."""
    buffer = pool.allocate(8)
    early = buffer.slice(2, 2)
    with buffer.writable() as array:
        array[:] = 1
    host = pool.device.is_host
    if host:
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 2
    del array
    buffer.freeze()
    buffer.freeze()
    assert buffer.frozen
    assert early.frozen
    for each in (buffer, early, buffer.slice(1, 1)):
        with pytest.raises(UsageError, match="frozen"), each.writable():
            pass
        with pytest.raises(ValueError, match="read-only"):
            each.array()[:] = 3
    assert buffer.to_host().tolist() == [1] * 8


KEEPS: dict[str, Any] = {
    "a slice": lambda array: array[2:],
    "a view": lambda array: array.view(np.int8),
    "a slice of a slice": lambda array: array[2:][::2],
    "a shape": lambda array: array.reshape(2, 4),
}
HOST_KEEPS: dict[str, Any] = {
    "memoryview": memoryview,
    "frombuffer": lambda array: np.frombuffer(array, np.uint8),
    "pyarrow": pa.py_buffer,
}


@pytest.mark.parametrize("keep", KEEPS)
def test_a_writable_view_keeps_a_buffer_from_freezing(pool: Pool, keep: str) -> None:
    """Freezing is refused while a part of a writable array lives on after its block, and works without it."""
    buffer = pool.allocate(8)
    with buffer.writable() as array:
        kept = KEEPS[keep](array)
    del array
    with pytest.raises(ViewsAlive):
        buffer.freeze()
    assert not buffer.frozen
    del kept
    gc.collect()
    buffer.freeze()


@pytest.mark.parametrize("keep", HOST_KEEPS)
def test_nothing_writes_after_freezing(keep: str, no_leaks: None) -> None:
    """What took the writable array by the buffer protocol either keeps the buffer from freezing or cannot write."""
    buffer = Pool(budget=2 << 20).allocate(8)
    with buffer.writable() as array:
        array[:] = 1
        kept = HOST_KEEPS[keep](array)
    del array
    try:
        buffer.freeze()
    except ViewsAlive:
        return
    view = np.frombuffer(kept, np.uint8)
    assert not view.flags.writeable


def test_a_writer_that_fails_leaves_nothing_writable(pool: Pool) -> None:
    """An error inside the block ends the writing all the same."""
    buffer = pool.allocate(8)
    with pytest.raises(RuntimeError, match="stop"), buffer.writable():
        raise RuntimeError("stop")
    gc.collect()
    buffer.freeze()


@given(size=st.integers(0, 50), offset=st.integers(-60, 60), nbytes=st.integers(-60, 60))
def test_slices_stay_inside(size: int, offset: int, nbytes: int) -> None:
    """A slice is those bytes, or refused: of a buffer and of a region."""
    buffer = wrap(bytes(range(size)))
    if offset >= 0 and nbytes >= 0 and offset + nbytes <= size:
        part = buffer.slice(offset, nbytes)
        assert part.to_host().tolist() == list(range(offset, offset + nbytes))
        assert part.slice(0, nbytes).address == part.address
    else:
        with pytest.raises(InvalidBody):
            buffer.slice(offset, nbytes)
        with pytest.raises(InvalidBody):
            Buffer(buffer.region, offset, nbytes)


def test_sizes_that_overflow_stay_inside() -> None:
    """Numbers beyond 64 bits do not wrap around."""
    buffer = wrap(b"abc")
    for offset, nbytes in ((1 << 64, 1), (1, 1 << 64), ((1 << 63) - 1, 1), (-(1 << 64), 1 << 64)):
        with pytest.raises(InvalidBody):
            buffer.slice(offset, nbytes)


def test_wrapping_copies_nothing_and_keeps_alive() -> None:
    """Bytes, arrays and Arrow buffers are seen where they are, read-only, for as long as somebody looks."""
    numbers = np.arange(4)
    buffer = wrap(numbers)
    assert buffer.address == numbers.ctypes.data
    assert not buffer.array().flags.writeable
    assert numbers.flags.writeable
    assert wrap(pa.py_buffer(b"abc")).to_arrow().to_pybytes() == b"abc"
    assert wrap(b"").array().tolist() == []
    watched = weakref.ref(numbers)
    view = buffer.array(np.int64)[1:]
    del numbers, buffer
    gc.collect()
    assert watched() is not None
    assert view.tolist() == [1, 2, 3]
    del view
    gc.collect()
    assert watched() is None


def test_dtypes_that_do_not_fit_leave_the_rest_out() -> None:
    """Bytes behind the last whole element are left out."""
    assert wrap(b"\x01\x00\x02\x00\x03").array("<u2").tolist() == [1, 2]
    assert wrap(b"\x01").array("<u2").tolist() == []


@pytest.mark.parametrize("look", ["array", "to_arrow", "to_host"])
def test_views_hang_on_the_lease(device: Device, look: str) -> None:
    """A view of a buffer with a lease is an export of it; without the lease nobody gets one."""
    pool = Pool(device, budget=2 << 20)
    plain = filled(pool)
    lease = Lease([plain.region])
    buffer = Buffer(plain.region, plain.offset, plain.nbytes, lease)
    if look == "to_arrow" and not device.is_host:
        with pytest.raises(NotOnDevice):
            buffer.to_arrow()
        return
    view = getattr(buffer, look)()
    assert lease.exported or (look == "to_host" and not device.is_host)
    if lease.exported:
        with pytest.raises(ViewsAlive):
            lease.release()
    del view
    gc.collect()
    lease.release()
    with pytest.raises(ClosedError):
        getattr(buffer, look)()


def test_a_region_goes_home_with_its_last_view(pool: Pool) -> None:
    """Buffer, slice and array each keep a region in use; without them it is idle."""
    buffer = filled(pool)
    pool.trim()
    holders: list[Any] = [buffer, buffer.slice(1, 1), buffer.array()[3:]]
    del buffer
    while holders:
        gc.collect()
        assert pool.stats.in_use
        holders.pop()
    gc.collect()
    assert pool.stats.in_use == 0


@pytest.mark.parametrize("look", ["array", "to_arrow", "to_host"])
def test_a_view_keeps_its_region_whatever_its_lease_is_over(look: str) -> None:
    """The lease of a buffer may be over other memory: a view keeps the region of the buffer alive all the same."""
    data = np.arange(64, dtype=np.uint8)
    region = foreign_region(data.ctypes.data, data.nbytes, data)
    alive = weakref.ref(region)
    view = getattr(Buffer(region, 0, 64, Lease([])), look)()
    del region
    gc.collect()
    assert alive() is not None
    del view
    gc.collect()
    assert alive() is None


def test_memory_refuses_pickle(pool: Pool) -> None:
    """Regions and pools cannot be pickled; a device can, and is the same one."""
    for thing in (pool.allocate(1).region, pool):
        with pytest.raises(NotPicklable):
            pickle.dumps(thing)
    assert pickle.loads(pickle.dumps(cpu())) is cpu()


def test_data_in_a_region_of_ours_are_recognised() -> None:
    """Addresses inside regions of pools are found, others are not, and a region that went home is forgotten."""
    pool = Pool(budget=4 << 20)
    first, second = pool.allocator(1 << 20).allocate(100), pool.allocator(1 << 20).allocate(1 << 20)
    foreign = np.arange(100)
    addresses = np.array([first.address, second.address + 5, foreign.ctypes.data, first.address - 1, 0])
    sizes = np.array([100, 1, 8, 2, 1])
    regions, index, offsets = owned_regions(addresses, sizes)
    assert offsets.tolist() == [first.offset, second.offset + 5, 0, 0, 0]
    assert [regions[number] if number >= 0 else None for number in index] == [
        first.region,
        second.region,
        None,
        None,
        None,
    ]
    end = second.region.address + second.region.nbytes
    assert owned_regions(np.array([end - 1, end - 1]), np.array([1, 2]))[1].tolist() == [0, -1]
    address = first.address
    del first, second, regions
    gc.collect()
    pool.close()
    assert owned_regions(np.array([address]), np.array([1]))[1].tolist() == [-1]


def test_a_mapping_of_a_region_of_ours_is_recognised_by_its_memory() -> None:
    """Where memory of a pool is mapped once more, its region is found; not by the name alone, nor once it ended."""
    pool = Pool(budget=8 << 20)
    buffer, other = pool.allocate(100), Pool(budget=8 << 20).allocate(100)
    handle = Handle.of(buffer.region)
    for source, expected in ((buffer, True), (other, False)):
        assert source.region.slab is not None
        cache = MappingCache()
        mapped = cache.open(handle, os.dup(source.region.slab.fd))
        place = np.array([mapped.address + buffer.offset]), np.array([100])
        regions, index, offsets = owned_regions(*place)
        assert (regions, index.tolist()) == ([buffer.region], [0]) if expected else ([], [-1])
        assert offsets.tolist() == [buffer.offset * expected]
        del mapped, regions
        cache.clear()
        assert owned_regions(*place)[1].tolist() == [-1]


def test_regions_are_found_whatever_is_allocated_meanwhile() -> None:
    """Between any two steps of a look-up, or of an allocation, others may come and go: what lives is found."""
    pool, churned = Pool(budget=1 << 30), [Pool(budget=1 << 30)]
    kept = [pool.allocate(1 << 20) for _ in range(6)]
    coming: list[Buffer] = []
    lost: list[int] = []
    steps = 0

    def look(buffers: list[Buffer]) -> None:
        regions, index, _ = owned_regions(
            np.array([each.address for each in buffers]), np.ones(len(buffers), np.int64)
        )
        if [regions[each] for each in index if each >= 0] != [each.region for each in buffers]:
            lost.append(steps)

    def meddle(frame: FrameType, event: str, _: object) -> Any:
        nonlocal steps
        frame.f_trace_opcodes = Path(frame.f_code.co_filename).name == "region.py"
        if event == "opcode":
            steps += 1
            coming.append(churned[0].allocate(1 << 20))
            look([kept[steps % len(kept)], coming[-1]])
            if len(coming) > 150:
                coming.clear()
                churned.pop().close()
                churned.append(Pool(budget=1 << 30))
        return meddle

    before = sys.gettrace()
    sys.settrace(meddle)
    try:
        for _ in range(12):
            look(kept)
            more = pool.allocate(1 << 20)
            look([more])
            del more
    finally:
        sys.settrace(before)
    assert steps > 1000
    assert not lost


def test_a_region_is_found_that_comes_while_those_that_ended_are_forgotten() -> None:
    """Between any two steps of a registration, one is made elsewhere, and found from then on, as all that live."""
    places = iter(range(1 << 50, 1 << 60, 1 << 12))
    lost: list[int] = []
    alive: list[Region] = []
    begun = taken = 0

    def come() -> Region:
        region = Region(cpu(), next(places), 1 << 12)
        register_region(region)
        alive.append(region)
        return region

    def meddle(frame: FrameType, event: str, _: object) -> Any:
        nonlocal taken
        frame.f_trace_opcodes = Path(frame.f_code.co_filename).name == "region.py"
        if event == "opcode":
            taken += 1
            if taken == begun:
                come()
            found, _, _ = owned_regions(
                np.array([each.address for each in alive]), np.ones(len(alive), np.int64)
            )
            if found != alive:
                lost.append(begun)
        return meddle

    before = sys.gettrace()
    while taken >= begun:
        begun, taken = begun + 1, 0
        ended = [come() for _ in range(80)]
        alive.clear()
        del ended
        region = Region(cpu(), next(places), 1 << 12)
        sys.settrace(meddle)
        try:
            register_region(region)
        finally:
            sys.settrace(before)
        alive.append(region)
        assert owned_regions(np.array([region.address]), np.ones(1, np.int64))[0] == [region]
    assert begun > 50
    assert not lost


def test_regions_of_others_are_not_shareable() -> None:
    """Foreign memory has no name and no descriptor, on any device."""
    region = foreign_region(1 << 60, 8, None, fake_device())
    assert isinstance(region, Region)
    assert (region.shareable, region.uuid) == (False, bytes(16))
