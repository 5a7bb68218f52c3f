"""Text and bytes of Vortex: FSST and OnPair decoded, and views of values that lie one after the other.

Work item: ``step`` rows, of :func:`make_views` one, of :func:`make_views_of_prefixed` all. The lengths of all rows
are known before any is decoded, so their sums say where each goes. An item writes inside the place of its rows
only, and each row must fill its own exactly: else ``faults`` says so.
"""

from __future__ import annotations

from typing import Final

from bowstring.kernels.types import i64, u8, u64
from bowstring.kernels.validity import bit_is_set
from bowstring.kernels.words import bytes_at, load_word, number_at, store_word

LENGTH: Final = 5
"""The place in ``faults`` that becomes 1 where the bytes of a row are not as many as its length."""
TOKEN: Final = 6
"""The place in ``faults`` that becomes 1 where a code of text stands for nothing, or offsets point outside."""

ESCAPE: Final = 255
MOST: Final = u64(2**31 - 1)
INSIDE: Final = 12


def places_of(row, code_offsets, held, offsets, room):
    """Return whether the codes of a row and the place for its bytes lie within bounds, and where they are."""
    at = code_offsets[u64(row)]
    stop = code_offsets[u64(row + 1)]
    to = offsets[u64(row)]
    end = offsets[u64(row + 1)]
    return 0 <= at <= stop <= held and 0 <= to <= end <= room, at, stop, to, end


def rows_of(i, step, code_offsets, offsets, room):
    """Return the rows of an item, and where the place for all of their bytes ends."""
    rows = min(i64(len(offsets)), i64(len(code_offsets))) - 1
    last = min((i + 1) * step, rows)
    end = i64(0)
    if last >= 0:
        end = min(offsets[u64(last)], room)
    return i * step, last, end


def add_lengths(i, lengths, offsets):
    """Write where values begin, and where the last ends; a length of 2 GiB or more counts as 2 GiB."""
    total = u64(0)
    offsets[u64(i)] = 0
    for row in range(min(i64(len(lengths)), i64(len(offsets)) - 1)):
        total += min(u64(lengths[u64(row)]), MOST)
        offsets[u64(row + 1)] = i64(total)


def fill_symbol(i, symbols, lengths, words, sizes):
    """Write a symbol of FSST as a word, and its length: 0 for what is no symbol."""
    size = u64(0)
    word = u64(0)
    if i < min(i64(len(lengths)), i64(len(symbols)) >> 3) and i < ESCAPE:
        word = load_word(symbols, u64(i << 3))
        size = u64(lengths[u64(i)])
        if size > 8:
            size = u64(0)
    words[u64(i)] = word
    sizes[u64(i)] = u8(size & 0xFF)


def decode_fsst(i, codes, code_offsets, symbols, lengths, offsets, step, out, faults):
    """Write the text of rows: codes stand for symbols of 1 to 8 bytes; 255 says that the next byte is as it is.

    There are 256 symbols; the length of those that are none is 0.
    """
    row, last, limit = rows_of(i, step, code_offsets, offsets, i64(len(out)))
    if min(i64(len(symbols)), i64(len(lengths))) < 256:
        faults[TOKEN] = 1
        return
    while row < last:
        fits, at, stop, to, end = places_of(row, code_offsets, i64(len(codes)), offsets, limit)
        if not fits:
            faults[TOKEN] = 1
            return
        while at < stop:
            code = u64(codes[u64(at)])
            symbol = symbols[code]
            size = i64(lengths[code])
            at += 1
            if size == 0:
                if code != ESCAPE or at == stop:
                    faults[TOKEN] = 1
                    return
                symbol = u64(codes[u64(at)])
                size = i64(1)
                at += 1
            if limit - to >= 8:
                # What is too much is written over by the next symbol, or by the next row.
                store_word(out, u64(to), symbol)
            elif size <= limit - to:
                for k in range(size):
                    out[u64(to + k)] = u8((symbol >> u64(k << 3)) & 0xFF)
            else:
                faults[LENGTH] = 1
                return
            to += size
        if to != end:
            faults[LENGTH] = 1
        row += 1


