"""The headers of the pages of column chunks, passed over without their bodies.

Work item: a column chunk. A header is a struct of Thrift, with a struct inside of it for each kind of page. What is
known of a chunk are :data:`FACTS` numbers; where the data end before a chunk does, more data from :data:`AT` on
continue it. Of one chunk, up to `most_pages` data pages are a row of :data:`PAGE` numbers each after its facts.
"""

from __future__ import annotations

from typing import Final

from bowstring.kernels.parquet import thrift
from bowstring.kernels.parquet.thrift import keep, kept, level_at, next_value, scalar_at, signed
from bowstring.kernels.types import i64

MORE: Final = thrift.TRUNCATED
"""The data end before the chunk does, or there is no room for more pages."""
TOO_LARGE: Final = i64(3)
"""A page, the largest one, is larger than allowed when it is decompressed, or has lengths that are."""
CONTRADICTED: Final = i64(4)
"""The body of a page claims more values, or longer ones, than its header and its bytes; no kernel sets it here."""

FACTS: Final = i64(17)
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
LENGTHS: Final = i64(12)
"""The bytes of the lengths that pyarrow decodes of one page, before its values."""
PAGES: Final = i64(13)
"""How many data pages come after the facts."""
DENSEST: Final = i64(14)
"""The bytes of a value, on average, of the data page where these are the most."""
DELTA_BYTES: Final = i64(15)
DELTA_LONGEST: Final = i64(16)
"""The bytes of all values of pages in DELTA_BYTE_ARRAY, and those of the longest; no kernel sets them here."""

PAGE: Final = i64(9)
BODY_AT: Final = i64(0)
BODY_RAW: Final = i64(1)
BODY_PACKED: Final = i64(2)
VERSION: Final = i64(3)
ENCODING: Final = i64(4)
COUNT: Final = i64(5)
"""How many values a page has, nulls included."""
REPETITION: Final = i64(6)
DEFINITION: Final = i64(7)
"""Of version 1 the encodings of the levels, of version 2 their bytes."""
IS_PLAIN: Final = i64(8)
"""1 where a page of version 2 is not compressed."""

DEPTH: Final = i64(16)
"""Levels of a header."""
ROOM: Final = i64(77)
"""Numbers of the room of a chunk."""
SLACK: Final = i64(100)
"""So many bytes after a chunk may be its own: parquet-mr before 1.2.9 did not count the header of a dictionary."""

# What is kept of a header: its kind, its sizes, the values of a dictionary; then of each kind of data
# page the values, their encoding, and what levels are.
ENTRIES = i64(3)
FIRST = i64(4)
FIRST_2 = i64(8)
PLAIN = i64(12)
NOTES = i64(13)
# What a struct is.
HEADER = i64(1)
DATA = i64(2)
DICTIONARY = i64(3)
DATA_2 = i64(4)
INT32_END = i64(2147483648)
DELTA_LENGTH = i64(6)
PREFIXES = i64(7)


def role_of(outer, number):
    """Return the role of a struct that is a field of a header."""
    role = thrift.ANYTHING
    if outer == HEADER:
        if number == 5:
            role = DATA
        elif number == 7:
            role = DICTIONARY
        elif number == 8:
            role = DATA_2
    return role


def slot_of(role, number):
    """Return where an integer of a header is kept, -1 where it is not."""
    slot = i64(-1)
    if role == HEADER and number <= 3:
        slot = number - 1
    elif role == DICTIONARY and number == 1:
        slot = ENTRIES
    elif role == DATA and number <= 4:
        # Definition levels come before repetition levels.
        slot = FIRST + number - 1
    elif role == DATA_2:
        if number == 1:
            slot = FIRST_2
        elif number >= 4 and number <= 6:
            slot = FIRST_2 + number - 3
    return slot


