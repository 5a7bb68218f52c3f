"""Scalars: single values as protocol buffers, which constants, fill values and references are stored as.

In Python a scalar is ``None``, a bool, an integer (also the unscaled value of a decimal), the bits of a
floating-point number as an integer, the bytes of text and binary, or a list of scalars. A value of an extension is
stored as that of its storage.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from bowstring.errors import InvalidMetadata
from bowstring.vortex.dtype import Kind
from bowstring.vortex.protobuf import (
    BYTES,
    FIXED32,
    FIXED64,
    VARINT,
    Field,
    Message,
    encode,
    unzigzag,
    zigzag,
)

if TYPE_CHECKING:
    from bowstring.vortex.dtype import DType

Scalar = None | bool | int | bytes | list["Scalar"]

_NULL, _BOOL, _INT, _UINT, _FLOAT, _DOUBLE, _STRING, _BYTES, _LIST, _HALF = range(1, 11)
_WIDTHS: Final = (1, 2, 4, 8, 16, 32)
_FLOAT_FIELDS: Final = {2: (_HALF, VARINT), 4: (_FLOAT, FIXED32), 8: (_DOUBLE, FIXED64)}
_FLOATS: Final = {
    (_HALF, VARINT): ("<H", "<e"),
    (_FLOAT, FIXED32): ("<I", "<f"),
    (_DOUBLE, FIXED64): ("<Q", "<d"),
}


def decode_scalar(data: bytes, dtype: DType, depth: int = 64) -> Scalar:
    """Return the scalar of a type that is encoded as ``ScalarValue``.

    Integers wrap to the width of the type: older writers stored unsigned ones as signed, and the other way round.
    """
    dtype = dtype.storage
    field = Message.of(data, "a scalar").last()
    if field is None or depth < 0:
        raise InvalidMetadata("a scalar has no value, or nests too deeply", where=str(dtype))
    return _of_field(field, dtype, depth)


def decode_number(data: bytes, dtype: DType, depth: int = 64) -> int | None:
    """Return the scalar of a primitive type: an integer, the bits of a floating-point number, or null."""
    found = decode_scalar(data, dtype, depth)
    assert not isinstance(found, bytes | list)
    return found


def _of_field(field: Field, dtype: DType, depth: int) -> Scalar:
    number, wire, value = field
    kind = dtype.kind
    if number == _NULL:
        return None
    if isinstance(value, bytes):
        if number in (_STRING, _BYTES) and kind in (Kind.UTF8, Kind.BINARY):
            return value
        if number == _BYTES and kind is Kind.DECIMAL and len(value) in _WIDTHS:
            return int.from_bytes(value, "little", signed=True)
        if number == _LIST and kind in (Kind.LIST, Kind.FIXED_SIZE_LIST, Kind.STRUCT):
            return _elements(value, dtype, depth)
    elif number == _BOOL and kind is Kind.BOOL:
        return bool(value)
    elif kind is Kind.PRIMITIVE:
        return _number(number, wire, value, dtype)
    raise InvalidMetadata("a scalar is no value of its type", expected=str(dtype), found=f"field {number}")


def _elements(data: bytes, dtype: DType, depth: int) -> Scalar:
    found = [each.value for each in Message(data, "a list in a scalar").fields if each.number == 1]
    types = dtype.children if dtype.kind is Kind.STRUCT else dtype.children * len(found)
    expected = dtype.size if dtype.kind is Kind.FIXED_SIZE_LIST else len(types)
    if len(found) != expected or len(types) != len(found):
        raise InvalidMetadata("a scalar has the wrong number of parts", expected=expected, found=len(found))
    elements: list[Scalar] = []
    for element, inner in zip(found, types, strict=True):
        if not isinstance(element, bytes):
            raise InvalidMetadata("a part of a scalar is no scalar", where=str(dtype))
        elements.append(decode_scalar(element, inner, depth - 1))
    return elements


def _number(number: int, wire: int, value: int, dtype: DType) -> int:
    letter, bits = dtype.numpy.kind, 8 * dtype.numpy.itemsize
    if letter == "f":
        found = _bits(number, wire, value, dtype)
    elif wire != VARINT or number not in (_INT, _UINT):
        raise InvalidMetadata("a scalar is no integer", expected=str(dtype), found=f"field {number}")
    else:
        found = unzigzag(value) if number == _INT else value
    least = -(1 << (bits - 1)) if letter == "i" else 0
    if least <= found < least + (1 << bits):
        return found
    return ((found - least) & (1 << bits) - 1) + least


def _bits(number: int, wire: int, value: int, dtype: DType) -> int:
    own = _FLOAT_FIELDS[dtype.numpy.itemsize]
    if (number, wire) == own:
        return value
    if (number, wire) not in _FLOATS:
        raise InvalidMetadata(
            "a scalar is no floating-point number", expected=str(dtype), found=f"field {number}"
        )
    # A value of another width: converted.
    bits, letter = _FLOATS[number, wire]
    try:
        (real,) = struct.unpack(letter, struct.pack(bits, value))
        packed = struct.pack(_FLOATS[own][1], real)
    except (struct.error, OverflowError) as error:
        raise InvalidMetadata("a scalar is out of the range of its type", expected=str(dtype)) from error
    return int.from_bytes(packed, "little")


def encode_scalar(value: Scalar, dtype: DType) -> bytes:
    """Return the encoding of a scalar of a type."""
    dtype = dtype.storage
    kind = dtype.kind
    if value is None:
        return encode([(_NULL, VARINT, 0)])
    if isinstance(value, bytes):
        return encode([(_STRING if kind is Kind.UTF8 else _BYTES, BYTES, value)])
    if isinstance(value, list):
        types = dtype.children if kind is Kind.STRUCT else dtype.children * len(value)
        parts = [(1, BYTES, encode_scalar(*each)) for each in zip(value, types, strict=True)]
        return encode([(_LIST, BYTES, encode(parts))])
    if kind is Kind.BOOL:
        return encode([(_BOOL, VARINT, int(value))])
    if kind is Kind.DECIMAL:
        width = 16 if dtype.precision <= 38 else 32
        return encode([(_BYTES, BYTES, value.to_bytes(width, "little", signed=True))])
    letter, size = dtype.numpy.kind, dtype.numpy.itemsize
    if letter == "f":
        return encode([(*_FLOAT_FIELDS[size], value)])
    return encode([(_INT, VARINT, zigzag(value)) if letter == "i" else (_UINT, VARINT, value)])