def decode_onpair(i, codes, code_offsets, tokens, token_offsets, offsets, step, out, faults):
    """Write the text of rows: codes stand for tokens of a dictionary of any length."""
    row, row_end, limit = rows_of(i, step, code_offsets, offsets, i64(len(out)))
    held = i64(len(tokens))
    while row < row_end:
        fits, at, stop, to, end = places_of(row, code_offsets, i64(len(codes)), offsets, limit)
        if not fits:
            faults[TOKEN] = 1
            return
        while at < stop:
            code = i64(codes[u64(at)])
            at += 1
            first = i64(-1)
            last = i64(-1)
            if code + 1 < i64(len(token_offsets)):
                first = token_offsets[u64(code)]
                last = token_offsets[u64(code + 1)]
            if not 0 <= first <= last <= held:
                faults[TOKEN] = 1
                return
            size = last - first
            if limit - to >= 16 and first + 16 <= held and size <= 16:
                store_word(out, u64(to), load_word(tokens, u64(first)))
                store_word(out, u64(to + 8), load_word(tokens, u64(first + 8)))
            elif size <= limit - to:
                for k in range(size):
                    out[u64(to + k)] = tokens[u64(first + k)]
            else:
                faults[LENGTH] = 1
                return
            to += size
        if to != end:
            faults[LENGTH] = 1
        row += 1


def view_of(data, start, size, buffer):
    """Return the two words of the view of a value, which lies within the data."""
    low = u64(size) | bytes_at(data, u64(start), u64(min(size, i64(4)))) << 32
    high = buffer | u64(start) << 32
    if size <= INSIDE:
        high = bytes_at(data, u64(start + 4), u64(max(size - 4, i64(0))))
    return low, high


def make_views(i, offsets, data, buffer, validity, first, out, faults):
    """Write the view of a value: two words, with up to twelve bytes of it, or four and where it lies."""
    start = i64(offsets[u64(i)])
    stop = i64(offsets[u64(i + 1)])
    held = i64(len(data))
    low = u64(0)
    high = u64(0)
    if 0 <= start <= stop <= held and stop - start < 2**31 and start < 2**31:
        low, high = view_of(data, start, stop - start, buffer)
    elif bit_is_set(validity, first + i):
        faults[LENGTH] = 1
    out[u64(2 * i)] = low
    out[u64(2 * i + 1)] = high


def make_views_of_prefixed(i, data, validity, rows, out, faults):
    """Write the views of values that each have their length as ``u32`` before them, and none where a row is null.

    Only a length says where the next one is, so one item does all rows.
    """
    held = i64(len(data))
    at = i64(i)
    fits = held < 2**31
    row = i64(0)
    while row < rows:
        low = u64(0)
        high = u64(0)
        if fits and bit_is_set(validity, row):
            start = at + 4
            fits = start <= held
            if fits:
                size = i64(number_at(data, u64(at)))
                at = start + size
                fits = at <= held
                if fits:
                    low, high = view_of(data, start, size, u64(0))
        out[u64(2 * row)] = low
        out[u64(2 * row + 1)] = high
        row += 1
    if not fits:
        faults[LENGTH] = 1


CODES = ("u8", "u16", "u32")

SIGNATURES = {
    add_lengths: tuple(f"{each}[], i64[]!" for each in (*CODES, "u64")),
    fill_symbol: ("u8[], u8[], u64[]!, u8[]!",),
    decode_fsst: ("u8[], i64[], u64[], u8[], i64[], i64, u8[]!, i64[]!",),
    decode_onpair: tuple(f"{code}[], i64[], u8[], i64[], i64[], i64, u8[]!, i64[]!" for code in CODES[1:]),
    make_views: tuple(f"{each}[], u8[], u64, u8[], i64, u64[]!, i64[]!" for each in ("i32", "i64")),
    make_views_of_prefixed: ("u8[], u8[], i64, u64[]!, i64[]!",),
}
