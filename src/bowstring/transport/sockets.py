"""A channel over a connected stream socket: what ``unix:`` and ``tcp:`` share.

The socket stays in blocking mode with a short kernel timeout, and bodies move with one ``sendmsg`` or one
``recv(MSG_WAITALL)`` per tenth of a second at most: the interpreter's lock is taken once per call, which
matters more than the system call where other threads are busy in Python. Between messages the channel reads
without waiting first, and polls the socket and the peer's pidfd only where nothing is there.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import math
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec, TypeVar

from bowstring.errors import (
    BowstringError,
    BrokenError,
    ClosedError,
    DeadlineExceeded,
    ProtocolError,
    UsageError,
)
from bowstring.limits import Limits
from bowstring.transport.channel import Channel, Land, Message, Received
from bowstring.transport.descriptors import InUse
from bowstring.transport.framing import Run, Views, gathered, landing
from bowstring.transport.header import HEADER_BYTES, Header, check_beginning, decode_header
from bowstring.transport.peer import Peer, check_seconds

if TYPE_CHECKING:
    from bowstring.dissociated.opening import Framed

_Channel = TypeVar("_Channel", bound="StreamChannel")
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

# What one sendmsg takes at most: IOV_MAX of Linux.
_MOST_PIECES = 1024
# Room to read ahead: some messages of metadata, yet little to copy twice of a large body.
_READ_AHEAD = 8 * 1024
# Of a large body memory is taken in steps, each as large as what has come before it, within these bounds.
_FIRST_STEP = 4 << 20
_LARGEST_STEP = 64 << 20
# TCP grows its buffers as needed, a Unix socket keeps 208 KiB: 1 MiB messages moved at half the speed.
SEND_BUFFER = 512 * 1024
# How long one system call may wait; deadlines and the peer's pidfd are looked at in between.
_SLICE = 0.1
_TIMEVAL = struct.pack("@ll", 0, int(_SLICE * 1e6))
_LONGEST = 3600.0
_SILENT = -1
# As plain numbers: an operation on two of socket's enumeration takes as long as the system call.
SEND = int(socket.MSG_NOSIGNAL)
SEND_NOW = int(socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)


def alone(
    read: Callable[Concatenate[_Channel, _Arguments], _Result],
) -> Callable[Concatenate[_Channel, _Arguments], _Result]:
    """Return a method that reads as the only one who does."""

    @functools.wraps(read)
    def reading(self: _Channel, /, *args: _Arguments.args, **named: _Arguments.kwargs) -> _Result:
        me = object()
        self._enter()
        try:
            if self._receiver.setdefault(None, me) is not me:
                raise UsageError("another thread is receiving", where=str(self))
            return read(self, *args, **named)
        finally:
            if None in self._receiver and self._receiver[None] is me:
                del self._receiver[None]
            self._leave()

    return reading


class StreamChannel(InUse, Channel):
    """Messages over a connected stream socket, which the channel owns from now on."""

    most_attachments = 0

    def __init__(self, sock: socket.socket, address: str, peer: Peer, limits: Limits) -> None:
        sock.settimeout(None)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _TIMEVAL)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIMEVAL)
        self._sock = sock
        self.address = address
        self.peer = peer
        self.limits = limits
        # What came beside bytes and was not claimed yet.
        self._arrivals: collections.deque[Any] = collections.deque()
        self._begin_use()  # another thread may fork from here on
        self._turn = threading.Lock()
        # What `send_soon` could not send, and since when nothing of it moved.
        self._left: collections.deque[Run] = collections.deque()
        self._moved = 0.0
        # Who receives, under the one key None: a second one is an error. Unlike a lock it says whose it is, which
        # an interrupt must know that comes right behind the call that took it.
        self._receiver: dict[None, object] = {}
        self._ahead = bytearray(_READ_AHEAD)
        self._ahead_view = memoryview(self._ahead)
        self._start = self._end = 0
        # When the last bytes of a message came whose rest `receive_whole` waits for; 0 for none.
        self._begun = 0.0
        self.position = 0  # bytes of the stream that were taken out of the read-ahead or landed
        # Whether all that was read is in the read-ahead; an interrupt at any other time loses the framing.
        self._settled = True
        # What broke it, in words: an error would keep the frames that it passed, and the buffers in them.
        self._broken = ""
        self._unreadable = False
        # A socket that was shut down says no more whether the other end is open: that is found out before.
        self._shutting = threading.RLock()
        self._end_closed: bool | None = None
        self._pidfd = None if peer.pidfd is None else int(peer.pidfd)  # the peer alone holds it open
        self._poll = select.poll()
        self._fds = [sock.fileno()] if self._pidfd is None else [sock.fileno(), self._pidfd]
        for fd in self._fds:
            self._poll.register(fd, select.POLLIN)

    # -- sending ------------------------------------------------------------------------------------------

    def send(self, messages: Sequence[Message], deadline: float) -> None:
        check_seconds(deadline, "deadline")
        self.send_runs(gathered(messages, self._check_attachments), deadline)

    def send_soon(self, messages: Sequence[Message]) -> bool:
        return self.send_runs(gathered(messages, self._check_attachments), None)

    def send_runs(self, runs: Sequence[Run], deadline: float | None) -> bool:
        """Do what `send` does, or without a deadline `send_soon`, with what was gathered, and checked, before."""
        waits = deadline is not None
        self._enter()
        try:
            if not waits:
                # The thread whose turn it is may send what is left; else the next call does.
                self._left.extend(runs)
            held: list[bool] = []
            try:
                patience = -1.0 if deadline is None else deadline
                held += map(self._turn.acquire, (waits,), (patience,))  # see `bowstring.locks`
                if True in held:
                    return self._write(runs if waits else (), deadline)
            finally:
                if True in held:
                    self._turn.release()
        finally:
            self._leave()
        if waits:
            raise DeadlineExceeded(f"another thread was sending for {deadline:g} s", where=str(self))
        return False

    def _check_attachments(self, attachments: tuple[object, ...]) -> None:
        raise UsageError(f"{self.scheme}: carries no attachments", found=f"{len(attachments)} of them")

    def _write(self, runs: Sequence[Run], deadline: float | None) -> bool:
        patience = self.limits.stall_timeout if deadline is None else deadline
        peer_gone = False
        try:
            self._left.extend(runs)
            if deadline is not None:
                self._moved = time.monotonic()
            while self._left:
                run = self._left[0]
                views = run.views[run.at : run.at + _MOST_PIECES]
                sent = self._push(views, run.attachments, wait=deadline is not None)
                now = time.monotonic()
                if sent > 0:
                    self._moved = now
                    if sent == run.nbytes:
                        self._left.popleft()
                    else:
                        run.advance(sent)
                    continue
                self._moved = self._moved or now
                if peer_gone:
                    raise BrokenError("the peer's process is gone", where=str(self))
                if deadline is not None:
                    peer_gone = self.peer.exited(0)
                if not peer_gone and now - self._moved >= patience:
                    raise DeadlineExceeded(f"the peer took nothing for {patience:g} s", where=str(self))
                if deadline is None:
                    return False
            self._moved = 0.0
            return True
        except BaseException as error:
            self._left.clear()
            if isinstance(error, BowstringError):
                self._give_up(error)
            elif isinstance(error, OSError):
                raise self._give_up(self._cut_off(error)) from error
            else:
                self._give_up(BrokenError("sending was interrupted inside a message", where=str(self)))
            raise

    def _push(
        self,
        views: Views,
        attachments: tuple[object, ...],  # noqa: ARG002 - for unix
        *,
        wait: bool = True,
    ) -> int:
        """Send from ``views``; return how many bytes went, -1 when none went at once, or in a slice of time."""
        try:
            return self._sock.sendmsg(views, (), SEND if wait else SEND_NOW)
        except BlockingIOError:
            return _SILENT

    @property
    def takes_more(self) -> bool:
        try:
            self._enter()
        except BowstringError:
            return True  # sending says what is wrong, at once
        try:
            poll = select.poll()
            poll.register(self._sock.fileno(), select.POLLOUT)
            return bool(poll.poll(0))
        finally:
            self._leave()

    def peer_exited(self, wait: float) -> bool:
        return self.peer.exited(wait) and self._peer_end_closed()

    def _peer_end_closed(self) -> bool:
        """Return whether no process has the peer's end open; after we shut ours down, whether none had it then."""
        with self._shutting:
            if self._end_closed is not None:
                return self._end_closed
            poll = select.poll()
            poll.register(self._sock.fileno(), select.POLLRDHUP)
            return bool(poll.poll(0))

    # -- receiving ----------------------------------------------------------------------------------------

    @alone
    def receive(self, idle: float, land: Land | None = None) -> Received | None:
        check_seconds(idle, "idle")
        return self._receive(idle, land)

    @alone
    def receive_whole(self, land: Land | None = None) -> Received | None:
        try:
            if not (self._unreadable or self._has_whole()):
                return None
        except BaseException as error:
            self._stop_reading(error)
            raise
        return self._receive(0.0, land)

    def _has_whole(self) -> bool:
        """Read ahead what is there; say whether that is all of a message, or begins one that is refused anyhow."""
        came = False
        if self._start == self._end:
            self._start = self._end = 0
        while True:
            missing = self._missing()
            if missing <= 0:
                self._begun = 0.0
                return True
            if self._end == len(self._ahead):
                # Memory is taken for as much as has come already.
                self._put_back(self._ahead_view[self._start :], 2 * (self._end - self._start))
            got = self._look()
            if got > 0:
                came = True
                continue
            begun_bytes = self._end - self._start
            lacking = missing if begun_bytes else 0
            if got == 0:
                raise self._cut_off("the peer closed the connection", lacking)
            if not came and self._wait(0) and self._look() == _SILENT:
                raise self._cut_off("the peer's process is gone", lacking)
            if begun_bytes:
                self._check_restriction()
                now = time.monotonic()
                if came or not self._begun:
                    self._begun = now
                elif now - self._begun >= self.limits.stall_timeout:
                    raise self._stalled(missing)
            return False

    def _missing(self) -> int:
        """Return how many bytes more a message needs to be received without waiting, as far as that is known."""
        have = self._end - self._start
        if have < HEADER_BYTES:
            if have:
                check_beginning(bytes(self._ahead_view[self._start : self._end]))
            return HEADER_BYTES - have
        header = self._header()
        if header.tag is not None and header.tag >> 56 in (0, 1):
            return 0  # a body, for which `land` is asked
        if header.length > self.limits.control_bytes:
            raise ProtocolError(
                "an untagged message where there are short ones only", found=f"{header.length} bytes"
            )
        return HEADER_BYTES + header.length - have

    @alone
    def peek(self, idle: float, room: int) -> bytes:
        """Return what has come, after at most `idle` seconds, and `room` bytes at most; it stays, to be received.

        It is empty where nothing came.
        """
        if self._unreadable:
            self._refuse_to_read()
        try:
            if self._start == self._end and not self._read_ahead(idle):
                return b""
            if self._end == len(self._ahead) < room:  # more is there, then
                self._put_back(self._ahead_view[self._start :], room)
                self._look()
            return bytes(self._ahead_view[self._start : self._end])
        except BaseException as error:
            self._stop_reading(error)
            raise

    @alone
    def take(self, messages: Sequence[Framed]) -> list[tuple[object, ...]]:
        """Receive messages that `peek` has shown, the first ones; return what came beside each."""
        claimed: list[tuple[object, ...]] = []
        try:
            self._settled = False
            for message in messages:
                nbytes = HEADER_BYTES + len(message.body)
                claimed.append(self._claim(message.attachments, self.position, self.position + nbytes))
                self.position += nbytes
                self._start += nbytes
            self._settled = True
        except BaseException as error:
            self._stop_reading(error, tuple(itertools.chain(*claimed)))
            raise
        return claimed

    def _receive(self, idle: float, land: Land | None) -> Received | None:
        if self._unreadable:
            self._refuse_to_read()
        attachments: tuple[object, ...] = ()
        try:
            header = self._next_header(idle)
            if header is None:
                return None
            self._settled = False
            self._start += HEADER_BYTES
            end = self.position + HEADER_BYTES + header.length
            attachments = self._claim(header.attachments, self.position, end)
            self.position = end
            received = Received(header.tag, self._body(header, land), attachments)
            self._settled = True
            return received
        except BaseException as error:
            self._stop_reading(error, attachments)
            raise

    def _refuse_to_read(self) -> NoReturn:
        raise BrokenError("the connection broke before", found=self._broken, where=str(self))

    def _next_header(self, timeout: float) -> Header | None:
        """Return the next header, or ``None`` when none began in time."""
        while (have := self._end - self._start) < HEADER_BYTES:
            if have == 0:
                if not self._read_ahead(timeout):
                    return None
                continue
            begun = bytes(self._ahead_view[self._start : self._end])
            check_beginning(begun)
            if not self._read_ahead(self._patience()):
                self._check_restriction()
                raise self._stalled(HEADER_BYTES - have)
        return self._header()

    def _header(self) -> Header:
        """Return the header that begins the read-ahead, once it was held against all bounds."""
        header = decode_header(self._ahead, self._start, self.limits, self.most_attachments)
        if self.restriction is not None:
            self.restriction.check(self.position + HEADER_BYTES + header.length)
        return header

    def _patience(self) -> float:
        """Return how long to wait for more of a message that has begun."""
        self._check_restriction()
        left = math.inf if self.restriction is None else self.restriction.left
        return min(self.limits.stall_timeout, left)

    def _check_restriction(self) -> None:
        if self.restriction is not None:
            self.restriction.check_time()

    def _read_ahead(self, timeout: float) -> bool:
        """Read what is there into the read-ahead, waiting for it if need be; false when nothing came."""
        if self._start:
            self._put_back(self._ahead_view[self._start : self._end])
        missing = (HEADER_BYTES - self._end) % HEADER_BYTES
        got = self._look()
        if got == _SILENT:
            end = time.monotonic() + timeout
            while got == _SILENT:
                left = end - time.monotonic()
                if left <= 0:
                    return False
                peer_gone = self._wait(math.ceil(1000 * min(left, _LONGEST)))
                got = self._look()
                if got == _SILENT and peer_gone:
                    raise self._cut_off("the peer's process is gone", missing)
        if got == 0:
            raise self._cut_off("the peer closed the connection", missing)
        return True

    def _put_back(self, begun: bytes | memoryview, room: int = 0) -> None:
        """Let the read-ahead begin with these bytes, however many they are."""
        settled, self._settled = self._settled, False
        begun = bytes(begun)  # which may lie there already
        room = max(_READ_AHEAD, len(begun), room)
        if len(self._ahead) != room:
            self._ahead = bytearray(room)
            self._ahead_view = memoryview(self._ahead)
        self._start, self._end = 0, len(begun)
        self._ahead_view[: self._end] = begun
        self._settled = settled

    def _wait(self, timeout: int) -> bool:
        """Wait until the socket is readable or the peer's process is gone; say whether it is gone."""
        ready = self._poll.poll(timeout)
        return bool(ready) and self._pidfd in dict(ready)

    def _look(self) -> int:
        """Read ahead without waiting; return the number of bytes, 0 at the end, -1 when nothing is there."""
        self._settled = False
        try:
            got = self._recv(self._ahead_view[self._end :], wait=False)
            self._end += got
            self._settled = True
            return got
        except BlockingIOError:
            self._settled = True
            return _SILENT
        except OSError as error:
            if isinstance(error, BowstringError):
                raise
            raise self._cut_off(error) from error

    def _recv(self, view: memoryview, *, wait: bool) -> int:
        """Read what is there, or with `wait` until the view is full or a slice of time is over; 0 at the end."""
        return self._sock.recv_into(view, 0, socket.MSG_WAITALL if wait else socket.MSG_DONTWAIT)

    def _body(self, header: Header, land: Land | None) -> Any:
        length = header.length
        have = min(length, self._end - self._start)
        begun = self._ahead_view[self._start : self._start + have]
        if header.tag is None and have == length:
            self._start += have
            return memoryview(bytes(begun))
        place = landing(header.tag, length, land)
        if place.prepare is not None and have:
            place.prepare(have)
        place.view[:have] = begun
        self._start += have
        if have < length:
            self._read_rest(place.view, have, place.prepare)
        return place.view.toreadonly() if header.tag is None else place.body

    def _read_rest(self, body: memoryview, have: int, prepare: Callable[[int], int] | None) -> None:
        """Read the rest of a body, taking memory for about as much as has come already, and never for a claim."""
        while prepare is not None:
            step = min(max(have, _FIRST_STEP), _LARGEST_STEP)
            ready = prepare(min(have + step, body.nbytes))
            if ready >= body.nbytes:
                break
            self._read_whole(body[have:ready])
            have = ready
        self._read_whole(body[have:])

    def _read_whole(self, body: memoryview) -> None:
        """Read until all of some memory is filled."""
        moved = time.monotonic()
        peer_gone = False
        while body.nbytes:
            try:
                got = self._recv(body, wait=True)
            except BlockingIOError:
                got = _SILENT
            except OSError as error:
                if isinstance(error, BowstringError):
                    raise
                raise self._cut_off(error, body.nbytes) from error
            if got == 0:
                raise self._cut_off("the peer closed the connection", body.nbytes)
            if got > 0:
                body = body[got:]
                moved = time.monotonic()
            elif peer_gone:
                raise self._cut_off("the peer's process is gone", body.nbytes)
            else:
                peer_gone = self.peer.exited(0)
                if not peer_gone and time.monotonic() - moved >= self.limits.stall_timeout:
                    raise self._stalled(body.nbytes)
            self._check_restriction()

    def _claim(self, count: int, begin: int, end: int) -> tuple[object, ...]:  # noqa: ARG002 - for unix
        """Return the attachments of the message that lies at ``[begin, end)`` of the stream."""
        return ()

    def _cut_off(self, what: str | OSError, missing: int = 0) -> BowstringError:
        """Return what an end, or an error of the socket, means."""
        if self._closed:
            return ClosedError(f"{self} was closed")
        if isinstance(what, OSError):
            what = f"the connection is lost ({what.strerror or what})"
        if self._broken:
            what = f"the connection broke before: {self._broken}"
        if missing:
            return BrokenError(f"{what} inside a message", expected=f"{missing} more bytes", where=str(self))
        return BrokenError(what, where=str(self))

    def _stalled(self, missing: int) -> DeadlineExceeded:
        return DeadlineExceeded(
            f"the peer went silent inside a message for {self.limits.stall_timeout:g} s",
            expected=f"{missing} more bytes",
            where=str(self),
        )

    def _stop_reading(self, error: BaseException, attachments: tuple[object, ...] = ()) -> None:
        """Read nothing more after an error, but for an interrupt between two messages."""
        if not isinstance(error, BowstringError):
            if self._settled:
                return
            error = BrokenError(f"receiving failed: {error!r}", where=str(self))
        self._unreadable = True
        self._start = self._end = 0
        self.drop(attachments)
        self._arrivals.clear()
        self._say_last(error)
        self._give_up(error)

    def _give_up(self, error: BowstringError) -> BowstringError:
        """Break the connection in both directions, and return why; what has arrived can still be read."""
        self._broken = self._broken or str(error)
        self._interrupt()
        return error

    def _interrupt(self) -> None:
        # Also where it is closed next: a copy of the descriptor elsewhere must not keep the connection up.
        with self._shutting:
            if self._end_closed is None:
                self._end_closed = self._peer_end_closed()
                with contextlib.suppress(OSError):  # the peer, or a reset, was quicker
                    self._sock.shutdown(socket.SHUT_RDWR)

    def _release(self) -> None:
        self._sock.close()
        self.peer.close()
        self._arrivals.clear()

    def _abandon(self) -> None:
        super()._abandon()
        self._sock.close()
        self.peer.pidfd = None
