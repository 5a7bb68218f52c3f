"""Acceptor: readers come in where a server listens, as many as may be there at a time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Protocol

from bowstring.dissociated.producer import Outcome
from bowstring.transport import listen
from bowstring.transport.accepting import Accepting, place_for, unauthenticated
from bowstring.transport.threads import NO_THREAD

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from bowstring.limits import Limits
    from bowstring.locks import Condition
    from bowstring.transport import Channel, Listener
    from bowstring.transport.certificates import TlsConfig
    from bowstring.transport.threads import Work

_LEAST_PATIENCE: Final = 0.05


class Session(Protocol):
    """What serves one connection: of a server, or of a depot."""

    work: list[Work]

    @property
    def is_stranger(self) -> bool:
        """Whether anybody could be there."""

    def begin(self) -> None:
        """Serve from now on."""

    def close(self, patience: float) -> None:
        """End it; wait at most so many seconds."""

    def turn_away(self, error: BaseException) -> None:
        """Hang up, as there is no thread for it."""


class Acceptor:
    """The sessions of one server, and the listeners that accept connections for them."""

    def __init__(self, session_of: Callable[[Channel], Session], limits: Limits, changed: Condition) -> None:
        self._session_of = session_of
        self._limits = limits
        self._changed = changed  # the server's condition, under which all changes happen
        self._sessions: dict[Session, None] = {}
        self._listeners: list[Listener] = []
        self._accepting: list[Accepting] = []
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
            self._accepting.append(Accepting(listener, self._serve, self._turn_away))
        except BaseException:
            listener.close()
            raise
        return listener.uri

    def _turn_away(self) -> None:
        with self._changed:
            self.refused += 1

    def _serve(self, channel: Channel) -> None:
        """Begin to serve a reader, if it can be let in."""
        session = self._session_of(channel)
        with self._changed:
            may_enter, evicted = True, None
            if len(self._sessions) >= self._limits.connections:
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
        if not channel.authenticated and session.is_stranger:
            unauthenticated.enter(session, lambda: session.is_stranger, lambda: session.close(0.0))
        try:
            session.begin()
        except NO_THREAD as error:  # for this one
            session.turn_away(error)
            self.ended(session, Outcome.REFUSED)

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
        for listener in listeners:
            listener.close()
        for each in self._accepting:
            each.close()

    def close(self, deadline: float) -> None:
        """End all sessions, and wait until they are over, at most until `deadline`, on the monotonic clock."""
        with self._changed:
            sessions = list(self._sessions)
        for session in sessions:
            session.close(max(_LEAST_PATIENCE, deadline - time.monotonic()))
        threads = [each.thread for each in self._accepting if each.thread is not None]
        for work in [*threads, *(work for session in sessions for work in session.work)]:
            work.join(max(0.0, deadline - time.monotonic()))
        with self._changed:
            self._changed.wait_for(lambda: not self._sessions, max(0.0, deadline - time.monotonic()))


def _is_unauthenticated(session: Session) -> bool:
    return session.is_stranger
