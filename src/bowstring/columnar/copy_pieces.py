"""Copy pieces that lie anywhere on one device into one contiguous buffer, here or on another device.

There is one rule. What of a piece is large goes by a copy of its own, which the copy engines do best; all that is
small, and the ends of what is large with the padding behind them, is gathered by one kernel.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from bowstring.kernels.launch import launch
from bowstring.kernels.rearrange import ITEMS_PER_TILE, TILE, gather_pieces
from bowstring.memory import Buffer, Device, Region, Road, Stretch, carry, cpu, road_between
from bowstring.memory.cuda.driver_device import DriverDevice

if TYPE_CHECKING:
    from bowstring.columnar.spans import Table

_MIB: Final = 1 << 20
# To queue a copy takes some 10 µs, in which a GPU copies 10 to 20 MiB: from there on, pieces lose little by a copy
# of their own, and the kernel, which looks up the piece of every word, is spared.
LARGE_HERE: Final = 16 * _MIB
# Between devices, memory must go by copies in any case, and moves at a tenth of that rate; what is gathered first
# is copied twice.
LARGE_AWAY: Final = 1 * _MIB
# The C library copies pieces that fit the second cache by another instruction, which reads no line of the target.
_PIECE: Final = 384 << 10
_END: Final = 64
_SEVERAL: Final = 4
# Memory on the source for what is gathered before it goes to another device.
GATHERED: Final = 16 * _MIB


class Pieces(NamedTuple):
    """Pieces of memory and where they go: arrays of int64 of one length, in bytes, sorted by where they go."""

    addresses: Table
    sizes: Table
    starts: Table
    ends: Table  # where the next one may start: zeros go between a piece's last byte and here

    def take(self, rows: Any) -> Pieces:
        return Pieces(self.addresses[rows], self.sizes[rows], self.starts[rows], self.ends[rows])


def fill(target: Buffer, pieces: Pieces, source: Device, regions: list[Region], seconds: float) -> Road:
    """Copy pieces into a buffer, with zeros between them, and return the path that they took.

    Between two devices the host waits for the data; on one device the work is queued on its current stream.
    """
    device = target.device
    if not source.computes and (device is source or device.is_host):
        return _copy_each(target, pieces, source, seconds)
    if source is not device:
        stretches = functools.partial(_stretches, source, pieces, regions)
        return carry(stretches, source, target, regions, seconds)
    if device.is_host:
        fill_on_host(target.address, pieces)
    else:
        # Not `writable()`, which knows of every view: what a compiler leaves to the collector may hold one.
        array = target.region.array(target.offset, target.nbytes, writable=True)
        with device.use():
            large, small = _split(pieces, LARGE_HERE)
            for address, size, start, _ in zip(*(column.tolist() for column in large), strict=True):
                array[start : start + size] = device.array(address, size, regions)
            if len(small.starts):
                _gather(device, array.view(np.uint64), small, regions)
    return Road("none", f"the data are on {device.name}")


def _copy_each(target: Buffer, pieces: Pieces, source: Device, seconds: float) -> Road:
    """Copy each piece, and zeros behind it, by a call of its own: from a device that runs no kernels."""
    assert isinstance(source, DriverDevice)
    for address, size, start, end in np.stack(pieces, axis=1).tolist():
        to, zeros = target.address + start, np.zeros(end - start - size, np.uint8)
        if size and target.device.is_host:
            source.copy_out(to, address, size)
        elif size:
            source.copy_to_peer(source, to, address, size)
        if len(zeros) and target.device.is_host:
            ctypes.memset(to + size, 0, len(zeros))
        elif len(zeros):  # pageable memory, which the driver has read when it returns
            source.copy_in(to + size, zeros.ctypes.data, len(zeros))
    if target.device.is_host:
        source.wait_stream(seconds)
    return road_between(source, target.device)


def fill_on_host(target: int, pieces: Pieces) -> None:
    """Copy pieces of the host's memory to an address, with zeros between them."""
    # By address: an array for each piece would cost as much as a copy of some kilobytes.
    for address, size, start, end in np.stack(pieces, axis=1).tolist():
        copy = ctypes.memmove if size < _SEVERAL * _PIECE else _copy_in_pieces
        copy(target + start, address, size)
        if end > start + size:  # what lay here before may be of another table
            ctypes.memset(target + start + size, 0, end - start - size)


