"""Decoded values: arrays of a device in Arrow's form, and operations on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from bowstring.columnar.batch import Batch
from bowstring.columnar.layout import Layout
from bowstring.columnar.parts import make_batch
from bowstring.columnar.spans import buffer_of
from bowstring.errors import InvalidBody, Unsupported
from bowstring.kernels import bitmap
from bowstring.kernels.launch import run_arrays
from bowstring.kernels.vortex import decode_rows, decode_text
from bowstring.kernels.vortex.arrays import allocate_by
from bowstring.memory.arrays import last_of
from bowstring.vortex.dtype import DType, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bowstring.memory import Device, Region
    from bowstring.vortex.protobuf import Scalar

# Arrow's pool keeps the pages of what is freed. Fresh ones cost more than most decoding.
allocate_by(pa.allocate_buffer)

INLINE: Final = 12
"""Bytes that a view holds itself."""
_NARROW_DECIMAL: Final = 38
_MOST_OFFSET: Final = (1 << 31) - 1
_UUIDS: Final = pa.uuid()
_MOST_CODE: Final = (1 << 32) - 1


class Values(NamedTuple):
    """Decoded values; an extension has the dtype and the arrays of its storage."""

    # Kind       arrays
    # NULL       none
    # BOOL       a bitmap of uint8, beginning with its first bit
    # PRIMITIVE  the values
    # DECIMAL    int64, two words of each value up to 38 digits, four above
    # UTF8       views, two words of uint64 each, then the data buffers as uint8; BINARY the same
    # LIST       offsets, int32, one more than there are rows; one child. Of a fixed size: one child only
    # STRUCT     none; a child for each field
    # Validity is a bitmap of uint8 that begins with its first bit; `None` where nothing is null.

    dtype: DType
    length: int
    validity: Any | None = None
    arrays: tuple[Any, ...] = ()
    children: tuple[Values, ...] = ()


def words_of_decimal(dtype: DType) -> int:
    """Return how many words of 64 bits Arrow has for each value of a decimal."""
    return 2 if dtype.precision <= _NARROW_DECIMAL else 4


def size_of(values: Values) -> Any:
    """Return how many bytes values take, those of nested ones included; of text and binary, the views."""
    own = sum(array.nbytes for array in values.arrays[:1]) + 1
    return own + sum(map(size_of, values.children))


def both_valid(left: Any | None, right: Any | None, length: int) -> Any | None:
    """Return the bitmap of what is valid in two others, each of which may be ``None``."""
    if left is None or right is None:
        return right if left is None else left
    return bitmap.both(left, 0, right, 0, length)


# To Arrow


class Parts(NamedTuple):
    """A column as parts of a batch."""

    nodes: list[Any]  # length and null count of each node, -1 where that is not known
    buffers: list[Any]
    counts: list[int]  # data buffers of each node of views


def parts_of(values: Values, type_: pa.DataType, device: Device) -> Parts:
    """Return a column of an Arrow type as parts, of which the buffers are arrays, or `None`."""
    parts = Parts([], [], [])
    for each in _walk(values, type_, device):
        if each.dtype.kind is Kind.NULL:
            parts.nodes.append((each.length, each.length))
        else:
            parts.nodes.append((each.length, 0 if each.validity is None else -1))
            parts.buffers.append(each.validity)
        parts.buffers.extend(each.arrays)
        if each.dtype.kind in (Kind.UTF8, Kind.BINARY):
            parts.counts.append(len(each.arrays) - 1)
    return parts


def placed(parts: Parts, regions: list[Region], device: Device) -> Parts:
    """Return the parts with spans instead of arrays; their memory is added to the regions."""
    spans = []
    for array in parts.buffers:
        if array is None or not array.nbytes:
            spans.append((0, 0, 0))
        else:
            spans.append((len(regions), 0, array.nbytes))
            regions.append(buffer_of(array, device).region)
    return parts._replace(buffers=spans)


def to_batch(
    columns: Sequence[Parts], regions: Sequence[Region], schema: pa.Schema, rows: int, device: Device
) -> Batch:
    """Return columns, whose buffers are spans of some regions, as a batch over the same memory."""
    table = np.array([node for each in columns for node in each.nodes], np.int64)
    spans = np.array([span for each in columns for span in each.buffers], np.int64)
    return make_batch(
        Batch,
        Layout.of(schema),
        rows,
        table.reshape(-1, 2),
        None,
        [count for each in columns for count in each.counts],
        spans=spans.reshape(-1, 3),
        regions=regions,
        device=device,
    )


def _walk(values: Values, type_: pa.DataType, device: Device) -> Iterator[Values]:
    """Yield the nodes of a column of an Arrow type."""
    if type_ == _UUIDS:
        [elements] = values.children
        if elements.validity is not None:
            valid = device.to_host(bitmap.count_set(elements.validity, 0, elements.length))
            if int(valid[0]) < elements.length:
                raise InvalidBody("a byte of a UUID is null")
        yield values._replace(arrays=elements.arrays, children=())
        return
    yield values
    for at, child in enumerate(values.children):
        yield from _walk(child, type_.field(at).type, device)


# Scalars


def from_scalars(scalars: Sequence[Scalar], dtype: DType, device: Device) -> Values:
    """Return a few scalars as values of a device."""
    dtype = dtype.storage
    kind, count = dtype.kind, len(scalars)
    validity = None
    if kind is Kind.NULL or any(each is None for each in scalars):
        validity = device.from_host(_bits([each is not None for each in scalars]))
    if kind is Kind.NULL:
        return Values(dtype, count)
    if kind in (Kind.LIST, Kind.FIXED_SIZE_LIST, Kind.STRUCT):
        return _nested(scalars, dtype, device)._replace(validity=validity)
    arrays = tuple(device.from_host(each) for each in _host_arrays(scalars, dtype))
    return Values(dtype, count, validity, arrays)


def _bits(flags: Sequence[bool]) -> Any:
    return np.packbits(np.array(flags, np.bool_), bitorder="little")


def _host_arrays(scalars: Sequence[Any], dtype: DType) -> list[Any]:
    kind = dtype.kind
    if kind is Kind.BOOL:
        return [_bits([bool(each) for each in scalars])]
    if kind is Kind.PRIMITIVE:
        size = dtype.numpy.itemsize
        mask = (1 << (8 * size)) - 1
        data = b"".join(((each or 0) & mask).to_bytes(size, "little") for each in scalars)
        return [np.frombuffer(data, dtype.numpy)]
    if kind is Kind.DECIMAL:
        size = 8 * words_of_decimal(dtype)
        try:
            data = b"".join((each or 0).to_bytes(size, "little", signed=True) for each in scalars)
        except OverflowError as error:
            raise InvalidBody("a decimal is out of range", expected=f"{size} bytes") from error
        return [np.frombuffer(data, np.int64)]
    _, views, *data = pa.array([each or b"" for each in scalars], pa.binary_view()).buffers()
    return [np.frombuffer(views, np.uint64), *(np.frombuffer(each, np.uint8) for each in data)]


def _nested(scalars: Sequence[Any], dtype: DType, device: Device) -> Values:
    count = len(scalars)
    if dtype.kind is Kind.STRUCT:
        columns = [
            from_scalars([None if each is None else each[at] for each in scalars], inner, device)
            for at, inner in enumerate(dtype.children)
        ]
        return Values(dtype, count, children=tuple(columns))
    empty: list[Scalar] = [None] * dtype.size
    lists = [empty if each is None else each for each in scalars]
    child = from_scalars([value for each in lists for value in each], dtype.children[0], device)
    if dtype.kind is Kind.FIXED_SIZE_LIST:
        return Values(dtype, count, children=(child,))
    offsets = np.cumsum([0, *map(len, lists)]).astype(np.int32)
    return Values(dtype, count, None, (device.from_host(offsets),), (child,))


# Rows at other places


def take(values: Values, codes: Any, validity: Any | None, faults: Any) -> Values:
    """Return the values that codes stand for, null where a bitmap says so; the codes of null rows may be any."""
    # codes: integers, positions in the values; validity: of the codes; faults: gets codes that are out of range
    count, dtype, kind = codes.size, values.dtype, values.dtype.kind
    if values.length > _MOST_CODE:
        raise Unsupported("rows at other places of a longer array", expected=f"at most {_MOST_CODE} values")
    valid = validity
    if values.validity is not None:
        valid = both_valid(validity, decode_rows.take_bits(codes, values.validity, 0, values.length), count)
    if kind is Kind.BOOL:
        bits = decode_rows.take_bits(codes, values.arrays[0], 0, values.length)
        return Values(dtype, count, valid, (bits,))
    if kind is Kind.PRIMITIVE:
        taken = decode_rows.take(codes, values.arrays[0], validity=validity, faults=faults)
        return Values(dtype, count, valid, (taken,))
    if kind in (Kind.DECIMAL, Kind.UTF8, Kind.BINARY):
        words = words_of_decimal(dtype) if kind is Kind.DECIMAL else 2
        table = values.arrays[0].view(np.uint64)
        taken = decode_rows.take(codes, table, validity=validity, words=words, faults=faults)
        return Values(dtype, count, valid, (taken.view(values.arrays[0].dtype), *values.arrays[1:]))
    if kind is Kind.STRUCT:
        children = tuple(take(child, codes, validity, faults) for child in values.children)
        return Values(dtype, count, valid, (), children)
    if kind is Kind.FIXED_SIZE_LIST:
        return Values(dtype, count, valid, (), (_take_fixed(values, codes, validity, faults),))
    if kind is Kind.LIST:
        offsets = values.arrays[0].astype(np.int64)
        starts = decode_rows.take(codes, offsets[:-1], validity=validity, faults=faults)
        ends = decode_rows.take(codes, offsets[1:], validity=validity, faults=faults)
        return lists_of(dtype, starts, ends - starts, valid, values.children[0], faults)
    return Values(dtype, count)


def _take_fixed(values: Values, codes: Any, validity: Any | None, faults: Any) -> Values:
    size = values.dtype.size

    def places(xp: Any, codes: Any) -> Any:
        first = xp.minimum(codes, max(values.length - 1, 0)).astype(np.int64) * size
        return (first.reshape(-1, 1) + xp.arange(size, dtype=np.int64)).reshape(-1)

    # Codes that stand for nothing are noted here: the places of elements always exist.
    ones = run_arrays(lambda xp, _: xp.ones(values.length, np.uint8), codes)
    decode_rows.take(codes, ones, validity=validity, faults=faults)
    child = values.children[0]
    if values.length and size:
        return take(child, run_arrays(places, codes), None, faults)
    # No list has elements: as many nulls stand in their place.
    count = size * len(codes)
    codes = run_arrays(lambda xp, _: xp.zeros(count, np.uint8), faults)
    nothing = run_arrays(lambda xp, _: xp.zeros(bitmap.bytes_for(count), np.uint8), faults)
    return take(child, codes, nothing, faults)


def lists_of(
    dtype: DType, starts: Any, sizes: Any, validity: Any | None, elements: Values, faults: Any
) -> Values:
    """Return lists whose elements lie anywhere, one list behind the other."""
    # starts, sizes: int64, checked before
    offsets = decode_text.offsets_of(sizes)
    total = last_of(offsets)
    check_offsets(total)

    def places(xp: Any, starts: Any, offsets: Any) -> Any:
        # Where each list begins in the result, subtracted from where it begins in the elements.
        at = xp.arange(total, dtype=np.int64)
        row = xp.searchsorted(offsets[1:], at, side="right")
        return at + (starts - offsets[:-1])[row]

    taken = take(elements, run_arrays(places, starts, offsets), None, faults)
    return Values(dtype, len(sizes), validity, (offsets.astype(np.int32),), (taken,))


def check_offsets(elements: int) -> None:
    """Refuse lists that Arrow's offsets of 32 bits cannot count."""
    if elements > _MOST_OFFSET:
        raise Unsupported(
            "lists with more elements in one batch", expected="at most 2,147,483,647", found=elements
        )


