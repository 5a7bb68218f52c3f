"""Protocol buffers, read within bounds and written: the metadata of encodings, and scalars.

Which field means what is a matter of the message. A field that is not asked for is passed over, as the format
wants it; a message takes no more memory than its bytes, whatever they say.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from bowstring.errors import InvalidMetadata

if TYPE_CHECKING:
    from collections.abc import Iterable

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
            key = data[at]
            if key < 128 and at + 1 < end and data[at + 1] < 128 and key & 7 == VARINT and key > 7:
                # Most fields are a small number in two bytes.
                self.fields.append(Field(key >> 3, VARINT, data[at + 1]))
                at += 2
                continue
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
        """Return the last field, or ``None`` where there is none."""
        return self.fields[-1] if self.fields else None

    def uint(self, number: int, default: int = 0) -> int:
        """Return an unsigned number, or a default where the field is absent."""
        found = self._last(number, VARINT)
        assert not isinstance(found, bytes)
        return default if found is None else found

    def optional(self, number: int) -> int | None:
        """Return an unsigned number, or ``None`` where the field is absent."""
        found = self._last(number, VARINT)
        assert not isinstance(found, bytes)
        return found

    def blob(self, number: int) -> bytes | None:
        """Return the bytes of a field, or ``None`` where it is absent."""
        found = self._last(number, BYTES)
        assert not isinstance(found, int)
        return found

    def messages(self, number: int) -> list[Message]:
        """Return all messages of a repeated field."""
        found = []
        for field in self.fields:
            if field.number == number:
                if not isinstance(field.value, bytes):
                    raise self._invalid(f"field {number} is no message", field.wire)
                found.append(Message(field.value, self._where))
        return found

    def uints(self, number: int) -> list[int]:
        """Return all numbers of a repeated field, packed or not."""
        found: list[int] = []
        for field in self.fields:
            if field.number != number:
                continue
            if isinstance(field.value, int):
                found.append(field.value)
                continue
            at = 0
            while at < len(field.value):
                value, at = self._varint(field.value, at)
                found.append(value)
        return found

    def _last(self, number: int, wire: int) -> int | bytes | None:
        kind, value = wire, None
        for each, found_kind, found in self.fields:
            if each == number:
                kind, value = found_kind, found
        if kind != wire:
            raise self._invalid(f"field {number} has another type than expected", kind, wire)
        return value

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


def unzigzag(number: int) -> int:
    """Return the signed integer of a ``sint64``."""
    half, odd = number >> 1, number & 1
    return half - odd * (2 * half + 1)


def zigzag(number: int) -> int:
    """Return a signed integer as a ``sint64`` stores it."""
    return ((number << 1) ^ (number >> 63)) & (_UINT64 - 1)


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


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)
