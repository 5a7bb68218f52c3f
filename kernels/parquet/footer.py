# ruff: noqa: PLR1714, SIM102, SIM114  a kernel has no "in", and a branch is for one struct
"""The footer of a Parquet file, passed over once: its column chunks, and how much memory a reader of it needs.

Work item: a footer. It is a struct of Thrift's compact protocol. What is open, structs and lists inside each
other, is kept in room of the work item: for each level its role, how many elements are left, their types, and the
number of the last field. The memory is that of pyarrow's structs, which are counted before it makes them.

`facts` has a row of :data:`FACTS` numbers for each column chunk; what a chunk does not have is -1.
"""

from __future__ import annotations

from typing import Any, Final

from bowstring.kernels.types import i64, u64

OK: Final = i64(0)
TRUNCATED: Final = i64(1)
MALFORMED: Final = i64(2)
"""No such type, a field of a known struct that does not follow the one before, or a list of other elements."""
TOO_DEEP: Final = i64(3)
TOO_LARGE: Final = i64(4)
"""The structs of the footer take more memory than allowed."""
MISMATCH: Final = i64(5)
"""A row group has more or fewer column chunks than there are columns."""

FACTS: Final = i64(13)
"""Numbers of a column chunk."""
TYPE: Final = i64(0)
VALUES: Final = i64(1)
UNCOMPRESSED: Final = i64(2)
COMPRESSED: Final = i64(3)
DATA_PAGE: Final = i64(4)
DICTIONARY_PAGE: Final = i64(5)
CODEC: Final = i64(6)
ENCODINGS: Final = i64(7)
"""A bit for each encoding."""
TEXT_BYTES: Final = i64(8)
REPETITIONS: Final = i64(9)
DEFINITIONS: Final = i64(10)
"""How many levels the histograms have."""
FLAGS: Final = i64(11)
HAS_METADATA: Final = i64(1)
ENCRYPTED: Final = i64(2)
BOUND: Final = i64(12)
"""The bytes of the shortest bound of the statistics."""

STATUS: Final = i64(0)
GROUPS: Final = i64(1)
CHUNKS: Final = i64(2)
PAIRS: Final = i64(3)
MEMORY: Final = i64(4)
PLACE: Final = i64(5)
COUNTS: Final = i64(6)
"""Numbers of a footer."""
LEVEL: Final = i64(4)
"""Numbers of each level of the room."""

# What a struct or a list is of the footer.
ANYTHING = i64(0)
FOOTER = i64(1)
ROW_GROUPS = i64(2)
ROW_GROUP = i64(3)
CHUNK_LIST = i64(4)
CHUNK = i64(5)
METADATA = i64(6)
ENCODING_LIST = i64(7)
SIZES = i64(8)
STATISTICS = i64(9)
# Types of Thrift.
FALSE = i64(2)
BYTE = i64(3)
I16 = i64(4)
I32 = i64(5)
I64 = i64(6)
DOUBLE = i64(7)
BINARY = i64(8)
LIST = i64(9)
SET = i64(10)
MAP = i64(11)
STRUCT = i64(12)
UUID = i64(13)
FIELDS = i64(-1)
LAST_FIELD = i64(32767)
# Bytes of pyarrow's memory, measured: of a chunk and what it always has, of another struct, of text, of a number.
CHUNK_BYTES = i64(1024)
STRUCT_BYTES = i64(128)
TEXT_SIZE = i64(32)
ELEMENT_BYTES = i64(8)
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


def role_of(outer: Any, number: Any) -> Any:
    """Return the role of a field of a struct, or of an element of a list."""
    role = ANYTHING
    if outer == FOOTER and number == 4:
        role = ROW_GROUPS
    elif outer == ROW_GROUPS:
        role = ROW_GROUP
    elif outer == ROW_GROUP and number == 1:
        role = CHUNK_LIST
    elif outer == CHUNK_LIST:
        role = CHUNK
    elif outer == CHUNK and number == 3:
        role = METADATA
    elif outer == METADATA and number == 2:
        role = ENCODING_LIST
    elif outer == METADATA and number == 16:
        role = SIZES
    elif outer == METADATA and number == 12:
        role = STATISTICS
    return role


