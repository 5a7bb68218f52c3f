"""Numbers that are to be encoded, and plans of how to: as they are, in few bits, floats as decimal numbers."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from bowstring.kernels.vortex.decode_numbers import CHUNK
from bowstring.kernels.vortex.encode import pack
from bowstring.vortex.dtype import PTYPES, DType, Kind
from bowstring.vortex.message import Piece, number_piece
from bowstring.vortex.protobuf import BYTES, encode, encode_numbers, encode_scalar

if TYPE_CHECKING:
    from collections.abc import Callable


NODE: Final = 96
"""About how many bytes a node takes besides its buffers: its flatbuffer, and padding."""

_BLOCK: Final = 64
_BLOCKS: Final = 64


class Plan(NamedTuple):
    """A way to encode an array."""

    nbytes: float  # about how many bytes it takes
    build: Callable[[], Piece]


class Numbers:
    """Numbers of one physical type, some of which may be null: `values` there may be anything."""

    def __init__(self, values: Any, valid: Any | None = None) -> None:
        # values: one for each row; valid: an array of bool, by default all
        self.values = values
        self.valid = None if valid is None or bool(valid.all()) else valid
        self.bits = 8 * int(values.dtype.itemsize)
        self.is_float = bool(values.dtype.kind == "f")
        # The type in Vortex, which is nullable.
        self.dtype = DType(Kind.PRIMITIVE, True, ptype=PTYPES.index(values.dtype.newbyteorder("<")))

    def __len__(self) -> int:
        return len(self.values)

    @functools.cached_property
    def count(self) -> int:
        return len(self) if self.valid is None else int(np.count_nonzero(self.valid))

    @functools.cached_property
    def integers(self) -> Any:
        """The numbers, or the bits of floats as integers: equal where the numbers are the same in every bit."""
        return self.values.view(f"<i{self.bits // 8}") if self.is_float else self.values

    @functools.cached_property
    def bounds(self) -> tuple[int, int]:
        """The least and the greatest of the integers that are not null, of which there must be one."""
        integers = self.integers if self.valid is None else self.integers[self.valid]
        return int(integers.min()), int(integers.max())

    @property
    def width(self) -> int:
        """Bits that the range of the integers takes."""
        low, high = self.bounds
        return (high - low).bit_length()

    @functools.cached_property
    def filled(self) -> Any:
        """The integers, with the least one where a row is null."""
        if self.valid is None:
            return self.integers
        return np.where(self.valid, self.integers, self.integers.dtype.type(self.bounds[0]))

    @functools.cached_property
    def sample_counts(self) -> tuple[Any, Any]:
        """The distinct integers of the sample, and how often each of them is there."""
        ordered = np.sort(self.filled[sampled(len(self))])
        first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        return ordered[first], np.diff(np.concatenate([first, [len(ordered)]]))

    def taken(self, rows: Any) -> Numbers:
        """Return the numbers of some rows: positions, flags or a slice."""
        return Numbers(self.values[rows], None if self.valid is None else self.valid[rows])

    @property
    def tail(self) -> tuple[Piece, ...]:
        """The validity as the last child of a node; nothing where all rows are valid."""
        return validity_of(self.valid)

    @property
    def tail_bytes(self) -> int:
        return 0 if self.valid is None else len(self) // 8 + NODE


@functools.lru_cache(maxsize=8)
def sampled(rows: int) -> Any:
    """Return positions of some of so many rows."""
    if rows <= _BLOCK * _BLOCKS:
        return slice(None)
    starts = np.linspace(0, rows - _BLOCK, _BLOCKS).astype(np.int64)
    positions = (starts[:, None] + np.arange(_BLOCK)).reshape(-1)
    positions.flags.writeable = False
    return positions


def plain(numbers: Numbers) -> Plan:
    """Numbers as they are: ``vortex.primitive``."""
    nbytes = numbers.values.nbytes + numbers.tail_bytes + NODE
    return Plan(nbytes, lambda: number_piece(np.ascontiguousarray(numbers.values), numbers.tail))


def validity_of(valid: Any | None) -> tuple[Piece, ...]:
    """Return flags of validity as a child; nothing where there are none."""
    if valid is None or bool(valid.all()):
        return ()
    bits = np.packbits(valid, bitorder="little")
    return (Piece("vortex.bool", buffers=((bits, 1),)),)


def flags_of(validity: tuple[Piece, ...], rows: int) -> Any | None:
    """Return the flags of a validity child as the writer makes it; ``None`` where all rows are valid."""
    if not validity:
        return None
    bits = np.frombuffer(validity[0].buffers[0][0], np.uint8)
    flags = np.unpackbits(bits, count=rows, bitorder="little").view(np.bool_)
    return None if bool(flags.all()) else flags


def smallest_unsigned(most: int) -> Any:
    """Return the narrowest unsigned type that holds a number."""
    return np.dtype(f"<u{1 if most < 1 << 8 else 2 if most < 1 << 16 else 4 if most < 1 << 32 else 8}")


_EXACT_IN_FLOAT: Final = 53


def packed(numbers: Numbers) -> Plan | None:
    """Return the best of the ways to pack integers, or ``None`` where they need all their bits."""
    if numbers.is_float:
        return None
    low, high = numbers.bounds
    reference = low if low < 0 or numbers.width < high.bit_length() else 0
    unsigned = numbers.filled.view(f"<u{numbers.bits // 8}")
    number = unsigned.dtype.type
    offsets = unsigned - number(reference & (1 << numbers.bits) - 1) if reference else unsigned
    plans = [_plan(numbers, offsets, reference=reference)]
    # Zigzag pays where there are outliers on both sides.
    if low < 0 < high:
        signs = (numbers.filled >> numbers.filled.dtype.type(numbers.bits - 1)).view(unsigned.dtype)
        plans.append(_plan(numbers, (unsigned << number(1)) ^ signs, zigzag=True))
    possible = [each for each in plans if each is not None]
    return min(possible, key=lambda plan: plan.nbytes, default=None)


def _plan(numbers: Numbers, offsets: Any, *, reference: int = 0, zigzag: bool = False) -> Plan | None:
    width, patches = _best_width(numbers, offsets)
    if width >= numbers.bits:
        return None
    nodes = 1 + bool(reference) + zigzag + 2 * (patches > 0)
    nbytes = _cost(len(numbers), width, patches, numbers.bits) + numbers.tail_bytes + NODE * nodes

    def build() -> Piece:
        metadata = encode_numbers(width)
        children: tuple[Piece, ...] = ()
        if patches:
            rows = np.flatnonzero(offsets >> offsets.dtype.type(width))
            stored, children = patches_of(
                rows, len(numbers), number_piece(np.ascontiguousarray(offsets[rows]))
            )
            metadata += encode([(3, BYTES, stored)])
        buffer = pack(np.ascontiguousarray(offsets), width), numbers.bits // 8
        inner = Piece("fastlanes.bitpacked", metadata, (buffer,), (*children, *numbers.tail))
        if zigzag:
            return Piece("vortex.zigzag", children=(inner,))
        if reference:
            return Piece("fastlanes.for", encode_scalar(reference, numbers.dtype), children=(inner,))
        return inner

    return Plan(nbytes, build)


def patches_of(rows: Any, length: int, values: Piece) -> tuple[bytes, tuple[Piece, ...]]:
    """Return ``PatchesMetadata`` of patches in some of the rows of an array, and the children: indices, values."""
    indices = rows.astype(smallest_unsigned(length - 1))
    return encode_numbers(len(rows), 0, PTYPES.index(indices.dtype)), (number_piece(indices), values)


def packed_bytes(rows: int, width: Any) -> Any:
    """Return how many bytes so many integers take in so many bits each, in whole chunks."""
    return -(-rows // CHUNK) * CHUNK // 8 * width


def _cost(rows: int, width: Any, patches: Any, bits: int) -> Any:
    return packed_bytes(rows, width) + patches * ((bits >> 3) + int(smallest_unsigned(rows - 1).itemsize))


def _best_width(numbers: Numbers, offsets: Any) -> tuple[int, int]:
    """Return in how many bits to pack, by a sample, and how many numbers do not fit in them."""
    rows = len(numbers)
    most = int(offsets.max()).bit_length()
    sample = offsets[sampled(rows)]
    above = len(sample) - np.cumsum(np.bincount(_widths(sample), minlength=most + 1))
    costs = _cost(len(sample), np.arange(most + 1), above, numbers.bits)
    width = most - int(costs[::-1].argmin())  # of several the widest
    choices = [(most, 0)]
    if width < most:
        choices.append((width, int(np.count_nonzero(offsets >> offsets.dtype.type(width)))))
    return min(choices, key=lambda each: _cost(rows, each[0], each[1], numbers.bits))


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


_SAMPLE: Final = 256
_MOST_EXPONENT: Final = {4: 10, 8: 18}
_MOST_PATCHES: Final = 0.3
_LARGEST: Final = {4: float(1 << 30), 8: float(1 << 62)}


def alp(numbers: Numbers, below: Callable[[Numbers], Piece]) -> Plan | None:
    """Integers times powers of ten, and patches for the numbers that are none."""
    size = numbers.bits // 8
    if not numbers.is_float or size not in _MOST_EXPONENT:
        return None
    valid = numbers.values if numbers.valid is None else numbers.values[numbers.valid]
    step = -(-len(valid) // _SAMPLE)
    sample = valid[::step]
    bits, share, exponents = _best(sample, numbers.bits)
    if share > _MOST_PATCHES:
        return None
    nbytes = len(numbers) * bits / 8 + share * len(valid) * (size + 4) + numbers.tail_bytes + 4 * NODE
    return Plan(nbytes, lambda: _encode(numbers, exponents, below))


def _best(sample: Any, bits: int) -> tuple[int, float, tuple[int, int]]:
    """Return how many bits each number takes, the share of patches, and the exponents, where that is least."""
    best = float("inf"), bits, 1.0, (0, 0)
    for e in range(_MOST_EXPONENT[bits // 8] + 1):
        for f in range(e + 1):
            integers, exact = _encoded(sample, (e, f))
            good = integers[exact]
            share = 1 - len(good) / len(sample)
            width = (int(good.max()) - int(good.min())).bit_length() if len(good) else bits
            cost = width + share * (bits + 32)
            if cost < best[0]:
                best = cost, width, share, (e, f)
    return best[1:]


def _encoded(values: Any, exponents: tuple[int, int]) -> tuple[Any, Any]:
    """Return integers that stand for numbers, and which of them do in every bit."""
    float_ = values.dtype.type
    size = values.dtype.itemsize
    e, f = exponents
    with np.errstate(all="ignore"):
        scaled = np.rint(values * float_(f"1e{e}") * float_(f"1e-{f}"))
        inside = np.abs(scaled) < _LARGEST[size]
        integers = np.where(inside, scaled, 0).astype(f"<i{size}")
        again = integers.astype(values.dtype) * float_(f"1e{f}") * float_(f"1e-{e}")
    kind = f"<u{size}"
    return integers, again.view(kind) == np.ascontiguousarray(values).view(kind)


def _encode(numbers: Numbers, exponents: tuple[int, int], below: Callable[[Numbers], Piece]) -> Piece:
    integers, exact = _encoded(numbers.values, exponents)
    valid = True if numbers.valid is None else numbers.valid
    rows = np.flatnonzero(~exact & valid)
    metadata = encode_numbers(*exponents)
    children: tuple[Piece, ...] = ()
    if len(rows):
        good = np.flatnonzero(exact & valid)
        integers[rows] = integers[good[0]] if len(good) else 0  # what the patches stand for counts no bits
        values = number_piece(np.ascontiguousarray(numbers.values[rows]))
        patches, children = patches_of(rows, len(numbers), values)
        metadata += encode([(3, BYTES, patches)])
    return Piece("vortex.alp", metadata, (), (below(Numbers(integers, numbers.valid)), *children))
