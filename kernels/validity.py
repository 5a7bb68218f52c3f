"""Bitmaps, one 64-bit word at a time: one bit per slot, least significant first, at any bit offset.

Work item: one 64-bit word of the result, 64 slots; for :func:`count_bits`, one block of :data:`COUNTED` words.
Bitmaps come as bytes, at any address, and are never read beyond their last byte: what lies there counts as 0, and
so do the bits of a result behind its length.

:mod:`bowstring.kernels.bitmap` is how the rest of Bowstring calls them.
"""

from __future__ import annotations

from typing import Any, Final

from bowstring.kernels.types import i64, u8, u64

__all__ = [
    "COUNTED",
    "SIGNATURES",
    "and_bits",
    "bit_is_set",
    "count_bits",
    "expand_bits",
    "or_bits",
    "pack_flags",
    "shift_bits",
    "word_at",
]

BYTES = i64(8)
BITS = i64(64)
COUNTED: Final = i64(64)
"""Words that one work item of :func:`count_bits` counts."""


# Counting by halves: pairs of bits, then fours, then bytes, whose sum a multiplication brings into the top byte.
PAIRS = u64(0x5555555555555555)
FOURS = u64(0x3333333333333333)
EIGHTS = u64(0x0F0F0F0F0F0F0F0F)
SUM = u64(0x0101010101010101)


def word_at(bitmap: Any, start: Any, count: Any) -> Any:
    """Return the bits ``[start, start + count)`` of a bitmap as a word; at most 64, at least none."""
    first = start >> 3
    shift = u64(start & 7)
    size = i64(len(bitmap))
    word = u64(0)
    for k in range(8):
        if first + k < size:
            word |= u64(bitmap[first + k]) << u64(k << 3)
    word >>= shift
    if shift != 0 and first + 8 < size:
        word |= u64(bitmap[first + 8]) << (64 - shift)
    if count < 64:
        word &= (1 << u64(count)) - 1
    return word


def bit_is_set(bitmap: Any, slot: Any) -> Any:
    """Return whether a slot is valid; without a bitmap, and beyond its end, every slot is."""
    at = slot >> 3
    return at >= i64(len(bitmap)) or (u64(bitmap[at]) >> u64(slot & 7)) & 1 != 0


def set_bits_of(word: Any) -> Any:
    """Return how many bits of a word are set."""
    pairs = word - ((word >> 1) & PAIRS)
    fours = (pairs & FOURS) + ((pairs >> 2) & FOURS)
    eights = (fours + (fours >> 4)) & EIGHTS
    return i64((eights * SUM) >> 56)


def shift_bits(i: Any, bitmap: Any, start: Any, length: Any, out: Any) -> None:
    """Write the bits ``[start, start + length)`` from bit 0 on."""
    at = i * 64
    out[i] = word_at(bitmap, start + at, length - at)


def and_bits(i: Any, left: Any, left_start: Any, right: Any, right_start: Any, length: Any, out: Any) -> None:
    """Write which slots are set in both of two bitmaps."""
    at = i * 64
    out[i] = word_at(left, left_start + at, length - at) & word_at(right, right_start + at, length - at)


def or_bits(i: Any, left: Any, left_start: Any, right: Any, right_start: Any, length: Any, out: Any) -> None:
    """Write which slots are set in one of two bitmaps, or in both."""
    at = i * 64
    out[i] = word_at(left, left_start + at, length - at) | word_at(right, right_start + at, length - at)


def count_bits(i: Any, bitmap: Any, start: Any, length: Any, out: Any) -> None:
    """Write how many of the bits ``[start, start + length)`` a block of words has set."""
    total = i64(0)
    for k in range(i * COUNTED, i * COUNTED + COUNTED):
        at = k * 64
        if at < length:
            total += set_bits_of(word_at(bitmap, start + at, length - at))
    out[i] = total


def expand_bits(i: Any, bitmap: Any, start: Any, length: Any, out: Any) -> None:
    """Write the bits ``[start, start + length)`` as bytes of 0 and 1."""
    at = i * 64
    word = word_at(bitmap, start + at, length - at)
    for k in range(min(i64(64), length - at)):
        out[at + k] = u8((word >> u64(k)) & 1)


def pack_flags(i: Any, flags: Any, out: Any) -> None:
    """Write bytes as bits: 0 for 0, 1 for anything else."""
    at = i * 64
    word = u64(0)
    for k in range(min(i64(64), i64(len(flags)) - at)):
        if flags[at + k] != 0:
            word |= 1 << u64(k)
    out[i] = word


SIGNATURES = {
    shift_bits: ("u8[], i64, i64, u64[]!",),
    and_bits: ("u8[], i64, u8[], i64, i64, u64[]!",),
    or_bits: ("u8[], i64, u8[], i64, i64, u64[]!",),
    count_bits: ("u8[], i64, i64, i64[]!",),
    expand_bits: ("u8[], i64, i64, u8[]!",),
    pack_flags: ("u8[], u64[]!",),
}
