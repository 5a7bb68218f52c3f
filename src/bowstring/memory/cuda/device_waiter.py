"""Waiting for a device, for a while: a call of a driver that waits cannot be interrupted, so a thread makes it."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Final

from bowstring.errors import DeadlineExceeded, DeviceError, without_frames

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Rounds"]

_IDLE_SECONDS: Final = 10.0


class _Asked:
    """Somebody who waits for a round."""

    __slots__ = ("done", "error")

    def __init__(self) -> None:
        self.done = False
        self.error: BaseException | None = None


class Rounds:
    """Rounds of one piece of work, in a thread of its own, so that whoever wants one done can stop waiting for it.

    Several that ask at once are served by one round, which begins after all of them asked. There is one thread at
    most, which ends when nobody asked for a while. Where a round never ends, because a kernel of the process
    never does, its thread stays in it: it is a daemon, and later rounds are refused by their deadlines.

    Parameters
    ----------
    work
        What a round does. What it raises is raised to all whom that round served.
    name
        Of the thread, for people.
    """

    def __init__(self, work: Callable[[], None], name: str) -> None:
        self._work = work
        self._name = name
        self._changed = threading.Condition()
        self._waiting: list[_Asked] = []
        self._running = False
        self._thread: int | None = None

    def ask(self) -> None:
        """Have a round begin from now on, and wait for nothing.

        Raises
        ------
        DeviceError
            No thread can be started to do it.
        """
        with self._changed:
            self._enter(_Asked())

    def wait(self, seconds: float) -> None:
        """Wait for a round that begins from now on. In the thread of the rounds itself, it is done at once.

        Raises
        ------
        DeadlineExceeded
            It has not ended after `seconds`; it goes on.
        DeviceError
            No thread can be started to do it.
        BaseException
            What the round raised.
        """
        if threading.get_ident() == self._thread:
            # A finalizer, which the collector runs in whichever thread: nobody else would serve it.
            self._work()
            return
        asked = _Asked()
        with self._changed:
            self._enter(asked)
            if not self._changed.wait_for(lambda: asked.done, seconds):
                raise DeadlineExceeded(
                    "a device is still at work", expected=f"done within {seconds:g} s", where=self._name
                )
        if asked.error is not None:
            raise asked.error

    def _enter(self, asked: _Asked) -> None:
        self._start()
        self._waiting.append(asked)
        self._changed.notify_all()

    def _start(self) -> None:
        if sys.is_finalizing():
            # Threads of this kind stand still by now, and would be waited for in vain.
            raise DeviceError("a device cannot be waited for", found="the interpreter ends", where=self._name)
        if self._running:
            return
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # too many threads, or the interpreter ends
            raise DeviceError("a device cannot be waited for", found=str(error), where=self._name) from error
        self._running = True

    def _run(self) -> None:
        thread = threading.current_thread()
        self._thread = thread.ident
        while True:
            thread.name = f"idle {self._name}"
            with self._changed:
                if not self._changed.wait_for(lambda: self._waiting, _IDLE_SECONDS):
                    self._running = False
                    self._thread = None  # its number may be given to another one
                    return
                served, self._waiting = self._waiting, []
                thread.name = self._name
            self._serve(served)
            del served  # whose errors hold the frames that they passed

    def _serve(self, served: list[_Asked]) -> None:
        failed: BaseException | None = None
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001  whoever waits for the round hears of it
            failed = without_frames(error)
        with self._changed:
            for asked in served:
                asked.done, asked.error = True, failed
            self._changed.notify_all()
