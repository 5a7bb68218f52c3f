"""What the probe finds out: each check starts its processes, and says what it saw."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bowstring.benchmarks.processes.child import Child, ChildFailed
from tests.gpu.probe.roles import Exporter, Importer, Keeper

__all__ = ["CHECKS", "Seen", "run"]

MIB = 1 << 20
_SMALL = 4 * MIB
_ROUNDS = 7


class Seen(NamedTuple):
    """What a check found: whether the design may rely on it, and the figures."""

    holds: bool
    figures: dict[str, Any]


class Stage:
    """The processes of one check, and where they meet."""

    def __init__(self, device: str, most: int) -> None:
        self.device = device
        self.most = most
        self._ends = contextlib.ExitStack()
        self._folder = Path(self._ends.enter_context(tempfile.TemporaryDirectory()))
        self._count = 0

    def path(self) -> str:
        """Return a new place to meet."""
        self._count += 1
        return str(self._folder / f"{self._count}")

    def exporter(self) -> Child:
        """Start a process that makes memory."""
        return self._ends.enter_context(Child(Exporter, device=self.device))

    def importer(self) -> tuple[Child, str]:
        """Start a process that maps memory, and return where it waits for it."""
        path = self.path()
        return self._ends.enter_context(Child(Importer, device=self.device, path=path)), path

    def keeper(self) -> tuple[Child, str]:
        """Start a process that keeps a descriptor, and return where it waits for it."""
        path = self.path()
        return self._ends.enter_context(Child(Keeper, path=path)), path

    def handed(self, exporter: Child, importer: Child, path: str, nbytes: int, value: int) -> str:
        """Make memory in one process, and hand it to another one; return its handle."""
        handle: str = exporter.call("make", nbytes=nbytes, value=value)["handle"]
        pass_on(exporter, importer, path)
        return handle

    def close(self) -> None:
        """End all processes."""
        self._ends.close()


def pass_on(sender: Child, taker: Child, path: str) -> None:
    """Let one process send its descriptor to another one."""
    taker.begin("take")
    sender.call("send", path=path)
    taker.finish()


def kill(child: Child) -> None:
    """End a process as the system does when memory runs out."""
    os.kill(child.pid, signal.SIGKILL)
    time.sleep(0.5)


def maps(stage: Stage) -> Seen:
    """What one process writes, another one reads, and sees change."""
    exporter = stage.exporter()
    importer, path = stage.importer()
    handle = stage.handed(exporter, importer, path, _SMALL, 7)
    figures = importer.call("map", handle=handle)
    first = importer.call("values")
    exporter.call("fill", value=8)
    second = importer.call("values")
    return Seen(first == [7, 7] and second == [8, 8], figures)


def survives_its_producer(stage: Stage) -> Seen:
    """A mapping stays true when its producer is killed while it is read."""
    exporter = stage.exporter()
    importer, path = stage.importer()
    handle = stage.handed(exporter, importer, path, _SMALL, 5)
    importer.call("map", handle=handle)
    importer.call("begin_reading", value=5)
    kill(exporter)
    rounds, wrong = importer.call("end_reading")
    return Seen(rounds > 0 and not wrong, {"rounds": rounds, "wrong": wrong})


def descriptor_keeps(stage: Stage) -> Seen:
    """A descriptor alone keeps memory, in a process that never starts the driver, when the producer is dead."""
    exporter = stage.exporter()
    keeper, keeps = stage.keeper()
    importer, path = stage.importer()
    handle = exporter.call("make", nbytes=_SMALL, value=3)["handle"]
    pass_on(exporter, keeper, keeps)
    kill(exporter)
    pass_on(keeper, importer, path)
    importer.call("map", handle=handle)
    found = importer.call("values")
    return Seen(found == [3, 3], {"found": found})


def identity(stage: Stage) -> Seen:
    """Descriptors of the same memory have the same device and inode, wherever they were passed.

    Mappings that stay are found by a region's name, and refused where device and inode (``identity_of``) are others
    than before: so this must hold. `tells_apart` says whether other memory has others: only then is it a proof.
    """
    exporter = stage.exporter()
    keeper, path = stage.keeper()
    seen: list[dict[str, int]] = []
    for value in (1, 1, 2):
        if not seen or value == 2:
            exporter.call("make", nbytes=_SMALL, value=value)
        pass_on(exporter, keeper, path)
        seen.append(keeper.call("identity"))
    first, again, other = ((each["device"], each["inode"]) for each in seen)
    return Seen(first == again, {"seen": seen, "tells_apart": first != other})


def reuse(stage: Stage) -> Seen:
    """Memory that a producer let go stays a reader's; new memory of the producer is other memory."""
    exporter = stage.exporter()
    importer, path = stage.importer()
    importer.call("map", handle=stage.handed(exporter, importer, path, _SMALL, 1))
    exporter.call("drop")
    exporter.call("make", nbytes=_SMALL, value=2)
    found = importer.call("values")
    return Seen(found == [1, 1], {"found": found})


