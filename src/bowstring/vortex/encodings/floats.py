"""Encodings of floating-point numbers: ALP, and ALP for real doubles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from bowstring.errors import InvalidMetadata
from bowstring.kernels.vortex import decode_numbers, decode_rows
from bowstring.kernels.vortex.decode_numbers import Adjustment
from bowstring.vortex.decode import encoding
from bowstring.vortex.dtype import DType, Kind, primitive
from bowstring.vortex.encodings.bitpacked import integers, patched_validity, patches_of
from bowstring.vortex.values import Values

if TYPE_CHECKING:
    from bowstring.vortex.decode import Decoder
    from bowstring.vortex.nodes import ArrayNode

_MOST_LEFT_PARTS: Final = 1 << 16


@encoding("vortex.alp")
def alp(decoder: Decoder, node: ArrayNode, dtype: DType, rows: int) -> Values:
    """Numbers as integers times 10^f times 10^-e, multiplied in this order in the column's own precision."""
    # Metadata: 1 the exponent e, 2 the exponent f, 3 patches. Children: the integers, as wide as the
    # numbers; those of the patches. Validity is that of the integers, and of patches where they are.
    dtype = _floats(decoder, node, dtype)
    metadata = decoder.metadata(node)
    inner = primitive(f"i{dtype.numpy.itemsize}", dtype.nullable)
    if not node.children:
        decoder.child(node, 0, inner, rows)  # raises
    exponents = int(metadata.uint(1)), int(metadata.uint(2))
    values = integers(decoder, node.children[0], inner, rows, Adjustment(exponents=exponents))
    patches = patches_of(decoder, node, metadata.blob(3), 1, dtype)
    decoder.only_children(node, 1 + (patches.children if patches else 0))
    out, validity = values.arrays[0], values.validity
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
