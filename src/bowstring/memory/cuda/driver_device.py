"""Devices whose memory a driver makes, and exports as file descriptors, which are passed like memfds."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from bowstring.errors import (
    DeadlineExceeded,
    DeviceError,
    ForkedError,
    InvalidRegion,
    NotExportable,
)
from bowstring.limits import DEFAULT_LIMITS
from bowstring.memory.cuda.deferred import DeferredCalls, Mapped
from bowstring.memory.cuda.driver import Capturing, no_such_stream
from bowstring.memory.cuda.events import Events, RecordedEvent
from bowstring.memory.cuda.streams import NamedStream, SeenStreams
from bowstring.memory.device import Device, Slab
from bowstring.memory.handle import LentHandle
from bowstring.memory.slab import close_descriptor, identity_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bowstring.memory.cuda.bindings import CudaDriver
    from bowstring.memory.lease import Finalizer

# A copy of 16 MiB takes from 10 µs, on one GPU, to 2 ms, over a slow bus.
_SHORTEST_PAUSE: Final = 5e-6
_LONGEST_PAUSE: Final = 5e-4
# Streams in DLPack: https://dmlc.github.io/dlpack/latest/python_spec.html
_NO_STREAM: Final = -1
_DEFAULT_STREAM: Final = 1
_MANY: Final = 16
# CU_STREAM_LEGACY, CU_STREAM_PER_THREAD
_LEGACY: Final = 1
_PER_THREAD: Final = 2
_LOCAL: Final = threading.local()
_ENDED: Final = "The process that lent it has ended, and its memory with it."
_NOT_OPENED: Final = (
    "Handles do not work across MIG instances, between GPUs without peer access, or for memory that was freed; "
    'publish(…, share="copy") does not need them.'
)


class DriverDevice(Device):
    """A device with a :class:`~bowstring.memory.cuda.bindings.CudaDriver`; memory is mapped once in each process.

    :meth:`sweep` unmaps unreferenced memory after the streams that used it: queued work may still read it.
    """

    alignment = 256

    def __init__(self, driver: CudaDriver, ordinal: int) -> None:
        self.driver = driver
        self.ordinal = ordinal
        self.arrow_device_id = ordinal
        self.uuid = driver.device_uuid(ordinal)
        self.exports = driver.can_export(ordinal)
        self.maps_read_only: bool | None = None
        self.lets_read_only: bool | None = None
        self._granularity = driver.granularity(ordinal) if self.exports else self.alignment
        self.smallest_region = max(self.smallest_region, self._granularity)
        # `rest` is looked up late: tests replace it.
        self._deferred = DeferredCalls(lambda: self.rest(math.inf), f"bowstring-device-{ordinal}")
        self.openings: list[
            tuple[int, int]
        ] = []  # address and size of what others allocated, for each opening
        self._let_in: weakref.WeakKeyDictionary[Slab, set[int]] = weakref.WeakKeyDictionary()
        self._pid = os.getpid()
        self._events = Events(driver, ordinal)
        self._shared_events = Events(driver, ordinal, shared=True)
        self._seen = SeenStreams()
        # Events behind which other libraries freed memory of ours; a list, since finalizers add to it.
        self.freed_behind = []

    def make_slab(self, nbytes: int) -> Slab:
        """Allocate memory that other processes can map, if the device exports any."""
        self.sweep()
        size = self._whole(nbytes)
        if not self.exports:
            address = self.driver.allocate_private(self.ordinal, size)
            free = functools.partial(self.driver.free_private, self.ordinal, address)
            mapped = Mapped(address, free, self._deferred)
            return Slab(self, mapped, address, nbytes, writable=True)
        with contextlib.ExitStack() as undo:
            handle = self.driver.create(self.ordinal, size)
            try:
                mapped = self._mapped(handle, size, writable=True)
                fd = self.driver.export(handle)
                undo.callback(os.close, fd)
            finally:
                # The mapping and the descriptor keep the memory.
                self.driver.release(handle)
            undo.pop_all()
        return Slab(self, mapped, mapped.address, nbytes, writable=True, fd=fd)

    def map_slab(self, fd: int, nbytes: int, uuid: bytes) -> Slab:
        """Map memory that another process made, for reading. Takes ownership of `fd`, whatever happens.

        It waits for no work of the device: the calling thread must answer a producer.
        """
        try:
            self._check_process()
            if nbytes <= 0:
                raise InvalidRegion("a region has no bytes", found=nbytes)
            identity = identity_of(fd)
            handle = self.driver.import_(fd)
            try:
                mapped = self._mapped(handle, self._whole(nbytes), writable=False)
            finally:
                self.driver.release(handle)
        except DeviceError as error:
            raise InvalidRegion(
                "a region cannot be mapped on its device", found=str(error), where=self.name
            ) from error
        finally:
            close_descriptor(fd)
        return Slab(self, mapped, mapped.address, nbytes, uuid, identity=identity)

    def open_lent(self, handle: LentHandle) -> Slab:
        """Open memory that another process allocated and exports by a handle; :meth:`sweep` closes it."""
        self._check_process()
        if handle.nbytes <= 0:
            raise InvalidRegion("a region has no bytes", found=handle.nbytes)
        driver = self.driver
        try:
            address = driver.open_ipc_handle(self.ordinal, handle.token)
            with contextlib.ExitStack() as undo:
                undo.callback(driver.close_ipc_handle, self.ordinal, address)
                found = self._nbytes_from(address)
                if found < handle.nbytes:
                    raise InvalidRegion(
                        "lent memory is smaller than announced", expected=handle.nbytes, found=found
                    )
                undo.pop_all()
        except DeviceError as error:
            hint = _ENDED if not handle.exporter.alive else _NOT_OPENED
            raise InvalidRegion(
                "lent memory cannot be opened", found=str(error), where=self.name, hint=hint
            ) from error
        self.openings.append((address, handle.nbytes))
        mapped = Mapped(address, functools.partial(self._close, address, handle.nbytes), self._deferred)
        return Slab(self, mapped, address, handle.nbytes, handle.uuid, identity=handle)

    def size_of(self, token: bytes) -> int:
        """Return how much there is from where a driver's handle opens to its allocation's end."""
        address = self.driver.open_ipc_handle(self.ordinal, token)
        try:
            return self._nbytes_from(address)
        finally:
            self.driver.close_ipc_handle(self.ordinal, address)

    def _nbytes_from(self, address: int) -> int:
        start, nbytes = self.driver.address_range(self.ordinal, address)
        return start + nbytes - address if start <= address else 0

    def _close(self, address: int, nbytes: int) -> None:
        self.openings.remove((address, nbytes))
        self.driver.close_ipc_handle(self.ordinal, address)

    def is_borrowed(self, address: int) -> bool:
        """Whether memory of another process lies there, which :meth:`open_lent` opened."""
        self._check_process()
        return any(start <= address < start + nbytes for start, nbytes in list(self.openings))

    def sweep(self, seconds: float = DEFAULT_LIMITS.close_timeout) -> None:
        """Unmap what nothing refers to any more, once the device has done what was queued.

        What the device may still read after `seconds` is unmapped as soon as it is done.
        """
        self._check_process()
        if self._deferred.calls:
            # A device that failed has nothing left to wait for; its memory is gone with it.
            with contextlib.suppress(DeviceError, DeadlineExceeded):
                self._deferred.wait(seconds)
        if len(self._seen) > _MANY:  # nobody waits for some of them
            for address in {each.address for each in self._seen.now()}:
                with contextlib.suppress(DeviceError, DeadlineExceeded):
                    self.wait_streams((address,), 0.0)
        self._events.drop_idle()
        self._shared_events.drop_idle()

    def later(self, call: Callable[[], object]) -> None:
        """Call a function as soon as all streams that were used have done what is queued now, in another thread."""
        self._deferred.add(call)
        # If no thread can be started, the next sweep calls it; in a forked child nothing does.
        if os.getpid() == self._pid:
            with contextlib.suppress(DeviceError):
                self._deferred.begin()

    def drain(self, seconds: float = DEFAULT_LIMITS.device_timeout) -> None:
        """Wait until all that ended by now is unmapped or closed, for a limited time.

        A thread of the device's own does it; after a timeout it goes on.
        """
        self._check_process()
        self._deferred.wait(seconds)

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedError(
                f"{self.name} cannot be used in a child that was forked",
                hint="A driver does not survive a fork: start processes by spawn or forkserver.",
            )

    def synchronize(self) -> None:
        self._check_process()
        self.driver.synchronize(self.ordinal)

    def memory_info(self) -> tuple[int, int]:
        self._check_process()
        return self.driver.memory_info(self.ordinal)

    def current(self) -> NamedStream:
        return getattr(_LOCAL, "streams", {}).get(self) or NamedStream(0, self)

    @contextlib.contextmanager
    def on(self, streams: Sequence[NamedStream]) -> Iterator[None]:
        """Make the first of some streams the current one of this thread, which waits for the others."""
        before = getattr(_LOCAL, "streams", {})
        _LOCAL.streams = {**before, self: streams[0]}
        try:
            with self.use():
                self.follow(streams)
                yield
        finally:
            _LOCAL.streams = before

    def current_stream(self) -> int:
        """Return the address of the current stream, which is waited for from now on before memory is used again."""
        stream = self.current()
        self.note_stream(*stream)
        return stream.address

    def note_stream(self, address: int, owner: object) -> None:
        """Take note of a stream that may read memory, and keep its owner alive until it is done."""
        self._seen.note(NamedStream(address, owner))

    def lend(self, owner: object) -> object:
        """Return what keeps the owner of memory for an array: while that lives, the current stream may read it."""
        if os.getpid() != self._pid:
            return owner  # nothing is queued in a child that was forked
        return owner, self.handed_out()

    def handed_out(self) -> tuple[object, Finalizer]:
        address, owner = self.current()
        return (self.name, address, id(owner)), self._seen.hand_out(NamedStream(address, owner))

    def follow(self, streams: Sequence[NamedStream]) -> None:
        """Let the first of some streams wait for the others."""
        first, *others = streams
        for each in streams:
            self.note_stream(*each)
        for mark in self.marks([each.address for each in others]):
            self.wait_event(mark.handle, first.address)

    def rest(self, seconds: float) -> None:
        seen, freed = self._seen.now(), list(self.freed_behind)
        marks = list[RecordedEvent]()
        # The default stream of each thread is another one, and the legacy one waits for all of them.
        addresses = {_LEGACY if each.address == _PER_THREAD else each.address for each in seen}
        for address in sorted(addresses - {_LEGACY}):
            try:
                marks += self.marks((address,))
            except DeviceError as error:
                if not no_such_stream(error):
                    raise
                addresses.add(_LEGACY)  # what was queued on it may go on, and no call names it any more
        if _LEGACY in addresses or not addresses:
            marks += self.marks((_LEGACY,))
        self.wait_marks([*freed, *marks], seconds)
        self._seen.forget(seen)
        for each in freed:
            with contextlib.suppress(ValueError):  # another thread has waited for it, too
                self.freed_behind.remove(each)

    def marks(self, streams: Iterable[int]) -> list[RecordedEvent]:
        """Return an event behind all that is queued on each of some streams now."""
        self._check_process()
        streams = list(streams)
        for each in streams:
            if self.driver.stream_capturing(self.ordinal, each):
                raise Capturing(
                    "a CUDA graph is being captured", found=f"on stream {each:#x}", where=self.name
                )
        return [self._events.record(each) for each in streams]

    def wait_streams(self, streams: Iterable[int], seconds: float) -> None:
        """Wait until some streams have done what is queued now."""
        addresses = set(streams)
        seen = [each for each in self._seen.now() if each.address in addresses - {_PER_THREAD}]
        self.wait_marks(self.marks(addresses), seconds)
        self._seen.forget(seen)

    def wait_marks(self, marks: Iterable[RecordedEvent], seconds: float) -> None:
        """Wait for some events; polls, since a driver's wait cannot be ended."""
        deadline = time.monotonic() + seconds
        pause = _SHORTEST_PAUSE
        for mark in marks:
            while not self.driver.event_done(self.ordinal, mark.handle):
                if time.monotonic() > deadline:
                    raise DeadlineExceeded(
                        "a device is still at work", expected=f"done within {seconds:g} s", where=self.name
                    )
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)

    def copy_in(self, address: int, host: int, nbytes: int) -> None:
        self._check_process()
        self.driver.copy_in(self.ordinal, address, host, nbytes, self.current_stream())

    def copy_out(self, host: int, address: int, nbytes: int) -> None:
        self._check_process()
        self.driver.copy_out(self.ordinal, host, address, nbytes, self.current_stream())

    def copy_to_peer(self, peer: DriverDevice, target: int, address: int, nbytes: int) -> None:
        """Queue a copy to an address of another device of the same driver, on the current stream of this one."""
        self._check_process()
        stream = self.current_stream()
        self.driver.copy_peer(target, peer.ordinal, address, self.ordinal, nbytes, stream)

    def let_in(self, slab: Slab, peer: DriverDevice) -> None:
        """Let another device of the same driver read a slab of this one; write it too if the driver has no less.

        Access to memory that another library allocated cannot be set here; the driver copies it all the same.
        """
        self._check_process()
        others = slab.ipc_handle is not None or isinstance(slab.identity, LentHandle)
        if others or (slab.fd < 0 and slab.identity is None):
            return
        readers = self._let_in.setdefault(slab, set())
        if peer.ordinal not in readers:
            size, known = self._whole(slab.nbytes), self.lets_read_only
            self.lets_read_only = self._let_read(slab.address, size, peer.ordinal, known)
            readers.add(peer.ordinal)

    def wait_stream(self, seconds: float) -> None:
        self.wait_streams((self.current_stream(),), seconds)

    def _whole(self, nbytes: int) -> int:
        return max(1, -(-nbytes // self._granularity)) * self._granularity

    def _let_read(self, address: int, nbytes: int, ordinal: int, known: bool | None) -> bool:
        """Give a device read access, and write access too where the driver refuses less; return which it was."""
        if known is not False:
            try:
                self.driver.set_access(address, nbytes, ordinal, writable=False)
            except DeviceError:
                if known:
                    raise
            else:
                return True
        self.driver.set_access(address, nbytes, ordinal, writable=True)
        return False

    def _mapped(self, handle: int, nbytes: int, *, writable: bool) -> Mapped:
        """Map all of a handle; on failure nothing stays mapped or reserved."""
        driver = self.driver
        with contextlib.ExitStack() as undo:
            address = driver.reserve(nbytes)
            undo.callback(driver.free_address, address, nbytes)
            driver.map(address, nbytes, handle)
            undo.callback(driver.unmap, address, nbytes)
            if writable:
                driver.set_access(address, nbytes, self.ordinal, writable=True)
            else:
                self.maps_read_only = self._let_read(address, nbytes, self.ordinal, self.maps_read_only)
            undo.pop_all()

        def unmap() -> None:
            driver.unmap(address, nbytes)
            driver.free_address(address, nbytes)

        return Mapped(address, unmap, self._deferred)

    # The order of work

    def record(self, *, shared: bool = False) -> RecordedEvent:
        self._check_process()
        if shared:
            return self._shared_events.record(self.current_stream())
        event = self._events.record(self.current_stream())
        # A consumer that gets it with memory reads that on this stream, or on one that waits for it.
        event.reader = self._seen.hand_out(self.current())
        return event

    def open_event(self, token: bytes) -> Mapped:
        """Return another process's event; :meth:`sweep` destroys it once nothing refers to it."""
        self._check_process()
        event = self.driver.open_ipc_event_handle(self.ordinal, token)
        end = functools.partial(self.driver.event_destroy, self.ordinal, event)
        return Mapped(event, end, self._deferred)

    def wait_event(self, handle: int, stream: int | None = None) -> None:
        self._check_process()
        stream = self.current_stream() if stream is None else stream
        self.driver.stream_wait_event(self.ordinal, stream, handle)

    def order_for(self, stream: int | None) -> Finalizer | None:
        """Let a stream wait for the current one: -1 is none, ``None`` the default one, as in DLPack.

        While what is returned lives, memory that was handed to the stream may be read there.
        """
        if stream == _NO_STREAM:
            return None
        if stream is not None and (stream == 0 or stream < _NO_STREAM):
            raise NotExportable("no stream has this number in DLPack", found=stream, hint="0 is ambiguous.")
        address, current = stream or _DEFAULT_STREAM, self.current()
        event = self.record()
        # DLPack names no owner; often it is ours.
        reader = self._seen.hand_out(current if current.address == address else NamedStream(address, None))
        self.driver.stream_wait_event(self.ordinal, address, event.handle)
        return reader
