# ruff: noqa: PLR1714  a kernel has no "in", and a branch is for one struct
"""The headers of the pages of column chunks, passed over without their bodies.

Work item: a column chunk. A header is a struct of Thrift's compact protocol, with a struct inside of it for each
kind of page; what is open is kept in room, as for a footer. What is known of a chunk are :data:`FACTS` numbers;
where the data end before a chunk does, more data from :data:`AT` on continue it.
"""

from __future__ import annotations

from typing import Any, Final

from bowstring.kernels.parquet.footer import (
    BINARY,
    BYTE,
    DOUBLE,
    FALSE,
    FIELDS,
    I32,
    I64,
    LAST_FIELD,
    LEVEL,
    MAP,
    STRUCT,
    UUID,
    integer_at,
    signed,
)
from bowstring.kernels.types import i64, u64

OK: Final = i64(0)
MORE: Final = i64(1)
"""The data end before the chunk does."""
MALFORMED: Final = i64(2)
"""No header, or a page that ends after the chunk, before all values have been seen."""

TOO_LARGE: Final = i64(3)
"""A page, the largest one, is larger than allowed when it is decompressed."""

FACTS: Final = i64(12)
AT: Final = i64(0)
"""Where the next header begins in the file."""
END: Final = i64(1)
"""Where the chunk ends."""
WANTED: Final = i64(2)
"""How many values the chunk should have."""
STATUS: Final = i64(3)
VALUES: Final = i64(4)
RAW: Final = i64(5)
"""The bytes of all pages, decompressed."""
LARGEST: Final = i64(6)
"""Those of its largest page but for the dictionary."""
ENCODINGS: Final = i64(7)
"""A bit for each encoding of a data page."""
DICTIONARY_AT: Final = i64(8)
"""Where the body of the dictionary begins, 0 without one."""
DICTIONARY_RAW: Final = i64(9)
DICTIONARY_PACKED: Final = i64(10)
DICTIONARY_VALUES: Final = i64(11)

DEPTH: Final = i64(16)
"""Levels of a header."""
SLACK: Final = i64(100)
"""So many bytes after a chunk may be its own: parquet-mr before 1.2.9 did not count the header of a dictionary."""

# What a struct is.
ANYTHING = i64(0)
HEADER = i64(1)
DATA = i64(2)
DICTIONARY = i64(3)
DATA_2 = i64(4)
INT32_END = i64(2147483648)


def role_of(outer: Any, number: Any) -> Any:
    """Return the role of a struct that is a field of a header."""
    role = ANYTHING
    if outer == HEADER:
        if number == 5:
            role = DATA
        elif number == 7:
            role = DICTIONARY
        elif number == 8:
            role = DATA_2
    return role


