"""The mapping cache: regions of peers that this process has mapped, by UUID, so that each is mapped once."""

from __future__ import annotations

import collections
import dataclasses
import os
import threading
import time
import weakref
from typing import Final

from bowstring.errors import DeviceError, InvalidRegion, NotOnDevice
from bowstring.limits import DEFAULT_LIMITS
from bowstring.memory.cuda.driver_device import DriverDevice
from bowstring.memory.cuda.ipc import opened_here
from bowstring.memory.device import CPU_DEVICE_TYPE, Device, Slab, cpu, let_go
from bowstring.memory.devices import find_device
from bowstring.memory.handle import Handle, LentHandle, Process, this_process
from bowstring.memory.region import Region, mapped_here, pooled
from bowstring.memory.slab import close_descriptor, identity_of

_IDLE_SECONDS: Final = 60.0
_SHORTEST_LOOK: Final = 0.05
_WATCH_NAME: Final = "idle (bowstring)"  # as of standby threads: nothing waits for it


@dataclasses.dataclass(frozen=True, slots=True)
class MappingStatistics:
    """What a mapping cache has done: counts, and the bytes that idle mappings hold."""

    hits: int
    misses: int
    in_use: int
    idle: int
    idle_bytes: int


class MappingCache:
    """Mapped regions of peers, kept for a while after their last view is gone.

    An idle mapping keeps the peer's pages alive, so there are few of them, for a short time: at most
    `idle_regions` and `idle_bytes`, for `idle_seconds`, and as long again until a thread looks. Whether cached
    memory is the announced memory is decided by the kernel (device and inode of the descriptor), never by the
    UUID alone.

    Memory that was opened by a handle of the driver's is closed as soon as nothing uses it: its owner may not free
    it while it is open.
    """

    def __init__(
        self, idle_regions: int = 64, idle_bytes: int = 8 << 30, idle_seconds: float = _IDLE_SECONDS
    ) -> None:
        self._idle_regions = idle_regions
        self._idle_bytes = idle_bytes
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        # Each is held while its region is mapped, so that other threads wait for that mapping and make none.
        self._turns: weakref.WeakValueDictionary[bytes, threading.RLock] = weakref.WeakValueDictionary()
        self._used: dict[bytes, weakref.ref[Region]] = {}
        self._idle: collections.OrderedDict[bytes, tuple[Slab, float]] = collections.OrderedDict()
        self._returned: collections.deque[Slab] = collections.deque()
        self.hits = 0  # how many opened regions were mapped already
        self._misses = 0
        self._watched = False

    def open(self, handle: Handle, fd: int) -> Region:
        """Return the region that `handle` names and `fd` opens, for reading; takes ownership of `fd`."""
        with self._lock:
            turn = self._turns.setdefault(handle.uuid, threading.RLock())
        with turn:
            try:
                region = self._cached(handle, fd)
                if region is None:
                    device = find_device(handle.arrow_device_type, handle.device_uuid)
            except BaseException:
                close_descriptor(fd)
                raise
            if region is None:
                return self._in_use(device.map_slab(fd, handle.nbytes, handle.uuid))
            close_descriptor(fd)
            return region

    def open_private(self, handle: Handle, fd: int) -> Region:
        """Return a copy-on-write mapping of the host memory that `handle` names; takes ownership of `fd`.

        Each call maps it anew, and the mapping ends with the region: what its user writes is in no other view.
        """
        if handle.arrow_device_type != CPU_DEVICE_TYPE:
            close_descriptor(fd)
            raise NotOnDevice(
                "only memory of the host is mapped copy-on-write", found=handle.device_uuid.hex()
            )
        return Region.of_slab(cpu().map_slab(fd, handle.nbytes, handle.uuid, private=True))

    def _in_use(self, slab: Slab) -> Region:
        region = Region.of_slab(slab, self._returned)
        if slab.uuid in pooled:
            mapped_here[slab.address] = region
        with self._lock:
            self._misses += 1
            self._used[slab.uuid] = weakref.ref(region)
        return region

    def open_lent(self, handle: LentHandle) -> Region:
        """Return the memory that `handle` names; in the process that exported it, the memory itself."""
        here = this_process()
        if handle.exporter == here:
            return Region.of_slab(opened_here(handle))
        # The number of a process that this one cannot see may be that of another one here.
        if handle.exporter.place != here.place:
            raise InvalidRegion(
                "lent memory is of a process that this one cannot see",
                expected=f"machine and PID namespace {here.place}",
                found=handle.exporter.place,
                hint="Containers must share a PID namespace (docker run --pid=…).",
            )
        if not handle.exporter.alive:
            raise InvalidRegion(
                "the process that lent the memory has ended",
                found=f"PID {handle.exporter.pid}",
                hint='What is published with share="in_place" dies with its producer.',
            )
        device = find_device(handle.arrow_device_type, handle.device_uuid)
        if not isinstance(device, DriverDevice):
            raise InvalidRegion("memory of the host is not lent by handles", found=device.name)
        return self._lent(handle, device)

    def _lent(self, handle: LentHandle, device: DriverDevice) -> Region:
        with self._lock:
            turn = self._turns.setdefault(handle.uuid, threading.RLock())
        with turn:
            region = self._cached(handle)
            return self._in_use(device.open_lent(handle)) if region is None else region

    def open_token(self, token: bytes, device: Device) -> Region:
        """Return the allocation that a CUDA IPC handle names, whole, as far as a device reaches it.

        For handles of programs that pass on only the driver's 64 bytes.
        """
        if not isinstance(device, DriverDevice):
            raise InvalidRegion("memory of the host is not lent by handles", found=device.name)
        try:
            nbytes = device.size_of(token)
        except DeviceError as error:
            raise InvalidRegion(
                "memory of a CUDA IPC handle cannot be opened",
                found=str(error),
                where=device.name,
                hint="Both processes must be in one PID namespace, and the GPUs reach each other; and a process "
                "cannot open its own.",
            ) from error
        somebody = Process(bytes(16), 0, 0, 0)
        handle = LentHandle(token, 0, 0, somebody, device.uuid, nbytes, device.arrow_device_type)
        return self._lent(handle, device)

    def _cached(self, handle: Handle | LentHandle, fd: int | None = None) -> Region | None:
        """Return the region that a handle names, if it is mapped; lent memory is never idle."""
        uuid = handle.uuid
        with self._lock:
            dropped = self._collect()
            reference = self._used.get(uuid)
            region = reference() if reference is not None else None
            idle = None if isinstance(handle, LentHandle) else self._idle.get(uuid)
            slab = region.slab if region is not None else idle[0] if idle is not None else None
            identity = handle if fd is None else None if slab is None else identity_of(fd)
            if slab is not None and (slab.identity != identity or slab.nbytes != handle.nbytes):
                raise InvalidRegion(
                    "a region has the name of another one that this process has mapped",
                    found=uuid.hex(),
                    hint="Two producers never make the same name by chance: do not trust this one.",
                )
            if region is None and slab is not None:
                del self._idle[uuid]
                region = Region.of_slab(slab, self._returned)
                self._used[uuid] = weakref.ref(region)
                if uuid in pooled:
                    mapped_here[slab.address] = region
            self.hits += region is not None
        # Not `let_go`, which may wait for a device: this thread must answer a producer.
        dropped.clear()
        return region

    def _collect(self) -> list[Slab]:
        """Take back the slabs of ended regions; return those to unmap, which the caller drops after unlocking."""
        now = time.monotonic()
        dropped: list[Slab] = []
        while self._returned:
            slab = self._returned.popleft()
            reference = self._used.get(slab.uuid)
            if reference is not None and reference() is None:
                del self._used[slab.uuid]
            if isinstance(slab.identity, LentHandle):
                dropped.append(slab)
            else:
                self._idle[slab.uuid] = (slab, now)
        nbytes = 0
        for slab, _ in self._idle.values():
            nbytes += slab.nbytes
        while self._idle:
            slab, since = next(iter(self._idle.values()))
            is_much = len(self._idle) > self._idle_regions or nbytes > self._idle_bytes
            if not is_much and now - since <= self._idle_seconds:
                break
            nbytes -= slab.nbytes
            dropped.append(self._idle.popitem(last=False)[1][0])
        return dropped

    def trim(self, seconds: float = DEFAULT_LIMITS.close_timeout) -> None:
        """Unmap what is old or too much, waiting for each device at most so long; called when a stream ends.

        A thread looks again at what stays, or is used still: there may never be another stream.
        """
        with self._lock:
            dropped = self._collect()
            begins = not self._watched and bool(self._idle or self._used)
            self._watched = self._watched or begins
        let_go(dropped, seconds)
        if begins:
            watch = threading.Thread(target=_watch, args=(weakref.ref(self),), name=_WATCH_NAME, daemon=True)
            try:
                watch.start()
            except RuntimeError:  # no thread can be started; the next stream's end tries again
                self._watched = False

    def clear(self) -> None:
        """Unmap everything that no view needs.

        Examples
        --------
        >>> mappings().clear()
        >>> mappings().stats.idle
        0
        """
        with self._lock:
            dropped = self._collect()
            dropped += [slab for slab, _ in self._idle.values()]
            self._idle.clear()
        let_go(dropped)

    @property
    def stats(self) -> MappingStatistics:
        """Counts so far, and what is mapped now."""
        with self._lock:
            dropped = self._collect()
            result = MappingStatistics(
                hits=self.hits,
                misses=self._misses,
                in_use=sum(reference() is not None for reference in self._used.values()),
                idle=len(self._idle),
                idle_bytes=sum(slab.nbytes for slab, _ in self._idle.values()),
            )
        let_go(dropped)
        return result


def _watch(reference: weakref.ref[MappingCache]) -> None:
    """Look at a cache until it is collected, or holds nothing; it is not kept alive between the looks."""
    while (cache := reference()) is not None:
        with cache._lock:
            dropped = cache._collect()
            watched = cache._watched = bool(cache._idle or cache._used)
        let_go(dropped)
        if not watched:
            return
        seconds = max(cache._idle_seconds, _SHORTEST_LOOK)
        del cache
        time.sleep(seconds)


_process_cache = MappingCache()


def mappings() -> MappingCache:
    """Return the mapping cache of this process."""
    return _process_cache


def _forget_parent() -> None:
    global _process_cache  # noqa: PLW0603  the child of a fork starts with a cache (and a lock) of its own
    _process_cache = MappingCache()


os.register_at_fork(after_in_child=_forget_parent)
