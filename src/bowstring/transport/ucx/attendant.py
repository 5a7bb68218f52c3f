"""Progress where no thread makes any: while a connection ends, and when somebody sends and goes.

What was sent arrives before the peer learns of the end.
UCX closes the connection to the listener at once, and what is still under way in others may be lost. So the end
that closes says ``BYE``, and lets go of its worker when the other has answered, or after a while.
"""

from __future__ import annotations

import atexit
import math
import os
import time
import weakref
from collections.abc import Callable
from typing import Any, Final, Protocol

from bowstring.transport.loop import Job, do_in_loop

_EXIT_PATIENCE: Final = 1.0
_SLICE: Final = 0.02
_LONG_SLICE: Final = 0.5
_TICK: Final = 0.002


class Ending(Protocol):
    """What ends with progress."""

    interrupted: bool  # it may take as long as it does

    @property
    def fd(self) -> int | None: ...
    def has_ended(self) -> bool: ...
    def end(self) -> None: ...


class _Attendant:
    """A job of the loop of this process, which has it from the first use of UCX on.

    Finalizers may hand things over at any time, also inside a callback of UCX: they take no lock.
    """

    def __init__(self) -> None:
        self.ending: list[Ending] = []
        self.calls: list[Callable[[], object]] = []
        self.new: list[weakref.WeakMethod[Callable[[], bool]]] = []
        self._sending: list[weakref.WeakMethod[Callable[[], bool]]] = []
        self.asleep = True
        self.job = Job(self._turn, "ucx (bowstring)", prompt=True)
        do_in_loop(self.job)

    def _turn(self) -> float:
        while self.calls:
            self.calls[0]()
            del self.calls[0]
        for thing in list(self.ending):
            if thing.has_ended():
                thing.end()
                self.ending.remove(thing)
        self._sending = [each for each in self._sending if (attend := each()) is not None and attend()]
        self.asleep = False  # until it is set again, what comes is looked at below
        while self.new:  # in a moment: the thread that sent may be about to receive
            self._sending.append(self.new.pop())
        self.asleep = not self._sending
        if self._sending or self.new:
            return _TICK
        ending = list(self.ending)
        fds = [fd for each in ending if (fd := each.fd) is not None]
        if self.job.loop is not None:
            self.job.loop.wait_for(self.job, fds)
        # What is not armed has more progress to make; and some ends have a time.
        soon = len(fds) < len(ending) or not all(each.interrupted for each in ending)
        return _SLICE if soon else _LONG_SLICE if ending else math.inf


_attendant: _Attendant | None = None


def begin() -> None:
    """Have the job in this process, from before the first connection on."""
    global _attendant  # noqa: PLW0603  one for the process
    if _attendant is None:
        _attendant = _Attendant()


def watch(attend: Callable[[], bool]) -> None:
    """Call a method in a moment, and again while it returns true: a channel that no other thread looks after."""
    if _attendant is not None:
        _attendant.new.append(weakref.WeakMethod(attend))
        if _attendant.asleep:
            _attendant.job.ring()


def leave(thing: Ending) -> None:
    """See to the end of something; for finalizers, too."""
    if _attendant is not None:
        _attendant.ending.append(thing)
        _attendant.job.ring()


def call_soon(call: Callable[[], Any]) -> None:
    """Call something, but not here: this may be inside a callback of UCX; for finalizers, too."""
    if _attendant is not None:
        _attendant.calls.append(call)
        _attendant.job.ring()


def all_ended(seconds: float) -> bool:
    """Wait until nothing is left that ends; return whether that is so."""
    until = time.monotonic() + seconds
    while _attendant is not None and (_attendant.ending or _attendant.calls):
        if time.monotonic() > until:
            return False
        time.sleep(_TICK)
    return True


atexit.register(all_ended, _EXIT_PATIENCE)


def _forget() -> None:
    """In a child: there is no loop, and what ends is the parent's."""
    global _attendant  # noqa: PLW0603
    _attendant = None


os.register_at_fork(after_in_child=_forget)
