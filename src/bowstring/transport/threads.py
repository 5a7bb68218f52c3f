"""Standby: threads that have done their work and wait for more.

Starting a thread takes longer than a message of the protocol, and opening a stream waits for it. So a thread
that is done waits a while for the next work; trio keeps its threads so, too.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from typing import TYPE_CHECKING, Any, Final

from bowstring.errors import LimitExceeded

if TYPE_CHECKING:
    from collections.abc import Callable

# What `run_in_thread` raises, and what the system does, where no thread can be started.
NO_THREAD: Final = (LimitExceeded, RuntimeError)

_IDLE_SECONDS: Final = 10.0
_MOST_IDLE: Final = 8
_IDLE_NAME: Final = "idle (bowstring)"


def report_uncaught() -> None:
    """Report the exception that is being handled as one that ends a thread, to `threading.excepthook`."""
    threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))


class Work:
    """A call that runs in a daemon thread."""

    def __init__(self, target: Callable[..., object], args: tuple[Any, ...], name: str) -> None:
        self._call: tuple[Callable[..., object], tuple[Any, ...]] | None = (target, args)
        self.name = name
        self._ident: int | None = None
        self._over = threading.Lock()
        self._over.acquire()

    @property
    def over(self) -> bool:
        """Whether it is over."""
        return not self._over.locked()

    def join(self, timeout: float) -> None:
        """Wait until it is over, at most `timeout` seconds; not at all for the work that this thread does."""
        if self._ident != threading.get_ident() and self._over.acquire(timeout=timeout):
            self._over.release()

    def _run(self) -> None:
        assert self._call is not None
        target, args = self._call
        self._call = None
        self._ident = threading.get_ident()
        try:
            target(*args)
        except BaseException:  # noqa: BLE001  as any thread, it reports what nobody caught, and lives on
            report_uncaught()
        finally:
            # Whatever the call had must not live until the next one comes.
            del target, args
            self._over.release()


def _work(first: Work, given: queue.SimpleQueue[Work]) -> None:
    """Do one piece of work after the other."""
    thread, work = threading.current_thread(), first
    del first
    while True:
        work._run()
        del work
        thread.name = _IDLE_NAME
        if len(_idle) >= _MOST_IDLE:
            return
        _idle[thread] = given
        try:
            work = given.get(timeout=_IDLE_SECONDS)
        except queue.Empty:
            if _idle.pop(thread, None) is not None:
                return
            work = given.get()  # of what has taken it out of `_idle`


_idle: dict[threading.Thread, queue.SimpleQueue[Work]] = {}


def run_in_thread(target: Callable[..., object], *args: Any, name: str) -> Work:
    """Call `target` in a daemon thread, one that waits for work if there is one."""
    work = Work(target, args, name)
    try:
        thread, given = _idle.popitem()
    except KeyError:
        thread = threading.Thread(target=_work, args=(work, queue.SimpleQueue()), name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            raise LimitExceeded(
                "no thread can be started",
                found=f"{error}; {threading.active_count()} threads in this process",
                where=name,
                hint="Raise the limit of processes (ulimit -u, pids.max of the container), or use fewer streams.",
            ) from None
    else:
        try:
            # From here on, not when the thread gets to it: an exit hook must see it.
            thread.name = name
        finally:  # also after an interrupt, or it would wait for ever
            given.put(work)
    return work


# The threads of the parent are not there in the child of a fork.
os.register_at_fork(after_in_child=_idle.clear)
