"""Encodings that put other arrays together: constants, dictionaries, masks and chunks."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from bowstring.errors import InvalidBody
from bowstring.kernels import bitmap
from bowstring.kernels.vortex import decode_numbers
from bowstring.vortex.decode import encoding
from bowstring.vortex.dtype import DType, Kind, primitive
from bowstring.vortex.scalar import decode_scalar
from bowstring.vortex.values import Values, both_valid, concatenated, from_scalars, size_of, take

if TYPE_CHECKING:
    from bowstring.vortex.decode import Decoder
    from bowstring.vortex.nodes import ArrayNode


@encoding("vortex.constant")
def constant(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int) -> Values:
    """One value for all rows; null for a null scalar.

    Buffers: the value, as an encoded ``ScalarValue``.
    """
    decoder.only_children(node, 0)
    data = decoder.stored_bytes(node, 0)
    return constant_of(decoder, data, dtype, rows)


def constant_of(decoder: Decoder, data: bytes, dtype: DType, rows: int) -> Values:
    """Return an encoded scalar, repeated."""
    dtype = dtype.storage
    if dtype.kind is Kind.NULL:
        return Values(dtype, rows)
    scalar = decode_scalar(data, dtype, decoder.limits.depth)
    if dtype.kind is Kind.PRIMITIVE and scalar is not None:
        assert not isinstance(scalar, bytes | list)
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
    """An array without nulls, and which of its rows are null.

    Children: the array; validity, or none.
    """
    validity = decoder.validity(node, 1, rows)
    values = decoder.child(node, 0, dtype.as_nullable(False), rows)
    return values._replace(validity=both_valid(values.validity, validity, rows))


@encoding("vortex.chunked")
def chunked(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int) -> Values:
    """Arrays one behind the other.

    Children: where each array begins and where the last ends, as ``u64``; the arrays.
    """
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
    return picked(decoder, codes._replace(arrays=(unsigned,)), values)


def picked(decoder: Decoder, codes: Values, values: Values) -> Values:
    """Return the values that codes stand for; the codes of null rows may be any."""
    if values.dtype.kind in (Kind.BOOL, Kind.NULL, Kind.STRUCT):
        _check_codes(decoder, codes, values.length)
    decoder.allocate(codes.length * (1 + size_of(values) // max(values.length, 1)))
    return take(values, codes.arrays[0], codes.validity, decoder.faults)


def _check_codes(decoder: Decoder, codes: Values, length: int) -> None:
    # The kernel that takes bits notes no faults.
    outside = codes.arrays[0] >= length
    if codes.validity is not None:
        outside = outside & bitmap.expanded(codes.validity, 0, codes.length)
    if decoder.any(outside):
        raise InvalidBody("a code of a dictionary stands for no value", expected=f"below {length}")
