"""Acceptor: readers come in where a server listens, as many as may be there at a time."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Final

from bowstring.dissociated.producer import Outcome
from bowstring.errors import ClosedError
from bowstring.transport import listen
from bowstring.transport.accepting import accept_next, place_for, unauthenticated
from bowstring.transport.threads import NO_THREAD, Work, run_in_thread

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from bowstring.limits import Limits
    from bowstring.server.session import Session
    from bowstring.transport import Channel, Listener
    from bowstring.transport.certificates import TlsConfig

_LEAST_PATIENCE: Final = 0.05
# One to let the next reader in, and one more, so that he need not call another one first.
_WAITING: Final = 2
_WAITS: Final = "bowstring-accept"
_SERVES: Final = "bowstring-server-reader"


class _Door:
    """A listener, and how many threads wait at it for the next reader."""

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self.waiting = 1


class Acceptor:
    """The sessions of one server, and the listeners that accept connections for them."""

    def __init__(
        self, session_of: Callable[[Channel], Session], limits: Limits, changed: threading.Condition
    ) -> None:
        self._session_of = session_of
        self._limits = limits
        self._changed = changed  # the server's condition, under which all changes happen
        self._sessions: dict[Session, None] = {}
        self._listeners: list[Listener] = []
        self._attending: list[Work] = []
        self._closed = False
        # Connections by how they ended; `stopped` early in good order, `idle` without a request.
        self.completed = self.refused = self.lost = self.stopped = self.idle = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def addresses(self) -> list[str]:
        """Where it listens, as a transport dials it, the first place first."""
        return [listener.uri for listener in self._listeners]

    @property
    def channels(self) -> list[type[Channel]]:
        """The classes of the connections that come in, in the order of `addresses`."""
        return [listener.channels for listener in self._listeners]

    @property
    def all_known(self) -> bool:
        """Whether all readers are processes of this user, or have shown a certificate."""
        return all(each.channels.authenticated or each.asks_certificates for each in self._listeners)

    def listen(self, address: str, tls: TlsConfig | ssl.SSLContext | None = None) -> str:
        """Accept readers at an address; return it as a transport dials it."""
        listener = listen(address, self._limits, tls=tls)
        with self._changed:
            self._listeners.append(listener)
        try:
            self._wait_at(_Door(listener))
        except BaseException:
            listener.close()
            raise
        return listener.uri

    def _wait_at(self, door: _Door) -> None:
        """Start one more thread that waits at a listener."""
        work = run_in_thread(self._attend, door, name=_WAITS)
        with self._changed:
            self._attending = [each for each in self._attending if not each.over]
            self._attending.append(work)

    def _attend(self, door: _Door) -> None:
        """Accept connections and serve each in this thread: waking another one takes longer than reading a request.

        Before it serves, another thread waits at the listener, so that no reader keeps others out.
        """
        with contextlib.suppress(ClosedError):
            while not self._closed and self._let_in(door):
                pass

    def _let_in(self, door: _Door) -> bool:
        """Wait for a reader and serve it; return whether to wait for more."""
        channel = accept_next(door.listener, self._turn_away)
        if channel is None:
            return True
        with self._changed:
            door.waiting -= 1
            alone = not door.waiting
            door.waiting += alone  # the one who is called now
        try:
            if alone:
                self._wait_at(door)
        except NO_THREAD as error:  # for this one
            self._turn_away()
            self._session_of(channel).turn_away(error)
            return True
        thread = threading.current_thread()
        thread.name = _SERVES
        self._serve(channel)
        thread.name = _WAITS
        with self._changed:
            enough = door.waiting >= _WAITING
            door.waiting += not enough
        return not enough

    def _turn_away(self) -> None:
        with self._changed:
            self.refused += 1

    def _serve(self, channel: Channel) -> None:
        """Serve a reader, if it can be let in, until it goes."""
        session = self._session_of(channel)
        with self._changed:
            may_enter, evicted = place_for(self._sessions, self._limits.connections, _is_unauthenticated)
            if self._closed or not may_enter:
                self.refused += not may_enter
                channel.close()
                return
            if evicted is not None:
                del self._sessions[evicted]
            self._sessions[session] = None
        if evicted is not None:
            evicted.close(0.0)
        if session.is_stranger:
            unauthenticated.enter(session, lambda: session.is_stranger, lambda: session.close(0.0))
        session.listen()

    def ended(self, session: Session, outcome: Outcome) -> None:
        """Forget a session, and count what became of it."""
        unauthenticated.leave(session)
        with self._changed:
            self._sessions.pop(session, None)
            self.completed += outcome is Outcome.COMPLETED
            self.refused += outcome is Outcome.REFUSED
            self.lost += outcome is Outcome.LOST
            self.stopped += outcome is Outcome.STOPPED
            self.idle += outcome is Outcome.IDLE

    def shut(self) -> None:
        """Accept no more readers."""
        with self._changed:
            self._closed = True
            listeners = list(self._listeners)
            self._changed.notify_all()
        for listener in listeners:
            listener.close()

    def close(self, deadline: float) -> None:
        """End all sessions, and wait for their threads until `deadline`, on the monotonic clock."""
        with self._changed:
            sessions = list(self._sessions)
        for session in sessions:
            session.close(max(_LEAST_PATIENCE, deadline - time.monotonic()))
        with self._changed:
            attending = list(self._attending)
        for work in [*attending, *(work for session in sessions for work in session.work)]:
            work.join(max(0.0, deadline - time.monotonic()))


def _is_unauthenticated(session: Session) -> bool:
    return session.is_stranger
