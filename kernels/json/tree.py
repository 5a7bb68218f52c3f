"""What the kernels of JSON share: what becomes of a row, the nodes that it is read into, and words of bytes.

A row is read into nodes, one for each value, in the order of the text; the first is the whole. Nodes and lists
of children are numbered from the first node of their row. There is no kernel here.
"""

from __future__ import annotations

from typing import Final

from bowstring.kernels.types import i64, u8, u64

# What became of a row.
READ: Final = u8(0)
NOTHING: Final = u8(1)
"""There is no text: an SQL NULL."""
END: Final = u8(2)
"""The text ends where a value should go on."""
UNEXPECTED: Final = u8(3)
"""A byte that cannot be here."""
CONTROL: Final = u8(4)
"""A control character within a string."""
ESCAPE: Final = u8(5)
"""A backslash before what is no escape."""
SURROGATE: Final = u8(6)
"""Half a surrogate pair."""
NO_TEXT: Final = u8(7)
"""A string that is not UTF-8."""
TWICE: Final = u8(8)
"""A key that the object has already."""
TOO_DEEP: Final = u8(9)
RANGE: Final = u8(10)
"""A number beyond the doubles."""
TRAILING: Final = u8(11)
"""Something behind the value."""
TOO_LONG: Final = u8(12)
OUTSIDE: Final = u8(13)
"""The row is not within the text."""
FULL: Final = u8(14)
"""No room for another key: all rows that share the table must be read again, with a larger one."""

# What a node is. Containers are the last.
LITERAL: Final = u64(0)
"""null, true or false; or, if it takes more than a byte, a value that is in the text as it is encoded."""
INTEGER: Final = u64(1)
"""An integer or the bits of a double."""
DECIMAL: Final = u64(2)
"""A decimal whose digits are in ``BODY``."""
WIDE: Final = u64(3)
"""A decimal whose digits are in the text only."""
UNDECIDED: Final = u64(4)
"""A double that the host must find."""
PLAIN: Final = u64(5)
"""A string that is in the text as it is."""
ESCAPED: Final = u64(6)
"""A string with escapes."""
ARRAY: Final = u64(7)
OBJECT: Final = u64(8)

# Bits of the head of a node.
REPEATS: Final = u64(1 << 8)
"""Of an object that is not measured yet: it has a key more than once."""
DROPPED: Final = u64(1 << 63)
"""Of a value that was measured: the same key comes again behind it, so it is not written."""

# Bits of the rules that texts are read by.
SPARK: Final = i64(1)
"""Numbers as Spark has them."""
KEEP_LAST: Final = i64(2)
"""Of a key that an object has more than once, the last value counts."""

NODE: Final = u64(4)
"""Words of a node."""
HEAD: Final = u64(0)
"""By bytes from the lowest: what it is; the first byte of its encoding; the scale of a decimal. Above these, of a
container: how many of its children are still to be put in order."""
BODY: Final = u64(1)
"""An integer, the bits of a double, or where in the text the value is. Of a container: where its children are
listed, and in the lower half how many there are."""
LINK: Final = u64(2)
"""The container that it is in, and in the lower half the number of its key; later where it is written."""
SIZE: Final = u64(3)
"""How many bytes it takes encoded."""


def put(out, at, word, width):
    """Write the first 1 to 8 bytes of a word."""
    out[at] = u8(word & 0xFF)
    rest = word >> 8
    k = u64(1)
    while k < width:
        out[at + k] = u8(rest & 0xFF)
        rest = rest >> 8
        k += 1


def width_of(number):
    """Return how many bytes a number below 2^32 takes."""
    width = u64(1)
    if number > 0xFF:
        width = u64(2)
        if number > 0xFFFF:
            width = u64(3)
            if number > 0xFFFFFF:
                width = u64(4)
    return width
