"""Accepting connections, and what a peer may send before it is let in."""

from __future__ import annotations

import dataclasses
import os
import resource
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from bowstring.errors import BowstringError, ClosedError, DeadlineExceeded, LimitExceeded

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from bowstring.transport.channel import Channel, Listener

_Session = TypeVar("_Session")

_ACCEPT_SECONDS: Final = 1.0
_PAUSE: Final = 0.01


def accept_all(
    listener: Listener,
    welcome: Callable[[Channel], object],
    turned_away: Callable[[], object],
    stopped: Callable[[], bool],
) -> None:
    """Welcome all who connect, until the listener is closed or it is told to stop.

    Parameters
    ----------
    listener
        Where they come.
    welcome
        Called with each connection, which is its own from then on.
    turned_away
        Called for each that was not let in. Who waits because no descriptor is left is not one of them: he is
        taken when there is.
    stopped
        Whether to stop; asked about once a second, and after each connection.
    """
    while not stopped():
        try:
            channel = accept_next(listener, turned_away)
        except ClosedError:
            return
        if channel is not None:
            welcome(channel)
        # Nothing here keeps the last one open.
        del channel


def accept_next(listener: Listener, turned_away: Callable[[], object]) -> Channel | None:
    """Return the next who connects; ``None`` where nobody came for a second, or who came must wait or go.

    Parameters
    ----------
    listener, turned_away
        As for :func:`accept_all`.

    Raises
    ------
    ClosedError
        The listener is closed: nobody comes any more.
    """
    try:
        channel = listener.accept(_ACCEPT_SECONDS)
        if channel is not None and not channel.authenticated:
            unauthenticated.make_room()
        return channel
    except ClosedError:
        raise
    except LimitExceeded:
        # Descriptors of unauthenticated peers are freed for the connections that wait.
        unauthenticated.evict(_EVICTED)
    except (BowstringError, OSError):
        turned_away()
    # Where no descriptor is left the next one fails at once, too.
    time.sleep(_PAUSE)
    return None


def place_for(
    present: Collection[_Session], most: int, is_unauthenticated: Callable[[Any], bool]
) -> tuple[bool, _Session | None]:
    """Return whether one more session may come in, and the session that gives way to it, if one has to.

    A peer that connects and does not authenticate keeps no other peer out: the first of these gives way.

    Examples
    --------
    >>> (
    ...     place_for(["known", "unknown"], 3, "unknown".__eq__),
    ...     place_for(["known", "unknown"], 2, "unknown".__eq__),
    ... )
    ((True, None), (True, 'unknown'))
    >>> place_for(["known", "known"], 2, "unknown".__eq__)
    (False, None)
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
    """The peers of all servers of this process that came over a network and have not been let in, oldest first.

    They may have a share of the descriptors that this process may open, so that it can open files and serve readers
    whatever comes: of more than that, or where few descriptors are left, those that came first are closed.
    """

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget all: in the child of a fork they are the parent's, and any of its threads may hold the lock."""
        self._changed = threading.Condition()
        self._sessions: dict[Any, tuple[Callable[[], bool], Callable[[], object]]] = {}
        self._leaving: weakref.WeakSet[Any] = weakref.WeakSet()

    def make_room(self) -> None:
        """Close the oldest sessions where one more would exceed the share; wait a moment until they are gone."""
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = max(_LEAST, limit // _SHARE)
        if len(self._sessions) >= most:  # some of which may have been let in since
            with self._changed:
                self._sessions = {key: each for key, each in self._sessions.items() if each[0]()}
        if len(self._sessions) + len(self._leaving) < most and _has_spare(limit):
            return
        self.evict(max(2, len(self._sessions) - most + 1))
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    not self._leaving
                    or (len(self._sessions) + len(self._leaving) < most and _has_spare(limit))
                ),
                _ACCEPT_SECONDS,
            )

    def enter(self, session: Any, is_unknown: Callable[[], bool], close: Callable[[], object]) -> None:
        """Add a session.

        Parameters
        ----------
        session
            What `leave` is called with when it is over.
        is_unknown
            Whether its peer has not been let in yet.
        close
            Hangs up, and does not wait.
        """
        with self._changed:
            self._sessions[session] = is_unknown, close

    def leave(self, session: Any) -> None:
        """Forget a session, which has closed its connection."""
        if session not in self._sessions and session not in self._leaving:
            return
        with self._changed:
            self._sessions.pop(session, None)
            self._leaving.discard(session)
            self._changed.notify_all()

    def evict(self, count: int) -> None:
        """Close those that came first, at most `count`."""
        closing: list[Callable[[], object]] = []
        with self._changed:
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
    """Bounds for what a channel receives, beside its ``limits``, until they are taken away.

    A deadline for each wait is none for a peer that sends a byte now and then, and bounds for each message are none
    for one that sends many. These hold for the connection as a whole.

    Parameters
    ----------
    until
        When the peer must be let in at the latest, on the monotonic clock.
    nbytes
        Most bytes of the connection, framing included; ``None`` for any number.

    Examples
    --------
    >>> Restriction.within(10.0).check(100)
    >>> Restriction.within(10.0).check(5000)
    Traceback (most recent call last):
    bowstring.errors.LimitExceeded: the peer sends too much before it is let in; ...
    """

    until: float
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
        """Refuse a message that ends behind so many bytes of the connection.

        Raises
        ------
        LimitExceeded
            These are too many.
        """
        if self.nbytes is not None and end > self.nbytes:
            raise LimitExceeded(
                "the peer sends too much before it is let in",
                expected=f"at most {self.nbytes} bytes in all",
                found=f"{end} bytes",
            )

    def check_time(self) -> None:
        """Refuse to wait any longer.

        Raises
        ------
        DeadlineExceeded
            The time is over.
        """
        if time.monotonic() >= self.until:
            raise DeadlineExceeded(
                "the peer was not let in in time", hint="Limits.connect_timeout bounds it."
            )
