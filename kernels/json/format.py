"""What the kernels of JSON share: what becomes of a row, the nodes that it is read into, and words of bytes.

There is no kernel here. A row is read into nodes, one for each value, in the order of the text; the first is the
whole. A node is :data:`NODE` words:

* ``HEAD``: what it is in the lowest byte, the first byte of its encoding in the next, the scale of a decimal in the
  third, and for a container, above these, how many of its children are still to be put in order;
* ``BODY``: an integer, the bits of a double, or where in the text the value is; of a container, where its children
  are listed, and in the lower half how many there are;
* ``LINK``: the container that it is in, and in the lower half the number of its key; later where it is written;
* ``SIZE``: how many bytes it takes encoded.

Nodes and lists of children are numbered from the first node of their row.
"""

from __future__ import annotations

from typing import Any, Final

from bowstring.kernels.types import i64, u8, u64

__all__ = [
    "ARRAY",
    "BODY",
    "CONTROL",
    "DECIMAL",
    "END",
    "ESCAPE",
    "ESCAPED",
    "FULL",
    "HEAD",
    "INTEGER",
    "LINK",
    "LITERAL",
    "NODE",
    "NOTHING",
    "NO_TEXT",
    "OBJECT",
    "OUTSIDE",
    "PLAIN",
    "RANGE",
    "READ",
    "SIZE",
    "SURROGATE",
    "TOO_DEEP",
    "TOO_LONG",
    "TRAILING",
    "TWICE",
    "UNDECIDED",
    "UNEXPECTED",
    "WIDE",
    "eight",
    "masked",
    "put",
    "put_eight",
    "width_of",
]

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
"""null, true or false."""
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

NODE: Final = u64(4)
HEAD: Final = u64(0)
BODY: Final = u64(1)
LINK: Final = u64(2)
SIZE: Final = u64(3)

ZERO = i64(0)
NONE = u64(0)
ONE = u64(1)
TWO = u64(2)
THREE = u64(3)
FOUR = u64(4)
FIVE = u64(5)
SIX = u64(6)
SEVEN = u64(7)
EIGHT = u64(8)
BYTE = u64(8)
TWO_BYTES = u64(16)
THREE_BYTES = u64(24)
FOUR_BYTES = u64(32)
FIVE_BYTES = u64(40)
SIX_BYTES = u64(48)
SEVEN_BYTES = u64(56)
BITS = u64(3)
MOST_1 = u64(0xFF)
MOST_2 = u64(0xFFFF)
MOST_3 = u64(0xFFFFFF)


def eight(data: Any, at: Any) -> Any:
    """Return the 8 bytes at a place as a word; compilers make it one load."""
    return (
        u64(data[at])
        | u64(data[at + ONE]) << BYTE
        | u64(data[at + TWO]) << TWO_BYTES
        | u64(data[at + THREE]) << THREE_BYTES
        | u64(data[at + FOUR]) << FOUR_BYTES
        | u64(data[at + FIVE]) << FIVE_BYTES
        | u64(data[at + SIX]) << SIX_BYTES
        | u64(data[at + SEVEN]) << SEVEN_BYTES
    )


def masked(word: Any, size: Any) -> Any:
    """Return the first bytes of a word, less than 8 of them."""
    return word & ((ONE << (size << BITS)) - ONE)


def put_eight(out: Any, at: Any, word: Any) -> None:
    """Write a word as 8 bytes."""
    out[at] = u8(word & MOST_1)
    out[at + ONE] = u8(word >> BYTE & MOST_1)
    out[at + TWO] = u8(word >> TWO_BYTES & MOST_1)
    out[at + THREE] = u8(word >> THREE_BYTES & MOST_1)
    out[at + FOUR] = u8(word >> FOUR_BYTES & MOST_1)
    out[at + FIVE] = u8(word >> FIVE_BYTES & MOST_1)
    out[at + SIX] = u8(word >> SIX_BYTES & MOST_1)
    out[at + SEVEN] = u8(word >> SEVEN_BYTES & MOST_1)


def put(out: Any, at: Any, word: Any, width: Any) -> None:
    """Write the first 1 to 8 bytes of a word."""
    out[at] = u8(word & MOST_1)
    rest = word >> BYTE
    k = ONE
    while k < width:
        out[at + k] = u8(rest & MOST_1)
        rest = rest >> BYTE
        k += ONE


def width_of(number: Any) -> Any:
    """Return how many bytes a number below 2^32 takes."""
    width = ONE
    if number > MOST_1:
        width = TWO
        if number > MOST_2:
            width = THREE
            if number > MOST_3:
                width = FOUR
    return width


SIGNATURES: dict[Any, tuple[str, ...]] = {}
