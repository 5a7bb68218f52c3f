"""The bodies of pages, decompressed: how many rows their levels begin, and how long their values are.

Work item: a page. Integers in DELTA_BINARY_PACKED, such as the lengths of values in two other encodings, are
blocks of miniblocks; a page says first how many there are.
"""

from __future__ import annotations

from typing import Final

from bowstring.kernels.parquet.thrift import integer_at
from bowstring.kernels.types import i64, u64
from bowstring.kernels.words import number_at

OK: Final = i64(0)
CONTRADICTED: Final = i64(1)
"""More integers than values, more miniblocks than bytes, or a value with a prefix longer than the one before it."""

STATUS: Final = i64(0)
INTEGERS: Final = i64(1)
"""How many the page claims."""
MINIBLOCKS: Final = i64(2)
"""How many each of its blocks claims to have."""
NBYTES: Final = i64(3)
LONGEST: Final = i64(4)
"""The bytes of all values in DELTA_BYTE_ARRAY, and those of the longest, as far as they are known to be true."""
COUNTS: Final = i64(5)

NUMBERS = i64(5)
DELTA_BYTE_ARRAY = i64(7)
FEW = i64(1024)
WORD = u64(0xFFFFFFFF)


def value_lengths(_item, data, lengths, counts):
    """Pass over the values of a dictionary page of BYTE_ARRAY: their lengths, the longest, and how many there are.

    The end of the page inside of a value counts as the end of that, and no more are read than `lengths` holds.
    """
    end = i64(len(data))
    most = i64(len(lengths))
    at = i64(0)
    longest = i64(0)
    values = i64(0)
    while at + 4 <= end and values < most:
        size = i64(number_at(data, u64(at)))
        at += 4 + size
        longest = max(longest, size)
        lengths[values] = size
        values += 1
    counts[0] = longest
    counts[1] = values


def weigh_runs(_item, data, width, values, weights, counts):
    """Add up the weights of integers of `width` bits: of repetition levels, or of indices of a dictionary.

    They are runs of one integer, and of integers bit by bit. Those that are missing or have no weight add nothing.
    """
    size = i64(len(data))
    weighed = i64(len(weights))
    left = i64(values)
    at = i64(0)
    weight = i64(0)
    while left > 0:
        good, word, at = integer_at(data, at)
        length = i64(word >> u64(1))
        if not good:
            left = i64(0)
        elif word & u64(1) == u64(0):
            end = at + (width + 7) // 8
            number = i64(0)
            shift = i64(0)
            while at < end and at < size:
                if shift < 32:
                    number |= i64(data[at]) << shift
                shift += 8
                at += 1
            length = min(length, left)
            if at == end and number < weighed:
                weight += length * i64(weights[number])
            left -= length
        else:
            # Eight integers each; one byte has at most eight.
            groups = min(length, size - at)
            end = min(8 * groups, left)
            index = i64(0)
            while index < end and 8 * at + (index + 1) * width <= 8 * size:
                number = i64(bits_at(data, 8 * at + index * width, width))
                if number < weighed:
                    weight += i64(weights[number])
                index += 1
            at += groups * width
            left -= end
    counts[0] = weight


def to_int32(word):
    """Return the integer that the lowest 32 bits are, with a sign."""
    number = i64(word & WORD)
    if number >= 2147483648:
        number -= 4294967296
    return number


def zigzag32(word):
    """Return the 32 bits that zigzag makes an unsigned integer of."""
    word &= WORD
    return word >> u64(1) ^ (u64(0) - (word & u64(1))) & WORD


def bits_at(data, bit, width):
    """Return an integer of at most 32 bits, which end inside of the data."""
    word = u64(0)
    shift = u64(0)
    at = bit >> 3
    end = (bit + width + 7) >> 3
    while at < end:
        word |= u64(data[at]) << shift
        shift += 8
        at += 1
    return word >> u64(bit & 7) & ((u64(1) << u64(width)) - 1)