def fact_of(number: Any) -> Any:
    """Return where the facts of a chunk have an integer of its metadata, -1 where they do not."""
    fact = i64(-1)
    if number == 1:
        fact = TYPE
    elif number == 4:
        fact = CODEC
    elif number == 5:
        fact = VALUES
    elif number == 6:
        fact = UNCOMPRESSED
    elif number == 7:
        fact = COMPRESSED
    elif number == 9:
        fact = DATA_PAGE
    elif number == 11:
        fact = DICTIONARY_PAGE
    return fact


def elements_of(role: Any, number: Any) -> Any:
    """Return the type of the elements of a list that is a field of a known struct, 0 of another field."""
    kind = i64(0)
    if role == FOOTER and (number == 4 or number == 5 or number == 7):
        kind = STRUCT
    elif role == ROW_GROUP and (number == 1 or number == 4):
        kind = STRUCT
    elif role == METADATA:
        if number == 2:
            kind = I32
        elif number == 3:
            kind = BINARY
        elif number == 8 or number == 13:
            kind = STRUCT
    elif role == SIZES and (number == 2 or number == 3):
        kind = I64
    return kind


def element_bytes(role: Any, kind: Any) -> Any:
    """Return the memory of an element of a list."""
    size = ELEMENT_BYTES
    if role == CHUNK_LIST:
        size = CHUNK_BYTES
    elif kind == STRUCT:
        size = STRUCT_BYTES
    elif kind >= BINARY:
        size = TEXT_SIZE
    return size


