"""Work that waits for a device: calls that are made once everything queued on it is done, such as unmapping.

A call of a driver that waits cannot be interrupted, so a thread of the device's own makes it.
"""

from __future__ import annotations

import collections
import contextlib
import queue
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from bowstring.errors import DeadlineExceeded, DeviceError, without_frames
from bowstring.locks import Condition
from bowstring.memory.cuda.driver import nothing_runs
from bowstring.memory.lease import Finalizer

if TYPE_CHECKING:
    from typing import Any

Call = Callable[[], "Any"]

_IDLE_SECONDS: Final = 10.0
_RETRY_SECONDS: Final = 1.0


class _Request:
    """A request for a round, and its outcome."""

    __slots__ = ("done", "error")

    def __init__(self) -> None:
        self.done = False
        self.error: BaseException | None = None


class DeferredCalls:
    """Calls that wait for a device, each made once, in rounds of a thread of its own.

    A round serves all requests made before it; a caller whose deadline passes stops waiting. One that failed, as
    during a capture, is made again while calls are left. A kernel that never ends keeps no process: daemon.
    """

    def __init__(self, synchronize: Callable[[], None], name: str) -> None:
        self._synchronize = synchronize
        self._name = name
        self.calls: collections.deque[Call] = collections.deque()
        self._changed = Condition()
        # The collector may run a finalizer that asks in any thread, in the one that takes requests too.
        self._requests: queue.SimpleQueue[_Request] = queue.SimpleQueue()
        self._running = False
        self._thread: int | None = None

    def add(self, call: Call) -> None:
        """Note a call for the next round; safe at any moment, in any thread, inside any lock."""
        self.calls.append(call)

    def begin(self) -> _Request:
        """Have a round begin from now on, without waiting for it."""
        request = _Request()
        with self._changed:
            self._requests.put(request)
            if sys.is_finalizing():
                # Daemon threads do not run any more.
                raise DeviceError(
                    "a device cannot be waited for", found="the interpreter ends", where=self._name
                )
            if not self._running:
                thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:  # too many threads, or the interpreter ends
                    raise DeviceError(
                        "a device cannot be waited for", found=str(error), where=self._name
                    ) from error
                self._running = True
        return request

    def wait(self, seconds: float) -> None:
        """Wait until the device has done what is queued now, and what was noted before is called.

        In the thread of the rounds, where the collector may run a finalizer that waits, it is done at once.
        """
        if threading.get_ident() == self._thread:
            error = self._round()
        else:
            with self._changed:
                request = self.begin()
                if not self._changed.wait_for(lambda: request.done, seconds):
                    raise DeadlineExceeded(
                        "a device is still at work", expected=f"done within {seconds:g} s", where=self._name
                    )
            error, request.error = request.error, None
        try:
            if error is not None:
                raise error
        finally:
            del error  # else this frame holds it, and it the callers' frames

    def _run(self) -> None:
        thread = threading.current_thread()
        self._thread = thread.ident
        again = False
        while True:
            thread.name = f"idle {self._name}"
            served: list[_Request] = []
            try:
                served.append(self._requests.get(timeout=_RETRY_SECONDS if again else _IDLE_SECONDS))
            except queue.Empty:
                if not again:
                    with self._changed:
                        self._running = False
                        self._thread = None  # its number may be given to another one
                        if self._requests.empty() or self._running:  # a finalizer has started another thread
                            return
                        self._running, self._thread = True, thread.ident
                    continue
            thread.name = self._name
            with contextlib.suppress(queue.Empty):
                while True:
                    served.append(self._requests.get_nowait())
            error = self._round()
            with self._changed:
                for request in served:
                    request.done, request.error = True, error
                self._changed.notify_all()
            again = error is not None and bool(self.calls)
            del served, error  # which hold the frames that they passed

    def _round(self) -> BaseException | None:
        """Wait for the device and make the calls; return what was raised, for those that wait for the round."""
        calls: list[Call] = []
        with contextlib.suppress(IndexError):
            while True:
                calls.append(self.calls.popleft())
        try:
            try:
                self._synchronize()
            except BaseException as error:
                if not nothing_runs(error):  # the memory may be read still
                    self.calls.extend(calls)
                    calls.clear()
                raise
            finally:
                for call in calls:
                    with contextlib.suppress(DeviceError):
                        call()
        except BaseException as error:  # noqa: BLE001
            return without_frames(error)
        return None


class Mapped:
    """A mapped range. When nothing refers to it any more, `unmap` is deferred until the device is done.

    The last reference may go at any moment, even while a kernel reads the memory, so no driver is called then.
    """

    __slots__ = ("_end", "address")

    def __init__(self, address: int, unmap: Call, deferred: DeferredCalls) -> None:
        self.address = address
        self._end = Finalizer(deferred.add, unmap)