# One behind the other


def concatenated(parts: Sequence[Values], dtype: DType, device: Device, faults: Any) -> Values:
    """Return values one behind the other; of text and binary, only views are copied."""
    dtype = dtype.storage
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return from_scalars([], dtype, device)
    xp, kind = device.xp, dtype.kind
    length = sum(each.length for each in parts)
    validity = None
    if any(each.validity is not None for each in parts):
        flags = [
            xp.ones(each.length, np.bool_)
            if each.validity is None
            else bitmap.expanded(each.validity, 0, each.length)
            for each in parts
        ]
        validity = bitmap.packed(xp.concatenate(flags))
    arrays: tuple[Any, ...] = ()
    children: tuple[Values, ...] = ()
    if kind is Kind.BOOL:
        flags = [bitmap.expanded(each.arrays[0], 0, each.length) for each in parts]
        arrays = (bitmap.packed(xp.concatenate(flags)),)
    elif kind in (Kind.PRIMITIVE, Kind.DECIMAL):
        arrays = (xp.concatenate([each.arrays[0] for each in parts]),)
    elif kind in (Kind.UTF8, Kind.BINARY):
        arrays = _joined_views(xp, parts)
    elif kind in (Kind.STRUCT, Kind.FIXED_SIZE_LIST):
        children = tuple(
            concatenated([each.children[at] for each in parts], inner, device, faults)
            for at, inner in enumerate(dtype.children)
        )
    elif kind is Kind.LIST:
        return _joined_lists(parts, dtype, validity, device, faults)
    return Values(dtype, length, validity, arrays, children)


