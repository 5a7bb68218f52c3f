"""Encodings that hold values as they are, in parts, or inside others: nulls to decimals, times, lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bowstring.errors import InvalidBody, InvalidMetadata
from bowstring.kernels import bitmap
from bowstring.kernels.vortex import decode_numbers, decode_text
from bowstring.memory.arrays import last_of
from bowstring.vortex.decode import encoding
from bowstring.vortex.dtype import BOOL, DType, Kind, primitive, units_per_second
from bowstring.vortex.protobuf import decode_scalar
from bowstring.vortex.values import Values, check_offsets, lists_of, size_of, words_of_decimal

if TYPE_CHECKING:
    from bowstring.vortex.decode import Decoder
    from bowstring.vortex.message import ArrayNode


_WIDTHS: Final = (1, 2, 4, 8, 16, 32)
_MOST_BIT_OFFSET: Final = 8


@encoding("vortex.null")
def null(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int) -> Values:
    """No metadata, no buffers, no children: as many nulls as there are rows."""
    decoder.only_children(node, 0)
    return Values(decoder.expect(node, dtype, Kind.NULL), rows)


@encoding("vortex.bool")
def boolean(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int) -> Values:
    """Bits, the least significant first."""
    # Metadata: 1 the first bit, below 8. Buffers: the bits. Children: validity, or none.
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
    """A byte for each row, false where it is 0."""
    # Buffers: the bytes. Children: validity, or none.
    dtype = decoder.expect(node, dtype, Kind.BOOL)
    flags = decoder.buffer(node, 0, np.uint8, rows) != 0
    decoder.allocate(rows)
    return Values(dtype, rows, decoder.validity(node, 0, rows), (bitmap.packed(flags),))


@encoding("vortex.primitive")
def plain_numbers(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int) -> Values:
    """Numbers as they are."""
    # Metadata: none. Buffers: the numbers, of exactly as many bytes as they need. Children: validity, or
    # none.
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
    return Values(
        dtype, rows, validity, (_words(decoder, integers, max(width >> 3, 1), rows, dtype, validity),)
    )


def _words(decoder: Decoder, integers: Any, limbs: int, rows: int, dtype: DType, validity: Any | None) -> Any:
    """Return decimals as words of 64 bits, as many as Arrow has."""
    # integers: signed, of at most 64 bits; or so many words of int64 for each row, the lowest first
    xp, wanted = decoder.xp, words_of_decimal(dtype)
    if limbs == wanted:
        return integers
    decoder.allocate(8 * wanted * rows)
    if limbs == 1:
        return decode_numbers.widen(integers, wanted).view(np.int64)
    words = integers.reshape(-1, limbs)
    kept = min(limbs, wanted)
    signs = words[:, kept - 1 : kept] >> np.int64(63)
    if limbs > wanted:
        bad = (words[:, wanted:] != signs).reshape(-1)
        if validity is not None:
            bad = bad & xp.repeat(bitmap.expanded(validity, 0, rows), limbs - wanted)
        if decoder.any(bad):
            raise InvalidBody("a decimal has more digits than its type", expected=str(dtype))
    out = xp.empty((rows, wanted), np.int64)
    out[:, :kept] = words[:, :kept]
    out[:, kept:] = signs
    return out.reshape(-1)


@encoding("vortex.ext")
def extension(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int) -> Values:
    """An extension, as its storage."""
    # Children: the storage.
    if dtype.kind is not Kind.EXTENSION:
        raise InvalidMetadata("an encoding does not fit its type", expected="an extension", found=str(dtype))
    decoder.only_children(node, 1)
    return decoder.child(node, 0, dtype.children[0], rows)


@encoding("vortex.struct")
def struct(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int) -> Values:
    """Fields beside each other."""
    # Children: validity first where there is one child more than there are fields; then the fields in the
    # order of the type, as long as the struct.
    dtype = decoder.expect(node, dtype, Kind.STRUCT)
    first = struct_children(node, dtype)
    validity = decoder.child(node, 0, BOOL, rows).arrays[0] if first else None
    children = tuple(decoder.child(node, at, inner, rows) for at, inner in enumerate(dtype.children, first))
    return Values(dtype, rows, validity, (), children)


def struct_children(node: ArrayNode, dtype: DType) -> int:
    """Return which child of a struct is its first field."""
    first = len(node.children) - len(dtype.children)
    if first not in (0, 1):
        raise InvalidMetadata(
            "a struct has another number of children than its type",
            expected=len(dtype.children),
            found=len(node.children),
        )
    return first


@encoding("vortex.list")
def list_(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int) -> Values:
    """Lists one behind the other."""
    # Metadata: 1 number of elements, 2 type of the offsets. Children: elements; offsets, one more than
    # there are rows, of which the first need not be 0; validity, or none.
    dtype = decoder.expect(node, dtype, Kind.LIST)
    metadata = decoder.metadata(node)
    count = metadata.uint(1)
    kind = decoder.ptype(node, metadata.uint(2), kinds="ui")
    elements = decoder.child(node, 0, dtype.children[0], count)
    offsets = decoder.numbers(node, 1, kind, rows + 1)
    check_offsets(count)
    decoder.check_below(offsets, count + 1, "the offsets of lists")
    if rows and decoder.any(offsets[1:] < offsets[:-1]):
        raise InvalidBody("the offsets of lists decrease")
    if offsets.dtype != np.int32:
        decoder.allocate(4 * len(offsets))
        offsets = offsets.astype(np.int32)
    return Values(dtype, rows, decoder.validity(node, 2, rows), (offsets,), (elements,))


@encoding("vortex.listview")
def list_view(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int) -> Values:
    """Lists that lie anywhere in their elements, also over each other. They are put one behind the other."""
    # Metadata: 1 number of elements, 2 type of the offsets, 3 type of the sizes. Children: elements;
    # offsets; sizes; validity, or none.
    dtype = decoder.expect(node, dtype, Kind.LIST)
    metadata = decoder.metadata(node)
    count = metadata.uint(1)
    elements = decoder.child(node, 0, dtype.children[0], count)
    starts = decoder.numbers(node, 1, decoder.ptype(node, metadata.uint(2), kinds="ui"), rows)
    sizes = decoder.numbers(node, 2, decoder.ptype(node, metadata.uint(3), kinds="ui"), rows)
    validity = decoder.validity(node, 3, rows)
    starts, sizes = _int64(decoder, starts), _int64(decoder, sizes)
    if validity is not None:  # what a null list names is not looked at
        flags = bitmap.expanded(validity, 0, rows)
        starts, sizes = decoder.xp.where(flags, starts, 0), decoder.xp.where(flags, sizes, 0)
    decoder.check_below(sizes, count + 1, "the sizes of lists")
    decoder.check_below(starts, count + 1, "the offsets of lists")
    if rows and decoder.any(starts + sizes > count):
        raise InvalidBody("a list ends behind the elements", expected=count)
    total = last_of(decode_text.offsets_of(sizes))
    decoder.allocate(total * (8 + size_of(elements) // max(count, 1)))
    return lists_of(dtype, starts, sizes, validity, elements, decoder.faults)


@encoding("vortex.fixed_size_list")
def fixed_size_list(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int) -> Values:
    """Lists of the size that the type says."""
    # Children: elements, the size times as many as rows; validity, or none.
    dtype = decoder.expect(node, dtype, Kind.FIXED_SIZE_LIST)
    elements = decoder.child(node, 0, dtype.children[0], rows * dtype.size)
    return Values(dtype, rows, decoder.validity(node, 1, rows), (), (elements,))


def _int64(decoder: Decoder, integers: Any) -> Any:
    decoder.allocate(8 * len(integers))
    if integers.dtype == np.uint64:  # beyond 2^63 they would turn negative
        decoder.check_below(integers, 1 << 63, "the offsets of lists")
    return integers.astype(np.int64)


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
    for at, factor in ((1, unit), (2, 1)):
        part = None
        if at < len(node.children) and node.children[at].encoding == "vortex.constant":
            part = decode_scalar(decoder.stored_bytes(node.children[at], 0), kinds[at])
        parts.append((decoder.numbers(node, at, kinds[at], rows) if part is None else part, factor))
    decoder.allocate(8 * rows)
    total = decode_numbers.add_parts(parts, rows, beside=decoder.faults)
    return Values(primitive("i8", dtype.nullable), rows, days.validity, (total,))


@encoding("vortex.decimal_byte_parts", "vortex.decimal_byte_parts.v2")
def decimal_byte_parts(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int) -> Values:
    """Decimals as a signed part and up to three unsigned ones of 64 bits each, the most significant first."""
    # Metadata: 1 type of the signed part, 2 types of the lower parts; in the first version their number, which
    # must be 0. Children: the signed part; the lower parts.
    dtype = decoder.expect(node, dtype, Kind.DECIMAL)
    metadata = decoder.metadata(node)
    if node.encoding == "vortex.decimal_byte_parts":
        lower, count = [], metadata.uint(2)
    else:
        lower = [decoder.ptype(node, each) for each in metadata.uints(2)]
        count = max(len(lower) - _MOST_PARTS, 0)
    if count:
        raise InvalidMetadata(
            "decimals have more lower parts than their encoding", expected="0, or 3 in v2", found=count
        )
    decoder.only_children(node, 1 + len(lower))
    kind = decoder.ptype(node, metadata.uint(1), kinds="i").as_nullable(dtype.nullable)
    high = decoder.child(node, 0, kind, rows)
    if not lower:
        words = _words(decoder, high.arrays[0], 1, rows, dtype, high.validity)
        return Values(dtype, rows, high.validity, (words,))
    limbs = 1 + len(lower)
    decoder.allocate(8 * limbs * rows)
    words = decoder.xp.empty((rows, limbs), np.int64)
    words[:, len(lower)] = high.arrays[0].astype(np.int64)
    for at, part in enumerate(lower):
        words_below = decoder.numbers(node, 1 + at, part, rows)
        words[:, len(lower) - 1 - at] = words_below.astype(np.uint64).view(np.int64)
    words = _words(decoder, words.reshape(-1), limbs, rows, dtype, high.validity)
    return Values(dtype, rows, high.validity, (words,))
