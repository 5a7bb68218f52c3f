"""Encodings of what repeats or is rare, and of arrays put together: dictionaries, runs, masks, chunks."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from bowstring.errors import InvalidBody, InvalidMetadata
from bowstring.kernels import bitmap
from bowstring.kernels.vortex import decode_numbers, decode_rows
from bowstring.kernels.vortex.decode_numbers import CHUNK
from bowstring.vortex.decode import encoding
from bowstring.vortex.dtype import DType, Kind, primitive
from bowstring.vortex.protobuf import decode_scalar
from bowstring.vortex.rules.numbers import patched_validity, patches_of
from bowstring.vortex.values import Values, both_valid, concatenated, from_scalars, size_of, take

if TYPE_CHECKING:
    from bowstring.vortex.decode import Decoder
    from bowstring.vortex.message import ArrayNode


@encoding("vortex.constant")
def constant(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int) -> Values:
    """One value for all rows; null for a null scalar."""
    # Buffers: the value, as an encoded ``ScalarValue``.
    decoder.only_children(node, 0)
    return constant_of(decoder, decoder.stored_bytes(node, 0), dtype, rows)


def constant_of(decoder: Decoder, data: bytes, dtype: DType, rows: int) -> Values:
    """Return an encoded scalar, repeated."""
    dtype = dtype.storage
    if dtype.kind is Kind.NULL:
        return Values(dtype, rows)
    scalar = decode_scalar(data, dtype, decoder.limits.depth)
    if dtype.kind is Kind.PRIMITIVE and scalar is not None:
        decoder.allocate(rows * dtype.numpy.itemsize)
        bits = decode_numbers.sequence(decoder.faults, scalar, 0, f"u{dtype.numpy.itemsize}", rows)
        return Values(dtype, rows, None, (bits.view(dtype.numpy),))
    one = from_scalars([scalar], dtype, decoder.device)
    if rows == 1:
        return one
    decoder.allocate(rows * (1 + size_of(one)))
    return take(one, decoder.xp.zeros(rows, np.uint8), None, decoder.faults)


@encoding("vortex.masked")
def masked(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int) -> Values:
    """An array without nulls, and which of its rows are null."""
    # Children: the array; validity, or none.
    validity = decoder.validity(node, 1, rows)
    values = decoder.child(node, 0, dtype.as_nullable(False), rows)
    return values._replace(validity=both_valid(values.validity, validity, rows))


@encoding("vortex.chunked")
def chunked(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int) -> Values:
    """Arrays one behind the other."""
    # Children: where each array begins and where the last ends, as ``u64``; the arrays.
    parts = [decoder.decode(child, dtype, length) for child, length in chunks(decoder, node, rows)]
    if len(parts) > 1:
        decoder.allocate(sum(map(size_of, parts)))
    return concatenated(parts, dtype, decoder.device, decoder.faults)


def chunks(decoder: Decoder, node: ArrayNode, rows: int) -> list[tuple[ArrayNode, int]]:
    """Return the arrays of a chunked one, and how many rows each has."""
    ends = decoder.numbers(node, 0, primitive("u8"), len(node.children))
    bounds = decoder.device.to_host(ends).tolist()
    lengths = [end - start for start, end in itertools.pairwise(bounds)]
    if not bounds or any(length < 0 for length in lengths) or sum(lengths) != rows:
        raise InvalidBody(
            "chunks have another number of rows than their array", expected=rows, found=lengths[:8]
        )
    return list(zip(node.children[1:], lengths, strict=True))


@encoding("vortex.dict")
def dictionary(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int) -> Values:
    """Codes, each of which stands for a value. A row is null where its code is, or its value."""
    # Metadata: 1 number of values, 2 type of the codes, signed where they were those of Arrow, 3 whether
    # codes may be null (else as the type), 4 whether all values are used. Children: codes; values.
    decoder.only_children(node, 2)
    metadata = decoder.metadata(node)
    nullable = bool(metadata.uint(3, int(dtype.nullable)))
    kind = decoder.ptype(node, metadata.uint(2), kinds="ui").as_nullable(nullable)
    codes = decoder.child(node, 0, kind, rows)
    unsigned = codes.arrays[0].view(f"u{kind.numpy.itemsize}")  # negative ones stand for no value
    values = decoder.child(node, 1, dtype, metadata.uint(1))
    if values.dtype.kind in (Kind.BOOL, Kind.NULL, Kind.STRUCT):
        # The kernel that takes bits notes no faults.
        outside = unsigned >= values.length
        if codes.validity is not None:
            outside = outside & bitmap.expanded(codes.validity, 0, rows)
        if decoder.any(outside):
            raise InvalidBody("a code of a dictionary stands for no value", expected=f"below {values.length}")
    decoder.allocate(rows * (1 + size_of(values) // max(values.length, 1)))
    return take(values, unsigned, codes.validity, decoder.faults)


@encoding("vortex.runend")
def run_end(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int) -> Values:
    """Runs of one value each. Row i has that of the first run that ends behind it."""
    # Metadata: 1 type of the ends, 2 number of runs, 3 how many rows of the first runs come before the
    # first row. Children: ends, which rise; values.
    decoder.only_children(node, 2)
    metadata = decoder.metadata(node)
    count, offset = metadata.uint(2), metadata.uint(3)
    ends = decoder.numbers(node, 0, decoder.ptype(node, metadata.uint(1)), count)
    values = decoder.child(node, 1, dtype, count)
    if values.dtype.kind is Kind.PRIMITIVE and values.validity is None:
        decoder.allocate(rows * values.dtype.numpy.itemsize)
        out = decode_rows.expand_runs(ends, values.arrays[0], rows, offset=offset, faults=decoder.faults)
        return Values(values.dtype, rows, None, (out,))
    decoder.allocate(rows * (4 + size_of(values) // max(count, 1)))
    numbers = decoder.xp.arange(count, dtype=np.uint32)
    codes = decode_rows.expand_runs(ends, numbers, rows, offset=offset, faults=decoder.faults)
    decoder.finish(node.encoding)  # of what is not written, codes are anything
    return take(values, codes, None, decoder.faults)


@encoding("fastlanes.rle")
def run_lengths(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int) -> Values:
    """Blocks of 1,024 rows that have values of their own, of which indices choose."""
    # Metadata: 1 number of values, 2 number of indices, a multiple of 1,024, 3 their type, 4 number and 5
    # type of the offsets, 6 how many rows come before the first, below 1,024. Children: values; indices,
    # null where the row is; offsets, with which value each block begins, more by the first of them. An
    # index behind the values of its block is the last of them.
    dtype = decoder.expect(node, dtype, Kind.PRIMITIVE)
    decoder.only_children(node, 3)
    metadata = decoder.metadata(node)
    covered, offset = metadata.uint(2), metadata.uint(6)
    if offset >= CHUNK or offset + rows > covered:
        raise InvalidMetadata("indices do not cover the rows", expected=offset + rows, found=covered)
    values = decoder.numbers(node, 0, dtype.as_nullable(False), metadata.uint(1))
    kind = decoder.ptype(node, metadata.uint(3))
    indices = decoder.child(node, 1, kind.as_nullable(dtype.nullable), covered)
    offsets = decoder.numbers(node, 2, decoder.ptype(node, metadata.uint(5)), metadata.uint(4))
    decoder.allocate(rows * dtype.numpy.itemsize)
    validity = indices.validity
    if validity is not None:
        validity = bitmap.shifted(validity, offset, rows)
    out = decode_rows.expand_rle(
        indices.arrays[0], values, offsets, rows, offset=offset, validity=validity, faults=decoder.faults
    )
    return Values(dtype, rows, validity, (out,))


@encoding("vortex.sparse")
def sparse(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int) -> Values:
    """One value for most rows, and others where patches say so."""
    # Metadata: 1 patches. Buffers: the value for most rows, as an encoded ``ScalarValue``. Children: those
    # of the patches.
    patches = patches_of(decoder, node, decoder.metadata(node).blob(1), 0, dtype)
    if patches is None:
        raise InvalidMetadata("a sparse array has no patches", where=node.encoding)
    decoder.only_children(node, patches.children)
    data, place = decoder.stored_bytes(node, 0), {"offset": patches.offset, "faults": decoder.faults}
    if patches.values.dtype.kind is Kind.PRIMITIVE:
        filled = constant_of(decoder, data, dtype, rows)
        out = filled.arrays[0].copy() if rows == 1 else filled.arrays[0]  # of one row, the scalar itself
        decode_rows.patch(out, patches.indices, patches.values.arrays[0], **place)
        validity = patched_validity(decoder, filled.validity, rows, patches)
        return Values(filled.dtype, rows, validity, (out,))
    if patches.values.dtype.kind is Kind.NULL:
        return Values(patches.values.dtype, rows)
    # Each row has a code: 0 for the value of most, others for the patches.
    most = from_scalars([decode_scalar(data, dtype, decoder.limits.depth)], dtype, decoder.device)
    decoder.allocate(rows * 4 + size_of(patches.values))
    values = concatenated([most, patches.values], dtype, decoder.device, decoder.faults)
    codes = decoder.xp.zeros(rows, np.uint32)
    numbers = decoder.xp.arange(1, patches.values.length + 1, dtype=np.uint32)
    decode_rows.patch(codes, patches.indices, numbers, **place)
    decoder.allocate(rows * (size_of(values) // max(values.length, 1)))
    return take(values, codes, None, decoder.faults)


@encoding("vortex.sequence")
def sequence(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int) -> Values:
    """A first number, and each further one greater by a step, wrapping."""
    # Metadata: 1 the first, 2 the step, as ``ScalarValue``.
    dtype = decoder.expect(node, dtype, Kind.PRIMITIVE)
    decoder.only_children(node, 0)
    metadata = decoder.metadata(node)
    first, step = (decode_scalar(metadata.blob(field) or b"", dtype) for field in (1, 2))
    if first is None or step is None or dtype.numpy.kind == "f":
        raise InvalidMetadata("a sequence has no integers", found=str(dtype), where=node.encoding)
    decoder.allocate(rows * dtype.numpy.itemsize)
    out = decode_numbers.sequence(decoder.faults, first, step, dtype.numpy, rows)
    return Values(dtype, rows, None, (out,))
