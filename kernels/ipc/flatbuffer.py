"""Tables of a flatbuffer, followed only as far as they lie in it. There is no kernel here.

A flatbuffer has `size` bytes from `begin` on; positions in it count from its first byte.
"""

from __future__ import annotations

from typing import Final

from bowstring.kernels.types import i64, u64
from bowstring.kernels.words import half_at, load_word, number_at

NOWHERE: Final = i64(-1)
START: Final = i64(0)
"""Where the reference to the root is."""

# Fields of a table, by number, and bytes of numbers and references.
FIELD0: Final = i64(0)
FIELD1: Final = i64(1)
FIELD2: Final = i64(2)
FIELD3: Final = i64(3)
FIELD4: Final = i64(4)
BYTE: Final = i64(1)
SHORT: Final = i64(2)
REFERENCE: Final = i64(4)
NUMBER: Final = i64(8)


def integer_at(memory, at, bits):
    """Return the signed integer of 16, 32 or 64 bits at an address."""
    number = i64(0)
    if bits == 64:
        number = i64(load_word(memory, at))
    elif bits == 32:
        number = i64(number_at(memory, at) << 32) >> 32
    elif bits == 16:
        number = i64(half_at(memory, at) << 48) >> 48
    return number


def followed(memory, begin, size, position):
    """Return where a reference leads; NOWHERE if it is misaligned, or leads outside."""
    where = NOWHERE
    if position >= 0 and position & 3 == 0 and position <= size - 4:
        distance = i64(number_at(memory, begin + u64(position)))
        if distance >= 4 and distance < size - position:
            where = position + distance
    return where


def vtable_of(memory, begin, size, table):
    """Return where the vtable of a table is, and its bytes; 0 of them where it is broken."""
    vtable = i64(0)
    nbytes = i64(0)
    if table >= 0 and table & 3 == 0 and table <= size - 4:
        at = table - (i64(number_at(memory, begin + u64(table)) << 32) >> 32)
        if at >= 0 and at & 1 == 0 and at <= size - 4:
            vtable = at
            nbytes = i64(half_at(memory, begin + u64(at)))
            if nbytes & 1 != 0 or nbytes < 4 or nbytes > size - at:
                nbytes = i64(0)
    return vtable, nbytes


def field_at(memory, begin, size, table, vtable, nbytes, index, width):
    """Return where a field of a table is: 0 where it is absent, NOWHERE where it is not right."""
    where = i64(0)
    if 6 + 2 * index <= nbytes:
        offset = i64(half_at(memory, begin + u64(vtable + 4 + 2 * index)))
        if offset != 0:
            where = table + offset
            if where > size - width or where & (width - 1) != 0:
                where = NOWHERE
    return where


def vector_at(memory, begin, size, field, width, odd):
    """Return where the first element of a vector is, NOWHERE if that is not right, and how many there are.

    A field of 0 is absent. Elements must not begin where a bit of `odd` is set.
    """
    first = NOWHERE
    count = i64(0)
    if field == 0:
        first = i64(0)
    else:
        start = followed(memory, begin, size, field)
        if start >= 0 and start & 3 == 0 and start <= size - 4:
            count = i64(number_at(memory, begin + u64(start)))
            if count * width <= size - start - 4 and (count == 0 or (start + 4) & odd == 0):
                first = start + 4
    return first, count
