"""Whether values of a fixed width lie in the range of their type, and views of binary and text hold what they say.

A view is 16 bytes, of a value or of where it lies. Slots that are null may hold anything. Work item: a block of
:data:`~bowstring.kernels.validation.text.ROWS` rows.
"""

from __future__ import annotations

from bowstring.kernels.types import i64, u64
from bowstring.kernels.validation.text import NO_ROW, block_end, block_start, faults, is_text_by_blocks
from bowstring.kernels.validity import bit_is_set
from bowstring.kernels.words import HIGH, number_at

DAY = i64(86_400_000)


def check_range(i, values, validity, rows, lowest, mask, count, bad):
    """Find the first valid row that is none of the `count` numbers from `lowest` on."""
    # Compared as unsigned, of the width of `mask`, where `lowest` may wrap: so one comparison serves for indices,
    # times of day and narrow decimals.
    first = block_start(i)
    stop = block_end(i, rows, i64(len(values)))
    wrong = i64(0)
    for k in range(stop - first):
        if (u64(values[first + k]) - lowest) & mask >= count:
            wrong = i64(1)
    found = NO_ROW
    if wrong != 0:
        for k in range(stop - first):
            moved = (u64(values[first + k]) - lowest) & mask
            if found == NO_ROW and moved >= count and bit_is_set(validity, first + k):
                found = first + k
    bad[i] = found


def check_days(i, values, validity, rows, bad):
    """Find the first valid row whose milliseconds are no whole number of days."""
    stop = block_end(i, rows, i64(len(values)))
    found = NO_ROW
    for row in range(block_start(i), stop):
        if found == NO_ROW and i64(values[row]) % DAY != 0 and bit_is_set(validity, i64(row)):
            found = i64(row)
    bad[i] = found


def is_beyond(words, at, limbs, bounds):
    """Return whether a number of several words is none of those that `bounds` names; see `check_wide_range`."""
    begin = max(at, i64(0))
    carry = u64(0)
    beyond = i64(0)
    for k in range(limbs):
        moved = u64(words[begin + k]) + u64(bounds[k])
        total = moved + carry
        passed = moved < u64(bounds[k]) or total < moved
        carry = u64(0)
        if passed:
            carry = u64(1)
        if total > u64(bounds[limbs + k]):
            beyond = i64(1)
        elif total < u64(bounds[limbs + k]):
            beyond = i64(0)
    return beyond != 0


def check_wide_range(i, words, limbs, bounds, validity, rows, bad):
    """Find the first valid row that is out of range, for numbers of some 64-bit words, the lowest first.

    `bounds` holds what to add to a number so that the lowest becomes 0, and then the highest after that.
    """
    row = block_start(i)
    stop = block_end(i, rows, i64(len(words)) // limbs)
    found = NO_ROW
    while row < stop and found == NO_ROW:
        if is_beyond(words, row * limbs, limbs, bounds) and bit_is_set(validity, row):
            found = row
        row += 1
    bad[i] = found


LONGEST_INSIDE = i64(12)


def inner_is_right(low, high, size, text):
    """Return whether a value inside a view, 8 bytes and 4 more, ends in zeros, and is UTF-8 if it is text."""
    spare = high
    if size < 8:
        spare |= low >> u64(size << 3)
    elif size > 8:
        spare >>= u64((size - 8) << 3)
    if size >= LONGEST_INSIDE:
        spare = u64(0)
    right = spare == 0
    if text != 0 and (low | high) & HIGH != 0:
        right = right and faults(low, u64(0)) | faults(high, low) == 0
    return right


def check_views(i, parts, validity, data, firsts, sizes, rows, text, broken, lead, bad):
    """Find the first valid row whose view is wrong, as far as `data` tells."""
    # parts: the views, four numbers each; sizes[b]: bytes of variadic buffer b, which begins at firsts[b] in
    # `data`, or is not in it where that is negative: then only the numbers are checked
    # text: whether values must be UTF-8; broken, lead: see `is_text_by_blocks`
    row = block_start(i)
    stop = block_end(i, rows, i64(len(parts)) // 4)
    found = NO_ROW
    while row < stop and found == NO_ROW:
        size = i64(parts[4 * row])
        prefix = u64(parts[4 * row + 1])
        third = u64(parts[4 * row + 2])
        fourth = u64(parts[4 * row + 3])
        right = size <= (2**31 - 1)
        if not bit_is_set(validity, row):
            right = True
        elif size <= LONGEST_INSIDE:
            right = inner_is_right(prefix | (third << 32), fourth, size, text)
        elif right:
            right = outer_is_right(
                data, firsts, sizes, i64(third), i64(fourth), size, prefix, text, broken, lead
            )
        if not right:
            found = row
        row += 1
    bad[i] = found


def outer_is_right(data, firsts, sizes, buffer, offset, size, prefix, text, broken, lead):
    """Return whether a value outside its view lies in its buffer, begins with the prefix, and is as it must be."""
    right = offset <= (2**31 - 1) and buffer < min(i64(len(firsts)), i64(len(sizes)))
    if right:
        right = offset + size <= sizes[buffer]
    if right and firsts[buffer] >= 0:
        start = firsts[buffer] + offset
        right = start + size <= i64(len(data)) and number_at(data, u64(start)) == prefix
        if right and text != 0:
            right = is_text_by_blocks(data, broken, lead, start, start + size)
    return right


SIGNATURES = {
    check_range: tuple(
        f"{width}[], u8[], i64, u64, u64, u64, i64[]!" for width in ("u8", "u16", "u32", "u64")
    ),
    check_days: ("i64[], u8[], i64, i64[]!",),
    check_wide_range: ("u64[], i64, u64[], u8[], i64, i64[]!",),
    check_views: ("u32[], u8[], u8[], i64[], i64[], i64, i64, i64[], i64, i64[]!",),
}
