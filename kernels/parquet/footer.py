"""The footer of a Parquet file, passed over once: its column chunks, and how much memory a reader of it needs.

Work item: a footer. The memory is that of pyarrow's structs, which are counted before it makes them.

`facts` has a row of :data:`FACTS` numbers for each column chunk; what a chunk does not have is -1.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from bowstring.kernels.parquet import thrift
from bowstring.kernels.parquet.thrift import keep, kept, level_at, next_value, scalar_at, signed
from bowstring.kernels.types import i64, u64
from bowstring.kernels.words import load_word

TOO_DEEP: Final = i64(3)
TOO_LARGE: Final = i64(4)
"""The structs of the footer take more memory than allowed."""
MISMATCH: Final = i64(5)
"""A row group has more or fewer column chunks than there are columns."""

FACTS: Final = i64(14)
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
ROWS_AT: Final = i64(13)
"""Of the first chunk of a row group: where the number of its rows is."""

STATUS: Final = i64(0)
GROUPS: Final = i64(1)
CHUNKS: Final = i64(2)
PAIRS: Final = i64(3)
MEMORY: Final = i64(4)
PLACE: Final = i64(5)
SCHEMA_AT: Final = i64(6)
SCHEMA_BYTES: Final = i64(7)
"""Where the text of an Arrow schema is that has more than 64 KiB, 0 without one."""
COUNTS: Final = i64(8)
"""Numbers of a footer."""

# What a struct or a list is of the footer.
FOOTER = i64(1)
ROW_GROUPS = i64(2)
ROW_GROUP = i64(3)
CHUNK_LIST = i64(4)
CHUNK = i64(5)
METADATA = i64(6)
ENCODING_LIST = i64(7)
SIZES = i64(8)
STATISTICS = i64(9)
PAIRS_LIST = i64(10)
PAIR = i64(11)
LONG = i64(65536)
# "ARROW:sc" and "W:schema", of the key ARROW:schema.
KEY_BEGIN = u64(0x63733A574F525241)
KEY_END = u64(0x616D656863733A57)
# Bytes of pyarrow's memory, measured: of a chunk and what it always has, of another struct, of text, of a number.
CHUNK_BYTES = i64(1024)
STRUCT_BYTES = i64(128)
TEXT_SIZE = i64(32)
ELEMENT_BYTES = i64(8)


def role_of(outer, number):
    """Return the role of a field of a struct, or of an element of a list."""
    role = thrift.ANYTHING
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
    elif outer == FOOTER and number == 5:
        role = PAIRS_LIST
    elif outer == PAIRS_LIST:
        role = PAIR
    return role


# Where the facts of a chunk have an integer of its metadata, by the number of the field: -1 where they do not.
FACT_OF = np.array(
    [-1, TYPE, -1, -1, CODEC, VALUES, UNCOMPRESSED, COMPRESSED, -1, DATA_PAGE, -1, DICTIONARY_PAGE], np.int64
)
FACT_OF.flags.writeable = False


def elements_of(role, number):
    """Return the type of the elements of a list that is a field of a known struct, 0 of another field."""
    kind = i64(0)
    if role == FOOTER and (number == 4 or number == 5 or number == 7):
        kind = thrift.STRUCT
    elif role == ROW_GROUP and (number == 1 or number == 4):
        kind = thrift.STRUCT
    elif role == METADATA:
        if number == 2:
            kind = thrift.I32
        elif number == 3:
            kind = thrift.BINARY
        elif number == 8 or number == 13:
            kind = thrift.STRUCT
    elif role == SIZES and (number == 2 or number == 3):
        kind = thrift.I64
    return kind


def element_bytes(role, kind):
    """Return the memory of an element of a list."""
    size = ELEMENT_BYTES
    if role == CHUNK_LIST:
        size = CHUNK_BYTES
    elif kind == thrift.STRUCT:
        size = STRUCT_BYTES
    elif kind >= thrift.BINARY:
        size = TEXT_SIZE
    return size


def read_footer(_item, data, columns, most, depth, room, facts, counts):
    """Pass over the fields of a footer that come after its schema.

    `most` bounds the memory, `depth` the levels. Nothing is written beyond the end of `facts`.
    """
    status = thrift.OK
    held = i64(len(facts))
    at = i64(0)
    groups = i64(0)
    chunks = i64(0)
    pairs = i64(0)
    memory = i64(0)
    row = i64(0)
    group_row = i64(0)
    is_schema = False
    schema_at = i64(0)
    schema_bytes = i64(0)
    level = i64(0)
    role = FOOTER
    left = thrift.FIELDS
    kinds = i64(0)
    last = i64(2)
    going = True
    while going:
        status, kind, number, at, left, kinds, last = next_value(data, at, role, left, kinds, last)
        if status != thrift.OK:
            going = False
        elif kind == 0:
            # The end of a struct or a list.
            if level == 0:
                going = False
            else:
                level -= 1
                role, left, kinds, last = kept(room, level * thrift.LEVEL)
        elif kind <= thrift.FALSE:
            pass
        elif kind <= thrift.BINARY or kind == thrift.UUID:
            place = at
            status, word, at = scalar_at(data, at, kind)
            if status == thrift.OK and kind >= thrift.I16 and kind <= thrift.I64 and row + FACTS <= held:
                value = signed(word)
                if role == METADATA:
                    if number >= 0 and number < 12 and FACT_OF[number] >= 0:
                        facts[row + FACT_OF[number]] = value
                elif role == ENCODING_LIST and value >= 0 and value < 63:
                    facts[row + ENCODINGS] = i64(facts[row + ENCODINGS]) | i64(1) << value
                elif role == SIZES and number == 1:
                    facts[row + TEXT_BYTES] = value
                elif role == ROW_GROUP and number == 3 and group_row < chunks * FACTS:
                    facts[group_row + ROWS_AT] = place
            elif status == thrift.OK and kind == thrift.BINARY:
                size = i64(word)
                memory += size
                if role == PAIR:
                    if number == 1:
                        is_schema = (
                            size == 12
                            and load_word(data, (at - size)) == KEY_BEGIN
                            and load_word(data, (at - size) + 4) == KEY_END
                        )
                    elif number == 2 and is_schema and size > LONG:
                        if schema_at > 0:
                            status = thrift.MALFORMED
                        schema_at = at - size
                        schema_bytes = size
                elif row + FACTS <= held:
                    if role == CHUNK and number == 9:
                        facts[row + FLAGS] = i64(facts[row + FLAGS]) | ENCRYPTED
                    elif role == STATISTICS and number > 0 and number <= 6:
                        if facts[row + BOUND] < 0 or size < facts[row + BOUND]:
                            facts[row + BOUND] = size
        else:
            # A level more.
            inner = role_of(role, number)
            wanted = elements_of(role, number)
            status, size, inside, at = level_at(data, at, kind)
            if status == thrift.OK and level >= depth:
                status = TOO_DEEP
            # pyarrow passes over a field of another type, and reads elements as what they should be.
            if (
                status == thrift.OK
                and wanted != 0
                and (kind != thrift.LIST or (size > 0 and inside & 15 != wanted))
            ):
                status = thrift.MALFORMED
            if status == thrift.OK:
                if size >= 0:
                    memory += size * element_bytes(inner, inside & 15)
                    if role == FOOTER and number == 5:
                        pairs = size
                    if inner == CHUNK_LIST and size != columns:
                        status = MISMATCH
                elif inner == PAIR:
                    is_schema = False
                elif inner == ROW_GROUP:
                    groups += 1
                    group_row = chunks * FACTS
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
                keep(room, level * thrift.LEVEL, role, left, kinds, last)
                level += 1
                role = inner
                left = size
                kinds = inside
                last = i64(0)
        if status == thrift.OK and memory > most:
            status = TOO_LARGE
        if status != thrift.OK:
            going = False
    if status == thrift.OK and chunks != groups * columns:
        status = MISMATCH
    counts[STATUS] = status
    counts[GROUPS] = groups
    counts[CHUNKS] = chunks
    counts[PAIRS] = pairs
    counts[MEMORY] = memory
    counts[PLACE] = at
    counts[SCHEMA_AT] = schema_at
    counts[SCHEMA_BYTES] = schema_bytes


SIGNATURES = {
    read_footer: ("u8[], i64, i64, i64, i64[]!, i64[]!, i64[]!",),
}
