"""The pool: slabs kept warm between uses, within a budget.

Copying into fresh shared pages is many times slower than into warm ones, so a slab whose region is no longer
used is kept for the next one. A slab comes back only when nothing in this process refers to its region: the
buffers and views here, and the leases that a server holds for its readers.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import math
import os
import threading
import time
import weakref
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from bowstring.errors import ClosedError, DeadlineExceeded, ForkedError, NotPicklable, OutOfBudget, UsageError
from bowstring.limits import DEFAULT_LIMITS
from bowstring.memory.allocations import Allocations
from bowstring.memory.buffer import Buffer
from bowstring.memory.cuda.driver import Capturing
from bowstring.memory.device import Device, cpu, let_go
from bowstring.memory.forks import fork_sentinel, snapshot, watch_forks
from bowstring.memory.lease import Finalizer
from bowstring.memory.region import Region, register_region

if TYPE_CHECKING:
    from bowstring.memory.device import Slab

_MIB: Final = 1 << 20
_SLAB: Final = 64 * _MIB
_GROWN: Final = 4 * _MIB
_PATIENCE: Final = 0.1  # seconds
_FORK_SECONDS: Final = 1.0
_LEAST_BUDGET: Final = 64 * _MIB


@dataclasses.dataclass(frozen=True, slots=True)
class PoolStatistics:
    """What a pool holds, in bytes, and what it has done.

    Attributes
    ----------
    budget, in_use, idle
        The most the pool may hold; what regions use now; what lies warm.
    made, reused, retired
        Slabs made so far, uses served by a warm one, and slabs given up because a reader was lost.
    allocated
        How much of what is in use other libraries have allocated (`Pool.cupy`, `Pool.rmm`).
    """

    budget: int
    in_use: int
    idle: int
    made: int
    reused: int
    retired: int
    allocated: int = 0


def default_budget(device: Device | None = None) -> int:
    """Return half of the memory that this process may use on the host, or half of a device's, in bytes.

    Of a device it is half of all memory, free or not: what is free now says little about later, since pools of
    arrays keep what they once had. A device without room raises when memory is allocated.

    Examples
    --------
    >>> default_budget() > 0
    True
    """
    if device is not None and not device.is_host:
        _, total = device.memory_info()
        return max(total // 2, _LEAST_BUDGET)
    bounds = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            bounds.append(int(Path(name).read_text()))
    return max(min(bounds) // 2, _LEAST_BUDGET)


def size_class(nbytes: int, smallest: int = Device.smallest_region) -> int:
    """Return the slab size for `nbytes`: a power of two up to 64 MiB, at least `smallest`, then a multiple."""
    if nbytes <= _SLAB:
        return max(smallest, 1 << (nbytes - 1).bit_length()) if nbytes else smallest
    return -(-nbytes // _SLAB) * _SLAB


class _Use:
    """What a region takes of its pool. Its finalizer is there before it is counted: an interrupt loses none."""

    __slots__ = (
        "__weakref__",
        "nbytes",
        "slab",
    )  # which change without an allocation, at which anything may run

    def __init__(self) -> None:
        self.nbytes = 0
        self.slab: Slab | None = None  # once the region is made; none where the pool was closed


class Pool:
    """Regions of one device, within a budget.

    Parameters
    ----------
    device
        Where the memory is; the host by default.
    budget
        The most bytes that the pool may hold, used and idle together; by default half of the memory that
        this process may use on the host, or half of the device's.

    Examples
    --------
    >>> pool = Pool(budget=64 << 20)
    >>> buffer = pool.allocate(1000)
    >>> buffer.nbytes, buffer.address % 64, pool.stats.in_use
    (1000, 0, 1048576)
    """

    def __init__(self, device: Device | None = None, budget: int | None = None) -> None:
        if not isinstance(device, Device | None):
            raise UsageError("not a device of a pool", expected="a bowstring.Device", found=repr(device)[:80])
        self.device = device or cpu()
        given: Any = budget
        is_number = isinstance(given, Real) and not isinstance(given, bool)
        if given is not None and not (is_number and 1 <= given < math.inf):
            raise UsageError("a pool needs a budget", expected="a number of bytes", found=repr(given)[:80])
        self.budget = default_budget(self.device) if budget is None else int(budget)
        self._pid = os.getpid()
        # Reentrant: a garbage collection inside it may run a finalizer that takes a region, or closes a server.
        # Hence counts are compared again after a sum, and a sum is changed where nothing is called in between.
        self._lock = threading.RLock()
        self._returned: collections.deque[_Use] = collections.deque()
        self._idle: list[Slab] = []
        self._used: weakref.WeakSet[_Use] = weakref.WeakSet()
        self._in_use = 0
        self._made = 0
        self._reused = 0
        self._retired = 0
        self._closed = False
        self._held_for_fork = False
        self._sentinel = fork_sentinel()
        self._forks = self._sentinel.noticed()
        self._allocator = Allocator(self)
        self._allocations = Allocations(self.device, self.region, self._check)
        watch_forks(self)

    def allocate(self, nbytes: int) -> Buffer:
        """Return a fresh buffer, aligned to the device's alignment, that may be written until it is frozen.

        Raises
        ------
        OutOfBudget
            The pool has no room; nothing was allocated.
        ForkedError, ClosedError
            The pool was made by the parent process, or closed.
        """
        return self._allocator.allocate(nbytes)

    def region(
        self, nbytes: int, *, least: int | None = None, prepare: bool = True, stream: int | None = None
    ) -> Region:
        """Return a region of at least `nbytes` bytes that holds nothing else, warm if there is one.

        Parameters
        ----------
        nbytes
            Size in bytes.
        least
            Size of a warm region that is enough, too; by default none smaller is.
        prepare
            Whether its memory is taken at once, in large pages if the kernel has some. Otherwise a fresh region
            takes memory as bytes are written, and the writer calls `Region.prepare`: for lengths that peers claim.
        stream
            Address of the stream on which another library uses it first, whose memory it is then.

        Raises
        ------
        OutOfBudget
            The pool has no room; nothing was allocated.
        """
        if nbytes < 0:
            raise UsageError("a region cannot have a negative size", found=nbytes)
        size = size_class(nbytes, self.device.smallest_region)
        self._check()
        if self._allocations.freed:
            self._allocations.settle()
        use = _Use()
        end = Finalizer(self._returned.append, use)
        try:
            with self._lock:
                dropped = self._collect()
                slab = self._warm(size, nbytes if least is None else least, use)
                if slab is None:
                    dropped += self._make_room(size, use)
                else:
                    self._reused += 1
            if dropped:
                let_go(dropped)
            if slab is not None and not (
                slab.device.is_host or self._may_be_written(slab, size, stream, use)
            ):
                slab = None
            if slab is None:
                slab = self.device.make_slab(size)
                self._made += 1
            if prepare:
                slab.prepare(nbytes)
        except BaseException:  # whose frames may be kept
            end.now()
            raise
        with self._lock:
            self._used.add(use)
            use.slab = None if self._closed else slab
        region = Region(slab.device, slab.address, slab.nbytes, slab=slab, end=end, private=slab.private)
        region.allocation = "" if stream is None else "whole"
        register_region(region)
        return region

    def _may_be_written(self, slab: Slab, size: int, stream: int | None, use: _Use) -> bool:
        """Wait until no stream reads a warm slab; false if it was put back, for a fresh one to be made.

        A stream may wait for what this region is to be published to, so what is busy for long is not waited for
        while there is room. What a library freed is used again on a stream that waits in place of the host.
        """
        events, slab.events = slab.events, ()
        if events and stream is not None and self._allocations.in_order(events, stream):
            slab.events = events  # which other streams that get a part of it wait for, too
            return True
        self.device.freed_behind.extend(events)
        try:
            self.device.rest(_PATIENCE)
        except (DeadlineExceeded, Capturing):
            with self._lock:
                in_use, idle = self._held()
                if in_use + idle + size <= self.budget:
                    self._in_use, use.nbytes = self._in_use + size - slab.nbytes, size
                    self._reused -= 1
                    self._idle.append(slab)
                    return False
            deadline = time.monotonic() + DEFAULT_LIMITS.device_timeout
            while True:  # until no stream reads it, captures included: those are said at once
                try:
                    self.device.rest(max(0.0, deadline - time.monotonic()))
                    break
                except Capturing:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(_PATIENCE)
        return True

    def allocator(self, expected: int = 0, *, prepare: bool = True) -> Allocator:
        """Return an allocator with regions of its own; `expected` bytes fit into one. `prepare` as for `region`."""
        return Allocator(self, expected, prepare=prepare)

    def _check(self) -> None:
        if self._pid != os.getpid():
            self._check_process()
        if self._closed:
            raise ClosedError("the pool is closed")

    def _check_process(self) -> None:
        # Before any lock: a fork leaves the child's locks in any state.
        if self._pid != os.getpid():
            raise ForkedError(
                "the pool belongs to the parent process", hint="Make a new Pool (or Server) in the child."
            )

    def _warm(self, size: int, least: int, use: _Use) -> Slab | None:
        best: tuple[bool, int] | None = None
        slab = None
        # A copy, since a finalizer may change the list; a slice is not safe from that in Python 3.11.
        for each in list(self._idle):
            rank = each.nbytes < size, abs(each.nbytes - size)
            if least <= each.nbytes <= 2 * size and (best is None or rank < best):
                best, slab = rank, each
        if slab is None:
            return None
        try:
            self._idle.remove(slab)
        except ValueError:  # a finalizer that ran just now took it
            return None
        self._in_use, use.nbytes = self._in_use + slab.nbytes, slab.nbytes
        return slab

    def _held(self) -> tuple[int, int]:
        """Return how many bytes are in use and how many are idle, both at one moment."""
        while True:
            in_use, slabs = self._in_use, list(self._idle)  # no slice, as in `_warm`
            idle = sum(slab.nbytes for slab in slabs)
            if in_use == self._in_use and slabs == self._idle:
                return in_use, idle

    def _make_room(self, size: int, use: _Use) -> list[Slab]:
        """Drop idle slabs until there is room for a new one, and count that as in use."""
        dropped: list[Slab] = []
        while True:
            in_use, idle = self._held()
            free = self.budget - in_use
            if idle + size <= free:
                self._in_use, use.nbytes = self._in_use + size, size
                return dropped
            if size > free:
                raise OutOfBudget(
                    "the pool has no room",
                    expected=f"at most {max(free, 0)} bytes (budget {self.budget}, in use {in_use})",
                    found=f"{size} bytes asked for",
                    hint="Let batches be collected, withdraw data sets, or give the pool a larger budget.",
                )
            with contextlib.suppress(IndexError):  # a finalizer that ran just now took the last one
                dropped.append(self._idle.pop(0))

    def _collect(self) -> list[Slab]:
        """Take back the slabs of ended regions; return those to unmap, which the caller drops after unlocking."""
        dropped: list[Slab] = []
        if self._returned and (forks := self._sentinel.noticed()) != self._forks:
            # It was not announced: a child may read what was in use.
            self._forks = forks
            self._retire_used()
        for use in list(self._returned):
            self._used.discard(use)
            # It stays in the queue until it is counted, and is counted once: a finalizer may collect meanwhile.
            self._in_use, use.nbytes = self._in_use - use.nbytes, 0
            slab, use.slab = use.slab, None
            if slab is not None:
                self._retired += slab.retired
                (dropped if slab.retired or self._closed else self._idle).append(slab)
            with contextlib.suppress(ValueError):
                self._returned.remove(use)
        return dropped

    def _retire_used(self) -> None:
        for use in snapshot(self._used):
            if use.slab is not None:
                use.slab.retired = True

    def warm(self, nbytes: int) -> None:
        """Make an idle region of `nbytes` bytes with all its pages present.

        Examples
        --------
        >>> pool = Pool(budget=8 << 20)
        >>> pool.warm(1 << 20)
        >>> pool.stats.idle
        1048576
        """
        region = self.region(nbytes)
        if region.device.is_host:
            region.array(0, region.nbytes, writable=True)[:: 1 << 12] = 0

    def trim(self) -> None:
        """Give all idle memory back to the system."""
        self._check_process()
        self._allocations.settle()
        with self._lock:
            dropped = self._take_idle()
        let_go(dropped)

    def _take_idle(self) -> list[Slab]:
        """Return the slabs to unmap, and all idle ones."""
        dropped = self._collect()
        idle, self._idle = self._idle, []
        dropped += idle
        return dropped

    def close(self) -> None:
        """Give idle memory back now, and the rest as regions end. Regions in use stay valid."""
        if self._pid != os.getpid():
            return
        self._closed = self._allocations.closed = True
        self._allocations.settle()
        with self._lock:
            self._allocator.reset()
            dropped = self._take_idle()
            for use in snapshot(self._used):
                use.slab = None  # its memory is freed with the last reference
        let_go(dropped)

    def cupy(self) -> contextlib.AbstractContextManager[None]:
        """Return a ``with`` block in which CuPy allocates from this pool, in this thread.

        ``publish(…, share="in_place")`` then lends arrays of more than half a granule (mostly 2 MiB) without a
        copy, and memory is used again when an array is gone and no reader has it. Readers of a lent array can see
        all of its block: up to twice its size, with what earlier arrays left behind it.

        Raises
        ------
        UsageError, MissingDependency
            The pool is not on a GPU, or CuPy is not installed.

        Examples
        --------
        >>> from bowstring.testing import fake_device
        >>> pool = Pool(fake_device(), budget=64 << 20)
        >>> with pool.cupy():
        ...     array = pool.device.xp.zeros(4 << 20, "uint8")
        >>> pool.stats.allocated
        4194304
        """
        allocations = self._allocations
        block: contextlib.AbstractContextManager[None] = allocations.device().using_allocator(
            allocations.malloc, allocations.free
        )
        return block

    def rmm(self) -> Any:
        """Return a memory resource of RMM that allocates from this pool.

        ``rmm.mr.set_current_device_resource(pool.rmm())`` is for the whole process: cuDF's results can then be lent
        without a copy, as arrays can with `cupy`.
        Put no pool of RMM above it, whose blocks would be one allocation altogether. Each allocation calls Python,
        which RMM says is slow. A stream must live until the next allocation after a buffer is freed on it.

        Raises
        ------
        UsageError, MissingDependency
            The pool is not on a GPU, or RMM is not installed.

        Examples
        --------
        >>> from bowstring.testing import fake_device
        >>> pool = Pool(fake_device(), budget=64 << 20)
        >>> resource = pool.rmm()
        >>> address = resource.allocate(4 << 20)
        >>> pool.stats.allocated
        4194304
        >>> resource.deallocate(address, 4 << 20)
        """
        allocations = self._allocations
        return allocations.device().memory_resource(allocations.allocate, allocations.deallocate)

    def before_fork(self) -> None:
        """Let nothing be taken until after a fork, and never use again what is in use now.

        The child inherits every view that is alive, and nothing reports when it drops them.
        """
        self._held_for_fork = self._pid == os.getpid() and self._lock.acquire(timeout=_FORK_SECONDS)
        self._retire_used()

    def after_fork(self) -> None:
        """Go on after a fork, in the parent."""
        if self._held_for_fork:
            self._held_for_fork = False
            self._lock.release()

    @property
    def stats(self) -> PoolStatistics:
        """What the pool holds now, and what it has done."""
        self._check_process()
        self._allocations.settle()
        allocated = self._allocations.nbytes
        with self._lock:
            dropped = self._collect()
            in_use, idle = self._held()
            result = PoolStatistics(
                self.budget, in_use, idle, self._made, self._reused, self._retired, allocated
            )
        # Not `let_go`: reading statistics waits for no device.
        dropped.clear()
        return result

    def __reduce__(self) -> NoReturn:
        raise NotPicklable("a Pool belongs to its process", hint="Make one in the other process.")

    def __repr__(self) -> str:
        return f"<Pool {self.device.name} {self._in_use} of {self.budget} bytes in use>"


class Allocator:
    """Cuts buffers from regions of a pool, one after the other; it shares no region with another allocator."""

    def __init__(self, pool: Pool, expected: int = 0, *, prepare: bool = True) -> None:
        self._pool = pool
        self.device = pool.device
        self._prepare = prepare
        self._size = expected or pool.device.smallest_region
        self._least = expected
        self._lock = threading.RLock()
        self._region: Region | None = None
        self._next = 0

    def allocate(self, nbytes: int) -> Buffer:
        """Return a fresh buffer at the device's alignment."""
        if nbytes < 0:
            raise UsageError("a buffer cannot have a negative size", found=nbytes)
        self._pool._check()
        with self._lock:
            if self._region is None or self._next + nbytes > self._region.nbytes:
                self._region = None  # it comes back before more is taken
                # Smaller ones that lie warm come before a fresh one, or they would never be used again.
                least = max(nbytes, self._least or min(self._size, _GROWN))
                self._region = self._pool.region(max(nbytes, self._size), least=least, prepare=self._prepare)
                self._next = self._least = 0
                # Regions grow with what is in use, as each costs a descriptor; but a small buffer that is kept
                # holds a whole one, small ones stay in the processor's cache, and several must fit into the budget.
                most = max(_GROWN, self._pool._in_use // 8)
                share = max(self.device.smallest_region, self._pool.budget // 16)
                self._size = min(2 * self._region.nbytes, _SLAB, most, share)
            region, offset = self._region, self._next
            alignment = self.device.alignment
            self._next = offset + -(-nbytes // alignment) * alignment
        return Buffer.fresh(region, offset, nbytes)

    def reset(self) -> None:
        """Drop the current region; the next buffer is in another one."""
        self._region = None


_default_pools: dict[bytes, Pool] = {}
_default_lock = threading.RLock()


def default_pool(device: Device | None = None) -> Pool:
    """Return the pool of a device, the host's by default, that this process uses where none is passed.

    Examples
    --------
    >>> default_pool() is default_pool()
    True
    """
    device = device or cpu()
    with _default_lock:
        pool = _default_pools.get(device.uuid)
        if pool is None:
            pool = _default_pools[device.uuid] = Pool(device)
        return pool


def _forget_in_child() -> None:
    global _default_lock  # noqa: PLW0603  a fork leaves locks in any state
    _default_pools.clear()
    _default_lock = threading.RLock()


os.register_at_fork(after_in_child=_forget_in_child)
