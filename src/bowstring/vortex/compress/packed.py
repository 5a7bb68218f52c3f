"""Integers in as few bits as most of them need: ``fastlanes.bitpacked``, ``fastlanes.for``, ``vortex.zigzag``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bowstring.kernels.vortex.decode_numbers import CHUNK
from bowstring.kernels.vortex.encode import pack
from bowstring.vortex.compress.numbers import NODE, Plan, smallest_unsigned
from bowstring.vortex.dtype import PTYPES
from bowstring.vortex.nodes import Piece
from bowstring.vortex.protobuf import BYTES, VARINT, encode
from bowstring.vortex.scalar import encode_scalar

if TYPE_CHECKING:
    from bowstring.vortex.compress.numbers import Numbers

_EXACT_IN_FLOAT: Final = 53


def packed(numbers: Numbers) -> Plan | None:
    """Return the best of the ways to pack integers, or ``None`` where they need all their bits."""
    if numbers.is_float:
        return None
    low, high = numbers.bounds
    reference = low if low < 0 or numbers.width < high.bit_length() else 0
    plans = [_plan(numbers, _less(numbers, reference), reference=reference)]
    # Zigzag pays where there are outliers on both sides.
    if low < 0 < high:
        plans.append(_plan(numbers, _zigzagged(numbers), zigzag=True))
    found = [each for each in plans if each is not None]
    return min(found, key=lambda plan: plan.nbytes, default=None)


def _less(numbers: Numbers, reference: int) -> Any:
    unsigned = numbers.filled.view(f"<u{numbers.bits // 8}")
    if not reference:
        return unsigned
    return unsigned - unsigned.dtype.type(reference & (1 << numbers.bits) - 1)


def _zigzagged(numbers: Numbers) -> Any:
    values = numbers.filled
    one = values.dtype.type(1)
    return ((values << one) ^ (values >> values.dtype.type(numbers.bits - 1))).view(f"<u{numbers.bits // 8}")


def _plan(numbers: Numbers, offsets: Any, *, reference: int = 0, zigzag: bool = False) -> Plan | None:
    width, patches = _best_width(numbers, offsets)
    if width >= numbers.bits:
        return None
    nodes = 1 + bool(reference) + zigzag + 2 * (patches > 0)
    nbytes = _cost(len(numbers), width, patches, numbers.bits) + numbers.tail_bytes + NODE * nodes

    def build() -> Piece:
        inner = _packed(numbers, offsets, width, patches)
        if zigzag:
            return Piece("vortex.zigzag", children=(inner,))
        if reference:
            return Piece("fastlanes.for", encode_scalar(reference, numbers.dtype), children=(inner,))
        return inner

    return Plan(nbytes, build)


def _packed(numbers: Numbers, offsets: Any, width: int, patches: int) -> Piece:
    fields: list[tuple[int, int, int | bytes]] = [(1, VARINT, width)]
    children: tuple[Piece, ...] = ()
    if patches:
        rows = np.flatnonzero(offsets >> offsets.dtype.type(width))
        fields.append((3, BYTES, patches_metadata(rows, len(numbers))))
        values = np.ascontiguousarray(offsets[rows])
        children = patches_of(rows, len(numbers), _plain(values))
    data = pack(np.ascontiguousarray(offsets), width)
    return Piece(
        "fastlanes.bitpacked",
        encode(fields),
        ((data, numbers.bits // 8),),
        (*children, *numbers.tail),
    )


def patches_metadata(rows: Any, length: int) -> bytes:
    """Return ``PatchesMetadata`` of patches in some of the rows of an array."""
    return encode([(1, VARINT, len(rows)), (2, VARINT, 0), (3, VARINT, PTYPES.index(_indices(length)))])


def patches_of(rows: Any, length: int, values: Piece) -> tuple[Piece, ...]:
    """Return the children of patches: indices, and values."""
    return _plain(rows.astype(_indices(length))), values


def _indices(length: int) -> Any:
    return smallest_unsigned(length - 1)


def _plain(array: Any) -> Piece:
    return Piece("vortex.primitive", buffers=((array, array.dtype.itemsize),))


def packed_bytes(rows: int, width: Any) -> Any:
    """Return how many bytes so many integers take in so many bits each, in whole chunks."""
    return -(-rows // CHUNK) * CHUNK // 8 * width


def _cost(rows: int, width: Any, patches: Any, bits: int) -> Any:
    return packed_bytes(rows, width) + patches * ((bits >> 3) + int(_indices(rows).itemsize))


def _best_width(numbers: Numbers, offsets: Any) -> tuple[int, int]:
    """Return in how many bits to pack, by a sample, and how many numbers do not fit in them."""
    rows = len(numbers)
    most = int(offsets.max()).bit_length()
    sample = offsets[numbers.sample]
    above = len(sample) - np.cumsum(np.bincount(_widths(sample), minlength=most + 1))
    costs = _cost(len(sample), np.arange(most + 1), above, numbers.bits)
    width = most - int(costs[::-1].argmin())  # of several the widest
    found = [(most, 0)]
    if width < most:
        found.append((width, int(np.count_nonzero(offsets >> offsets.dtype.type(width)))))
    return min(found, key=lambda each: _cost(rows, each[0], each[1], numbers.bits))


def _widths(unsigned: Any) -> Any:
    """Return how many bits each of some unsigned integers takes."""
    if unsigned.dtype.itemsize < 8:
        return np.frexp(unsigned.astype(np.float64))[1]
    high = unsigned >> np.uint64(_EXACT_IN_FLOAT)
    low = unsigned & np.uint64((1 << _EXACT_IN_FLOAT) - 1)
    widths = np.frexp(low.astype(np.float64))[1]
    if high.any():
        widths = np.where(high > 0, np.frexp(high.astype(np.float64))[1] + _EXACT_IN_FLOAT, widths)
    return widths