def _copy_in_pieces(target: int, source: int, nbytes: int) -> None:
    """Copy what lies elsewhere in pieces, and yet in few calls: each would give other threads the interpreter."""
    to = cpu().array(target, nbytes, None, writable=True)
    of = cpu().array(source, nbytes, None)
    whole = nbytes // _PIECE * _PIECE
    rows_to, rows_of = to[:whole].reshape(-1, _PIECE), of[:whole].reshape(-1, _PIECE)
    # NumPy would join rows that touch each other, so the end of each is copied by itself.
    rows_to[:, :-_END] = rows_of[:, :-_END]
    rows_to[:, -_END:] = rows_of[:, -_END:]
    to[whole:] = of[whole:]


def _split(pieces: Pieces, least: int) -> tuple[Pieces, Pieces]:
    """Return the bodies of what has `least` bytes, whole tiles all of them, and what is left."""
    bodies = np.where(pieces.sizes >= least, pieces.sizes & -TILE, 0)
    rest = Pieces(pieces.addresses + bodies, pieces.sizes - bodies, pieces.starts + bodies, pieces.ends)
    large = pieces._replace(sizes=bodies, ends=pieces.starts + bodies)
    return large.take(bodies > 0), rest.take(rest.ends > rest.starts)


def _gather(device: Device, words: Any, pieces: Pieces, owner: object) -> None:
    """Gather pieces that begin at whole tiles of some words of 64 bits: one launch, however many they are.

    The kernel gets one array over all addresses between the pieces, but reads only the pieces, whose memory lives.
    """
    present = pieces.sizes > 0
    lowest = int(pieces.addresses[present].min(initial=np.iinfo(np.int64).max)) if present.any() else 0
    highest = int((pieces.addresses + pieces.sizes)[present].max(initial=0))
    lowest &= -8
    tiles = (pieces.ends - pieces.starts) // TILE
    begins = np.cumsum(tiles) - tiles
    columns = (begins, pieces.starts // TILE, (pieces.addresses - lowest) * present, pieces.sizes)
    window = (
        device.array(lowest, -(-(highest - lowest) // 8) * 8, owner).view(np.uint64)
        if highest
        else device.xp.empty(0, np.uint64)
    )
    table = device.from_host(np.concatenate(columns))
    launch(gather_pieces, int(tiles.sum()) * ITEMS_PER_TILE, window, table, len(tiles), words)


def _stretches(source: Device, pieces: Pieces, regions: list[Region]) -> Iterator[Stretch]:
    """Yield contiguous memory that fills the target: what is large where it lies, the rest gathered before."""
    if source.is_host:
        load: Callable[[int, int, int], None] = functools.partial(_assemble, pieces)
        yield Stretch(0, int(pieces.ends[-1]), 0, load)
        return
    large, small = _split(pieces, LARGE_AWAY)
    for address, size, start, _ in zip(*(each.tolist() for each in large), strict=True):
        yield Stretch(start, size, address)
    for group in _groups(small):
        first, end = int(group.starts[0]), int(group.ends[-1])
        with source.use():
            gathered = source.xp.empty((end - first) // 8, np.uint64)
            moved = group._replace(starts=group.starts - first, ends=group.ends - first)
            _gather(source, gathered, moved, regions)
        # The copy is queued behind the kernel, and the next use of this memory behind the copy.
        yield Stretch(first, end - first, int(gathered.data.ptr))


def _groups(pieces: Pieces) -> Iterator[Pieces]:
    """Yield runs of pieces that lie together in the target and need bounded memory."""
    ends = pieces.ends.tolist()
    starts = pieces.starts.tolist()
    first = 0
    for index in range(1, len(starts) + 1):
        if index == len(starts) or starts[index] != ends[index - 1] or ends[index] - starts[first] > GATHERED:
            yield pieces.take(slice(first, index))
            first = index


def _assemble(pieces: Pieces, first: int, end: int, buffer: int) -> None:
    """Put some bytes of the target together in memory of the host."""
    ctypes.memset(buffer, 0, end - first)
    lasts = pieces.starts + pieces.sizes
    for row in np.flatnonzero((pieces.starts < end) & (lasts > first)).tolist():
        begin, stop = max(int(pieces.starts[row]), first), min(int(lasts[row]), end)
        source = int(pieces.addresses[row]) + begin - int(pieces.starts[row])
        ctypes.memmove(buffer + begin - first, source, stop - begin)
