"""Encodings of values in parts: dates and times, and decimals of narrow integers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bowstring.errors import InvalidMetadata
from bowstring.kernels.vortex import decode_numbers
from bowstring.vortex.decode import encoding
from bowstring.vortex.dtype import DType, Kind, primitive, units_per_second
from bowstring.vortex.encodings.canonical import decimal_words
from bowstring.vortex.scalar import decode_number
from bowstring.vortex.values import Values, words_of_decimal

if TYPE_CHECKING:
    from bowstring.vortex.decode import Decoder
    from bowstring.vortex.nodes import ArrayNode

_SECONDS_OF_A_DAY: Final = 86_400
_MOST_PARTS: Final = 3


@encoding("vortex.datetimeparts")
def date_time_parts(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int) -> Values:
    """Timestamps as days, seconds of the day, and units of the second."""
    # Metadata: 1 type of the days, 2 of the seconds, 3 of the rest; any integers. Children: days, null
    # where the row is; seconds; the rest.
    unit = units_per_second(dtype)
    decoder.only_children(node, 3)
    metadata = decoder.metadata(node)
    kinds = [decoder.ptype(node, metadata.uint(field), kinds="ui") for field in (1, 2, 3)]
    days = decoder.child(node, 0, kinds[0].as_nullable(dtype.nullable), rows)
    parts: list[tuple[Any, int]] = [(days.arrays[0], _SECONDS_OF_A_DAY * unit)]
    parts += [(_part(decoder, node, at, kinds[at], rows), factor) for at, factor in ((1, unit), (2, 1))]
    decoder.allocate(8 * rows)
    total = decode_numbers.add_parts(parts, rows, beside=decoder.faults)
    return Values(primitive("i8", dtype.nullable), rows, days.validity, (total,))


def _part(decoder: Decoder, node: ArrayNode, at: int, kind: DType, rows: int) -> Any:
    """Return a child as an array, or as one integer where it is a constant."""
    if at < len(node.children) and node.children[at].encoding == "vortex.constant":
        data = decoder.stored_bytes(node.children[at], 0)
        found = decode_number(data, kind)
        if found is not None:
            return found
    return decoder.numbers(node, at, kind, rows)


@encoding("vortex.decimal_byte_parts")
def decimal_byte_parts(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int) -> Values:
    """Decimals whose unscaled values are signed integers of at most 64 bits.

    Metadata: 1 type of the integers, 2 number of lower parts, which must be 0. Children: the integers.
    """
    dtype = decoder.expect(node, dtype, Kind.DECIMAL)
    decoder.only_children(node, 1)
    metadata = decoder.metadata(node)
    if metadata.uint(2):
        raise InvalidMetadata("decimals in parts have lower parts", expected=0, found=metadata.uint(2))
    kind = decoder.ptype(node, metadata.uint(1), kinds="i").as_nullable(dtype.nullable)
    high = decoder.child(node, 0, kind, rows)
    words = words_of_decimal(dtype)
    decoder.allocate(8 * words * rows)
    return Values(dtype, rows, high.validity, (decode_numbers.widen(high.arrays[0], words).view(np.int64),))


@encoding("vortex.decimal_byte_parts.v2")
def decimal_byte_parts_2(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int) -> Values:
    """Decimals as a signed part and up to three unsigned ones of 64 bits each, the most significant first.

    Metadata: 1 type of the signed part, 2 types of the lower parts. Children: the signed part; the lower parts.
    """
    dtype = decoder.expect(node, dtype, Kind.DECIMAL)
    metadata = decoder.metadata(node)
    lower = [decoder.ptype(node, each) for each in metadata.uints(2)]
    if len(lower) > _MOST_PARTS:
        raise InvalidMetadata(
            "decimals have too many parts", expected="at most 3 lower ones", found=len(lower)
        )
    decoder.only_children(node, 1 + len(lower))
    kind = decoder.ptype(node, metadata.uint(1), kinds="i").as_nullable(dtype.nullable)
    high = decoder.child(node, 0, kind, rows)
    held = 1 + len(lower)
    decoder.allocate(8 * held * rows)
    words = decoder.xp.empty((rows, held), np.int64)
    words[:, len(lower)] = high.arrays[0].astype(np.int64)
    for at, part in enumerate(lower):
        found = decoder.numbers(node, 1 + at, part, rows)
        words[:, len(lower) - 1 - at] = found.astype(np.uint64).view(np.int64)
    flat = words.reshape(-1)
    return Values(dtype, rows, high.validity, (decimal_words(decoder, flat, rows, dtype, high.validity),))
