"""What the metadata of dense and sparse tensors have in common (Tensor.fbs), every number checked."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bowstring.errors import InvalidMetadata, Unsupported, UsageError
from bowstring.ipc.flatbuf.builder import Builder, Reference, Scalar
from bowstring.ipc.flatbuf.message import Message, MessageKind, MetadataVersion
from bowstring.ipc.flatbuf.reader import Tables

_INT = 2
_FLOATING_POINT = 3
_FLOATS = (np.dtype("<f2"), np.dtype("<f4"), np.dtype("<f8"))
_WIDTHS = (8, 16, 32, 64)
_MOST_DIMENSIONS = 64

DType = np.dtype[Any]


def little_endian(dtype: DType) -> DType:
    """Return a type in the byte order that is written."""
    # By its name, since a type that was turned round does not print as the native one that it is.
    return np.dtype(dtype.newbyteorder("<").str)


def element_type(dtype: npt.DTypeLike) -> DType:
    """Return the type in which elements are written: little-endian, and booleans as ``uint8``, like pyarrow."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return np.dtype(np.uint8)
    little = little_endian(dtype)
    if dtype.kind not in "iu" and little not in _FLOATS:
        raise UsageError(
            "Arrow has no tensors of this type", expected="integers or floats of 16 to 64 bits", found=dtype
        )
    return little


def row_major(shape: Sequence[int], width: int) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor, the last dimension fastest."""
    if 0 in shape:
        return (width,) * len(shape)
    return tuple(width * math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def reach(shape: Sequence[int], strides: Sequence[int], width: int) -> int:
    """Return how many bytes from its start a tensor with these strides covers."""
    if 0 in shape:
        return 0
    return width + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def encode_integer(builder: Builder, dtype: DType) -> Reference:
    """Write an integer type; return the field that refers to it."""
    return Reference(builder.table([Scalar("i", 8 * dtype.itemsize), Scalar("B", dtype.kind == "i")]))


def encode_head(
    builder: Builder, dtype: DType, shape: Sequence[int], names: Sequence[str]
) -> tuple[Scalar, Reference, Reference]:
    """Write element type, extents and names; return the three fields that both kinds of tensors begin with."""
    if dtype.kind == "f":
        kind = Scalar("B", _FLOATING_POINT)
        type_ = Reference(builder.table([Scalar("h", _FLOATS.index(dtype))]))
    else:
        kind, type_ = Scalar("B", _INT), encode_integer(builder, dtype)
    dims = []
    for axis, size in enumerate(shape):
        name = builder.string(names[axis] if names else "")  # empty where there is none, as in Arrow C++
        dims.append(builder.table([Scalar("q", size), Reference(name)]))
    return kind, type_, Reference(builder.references(dims))


def encode_message(builder: Builder, kind: MessageKind, header: int, body_length: int) -> bytes:
    """Finish a flatbuffer as a message without metadata of its own."""
    fields = (
        Scalar("h", MetadataVersion.V5),
        Scalar("B", kind),
        Reference(header),
        Scalar("q", body_length),
    )
    return builder.finish(builder.table(fields))


class TensorTables(Tables):
    """The metadata of one message, whose body has a length."""

    def __init__(self, message: Message) -> None:
        super().__init__(message.data)
        self._body = message.body_length

    def head(self, table: int, slots: Sequence[int], where: str) -> tuple[DType, Any, Any]:
        """Read what a tensor begins with: element type, extents, and names where any dimension has one."""
        kind_slot, type_slot, shape_slot, *_ = slots
        kind, of_type = self.scalar(table, kind_slot, "B", 0, where), f"{where}.type"
        at = self.reference(table, type_slot, of_type)
        if at < 0 or not kind:
            raise InvalidMetadata("a tensor has no type", where=of_type)
        if kind == _INT:
            dtype = self.integer(table, type_slot, of_type)
        elif kind == _FLOATING_POINT:
            precision = self.scalar(at, self.slots(at, of_type)[0], "h", 0, of_type)
            if not 0 <= precision < len(_FLOATS):
                raise InvalidMetadata(
                    "not a precision of floats", expected="0, 1 or 2", found=precision, where=of_type
                )
            dtype = _FLOATS[precision]
        else:
            raise Unsupported(
                f"tensors of the type number {kind} of Schema.fbs; only integers and floats are read"
            )
        where = f"{where}.shape"
        if not shape_slot:
            raise InvalidMetadata(
                "a tensor has no shape", expected="one, even without dimensions", where=where
            )
        _, count = self.vector(table, shape_slot, 4, where)
        if count > _MOST_DIMENSIONS:
            raise Unsupported(f"a tensor of {count} dimensions; NumPy has at most {_MOST_DIMENSIONS}")
        shape, names = [], []
        for dim in self.tables(table, shape_slot, where):
            size, name, *_ = self.slots(dim, where)
            shape.append(self.scalar(dim, size, "q", 0, where))
            try:
                names.append((self.string(dim, name, where) or b"").decode())
            except UnicodeDecodeError as error:
                raise InvalidMetadata("text is not UTF-8", where=where) from error
        if any(size < 0 for size in shape):
            raise InvalidMetadata("an extent is negative", found=tuple(shape), where=where)
        return dtype, tuple(shape), tuple(names) if any(names) else ()

    def integer(self, table: int, slot: int, where: str) -> DType:
        at = self.reference(table, slot, where)
        if at < 0:
            raise InvalidMetadata("indices have no type", where=where)
        width_slot, signed_slot, *_ = self.slots(at, where)
        width = self.scalar(at, width_slot, "i", 0, where)
        if width not in _WIDTHS:
            raise InvalidMetadata("not a width of integers", expected=_WIDTHS, found=width, where=where)
        signed = self.scalar(at, signed_slot, "B", 0, where)
        return np.dtype(f"<{'i' if signed else 'u'}{width // 8}")

    def buffer(self, table: int, slot: int, where: str) -> tuple[int, int]:
        if not slot:
            raise InvalidMetadata("a buffer is missing", where=where)
        offset = self.scalar(table, slot, "q", 0, where)
        nbytes = self.scalar(table, slot + 8, "q", 0, where)
        self.within(offset, nbytes, where)
        return offset, nbytes

    def within(self, offset: int, nbytes: int, where: str) -> None:
        if offset < 0 or nbytes < 0 or offset > self._body - nbytes or offset % 8:
            raise InvalidMetadata(
                "a buffer lies outside the body or is misaligned",
                expected=f"within {self._body} bytes",
                found=f"{nbytes} bytes at {offset}",
                where=where,
            )

    def strides(self, table: int, slot: int, shape: Sequence[int], width: int) -> tuple[int, ...]:
        start, count = self.vector(table, slot, 8, "strides")
        if not count:
            return row_major(shape, width)
        same_count("strides", count, len(shape))
        return struct.unpack_from(f"<{count}q", self.data, start)


def same_count(what: str, found: int, expected: int) -> None:
    """Raise InvalidMetadata where a vector has more or fewer elements than it should, before they are read."""
    if found != expected:
        raise InvalidMetadata(f"wrong number of {what}", expected=expected, found=found)
