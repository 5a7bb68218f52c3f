"""Numbers that are to be encoded, what is known about them, and plans of how to."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from bowstring.vortex.dtype import PTYPES, DType, Kind
from bowstring.vortex.nodes import Piece

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

    def __len__(self) -> int:
        return len(self.values)

    @property
    def bits(self) -> int:
        """Bits of a number."""
        return 8 * int(self.values.dtype.itemsize)

    @property
    def is_float(self) -> bool:
        return bool(self.values.dtype.kind == "f")

    @property
    def dtype(self) -> DType:
        """The type in Vortex, which is nullable."""
        return DType(Kind.PRIMITIVE, True, ptype=PTYPES.index(self.values.dtype.newbyteorder("<")))

    @functools.cached_property
    def count(self) -> int:
        """How many are not null."""
        return len(self) if self.valid is None else int(np.count_nonzero(self.valid))

    @functools.cached_property
    def integers(self) -> Any:
        """The numbers, or the bits of floats as integers: equal where the numbers are the same in every bit."""
        return self.values.view(f"<i{self.bits // 8}") if self.is_float else self.values

    @functools.cached_property
    def bounds(self) -> tuple[int, int]:
        """The least and the greatest of the integers that are not null, of which there must be one."""
        found = self.integers if self.valid is None else self.integers[self.valid]
        return int(found.min()), int(found.max())

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
    def sample(self) -> Any:
        """Positions of some rows: blocks that are spread over all, or all where they are few."""
        return sampled(len(self))

    @functools.cached_property
    def sample_counts(self) -> tuple[Any, Any]:
        """The distinct integers of the sample, and how often each of them is there."""
        found = np.sort(self.filled[self.sample])
        first = np.flatnonzero(np.concatenate([[True], found[1:] != found[:-1]]))
        return found[first], np.diff(np.concatenate([first, [len(found)]]))

    def taken(self, rows: Any) -> Numbers:
        """Return the numbers of some rows: positions, flags or a slice."""
        return Numbers(self.values[rows], None if self.valid is None else self.valid[rows])

    def with_values(self, values: Any) -> Numbers:
        """Return other numbers, which are null where these are."""
        return Numbers(values, self.valid)

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
    found = (starts[:, None] + np.arange(_BLOCK)).reshape(-1)
    found.flags.writeable = False
    return found


def plain(numbers: Numbers) -> Plan:
    """Numbers as they are: ``vortex.primitive``."""

    def build() -> Piece:
        values = np.ascontiguousarray(numbers.values)
        return Piece("vortex.primitive", buffers=((values, values.dtype.itemsize),), children=numbers.tail)

    return Plan(numbers.values.nbytes + numbers.tail_bytes + NODE, build)


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
    found = np.unpackbits(bits, count=rows, bitorder="little").view(np.bool_)
    return None if bool(found.all()) else found


def smallest_unsigned(most: int) -> Any:
    """Return the narrowest unsigned type that holds a number."""
    return np.dtype(f"<u{1 if most < 1 << 8 else 2 if most < 1 << 16 else 4 if most < 1 << 32 else 8}")
