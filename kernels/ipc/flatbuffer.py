"""Tables of a flatbuffer, followed only as far as they lie in it. There is no kernel here.

A flatbuffer has `size` bytes from `begin` on; positions in it count from its first byte.
"""

from __future__ import annotations

from typing import Any, Final

from bowstring.kernels.types import i64, u64

NOWHERE: Final = i64(-1)


def half_at(memory: Any, at: Any) -> Any:
    """Return 16 bits as a number."""
    return u64(memory[at]) | u64(memory[at + 1]) << 8


def word_at(memory: Any, at: Any) -> Any:
    """Return 32 bits as a number."""
    return u64(memory[at]) | u64(memory[at + 1]) << 8 | u64(memory[at + 2]) << 16 | u64(memory[at + 3]) << 24


def followed(memory: Any, begin: Any, size: Any, position: Any) -> Any:
    """Return where a reference leads; NOWHERE if it is misaligned, or leads outside."""
    where = NOWHERE
    if position >= 0 and position & 3 == 0 and position <= size - 4:
        distance = i64(word_at(memory, begin + u64(position)))
        if distance >= 4 and distance < size - position:
            where = position + distance
    return where


def vtable_of(memory: Any, begin: Any, size: Any, table: Any) -> Any:
    """Return where the vtable of a table is, and its bytes; 0 of them where it is broken."""
    vtable = i64(0)
    nbytes = i64(0)
    if table >= 0 and table & 3 == 0 and table <= size - 4:
        at = table - (i64(word_at(memory, begin + u64(table)) << 32) >> 32)
        if at >= 0 and at & 1 == 0 and at <= size - 4:
            vtable = at
            nbytes = i64(half_at(memory, begin + u64(at)))
            if nbytes & 1 != 0 or nbytes < 4 or nbytes > size - at:
                nbytes = i64(0)
    return vtable, nbytes
