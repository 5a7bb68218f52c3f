"""Element types of tensors: ``Int`` and ``FloatingPoint`` of Schema.fbs as NumPy's types, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from bowstring.errors import InvalidMetadata, Unsupported, UsageError
from bowstring.ipc.flatbuf.builder import Builder, Reference, Scalar
from bowstring.ipc.flatbuf.reader import Tables

__all__ = ["decode_integer", "decode_type", "element_type", "encode_integer", "encode_type", "index_type"]

_INT = 2
_FLOATING_POINT = 3
_FLOATS = (np.dtype("<f2"), np.dtype("<f4"), np.dtype("<f8"))
_WIDTHS = (8, 16, 32, 64)

DType = np.dtype[Any]


def element_type(dtype: npt.DTypeLike) -> DType:
    """Return the type in which elements are written: little-endian, and booleans as ``uint8``, as pyarrow has it.

    Raises
    ------
    UsageError
        Arrow has no tensors of this type.

    Examples
    --------
    >>> element_type(">i2"), element_type(bool)
    (dtype('int16'), dtype('uint8'))
    """
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
    """Return the type in which indices are written.

    Raises
    ------
    UsageError
        They are no integers.

    Examples
    --------
    >>> index_type("u1")
    dtype('uint8')
    """
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
    """Read the element type that the union in the slots `kind_slot` and `slot` of a table holds.

    Raises
    ------
    InvalidMetadata
        There is none, or its parameters are impossible.
    Unsupported
        It is neither an integer nor a float.
    """
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
    """Read the integer type that a field refers to.

    Raises
    ------
    InvalidMetadata
        There is none, or its width is impossible.
    """
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
