"""One pair of processes on a device: everything that handing memory over stands on, in a few seconds.

The probe (:mod:`tests.gpu.probe`) looks at the same closer, with processes for each check. Here three contexts are
made, since one producer is killed, others only where a check did not hold; what may cost one of them comes last.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Generator
from typing import Any

from bowstring.benchmarks.processes.child import Child, ChildFailed
from tests.gpu.lending import Borrower, Lender
from tests.gpu.probe.checks import Stage, kill, pass_on
from tests.gpu.probe.roles import Exporter, Importer

__all__ = ["Owner", "Reader", "checks"]

_NBYTES = 4 << 20
_SMALL_ROWS = 64
# Errors of the driver, by CuPy, cuda-bindings or us; NumPy's, under the fake device; the end of the process.
_REFUSED = r" raised (CUDA\w+Error|DeviceError|ValueError: assignment destination is read-only)| ended"


class Owner(Exporter):
    """Makes memory that others map, and lends that of another library."""

    def __init__(self, device: str) -> None:
        super().__init__(device)
        self._lender = Lender(device)

    def lend(self, what: str, **arguments: Any) -> Any:
        """Do what a lender does."""
        return getattr(self._lender, what)(**arguments)


class Reader(Importer):
    """Maps memory of another process, and borrows it."""

    def __init__(self, device: str, path: str) -> None:
        super().__init__(device, path)
        self._borrower = Borrower(device)

    def borrow(self, what: str, **arguments: Any) -> Any:
        """Do what a borrower does."""
        return getattr(self._borrower, what)(**arguments)


class Pair:
    """The two processes."""

    def __init__(self, device: str) -> None:
        self._ends = contextlib.ExitStack()
        stage = self._ends.enter_context(contextlib.closing(Stage(device, _NBYTES)))
        self._device, self.path, self.fake = device, stage.path(), device.startswith("fake:")
        self.renew_owner()
        self.reader = self._ends.enter_context(Child(Reader, device=device, path=self.path))

    def renew_owner(self) -> None:
        """Start a process that owns memory."""
        self.owner = self._ends.enter_context(Child(Owner, device=self._device))

    def hand_over(self, value: int) -> Any:
        """Make memory of one value in one process, and map it in the other; return the figures of both."""
        made = self.owner.call("make", nbytes=_NBYTES, value=value)
        pass_on(self.owner, self.reader, self.path)
        return {"make": made["seconds"], **self.reader.call("map", handle=made["handle"])}

    def borrowed(self, arrays: int, rows: int, values: list[int]) -> tuple[bool, dict[str, Any]]:
        """Lend what is allocated, and read it where it lies."""
        got = self.reader.call("borrow", what="take", uri=self.owner.call("lend", what="publish"))
        self.owner.call("lend", what="wait_released")
        self.owner.call("lend", what="drop")
        expected = got["values"] == values and got["path"] == "unix: in place" and got["rows"] == rows
        return expected and got["regions"] <= arrays, got

    def close(self) -> None:
        """End both."""
        self._ends.close()


def is_refused(said: str) -> bool:
    """Whether what is said of a call that failed shows that the driver refused it, or that it cost the process.

    Examples
    --------
    >>> is_refused("Reader raised CUDARuntimeError: cudaErrorIllegalAddress: an illegal memory access")
    True
    >>> is_refused("Reader raised AssertionError: ")
    False
    """
    return re.search(_REFUSED, said) is not None


def mapped(pair: Pair) -> tuple[bool, dict[str, Any]]:
    """What one process writes through a descriptor, the other one sees, and sees change."""
    figures = pair.hand_over(7)
    first = pair.reader.call("values")
    pair.owner.call("fill", value=8)
    return (first, pair.reader.call("values")) == ([7, 7], [8, 8]), figures


def reused(pair: Pair) -> tuple[bool, dict[str, Any]]:
    """Memory that was let go stays its reader's, and what is made then is other memory."""
    pair.hand_over(1)
    pair.owner.call("drop")
    pair.owner.call("make", nbytes=_NBYTES, value=2)
    found = pair.reader.call("values")
    pair.reader.call("forget")
    return found == [1, 1], {"found": found}


def handle(pair: Pair) -> tuple[bool, dict[str, Any]]:
    """An allocation of another library is read where it lies, by its handle."""
    pair.owner.call("lend", what="allocate", value=5, arrays=3)
    return pair.borrowed(1, 1000, [5])


def two_small(pair: Pair) -> tuple[bool, dict[str, Any]]:
    """Two small allocations, which share what a driver hands out, are each read as they are."""
    for value in (3, 4):
        pair.owner.call("lend", what="allocate", value=value, rows=_SMALL_ROWS)
    return pair.borrowed(2, _SMALL_ROWS, [3, 4])


def event(pair: Pair) -> tuple[bool, dict[str, Any]]:
    """A stream of the reader waits for the work that the other process had queued."""
    pair.owner.call("lend", what="allocate", value=7, rows=100_000)
    uri = pair.owner.call("lend", what="publish_at_work", value=8)
    pair.reader.begin("borrow", what="take_in_order", uri=uri)
    if pair.fake:
        pair.owner.call("lend", what="wait_waited_for")
        pair.owner.call("lend", what="end_work")
    got = pair.reader.finish()
    return got["values"] == [8] and "wait for the producer's work" in got["why"], got


def survives(pair: Pair) -> tuple[bool, dict[str, Any]]:
    """A mapping stays true when its producer is killed while it is read."""
    pair.hand_over(6)
    pair.reader.call("begin_reading", value=6)
    kill(pair.owner)
    rounds, wrong = pair.reader.call("end_reading")
    pair.renew_owner()
    return rounds > 0 and not wrong, {"rounds": rounds, "wrong": wrong}


def read_only(pair: Pair) -> tuple[bool, dict[str, Any]]:
    """A write by the reader is refused, which may cost it its context; it is said how."""
    pair.hand_over(9)
    if (found := pair.reader.call("values")) != [9, 9]:
        return False, {"found": found}
    try:
        pair.reader.call("write")
    except ChildFailed as error:
        said = str(error).splitlines()[0]
        return is_refused(said), {"write": said}
    return False, {"write": "went through"}


def checks(device: str) -> Generator[tuple[str, Callable[[], tuple[bool, dict[str, Any]]]]]:
    """Yield the checks by name, and end the processes behind the last."""
    pairs: list[Pair] = []

    def tried(check: Callable[[Pair], tuple[bool, dict[str, Any]]]) -> tuple[bool, dict[str, Any]]:
        holds = False
        if not pairs:
            pairs.append(Pair(device))
        try:
            holds, figures = check(pairs[0])
        finally:
            if not holds:
                pairs.pop().close()
        return holds, figures

    try:
        for check in (mapped, reused, handle, two_small, event, survives, read_only):
            yield check.__name__, lambda check=check: tried(check)  # type: ignore[misc]
    finally:
        for pair in pairs:
            pair.close()
