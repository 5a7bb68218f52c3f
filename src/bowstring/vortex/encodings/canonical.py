"""Encodings that hold values as they are: nulls, Booleans, numbers and decimals; extensions of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bowstring.errors import InvalidBody, InvalidMetadata
from bowstring.kernels import bitmap
from bowstring.vortex.decode import encoding
from bowstring.vortex.dtype import Kind
from bowstring.vortex.values import Values, words_of_decimal

if TYPE_CHECKING:
    from bowstring.vortex.decode import Decoder
    from bowstring.vortex.dtype import DType
    from bowstring.vortex.nodes import ArrayNode

_WIDTHS: Final = (1, 2, 4, 8, 16, 32)
_MOST_BIT_OFFSET: Final = 8


@encoding("vortex.null")
def null(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int) -> Values:
    """No metadata, no buffers, no children: as many nulls as there are rows."""
    decoder.only_children(node, 0)
    return Values(decoder.expect(node, dtype, Kind.NULL), rows)


@encoding("vortex.bool")
def boolean(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int) -> Values:
    """Bits, the least significant first.

    Metadata: 1 the first bit, below 8. Buffers: the bits. Children: validity, or none.
    """
    dtype = decoder.expect(node, dtype, Kind.BOOL)
    offset = decoder.metadata(node).uint(1)
    if offset >= _MOST_BIT_OFFSET:
        raise InvalidMetadata("bits begin behind the first byte", expected="0 to 7", found=offset)
    bits = decoder.buffer(node, 0, np.uint8, bitmap.bytes_for(offset + rows))
    if offset:
        decoder.allocate(bits.size)
        bits = bitmap.shifted(bits, offset, rows)
    return Values(dtype, rows, decoder.validity(node, 0, rows), (bits,))


@encoding("vortex.bytebool")
def byte_boolean(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int) -> Values:
    """A byte for each row, false where it is 0.

    Buffers: the bytes. Children: validity, or none.
    """
    dtype = decoder.expect(node, dtype, Kind.BOOL)
    flags = decoder.buffer(node, 0, np.uint8, rows) != 0
    decoder.allocate(rows)
    return Values(dtype, rows, decoder.validity(node, 0, rows), (bitmap.packed(flags),))


@encoding("vortex.primitive")
def primitive(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int) -> Values:
    """Numbers as they are.

    Metadata: none. Buffers: the numbers, of exactly as many bytes as they need. Children: validity, or none.
    """
    dtype = decoder.expect(node, dtype, Kind.PRIMITIVE)
    numbers = decoder.buffer(node, 0, dtype.numpy)
    if numbers.size != rows:
        raise InvalidBody(
            "a buffer of numbers has another length than its array",
            expected=f"{rows} of {dtype}",
            found=numbers.size,
        )
    return Values(dtype, rows, decoder.validity(node, 0, rows), (numbers,))


@encoding("vortex.decimal")
def decimal(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int) -> Values:
    """Unscaled values as signed integers of any width."""
    # Metadata: 1 the width of each value, of 1, 2, 4, 8, 16 or 32 bytes, by its position among these; it
    # may be more or less than the precision needs. Buffers: the values. Children: validity, or none.
    dtype = decoder.expect(node, dtype, Kind.DECIMAL)
    kind = decoder.metadata(node).uint(1)
    if kind >= len(_WIDTHS):
        raise InvalidMetadata("no such width of decimals", expected="0 to 5", found=kind)
    width = _WIDTHS[kind]
    validity = decoder.validity(node, 0, rows)
    if width < 8:
        integers = decoder.buffer(node, 0, np.dtype(f"<i{width}"), rows)
    else:
        integers = decoder.buffer(node, 0, np.int64, rows * (width >> 3))
    return Values(dtype, rows, validity, (decimal_words(decoder, integers, rows, dtype, validity),))


def decimal_words(decoder: Decoder, integers: Any, rows: int, dtype: DType, validity: Any | None) -> Any:
    """Return decimals as words of 64 bits, as many as Arrow has."""
    # integers: signed, of at most 64 bits; or several words of int64 for each row, the lowest first
    xp, wanted = decoder.xp, words_of_decimal(dtype)
    held = max(integers.size // rows, 1) if rows else wanted
    if held == wanted and integers.dtype == np.int64:
        return integers
    words = integers.astype(np.int64).reshape(-1, held)
    decoder.allocate(8 * wanted * rows)
    kept = min(held, wanted)
    signs = words[:, kept - 1 : kept] >> np.int64(63)
    if held > wanted:
        bad = (words[:, wanted:] != signs).reshape(-1)
        if validity is not None:
            bad = bad & xp.repeat(bitmap.expanded(validity, 0, rows), held - wanted)
        if decoder.any(bad):
            raise InvalidBody("a decimal has more digits than its type", expected=str(dtype))
    out = xp.empty((rows, wanted), np.int64)
    out[:, :kept] = words[:, :kept]
    out[:, kept:] = signs
    return out.reshape(-1)


@encoding("vortex.ext")
def extension(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int) -> Values:
    """An extension, as its storage.

    Children: the storage.
    """
    if dtype.kind is not Kind.EXTENSION:
        raise InvalidMetadata("an encoding does not fit its type", expected="an extension", found=str(dtype))
    decoder.only_children(node, 1)
    return decoder.child(node, 0, dtype.children[0], rows)
