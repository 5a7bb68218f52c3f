"""The metadata of dense tensors (Tensor.fbs), decoded with every number checked, and encoded as Arrow C++ does."""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bowstring.errors import InvalidMetadata, Unsupported, UsageError
from bowstring.ipc.flatbuf.builder import Builder, Reference, Scalar, Struct
from bowstring.ipc.flatbuf.message import Message, MessageKind, MetadataVersion
from bowstring.ipc.flatbuf.reader import Slots, Tables

if TYPE_CHECKING:
    from collections.abc import Sequence

_INT = 2
_FLOATING_POINT = 3
_FLOATS = (np.dtype("<f2"), np.dtype("<f4"), np.dtype("<f8"))
_WIDTHS = (8, 16, 32, 64)

DType = np.dtype[Any]


def element_type(dtype: npt.DTypeLike) -> DType:
    """Return the type in which elements are written: little-endian, and booleans as ``uint8``, like pyarrow."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return np.dtype(np.uint8)
    little = _little(dtype)
    if dtype.kind not in "iu" and little not in _FLOATS:
        raise UsageError(
            "Arrow has no tensors of this type", expected="integers or floats of 16 to 64 bits", found=dtype
        )
    return little


def index_type(dtype: npt.DTypeLike) -> DType:
    """Return the type in which indices are written."""
    dtype = np.dtype(dtype)
    if dtype.kind not in "iu":
        raise UsageError("indices must be integers", found=dtype)
    return _little(dtype)


def encode_type(builder: Builder, dtype: DType) -> tuple[Scalar, Reference]:
    """Write an element type; return the two fields of the union ``Type``."""
    if dtype.kind == "f":
        table = builder.table([Scalar("h", _FLOATS.index(dtype))])
        return Scalar("B", _FLOATING_POINT), Reference(table)
    return Scalar("B", _INT), encode_integer(builder, dtype)


def encode_integer(builder: Builder, dtype: DType) -> Reference:
    """Write an integer type; return the field that refers to it."""
    return Reference(builder.table([Scalar("i", 8 * dtype.itemsize), Scalar("B", dtype.kind == "i")]))


def decode_type(tables: Tables, table: int, kind_slot: int, slot: int, where: str) -> DType:
    """Read the element type that the union in the slots `kind_slot` and `slot` of a table holds."""
    kind = tables.scalar(table, kind_slot, "B", 0, where)
    at = tables.reference(table, slot, where)
    if at < 0 or not kind:
        raise InvalidMetadata("a tensor has no type", where=where)
    if kind == _INT:
        return _integer(tables, at, where)
    if kind == _FLOATING_POINT:
        precision = tables.scalar(at, tables.slots(at, where)[0], "h", 0, where)
        if not 0 <= precision < len(_FLOATS):
            raise InvalidMetadata(
                "not a precision of floats", expected="0, 1 or 2", found=precision, where=where
            )
        return _FLOATS[precision]
    raise Unsupported(f"tensors of the type number {kind} of Schema.fbs; only integers and floats are read")


def decode_integer(tables: Tables, table: int, slot: int, where: str) -> DType:
    """Read the integer type that a field refers to."""
    at = tables.reference(table, slot, where)
    if at < 0:
        raise InvalidMetadata("indices have no type", where=where)
    return _integer(tables, at, where)


def _little(dtype: DType) -> DType:
    # By its name, since a type that was turned round does not print as the native one that it is.
    return np.dtype(dtype.newbyteorder("<").str)


def _integer(tables: Tables, at: int, where: str) -> DType:
    width_slot, signed_slot, *_ = tables.slots(at, where)
    width = tables.scalar(at, width_slot, "i", 0, where)
    if width not in _WIDTHS:
        raise InvalidMetadata("not a width of integers", expected=_WIDTHS, found=width, where=where)
    signed = tables.scalar(at, signed_slot, "B", 0, where)
    return np.dtype(f"<{'i' if signed else 'u'}{width // 8}")


_MOST_DIMENSIONS = 64
_MOST_BYTES = 2**63 - 1


class TensorHeader(NamedTuple):
    """``Tensor`` of Tensor.fbs."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in bytes
    dim_names: tuple[str, ...]  # one per dimension, or empty
    offset: int  # of the elements in the body
    nbytes: int


def row_major(shape: Sequence[int], width: int) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor, the last dimension fastest."""
    if 0 in shape:
        return (width,) * len(shape)
    return tuple(width * math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def decode_tensor(message: Message) -> TensorHeader:
    """Decode the header of a tensor message; its elements lie within the message's body."""
    slots = header_slots(message, MessageKind.TENSOR)
    tables, table, where = Tables(message.data), message.header, "Tensor"
    dtype = decode_type(tables, table, slots[0], slots[1], "Tensor.type")
    shape, names = decode_shape(tables, table, slots[2], "Tensor.shape")
    strides = decode_strides(tables, table, slots[3], shape, dtype.itemsize)
    offset, nbytes = decode_buffer(tables, table, slots[4], message.body_length, "Tensor.data")
    if any(stride < 0 for stride in strides):
        raise InvalidMetadata("a stride is negative", found=strides, where=where)
    # NumPy multiplies what is not 0, whatever else is.
    if math.prod(size for size in shape if size) * dtype.itemsize > _MOST_BYTES:
        raise InvalidMetadata("a tensor is larger than any memory", found=shape, where=where)
    needed = reach(shape, strides, dtype.itemsize)
    if needed > nbytes:
        raise InvalidMetadata(
            "a tensor reaches beyond its data", expected=f"at most {nbytes} bytes", found=needed, where=where
        )
    return TensorHeader(dtype, shape, strides, names, offset, nbytes)