def _joined_views(xp: Any, parts: Sequence[Values]) -> tuple[Any, ...]:
    views, buffers = [], list[Any]()
    for each in parts:
        # The second word of a longer view is the number of its buffer, and where it begins there.
        words = each.arrays[0].reshape(-1, 2)
        if buffers and len(each.arrays) > 1:
            is_long = (words[:, 0] & np.uint64(0xFFFFFFFF)) > np.uint64(INLINE)
            words = words.copy()
            words[:, 1] += is_long.astype(np.uint64) * np.uint64(len(buffers))
        views.append(words.reshape(-1))
        buffers += each.arrays[1:]
    return xp.concatenate(views), *buffers


def _joined_lists(
    parts: Sequence[Values], dtype: DType, validity: Any | None, device: Device, faults: Any
) -> Values:
    xp, num_elements = device.xp, 0
    starts, sizes = list[Any](), list[Any]()
    for each in parts:
        offsets = each.arrays[0].astype(np.int64)
        starts.append(offsets[:-1] + np.int64(num_elements))
        sizes.append(offsets[1:] - offsets[:-1])
        num_elements += each.children[0].length
    elements = concatenated([each.children[0] for each in parts], dtype.children[0], device, faults)
    # There may be elements between the lists of two parts, so they are not simply joined.
    return lists_of(dtype, xp.concatenate(starts), xp.concatenate(sizes), validity, elements, faults)
