"""Changes of inputs: of bytes, numbers and lists of anything, and of structs of Thrift and messages of protocol
buffers inside each other.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from bowstring.errors import BowstringError
from bowstring.parquet.thrift import (
    BINARY,
    DOUBLE,
    FALSE,
    I8,
    I32,
    LIST,
    STRUCT,
    TRUE,
    Field,
    Reader,
    encode_integer,
    encode_list,
    encode_struct,
)
from bowstring.vortex.protobuf import FIXED32, encode
from bowstring.vortex.protobuf import Message as Fields

_Item = TypeVar("_Item")
DEPTH: Final = 64
_SET: Final = 10
_INTEGERS: Final = (4, I32, 6)
_BITS: Final = (0, 1, 7, 8, 15, 16, 31, 32, 47, 62, 63)
_DOUBLES: Final = (bytes(8), b"\xff" * 8, b"\0\0\0\0\0\0\xf8\x7f", b"\0\0\0\0\0\0\xf0\xff", b"\1" + bytes(7))


def other_number(rng: random.Random, number: int, bits: int = 64, *, signed: bool = True) -> int:
    """Return another number of so many bits: near the old one, near a power of two, or any."""
    match rng.randrange(5):
        case 0:
            found = number + rng.choice((-8, -1, 1, 8, 64))
        case 1:
            found = number * rng.choice((-1, 2, 1000))
        case 2:
            found = rng.choice((1, -1)) * (1 << rng.choice(_BITS)) + rng.choice((-1, 0, 0, 1))
        case 3:
            found = rng.choice((0, 1, -1, 3, 255))
        case _:
            found = rng.getrandbits(rng.choice((8, 16, bits)))
    found &= (1 << bits) - 1
    return found - (1 << bits) if signed and found >> (bits - 1) else found


def changed_bytes(data: bytes, rng: random.Random) -> bytes:
    """Return bytes of which some are others, left out, doubled, or numbers that matter."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        at, size = rng.randrange(len(changed) + 1), rng.choice((1, 2, 4, 8))
        match rng.randrange(8):
            case 0:
                del changed[at : at + rng.randrange(1, 9)]
            case 1:
                changed[at:at] = changed[at : at + rng.randrange(1, 9)] or b"?"
            case 2 if rng.random() < 0.2:
                del changed[at:]
            case 3 | 4:
                at -= at % size
                old = int.from_bytes(changed[at : at + size], "little")
                number = other_number(rng, old, 8 * size, signed=False).to_bytes(size, "little")
                changed[at : at + size] = number[: len(changed) - at]
            case _ if at < len(changed):
                changed[at] = rng.choice(
                    (0, 1, 0xFF, rng.randrange(256), changed[at] ^ 1 << rng.randrange(8))
                )
    return bytes(changed)


def rearranged(
    items: Sequence[_Item], change: Callable[[_Item], _Item], rng: random.Random, whole: float = 0.4
) -> list[_Item]:
    """Return items of which one is changed; or, so often, left out, repeated, moved, or the rest is cut off."""
    found = list(items)
    if not found:
        return found
    at = rng.randrange(len(found))
    if rng.random() >= whole:
        found[at] = change(found[at])
        return found
    match rng.randrange(5):
        case 0:
            del found[at]
        case 1:
            found[at:at] = [found[at]] * rng.choice((1, 1, 2, 40))
        case 2:
            found.insert(rng.randrange(len(found)), found.pop(at))
        case 3:
            other = rng.randrange(len(found))
            found[at], found[other] = found[other], found[at]
        case _:
            del found[at + 1 :]
    return found


def changed_struct(data: bytes, rng: random.Random) -> bytes:
    """Return a struct of Thrift with another field, at any depth."""
    fields = Reader(data, DEPTH).struct()
    return encode_struct(rearranged(fields, lambda each: changed_field(each, rng), rng, 0.12))


def changed_field(field: Field, rng: random.Random) -> Field:
    """Return a field with another value; seldom of another number or type."""
    kind, value = field.kind, field.value
    if rng.random() < 0.03:
        return field._replace(id=(field.id + rng.choice((-1, 1, 16))) & 0x7FFF)
    if rng.random() < 0.03 and isinstance(value, bytes):
        return field._replace(kind=rng.choice((BINARY, LIST, STRUCT, _SET, DOUBLE)))
    if kind in (TRUE, FALSE):
        return field._replace(value=not value)
    if isinstance(value, int):
        return field._replace(value=other_number(rng, value, 8 if kind == I8 else 64 if kind == 6 else 32))
    return field._replace(value=_changed_value(kind, value, rng))


def _changed_value(kind: int, value: bytes, rng: random.Random) -> bytes:
    if kind == STRUCT:
        return changed_struct(value, rng)
    if kind == DOUBLE:
        return rng.choice(_DOUBLES)
    return _changed_list(value, rng) if kind in (LIST, _SET) else changed_bytes(value, rng)


def _changed_list(data: bytes, rng: random.Random) -> bytes:
    """Return a list of which an element is another, or with more, fewer, or a header that counts wrongly."""
    if rng.random() < 0.03:
        return changed_bytes(data, rng)
    reader = Reader(data, DEPTH)
    size, kind = reader.list_header()
    elements = []
    for _ in range(size):
        begin = reader.position
        reader.skip(I8 if kind in (TRUE, FALSE) else kind)
        elements.append(data[begin : reader.position])

    def change(element: bytes) -> bytes:
        if kind in _INTEGERS:
            return encode_integer(other_number(rng, Reader(element, DEPTH).zigzag(), 32))
        if kind == BINARY:
            return encode_struct([Field(1, BINARY, changed_bytes(_text(element), rng))])[1:-1]
        return _changed_value(kind, element, rng)

    return encode_list(kind, rearranged(elements, change, rng, 0.2))


def _text(element: bytes) -> bytes:
    found = Reader(element, DEPTH).value(BINARY)
    assert isinstance(found, bytes)
    return found


def changed_fields(data: bytes, rng: random.Random) -> bytes:
    """Return a message of protocol buffers with another field, at any depth."""

    def change(field: tuple[int, int, int | bytes]) -> tuple[int, int, int | bytes]:
        number, wire, value = field
        if not isinstance(value, bytes):
            return number, wire, other_number(rng, value, 32 if wire == FIXED32 else 64, signed=False)
        with contextlib.suppress(BowstringError):
            if rng.random() < 0.6:
                return number, wire, changed_fields(value, rng)
        return number, wire, changed_bytes(value, rng)

    return encode(rearranged(Fields(data, "").fields, change, rng, 0.15))
