"""Encodings of numbers: bit-packed by FastLanes, with a frame of reference, zigzag-coded, differences; ALP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from bowstring.errors import InvalidBody, InvalidMetadata
from bowstring.kernels import bitmap
from bowstring.kernels.vortex import decode_numbers, decode_rows
from bowstring.kernels.vortex.decode_numbers import CHUNK, Adjustment
from bowstring.kernels.vortex.unpack import reversed_bits
from bowstring.vortex.decode import encoding
from bowstring.vortex.dtype import BOOL, DType, Kind, primitive
from bowstring.vortex.protobuf import Message, decode_scalar
from bowstring.vortex.values import Values

if TYPE_CHECKING:
    from bowstring.vortex.decode import Decoder
    from bowstring.vortex.message import ArrayNode


_CHUNK_BYTES: Final = 128
_PACKED: Final = "fastlanes.bitpacked"
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
    children = 2 if message.uint(5, -1) < 0 else 3
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


@encoding(_PACKED, "fastlanes.bitpacked.v2")
def packed(
    decoder: Decoder, node: ArrayNode, dtype: DType, rows: int, adjustment: Adjustment = _PLAIN
) -> Values:
    """Integers in chunks of 1,024 in the order of FastLanes: of one number of bits, or of one in each chunk."""
    # Metadata: 1 bits of each integer, 2 how many integers come before the first row, below 1,024, 3 patches.
    # Buffers: the chunks, each of 128 bytes for each bit. Children: those of the patches; validity, or none.
    # v2: 1 how many integers come before the first row, 2 type of the offsets, 3 patches. The last child are the
    # offsets, in bytes, at which each chunk begins and the last one ends.
    dtype = _integers(decoder, node, dtype)
    metadata = decoder.metadata(node)
    by_chunk = node.encoding == "fastlanes.bitpacked.v2"
    offset = metadata.uint(1 if by_chunk else 2)
    if offset >= CHUNK:
        raise InvalidMetadata("integers begin behind the first chunk", expected="below 1024", found=offset)
    chunks = -(-(offset + rows) // CHUNK)
    if by_chunk:
        kind = decoder.ptype(node, metadata.uint(2))
        places = decoder.numbers(node, len(node.children) - 1, kind, chunks + 1)
        decoder.check_below(places, 1 << 62, "the offsets of chunks")
        if decoder.any(places % _CHUNK_BYTES != 0):
            raise InvalidBody("a chunk does not begin at a multiple of 128 bytes")
        width, starts, data = 0, places.astype(np.int64), decoder.buffer(node, 0)
    else:
        width, starts = metadata.uint(1), None
        data = decoder.buffer(node, 0, np.uint64, chunks * _CHUNK_BYTES // 8 * width)
    decoder.allocate(chunks * CHUNK * dtype.numpy.itemsize)
    patches = patches_of(decoder, node, metadata.blob(3), 0, dtype)
    place = {"offset": offset, "starts": starts, "faults": decoder.faults}
    out = decode_numbers.unpack(data, width, dtype.numpy, rows, adjustment=adjustment, **place)
    at = 0
    if patches is not None:
        at = patches.children
        values = _adjusted(decoder, patches.values.arrays[0], adjustment)
        decode_rows.patch(out, patches.indices, values, offset=patches.offset, faults=decoder.faults)
    decoder.only_children(node, at + 1 + by_chunk)
    validity = None
    if len(node.children) > at + by_chunk:
        validity = decoder.child(node, at, BOOL, rows).arrays[0]
    return Values(dtype, rows, validity, (out,))


@encoding("fastlanes.for", "fastlanes.for.v2")
def frame_of_reference(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int) -> Values:
    """Integers less a reference, which is added with wrapping."""
    # Metadata: the reference, as a ``ScalarValue``. Children: the differences, of the same type; v2: the
    # references, of each 1,024 rows one.
    dtype = _integers(decoder, node, dtype)
    if node.encoding == "fastlanes.for":
        decoder.only_children(node, 1)
        reference = decode_scalar(node.metadata, dtype, decoder.limits.depth)
        if reference is None:
            raise InvalidMetadata("a frame of reference has no reference", where=node.encoding)
    else:
        decoder.only_children(node, 2)
        reference = decoder.numbers(node, 1, dtype.as_nullable(False), -(-rows // CHUNK))
        reference = reference.view(f"u{reference.dtype.itemsize}")
    return _child(decoder, node, dtype, rows, Adjustment(reference=reference))


@encoding("vortex.zigzag")
def zigzag(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int) -> Values:
    """Signed integers as unsigned ones of the same width: 0, -1, 1, -2 … as 0, 1, 2, 3 …"""
    dtype = _integers(decoder, node, dtype)
    decoder.only_children(node, 1)
    inner = primitive(f"u{dtype.numpy.itemsize}", dtype.nullable)
    values = _child(decoder, node, inner, rows, Adjustment(zigzag=True))
    return values._replace(dtype=dtype, arrays=(values.arrays[0].view(dtype.numpy),))


def _child(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int, adjustment: Adjustment) -> Values:
    """Return the child of a node, adjusted: where it is bit-packed, by the launch that unpacks it."""
    is_packed = bool(node.children) and node.children[0].encoding == _PACKED
    if is_packed and not hasattr(adjustment.reference, "dtype"):
        unpacked: Values = packed(decoder, node.children[0], dtype, rows, adjustment)
        return unpacked
    values = decoder.child(node, 0, dtype, rows)
    return values._replace(arrays=(_adjusted(decoder, values.arrays[0], adjustment),))


def _adjusted(decoder: Decoder, array: Any, adjustment: Adjustment) -> Any:
    if adjustment is _PLAIN:
        return array
    decoder.allocate(array.nbytes)
    return decode_numbers.adjust(array, adjustment)


def _integers(decoder: Decoder, node: ArrayNode, dtype: DType) -> DType:
    dtype = decoder.expect(node, dtype, Kind.PRIMITIVE)
    if dtype.numpy.kind not in "iu":
        raise InvalidMetadata(
            "an encoding does not fit its type", expected="integers", found=str(dtype), where=node.encoding
        )
    return dtype


@encoding("fastlanes.delta")
def delta(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int) -> Values:
    """Differences between integers of the same lane, in chunks of 1,024 in the transposed order of FastLanes."""
    # Metadata: 1 number of differences, 2 how many integers come before the first row, below 1,024.
    # Children: what the lanes of each chunk begin with; the differences; validity, or none. Writers up to
    # 0.76 keep the validity in the differences, and a last chunk of fewer than 1,024 in its plain order,
    # with one value that it begins with.
    dtype = _integers(decoder, node, dtype)
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
    steps, chunks = deltas.arrays[0], whole * CHUNK
    parts = []
    if whole:
        most = min(chunks, offset + rows)
        parts.append(
            decode_numbers.undelta(bases, steps, max(most - offset, 0), offset=offset, faults=decoder.faults)
        )
    if rest and offset + rows > chunks:
        first = bases[-1:].astype(dtype.numpy)
        tail = decoder.xp.cumsum(decoder.xp.concatenate([first, steps[chunks:]]), dtype=dtype.numpy)[1:]
        parts.append(tail[max(offset - chunks, 0) : offset + rows - chunks])
    out = parts[0] if len(parts) == 1 else decoder.xp.concatenate(parts or [steps[:0]])
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


_MOST_LEFT_PARTS: Final = 1 << 16


@encoding("vortex.alp")
def alp(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int) -> Values:
    """Numbers as integers times 10^f times 10^-e, multiplied in this order in the column's own precision."""
    # Metadata: 1 the exponent e, 2 the exponent f, 3 patches. Children: the integers, as wide as the
    # numbers; those of the patches. Validity is that of the integers, and of patches where they are.
    dtype = _floats(decoder, node, dtype)
    metadata = decoder.metadata(node)
    values = decoder.child(node, 0, primitive(f"i{dtype.numpy.itemsize}", dtype.nullable), rows)
    decoder.allocate(values.arrays[0].nbytes)
    out = decode_numbers.scale(values.arrays[0], (int(metadata.uint(1)), int(metadata.uint(2))))
    patches = patches_of(decoder, node, metadata.blob(3), 1, dtype)
    decoder.only_children(node, 1 + (patches.children if patches else 0))
    validity = values.validity
    if patches is not None:
        place = {"offset": patches.offset, "faults": decoder.faults}
        decode_rows.patch(out, patches.indices, patches.values.arrays[0], **place)
        validity = patched_validity(decoder, validity, rows, patches)
    return Values(dtype, rows, validity, (out,))