def memory_comes_back(stage: Stage) -> Seen:
    """When nobody holds it any more, memory is free again: after many turns there is as much as after one."""
    exporter = stage.exporter()
    importer, path = stage.importer()
    free = []
    for turn in range(_ROUNDS):
        handle = stage.handed(exporter, importer, path, stage.most, turn)
        importer.call("map", handle=handle)
        importer.call("forget")
        exporter.call("drop")
        free.append(exporter.call("free") + importer.call("free"))
    # One turn may leave what the driver makes once; other processes of the machine may come and go.
    holds = free[-1] > free[0] - stage.most
    return Seen(holds, {"turns": _ROUNDS, "bytes": stage.most, "free": free})


def read_only(stage: Stage) -> Seen:
    """Whether a reader can be kept from writing; a write that is refused may cost the writer its context."""
    exporter = stage.exporter()
    importer, path = stage.importer()
    other, elsewhere = stage.importer()
    handle = stage.handed(exporter, importer, path, _SMALL, 4)
    pass_on(exporter, other, elsewhere)
    other.call("map", handle=handle)
    figures = {"read_only": importer.call("map", handle=handle)["read_only"], "write": "went through"}
    try:
        importer.call("write")
    except ChildFailed as error:
        figures["write"] = str(error).splitlines()[0]
    found = other.call("values")
    return Seen(found == [4, 4], figures | {"found": found})


def one_context(stage: Stage) -> Seen:
    """CuPy runs what numba-cuda compiled on mapped memory, and both have our context, the device's primary one."""
    exporter = stage.exporter()
    importer, path = stage.importer()
    importer.call("map", handle=stage.handed(exporter, importer, path, _SMALL, 6))
    figures = importer.call("one_context")
    return Seen(
        figures["found"] == [(1 << 32) - 1] and len(set(figures["contexts"].values())) <= 1,
        figures,
    )


def times(stage: Stage) -> Seen:
    """How long making, mapping and unmapping take, by size."""
    exporter = stage.exporter()
    importer, path = stage.importer()
    figures: dict[str, Any] = {}
    for nbytes in _sizes(stage.most):
        made = exporter.call("make", nbytes=nbytes, value=1)
        pass_on(exporter, importer, path)
        found = importer.call("times", handle=made["handle"], rounds=_ROUNDS)
        importer.call("forget")
        exporter.call("drop")
        figures[f"{nbytes >> 20} MiB"] = {"make": made["seconds"], **found}
    return Seen(holds=True, figures=figures)


def _sizes(most: int) -> Iterator[int]:
    nbytes = 2 * MIB
    while nbytes <= most:
        yield nbytes
        nbytes *= 8


CHECKS: dict[str, Callable[[Stage], Seen]] = {
    check.__name__: check
    for check in (
        maps,
        survives_its_producer,
        descriptor_keeps,
        identity,
        reuse,
        memory_comes_back,
        one_context,
        read_only,
        times,
    )
}


def run(name: str, device: str, most: int) -> Seen:
    """Run one check.

    Parameters
    ----------
    name
        One of `CHECKS`.
    device
        Such as ``"cuda:0"``.
    most
        The largest memory that is made, in bytes.
    """
    stage = Stage(device, most)
    try:
        return CHECKS[name](stage)
    except ChildFailed as error:
        return Seen(holds=False, figures={"failed": str(error)})
    finally:
        stage.close()
