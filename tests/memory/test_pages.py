"""Large pages: memory lies where they fit, they are asked for once, and everything works without them."""

from __future__ import annotations

import gc
import mmap
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bowstring.memory import Pool, cpu
from bowstring.memory import slab as slabs
from bowstring.memory.slab import LARGE_PAGE, ask_for_large_pages, fresh_memfd, mapped
from bowstring.memory.writable_memfd import make_writable_memfd, map_writable_slab

BOTH = mmap.PROT_READ | mmap.PROT_WRITE
# Below a large page, one, and some with a ragged end, as files of the depot have it.
SIZES = (4096, LARGE_PAGE, 3 * LARGE_PAGE, 2 * LARGE_PAGE + 12288)


@pytest.fixture
def memfd() -> Iterator[Callable[[int], int]]:
    """Return what makes memory of a size, closed in the end."""
    made: list[int] = []

    def make(nbytes: int) -> int:
        made.append(fresh_memfd(nbytes).detach())
        return made[-1]

    yield make
    for fd in made:
        os.close(fd)


def view(address: int, nbytes: int, memory: object) -> np.ndarray[Any, Any]:
    """Return memory as an array that may be written."""
    return cpu().array(address, nbytes, memory, writable=True)


def maps() -> int:
    """Count the mappings of regions in this process."""
    return Path("/proc/self/maps").read_text().count("memfd:bowstring")


def resident(address: int) -> int:
    """Return how many bytes of the mapping that begins at an address have their page."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"{address:x}-"))
    return 1024 * next(int(line.split()[1]) for line in lines[start:] if line.startswith("Rss:"))


class Calls:
    """The C library, with its answers to ``madvise`` noted, or refused."""

    def __init__(self, *, refuse: bool) -> None:
        self._real = slabs.libc()
        self._refuse = refuse
        self.mmap = self._real.mmap
        self.asked: list[int] = []

    def madvise(self, address: int, nbytes: int, advice: int) -> int:
        """Do as the C library does, or fail as where there are no large pages."""
        self.asked.append(nbytes)
        return -1 if self._refuse else int(self._real.madvise(address, nbytes, advice))


@pytest.fixture(params=[False, True], ids=["asked", "refused"])
def calls(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Return the calls of the C library from now on: as this system answers them, and all refused."""
    found = Calls(refuse=request.param)
    monkeypatch.setattr(slabs, "libc", lambda: found)
    return found


@pytest.mark.parametrize("nbytes", SIZES)
def test_a_mapping_keeps_no_descriptor(memfd: Callable[[int], int], nbytes: int) -> None:
    """A mapping of any size holds no descriptor of its own, and may outlive the one it was made with."""
    fd = memfd(nbytes)
    before = os.listdir("/proc/self/fd")
    memory, address = mapped(fd, nbytes, BOTH)
    assert os.listdir("/proc/self/fd") == before
    os.pwrite(fd, b"x", nbytes - 1)
    assert view(address, nbytes, memory)[-1] == ord("x")


@pytest.mark.parametrize("filled", [False, True])
@pytest.mark.parametrize("nbytes", SIZES)
def test_memory_lies_where_large_pages_fit(
    memfd: Callable[[int], int], nbytes: int, filled: bool, calls: Calls
) -> None:
    """A mapping shows the memory of its descriptor, at a multiple of a large page, and goes with what keeps it."""
    fd = memfd(nbytes)
    os.pwrite(fd, b"end", nbytes - 3)
    before = maps()
    memory, address = mapped(fd, nbytes, BOTH, filled=filled)
    assert nbytes < LARGE_PAGE or address % LARGE_PAGE == 0
    array = view(address, nbytes, memory)
    assert array[-3:].tobytes() == b"end"
    assert not array[:-3].any()
    array[0] = 7
    assert os.pread(fd, 1, 0) == b"\7"
    assert maps() == before + 1
    del array, memory
    gc.collect()
    assert maps() == before


@pytest.mark.parametrize("nbytes", SIZES)
def test_filled_memory_is_there(memfd: Callable[[int], int], nbytes: int, calls: Calls) -> None:
    """Memory that is mapped with its pages has all of them, large ones or not, which are asked for."""
    memory, address = mapped(memfd(nbytes), nbytes, BOTH, filled=True)
    assert resident(address) == nbytes
    assert sum(calls.asked) == nbytes & -LARGE_PAGE
    del memory


def test_each_large_page_has_begun_when_it_is_asked_for(memfd: Callable[[int], int], calls: Calls) -> None:
    """The kernel collapses no page of which nothing is there, so the first small one of each is made."""
    memory, address = mapped(memfd(4 * LARGE_PAGE), 4 * LARGE_PAGE, BOTH)
    ask_for_large_pages(address, 4 * LARGE_PAGE)
    assert resident(address) >= 4 * mmap.PAGESIZE
    del memory


