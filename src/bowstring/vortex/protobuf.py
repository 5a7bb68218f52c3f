"""Protocol buffers, read within bounds and written: the metadata of encodings, and scalars.

Which field means what is a matter of the message. A field that is not asked for is passed over, as the format
wants it; a message takes no more memory than its bytes, whatever they say.

A scalar is ``None``, a bool, an integer (also the unscaled value of a decimal), the bits of a floating-point number
as an integer, the bytes of text and binary, or a list of scalars; that of an extension is one of its storage.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from bowstring.errors import InvalidMetadata
from bowstring.vortex.dtype import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bowstring.vortex.dtype import DType


VARINT: Final = 0
FIXED64: Final = 1
BYTES: Final = 2
FIXED32: Final = 5

_FIXED: Final = {FIXED64: struct.Struct("<Q"), FIXED32: struct.Struct("<I")}
_UINT64: Final = 1 << 64
_MOST_FIELD: Final = (1 << 29) - 1


class Field(NamedTuple):
    """One field of a message, as it stands there."""

    number: int
    wire: int  # ``VARINT``, ``FIXED32``, ``FIXED64`` or ``BYTES``
    value: int | bytes  # unsigned, of at most 64 bits; the bytes of a string, a message or packed numbers


class Message:
    """The fields of one message. Of a field that is there twice the last one counts, as the format wants it."""

    __slots__ = ("_where", "fields")

    def __init__(self, data: bytes, where: str) -> None:
        self._where = where
        self.fields: list[Field] = []
        at, end = 0, len(data)
        while at < end:
            key, at = self._varint(data, at)
            number, wire = key >> 3, key & 7
            if not 0 < number <= _MOST_FIELD:
                raise self._invalid("a field has an impossible number", number)
            value, at = self._value(data, at, wire)
            self.fields.append(Field(number, wire, value))

    @staticmethod
    def of(data: Any, where: str) -> Message:
        """Return the message that bytes hold, or those that are recorded."""
        return Message(data, where) if isinstance(data, bytes) else data.message(where)

    def last(self) -> Field | None:
        return self.fields[-1] if self.fields else None

    def uint(self, number: int, default: int = 0) -> int:
        """Return an unsigned number, or a default where the field is absent."""
        value: int | None = self._last(number, VARINT)
        return default if value is None else value

    def blob(self, number: int) -> bytes | None:
        """Return the bytes of a field, or ``None`` where it is absent."""
        value: bytes | None = self._last(number, BYTES)
        return value

    def messages(self, number: int) -> list[Message]:
        messages = []
        for field in self.fields:
            if field.number == number:
                if not isinstance(field.value, bytes):
                    raise self._invalid(f"field {number} is no message", field.wire)
                messages.append(Message(field.value, self._where))
        return messages

    def uints(self, number: int) -> list[int]:
        numbers: list[int] = []
        for field in self.fields:
            if field.number != number:
                continue
            if isinstance(field.value, int):
                numbers.append(field.value)
                continue
            at = 0
            while at < len(field.value):
                value, at = self._varint(field.value, at)
                numbers.append(value)
        return numbers

    def _last(self, number: int, wire: int) -> Any:
        field = next((each for each in reversed(self.fields) if each.number == number), None)
        if field is not None and field.wire != wire:
            raise self._invalid(f"field {number} has another type than expected", field.wire, wire)
        return None if field is None else field.value

    def _value(self, data: bytes, at: int, wire: int) -> tuple[int | bytes, int]:
        if wire == VARINT:
            return self._varint(data, at)
        if wire == BYTES:
            size, at = self._varint(data, at)
        elif wire in _FIXED:
            size = _FIXED[wire].size
        else:
            raise self._invalid("a field has an unknown type", wire, "0, 1, 2 or 5")
        if size > len(data) - at:
            raise self._invalid("a field ends behind its message", size, f"{len(data) - at} bytes at most")
        value = data[at : at + size]
        return (value if wire == BYTES else _FIXED[wire].unpack(value)[0]), at + size

    def _varint(self, data: bytes, at: int) -> tuple[int, int]:
        number = shift = 0
        while at < len(data):
            byte = data[at]
            at += 1
            number |= (byte & 127) << shift
            if byte < 128:
                if number >= _UINT64:
                    break
                return number, at
            shift += 7
            if shift > 63:
                break
        raise self._invalid("an integer is cut off or has more than 64 bits", f"byte {at}")

    def _invalid(self, what: str, found: object, expected: object = None) -> InvalidMetadata:
        return InvalidMetadata(what, expected=expected, found=found, where=self._where)


def encode(fields: Iterable[tuple[int, int, int | bytes]]) -> bytes:
    """Return the encoding of a message: number, type and value of each field, in this order."""
    out = bytearray()
    for number, wire, value in fields:
        out += _varint(number << 3 | wire)
        if isinstance(value, bytes):
            out += _varint(len(value)) + value
        else:
            out += _varint(value) if wire == VARINT else _FIXED[wire].pack(value)
    return bytes(out)


def encode_numbers(*numbers: int) -> bytes:
    """Return the encoding of a message of unsigned numbers, its first fields."""
    return encode([(field, VARINT, number) for field, number in enumerate(numbers, 1)])


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


Scalar = Any  # as the beginning of this module describes

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
    elif kind is Kind.PRIMITIVE and dtype.numpy.kind == "f":
        return _bits(number, wire, value, dtype)
    elif kind is Kind.PRIMITIVE and wire == VARINT and number in (_INT, _UINT):
        return _integer(number, value, dtype)
    raise InvalidMetadata("a scalar is no value of its type", expected=str(dtype), found=f"field {number}")


def _elements(data: bytes, dtype: DType, depth: int) -> Scalar:
    parts = [each.value for each in Message(data, "a list in a scalar").fields if each.number == 1]
    types = dtype.children if dtype.kind is Kind.STRUCT else dtype.children * len(parts)
    expected = dtype.size if dtype.kind is Kind.FIXED_SIZE_LIST else len(types)
    if len(parts) != expected or len(types) != len(parts):
        raise InvalidMetadata("a scalar has the wrong number of parts", expected=expected, found=len(parts))
    elements: list[Scalar] = []
    for element, inner in zip(parts, types, strict=True):
        if not isinstance(element, bytes):
            raise InvalidMetadata("a part of a scalar is no scalar", where=str(dtype))
        elements.append(decode_scalar(element, inner, depth - 1))
    return elements


def _integer(number: int, value: int, dtype: DType) -> int:
    bits, half, odd = 8 * dtype.numpy.itemsize, value >> 1, value & 1
    integer = half - odd * (2 * half + 1) if number == _INT else value  # zigzag
    least = -(1 << (bits - 1)) if dtype.numpy.kind == "i" else 0
    if least <= integer < least + (1 << bits):
        return integer
    return ((integer - least) & (1 << bits) - 1) + least


def _bits(number: int, wire: int, value: int, dtype: DType) -> int:
    own = _FLOAT_FIELDS[dtype.numpy.itemsize]
    if (number, wire) == own:
        return value
    try:  # a value of another width: converted
        bits, letter = _FLOATS[number, wire]
        (real,) = struct.unpack(letter, struct.pack(bits, value))
        packed = struct.pack(_FLOATS[own][1], real)
    except (KeyError, struct.error, OverflowError) as error:
        raise InvalidMetadata(
            "a scalar is no floating-point number, or out of the range of its type",
            expected=str(dtype),
            found=f"field {number}",
        ) from error
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
    if letter == "u":
        return encode([(_UINT, VARINT, value)])
    zigzag = ((value << 1) ^ (value >> 63)) & (_UINT64 - 1)
    return encode([(_INT, VARINT, zigzag)])
