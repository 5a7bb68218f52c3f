"""Numbers that repeat, and the choice of an encoding: all that fit are estimated, and the best one is built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from bowstring.vortex.compress.numbers import (
    NODE,
    Numbers,
    Plan,
    alp,
    packed,
    packed_bytes,
    patches_of,
    plain,
    smallest_unsigned,
)
from bowstring.vortex.dtype import PTYPES, DType
from bowstring.vortex.message import Piece
from bowstring.vortex.protobuf import BYTES, Scalar, encode, encode_numbers, encode_scalar

if TYPE_CHECKING:
    from collections.abc import Callable


_LEAST_RUN: Final = 4
_MOST_DISTINCT: Final = 0.5
_WORTH: Final = 0.95  # less is not worth another step for readers
_LEAST_SHARE: Final = 0.8
_HEAD: Final = 64


def constant(numbers: Numbers) -> Plan | None:
    """One number for all rows, or for all that are not null, or nulls only."""
    if numbers.count and numbers.bounds[0] != numbers.bounds[1]:
        return None
    if not numbers.count:
        return repeated(None, numbers.dtype, (), 0)
    return repeated(_scalar(numbers, numbers.bounds[0]), numbers.dtype, numbers.tail, numbers.tail_bytes)


def repeated(scalar: Scalar, dtype: DType, tail: tuple[Piece, ...], tail_bytes: int) -> Plan:
    """Return one scalar for all rows that are not null by their validity, `tail`."""
    whole = constant_piece(scalar, dtype)
    if not tail:
        return Plan(NODE, lambda: whole)
    return Plan(2 * NODE + tail_bytes, lambda: Piece("vortex.masked", children=(whole, *tail)))


def constant_piece(scalar: Scalar, dtype: DType) -> Piece:
    """Return a scalar for all rows."""
    return Piece("vortex.constant", buffers=((encode_scalar(scalar, dtype), 1),))


def sequence(numbers: Numbers) -> Plan | None:
    """A first number and a step."""
    count = len(numbers)
    if numbers.is_float or numbers.valid is not None or count < 3:
        return None
    values = numbers.values
    first, step = int(values[0]), int(values[1]) - int(values[0])
    unsigned = values.dtype.kind == "u"
    if (unsigned and step < 0) or first + step * (count - 1) != int(values[-1]):
        return None
    for part in (slice(_HEAD), slice(None)):  # most arrays differ early
        expected = np.arange(len(values[part]), dtype=np.int64) * np.int64(step) + np.array(
            first & (1 << 64) - 1, np.uint64
        ).astype(np.int64)
        if not np.array_equal(expected.astype(values.dtype), values[part]):
            return None
    fields = [
        (number, BYTES, encode_scalar(value, numbers.dtype)) for number, value in ((1, first), (2, step))
    ]
    return Plan(NODE, lambda: Piece("vortex.sequence", encode(fields)))


def runs(numbers: Numbers, below: Callable[[Numbers], Piece]) -> Plan | None:
    """Runs of one number each, by where they end."""
    count = len(numbers)
    differs = numbers.filled[1:] != numbers.filled[:-1]
    if numbers.valid is not None:
        differs |= numbers.valid[1:] != numbers.valid[:-1]
    num_runs = int(np.count_nonzero(differs)) + 1
    if num_runs * _LEAST_RUN > count:
        return None
    nbytes = num_runs * (count.bit_length() + numbers.width + (numbers.valid is not None)) / 8 + 5 * NODE

    def build() -> Piece:
        starts = np.concatenate([[0], np.flatnonzero(differs) + 1])
        ends = np.concatenate([starts[1:], [count]]).astype(smallest_unsigned(count))
        metadata = encode_numbers(PTYPES.index(ends.dtype), num_runs, 0)
        children = below(Numbers(ends)), below(numbers.taken(starts))
        return Piece("vortex.runend", metadata, (), children)

    return Plan(nbytes, build)


def dictionary(numbers: Numbers, below: Callable[[Numbers], Piece], most: float) -> Plan | None:
    """Codes of distinct numbers, where they may take fewer than `most` bytes."""
    distinct, counts = numbers.sample_counts
    if len(distinct) > _MOST_DISTINCT * counts.sum():
        return None

    def nbytes_of(found: int) -> float:
        plain = len(numbers) * smallest_unsigned(found - 1).itemsize
        codes = min(packed_bytes(len(numbers), (found - 1).bit_length()), plain)
        return float(codes + found * numbers.width / 8 + numbers.tail_bytes + 4 * NODE)

    if nbytes_of(len(distinct)) > _WORTH * most:  # the sample has no more of them than there are
        return None
    bits = np.ascontiguousarray(numbers.filled)
    plain = pa.Array.from_buffers(
        pa.from_numpy_dtype(bits.dtype), len(bits), [None, pa.py_buffer(bits)]
    ).dictionary_encode()
    values = Numbers(plain.dictionary.to_numpy().astype(bits.dtype, copy=False).view(numbers.values.dtype))
    count = len(values)
    codes = Numbers(plain.indices.to_numpy().astype(smallest_unsigned(max(count - 1, 0))), numbers.valid)
    return Plan(nbytes_of(count), lambda: dictionary_piece(codes, count, below(codes), below(values)))


def dictionary_piece(codes: Numbers, count: int, encoded: Piece, values: Piece) -> Piece:
    """Return codes and the values that they stand for."""
    metadata = encode_numbers(count, PTYPES.index(codes.values.dtype), codes.valid is not None)
    return Piece("vortex.dict", metadata, (), (encoded, values))


def sparse(numbers: Numbers, below: Callable[[Numbers], Piece]) -> Plan | None:
    """One number, or null, for most rows, and patches."""
    count = len(numbers)
    nulls = count - numbers.count
    fill: Scalar = None
    if nulls >= _LEAST_SHARE * count:
        others: Any = numbers.valid
    else:
        distinct, counts = numbers.sample_counts
        most = int(counts.argmax())
        if counts[most] < _LEAST_SHARE * counts.sum():
            return None
        others = numbers.filled != distinct[most]
        if numbers.valid is not None:
            others |= ~numbers.valid
        fill = _scalar(numbers, int(distinct[most]))
    patches = int(np.count_nonzero(others))
    if not 0 < patches < (1 - _LEAST_SHARE) * count:
        return None
    nbytes = patches * (8 * smallest_unsigned(count - 1).itemsize + numbers.width) / 8 + 3 * NODE

    def build() -> Piece:
        rows = np.flatnonzero(others)
        patches, children = patches_of(rows, count, below(numbers.taken(rows)))
        metadata = encode([(1, BYTES, patches)])
        return Piece("vortex.sparse", metadata, ((encode_scalar(fill, numbers.dtype), 1),), children)

    return Plan(nbytes, build)


def _scalar(numbers: Numbers, integer: int) -> int:
    """Return one of the integers as a scalar: of floats, their bits."""
    return integer & (1 << numbers.bits) - 1 if numbers.is_float else integer


DEPTH: Final = 3
"""How many encodings may be chosen inside each other; bit-packing comes below them."""


def integers(values: Any) -> Piece:
    """Return integers without nulls, encoded in the type that they have."""
    return plan(Numbers(np.ascontiguousarray(values))).build()


def plan(numbers: Numbers, depth: int = DEPTH) -> Plan:
    """Return the plan that takes the fewest bytes."""
    if not len(numbers):
        return plain(numbers)
    single = constant(numbers)
    if single is not None:
        return single

    if numbers.values.nbytes <= 2 * NODE:  # other nodes take more
        return (sequence(numbers) if depth > 0 else None) or plain(numbers)

    def below(inner: Numbers) -> Piece:
        return plan(inner, depth - 1).build()

    plans = [plain(numbers), packed(numbers)]
    if depth > 0:
        plans += [sequence(numbers), runs(numbers, below), sparse(numbers, below), alp(numbers, below)]
        least = min(each.nbytes for each in plans if each is not None)
        plans.append(dictionary(numbers, below, least))
    return min((each for each in plans if each is not None), key=lambda each: each.nbytes)