def test_what_cannot_be_mapped_leaves_nothing(memfd: Callable[[int], int]) -> None:
    """A descriptor that the system does not map or a size, is an OSError, and the reservation goes."""
    before = Path("/proc/self/maps").read_text().count("\n")
    reading, writing = os.pipe()
    for _ in range(50):
        with pytest.raises(OSError, match=r"."):
            mapped(reading, LARGE_PAGE, BOTH)
    os.close(reading)
    os.close(writing)
    for size in (1 << 62, sys.maxsize):
        with pytest.raises(OSError, match="memory"):
            mapped(memfd(4096), size, mmap.PROT_READ)
    assert Path("/proc/self/maps").read_text().count("\n") < before + 25


def test_asking_changes_no_byte(memfd: Callable[[int], int], calls: Calls) -> None:
    """What was written stays when large pages are asked for, also under a reader's view; the rest is zeros."""
    nbytes = 4 * LARGE_PAGE
    fd = memfd(nbytes)
    memory, address = mapped(fd, nbytes, BOTH)
    reader, seen = mapped(fd, nbytes, mmap.PROT_READ)
    wanted = np.zeros(nbytes, np.uint8)
    for start in (0, LARGE_PAGE + 5000, 4 * LARGE_PAGE - 100):
        wanted[start : start + 100] = np.arange(1, 101)
        view(address, nbytes, memory)[start : start + 100] = np.arange(1, 101)
    held = view(seen, nbytes, reader)
    assert held[LARGE_PAGE + 5000] == 1
    ask_for_large_pages(address, nbytes)
    np.testing.assert_array_equal(held, wanted)
    np.testing.assert_array_equal(view(address, nbytes, memory), wanted)


def test_readers_of_large_pages_cannot_write() -> None:
    """A reader maps a slab of large pages where they fit, and read-only."""
    slab = cpu().make_slab(2 * LARGE_PAGE)
    slab.prepare(2 * LARGE_PAGE)
    view(slab.address, slab.nbytes, slab)[:] = 9
    read = cpu().map_slab(os.dup(slab.fd), slab.nbytes, slab.uuid)
    assert read.address % LARGE_PAGE == 0
    assert (view(read.address, read.nbytes, read) == 9).all()
    line = next(
        each
        for each in Path("/proc/self/maps").read_text().splitlines()
        if each.startswith(f"{read.address:x}-")
    )
    assert line.split()[1] == "r--s"


def test_a_pool_asks_once_for_what_is_needed(calls: Calls) -> None:
    """Regions ask for large pages as far as they are needed; a warm slab asks for what it lacks, once."""
    pool = Pool(budget=64 << 20)
    needs = (5 << 20, 5 << 20, 7 << 20, 8 << 20)
    wanted = (6 << 20, 0, 2 << 20, 0)
    for need, size in zip(needs, wanted, strict=True):
        calls.asked.clear()
        region = pool.region(need)
        array = region.array(0, region.nbytes, writable=True)
        array[:] = 3
        assert (array == 3).all()
        assert sum(calls.asked) == size
        del array, region
        gc.collect()
    assert pool.stats.made == 1
    calls.asked.clear()
    pool.region(1000)
    assert calls.asked == []


def test_a_kernel_that_refuses_is_asked_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a refusal the rest of a slab is not asked for: it would be refused, too, and may take its time."""
    calls = Calls(refuse=True)
    monkeypatch.setattr(slabs, "libc", lambda: calls)
    monkeypatch.setattr(slabs, "COLLAPSED_AT_ONCE", LARGE_PAGE)
    pool = Pool(budget=64 << 20)
    kept = pool.region(8 << 20)
    assert calls.asked == [LARGE_PAGE]
    assert kept.nbytes == 8 << 20


def test_a_slow_kernel_is_asked_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where large pages take longer to find than small ones, the rest of a slab is left to those."""
    calls = Calls(refuse=False)
    monkeypatch.setattr(slabs, "libc", lambda: calls)
    monkeypatch.setattr(slabs, "COLLAPSED_AT_ONCE", LARGE_PAGE)
    monkeypatch.setattr(slabs, "COLLAPSE_SECONDS", -1.0)
    slab = cpu().make_slab(8 << 20)
    slab.prepare(8 << 20)
    assert calls.asked == [LARGE_PAGE]
    assert slab.asked == 8 << 20


def test_borrowed_memory_is_filled(calls: Calls) -> None:
    """A slab that a task borrows has all its pages, and what the task writes is what the owner reads."""
    owned, fd = make_writable_memfd(2 * LARGE_PAGE)
    slab = map_writable_slab(fd, 2 * LARGE_PAGE, owned.uuid)
    assert resident(slab.address) == slab.nbytes
    view(slab.address, slab.nbytes, slab)[:] = 5
    assert (cpu().array(owned.address, owned.nbytes, owned) == 5).all()
