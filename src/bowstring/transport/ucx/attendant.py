"""A thread that makes progress where no other does: while a connection ends, and when somebody sends and goes.

What was sent arrives before the peer learns of the end.
UCX closes the connection to the listener at once, and what is still under way in others may be lost. So the end
that closes says ``BYE``, and lets go of its worker when the other has answered, or after a while.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import select
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

_EXIT_PATIENCE: Final = 1.0
_SLICE: Final = 20  # milliseconds
_LONG_SLICE: Final = 500
_TICK: Final = 0.002


class Ending(Protocol):
    """What ends with the help of the thread."""

    @property
    def fd(self) -> int | None: ...
    @property
    def patient(self) -> bool: ...
    def has_ended(self) -> bool: ...
    def end(self) -> None: ...


class AtOnce:
    """The end of something for which there is nothing to wait, left to the thread: a call."""

    fd = None
    patient = False

    def __init__(self, end: Callable[[], object]) -> None:
        self._end = end

    def has_ended(self) -> bool:
        """Whether there is nothing to wait for."""
        return True

    def end(self) -> None:
        """End it."""
        self._end()


class Attended(Protocol):
    """What may have sent something, with no thread of its own to make progress."""

    def attend(self) -> bool: ...


class _Attendant:
    """The thread that makes progress where no other does; there is one in a process that has used UCX.

    Finalizers may hand things over at any time, also inside a callback of UCX: they take no lock.
    """

    def __init__(self) -> None:
        self._ending: queue.SimpleQueue[Ending] = queue.SimpleQueue()
        self._sending: queue.SimpleQueue[weakref.ref[Attended]] = queue.SimpleQueue()
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._asleep = True
        self._left = 0
        threading.Thread(target=self._run, name="ucx (bowstring)", daemon=True).start()

    def end(self, thing: Ending) -> None:
        """See to the end of something."""
        self._ending.put(thing)
        os.eventfd_write(self._event, 1)

    def watch(self, channel: Attended) -> None:
        """Make progress with a channel in a moment, unless another thread does before."""
        self._sending.put(weakref.ref(channel))
        if self._asleep:
            os.eventfd_write(self._event, 1)

    def wait(self, seconds: float) -> bool:
        """Wait until nothing is left that ends; return whether that is so."""
        end = time.monotonic() + seconds
        while self._left or not self._ending.empty():
            if time.monotonic() > end:
                return False
            time.sleep(_TICK)
        return True

    def _run(self) -> None:
        ending: list[Ending] = []
        sending: list[weakref.ref[Attended]] = []
        while True:
            _take_all(self._ending, ending)
            self._left = len(ending)
            for thing in [each for each in ending if each.has_ended()]:
                thing.end()
                ending.remove(thing)
                del thing
            self._left = len(ending)
            sending = [each for each in sending if _attend(each)]
            _take_all(self._sending, sending)
            self._sleep(ending, bool(sending))

    def _sleep(self, ending: Sequence[Ending], sending: bool) -> None:
        poll = select.poll()
        fds = [fd for each in ending if (fd := each.fd) is not None]
        # What is not armed has more progress to make; and some ends have a time.
        soon = len(fds) < len(ending) or not all(each.patient for each in ending)
        self._asleep = not (ending or sending)
        if not self._ending.empty() or not self._sending.empty():
            return
        if sending:  # the thread that sent may be about to receive
            time.sleep(_TICK)
            return
        for fd in (self._event, *fds):
            poll.register(fd, select.POLLIN)
        poll.poll(_SLICE if soon else _LONG_SLICE if ending else None)
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._event)


def _take_all(given: queue.SimpleQueue[Any], into: list[Any]) -> None:
    with contextlib.suppress(queue.Empty):
        while True:
            into.append(given.get_nowait())


def _attend(reference: weakref.ref[Attended]) -> bool:
    """Make progress with a channel; return whether there is more to be made."""
    channel = reference()
    return channel is not None and channel.attend()


_attendant: _Attendant | None = None


def begin() -> None:
    """Have the thread in this process, from before the first connection on."""
    global _attendant  # noqa: PLW0603  one for the process
    if _attendant is None:
        _attendant = _Attendant()


def watch(channel: Attended) -> None:
    """Let the thread make progress with a channel that no other thread looks after."""
    if _attendant is not None:
        _attendant.watch(channel)


def leave(thing: Ending) -> None:
    """Let the thread see to the end of something; for finalizers, too."""
    if _attendant is not None:
        _attendant.end(thing)


def all_ended(seconds: float) -> bool:
    """Wait until nothing is left that ends; return whether that is so."""
    return _attendant is None or _attendant.wait(seconds)


@atexit.register
def _before_exit() -> None:
    all_ended(_EXIT_PATIENCE)


def _forget() -> None:
    """In a child: there is no thread, and what ends is the parent's."""
    global _attendant  # noqa: PLW0603
    _attendant = None


os.register_at_fork(after_in_child=_forget)
