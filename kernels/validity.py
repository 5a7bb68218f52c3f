"""Bitmaps, a word at a time: one bit per slot, least significant first, at any bit offset.

Work item: one word of the result: 64 slots as bits, 8 as flags; of :func:`pack_flags` half a word; of
:func:`count_bits` :data:`COUNTED` words of a tile, every :data:`LANES`-th. Bitmaps come as bytes at any address and
as the whole words among them, which begin at byte ``lead``; bits beyond them, and behind a result's length, are 0.
"""

from __future__ import annotations

from typing import Final

from bowstring.kernels.types import i64, u32, u64

COUNTED: Final = i64(16)
"""Words that one work item of :func:`count_bits` counts."""
LANES: Final = i64(32)
"""Work items that count the words of one tile."""


# Counting by halves: pairs of bits, then fours, then bytes, whose sum a multiplication brings into the top byte.
PAIRS = u64(0x5555555555555555)
FOURS = u64(0x3333333333333333)
EIGHTS = u64(0x0F0F0F0F0F0F0F0F)
SUM = u64(0x0101010101010101)

# One bit in each byte: the first in the first, and so on; seven bits in each; and what brings the lowest bits of
# all bytes into the top one.
EACH = u64(0x8040201008040201)
SEVENS = u64(0x7F7F7F7F7F7F7F7F)
TOGETHER = u64(0x0102040810204080)


def word_at(bitmap, words, lead, start, count):
    """Return the bits ``[start, start + count)`` of a bitmap as a word; at most 64, at least none."""
    at = start - (lead << 3)
    place = at >> 6
    shift = u64(at & 63)
    following = place + i64(shift != 0)
    word = u64(0)
    if place >= 0 and following < i64(len(words)):
        word = words[u64(place)] >> shift
        if shift != 0:
            word |= words[u64(following)] << (64 - shift)
    else:
        word = edge_at(bitmap, start)
    if count < 64:
        word &= (1 << u64(count)) - 1
    return word


def edge_at(bitmap, start):
    """Return the 64 bits from `start` on, byte by byte, as many as there are."""
    first = start >> 3
    shift = u64(start & 7)
    word = u64(0)
    for k in range(min(i64(8), i64(len(bitmap)) - first)):
        word |= u64(bitmap[u64(first + k)]) << u64(k << 3)
    word >>= shift
    if shift != 0 and first + 8 < i64(len(bitmap)):
        word |= u64(bitmap[u64(first + 8)]) << (64 - shift)
    return word


def bit_is_set(bitmap, slot):
    """Return whether a slot is valid; without a bitmap, and beyond its end, every slot is."""
    at = slot >> 3
    return at >= i64(len(bitmap)) or (u64(bitmap[at]) >> u64(slot & 7)) & 1 != 0


def set_bits_of(word):
    """Return how many bits of a word are set."""
    pairs = word - ((word >> 1) & PAIRS)
    fours = (pairs & FOURS) + ((pairs >> 2) & FOURS)
    eights = (fours + (fours >> 4)) & EIGHTS
    return i64((eights * SUM) >> 56)


def shift_bits(i, bitmap, words, lead, start, length, out):
    """Write the bits ``[start, start + length)`` from bit 0 on."""
    at = i * 64
    out[u64(i)] = word_at(bitmap, words, lead, start + at, length - at)


def and_bits(
    i, left, left_words, left_lead, left_start, right, right_words, right_lead, right_start, length, out
):
    """Write which slots are set in both of two bitmaps."""
    at = i * 64
    word = word_at(left, left_words, left_lead, left_start + at, length - at)
    out[u64(i)] = word & word_at(right, right_words, right_lead, right_start + at, length - at)


def or_bits(
    i, left, left_words, left_lead, left_start, right, right_words, right_lead, right_start, length, out
):
    """Write which slots are set in one of two bitmaps, or in both."""
    at = i * 64
    word = word_at(left, left_words, left_lead, left_start + at, length - at)
    out[u64(i)] = word | word_at(right, right_words, right_lead, right_start + at, length - at)


def count_bits(i, bitmap, words, lead, start, length, out):
    """Write how many of the bits ``[start, start + length)`` an item's words have set."""
    total = i64(0)
    first = i // LANES * LANES * COUNTED + i % LANES
    for k in range(COUNTED):
        at = (first + k * LANES) * 64
        if at < length:
            total += set_bits_of(word_at(bitmap, words, lead, start + at, length - at))
    out[u64(i)] = total


def expand_bits(i, bitmap, start, out):
    """Write eight bits as bytes of 0 and 1, those of the bitmap's byte that follow the last wanted too."""
    at = start + i * 8
    first = at >> 3
    shift = u64(at & 7)
    held = i64(len(bitmap))
    bits = u64(0)
    if first < held:
        bits = u64(bitmap[u64(first)]) >> shift
    if shift != 0 and first + 1 < held:
        bits |= u64(bitmap[u64(first + 1)]) << (8 - shift)
    out[u64(i)] = (((((bits & 0xFF) * SUM) & EACH) + SEVENS) >> 7) & SUM


def pack_flags(i, flags, words, lead, out):
    """Write 32 bytes as bits: 0 for 0, 1 for anything else."""
    packed = u64(0)
    for k in range(4):
        at = i * 32 + k * 8
        if at < i64(len(flags)):
            word = word_at(flags, words, lead, at << 3, i64(64))
            set_ = (((word & SEVENS) + SEVENS) | word) >> 7 & SUM
            packed |= (set_ * TOGETHER) >> 56 << u64(k << 3)
    out[u64(i)] = u32(packed)


SIGNATURES = {
    shift_bits: ("u8[], u64[], i64, i64, i64, u64[]!",),
    and_bits: ("u8[], u64[], i64, i64, u8[], u64[], i64, i64, i64, u64[]!",),
    or_bits: ("u8[], u64[], i64, i64, u8[], u64[], i64, i64, i64, u64[]!",),
    count_bits: ("u8[], u64[], i64, i64, i64, i64[]!",),
    expand_bits: ("u8[], i64, u64[]!",),
    pack_flags: ("u8[], u64[], i64, u32[]!",),
}
