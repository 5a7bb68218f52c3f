"""Values in parts: ``vortex.decimal_byte_parts`` and ``vortex.datetimeparts``."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from bowstring.vortex.compress.choice import encoded, plan
from bowstring.vortex.compress.numbers import NODE, Numbers, flags_of
from bowstring.vortex.dtype import PTYPES, DType, units_per_second
from bowstring.vortex.nodes import Piece
from bowstring.vortex.protobuf import VARINT, encode

_DAY: Final = 86_400
_WORD: Final = 8


def compressed_decimals(piece: Piece, rows: int) -> Piece:
    """Return decimals as integers of at most 64 bits, where their values fit in those."""
    data, width = piece.buffers[0]
    valid = flags_of(piece.children, rows)
    values = _integers(np.ascontiguousarray(data), width, valid)
    if values is None:
        return piece
    numbers = Numbers(_narrow(Numbers(values, valid)), valid)
    metadata = encode([(1, VARINT, PTYPES.index(numbers.values.dtype))])
    return Piece("vortex.decimal_byte_parts", metadata, (), (encoded(numbers),))


def _integers(data: Any, width: int, valid: Any | None) -> Any | None:
    if width <= _WORD:
        return data.view(f"<i{width}")
    words = data.view("<i8").reshape(-1, width // _WORD)
    fits = (words[:, 1:] == (words[:, :1] >> np.int64(63))).all(axis=1)
    if valid is not None:
        fits |= ~valid
    return np.ascontiguousarray(words[:, 0]) if bool(fits.all()) else None


def _narrow(numbers: Numbers) -> Any:
    """Return integers in the narrowest signed type that holds all that are not null."""
    low, high = numbers.bounds if numbers.count else (0, 0)
    width = max((low if low >= 0 else ~low).bit_length(), (high if high >= 0 else ~high).bit_length())
    size = next(each for each in (1, 2, 4, 8) if width < 8 * each)
    return numbers.values.astype(f"<i{size}")


def compressed_times(numbers: Numbers, dtype: DType) -> Piece:
    """Return timestamps as days, seconds and the rest, or as they are stored, whichever takes fewer bytes."""
    whole = plan(numbers)
    if not numbers.count:
        return Piece("vortex.ext", children=(whole.build(),))
    unit = units_per_second(dtype)
    days, rest = np.divmod(numbers.filled, np.int64(_DAY * unit))
    seconds, rest = np.divmod(rest, np.int64(unit))
    parts = (
        Numbers(days.astype("<i4") if int(np.abs(days).max()) < 1 << 31 else days, numbers.valid),
        Numbers(seconds.astype("<u4")),
        Numbers(rest.astype("<u4")),
    )
    plans = [plan(each) for each in parts]
    if sum(each.nbytes for each in plans) + NODE >= whole.nbytes:
        return Piece("vortex.ext", children=(whole.build(),))
    kinds = [PTYPES.index(each.values.dtype) for each in parts]
    metadata = encode([(1 + at, VARINT, kind) for at, kind in enumerate(kinds)])
    return Piece("vortex.datetimeparts", metadata, (), tuple(each.build() for each in plans))
