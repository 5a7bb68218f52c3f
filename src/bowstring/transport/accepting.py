"""Accepting connections, and what a peer may send before it is let in."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import resource
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from bowstring.errors import BowstringError, ClosedError, DeadlineExceeded, LimitExceeded
from bowstring.transport.loop import Job, do_in_loop
from bowstring.transport.threads import Work, report_uncaught, run_in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from bowstring.transport.channel import Channel, Listener

_Session = TypeVar("_Session")

# How often it is seen to that nobody waits, and that a socket's file has not been removed.
_LOOK: Final = 1.0
# Where no descriptor is left, or too many peers are unauthenticated, the next one comes no sooner.
_PAUSE: Final = 0.01


class Accepting:
    """Accepts connections until the listener is closed, by the loop of this process; `welcome` owns each channel.

    `welcome` is called by a worker of the loop, and waits for nothing. A listener that has nothing to watch has a
    thread of its own. A connection for which no descriptor is left is not turned away: it waits.

    Raises
    ------
    LimitExceeded
        No thread or descriptor is left for that.
    """

    def __init__(
        self, listener: Listener, welcome: Callable[[Channel], object], turned_away: Callable[[], object]
    ) -> None:
        self._listener = listener
        self._welcome = welcome
        self._turned_away = turned_away
        self._job = Job(self._turn, "bowstring-accept", prompt=True)
        self.thread: Work | None = None
        if listener.watch(lambda _: None):
            do_in_loop(self._job)
        else:
            self.thread = run_in_thread(accept_all, listener, welcome, turned_away, name="bowstring-accept")

    def _turn(self) -> float | None:
        try:
            pause = _accept_next(self._listener, 0.0, self._welcome, self._turned_away)
            if not pause:
                self._listener.watch(self._watch)
        except ClosedError:
            return None
        return pause or _LOOK

    def _watch(self, fds: Sequence[int]) -> None:
        if self._job.loop is not None:
            self._job.loop.wait_for(self._job, fds)

    def close(self) -> None:
        """Take note that the listener was closed."""
        if self._job.loop is not None:
            self._job.loop.ring(self._job)


def accept_all(
    listener: Listener,
    welcome: Callable[[Channel], object],
    turned_away: Callable[[], object],
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Do what `Accepting` does in this thread, until the listener is closed or `stopped` returns true."""
    with contextlib.suppress(ClosedError):
        while not stopped():
            time.sleep(_accept_next(listener, _LOOK, welcome, turned_away))


def _accept_next(
    listener: Listener,
    seconds: float,
    welcome: Callable[[Channel], object],
    turned_away: Callable[[], object],
) -> float:
    """Welcome the next connection, if there is one; return how long to pause then."""
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
        turned_away()
        return _PAUSE
    try:
        welcome(channel)
    except Exception:  # noqa: BLE001  others still come in
        report_uncaught()
        channel.close()
    return 0.0 if has_room else _PAUSE


def place_for(
    present: Collection[_Session], most: int, is_unauthenticated: Callable[[Any], bool]
) -> tuple[bool, _Session | None]:
    """Return whether one more session may come in, and the session that gives way to it, if one has to.

    The first unauthenticated session gives way: such a session keeps no other peer out.
    """
    if len(present) < most:
        return True, None
    evicted = next((each for each in present if is_unauthenticated(each)), None)
    return evicted is not None, evicted


# Of the descriptors that this process may open: one in so many is for peers that are not let in, and one in so many
# stays free of them, but for one peer.
_SHARE: Final = 4
_SPARE: Final = 8
_MOST_SPARE: Final = 64
_LEAST: Final = 4
_EVICTED: Final = 8


class Unauthenticated:
    """The sessions of all servers of this process whose network peers are not authenticated yet, oldest first.

    Beyond a share of the process's descriptors the oldest are closed: readers and files need the rest.
    """

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget all: in the child of a fork they are the parent's, and any of its threads may hold the lock."""
        self._lock = threading.Lock()
        self._sessions: dict[Any, tuple[Callable[[], bool], Callable[[], object]]] = {}
        self._leaving: weakref.WeakSet[Any] = weakref.WeakSet()

    def make_room(self) -> bool:
        """Close the oldest sessions where one more would exceed the share; false if the next one must wait."""
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = max(_LEAST, limit // _SHARE)
        if len(self._sessions) >= most:  # some of which may have been let in since
            with self._lock:
                self._sessions = {key: each for key, each in self._sessions.items() if each[0]()}
        if len(self._sessions) + len(self._leaving) < most and _has_spare(limit):
            return True
        self.evict(max(2, len(self._sessions) - most + 1))
        return not self._leaving

    def enter(self, session: Any, is_unknown: Callable[[], bool], close: Callable[[], object]) -> None:
        """Add a session until `leave`; `close` hangs up without waiting."""
        with self._lock:
            self._sessions[session] = is_unknown, close

    def leave(self, session: Any) -> None:
        """Forget a session, which has closed its connection."""
        if session not in self._sessions and session not in self._leaving:
            return
        with self._lock:
            self._sessions.pop(session, None)
            self._leaving.discard(session)

    def evict(self, count: int) -> None:
        """Close those that came first, at most `count`."""
        closing: list[Callable[[], object]] = []
        with self._lock:
            for session in list(self._sessions):
                if len(closing) == count:
                    break
                is_unknown, close = self._sessions[session]
                if is_unknown():
                    self._leaving.add(session)  # first: `leave` looks at both without the lock
                    closing.append(close)
                del self._sessions[session]
        for close in closing:
            close()


def _has_spare(limit: int) -> bool:
    """Whether descriptors are left beside the spare ones: a new one has the lowest free number."""
    try:
        lowest = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    os.close(lowest)
    return lowest < limit - min(_MOST_SPARE, limit // _SPARE)


unauthenticated: Final = Unauthenticated()
os.register_at_fork(after_in_child=unauthenticated.begin_anew)

UNAUTHENTICATED_BYTES: Final = 4096


@dataclasses.dataclass(frozen=True, slots=True)
class Restriction:
    """Bounds for a connection as a whole, until its peer is authenticated.

    A deadline per wait, or a bound per message, would not stop a peer that sends a little now and then.
    """

    until: float  # latest time of authentication, on the monotonic clock
    # Most bytes of the connection, framing included; ``None`` for any number.
    nbytes: int | None = UNAUTHENTICATED_BYTES

    @classmethod
    def within(cls, seconds: float) -> Self:
        """Return the restriction of a peer that must be let in within so many seconds from now."""
        return cls(time.monotonic() + seconds)

    @property
    def left(self) -> float:
        """Seconds that are left, 0 where there are none."""
        return max(0.0, self.until - time.monotonic())

    def check(self, end: int) -> None:
        """Raise `LimitExceeded` if a message ends, at byte `end` of the connection, behind the bound."""
        if self.nbytes is not None and end > self.nbytes:
            raise LimitExceeded(
                "the peer sends too much before it is let in",
                expected=f"at most {self.nbytes} bytes in all",
                found=f"{end} bytes",
            )

    def check_time(self) -> None:
        """Raise `DeadlineExceeded` once the time is over."""
        if time.monotonic() >= self.until:
            raise DeadlineExceeded(
                "the peer was not let in in time", hint="Limits.connect_timeout bounds it."
            )