def read_pages(item, data, base, floor, ratio, most_pages, facts, room):
    """Pass over the headers of a chunk as far as the data have them; `base` is where these begin in the file.

    Pages of more bytes than `floor` may have `ratio` times those that they are compressed to.
    """
    row = i64(item) * FACTS
    rooms = i64(item) * ROOM
    note = rooms + DEPTH * thrift.LEVEL
    size = i64(len(data))
    status = thrift.OK
    going = True
    while going:
        begin = i64(facts[row + AT])
        last_at = i64(facts[row + END]) + SLACK
        is_whole = i64(facts[row + VALUES]) >= i64(facts[row + WANTED])
        at = begin - base
        if begin > last_at or (begin >= last_at - SLACK and is_whole):
            going = False
            if not is_whole:
                status = thrift.MALFORMED
        elif begin == last_at:
            going = False
        elif at < 0 or at >= size or (most_pages > 0 and i64(facts[row + PAGES]) >= most_pages):
            going = False
            status = MORE
        else:
            # One header.
            for slot in range(NOTES):
                room[note + slot] = i64(-1)
            level = i64(0)
            role = HEADER
            left = thrift.FIELDS
            kinds = i64(0)
            last = i64(0)
            is_open = True
            status = thrift.OK
            while is_open:
                status, kind, number, at, left, kinds, last = next_value(data, at, role, left, kinds, last)
                if status != thrift.OK:
                    is_open = False
                elif kind == 0:
                    if level == 0:
                        is_open = False
                    else:
                        level -= 1
                        role, left, kinds, last = kept(room, rooms + level * thrift.LEVEL)
                elif kind <= thrift.FALSE:
                    if role == DATA_2 and number == 7 and kind == thrift.FALSE:
                        room[note + PLAIN] = i64(1)
                elif kind <= thrift.BINARY or kind == thrift.UUID:
                    status, word, at = scalar_at(data, at, kind)
                    slot = slot_of(role, number)
                    if status == thrift.OK and slot >= 0 and kind >= thrift.I16 and kind <= thrift.I64:
                        value = signed(word)
                        room[note + slot] = value
                        if kind != thrift.I32 or value < 0 or value >= INT32_END:
                            status = thrift.MALFORMED
                else:
                    status, inner_left, inner_kinds, at = level_at(data, at, kind)
                    if status == thrift.OK and level >= DEPTH:
                        status = thrift.MALFORMED
                    if status == thrift.OK:
                        keep(room, rooms + level * thrift.LEVEL, role, left, kinds, last)
                        level += 1
                        role = role_of(role, number)
                        left = inner_left
                        kinds = inner_kinds
                        last = i64(0)
                if status != thrift.OK:
                    is_open = False
            kind_of_page = i64(room[note])
            raw = i64(room[note + 1])
            packed = i64(room[note + 2])
            is_data = kind_of_page == 0 or kind_of_page == 3
            fields = note + FIRST
            if kind_of_page == 3:
                fields = note + FIRST_2
            count = max(i64(room[fields]), i64(0))
            encoding = i64(room[fields + 1])
            lengths = i64(0)
            if is_data and encoding == DELTA_LENGTH:
                lengths = 4 * count
            elif is_data and encoding == PREFIXES:
                lengths = 8 * count
            if status == thrift.OK and (kind_of_page < 0 or raw < 0 or packed < 0):
                status = thrift.MALFORMED
            if status == thrift.OK and base + at + packed > i64(facts[row + END]) + SLACK:
                status = thrift.MALFORMED
            largest = max(raw, lengths)
            if status == thrift.MALFORMED and i64(facts[row + VALUES]) >= i64(facts[row + WANTED]):
                # What comes after the last value is not read.
                status = thrift.OK
                going = False
            elif status != thrift.OK:
                going = False
            elif largest > floor and largest > packed * ratio:
                facts[row + LARGEST] = largest
                status = TOO_LARGE
                going = False
            else:
                if kind_of_page == 2 and i64(facts[row + DICTIONARY_AT]) == 0:
                    facts[row + DICTIONARY_AT] = base + at
                    facts[row + DICTIONARY_RAW] = raw
                    facts[row + DICTIONARY_PACKED] = packed
                    facts[row + DICTIONARY_VALUES] = max(i64(room[note + ENTRIES]), i64(0))
                else:
                    facts[row + LARGEST] = max(i64(facts[row + LARGEST]), raw)
                    facts[row + LENGTHS] = max(i64(facts[row + LENGTHS]), lengths)
                    if is_data:
                        facts[row + VALUES] = i64(facts[row + VALUES]) + count
                        facts[row + DENSEST] = max(i64(facts[row + DENSEST]), raw // max(count, i64(1)))
                        if encoding >= 0 and encoding < 63:
                            facts[row + ENCODINGS] = i64(facts[row + ENCODINGS]) | i64(1) << encoding
                        if most_pages > 0:
                            place = FACTS + i64(facts[row + PAGES]) * PAGE
                            facts[place + BODY_AT] = base + at
                            facts[place + BODY_RAW] = raw
                            facts[place + BODY_PACKED] = packed
                            facts[place + VERSION] = kind_of_page
                            facts[place + ENCODING] = encoding
                            facts[place + COUNT] = count
                            facts[place + DEFINITION] = max(i64(room[fields + 2]), i64(0))
                            facts[place + REPETITION] = max(i64(room[fields + 3]), i64(0))
                            facts[place + IS_PLAIN] = max(i64(room[note + PLAIN]), i64(0))
                            facts[row + PAGES] = i64(facts[row + PAGES]) + 1
                facts[row + RAW] = i64(facts[row + RAW]) + raw
                facts[row + AT] = base + at + packed
    facts[row + STATUS] = status


SIGNATURES = {
    read_pages: ("u8[], i64, i64, i64, i64, i64[]!, i64[]!",),
}