@encoding("vortex.alprd")
def alp_real_doubles(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int) -> Values:
    """Numbers as their left bits, by a small dictionary, and their right bits as they are."""
    # Metadata: 1 how many bits are right, 2 number of left parts, 3 left parts, 4 type of the codes, 5
    # patches. Children: codes of the left parts; right parts, as wide as the numbers; those of the patches,
    # which are left parts. Validity is that of the codes.
    dtype = _floats(decoder, node, dtype)
    metadata = decoder.metadata(node)
    lefts = metadata.uints(3)
    if len(lefts) > _MOST_LEFT_PARTS or metadata.uint(2) > len(lefts):
        raise InvalidMetadata(
            "a dictionary of left parts is cut off", expected=metadata.uint(2), found=len(lefts)
        )
    kind = decoder.ptype(node, metadata.uint(4))
    codes = decoder.child(node, 0, kind.as_nullable(dtype.nullable), rows)
    rights = decoder.numbers(node, 1, primitive(f"u{dtype.numpy.itemsize}"), rows)
    patches = patches_of(decoder, node, metadata.blob(5), 2, kind)
    decoder.only_children(node, 2 + (patches.children if patches else 0))
    decoder.allocate(rows * dtype.numpy.itemsize)
    out = decode_numbers.join_halves(
        codes.arrays[0],
        rights,
        lefts[: metadata.uint(2)],
        metadata.uint(1),
        patches=None if patches is None else (patches.indices, patches.values.arrays[0], patches.offset),
        validity=codes.validity,
        faults=decoder.faults,
    )
    return Values(dtype, rows, codes.validity, (out,))


def _floats(decoder: Decoder, node: ArrayNode, dtype: DType) -> DType:
    dtype = decoder.expect(node, dtype, Kind.PRIMITIVE)
    if dtype.numpy not in (np.dtype("<f4"), np.dtype("<f8")):
        raise InvalidMetadata(
            "an encoding does not fit its type", expected="f32 or f64", found=str(dtype), where=node.encoding
        )
    return dtype
