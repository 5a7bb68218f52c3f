"""Whether bytes are UTF-8, eight at a time: no overlong forms, no surrogates, nothing above U+10FFFF.

Work item: a block of :data:`WORDS` 64-bit words, or of :data:`~bowstring.kernels.validation.text.ROWS` rows. A byte
is judged by itself and the three before it, so blocks need nothing of each other. If the text as a whole is right
and no row begins inside a character, every row is; else each is checked alone: bytes outside of rows may be any.
"""

from __future__ import annotations

from typing import Final

from bowstring.kernels.types import i64, u64
from bowstring.kernels.validity import bit_is_set
from bowstring.kernels.words import HIGH, load_word

ASCII: Final = i64(0)
"""The mark of a block that holds nothing but ASCII."""
TEXT: Final = i64(1)
"""The mark of a block with other characters, all of them right."""
BROKEN: Final = i64(2)
"""The mark of a block that is not UTF-8."""
WORDS: Final = i64(128)
"""Words of text that one work item looks at."""

BYTES = i64(8)
BLOCK = WORDS * BYTES
LONG = i64(4) * BLOCK


ROWS: Final = i64(256)
"""Rows that one work item looks at."""
NO_ROW: Final = i64(2**63 - 1)
"""The answer of a block without a wrong row."""


def faults(word, previous):
    """Return a word that is not 0 where one of 8 bytes cannot follow the bytes before it.

    All is decided in the highest bit of each byte: ``x << n`` brings bit ``7 - n`` of each byte there.
    """
    b5 = word << 2
    b4 = word << 3
    b3 = word << 4
    b2 = word << 5
    b1 = word << 6
    leads = word & (word << 1) & HIGH  # from C0 on
    leads_3 = leads & b5  # from E0 on
    leads_4 = leads_3 & b4  # from F0 on
    was_lead = previous & (previous << 1) & HIGH
    was_lead_3 = was_lead & (previous << 2)
    was_lead_4 = was_lead_3 & (previous << 3)
    needed = (leads << 8) | (was_lead >> 56)
    needed |= (leads_3 << 16) | (was_lead_3 >> 48)
    needed |= (leads_4 << 24) | (was_lead_4 >> 40)
    fault = (word & HIGH & ~leads) ^ needed
    fault |= leads & ~(b5 | b4 | b3 | b2 | b1)  # C0 and C1
    fault |= leads_4 & (b3 | (b2 & (b1 | (word << 7))))  # from F5 on
    return fault | second_faults(word, (word << 8) | (previous >> 56))


def second_faults(word, before):
    """Return where a byte cannot follow the one before it, which begins a character of three or four bytes."""
    b5 = word << 2
    b4 = word << 3
    leads = before & (before << 1) & (before << 2) & HIGH
    is_4 = before << 3
    p3 = before << 4
    p2 = before << 5
    p1 = before << 6
    p0 = before << 7
    is_first = ~(p3 | p2 | p1 | p0)
    fault = ~is_4 & is_first & ~b5  # E0: overlong below A0
    fault |= ~is_4 & p3 & p2 & ~p1 & p0 & b5  # ED: surrogates above 9F
    fault |= is_4 & is_first & ~(b5 | b4)  # F0: overlong below 90
    fault |= is_4 & p2 & (b5 | b4)  # F4: too large above 8F
    return fault & leads


def text_word(data, at, start, stop):
    """Return the 8 bytes at a place as a word, those outside ``[start, stop)`` as 0."""
    word = u64(0)
    for k in range(8):
        if at + k >= start and at + k < stop:
            word |= u64(data[at + k]) << u64(k << 3)
    return word


def is_text(data, start, stop):
    """Return whether ``[start, stop)``, which lies in `data`, is UTF-8 by itself."""
    return fault_from(data, start, u64(0), start, stop) == 0


def fault_from(data, at, before, start, stop):
    """Return a word that is not 0 where a byte of ``[at, stop)`` is wrong, `before` being the word before it."""
    fault = u64(0)
    previous = before
    place = at
    while place + 8 <= stop and fault == 0:
        word = load_word(data, u64(place))
        if (word | previous) & HIGH != 0:
            fault = faults(word, previous)
        previous = word
        place += 8
    # The zeros behind the text are what a character that is cut off lacks.
    last = u64(0)
    if stop - 8 < start:
        last = text_word(data, place, start, stop)
    elif place < stop:
        last = load_word(data, u64(stop - 8)) >> u64((place + 8 - stop) << 3)
    if (last | previous) & HIGH != 0:
        fault |= faults(last, previous)
    return fault


