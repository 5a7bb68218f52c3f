"""Ranges: which slots of each node some rows need, and how many of them are valid.

Where the slots of a child begin and end stands in the offsets, or run ends, of its parent. A host that walks down
would read once for each level of nesting; here one work item walks all nodes of a column, parents first.

All buffers are read as one array of 64-bit words that spans them, as in :mod:`bowstring.kernels.gather`: nothing of
it is touched but words that hold a byte of a buffer which the table names.
"""

from __future__ import annotations

from typing import Any, Final

from bowstring.kernels.types import i64, u64
from bowstring.kernels.validity import set_bits_of

__all__ = [
    "COUNT_FIELDS",
    "FIELDS",
    "OFFSETS",
    "OF_ENDS",
    "OF_PARENT",
    "RESULTS",
    "RUNS",
    "SIGNATURES",
    "count_in_ranges",
    "find_ranges",
]

FIELDS: Final = 8
"""Numbers that :func:`find_ranges` takes for each node: where its slots are said, its parent, a factor, how many
slots it has; what its buffer holds, at which byte of the words, how many bytes, how many for each element."""
OF_PARENT: Final = 1
"""The slots are said by the parent's, `factor` for each; with 0, there are as many as `factor` says."""
OF_ENDS: Final = 2
"""They are said by the parent's offsets or run ends."""
OFFSETS: Final = 1
"""The buffer holds one offset more than there are slots."""
RUNS: Final = 2
"""The buffer holds run ends."""
RESULTS: Final = 5
"""Numbers that are found for each node: first slot and number of slots; first and last offset, or first run and the
one behind the last; the last run end of all. They are -1 where something does not fit."""
COUNT_FIELDS: Final = 4
"""Numbers that :func:`count_in_ranges` takes for each bitmap: its node, at which byte of the words it lies, how
many bytes it has, and how many slots need not be counted when they are all of them, or -1."""

ZERO = i64(0)
ONE = i64(1)
TWO = i64(2)
THREE = i64(3)
FOUR = i64(4)
FIVE = i64(5)
SIX = i64(6)
SEVEN = i64(7)
EIGHT = i64(8)
WORD = i64(64)
NOWHERE = i64(-1)
GIVEN = i64(0)
EMPTY = i64(0)
NOTHING = u64(0)
NODE_FIELDS = i64(FIELDS)
FOUND = i64(RESULTS)
BITMAP_FIELDS = i64(COUNT_FIELDS)
FROM_PARENT = i64(OF_PARENT)
FROM_ENDS = i64(OF_ENDS)
HOLDS_OFFSETS = i64(OFFSETS)
HOLDS_RUNS = i64(RUNS)


def integer_at(words: Any, at: Any, width: Any) -> Any:
    """Return the signed integer of one to eight bytes that begins at a byte of some words."""
    place, shift = at >> THREE, (at & SEVEN) << THREE
    held = i64(len(words))
    word = NOTHING
    if ZERO <= place < held:
        word = words[place] >> u64(shift)
        following = place + ONE
        if shift > ZERO and following <= (at + width - ONE) >> THREE and following < held:
            word |= words[following] << u64(WORD - shift)
    unused = WORD - (width << THREE)
    return i64(word << u64(unused)) >> unused


def runs_until(words: Any, at: Any, width: Any, runs: Any, slot: Any) -> Any:
    """Return how many runs end at a slot or before."""
    low, high = ZERO, runs
    while low < high:
        middle = (low + high) >> ONE
        if integer_at(words, at + middle * width, width) <= slot:
            low = middle + ONE
        else:
            high = middle
    return low


