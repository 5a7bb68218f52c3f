"""Thrift's compact protocol, from its specification alone: what footers and page headers are written in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

TRUE, FALSE, I8, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
_NUMBERS: Final = (I16, I32, I64)
_LONG: Final = 15


class Field(NamedTuple):
    """A field of a struct: its number, its type, and an integer, a boolean, a binary, or an encoding."""

    id: int
    kind: int
    value: int | bool | bytes


def encode_integer(number: int) -> bytes:
    """Return an integer: zigzag, seven bits a byte."""
    return _varint(2 * number if number >= 0 else -2 * number - 1)


def encode_struct(fields: Iterable[Field]) -> bytes:
    """Return a struct."""
    parts, last = [], 0
    for id_, kind, value in fields:
        step = id_ - last
        parts.append(bytes([step << 4 | kind]) if 0 < step <= _LONG else bytes([kind]) + encode_integer(id_))
        last = id_
        if kind in _NUMBERS:
            parts.append(encode_integer(int(value)))
        elif kind == I8:
            parts.append(bytes([int(value) & 255]))
        elif isinstance(value, bytes):
            parts.append(_varint(len(value)) * (kind == BINARY) + value)
    return b"".join([*parts, b"\0"])


def encode_list(kind: int, elements: list[bytes]) -> bytes:
    """Return a list of encoded elements."""
    size = len(elements)
    head = bytes([size << 4 | kind]) if size < _LONG else bytes([_LONG << 4 | kind]) + _varint(size)
    return head + b"".join(elements)


def struct_of(data: bytes) -> list[Field]:
    """Return the fields of a struct."""
    return _struct(data, 0)[0]


def list_of(data: bytes) -> list[bytes]:
    """Return the encoded elements of a list."""
    size, kind, at = _list_head(data, 0)
    elements = []
    for _ in range(size):
        end = _end(data, at, kind)
        elements.append(data[at:end])
        at = end
    return elements


def _struct(data: bytes, at: int) -> tuple[list[Field], int]:
    fields: list[Field] = []
    last = 0
    while data[at]:
        kind, step = data[at] & 15, data[at] >> 4
        at += 1
        if step:
            last += step
        else:
            number, at = _read_varint(data, at)
            last = _signed(number)
        end = at if kind in (TRUE, FALSE) else _end(data, at, kind)
        value: int | bool | bytes = data[at:end]
        if kind in (TRUE, FALSE):
            value = kind == TRUE
        elif kind in _NUMBERS:
            value = _signed(_read_varint(data, at)[0])
        elif kind == I8:
            value = int.from_bytes(data[at:end], "little", signed=True)
        elif kind == BINARY:
            value = data[_read_varint(data, at)[1] : end]
        fields.append(Field(last, kind, value))
        at = end
    return fields, at + 1


def _end(data: bytes, at: int, kind: int) -> int:
    """Return where a value ends that is no field of its own."""
    if kind in (TRUE, FALSE, I8):
        return at + 1
    if kind == DOUBLE:
        return at + 8
    if kind == STRUCT:
        return _struct(data, at)[1]
    if kind in (LIST, SET):
        size, inner, at = _list_head(data, at)
        for _ in range(size):
            at = _end(data, at, inner)
        return at
    number, at = _read_varint(data, at)
    return at + number if kind == BINARY else at


def _list_head(data: bytes, at: int) -> tuple[int, int, int]:
    size, kind = data[at] >> 4, data[at] & 15
    at += 1
    if size == _LONG:
        size, at = _read_varint(data, at)
    return size, kind, at


def _signed(number: int) -> int:
    return number >> 1 ^ -(number & 1)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        number |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return number, at


def _varint(number: int) -> bytes:
    parts = []
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])


def struct(*fields: tuple[int, int, int | bool | bytes]) -> bytes:
    """Return a struct of fields: a number, a type and a value each."""
    return encode_struct([Field(*each) for each in fields])


def structs(elements: list[bytes]) -> bytes:
    """Return a list of structs."""
    return encode_list(STRUCT, elements)
