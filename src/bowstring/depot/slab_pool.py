"""The slabs of the depot: lent, in use, warm or lost, within a budget of memory and one of disk."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import os
import resource
import threading
import time
from typing import TYPE_CHECKING, Final, Literal

from bowstring.errors import ClosedError, DeadlineExceeded, LimitExceeded, OutOfBudget, Unsupported
from bowstring.memory import Region, cpu
from bowstring.memory.pool import size_class
from bowstring.memory.slab import reopen
from bowstring.memory.writable_memfd import (
    free_pages,
    make_writable_file,
    make_writable_memfd,
    used_elsewhere,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Sequence

    from bowstring.memory import Slab

__all__ = ["Kind", "Lent", "LostSlabs", "SlabPool", "SlabStatistics", "check_spare"]

_SPARE: Final = 256


def check_spare(fd: int) -> None:
    """Refuse a slab whose descriptor is one of the last.

    Raises
    ------
    LimitExceeded
        Too few would be left for readers and tasks.

    Examples
    --------
    >>> check_spare(3)
    """
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        return
    # The system gives the lowest number that is free.
    kept = min(_SPARE, most // 4)
    if fd >= most - kept:
        raise LimitExceeded(
            "no descriptor is left for a slab",
            expected=f"{kept} of {most} descriptors left for readers",
            hint="Raise the limit of open files (ulimit -n) where the depot starts, or publish fewer partitions.",
        )


class LostSlabs:
    """The slabs that take room though the depot has let go of them, for as long as somebody has them mapped."""

    def __init__(self) -> None:
        self._slabs: list[_Lost] = []

    def add(self, lent: Lent) -> None:
        """Take the account of a slab that comes home retired."""
        try:
            self._slabs.append(_Lost(lent))
        except (OSError, LimitExceeded, Unsupported):
            return  # no descriptor is left to watch it by, or no /proc to have one from

    def nbytes(self, kind: Kind) -> int:
        """Return how many bytes are taken still."""
        return sum(each.nbytes for each in self._mapped() if each.kind == kind)

    def __len__(self) -> int:
        return len(self._mapped())

    def _mapped(self) -> list[_Lost]:
        self._slabs = [each for each in self._slabs if used_elsewhere(each.fd)]
        return self._slabs

    def clear(self) -> None:
        """Watch none any more."""
        self._slabs = []


class _Lost:
    """One slab, by a descriptor that nobody else was sent."""

    def __init__(self, lent: Lent) -> None:
        self.fd = -1
        self.kind = lent.kind
        self.nbytes = lent.slab.nbytes
        self.fd = reopen(lent.fd, os.O_RDWR)

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)


Kind = Literal["memory", "disk"]
_KINDS: Final[tuple[Kind, Kind]] = ("memory", "disk")
# What comes home says nothing: whoever waits looks this often.
_LOOK: Final = 0.05
_FULL_SECONDS: Final = 0.5
# A data set may have thousands of partitions of a few rows.
_SMALLEST: Final = 64 << 10


@dataclasses.dataclass(eq=False, slots=True)
class Lent:
    """A slab of the stock.

    Attributes
    ----------
    slab
        As readers, and the depot, map it.
    fd
        By which a borrower maps it for writing.
    kind
        What it is made of.
    owner
        The data set that it is used for, empty where it lies warm, or comes home.
    since
        When it became warm, in seconds of the monotonic clock.
    """

    slab: Slab
    fd: int
    kind: Kind
    owner: str = ""
    since: float = 0.0

    def __del__(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


@dataclasses.dataclass(frozen=True, slots=True)
class SlabStatistics:
    """What a stock holds: bytes in use, warm and lost, and budgets, of memory and of disk; and how many wait.

    Lost is what is not lent again, as somebody who was lost sight of may look at it.
    """

    memory_budget: int
    memory_in_use: int
    memory_warm: int
    memory_lost: int
    disk_budget: int
    disk_in_use: int
    disk_warm: int
    disk_lost: int
    warm_slabs: int
    lost_slabs: int
    waiting: int
    made: int
    reused: int
    retired: int


class SlabPool:
    """Slabs to lend.

    Parameters
    ----------
    memory, disk
        The budgets, in bytes.
    warm_seconds
        How long a slab that nobody uses is kept.
    """

    def __init__(self, memory: int, disk: int, warm_seconds: float = 60.0) -> None:
        self._budget: dict[Kind, int] = {"memory": memory, "disk": disk}
        self._warm_seconds = warm_seconds
        self._changed = threading.Condition()
        self._home: collections.deque[Slab] = collections.deque()
        self._used: dict[bytes, Lent] = {}
        self._held: collections.Counter[tuple[Kind, str]] = collections.Counter()
        self._total: collections.Counter[Kind] = collections.Counter()
        self._idle: dict[Kind, list[Lent]] = {"memory": [], "disk": []}
        self._lost = LostSlabs()
        self._waiting: collections.deque[object] = collections.deque()
        self._made = self._reused = self._retired = 0
        # Until when the system is not asked again for what it refused, and why it did.
        self._full_until: dict[Kind, float] = {"memory": 0.0, "disk": 0.0}
        self._refusal = ""
        self._closed = False

    def known(self, uuids: Container[bytes]) -> frozenset[bytes]:
        """Return which of some slabs may be lent again."""
        with self._changed:
            self._collect()
            kept = (lent.slab for lents in (self._used.values(), *self._idle.values()) for lent in lents)
            return frozenset(slab.uuid for slab in kept if slab.uuid in uuids and not slab.retired)

    def borrow(
        self,
        nbytes: int,
        owner: str,
        folder: str,
        wait: float,
        still_there: Callable[[], object],
        mapped: Container[bytes] = frozenset(),
        *,
        wanted: int = 0,
    ) -> tuple[Lent, Region]:
        """Return a slab of at least `nbytes` bytes, and its use: when nothing refers to that, the slab is home.

        Parameters
        ----------
        nbytes
            How much is needed.
        owner
            The data set that it is for.
        folder
            Where a file is made when there is no room in memory.
        wait
            How long to wait for room, in seconds. Those who wait are served in order, but data sets that hold some
            before those that hold none.
        still_there
            Called while it waits; raises when whoever asked is gone.
        mapped
            Slabs that whoever asked has mapped already: rather these.
        wanted
            How much would be better still, if that is more and there is room now.

        Raises
        ------
        OutOfBudget
            All room is held by the owner itself, so that waiting could never end.
        DeadlineExceeded
            There was no room in time.
        ClosedError
            The depot ends.
        """
        size = size_class(nbytes, _SMALLEST)
        sizes = sorted({size, max(size, size_class(wanted, _SMALLEST))}, reverse=True)
        end = time.monotonic() + wait
        turn = object()
        with self._changed:
            self._waiting.append(turn)
        try:
            while True:
                lent = self._try(sizes, owner, folder, turn, mapped)
                if lent is not None:
                    return lent, Region.of_slab(lent.slab, self._home)
                self._refuse_hopeless(size, owner)
                left = end - time.monotonic()
                if left <= 0:
                    raise self._too_late(size, wait)
                with self._changed:
                    self._changed.wait(min(_LOOK, left))
                still_there()
        finally:
            with self._changed:
                self._waiting.remove(turn)
                self._changed.notify_all()

    def _try(
        self, sizes: Sequence[int], owner: str, folder: str, turn: object, mapped: Container[bytes]
    ) -> Lent | None:
        """Return a slab of the first size that there is room for, if it is this one's turn."""
        for kind, size in itertools.product(_KINDS, sizes):
            with self._changed:
                if self._closed:
                    raise ClosedError("the depot ends")
                self._collect()
                if not self._may_go(turn, owner):
                    return None
                lent = self._warm(kind, size, owner, mapped)
                if lent is not None:
                    return lent
                if not self._reserve(kind, size, owner):
                    continue
            # Not under the lock: making a large file takes its time.
            try:
                slab, fd = (
                    make_writable_memfd(cpu(), size)
                    if kind == "memory"
                    else make_writable_file(cpu(), size, folder)
                )
                lent = Lent(slab, fd, kind, owner)
                check_spare(max(slab.fd, fd))
            except BaseException as error:
                with self._changed:
                    self._count(kind, owner, -size)
                    if isinstance(error, OutOfBudget):
                        self._refusal = f"; {error}"
                        if size == sizes[-1]:
                            self._give_up_warm(kind)
                        continue
                raise
            with self._changed:
                self._made += 1
                self._refusal = ""
                self._used[slab.uuid] = lent
                return lent
        return None

    def _may_go(self, turn: object, owner: str) -> bool:
        # Those who come anew go in order. Who holds room already goes before them: he gives it back when he is
        # done, and the first of them may wait for just that.
        return self._waiting[0] is turn or any(self._held[kind, owner] for kind in _KINDS)

    def _warm(self, kind: Kind, size: int, owner: str, mapped: Container[bytes]) -> Lent | None:
        fitting = [lent for lent in self._idle[kind] if size <= lent.slab.nbytes <= 2 * size]
        if not fitting:
            return None
        lent = min(fitting, key=lambda each: (each.slab.uuid not in mapped, each.slab.nbytes))
        self._idle[kind].remove(lent)
        lent.owner = owner
        self._used[lent.slab.uuid] = lent
        self._count(kind, owner, lent.slab.nbytes)
        self._reused += 1
        return lent

    def give_up(self, regions: Iterable[Region]) -> None:
        """Count what somebody had who is gone as nobody's: it comes home soon, and may be waited for."""
        with self._changed:
            for region in regions:
                lent = self._used.get(region.uuid)
                if lent is not None and lent.owner:
                    self._count(lent.kind, lent.owner, -lent.slab.nbytes)
                    lent.owner = ""
                    self._count(lent.kind, "", lent.slab.nbytes)

    def _reserve(self, kind: Kind, size: int, owner: str) -> bool:
        if time.monotonic() < self._full_until[kind]:
            return False
        free = self._free(kind)
        if size > free:
            return False
        idle = self._idle[kind]
        while idle and sum(each.slab.nbytes for each in idle) > free - size:
            _drop(idle.pop(0))
        self._count(kind, owner, size)
        return True

    def _free(self, kind: Kind) -> int:
        """Return how many bytes may be lent where nothing is kept warm."""
        return self._budget[kind] - self._total[kind] - self._lost.nbytes(kind)

    def _give_up_warm(self, kind: Kind) -> None:
        """Note that the system has no room, whatever the budget says; what lies warm might make some."""
        if not self._idle[kind]:
            self._full_until[kind] = time.monotonic() + _FULL_SECONDS
        for lent in self._idle[kind]:
            _drop(lent)
        self._idle[kind].clear()

    def _count(self, kind: Kind, owner: str, nbytes: int) -> None:
        self._total[kind] += nbytes
        self._held[kind, owner] += nbytes
        if not self._held[kind, owner]:
            del self._held[kind, owner]

    def _collect(self) -> None:
        """Take back what came home."""
        now = time.monotonic()
        while self._home:
            slab = self._home.popleft()
            lent = self._used.pop(slab.uuid)
            self._count(lent.kind, lent.owner, -slab.nbytes)
            lent.owner, lent.since = "", now
            if slab.retired:
                self._retired += 1
                self._lost.add(lent)
            elif self._closed:
                _drop(lent)
            else:
                self._idle[lent.kind].append(lent)

    def _refuse_hopeless(self, size: int, owner: str) -> None:
        with self._changed:
            self._collect()
            own = {kind: self._held[kind, owner] for kind in _KINDS}
            others = sum(self._total[kind] - own[kind] + self._lost.nbytes(kind) for kind in _KINDS)
            fits = any(size <= self._budget[kind] - own[kind] for kind in _KINDS)
            now = time.monotonic()
            now_fits = any(size <= self._free(kind) and now >= self._full_until[kind] for kind in _KINDS)
            # Where it fits now it was only not its turn. The system may have less room than the budget says.
            if fits and (others or now_fits):
                return
            raise OutOfBudget(
                "the depot has no room, and will have none while this data set is not done",
                expected=f"at most {self._budget['memory']} bytes of memory and {self._budget['disk']} of disk",
                found=f"{size} bytes more than the {sum(own.values())} that the data set holds{self._refusal}",
                hint="Give the depot a larger budget, or publish less at once.",
            )

    def _too_late(self, size: int, wait: float) -> DeadlineExceeded:
        found = self.statistics
        return DeadlineExceeded(
            "the depot had no room in time",
            expected=f"{size} bytes within {wait:g} s",
            found=f"{found.memory_in_use} of {found.memory_budget} bytes of memory in use, "
            f"{found.disk_in_use} of {found.disk_budget} of disk, {found.memory_lost + found.disk_lost} held by "
            f"processes that the depot lost sight of, {found.waiting} waiting{self._refusal}",
            hint="Let readers read, release data sets, or give the depot a larger budget.",
        )

    def trim(self, *, everything: bool = False) -> None:
        """Give back what has been warm for long."""
        before = time.monotonic() - self._warm_seconds
        with self._changed:
            self._collect()
            for kind in _KINDS:
                old = [lent for lent in self._idle[kind] if everything or lent.since <= before]
                for lent in old:
                    self._idle[kind].remove(lent)
                    _drop(lent)
                self._lost.nbytes(kind)

    def close(self) -> None:
        """Lend nothing more, and give back what is warm; what is in use stays true."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self.trim(everything=True)
        self._lost.clear()

    @property
    def in_use(self) -> int:
        """How many slabs are lent, or hold data."""
        with self._changed:
            self._collect()
            return len(self._used)

    @property
    def statistics(self) -> SlabStatistics:
        """What the stock holds now, and what it has done."""
        with self._changed:
            self._collect()
            warm = {kind: sum(lent.slab.nbytes for lent in self._idle[kind]) for kind in _KINDS}
            return SlabStatistics(
                memory_budget=self._budget["memory"],
                memory_in_use=self._total["memory"],
                memory_warm=warm["memory"],
                memory_lost=self._lost.nbytes("memory"),
                disk_budget=self._budget["disk"],
                disk_in_use=self._total["disk"],
                disk_warm=warm["disk"],
                disk_lost=self._lost.nbytes("disk"),
                warm_slabs=sum(map(len, self._idle.values())),
                lost_slabs=len(self._lost),
                waiting=len(self._waiting),
                made=self._made,
                reused=self._reused,
                retired=self._retired,
            )


def _drop(lent: Lent) -> None:
    """Give back a slab that nobody looks at: workers may have it mapped until they are lent another one."""
    free_pages(lent.fd, lent.slab.nbytes)