def delta_head(data, at):
    """Return whether integers begin, values of a miniblock, miniblocks of a block, how many, the first, the end."""
    good, block, at = integer_at(data, at)
    good_too, miniblocks, at = integer_at(data, at)
    good = good and good_too
    good_too, total, at = integer_at(data, at)
    good = good and good_too
    good_too, first, at = integer_at(data, at)
    good = good and good_too
    # pyarrow takes integers of 32 bits, and refuses what does not divide.
    block &= WORD
    miniblocks &= WORD
    values = i64(0)
    if good and miniblocks > u64(0):
        values = i64(block) // i64(miniblocks)
    good = good and values > 0 and values % 32 == 0
    return good, values, i64(miniblocks), i64(total & WORD), zigzag32(first), at


def delta_lengths(data, at, lengths, begin, most):
    """Write lengths from `begin` on, at most so many; return whether they are all there, and where they end."""
    good, values, miniblocks, total, last, at = delta_head(data, at)
    size = i64(len(data))
    number = i64(0)
    if good and total > 0 and total <= most:
        lengths[begin] = to_int32(last)
        number = i64(1)
    good = good and total <= most
    while good and number < total:
        good, word, at = integer_at(data, at)
        least = zigzag32(word)
        widths = at
        at += miniblocks
        good = good and at <= size
        block = i64(0)
        while good and block < miniblocks and number < total:
            width = i64(data[widths + block])
            block += 1
            end = at + values // 8 * width
            left = min(values, total - number)
            good = width <= 32 and end <= size
            index = i64(0)
            while good and index < left:
                last = (last + least + bits_at(data, 8 * at + index * width, width)) & WORD
                lengths[begin + number] = to_int32(last)
                number += 1
                index += 1
            at = end
    return good, total, at


def check_deltas(_item, data, encoding, most, lengths, counts):
    """Compare what the integers of a page in a DELTA encoding claim with its values, of which there are `most`."""
    # Of DELTA_BYTE_ARRAY all lengths are read, into 2 * most numbers. Pages that are cut off or not in such an
    # encoding are left for pyarrow to refuse.
    status = OK
    good, _values, miniblocks, total, _first, at = delta_head(data, i64(0))
    nbytes = i64(0)
    longest = i64(0)
    if good and (
        (miniblocks > FEW and miniblocks > i64(len(data))) or (total > most and encoding != NUMBERS)
    ):
        status = CONTRADICTED
    elif good and encoding == DELTA_BYTE_ARRAY:
        good, prefixes, at = delta_lengths(data, i64(0), lengths, i64(0), most)
        suffixes = i64(0)
        if good:
            good, _values, miniblocks, suffixes, _first, _end = delta_head(data, at)
            if good and ((miniblocks > FEW and miniblocks > i64(len(data))) or suffixes > most):
                status = CONTRADICTED
        if good and status == OK:
            good, suffixes, at = delta_lengths(data, at, lengths, most, most)
        if good and status == OK:
            size = i64(0)
            index = i64(0)
            while index < min(prefixes, suffixes):
                prefix = i64(lengths[index])
                suffix = i64(lengths[most + index])
                if prefix < 0 or prefix > size or suffix < 0:
                    status = CONTRADICTED
                    suffix = max(suffix, i64(0))
                    prefix = i64(0)
                size = prefix + suffix
                nbytes += size
                longest = max(longest, size)
                index += 1
    counts[STATUS] = status
    counts[INTEGERS] = total
    counts[MINIBLOCKS] = miniblocks
    counts[NBYTES] = nbytes
    counts[LONGEST] = longest


SIGNATURES = {
    value_lengths: ("u8[], i64[]!, i64[]!",),
    weigh_runs: ("u8[], i64, i64, i64[], i64[]!",),
    check_deltas: ("u8[], i64, i64, i32[]!, i64[]!",),
}