def read_footer(
    _item: Any, data: Any, columns: Any, most: Any, depth: Any, room: Any, facts: Any, counts: Any
) -> None:
    """Pass over the fields of a footer that come after its schema.

    `most` bounds the memory, `depth` the levels. Nothing is written beyond the end of `facts`.
    """
    status = OK
    end = i64(len(data))
    held = i64(len(facts))
    at = i64(0)
    groups = i64(0)
    chunks = i64(0)
    pairs = i64(0)
    memory = i64(0)
    row = i64(0)
    level = i64(0)
    role = FOOTER
    left = FIELDS
    kinds = i64(0)
    last = i64(2)
    going = True
    while going:
        # The next value: its type and, of a struct, its number.
        kind = i64(0)
        number = i64(0)
        if left == FIELDS:
            if at >= end:
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
                        status = MALFORMED
                    last = number
                    if kind == 0 or kind > UUID:
                        status = MALFORMED
        elif left > 0:
            left -= 1
            kind = kinds & 15
            kinds = kinds >> 4 | kind << 4
            if kind == 0 or kind > UUID:
                status = MALFORMED
            elif kind <= FALSE:
                kind = BYTE  # booleans of a list take a byte each
        if status != OK:
            going = False
        elif kind == 0:
            # The end of a struct or a list.
            if level == 0:
                going = False
            else:
                level -= 1
                place = level * LEVEL
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
            if not good:
                status = TRUNCATED
            elif row + FACTS <= held:
                if role == METADATA:
                    fact = fact_of(number)
                    if fact >= 0:
                        facts[row + fact] = value
                elif role == ENCODING_LIST and value >= 0 and value < 63:
                    facts[row + ENCODINGS] = i64(facts[row + ENCODINGS]) | i64(1) << value
                elif role == SIZES and number == 1:
                    facts[row + TEXT_BYTES] = value
        elif kind == DOUBLE:
            at += 8
        elif kind == UUID:
            at += 16
        elif kind == BINARY:
            good, word, at = integer_at(data, at)
            if not good or word > u64(end):
                status = TRUNCATED
            else:
                at += i64(word)
                memory += i64(word)
                if role == CHUNK and number == 9 and row + FACTS <= held:
                    facts[row + FLAGS] = i64(facts[row + FLAGS]) | ENCRYPTED
                elif role == STATISTICS and number > 0 and number <= 6 and row + FACTS <= held:
                    if facts[row + BOUND] < 0 or i64(word) < facts[row + BOUND]:
                        facts[row + BOUND] = i64(word)
        else:
            # A level more: a struct, or a list, a set or a map.
            inner = role_of(role, number)
            wanted = elements_of(role, number)
            size = FIELDS
            inside = i64(0)
            if kind == MAP:
                good, word, at = integer_at(data, at)
                size = end + 1
                if good and word <= u64(end):
                    size = 2 * i64(word)
                if size > 0 and at < end:
                    # Keys come before values.
                    byte = i64(data[at])
                    inside = byte >> 4 | (byte & 15) << 4
                    at += 1
            elif kind != STRUCT:
                if at >= end:
                    status = TRUNCATED
                else:
                    byte = i64(data[at])
                    at += 1
                    size = byte >> 4
                    inside = byte & 15
                    if size == 15:
                        good, word, at = integer_at(data, at)
                        size = end + 1
                        if good and word <= u64(end):
                            size = i64(word)
                    inside |= inside << 4
            if size > end - at:
                status = TRUNCATED
            elif level >= depth:
                status = TOO_DEEP
            # pyarrow passes over a field of another type, and reads elements as what they should be.
            if status == OK and wanted != 0 and (kind != LIST or (size > 0 and inside & 15 != wanted)):
                status = MALFORMED
            if status == OK:
                if size >= 0:
                    memory += size * element_bytes(inner, inside & 15)
                    if role == FOOTER and number == 5:
                        pairs = size
                    if inner == CHUNK_LIST and size != columns:
                        status = MISMATCH
                elif inner == ROW_GROUP:
                    groups += 1
                elif inner == CHUNK:
                    row = chunks * FACTS
                    chunks += 1
                    if row + FACTS <= held:
                        for fact in range(FACTS):
                            facts[row + fact] = i64(-1)
                        facts[row + ENCODINGS] = i64(0)
                        facts[row + FLAGS] = i64(0)
                if row + FACTS <= held:
                    if role == CHUNK and number == 8:
                        facts[row + FLAGS] = i64(facts[row + FLAGS]) | ENCRYPTED
                    elif inner == METADATA:
                        facts[row + FLAGS] = i64(facts[row + FLAGS]) | HAS_METADATA
                    elif role == SIZES and number == 2:
                        facts[row + REPETITIONS] = size
                    elif role == SIZES and number == 3:
                        facts[row + DEFINITIONS] = size
                place = level * LEVEL
                room[place] = role
                room[place + 1] = left
                room[place + 2] = kinds
                room[place + 3] = last
                level += 1
                role = inner
                left = size
                kinds = inside
                last = i64(0)
        if status == OK and at > end:
            status = TRUNCATED
        if status == OK and memory > most:
            status = TOO_LARGE
        if status != OK:
            going = False
    if status == OK and chunks != groups * columns:
        status = MISMATCH
    counts[STATUS] = status
    counts[GROUPS] = groups
    counts[CHUNKS] = chunks
    counts[PAIRS] = pairs
    counts[MEMORY] = memory
    counts[PLACE] = at


def longest_value(_item: Any, data: Any, counts: Any) -> None:
    """Pass over the values of a dictionary page of BYTE_ARRAY: their longest, and how many there are.

    Work item: a page. Its end inside of a value counts as the end of that.
    """
    end = i64(len(data))
    at = i64(0)
    longest = i64(0)
    values = i64(0)
    while at + 4 <= end:
        size = i64(data[at]) | i64(data[at + 1]) << 8 | i64(data[at + 2]) << 16 | i64(data[at + 3]) << 24
        at += 4 + size
        longest = max(longest, size)
        values += 1
    counts[0] = longest
    counts[1] = values


SIGNATURES = {
    read_footer: ("u8[], i64, i64, i64, i64[]!, i64[]!, i64[]!",),
    longest_value: ("u8[], i64[]!",),
}