def needed_slots(table: Any, row: Any, begin: Any, node: Any, out: Any) -> Any:
    """Return the first slot that is needed of a node, and how many are: -1 and 0 where that is not said."""
    how, parent, factor, slots = table[row], table[row + ONE], table[row + TWO], table[row + THREE]
    start, length = ZERO, factor
    if how != GIVEN:
        start, length = NOWHERE, ZERO
        if begin <= parent < node:
            above = parent * FOUND
            if how == FROM_PARENT and out[above] >= ZERO:
                start, length = out[above] * factor, out[above + ONE] * factor
            if how == FROM_ENDS and ZERO <= out[above + TWO] <= out[above + THREE]:
                start, length = out[above + TWO], out[above + THREE] - out[above + TWO]
    if start < ZERO or length < ZERO or length > slots or start > slots - length:
        start, length = NOWHERE, ZERO
    return start, length


def find_ranges(i: Any, words: Any, table: Any, columns: Any, out: Any) -> None:
    """Write :data:`RESULTS` numbers for each node of a column.

    `table` holds the first node of each column, how many nodes there are, and then :data:`FIELDS` numbers for each
    node, parents before their children.
    """
    if columns < ONE or columns >= i64(len(table)) or i >= columns:
        return
    base = columns + ONE
    nodes = min((i64(len(table)) - base) // NODE_FIELDS, i64(len(out)) // FOUND)
    begin = max(table[i], ZERO)
    for each in range(begin, min(table[i + ONE], nodes)):
        node = i64(each)
        row = base + node * NODE_FIELDS
        start, length = needed_slots(table, row, begin, node, out)
        holds, at = table[row + FOUR], table[row + FIVE]
        width = min(max(table[row + SEVEN], ONE), EIGHT)
        elements = table[row + SIX] // width
        first, end, last = NOWHERE, NOWHERE, NOWHERE
        if holds != EMPTY and start >= ZERO:
            if length == ZERO:
                first, end, last = ZERO, ZERO, ZERO
            elif holds == HOLDS_OFFSETS and start + length < elements:
                first = integer_at(words, at + start * width, width)
                end = integer_at(words, at + (start + length) * width, width)
            elif holds == HOLDS_RUNS and elements > ZERO:
                first = runs_until(words, at, width, elements, start)
                end = runs_until(words, at, width, elements, start + length - ONE) + ONE
                last = integer_at(words, at + (elements - ONE) * width, width)
        target = node * FOUND
        out[target] = start
        out[target + ONE] = length
        out[target + TWO] = first
        out[target + THREE] = end
        out[target + FOUR] = last


def count_in_ranges(i: Any, words: Any, table: Any, found: Any, lanes: Any, counts: Any) -> None:
    """Count the set bits of a bitmap in the range of its node: every `lanes`-th word of those that hold it.

    Work item: one of the `lanes` of a bitmap, bitmap by bitmap. `table` holds :data:`COUNT_FIELDS` numbers for
    each, `found` is what :func:`find_ranges` wrote. Nothing is counted where that does not fit.
    """
    if lanes < ONE or i >= i64(len(counts)):
        return
    row = i // lanes * BITMAP_FIELDS
    total = ZERO
    if row + THREE < i64(len(table)):
        node, at, size, spared = table[row], table[row + ONE], table[row + TWO], table[row + THREE]
        if ZERO <= node < i64(len(found)) // FOUND:
            start, length = found[node * FOUND], found[node * FOUND + ONE]
            fits = ZERO <= start <= (size << THREE) - length and at >= ZERO
            if fits and length > ZERO and (start > ZERO or length != spared):
                first = (at << THREE) + start
                stop = first + length
                word_of = (first >> SIX) + i % lanes
                held = i64(len(words))
                while word_of <= (stop - ONE) >> SIX and ZERO <= word_of < held:
                    word = words[word_of]
                    before, behind = first - word_of * WORD, (word_of + ONE) * WORD - stop
                    if before > ZERO:
                        word = word >> u64(before) << u64(before)
                    if behind > ZERO:
                        word = word << u64(behind) >> u64(behind)
                    total += set_bits_of(word)
                    word_of += lanes
    counts[i] = total


SIGNATURES = {
    find_ranges: ("u64[], i64[], i64, i64[]!",),
    count_in_ranges: ("u64[], i64[], i64[], i64, i64[]!",),
}
