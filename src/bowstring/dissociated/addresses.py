"""Leases: the address space of a stream, and who still holds which address.

A stream has one 64-bit address space. Each region gets a range of it when it is announced; ranges never overlap
and are never given twice, and nothing lies below 4096, so that 0 can stand for an empty buffer.
"""

from __future__ import annotations

import bisect
import collections
from typing import TYPE_CHECKING, Final

import numpy as np

from bowstring.errors import LimitExceeded, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from bowstring.limits import Limits
    from bowstring.memory import Region

    Words = npt.NDArray[np.uint64]

LOWEST_ADDRESS: Final = 4096
_FIRST_BASE: Final = 1 << 21
_NOTHING: Final = np.array(0, np.uint64)


class Ledger:
    """The producer's side: where its regions lie in the stream, and which addresses the reader still has.

    A region is kept alive while the reader has an address in it.
    """

    def __init__(self) -> None:
        self._bases: dict[bytes, int] = {}
        self._starts: list[int] = []
        self._starts_array = np.zeros(0, np.uint64)
        self._held: dict[int, tuple[Region, int]] = {}
        self.lent: list[Region] = []  # what the reader opens by a handle: freeing addresses does not close it
        self._next = _FIRST_BASE
        self._outstanding: collections.Counter[int] = collections.Counter()
        # Of a stream of partitions: which is sent, in how many ranges each is held, and which are not any more.
        self._partition: int | None = None
        self._partition_of: dict[int, int] = {}
        self._ranges_held: collections.Counter[int] = collections.Counter()
        self._emptied: list[int] = []

    def copy(self) -> Ledger:
        """Return one of its own for another reader that was told the same, and nothing of partitions."""
        copied = Ledger()
        copied._bases = self._bases.copy()
        copied._starts = self._starts.copy()
        copied._held = self._held.copy()
        copied.lent = self.lent.copy()
        copied._next = self._next
        copied._outstanding = self._outstanding.copy()
        return copied

    def begin(self, partition: int) -> None:
        """Begin a partition: its regions are announced anew, so that each range is of one partition."""
        self._partition = partition
        self._bases.clear()

    @property
    def announced(self) -> int:
        """How many regions were announced since `announce_anew`."""
        return len(self._bases)

    def announce_anew(self) -> None:
        """Announce all regions again from now on, and forget ranges of which the reader holds nothing."""
        self._bases.clear()
        self._starts = [base for base in self._starts if base in self._held]
        self._starts_array = np.zeros(0, np.uint64)

    def holds(self, partition: int) -> bool:
        return self._ranges_held[partition] > 0

    def take_emptied(self) -> list[int]:
        """Return the partitions of which the reader has freed the last address since it was asked before."""
        emptied, self._emptied = self._emptied, []
        return emptied

    def announce(self, region: Region, key: bytes) -> tuple[int, bool]:
        """Return (base address, whether it is new in this stream) of a region that `key` names for good."""
        base = self._bases.get(key)
        if base is not None:
            return base, False
        base = self._next
        self._next += -(-region.nbytes // _FIRST_BASE) * _FIRST_BASE + _FIRST_BASE
        self._bases[key] = base
        self._starts.append(base)
        if region.lent:
            self.lent.append(region)
        return base, True

    def lend(self, addresses: Sequence[int], ranges: Iterable[tuple[int, Region, int]]) -> None:
        """Count one body's addresses as held by the reader; `ranges` has (base, region, count) of its regions."""
        self._outstanding.update(addresses)
        for base, region, count in ranges:
            before = self._held.get(base)
            if before is None and self._partition is not None:
                self._partition_of[base] = self._partition
                self._ranges_held[self._partition] += 1
            self._held[base] = (region, count if before is None else before[1] + count)

    def free(self, addresses: Sequence[int], *, all_occurrences: bool = False) -> None:
        """Take addresses back, one occurrence each or `all_occurrences`; none if the reader lacks one of them."""
        named = collections.Counter(addresses)
        if all_occurrences:
            named = collections.Counter({address: self._outstanding[address] for address in named})
        for address, count in named.items():
            if count == 0 or self._outstanding.get(address, 0) < count:
                raise ProtocolError(
                    "an address is freed that the reader does not hold",
                    found=hex(address),
                    hint="Each address is freed once for each time it was sent.",
                )
        for address, count in named.items():
            left = self._outstanding[address] - count
            if left:
                self._outstanding[address] = left
            else:
                del self._outstanding[address]
        if len(self._starts_array) != len(self._starts):  # both only grow between two `announce_anew`
            self._starts_array = np.array(self._starts, np.uint64)
        elements = np.array(list(named.elements()), np.uint64)
        counts = np.bincount(np.searchsorted(self._starts_array, elements, side="right") - 1, minlength=1)
        for place in np.flatnonzero(counts).tolist():
            base, number = self._starts[place], int(counts[place])
            region, count = self._held[base]
            if count == number:
                del self._held[base]
                partition = self._partition_of.pop(base, None)
                if partition is not None:
                    self._ranges_held[partition] -= 1
                    if not self._ranges_held[partition]:
                        del self._ranges_held[partition]
                        self._emptied.append(partition)
            else:
                self._held[base] = (region, count - number)

    @property
    def outstanding(self) -> int:
        return sum(count for _, count in self._held.values())

    @property
    def regions(self) -> list[Region]:
        """The regions in which the reader holds an address, or which it may have open."""
        regions = [region for region, _ in self._held.values() if not region.lent]
        return regions + self.lent

    def retire(self, *, forked: bool = False) -> None:
        """Never write again what the reader holds: it, or its child, may look at it without our hearing of it."""
        for region in self.regions:
            # What a driver opened does not survive a fork: the child sees nothing of lent memory.
            if not (forked and region.lent):
                region.retire()

    def clear(self) -> None:
        self._held.clear()
        self.lent.clear()
        self._outstanding.clear()


class AnnouncedRegions:
    """The consumer's side: the ranges that this peer announced in this stream."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        # In the order of the bases, as the regions are.
        self._bases: list[int] = []
        self._sizes: list[int] = []
        self._nbytes = 0
        self._ranges: tuple[Words, Words] | None = None
        self.regions: list[Region] = []

    def check(self, base: int, nbytes: int) -> None:
        """Refuse an announcement that overlaps another one or lies outside the bounds."""
        if len(self.regions) >= self._limits.regions:
            raise LimitExceeded("too many regions in one stream", expected=f"at most {self._limits.regions}")
        if nbytes > self._limits.region_bytes - self._nbytes:
            raise LimitExceeded(
                "the regions of one stream are too large",
                expected=f"at most Limits.region_bytes = {self._limits.region_bytes}",
                found=f"{nbytes} bytes more",
            )
        if base < LOWEST_ADDRESS or nbytes <= 0 or base + nbytes >= 1 << 63:
            raise ProtocolError(
                "a region lies outside the address space", found=f"{nbytes} bytes at {base:#x}"
            )
        # Of those that begin before its end, the last one ends last.
        before = bisect.bisect_left(self._bases, base + nbytes) - 1
        if before >= 0 and self._bases[before] + self._sizes[before] > base:
            raise ProtocolError("two regions of a stream overlap", found=f"{nbytes} bytes at {base:#x}")

    def add(self, base: int, region: Region, nbytes: int) -> None:
        """Enter a region that passed `check`."""
        place = bisect.bisect_left(self._bases, base)
        self._bases.insert(place, base)
        self._sizes.insert(place, nbytes)
        self._nbytes += nbytes
        self._ranges = None
        self.regions.insert(place, region)

    def resolve(self, pairs: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """Turn (address, length) pairs, shape ``(n, 2)``, into (region index, offset, length); zeros if empty."""
        addresses, lengths = pairs[:, 0], pairs[:, 1]
        spans = np.zeros((len(pairs), 3), np.int64)
        if self._ranges is None:
            self._ranges = np.array(self._bases, np.uint64), np.array(self._sizes, np.uint64)
        base, size = self._ranges if self.regions else (_NOTHING, _NOTHING)
        if len(self.regions) > 1:
            index = np.searchsorted(base, addresses, side="right") - 1
            spans[:, 0] = index
            base, size = base[index], size[index]
        # As unsigned numbers, what lies below its region is far too large; and ``size - length`` cannot wrap
        # once length <= size.
        offsets = addresses - base
        wrong = (lengths > size) | (offsets > size - lengths)
        used = lengths != _NOTHING
        if np.count_nonzero(wrong & used):
            sample = ", ".join(f"{length} at {address:#x}" for address, length in pairs[:4].tolist())
            raise ProtocolError(
                "a buffer lies outside the announced regions",
                found=f"lengths at addresses {sample}{' …' if len(pairs) > 4 else ''}",
                hint="The peer names memory that it did not hand over.",
            )
        spans[:, 1] = offsets
        spans[:, 2] = lengths
        spans *= used[:, None]
        return spans
