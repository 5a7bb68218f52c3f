"""A channel over UCX: untagged messages are active messages, tagged ones are matched by their tag.

What the specification says goes over the wire as it is: active messages of number 0 with an empty header, and
tagged messages to which nothing is added. UCX keeps no common order of the two. So a message with a control tag of
ours (type byte 0xB0, sent only after a hello) begins with the number of untagged messages that were sent before it,
as a u32, and waits for them. Two ends of Bowstring's send each other messages with type byte 0xB3 besides,
:class:`~bowstring.transport.ucx.attendant.Own`.
"""

from __future__ import annotations

import contextlib
import os
import select
import struct
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from bowstring.errors import BowstringError, BrokenError, DeadlineExceeded, ProtocolError, UsageError
from bowstring.limits import Limits
from bowstring.transport.channel import Channel, Land, Message, Received
from bowstring.transport.descriptors import InUse, Usage, abandon_in_child
from bowstring.transport.framing import check_length, landing, lazy_memory
from bowstring.transport.peer import Peer, check_seconds, milliseconds
from bowstring.transport.ucx.attendant import Link, Own, leave, let_go, watch
from bowstring.transport.ucx.context import Failure, Request
from bowstring.transport.ucx.endpoint import RemoteKey
from bowstring.transport.ucx.registration import keyed_handle
from bowstring.transport.ucx.worker import Arrived, Probed

if TYPE_CHECKING:
    from bowstring.memory import KeyedHandle, Region

__all__ = ["Sleeper", "UcxChannel"]

_CONTROL: Final = 0xB0
_COUNT: Final = struct.Struct("<I")
_COUNT_MASK: Final = 0xFFFF_FFFF
# What a message costs beside its bytes, as far as bounds for connections go.
_MESSAGE_BYTES: Final = 24
# How long what had arrived is looked for when the peer is known to be gone, and how long one wait may be.
_LAST_LOOK: Final = 0.02
_CUT_OFF: Final = 0.25
_SLICE: Final = 0.1
# Up to here what asks for data is copied, and not waited for.
_REQUEST_BYTES: Final = 1 << 16
# How often to look before sleeping: what is sent back at once comes while we do.
_LOOKS: Final = 40
_MOMENT: Final = 0.0002
_WHOLE_TAG: Final = (1 << 64) - 1
# Ways by which UCX reads memory of a process that does nothing for it.
_READS: Final = ("cma", "xpmem", "knem", "rc_", "dc_", "cuda_ipc", "rocm_ipc", "ze_ipc", "srd")
_CLOSED: Final = "the peer closed the connection"


class Sleeper:
    """Where threads wait for UCX, or for each other."""

    def __init__(self, fd: int) -> None:
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._guard = threading.RLock()  # a finalizer may close it
        self._fd = fd
        self.waiting = False

    def sleep(self, seconds: float) -> None:
        """Wait until something comes; `waiting` was set before."""
        poll = select.poll()  # which only one thread may use at a time
        poll.register(self._fd, select.POLLIN)
        poll.register(self._event, select.POLLIN)
        poll.poll(milliseconds(min(seconds, _SLICE), "wait"))
        self.waiting = False
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._event)

    def wake(self) -> None:
        """Wake the thread, now or when it next waits."""
        with self._guard:
            if self._event >= 0:
                os.eventfd_write(self._event, 1)

    def close(self) -> None:
        """Let go of its descriptor."""
        with self._guard:
            event, self._event = self._event, -1
            if event >= 0:
                os.close(event)


