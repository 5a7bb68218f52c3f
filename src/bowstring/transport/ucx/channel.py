"""A channel over UCX: untagged messages are active messages, tagged ones are matched by their tag.

What the specification says goes over the wire as it is: active messages of number 0 with an empty header, and
tagged messages to which nothing is added. What Bowstring adds is in :mod:`bowstring.transport.ucx.incoming` and
:class:`~bowstring.transport.ucx.link.Own`.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bowstring.errors import BowstringError, BrokenError, DeadlineExceeded, UsageError
from bowstring.limits import Limits
from bowstring.memory import Buffer
from bowstring.transport.channel import Land, Message, Received
from bowstring.transport.framing import landing, lazy_memory
from bowstring.transport.header import check_length
from bowstring.transport.peer import Peer, check_seconds
from bowstring.transport.ucx.context import DONE, HOST, MEMORY_TYPES, Failure, Request
from bowstring.transport.ucx.incoming import CONTROL, Control
from bowstring.transport.ucx.link import COUNT, COUNT_MASK, Link
from bowstring.transport.ucx.progress import Progress
from bowstring.transport.ucx.remote_memory import keyed_handle, pieces_of
from bowstring.transport.ucx.worker import Arrived, Probed, ends_as_key

if TYPE_CHECKING:
    from bowstring.memory import Device, KeyedHandle, Region

Views = Sequence[Any]  # bytes, or one buffer of a device

# What a message costs beside its bytes, as far as bounds for connections go.
_MESSAGE_BYTES: Final = 24
# Up to here what asks for data is copied, and not waited for.
_REQUEST_BYTES: Final = 1 << 16
# Ways by which UCX reads memory of a process that does nothing for it.
_READS: Final = ("cma", "xpmem", "knem", "rc_", "dc_", "cuda_ipc", "rocm_ipc", "ze_ipc", "srd")
_CLOSED: Final = "the peer closed the connection"


class UcxChannel(Progress):
    """One end of a connection over UCX; it owns the link from now on."""

    scheme = "ucx"
    passes_memory = "rkey"
    ordered = False

    def __init__(self, link: Link, address: str, peer: Peer, limits: Limits, *, dialled: bool) -> None:
        super().__init__(link, address, peer, limits)
        self._turn = threading.Lock()
        self._receiving = threading.Lock()
        self._asking = dialled  # until the peer has answered
        self.position = 0
        self._ways = ""
        if link.ours:
            link.greet()
            self._watch()

    # -- memory of the other process -----------------------------------------------------------------------

    @property
    def hands_over(self) -> bool:  # type: ignore[override]  # it depends on what UCX has for the peer
        """Whether the peer reads our memory without our help: else its bytes are better sent."""
        with self._lock:
            self._check_link()
            return any(way.startswith(_READS) for way in self._link.ways)

    @property
    def means(self) -> str:  # type: ignore[override]  # it becomes known
        """The transports and devices of UCX, and how it moves bodies, as far as it has said so."""
        protocol = self._reader.protocol or self._incoming.protocol
        return f"{self._ways} ({protocol})" if protocol else self._ways

    def reaches(self, device: Device) -> bool:
        kind = MEMORY_TYPES.get(device.arrow_device_type)
        return kind is not None and bool(self._link.worker.context.memory_types >> kind & 1)

    def keyed(self, region: Region) -> KeyedHandle | None:
        return keyed_handle(self._link.worker.context, region)

    def reads_with(self, key: bytes) -> bool:
        return ends_as_key(key)

    def read_remote(
        self, reads: Sequence[tuple[bytes, int, int]], buffer: Buffer, offsets: Sequence[int]
    ) -> None:
        region, total = buffer.region, sum(nbytes for _, _, nbytes in reads)
        requests: list[Request] = []
        self._enter()
        try:
            place = region.array(buffer.offset, buffer.nbytes, writable=True)
            for pieces in pieces_of(reads, offsets):
                with self._lock:
                    self._check_link()
                    self._moved = time.monotonic()
                    requests += self._reader.begin(pieces, region.address + buffer.offset, place)
                while requests:
                    self._finish(requests[-1], total)
                    requests.pop()
            with self._lock:
                self._check_link()
                look = self._reader.look()
            if look is not None:
                self._finish(look, total)
            if not self._reader.holds:
                raise BrokenError("the peer took memory back while it was read", where=str(self))
        except BaseException as error:
            with self._lock:
                for request in requests:  # which go on until the worker ends
                    self._link.keep(request)
                if not self._closed:
                    self._break(error)
            if isinstance(error, Failure):
                raise BrokenError(
                    "memory of the peer cannot be read", found=str(error), where=str(self)
                ) from error
            raise
        finally:
            self._leave()

    # -- sending -------------------------------------------------------------------------------------------

    def send(self, messages: Sequence[Message], deadline: float) -> None:
        check_seconds(deadline, "deadline")
        outgoing = [self._checked(message) for message in messages]
        self._enter()
        try:
            if not self._turn.acquire(timeout=deadline):
                raise DeadlineExceeded(f"another thread was sending for {deadline:g} s", where=str(self))
            try:
                self._send(outgoing, deadline)
            finally:
                self._turn.release()
            if not self._receiver.waiting:
                self._watch()
        finally:
            self._leave()

    def _checked(self, message: Message) -> tuple[int | None, Views]:
        if message.attachments:
            raise UsageError("ucx: carries no attachments", found=f"{len(message.attachments)} of them")
        pieces: Sequence[Any] = message.pieces
        if len(pieces) == 1 and isinstance(pieces[0], Buffer):
            return message.tag, pieces
        return message.tag, message.views()

    def _send(self, outgoing: Sequence[tuple[int | None, Views]], deadline: float) -> None:
        pending: list[Request] = []
        try:
            with self._lock:
                self._progress(self._receiver)
                self._check_peer()
                for tag, views in outgoing:
                    pending.append(self._post(tag, views))
                self._moved = time.monotonic()
            while pending := self._left(pending):
                if time.monotonic() - self._moved >= deadline:
                    raise DeadlineExceeded(f"the peer took nothing for {deadline:g} s", where=str(self))
                self._wait(self._sender, self._receiver, deadline)
        except BowstringError as error:
            self._give_up(error, pending)
            raise
        except Failure as failure:
            raise self._give_up(BrokenError(str(failure), where=str(self)), pending) from failure
        except BaseException:
            self._give_up(BrokenError("sending was interrupted inside a message", where=str(self)), pending)
            raise

    def _post(self, tag: int | None, views: Views) -> Request:
        """Begin to send a message; the lock is held."""
        link = self._link
        if tag is None:
            link.untagged += 1
            return link.endpoint.send(None, views)
        if tag >> 56 == CONTROL:
            return link.endpoint.send(tag, [COUNT.pack(link.untagged & COUNT_MASK), *views])
        if views and isinstance(views[0], Buffer):
            request = link.endpoint.send(tag, views, MEMORY_TYPES[views[0].device.arrow_device_type])
        elif self._asking and sum(map(len, views)) <= _REQUEST_BYTES:
            # As the specification's own implementation asks: UCX tells of it when the server has taken it.
            link.keep(link.endpoint.send(tag, [b"".join(views)], sync=True))
            return DONE
        else:
            request = link.endpoint.send(tag, views)
        if tag >> 56 == 0 and sum(map(len, views)) > _REQUEST_BYTES:
            link.say_protocol(request)
        return request

    def _left(self, pending: list[Request]) -> list[Request]:
        """Return what is not done yet."""
        if not pending:
            return pending
        with self._lock:
            self._progress(self._receiver)
            # Which end mostly in order: to ask each of many takes long.
            left = list(itertools.dropwhile(lambda each: each.done, pending))
            if left:
                self._check_peer()
            return left

    def _check_peer(self) -> None:
        """Refuse to send to a peer that is gone; the lock is held."""
        if self._incoming.ended:
            raise BrokenError(_CLOSED, where=str(self))
        if self._is_lost():
            raise BrokenError("the connection is lost", found=self._link.endpoint.failed, where=str(self))

    def _give_up(self, error: BowstringError, pending: list[Request]) -> BowstringError:
        """Break the connection where a message was begun and not finished, which the peer may still read."""
        if pending:
            with self._lock:
                self._link.give_up(pending)
                if not self._closed:
                    self._break(error)
        return error

    # -- receiving -----------------------------------------------------------------------------------------

    def receive(self, idle: float, land: Land | None = None) -> Received | None:
        check_seconds(idle, "idle")
        self._enter()
        try:
            if not self._receiving.acquire(blocking=False):
                raise UsageError("another thread is receiving", where=str(self))
            try:
                return self._receive(idle, land)
            finally:
                self._receiving.release()
        finally:
            self._leave()

    def _receive(self, idle: float, land: Land | None) -> Received | None:
        end = time.monotonic() + idle
        while True:
            try:
                with self._lock:
                    self._progress(self._sender)
                    message = self._next()
                if message is not None:
                    return self._deliver(message, land)
                left = end - time.monotonic()
                if left <= 0:
                    return None
                self._wait(self._receiver, self._sender, left)
            except Failure as failure:
                error = BrokenError("receiving failed", found=str(failure), where=str(self))
                self._stop_reading(error)
                raise error from failure
            except BaseException as error:
                self._stop_reading(error)
                raise

    def _stop_reading(self, error: BaseException) -> None:
        if self._broken or self._closed or self._incoming.ended:
            return
        self._say_last(error)
        with self._lock:
            self._break(error)

    def _next(self) -> Arrived | Probed | Control | None:
        """Return the next message that may be received; the lock is held."""
        message = self._incoming.next()
        if message is None and self._incoming.complete:
            raise BrokenError(_CLOSED, where=str(self))
        if message is None and self._is_lost():
            raise BrokenError("the connection is lost", found=self._link.endpoint.failed, where=str(self))
        return message

    def _deliver(self, message: Arrived | Probed | Control, land: Land | None) -> Received:
        if not self._ways:
            with self._lock:
                self._check_link()
                self._ways = ", ".join(self._link.ways)
        self._asking = False
        match message:
            case Arrived():
                self._check(None, message.nbytes)
                return Received(None, self._untagged(message))
            case Probed():
                self._check(message.tag, message.nbytes)
                return self._tagged(message, land)
            case Control(tag, body):
                self._check(tag, body.nbytes)
                place = landing(tag, body.nbytes, land)
                place.view[:] = body
                return Received(tag, place.body)

    def _check(self, tag: int | None, nbytes: int) -> None:
        check_length(tag, nbytes, self.limits)
        self.position += _MESSAGE_BYTES + nbytes
        if self.restriction is not None:
            self.restriction.check(self.position)

    def _untagged(self, arrived: Arrived) -> memoryview:
        if arrived.body is not None:
            return memoryview(arrived.body)
        place = lazy_memory(arrived.nbytes)
        array = np.frombuffer(place, np.uint8)
        with self._lock:
            self._check_link()
            request = self._link.worker.fetch(arrived, array.ctypes.data, kept=array)
        self._finish(request, arrived.nbytes)
        return place.toreadonly()

    def _tagged(self, probed: Probed, land: Land | None) -> Received:
        given: Any = None if land is None else land(probed.tag, probed.nbytes)
        kind, kept = HOST, given
        if isinstance(given, Buffer) and not given.device.is_host and given.nbytes == probed.nbytes:
            body, address = given, given.address
            kind = MEMORY_TYPES[given.device.arrow_device_type]
        else:
            place = landing(probed.tag, probed.nbytes, None if land is None else lambda *_: given)
            body, address = place.body, 0
            if probed.nbytes:
                kept = np.frombuffer(place.view, np.uint8)
                address = kept.ctypes.data
        with self._lock:
            self._check_link()
            request = self._link.worker.receive(probed, address, kind, kept)
        self._finish(request, probed.nbytes)
        return Received(probed.tag, body)
