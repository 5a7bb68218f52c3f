"""Acceptor: readers come in where a server listens, as many as may be there at a time."""

from __future__ import annotations

import collections
import contextlib
import os
import resource
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Final

from bowstring.dissociated.producer import Outcome
from bowstring.errors import BowstringError, ClosedError, LimitExceeded
from bowstring.transport import listen
from bowstring.transport.loop import Job, do_in_loop
from bowstring.transport.threads import NO_THREAD, report_uncaught, run_in_thread

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from bowstring.limits import Limits
    from bowstring.locks import Condition
    from bowstring.server.session import Session
    from bowstring.transport import Channel, Listener
    from bowstring.transport.certificates import TlsConfig
    from bowstring.transport.threads import Work

_LEAST_PATIENCE: Final = 0.05
# How often it is seen to that nobody waits, and that a socket's file has not been removed.
_LOOK: Final = 1.0
# Where no descriptor is left, or too many peers are unauthenticated, the next one comes no sooner.
_PAUSE: Final = 0.01


class Acceptor:
    """The sessions of one server, and the listeners that accept connections for them."""

    def __init__(self, session_of: Callable[[Channel], Session], limits: Limits, changed: Condition) -> None:
        self._session_of = session_of
        self._limits = limits
        self._changed = changed  # the server's condition, under which all changes happen
        self._sessions: dict[Session, None] = {}
        self.listeners: list[Listener] = []
        self._jobs: list[Job] = []
        self._threads: list[Work] = []  # of listeners that have nothing to watch
        self._closed = False
        self.outcomes: collections.Counter[Outcome] = collections.Counter()

    def __len__(self) -> int:
        return len(self._sessions)

    def listen(self, address: str, tls: TlsConfig | ssl.SSLContext | None = None) -> str:
        """Accept readers at an address, by the loop of this process; return it as a transport dials it."""
        listener = listen(address, self._limits, tls=tls)

        def turn() -> float | None:
            try:
                pause = self._accept_next(listener, 0.0)
                if not pause and (loop := job.loop) is not None:
                    listener.watch(lambda fds: loop.wait_for(job, fds))
            except ClosedError:
                return None
            return pause or _LOOK

        with self._changed:
            is_late = self._closed
            if not is_late:
                self.listeners.append(listener)  # from here on `shut` closes it
        if is_late:
            listener.close()
            raise ClosedError("the server is closed")
        try:
            if listener.watch(lambda _: None):
                job = Job(turn, "bowstring-accept", prompt=True)
                self._jobs.append(job)
                do_in_loop(job)
            else:
                self._threads.append(run_in_thread(self.accept_all, listener, name="bowstring-accept"))
        except BaseException:
            with self._changed:
                self.listeners.remove(listener)
            listener.close()
            raise
        return listener.uri

    def accept_all(self, listener: Listener) -> None:
        """Accept connections in this thread until the listener is closed."""
        with contextlib.suppress(ClosedError):
            while True:
                time.sleep(self._accept_next(listener, _LOOK))

    def _accept_next(self, listener: Listener, seconds: float) -> float:
        """Serve the next connection, if there is one; return how long to pause then.

        A connection for which no descriptor is left is not refused: it waits.
        """
        try:
            channel = listener.accept(seconds)
            if channel is None:
                return 0.0
            has_room = channel.authenticated or unauthenticated.make_room()
        except ClosedError:
            raise
        except LimitExceeded:
            # Descriptors of unauthenticated peers are freed for the connections that wait.
            unauthenticated.evict(_EVICTED)
            return _PAUSE
        except (BowstringError, OSError):
            with self._changed:
                self.outcomes[Outcome.REFUSED] += 1
            return _PAUSE
        try:
            self._serve(channel)
        except Exception:  # noqa: BLE001  others still come in
            report_uncaught()
            channel.close()
        return 0.0 if has_room else _PAUSE

    def _serve(self, channel: Channel) -> None:
        session = self._session_of(channel)
        evicted = None
        with self._changed:
            is_full = len(self._sessions) >= self._limits.connections
            if is_full:  # a session that is not authenticated keeps no other peer out
                evicted = next((each for each in self._sessions if each.is_stranger), None)
            if self._closed or (is_full and evicted is None):
                self.outcomes[Outcome.REFUSED] += is_full and evicted is None
                channel.close()
                return
            if evicted is not None:
                del self._sessions[evicted]
            self._sessions[session] = None
        if evicted is not None:
            evicted.close(0.0)
        if not channel.authenticated and session.is_stranger:
            unauthenticated.enter(session)
        try:
            session.begin()
        except NO_THREAD as error:  # for this one
            session.turn_away(error)

    def ended(self, session: Session, outcome: Outcome) -> None:
        unauthenticated.leave(session)
        with self._changed:
            self._sessions.pop(session, None)
            self.outcomes[outcome] += 1

    def shut(self) -> None:
        with self._changed:
            self._closed = True
            listeners, jobs = list(self.listeners), list(self._jobs)
        for listener in listeners:
            listener.close()
        for job in jobs:
            job.ring()

    def close(self, deadline: float) -> None:
        """End all sessions, and wait until they are over, at most until `deadline`, on the monotonic clock."""
        with self._changed:
            sessions = list(self._sessions)
        for session in sessions:
            session.close(max(_LEAST_PATIENCE, deadline - time.monotonic()))
        for work in [*self._threads, *(work for session in sessions for work in session.work)]:
            work.join(max(0.0, deadline - time.monotonic()))
        with self._changed:
            self._changed.wait_for(lambda: not self._sessions, max(0.0, deadline - time.monotonic()))


