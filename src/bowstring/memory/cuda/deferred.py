"""What is done when a device has come to the end of what is queued on it now, such as to unmap memory."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from bowstring.errors import DeviceError
from bowstring.memory.cuda.device_waiter import Rounds
from bowstring.memory.cuda.driver import Capturing
from bowstring.memory.ending import Ending

if TYPE_CHECKING:
    from typing import Any

__all__ = ["Afterwards", "Mapped"]

Call = Callable[[], "Any"]


class Afterwards:
    """Calls that must wait for a device, each made once.

    Parameters
    ----------
    synchronize
        Waits for the device, however long that takes.
    name
        Of the thread that waits, for people.
    """

    def __init__(self, synchronize: Callable[[], None], name: str) -> None:
        self._synchronize = synchronize
        self._calls: collections.deque[Call] = collections.deque()
        self._rounds = Rounds(self._round, name)

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, call: Call) -> None:
        """Note a call for the next round. It may be any moment, in any thread, inside any lock."""
        self._calls.append(call)

    def begin(self) -> None:
        """Have a round begin, and wait for nothing.

        Raises
        ------
        DeviceError
            No thread can be started to do it.
        """
        self._rounds.ask()

    def wait(self, seconds: float) -> None:
        """Wait until the device has done what is queued now, and what was noted before is called.

        Raises
        ------
        DeadlineExceeded
            It is not after `seconds`; it will be.
        DeviceError
            The device failed, or cannot be waited for now.
        """
        self._rounds.wait(seconds)

    def _round(self) -> None:
        calls: list[Call] = []
        with contextlib.suppress(IndexError):
            while True:
                calls.append(self._calls.popleft())
        try:
            self._synchronize()
        except Capturing:
            self._calls.extend(calls)  # nobody can wait now, and it may be read still
            raise
        except DeviceError:
            _make(calls)  # a device that failed reads nothing any more
            raise
        except BaseException:
            self._calls.extend(calls)
            raise
        _make(calls)


def _make(calls: list[Call]) -> None:
    for call in calls:
        with contextlib.suppress(DeviceError):
            call()


class Mapped:
    """A mapped range. When nothing refers to it any more, it is unmapped afterwards.

    Parameters
    ----------
    address
        Where it begins.
    unmap
        Takes the mapping away.
    afterwards
        Where that is noted: at any moment, maybe while a kernel reads it, so no driver is called then.
    """

    __slots__ = ("_end", "address")

    def __init__(self, address: int, unmap: Call, afterwards: Afterwards) -> None:
        self.address = address
        self._end = Ending(afterwards.add, unmap)
