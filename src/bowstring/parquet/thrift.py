"""Thrift's compact protocol: structs as tuples of fields, read within bounds and written again without a loss.

The meaning of a field is a matter of the format that uses it. What is not known here, or not asked for, stays the
bytes that it was: lists, sets and maps are kept whole, and structs are taken apart on request only.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from bowstring.errors import InvalidMetadata, LimitExceeded, Truncated

if TYPE_CHECKING:
    from collections.abc import Iterable

TRUE: Final = 1
FALSE: Final = 2
I8: Final = 3
_I16: Final = 4
I32: Final = 5
_I64: Final = 6
DOUBLE: Final = 7
BINARY: Final = 8
LIST: Final = 9
_SET: Final = 10
_MAP: Final = 11
STRUCT: Final = 12
_UUID: Final = 13

_INTEGERS: Final = frozenset((_I16, I32, _I64))
_SIZES: Final = {TRUE: 1, FALSE: 1, I8: 1, DOUBLE: 8, _UUID: 16}
"""Bytes of elements, where these are always as many."""
_INT64: Final = 1 << 63
_LONG_LIST: Final = 15


class Field(NamedTuple):
    """A field of a struct."""

    id: int
    kind: int  # its type in the compact protocol
    # An integer, a boolean, the bytes of a binary; for everything else, the bytes of its encoding.
    value: int | bool | bytes


class Reader:
    """Reads values one after the other; never beyond the bytes, and never deeper than allowed."""

    __slots__ = ("_depth", "_end", "data", "position")

    def __init__(self, data: bytes, depth: int) -> None:
        self.data = data
        self._depth = depth
        self._end = len(data)
        self.position = 0

    def struct(self) -> list[Field]:
        fields: list[Field] = []
        last = 0
        while (header := self.header(last)) is not None:
            last, kind = header
            fields.append(Field(last, kind, self.value(kind)))
        return fields

    def header(self, last: int) -> tuple[int, int] | None:
        """Read the number and the type of a field; ``None`` at the end of the struct."""
        byte = self._byte()
        if byte == 0:
            return None
        kind = byte & 15
        if not 0 < kind <= _UUID:
            raise InvalidMetadata("no such Thrift type", expected="1 to 13", found=kind, where=self._where())
        number = last + (byte >> 4) if byte >> 4 else self.zigzag()
        if not -0x8000 <= number < 0x8000:
            raise InvalidMetadata("no such field number", found=number, where=self._where())
        return number, kind

    def value(self, kind: int) -> int | bool | bytes:
        if kind in _INTEGERS:
            return self.zigzag()
        if kind == BINARY:
            return self._take(self.varint())
        if kind <= FALSE:
            return kind == TRUE
        if kind == I8:
            byte = self._byte()
            return byte - 256 if byte > 127 else byte
        begin = self.position
        self.skip(kind)
        return self.data[begin : self.position]

    def list_header(self) -> tuple[int, int]:
        byte = self._byte()
        size = byte >> 4
        if size == _LONG_LIST:
            size = self.varint()
        self._expect(size)
        return size, byte & 15

    def skip(self, kind: int) -> None:
        if kind > FALSE:
            self._skip(kind, self._depth)

    def varint(self) -> int:
        """Read an unsigned integer of at most 64 bits."""
        byte = self._byte()
        if byte < 128:
            return byte
        number, shift = byte & 127, 7
        while byte > 127:
            byte = self._byte()
            number |= (byte & 127) << shift
            shift += 7
            if shift > 70 or number >= 1 << 64:
                raise InvalidMetadata("an integer has more than 64 bits", where=self._where())
        return number

    def zigzag(self) -> int:
        number = self.varint()
        return (number >> 1) ^ -(number & 1)

    def _skip(self, kind: int, depth: int) -> None:
        """Pass over a value that is no field, or of a type whose fields are as elements: all but booleans."""
        if kind in _INTEGERS:
            self.varint()
        elif kind == BINARY:
            self._take(self.varint())
        elif kind in _SIZES:
            self._take(_SIZES[kind])
        elif not depth:
            raise LimitExceeded(
                "a footer nests too deeply",
                expected=f"at most Limits.depth = {self._depth}",
                where=self._where(),
            )
        elif kind == STRUCT:
            last = 0
            while (header := self.header(last)) is not None:
                last, inner = header
                if inner > FALSE:
                    self._skip(inner, depth - 1)
        elif kind == _MAP:
            size = self.varint()
            kinds = self._byte() if size else 0
            self._expect(2 * size)
            for _ in range(size):
                self._skip(kinds >> 4, depth - 1)
                self._skip(kinds & 15, depth - 1)
        elif kind in (LIST, _SET):
            size, inner = self.list_header()
            for _ in range(size):
                self._skip(inner, depth - 1)
        else:
            raise InvalidMetadata("no such Thrift type", expected="1 to 13", found=kind, where=self._where())

    def _byte(self) -> int:
        position = self.position
        if position >= self._end:
            raise self._truncated(1)
        self.position = position + 1
        return self.data[position]

    def _take(self, size: int) -> bytes:
        self._expect(size)
        begin = self.position
        self.position = begin + size
        return self.data[begin : begin + size]

    def _expect(self, size: int) -> None:
        if size > self._end - self.position:
            raise self._truncated(size)

    def _truncated(self, size: int) -> Truncated:
        left = self._end - self.position
        return Truncated(
            "a footer ends inside a value", expected=f"{size} bytes", found=left, where=self._where()
        )

    def _where(self) -> str:
        return f"byte {self.position} of the footer"


def encode_struct(fields: Iterable[Field]) -> bytes:
    """Return the encoding of a struct."""
    out = bytearray()
    last = 0
    for number, kind, value in fields:
        stored = (TRUE if value else FALSE) if kind in (TRUE, FALSE) else kind
        if 0 < number - last <= 15:
            out.append((number - last) << 4 | stored)
        else:
            out.append(stored)
            out += encode_integer(number)
        out += _encoded(kind, value)
        last = number
    out.append(0)
    return bytes(out)


def encode_list(kind: int, elements: list[bytes]) -> bytes:
    """Return the encoding of a list whose elements are encoded."""
    size = len(elements)
    header = bytes([min(size, _LONG_LIST) << 4 | kind])
    return b"".join([header, _varint(size) if size >= _LONG_LIST else b"", *elements])


def _encoded(kind: int, value: int | bool | bytes) -> bytes:
    if kind in (TRUE, FALSE):
        return b""
    if isinstance(value, bytes):
        return _varint(len(value)) + value if kind == BINARY else value
    return struct.pack("b", value) if kind == I8 else encode_integer(value)


def encode_integer(number: int) -> bytes:
    """Return the encoding of a signed integer of 16 to 64 bits."""
    if not -_INT64 <= number < _INT64:
        raise InvalidMetadata("an integer has more than 64 bits", found=number)
    return _varint((number << 1) ^ (number >> 63))


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)