# Of the descriptors that this process may open: one in so many is for peers that are not let in, and one in so many
# stays free of them, but for one peer.
_SHARE: Final = 4
_SPARE: Final = 8
_MOST_SPARE: Final = 64
_LEAST: Final = 4
_EVICTED: Final = 8


class _Unauthenticated:
    """The sessions of all servers of this process whose network peers are not authenticated yet, oldest first.

    Beyond a share of the process's descriptors the oldest are closed: readers and files need the rest.
    """

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget all: in the child of a fork they are the parent's, and any of its threads may hold the lock."""
        self._lock = threading.Lock()
        self._sessions: dict[Session, None] = {}
        self._leaving: weakref.WeakSet[Any] = weakref.WeakSet()

    def make_room(self) -> bool:
        """Close the oldest sessions where one more would exceed the share; false if the next one must wait."""
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = max(_LEAST, limit // _SHARE)
        if len(self._sessions) >= most:  # some of which may have been let in since
            with self._lock:
                self._sessions = {session: None for session in self._sessions if session.is_stranger}
        if len(self._sessions) + len(self._leaving) < most and _has_spare(limit):
            return True
        self.evict(max(2, len(self._sessions) - most + 1))
        return not self._leaving

    def enter(self, session: Session) -> None:
        with self._lock:
            self._sessions[session] = None

    def leave(self, session: Session) -> None:
        if session not in self._sessions and session not in self._leaving:
            return
        with self._lock:
            self._sessions.pop(session, None)
            self._leaving.discard(session)

    def evict(self, count: int) -> None:
        """Close those that came first, at most `count`."""
        closing: list[Session] = []
        with self._lock:
            for session in list(self._sessions):
                if len(closing) == count:
                    break
                if session.is_stranger:
                    self._leaving.add(session)  # first: `leave` looks at both without the lock
                    closing.append(session)
                del self._sessions[session]
        for session in closing:
            session.close(0.0)


def _has_spare(limit: int) -> bool:
    """Whether descriptors are left beside the spare ones: a new one has the lowest free number."""
    try:
        lowest = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    os.close(lowest)
    return lowest < limit - min(_MOST_SPARE, limit // _SPARE)


unauthenticated: Final = _Unauthenticated()
os.register_at_fork(after_in_child=unauthenticated.begin_anew)
