"""The slabs of the depot: lent, in use, warm or lost, within a budget of memory and one of disk."""

from __future__ import annotations

import collections
import contextlib
import itertools
import os
import resource
import threading
import time
import weakref
from typing import TYPE_CHECKING, Final

from bowstring.depot.slabs import KINDS, Kind, Lent, Lost, Piece, check_spare, whole_pages
from bowstring.errors import BowstringError, ClosedError, LimitExceeded, OutOfBudget, Unsupported
from bowstring.memory import Region
from bowstring.memory.pool import size_class
from bowstring.memory.slab import Descriptor, reopen
from bowstring.memory.writable_memfd import (
    free_pages,
    make_writable_file,
    make_writable_memfd,
    used_elsewhere,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Sequence

    from bowstring.memory import Slab

_FULL_SECONDS: Final = 0.5
_NAMED: Final = 8
# Before what the system says, which the driver shows, too.
REFUSED: Final = "; the system gives no more: "
LIMITED: Final = (
    "The process that started the depot has a limited address space (RLIMIT_AS; spark.executor.pyspark.memory is "
    "that of tasks), and so has the depot. End it (`bowstring depot stop`), and start it outside of tasks "
    "(`bowstring depot run`), or leave that limit out."
)
# A data set may have thousands of partitions of a few rows.
_SMALLEST: Final = 64 << 10
# What is less is copied into a slab that the partitions of a data set share, or the data sets of a name that grows.
_SMALL: Final = 256 << 10
# Its pages come as it is filled.
_SHARED: Final = 4 << 20


class Turn:
    """The place in the queue of an attempt that borrows, while it is referred to, and whether it has to wait."""

    def __init__(self, owner: str, ring: Callable[[], None]) -> None:
        self.owner = owner
        self.ring = ring  # lets it be tried again
        self.waits = False


class SlabPool:
    """Slabs to lend, within budgets of memory and disk; an unused one is kept warm for `warm_seconds`."""

    def __init__(self, memory: int, disk: int, warm_seconds: float = 60.0) -> None:
        self._budget: dict[Kind, int] = {"memory": memory, "disk": disk}
        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        # Less than the budget: what the depot can map, whatever the budget says.
        self.address_space = None if limit == resource.RLIM_INFINITY or limit >= memory else limit
        self._warm_seconds = warm_seconds
        self._lock = threading.RLock()
        self._home: collections.deque[Slab] = collections.deque()
        self._used: dict[bytes, Lent] = {}
        self._held: collections.Counter[tuple[Kind, str]] = collections.Counter()
        self._total: collections.Counter[Kind] = collections.Counter()
        self._idle: dict[Kind, list[Lent]] = {"memory": [], "disk": []}
        self._lost: list[Lost] = []
        # The slab of each owner that its next small stream goes to; it comes home when none is left in it.
        self._shared: weakref.WeakValueDictionary[str, Region] = weakref.WeakValueDictionary()
        self._sharing = threading.Lock()
        self._waiting: weakref.WeakKeyDictionary[Turn, None] = weakref.WeakKeyDictionary()  # in order
        # Until when the system is not asked again for what it refused, and why it did.
        self._full_until: dict[Kind, float] = {"memory": 0.0, "disk": 0.0}
        self._refusal = ""
        self._closed = False

    def known(self, uuids: Container[bytes]) -> set[bytes]:
        with self._lock:
            self._collect()
            return {
                lent.slab.uuid
                for lent in itertools.chain(self._used.values(), *self._idle.values())
                if lent.slab.uuid in uuids and not lent.slab.retired
            }

    def borrow(
        self, turn: Turn, nbytes: int, folder: str, mapped: Container[bytes] = frozenset(), *, wanted: int = 0
    ) -> tuple[Lent, Region] | None:
        """Return a slab of at least `nbytes`, or `wanted`, and its use: once unreferenced, the slab comes back.

        ``None`` where the turn has to wait: turns go in order, but data sets that hold slabs first.
        """
        size = size_class(nbytes, _SMALLEST)
        sizes = sorted({size, max(size, size_class(wanted, _SMALLEST))}, reverse=True)
        lent = self._try(sizes, folder, turn, mapped)
        if lent is not None:
            with self._lock:
                del self._waiting[turn]
                following = next(iter(self._waiting), None)
            if following is not None:
                following.ring()
            return lent, Region.of_slab(lent.slab, self._home)
        self._refuse_hopeless(size, turn.owner)
        turn.waits = True
        return None

    def _try(self, sizes: Sequence[int], folder: str, turn: Turn, mapped: Container[bytes]) -> Lent | None:
        """Return a slab of the first size that there is room for, if it is this one's turn."""
        owner = turn.owner
        for kind, size in itertools.product(KINDS, sizes):
            with self._lock:
                if self._closed:
                    raise ClosedError("the depot ends")
                self._waiting.setdefault(turn)
                self._collect()
                # New data sets go in order. One that holds room goes before them: it gives that back when done,
                # and the first of them may wait for just that.
                if next(iter(self._waiting)) is not turn and not any(
                    self._held[each, owner] for each in KINDS
                ):
                    return None
                lent = self._warm(kind, size, owner, mapped)
                if lent is not None:
                    return lent
                if not self._reserve(kind, size, owner):
                    continue
            try:
                lent = self._make(kind, size, owner, folder, size)
            except OutOfBudget as error:
                with self._lock:
                    self._refusal = f"{REFUSED}{error}"
                    if size == sizes[-1]:
                        # The system has no room, whatever the budget says; what lies warm might make some.
                        if not self._idle[kind]:
                            self._full_until[kind] = time.monotonic() + _FULL_SECONDS
                        for lent in self._idle[kind]:
                            _drop(lent)
                        self._idle[kind].clear()
                continue
            with self._lock:
                self._refusal = ""
                self._used[lent.slab.uuid] = lent
                return lent
        return None

    def _make(
        self, kind: Kind, nbytes: int, owner: str, folder: str, held: int, *, shared: bool = False
    ) -> Lent:
        """Make a slab, of which `held` bytes are counted; not under the lock, as a large file takes its time."""
        try:
            slab, fd = make_writable_memfd(nbytes) if kind == "memory" else make_writable_file(nbytes, folder)
            lent = Lent(slab, Descriptor(fd), kind, owner, held=held, shared=shared)
            check_spare(max(slab.fd, fd))
        except BaseException:
            with self._lock:
                self._count(kind, owner, -held)
            raise
        return lent

    def _warm(self, kind: Kind, size: int, owner: str, mapped: Container[bytes]) -> Lent | None:
        most = min(2 * size, self._free(kind))
        fitting = [lent for lent in self._idle[kind] if size <= lent.slab.nbytes <= most]
        if not fitting:
            return None
        lent = min(fitting, key=lambda each: (each.slab.uuid not in mapped, each.slab.nbytes))
        self._idle[kind].remove(lent)
        lent.owner, lent.held = owner, lent.slab.nbytes
        self._used[lent.slab.uuid] = lent
        # It may have lost its tail, and the new owner may fill it.
        self._take(kind, owner, lent.held)
        return lent

    def keep(self, owner: str, pieces: Sequence[Piece]) -> tuple[Region, list[int]] | None:
        """Hold what an attempt wrote in as little memory as it takes; the tails of its slabs are given back.

        A little is copied into a slab that partitions share: return that copy, and where each piece begins.
        """
        with self._lock:
            used = [self._used[region.uuid] for region, _, _ in pieces]
        in_memory = all(lent.kind == "memory" for lent in used)
        shared = self.share(owner, pieces) if in_memory else None
        if shared is None:
            with self._lock:
                for lent, piece in zip(used, pieces, strict=True):
                    before = lent.held
                    lent.cut(piece.end)
                    self._count(lent.kind, lent.owner, lent.held - before)
        return shared

    def share(
        self, owner: str, pieces: Sequence[Piece], folder: str | None = None
    ) -> tuple[Region, list[int]] | None:
        """Copy what is little behind what an owner has; `None` where it is more, or there is no room for a copy.

        An owner is what is freed together. Nobody else writes such a slab, ever: no task maps it, now or later.
        """
        nbytes = room = 0
        for _, first, end in pieces:
            nbytes += end - first
            room += whole_pages(end - first)
        if not 0 < nbytes <= _SMALL:
            return None
        with self._sharing:
            try:
                region = self._shared.get(owner)
                if region is None or not self._has_room(region, room):
                    region = self._to_share(owner, room, folder)
                if region is None:
                    return None
                lent = self._used[region.uuid]
                try:
                    return region, lent.append(pieces)
                finally:
                    with self._lock:
                        self._hold(lent, lent.data)
            except (BowstringError, OSError):
                return None  # it stays where it is, in more memory

    def _has_room(self, region: Region, room: int) -> bool:
        """Take more of a shared slab, if there is more of it, and of the budget."""
        with self._lock:
            lent = self._used[region.uuid]
            end = lent.data + room
            fits = end <= region.nbytes and (
                lent.kind == "disk" or whole_pages(end) - lent.held <= self._free("memory")
            )
            if fits:
                self._hold(lent, end)
            return fits

    def _hold(self, lent: Lent, nbytes: int) -> None:
        if lent.kind == "memory":  # a file has all of its length
            self._take("memory", lent.owner, whole_pages(nbytes) - lent.held)
            lent.held = whole_pages(nbytes)

    def _to_share(self, owner: str, room: int, folder: str | None) -> Region | None:
        """Return a fresh slab that has room, where there is any."""
        for kind in KINDS:
            size = _SHARED if kind == "disk" else 0
            with self._lock:
                if self._closed or (kind == "disk" and folder is None):
                    return None
                if room > self._free("memory") if kind == "memory" else not self._reserve(kind, size, owner):
                    continue
            lent = self._make(kind, _SHARED, owner, folder or "", size, shared=True)
            region = Region.of_slab(lent.slab, self._home)
            with self._lock:
                self._used[lent.slab.uuid] = lent
            self._shared[owner] = region
            return region if self._has_room(region, room) else None
        return None

    def give_up(self, regions: Iterable[Region]) -> None:
        """Count what somebody had who is gone as nobody's: it comes home soon, and may be waited for."""
        with self._lock:
            for region in regions:
                lent = self._used.get(region.uuid)
                if lent is not None and lent.owner:
                    self._count(lent.kind, lent.owner, -lent.held)
                    lent.owner = ""
                    self._count(lent.kind, "", lent.held)

    def _reserve(self, kind: Kind, size: int, owner: str) -> bool:
        if time.monotonic() < self._full_until[kind] or size > self._free(kind):
            return False
        self._take(kind, owner, size)
        return True

    def _take(self, kind: Kind, owner: str, size: int) -> None:
        """Count bytes as lent, in place of what is kept warm where that takes their room."""
        free = self._free(kind)
        idle = self._idle[kind]
        while idle and sum(each.held for each in idle) > free - size:
            _drop(idle.pop(0))
        self._count(kind, owner, size)

    def _free(self, kind: Kind) -> int:
        free = self._budget[kind] - self._total[kind]
        return free - self._lost_bytes(kind) if self._lost else free

    def _lost_bytes(self, kind: Kind) -> int:
        """Return how many bytes take room though the depot has let go of them: processes have them mapped still."""
        self._lost = [each for each in self._lost if used_elsewhere(each.fd)]
        return sum(each.nbytes for each in self._lost if each.kind == kind)

    def _count(self, kind: Kind, owner: str, nbytes: int) -> None:
        self._total[kind] += nbytes
        self._held[kind, owner] += nbytes
        if not self._held[kind, owner]:
            del self._held[kind, owner]

    def _collect(self) -> None:
        now = time.monotonic()
        while self._home:
            lent = self._used.pop(self._home.popleft().uuid)
            self._count(lent.kind, lent.owner, -lent.held)
            lent.owner, lent.since, lent.data = "", now, 0
            if lent.slab.retired:
                # Without a descriptor to watch it by, or /proc to have one from, it counts no more.
                with contextlib.suppress(OSError, LimitExceeded, Unsupported):
                    self._lost.append(Lost(lent.kind, lent.held, reopen(lent.fd, os.O_RDWR)))
            elif self._closed or lent.shared:
                _drop(lent)
            else:
                self._idle[lent.kind].append(lent)

    def _refuse_hopeless(self, size: int, owner: str) -> None:
        with self._lock:
            self._collect()
            own = {kind: self._held[kind, owner] for kind in KINDS}
            others = sum(self._total[kind] - own[kind] + self._lost_bytes(kind) for kind in KINDS)
            fits = any(size <= self._budget[kind] - own[kind] for kind in KINDS)
            now = time.monotonic()
            now_fits = any(size <= self._free(kind) and now >= self._full_until[kind] for kind in KINDS)
            # Where it fits now it was only not its turn. The system may have less room than the budget says.
            if fits and (others or now_fits):
                return
            raise OutOfBudget(
                "the depot has no room, and will have none while this data set is not done",
                expected=f"at most {self._budget['memory']} bytes of memory and {self._budget['disk']} of disk",
                found=f"{size} bytes more than the {sum(own.values())} that the data set holds{self._refusal}",
                hint=self._hint("Give the depot a larger budget, or publish less at once."),
            )

    def too_late(self, nbytes: int, wait: float) -> OutOfBudget:
        now, held = self.figures(), sorted(self.held().items(), key=lambda each: -each[1])
        owners = ", ".join(
            f"{owner or 'attempts that were lost'}: {nbytes}" for owner, nbytes in held[:_NAMED]
        )
        return OutOfBudget(
            "the depot had no room in time",
            expected=f"{size_class(nbytes, _SMALLEST)} bytes within {wait:g} s",
            found=f"{now['memory_in_use']} of {now['memory_budget']} bytes of memory in use, "
            f"{now['disk_in_use']} of {now['disk_budget']} of disk, "
            f"{now['memory_lost'] + now['disk_lost']} held by processes that the depot lost sight of, "
            f"{now['waiting']} waiting; data sets hold {owners or 'nothing'}{', …' * (len(held) > _NAMED)}"
            f"{self._refusal}",
            hint=self._hint("Let readers read, release data sets, or give the depot a larger budget."),
        )

    def _hint(self, text: str) -> str:
        limited = self.address_space is not None or "RLIMIT_AS" in self._refusal
        return LIMITED if limited else text

    def trim(self, *, everything: bool = False) -> None:
        """Give back what has been warm for long."""
        before = time.monotonic() - self._warm_seconds
        with self._lock:
            self._collect()
            for kind in KINDS:
                old = [lent for lent in self._idle[kind] if everything or lent.since <= before]
                for lent in old:
                    self._idle[kind].remove(lent)
                    _drop(lent)
                self._lost_bytes(kind)

    def close(self) -> None:
        """Lend nothing more, and give back what is warm; what is in use stays true."""
        with self._lock:
            self._closed = True
        self.trim(everything=True)
        self._lost = []

    def held(self) -> dict[str, int]:
        with self._lock:
            self._collect()
            held: collections.Counter[str] = collections.Counter()
            for (_, owner), nbytes in self._held.items():
                held[owner] += nbytes
            return dict(held)

    def waiting(self) -> dict[str, int]:
        with self._lock:
            return dict(collections.Counter(turn.owner for turn in self._waiting if turn.waits))

    @property
    def in_use(self) -> int:
        with self._lock:
            self._collect()
            return len(self._used)

    def figures(self) -> dict[str, int]:
        """Return what the pool holds now, by the names that the status of a depot has for it."""
        with self._lock:
            self._collect()
            figures = {
                "warm_slabs": sum(map(len, self._idle.values())),
                "waiting": sum(turn.waits for turn in self._waiting),
            }
            for kind in KINDS:
                figures |= {
                    f"{kind}_budget": self._budget[kind],
                    f"{kind}_data": sum(lent.data for lent in self._used.values() if lent.kind == kind),
                    f"{kind}_in_use": self._total[kind],
                    f"{kind}_warm": sum(lent.held for lent in self._idle[kind]),
                    f"{kind}_lost": self._lost_bytes(kind),
                }
            return figures | {"lost_slabs": len(self._lost)}


def _drop(lent: Lent) -> None:
    """Give back a slab that nobody looks at: workers may have it mapped until they are lent another one."""
    free_pages(lent.fd, lent.slab.nbytes)
