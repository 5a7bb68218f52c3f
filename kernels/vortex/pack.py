"""Bit-packing in the order of FastLanes, and text encoded by FSST: the writer's side of the other kernels here.

Work item: of :func:`pack_words` one chunk of 1,024 elements; of the others one row.
"""

from __future__ import annotations

from typing import Any, Final

from bowstring.kernels.types import i64, u8, u64
from bowstring.kernels.vortex.unpack import ALL, ROW, finished, mask_of, row_of

SLOTS: Final = 4096
"""Places for symbols of three bytes and more, found by a hash of the first three."""

ESCAPE: Final = 255
SIZE_SHIFT: Final = 8
MIX = u64(2971215073)
PREFIX = u64(0xFFFFFF)
LAST_SLOT = u64(SLOTS - 1)


def pack_words(
    i: Any, values: Any, width: Any, log: Any, ones: Any, zigzag: Any, reference: Any, out: Any
) -> None:
    """Write the lowest bits of the elements of a chunk, less a reference, or zigzag-coded."""
    # Words as in `bowstring.kernels.vortex.unpack`; reference: what is added, once for each element of a word.
    bits = 1 << log
    source = i * bits * ROW
    target = i * width * ROW
    room = i64(len(out))
    if width < 1 or width > bits or source + bits * ROW > i64(len(values)) or target + width * ROW > room:
        return
    top = u64(bits - 1)
    lane = ALL >> u64(64 - bits)
    mask = mask_of(width, ones)
    for row in range(bits):
        bit = row * width
        shift = u64(bit & (bits - 1))
        up = (lane & (lane << shift)) * ones
        word = u64(target + (bit >> log) * ROW)
        at = u64(source) + row_of(row, log)
        spills = i64(shift) + width > bits
        for k in range(16):
            value = values[at + u64(k)]
            if zigzag != 0:
                sign = (value >> top) & ones
                value = ((value << 1) & ~ones) ^ ((sign << top << 1) - sign)
            value = finished(value, ones, top, i64(0), reference) & mask
            if shift == 0:
                out[word + u64(k)] = value
            else:
                out[word + u64(k)] = out[word + u64(k)] | ((value << shift) & up)
                if spills:
                    rest = u64(bits) - shift
                    out[word + 16 + u64(k)] = (value >> rest) & (((1 << (u64(width) - rest)) - 1) * ones)


def slot_of(word: Any) -> Any:
    """Return the slot of symbols that begin with the lowest three bytes of a word."""
    mixed = (word & PREFIX) * MIX
    return (mixed >> 17 ^ mixed) & LAST_SLOT


def code_at(
    text: Any, at: Any, stop: Any, singles: Any, pairs: Any, symbols: Any, masks: Any, codes: Any
) -> Any:
    """Return the code of the symbol that the text goes on with, or 255, and how many bytes that stands for."""
    word = u64(0)
    for k in range(min(i64(8), stop - at)):
        word |= u64(text[u64(at + k)]) << u64(k << 3)
    slot = slot_of(word)
    found = u64(codes[slot])
    size = i64(found >> SIZE_SHIFT)
    if size == 0 or size > stop - at or (word & masks[slot]) != symbols[slot]:
        found = u64(singles[word & 0xFF])
        if stop - at > 1:
            found = u64(pairs[word & 0xFFFF])
        size = i64(found >> SIZE_SHIFT)
    return found & 0xFF, size


def measure_fsst(
    i: Any, text: Any, offsets: Any, singles: Any, pairs: Any, symbols: Any, masks: Any, codes: Any, out: Any
) -> None:
    """Write how many bytes the codes of a row take."""
    at = offsets[u64(i)]
    stop = offsets[u64(i + 1)]
    total = i64(0)
    if tables_fit(singles, pairs, symbols, masks, codes) and 0 <= at <= stop <= i64(len(text)):
        while at < stop:
            code, size = code_at(text, at, stop, singles, pairs, symbols, masks, codes)
            total += 1
            if code == ESCAPE:
                total += 1
            at += max(size, i64(1))
    out[u64(i)] = total


def tables_fit(singles: Any, pairs: Any, symbols: Any, masks: Any, codes: Any) -> Any:
    """Return whether the tables of symbols have their sizes."""
    small = i64(len(singles)) == 256 and i64(len(pairs)) == 65536
    return small and i64(len(symbols)) == SLOTS and i64(len(masks)) == SLOTS and i64(len(codes)) == SLOTS


def write_fsst(
    i: Any,
    text: Any,
    offsets: Any,
    singles: Any,
    pairs: Any,
    symbols: Any,
    masks: Any,
    codes: Any,
    places: Any,
    out: Any,
) -> None:
    """Write the codes of a row at its place; what has no symbol is 255 and its byte."""
    at = offsets[u64(i)]
    stop = offsets[u64(i + 1)]
    to = places[u64(i)]
    end = min(places[u64(i + 1)], i64(len(out)))
    if tables_fit(singles, pairs, symbols, masks, codes) and 0 <= at <= stop <= i64(len(text)) and to >= 0:
        while at < stop and to < end:
            code, size = code_at(text, at, stop, singles, pairs, symbols, masks, codes)
            out[u64(to)] = u8(code)
            to += 1
            if code == ESCAPE and to < end:
                out[u64(to)] = text[u64(at)]
                to += 1
            at += max(size, i64(1))


TABLES = "u16[], u16[], u64[], u64[], u16[]"

SIGNATURES = {
    pack_words: ("u64[], i64, i64, u64, i64, u64, u64[]!",),
    measure_fsst: (f"u8[], i64[], {TABLES}, i64[]!",),
    write_fsst: (f"u8[], i64[], {TABLES}, i64[], u8[]!",),
}