def encode_tensor(header: TensorHeader) -> bytes:
    """Encode a tensor message whose body are the elements alone."""
    builder = Builder()
    kind, type_ = encode_type(builder, header.dtype)
    shape = encode_shape(builder, header.shape, header.dim_names)
    strides = builder.vector("q", header.strides)
    data = Struct("qq", (header.offset, header.nbytes))
    table = builder.table([kind, type_, shape, Reference(strides), data])
    return encode_message(builder, MessageKind.TENSOR, table, header.offset + header.nbytes)


def encode_message(builder: Builder, kind: MessageKind, header: int, body_length: int) -> bytes:
    """Finish a flatbuffer as a message without metadata of its own."""
    fields = (
        Scalar("h", MetadataVersion.V5),
        Scalar("B", kind),
        Reference(header),
        Scalar("q", body_length),
    )
    return builder.finish(builder.table(fields))


def header_slots(message: Message, kind: MessageKind) -> Slots:
    """Return the slots of a message's header, which must be of `kind`."""
    if message.kind is not kind:
        names = {MessageKind.TENSOR: "read_tensor", MessageKind.SPARSE_TENSOR: "read_sparse_tensor"}
        reader = names.get(message.kind, "open_stream")
        raise InvalidMetadata(
            "a message of another kind", expected=kind.name, found=message.kind.name, hint=f"Use {reader}."
        )
    return Tables(message.data).slots(message.header, kind.name)


def decode_shape(
    tables: Tables, table: int, slot: int, where: str
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Read a vector of ``TensorDim``, which must be there: extents, and names where any dimension has one."""
    if not slot:
        raise InvalidMetadata("a tensor has no shape", expected="one, even without dimensions", where=where)
    _, count = tables.vector(table, slot, 4, where)
    if count > _MOST_DIMENSIONS:
        raise Unsupported(f"a tensor of {count} dimensions; NumPy has at most {_MOST_DIMENSIONS}")
    shape, names = [], []
    for dim in tables.tables(table, slot, where):
        size, name, *_ = tables.slots(dim, where)
        shape.append(tables.scalar(dim, size, "q", 0, where))
        names.append(_text(tables.string(dim, name, where) or b"", where))
    if any(size < 0 for size in shape):
        raise InvalidMetadata("an extent is negative", found=tuple(shape), where=where)
    return tuple(shape), tuple(names) if any(names) else ()


def encode_shape(builder: Builder, shape: Sequence[int], names: Sequence[str]) -> Reference:
    """Write a vector of ``TensorDim``; a dimension without a name has an empty one, as in Arrow C++."""
    dims = []
    for axis, size in enumerate(shape):
        name = builder.string(names[axis] if names else "")
        dims.append(builder.table([Scalar("q", size), Reference(name)]))
    return Reference(builder.references(dims))


def decode_buffer(tables: Tables, table: int, slot: int, body_length: int, where: str) -> tuple[int, int]:
    """Read a ``Buffer`` in a table: its offset in the body, a multiple of 8, and its length in bytes."""
    if not slot:
        raise InvalidMetadata("a buffer is missing", where=where)
    offset = tables.scalar(table, slot, "q", 0, where)
    nbytes = tables.scalar(table, slot + 8, "q", 0, where)
    within(offset, nbytes, body_length, where)
    return offset, nbytes


def within(offset: int, nbytes: int, body_length: int, where: str) -> None:
    """Raise InvalidMetadata where a buffer is not within the body, or not at a multiple of 8."""
    if offset < 0 or nbytes < 0 or offset > body_length - nbytes or offset % 8:
        raise InvalidMetadata(
            "a buffer lies outside the body or is misaligned",
            expected=f"within {body_length} bytes",
            found=f"{nbytes} bytes at {offset}",
            where=where,
        )


def decode_strides(
    tables: Tables, table: int, slot: int, shape: tuple[int, ...], width: int
) -> tuple[int, ...]:
    """Read the strides of a tensor of this shape; row-major where they are absent."""
    start, count = tables.vector(table, slot, 8, "strides")
    if not count:
        return row_major(shape, width)
    same_count("strides", count, len(shape))
    return struct.unpack_from(f"<{count}q", tables.data, start)


def same_count(what: str, found: int, expected: int) -> None:
    """Raise InvalidMetadata where a vector has more or fewer elements than it should, before they are read."""
    if found != expected:
        raise InvalidMetadata(f"wrong number of {what}", expected=expected, found=found)


def reach(shape: Sequence[int], strides: Sequence[int], width: int) -> int:
    """Return how many bytes from its start a tensor with these strides covers."""
    if 0 in shape:
        return 0
    return width + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def _text(data: bytes, where: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidMetadata("text is not UTF-8", where=where) from error
