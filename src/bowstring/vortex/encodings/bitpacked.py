"""Encodings of integers by FastLanes: bit-packed, with a frame of reference, zigzag-coded; differences.

What follows the unpacking of bits is collected while the nodes above are walked (:func:`integers`), so that one
launch does it all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from bowstring.errors import InvalidBody, InvalidMetadata
from bowstring.kernels import bitmap
from bowstring.kernels.vortex import decode_numbers, decode_rows
from bowstring.kernels.vortex.decode_numbers import CHUNK, Adjustment
from bowstring.kernels.vortex.unpack import reversed_bits
from bowstring.vortex.decode import encoding
from bowstring.vortex.dtype import BOOL, PTYPES, DType, Kind
from bowstring.vortex.protobuf import Message
from bowstring.vortex.scalar import decode_number
from bowstring.vortex.values import Values

if TYPE_CHECKING:
    from bowstring.vortex.decode import Decoder
    from bowstring.vortex.nodes import ArrayNode

_CHUNK_BYTES: Final = 128
_CHUNK_WORDS: Final = _CHUNK_BYTES // 8
_PACKED, _PACKED2 = "fastlanes.bitpacked", "fastlanes.bitpacked.v2"
_FOR, _FOR2, _ZIGZAG = "fastlanes.for", "fastlanes.for.v2", "vortex.zigzag"
_PLAIN: Final = Adjustment()


class Patches(NamedTuple):
    """Values that an encoding could not hold, and where they belong."""

    indices: Any  # array of unsigned integers; rows, more by `offset`
    values: Values
    offset: int
    children: int  # how many children of the node they are


def patches_of(
    decoder: Decoder, node: ArrayNode, data: bytes | None, at: int, dtype: DType
) -> Patches | None:
    """Return the patches of a node, or ``None`` where its metadata name none."""
    # Metadata: 1 number, 2 offset, 3 type of the indices, 4 number and 5 type of the offsets of chunks, 6
    # offset within a chunk. Children: indices; values; where 5 is there, the offsets of chunks, which are
    # not looked at.
    if data is None:
        return None
    message = Message.of(data, f"the patches of {node.encoding}")
    count = message.uint(1)
    indices = decoder.numbers(node, at, decoder.ptype(node, message.uint(3)), count)
    values = decoder.child(node, at + 1, dtype, count)
    children = 2 if message.optional(5) is None else 3
    return Patches(indices, values, message.uint(2), children)


def patched_validity(decoder: Decoder, validity: Any | None, rows: int, patches: Patches) -> Any | None:
    """Return the bitmap of values, of which those that are patched are null where the patch is."""
    if validity is None and patches.values.validity is None:
        return None
    xp = decoder.xp
    decoder.allocate(rows)
    flags = xp.ones(rows, np.uint8) if validity is None else bitmap.expanded(validity, 0, rows).view(np.uint8)
    count = patches.values.length
    valid: Any = xp.ones(count, np.uint8)
    if patches.values.validity is not None:
        valid = bitmap.expanded(patches.values.validity, 0, count).view(np.uint8)
    decode_rows.patch(flags, patches.indices, valid, offset=patches.offset, faults=decoder.faults)
    return bitmap.packed(flags.view(np.bool_))


@encoding(_PACKED)
def packed(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int) -> Values:
    """Integers of a fixed number of bits, in chunks of 1,024 in the order of FastLanes."""
    # Metadata: 1 bits of each integer, 2 how many integers come before the first row, below 1,024, 3
    # patches. Buffers: the chunks, each of 128 bytes for each bit. Children: those of the patches;
    # validity, or none.
    return _packed(decoder, node, dtype, rows, _PLAIN)


@encoding(_PACKED2)
def packed_by_chunk(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int) -> Values:
    """Bit-packed integers whose number of bits differs from chunk to chunk."""
    # Metadata: 1 how many integers come before the first row, 2 type of the offsets, 3 patches. Buffers:
    # the chunks. Children: those of the patches; validity, or none; last the offsets, in bytes, at which
    # each chunk begins and the last one ends.
    return _packed(decoder, node, dtype, rows, _PLAIN)


def _packed(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int, adjustment: Adjustment) -> Values:
    dtype = decoder.expect(node, dtype, Kind.PRIMITIVE)
    _check_integers(node, dtype)
    metadata = decoder.metadata(node)
    by_chunk = node.encoding == _PACKED2
    offset = metadata.uint(1 if by_chunk else 2)
    if offset >= CHUNK:
        raise InvalidMetadata("integers begin behind the first chunk", expected="below 1024", found=offset)
    chunks = -(-(offset + rows) // CHUNK)
    width, starts = metadata.uint(1), None
    if by_chunk:
        width = 0
        kind = decoder.ptype(node, metadata.uint(2))
        starts = _starts(decoder, decoder.numbers(node, len(node.children) - 1, kind, chunks + 1))
    if by_chunk:
        data = decoder.buffer(node, 0)
    else:
        data = decoder.buffer(node, 0, np.uint64, chunks * _CHUNK_WORDS * width)
    decoder.allocate(chunks * CHUNK * dtype.numpy.itemsize)
    patches = patches_of(decoder, node, metadata.blob(3), 0, dtype)
    out = decode_numbers.unpack(
        data,
        width,
        dtype.numpy,
        rows,
        offset=offset,
        starts=starts,
        adjustment=adjustment,
        faults=decoder.faults,
    )
    at = 0
    if patches is not None:
        at = patches.children
        values = _adjusted(patches.values.arrays[0], adjustment)
        decode_rows.patch(out, patches.indices, values, offset=patches.offset, faults=decoder.faults)
    decoder.only_children(node, at + 1 + by_chunk)
    validity = None
    if len(node.children) > at + by_chunk:
        validity = decoder.child(node, at, BOOL, rows).arrays[0]
    return Values(dtype, rows, validity, (out,))


def _starts(decoder: Decoder, offsets: Any) -> Any:
    decoder.check_below(offsets, 1 << 62, "the offsets of chunks")
    if decoder.any(offsets % _CHUNK_BYTES != 0):
        raise InvalidBody("a chunk does not begin at a multiple of 128 bytes")
    return offsets.astype(np.int64)


@encoding(_FOR)
def frame_of_reference(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int) -> Values:
    """Integers less a reference, which is added with wrapping.

    Metadata: the reference, as a ``ScalarValue``. Children: the differences, of the same type.
    """
    return integers(decoder, node, dtype, rows, _PLAIN)


@encoding(_FOR2)
def frames_of_reference(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int) -> Values:
    """Integers less a reference of each 1,024 rows.

    Children: the differences; the references, of the same type.
    """
    return integers(decoder, node, dtype, rows, _PLAIN)


@encoding(_ZIGZAG)
def zigzag(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int) -> Values:
    """Signed integers, of which 0, -1, 1, -2 … are stored as 0, 1, 2, 3 …

    Children: the unsigned integers, of the same width.
    """
    return integers(decoder, node, dtype, rows, _PLAIN)


def integers(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int, after: Adjustment) -> Values:
    """Return the integers of a node, adjusted in the launch that unpacks them where the order allows it.
    With exponents in `after`, the result is floating-point.
    """
    dtype = decoder.expect(node, dtype, Kind.PRIMITIVE)
    name = node.encoding
    if name in (_FOR, _FOR2, _ZIGZAG):
        _check_integers(node, dtype)
        decoder.only_children(node, 2 if name == _FOR2 else 1)
        inner = dtype
        own = Adjustment(zigzag=True)
        if name == _ZIGZAG:
            inner = DType(Kind.PRIMITIVE, dtype.nullable, ptype=_unsigned(dtype))
        elif name == _FOR:
            own = Adjustment(reference=_reference(decoder, node, dtype))
        else:
            blocks = -(-rows // CHUNK)
            references = decoder.numbers(node, 1, dtype.as_nullable(False), blocks)
            own = Adjustment(reference=references.view(f"u{references.dtype.itemsize}"))
        values = _below(decoder, node, inner, rows, own, after)
    elif name in (_PACKED, _PACKED2):
        values = _packed(decoder, node, dtype, rows, after)
    else:
        values = decoder.decode(node, dtype, rows)
        values = values._replace(arrays=(_allocated(decoder, values.arrays[0], after),))
    array = values.arrays[0]
    if after.exponents is None and array.dtype != dtype.numpy:
        array = array.view(dtype.numpy)
    return values._replace(dtype=dtype, arrays=(array,))


def _below(
    decoder: Decoder, node: ArrayNode, dtype: DType, rows: int, own: Adjustment, after: Adjustment
) -> Values:
    """Return the child of a node with its own adjustment and what comes after, in one step or in two."""
    if not node.children:
        decoder.child(node, 0, dtype, rows)  # raises
    child, merged = node.children[0], _merged(own, after)
    # One reference for each 1,024 rows: these are the chunks only where nothing comes before the first row.
    are_chunks = child.encoding == _PACKED and not decoder.metadata(child).uint(2)
    if hasattr(own.reference, "dtype") and not are_chunks:
        values = integers(decoder, child, dtype, rows, _PLAIN)
        array = _allocated(decoder, values.arrays[0], own)
        return values._replace(arrays=(_allocated(decoder, array, after),))
    if merged is not None:
        return integers(decoder, child, dtype, rows, merged)
    values = integers(decoder, child, dtype, rows, own)
    return values._replace(arrays=(_allocated(decoder, values.arrays[0], after),))


def _merged(own: Adjustment, after: Adjustment) -> Adjustment | None:
    """Return both adjustments as one, which undoes zigzag before it adds; ``None`` where their order is another."""
    if after.zigzag:
        return None
    if own.zigzag:
        return after._replace(zigzag=True)
    if not hasattr(own.reference, "dtype") and not hasattr(after.reference, "dtype"):
        return after._replace(reference=own.reference + after.reference)
    return after._replace(reference=own.reference) if _is_zero(after.reference) else None


def _is_zero(reference: Any) -> bool:
    return not hasattr(reference, "dtype") and bool(reference == 0)


def _allocated(decoder: Decoder, array: Any, adjustment: Adjustment) -> Any:
    if adjustment is _PLAIN:
        return array
    decoder.allocate(array.nbytes)
    return _adjusted(array, adjustment)


def _adjusted(array: Any, adjustment: Adjustment) -> Any:
    return array if adjustment is _PLAIN else decode_numbers.adjust(array, adjustment)


def _reference(decoder: Decoder, node: ArrayNode, dtype: DType) -> int:
    found = decode_number(node.metadata, dtype, decoder.limits.depth)
    if found is None:
        raise InvalidMetadata("a frame of reference has no reference", where=node.encoding)
    return found


def _unsigned(dtype: DType) -> int:
    return PTYPES.index(np.dtype(f"<u{dtype.numpy.itemsize}"))


def _check_integers(node: ArrayNode, dtype: DType) -> None:
    if dtype.numpy.kind not in "iu":
        raise InvalidMetadata(
            "an encoding does not fit its type", expected="integers", found=str(dtype), where=node.encoding
        )


@encoding("fastlanes.delta")
def delta(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int) -> Values:
    """Differences between integers of the same lane, in chunks of 1,024 in the transposed order of FastLanes."""
    # Metadata: 1 number of differences, 2 how many integers come before the first row, below 1,024.
    # Children: what the lanes of each chunk begin with; the differences; validity, or none. Writers up to
    # 0.76 keep the validity in the differences, and a last chunk of fewer than 1,024 in its plain order,
    # with one value that it begins with.
    dtype = decoder.expect(node, dtype, Kind.PRIMITIVE)
    _check_integers(node, dtype)
    metadata = decoder.metadata(node)
    count, offset = metadata.uint(1), metadata.uint(2)
    if offset >= CHUNK or offset + rows > count:
        raise InvalidMetadata("differences do not cover the rows", expected=offset + rows, found=count)
    whole, rest = divmod(count, CHUNK)
    lanes = CHUNK // (8 * dtype.numpy.itemsize)
    bases = decoder.numbers(node, 0, dtype.as_nullable(False), whole * lanes + (rest > 0))
    deltas = decoder.child(node, 1, dtype, count)
    decoder.allocate((count + CHUNK) * dtype.numpy.itemsize)
    validity = decoder.validity(node, 2, rows)
    if validity is None and deltas.validity is not None:
        validity = _untransposed(decoder, deltas.validity, whole, rest, offset, rows)
    found, chunks = deltas.arrays[0], whole * CHUNK
    parts = []
    if whole:
        most = min(chunks, offset + rows)
        parts.append(
            decode_numbers.undelta(bases, found, max(most - offset, 0), offset=offset, faults=decoder.faults)
        )
    if rest and offset + rows > chunks:
        first = bases[-1:].astype(dtype.numpy)
        tail = decoder.xp.cumsum(decoder.xp.concatenate([first, found[chunks:]]), dtype=dtype.numpy)[1:]
        parts.append(tail[max(offset - chunks, 0) : offset + rows - chunks])
    out = parts[0] if len(parts) == 1 else decoder.xp.concatenate(parts or [found[:0]])
    return Values(dtype, rows, validity, (out,))


def _untransposed(decoder: Decoder, bits: Any, whole: int, rest: int, offset: int, rows: int) -> Any:
    """Return in the order of rows the validity of differences, which is transposed as they are."""
    at = np.arange(CHUNK)
    logical = (at % 16) * 64 + reversed_bits((at // 16) % 8) * 8 + at // 128
    stored = np.empty(CHUNK, np.int64)
    stored[logical] = at
    xp, flags = decoder.xp, bitmap.expanded(bits, 0, whole * CHUNK + rest)
    chunks = flags[: whole * CHUNK].reshape(-1, CHUNK)[:, xp.asarray(stored)].reshape(-1)
    return bitmap.packed(xp.concatenate([chunks, flags[whole * CHUNK :]])[offset : offset + rows])
