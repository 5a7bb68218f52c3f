"""Strings and words of JSON as nodes.

There is no kernel here. Places are ``u64`` and lie before `stop`, the end of the row.
"""

from __future__ import annotations

from typing import Any

from bowstring.kernels.json.format import ESCAPED, LITERAL, PLAIN, READ, UNEXPECTED
from bowstring.kernels.json.numbers import byte_at
from bowstring.kernels.json.strings import string_end, word_before
from bowstring.kernels.types import u64

__all__ = ["literal", "text"]


WORD_NULL = u64(int.from_bytes(b"null", "little"))
WORD_TRUE = u64(int.from_bytes(b"true", "little"))
WORD_FALS = u64(int.from_bytes(b"fals", "little"))
LETTER_E = u64(0x65)

# The first byte of the encoding.
NULL = u64(0)
TRUE = u64(1 << 2)
FALSE = u64(2 << 2)
SHORT = u64(1)
LONG = u64(16 << 2)
LONGEST_SHORT = u64(63)


def literal(data: Any, at: Any, stop: Any) -> Any:
    """Return where null, true or false ends, a status, and the node's head."""
    word = word_before(data, at, min(stop, at + 4))
    end = at
    status = READ
    header = NULL
    if word == WORD_NULL:
        end = at + 4
    elif word == WORD_TRUE:
        end = at + 4
        header = TRUE
    elif word == WORD_FALS and byte_at(data, at + 4, stop) == LETTER_E:
        end = at + 5
        header = FALSE
    else:
        status = UNEXPECTED
    return end, status, LITERAL | header << 8


def text(data: Any, at: Any, stop: Any) -> Any:
    """Return where a string ends, a status, and the node's head, body and size."""
    end, dropped, status = string_end(data, at + 1, stop)
    length = end - at - 1 - dropped
    kind = PLAIN if dropped == 0 else ESCAPED
    header = SHORT | length << 2
    size = length + 1
    if length > LONGEST_SHORT:
        header = LONG
        size = length + 5
    if status == READ:
        end += 1
    return end, status, kind | header << 8, at + 1, size


SIGNATURES: dict[Any, tuple[str, ...]] = {}
