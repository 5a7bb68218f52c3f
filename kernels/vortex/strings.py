"""Text and bytes of Vortex: FSST and OnPair decoded, and views of values that lie one after the other.

Work item: one row. The lengths of all rows are known before any is decoded, so their sums say where each goes. A
row writes inside its own place only, and fills it exactly: else it ends there, and ``faults`` says so.
"""

from __future__ import annotations

from typing import Any, Final

from bowstring.kernels.types import i64, u8, u64
from bowstring.kernels.validity import bit_is_set
from bowstring.kernels.words import load_word, store_word

__all__ = ["LENGTH", "SIGNATURES", "TOKEN", "decode_fsst", "decode_onpair", "make_views"]

LENGTH: Final = 5
"""The place in ``faults`` that becomes 1 where the bytes of a row are not as many as its length."""
TOKEN: Final = 6
"""The place in ``faults`` that becomes 1 where a code of text stands for nothing, or offsets point outside."""

ESCAPE: Final = 255
INSIDE: Final = 12


def places_of(i: Any, code_offsets: Any, held: Any, offsets: Any, room: Any) -> Any:
    """Return whether the codes of a row and the place for its bytes lie within bounds, and where they are."""
    at = code_offsets[u64(i)]
    stop = code_offsets[u64(i + 1)]
    to = offsets[u64(i)]
    end = offsets[u64(i + 1)]
    return 0 <= at <= stop <= held and 0 <= to <= end <= room, at, stop, to, end


def decode_fsst(
    i: Any,
    codes: Any,
    code_offsets: Any,
    symbols: Any,
    lengths: Any,
    offsets: Any,
    out: Any,
    faults: Any,
) -> None:
    """Write the text of a row: codes stand for symbols of 1 to 8 bytes; 255 says that the next byte is as it is."""
    fits, at, stop, to, end = places_of(i, code_offsets, i64(len(codes)), offsets, i64(len(out)))
    if not fits:
        faults[TOKEN] = 1
        return
    held = min(i64(len(symbols)), i64(len(lengths)))
    while at < stop:
        code = i64(codes[u64(at)])
        at += 1
        symbol = u64(0)
        size = i64(0)
        if code == ESCAPE:
            if at < stop:
                symbol = u64(codes[u64(at)])
                size = i64(1)
            at += 1
        elif code < held:
            symbol = symbols[u64(code)]
            size = i64(lengths[u64(code)])
        if size < 1 or size > 8:
            faults[TOKEN] = 1
            return
        if size > end - to:
            faults[LENGTH] = 1
            return
        if end - to >= 8:
            # What is too much is written over by the next symbol.
            store_word(out, u64(to), symbol)
        else:
            for k in range(size):
                out[u64(to + k)] = u8((symbol >> u64(k << 3)) & 0xFF)
        to += size
    if to != end:
        faults[LENGTH] = 1


def decode_onpair(
    i: Any,
    codes: Any,
    code_offsets: Any,
    tokens: Any,
    token_offsets: Any,
    offsets: Any,
    out: Any,
    faults: Any,
) -> None:
    """Write the text of a row: codes stand for tokens of a dictionary of any length."""
    fits, at, stop, to, end = places_of(i, code_offsets, i64(len(codes)), offsets, i64(len(out)))
    if not fits:
        faults[TOKEN] = 1
        return
    held = i64(len(tokens))
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
        if size > end - to:
            faults[LENGTH] = 1
            return
        if end - to >= 16 and first + 16 <= held and size <= 16:
            store_word(out, u64(to), load_word(tokens, u64(first)))
            store_word(out, u64(to + 8), load_word(tokens, u64(first + 8)))
        else:
            for k in range(size):
                out[u64(to + k)] = tokens[u64(first + k)]
        to += size
    if to != end:
        faults[LENGTH] = 1


def make_views(
    i: Any, offsets: Any, data: Any, buffer: Any, validity: Any, first: Any, out: Any, faults: Any
) -> None:
    """Write the view of a value: two words, with up to twelve bytes of it, or four and where it lies."""
    start = i64(offsets[u64(i)])
    stop = i64(offsets[u64(i + 1)])
    low = u64(0)
    high = u64(0)
    if 0 <= start <= stop <= i64(len(data)) and stop - start < 2**31 and start < 2**31:
        size = stop - start
        low = u64(size)
        for k in range(min(size, i64(4))):
            low |= u64(data[u64(start + k)]) << u64(32 + (k << 3))
        if size <= INSIDE:
            for k in range(4, size):
                high |= u64(data[u64(start + k)]) << u64((k - 4) << 3)
        else:
            high = buffer | u64(start) << 32
    elif bit_is_set(validity, first + i):
        faults[LENGTH] = 1
    out[u64(2 * i)] = low
    out[u64(2 * i + 1)] = high


CODES = ("u8", "u16", "u32")

SIGNATURES = {
    decode_fsst: ("u8[], i64[], u64[], u8[], i64[], u8[]!, i64[]!",),
    decode_onpair: tuple(f"{code}[], i64[], u8[], i64[], i64[], u8[]!, i64[]!" for code in CODES[1:]),
    make_views: tuple(f"{each}[], u8[], u64, u8[], i64, u64[]!, i64[]!" for each in ("i32", "i64")),
}