def is_text_by_blocks(data, broken, lead, start, stop):
    """Return the same as :func:`is_text`, reading at most the first and the last block of a value."""
    # broken[k]: broken blocks among the first k of `data`; lead: as in `check_text`. Values may overlap: without
    # this, a few bytes would ask for any amount of work.
    right = stop - start <= LONG
    if right:
        right = is_text(data, start, stop)
    else:
        origin = lead + ((-lead >> 3) << 3)
        # From the third byte on, none looks at what lies before the value.
        first = (start + 3 - origin) // BLOCK + 1
        last = min((stop - origin) // BLOCK, i64(len(broken)) - 1)
        head = origin + first * BLOCK
        tail = origin + last * BLOCK
        right = (
            first <= last
            and i64(broken[first]) == i64(broken[last])
            and is_text_until(data, start, head, stop)
            and fault_from(data, tail, text_word(data, tail - 8, start, stop), start, stop) == 0
        )
    return right


def is_text_until(data, start, until, stop):
    """Return whether the words that begin in ``[start, until)`` are UTF-8, in a text that ends at `stop`."""
    fault = u64(0)
    previous = u64(0)
    place = start
    while place < until and fault == 0:
        word = text_word(data, place, start, stop)
        fault = faults(word, previous)
        previous = word
        place += 8
    return fault == 0


def check_text(i, data, words, lead, start, stop, marks):
    """Mark a block of the text ``[start, stop)`` as ASCII, as other text, or as broken.

    `words` are the same bytes as `data`, from byte `lead` on, where whole words begin.
    """
    first = ((start - lead) >> 3) + i * WORDS
    last = min(first + WORDS, ((stop - lead) >> 3) + 1)
    whole = (start - lead + 7) >> 3
    fault = u64(0)
    seen = u64(0)
    if first > whole and last <= min((stop - lead) >> 3, i64(len(words))):
        # Indices that the compiler can see are not negative: only so does it use wide instructions.
        begin = max(first, i64(1))
        before = max(first - 1, i64(0))
        seen = u64(words[before])
        for k in range(last - begin):
            seen |= u64(words[begin + k])
        if seen & HIGH != 0:
            for k in range(last - begin):
                fault |= faults(u64(words[begin + k]), u64(words[before + k]))
    else:
        previous = text_word(data, lead + ((first - 1) << 3), start, stop)
        seen = previous
        for k in range(first, last):
            word = text_word(data, lead + (k << 3), start, stop)
            seen |= word
            fault |= faults(word, previous)
            previous = word
    mark = ASCII
    if seen & HIGH != 0:
        mark = TEXT
    if fault != 0:
        mark = BROKEN
    marks[i] = mark


def check_starts(i, offsets, data, rows, stop, worst, bad):
    """Find the first row that begins inside a character of the text before `stop`.

    `worst` is the greatest mark of the text: in ASCII there is no such row.
    """
    first = block_start(i)
    end = block_end(i, rows, i64(len(offsets)))
    limit = min(stop, i64(len(data)))
    found = NO_ROW
    if worst[0] != ASCII:
        for row in range(first, end):
            at = i64(offsets[row])
            if found == NO_ROW and at >= 0 and at < limit and u64(data[at]) & 0xC0 == 0x80:
                found = i64(row)
    bad[i] = found


def check_text_rows(i, offsets, validity, data, rows, bad):
    """Find the first valid row that is not UTF-8 by itself."""
    end = block_end(i, rows, i64(len(offsets)) - 1)
    size = i64(len(data))
    found = NO_ROW
    for row in range(block_start(i), end):
        start = min(max(i64(offsets[row]), i64(0)), size)
        stop = min(i64(offsets[row + 1]), size)
        if found == NO_ROW and bit_is_set(validity, i64(row)) and not is_text(data, start, stop):
            found = i64(row)
    bad[i] = found


def blocks_of(rows: int) -> int:
    """Return how many blocks, and so work items, some rows are."""
    return -(-rows // int(ROWS))


def block_start(i):
    """Return the first row of a block; the compiler sees that it is not negative, and makes better loops."""
    return max(i * ROWS, i64(0))


def block_end(i, rows, held):
    """Return one past the last row of a block, where there are so many rows, and arrays hold so many."""
    end = min(block_start(i) + ROWS, rows)
    return min(end, held)


SIGNATURES = {
    check_text: ("u8[], u64[], i64, i64, i64, i64[]!",),
    check_starts: ("i32[], u8[], i64, i64, i64[], i64[]!", "i64[], u8[], i64, i64, i64[], i64[]!"),
    check_text_rows: ("i32[], u8[], u8[], i64, i64[]!", "i64[], u8[], u8[], i64, i64[]!"),
}
