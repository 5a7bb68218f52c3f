"""Progress with one worker of UCX, for a thread that sends, one that receives, and the attendant."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Final

from bowstring.errors import BowstringError, BrokenError, ClosedError, DeadlineExceeded, ForkedError
from bowstring.transport.channel import Channel
from bowstring.transport.descriptors import InUse
from bowstring.transport.tcp import spelled
from bowstring.transport.ucx.attendant import leave, watch
from bowstring.transport.ucx.context import Failure, Request
from bowstring.transport.ucx.incoming import Incoming
from bowstring.transport.ucx.link import Link, Sleeper, close_sockets
from bowstring.transport.ucx.remote_memory import RemoteReader

if TYPE_CHECKING:
    from bowstring.limits import Limits
    from bowstring.transport.peer import Peer

# How long what had arrived is looked for when the peer is known to be gone, and how long one wait may be.
_LAST_LOOK: Final = 0.02
_CUT_OFF: Final = 0.25
_SLICE: Final = 0.1
# How often to look before sleeping: what is sent back at once comes while we do.
_LOOKS: Final = 40
_MOST_STEPS: Final = 16


class Progress(InUse, Channel):
    """Moves messages over a link, which it owns from now on; a channel says what they are."""

    def __init__(self, link: Link, address: str, peer: Peer, limits: Limits) -> None:
        self.address = address
        self.peer = peer
        self.limits = limits
        self._link = link
        self._lock = threading.Lock()  # for all calls of UCX, and what they change
        self._begin_use()
        self._receiver, self._sender = Sleeper(link.worker.fd), Sleeper(link.worker.fd)
        self._reader = RemoteReader(link.endpoint)
        self._incoming = Incoming(link, self._reader, limits)
        self._broken = ""
        self._lost_at: float | None = None
        self._moved = time.monotonic()
        self._watched = False
        self._flushing: Request | None = None

    def _progress(self, other: Sleeper) -> bool:
        """Let UCX move what it can, and wake the other thread if that was anything; the lock is held."""
        self._check_link()
        if not self._link.worker.progress():
            return False
        for _ in range(_MOST_STEPS):  # then somebody may want to see how far it has come
            if not self._link.worker.progress():
                break
        self._moved = time.monotonic()
        if other.waiting:
            other.wake()
        self._link.look_after()
        try:
            ends = self._incoming.look_for_end()
        except BowstringError as error:
            self._break(error)
            raise
        if ends:
            self._sender.wake()
        return True

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
        if self._closed:
            self._enter()  # raises what fits
        if self._broken:
            raise BrokenError("the connection broke before", found=self._broken, where=str(self))

    def _is_lost(self) -> bool:
        """Whether the peer is gone, and was for long enough that what had arrived was seen; the lock is held."""
        if not self._link.endpoint.failed:
            return False
        now = time.monotonic()
        self._lost_at = self._lost_at or now
        return now - self._lost_at > _LAST_LOOK

    def _finish(self, request: Request, nbytes: int) -> None:
        """Wait until a message has landed."""
        lost: float | None = None
        try:
            while True:
                with self._lock:
                    self._check_link()
                    if request.done:
                        return
                    if self._link.endpoint.failed:
                        lost = lost or time.monotonic()
                    moved = self._moved
                now = time.monotonic()
                if lost is not None and now - max(lost, moved) > _CUT_OFF:
                    raise BrokenError(
                        "the connection is lost inside a message", found=self._link.endpoint.failed
                    )
                if now - moved >= self.limits.stall_timeout:
                    raise DeadlineExceeded(
                        f"the peer went silent inside a message of {nbytes} bytes",
                        expected=f"bytes within {self.limits.stall_timeout:g} s (Limits.stall_timeout)",
                        where=str(self),
                    )
                if self.restriction is not None:
                    self.restriction.check_time()
                self._wait(self._receiver, self._sender, _SLICE)
        except BaseException as error:
            self._link.keep(request)  # UCX may write what comes of it until the worker ends
            if isinstance(error, Failure):
                raise BrokenError("a message was cut off", found=str(error), where=str(self)) from error
            raise

    def _watch(self) -> None:
        """Have what was sent leave, also where no thread of the user's calls us again soon."""
        if not self._watched:
            self._watched = True
            watch(self.attend)

    def attend(self) -> bool:
        """Make progress where no thread of the user's does; return whether there is more to be made."""
        if self._sender.waiting:  # which makes progress itself; what we took it would not wake for
            return True
        more = False
        with contextlib.suppress(ClosedError, ForkedError):
            self._enter()  # so that nothing lets go of the link meanwhile
            try:
                more = not self._receiver.waiting and self._flush()
            finally:
                self._leave()
        self._watched = more
        return more

    def _flush(self) -> bool:
        """Let what was sent leave; return whether some of it has not."""
        if not self._lock.acquire(blocking=False):
            return True
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

    def _break(self, error: BaseException) -> None:
        """Let nothing more be sent or received; the lock is held."""
        if not self._broken:
            self._broken = str(error) if isinstance(error, BowstringError) else f"{error!r}"
            self._interrupt()
            self._link.close()

    def _interrupt(self) -> None:
        self._link.revoke()  # a peer that lent memory takes it back from now on
        self._receiver.wake()
        self._sender.wake()

    def _release(self) -> None:
        self._link.close()
        self._receiver.close()
        self._sender.close()
        self.peer.close()

    def _abandon(self) -> None:
        super()._abandon()
        peer = self._link.peer
        if peer:  # a copy of the connection would keep it alive
            close_sockets(lambda copy: spelled(copy.getpeername()) == peer)

    def __del__(self) -> None:
        if not hasattr(self, "_users") or self._abandoned or self._released:
            return
        self._closed = self._released = True
        if not self._link.let_go:
            # Inside a callback of UCX, maybe, which must not let go of anything of UCX.
            self._link.let_go = True
            self._link.revoke()
            leave(self._link)
            self._receiver.close()
            self._sender.close()