def read_pages(item: Any, data: Any, base: Any, floor: Any, ratio: Any, facts: Any, room: Any) -> None:
    """Pass over the headers of a chunk as far as the data have them; `base` is where these begin in the file.

    Pages of more bytes than `floor` may have `ratio` times those that they are compressed to.
    """
    row = i64(item) * FACTS
    rooms = i64(item) * DEPTH * LEVEL
    size = i64(len(data))
    end = i64(facts[row + END])
    wanted = i64(facts[row + WANTED])
    begin = i64(facts[row + AT])
    status = OK
    going = True
    while going:
        values = i64(facts[row + VALUES])
        last_at = end
        if values < wanted:
            last_at = end + SLACK
        at = begin - base
        if begin >= last_at:
            going = False
            if values < wanted and begin > end + SLACK:
                status = MALFORMED
        elif at < 0 or at >= size:
            going = False
            status = MORE
        else:
            # One header.
            kind_of_page = i64(-1)
            raw = i64(-1)
            packed = i64(-1)
            count = i64(0)
            encoding = i64(-1)
            count_2 = i64(0)
            encoding_2 = i64(-1)
            entries = i64(0)
            level = i64(0)
            role = HEADER
            left = FIELDS
            kinds = i64(0)
            last = i64(0)
            is_open = True
            status = OK
            while is_open:
                kind = i64(0)
                number = i64(0)
                if left == FIELDS:
                    if at >= size:
                        status = MORE
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
                                    status = MORE
                            if role != ANYTHING and (number <= last or number > LAST_FIELD):
                                status = max(status, MALFORMED)
                            last = number
                            if kind == 0 or kind > UUID:
                                status = max(status, MALFORMED)
                elif left > 0:
                    left -= 1
                    kind = kinds & 15
                    kinds = kinds >> 4 | kind << 4
                    if kind == 0 or kind > UUID:
                        status = MALFORMED
                    elif kind <= FALSE:
                        kind = BYTE
                if status != OK:
                    is_open = False
                elif kind == 0:
                    if level == 0:
                        is_open = False
                    else:
                        level -= 1
                        place = rooms + level * LEVEL
                        role = i64(room[place])
                        left = i64(room[place + 1])
                        kinds = i64(room[place + 2])
                        last = i64(room[place + 3])
                elif kind <= FALSE:
                    pass
                elif kind == BYTE:
                    at += 1
                elif kind <= I64:
                    good, word, at = integer_at(data, at)
                    value = signed(word)
                    known = (
                        (role == HEADER and number <= 3)
                        or (role == DATA and number <= 2)
                        or (role == DICTIONARY and number == 1)
                        or (role == DATA_2 and (number == 1 or number == 4))
                    )
                    if not good:
                        status = MORE
                    elif known and (kind != I32 or value < 0 or value >= INT32_END):
                        status = MALFORMED
                    elif role == HEADER:
                        if number == 1:
                            kind_of_page = value
                        elif number == 2:
                            raw = value
                        elif number == 3:
                            packed = value
                    elif role == DATA:
                        if number == 1:
                            count = value
                        elif number == 2:
                            encoding = value
                    elif role == DICTIONARY and number == 1:
                        entries = value
                    elif role == DATA_2:
                        if number == 1:
                            count_2 = value
                        elif number == 4:
                            encoding_2 = value
                elif kind == DOUBLE:
                    at += 8
                elif kind == UUID:
                    at += 16
                elif kind == BINARY:
                    good, word, at = integer_at(data, at)
                    if not good or word > u64(size):
                        status = MORE
                    else:
                        at += i64(word)
                else:
                    count_of = FIELDS
                    inside = i64(0)
                    if kind == MAP:
                        good, word, at = integer_at(data, at)
                        count_of = size + 1
                        if good and word <= u64(size):
                            count_of = 2 * i64(word)
                        if count_of > 0 and at < size:
                            byte = i64(data[at])
                            inside = byte >> 4 | (byte & 15) << 4
                            at += 1
                    elif kind != STRUCT:
                        if at >= size:
                            status = MORE
                        else:
                            byte = i64(data[at])
                            at += 1
                            count_of = byte >> 4
                            inside = byte & 15
                            if count_of == 15:
                                good, word, at = integer_at(data, at)
                                count_of = size + 1
                                if good and word <= u64(size):
                                    count_of = i64(word)
                            inside |= inside << 4
                    if count_of > size - at:
                        status = MORE
                    elif level >= DEPTH:
                        status = MALFORMED
                    if status == OK:
                        place = rooms + level * LEVEL
                        room[place] = role
                        room[place + 1] = left
                        room[place + 2] = kinds
                        room[place + 3] = last
                        level += 1
                        role = role_of(role, number)
                        left = count_of
                        kinds = inside
                        last = i64(0)
                if status == OK and at > size:
                    status = MORE
                if status != OK:
                    is_open = False
            if status == OK and (kind_of_page < 0 or raw < 0 or packed < 0):
                status = MALFORMED
            if status == OK and base + at + packed > end + SLACK:
                status = MALFORMED
            if status == MALFORMED and values >= wanted:
                # What comes after the last value is not read.
                status = OK
                going = False
            elif status != OK:
                going = False
            elif raw > floor and raw > packed * ratio:
                facts[row + LARGEST] = raw
                status = TOO_LARGE
                going = False
            else:
                if kind_of_page == 3:
                    count = count_2
                    encoding = encoding_2
                if kind_of_page == 2 and i64(facts[row + DICTIONARY_AT]) == 0:
                    facts[row + DICTIONARY_AT] = base + at
                    facts[row + DICTIONARY_RAW] = raw
                    facts[row + DICTIONARY_PACKED] = packed
                    facts[row + DICTIONARY_VALUES] = entries
                else:
                    facts[row + LARGEST] = max(i64(facts[row + LARGEST]), raw)
                    if kind_of_page == 0 or kind_of_page == 3:
                        facts[row + VALUES] = values + count
                        if encoding >= 0 and encoding < 63:
                            facts[row + ENCODINGS] = i64(facts[row + ENCODINGS]) | i64(1) << encoding
                facts[row + RAW] = i64(facts[row + RAW]) + raw
                begin = base + at + packed
                facts[row + AT] = begin
    facts[row + STATUS] = status


def count_rows(_item: Any, data: Any, width: Any, values: Any, counts: Any) -> None:
    """Count the rows that a page begins: the zeros of its repetition levels of `width` bits.

    Work item: a page. Levels are runs of one level, and of levels bit by bit; those that are missing begin no row.
    """
    size = i64(len(data))
    left = i64(values)
    at = i64(0)
    rows = i64(0)
    while left > 0:
        good, word, at = integer_at(data, at)
        length = i64(word >> u64(1))
        if not good:
            left = i64(0)
        elif word & u64(1) == u64(0):
            end = at + (width + 7) // 8
            level = i64(0)
            while at < end and at < size:
                level |= i64(data[at])
                at += 1
            length = min(length, left)
            if level == 0 and at == end:
                rows += length
            left -= length
        else:
            # Eight levels each; one byte has at most eight.
            groups = min(length, size - at)
            end = min(8 * groups, left)
            bit = 8 * at
            level_at = i64(0)
            while level_at < end and bit + width <= 8 * size:
                level = i64(0)
                last = bit + width
                while bit < last:
                    level |= i64(data[bit >> 3]) >> (bit & 7) & 1
                    bit += 1
                if level == 0:
                    rows += 1
                level_at += 1
            at += groups * width
            left -= end
    counts[0] = rows


SIGNATURES = {
    read_pages: ("u8[], i64, i64, i64, i64[]!, i64[]!",),
    count_rows: ("u8[], i64, i64, i64[]!",),
}