class UcxChannel(InUse, Channel):
    """One end of a connection over UCX.

    Parameters
    ----------
    link
        The worker and the endpoint, which the channel owns from now on.
    address
        What was dialled or listened on.
    peer
        Who is at the other end.
    limits
        Bounds for what is received.
    dialled
        Whether this end connected.
    """

    scheme = "ucx"
    passes_memory = "rkey"
    ordered = False

    def __init__(self, link: Link, address: str, peer: Peer, limits: Limits, *, dialled: bool) -> None:
        self.address = address
        self.peer = peer
        self.limits = limits
        self._link = link
        self._lock = threading.Lock()  # for all calls of UCX, and what they change
        self._usage = Usage()
        self._turn = threading.Lock()
        self._receiving = threading.Lock()
        self._receiver, self._sender = Sleeper(link.worker.fd), Sleeper(link.worker.fd)
        self._asking = dialled  # until the peer has answered
        self._taken = 0  # untagged messages that were received
        self._tagged_next = False
        self._held: tuple[int, memoryview, int] | None = None
        self._position = 0
        self._bye: int | None = None  # the peer closes, and sent so many untagged messages
        self._said_gone = False
        self._broken = ""
        self._lost_at: float | None = None
        self._moved = time.monotonic()
        self._watched = False
        self._keys: dict[bytes, RemoteKey] = {}
        self._flushing: Request | None = None
        abandon_in_child(self)
        if link.ours:
            link.background.append(link.say(Own.GREETING))
            self._watch()

    # -- progress ------------------------------------------------------------------------------------------

    def _progress(self, other: Sleeper) -> bool:
        """Let UCX move what it can, and wake the other thread if that was anything; the lock is held."""
        self._check_link()
        if not self._link.worker.progress():
            return False
        while self._link.worker.progress():
            pass
        self._moved = time.monotonic()
        if other.waiting:
            other.wake()
        if self._link.background:
            self._link.look_after()
        self._look_for_end()
        return True

    def _look_for_end(self) -> None:
        """See whether the peer has said that nothing more comes, and answer when all is here; the lock is held."""
        link = self._link
        if self._bye is None:
            probed = link.worker.probe(Own.BYE, _WHOLE_TAG)
            if probed is None:
                return
            self._bye = self._hold(probed)[2]
            self._sender.wake()
        if not self._said_gone and not self._misses(self._bye, len(link.worker.arrived)):
            self._said_gone = True
            with contextlib.suppress(Failure):
                link.background.append(link.say(Own.GONE))

    def _misses(self, count: int, ahead: int = 0) -> bool:
        """Whether of so many untagged messages some have not been received; `ahead` of them lie ready."""
        return (self._taken + ahead - count) & _COUNT_MASK >= 1 << 31

    def _wait(self, mine: Sleeper, other: Sleeper, seconds: float) -> None:
        """Wait until something may have moved, at most a slice of time."""
        with self._lock:
            for _ in range(_LOOKS):
                if self._progress(other):
                    return
            if not self._link.worker.arm():
                return
            mine.waiting = True
        mine.sleep(seconds)

    def _check_link(self) -> None:
        """Refuse to use a worker that is gone; the lock is held."""
        if self._usage.closed:
            self._usage.enter(self)  # raises what fits
        if self._broken:
            raise BrokenError("the connection broke before", found=self._broken, where=str(self))

    def _is_lost(self) -> bool:
        """Whether the peer is gone, and was for long enough that what had arrived was seen; the lock is held."""
        if not self._link.lost:
            return False
        now = time.monotonic()
        self._lost_at = self._lost_at or now
        return now - self._lost_at > _LAST_LOOK

    # -- memory of the other process -----------------------------------------------------------------------

    @property
    def hands_over(self) -> bool:  # type: ignore[override]  # it depends on what UCX has for the peer
        """Whether the peer reads our memory without our help: else its bytes are better sent."""
        with self._lock:
            self._check_link()
            return any(way.startswith(_READS) for way in self._link.ways)

    def keyed(self, region: Region) -> KeyedHandle | None:
        return keyed_handle(self._link.worker.context, region)

    def read_remote(self, reads: Sequence[tuple[bytes, int, int]], places: Sequence[int]) -> None:
        self._usage.enter(self)
        try:
            self._read_remote(reads, places)
        except Failure as failure:
            raise BrokenError(
                "memory of the peer cannot be read", found=str(failure), where=str(self)
            ) from failure
        finally:
            if self._usage.leave():
                self._release()

    def _read_remote(self, reads: Sequence[tuple[bytes, int, int]], places: Sequence[int]) -> None:
        total = sum(nbytes for _, _, nbytes in reads)
        requests: list[Request] = []
        try:
            with self._lock:
                self._check_link()
                self._moved = time.monotonic()
                for (key, address, nbytes), place in zip(reads, places, strict=True):
                    if nbytes:
                        requests.append(self._key(key).get(place, nbytes, address))
            for request in requests:
                self._finish(request, total)
        except BaseException as error:
            # What was begun writes into memory that the caller lets go of: nothing may go on.
            with self._lock:
                self._link.interrupted = True
                if not self._usage.closed:
                    self._break(error)
            raise

    def _key(self, packed: bytes) -> RemoteKey:
        """Return a key of the peer's; the lock is held."""
        found = self._keys.get(packed)
        if found is None:
            try:
                found = self._keys[packed] = self._link.endpoint.key(packed)
            except Failure as failure:
                raise ProtocolError(
                    "a key for remote memory cannot be read", expected="an rkey of UCX", found=str(failure)
                ) from failure
        return found

    # -- sending -------------------------------------------------------------------------------------------

    def send(self, messages: Sequence[Message], deadline: float) -> None:
        check_seconds(deadline, "deadline")
        outgoing = [self._checked(message) for message in messages]
        self._usage.enter(self)
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
            if self._usage.leave():
                self._release()

    def _watch(self) -> None:
        """Have what was sent leave, also where no thread of the user's calls us again soon."""
        if not self._watched:
            self._watched = True
            watch(self)

    def attend(self) -> bool:
        """Make progress where no thread of the user's does; return whether there is more to be made."""
        if self._sender.waiting:  # which makes progress itself; what we took it would not wake for
            return True
        self._watched = not self._receiver.waiting and not self._usage.closed and self._flush()
        return self._watched

    def _flush(self) -> bool:
        """Let what was sent leave; return whether some of it has not."""
        if self._usage.abandoned or not self._lock.acquire(blocking=False):
            return not self._usage.abandoned
        try:
            if self._progress(self._receiver) and self._sender.waiting:
                self._sender.wake()
            if self._flushing is None:
                self._flushing = self._link.endpoint.flush()
            if self._flushing.done and not self._link.look_after():
                self._flushing = None
            return self._flushing is not None
        except (BowstringError, Failure):
            return False
        finally:
            self._lock.release()

    def _checked(self, message: Message) -> tuple[int | None, list[bytes | memoryview]]:
        views = message.views()
        if message.attachments:
            raise UsageError("ucx: carries no attachments", found=f"{len(message.attachments)} of them")
        return message.tag, views

    def _send(self, outgoing: Sequence[tuple[int | None, list[bytes | memoryview]]], deadline: float) -> None:
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

    def _post(self, tag: int | None, views: list[bytes | memoryview]) -> Request:
        """Begin to send a message; the lock is held."""
        link = self._link
        if tag is None:
            link.untagged += 1
            return link.endpoint.send(None, views)
        if tag >> 56 == _CONTROL:
            return link.endpoint.send(tag, [_COUNT.pack(link.untagged & _COUNT_MASK), *views])
        if self._asking and sum(map(len, views)) <= _REQUEST_BYTES:
            # As the specification's own implementation asks: UCX tells of it when the server has taken it.
            link.background.append(link.endpoint.send(tag, [b"".join(views)], sync=True))
            return Request(None, "")
        return link.endpoint.send(tag, views)

    def _left(self, pending: list[Request]) -> list[Request]:
        """Return what is not done yet."""
        if not pending:
            return pending
        with self._lock:
            self._check_link()
            left = [each for each in pending if not each.done]
            if left:
                self._progress(self._receiver)
                left = [each for each in left if not each.done]
            if left:
                self._check_peer()
            return left

    def _check_peer(self) -> None:
        """Refuse to send to a peer that is gone; the lock is held."""
        if self._bye is not None:
            raise BrokenError(_CLOSED, where=str(self))
        if self._is_lost():
            raise BrokenError("the connection is lost", found=self._link.lost, where=str(self))

    def _give_up(self, error: BowstringError, pending: list[Request]) -> BowstringError:
        """Break the connection where a message was begun and not finished."""
        with self._lock:
            if pending and not self._usage.closed:
                self._link.interrupted = True
                self._break(error)
            elif pending:
                self._link.interrupted = True
        return error

    def _break(self, error: BaseException) -> None:
        """Let nothing more be sent or received; the lock is held."""
        if not self._broken:
            self._broken = str(error) if isinstance(error, BowstringError) else f"{error!r}"
            let_go(self._link)
            self._interrupt()

    # -- receiving -----------------------------------------------------------------------------------------

    def receive(self, idle: float, land: Land | None = None) -> Received | None:
        check_seconds(idle, "idle")
        self._usage.enter(self)
        try:
            if not self._receiving.acquire(blocking=False):
                raise UsageError("another thread is receiving", where=str(self))
            try:
                return self._receive(idle, land)
            finally:
                self._receiving.release()
        finally:
            if self._usage.leave():
                self._release()

    def _receive(self, idle: float, land: Land | None) -> Received | None:
        end = time.monotonic() + idle
        while True:
            try:
                with self._lock:
                    self._progress(self._sender)
                    found = self._next()
                if found is not None:
                    return self._deliver(found, land)
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
        if self._broken or self._usage.closed or self._bye is not None:
            return
        self._say_last(error)
        with self._lock:
            self._break(error)

    def _next(self) -> Probed | Arrived | tuple[int, memoryview] | None:
        """Return the next message that may be received; the lock is held.

        Raises
        ------
        BrokenError
            There will be none.
        """
        for _ in range(2):  # in turns: mostly they were sent so
            tagged, self._tagged_next = self._tagged_next, not self._tagged_next
            found = self._next_tagged() if tagged else self._next_untagged()
            if found is not None:
                return found
        if self._bye is not None and not self._misses(self._bye):
            raise BrokenError(_CLOSED, where=str(self))
        if self._is_lost():
            raise BrokenError("the connection is lost", found=self._link.lost, where=str(self))
        return None

    def _next_untagged(self) -> Arrived | None:
        arrived = self._link.worker.arrived
        return arrived.popleft() if arrived else None

    def _next_tagged(self) -> Probed | tuple[int, memoryview] | None:
        while True:
            if self._held is None:
                probed = self._link.worker.probe()
                if probed is None:
                    return None
                if probed.tag >> 56 not in (_CONTROL, Own.GREETING >> 56):
                    return probed
                self._held = self._hold(probed)
            tag, body, needed = self._held
            if self._misses(needed):
                return None  # some untagged messages that were sent before it are still to come
            self._held = None
            if tag >> 56 == _CONTROL:
                return tag, body
            self._take_own(tag)

    def _hold(self, probed: Probed) -> tuple[int, memoryview, int]:
        """Receive a message of ours, which is short, and says how many untagged ones come before it."""
        nbytes = probed.nbytes
        check_length(probed.tag, nbytes - _COUNT.size, self.limits)
        place = lazy_memory(nbytes)
        array = np.frombuffer(place, np.uint8)
        request = self._link.worker.receive(probed, array.ctypes.data, kept=array)
        end = time.monotonic() + self.limits.stall_timeout
        while not request.done:
            if not self._link.worker.progress():
                time.sleep(_MOMENT)
            if self._link.lost or time.monotonic() > end:
                raise BrokenError("the connection is lost inside a message", where=str(self))
        if nbytes < _COUNT.size:
            raise ProtocolError("a control message has no count", expected=_COUNT.size, found=nbytes)
        return probed.tag, place[_COUNT.size :], _COUNT.unpack_from(place)[0]

    def _take_own(self, tag: int) -> None:
        match tag:
            case Own.GREETING:
                self._link.ours = True
            case _:
                raise ProtocolError("an unknown message of this transport", found=f"tag {tag:#x}")

    def _deliver(self, found: Probed | Arrived | tuple[int, memoryview], land: Land | None) -> Received:
        if not self.means:
            with self._lock:
                self._check_link()
                self.means = ", ".join(self._link.ways)
        self._asking = False
        if isinstance(found, Arrived):
            self._taken += 1
            self._check(None, found.nbytes)
            return Received(None, self._untagged(found))
        if isinstance(found, Probed):
            self._check(found.tag, found.nbytes)
            return self._tagged(found, land)
        tag, body = found
        self._check(tag, body.nbytes)
        place = landing(tag, body.nbytes, land)
        if place.prepare is not None:
            place.prepare(body.nbytes)
        place.view[:] = body
        return Received(tag, place.body)

    def _check(self, tag: int | None, nbytes: int) -> None:
        check_length(tag, nbytes, self.limits)
        self._position += _MESSAGE_BYTES + nbytes
        if self.restriction is not None:
            self.restriction.check(self._position)

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
        place = landing(probed.tag, probed.nbytes, land)
        if place.prepare is not None:
            place.prepare(probed.nbytes)
        array = np.frombuffer(place.view, np.uint8) if probed.nbytes else None
        with self._lock:
            self._check_link()
            address = 0 if array is None else array.ctypes.data
            request = self._link.worker.receive(probed, address, kept=array)
        self._finish(request, probed.nbytes)
        return Received(probed.tag, place.body)

    def _finish(self, request: Request, nbytes: int) -> None:
        """Wait until a message has landed."""
        lost: float | None = None
        try:
            while True:
                with self._lock:
                    self._check_link()
                    if request.done:
                        return
                    if self._link.lost:
                        lost = lost or time.monotonic()
                    moved = self._moved
                now = time.monotonic()
                if lost is not None and now - max(lost, moved) > _CUT_OFF:
                    raise BrokenError("the connection is lost inside a message", found=self._link.lost)
                if now - moved >= self.limits.stall_timeout:
                    raise self._stalled(nbytes)
                if self.restriction is not None:
                    self.restriction.check_time()
                self._wait(self._receiver, self._sender, _SLICE)
        except Failure as failure:
            raise BrokenError("a message was cut off", found=str(failure), where=str(self)) from failure

    def _stalled(self, nbytes: int) -> DeadlineExceeded:
        return DeadlineExceeded(
            f"the peer went silent inside a message of {nbytes} bytes",
            expected=f"bytes within {self.limits.stall_timeout:g} s (Limits.stall_timeout)",
            where=str(self),
        )

    # -- the end -------------------------------------------------------------------------------------------

    def _interrupt(self) -> None:
        self._receiver.wake()
        self._sender.wake()

    def _release(self) -> None:
        let_go(self._link)
        self._receiver.close()
        self._sender.close()
        self.peer.close()

    def _abandon(self) -> None:
        self._usage.abandoned = True
        self._link.abandon()

    def __del__(self) -> None:
        usage = getattr(self, "_usage", None)
        if usage is not None and not usage.abandoned and usage.close() and not self._link.let_go:
            # Inside a callback of UCX, maybe, which must not let go of anything of UCX.
            self._link.let_go = True
            leave(self._link)
            self._receiver.close()
            self._sender.close()
