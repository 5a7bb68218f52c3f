"""Encodings of nested values: structs, and lists of three kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bowstring.errors import InvalidBody, InvalidMetadata
from bowstring.kernels import bitmap
from bowstring.kernels.vortex import decode_text
from bowstring.memory.arrays import last_of
from bowstring.vortex.decode import encoding
from bowstring.vortex.dtype import BOOL, Kind
from bowstring.vortex.values import Values, check_offsets, lists_of, size_of

if TYPE_CHECKING:
    from bowstring.vortex.decode import Decoder
    from bowstring.vortex.dtype import DType
    from bowstring.vortex.nodes import ArrayNode


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
    """Lists of the size that the type says.

    Children: elements, the size times as many as rows; validity, or none.
    """
    dtype = decoder.expect(node, dtype, Kind.FIXED_SIZE_LIST)
    elements = decoder.child(node, 0, dtype.children[0], rows * dtype.size)
    return Values(dtype, rows, decoder.validity(node, 1, rows), (), (elements,))


def _int64(decoder: Decoder, integers: Any) -> Any:
    decoder.allocate(8 * len(integers))
    if integers.dtype == np.uint64:  # beyond 2^63 they would turn negative
        decoder.check_below(integers, 1 << 63, "the offsets of lists")
    return integers.astype(np.int64)
