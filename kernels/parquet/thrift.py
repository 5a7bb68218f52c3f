"""Thrift's compact protocol, as the kernels of footers and of page headers pass over it.

A struct has fields until a byte of zero, each with its type and a number. A list has its size, and one type of all
elements. What is open, structs and lists inside each other, is kept in room of the work item: for each level its
role, how many elements are left, their types, and the number of the last field.
"""

from __future__ import annotations

from typing import Any, Final

from bowstring.kernels.types import i64, u64

OK: Final = i64(0)
TRUNCATED: Final = i64(1)
MALFORMED: Final = i64(2)
"""No such type, or a field of a known struct that does not follow the one before."""

LEVEL: Final = i64(4)
"""Numbers of each level of the room."""
FIELDS: Final = i64(-1)
"""What is left of a struct."""
ANYTHING: Final = i64(0)
"""The role of a struct or a list of which nothing is wanted."""

# Types.
FALSE: Final = i64(2)
BYTE: Final = i64(3)
I16: Final = i64(4)
I32: Final = i64(5)
I64: Final = i64(6)
DOUBLE: Final = i64(7)
BINARY: Final = i64(8)
LIST: Final = i64(9)
MAP: Final = i64(11)
STRUCT: Final = i64(12)
UUID: Final = i64(13)
LAST_FIELD = i64(32767)
MOST_BITS = u64(63)


def integer_at(data: Any, at: Any) -> Any:
    """Return whether an unsigned integer ends inside of the data, the integer, and its end."""
    number = u64(0)
    shift = u64(0)
    good = False
    going = True
    while going and at < i64(len(data)) and shift <= MOST_BITS:
        byte = u64(data[at])
        number |= (byte & 127) << shift
        shift += 7
        at += 1
        if byte < 128:
            good = True
            going = False
    return good, number, at


def signed(number: Any) -> Any:
    """Return the integer that zigzag makes an unsigned one of."""
    return i64(number >> 1) ^ -i64(number & 1)


def field_at(data: Any, at: Any, role: Any, last: Any) -> Any:
    """Return the status of the head of a field, its type, 0 at the end of a struct, its number, and its end."""
    status = OK
    kind = i64(0)
    number = last
    if at >= i64(len(data)):
        status = TRUNCATED
    else:
        byte = i64(data[at])
        at += 1
        kind = byte & 15
        if byte != 0:
            if byte >> 4 != 0:
                number = last + (byte >> 4)
            else:
                good, word, at = integer_at(data, at)
                number = signed(word)
                if not good:
                    status = TRUNCATED
            # Of a field that is there twice pyarrow takes the last one, and numbers have 16 bits.
            if role != ANYTHING and (number <= last or number > LAST_FIELD):
                status = max(status, MALFORMED)
            if kind == 0 or kind > UUID:
                status = max(status, MALFORMED)
    return status, kind, number, at


def next_value(data: Any, at: Any, role: Any, left: Any, kinds: Any, last: Any) -> Any:
    """Return the status, the type and the number of the next value, its place, and what is open then.

    The type is 0 where what is open ends; elements have no number.
    """
    status = OK
    kind = i64(0)
    number = i64(0)
    if left == FIELDS:
        status, kind, number, at = field_at(data, at, role, last)
        last = number
    elif left > 0:
        left -= 1
        status = OK
        kind = kinds & 15
        if kind == 0 or kind > UUID:
            status = MALFORMED
        elif kind <= FALSE:
            kind = BYTE  # booleans of a list take a byte each
        kinds = kinds >> 4 | (kinds & 15) << 4
    return status, kind, number, at, left, kinds, last


def level_at(data: Any, at: Any, kind: Any) -> Any:
    """Return the status of the head of a struct, a list, a set or a map, its size, its types, and its end.

    A struct has `FIELDS`. Of a map keys come before values: its types are that of the first and of the second.
    """
    end = i64(len(data))
    status = OK
    size = FIELDS
    kinds = i64(0)
    if kind == MAP:
        good, word, at = integer_at(data, at)
        size = end + 1
        if good and word <= u64(end):
            size = 2 * i64(word)
        if size > 0 and at < end:
            byte = i64(data[at])
            kinds = byte >> 4 | (byte & 15) << 4
            at += 1
    elif kind != STRUCT:
        if at >= end:
            status = TRUNCATED
        else:
            byte = i64(data[at])
            at += 1
            size = byte >> 4
            kinds = byte & 15
            if size == 15:
                good, word, at = integer_at(data, at)
                size = end + 1
                if good and word <= u64(end):
                    size = i64(word)
            kinds |= kinds << 4
    # An element takes a byte at least.
    if size > end - at:
        status = TRUNCATED
    return status, size, kinds, at


def scalar_at(data: Any, at: Any, kind: Any) -> Any:
    """Return the status of a number, a UUID or a binary, its end, and as an unsigned integer it, or its size."""
    end = i64(len(data))
    status = OK
    word = u64(0)
    if kind == BYTE:
        at += 1
    elif kind == DOUBLE:
        at += 8
    elif kind == UUID:
        at += 16
    else:
        good, word, at = integer_at(data, at)
        if not good:
            status = TRUNCATED
        elif kind == BINARY:
            # Numbers beyond the data would wrap around.
            at += i64(min(word, u64(end) + 1))
    if at > end:
        status = TRUNCATED
    return status, word, at


def keep(room: Any, place: Any, role: Any, left: Any, kinds: Any, last: Any) -> None:
    """Keep what is open, before a level more."""
    room[place] = role
    room[place + 1] = left
    room[place + 2] = kinds
    room[place + 3] = last


def kept(room: Any, place: Any) -> Any:
    """Return what was open."""
    return i64(room[place]), i64(room[place + 1]), i64(room[place + 2]), i64(room[place + 3])
